/* Dense layer: y = act(x W^T + b). */
#include "nn/layers/activation.h"

static enum sl_status infer(struct sl__layer *layer) {
  const struct sl_dense_options *o = layer->options;
  const struct sl_shape *x = &layer->in[0];
  int64_t in = o->positions ? x->dim[x->ndim - 1] : sl_shape_count(x);
  enum sl_status status = sl__input_alone(layer);
  if (status != SL_OK) return status;
  if (o->features < 1)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT, "features is %lld; it must be at least 1",
                          (long long)o->features);
  layer->out = SL_SHAPE(o->features);
  layer->over_time = o->positions && x->ndim > 1;
  if (o->positions) {
    layer->out = *x;
    layer->out.dim[x->ndim - 1] = o->features;
  }
  if (sl__activation_saves_input(o->activation)) {
    layer->saved = layer->out;
    layer->saved_per_row = true;
  }
  layer->flops = 2.0 * (double)sl_shape_count(x) * (double)o->features;
  if (layer->tied_to < 0) {
    struct sl__param *weight = sl__block_add(&layer->params, "weight", &SL_SHAPE(o->features, in));
    weight->fan_in = in;
    weight->fan_out = o->features;
  } else if (!sl_shape_equal(&layer->shared_shape, &SL_SHAPE(o->features, in))) {
    char text[96];
    return sl__layer_fail(layer, SL_BAD_SHAPE,
                          "needs a weight [%lld, %lld], but the one it is to share is %s",
                          (long long)o->features, (long long)in,
                          sl_shape_text(&layer->shared_shape, text, sizeof text));
  }
  if (!o->no_bias) {
    struct sl__param *bias = sl__block_add(&layer->params, "bias", &SL_SHAPE(o->features));
    bias->fan_in = in;
    bias->fan_out = o->features;
    bias->is_bias = true;
  }
  return SL_OK;
}

static enum sl_status forward(const struct sl__layer *layer, struct sl__pass *p) {
  const struct sl_dense_options *o = layer->options;
  struct sl__tensor *saved = p->training && layer->needs_gradient ? p->saved : NULL;
  if (p->shared && !o->no_bias)
    return sl__dense_shared_forward_saving(p->context, &p->launch, p->x[0], p->shared, p->param,
                                           p->y, saved, o->activation);
  if (p->shared)
    return sl__dense_forward_saving(p->context, &p->launch, p->x[0], p->shared, p->y, saved, false,
                                    o->activation);
  return sl__dense_forward_saving(p->context, &p->launch, p->x[0], p->param, p->y, saved,
                                  !o->no_bias, o->activation);
}

static enum sl_status backward_begin(const struct sl__layer *layer, struct sl__pass *p) {
  const struct sl_dense_options *o = layer->options;
  bool saves = sl__activation_saves_input(o->activation);
  if (o->activation == SL_ACTIVATION_NONE) return SL_OK;
  return sl__activation_backward_inplace(p->context, &p->launch, saves ? p->saved : p->y, p->dy,
                                         o->activation);
}

static enum sl_status backward_data(const struct sl__layer *layer, struct sl__pass *p) {
  (void)layer;
  p->launch.accumulate = p->add_dx[0];
  return sl__dense_backward_data(p->context, &p->launch, p->dy, p->shared ? p->shared : p->param,
                                 p->dx[0]);
}

static enum sl_status backward_weight(const struct sl__layer *layer, struct sl__pass *p) {
  const struct sl_dense_options *o = layer->options;
  if (p->shared) {
    p->launch.accumulate = p->add_shared;
    enum sl_status status =
        sl__dense_backward_weight(p->context, &p->launch, p->x[0], p->dy, p->shared_grad, false);
    p->launch.accumulate = p->add_grad;
    if (status != SL_OK || o->no_bias) return status;
    return sl__bias_backward(p->context, &p->launch, p->dy, p->grad);
  }
  p->launch.accumulate = p->add_grad;
  return sl__dense_backward_weight(p->context, &p->launch, p->x[0], p->dy, p->grad, !o->no_bias);
}

/* Along the last axis. The weight keeps PyTorch's layout [O, I], which is also that of an embedding
 * that shares it. */
static const char *write_positions(struct sl__onnx_writer *w, const char *x) {
  const char *weight = sl__onnx_param(w, "weight"), *bias = sl__onnx_param(w, "bias");
  const char *transposed = sl__onnx_node(w, "transpose", "Transpose", SL__ONNX_NAMES(weight),
                                         SL__ONNX_ATTRIBUTES(SL__ONNX_LIST("perm", 1, 0)));
  const char *y = sl__onnx_node(w, NULL, "MatMul", SL__ONNX_NAMES(x, transposed), NULL);
  return bias ? sl__onnx_node(w, "bias", "Add", SL__ONNX_NAMES(y, bias), NULL) : y;
}

static const char *write_flat(const struct sl__layer *layer, struct sl__onnx_writer *w,
                              const char *x) {
  const char *weight = sl__onnx_param(w, "weight"), *bias = sl__onnx_param(w, "bias");
  if (layer->in[0].ndim > 1)
    x = sl__onnx_node(w, "flatten", "Flatten", SL__ONNX_NAMES(x),
                      SL__ONNX_ATTRIBUTES(SL__ONNX_WHOLE("axis", 1)));
  return sl__onnx_node(w, NULL, "Gemm", SL__ONNX_NAMES(x, weight, bias),
                       SL__ONNX_ATTRIBUTES(SL__ONNX_WHOLE("transB", 1)));
}

static const char *onnx_write(const struct sl__layer *layer, struct sl__onnx_writer *w) {
  const struct sl_dense_options *o = layer->options;
  const char *x = sl__onnx_input(w, 0);
  const char *y = o->positions ? write_positions(w, x) : write_flat(layer, w, x);
  return sl__onnx_activated(w, o->activation, y);
}

static const struct sl_field fields[] = {SL_FIELD(sl_dense_options, INT64, features),
                                         SL_FIELD(sl_dense_options, BOOL, no_bias),
                                         SL_FIELD(sl_dense_options, ACTIVATION, activation),
                                         SL_FIELD(sl_dense_options, BOOL, positions),
                                         {0}};

const struct sl__layer_kind sl__dense_kind = {
    .name = "dense",
    .about = "A fully connected layer: [...] -> [O]; with positions [T..., I] -> [T..., O]",
    .keys =
        "features: O; required\n"
        "no_bias: false\n"
        "activation: of the output: relu, tanh, sigmoid, gelu, gelu_tanh, silu; none\n"
        "positions: along the last axis only; false\n",
    .options_size = sizeof(struct sl_dense_options),
    .fields = fields,
    .may_share = true,
    .infer = infer,
    .forward = forward,
    .backward_begin = backward_begin,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
    .onnx_write = onnx_write};

enum sl_status sl_dense(struct sl_model *model, const char *name,
                        const struct sl_dense_options *options) {
  return sl__layer_append(model, name, &sl__dense_kind, options);
}
