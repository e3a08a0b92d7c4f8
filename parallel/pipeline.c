#include "parallel/pipeline.h"

#include <math.h>
#include <stdlib.h>

#include "core/error.h"
#include "parallel/plan.h"

enum kind { FORWARD, DATA, WEIGHT, UPDATE, KINDS };
enum { STEPS = 8, SETTLED = 3 }; /* steps played; the ones before SETTLED fill the pipeline */

struct task {
  double ready; /* the latest input's time */
  int waits;    /* inputs that are still missing */
};

/* Cells are a microbatch's chunks, one after the other. */
struct play {
  const struct sl__pipeline *p;
  int cells, tasks; /* of a step */
  struct task *task;
  int *ready, *ready_count; /* [stages][tasks in all], [stages] */
  double *free_at;          /* [stages] */
  double end[STEPS];
  int left[STEPS]; /* tasks of the step that are not done */
};

static int number(const struct play *y, int step, enum kind kind, int cell, int layer) {
  const struct sl__pipeline *p = y->p;
  int first = step * y->tasks;
  if (kind == UPDATE) return first + UPDATE * y->cells * p->layers + layer;
  return first + ((int)kind * y->cells + cell) * p->layers + layer;
}

struct place {
  int step, cell, layer;
  enum kind kind;
};

static struct place place_of(const struct play *y, int n) {
  struct place at = {.step = n / y->tasks};
  int rest = n % y->tasks, one = y->cells * y->p->layers;
  at.kind = (enum kind)(rest / one);
  at.layer = rest % y->p->layers;
  at.cell = at.kind == UPDATE ? 0 : rest % one / y->p->layers;
  return at;
}

static double duration(const struct sl__pipeline *p, const struct place *at) {
  const double *times[KINDS] = {p->forward, p->backward_data, p->backward_weight, p->update};
  return times[at->kind][at->layer];
}

static int priority(const struct place *at) {
  switch (at->kind) {
    case FORWARD: return SL_PRIORITY_FORWARD + at->layer;
    case DATA: return SL_PRIORITY_BACKWARD_DATA - at->layer;
    case WEIGHT: return SL_PRIORITY_BACKWARD_WEIGHT + at->layer;
    default: return SL_PRIORITY_UPDATE - at->layer;
  }
}

static void make_ready(struct play *y, int n) {
  int stage = y->p->stage[place_of(y, n).layer];
  y->ready[stage * STEPS * y->tasks + y->ready_count[stage]++] = n;
}

/* One input of a task has come. */
static void deliver(struct play *y, int step, enum kind kind, int cell, int layer, double time) {
  if (step >= STEPS) return;
  int n = number(y, step, kind, cell, layer);
  struct task *task = &y->task[n];
  task->ready = fmax(task->ready, time);
  if (!--task->waits) make_ready(y, n);
}

/* How many inputs each task waits for: the mirror image of what done() delivers. */
static int inputs(const struct play *y, const struct place *at) {
  const struct sl__pipeline *p = y->p;
  int chunk = at->cell % p->chunks, waits = 0;
  switch (at->kind) {
    case FORWARD:
      waits = (at->layer > 0) + (chunk > 0) + (at->step > 0);
      return waits + (at->layer == 0 && at->step >= p->in_flight);
    case DATA: return 1 + (chunk < p->chunks - 1);
    case WEIGHT: return 1;
    default: return p->barrier ? y->cells * p->layers : y->cells;
  }
}

static double cut(const struct sl__pipeline *p, int from, int to) {
  int later = p->stage[from] > p->stage[to] ? p->stage[from] : p->stage[to];
  return p->stage[from] == p->stage[to] ? 0 : p->cut_ms[later];
}

static void weight_done(struct play *y, const struct place *at, double time) {
  for (int i = 0; i < y->p->layers; i++)
    if (y->p->barrier || i == at->layer) deliver(y, at->step, UPDATE, 0, i, time);
}

static void update_done(struct play *y, const struct place *at, double time) {
  for (int c = 0; c < y->cells; c++) deliver(y, at->step + 1, FORWARD, c, at->layer, time);
}

static void forward_done(struct play *y, const struct place *at, double time) {
  const struct sl__pipeline *p = y->p;
  int layer = at->layer;
  if (at->cell % p->chunks < p->chunks - 1)
    deliver(y, at->step, FORWARD, at->cell + 1, layer, time);
  if (layer < p->layers - 1)
    deliver(y, at->step, FORWARD, at->cell, layer + 1, time + cut(p, layer, layer + 1));
  else
    deliver(y, at->step, DATA, at->cell, layer, time);
}

static void data_done(struct play *y, const struct place *at, double time) {
  int layer = at->layer;
  deliver(y, at->step, WEIGHT, at->cell, layer, time);
  if (at->cell % y->p->chunks > 0) deliver(y, at->step, DATA, at->cell - 1, layer, time);
  if (layer > 0)
    deliver(y, at->step, DATA, at->cell, layer - 1, time + cut(y->p, layer, layer - 1));
}

static void done(struct play *y, const struct place *at, double time) {
  switch (at->kind) {
    case FORWARD: forward_done(y, at, time); break;
    case DATA: data_done(y, at, time); break;
    case WEIGHT: weight_done(y, at, time); break;
    default: update_done(y, at, time);
  }
  y->end[at->step] = fmax(y->end[at->step], time);
  if (--y->left[at->step]) return;
  for (int c = 0; c < y->cells; c++) /* the step that had to wait for this one's end */
    deliver(y, at->step + y->p->in_flight, FORWARD, c, 0, y->end[at->step]);
}

/* When the stage can begin its next task; infinite where none is ready. */
static double next_start(const struct play *y, int stage) {
  double least = INFINITY;
  const int *ready = y->ready + stage * STEPS * y->tasks;
  for (int i = 0; i < y->ready_count[stage]; i++) least = fmin(least, y->task[ready[i]].ready);
  return fmax(least, y->free_at[stage]);
}

/* Of what is ready then, the most urgent, the earliest submitted of equals; it leaves the list. */
static int take(struct play *y, int stage, double time) {
  int *ready = y->ready + stage * STEPS * y->tasks, best = -1;
  for (int i = 0; i < y->ready_count[stage]; i++) {
    if (y->task[ready[i]].ready > time) continue;
    struct place at = place_of(y, ready[i]);
    if (best >= 0) {
      struct place other = place_of(y, ready[best]);
      int more = priority(&at) - priority(&other);
      if (more < 0 || (more == 0 && ready[i] > ready[best])) continue;
    }
    best = i;
  }
  int n = ready[best];
  ready[best] = ready[--y->ready_count[stage]];
  return n;
}

static void run(struct play *y) {
  for (int count = STEPS * y->tasks; count > 0; count--) {
    int stage = 0;
    for (int s = 1; s < y->p->stages; s++)
      if (next_start(y, s) < next_start(y, stage)) stage = s;
    double time = next_start(y, stage);
    struct place at = place_of(y, take(y, stage, time));
    y->free_at[stage] = time + duration(y->p, &at);
    done(y, &at, y->free_at[stage]);
  }
}

enum sl_status sl__pipeline_period(const struct sl__pipeline *p, double *ms) {
  struct play y = {.p = p, .cells = p->microbatches * p->chunks};
  y.tasks = (3 * y.cells + 1) * p->layers;
  size_t all = (size_t)y.tasks * STEPS, stages = (size_t)p->stages;
  enum sl_status status = SL_NO_MEMORY;
  y.task = sl__alloc(all, sizeof *y.task, "a played pipeline");
  y.ready = sl__alloc(all * stages, sizeof *y.ready, "a played pipeline");
  y.ready_count = sl__alloc(stages, sizeof *y.ready_count, "a played pipeline");
  y.free_at = sl__alloc(stages, sizeof *y.free_at, "a played pipeline");
  if (!y.task || !y.ready || !y.ready_count || !y.free_at) goto out;
  for (int s = 0; s < STEPS; s++) y.left[s] = y.tasks;
  for (size_t n = 0; n < all; n++) {
    struct place at = place_of(&y, (int)n);
    y.task[n].waits = inputs(&y, &at);
    if (!y.task[n].waits) make_ready(&y, (int)n);
  }
  run(&y);
  *ms = (y.end[STEPS - 1] - y.end[SETTLED]) / (STEPS - 1 - SETTLED);
  status = SL_OK;
out:
  free(y.task);
  free(y.ready);
  free(y.ready_count);
  free(y.free_at);
  return status;
}
