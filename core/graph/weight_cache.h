/* Copies of many small tensors in one: a task that reads them all costs StarPU as much as a task
 * with one. And forms of tensors that kernels would else make at each call (struct sl__prepack).
 * For what is written seldom and read by many short tasks. */
#ifndef SL_CORE_GRAPH_WEIGHT_CACHE_H
#define SL_CORE_GRAPH_WEIGHT_CACHE_H

#include "core/runtime/submit.h"

struct sl__weight_cache;

/* What a tensor takes in it: each begins at a multiple of 256 bytes, as CUDA's own allocations. */
static inline size_t sl__weight_cache_room(size_t bytes) { return (bytes + 255) / 256 * 256; }

/* op: the operation "pack" (codelets/prepack.c). */
enum sl_status sl__weight_cache_new(struct sl_context *context, struct sl__op *op,
                                    struct sl__weight_cache **pack);
/* Waits for the tasks that use it. NULL is legal. */
void sl__weight_cache_free(struct sl__weight_cache *pack);

/* What is in it: a tensor as it is, or with `make` that form of it; args: the kernel's arguments.
 */
struct sl__weight_cache_item {
  struct sl__tensor *tensor;
  void (*make)(const void *args, const void *from, void *to);
  size_t bytes;
  uint64_t key; /* the form's */
  const void *args;
  size_t args_size;
};

/* Add an item, whose tensor must outlive the pack; args are copied. Not twice, nor what would make
 * it too large: SL_OK all the same. */
enum sl_status sl__weight_cache_add(struct sl__weight_cache *pack,
                                    const struct sl__weight_cache_item *item);
/* What was added since the last time is a tensor from here on, a member of the pack, that stays as
 * it is. A few items without forms are not worth it, and forgotten. */
enum sl_status sl__weight_cache_close(struct sl__weight_cache *pack);

/* Has it been added, whether its member is closed or not? */
bool sl__weight_cache_holds(const struct sl__weight_cache *pack,
                            const struct sl__weight_cache_item *item);
/* The member that has such an item, whatever its other arguments; NULL: none. */
const struct sl__weight_cache *sl__weight_cache_member(const struct sl__weight_cache *pack,
                                                       const struct sl__weight_cache_item *item);
/* Where it begins in the member's tensor; -1: no member has it. */
int64_t sl__weight_cache_offset(const struct sl__weight_cache *pack,
                                const struct sl__weight_cache_item *item);
/* A member's; the pack's first one is the pack itself. NULL: it is not closed. */
struct sl__tensor *sl__weight_cache_tensor(const struct sl__weight_cache *member);

/* Copy again, by a task a member, where one of its items was written since. */
enum sl_status sl__weight_cache_refresh(struct sl__weight_cache *pack);

/* What the task does: item i from its tensor's memory into the member's. */
void sl__weight_cache_fill(const struct sl__weight_cache *member, int i, const void *from,
                           char *to);

#endif
