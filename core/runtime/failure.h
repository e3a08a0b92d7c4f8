/* Failures of kernels, which cannot return a status: they store it here, and each wait for a
 * task's results finds it. There is one such store for each process, as StarPU is. */
#ifndef SL_CORE_RUNTIME_FAILURE_H
#define SL_CORE_RUNTIME_FAILURE_H

#include <starling/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The running task has failed, and its outputs are invalid. Only the first failure is kept. The
 * message begins with the task's operation, layer and device and ends with its buffers' sizes. */
void sl__task_failed(enum sl_status status, const char *format, ...) SL_PRINTF(2, 3);

/* The same if no task has caused it; the text is the whole message. */
void sl__data_failed(enum sl_status status, const char *text);

/* A call of a captured graph: while a thread runs one, its failures name the call instead of the
 * task, which has many. */
struct sl__running_call {
  const char *operation, *layer;
  int count;
  void *const *buffers; /* [count], as the kernel gets them */
};
/* NULL: the call has ended. Borrows until then. */
void sl__call_runs(const struct sl__running_call *call);

/* true: failures of the calling thread are no longer kept, because the work that fails is only
 * being recorded (core/runtime/cuda_graph.h). false: they are kept again. \return the first failure
 * that was not kept, valid until the next call; NULL: there was none. */
const char *sl__failures_divert(bool on);

/* SL_OK, or the first failure since the last clear: sets the message. Stays until cleared, which
 * happens when a context is opened while no other one is open. */
enum sl_status sl__task_failure(void);
void sl__task_failure_clear(void);

/* ---- devices that work asynchronously ---- */

/* The running task starts work on its worker's device that may fail after the call has returned.
 * The last tasks of each worker are remembered, for sl_last_words and sl__device_failed. */
void sl__task_launched(void);

/* true: from here on all work that the running task starts is remembered as one, under the task's
 * name; false: no longer. */
void sl__task_launches(bool many);

/* The calling worker's device reports that an earlier work has failed: that of the running task,
 * or of one of the tasks just before it. The message names them. */
void sl__device_failed(enum sl_status status, const char *why);

#ifdef __cplusplus
}
#endif
#endif
