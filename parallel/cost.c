#include "parallel/cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "parallel/feed.h"

enum { MOST_PROBES = 12 };

/* ---- memory ---- */

double sl__cost_bytes(const struct sl__cost_case *c, int i, int slices) {
  const struct sl__layer *layer = &c->model->layers[i];
  double out = (double)sl_shape_count(&layer->out), kept = out, rows = (double)c->rows;
  if (layer->saved.ndim)
    kept += (double)sl_shape_count(&layer->saved) / (layer->saved_per_row ? 1 : rows);
  double copies = 2 + sl__kvstore_states(c->optimizer);
  /* the output's gradient is there for one slice at a time */
  return 4 * (copies * (double)layer->params.total + rows * (kept * slices + out));
}

double sl__cost_memory(const struct sl__device *device) {
  starpu_ssize_t bytes = starpu_memory_get_total(device->node);
  if (bytes > 0) return (double)bytes;
  if (device->node != STARPU_MAIN_RAM || getenv("STARPU_DISK_SWAP")) return INFINITY;
  return (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

/* ---- the weights, put aside ---- */

struct aside {
  const struct sl_model *model;
  float **values; /* [2 * layers]: parameters, buffers */
};

static const struct sl__block *block_at(const struct sl_model *model, int i) {
  return i % 2 ? &model->layers[i / 2].buffers : &model->layers[i / 2].params;
}

static enum sl_status put_aside(const struct sl_model *model, struct aside *aside) {
  enum sl_status status = SL_OK;
  aside->model = model;
  aside->values = sl__alloc(2 * (size_t)model->count, sizeof *aside->values, "weights");
  if (!aside->values) return SL_NO_MEMORY;
  for (int i = 0; i < 2 * model->count && status == SL_OK; i++) {
    const struct sl__block *block = block_at(model, i);
    if (!block->total) continue;
    aside->values[i] = sl__alloc((size_t)block->total, sizeof(float), "a copy of weights");
    if (!aside->values[i]) return SL_NO_MEMORY;
    status = sl__tensor_read(block->tensor, aside->values[i]);
  }
  return status;
}

static enum sl_status put_back(struct aside *aside, enum sl_status status) {
  for (int i = 0; aside->values && i < 2 * aside->model->count; i++) {
    enum sl_status written = SL_OK;
    if (aside->values[i] && status == SL_OK)
      written = sl__tensor_write(block_at(aside->model, i)->tensor, aside->values[i]);
    if (status == SL_OK) status = written;
    free(aside->values[i]);
  }
  free(aside->values);
  return status;
}

/* The layer that a noted task is for; -1: none (a norm, statistics). */
static int layer_of(const struct sl_model *model, const char *name) {
  for (int i = 0; i < model->count; i++)
    if (name == model->layers[i].name) return i;
  return name && !strcmp(name, "loss") ? model->count - 1 : -1;
}

/* ---- a probe: steps of the whole model on each device of the class ---- */

struct probe {
  const struct sl__cost_case *c;
  struct sl__grid grid;
  struct sl__plan *plan;
  struct sl__kvstore *kvstore;
  struct sl_tensor *x, *labels;
};

/* Some data: zeros, which are tokens and labels, too. */
static enum sl_status probe_data(struct probe *p, int count) {
  const struct sl_model *model = p->c->model;
  struct sl_shape x = {.ndim = model->sample.ndim + 1, .dim = {p->c->rows * count}};
  int64_t rows[STARPU_NMAXWORKERS];
  enum sl_status status;
  for (int i = 0; i < model->sample.ndim; i++) x.dim[i + 1] = model->sample.dim[i];
  struct sl_shape labels = model->takes_tokens ? x : SL_SHAPE(x.dim[0]);
  enum sl_type type = model->takes_tokens ? SL_I32 : SL_F32;
  SL_TRY(sl__tensor_host(model->context, &x, type, NULL, &p->x));
  SL_TRY(sl__tensor_host(model->context, &labels, SL_I32, NULL, &p->labels));
  if (count < 2) return SL_OK;
  for (int i = 0; i < count; i++) rows[i] = p->c->rows;
  SL_TRY(sl__tensor_split(p->x, count, rows));
  SL_TRY(sl__tensor_keep_split(p->x));
  SL_TRY(sl__tensor_split(p->labels, count, rows));
  SL_TRY(sl__tensor_keep_split(p->labels));
out:
  return status;
}

static enum sl_status probe_open(struct probe *p, const struct sl__cost_case *c,
                                 const struct sl__device *devices, int count) {
  enum sl_status status = SL_NO_MEMORY;
  *p = (struct probe){.c = c,
                      .grid = {.replicas = count,
                               .microbatches = 1,
                               .stages = 1,
                               .chunk = c->chunk,
                               .layers = c->model->count}};
  p->grid.stage = sl__alloc((size_t)c->model->count, sizeof *p->grid.stage, "a probe");
  p->grid.devices = sl__alloc((size_t)count, sizeof *p->grid.devices, "a probe");
  if (!p->grid.stage || !p->grid.devices) goto out;
  memcpy(p->grid.devices, devices, (size_t)count * sizeof *devices);
  SL_TRY(sl__plan_new(c->model, &p->grid, c->rows * count, 0, true, &p->plan));
  SL_TRY(sl__kvstore_new(c->model, c->optimizer, c->kvstore, c->big_shard, &p->grid, &p->kvstore));
  SL_TRY(probe_data(p, count));
out:
  return status;
}

static void probe_close(struct probe *p) {
  starpu_task_wait_for_all();
  sl__plan_free(p->plan);
  sl__kvstore_free(p->kvstore);
  sl__tensor_free(p->x);
  sl__tensor_free(p->labels);
  sl__grid_clear(&p->grid);
}

/* The update adds as many gradients as the trainer's will. */
static enum sl_status probe_step(struct probe *p) {
  const struct sl__step step = {
      .training = true, .scale = 1, .x = p->x, .labels = p->labels, .grads = p->kvstore->grads};
  enum sl_status status = sl__plan_submit(p->plan, &step);
  int replicas = p->kvstore->replicas;
  if (status != SL_OK) return status;
  if (p->c->replicas < replicas) p->kvstore->replicas = p->c->replicas;
  status = sl__kvstore_update(p->kvstore, 0, 0);
  p->kvstore->replicas = replicas;
  return status;
}

/* The step's tasks, noted instead of run. */
static enum sl_status rehearse(struct probe *p, struct sl__rehearsal *noted) {
  struct sl_context *context = p->c->model->context;
  context->rehearsal = noted;
  enum sl_status status = probe_step(p);
  context->rehearsal = NULL;
  return status;
}

/* Of what runs on the device itself; updates may be another's. */
static bool all_known(const struct sl_model *model, const struct sl__rehearsal *noted,
                      const struct sl__device *device) {
  for (int i = 0; i < noted->count; i++) {
    const struct sl__rehearsed *task = &noted->tasks[i];
    bool update =
        task->priority >= SL_PRIORITY_UPDATE && task->priority < SL_PRIORITY_BACKWARD_DATA;
    if (update || layer_of(model, task->name) < 0) continue;
    if (isnan(sl__rehearsed_time(task, device->place.worker - 1))) return false;
  }
  return true;
}

/* The first step brings the models from disk, too, and is the one that StarPU does not count. */
static enum sl_status calibrate(struct probe *p, const struct sl__rehearsal *noted,
                                const struct sl__device *device) {
  struct sl_context *context = p->c->model->context;
  enum sl_status status = SL_OK;
  int before = starpu_profiling_status_get();
  starpu_profiling_status_set(STARPU_PROFILING_ENABLE);
  context->calibrating = true;
  for (int i = 0; i < MOST_PROBES && status == SL_OK; i++) {
    status = probe_step(p);
    starpu_task_wait_for_all();
    if (all_known(p->c->model, noted, device)) break;
  }
  context->calibrating = false;
  starpu_profiling_status_set(before);
  return status;
}

/* ---- from tasks to layers ---- */

double sl__cost_estimate(const struct sl__rehearsed *task, const struct sl__device *device) {
  bool gpu = device->place.where == STARPU_CUDA;
  double flops = gpu ? 1e13 : 3e10, bytes = gpu ? 1e12 : 1e10; /* a second */
  return 1e3 * fmax(task->flops / flops, task->bytes / bytes);
}

static double *sum_of(const struct sl__costs *costs, int priority) {
  if (priority >= SL_PRIORITY_LOSS || priority / 1000 == SL_PRIORITY_FORWARD / 1000)
    return costs->forward;
  if (priority >= SL_PRIORITY_BACKWARD_DATA) return costs->backward_data;
  return priority >= SL_PRIORITY_UPDATE ? costs->update : costs->backward_weight;
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

/* Slices' tasks were noted once a device; a local KVStore's updates burden the CPU only. */
static void add_up(const struct sl__cost_case *c, const struct sl__rehearsal *noted,
                   const struct sl__device *device, int count, struct sl__costs *costs) {
  bool owns = c->kvstore == SL_KVSTORE_DEVICE || device->place.where != STARPU_CUDA;
  for (int i = 0; i < noted->count; i++) {
    const struct sl__rehearsed *task = &noted->tasks[i];
    int layer = layer_of(c->model, task->name);
    double *sum = sum_of(costs, task->priority);
    if (layer < 0 || (sum == costs->update && !owns)) continue;
    double ms = sl__rehearsed_time(task, device->place.worker - 1) / 1e3;
    if (isnan(ms)) {
      ms = sl__cost_estimate(task, device);
      costs->estimated++;
    }
    sum[layer] += sum == costs->update ? ms / c->replicas : ms / count;
  }
}

/* More than the device has: it could not be measured, only swapped. */
static bool fits(const struct sl__cost_case *c, const struct sl__device *device, int count) {
  double bytes = 0;
  for (int i = 0; i < c->model->count; i++) bytes += sl__cost_bytes(c, i, 1);
  if (device->node == STARPU_MAIN_RAM) bytes *= count;
  return bytes < sl__cost_memory(device);
}

enum sl_status sl__cost_measure(const struct sl__cost_case *c, const struct sl__device *devices,
                                int count, struct sl__costs *costs) {
  enum sl_status status;
  struct probe probe = {0};
  struct sl__rehearsal noted = {0};
  struct aside aside = {0};
  SL_TRY(costs_new(c->model->count, costs));
  SL_TRY(probe_open(&probe, c, devices, count));
  SL_TRY(rehearse(&probe, &noted));
  if (fits(c, devices, count)) {
    SL_TRY(put_aside(c->model, &aside));
    status = calibrate(&probe, &noted, devices);
    starpu_task_wait_for_all();
  }
  status = put_back(&aside, status);
  if (status == SL_OK) add_up(c, &noted, devices, count, costs);
out:
  probe_close(&probe);
  free(noted.tasks);
  if (status != SL_OK) sl__costs_clear(costs);
  return status;
}
