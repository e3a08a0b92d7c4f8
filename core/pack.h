/* Copies of many small tensors in one: a task that reads them all costs StarPU as much as a task
 * with one. For what is written seldom and read by many short tasks. */
#ifndef SL_CORE_PACK_H
#define SL_CORE_PACK_H

#include "core/submit.h"

struct sl__pack;

/* What a tensor takes in it: each begins at a multiple of 256 bytes, as CUDA's own allocations. */
static inline size_t sl__pack_room(size_t bytes) { return (bytes + 255) / 256 * 256; }

/* op: the operation "pack" (codelets/pack.c). */
enum sl_status sl__pack_new(struct sl_context *context, struct sl__op *op, struct sl__pack **pack);
/* Waits for the tasks that use it. NULL is legal. */
void sl__pack_free(struct sl__pack *pack);

/* Add a tensor, which must outlive the pack; not any more once it is closed, nor what would make it
 * too large: SL_OK all the same. */
enum sl_status sl__pack_add(struct sl__pack *pack, struct sl_tensor *tensor);
/* From here on it stays as it is. Too few tensors are no pack: then it is empty. */
enum sl_status sl__pack_close(struct sl__pack *pack);
bool sl__pack_is_closed(const struct sl__pack *pack);

/* Where the tensor begins in it; -1: it is not in it. */
int64_t sl__pack_offset(const struct sl__pack *pack, const struct sl_tensor *tensor);
/* NULL: it is empty. */
struct sl_tensor *sl__pack_tensor(const struct sl__pack *pack);

/* Copy again, by a task, where one of them was written since. */
enum sl_status sl__pack_refresh(struct sl__pack *pack);

#endif
