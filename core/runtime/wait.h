/* Waiting for StarPU. With messages by StarPU-MPI a wait may be one for ever, once a rank is lost;
 * so it looks for that, and for stalls and a full swap folder. Then the context is *abandoned*:
 * workers pause, StarPU's threads stay, and all that tasks or messages may still look at is left as
 * it is. It is a leak on the way to the program's end, and the price of an end with a message. */
#ifndef SL_CORE_RUNTIME_WAIT_H
#define SL_CORE_RUNTIME_WAIT_H

#include <pthread.h>

#include "core/runtime/context.h"

/* As starpu_data_acquire; to be released where SL_OK. SL_LOST, SL_STARPU, and what a kernel failed
 * with (core/runtime/failure.h). */
enum sl_status sl__acquire(struct sl_context *context, starpu_data_handle_t handle,
                           enum starpu_data_access_mode mode);

/* Until all submitted tasks and messages have ended; SL_OK where none has failed. */
enum sl_status sl__wait_for_all(struct sl_context *context);

/* What keeps tasks from ever ending: SL_OK, SL_LOST, SL_STALLED, or the swap folder's trouble. The
 * context is then abandoned. */
enum sl_status sl__wait_check(struct sl_context *context);

/* Until a count that callbacks lower, with the lock, is 0; false: it is not after so many seconds.
 */
bool sl__wait_for_none(pthread_mutex_t *lock, const int *count, double seconds);

#endif
