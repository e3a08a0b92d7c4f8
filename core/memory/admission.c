#include "core/memory/admission.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/memory/limits.h"
#include "core/memory/watchdog.h"
#include "core/memory/swap.h"
#include "core/runtime/wait.h"

/* A tensor's use by the listed tasks; all fields are under the list's mutex. */
struct sl__hold {
  int tasks, users; /* listed tasks that use it; those, and the tensor itself */
  size_t bytes;
};

/* ---- the listed tasks' tensors ---- */

static struct sl__tensor *root_of(struct sl__tensor *tensor) {
  while (tensor->whole) tensor = tensor->whole;
  return tensor;
}

static void hold_release(struct sl__hold *hold) {
  if (hold && !--hold->users) free(hold);
}

/* *hold is NULL for a tensor whose home is main memory: it is there in any case. Returns false
 * without memory. */
static bool find_hold(struct sl__tensor *tensor, struct sl__hold **hold) {
  struct sl__tensor *root = root_of(tensor);
  *hold = NULL;
  if (root->host) return true;
  if (!root->hold) {
    root->hold = sl__alloc(1, sizeof *root->hold, "a task's memory");
    if (!root->hold) return false;
    *root->hold = (struct sl__hold){.users = 1, .bytes = root->capacity};
  }
  root->hold->users++;
  *hold = root->hold;
  return true;
}

static void hold_all(struct sl__admission *a, struct sl__admitted_task *t) {
  for (int i = 0; i < t->count; i++)
    if (t->hold[i] && !t->hold[i]->tasks++) a->held += t->hold[i]->bytes;
  a->held += t->scratch;
}

static void release_all(struct sl__admission *a, struct sl__admitted_task *t) {
  for (int i = 0; i < t->count; i++)
    if (t->hold[i] && !--t->hold[i]->tasks) a->held -= t->hold[i]->bytes;
  a->held -= t->scratch;
}

/* ---- the list ---- */

static void update_peak(struct sl__admission *a) {
  size_t used = starpu_memory_get_used(STARPU_MAIN_RAM);
  if (!a->context->swaps) used += a->fixed;
  if (used > a->peak) a->peak = used;
}

static void enter(struct sl__admission *a, struct sl__admitted_task *t) {
  t->previous = a->last;
  *(a->last ? &a->last->next : &a->first) = t;
  a->last = t;
  a->count++;
  a->computing += !t->is_message;
  a->promised += t->fresh;
  if (a->limit) update_peak(a);
}

static void leave(struct sl__admission *a, struct sl__admitted_task *t) {
  *(t->previous ? &t->previous->next : &a->first) = t->next;
  *(t->next ? &t->next->previous : &a->last) = t->previous;
  a->count--;
  a->computing -= !t->is_message;
  a->promised -= t->fresh;
  release_all(a, t);
  if (a->limit) update_peak(a);
}

static void task_free(struct sl__admitted_task *t) {
  for (int i = 0; i < t->count; i++) hold_release(t->hold[i]);
  free(t);
}

/* By then StarPU has released the task's tensors. */
static void ended(void *argument) {
  struct sl__admitted_task *t = argument;
  struct sl__admission *a = t->list;
  pthread_mutex_lock(&a->mutex);
  leave(a, t);
  task_free(t);
  a->ends++;
  pthread_cond_broadcast(&a->ended);
  pthread_mutex_unlock(&a->mutex);
}

static void withdraw(void *admission, struct starpu_task *task) {
  (void)admission;
  if (task->epilogue_callback_func == ended) ended(task->epilogue_callback_arg);
  task->epilogue_callback_func = NULL;
}

static void pinned(void *admission, int64_t bytes) {
  struct sl__admission *a = admission;
  pthread_mutex_lock(&a->mutex);
  a->fixed += (size_t)bytes;
  pthread_mutex_unlock(&a->mutex);
}

static void freed(void *admission, struct sl__tensor *tensor) {
  struct sl__admission *a = admission;
  if (!tensor->hold) return;
  pthread_mutex_lock(&a->mutex);
  hold_release(tensor->hold);
  tensor->hold = NULL;
  pthread_mutex_unlock(&a->mutex);
}

bool sl__admitted_task_is_running(const struct sl__admitted_task *t) {
  return __atomic_load_n(&t->task->status, __ATOMIC_RELAXED) == STARPU_TASK_RUNNING;
}

/* Does a worker execute any task that is no message? */
static bool is_running(void *admission) {
  struct sl__admission *a = admission;
  bool running = false;
  pthread_mutex_lock(&a->mutex);
  for (const struct sl__admitted_task *t = a->first; t && !running; t = t->next)
    running = !t->is_message && sl__admitted_task_is_running(t);
  pthread_mutex_unlock(&a->mutex);
  return running;
}

/* ---- does the task fit? ---- */

/* The same tensor as an earlier one of the task's? */
static bool is_again(const struct sl__admitted_task *t, int i) {
  for (int k = 0; k < i; k++)
    if (t->hold[k] == t->hold[i]) return true;
  return false;
}

/* Bytes that StarPU has yet to allocate for a task in main memory, at most. */
static size_t fresh_bytes(const struct sl__admitted_task *t, int count,
                          struct sl__tensor *const *tensors) {
  size_t bytes = t->scratch;
  for (int i = 0; i < count; i++)
    if (t->hold[i] && !is_again(t, i) &&
        !starpu_data_test_if_allocated_on_node(tensors[i]->handle, STARPU_MAIN_RAM))
      bytes += t->hold[i]->bytes;
  return bytes;
}

static void update_fresh(const struct sl__admission *a, struct sl__admitted_task *t, int count,
                         struct sl__tensor *const *tensors) {
  if (a->limit && !a->context->swaps) t->fresh = fresh_bytes(t, count, tensors);
}

/* With a swap folder StarPU can move away every tensor that no listed task uses; without one it
 * can move none. */
static size_t needed(const struct sl__admission *a, const struct sl__admitted_task *t) {
  if (a->context->swaps) return a->held + a->fixed;
  return starpu_memory_get_used(STARPU_MAIN_RAM) + a->fixed + a->promised + t->fresh;
}

static bool fits(const struct sl__admission *a, const struct sl__admitted_task *t) {
  return !a->limit || t->is_message || !t->count || needed(a, t) <= a->limit;
}

/* All that the listed tasks use is counted, even what StarPU has already. Half of the limit is for
 * what is not counted: a tensor that the main thread waits for. */
bool sl__admission_is_tight(const struct sl__admission *a) {
  return a->limit && starpu_memory_get_used(STARPU_MAIN_RAM) + a->fixed + a->held > a->limit / 2;
}

static void wait_for_an_end(struct sl__admission *a) {
  const double check_s = 0.02;
  sl__condition_wait(&a->ended, &a->mutex, sl__seconds() + check_s);
}

/* A worker must not wait for tasks: it runs them, or lets them go on. */
static bool may_wait(void) { return starpu_worker_get_id() < 0; }

/* need: bytes that the limit would have to be */
static enum sl_status refuse(const struct sl__admission *a, const struct sl__admitted_task *t,
                             size_t need) {
  double needed = (double)need, limit = (double)a->limit;
  int digits = sl__megabyte_digits(needed, limit);
  if (a->context->swaps)
    return sl__fail(SL_NO_MEMORY,
                    "%s (layer %s) needs %.*f MB of main memory at once, but the limit is %.*f MB; "
                    "raise it (this task alone takes cpu=%zuM), or %s",
                    t->operation, t->layer, digits, needed / 1e6, digits, limit / 1e6,
                    (need + (1 << 20) - 1) >> 20,
                    t->is_of_parameters ? "cut the layer's parameters into smaller shards"
                                        : "take a smaller batch or more microbatches");
  return sl__fail(
      SL_NO_MEMORY,
      "%s (layer %s): main memory's limit of %.*f MB is used up, %.*f MB would be needed "
      "now; raise it, or name a swap folder for what does not fit",
      t->operation, t->layer, digits, limit / 1e6, digits, needed / 1e6);
}

/* StarPU would wait for ever for memory that the limit can never give. */
static enum sl_status check_tensor(void *admission, const struct sl__tensor *tensor) {
  struct sl__admission *a = admission;
  if (!a->limit || starpu_data_test_if_allocated_on_node(tensor->handle, STARPU_MAIN_RAM))
    return SL_OK;
  pthread_mutex_lock(&a->mutex);
  size_t need = tensor->bytes + a->fixed;
  pthread_mutex_unlock(&a->mutex);
  if (need <= a->limit) return SL_OK;
  int digits = sl__megabyte_digits((double)need, (double)a->limit);
  return sl__fail(
      SL_NO_MEMORY,
      "a tensor needs %.*f MB of main memory at once, but the limit is %.*f MB; raise it "
      "(this tensor alone takes cpu=%zuM)",
      digits, (double)need / 1e6, digits, (double)a->limit / 1e6, (need + (1 << 20) - 1) >> 20);
}

/* Bytes of its own tensors, and of those that cannot move. */
static size_t own_bytes(const struct sl__admission *a, const struct sl__admitted_task *t) {
  size_t bytes = t->scratch + a->fixed;
  for (int i = 0; i < t->count; i++)
    if (t->hold[i] && !is_again(t, i)) bytes += t->hold[i]->bytes;
  return bytes;
}

/* The mutex is held. A task that waits for a message may wait for one that this rank has yet to
 * send. So with several ranks a task is admitted after some time, whether it fits or not. */
static enum sl_status wait_until_it_fits(struct sl__admission *a, struct sl__admitted_task *t,
                                         int count, struct sl__tensor *const *tensors) {
  const double grace = 0.5, most = 2; /* StarPU frees invalidated tensors a little later */
  double begun = sl__seconds(), moved = begun;
  uint64_t ends = a->ends;
  enum sl_status status = SL_OK;
  while (!fits(a, t) && status == SL_OK && may_wait()) {
    release_all(a, t);
    wait_for_an_end(a);
    pthread_mutex_unlock(&a->mutex);
    status = sl__wait_check(a->context);
    pthread_mutex_lock(&a->mutex);
    hold_all(a, t);
    update_fresh(a, t, count, tensors); /* StarPU may have allocated some of it meanwhile */
    if (a->ends != ends || a->computing) begun = sl__seconds();
    if (a->ends != ends) moved = sl__seconds();
    ends = a->ends;
    if (status != SL_OK || fits(a, t)) break;
    /* messages in progress free their memory when they end */
    bool is_quiet = !a->count && sl__wait_messages(a->context) == 0;
    if (is_quiet && sl__seconds() - begun > grace) return refuse(a, t, needed(a, t));
    if (a->context->net && sl__seconds() - moved > most) break;
  }
  return status;
}

static struct sl__admitted_task *task_new(const struct sl__call *call) {
  struct sl__admitted_task *t =
      sl__alloc(1, sizeof *t + (size_t)call->count * sizeof *t->hold, "a task's admission");
  const char *modes = sl__modes(call->op, call->launch);
  bool found = true;
  if (!t) return NULL;
  /* a captured graph's task is called as its first call, as in traces */
  const struct sl__op *op = call->launch->traced_as ? call->launch->traced_as : call->op;
  t->operation = op->codelet.name;
  t->is_of_parameters = op->updates || !strcmp(t->operation, "reduce");
  t->layer = call->launch->name ? call->launch->name : "-";
  t->is_message = !strcmp(op->codelet.name, "send") || !strcmp(op->codelet.name, "receive");
  for (int i = 0; i < call->count && found; i++) {
    bool scratch = sl__access(*modes) == 's';
    if (scratch) t->scratch += call->tensors[i]->capacity;
    if (!scratch) found = find_hold(call->tensors[i], &t->hold[i]);
    t->count = i + 1;
    modes = sl__next_mode(modes);
  }
  if (found) return t;
  task_free(t);
  return NULL;
}

/* Before a submission: waits until the task may be admitted. SL_NO_MEMORY where its tensors can
 * never be in main memory at once; and the statuses of a wait. */
static enum sl_status admit(void *admission, const struct sl__call *call,
                            struct starpu_task *task) {
  struct sl__admission *a = admission;
  pthread_mutex_lock(&a->mutex);
  struct sl__admitted_task *t = task_new(call);
  enum sl_status status = t ? SL_OK : SL_NO_MEMORY;
  if (t) {
    t->list = a;
    t->task = task;
    hold_all(a, t);
    update_fresh(a, t, call->count, call->tensors);
    size_t need = own_bytes(a, t); /* a task that can never be admitted is refused at once */
    if (a->limit && !t->is_message && need > a->limit) status = refuse(a, t, need);
    if (status == SL_OK) status = wait_until_it_fits(a, t, call->count, call->tensors);
    if (status == SL_OK) enter(a, t);
  }
  if (t && status != SL_OK) {
    release_all(a, t);
    task_free(t);
  }
  pthread_mutex_unlock(&a->mutex);
  if (status != SL_OK) return status;
  task->epilogue_callback_func = ended;
  task->epilogue_callback_arg = t;
  return SL_OK;
}

/* ---- opening ---- */

static enum sl_status check(void *admission) {
  (void)admission;
  return sl__swap_error();
}

/* The main thread waits for a tensor, or does so no longer; the watchdog looks at it. */
static void waits(void *admission, bool begins) {
  struct sl__admission *a = admission;
  pthread_mutex_lock(&a->mutex);
  a->fetching_since = begins ? sl__seconds() : 0;
  pthread_mutex_unlock(&a->mutex);
}

static enum sl_status register_with(struct sl_context *context, struct sl__admission *a) {
  const struct sl__submit_hook hook = {.before = admit, .withdraw = withdraw, .data = a};
  const struct sl__health_check health = {
      .check = check, .waits = waits, .is_running = is_running, .data = a};
  enum sl_status status = sl__submit_hook_add(context, &hook);
  context->hooks.tensor =
      (struct sl__tensor_hook){.pinned = pinned, .freed = freed, .check = check_tensor, .data = a};
  return status == SL_OK ? sl__health_check_add(context, &health) : status;
}

enum sl_status sl__admission_open(struct sl_context *context, bool watched) {
  size_t limit = sl__memory_limit(context->memory);
  if (!limit && !watched) return SL_OK;
  struct sl__admission *a = sl__alloc(1, sizeof *a, "the admission of tasks");
  if (!a) return SL_NO_MEMORY;
  a->context = context;
  a->limit = limit;
  pthread_mutex_init(&a->mutex, NULL);
  sl__condition_init(&a->ended);
  context->admission = a;
  return register_with(context, a);
}

void sl__admission_close(struct sl_context *context) {
  struct sl__admission *a = context->admission;
  if (!a) return;
  pthread_cond_destroy(&a->ended);
  pthread_mutex_destroy(&a->mutex);
  free(a);
  context->admission = NULL;
}

void sl_memory_use(const struct sl_context *context, struct sl_memory_use *use) {
  SL__NEEDS_OR(, context, use);
  *use = (struct sl_memory_use){.limit = (int64_t)sl__memory_limit(context->memory)};
  if (!use->limit) return;
  use->peak = context->admission ? (int64_t)context->admission->peak : 0;
  if (context->swaps) sl__swap_count(&use->swap_out, &use->swap_in, &use->swap_size);
}
