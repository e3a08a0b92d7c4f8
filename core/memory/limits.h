/* Limits of StarPU's memory, which it reads from its environment when it starts, and the swap
 * folder behind main memory. */
#ifndef SL_CORE_MEMORY_LIMITS_H
#define SL_CORE_MEMORY_LIMITS_H

#include "core/runtime/context.h"

/* Before StarPU starts: reads the options and sets its environment. SL_BAD_ARGUMENT for a
 * malformed list, or if the environment says something else; SL_IO and SL_NO_MEMORY of the swap
 * folder. */
enum sl_status sl__memory_begin(const struct sl_context_options *options,
                                struct sl__memory **memory);

/* Once StarPU runs: gives it the swap folder of context->memory, if there is one. SL_NO_DEVICE for
 * the limit of a GPU where there is none, unless other ranks may have one. */
enum sl_status sl__memory_open(struct sl_context *context, bool distributed);

/* After StarPU has ended: restores the environment. NULL is legal. */
void sl__memory_close(struct sl__memory *memory);

/* Is any GPU's memory limited, by the options or the user's environment? */
bool sl__gpu_memory_is_limited(void);

/* Limit of main memory, bytes; 0: there is none. memory may be NULL. */
size_t sl__memory_limit(const struct sl__memory *memory);

#endif
