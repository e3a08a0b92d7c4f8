/* The opposite order along an axis: time backward, for the second direction of a recurrent network
 * (Schuster, Paliwal 1997). */
#include "nn/onnx_graph.h"

static int axis_of(const struct sl__layer *layer) {
  return ((const struct sl_flip_options *)layer->options)->axis;
}

static enum sl_status infer(struct sl__layer *layer) {
  enum sl_status status = sl__input_alone(layer);
  if (status != SL_OK) return status;
  if (axis_of(layer) < 0 || axis_of(layer) >= layer->in[0].ndim)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT, "axis is %d; its input has %d axes, from 0",
                          axis_of(layer), layer->in[0].ndim);
  layer->out = layer->in[0];
  layer->over_time = axis_of(layer) > 0;
  return SL_OK;
}

static enum sl_status forward(const struct sl__layer *layer, struct sl__pass *p) {
  return sl__flip(p->context, &p->launch, p->x[0], p->y, axis_of(layer) + 1);
}

static enum sl_status backward_data(const struct sl__layer *layer, struct sl__pass *p) {
  p->launch.accumulate = p->add_dx[0];
  return sl__flip(p->context, &p->launch, p->dy, p->dx[0], axis_of(layer) + 1);
}

/* A slice from the last value to the one before the first, by steps of -1. */
static const char *onnx_write(const struct sl__layer *layer, struct sl__onnx_writer *w) {
  const int64_t first = -1, end = INT32_MIN, axis = axis_of(layer) + 1, step = -1;
  const char *x = sl__onnx_input(w, 0), *starts = sl__onnx_wholes(w, "starts", &first, 1),
             *ends = sl__onnx_wholes(w, "ends", &end, 1),
             *axes = sl__onnx_wholes(w, "axes", &axis, 1),
             *steps = sl__onnx_wholes(w, "steps", &step, 1);
  return sl__onnx_node(w, NULL, "Slice", SL__ONNX_NAMES(x, starts, ends, axes, steps), NULL);
}

static const struct sl_field fields[] = {SL_FIELD(sl_flip_options, INT, axis), {0}};

const struct sl__layer_kind sl__flip_kind = {
    .name = "flip",
    .about = "The opposite order along an axis: [...] -> the same shape",
    .keys = "axis: from 0, without the batch's; 0\n",
    .options_size = sizeof(struct sl_flip_options),
    .fields = fields,
    .infer = infer,
    .forward = forward,
    .backward_data = backward_data,
    .onnx_write = onnx_write};

enum sl_status sl_flip(struct sl_model *model, const char *name,
                       const struct sl_flip_options *options) {
  return sl__layer_append(model, name, &sl__flip_kind, options);
}
