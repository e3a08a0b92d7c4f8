#include "parallel/planning/cost.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/median.h"
#include "core/memory/limits.h"
#include "core/runtime/calibration.h"
#include "core/runtime/dry_run.h"
#include "core/runtime/failure.h"
#include "core/runtime/wait.h"
#include "parallel/step/batch_tensors.h"
#include "parallel/train/captured_step.h"

enum { WARM_PROBES = 1, TIMED_PROBES = 6, WARM_RUNS = 3 };

static struct sl__memory_case memory_case(const struct sl__cost_case *c) {
  return (struct sl__memory_case){.model = c->model,
                                  .optimizer = c->optimizer,
                                  .loss = &c->loss,
                                  .chunk = c->chunk,
                                  .rows = c->rows,
                                  .microbatches = c->microbatches,
                                  .math = c->math};
}

double sl__cost_bytes(const struct sl__cost_case *c, int layer, int slices) {
  const struct sl__memory_case memory = memory_case(c);
  return sl__layer_memory(&memory, layer, slices);
}

double sl__cost_main_memory(const struct sl__cost_case *c, int slices, int replicas) {
  const struct sl__memory_case memory = memory_case(c);
  double bytes = 0;
  for (int i = 0; i < c->model->count; i++) {
    double once = sl__layer_param_memory(&memory, i);
    bytes += once + replicas * (sl__layer_memory(&memory, i, slices) - once);
  }
  return bytes;
}

/* The layer of a recorded task; -1 if it has none (a norm, statistics). */
static int layer_of(const struct sl_model *model, const char *name) {
  for (int i = 0; i < model->count; i++)
    if (name == model->layers[i].name) return i;
  return name && !strcmp(name, "loss") ? model->count - 1 : -1;
}

/* ---- a probe: steps of the whole model on each device of the class ---- */

struct probe {
  const struct sl__cost_case *c;
  const struct sl__grid *grid;
  struct sl__plan *plan;
  struct sl__model_shards *kvstore;
  struct sl__loss loss;
  struct sl__tensor *x, *labels;
  struct sl__graph *graph; /* of a captured step; NULL: each call is a task */
  double wall_ms;          /* of a step without its update: of the last, then the median of some */
};

/* Some data: zeros, which are tokens, labels and targets, too. */
static enum sl_status probe_data(struct probe *p, int64_t batch) {
  const struct sl_model *model = p->c->model;
  struct sl_shape x = {.ndim = model->sample.ndim + 1, .dim = {batch}};
  int count = p->plan->count;
  enum sl_status status;
  int64_t *rows = sl__alloc((size_t)count, sizeof *rows, "a probe");
  if (!rows) return SL_NO_MEMORY;
  for (int i = 0; i < model->sample.ndim; i++) x.dim[i + 1] = model->sample.dim[i];
  struct sl_shape labels = model->takes_tokens ? x : SL_SHAPE(x.dim[0]);
  enum sl_type type = model->takes_tokens ? SL_I32 : SL_F32;
  SL__TRY(sl__tensor_host(model->context, &x, type, NULL, &p->x));
  bool takes_labels = sl__loss_takes_labels(&p->loss);
  if (!takes_labels) labels = sl__with_rows(batch, sl_model_output(model));
  SL__TRY(
      sl__tensor_host(model->context, &labels, takes_labels ? SL_I32 : SL_F32, NULL, &p->labels));
  if (count < 2) goto out;
  sl__slice_rows(p->grid, batch, rows);
  SL__TRY(sl__tensor_split(p->x, count, rows));
  SL__TRY(sl__tensor_keep_split(p->x));
  SL__TRY(sl__tensor_split(p->labels, count, rows));
  SL__TRY(sl__tensor_keep_split(p->labels));
out:
  free(rows);
  return status;
}

static enum sl_status probe_open(struct probe *p, const struct sl__cost_case *c,
                                 const struct sl__grid *grid, int64_t batch) {
  const struct sl__model_shards_options options = {
      .kind = sl__kvstore_is_on_devices(c->kvstore) ? SL_KVSTORE_DEVICE : SL_KVSTORE_LOCAL,
      .big_shard = c->big_shard};
  enum sl_status status;
  *p = (struct probe){.c = c, .wall_ms = NAN, .grid = grid};
  SL__TRY(sl__plan_new(c->model, grid, batch, 0, true, &p->plan));
  SL__TRY(sl__model_shards_new(c->model, c->optimizer, &options, grid, &p->kvstore));
  SL__TRY(sl__model_shards_reserve(p->kvstore, sl__plan_positions(p->plan)));
  /* the parts of a loss take so little time that one of the same size does for all */
  const struct sl_loss alike = {.kind = SL_LOSS_MSE};
  SL__TRY(sl__loss_begin(c->model, c->loss.part_count ? &alike : &c->loss, &p->loss));
  SL__TRY(probe_data(p, batch));
out:
  return status;
}

static void probe_close(struct probe *p) {
  if (p->c) sl__wait_for_all(p->c->model->context); /* else nothing has begun */
  sl__graph_free(p->graph);
  sl__plan_free(p->plan);
  sl__model_shards_free(p->kvstore);
  sl__tensor_free(p->x);
  sl__tensor_free(p->labels);
  sl__loss_end(&p->loss);
}

/* A grid with a replica of c->rows rows on each of these devices. */
static enum sl_status probe_grid(const struct sl__cost_case *c, const struct sl__device *devices,
                                 int count, struct sl__grid *grid) {
  *grid = (struct sl__grid){.members = 1,
                            .replicas = count,
                            .microbatches = 1,
                            .stages = 1,
                            .math = c->math,
                            .chunk = c->chunk,
                            .training_chunk = c->chunk,
                            .layers = c->model->count};
  grid->stage = sl__alloc((size_t)c->model->count, sizeof *grid->stage, "a probe");
  grid->devices = sl__alloc((size_t)count, sizeof *grid->devices, "a probe");
  if (!grid->stage || !grid->devices) return SL_NO_MEMORY;
  memcpy(grid->devices, devices, (size_t)count * sizeof *devices);
  return SL_OK;
}

/* The update adds as many gradients as the trainer's will. wait: between the two, to take the time.
 */
static enum sl_status probe_step(struct probe *p, bool wait) {
  const struct sl__step step = {.training = true,
                                .loss = &p->loss,
                                .scale = {1},
                                .x = p->x,
                                .labels = p->labels,
                                .grads = p->kvstore->grads,
                                .rows = p->kvstore->rows};
  double start = starpu_timing_now();
  enum sl_status status = sl__plan_submit(p->plan, &step);
  int replicas = p->kvstore->replicas;
  if (status != SL_OK) return status;
  if (wait) {
    status = sl__wait_for_all(p->c->model->context);
    if (status != SL_OK) return status;
    p->wall_ms = (starpu_timing_now() - start) / 1e3;
  }
  if (p->c->replicas < replicas) p->kvstore->replicas = p->c->replicas;
  status = sl__model_shards_update(p->kvstore, 0, 0);
  p->kvstore->replicas = replicas;
  return status;
}

/* Records the step's tasks instead of running them. */
static enum sl_status dry_run_step(struct probe *p, struct sl__dry_run *recorded) {
  struct sl_context *context = p->c->model->context;
  enum sl_status status = sl__dry_run_begin(context, recorded);
  if (status == SL_OK) status = probe_step(p, false);
  sl__dry_run_end(context, recorded);
  return status;
}

static bool is_update(const struct sl__dry_run_task *task) {
  return task->priority >= SL__PRIORITY_UPDATE && task->priority < SL__PRIORITY_BACKWARD_DATA;
}

/* Is it a layer's task that burdens this device? A local KVStore's updates burden the CPU. */
static bool concerns(const struct sl__cost_case *c, const struct sl__dry_run_task *task,
                     const struct sl__device *device) {
  if (layer_of(c->model, task->name) < 0) return false;
  return !is_update(task) || c->kvstore == SL_KVSTORE_DEVICE || device->place.where != STARPU_CUDA;
}

static double modelled_us(const struct sl__dry_run_task *task, const struct sl__device *device) {
  return sl__expected_us(task->op, task->footprint, device->place.worker - 1);
}

static double measured_us(struct sl__calibration *calibration, const struct sl__dry_run_task *task,
                          const struct sl__device *device) {
  return sl__calibration_us(calibration, task->op, task->footprint, device->place.worker - 1);
}

/* Do StarPU's models know all tasks? */
static bool all_known(const struct sl__cost_case *c, const struct sl__dry_run *recorded,
                      const struct sl__device *device) {
  for (int i = 0; i < recorded->count; i++)
    if (concerns(c, &recorded->tasks[i], device) && isnan(modelled_us(&recorded->tasks[i], device)))
      return false;
  return true;
}

/* The first step brings the models from disk, and memory from the system. Steps are timed even
 * where the models know all: theirs are means, which one slow task moves for long. */
static enum sl_status calibrate(struct probe *p, const struct sl__dry_run *recorded,
                                const struct sl__device *device,
                                struct sl__calibration *calibration) {
  struct sl_context *context = p->c->model->context;
  int before = starpu_profiling_status_get();
  double wall_ms[TIMED_PROBES];
  enum sl_status status;
  for (int i = 0; i < WARM_PROBES; i++) SL__TRY(probe_step(p, true));
  SL__TRY(sl__wait_for_all(context));
  starpu_profiling_status_set(STARPU_PROFILING_ENABLE);
  SL__TRY(sl__calibration_begin(context, calibration));
  for (int i = 0; i < TIMED_PROBES; i++) {
    SL__TRY(probe_step(p, true));
    wall_ms[i] = p->wall_ms;
  }
  p->wall_ms = sl__median(TIMED_PROBES, wall_ms);
  SL__TRY(sl__wait_for_all(context));
  if (!all_known(p->c, recorded, device)) {
    sl__calibration_publish(calibration);
    SL__TRY(probe_step(p, false));
  }
out:
  sl__wait_for_all(context);
  sl__calibration_end(context, calibration);
  starpu_profiling_status_set(before);
  return status;
}

/* ---- from tasks to layers ---- */

double sl__cost_estimate(const struct sl__dry_run_task *task, const struct sl__device *device) {
  bool gpu = device->place.where == STARPU_CUDA;
  double flops = gpu ? 1e13 : 3e10, bytes = gpu ? 1e12 : 1e10; /* a second */
  return 1e3 * fmax(task->flops / flops, task->bytes / bytes);
}

static double *sum_of(const struct sl__costs *costs, const struct sl__dry_run_task *task) {
  if (is_update(task)) return costs->update;
  if (task->priority >= SL__PRIORITY_LOSS) return costs->forward;
  if (task->priority >= SL__PRIORITY_BACKWARD_DATA) return costs->backward_data;
  return task->priority >= SL__PRIORITY_FORWARD ? costs->forward : costs->backward_weight;
}

static enum sl_status costs_new(int layers, struct sl__costs *costs) {
  size_t count = (size_t)layers;
  *costs = (struct sl__costs){
      .forward = sl__alloc(count, sizeof(double), "costs"),
      .backward_data = sl__alloc(count, sizeof(double), "costs"),
      .backward_weight = sl__alloc(count, sizeof(double), "costs"),
      .update = sl__alloc(count, sizeof(double), "costs"),
  };
  bool all = costs->forward && costs->backward_data && costs->backward_weight && costs->update;
  return all ? SL_OK : SL_NO_MEMORY;
}

void sl__costs_clear(struct sl__costs *costs) {
  free(costs->forward);
  free(costs->backward_data);
  free(costs->backward_weight);
  free(costs->update);
  *costs = (struct sl__costs){0};
}

/* The dry run recorded the tasks of each slice once a device. */
static void add_up(const struct sl__cost_case *c, const struct sl__dry_run *recorded,
                   const struct sl__device *device, int count, struct sl__calibration *calibration,
                   struct sl__costs *costs) {
  for (int i = 0; i < recorded->count; i++) {
    const struct sl__dry_run_task *task = &recorded->tasks[i];
    if (!concerns(c, task, device)) continue;
    double ms = measured_us(calibration, task, device) / 1e3;
    if (isnan(ms)) ms = modelled_us(task, device) / 1e3;
    if (isnan(ms)) {
      ms = sl__cost_estimate(task, device);
      costs->estimated++;
    }
    sum_of(costs, task)[layer_of(c->model, task->name)] +=
        is_update(task) ? ms / c->replicas : ms / count;
  }
}

/* A step takes longer than its kernels: the rest is StarPU's overhead (and the machine's, if there
 * are more workers than processors). Each task gets the same part of it. */
static void add_overhead(const struct sl__cost_case *c, const struct sl__dry_run *recorded,
                         const struct sl__device *device, const struct probe *p, int count,
                         struct sl__costs *costs) {
  double busy = 0, tasks = 0;
  for (int i = 0; i < recorded->count; i++)
    tasks += concerns(c, &recorded->tasks[i], device) && !is_update(&recorded->tasks[i]);
  for (int i = 0; i < c->model->count; i++)
    busy += costs->forward[i] + costs->backward_data[i] + costs->backward_weight[i];
  double each = (p->wall_ms - busy) / (tasks / count);
  if (!(each > 0) || !isfinite(each)) return;
  for (int i = 0; i < recorded->count; i++) {
    const struct sl__dry_run_task *task = &recorded->tasks[i];
    if (!concerns(c, task, device)) continue;
    sum_of(costs, task)[layer_of(c->model, task->name)] +=
        is_update(task) ? each / c->replicas : each / count;
  }
}

/* Has every operation an implementation for this device? */
static bool runs_on(const struct sl__dry_run *recorded, const struct sl__device *device) {
  if (device->place.where != STARPU_CUDA) return true;
  for (int i = 0; i < recorded->count; i++)
    if (!recorded->tasks[i].op->codelet.cuda_funcs[0]) return false;
  return true;
}

/* More than the device has could not be measured, only swapped. */
bool sl__cost_fits(const struct sl__cost_case *c, const struct sl__device *device, int count) {
  if (device->node != STARPU_MAIN_RAM) count = 1;
  return sl__cost_main_memory(c, 1, count) < sl__device_memory(device);
}

bool sl__cost_ran_out(const struct sl_context *context, enum sl_status status) {
  if (status != SL_NO_MEMORY || !sl__memory_limit(context->memory)) return false;
  return !context->abandoned && sl__task_failure() == SL_OK;
}

/* The weights and buffers from before, after a failure, too. The first failure is reported; but
 * weights that could not be restored are the worse one, and never a limit that is used up. */
static enum sl_status restore(const struct sl__cost_case *c, const struct sl__copy *before,
                              enum sl_status status) {
  char why[400];
  enum sl_status written = sl__copy_write(c->model, before);
  if (written == SL_OK) return status;
  snprintf(why, sizeof why, "%s", sl_error());
  return sl__fail(written == SL_NO_MEMORY ? SL_STARPU : written,
                  "a measurement has changed the weights, and they could not be restored: %s; load "
                  "them again",
                  why);
}

enum sl_status sl__cost_measure(const struct sl__cost_case *c, const struct sl__device *devices,
                                int count, struct sl__costs *costs) {
  enum sl_status status;
  struct sl__grid grid = {0};
  struct probe probe = {0};
  struct sl__dry_run recorded = {0};
  struct sl__copy before = {0};
  struct sl__calibration *calibration = NULL;
  SL__TRY(costs_new(c->model->count, costs)); /* first: a later failure clears them */
  SL__TRY(sl__calibration_new(&calibration));
  SL__TRY(probe_grid(c, devices, count, &grid));
  SL__TRY(probe_open(&probe, c, &grid, c->rows * count));
  SL__TRY(dry_run_step(&probe, &recorded));
  costs->impossible = !runs_on(&recorded, devices);
  if (costs->impossible) goto out;
  if (sl__cost_fits(c, devices, count)) {
    SL__TRY(sl__copy_new(c->model, &before));
    SL__TRY(sl__copy_read(c->model, &before));
    status = restore(c, &before, calibrate(&probe, &recorded, devices, calibration));
    if (sl__cost_ran_out(c->model->context, status)) {
      probe.wall_ms = NAN; /* no more is known than of a model that does not fit */
      status = SL_OK;
    }
  }
  if (status == SL_OK) add_up(c, &recorded, devices, count, calibration, costs);
  if (status == SL_OK) add_overhead(c, &recorded, devices, &probe, count, costs);
out:
  probe_close(&probe);
  sl__grid_clear(&grid);
  sl__copy_free(&before);
  free(recorded.tasks);
  sl__calibration_free(calibration);
  if (status != SL_OK) sl__costs_clear(costs);
  return status;
}

/* ---- whole steps ---- */

/* From here on steps run as a trainer's do. */
static enum sl_status capture_step(struct probe *p) {
  struct sl_context *context = p->c->model->context;
  if (p->c->eager || !sl__may_capture_steps()) return SL_OK;
  enum sl_status status = sl__step_graph_new(context, &p->graph);
  if (status != SL_OK) return status;
  starpu_pthread_mutex_lock(&context->submit_mutex);
  sl__graph_capture(p->graph);
  status = sl__graph_compile(p->graph, probe_step(p, false));
  starpu_pthread_mutex_unlock(&context->submit_mutex);
  if (status != SL_UNSUPPORTED) return status;
  sl__graph_free(p->graph);
  p->graph = NULL;
  return SL_OK;
}

/* Time of some steps, from the first one's submission to the last one's end. */
static enum sl_status run_steps(struct probe *p, int count, double *ms) {
  static const struct sl__graph_run as_captured;
  double start = starpu_timing_now();
  enum sl_status status;
  for (int i = 0; i < count; i++)
    SL__TRY(p->graph ? sl__graph_submit(p->graph, &as_captured) : probe_step(p, false));
  SL__TRY(sl__wait_for_all(p->c->model->context));
  *ms = (starpu_timing_now() - start) / 1e3;
out:
  return status;
}

/* How often to measure a sequence: short ones take some time together, which noise disturbs less.
 */
static int repeats(double sequence_ms) {
  const double together_ms = 50, most = 50;
  return (int)fmin(fmax(together_ms / fmax(sequence_ms, 1e-3), 1), most);
}

/* The first ones bring memory, and are not counted. What several steps take longer than one is free
 * of the sequence's beginning and end, where devices wait. No more are in flight than a trainer
 * has: workers that share a step are slower if many steps wait for them. */
static enum sl_status time_steps(struct probe *p, double ms[SL__COST_TRIES]) {
  enum { STEPS = 4 };
  enum sl_status status;
  double one, several;
  for (int i = 0; i < WARM_PROBES; i++) SL__TRY(probe_step(p, true));
  SL__TRY(capture_step(p));
  for (int i = 0; i < WARM_RUNS; i++) SL__TRY(run_steps(p, 1, &one));
  int times = repeats((1 + STEPS) * one);
  for (int try = 0; try < SL__COST_TRIES; try++) {
    double ones = 0, sequences = 0;
    for (int i = 0; i < times; i++) {
      SL__TRY(run_steps(p, 1, &one));
      SL__TRY(run_steps(p, 1 + STEPS, &several));
      ones += one;
      sequences += several;
    }
    /* single steps may have been disturbed */
    ms[try] = fmax((sequences - ones) / STEPS, sequences / (1 + STEPS) / 2) / times;
  }
  status = sl__task_failure();
out:
  return status;
}

/* The median of those values: of at most some rounds, without a change of their order. */
static double median_of(int count, const double *ms) {
  enum { MOST = 64 };
  double sorted[MOST];
  if (count > MOST) count = MOST;
  memcpy(sorted, ms, (size_t)count * sizeof *sorted);
  return sl__median(count, sorted);
}

bool sl__cost_is_less(int rounds, const double *ms, const double *than) {
  const double share = 0.97;
  for (int r = 0; r < rounds; r++, ms += SL__COST_TRIES, than += SL__COST_TRIES)
    if (median_of(SL__COST_TRIES, ms) >= median_of(SL__COST_TRIES, than)) return false;
  int count = rounds * SL__COST_TRIES;
  return rounds && median_of(count, ms - count) < share * median_of(count, than - count);
}

enum sl_status sl__cost_steps(const struct sl__cost_case *c, const struct sl__grid *grid,
                              int64_t batch, double ms[SL__COST_TRIES]) {
  enum sl_status status;
  struct probe probe;
  struct sl__copy before = {0};
  SL__TRY(probe_open(&probe, c, grid, batch));
  SL__TRY(sl__copy_new(c->model, &before));
  SL__TRY(sl__copy_read(c->model, &before));
  status = restore(c, &before, time_steps(&probe, ms));
out:
  probe_close(&probe);
  sl__copy_free(&before);
  return status;
}
