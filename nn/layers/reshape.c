/* The values of a sample in another shape. They are copied: each layer has an output of its own. */
#include <string.h>

#include "nn/onnx_graph.h"

/* Fills in the dimension that is 0. */
static enum sl_status find_shape(const struct sl__layer *layer, struct sl_shape *shape) {
  int64_t values = sl_shape_count(&layer->in[0]);
  char from[96], to[96];
  int open = -1;
  for (int d = 0; d < shape->ndim; d++)
    if (!shape->dim[d] && open < 0) {
      open = d;
      shape->dim[d] = 1;
    }
  int64_t known = shape->ndim > 0 && shape->ndim < SL_MAX_DIMS ? sl_shape_count(shape) : 0;
  if (open >= 0 && known > 0 && values % known == 0) {
    shape->dim[open] = values / known;
    known = values;
  }
  for (int d = 0; d < shape->ndim; d++)
    if (shape->dim[d] < 1) known = 0;
  if (known == values) return SL_OK;
  return sl__layer_fail(
      layer, SL_BAD_SHAPE, "%s cannot become %s: %lld values, 1 to %d axes",
      sl_shape_text(&layer->in[0], from, sizeof from),
      sl_shape_text(&((const struct sl_reshape_options *)layer->options)->shape, to, sizeof to),
      (long long)values, SL_MAX_DIMS - 1);
}

static enum sl_status infer(struct sl__layer *layer) {
  const struct sl_reshape_options *o = layer->options;
  enum sl_status status = sl__input_alone(layer);
  if (status != SL_OK) return status;
  layer->out = o->shape.ndim ? o->shape : SL_SHAPE(0);
  status = find_shape(layer, &layer->out);
  /* each step of the first axis keeps its values */
  layer->over_time = layer->out.dim[0] == layer->in[0].dim[0];
  return status;
}

static enum sl_status forward(const struct sl__layer *layer, struct sl__pass *p) {
  (void)layer;
  return sl__axpy(p->context, &p->launch, 1.0f, p->x[0], p->y);
}

static enum sl_status backward_data(const struct sl__layer *layer, struct sl__pass *p) {
  (void)layer;
  p->launch.accumulate = p->add_dx[0];
  return sl__axpy(p->context, &p->launch, 1.0f, p->dy, p->dx[0]);
}

/* 0 keeps the batch's size. */
static const char *onnx_write(const struct sl__layer *layer, struct sl__onnx_writer *w) {
  int64_t dim[1 + SL_MAX_DIMS] = {0};
  memcpy(dim + 1, layer->out.dim, sizeof layer->out.dim);
  const char *x = sl__onnx_input(w, 0),
             *shape = sl__onnx_wholes(w, "shape", dim, layer->out.ndim + 1);
  return sl__onnx_node(w, NULL, "Reshape", SL__ONNX_NAMES(x, shape), NULL);
}

static const struct sl_field fields[] = {SL_FIELD(sl_reshape_options, SHAPE, shape), {0}};

const struct sl__layer_kind sl__reshape_kind = {
    .name = "reshape",
    .about = "The same values in another shape: [...] -> [...]",
    .keys = "shape: a list; a 0 is what the others leave; flat\n",
    .options_size = sizeof(struct sl_reshape_options),
    .fields = fields,
    .infer = infer,
    .forward = forward,
    .backward_data = backward_data,
    .onnx_write = onnx_write};

enum sl_status sl_reshape(struct sl_model *model, const char *name,
                          const struct sl_reshape_options *options) {
  return sl__layer_append(model, name, &sl__reshape_kind, options);
}
