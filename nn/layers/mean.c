/* The mean over axes of a sample; over a plane it is the global average (Lin et al., arXiv
 * 1312.4400). */
#include "nn/layers/axes.h"
#include "nn/onnx_graph.h"

/* The axes of the tensors, whose first one is the batch's. No axes: all but a sample's first. */
static uint32_t mask_of(const struct sl__layer *layer) {
  const struct sl_mean_options *o = layer->options;
  uint32_t mask = o->axes.ndim ? 0 : (1u << layer->in[0].ndim) - 2;
  for (int i = 0; i < o->axes.ndim; i++) mask |= 1u << o->axes.dim[i];
  return mask << 1;
}

static enum sl_status infer(struct sl__layer *layer) {
  const struct sl_mean_options *o = layer->options;
  uint32_t mask;
  enum sl_status status;
  SL__TRY(sl__input_alone(layer));
  SL__TRY(sl__axes_mask(layer, &o->axes, &mask));
  mask = mask_of(layer);
  if (!mask) return sl__layer_fail(layer, SL_BAD_ARGUMENT, "its input has one axis; name it");
  layer->out = (struct sl_shape){0};
  for (int d = 0; d < layer->in[0].ndim; d++) {
    bool stays = !(mask >> (d + 1) & 1);
    if (stays || o->keep) layer->out.dim[layer->out.ndim++] = stays ? layer->in[0].dim[d] : 1;
  }
  if (!layer->out.ndim) layer->out = SL_SHAPE(1);
  layer->over_time = !(mask & 2);
  layer->flops = (double)sl_shape_count(&layer->in[0]);
out:
  return status;
}

static enum sl_status forward(const struct sl__layer *layer, struct sl__pass *p) {
  return sl__mean(p->context, &p->launch, p->x[0], p->y, mask_of(layer));
}

static enum sl_status backward_data(const struct sl__layer *layer, struct sl__pass *p) {
  double terms = (double)sl_shape_count(&p->dx[0]->shape) / (double)sl_shape_count(&p->dy->shape);
  p->launch.accumulate = p->add_dx[0];
  return sl__broadcast(p->context, &p->launch, (float)(1 / terms), p->dy, p->dx[0], mask_of(layer));
}

static const char *onnx_write(const struct sl__layer *layer, struct sl__onnx_writer *w) {
  const struct sl_mean_options *o = layer->options;
  int64_t axes[SL_MAX_DIMS];
  int count = 0;
  for (int d = 1; d <= layer->in[0].ndim; d++)
    if (mask_of(layer) >> d & 1) axes[count++] = d;
  bool is_one = count == layer->in[0].ndim && !o->keep; /* ONNX would leave no axis */
  const char *x = sl__onnx_input(w, 0);
  const char *y = sl__onnx_node(
      w, is_one ? "mean" : NULL, "ReduceMean", SL__ONNX_NAMES(x),
      SL__ONNX_ATTRIBUTES({.name = "axes", .type = SL__ONNX_INTS, .ints = axes, .count = count},
                          SL__ONNX_WHOLE("keepdims", o->keep)));
  if (!is_one) return y;
  const char *axis = sl__onnx_wholes(w, "axis", (const int64_t[]){1}, 1);
  return sl__onnx_node(w, NULL, "Unsqueeze", SL__ONNX_NAMES(y, axis), NULL);
}

static const struct sl_field fields[] = {
    SL_FIELD(sl_mean_options, SHAPE, axes), SL_FIELD(sl_mean_options, BOOL, keep), {0}};

const struct sl__layer_kind sl__mean_kind = {
    .name = "mean",
    .about = "The mean over axes: [C, ...] -> [C]",
    .keys =
        "axes: a list, from 0, without the batch's; all but the first\n"
        "keep: the axes stay, of size 1; false\n",
    .options_size = sizeof(struct sl_mean_options),
    .fields = fields,
    .infer = infer,
    .forward = forward,
    .backward_data = backward_data,
    .onnx_write = onnx_write};

enum sl_status sl_mean(struct sl_model *model, const char *name,
                       const struct sl_mean_options *options) {
  return sl__layer_append(model, name, &sl__mean_kind, options);
}
