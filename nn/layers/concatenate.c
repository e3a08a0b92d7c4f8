/* Concatenation of layers' outputs along an axis: skip connections (Ronneberger et al., arXiv
 * 1505.04597). */
#include <stdio.h>

#include "nn/onnx_graph.h"

static int axis_of(const struct sl__layer *layer) {
  return ((const struct sl_concatenate_options *)layer->options)->axis;
}

static bool is_flat(const struct sl__layer *layer) {
  return ((const struct sl_concatenate_options *)layer->options)->flat;
}

static enum sl_status infer_flat(struct sl__layer *layer) {
  if (axis_of(layer))
    return sl__layer_fail(layer, SL_BAD_ARGUMENT, "axis is %d; a flat one has axis 0",
                          axis_of(layer));
  layer->out = SL_SHAPE(0);
  for (int i = 0; i < layer->input_count; i++) layer->out.dim[0] += sl_shape_count(&layer->in[i]);
  return SL_OK;
}

static enum sl_status infer(struct sl__layer *layer) {
  int axis = axis_of(layer);
  char first[96], other[96];
  if (is_flat(layer)) return infer_flat(layer);
  if (axis < 0 || axis >= layer->in[0].ndim)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT, "axis is %d; its inputs have %d axes, from 0",
                          axis, layer->in[0].ndim);
  layer->out = layer->in[0];
  for (int i = 1; i < layer->input_count; i++) {
    struct sl_shape alike = layer->in[i];
    if (alike.ndim > axis) alike.dim[axis] = layer->in[0].dim[axis];
    if (!sl_shape_equal(&alike, &layer->in[0]))
      return sl__layer_fail(layer, SL_BAD_SHAPE,
                            "its inputs may differ along axis %d only; they are %s and %s", axis,
                            sl_shape_text(&layer->in[0], first, sizeof first),
                            sl_shape_text(&layer->in[i], other, sizeof other));
    layer->out.dim[axis] += layer->in[i].dim[axis];
  }
  layer->over_time = axis > 0;
  return SL_OK;
}

static enum sl_status forward(const struct sl__layer *layer, struct sl__pass *p) {
  if (is_flat(layer))
    return sl__columns_join(p->context, &p->launch, layer->input_count, p->x, p->y);
  return sl__concatenate(p->context, &p->launch, layer->input_count, p->x, p->y,
                         axis_of(layer) + 1);
}

static enum sl_status backward_data(const struct sl__layer *layer, struct sl__pass *p) {
  enum sl_status status = SL_OK;
  bool flat = is_flat(layer);
  int axis = axis_of(layer);
  int64_t first = 0;
  for (int i = 0; i < layer->input_count && status == SL_OK; i++) {
    p->launch.accumulate = p->add_dx[i] || sl__is_repeated(layer, i);
    if (p->dx[i] && flat) status = sl__columns(p->context, &p->launch, p->dy, p->dx[i], first);
    if (p->dx[i] && !flat)
      status = sl__slice(p->context, &p->launch, p->dy, p->dx[i], axis + 1, first);
    first += flat ? sl_shape_count(&layer->in[i]) : p->x[i]->shape.dim[axis + 1];
  }
  return status;
}

static const char *onnx_write(const struct sl__layer *layer, struct sl__onnx_writer *w) {
  const char *names[layer->input_count + 1];
  char part[24];
  names[layer->input_count] = NULL;
  for (int i = 0; i < layer->input_count; i++) {
    names[i] = sl__onnx_input(w, i);
    if (!is_flat(layer) || layer->in[i].ndim == 1) continue;
    snprintf(part, sizeof part, "flatten%d", i);
    names[i] = sl__onnx_node(w, part, "Flatten", SL__ONNX_NAMES(names[i]),
                             SL__ONNX_ATTRIBUTES(SL__ONNX_WHOLE("axis", 1)));
  }
  return sl__onnx_node(w, NULL, "Concat", names,
                       SL__ONNX_ATTRIBUTES(SL__ONNX_WHOLE("axis", axis_of(layer) + 1)));
}

static const struct sl_field fields[] = {
    SL_FIELD(sl_concatenate_options, INT, axis), SL_FIELD(sl_concatenate_options, BOOL, flat), {0}};

const struct sl__layer_kind sl__concatenate_kind = {
    .name = "concatenate",
    .about = "1 or more inputs, one after the other along an axis",
    .keys =
        "axis: from 0, without the batch's; 0\n"
        "flat: all values one behind the other, of any shapes; false\n",
    .options_size = sizeof(struct sl_concatenate_options),
    .fields = fields,
    .infer = infer,
    .forward = forward,
    .backward_data = backward_data,
    .onnx_write = onnx_write};

enum sl_status sl_concatenate(struct sl_model *model, const char *name,
                              const struct sl_concatenate_options *options) {
  return sl__layer_append(model, name, &sl__concatenate_kind, options);
}
