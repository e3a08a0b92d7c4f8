/* Learned positions: y[t] = x[t] + weight[t]. */
#include "nn/onnx_graph.h"

static enum sl_status infer(struct sl__layer *layer) {
  const struct sl_position_options *o = layer->options;
  const struct sl_shape *x = &layer->in[0];
  char text[96];
  enum sl_status status = sl__input_alone(layer);
  if (status != SL_OK) return status;
  if (x->ndim != 2)
    return sl__layer_fail(layer, SL_BAD_SHAPE, "takes [T, C], not %s",
                          sl_shape_text(x, text, sizeof text));
  if (o->length < 0 || (o->length && o->length < x->dim[0]))
    return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                          "length is %lld, but a sample has %lld time steps; set length to that, "
                          "or to the longest sequence",
                          (long long)o->length, (long long)x->dim[0]);
  layer->out = *x;
  layer->over_time = true;
  layer->flops = (double)sl_shape_count(x);
  int64_t length = o->length ? o->length : x->dim[0];
  struct sl__param *weight = sl__block_add(&layer->params, "weight", &SL_SHAPE(length, x->dim[1]));
  weight->fan_in = x->dim[1]; /* fans of a [length, C] matrix as PyTorch counts them */
  weight->fan_out = length;
  return SL_OK;
}

static enum sl_status forward(const struct sl__layer *layer, struct sl__pass *p) {
  int64_t length = layer->params.part[0].shape.dim[0], end = p->position + p->x[0]->shape.dim[1];
  if (end > length)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                          "the sequence has %lld time steps or more, but the table of positions "
                          "has %lld: take shorter sequences, or a model with a larger length",
                          (long long)end, (long long)length);
  return sl__position_forward(p->context, &p->launch, p->x[0], p->param, p->y, p->position);
}

static enum sl_status backward_data(const struct sl__layer *layer, struct sl__pass *p) {
  (void)layer;
  p->launch.accumulate = p->add_dx[0];
  return sl__axpy(p->context, &p->launch, 1.0f, p->dy, p->dx[0]);
}

static enum sl_status backward_weight(const struct sl__layer *layer, struct sl__pass *p) {
  (void)layer;
  p->launch.accumulate = p->add_grad;
  return sl__position_backward_weight(p->context, &p->launch, p->dy, p->grad, p->position);
}

/* The rows of a whole sample; the file keeps the whole table. */
static const char *onnx_write(const struct sl__layer *layer, struct sl__onnx_writer *w) {
  const char *rows = sl__onnx_param(w, "weight"), *x = sl__onnx_input(w, 0);
  int64_t steps = layer->in[0].dim[0], zero = 0;
  if (steps < layer->params.part[0].shape.dim[0])
    rows = sl__onnx_node(
        w, "rows", "Slice",
        SL__ONNX_NAMES(rows, sl__onnx_wholes(w, "first", &zero, 1),
                       sl__onnx_wholes(w, "end", &steps, 1), sl__onnx_wholes(w, "axis", &zero, 1)),
        NULL);
  return sl__onnx_node(w, NULL, "Add", SL__ONNX_NAMES(x, rows), NULL);
}

static const struct sl_field fields[] = {SL_FIELD(sl_position_options, INT64, length), {0}};

const struct sl__layer_kind sl__position_kind = {
    .name = "position",
    .about = "Adds a row of a learned table to each time step: [T, C] -> the same shape",
    .keys = "length: rows of the table, the longest sequence; T\n",
    .options_size = sizeof(struct sl_position_options),
    .fields = fields,
    .infer = infer,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
    .onnx_write = onnx_write};

enum sl_status sl_position(struct sl_model *model, const char *name,
                           const struct sl_position_options *options) {
  return sl__layer_append(model, name, &sl__position_kind, options);
}
