/* Product of layers' outputs, value by value: gates and attention by masks. */
#include <stdio.h>

#include "nn/onnx_graph.h"

static enum sl_status infer(struct sl__layer *layer) {
  enum sl_status status = sl__inputs_broadcast(layer);
  layer->out = layer->in[0];
  layer->over_time = !layer->broadcasts;
  layer->flops = (double)sl_shape_count(&layer->out) * (layer->input_count - 1);
  return status;
}

static enum sl_status forward(const struct sl__layer *layer, struct sl__pass *p) {
  return (layer->broadcasts ? sl__multiply_broadcast : sl__multiply)(
      p->context, &p->launch, layer->input_count, p->x, p->y);
}

/* dx[i] (+)= dy times all other inputs; of an input that broadcasts, summed over its repetitions.
 */
static enum sl_status backward_data(const struct sl__layer *layer, struct sl__pass *p) {
  enum sl_status status = SL_OK;
  for (int i = 0; i < layer->input_count && status == SL_OK; i++) {
    struct sl__tensor *factors[layer->input_count];
    int count = 1;
    factors[0] = p->dy;
    if (!p->dx[i]) continue;
    for (int k = 0; k < layer->input_count; k++)
      if (k != i) factors[count++] = p->x[k];
    p->launch.accumulate = p->add_dx[i] || sl__is_repeated(layer, i);
    status = (layer->broadcasts ? sl__multiply_broadcast : sl__multiply)(p->context, &p->launch,
                                                                         count, factors, p->dx[i]);
  }
  return status;
}

/* ONNX's Mul has two factors; the last node has the layer's name. */
static const char *onnx_write(const struct sl__layer *layer, struct sl__onnx_writer *w) {
  const char *factors[layer->input_count];
  factors[0] = sl__onnx_broadcast_input(w, 0);
  for (int i = 1; i < layer->input_count; i++) factors[i] = sl__onnx_broadcast_input(w, i);
  const char *product = factors[0];
  for (int i = 1; i < layer->input_count; i++) {
    char part[16];
    snprintf(part, sizeof part, "%d", i);
    product = sl__onnx_node(w, i == layer->input_count - 1 ? NULL : part, "Mul",
                            SL__ONNX_NAMES(product, factors[i]), NULL);
  }
  return product;
}

const struct sl__layer_kind sl__multiply_kind = {
    .name = "multiply",
    .about =
        "The product of 2 or more inputs, the others broadcast to the first: [...] -> its shape",
    .keys = "",
    .options_size = sizeof(struct sl_multiply_options),
    .infer = infer,
    .forward = forward,
    .backward_data = backward_data,
    .onnx_write = onnx_write};

enum sl_status sl_multiply(struct sl_model *model, const char *name,
                           const struct sl_multiply_options *options) {
  return sl__layer_append(model, name, &sl__multiply_kind, options);
}
