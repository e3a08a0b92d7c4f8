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

/* The first failure that a health check finds (core/runtime/hooks.h), or SL_OK. With a failure the
 * context is abandoned. */
enum sl_status sl__wait_check(struct sl_context *context);

/* Number of messages to and from other ranks that are in progress. */
int sl__wait_messages(const struct sl_context *context);

/* Until a count that callbacks lower, with the lock, is 0; false: it is not after so many seconds.
 */
bool sl__wait_for_none(pthread_mutex_t *lock, const int *count, double seconds);

#endif
