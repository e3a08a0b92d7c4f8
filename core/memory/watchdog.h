/* A watch over StarPU: where no task ends for long, and none runs, it says what waits for what, and
 * whoever waits gets SL_STALLED. A task that runs is no stall, however long it takes; nor is a
 * message under way, for which core/net/heartbeat.h has its own patience. */
#ifndef SL_CORE_MEMORY_WATCHDOG_H
#define SL_CORE_MEMORY_WATCHDOG_H

#include "core/runtime/context.h"

/* Needs context->admission. seconds > 0. */
enum sl_status sl__watchdog_open(struct sl_context *context, double seconds);
/* NULL is legal. */
void sl__watchdog_close(struct sl__watchdog *watchdog);

#endif
