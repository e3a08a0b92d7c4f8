/* Failures of a distributed run: a lost rank, an error of MPI, and ranks that wait for each other.
 */
#include <stdio.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/net/mpi_state.h"
#include "core/runtime/cuda.h"

enum {
  DEADLOCK_CHECK_EVERY_US = 50000,
  PAUSE_US = 1000000 /* longer between two checks: this process did not run */
};

void sl__mpi_lock(struct sl__net *net) {
  int device = net->cuda_aware ? sl__cuda_make_current() : -1;
  pthread_mutex_lock(&net->lock);
  net->device_before = device;
}

void sl__mpi_unlock(struct sl__net *net) {
  int device = net->device_before;
  pthread_mutex_unlock(&net->lock);
  sl__cuda_restore(device);
}

bool sl__mpi_has_failed(struct sl__net *net) {
  return __atomic_load_n(&net->failed, __ATOMIC_ACQUIRE);
}

enum sl_status sl__mpi_failure(struct sl__net *net) { return sl__fail(SL_LOST, "%s", net->why); }

void sl__mpi_fail(struct sl__net *net, const char *why) {
  if (net->failed) return;
  snprintf(net->why, sizeof net->why, "%s", why);
  __atomic_store_n(&net->failed, true, __ATOMIC_RELEASE);
}

void sl__mpi_fail_code(struct sl__net *net, int code, const char *what) {
  char text[MPI_MAX_ERROR_STRING] = "?", why[sizeof net->why];
  int length;
  MPI_Error_string(code, text, &length);
  snprintf(why, sizeof why, "%s: MPI says: %s", what, text);
  sl__mpi_fail(net, why);
}

bool sl__mpi_check_loss(struct sl__net *net) {
  char text[sizeof net->why];
  if (!net->failed && net->heartbeat && sl__heartbeat_lost(net->heartbeat) &&
      sl__heartbeat_text(net->heartbeat, NULL, text, sizeof text))
    sl__mpi_fail(net, text);
  return net->failed;
}

enum sl_status sl__net_check(struct sl__net *net) {
  if (net->is_alone) return SL_OK;
  pthread_mutex_lock(&net->lock);
  /* no worker polls the messages of StarPU-MPI */
  if (net->starpu) sl__mpi_check_deadlocks(net, sl__microseconds());
  bool failed = sl__mpi_check_loss(net);
  pthread_mutex_unlock(&net->lock);
  return failed ? sl__mpi_failure(net) : SL_OK;
}

void sl__net_announce(struct sl__net *net, const char *why) {
  if (!net->heartbeat || (sl__mpi_has_failed(net) && !net->found_failure)) return;
  sl__heartbeat_announce(net->heartbeat, why);
}

void sl__net_abandon(struct sl__net *net, const char *why) {
  pthread_mutex_lock(&net->lock);
  sl__mpi_fail(net, why);
  pthread_mutex_unlock(&net->lock);
}

void sl__net_report_activity(struct sl__net *net) {
  if (net && net->heartbeat) sl__heartbeat_activity(net->heartbeat);
}

/* ---- ranks that wait for each other ---- */

/* All ranks are alive, but none has worked for long: they wait for each other, for example because
 * one pushed a key that another one did not push. The limit is longer than the timeout: a rank that
 * is silent for the timeout counts as lost, which is the better message, and another rank may
 * report it. */
static bool is_deadlocked(struct sl__net *net, const struct sl__in_flight *message,
                          enum sl__timeout_policy policy, double now) {
  double limit = (policy == SL__TIMEOUT_LONGER ? 2e6 : 1.5e6) * net->timeout;
  double since = message->since > net->waits_count_from ? message->since : net->waits_count_from;
  return net->heartbeat && policy != SL__NO_TIMEOUT && now - since > limit &&
         sl__heartbeat_idle(net->heartbeat, net->rank) > net->timeout &&
         sl__heartbeat_idle(net->heartbeat, message->peer) > net->timeout;
}

static void fail_deadlocked(struct sl__net *net, const struct sl__in_flight *message, double now) {
  char why[sizeof net->why];
  double seconds = 1e-6 * (now - message->since);
  if (message->is_send)
    snprintf(why, sizeof why, "rank %d has not received %s from rank %d for %.0f s, and is idle",
             message->peer, message->name, net->rank, seconds);
  else if (message->is_call)
    snprintf(
        why, sizeof why,
        "rank %d waits in %s for rank %d, which is idle, for %.0f s: does rank %d make another "
        "call, or none? All ranks must make the same calls in the same order",
        net->rank, message->name, message->peer, seconds, message->peer);
  else
    snprintf(
        why, sizeof why,
        "rank %d waits for %s from rank %d, which is idle, for %.0f s: did rank %d not push it, "
        "or do fewer steps?",
        net->rank, message->name, message->peer, seconds, message->peer);
  net->found_failure = !net->failed;
  sl__mpi_fail(net, why);
}

void sl__mpi_check_deadlock(struct sl__net *net, const struct sl__in_flight *message,
                            enum sl__timeout_policy policy, double now) {
  if (is_deadlocked(net, message, policy, now)) fail_deadlocked(net, message, now);
}

struct moment {
  struct sl__net *net;
  double now;
};

static bool is_post_deadlocked(void *argument, const struct sl__in_flight *tensor) {
  struct moment *moment = argument;
  return is_deadlocked(moment->net, tensor, SL__TIMEOUT, moment->now);
}

static void check_posts(struct sl__net *net, double now) {
  struct moment moment = {net, now};
  struct sl__in_flight tensor;
  if (net->failed || !net->starpu) return;
  if (sl__starpu_mpi_find(net->starpu, is_post_deadlocked, &moment, &tensor))
    fail_deadlocked(net, &tensor, now);
}

void sl__mpi_check_deadlocks(struct sl__net *net, double now) {
  if (!net->heartbeat || now - net->last_deadlock_check < DEADLOCK_CHECK_EVERY_US) return;
  if (now - net->last_deadlock_check > PAUSE_US) net->waits_count_from = now;
  net->last_deadlock_check = now;
  check_posts(net, now);
  for (int i = 0; i < net->count && !net->failed; i++)
    sl__mpi_check_deadlock(net, &net->requests[i].message, net->requests[i].timeout_policy, now);
}
