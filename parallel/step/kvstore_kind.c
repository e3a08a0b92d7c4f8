#include "parallel/step/kvstore_kind.h"

#include <string.h>

#include "core/base/error.h"
#include "core/runtime/context.h"

static const char *const kinds[] = {[SL_KVSTORE_AUTO] = "auto",
                                    [SL_KVSTORE_LOCAL] = "local",
                                    [SL_KVSTORE_DEVICE] = "device",
                                    [SL_KVSTORE_DIST_SYNC] = "dist_sync",
                                    [SL_KVSTORE_DIST_ASYNC] = "dist_async",
                                    [SL_KVSTORE_DIST_SYNC_DEVICE] = "dist_sync_device",
                                    [SL_KVSTORE_DIST_ASYNC_DEVICE] = "dist_async_device"};

enum sl_status sl_kvstore_parse(const char *name, enum sl_kvstore_kind *kind) {
  SL__NEEDS(name, kind);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (!strcmp(name, kinds[i])) {
      *kind = (enum sl_kvstore_kind)i;
      return SL_OK;
    }
  return sl__fail(SL_BAD_ARGUMENT,
                  "unknown KVStore '%s': use auto, local, device, dist_sync, dist_async, "
                  "dist_sync_device or dist_async_device",
                  name);
}

const char *sl_kvstore_name(enum sl_kvstore_kind kind) {
  return (size_t)kind < sizeof kinds / sizeof *kinds ? kinds[kind] : "?";
}

static bool has_gpus_alone(const struct sl_context *context) {
  for (int d = 0; d < context->device_count; d++)
    if (context->devices[d].place.where != STARPU_CUDA) return false;
  return context->device_count > 0;
}

enum sl_kvstore_kind sl_kvstore_choose(const struct sl_context *context,
                                       enum sl_kvstore_kind kind) {
  SL__NEEDS_OR(SL_KVSTORE_LOCAL, context);
  if (kind != SL_KVSTORE_AUTO) return kind;
  return has_gpus_alone(context) ? SL_KVSTORE_DEVICE : SL_KVSTORE_LOCAL;
}
