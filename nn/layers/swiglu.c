/* Gated linear unit with SiLU: y = silu(gate) up. */
#include "nn/onnx_graph.h"

static enum sl_status infer(struct sl__layer *layer) {
  const struct sl_shape *x = &layer->in[0];
  enum sl_status status = sl__input_alone(layer);
  if (status != SL_OK) return status;
  int64_t last = x->dim[x->ndim - 1];
  if (last % 2)
    return sl__layer_fail(layer, SL_BAD_SHAPE,
                          "takes rows of gates, then as many values, not rows of %lld; the layer "
                          "before needs an even number of features",
                          (long long)last);
  layer->out = *x;
  layer->out.dim[x->ndim - 1] = last / 2;
  layer->over_time = x->ndim > 1;
  layer->flops = 2.0 * (double)sl_shape_count(&layer->out);
  return SL_OK;
}

static enum sl_status forward(const struct sl__layer *layer, struct sl__pass *p) {
  (void)layer;
  return sl__swiglu_forward(p->context, &p->launch, p->x[0], p->y);
}

static enum sl_status backward_data(const struct sl__layer *layer, struct sl__pass *p) {
  (void)layer;
  p->launch.accumulate = p->add_dx[0];
  return sl__swiglu_backward(p->context, &p->launch, p->x[0], p->dy, p->dx[0]);
}

static const char *onnx_write(const struct sl__layer *layer, struct sl__onnx_writer *w) {
  const char *half[2], *x = sl__onnx_input(w, 0);
  (void)layer;
  sl__onnx_node_outputs(w, "split", "Split", SL__ONNX_NAMES(x),
                        SL__ONNX_ATTRIBUTES(SL__ONNX_WHOLE("axis", -1)), 2, half);
  const char *sigmoid = sl__onnx_node(w, "sigmoid", "Sigmoid", SL__ONNX_NAMES(half[0]), NULL);
  const char *silu = sl__onnx_node(w, "silu", "Mul", SL__ONNX_NAMES(half[0], sigmoid), NULL);
  return sl__onnx_node(w, NULL, "Mul", SL__ONNX_NAMES(silu, half[1]), NULL);
}

const struct sl__layer_kind sl__swiglu_kind = {
    .name = "swiglu",
    .about = "SwiGLU: silu(gate) times up, gates before values up: [T..., 2 F] -> [T..., F]",
    .keys = "",
    .options_size = sizeof(struct sl_swiglu_options),
    .infer = infer,
    .forward = forward,
    .backward_data = backward_data,
    .onnx_write = onnx_write};

enum sl_status sl_swiglu(struct sl_model *model, const char *name,
                         const struct sl_swiglu_options *options) {
  return sl__layer_append(model, name, &sl__swiglu_kind,
                          options ? options : &(struct sl_swiglu_options){0});
}
