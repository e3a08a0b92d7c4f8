#include "core/runtime/idle.h"

#include <sched.h>
#include <starpu.h>
#include <starpu_scheduler.h>
#include <string.h>

#include "core/base/clock.h"

#ifdef STARPU_NON_BLOCKING_DRIVERS

#define SPIN_S 1e-3        /* a task that comes sooner finds the worker awake */
#define SLEEP_SHARE 0.0625 /* of the time that the worker has been idle */
#define LONGEST_SLEEP_US 10000

/* A process has one StarPU, whose scheduling policy gets no data of ours: so this state cannot live
 * in the context. */
static struct {
  struct starpu_sched_policy copy;          /* the policy as StarPU made it */
  const struct starpu_sched_policy *policy; /* the copy, once it is complete */
  pthread_mutex_t mutex;
  pthread_cond_t pushed;
  unsigned sleepers; /* workers that sleep, or are about to */
  unsigned wakes, sleeps;
  bool ending;
  int given[STARPU_NMAXWORKERS]; /* tasks of one worker that it has not begun */
  int least_us, most_us;         /* microseconds of a sleep */
} idle = {.mutex = PTHREAD_MUTEX_INITIALIZER, .most_us = LONGEST_SLEEP_US};

static _Thread_local double idle_since; /* 0: the worker has begun a task, or was woken */
static _Thread_local bool quiet;

static const struct starpu_sched_policy *own(void) {
  return __atomic_load_n(&idle.policy, __ATOMIC_ACQUIRE);
}

/* Where the pusher sees no sleeper, a worker that falls asleep later looks once more and finds the
 * task: both change the same counter, which orders the push before that look. */
void sl__idle_wake(void) {
  if (!__atomic_fetch_add(&idle.sleepers, 0, __ATOMIC_ACQ_REL)) return;
  pthread_mutex_lock(&idle.mutex);
  __atomic_add_fetch(&idle.wakes, 1, __ATOMIC_RELAXED);
  pthread_cond_broadcast(&idle.pushed);
  pthread_mutex_unlock(&idle.mutex);
}

/* Does a worker find the tasks that it pushes itself? There is one queue for all workers, or
 * the pusher's own is taken, and not that of a worker that may sleep. */
static bool takes_own(const char *policy) {
  static const char *const names[] = {"lws", "ws", "eager", "prio"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (policy && !strcmp(policy, names[i])) return true;
  return false;
}

static int push_task(struct starpu_task *task) {
  int result = own()->push_task(task);
  if (!quiet || !takes_own(own()->policy_name)) sl__idle_wake();
  return result;
}

/* StarPU calls this before the task is in the one worker's list: until the worker begins it, it
 * does not sleep. */
static void push_task_notify(struct starpu_task *task, int worker, int model, unsigned context) {
  __atomic_add_fetch(&idle.given[worker], 1, __ATOMIC_SEQ_CST);
  if (own()->push_task_notify) own()->push_task_notify(task, worker, model, context);
  sl__idle_wake();
}

/* Of every task, also of those that the policy does not see. */
static void pre_exec_hook(struct starpu_task *task, unsigned context) {
  int worker = starpu_worker_get_id();
  idle_since = 0;
  if (worker >= 0 && task->execute_on_a_specific_worker)
    __atomic_sub_fetch(&idle.given[worker], 1, __ATOMIC_RELAXED);
  if (own()->pre_exec_hook) own()->pre_exec_hook(task, context);
}

/* Relaxed, in StarPU's word: others may give the worker tasks meanwhile. */
static void sleep_until_pushed(unsigned wakes, double until) {
  starpu_worker_relax_on();
  pthread_mutex_lock(&idle.mutex);
  __atomic_add_fetch(&idle.sleeps, 1, __ATOMIC_RELAXED);
  if (idle.wakes == wakes && !idle.ending) sl__condition_wait(&idle.pushed, &idle.mutex, until);
  if (idle.wakes != wakes) idle_since = 0;
  pthread_mutex_unlock(&idle.mutex);
  starpu_worker_relax_off();
}

static struct starpu_task *sleep_and_pop(unsigned context, int worker, double now) {
  double seconds = SLEEP_SHARE * (now - idle_since);
  double least = 1e-6 * __atomic_load_n(&idle.least_us, __ATOMIC_RELAXED);
  double most = 1e-6 * __atomic_load_n(&idle.most_us, __ATOMIC_RELAXED);
  if (seconds > most) seconds = most;
  if (seconds < least) seconds = least;
  unsigned wakes = __atomic_load_n(&idle.wakes, __ATOMIC_RELAXED);
  __atomic_fetch_add(&idle.sleepers, 1, __ATOMIC_ACQ_REL);
  struct starpu_task *task = own()->pop_task(context);
  if (!task && __atomic_load_n(&idle.given[worker], __ATOMIC_RELAXED) > 0)
    sched_yield(); /* the thread that gives the task may need this processor */
  else if (!task)
    sleep_until_pushed(wakes, now + seconds);
  __atomic_sub_fetch(&idle.sleepers, 1, __ATOMIC_RELAXED);
  return task;
}

/* A GPU's worker polls its tasks in progress, and does not sleep. */
static struct starpu_task *pop_task(unsigned context) {
  struct starpu_task *task = own()->pop_task(context);
  if (task) return task;
  double now = sl__seconds();
  if (idle_since == 0) idle_since = now;
  if (now - idle_since < SPIN_S) return NULL;
  int worker = starpu_worker_get_id();
  if (starpu_worker_get_type(worker) != STARPU_CPU_WORKER) return NULL;
  return sleep_and_pop(context, worker, now);
}

/* Workers call these functions already: the copy is made first. */
void sl__idle_begin(void) {
  struct starpu_sched_policy *policy = starpu_sched_get_sched_policy();
  if (!policy || !policy->pop_task || !policy->push_task || policy->pop_task == pop_task) return;
  sl__condition_init(&idle.pushed);
  idle.ending = false;
  memset(idle.given, 0, sizeof idle.given);
  idle.copy = *policy;
  __atomic_store_n(&idle.policy, &idle.copy, __ATOMIC_RELEASE);
  __atomic_store_n(&policy->pre_exec_hook, pre_exec_hook, __ATOMIC_SEQ_CST);
  __atomic_store_n(&policy->push_task_notify, push_task_notify, __ATOMIC_SEQ_CST);
  __atomic_store_n(&policy->push_task, push_task, __ATOMIC_SEQ_CST);
  __atomic_store_n(&policy->pop_task, pop_task, __ATOMIC_SEQ_CST);
}

void sl__idle_end(void) {
  pthread_mutex_lock(&idle.mutex);
  idle.ending = true;
  pthread_mutex_unlock(&idle.mutex);
  sl__idle_wake();
}

void sl__idle_quiet(bool value) { quiet = value; }

unsigned sl__idle_sleeps(void) { return __atomic_load_n(&idle.sleeps, __ATOMIC_RELAXED); }

void sl__idle_set_sleep(int least_us, int most_us) {
  __atomic_store_n(&idle.least_us, least_us, __ATOMIC_RELAXED);
  __atomic_store_n(&idle.most_us, most_us, __ATOMIC_RELAXED);
}
#else
void sl__idle_begin(void) {}
void sl__idle_end(void) {}
void sl__idle_wake(void) {}
void sl__idle_quiet(bool quiet) { (void)quiet; }
unsigned sl__idle_sleeps(void) { return 0; }
void sl__idle_set_sleep(int least_us, int most_us) { (void)least_us, (void)most_us; }
#endif
