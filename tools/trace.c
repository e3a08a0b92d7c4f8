#include "trace.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One record's fields that matter; line: where it began. */
struct record {
  char name[128], model[64];
  double start, end;
  long worker;
  bool has_worker, has_start, has_end;
};

static bool starts(const char *text, const char *with) {
  return strncmp(text, with, strlen(with)) == 0;
}

static int find_layer(struct trace *trace, const char *name) {
  for (int i = 0; i < trace->layer_count; i++)
    if (!strcmp(trace->layers[i], name)) return i;
  char **layers = realloc(trace->layers, ((size_t)trace->layer_count + 1) * sizeof *layers);
  if (!layers) return -1;
  trace->layers = layers;
  layers[trace->layer_count] = strdup(name);
  return layers[trace->layer_count] ? trace->layer_count++ : -1;
}

static bool is_any(const char *model, const char *const *names) {
  for (; *names; names++)
    if (strstr(model, *names)) return true;
  return false;
}

static bool is_update(const char *model) {
  static const char *const names[] = {"sgd", "adam", "reduce", "square", "rows_dense", NULL};
  return is_any(model, names);
}

static bool is_backward(const char *model) {
  static const char *const names[] = {"backward", "gradient", "sgd", "adam", NULL};
  return is_any(model, names);
}

/* false where there is no memory. */
static bool keep(struct trace *trace, const struct record *r, size_t *room) {
  /* what ran, and is an operation of ours: not StarPU's own acquisitions */
  if (!r->has_worker || !r->has_start || !r->has_end || !starts(r->model, "sl_")) return true;
  if (trace->count == *room) {
    size_t more = *room ? 2 * *room : 1024;
    struct trace_task *tasks = realloc(trace->tasks, more * sizeof *tasks);
    if (!tasks) return false;
    trace->tasks = tasks;
    *room = more;
  }
  int layer = find_layer(trace, r->name);
  if (layer < 0) return false;
  trace->tasks[trace->count++] = (struct trace_task){.worker = (int)r->worker,
                                                     .layer = layer,
                                                     .backward = is_backward(r->model),
                                                     .update = is_update(r->model),
                                                     .start = r->start,
                                                     .end = r->end};
  if (r->worker >= trace->workers) trace->workers = (int)r->worker + 1;
  return true;
}

static bool number(const char *text, double *value) {
  char *end;
  *value = strtod(text, &end);
  return end != text && (!*end || *end == '\n') && isfinite(*value);
}

/* false for a value that is no number. */
static bool take_field(struct record *r, const char *line) {
  double value;
  if (starts(line, "Name: ")) sscanf(line, "Name: %127[^\n]", r->name);
  if (starts(line, "Model: ")) sscanf(line, "Model: %63[^\n]", r->model);
  if (starts(line, "WorkerId: ")) {
    if (!number(line + 10, &value) || value < 0 || value > 4095) return false;
    r->worker = (long)value;
    r->has_worker = true;
  }
  if (starts(line, "StartTime: ")) return r->has_start = number(line + 11, &r->start);
  if (starts(line, "EndTime: ")) return r->has_end = number(line + 9, &r->end);
  return true;
}

static int by_start(const void *a, const void *b) {
  const struct trace_task *s = a, *t = b;
  return s->start < t->start ? -1 : s->start > t->start;
}

static bool read_lines(FILE *f, const char *path, struct trace *trace, char *message, size_t size) {
  struct record record = {.name = "?"};
  char *line = NULL;
  size_t room = 0, capacity = 0;
  bool fine = true;
  for (long n = 1; fine && getline(&line, &capacity, f) > 0; n++) {
    if (line[0] == '\n') {
      fine = keep(trace, &record, &room);
      record = (struct record){.name = "?"};
    } else if (!take_field(&record, line)) {
      snprintf(message, size, "%s, line %ld: no number; is it the tasks.rec of starpu_fxt_tool?",
               path, n);
      free(line);
      return false;
    }
  }
  free(line);
  fine = fine && keep(trace, &record, &room);
  if (!fine) snprintf(message, size, "%s: no memory", path);
  return fine;
}

bool trace_read(const char *path, struct trace *trace, char *message, size_t size) {
  *trace = (struct trace){0};
  FILE *f = fopen(path, "r");
  if (!f) {
    snprintf(message, size, "%s: cannot be opened: %s", path, strerror(errno));
    return false;
  }
  bool fine = read_lines(f, path, trace, message, size);
  fclose(f);
  if (fine && !trace->count) {
    snprintf(
        message, size,
        "%s: holds no task of Starling; trace with STARPU_FXT_TRACE=1, then starpu_fxt_tool -i "
        "prof_file_*",
        path);
    fine = false;
  }
  if (!fine) {
    trace_free(trace);
    return false;
  }
  qsort(trace->tasks, trace->count, sizeof *trace->tasks, by_start);
  return true;
}

void trace_free(struct trace *trace) {
  for (int i = 0; i < trace->layer_count; i++) free(trace->layers[i]);
  free(trace->layers);
  free(trace->tasks);
  *trace = (struct trace){0};
}
