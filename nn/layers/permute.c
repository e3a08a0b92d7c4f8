/* A sample's axes in another order. */
#include "nn/layers/axes.h"
#include "nn/onnx_graph.h"

/* Axis d of the output is the input's axis axes[d]; the batch's axis stays the first. */
static void find_axes(const struct sl__layer *layer, int axes[SL_MAX_DIMS]) {
  const struct sl_shape *given = &((const struct sl_permute_options *)layer->options)->axes;
  int ndim = layer->in[0].ndim;
  axes[0] = 0;
  for (int d = 0; d < ndim; d++)
    axes[d + 1] = 1 + (given->ndim ? (int)given->dim[d] : ndim - 1 - d);
}

static enum sl_status infer(struct sl__layer *layer) {
  const struct sl_shape *given = &((const struct sl_permute_options *)layer->options)->axes;
  int axes[SL_MAX_DIMS];
  uint32_t mask;
  enum sl_status status;
  SL__TRY(sl__input_alone(layer));
  SL__TRY(sl__axes_mask(layer, given, &mask));
  if (given->ndim && given->ndim != layer->in[0].ndim)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT, "axes are %d; its input has %d", given->ndim,
                          layer->in[0].ndim);
  find_axes(layer, axes);
  layer->out = layer->in[0];
  for (int d = 0; d < layer->out.ndim; d++) layer->out.dim[d] = layer->in[0].dim[axes[d + 1] - 1];
  layer->over_time = axes[1] == 1;
out:
  return status;
}

static enum sl_status forward(const struct sl__layer *layer, struct sl__pass *p) {
  int axes[SL_MAX_DIMS];
  find_axes(layer, axes);
  return sl__permute(p->context, &p->launch, p->x[0], p->y, axes);
}

static enum sl_status backward_data(const struct sl__layer *layer, struct sl__pass *p) {
  int axes[SL_MAX_DIMS], back[SL_MAX_DIMS];
  find_axes(layer, axes);
  for (int d = 0; d <= layer->in[0].ndim; d++) back[axes[d]] = d;
  p->launch.accumulate = p->add_dx[0];
  return sl__permute(p->context, &p->launch, p->dy, p->dx[0], back);
}

static const char *onnx_write(const struct sl__layer *layer, struct sl__onnx_writer *w) {
  int axes[SL_MAX_DIMS];
  int64_t perm[SL_MAX_DIMS];
  const char *x = sl__onnx_input(w, 0);
  find_axes(layer, axes);
  for (int d = 0; d <= layer->in[0].ndim; d++) perm[d] = axes[d];
  return sl__onnx_node(
      w, NULL, "Transpose", SL__ONNX_NAMES(x),
      SL__ONNX_ATTRIBUTES(
          {.name = "perm", .type = SL__ONNX_INTS, .ints = perm, .count = layer->in[0].ndim + 1}));
}

static const struct sl_field fields[] = {SL_FIELD(sl_permute_options, SHAPE, axes), {0}};

const struct sl__layer_kind sl__permute_kind = {
    .name = "permute",
    .about = "Axes in another order: [A, B, C] -> [C, B, A]",
    .keys = "axes: a list, [1, 2, 0]; the opposite order\n",
    .options_size = sizeof(struct sl_permute_options),
    .fields = fields,
    .infer = infer,
    .forward = forward,
    .backward_data = backward_data,
    .onnx_write = onnx_write};

enum sl_status sl_permute(struct sl_model *model, const char *name,
                          const struct sl_permute_options *options) {
  return sl__layer_append(model, name, &sl__permute_kind, options);
}
