/* Progress of the messages in flight: whichever task ends polls them, and a worker without other
 * work runs a task, the poller, that only polls. */
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/net/mpi_state.h"
#include "core/runtime/cuda.h"
#include "core/runtime/idle.h"
#include "core/runtime/trace.h"

enum {
  POLL_EVERY_US = 10, /* after tasks, not more often */
  POLLER_US = 50,     /* the poller's time, before its worker looks for other tasks */
  SPIN_US = 1000,     /* without a message for longer, the poller sleeps between two looks */
  POLLER_SLEEP_US = 20
};

/* ---- the list of messages in flight; with the lock ---- */

/* StarPU may use the memory for other data again, unless it is sent to another rank, too. */
static void release_memory(const struct sl__net *net, starpu_data_handle_t handle) {
  for (int i = 0; i < net->count; i++)
    if (net->requests[i].held == handle) return;
  starpu_data_set_wt_mask(handle, 0);
}

static void remove_request(struct sl__net *net, int i) {
  starpu_data_handle_t held = net->requests[i].held;
  __atomic_store_n(&net->count, net->count - 1, __ATOMIC_RELAXED);
  net->handles[i] = net->handles[net->count];
  net->requests[i] = net->requests[net->count];
  if (held) release_memory(net, held);
}

/* A message without a timeout has arrived: from now on its task waits for its other messages. */
static void start_timeouts(struct sl__net *net, const struct starpu_task *task) {
  for (int i = 0; i < net->count; i++) {
    struct sl__mpi_request *request = &net->requests[i];
    if (request->task != task || request->timeout_policy != SL__NO_TIMEOUT) continue;
    request->timeout_policy = SL__TIMEOUT;
    request->message.since = sl__microseconds();
  }
}

/* The task that began the message ended long ago, as far as the trace knows. A message without a
 * timeout has no meaningful begin. */
static void write_trace(const struct sl__net *net, const struct sl__mpi_request *request) {
  const struct sl__in_flight *m = &request->message;
  if (net->context->trace && request->task && request->timeout_policy != SL__NO_TIMEOUT)
    sl__trace_message(net->context->trace, m->is_send, m->peer, m->name,
                      sl__microseconds() - m->since);
}

/* ---- collecting messages that have ended; with the lock ---- */

static int downwards(const void *a, const void *b) { return *(const int *)b - *(const int *)a; }

/* Of the messages from the first-th on, at most `room`. */
static int collect_from(struct sl__net *net, int first, struct starpu_task **tasks, int room) {
  int most = net->count - first < room ? net->count - first : room;
  int code = MPI_SUCCESS, ended = 0, released = 0;
  /* Open MPI receives only when it finds that no request has ended, and does not test the requests
   * again after that; so a second call may find more */
  for (int i = 0; i < 2 && code == MPI_SUCCESS && ended <= 0; i++)
    code = MPI_Testsome(most, net->handles + first, &ended, net->completed, MPI_STATUSES_IGNORE);
  if (code != MPI_SUCCESS) {
    sl__mpi_fail_code(net, code, "a message between ranks");
    return 0;
  }
  if (ended == MPI_UNDEFINED) ended = 0; /* MPI_UNDEFINED is negative, too */
  qsort(net->completed, (size_t)ended, sizeof *net->completed, downwards);
  for (int i = 0; i < ended; i++) {
    struct sl__mpi_request request = net->requests[first + net->completed[i]];
    if (request.task) tasks[released++] = request.task;
    write_trace(net, &request);
    remove_request(net, first + net->completed[i]);
    if (request.timeout_policy == SL__NO_TIMEOUT) start_timeouts(net, request.task);
  }
  return released;
}

/* Removes messages that have ended from the list and writes their tasks, at most `room`. After a
 * failure all messages count as ended: MPI may never end them, so their requests stay with MPI. */
static int collect(struct sl__net *net, struct starpu_task **tasks, int room) {
  int released = 0;
  if (sl__mpi_check_loss(net)) {
    while (net->count && released < room) {
      struct starpu_task *task = net->requests[net->count - 1].task;
      __atomic_store_n(&net->count, net->count - 1, __ATOMIC_RELAXED);
      if (task) tasks[released++] = task;
    }
    return released;
  }
  for (int first = 0; first < net->count && !released && !net->failed; first += room)
    released = collect_from(net, first, tasks, room);
  return released;
}

bool sl__mpi_poll(struct sl__net *net) {
  struct starpu_task *tasks[256];
  if (pthread_mutex_trylock(&net->lock)) return false; /* another thread polls */
  int device = net->cuda_aware ? sl__cuda_make_current() : -1;
  double now = sl__microseconds();
  net->last_poll = now;
  sl__mpi_check_deadlocks(net, now);
  int count = collect(net, tasks, (int)(sizeof tasks / sizeof *tasks));
  if (count) net->last_progress = now;
  pthread_mutex_unlock(&net->lock);
  sl__cuda_restore(device);
  for (int i = 0; i < count; i++) starpu_task_end_dep_release(tasks[i]);
  return count > 0;
}

/* ---- the poller ---- */

static void poller_cpu(void *buffers[], void *argument) {
  struct sl__net *net = argument;
  double end = sl__microseconds() + POLLER_US;
  (void)buffers;
  while (!sl__mpi_poll(net) && sl__microseconds() < end)
    if (sl__microseconds() - net->last_progress < SPIN_US)
      sched_yield();
    else
      nanosleep(&(struct timespec){.tv_nsec = POLLER_SLEEP_US * 1000}, NULL);
}

static struct starpu_codelet poller_codelet = {.cpu_funcs = {poller_cpu},
                                               .nbuffers = 0,
                                               .model = &starpu_perfmodel_nop,
                                               .name = "wait for messages"};

static void poller_ended(void *argument) {
  struct sl__net *net = argument;
  pthread_mutex_lock(&net->lock);
  bool again = net->count > 0;
  if (!again) net->has_poller = false;
  pthread_mutex_unlock(&net->lock);
  sl__idle_quiet(true); /* this worker looks again, where it has nothing else to do */
  if (again) sl__mpi_submit_poller(net);
  sl__idle_quiet(false);
}

void sl__mpi_submit_poller(struct sl__net *net) {
  struct starpu_task *task = starpu_task_create();
  if (task) {
    task->cl = &poller_codelet;
    task->cl_arg = net;
    task->priority = starpu_sched_ctx_get_min_priority(0);
    task->callback_func = poller_ended;
    task->callback_arg = net;
    task->where = STARPU_CPU;
    if (!starpu_task_submit(task)) return;
    task->destroy = 0;
    starpu_task_destroy(task);
  }
  pthread_mutex_lock(&net->lock); /* without a poller, the ends of tasks still poll */
  net->has_poller = false;
  pthread_mutex_unlock(&net->lock);
}

void sl__net_task_ended(void *argument) {
  struct sl__net *net = argument;
  if (net->heartbeat) sl__heartbeat_activity(net->heartbeat);
  if (__atomic_load_n(&net->count, __ATOMIC_RELAXED) &&
      sl__microseconds() - net->last_poll > POLL_EVERY_US)
    sl__mpi_poll(net);
}
