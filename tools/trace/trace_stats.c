#include "tools/trace/trace_stats.h"

#include <math.h>
#include <stdlib.h>

/* ---- devices ---- */

static void count_devices(const struct trace *trace, struct numbers *n) {
  for (size_t i = 0; i < trace->count; i++) {
    const struct trace_task *t = &trace->tasks[i];
    struct device_numbers *d = &n->devices[t->worker];
    if (!trace->has_states) d->ms[STATE_BUSY] += t->end - t->start;
    d->tasks++;
  }
  for (int w = 0; w < trace->worker_count; w++) {
    const struct trace_worker *worker = &trace->workers[w];
    struct device_numbers *d = &n->devices[w];
    double covered = trace->window;
    for (size_t i = 0; i < worker->state_count; i++)
      d->ms[worker->states[i].state] += worker->states[i].end - worker->states[i].start;
    if (!trace->has_states)
      d->ms[STATE_IDLE] = trace->window - d->ms[STATE_BUSY];
    else /* a worker sleeps until its first state */
      d->ms[STATE_IDLE] += worker->state_count ? worker->states[0].start : covered;
  }
}

/* Only workers that have tasks in the window count. */
static double bubble(const struct trace *trace, const struct numbers *n) {
  double busy = 0;
  int used = 0;
  for (size_t i = 0; i < trace->count; i++) busy += trace->tasks[i].end - trace->tasks[i].start;
  for (int w = 0; w < trace->worker_count; w++) used += n->devices[w].tasks > 0;
  return 1 - busy / (trace->window * used);
}

/* ---- layers ---- */

struct work {
  double gflop, seconds, bytes;
};

/* Roofline (Williams, Waterman, Patterson 2009): the peak, or, if that is less, the bandwidth times
 * the operations for each byte. */
static double roof_of(const struct work *w, const struct roof *roof) {
  double attainable = roof->gflops;
  if (roof->gigabytes > 0 && w->bytes > 0) {
    double by_memory = roof->gigabytes * w->gflop / (w->bytes / 1e9);
    if (attainable <= 0 || by_memory < attainable) attainable = by_memory;
  }
  return attainable;
}

static bool count_layers(const struct trace *trace, const struct roof *roof, struct numbers *n) {
  struct work *work = calloc((size_t)trace->layer_count, sizeof *work);
  if (!work) return false;
  for (size_t i = 0; i < trace->count; i++) {
    const struct trace_task *t = &trace->tasks[i];
    struct work *w = &work[t->layer];
    n->layers[t->layer].ms[t->pass] += t->end - t->start;
    if (t->gflop <= 0 || !trace->workers[t->worker].is_cpu) continue;
    w->gflop += t->gflop;
    w->seconds += (t->end - t->start) / 1e3;
    w->bytes += t->bytes;
  }
  for (int l = 0; l < trace->layer_count; l++) {
    double attainable = roof_of(&work[l], roof);
    n->layers[l].gflops = work[l].seconds > 0 ? work[l].gflop / work[l].seconds : NAN;
    n->layers[l].share = attainable > 0 ? n->layers[l].gflops / attainable : NAN;
  }
  free(work);
  return true;
}

/* ---- overlaps ---- */

/* Change of the numbers of running tasks and transfers, +1 or -1. */
struct change {
  double time;
  int tasks, transfers;
};

static int by_time(const void *a, const void *b) {
  const struct change *x = a, *y = b;
  if (x->time != y->time) return x->time < y->time ? -1 : 1;
  return x->tasks + x->transfers - y->tasks - y->transfers; /* ends before beginnings */
}

static size_t add_span(struct change *changes, size_t count, double start, double end, int tasks,
                       int transfers) {
  changes[count] = (struct change){start, tasks, transfers};
  changes[count + 1] = (struct change){end, -tasks, -transfers};
  return count + 2;
}

/* Goes through all beginnings and ends in the order of time. */
static bool find_overlaps(const struct trace *trace, struct numbers *n) {
  size_t count = 0;
  struct change *changes = calloc(2 * (trace->count + trace->transfer_count) + 1, sizeof *changes);
  if (!changes) return false;
  for (size_t i = 0; i < trace->count; i++)
    if (trace->tasks[i].pass != PASS_MESSAGE)
      count = add_span(changes, count, trace->tasks[i].start, trace->tasks[i].end, 1, 0);
  for (size_t i = 0; i < trace->transfer_count; i++)
    count = add_span(changes, count, trace->transfers[i].start, trace->transfers[i].end, 0, 1);
  qsort(changes, count, sizeof *changes, by_time);
  int tasks = 0, transfers = 0;
  double together = 0, moving = 0, hidden = 0;
  for (size_t i = 0; i < count; i++) {
    double ms = i ? changes[i].time - changes[i - 1].time : 0;
    if (tasks >= 2) together += ms;
    if (transfers) moving += ms;
    if (transfers && tasks) hidden += ms;
    tasks += changes[i].tasks;
    transfers += changes[i].transfers;
  }
  free(changes);
  n->together = together / trace->window;
  n->transfer_ms = moving;
  n->communication = moving > 0 ? hidden / moving : NAN;
  return true;
}

bool numbers_take(const struct trace *trace, const struct roof *roof, struct numbers *n) {
  *n = (struct numbers){0};
  n->devices = calloc((size_t)trace->worker_count, sizeof *n->devices);
  n->layers = calloc((size_t)trace->layer_count, sizeof *n->layers);
  bool fine = n->devices && n->layers && count_layers(trace, roof, n) && find_overlaps(trace, n) &&
              path_find(trace, &n->path, &n->path_count, &n->path_ms);
  if (!fine) {
    numbers_free(n);
    return false;
  }
  count_devices(trace, n);
  n->bubble = bubble(trace, n);
  return true;
}

void numbers_free(struct numbers *n) {
  free(n->devices);
  free(n->layers);
  free(n->path);
  *n = (struct numbers){0};
}
