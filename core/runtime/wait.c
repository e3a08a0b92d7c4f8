#include "core/runtime/wait.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/runtime/chain.h"
#include "core/runtime/cuda.h"
#include "core/runtime/failure.h"
#include "core/runtime/forked.h"
#include "core/runtime/idle.h"

static bool is_needed(const struct sl__health_check *h) {
  return h->check && (!h->is_needed || h->is_needed(h->data));
}

/* May the wait last for ever, and a health check notice? */
static bool must_poll(const struct sl_context *c) {
  for (int i = 0; i < c->hooks.health_count; i++)
    if (is_needed(&c->hooks.health[i])) return true;
  return false;
}

int sl__wait_messages(const struct sl_context *c) {
  int messages = 0;
  for (int i = 0; i < c->hooks.health_count; i++) {
    const struct sl__health_check *h = &c->hooks.health[i];
    if (h->messages) messages += h->messages(h->data);
  }
  return messages;
}

/* This thread begins to wait for a tensor, or has ended that wait. */
static void tell_wait(const struct sl_context *c, bool begins) {
  for (int i = 0; i < c->hooks.health_count; i++) {
    const struct sl__health_check *h = &c->hooks.health[i];
    if (h->waits) h->waits(h->data, begins);
  }
}

static void rest(long us) { nanosleep(&(struct timespec){.tv_nsec = 1000 * us}, NULL); }

/* StarPU counts a task that waits for memory as ready, so its own count serves only where no room
 * knows better. */
static bool is_working(const struct sl_context *c) {
  for (int i = 0; i < c->hooks.health_count; i++) {
    const struct sl__health_check *h = &c->hooks.health[i];
    if (h->is_running) return h->is_running(h->data);
  }
  return starpu_task_nready() > 0;
}

/* Running tasks end, and no other one begins: after that no task uses memory that the caller
 * frees next, such as a loader's batches. */
static void abandon(struct sl_context *c) {
  const int most_ms = 5000;
  if (__atomic_exchange_n(&c->abandoned, true, __ATOMIC_ACQ_REL)) return;
  for (int ms = 0; ms < most_ms && is_working(c); ms++) rest(1000);
  starpu_pause();
}

enum sl_status sl__wait_check(struct sl_context *c) {
  enum sl_status status = sl__fork_check(c);
  for (int i = 0; i < c->hooks.health_count && status == SL_OK; i++) {
    const struct sl__health_check *h = &c->hooks.health[i];
    if (is_needed(h)) status = h->check(h->data);
  }
  if (status != SL_OK) abandon(c);
  return status;
}

struct acquisition {
  pthread_mutex_t lock;
  pthread_cond_t cond;
  bool done;
};

static void acquired(void *argument) {
  struct acquisition *a = argument;
  pthread_mutex_lock(&a->lock);
  a->done = true;
  pthread_cond_signal(&a->cond);
  pthread_mutex_unlock(&a->lock);
}

static bool is_done_soon(struct acquisition *a) {
  const double check_s = 0.02;
  pthread_mutex_lock(&a->lock);
  if (!a->done) sl__condition_wait(&a->cond, &a->lock, sl__seconds() + check_s);
  bool done = a->done;
  pthread_mutex_unlock(&a->lock);
  return done;
}

/* The tensor may be the output of a kernel that failed: then the caller must not have it. */
static enum sl_status refuse_garbage(starpu_data_handle_t handle) {
  enum sl_status status = sl__task_failure();
  if (status != SL_OK) starpu_data_release(handle);
  return status;
}

/* Asks StarPU for the tensor; no link of a chain comes between that and the settling. */
static enum sl_status ask_for(struct sl__tensor *tensor, enum starpu_data_access_mode mode,
                              struct acquisition *a) {
  sl__chains_lock(tensor->context);
  enum sl_status status = sl__chains_settle(NULL, 1, &tensor);
  if (status == SL_OK && starpu_data_acquire_cb(tensor->handle, mode, acquired, a))
    status = sl__fail(SL_STARPU, "StarPU refuses a callback for a tensor");
  sl__chains_unlock(tensor->context);
  return status;
}

static enum sl_status acquire_or_lose(struct sl__tensor *tensor,
                                      enum starpu_data_access_mode mode) {
  struct sl_context *c = tensor->context;
  enum sl_status status = c->abandoned ? sl__wait_check(c) : SL_OK;
  struct acquisition *a = status == SL_OK ? sl__alloc(1, sizeof *a, "a wait") : NULL;
  if (!a) return status == SL_OK ? SL_NO_MEMORY : status;
  pthread_mutex_init(&a->lock, NULL);
  sl__condition_init(&a->cond);
  status = ask_for(tensor, mode, a);
  sl__idle_wake(); /* a tensor in the swap folder has to be read */
  if (status == SL_OK) tell_wait(c, true);
  while (status == SL_OK && !is_done_soon(a)) status = sl__wait_check(c);
  tell_wait(c, false);
  if (c->abandoned) return status; /* StarPU's callback may still use a */
  pthread_cond_destroy(&a->cond);
  pthread_mutex_destroy(&a->lock);
  free(a);
  return status == SL_OK ? refuse_garbage(tensor->handle) : status;
}

enum sl_status sl__acquire(struct sl__tensor *tensor, enum starpu_data_access_mode mode) {
  struct sl_context *c = tensor->context;
  enum sl_status status = sl__fork_check(c);
  const struct sl__tensor_hook *hook = &c->hooks.tensor;
  if (status == SL_OK && hook->check) status = hook->check(hook->data, tensor);
  if (status != SL_OK) return status;
  sl__cuda_settle(-1); /* StarPU may allocate the tensor's copy in this thread */
  if (c->may_chain || must_poll(c)) return acquire_or_lose(tensor, mode);
  int result = starpu_data_acquire(tensor->handle, mode);
  if (!result) return refuse_garbage(tensor->handle);
  return sl__fail(SL_STARPU, "a tensor cannot be brought to main memory: %s", strerror(-result));
}

void sl__wait_endless(struct sl_context *c, int change) {
  __atomic_add_fetch(&c->endless, change, __ATOMIC_ACQ_REL);
}

/* Are there receptions that may never end? After a failure all messages do. */
static bool has_endless(const struct sl_context *c) {
  if (__atomic_load_n(&c->endless, __ATOMIC_ACQUIRE) <= 0) return false;
  for (int i = 0; i < c->hooks.health_count; i++) {
    const struct sl__health_check *h = &c->hooks.health[i];
    if (h->check && h->check(h->data) != SL_OK) return false;
  }
  return true;
}

static bool is_all_ended(const struct sl_context *c) {
  int tasks =
      has_endless(c) ? __atomic_load_n(&c->ending, __ATOMIC_ACQUIRE) : starpu_task_nsubmitted();
  return tasks == 0 && sl__wait_messages(c) == 0;
}

enum sl_status sl__wait_for_all(struct sl_context *c) {
  enum sl_status status = sl__fork_check(c);
  bool polls = must_poll(c);
  while (status == SL_OK && (polls || has_endless(c))) {
    if (is_all_ended(c)) return sl__task_failure();
    if (polls) status = sl__wait_check(c);
    rest(100);
  }
  if (status != SL_OK) return status;
  int result = starpu_task_wait_for_all();
  if (result) return sl__fail(SL_STARPU, "waiting for tasks: %s", strerror(-result));
  return sl__task_failure();
}

bool sl__wait_for_none(pthread_mutex_t *lock, const int *count, double seconds) {
  const long pause_us = 200;
  for (double waited = 0;; waited += 1e-6 * (double)pause_us) {
    pthread_mutex_lock(lock);
    bool none = !*count;
    pthread_mutex_unlock(lock);
    if (none || waited >= seconds) return none;
    rest(pause_us);
  }
}

enum sl_status sl_wait(struct sl_context *context) {
  SL__NEEDS(context);
  return sl__wait_for_all(context);
}
