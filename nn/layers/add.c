/* Addition of two layers' outputs: the end of a residual edge (He et al., arXiv 1512.03385). */
#include "nn/onnx_graph.h"

static enum sl_status infer(struct sl__layer *layer) {
  char a[96], b[96];
  if (layer->input_count != 2)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                          "adds two inputs, not %d; name both, as in \"bn2,shortcut\"",
                          layer->input_count);
  if (!sl_shape_equal(&layer->in[0], &layer->in[1]))
    return sl__layer_fail(layer, SL_BAD_SHAPE, "its inputs have different shapes, %s and %s",
                          sl_shape_text(&layer->in[0], a, sizeof a),
                          sl_shape_text(&layer->in[1], b, sizeof b));
  layer->out = layer->in[0];
  layer->over_time = true;
  layer->flops = (double)sl_shape_count(&layer->out);
  return SL_OK;
}

static enum sl_status forward(const struct sl__layer *layer, struct sl__pass *p) {
  (void)layer;
  return sl__add(p->context, &p->launch, p->x[0], p->x[1], p->y, p->has_relu);
}

/* Both inputs get dy, before the relu if there is one. If they are the same layer, the second dy is
 * added to the first. */
static enum sl_status backward_data(const struct sl__layer *layer, struct sl__pass *p) {
  enum sl_status status = SL_OK;
  bool both = p->dx[0] && p->dx[1] && p->dx[0] != p->dx[1] && p->add_dx[0] == p->add_dx[1];
  if (both && p->has_relu) {
    p->launch.accumulate = p->add_dx[0];
    return sl__add_relu_backward(p->context, &p->launch, p->y, p->dy, p->dx[0], p->dx[1]);
  }
  for (int i = 0; i < layer->input_count && status == SL_OK; i++) {
    if (!p->dx[i]) continue;
    p->launch.accumulate = p->add_dx[i] || (i == 1 && p->dx[0] == p->dx[1]);
    status = p->has_relu ? sl__activation_backward(p->context, &p->launch, p->y, p->dy, p->dx[i],
                                                   SL_ACTIVATION_RELU)
                         : sl__axpy(p->context, &p->launch, 1.0f, p->dy, p->dx[i]);
  }
  return status;
}

static const char *onnx_write(const struct sl__layer *layer, struct sl__onnx_writer *w) {
  (void)layer;
  const char *a = sl__onnx_input(w, 0), *b = sl__onnx_input(w, 1);
  return sl__onnx_node(w, NULL, "Add", SL__ONNX_NAMES(a, b), NULL);
}

const struct sl__layer_kind sl__add_kind = {.name = "add",
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
