/* Tensors from rank to rank: tasks that begin a message (core/net/net.h) and end with it; or
 * StarPU-MPI's requests instead. */
#include <stdlib.h>

#include "codelets/codelets.h"
#include "core/base/error.h"
#include "core/net/net.h"
#include "core/runtime/chain.h"

struct message_args {
  struct sl__net *net; /* pointer of this process: such tasks run in the main process only */
  const char *name;
  int32_t tag, first, count, skip, stride, timeout_policy;
  int32_t pieces; /* tensors a rank */
  int32_t apart;  /* a message each */
};

/* `pieces` buffers for each rank, rank by rank; or the same buffers for all. */
static void begin(void *buffers[], const struct message_args *a, bool is_send) {
  struct starpu_task *task = starpu_task_get_current();
  bool on_gpu = starpu_worker_get_type(starpu_worker_get_id()) == STARPU_CUDA_WORKER;
  int own = is_send ? a->pieces : a->pieces * a->count, count = 0;
  void *memory[own];
  size_t bytes[own];
  starpu_data_handle_t handles[own];
  struct sl__message messages[a->count];
  for (int peer = 0; peer < a->count; peer++) {
    int r = a->first + peer * a->stride, at = is_send ? 0 : count * a->pieces;
    if (r == a->skip) continue;
    for (int b = at; b < at + a->pieces; b++) {
      void *buffer = buffers[b];
      handles[b] = STARPU_TASK_GET_HANDLE(task, b);
      memory[b] = (void *)STARPU_VECTOR_GET_PTR(buffer);
      bytes[b] = (size_t)STARPU_VECTOR_GET_NX(buffer) * STARPU_VECTOR_GET_ELEMSIZE(buffer);
    }
    messages[count++] =
        (struct sl__message){.is_send = is_send,
                             .apart = a->apart,
                             .peer = r,
                             .tag = a->tag,
                             .timeout_policy = (enum sl__timeout_policy)a->timeout_policy,
                             .name = a->name,
                             .count = a->pieces,
                             .memory = memory + at,
                             .bytes = bytes + at,
                             .handles = on_gpu ? handles + at : NULL};
  }
  sl__net_begin(a->net, count, messages);
}

/* On a GPU's worker the memory is the GPU's. Its contents are complete, and no task reads memory
 * that a message will overwrite: StarPU ends a GPU's tasks and copies when the device has finished,
 * and only then releases dependent tasks. So nothing waits here. */
SL__KERNEL void sl__send_cpu(void *buffers[], void *cl_arg) {
  begin(buffers, sl__args(cl_arg), true);
}

SL__KERNEL void sl__receive_cpu(void *buffers[], void *cl_arg) {
  begin(buffers, sl__args(cl_arg), false);
}

static int stride_of(const struct sl__peers *peers) { return peers->stride ? peers->stride : 1; }

static int peers_of(const struct sl__peers *peers) {
  int ranks = 0;
  for (int i = 0; i < peers->count; i++)
    ranks += peers->first + i * stride_of(peers) != peers->skip;
  return ranks;
}

static size_t bytes_of(int count, struct sl__tensor *const *tensors) {
  size_t bytes = 0;
  for (int i = 0; i < count; i++) bytes += tensors[i]->bytes;
  return bytes;
}

/* Many small buffers travel as one MPI datatype. MPI may copy such a type byte by byte out of a
 * GPU, or may not recognise GPU memory at all if the type has absolute addresses: so it is not used
 * there. A set with a large buffer goes one by one; both ranks see the sizes, and decide alike. */
static bool is_apart(const struct sl_context *context, int tag, int pieces,
                     struct sl__tensor *const *tensors) {
  bool large = false;
  for (int i = 0; i < pieces; i++) large |= tensors[i]->bytes > SL__SMALL_MESSAGE_BYTES;
  return large && pieces > 1 && tag < SL__TAG_MPI_ONLY && sl__net_is_cuda_aware(context->net);
}

/* Returns true if the message goes directly from and to a GPU's memory. */
static bool is_direct(const struct sl_context *context, const struct sl__launch *l,
                      const struct message_args *a) {
  return l->place.where == STARPU_CUDA && (a->pieces == 1 || a->apart) &&
         sl__net_is_cuda_aware(context->net);
}

static int starpu_priority(const struct sl__launch *l) {
  int least = starpu_sched_ctx_get_min_priority(0), most = starpu_sched_ctx_get_max_priority(0);
  return l->priority < least ? least : l->priority > most ? most : l->priority;
}

static enum sl_status post_all(struct sl_context *context, const struct sl__launch *l,
                               const struct message_args *a, bool is_send,
                               struct sl__tensor *const *tensors) {
  starpu_data_handle_t handles[a->pieces];
  enum sl_status status = SL_OK;
  for (int peer = 0; peer < a->count && status == SL_OK; peer++) {
    int r = a->first + peer * a->stride;
    if (r == a->skip) continue;
    for (int i = 0; i < a->pieces; i++) {
      handles[i] = tensors[i]->handle;
      if (!is_send) sl__tensor_written(tensors[i]);
    }
    sl__chains_lock(context);
    status = sl__chains_settle(NULL, a->pieces, tensors);
    sl__chains_unlock(context);
    if (status != SL_OK) return status;
    status = sl__net_post(context->net,
                          &(struct sl__post){.is_send = is_send,
                                             .peer = r,
                                             .tag = a->tag,
                                             .priority = starpu_priority(l),
                                             .name = l->name,
                                             .count = a->pieces,
                                             .handles = handles},
                          bytes_of(a->pieces, tensors));
    if (!is_send) tensors += a->pieces;
  }
  return status;
}

/* The same messages by StarPU-MPI, which needs no task of ours. A rank sends itself nothing by MPI.
 */
bool sl__message_post(struct sl_context *context, const struct sl__call *call,
                      enum sl_status *status) {
  const struct message_args *a = call->args;
  bool to_self = a->count == 1 && a->first == sl__net_rank(context->net);
  if (to_self || a->tag >= SL__TAG_MPI_ONLY ||
      !sl__net_by_starpu(context->net, bytes_of(a->pieces, call->tensors)))
    return false;
  *status = post_all(context, call->launch, a, call->op == &sl__op_send, call->tensors);
  return true;
}

static enum sl_status submit(struct sl_context *context, struct sl__op *op,
                             const struct sl__launch *l, int tag, const struct sl__peers *peers,
                             int count, struct sl__tensor *const *tensors) {
  int ranks = peers_of(peers);
  struct message_args args = {.net = context->net,
                              .name = l->name,
                              .tag = tag,
                              .first = peers->first,
                              .count = peers->count,
                              .skip = peers->skip,
                              .stride = stride_of(peers),
                              .timeout_policy = peers->timeout_policy,
                              .pieces = op == &sl__op_send ? count
                                        : ranks            ? count / ranks
                                                           : 0};
  struct sl__launch launch = *l;
  args.apart = is_apart(context, tag, args.pieces, tensors);
  /* a pinned worker takes tasks for any worker only when it has none of its own */
  if ((!l->place.worker || l->place.where != STARPU_CPU) && !is_direct(context, l, &args))
    launch.place = (struct sl__place){.where = STARPU_CPU};
  if (!ranks) return SL_OK;
  return sl__submit(context, op, &launch, count, tensors, &args, sizeof args, 0, 0);
}

enum sl_status sl__send(struct sl_context *context, const struct sl__launch *l, int tag,
                        const struct sl__peers *to, int count, struct sl__tensor *const *tensors) {
  return submit(context, &sl__op_send, l, tag, to, count, tensors);
}

enum sl_status sl__receive(struct sl_context *context, const struct sl__launch *l, int tag,
                           const struct sl__peers *from, int count,
                           struct sl__tensor *const *tensors) {
  return submit(context, &sl__op_receive, l, tag, from, count, tensors);
}

SL__KERNEL void sl__unite_cpu(void *buffers[], void *cl_arg) {
  (void)buffers;
  (void)cl_arg;
}

enum sl_status sl__unite(struct sl_context *context, const struct sl__launch *l, int count,
                         struct sl__tensor *const *tensors) {
  struct sl__launch launch = *l;
  launch.place = (struct sl__place){.where = STARPU_CPU};
  if (count < 2 || !sl__net_has_starpu(context->net)) return SL_OK;
  return sl__submit(context, &sl__op_unite, &launch, count, tensors, NULL, 0, 0, 0);
}
