/* A range along an axis of a sample. */
#include "nn/onnx_graph.h"

static enum sl_status infer(struct sl__layer *layer) {
  const struct sl_slice_options *o = layer->options;
  enum sl_status status = sl__input_alone(layer);
  if (status != SL_OK) return status;
  if (o->axis < 0 || o->axis >= layer->in[0].ndim)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT, "axis is %d; its input has %d axes, from 0",
                          o->axis, layer->in[0].ndim);
  int64_t size = layer->in[0].dim[o->axis];
  if (o->first < 0 || o->first >= size || o->count < 0 || o->count > size - o->first)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                          "%lld values from %lld on do not lie in an axis of size %lld",
                          (long long)o->count, (long long)o->first, (long long)size);
  layer->out = layer->in[0];
  layer->out.dim[o->axis] = o->count ? o->count : size - o->first;
  layer->over_time = o->axis > 0;
  return SL_OK;
}

static enum sl_status forward(const struct sl__layer *layer, struct sl__pass *p) {
  const struct sl_slice_options *o = layer->options;
  return sl__slice(p->context, &p->launch, p->x[0], p->y, o->axis + 1, o->first);
}

static enum sl_status backward_data(const struct sl__layer *layer, struct sl__pass *p) {
  const struct sl_slice_options *o = layer->options;
  p->launch.accumulate = p->add_dx[0];
  return sl__slice_backward(p->context, &p->launch, p->dy, p->dx[0], o->axis + 1, o->first);
}

static const char *onnx_write(const struct sl__layer *layer, struct sl__onnx_writer *w) {
  const struct sl_slice_options *o = layer->options;
  const int64_t first = o->first, end = o->first + layer->out.dim[o->axis], axis = o->axis + 1;
  const char *x = sl__onnx_input(w, 0), *starts = sl__onnx_wholes(w, "starts", &first, 1),
             *ends = sl__onnx_wholes(w, "ends", &end, 1),
             *axes = sl__onnx_wholes(w, "axes", &axis, 1);
  return sl__onnx_node(w, NULL, "Slice", SL__ONNX_NAMES(x, starts, ends, axes), NULL);
}

static const struct sl_field fields[] = {SL_FIELD(sl_slice_options, INT, axis),
                                         SL_FIELD(sl_slice_options, INT64, first),
                                         SL_FIELD(sl_slice_options, INT64, count),
                                         {0}};

const struct sl__layer_kind sl__slice_kind = {.name = "slice",
                                              .options_size = sizeof(struct sl_slice_options),
                                              .fields = fields,
                                              .infer = infer,
                                              .forward = forward,
                                              .backward_data = backward_data,
                                              .onnx_write = onnx_write};

enum sl_status sl_slice(struct sl_model *model, const char *name,
                        const struct sl_slice_options *options) {
  return sl__layer_append(model, name, &sl__slice_kind, options);
}
