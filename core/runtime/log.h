/* The context's log: whole lines, one at a time, whichever thread they come from. */
#ifndef SL_CORE_RUNTIME_LOG_H
#define SL_CORE_RUNTIME_LOG_H

#include "core/runtime/context.h"

/* For messages to the user that no caller can get as a status. context may be NULL: then nothing
 * is logged. */
void sl__log(struct sl_context *context, enum sl_level level, const char *format, ...)
    SL_PRINTF(3, 4);

#endif
