/* A watch over StarPU: where no task ends for long, and none runs, it says what waits for what, and
 * whoever waits gets SL_STALLED. A task that runs is no stall, however long it takes; nor is a
 * message under way, for which core/net/heartbeat.h has its own patience. */
#ifndef SL_CORE_MEMORY_WATCHDOG_H
#define SL_CORE_MEMORY_WATCHDOG_H

#include "core/runtime/context.h"

/* Needs context->active. seconds > 0. */
enum sl_status sl__stall_open(struct sl_context *context, double seconds);
/* NULL is legal. */
void sl__stall_close(struct sl__stall *stall);

/* SL_OK, or SL_STALLED and its message. NULL is legal. */
enum sl_status sl__stall_check(struct sl__stall *stall);

/* The calling thread waits for a tensor, or does so no longer. */
void sl__stall_waits(struct sl_context *context, bool waits);

#endif
