/* Fills a member of the weight cache (core/graph/weight_cache.h). */
#include "codelets/codelets.h"
#include "core/graph/weight_cache.h"

SL__KERNEL void sl__prepack_cpu(void *buffers[], void *cl_arg) {
  const struct sl__weight_cache *cache = *(const struct sl__weight_cache *const *)sl__args(cl_arg);
  for (int i = 1; i < sl__buffer_count(cl_arg); i++)
    sl__weight_cache_fill(cache, i - 1, sl__buffer(buffers, i), sl__buffer(buffers, 0));
}
