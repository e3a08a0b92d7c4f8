/* StarPU's traces (FxT): recording them, and the names of tasks in them. */
#ifndef SL_CORE_RUNTIME_TRACE_H
#define SL_CORE_RUNTIME_TRACE_H

#include "core/runtime/submit.h"

struct sl__trace;

/* Before StarPU starts: makes the folder, and names it to StarPU. folder: NULL for no trace. */
enum sl_status sl__trace_open(struct sl_context *context, const char *folder);
void sl__trace_close(struct sl__trace *trace); /* NULL is legal; after StarPU has ended */

/* Names the task "conv2.forward/s1/r0/m2": layer, operation, and its stage, replica, microbatch
 * and chunk as far as it has them; and gives it a colour. Without memory the task keeps its
 * name. */
void sl__trace_task(struct sl__trace *trace, struct starpu_task *task, const struct sl__op *op,
                    const struct sl__launch *launch);

/* Records that a message to or from a rank has just ended, and how long it took, as an event
 * "message to 2 1234 us conv1". */
void sl__trace_message(struct sl__trace *trace, bool is_send, int peer, const char *name,
                       double microseconds);

#endif
