/* Waiting for StarPU. Some waits would never end: for messages by StarPU-MPI from a lost rank,
 * in a stall, with a full swap folder. So if a health check is registered that may find this
 * (core/runtime/hooks.h), waits poll it. After a failure the context is *abandoned*: workers
 * pause, StarPU's threads stay, and all memory that tasks or messages may still use stays as it
 * is. That is a leak before the program's end, and the price of an end with a message. */
#ifndef SL_CORE_RUNTIME_WAIT_H
#define SL_CORE_RUNTIME_WAIT_H

#include <pthread.h>

#include "core/runtime/tensor.h"

/* As starpu_data_acquire; to be released after SL_OK. Fails with the status of a health check,
 * with SL_STARPU, or with the failure of a kernel (core/runtime/failure.h). */
enum sl_status sl__acquire(struct sl__tensor *tensor, enum starpu_data_access_mode mode);

/* Waits until all submitted tasks and messages have ended; SL_OK if none has failed. Endless
 * receptions are left out, unless a health check has found that all messages end. */
enum sl_status sl__wait_for_all(struct sl_context *context);

/* An endless reception begins (1), or has ended for good (-1). Its tasks are those whose launch is
 * endless; in between others may follow it. Hooks must follow the ends of the context's tasks. */
void sl__wait_endless(struct sl_context *context, int change);

/* The first failure that a health check finds (core/runtime/hooks.h), or SL_OK. With a failure the
 * context is abandoned. */
enum sl_status sl__wait_check(struct sl_context *context);

/* Number of messages to and from other ranks that are in progress. */
int sl__wait_messages(const struct sl_context *context);

/* Waits until a count that callbacks lower, under the lock, is 0. Returns false if it is not
 * after the given number of seconds. */
bool sl__wait_for_none(pthread_mutex_t *lock, const int *count, double seconds);

#endif
