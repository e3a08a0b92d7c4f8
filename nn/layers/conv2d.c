/* 2-D convolution layer. */
#include "nn/layers/activation.h"
#include "nn/layers/window.h"

/* A width of 0 becomes the height. */
static struct sl__conv2d parameters(const struct sl__layer *layer) {
  const struct sl_conv2d_options *o = layer->options;
  int stride_h = o->stride_h ? o->stride_h : 1;
  return (struct sl__conv2d){.channels = o->channels,
                             .kernel_h = o->kernel_h,
                             .kernel_w = o->kernel_w ? o->kernel_w : o->kernel_h,
                             .stride_h = stride_h,
                             .stride_w = o->stride_w ? o->stride_w : stride_h,
                             .pad_h = o->pad_h,
                             .pad_w = sl__window_pad_w(o->pad_h, o->pad_w, o->pad_h_only),
                             .has_bias = !o->no_bias,
                             .activation = o->activation};
}

static enum sl_status infer(struct sl__layer *layer) {
  const struct sl_conv2d_options *o = layer->options;
  struct sl__conv2d c = parameters(layer);
  struct sl__window window = {c.kernel_h, c.kernel_w, c.stride_h, c.stride_w, c.pad_h, c.pad_w};
  int64_t height, width;
  if (c.channels < 1)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT, "channels is %d; it must be at least 1",
                          c.channels);
  if (c.activation == SL_ACTIVATION_GELU)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                          "gelu needs the values before it: append it as a layer, sl_activate");
  enum sl_status status = sl__window_output(layer, &window, o->pad_h_only, &height, &width);
  if (status != SL_OK) return status;
  int64_t in = layer->in[0].dim[0], area = (int64_t)c.kernel_h * c.kernel_w;
  layer->out = SL_SHAPE(c.channels, height, width);
  layer->flops = 2.0 * (double)sl_shape_count(&layer->out) * (double)(in * area);
  struct sl__param *weight =
      sl__block_add(&layer->params, "weight", &SL_SHAPE(c.channels, in, c.kernel_h, c.kernel_w));
  weight->fan_in = in * area;
  weight->fan_out = c.channels * area;
  if (c.has_bias) {
    struct sl__param *bias = sl__block_add(&layer->params, "bias", &SL_SHAPE(c.channels));
    bias->fan_in = in * area;
    bias->fan_out = c.channels * area;
    bias->is_bias = true;
  }
  return SL_OK;
}

static enum sl_status forward(const struct sl__layer *layer, struct sl__pass *p) {
  struct sl__conv2d c = parameters(layer);
  return sl__conv2d_forward(p->context, &p->launch, p->x[0], p->param, p->y, &c);
}

static enum sl_activation activation(const struct sl__layer *layer) {
  return parameters(layer).activation;
}

static enum sl_status backward_begin(const struct sl__layer *layer, struct sl__pass *p) {
  enum sl_activation own = activation(layer);
  if (own == SL_ACTIVATION_NONE || p->defers_activation) return SL_OK;
  return sl__activation_backward_inplace(p->context, &p->launch, p->y, p->dy, own);
}

static enum sl_status backward_data(const struct sl__layer *layer, struct sl__pass *p) {
  struct sl__conv2d c = parameters(layer);
  p->launch.accumulate = p->add_dx[0];
  return sl__conv2d_backward_data(p->context, &p->launch, p->dy, p->param, p->dx[0], &c);
}

static enum sl_status backward_weight(const struct sl__layer *layer, struct sl__pass *p) {
  struct sl__conv2d c = parameters(layer);
  p->launch.accumulate = p->add_grad;
  return sl__conv2d_backward_weight(p->context, &p->launch, p->x[0], p->dy, p->grad, &c);
}

static const char *onnx_write(const struct sl__layer *layer, struct sl__onnx_writer *w) {
  struct sl__conv2d c = parameters(layer);
  const char *x = sl__onnx_input(w, 0), *weight = sl__onnx_param(w, "weight"),
             *bias = sl__onnx_param(w, "bias");
  const char *y =
      sl__onnx_node(w, NULL, "Conv", SL__ONNX_NAMES(x, weight, bias),
                    SL__ONNX_ATTRIBUTES(SL__ONNX_LIST("kernel_shape", c.kernel_h, c.kernel_w),
                                        SL__ONNX_LIST("strides", c.stride_h, c.stride_w),
                                        SL__ONNX_LIST("pads", c.pad_h, c.pad_w, c.pad_h, c.pad_w)));
  return sl__onnx_activated(w, c.activation, y);
}

static const struct sl_field fields[] = {SL_FIELD(sl_conv2d_options, INT, channels),
                                         SL_FIELD(sl_conv2d_options, INT, kernel_h),
                                         SL_FIELD(sl_conv2d_options, INT, kernel_w),
                                         SL_FIELD(sl_conv2d_options, INT, stride_h),
                                         SL_FIELD(sl_conv2d_options, INT, stride_w),
                                         SL_FIELD(sl_conv2d_options, INT, pad_h),
                                         SL_FIELD(sl_conv2d_options, INT, pad_w),
                                         SL_FIELD(sl_conv2d_options, BOOL, pad_h_only),
                                         SL_FIELD(sl_conv2d_options, BOOL, no_bias),
                                         SL_FIELD(sl_conv2d_options, ACTIVATION, activation),
                                         {0}};

const struct sl__layer_kind sl__conv2d_kind = {.name = "conv2d",
                                               .options_size = sizeof(struct sl_conv2d_options),
                                               .fields = fields,
                                               .activation = activation,
                                               .infer = infer,
                                               .forward = forward,
                                               .backward_begin = backward_begin,
                                               .backward_data = backward_data,
                                               .backward_weight = backward_weight,
                                               .onnx_write = onnx_write};

enum sl_status sl_conv2d(struct sl_model *model, const char *name,
                         const struct sl_conv2d_options *options) {
  return sl__layer_append(model, name, &sl__conv2d_kind, options);
}
