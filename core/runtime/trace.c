#include "core/runtime/trace.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/palette.h"

/* A task's name as it stands in the tree. */
struct name {
  unsigned colour;
  char text[160];
};

/* Of the environment, while the context is open. */
enum { VARIABLES = 2 };
static const char *const variables[VARIABLES] = {"STARPU_FXT_TRACE", "STARPU_FXT_PREFIX"};

struct sl__trace {
  char *before[VARIABLES];      /* NULL: not set */
  starpu_pthread_mutex_t mutex; /* callbacks submit tasks, too */
  _Atomic bool recording;
  void *names;   /* tsearch(3) */
  char **layers; /* in the order of their first tasks: each has its colour */
  int layer_count;
};

/* ---- the folder ---- */

static enum sl_status fail_folder(const char *folder, int error) {
  return sl__fail(SL_IO, "%s: the trace cannot be written there: %s", folder, strerror(error));
}

/* Raw data of an older trace there would be read as part of this one. */
static void remove_old(const char *folder) {
  char path[PATH_MAX];
  DIR *directory = opendir(folder);
  for (struct dirent *entry; directory && (entry = readdir(directory));)
    if (!strncmp(entry->d_name, "prof_file_", 10) &&
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) < PATH_MAX)
      unlink(path);
  if (directory) closedir(directory);
}

static enum sl_status make_folder(const char *folder) {
  if (sl_folder_make(folder) != SL_OK) return fail_folder(folder, errno);
  if (access(folder, W_OK | X_OK) != 0) return fail_folder(folder, errno);
  remove_old(folder);
  return SL_OK;
}

bool sl_trace_supported(void) {
#ifdef STARPU_USE_FXT
  return true;
#else
  return false;
#endif
}

static enum sl_status name_task(void *trace, const struct sl__call *call,
                                struct starpu_task *task) {
  sl__trace_task(trace, task, call->op, call->launch);
  return SL_OK;
}

enum sl_status sl__trace_open(struct sl_context *c, const char *folder) {
  if (!folder) return SL_OK;
  if (!sl_trace_supported())
    return sl__fail(SL_UNSUPPORTED,
                    "no trace can be recorded: StarPU was built without FxT; rebuild it "
                    "--with-fxt (tools/get-starpu does), then Starling");
  if (starpu_is_initialized())
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s: StarPU runs already, and records from its start or not at all; open the "
                    "context with a trace first",
                    folder);
  enum sl_status status = make_folder(folder);
  if (status != SL_OK) return status;
  struct sl__trace *t = sl__alloc(1, sizeof *t, "a trace");
  if (!t) return SL_NO_MEMORY;
  starpu_pthread_mutex_init(&t->mutex, NULL);
  for (int i = 0; i < VARIABLES; i++) {
    const char *value = getenv(variables[i]);
    t->before[i] = value ? strdup(value) : NULL;
  }
  setenv("STARPU_FXT_TRACE", "1", 1);
  setenv("STARPU_FXT_PREFIX", folder, 1);
  starpu_fxt_autostart_profiling(0);
  c->trace = t;
  return sl__submit_hook_add(c, &(struct sl__submit_hook){.before = name_task, .data = t});
}

void sl__trace_close(struct sl__trace *t) {
  if (!t) return;
  for (int i = 0; i < VARIABLES; i++) { /* the next context's are its own */
    t->before[i] ? setenv(variables[i], t->before[i], 1) : unsetenv(variables[i]);
    free(t->before[i]);
  }
  tdestroy(t->names, free);
  for (int i = 0; i < t->layer_count; i++) free(t->layers[i]);
  free(t->layers);
  starpu_pthread_mutex_destroy(&t->mutex);
  free(t);
}

enum sl_status sl_trace_start(struct sl_context *context) {
  SL__NEEDS(context);
  if (!context->trace)
    return sl__fail(SL_BAD_ARGUMENT, "the context was opened without a folder for traces");
  if (!context->trace->recording) starpu_fxt_start_profiling();
  context->trace->recording = true;
  return SL_OK;
}

void sl_trace_stop(struct sl_context *context) {
  SL__NEEDS_OR(, context);
  if (!context->trace || !context->trace->recording) return;
  context->trace->recording = false;
  starpu_fxt_stop_profiling();
}

/* ---- names ---- */

static int compare(const void *a, const void *b) {
  return strcmp(((const struct name *)a)->text, ((const struct name *)b)->text);
}

static int find_layer(struct sl__trace *t, const char *layer) {
  for (int i = 0; i < t->layer_count; i++)
    if (!strcmp(t->layers[i], layer)) return i;
  char **layers = realloc(t->layers, ((size_t)t->layer_count + 1) * sizeof *layers);
  if (!layers) return -1;
  t->layers = layers;
  layers[t->layer_count] = strdup(layer);
  return layers[t->layer_count] ? t->layer_count++ : -1;
}

/* "forward" of "sl_conv2d_forward", "adam" of "sl_adam". */
static const char *operation_of(const struct sl__op *op) {
  static const char *const passes[] = {"_forward", "_inference", "_backward"};
  const char *name = op->codelet.name;
  for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
    const char *found = strstr(name, passes[i]);
    if (found) return found + 1;
  }
  return strncmp(name, "sl_", 3) ? name : name + 3;
}

static enum sl__work work_of(const struct sl__op *op, const char *operation) {
  if (!strncmp(operation, "forward", 7) || !strncmp(operation, "inference", 9))
    return SL__WORK_FORWARD;
  if (!strncmp(operation, "backward_weight", 15) || !strncmp(operation, "backward_rows", 13))
    return SL__WORK_BACKWARD_WEIGHT;
  if (!strncmp(operation, "backward", 8) || strstr(operation, "gradient"))
    return SL__WORK_BACKWARD_DATA;
  if (op->updates || !strncmp(operation, "rows_", 5)) return SL__WORK_UPDATE;
  return SL__WORK_FORWARD;
}

static void add_number(struct name *name, char letter, int number) {
  size_t used = strlen(name->text);
  if (number > 0)
    snprintf(name->text + used, sizeof name->text - used, "/%c%d", letter, number - 1);
}

/* Readers of Paje files end a name at a space. */
static void write_name(struct name *name, const char *layer, const char *operation,
                       const struct sl__slice_mark *mark) {
  snprintf(name->text, sizeof name->text, "%.100s.%.30s", layer, operation);
  add_number(name, 's', mark->stage);
  add_number(name, 'r', mark->replica);
  add_number(name, 'm', mark->microbatch);
  add_number(name, 'c', mark->chunk);
  for (char *c = name->text; *c; c++)
    if (*c == ' ' || *c == '\t' || *c == '"') *c = '_';
}

static const struct name *intern(struct sl__trace *t, const struct name *name, const char *layer,
                                 const struct sl__op *op) {
  struct name **found = tfind(name, &t->names, compare);
  if (found) return *found;
  int number = find_layer(t, layer);
  struct name *kept = number < 0 ? NULL : malloc(sizeof *kept);
  if (!kept) return NULL;
  *kept = *name;
  kept->colour = sl__layer_colour(number, work_of(op, operation_of(op)));
  if (tsearch(kept, &t->names, compare)) return kept;
  free(kept);
  return NULL;
}

void sl__trace_task(struct sl__trace *t, struct starpu_task *task, const struct sl__op *op,
                    const struct sl__launch *launch) {
  if (!t->recording) return;
  const char *layer = launch->name ? launch->name : "-";
  if (launch->traced_as) op = launch->traced_as;
  struct name name;
  write_name(&name, layer, operation_of(op), &launch->mark);
  starpu_pthread_mutex_lock(&t->mutex);
  const struct name *kept = intern(t, &name, layer, op);
  starpu_pthread_mutex_unlock(&t->mutex);
  if (!kept) return;
  task->name = kept->text;
  task->color = kept->colour;
}

void sl__trace_message(struct sl__trace *t, bool is_send, int peer, const char *name,
                       double microseconds) {
  char text[160];
  if (!t->recording) return;
  snprintf(text, sizeof text, "message %s %d %.0f us %.100s", is_send ? "to" : "from", peer,
           microseconds, name ? name : "-");
  starpu_fxt_trace_user_event_string(text);
}
