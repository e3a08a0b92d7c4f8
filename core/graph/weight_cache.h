/* The weight cache: weights that are written seldom and read by many short tasks. It holds copies
 * of many small tensors in one tensor, since each tensor of a task costs StarPU time. And it holds
 * prepacked weights: layouts that kernels would otherwise make at each call (struct sl__prepack).
 *
 * A cache is a list of members, each of which is one tensor. */
#ifndef SL_CORE_GRAPH_WEIGHT_CACHE_H
#define SL_CORE_GRAPH_WEIGHT_CACHE_H

#include "core/runtime/submit.h"

struct sl__weight_cache;

/* Bytes that an item takes: each begins at a multiple of 256 bytes, as CUDA's own allocations. */
static inline size_t sl__weight_cache_room(size_t bytes) { return (bytes + 255) / 256 * 256; }

/* op: the operation "prepack" (codelets/prepack.c). */
enum sl_status sl__weight_cache_new(struct sl_context *context, struct sl__op *op,
                                    struct sl__weight_cache **cache);
/* Waits for the tasks that use it. NULL is legal. */
void sl__weight_cache_free(struct sl__weight_cache *cache);

/* A plain copy of a tensor, or with `make` a prepacked layout of it. args: the kernel's arguments.
 */
struct sl__weight_cache_item {
  struct sl__tensor *tensor;
  void (*make)(const void *args, const void *from, void *to);
  size_t bytes;
  uint64_t key; /* of the layout */
  const void *args;
  size_t args_size;
};

/* Adds an item, whose tensor must outlive the cache; args are copied. Returns SL_OK also if the
 * item is left out, because the cache has it already or would become too large. */
enum sl_status sl__weight_cache_add(struct sl__weight_cache *cache,
                                    const struct sl__weight_cache_item *item);
/* The items that were added since the last call become a member, which stays as it is. If they are
 * few and none is prepacked, they are not worth it, and are left out. */
enum sl_status sl__weight_cache_close(struct sl__weight_cache *cache);

/* Has the item been added, whether its member is closed or not? */
bool sl__weight_cache_holds(const struct sl__weight_cache *cache,
                            const struct sl__weight_cache_item *item);
/* The closed member that has such an item, whatever its arguments; NULL if there is none. */
const struct sl__weight_cache *sl__weight_cache_member(const struct sl__weight_cache *cache,
                                                       const struct sl__weight_cache_item *item);
/* Where the item begins in its member's tensor; -1 if no closed member has it. */
int64_t sl__weight_cache_offset(const struct sl__weight_cache *cache,
                                const struct sl__weight_cache_item *item);
/* The member's tensor; NULL if it is not closed. A pointer to the cache is one to its first member.
 */
struct sl__tensor *sl__weight_cache_tensor(const struct sl__weight_cache *member);

/* Submits a task for each member of which an item was written since the last refresh. */
enum sl_status sl__weight_cache_refresh(struct sl__weight_cache *cache);

/* The work of that task: item i, from its tensor's memory to the member's. */
void sl__weight_cache_fill(const struct sl__weight_cache *member, int i, const void *from,
                           char *to);

#endif
