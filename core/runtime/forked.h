/* Of the parent's threads a forked process has the one that forked. StarPU's workers, which it
 * lacks, would never end a task: in such a process a context is abandoned (core/runtime/wait.h),
 * and calls fail instead of waiting. */
#ifndef SL_CORE_RUNTIME_FORKED_H
#define SL_CORE_RUNTIME_FORKED_H

#include "core/runtime/context.h"

/* While StarPU runs for the context: forks are noticed. */
void sl__fork_watch(struct sl_context *context);
void sl__fork_unwatch(struct sl_context *context);

/* SL_UNSUPPORTED if this process was forked since StarPU started for the context; NULL: for any
 * context. No call of the system. */
enum sl_status sl__fork_check(const struct sl_context *context);

#endif
