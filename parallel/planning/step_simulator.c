#include "parallel/planning/step_simulator.h"

#include <math.h>
#include <stdlib.h>

#include "core/base/error.h"
#include "parallel/step/plan.h"

enum kind { FORWARD, DATA, WEIGHT, UPDATE, KINDS };
/* Steps played; the ones before SETTLED fill the pipeline. More tasks would take too long. */
enum { STEPS = 8, SETTLED = 3, MOST_TASKS = 400000 };

struct task {
  double ready; /* the latest input's time */
  int waits;    /* inputs that are still missing */
};

/* Tasks' numbers, the first of an order on top. */
struct heap {
  int *items;
  int count;
};

/* A device: tasks whose inputs are there or on their way (the soonest first), and those that are
 * there (the most urgent first). */
struct device {
  struct heap coming, ready;
  double free_at;
};

/* Cells are a microbatch's chunks, one after the other. */
struct play {
  const struct sl__step_model *p;
  int chunks, cells, tasks; /* of a step; chunks a microbatch */
  double scale;             /* of a cell's times, where cells were merged */
  struct task *task;
  struct device *devices; /* [stages] */
  int *items;             /* all heaps' */
  double end[STEPS];
  int left[STEPS]; /* tasks of the step that are not done */
};

static int number(const struct play *y, int step, enum kind kind, int cell, int layer) {
  const struct sl__step_model *p = y->p;
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

static double duration(const struct play *y, const struct place *at) {
  const struct sl__step_model *p = y->p;
  const double *times[KINDS] = {p->forward, p->backward_data, p->backward_weight, p->update};
  return times[at->kind][at->layer] * (at->kind == UPDATE ? 1 : y->scale);
}

static int priority(const struct place *at) {
  switch (at->kind) {
    case FORWARD: return SL__PRIORITY_FORWARD + at->layer;
    case DATA: return SL__PRIORITY_BACKWARD_DATA - at->layer;
    case WEIGHT: return SL__PRIORITY_BACKWARD_WEIGHT + at->layer;
    default: return SL__PRIORITY_UPDATE - at->layer;
  }
}

static bool is_sooner(const struct play *y, int a, int b) {
  double x = y->task[a].ready, z = y->task[b].ready;
  return x < z || (x == z && a < b);
}

static bool is_more_urgent(const struct play *y, int a, int b) {
  struct place x = place_of(y, a), z = place_of(y, b);
  int more = priority(&x) - priority(&z);
  return more > 0 || (more == 0 && a < b); /* of equals, the one submitted first */
}

typedef bool before(const struct play *, int, int);

static void push(const struct play *y, struct heap *heap, before *first, int item) {
  int at = heap->count++;
  for (; at && first(y, item, heap->items[(at - 1) / 2]); at = (at - 1) / 2)
    heap->items[at] = heap->items[(at - 1) / 2];
  heap->items[at] = item;
}

static int pop(const struct play *y, struct heap *heap, before *first) {
  int top = heap->items[0], last = heap->items[--heap->count], at = 0;
  for (int child = 1; child < heap->count; at = child, child = 2 * at + 1) {
    if (child + 1 < heap->count && first(y, heap->items[child + 1], heap->items[child])) child++;
    if (!first(y, heap->items[child], last)) break;
    heap->items[at] = heap->items[child];
  }
  heap->items[at] = last;
  return top;
}

static void make_ready(struct play *y, int n) {
  push(y, &y->devices[y->p->stage[place_of(y, n).layer]].coming, is_sooner, n);
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
  const struct sl__step_model *p = y->p;
  int chunk = at->cell % y->chunks, waits = 0;
  switch (at->kind) {
    case FORWARD:
      waits = (at->layer > 0) + (chunk > 0) + (at->step > 0);
      return waits + (at->layer == 0 && at->step >= p->in_flight);
    case DATA: return 1 + (chunk < y->chunks - 1);
    case WEIGHT: return 1;
    default: return p->barrier ? y->cells * p->layers : y->cells;
  }
}

static double cut(const struct play *y, int from, int to) {
  const struct sl__step_model *p = y->p;
  int later = p->stage[from] > p->stage[to] ? p->stage[from] : p->stage[to];
  return p->stage[from] == p->stage[to] ? 0 : y->scale * p->cut_ms[later];
}

static void weight_done(struct play *y, const struct place *at, double time) {
  for (int i = 0; i < y->p->layers; i++)
    if (y->p->barrier || i == at->layer) deliver(y, at->step, UPDATE, 0, i, time);
}

static void update_done(struct play *y, const struct place *at, double time) {
  for (int c = 0; c < y->cells; c++) deliver(y, at->step + 1, FORWARD, c, at->layer, time);
}

static void forward_done(struct play *y, const struct place *at, double time) {
  const struct sl__step_model *p = y->p;
  int layer = at->layer;
  if (at->cell % y->chunks < y->chunks - 1)
    deliver(y, at->step, FORWARD, at->cell + 1, layer, time);
  if (layer < p->layers - 1)
    deliver(y, at->step, FORWARD, at->cell, layer + 1, time + cut(y, layer, layer + 1));
  else
    deliver(y, at->step, DATA, at->cell, layer, time);
}

static void data_done(struct play *y, const struct place *at, double time) {
  int layer = at->layer;
  deliver(y, at->step, WEIGHT, at->cell, layer, time);
  if (at->cell % y->chunks > 0) deliver(y, at->step, DATA, at->cell - 1, layer, time);
  if (layer > 0) deliver(y, at->step, DATA, at->cell, layer - 1, time + cut(y, layer, layer - 1));
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
  const struct device *device = &y->devices[stage];
  if (device->ready.count) return device->free_at;
  if (!device->coming.count) return INFINITY;
  return fmax(device->free_at, y->task[device->coming.items[0]].ready);
}

static int take(struct play *y, int stage, double time) {
  struct device *device = &y->devices[stage];
  while (device->coming.count && y->task[device->coming.items[0]].ready <= time)
    push(y, &device->ready, is_more_urgent, pop(y, &device->coming, is_sooner));
  return pop(y, &device->ready, is_more_urgent);
}

static void run(struct play *y) {
  for (int count = STEPS * y->tasks; count > 0; count--) {
    int stage = 0;
    for (int s = 1; s < y->p->stages; s++)
      if (next_start(y, s) < next_start(y, stage)) stage = s;
    double time = next_start(y, stage);
    struct place at = place_of(y, take(y, stage, time));
    y->devices[stage].free_at = time + duration(y, &at);
    done(y, &at, y->devices[stage].free_at);
  }
}

/* Many small cells become fewer large ones: first a microbatch's chunks, then microbatches. */
static void choose_cells(struct play *y) {
  const struct sl__step_model *p = y->p;
  int64_t chunks = p->chunks, microbatches = p->microbatches;
  while ((3 * chunks * microbatches + 1) * p->layers * STEPS > MOST_TASKS &&
         chunks * microbatches > 1)
    if (chunks > 1)
      chunks = (chunks + 1) / 2;
    else
      microbatches = (microbatches + 1) / 2;
  y->chunks = (int)chunks;
  y->cells = (int)(chunks * microbatches);
  y->tasks = (3 * y->cells + 1) * p->layers;
  y->scale = (double)p->chunks * p->microbatches / y->cells;
}

/* Each heap holds the tasks of its stage at most. */
static void share_items(struct play *y) {
  int *next = y->items;
  for (int s = 0; s < y->p->stages; s++) {
    int layers = 0;
    for (int i = 0; i < y->p->layers; i++) layers += y->p->stage[i] == s;
    y->devices[s].coming.items = next;
    y->devices[s].ready.items = next + STEPS * (3 * y->cells + 1) * layers;
    next += 2 * STEPS * (3 * y->cells + 1) * layers;
  }
}

enum sl_status sl__simulate_step_period(const struct sl__step_model *p, double *ms) {
  struct play y = {.p = p};
  enum sl_status status = SL_NO_MEMORY;
  choose_cells(&y);
  size_t all = (size_t)y.tasks * STEPS;
  y.task = sl__alloc(all, sizeof *y.task, "a played pipeline");
  y.items = sl__alloc(2 * all, sizeof *y.items, "a played pipeline");
  y.devices = sl__alloc((size_t)p->stages, sizeof *y.devices, "a played pipeline");
  if (!y.task || !y.items || !y.devices) goto out;
  share_items(&y);
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
  free(y.items);
  free(y.devices);
  return status;
}
