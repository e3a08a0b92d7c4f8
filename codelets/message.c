/* Tensors from rank to rank: tasks that begin a message (core/net.h) and end when it has. */
#include <stdlib.h>

#include "codelets/codelets.h"
#include "core/error.h"
#include "core/net.h"

struct message_args {
  struct sl__net *net; /* of this process: such tasks run in the main one only */
  const char *name;
  int32_t tag, first, count, skip, stride, patience;
  int32_t pieces; /* tensors a rank */
};

/* pieces buffers for each rank, the first ones for the first; or the same for all. */
static void begin(void *buffers[], const struct message_args *a, bool is_send) {
  void *memory[a->pieces];
  size_t bytes[a->pieces];
  int at = 0;
  for (int peer = 0; peer < a->count; peer++) {
    int r = a->first + peer * a->stride;
    if (r == a->skip) continue;
    for (int i = 0; i < a->pieces; i++) {
      void *buffer = buffers[is_send ? i : at++];
      memory[i] = (void *)STARPU_VECTOR_GET_PTR(buffer);
      bytes[i] = (size_t)STARPU_VECTOR_GET_NX(buffer) * STARPU_VECTOR_GET_ELEMSIZE(buffer);
    }
    sl__net_begin(a->net, &(struct sl__message){.is_send = is_send,
                                                .peer = r,
                                                .tag = a->tag,
                                                .patience = (enum sl__patience)a->patience,
                                                .name = a->name,
                                                .count = a->pieces,
                                                .memory = memory,
                                                .bytes = bytes});
  }
}

SL_KERNEL void sl__send_cpu(void *buffers[], void *cl_arg) {
  begin(buffers, sl__args(cl_arg), true);
}

SL_KERNEL void sl__receive_cpu(void *buffers[], void *cl_arg) {
  begin(buffers, sl__args(cl_arg), false);
}

static int stride_of(const struct sl__peers *peers) { return peers->stride ? peers->stride : 1; }

static int peers_of(const struct sl__peers *peers) {
  int ranks = 0;
  for (int i = 0; i < peers->count; i++)
    ranks += peers->first + i * stride_of(peers) != peers->skip;
  return ranks;
}

static enum sl_status submit(struct sl_context *context, struct sl__op *op,
                             const struct sl__launch *l, int tag, const struct sl__peers *peers,
                             int count, struct sl_tensor *const *tensors) {
  int ranks = peers_of(peers);
  struct message_args args = {.net = context->net,
                              .name = l->name,
                              .tag = tag,
                              .first = peers->first,
                              .count = peers->count,
                              .skip = peers->skip,
                              .stride = stride_of(peers),
                              .patience = peers->patience,
                              .pieces = op == &sl__op_send ? count
                                        : ranks            ? count / ranks
                                                           : 0};
  struct sl__launch launch = *l;
  /* a pinned worker looks at what is for any only when it has nothing of its own left */
  if (!l->place.worker || l->place.where != STARPU_CPU)
    launch.place = (struct sl__place){.where = STARPU_CPU};
  if (!ranks) return SL_OK;
  return sl__submit(context, op, &launch, count, tensors, &args, sizeof args, 0, 0);
}

enum sl_status sl__send(struct sl_context *context, const struct sl__launch *l, int tag,
                        const struct sl__peers *to, int count, struct sl_tensor *const *tensors) {
  return submit(context, &sl__op_send, l, tag, to, count, tensors);
}

enum sl_status sl__receive(struct sl_context *context, const struct sl__launch *l, int tag,
                           const struct sl__peers *from, int count,
                           struct sl_tensor *const *tensors) {
  return submit(context, &sl__op_receive, l, tag, from, count, tensors);
}
