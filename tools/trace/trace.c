#include "tools/trace/trace.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The fields of a record that starling-trace needs. */
struct record {
  struct fields {
    double start, end, gflop;
    double worker, rank;
    long long job;
    long step;
    bool has_worker, has_start, has_end, has_job;
  } f;
  char name[192], model[64], sizes[4096], modes[1024], depends[16384];
};

static void clear(struct record *r) {
  r->f = (struct fields){.rank = -1};
  strcpy(r->name, "?");
  *r->model = *r->sizes = *r->modes = *r->depends = '\0';
}

static bool starts(const char *text, const char *with) {
  return strncmp(text, with, strlen(with)) == 0;
}

void *trace_grow(void *array, size_t count, size_t *room, size_t size) {
  if (count < *room) return array;
  size_t more = *room ? 2 * *room : 256;
  void *grown = realloc(array, more * size);
  if (grown) *room = more;
  return grown;
}

int trace_number(const char *text, char **end) {
  const long most = 1 << 20;
  char *after;
  long number = strtol(text, &after, 10); /* LONG_MAX where it is too large */
  if (end) *end = after;
  return after != text && number >= 0 && number <= most ? (int)number : -1;
}

/* ---- kinds of tasks ---- */

static int find_layer(struct trace *trace, const char *name) {
  for (int i = 0; i < trace->layer_count; i++)
    if (!strcmp(trace->layers[i], name)) return i;
  char **layers = realloc(trace->layers, ((size_t)trace->layer_count + 1) * sizeof *layers);
  if (!layers) return -1;
  trace->layers = layers;
  layers[trace->layer_count] = strdup(name);
  return layers[trace->layer_count] ? trace->layer_count++ : -1;
}

int trace_worker(struct trace *trace, int rank, int number) {
  for (int i = 0; i < trace->worker_count; i++)
    if (trace->workers[i].rank == rank && trace->workers[i].number == number) return i;
  struct trace_worker *workers =
      realloc(trace->workers, ((size_t)trace->worker_count + 1) * sizeof *workers);
  if (!workers) return -1;
  trace->workers = workers;
  struct trace_worker *w = &workers[trace->worker_count];
  *w = (struct trace_worker){.rank = rank, .number = number, .is_cpu = true};
  snprintf(w->name, sizeof w->name, "worker %d", number);
  return trace->worker_count++;
}

static bool is_any(const char *model, const char *const *names) {
  for (; *names; names++)
    if (strstr(model, *names)) return true;
  return false;
}

static enum trace_pass pass_of(const char *model) {
  static const char *const updates[] = {
#define SL__OP(name, modes, where)
#define SL__UPDATE(name, states, modes) #name,
#define SL__UPDATE_OP(name, modes, where) #name,
#include "codelets/ops.def"
#undef SL__OP
      "reduce", "square", "rows_dense", NULL};
  static const char *const weights[] = {"backward_weight", "backward_rows", "bias_backward", NULL};
  static const char *const messages[] = {"sl_send", "sl_receive", NULL};
  if (is_any(model, messages)) return PASS_MESSAGE;
  if (is_any(model, updates)) return PASS_UPDATE;
  if (is_any(model, weights)) return PASS_BACKWARD_WEIGHT;
  return strstr(model, "backward") ? PASS_BACKWARD_DATA : PASS_FORWARD;
}

/* A captured graph's task has the name of its first call, and no operation of its own: "sgd" of
 * "fc1.sgd", "forward" of "conv1..pool1.forward/r0". */
static const char *operation_of(const struct record *r, char *text, size_t size) {
  const char *last = strrchr(r->name, '.');
  if (strcmp(r->model, "sl_subgraph") != 0 || !last) return r->model;
  snprintf(text, size, "sl_%.*s", (int)strcspn(last + 1, "/"), last + 1);
  return text;
}

/* Cuts a task's name to the layer's: "conv1" of "conv1.forward/r0" for the operation
 * sl_conv2d_forward. Returns the marks after the operation. A name without the operation stays
 * whole, without marks. */
static const char *split_name(char *name, const char *model) {
  static const char *const passes[] = {"_forward", "_inference", "_backward"};
  const char *operation = model + 3;
  char with_dot[sizeof((struct record *)0)->model + 1];
  for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
    const char *found = strstr(model, passes[i]);
    if (!found) continue;
    operation = found + 1;
    break;
  }
  snprintf(with_dot, sizeof with_dot, ".%s", operation);
  char *at = NULL;
  for (char *next = name; (next = strstr(next, with_dot)); next++) at = next;
  if (!at) return "";
  *at = '\0';
  return at + strlen(with_dot);
}

/* -1: there is no such mark, or its number is absurd. */
static int mark(const char *marks, char letter) {
  const char pattern[] = {'/', letter, '\0'};
  const char *found = strstr(marks, pattern);
  return found ? trace_number(found + 2, NULL) : -1;
}

/* Bytes of a task's tensors. Scratch memory does not count: no other task reads or writes it. */
static double bytes_of(const struct record *r) {
  const char *mode = r->modes, *size = r->sizes;
  double sum = 0;
  for (;;) {
    mode += strspn(mode, " ");
    size += strspn(size, " ");
    if (!*mode || !*size) return sum;
    if (*mode != 'S') sum += strtod(size, NULL);
    mode += strcspn(mode, " ");
    size += strcspn(size, " ");
  }
}

static bool keep_task(struct trace *trace, const struct record *r) {
  char layer[sizeof r->name], text[sizeof r->model];
  const char *operation = operation_of(r, text, sizeof text);
  struct trace_task *tasks =
      trace_grow(trace->tasks, trace->count, &trace->task_room, sizeof *tasks);
  if (!tasks) return false;
  trace->tasks = tasks;
  snprintf(layer, sizeof layer, "%s", r->name);
  const char *marks = split_name(layer, operation);
  struct trace_task t = {.job = r->f.job,
                         .worker = trace_worker(trace, (int)r->f.rank, (int)r->f.worker),
                         .layer = find_layer(trace, layer),
                         .pass = pass_of(operation),
                         .stage = mark(marks, 's'),
                         .replica = mark(marks, 'r'),
                         .microbatch = mark(marks, 'm'),
                         .chunk = mark(marks, 'c'),
                         .step = r->f.step,
                         .start = r->f.start,
                         .end = r->f.end,
                         .gflop = r->f.gflop,
                         .bytes = bytes_of(r),
                         .name = strdup(r->name)};
  if (t.worker < 0 || t.layer < 0 || !t.name) {
    free(t.name);
    return false;
  }
  trace->tasks[trace->count++] = t;
  return true;
}

/* ---- records ---- */

/* Reads "17", or "3_17" for job 17 of rank 3. */
static long long job_id(const char *text, char **end) {
  const int own_bits = 40, rank_bits = 20;
  long long id = strtoll(text, end, 10);
  if (**end != '_') return id;
  long long own = strtoll(*end + 1, end, 10);
  bool fits = id >= 0 && id < 1LL << rank_bits && own >= 0 && own < 1LL << own_bits;
  return fits ? (id + 1) << own_bits | own : -1;
}

static bool keep_job(struct trace *trace, const struct record *r, long task) {
  struct trace_job *jobs =
      trace_grow(trace->jobs, trace->job_count, &trace->job_room, sizeof *jobs);
  if (!jobs) return false;
  trace->jobs = jobs;
  struct trace_job *job = &jobs[trace->job_count++];
  *job = (struct trace_job){.id = r->f.job, .first = trace->depend_count, .task = task};
  char *end;
  for (const char *text = r->depends; text[strspn(text, " ")]; text = end) {
    long long *depends =
        trace_grow(trace->depends, trace->depend_count, &trace->depend_room, sizeof *depends);
    if (!depends) return false;
    trace->depends = depends;
    long long id = job_id(text, &end);
    if (end == text) break;
    depends[trace->depend_count++] = id;
    job->count++;
  }
  return true;
}

/* Returns false without memory. A job is a task if it has run and is an operation of Starling. */
static bool keep(struct trace *trace, const struct record *r) {
  bool is_task = r->f.has_worker && r->f.has_start && r->f.has_end && starts(r->model, "sl_");
  if (is_task && !keep_task(trace, r)) return false;
  return !r->f.has_job || keep_job(trace, r, is_task ? (long)trace->count - 1 : -1);
}

static bool number(const char *text, double *value) {
  char *end;
  *value = strtod(text, &end);
  return end != text && (!*end || *end == '\n') && isfinite(*value);
}

static bool take_text(const char *line, const char *field, char *to, size_t size) {
  if (!starts(line, field)) return false;
  const char *value = line + strlen(field);
  value += *value == ' ';
  size_t length = strcspn(value, "\n");
  if (length >= size) /* a list is cut at a blank */
    for (length = size - 1; length && value[length] != ' ';) length--;
  snprintf(to, size, "%.*s", (int)length, value);
  return true;
}

static bool take_job(struct record *r, const char *text) {
  char *end;
  r->f.job = job_id(text, &end);
  return r->f.has_job = end != text && *end == '\n';
}

/* Returns false for a value that is no number. */
static bool take_field(struct record *r, const char *line) {
  const double most_ranks = 1 << 20;
  if (take_text(line, "Name:", r->name, sizeof r->name)) return true;
  if (take_text(line, "Model:", r->model, sizeof r->model)) return true;
  if (take_text(line, "DependsOn:", r->depends, sizeof r->depends)) return true;
  if (take_text(line, "Sizes:", r->sizes, sizeof r->sizes)) return true;
  if (take_text(line, "Modes:", r->modes, sizeof r->modes)) return true;
  if (starts(line, "JobId: ")) return take_job(r, line + 7);
  if (starts(line, "GFlop: ")) return number(line + 7, &r->f.gflop);
  if (starts(line, "MPIRank: "))
    return number(line + 9, &r->f.rank) && r->f.rank >= -1 && r->f.rank <= most_ranks;
  if (starts(line, "Iteration: ")) r->f.step = strtol(line + 11, NULL, 10);
  if (starts(line, "WorkerId: "))
    return r->f.has_worker =
               number(line + 10, &r->f.worker) && r->f.worker >= 0 && r->f.worker <= 4095;
  if (starts(line, "StartTime: ")) return r->f.has_start = number(line + 11, &r->f.start);
  if (starts(line, "EndTime: ")) return r->f.has_end = number(line + 9, &r->f.end);
  return true;
}

/* StarPU 1.4 writes no empty line after this field. */
static bool ends_record(const char *line) {
  return line[0] == '\n' || starts(line, "EndDependencies:");
}

static bool read_lines(FILE *f, const char *path, struct trace *trace, char *message, size_t size) {
  struct record *record = malloc(sizeof *record);
  char *line = NULL;
  size_t capacity = 0;
  bool fine = record;
  ssize_t length;
  if (fine) clear(record);
  for (long n = 1; fine && (length = getline(&line, &capacity, f)) > 0; n++) {
    bool whole = line[length - 1] == '\n';
    if (ends_record(line)) {
      fine = keep(trace, record);
      clear(record);
    } else if (!whole || !take_field(record, line)) {
      snprintf(message, size,
               whole ? "%s, line %ld: no number; is it the tasks.rec of starpu_fxt_tool?"
                     : "%s, line %ld: cut short; make it again from StarPU's prof_file",
               path, n);
      free(record);
      free(line);
      return false;
    }
  }
  int error = fine && !feof(f) ? errno : 0; /* getline without memory leaves no ferror */
  fine = fine && keep(trace, record);
  free(record);
  free(line);
  if (!fine)
    snprintf(message, size, "%s: no memory", path);
  else if (error)
    snprintf(message, size, "%s: cannot be read: %s", path, strerror(error));
  return fine && !error;
}

static int by_start(const void *a, const void *b) {
  const struct trace_task *s = a, *t = b;
  return s->start < t->start ? -1 : s->start > t->start;
}

static int by_id(const void *a, const void *b) {
  const struct trace_job *s = a, *t = b;
  return s->id < t->id ? -1 : s->id > t->id;
}

/* Sorts tasks and jobs. Jobs refer to tasks by index, so the indices are set anew. */
static void sort(struct trace *trace) {
  if (trace->count) qsort(trace->tasks, trace->count, sizeof *trace->tasks, by_start);
  if (trace->job_count) qsort(trace->jobs, trace->job_count, sizeof *trace->jobs, by_id);
  for (size_t i = 0; i < trace->job_count; i++) trace->jobs[i].task = -1;
  for (size_t i = 0; i < trace->count; i++) {
    const struct trace_job key = {.id = trace->tasks[i].job};
    struct trace_job *job =
        trace->job_count ? bsearch(&key, trace->jobs, trace->job_count, sizeof *trace->jobs, by_id)
                         : NULL;
    if (job) job->task = (long)i;
  }
}

bool trace_read_tasks(const char *path, struct trace *trace, char *message, size_t size) {
  *trace = (struct trace){0};
  FILE *f = fopen(path, "r");
  if (!f) {
    snprintf(message, size, "%s: cannot be opened: %s", path, strerror(errno));
    return false;
  }
  bool fine = read_lines(f, path, trace, message, size);
  fclose(f);
  if (fine && !trace->count) {
    snprintf(message, size,
             "%s: holds no task of Starling; was it a trainer with --trace DIR that ran?", path);
    fine = false;
  }
  if (!fine) {
    trace_free(trace);
    return false;
  }
  sort(trace);
  return true;
}

/* ---- the window ---- */

static int by_number(const void *a, const void *b, void *workers) {
  const struct trace_worker *v = (const struct trace_worker *)workers + *(const int *)a;
  const struct trace_worker *w = (const struct trace_worker *)workers + *(const int *)b;
  return v->rank != w->rank ? v->rank - w->rank : v->number - w->number;
}

/* Sorts by rank and number instead of order of appearance. Returns false without memory. */
static bool sort_workers(struct trace *trace) {
  size_t count = (size_t)trace->worker_count;
  int *order = calloc(2 * count + 1, sizeof *order), *place = order + count;
  struct trace_worker *sorted = calloc(count + 1, sizeof *sorted);
  bool fine = order && sorted;
  for (size_t i = 0; fine && i < count; i++) order[i] = (int)i;
  if (fine && count) qsort_r(order, count, sizeof *order, by_number, trace->workers);
  for (size_t i = 0; fine && i < count; i++) {
    sorted[i] = trace->workers[order[i]];
    place[order[i]] = (int)i;
  }
  for (size_t i = 0; fine && i < trace->count; i++)
    trace->tasks[i].worker = place[trace->tasks[i].worker];
  if (fine && count) memcpy(trace->workers, sorted, count * sizeof *sorted);
  free(order);
  free(sorted);
  return fine;
}

/* A time on a clock that stops during the pauses of recording. */
static double squeeze(const struct trace *trace, double time) {
  double before = 0;
  for (size_t i = 0; i < trace->span_count; i++) {
    const struct trace_span *s = &trace->spans[i];
    if (time <= s->start) return before;
    if (time <= s->end) return before + time - s->start;
    before += s->end - s->start;
  }
  return before;
}

static bool is_whole(const struct trace *trace, const struct trace_task *t) {
  for (size_t i = 0; i < trace->span_count; i++)
    if (t->start >= trace->spans[i].start && t->end <= trace->spans[i].end) return true;
  return false;
}

static void cut_tasks(struct trace *trace) {
  size_t kept = 0;
  for (size_t i = 0; i < trace->count; i++) {
    struct trace_task t = trace->tasks[i];
    if (!is_whole(trace, &t)) {
      free(t.name);
      continue;
    }
    t.start = squeeze(trace, t.start);
    t.end = squeeze(trace, t.end);
    trace->tasks[kept++] = t;
  }
  trace->count = kept;
}

/* The trace does not show the state of a worker when recording began: its last event is older. No
 * task ran at that time, so the worker was idle. Returns false without memory. */
static bool cut_states(struct trace *trace, struct trace_worker *w, bool begins_idle) {
  size_t kept = 0, count = w->state_count;
  bool fine = true;
  struct trace_interval *old = w->states;
  w->states = NULL;
  w->state_count = w->state_room = 0;
  for (size_t s = 0; fine && s < trace->span_count; s++) {
    const struct trace_span *span = &trace->spans[s];
    for (size_t i = kept; fine && i < count; i++) {
      struct trace_interval v = old[i];
      if (v.end <= span->start) kept = i + 1;
      if (v.end <= span->start || v.start >= span->end) continue;
      struct trace_interval *states =
          trace_grow(w->states, w->state_count, &w->state_room, sizeof *states);
      fine = states != NULL;
      if (!fine) break;
      if (v.start < span->start && begins_idle) v.state = STATE_IDLE;
      w->states = states;
      states[w->state_count++] =
          (struct trace_interval){squeeze(trace, v.start), squeeze(trace, v.end), v.state};
    }
  }
  free(old);
  return fine;
}

static void cut_transfers(struct trace *trace) {
  size_t kept = 0;
  for (size_t i = 0; i < trace->transfer_count; i++) {
    struct trace_transfer t = trace->transfers[i];
    t.start = squeeze(trace, t.start);
    t.end = squeeze(trace, t.end);
    if (t.end > t.start) trace->transfers[kept++] = t;
  }
  trace->transfer_count = kept;
}

/* Chooses one span, from the beginning of the first task to the end of the last one. */
static int choose_span(struct trace *trace, double from, double to) {
  double first = trace->tasks[0].start, begin = INFINITY, end = -INFINITY;
  for (size_t i = 0; i < trace->count; i++) {
    const struct trace_task *t = &trace->tasks[i];
    if (t->start < first + from || t->end > first + to) continue;
    if (t->start < begin) begin = t->start;
    if (t->end > end) end = t->end;
  }
  trace->span_count = 0;
  struct trace_span *spans =
      trace_grow(trace->spans, trace->span_count, &trace->span_room, sizeof *spans);
  if (!spans) return ENOMEM;
  trace->spans = spans;
  if (!(end > begin)) return ERANGE;
  spans[trace->span_count++] = (struct trace_span){begin, end};
  return 0;
}

int trace_cut(struct trace *trace, double from, double to) {
  bool all = from <= 0 && isinf(to), recorded = all && trace->span_count;
  if (!sort_workers(trace)) return ENOMEM;
  int error = recorded ? 0 : choose_span(trace, from, to);
  if (error) return error;
  cut_tasks(trace);
  for (int w = 0; w < trace->worker_count; w++)
    if (!cut_states(trace, &trace->workers[w], recorded)) return ENOMEM;
  cut_transfers(trace);
  trace->window = squeeze(trace, INFINITY);
  sort(trace);
  return trace->count > 0 && trace->window > 0 ? 0 : ERANGE;
}

void trace_free(struct trace *trace) {
  for (size_t i = 0; i < trace->count; i++) free(trace->tasks[i].name);
  for (int i = 0; i < trace->layer_count; i++) free(trace->layers[i]);
  for (int i = 0; i < trace->worker_count; i++) free(trace->workers[i].states);
  free(trace->layers);
  free(trace->tasks);
  free(trace->workers);
  free(trace->jobs);
  free(trace->depends);
  free(trace->transfers);
  free(trace->spans);
  *trace = (struct trace){0};
}
