/* The messages of tasks: a running task begins them and ends with them (mpi_progress.c). */
#include <limits.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/net/mpi_state.h"

static bool make_room(struct sl__net *net) {
  if (net->count < net->capacity) return true;
  int capacity = net->capacity ? 2 * net->capacity : 64;
  size_t n = (size_t)capacity;
  MPI_Request *handles = sl__realloc(net->handles, n, sizeof *handles, "messages");
  if (handles) net->handles = handles;
  struct sl__mpi_request *requests = sl__realloc(net->requests, n, sizeof *requests, "messages");
  if (requests) net->requests = requests;
  int *completed = sl__realloc(net->completed, n, sizeof *completed, "messages");
  if (completed) net->completed = completed;
  if (!handles || !requests || !completed) return false;
  net->capacity = capacity;
  return true;
}

/* StarPU may reuse a task's memory when its function returns, which is before the task ends: on a
 * GPU that is full it would take the memory from under the message. StarPU keeps data that is to be
 * written through to a node on that node, so that is set until the message ends. */
static void hold_memory(starpu_data_handle_t handle) {
  starpu_data_set_wt_mask(handle,
                          1u << starpu_worker_get_memory_node(starpu_worker_get_id_check()));
}

/* Several pieces travel as one message, without a copy. */
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

static int begin_piece(struct sl__net *net, const struct sl__message *m, MPI_Request *request) {
  int bytes = (int)m->bytes[0];
  return m->is_send ? MPI_Isend(m->memory[0], bytes, MPI_BYTE, m->peer, m->tag, net->data, request)
                    : MPI_Irecv(m->memory[0], bytes, MPI_BYTE, m->peer, m->tag, net->data, request);
}

/* With the lock: the current task ends with this request. */
static void add_request(struct sl__net *net, const struct sl__message *m, MPI_Request handle) {
  struct starpu_task *task = starpu_task_get_current();
  starpu_task_end_dep_add(task, 1);
  net->handles[net->count] = handle;
  net->requests[net->count] = (struct sl__mpi_request){.message = {.name = m->name,
                                                                   .since = sl__microseconds(),
                                                                   .peer = m->peer,
                                                                   .is_send = m->is_send},
                                                       .task = task,
                                                       .timeout_policy = m->timeout_policy,
                                                       .held = m->handles ? m->handles[0] : NULL};
  if (m->handles) hold_memory(m->handles[0]);
  __atomic_store_n(&net->count, net->count + 1, __ATOMIC_RELAXED);
  net->last_progress = sl__microseconds();
}

static bool is_too_large(const struct sl__message *m) {
  for (int i = 0; i < m->count; i++)
    if (m->bytes[i] > INT_MAX) return true; /* MPI counts in int */
  return false;
}

/* With the lock. Returns whether the message is in flight; false: it has ended or failed. */
static bool begin(struct sl__net *net, const struct sl__message *m) {
  MPI_Request request;
  int ended = 0;
  if (sl__mpi_check_loss(net)) return false;
  if (is_too_large(m)) {
    sl__mpi_fail(net,
                 "a tensor of more than 2 GB is too large for one message between ranks; use more "
                 "microbatches");
    return false;
  }
  if (!make_room(net)) {
    sl__mpi_fail(net, "no memory for a message between ranks");
    return false;
  }
  int code = m->count == 1 ? begin_piece(net, m, &request) : begin_pieces(net, m, &request);
  if (code == MPI_SUCCESS && m->is_send && m->peer != net->rank)
    for (int i = 0; i < m->count; i++) net->bytes_sent += (int64_t)m->bytes[i];
  /* the end of a message without a timeout starts others' timeouts, which only the poll does */
  if (code == MPI_SUCCESS && m->timeout_policy != SL__NO_TIMEOUT)
    code = MPI_Test(&request, &ended, MPI_STATUS_IGNORE);
  if (code != MPI_SUCCESS) sl__mpi_fail_code(net, code, m->name);
  if (code != MPI_SUCCESS || ended) return false;
  add_request(net, m, request);
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
    begun |= begin(net, &piece);
  }
  return begun;
}

/* All under one lock: if a message without a timeout ended before the next one has begun, that one
 * would keep no timeout for ever. */
void sl__net_begin(struct sl__net *net, int count, const struct sl__message *messages) {
  bool begun = false;
  sl__mpi_lock(net);
  for (int i = 0; i < count; i++)
    begun |= messages[i].apart ? begin_apart(net, &messages[i]) : begin(net, &messages[i]);
  bool needs_poller = begun && !net->has_poller;
  if (needs_poller) net->has_poller = true;
  sl__mpi_unlock(net);
  if (needs_poller) sl__mpi_submit_poller(net);
}

int64_t sl__net_bytes_sent(const struct sl__net *net) { return net->bytes_sent; }
