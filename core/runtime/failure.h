/* Kernels cannot return a status: they leave word here, and whoever waits for their results finds
 * it. StarPU is one a process, and so is this. */
#ifndef SL_CORE_RUNTIME_FAILURE_H
#define SL_CORE_RUNTIME_FAILURE_H

#include <starling/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The running task failed, its outputs are worth nothing. The first failure is kept. The message
 * begins with the task's operation, layer and device and ends with its buffers' sizes. */
void sl__task_failed(enum sl_status status, const char *format, ...) SL_PRINTF(2, 3);

/* The same where no task is to blame, and the text is the whole message. */
void sl__data_failed(enum sl_status status, const char *text);

/* SL_OK, or the first failure since the last clear: sets the message. Stays until cleared. */
enum sl_status sl__task_failure(void);
void sl__task_failure_clear(void);

/* ---- devices that work by themselves ---- */

/* The running task gives its worker's device something to do that may fail when the call has long
 * returned. The last few of each worker are remembered, for sl_last_words and: */
void sl__task_launched(void);

/* true: from here on all that the running task launches is remembered as one, under the name that
 * it has now; false: no longer. */
void sl__task_launches(bool many);

/* The device of the calling worker says that something has failed before: the running task, or one
 * of those just before it. The message names them. */
void sl__device_failed(enum sl_status status, const char *why);

#ifdef __cplusplus
}
#endif
#endif
