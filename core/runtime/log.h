/* The context's log: whole lines, one at a time, whichever thread they come from. */
#ifndef SL_CORE_RUNTIME_LOG_H
#define SL_CORE_RUNTIME_LOG_H

#include "core/runtime/context.h"

/* For what the user should know but no caller can be told: a status is for everything else. context
 * may be NULL (then nothing is said). */
void sl__log(struct sl_context *context, enum sl_level level, const char *format, ...)
    SL_PRINTF(3, 4);

#endif
