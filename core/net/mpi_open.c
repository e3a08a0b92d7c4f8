#include "core/net/net.h"

#include <limits.h>
#include <mpi.h>
#ifdef HAVE_MPI_EXT_H
#include <mpi-ext.h>
#endif
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "core/runtime/cuda.h"
#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/runtime/log.h"
#include "core/runtime/trace.h"
#include "core/net/heartbeat.h"

enum {
  POLL_EVERY_US = 10, /* at most so often after tasks */
  POLLER_US = 50,     /* an idle worker looks so long before it asks for work again */
  PATIENCE_US = 1000, /* after so long without a message it leaves the processor to others */
  NAP_US = 20,
  STALL_EVERY_US = 50000,
  PAUSE_US = 1000000
};

struct pending {
  struct starpu_task *task; /* NULL: the main thread waits for it */
  const char *name;
  double since;
  int peer;
  bool is_send;
  enum sl__timeout_policy patience;
  starpu_data_handle_t held; /* its memory is a GPU's; NULL: it is not */
};

struct sl__net {
  struct sl_context *context;
  int rank, size;
  double timeout;
  bool began_mpi, alone; /* alone: one rank, without MPI */
  bool is_open;
  bool is_aware;
  bool hears; /* the main thread waits as long as it takes */
  MPI_Comm control, data;
  struct sl__heartbeat *watch; /* NULL: none */
  pthread_mutex_t lock;        /* around MPI, and of what follows */
  MPI_Request *requests;
  struct pending *pending;
  int *done; /* room for as many */
  int count, capacity;
  bool has_poller;
  double polled, looked, moved; /* when last: polled, looked for stalls, a message began or ended */
  double fresh;                 /* when looking began anew, after a pause of this process */
  bool failed;                  /* for good; read without the lock, too */
  bool found_out;               /* it was this rank that found the failure */
  char why[512];
  int64_t sent;
  enum sl_exchange exchange;
  struct sl__starpu_mpi *starpu; /* NULL: not running */
  bool by_starpu[SL__MESSAGE_SIZES];
  char way[256]; /* in words */
};

int sl__net_rank(const struct sl__net *net) { return net->rank; }
int sl__net_size(const struct sl__net *net) { return net->size; }
bool sl__net_is_aware(const struct sl__net *net) { return net->is_aware; }

/* What follows calls MPI. */
static void lock(struct sl__net *net) {
  if (net->is_aware) sl__cuda_make_current();
  pthread_mutex_lock(&net->lock);
}

static bool has_failed(struct sl__net *net) {
  return __atomic_load_n(&net->failed, __ATOMIC_ACQUIRE);
}

/* With the lock. The first reason stays. */
static void fail_locked(struct sl__net *net, const char *why) {
  if (net->failed) return;
  snprintf(net->why, sizeof net->why, "%s", why);
  __atomic_store_n(&net->failed, true, __ATOMIC_RELEASE);
}

static enum sl_status failure(struct sl__net *net) { return sl__fail(SL_LOST, "%s", net->why); }

/* With the lock: did the watch see a loss? */
static bool look_locked(struct sl__net *net) {
  char text[sizeof net->why];
  if (!net->failed && net->watch && sl__heartbeat_lost(net->watch) &&
      sl__heartbeat_text(net->watch, NULL, text, sizeof text))
    fail_locked(net, text);
  return net->failed;
}

static void look_for_stalls(struct sl__net *net, double now);

enum sl_status sl__net_check(struct sl__net *net) {
  if (net->alone) return SL_OK;
  pthread_mutex_lock(&net->lock);
  if (net->starpu) look_for_stalls(net, sl__microseconds()); /* which no worker does */
  bool failed = look_locked(net);
  pthread_mutex_unlock(&net->lock);
  return failed ? failure(net) : SL_OK;
}

void sl__net_announce(struct sl__net *net, const char *why) {
  if (!net->watch || (has_failed(net) && !net->found_out)) return;
  sl__heartbeat_announce(net->watch, why);
}

void sl__net_abandon(struct sl__net *net, const char *why) {
  pthread_mutex_lock(&net->lock);
  fail_locked(net, why);
  pthread_mutex_unlock(&net->lock);
}

static void mpi_failed(struct sl__net *net, int code, const char *what) {
  char text[MPI_MAX_ERROR_STRING] = "?", why[sizeof net->why];
  int length;
  MPI_Error_string(code, text, &length);
  snprintf(why, sizeof why, "%s: MPI says: %s", what, text);
  fail_locked(net, why);
}

/* ---- what takes too long ---- */

/* All are alive, but nobody has done any work for long: they wait for each other, such as when one
 * has pushed a key that another has not. Longer than the timeout, after which a rank that is silent
 * counts as lost: that is the better message, and this rank may hear of it from another one. */
static bool is_stalled(struct sl__net *net, const struct pending *p, double now) {
  double patience = (p->patience == SL__TIMEOUT_LONGER ? 2e6 : 1.5e6) * net->timeout;
  double since = p->since > net->fresh ? p->since : net->fresh;
  return net->watch && p->patience != SL__NO_TIMEOUT && now - since > patience &&
         sl__heartbeat_idle(net->watch, net->rank) > net->timeout &&
         sl__heartbeat_idle(net->watch, p->peer) > net->timeout;
}

static void stalled(struct sl__net *net, const struct pending *p, double now) {
  char why[sizeof net->why];
  if (p->is_send)
    snprintf(why, sizeof why, "rank %d has not taken %s from rank %d for %.0f s; it does nothing",
             p->peer, p->name, net->rank, 1e-6 * (now - p->since));
  else
    snprintf(why, sizeof why,
             "rank %d waits for %s from rank %d for %.0f s, which does nothing: has it not pushed "
             "it, or done fewer steps?",
             net->rank, p->name, p->peer, 1e-6 * (now - p->since));
  net->found_out = !net->failed;
  fail_locked(net, why);
}

struct clock {
  struct sl__net *net;
  double now;
};

static struct pending pending_of(const struct sl__under_way *tensor) {
  return (struct pending){.name = tensor->name,
                          .since = tensor->since,
                          .peer = tensor->peer,
                          .is_send = tensor->is_send};
}

static bool is_post_stalled(void *argument, const struct sl__under_way *tensor) {
  struct clock *clock = argument;
  struct pending p = pending_of(tensor);
  return is_stalled(clock->net, &p, clock->now);
}

static void look_for_stalled_posts(struct sl__net *net, double now) {
  struct clock clock = {net, now};
  struct sl__under_way tensor;
  if (net->failed || !net->starpu) return;
  if (!sl__starpu_mpi_find(net->starpu, is_post_stalled, &clock, &tensor)) return;
  struct pending p = pending_of(&tensor);
  stalled(net, &p, now);
}

static void look_for_stalls(struct sl__net *net, double now) {
  if (!net->watch || now - net->looked < STALL_EVERY_US) return;
  if (now - net->looked > PAUSE_US)
    net->fresh = now; /* nobody waited meanwhile: stopped, or paused */
  net->looked = now;
  look_for_stalled_posts(net, now);
  for (int i = 0; i < net->count && !net->failed; i++)
    if (is_stalled(net, &net->pending[i], now)) stalled(net, &net->pending[i], now);
}

/* ---- messages under way ---- */

static bool make_room(struct sl__net *net) {
  if (net->count < net->capacity) return true;
  int capacity = net->capacity ? 2 * net->capacity : 64;
  size_t n = (size_t)capacity;
  MPI_Request *requests = sl__realloc(net->requests, n, sizeof *requests, "messages");
  if (requests) net->requests = requests;
  struct pending *pending = sl__realloc(net->pending, n, sizeof *pending, "messages");
  if (pending) net->pending = pending;
  int *done = sl__realloc(net->done, n, sizeof *done, "messages");
  if (done) net->done = done;
  if (!requests || !pending || !done) return false;
  net->capacity = capacity;
  return true;
}

/* StarPU gives a task's memory free when its function returns, not when the task ends: a GPU that
 * is full would take it from under the message. What is to be written through to a GPU stays there.
 */
static void hold(starpu_data_handle_t handle) {
  starpu_data_set_wt_mask(handle,
                          1u << starpu_worker_get_memory_node(starpu_worker_get_id_check()));
}

static void let_go(const struct sl__net *net, starpu_data_handle_t handle) {
  for (int i = 0; i < net->count; i++)
    if (net->pending[i].held == handle) return; /* sent to others, too */
  starpu_data_set_wt_mask(handle, 0);
}

static void forget(struct sl__net *net, int i) {
  starpu_data_handle_t held = net->pending[i].held;
  net->count--;
  net->requests[i] = net->requests[net->count];
  net->pending[i] = net->pending[net->count];
  if (held) let_go(net, held);
}

/* With the lock: one of the messages that a task listens for has come; now it waits for the others.
 */
static void grow_impatient(struct sl__net *net, const struct starpu_task *task) {
  for (int i = 0; i < net->count; i++)
    if (net->pending[i].task == task && net->pending[i].patience == SL__NO_TIMEOUT) {
      net->pending[i].patience = SL__TIMEOUT;
      net->pending[i].since = sl__microseconds();
    }
}

/* The task that began the message is over long since, as the trace sees it. What is listened for
 * has no beginning. */
static void tell_trace(const struct sl__net *net, const struct pending *p) {
  if (net->context->trace && p->task && p->patience != SL__NO_TIMEOUT)
    sl__trace_message(net->context->trace, p->is_send, p->peer, p->name,
                      sl__microseconds() - p->since);
}

static int downwards(const void *a, const void *b) { return *(const int *)b - *(const int *)a; }

/* Of the messages from the first-th on, at most `room`. */
static int collect_from(struct sl__net *net, int first, struct starpu_task **tasks, int room) {
  int most = net->count - first < room ? net->count - first : room;
  int code = MPI_SUCCESS, ended = 0, released = 0;
  /* Open MPI looks for what has come in only when it finds nothing ended, and does not look at the
   * requests again then */
  for (int i = 0; i < 2 && code == MPI_SUCCESS && ended <= 0; i++)
    code = MPI_Testsome(most, net->requests + first, &ended, net->done, MPI_STATUSES_IGNORE);
  if (code != MPI_SUCCESS) {
    mpi_failed(net, code, "a message between ranks");
    return 0;
  }
  if (ended == MPI_UNDEFINED) ended = 0; /* which is negative, too */
  qsort(net->done, (size_t)ended, sizeof *net->done, downwards);
  for (int i = 0; i < ended; i++) {
    struct pending ended_one = net->pending[first + net->done[i]];
    if (ended_one.task) tasks[released++] = ended_one.task;
    tell_trace(net, &ended_one);
    forget(net, first + net->done[i]);
    if (ended_one.patience == SL__NO_TIMEOUT) grow_impatient(net, ended_one.task);
  }
  return released;
}

/* With the lock: take what has ended out of the list, at most `room` of it, into tasks. After a
 * failure everything has. */
static int collect(struct sl__net *net, struct starpu_task **tasks, int room) {
  int released = 0;
  if (look_locked(net)) {
    while (net->count && released < room) {
      struct starpu_task *task = net->pending[net->count - 1].task;
      net->count--; /* MPI may never end it: left alone */
      if (task) tasks[released++] = task;
    }
    return released;
  }
  for (int first = 0; first < net->count && !released && !net->failed; first += room)
    released = collect_from(net, first, tasks, room);
  return released;
}

/* Look after the messages; true where a task was let go. */
static bool poll(struct sl__net *net) {
  struct starpu_task *tasks[256];
  if (net->is_aware) sl__cuda_make_current();
  if (pthread_mutex_trylock(&net->lock)) return false; /* another one does */
  double now = sl__microseconds();
  net->polled = now;
  look_for_stalls(net, now);
  int count = collect(net, tasks, (int)(sizeof tasks / sizeof *tasks));
  if (count) net->moved = now;
  pthread_mutex_unlock(&net->lock);
  for (int i = 0; i < count; i++) starpu_task_end_dep_release(tasks[i]);
  return count > 0;
}

/* ---- the poller: what an idle worker does while messages are under way ---- */

static void poller_cpu(void *buffers[], void *argument) {
  struct sl__net *net = argument;
  double end = sl__microseconds() + POLLER_US;
  (void)buffers;
  while (!poll(net) && sl__microseconds() < end)
    if (sl__microseconds() - net->moved < PATIENCE_US)
      sched_yield();
    else
      nanosleep(&(struct timespec){.tv_nsec = NAP_US * 1000}, NULL);
}

static struct starpu_codelet poller_codelet = {.cpu_funcs = {poller_cpu},
                                               .nbuffers = 0,
                                               .model = &starpu_perfmodel_nop,
                                               .name = "wait for messages"};

static void submit_poller(struct sl__net *net);

static void poller_ended(void *argument) {
  struct sl__net *net = argument;
  pthread_mutex_lock(&net->lock);
  bool again = net->count > 0;
  if (!again) net->has_poller = false;
  pthread_mutex_unlock(&net->lock);
  if (again) submit_poller(net);
}

static void submit_poller(struct sl__net *net) {
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
  pthread_mutex_lock(&net->lock); /* ended tasks look after them, as long as there are any */
  net->has_poller = false;
  pthread_mutex_unlock(&net->lock);
}

void sl__net_active(struct sl__net *net) {
  if (net && net->watch) sl__heartbeat_activity(net->watch);
}

void sl__net_task_ended(void *argument) {
  struct sl__net *net = argument;
  if (net->watch) sl__heartbeat_activity(net->watch);
  if (__atomic_load_n(&net->count, __ATOMIC_RELAXED) &&
      sl__microseconds() - net->polled > POLL_EVERY_US)
    poll(net);
}

/* ---- beginning a message ---- */

/* Several pieces travel as one message, without a copy of our own. */
static int begin_pieces(struct sl__net *net, const struct sl__message *m, MPI_Request *request) {
  int lengths[m->count];
  MPI_Aint places[m->count];
  MPI_Datatype type;
  for (int i = 0; i < m->count; i++) {
    lengths[i] = (int)m->bytes[i];
    MPI_Get_address(m->memory[i], &places[i]);
  }
  int code = MPI_Type_create_hindexed(m->count, lengths, places, MPI_BYTE, &type);
  if (code == MPI_SUCCESS) code = MPI_Type_commit(&type);
  if (code != MPI_SUCCESS) return code;
  code = m->is_send ? MPI_Isend(MPI_BOTTOM, 1, type, m->peer, m->tag, net->data, request)
                    : MPI_Irecv(MPI_BOTTOM, 1, type, m->peer, m->tag, net->data, request);
  MPI_Type_free(&type);
  return code;
}

static int begin_one(struct sl__net *net, const struct sl__message *m, MPI_Request *request) {
  int bytes = (int)m->bytes[0];
  return m->is_send ? MPI_Isend(m->memory[0], bytes, MPI_BYTE, m->peer, m->tag, net->data, request)
                    : MPI_Irecv(m->memory[0], bytes, MPI_BYTE, m->peer, m->tag, net->data, request);
}

/* With the lock; false: it has ended, or failed, already. */
static bool begin_locked(struct sl__net *net, const struct sl__message *m) {
  MPI_Request request;
  int ended = 0;
  if (look_locked(net)) return false;
  for (int i = 0; i < m->count; i++)
    if (m->bytes[i] > INT_MAX) { /* MPI counts in int */
      fail_locked(net,
                  "a tensor of more than 2 GB is too large for one message between ranks; take "
                  "more --microbatches");
      return false;
    }
  if (!make_room(net)) {
    fail_locked(net, "no memory for a message between ranks");
    return false;
  }
  int code = m->count == 1 ? begin_one(net, m, &request) : begin_pieces(net, m, &request);
  if (code == MPI_SUCCESS && m->is_send && m->peer != net->rank)
    for (int i = 0; i < m->count; i++) net->sent += (int64_t)m->bytes[i];
  /* what is listened for ends in one place only: see collect() */
  if (code == MPI_SUCCESS && m->patience != SL__NO_TIMEOUT)
    code = MPI_Test(&request, &ended, MPI_STATUS_IGNORE);
  if (code != MPI_SUCCESS) mpi_failed(net, code, m->name);
  if (code != MPI_SUCCESS || ended) return false;
  struct starpu_task *task = starpu_task_get_current();
  starpu_task_end_dep_add(task, 1);
  net->requests[net->count] = request;
  net->pending[net->count] = (struct pending){.task = task,
                                              .name = m->name,
                                              .since = sl__microseconds(),
                                              .peer = m->peer,
                                              .is_send = m->is_send,
                                              .patience = m->patience,
                                              .held = m->handles ? m->handles[0] : NULL};
  if (m->handles) hold(m->handles[0]);
  __atomic_store_n(&net->count, net->count + 1, __ATOMIC_RELAXED);
  net->moved = sl__microseconds();
  return true;
}

static bool begin_apart(struct sl__net *net, const struct sl__message *message) {
  bool begun = false;
  for (int i = 0; i < message->count; i++) {
    struct sl__message piece = *message;
    piece.count = 1;
    piece.memory += i;
    piece.bytes += i;
    if (piece.handles) piece.handles += i;
    begun |= begin_locked(net, &piece);
  }
  return begun;
}

/* Under one lock: were one to end before the next has begun, that one would be listened for, and
 * never be missed. */
void sl__net_begin(struct sl__net *net, int count, const struct sl__message *messages) {
  bool begun = false;
  lock(net);
  for (int i = 0; i < count; i++)
    begun |= messages[i].apart ? begin_apart(net, &messages[i]) : begin_locked(net, &messages[i]);
  bool needs_poller = begun && !net->has_poller;
  if (needs_poller) net->has_poller = true;
  pthread_mutex_unlock(&net->lock);
  if (needs_poller) submit_poller(net);
}

/* ---- StarPU-MPI ---- */

bool sl__net_has_starpu(const struct sl__net *net) { return net->starpu != NULL; }

bool sl__net_is_undecided(const struct sl__net *net) {
  return net->starpu && net->exchange == SL_EXCHANGE_AUTO;
}

const char *sl__net_transport_text(const struct sl__net *net) { return net->way; }

void sl__net_try_starpu(struct sl__net *net, const bool by_starpu[SL__MESSAGE_SIZES]) {
  memcpy(net->by_starpu, by_starpu, sizeof net->by_starpu);
}

void sl__net_choose(struct sl__net *net, const bool by_starpu[SL__MESSAGE_SIZES], const char *why) {
  sl__net_try_starpu(net, by_starpu);
  net->exchange = SL_EXCHANGE_LANE;
  for (int i = 0; i < SL__MESSAGE_SIZES; i++)
    if (by_starpu[i]) net->exchange = SL_EXCHANGE_STARPU;
  net->sent = 0; /* trials do not count */
  snprintf(net->way, sizeof net->way, "%s", why);
  if (net->exchange == SL_EXCHANGE_STARPU) return;
  sl__starpu_mpi_close(net->starpu);
  net->starpu = NULL;
}

static enum sl_status check_threads(void) {
  int level;
  MPI_Query_thread(&level);
  if (level >= MPI_THREAD_MULTIPLE) return SL_OK;
  return sl__fail(
      SL_UNSUPPORTED,
      "exchange starpu: MPI has no MPI_THREAD_MULTIPLE, which StarPU-MPI's thread needs; "
      "ask MPI_Init_thread for it, or take --exchange lane");
}

enum sl_status sl__net_open_starpu(struct sl__net *net) {
  const bool all[SL__MESSAGE_SIZES] = {true, true};
  char line[64];
  if (net->size == 1) return SL_OK;
  snprintf(line, sizeof line, "exchange %s\n", sl_exchange_name(net->exchange));
  enum sl_status status = sl__net_agree(net, line);
  if (status != SL_OK || net->exchange == SL_EXCHANGE_LANE) return status;
  status = check_threads();
  if (status == SL_OK && !sl__starpu_mpi_is_there())
    status = sl__fail(SL_UNSUPPORTED, "this build has no StarPU-MPI");
  status = sl__net_sync_status(net, status, sl_error());
  if (status == SL_OK) {
    status = sl__starpu_mpi_open(net->size, sl__net_task_ended, net, &net->starpu);
    status = sl__net_sync_status(net, status, sl_error());
  }
  if (status == SL_OK && net->exchange == SL_EXCHANGE_STARPU)
    sl__net_choose(net, all, "by StarPU-MPI, as asked for");
  if (status != SL_UNSUPPORTED || net->exchange != SL_EXCHANGE_AUTO) return status;
  net->exchange = SL_EXCHANGE_LANE;
  snprintf(net->way, sizeof net->way, "by the lane: %s", sl_error());
  sl__log(net->context, SL_LOG_INFO, "messages between ranks: %s", net->way);
  return SL_OK;
}

bool sl__net_by_starpu(const struct sl__net *net, size_t bytes) {
  return net->starpu &&
         net->by_starpu[bytes > SL__SMALL_MESSAGE_BYTES ? SL__LARGE_MESSAGE : SL__SMALL_MESSAGE];
}

enum sl_status sl__net_post(struct sl__net *net, const struct sl__post *post, size_t bytes) {
  pthread_mutex_lock(&net->lock);
  bool failed = look_locked(net);
  if (!failed && post->is_send) net->sent += (int64_t)bytes;
  pthread_mutex_unlock(&net->lock);
  return failed ? failure(net) : sl__starpu_mpi_post(net->starpu, post, sl__microseconds());
}

int sl__net_posts(struct sl__net *net) {
  return net->starpu ? sl__starpu_mpi_count(net->starpu) : 0;
}

int64_t sl__net_bytes_sent(const struct sl__net *net) { return net->sent; }

/* ---- small facts ---- */

/* With the lock: one word for another means that the ranks do different things. */
static void check_length(struct sl__net *net, const MPI_Status *told, size_t length, int peer) {
  char why[160];
  int count = 0;
  MPI_Get_count(told, MPI_BYTE, &count);
  if ((size_t)count == length) return;
  snprintf(why, sizeof why,
           "rank %d says something else than what is awaited: it has gone other ways", peer);
  fail_locked(net, why);
}

/* The main thread waits: it looks after all messages meanwhile. */
static enum sl_status wait_for(struct sl__net *net, MPI_Request *request, const char *name,
                               int peer, size_t length) {
  struct pending waiting = {.name = name,
                            .since = sl__microseconds(),
                            .peer = peer,
                            .patience = net->hears ? SL__NO_TIMEOUT : SL__TIMEOUT};
  int ended = 0;
  long pause = 1000; /* ns */
  for (;;) {
    lock(net);
    MPI_Status told;
    int code = look_locked(net) ? MPI_SUCCESS : MPI_Test(request, &ended, &told);
    if (code != MPI_SUCCESS) mpi_failed(net, code, name);
    if (code == MPI_SUCCESS && ended && length) check_length(net, &told, length, peer);
    double now = sl__microseconds();
    if (!ended && is_stalled(net, &waiting, now)) stalled(net, &waiting, now);
    bool failed = look_locked(net);
    /* nobody shall write there when the caller is gone */
    if (failed && !ended && length) MPI_Cancel(request);
    pthread_mutex_unlock(&net->lock);
    if (failed) return failure(net);
    if (ended) return SL_OK;
    poll(net);
    nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
    if (pause < 1000000) pause += pause / 4;
  }
}

static enum sl_status transfer(struct sl__net *net, bool is_send, int peer, void *data,
                               size_t bytes) {
  enum sl_status status = SL_OK;
  const size_t most = (size_t)1 << 30; /* MPI counts in int */
  for (size_t first = 0; first < bytes && status == SL_OK; first += most) {
    size_t length = bytes - first < most ? bytes - first : most;
    char *place = (char *)data + first;
    MPI_Request request;
    if (has_failed(net)) return failure(net);
    lock(net);
    int code = is_send ? MPI_Isend(place, (int)length, MPI_BYTE, peer, 0, net->control, &request)
                       : MPI_Irecv(place, (int)length, MPI_BYTE, peer, 0, net->control, &request);
    if (code != MPI_SUCCESS) mpi_failed(net, code, "a message between ranks");
    bool failed = look_locked(net);
    pthread_mutex_unlock(&net->lock);
    status = failed ? failure(net) : wait_for(net, &request, "a word", peer, is_send ? 0 : length);
  }
  return status;
}

enum sl_status sl__net_send(struct sl__net *net, int to, const void *data, size_t bytes) {
  return transfer(net, true, to, (void *)data, bytes);
}

enum sl_status sl__net_receive(struct sl__net *net, int from, void *data, size_t bytes) {
  return transfer(net, false, from, data, bytes);
}

enum sl_status sl__net_gather(struct sl__net *net, const void *mine, size_t bytes, void *all) {
  enum sl_status status = SL_OK;
  if (net->rank) return sl__net_send(net, 0, mine, bytes);
  memcpy(all, mine, bytes);
  for (int r = 1; r < net->size && status == SL_OK; r++)
    status = sl__net_receive(net, r, (char *)all + (size_t)r * bytes, bytes);
  return status;
}

/* A binomial tree: rank r has it from r without its lowest bit. */
enum sl_status sl__net_broadcast(struct sl__net *net, void *data, size_t bytes) {
  enum sl_status status = SL_OK;
  int bit = 1;
  while (bit < net->size && !(net->rank & bit)) bit <<= 1;
  if (net->rank) status = sl__net_receive(net, net->rank & ~bit, data, bytes);
  for (bit >>= 1; bit && status == SL_OK; bit >>= 1)
    if (net->rank + bit < net->size) status = sl__net_send(net, net->rank + bit, data, bytes);
  return status;
}

enum sl_status sl__net_hear(struct sl__net *net, void *data, size_t bytes) {
  net->hears = true;
  enum sl_status status = sl__net_broadcast(net, data, bytes);
  net->hears = false;
  return status;
}

/* ---- start and end ---- */

/* Open MPI keeps what processes of a machine send each other in /dev/shm, and dies by a signal
 * where that is full. */
static enum sl_status check_shared_memory(void) {
  const char *local = getenv("OMPI_COMM_WORLD_LOCAL_SIZE"), *btl = getenv("OMPI_MCA_btl");
  const double each = 5e6;
  struct statvfs info;
  long ranks = local ? strtol(local, NULL, 10) : 1;
  if (ranks < 2 || (btl && !strstr(btl, "vader") && !strstr(btl, "sm"))) return SL_OK;
  if (statvfs("/dev/shm", &info)) return SL_OK;
  double all = (double)info.f_blocks * (double)info.f_frsize;
  double left = (double)info.f_bavail * (double)info.f_frsize;
  if (all >= each * (double)ranks && left >= each) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT,
                  "/dev/shm has %.1f MB, %.1f MB of them free: %ld ranks on a machine need about "
                  "%.0f MB there; free some, or do without by mpirun --mca btl tcp,self",
                  1e-6 * all, 1e-6 * left, ranks, 1e-6 * each * (double)ranks);
}

static bool is_cuda_aware(void) {
#if HAVE_DECL_MPIX_QUERY_CUDA_SUPPORT
  if (MPIX_Query_cuda_support() == 1) return true;
#endif
  return sl__cuda_is_host();
}

static enum sl_status begin_mpi(struct sl__net *net) {
  int begun, ended, level;
  MPI_Finalized(&ended);
  if (ended)
    return sl__fail(SL_BAD_ARGUMENT,
                    "MPI has ended in this process: open one distributed context only, or call "
                    "MPI_Init_thread before the first and MPI_Finalize after the last");
  MPI_Initialized(&begun);
  if (!begun) {
    enum sl_status status = check_shared_memory();
    if (status != SL_OK) return status;
    /* more threads, more locks: only for StarPU-MPI's */
    int wanted = net->exchange == SL_EXCHANGE_LANE ? MPI_THREAD_SERIALIZED : MPI_THREAD_MULTIPLE;
    if (MPI_Init_thread(NULL, NULL, wanted, &level) != MPI_SUCCESS)
      return sl__fail(SL_LOST, "MPI does not start");
    net->began_mpi = true;
  }
  MPI_Query_thread(&level);
  if (level < MPI_THREAD_SERIALIZED)
    return sl__fail(SL_UNSUPPORTED,
                    "MPI was begun without threads: ask MPI_Init_thread for MPI_THREAD_SERIALIZED");
  MPI_Comm_dup(MPI_COMM_WORLD, &net->control);
  MPI_Comm_dup(MPI_COMM_WORLD, &net->data);
  MPI_Comm_set_errhandler(net->control, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(net->data, MPI_ERRORS_RETURN);
  MPI_Comm_rank(net->control, &net->rank);
  MPI_Comm_size(net->control, &net->size);
  int aware = is_cuda_aware();
  MPI_Allreduce(MPI_IN_PLACE, &aware, 1, MPI_INT, MPI_MIN, net->control);
  net->is_aware = aware;
  return SL_OK;
}

static enum sl_status begin_watch(struct sl__net *net) {
  char address[SL__WATCH_ADDRESS] = "";
  enum sl_status status =
      sl__heartbeat_new(net->rank, net->size, net->timeout, &net->watch, address, sizeof address);
  MPI_Bcast(address, sizeof address, MPI_BYTE, 0, net->control);
  if (status == SL_OK && !*address)
    status = sl__fail(SL_LOST, "rank 0 cannot watch over the others");
  if (status == SL_OK) status = sl__heartbeat_start(net->watch, address);
  if (status != SL_OK) fail_locked(net, sl_error()); /* who did not come will not for MPI either */
  return status;
}

static enum sl_status check_build(enum sl_exchange exchange) {
  if (exchange != SL_EXCHANGE_STARPU || sl__starpu_mpi_is_there()) return SL_OK;
  return sl__fail(SL_UNSUPPORTED,
                  "exchange starpu: this build has no StarPU-MPI; take --exchange lane, or build "
                  "StarPU with MPI (tools/get-starpu does) and configure again");
}

enum sl_status sl__net_open(struct sl_context *context, double timeout, enum sl_exchange exchange,
                            struct sl__net **out) {
  enum sl_status status = check_build(exchange);
  if (status != SL_OK) return status;
  struct sl__net *net = sl__alloc(1, sizeof *net, "the ranks");
  *out = NULL;
  if (!net) return SL_NO_MEMORY;
  net->context = context;
  net->control = net->data = MPI_COMM_NULL;
  net->size = 1;
  net->timeout = timeout;
  net->exchange = exchange;
  snprintf(net->way, sizeof net->way, "by the lane");
  pthread_mutex_init(&net->lock, NULL);
  int begun = 0;
  MPI_Initialized(&begun);
  int rank;
  net->alone = !begun && !sl__launched(&rank);
  if (!net->alone) {
    SL__TRY(begin_mpi(net));
    if (timeout > 0 && net->size > 1) SL__TRY(begin_watch(net));
  }
  net->is_open = true;
  *out = net;
  net = NULL;
out:
  sl__net_close(net);
  return status;
}

/* Not while something is under way, which only a loss can leave. */
static bool end_starpu(struct sl__net *net) {
  if (sl__net_posts(net) || net->context->abandoned) return false;
  sl__starpu_mpi_close(net->starpu);
  net->starpu = NULL;
  return true;
}

bool sl__net_close(struct sl__net *net) {
  if (!net) return true;
  /* nobody goes while others may wait for it */
  bool known = net->is_open && sl__net_check(net) != SL_OK;
  bool whole = net->is_open && !known && sl__net_part(net) == SL_OK;
  if (net->is_open && !known && !whole) sl__log(net->context, SL_LOG_WARNING, "%s", sl_error());
  if (net->watch) sl__heartbeat_leave(net->watch);
  if (!end_starpu(net)) return false;
  /* with a rank lost MPI would wait for it for ever */
  if (whole && net->control != MPI_COMM_NULL) MPI_Comm_free(&net->control);
  if (whole && net->data != MPI_COMM_NULL) MPI_Comm_free(&net->data);
  if (net->began_mpi && whole) MPI_Finalize();
  sl__heartbeat_free(net->watch);
  pthread_mutex_destroy(&net->lock);
  free(net->requests);
  free(net->pending);
  free(net->done);
  free(net);
  return true;
}
