#include "parallel/params/shard_update.h"

#include "core/base/error.h"
#include "parallel/step/grid.h"

enum sl_status sl__ranks_find(const struct sl_context *context, enum sl_kvstore_kind kind,
                              int servers, struct sl__ranks *ranks) {
  *ranks = (struct sl__ranks){0};
  if (!sl__kvstore_is_distributed(kind)) return SL_OK;
  if (!context->net)
    return sl__fail(SL_BAD_ARGUMENT,
                    "KVStore %s: open the context with sl_context_options.distributed",
                    sl_kvstore_name(kind));
  int size = sl__net_size(context->net);
  if (servers < 0 || servers >= size)
    return sl__fail(SL_BAD_ARGUMENT,
                    "%d servers of %d ranks: at least one rank must be a worker; start more ranks "
                    "(mpirun -np %d) or take fewer servers",
                    servers, size, servers + 1);
  *ranks = (struct sl__ranks){
      .rank = sl__net_rank(context->net), .size = size, .workers = size - servers, .members = 1};
  return SL_OK;
}

/* One owner for each StarPU worker that a listed device stands for. */
static bool worker_matches(const struct sl_context *context, int worker) {
  for (int d = 0; d < context->device_count; d++)
    if (sl__place_has(&context->devices[d].place, worker)) return true;
  return false;
}

enum sl_status sl__owners_find(const struct sl_context *context, enum sl_kvstore_kind kind,
                               struct sl__device **owners, int *count) {
  int workers = (int)starpu_worker_get_count();
  *count = 0;
  *owners = sl__alloc((size_t)workers, sizeof **owners, "the KVStore's owners");
  if (!*owners) return SL_NO_MEMORY;
  if (!sl__kvstore_is_on_devices(kind)) {
    *count = 1;
    (*owners)[0] = (struct sl__device){.name = "cpu"};
    if (starpu_cpu_worker_get_count()) (*owners)[0].place.where = STARPU_CPU;
    return SL_OK;
  }
  for (int w = 0; w < workers; w++)
    if (worker_matches(context, w)) sl__device_of_worker(w, &(*owners)[(*count)++]);
  return SL_OK;
}

int sl__parts_of(const struct sl__ranks *ranks, int64_t count, int64_t big) {
  int owners = (ranks->size - sl__first_owner(ranks)) / sl__members(ranks);
  if (!ranks->size) return (int)((count + big - 1) / big);
  return count > big ? (count < owners ? (int)count : owners) : 1;
}

int64_t sl__part_length(int64_t count, int parts, int i) {
  return count / parts + (i < count % parts);
}

enum sl_status sl__states_new(struct sl_context *context, const struct sl__launch *launch,
                              const struct sl_optimizer *optimizer, int64_t count,
                              struct sl__tensor *state[SL__OPTIMIZER_STATES]) {
  enum sl_status status = SL_OK;
  for (int k = 0; k < sl__optimizer_states(optimizer); k++) {
    SL__TRY(sl__tensor_temporary(context, &SL_SHAPE(count), SL_F32, &state[k]));
    SL__TRY(sl__fill(context, launch, state[k], 0));
  }
out:
  return status;
}

enum sl_status sl__optimizer_step(struct sl_context *context, const struct sl__launch *launch,
                                  const struct sl_optimizer *optimizer, struct sl__tensor *param,
                                  struct sl__tensor *const state[SL__OPTIMIZER_STATES], int count,
                                  struct sl__tensor *const *gradients, struct sl__tensor *norm,
                                  const struct sl__update *update) {
  return sl__update(context, sl__optimizer_of(optimizer)->update, launch, param, state, count,
                    gradients, norm, update);
}
