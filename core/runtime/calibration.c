#include "core/runtime/calibration.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "core/base/error.h"
#include "core/base/median.h"

enum { MOST_SAMPLES = 63, LEAST_SAMPLES = 3 };

/* Tasks of one operation, of one size, on one kind of worker. */
struct entry {
  struct starpu_perfmodel *model;
  uint32_t footprint;
  struct starpu_perfmodel_arch *arch;
  double us[MOST_SAMPLES];
  int count;
  bool wanted; /* the performance models do not know it */
};

struct sl__calibration {
  pthread_mutex_t lock; /* callbacks come from all workers */
  struct entry *entries;
  int count, capacity;
  bool publishing;
};

enum sl_status sl__calibration_new(struct sl__calibration **calibration) {
  *calibration = sl__alloc(1, sizeof **calibration, "a calibration");
  if (!*calibration) return SL_NO_MEMORY;
  pthread_mutex_init(&(*calibration)->lock, NULL);
  return SL_OK;
}

void sl__calibration_free(struct sl__calibration *c) {
  if (!c) return;
  pthread_mutex_destroy(&c->lock);
  free(c->entries);
  free(c);
}

/* Reads the history itself: StarPU's own function prints a warning for each task that it does
 * not know. */
static double history(const struct starpu_perfmodel *model, struct starpu_perfmodel_arch *arch,
                      uint32_t footprint) {
  if (!model->is_loaded) return NAN;
  const struct starpu_perfmodel_per_arch *known =
      starpu_perfmodel_get_model_per_arch((struct starpu_perfmodel *)model, arch, 0);
  const struct starpu_perfmodel_history_list *list = known ? known->list : NULL;
  for (; list; list = list->next)
    if (list->entry->footprint == footprint)
      return list->entry->nsample < LEAST_SAMPLES ? NAN : list->entry->mean;
  return NAN;
}

double sl__expected_us(const struct sl__op *op, uint32_t footprint, int worker) {
  return history(&op->model, starpu_worker_get_perf_archtype(worker, 0), footprint);
}

/* Each worker has a description of its own; workers of the same kind have the same number. */
static bool same_kind(const struct starpu_perfmodel_arch *a,
                      const struct starpu_perfmodel_arch *b) {
  return starpu_perfmodel_arch_comb_get(a->ndevices, a->devices) ==
         starpu_perfmodel_arch_comb_get(b->ndevices, b->devices);
}

/* NULL without memory: then this task is not counted. */
static struct entry *find(struct sl__calibration *c, const struct starpu_task *task,
                          struct starpu_perfmodel_arch *arch) {
  uint32_t footprint = ((const struct sl__args_header *)task->cl_arg)->footprint;
  for (int i = 0; i < c->count; i++) {
    struct entry *e = &c->entries[i];
    if (e->model == task->cl->model && e->footprint == footprint && same_kind(e->arch, arch))
      return e;
  }
  if (c->publishing) return NULL;
  if (c->count == c->capacity) {
    int capacity = c->capacity ? 2 * c->capacity : 64;
    struct entry *entries = realloc(c->entries, (size_t)capacity * sizeof *entries);
    if (!entries) return NULL;
    c->entries = entries;
    c->capacity = capacity;
  }
  c->entries[c->count] =
      (struct entry){.model = task->cl->model, .footprint = footprint, .arch = arch};
  return &c->entries[c->count++];
}

static void add_to_model(struct entry *e, struct starpu_task *task) {
  if (!e->wanted) return;
  e->wanted = false;
  starpu_perfmodel_update_history_n(e->model, task, e->arch, 0, 0, sl__median(e->count, e->us),
                                    (unsigned)e->count);
}

/* Called by the worker when the task has ended, before StarPU frees it. */
static void ended(void *argument) {
  struct starpu_task *task = starpu_task_get_current();
  struct sl__calibration *c = argument;
  int worker = starpu_worker_get_id();
  const struct starpu_profiling_task_info *info = task ? task->profiling_info : NULL;
  if (!info || worker < 0) return;
  double us = starpu_timing_timespec_delay_us((struct timespec *)&info->start_time,
                                              (struct timespec *)&info->end_time);
  pthread_mutex_lock(&c->lock);
  struct entry *e = find(c, task, starpu_worker_get_perf_archtype(worker, 0));
  if (e && c->publishing)
    add_to_model(e, task);
  else if (e && e->count < MOST_SAMPLES && us > 0)
    e->us[e->count++] = us;
  pthread_mutex_unlock(&c->lock);
}

double sl__calibration_us(struct sl__calibration *c, const struct sl__op *op, uint32_t footprint,
                          int worker) {
  const struct starpu_perfmodel_arch *arch = starpu_worker_get_perf_archtype(worker, 0);
  for (int i = 0; i < c->count; i++) {
    struct entry *e = &c->entries[i];
    if (e->model == &op->model && e->footprint == footprint && same_kind(e->arch, arch))
      return e->count < LEAST_SAMPLES ? NAN : sl__median(e->count, e->us);
  }
  return NAN;
}

enum sl_status sl__calibration_begin(struct sl_context *context, struct sl__calibration *c) {
  return sl__submit_hook_add(context, &(struct sl__submit_hook){.after = ended, .data = c});
}

void sl__calibration_end(struct sl_context *context, struct sl__calibration *c) {
  sl__submit_hook_remove(context, c);
}

void sl__calibration_publish(struct sl__calibration *c) {
  c->publishing = true;
  for (int i = 0; i < c->count; i++) {
    struct entry *e = &c->entries[i];
    e->wanted = e->count >= LEAST_SAMPLES && isnan(history(e->model, e->arch, e->footprint));
  }
}
