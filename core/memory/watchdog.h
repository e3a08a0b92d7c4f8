/* A thread that finds stalls: for a given time no task has ended, none runs, and no message is
 * in progress, although tasks are submitted or a thread waits for a tensor. It logs what the
 * oldest tasks wait for, and all waits fail with SL_STALLED. A task that runs is no stall,
 * however long it takes; nor is a message, for which core/net/heartbeat.h has a timeout of its
 * own. */
#ifndef SL_CORE_MEMORY_WATCHDOG_H
#define SL_CORE_MEMORY_WATCHDOG_H

#include <stdio.h>

#include "core/runtime/context.h"

/* Needs context->admission. seconds > 0. */
enum sl_status sl__watchdog_open(struct sl_context *context, double seconds);
/* Prints how many tasks are submitted, and what the oldest ones wait for; nothing where the context
 * has no list of tasks. */
void sl__watchdog_report(struct sl_context *context, FILE *out);
/* NULL is legal. */
void sl__watchdog_close(struct sl__watchdog *watchdog);

#endif
