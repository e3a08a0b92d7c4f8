/* Batch normalisation (Ioffe, Szegedy, arXiv 1502.03167) over the first axis of a sample. */
#include <math.h>

#include "nn/onnx_graph.h"

static float epsilon_of(const struct sl_batchnorm_options *o) {
  return o->epsilon != 0 ? o->epsilon : 1e-5f;
}

static float momentum_of(const struct sl_batchnorm_options *o) {
  return o->momentum != 0 ? o->momentum : 0.1f;
}

static enum sl_status check_options(const struct sl__layer *layer) {
  const struct sl_batchnorm_options *o = layer->options;
  enum sl_status status = sl__input_alone(layer);
  if (status != SL_OK) return status;
  if (!(epsilon_of(o) > 0 && epsilon_of(o) < HUGE_VALF))
    return sl__layer_fail(layer, SL_BAD_ARGUMENT, "epsilon is %g; it must be above 0 and finite",
                          (double)o->epsilon);
  if (!(momentum_of(o) > 0 && momentum_of(o) <= 1))
    return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                          "momentum is %g; it must be above 0 and at most 1", (double)o->momentum);
  return SL_OK;
}

static void add_part(struct sl__block *block, const char *suffix, int64_t channels, float fill) {
  struct sl__param *part = sl__block_add(block, suffix, &SL_SHAPE(channels));
  part->is_filled = true;
  part->fill = fill;
}

static enum sl_status infer(struct sl__layer *layer) {
  int64_t channels = layer->in[0].dim[0];
  enum sl_status status = check_options(layer);
  if (status != SL_OK) return status;
  layer->out = layer->in[0];
  /* mean: an addition a value; variance: three operations; scale and shift: two */
  layer->flops = 6.0 * (double)sl_shape_count(&layer->out);
  layer->saved = SL_SHAPE(4 * channels);
  add_part(&layer->params, "weight", channels, 1.0f);
  add_part(&layer->params, "bias", channels, 0.0f);
  layer->params.part[1].is_bias = true;
  add_part(&layer->buffers, "running_mean", channels, 0.0f);
  add_part(&layer->buffers, "running_var", channels, 1.0f);
  return SL_OK;
}

/* All slices of a batch update the running statistics in turn. With this momentum they together
 * forget as much of the past as one update by the whole batch. */
static float slice_momentum(float momentum, int slices) {
  return (float)(1.0 - pow(1.0 - (double)momentum, 1.0 / slices));
}

static enum sl_status forward_training(const struct sl__layer *layer, struct sl__pass *p) {
  const struct sl_batchnorm_options *o = layer->options;
  enum sl_status status;
  int64_t rows = p->x[0]->shape.dim[0];
  int64_t values = rows * (sl_shape_count(&layer->in[0]) / layer->in[0].dim[0]);
  if (values < 2)
    return sl__layer_fail(
        layer, SL_BAD_SHAPE,
        "a slice of one sample has one value a channel, and that has no variance; use "
        "a larger batch, fewer replicas or fewer microbatches");
  SL__TRY(sl__batchnorm_forward(p->context, &p->launch, p->x[0], p->param, p->y, p->saved,
                                epsilon_of(o), p->has_relu));
  SL__TRY(sl__batchnorm_running(p->context, &p->launch, p->saved, layer->buffers.tensor,
                                slice_momentum(momentum_of(o), p->slices), epsilon_of(o), values));
out:
  return status;
}

static enum sl_status forward(const struct sl__layer *layer, struct sl__pass *p) {
  enum sl_status status = SL_OK;
  if (p->training && !layer->is_frozen) return forward_training(layer, p);
  if (p->training && layer->needs_gradient)
    status = sl__batchnorm_take_running(p->context, &p->launch, layer->buffers.tensor, p->saved,
                                        epsilon_of(layer->options));
  if (status != SL_OK) return status;
  return sl__batchnorm_inference(p->context, &p->launch, p->x[0], p->param, layer->buffers.tensor,
                                 p->y, epsilon_of(layer->options), p->has_relu);
}

/* Fixed statistics pass no gradient: their sums stay 0. */
static enum sl_status backward_begin(const struct sl__layer *layer, struct sl__pass *p) {
  if (layer->is_frozen) return SL_OK;
  return sl__batchnorm_backward_sums(p->context, &p->launch, p->x[0], p->param, p->saved, p->dy,
                                     p->has_relu);
}

static enum sl_status backward_data(const struct sl__layer *layer, struct sl__pass *p) {
  (void)layer;
  p->launch.accumulate = p->add_dx[0];
  return sl__batchnorm_backward_data(p->context, &p->launch, p->x[0], p->param, p->saved, p->dy,
                                     p->dx[0], p->has_relu);
}

static enum sl_status backward_weight(const struct sl__layer *layer, struct sl__pass *p) {
  (void)layer;
  p->launch.accumulate = p->add_grad;
  return sl__batchnorm_backward_weight(p->context, &p->launch, p->saved, p->grad);
}

/* ONNX's momentum is the weight of the past. */
static const char *onnx_write(const struct sl__layer *layer, struct sl__onnx_writer *w) {
  const struct sl_batchnorm_options *o = layer->options;
  float kept = (float)(1.0 - (double)momentum_of(o));
  const char *x = sl__onnx_input(w, 0), *weight = sl__onnx_param(w, "weight"),
             *bias = sl__onnx_param(w, "bias"), *mean = sl__onnx_param(w, "running_mean"),
             *var = sl__onnx_param(w, "running_var");
  return sl__onnx_node(w, NULL, "BatchNormalization", SL__ONNX_NAMES(x, weight, bias, mean, var),
                       SL__ONNX_ATTRIBUTES(SL__ONNX_REAL("epsilon", epsilon_of(o)),
                                           SL__ONNX_REAL("momentum", kept)));
}

static const struct sl_field fields[] = {SL_FIELD(sl_batchnorm_options, FLOAT, epsilon),
                                         SL_FIELD(sl_batchnorm_options, FLOAT, momentum),
                                         {0}};

const struct sl__layer_kind sl__batchnorm_kind = {
    .name = "batchnorm",
    .about = "Batch normalisation over the first axis: [C, ...] -> the same shape",
    .keys =
        "epsilon: added to the variance; 1e-5\n"
        "momentum: weight of a batch in the running statistics; 0.1\n",
    .options_size = sizeof(struct sl_batchnorm_options),
    .fields = fields,
    .wide_params = true,
    .takes_relu = true,
    .infer = infer,
    .forward = forward,
    .backward_begin = backward_begin,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
    .onnx_write = onnx_write};

enum sl_status sl_batchnorm(struct sl_model *model, const char *name,
                            const struct sl_batchnorm_options *options) {
  return sl__layer_append(model, name, &sl__batchnorm_kind, options);
}
