/* Addition of layers' outputs: the end of a residual edge (He et al., arXiv 1512.03385). */
#include "nn/onnx_graph.h"

static enum sl_status infer(struct sl__layer *layer) {
  enum sl_status status = sl__inputs_broadcast(layer);
  layer->out = layer->in[0];
  layer->over_time = !layer->broadcasts;
  layer->flops = (double)sl_shape_count(&layer->out) * (layer->input_count - 1);
  return status;
}

/* The inputs of y's shape, then each of the others along the axes that it lacks. */
static enum sl_status forward_broadcast(const struct sl__layer *layer, struct sl__pass *p) {
  struct sl__tensor *whole[layer->input_count];
  int count = 0;
  for (int i = 0; i < layer->input_count; i++)
    if (!sl__is_broadcast(layer, i)) whole[count++] = p->x[i];
  enum sl_status status = count > 1
                              ? sl__add_terms(p->context, &p->launch, count, whole, p->y, false)
                              : sl__axpy(p->context, &p->launch, 1.0f, whole[0], p->y);
  p->launch.accumulate = true;
  for (int i = 0; i < layer->input_count && status == SL_OK; i++) {
    int missing = layer->out.ndim - layer->in[i].ndim;
    uint32_t lacks = 0;
    if (!sl__is_broadcast(layer, i)) continue;
    for (int d = 0; d < layer->out.ndim; d++)
      if (d < missing || layer->in[i].dim[d - missing] == 1) lacks |= 2u << d; /* 1: the batch's */
    status = sl__broadcast(p->context, &p->launch, 1.0f, p->x[i], p->y, lacks);
  }
  return status;
}

static enum sl_status forward(const struct sl__layer *layer, struct sl__pass *p) {
  if (layer->broadcasts) return forward_broadcast(layer, p);
  return sl__add_terms(p->context, &p->launch, layer->input_count, p->x, p->y, p->has_relu);
}

/* All inputs get dy, before the relu if there is one. If several are the same layer, the later dy
 * are added to the first. */
static enum sl_status backward_data(const struct sl__layer *layer, struct sl__pass *p) {
  enum sl_status status = SL_OK;
  bool both = p->dx[0] && p->dx[1] && p->dx[0] != p->dx[1] && p->add_dx[0] == p->add_dx[1];
  if (both && layer->input_count == 2 && p->has_relu) {
    p->launch.accumulate = p->add_dx[0];
    return sl__add_relu_backward(p->context, &p->launch, p->y, p->dy, p->dx[0], p->dx[1]);
  }
  for (int i = 0; i < layer->input_count && status == SL_OK; i++) {
    if (!p->dx[i]) continue;
    p->launch.accumulate = p->add_dx[i] || sl__is_repeated(layer, i);
    if (sl__is_broadcast(layer, i)) {
      status = sl__multiply_broadcast(p->context, &p->launch, 1, &p->dy, p->dx[i]);
      continue;
    }
    status = p->has_relu ? sl__activation_backward(p->context, &p->launch, p->y, p->dy, p->dx[i],
                                                   SL_ACTIVATION_RELU)
                         : sl__axpy(p->context, &p->launch, 1.0f, p->dy, p->dx[i]);
  }
  return status;
}

static const char *onnx_write(const struct sl__layer *layer, struct sl__onnx_writer *w) {
  const char *names[layer->input_count + 1];
  for (int i = 0; i < layer->input_count; i++) names[i] = sl__onnx_broadcast_input(w, i);
  names[layer->input_count] = NULL;
  return sl__onnx_node(w, NULL, layer->input_count == 2 ? "Add" : "Sum", names, NULL);
}

const struct sl__layer_kind sl__add_kind = {
    .name = "add",
    .about = "The sum of 2 or more inputs, the others broadcast to the first: [...] -> its shape",
    .keys = "",
    .options_size = sizeof(struct sl_add_options),
    .takes_relu = true,
    .infer = infer,
    .forward = forward,
    .backward_data = backward_data,
    .onnx_write = onnx_write};

enum sl_status sl_add(struct sl_model *model, const char *name,
                      const struct sl_add_options *options) {
  return sl__layer_append(model, name, &sl__add_kind, options);
}
