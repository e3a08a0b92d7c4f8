/* Tensors that cross between the ranks of a group: outputs forward, gradients back. */
#include "core/net/net.h"
#include "parallel/step/plan_tasks.h"

int sl__plan_tags(const struct sl__plan *plan) {
  return 2 * plan->borders * plan->count * plan->chunks;
}

/* A tensor of a slice's chunk that crosses one border in one direction has a tag of its own. So its
 * messages keep their order from step to step. */
static int border_tag(const struct sl__plan *plan, int s, int c, int layer, bool is_gradient) {
  int cell = (s * plan->chunks + c) * plan->borders + plan->border[layer];
  return plan->tag + 2 * cell + is_gradient;
}

/* A member of this rank's group, as a peer. */
static struct sl__peers peer_of(const struct sl__plan *plan, int member) {
  int own = sl__net_rank(plan->model->context->net);
  return sl__peer(own - plan->grid->member + member);
}

/* A message waits for its tensor, and other ranks wait for the message. It runs on the worker of a
 * layer of this rank: a pinned worker sees the scheduler's other tasks too late. */
static struct sl__launch border_launch(const struct sl__plan *plan, const struct sl__slice *slice,
                                       int layer) {
  return (struct sl__launch){.name = plan->model->layers[layer].name,
                             .place = sl__grid_device(plan->grid, layer, slice->replica)->place,
                             .priority = SL__PRIORITY_LOSS,
                             .mark = sl__slice_mark_of(plan, slice, 0, layer)};
}

/* Is layer i the first one on its rank to read the output of `from`? */
static bool is_first_reader(const struct sl__plan *plan, int from, int i) {
  int member = sl__grid_member(plan->grid, i);
  for (int to = from + 1; to < i; to++)
    for (int k = 0; k < plan->model->layers[to].input_count; k++)
      if (plan->model->layers[to].input[k] == from && sl__grid_member(plan->grid, to) == member)
        return false;
  return true;
}

/* A tensor goes from the rank of layer `from` to the rank of layer `to`, unless both are one. */
static enum sl_status carry(const struct sl__plan *plan, int s, int tag, struct sl__tensor **tensor,
                            int from, int to) {
  const struct sl__slice *slice = &plan->slices[s];
  struct sl_context *context = plan->model->context;
  int sender = sl__grid_member(plan->grid, from), receiver = sl__grid_member(plan->grid, to);
  bool sends = sender == plan->grid->member, receives = receiver == plan->grid->member;
  if (sends == receives) return SL_OK; /* both are here, or none is */
  struct sl__launch launch = border_launch(plan, slice, sends ? from : to);
  struct sl__peers peer = peer_of(plan, sends ? receiver : sender);
  return (sends ? sl__send : sl__receive)(context, &launch, tag, &peer, 1, tensor);
}

/* The output of `from` goes to the rank of layer `to` once, for its first reader there. */
static enum sl_status carry_output(const struct sl__plan *plan, int s, int c, int from, int to) {
  struct sl__tensor **y = &plan->slices[s].y[c * plan->model->count + from];
  if (!is_first_reader(plan, from, to)) return SL_OK;
  return carry(plan, s, border_tag(plan, s, c, from, false), y, from, to);
}

enum sl_status sl__plan_carry_gradient(const struct sl__plan *plan, int s, int c, int i, int from,
                                       int to) {
  struct sl__tensor **dy = &plan->slices[s].dy[c * plan->model->count + i];
  return carry(plan, s, border_tag(plan, s, c, i, true), dy, from, to);
}

enum sl_status sl__plan_carry_outputs(const struct sl__plan *plan, int s, int c, int i) {
  enum sl_status status = SL_OK;
  for (int to = i + 1; to < plan->model->count && plan->border[i] >= 0; to++) {
    const struct sl__layer *reader = &plan->model->layers[to];
    for (int k = 0; k < reader->input_count; k++) {
      if (reader->input[k] != i) continue;
      SL__TRY(carry_output(plan, s, c, i, to));
      break; /* it may take the same input more than once */
    }
  }
out:
  return status;
}

enum sl_status sl__plan_carry_gradients(const struct sl__plan *plan, int s, int c, int i,
                                        const int *writer) {
  const struct sl__layer *layer = &plan->model->layers[i];
  enum sl_status status = SL_OK;
  for (int k = 0; k < layer->input_count; k++) {
    int input = layer->input[k];
    if (input == SL__INPUT || writer[input] < 0 || sl__is_repeated(layer, k)) continue;
    SL__TRY(sl__plan_carry_gradient(plan, s, c, input, writer[input], i));
  }
out:
  return status;
}
