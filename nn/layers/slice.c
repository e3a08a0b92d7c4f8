/* A range along an axis of a sample; a field of a model's input is one with a shape of its own. */
#include <string.h>

#include "nn/onnx_graph.h"

/* Values of the input before the range of axis 0. */
static int64_t first_value(const struct sl__layer *layer) {
  const struct sl_slice_options *o = layer->options;
  return o->first * (sl_shape_count(&layer->in[0]) / layer->in[0].dim[0]);
}

/* Gives the range the shape of the options. */
static enum sl_status take_shape(struct sl__layer *layer) {
  const struct sl_slice_options *o = layer->options;
  char from[96], to[96];
  bool fits = o->shape.ndim < SL_MAX_DIMS;
  if (o->axis)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                          "axis is %d; only a range of axis 0 gets another shape", o->axis);
  for (int d = 0; d < o->shape.ndim; d++) fits &= o->shape.dim[d] >= 1;
  if (!fits || sl_shape_count(&o->shape) != sl_shape_count(&layer->out))
    return sl__layer_fail(layer, SL_BAD_SHAPE, "%s cannot become %s: %lld values, 1 to %d axes",
                          sl_shape_text(&layer->out, from, sizeof from),
                          sl_shape_text(&o->shape, to, sizeof to),
                          (long long)sl_shape_count(&layer->out), SL_MAX_DIMS - 1);
  layer->out = o->shape;
  return SL_OK;
}

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
  return o->shape.ndim ? take_shape(layer) : SL_OK;
}

static enum sl_status forward(const struct sl__layer *layer, struct sl__pass *p) {
  const struct sl_slice_options *o = layer->options;
  if (o->shape.ndim) return sl__columns(p->context, &p->launch, p->x[0], p->y, first_value(layer));
  return sl__slice(p->context, &p->launch, p->x[0], p->y, o->axis + 1, o->first);
}

static enum sl_status backward_data(const struct sl__layer *layer, struct sl__pass *p) {
  const struct sl_slice_options *o = layer->options;
  p->launch.accumulate = p->add_dx[0];
  if (o->shape.ndim)
    return sl__columns_backward(p->context, &p->launch, p->dy, p->dx[0], first_value(layer));
  return sl__slice_backward(p->context, &p->launch, p->dy, p->dx[0], o->axis + 1, o->first);
}

/* A field is an input of the graph. 0 keeps the batch's size. */
static const char *onnx_write(const struct sl__layer *layer, struct sl__onnx_writer *w) {
  const struct sl_slice_options *o = layer->options;
  if (sl__is_input_field(w->model, layer)) return layer->name;
  const int64_t first = o->first, axis = o->axis + 1,
                end = o->count ? o->first + o->count : layer->in[0].dim[o->axis];
  const char *x = sl__onnx_input(w, 0), *starts = sl__onnx_wholes(w, "starts", &first, 1),
             *ends = sl__onnx_wholes(w, "ends", &end, 1),
             *axes = sl__onnx_wholes(w, "axes", &axis, 1);
  const char *part = o->shape.ndim ? "slice" : NULL, *range, *shape;
  range = sl__onnx_node(w, part, "Slice", SL__ONNX_NAMES(x, starts, ends, axes), NULL);
  if (!part) return range;
  int64_t dim[1 + SL_MAX_DIMS] = {0};
  memcpy(dim + 1, layer->out.dim, sizeof layer->out.dim);
  shape = sl__onnx_wholes(w, "shape", dim, layer->out.ndim + 1);
  return sl__onnx_node(w, NULL, "Reshape", SL__ONNX_NAMES(range, shape), NULL);
}

static const struct sl_field fields[] = {SL_FIELD(sl_slice_options, INT, axis),
                                         SL_FIELD(sl_slice_options, INT64, first),
                                         SL_FIELD(sl_slice_options, INT64, count),
                                         SL_FIELD(sl_slice_options, SHAPE, shape),
                                         {0}};

const struct sl__layer_kind sl__slice_kind = {
    .name = "slice",
    .about = "A range along an axis; of a recurrent layer's T steps the last one: \"first\": T - 1",
    .keys =
        "axis: from 0, without the batch's; 0\n"
        "first: 0\n"
        "count: up to the end\n"
        "shape: of the output; as it is\n",
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
