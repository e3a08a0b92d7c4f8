#include "parallel/step/grid.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/net/net.h"
#include "parallel/step/kvstore_kind.h"
#include "parallel/step/recompute.h"
#include "parallel/step/split.h"

enum sl_status sl__grid_workers(const struct sl_context *context, struct sl__device **out,
                                int *count) {
  int workers = (int)starpu_worker_get_count();
  *count = 0;
  *out = sl__alloc((size_t)workers * (size_t)context->device_count + 1, sizeof **out, "devices");
  if (!*out) return SL_NO_MEMORY;
  for (int d = 0; d < context->device_count; d++) {
    const struct sl__device *device = &context->devices[d];
    if (device->place.worker) (*out)[(*count)++] = *device;
    for (int w = 0; w < workers && !device->place.worker; w++)
      if (sl__place_has(&device->place, w)) sl__device_of_worker(w, &(*out)[(*count)++]);
  }
  return SL_OK;
}

/* StarPU ends a GPU's name with its place on the bus, "139.8 GiB 0000:1b:00.0)": no two are alike
 * in that. */
static int without_bus(const char *name) {
  const char *last = strrchr(name, ' ');
  bool is_bus =
      last && strchr(last, ':') && last[1 + strspn(last + 1, "0123456789abcdef:.")] == ')';
  return (int)(is_bus ? (size_t)(last - name) : strlen(name));
}

void sl__device_kind(const struct sl__device *device, char *kind, size_t size) {
  char name[128] = "";
  starpu_worker_get_name(device->place.worker - 1, name, sizeof name);
  const char *model = strchr(name, '(');
  size_t letters = strspn(device->name, "abcdefghijklmnopqrstuvwxyz");
  if (!model) model = "";
  snprintf(kind, size, "%.*s %.*s", (int)letters, device->name, without_bus(model), model);
}

/* How many replicas a device list stands for: "cpu" is all cores, "cpu:0,cuda:0" is two. */
static int default_replicas(const struct sl_context *context) {
  if (context->device_count > 1 || context->devices[0].place.worker) return context->device_count;
  int count = 0;
  for (int w = 0; w < (int)starpu_worker_get_count(); w++)
    count += sl__place_has(&context->devices[0].place, w);
  return count;
}

static enum sl_status make_room(struct sl__grid *g, const struct sl_model *model) {
  g->layers = model->count;
  g->stage = sl__alloc((size_t)model->count, sizeof *g->stage, "the placement grid");
  g->devices =
      sl__alloc((size_t)g->stages * (size_t)g->replicas, sizeof *g->devices, "the placement grid");
  return g->stage && g->devices ? SL_OK : SL_NO_MEMORY;
}

static enum sl_status one_stage(const struct sl_model *model, struct sl__grid *g) {
  const struct sl_context *context = model->context;
  if (!g->replicas) g->replicas = default_replicas(context);
  g->stages = 1;
  enum sl_status status = make_room(g, model);
  for (int r = 0; r < g->replicas && status == SL_OK; r++)
    g->devices[r] = context->devices[r % context->device_count];
  return status;
}

static enum sl_status placed(const struct sl_model *model, struct sl__grid *g) {
  struct sl__placement p;
  enum sl_status status = sl__placement_parse(model, model->placement, &p);
  if (status != SL_OK) return status;
  for (int s = 0; s < p.stages && !g->replicas; s++)
    if (p.device_count[s] > 1) g->replicas = p.device_count[s];
  if (!g->replicas) g->replicas = 1;
  g->stages = p.stages;
  SL__TRY(make_room(g, model));
  if (p.ranks > 1) {
    g->members = p.ranks;
    g->member = sl__net_rank(model->context->net) % p.ranks;
    g->member_of = p.rank;
    p.rank = NULL;
  }
  for (int i = 0; i < model->count; i++) g->stage[i] = p.stage[i];
  for (int s = 0; s < p.stages; s++)
    for (int r = 0; r < g->replicas; r++)
      g->devices[s * g->replicas + r] = p.devices[s][r % p.device_count[s]];
out:
  sl__placement_clear(&p);
  return status;
}

/* Multiplications, and one for each value that is touched: a pooling layer costs something too. */
static double layer_cost(const struct sl__layer *layer) {
  return layer->flops + (double)sl_shape_count(&layer->out);
}

static enum sl_status balanced(const struct sl_model *model, int stages, struct sl__grid *g) {
  enum sl_status status = SL_NO_MEMORY;
  struct sl__device *workers = NULL;
  int count;
  if (stages > model->count)
    return sl__fail(SL_BAD_ARGUMENT, "%d stages: the model has %d layers, so at most %d stages",
                    stages, model->count, model->count);
  double *cost = sl__alloc((size_t)model->count, sizeof *cost, "stages");
  int *first = sl__alloc((size_t)stages + 1, sizeof *first, "stages");
  if (!cost || !first) goto out;
  g->stages = stages;
  if (!g->replicas) g->replicas = 1;
  SL__TRY(make_room(g, model));
  SL__TRY(sl__grid_workers(model->context, &workers, &count));
  for (int i = 0; i < model->count; i++) cost[i] = layer_cost(&model->layers[i]);
  SL__TRY(sl__partition(model->count, cost, stages, first));
  first[stages] = model->count;
  for (int s = 0; s < stages; s++)
    for (int i = first[s]; i < first[s + 1]; i++) g->stage[i] = s;
  /* neighbours together, as in MXNet's LSTM: cell i of n on device i D / n */
  int64_t cells = (int64_t)stages * g->replicas;
  for (int r = 0; r < g->replicas; r++)
    for (int s = 0; s < stages; s++) {
      int64_t cell = (int64_t)r * stages + s;
      g->devices[s * g->replicas + r] = workers[cells > count ? cell * count / cells : cell];
    }
out:
  free(workers);
  free(cost);
  free(first);
  return status;
}

bool sl__is_recurrent(const struct sl_model *model) {
  for (int i = 0; i < model->count; i++)
    if (model->layers[i].state.ndim && !model->layers[i].state_is_cache) return true;
  return false;
}

/* The chunks of a sequence are put together by one task (plan_span.c). */
static enum sl_status check_chunks(const struct sl_model *model, int64_t chunk) {
  int64_t steps = model->sample.dim[0], least = (steps + SL__MOST_INPUTS - 1) / SL__MOST_INPUTS;
  if (!chunk || chunk >= least || sl__is_recurrent(model)) return SL_OK;
  return sl__fail(
      SL_BAD_ARGUMENT,
      "chunks of %lld time steps: a sequence of %lld would have more than %d; take %lld "
      "steps or more",
      (long long)chunk, (long long)steps, SL__MOST_INPUTS, (long long)least);
}

/* A shorter sequence is not halved. */
enum { LEAST_HALVED = 16 };

bool sl__is_on_cpus(const struct sl__device *device) {
  for (int w = 0; w < (int)starpu_worker_get_count(); w++)
    if (sl__place_has(&device->place, w) && starpu_worker_get_type(w) != STARPU_CPU_WORKER)
      return false;
  return true;
}

/* Groups of ranks, each with a copy of the model. */
static int groups_of(const struct sl_model *model, const struct sl_trainer_options *o) {
  const struct sl__net *net = model->context->net;
  bool is_alone = !net || !sl__kvstore_is_distributed(o->kvstore);
  return is_alone ? 1 : sl__net_size(net) / sl_placement_ranks(model);
}

int64_t sl__chunk_by_default(const struct sl_model *model, const struct sl_trainer_options *o,
                             int64_t slices) {
  int64_t steps = model->sample.dim[0];
  bool halves = slices == 1 && groups_of(model, o) == 1 && steps >= LEAST_HALVED &&
                sl__is_recurrent(model) && !sl__model_whole_layer(model);
  return halves ? (steps + 1) / 2 : 0;
}

/* On GPUs halves were not measured. A rank knows other ranks' devices by their names only. */
static void choose_chunk(const struct sl_model *model, const struct sl_trainer_options *o,
                         struct sl__grid *g) {
  bool on_cpus = g->members == 1 || !sl__devices_may_be_gpus(model->placement);
  for (int i = 0; i < g->stages * g->replicas && g->members == 1; i++)
    on_cpus &= sl__is_on_cpus(&g->devices[i]);
  if (!o->chunk && on_cpus)
    g->training_chunk = sl__chunk_by_default(model, o, (int64_t)g->replicas * g->microbatches);
}

enum sl_status sl__grid_new(const struct sl_model *model, const struct sl_trainer_options *o,
                            struct sl__grid *g) {
  *g = (struct sl__grid){.members = 1,
                         .replicas = o->replicas,
                         .microbatches = o->microbatches ? o->microbatches : 1,
                         .math = o->math,
                         .chunk = o->chunk,
                         .training_chunk = o->chunk};
  if (o->replicas < 0 || o->replicas > 4096 || o->microbatches < 0 || o->microbatches > 4096)
    return sl__fail(SL_BAD_ARGUMENT, "%d replicas x %d microbatches: each must be from 1 to 4096",
                    o->replicas, o->microbatches);
  if ((unsigned)o->math > SL_MATH_BF16)
    return sl__fail(SL_BAD_ARGUMENT, "%d is no kind of math (SL_MATH_*)", (int)o->math);
  if (o->chunk < 0)
    return sl__fail(SL_BAD_ARGUMENT, "a chunk of %lld time steps: must be at least 1",
                    (long long)o->chunk);
  enum sl_status status =
      o->chunk ? sl__model_check_steps(model, SL_BAD_ARGUMENT, "chunks") : SL_OK;
  if (status != SL_OK) return status;
  if (o->stages < 0) return sl__fail(SL_BAD_ARGUMENT, "%d stages: must be at least 1", o->stages);
  if (o->stages && model->placement)
    return sl__fail(SL_BAD_ARGUMENT,
                    "stages and a placement: the placement has its own stages; "
                    "give one of the two");
  if (sl_placement_ranks(model) > 1 &&
      (!sl__kvstore_is_distributed(o->kvstore) || !model->context->net))
    return sl__fail(SL_BAD_ARGUMENT,
                    "the placement is over %d ranks, but KVStore %s is of one; take dist_sync and "
                    "start a multiple of %d ranks (mpirun -np %d)",
                    sl_placement_ranks(model), sl_kvstore_name(o->kvstore),
                    sl_placement_ranks(model), sl_placement_ranks(model));
  status = check_chunks(model, o->chunk);
  if (status != SL_OK) return status;
  status = model->placement ? placed(model, g)
           : o->stages      ? balanced(model, o->stages, g)
                            : one_stage(model, g);
  if (status == SL_OK) choose_chunk(model, o, g);
  if (status == SL_OK) status = sl__recompute_find(model, o->recompute, g);
  return status == SL_OK ? sl__split_parse(o->split, g->replicas, &g->proportion) : status;
}

enum sl_status sl__grid_check_batch(const struct sl__grid *g, int64_t batch) {
  if (batch >= (int64_t)g->replicas * g->microbatches) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT,
                  "a batch of %lld cannot be cut into %d replicas x %d microbatches; take a larger "
                  "batch or fewer of them (without a number of replicas there is one a worker)",
                  (long long)batch, g->replicas, g->microbatches);
}

void sl__grid_clear(struct sl__grid *g) {
  free(g->proportion);
  free(g->stage);
  free(g->run);
  free(g->devices);
  free(g->member_of);
  *g = (struct sl__grid){0};
}
