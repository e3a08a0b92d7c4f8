#include "parallel/params/shard_owners.h"

#include <stdlib.h>

#include "core/base/error.h"
#include "parallel/step/kvstore_kind.h"

/* Each StarPU worker of a listed device is an owner. */
static bool is_listed(const struct sl_context *context, int worker) {
  for (int d = 0; d < context->device_count; d++)
    if (sl__place_has(&context->devices[d].place, worker)) return true;
  return false;
}

static void find_devices(const struct sl_context *context, enum sl_kvstore_kind kind,
                         struct sl__owners *owners) {
  if (!sl__kvstore_is_on_devices(kind)) {
    owners->count = 1;
    owners->devices[0] = (struct sl__device){.name = "cpu"};
    if (starpu_cpu_worker_get_count()) owners->devices[0].place.where = STARPU_CPU;
    return;
  }
  for (int w = 0; w < (int)starpu_worker_get_count(); w++)
    if (is_listed(context, w)) sl__device_of_worker(w, &owners->devices[owners->count++]);
}

enum sl_status sl__owners_open(const struct sl_context *context, enum sl_kvstore_kind kind,
                               const struct sl__ranks *ranks, struct sl__owners *owners) {
  size_t workers = starpu_worker_get_count(), size = (size_t)ranks->size + 1;
  *owners = (struct sl__owners){0};
  owners->devices = sl__alloc(workers, sizeof *owners->devices, "the owners of shards");
  owners->load = sl__alloc(workers, sizeof *owners->load, "the owners of shards");
  owners->rank_load = sl__alloc(size, sizeof *owners->rank_load, "the owners of shards");
  if (!owners->devices || !owners->load || !owners->rank_load) return SL_NO_MEMORY;
  find_devices(context, kind, owners);
  return SL_OK;
}

void sl__owners_close(struct sl__owners *owners) {
  free(owners->devices);
  free(owners->load);
  free(owners->rank_load);
  *owners = (struct sl__owners){0};
}

int sl__owners_lightest(const int64_t *load, int first, int end, int stride, const bool *excluded) {
  int lightest = -1;
  for (int i = first; i < end; i += stride)
    if (!(excluded && excluded[i]) && (lightest < 0 || load[i] < load[lightest])) lightest = i;
  return lightest;
}

void sl__owners_count(struct sl__owners *owners, const struct sl__shard *shard, bool is_mine,
                      int sign) {
  owners->rank_load[shard->rank] += sign * shard->count;
  if (is_mine) owners->load[shard->device] += sign * shard->count;
}
