/* Calls of the main thread that wait: from one rank to another, and among all ranks. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/net/mpi_state.h"

/* A message of another length belongs to another call. It is not received: Open MPI 4 writes all of
 * a message that is too long before it reports MPI_ERR_TRUNCATE. */
static void check_length(struct sl__net *net, const MPI_Status *message, size_t length, int peer) {
  char why[160];
  int count = 0;
  MPI_Get_count(message, MPI_BYTE, &count);
  if ((size_t)count == length) return;
  snprintf(why, sizeof why,
           "rank %d sent %d bytes where rank %d expects %zu: the two ranks do different things",
           peer, count, net->rank, length);
  sl__mpi_fail(net, why);
}

/* What the main thread waits for: a message of `length` bytes that it will receive, or the end of a
 * request. */
struct awaited {
  int peer;
  size_t length;       /* 0: the end of the request */
  MPI_Message message; /* once it is there */
  MPI_Request request;
};

/* With the lock. */
static bool has_come(struct sl__net *net, struct awaited *a, const char *name) {
  MPI_Status found;
  int there = 0;
  int code = a->length ? MPI_Improbe(a->peer, 0, net->control, &there, &a->message, &found)
                       : MPI_Test(&a->request, &there, MPI_STATUS_IGNORE);
  if (code != MPI_SUCCESS) sl__mpi_fail_code(net, code, name);
  if (code == MPI_SUCCESS && there && a->length) check_length(net, &found, a->length, a->peer);
  return there;
}

void sl__net_name_call(struct sl__net *net, const char *function) { net->call = function; }

/* Polls the messages of tasks meanwhile. */
static enum sl_status wait_for(struct sl__net *net, struct awaited *a, bool writes,
                               const char *name) {
  const struct sl__in_flight waiting = {.name = net->call ? net->call : "a call of all ranks",
                                        .since = sl__microseconds(),
                                        .peer = a->peer,
                                        .is_call = true};
  enum sl__timeout_policy policy = net->no_timeout ? SL__NO_TIMEOUT : SL__TIMEOUT;
  long pause = 1000; /* ns */
  for (;;) {
    sl__mpi_lock(net);
    bool ended = !sl__mpi_check_loss(net) && has_come(net, a, name);
    if (!ended) sl__mpi_check_deadlock(net, &waiting, policy, sl__microseconds());
    bool failed = sl__mpi_check_loss(net);
    /* MPI must not write to the caller's memory after this call has returned */
    if (failed && !ended && writes) MPI_Cancel(&a->request);
    sl__mpi_unlock(net);
    if (failed) return sl__mpi_failure(net);
    if (ended) return SL_OK;
    sl__mpi_poll(net);
    nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
    if (pause < 1000000) pause += pause / 4;
  }
}

static enum sl_status transfer_part(struct sl__net *net, bool is_send, int peer, char *data,
                                    int length) {
  static const char name[] = "a message between ranks";
  struct awaited a = {.peer = peer, .length = is_send ? 0 : (size_t)length};
  enum sl_status status;
  if (sl__mpi_has_failed(net)) return sl__mpi_failure(net);
  if (!is_send) SL__TRY(wait_for(net, &a, false, name));
  sl__mpi_lock(net);
  int code = is_send ? MPI_Isend(data, length, MPI_BYTE, peer, 0, net->control, &a.request)
                     : MPI_Imrecv(data, length, MPI_BYTE, &a.message, &a.request);
  if (code != MPI_SUCCESS) sl__mpi_fail_code(net, code, name);
  bool failed = sl__mpi_check_loss(net);
  sl__mpi_unlock(net);
  a.length = 0;
  status = failed ? sl__mpi_failure(net) : wait_for(net, &a, !is_send, name);
out:
  return status;
}

static enum sl_status transfer(struct sl__net *net, bool is_send, int peer, void *data,
                               size_t bytes) {
  enum sl_status status = SL_OK;
  const size_t most = (size_t)1 << 30; /* MPI counts in int */
  for (size_t first = 0; first < bytes && status == SL_OK; first += most) {
    size_t length = bytes - first < most ? bytes - first : most;
    status = transfer_part(net, is_send, peer, (char *)data + first, (int)length);
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

/* A binomial tree: rank r receives from the rank whose number is r without its lowest bit. */
enum sl_status sl__net_broadcast(struct sl__net *net, void *data, size_t bytes) {
  enum sl_status status = SL_OK;
  int bit = 1;
  while (bit < net->size && !(net->rank & bit)) bit <<= 1;
  if (net->rank) status = sl__net_receive(net, net->rank & ~bit, data, bytes);
  for (bit >>= 1; bit && status == SL_OK; bit >>= 1)
    if (net->rank + bit < net->size) status = sl__net_send(net, net->rank + bit, data, bytes);
  return status;
}

enum sl_status sl__net_broadcast_no_timeout(struct sl__net *net, void *data, size_t bytes) {
  net->no_timeout = true;
  enum sl_status status = sl__net_broadcast(net, data, bytes);
  net->no_timeout = false;
  return status;
}
