/* Convolution over planes, and over rows, which are planes of one row. */
#include "nn/layers/activation.h"
#include "nn/layers/window.h"

static bool is_1d(const struct sl__layer *layer) { return layer->kind == &sl__conv1d_kind; }

/* The options of a convolution over rows as those over planes. */
static struct sl_conv2d_options options_of(const struct sl__layer *layer) {
  const struct sl_conv1d_options *o = layer->options;
  if (!is_1d(layer)) return *(const struct sl_conv2d_options *)layer->options;
  return (struct sl_conv2d_options){.channels = o->channels,
                                    .kernel_h = 1,
                                    .kernel_w = o->kernel ? o->kernel : -1, /* 0 is no window */
                                    .stride_h = 1,
                                    .stride_w = o->stride ? o->stride : 1,
                                    .pad_w = o->pad,
                                    .no_bias = o->no_bias,
                                    .activation = o->activation,
                                    .groups = o->groups,
                                    .dilation_h = 1,
                                    .dilation_w = o->dilation ? o->dilation : 1};
}

/* A width of 0 becomes the height. */
static struct sl__conv2d parameters(const struct sl__layer *layer) {
  const struct sl_conv2d_options all = options_of(layer), *o = &all;
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

/* Groups and dilation, which an operation of its own computes; the others are faster without. */
static struct sl__groupconv2d grouped(const struct sl__layer *layer) {
  const struct sl_conv2d_options all = options_of(layer), *o = &all;
  int dilation_h = o->dilation_h ? o->dilation_h : 1;
  return (struct sl__groupconv2d){.conv = parameters(layer),
                                  .groups = o->groups ? o->groups : 1,
                                  .dilation_h = dilation_h,
                                  .dilation_w = o->dilation_w ? o->dilation_w : dilation_h};
}

static bool is_grouped(const struct sl__groupconv2d *g) {
  return g->groups > 1 || g->dilation_h > 1 || g->dilation_w > 1;
}

enum { MOST = 1 << 15 }; /* of a dilation, and a dilated kernel: their product fits an int */

static enum sl_status check_groups(const struct sl__layer *layer, const struct sl__groupconv2d *g) {
  const struct sl__conv2d *c = &g->conv;
  int64_t in = layer->in[0].dim[0];
  if (g->groups < 1 || in % g->groups || c->channels % g->groups)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                          "groups is %d; it must divide the %lld and %d channels", g->groups,
                          (long long)in, c->channels);
  if (g->dilation_h < 1 || g->dilation_w < 1 || g->dilation_h > MOST || g->dilation_w > MOST ||
      (is_grouped(g) && (c->kernel_h > MOST || c->kernel_w > MOST)))
    return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                          "dilation %dx%d and its kernel %dx%d must be from 1 to %d", g->dilation_h,
                          g->dilation_w, c->kernel_h, c->kernel_w, MOST);
  return SL_OK;
}

static enum sl_status infer(struct sl__layer *layer) {
  const struct sl_conv2d_options all = options_of(layer), *o = &all;
  struct sl__groupconv2d g = grouped(layer);
  struct sl__conv2d c = g.conv;
  int64_t height, width;
  if (c.channels < 1)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT, "channels is %d; it must be at least 1",
                          c.channels);
  if (sl__activation_saves_input(c.activation))
    return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                          "%s needs the values before it: append it as a layer, sl_activate",
                          sl_activation_name(c.activation));
  enum sl_status status = check_groups(layer, &g);
  if (status != SL_OK) return status;
  struct sl__window window = {g.dilation_h * (c.kernel_h - 1) + 1,
                              g.dilation_w * (c.kernel_w - 1) + 1,
                              c.stride_h,
                              c.stride_w,
                              c.pad_h,
                              c.pad_w,
                              is_1d(layer)};
  status = sl__window_output(layer, &window, o->pad_h_only, &height, &width);
  if (status != SL_OK) return status;
  int64_t in = layer->in[0].dim[0] / g.groups, area = (int64_t)c.kernel_h * c.kernel_w;
  layer->out = sl__window_shape(&window, c.channels, height, width);
  layer->flops = 2.0 * (double)sl_shape_count(&layer->out) * (double)(in * area);
  struct sl_shape shape = is_1d(layer) ? SL_SHAPE(c.channels, in, c.kernel_w)
                                       : SL_SHAPE(c.channels, in, c.kernel_h, c.kernel_w);
  struct sl__param *weight = sl__block_add(&layer->params, "weight", &shape);
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
  struct sl__groupconv2d g = grouped(layer);
  if (is_grouped(&g))
    return sl__groupconv2d_forward(p->context, &p->launch, p->x[0], p->param, p->y, &g);
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
  struct sl__groupconv2d g = grouped(layer);
  p->launch.accumulate = p->add_dx[0];
  if (is_grouped(&g))
    return sl__groupconv2d_backward_data(p->context, &p->launch, p->dy, p->param, p->dx[0], &g);
  return sl__conv2d_backward_data(p->context, &p->launch, p->dy, p->param, p->dx[0], &c);
}

static enum sl_status backward_weight(const struct sl__layer *layer, struct sl__pass *p) {
  struct sl__conv2d c = parameters(layer);
  struct sl__groupconv2d g = grouped(layer);
  p->launch.accumulate = p->add_grad;
  if (is_grouped(&g))
    return sl__groupconv2d_backward_weight(p->context, &p->launch, p->x[0], p->dy, p->grad, &g);
  return sl__conv2d_backward_weight(p->context, &p->launch, p->x[0], p->dy, p->grad, &c);
}

/* A list of the heights' and the widths' numbers, of which rows have the last half. */
static struct sl__onnx_attribute numbers(const struct sl__layer *layer, const char *name,
                                         const int64_t *list, int count) {
  int skipped = is_1d(layer) ? count / 2 : 0;
  return (struct sl__onnx_attribute){
      .name = name, .type = SL__ONNX_INTS, .ints = list + skipped, .count = count - skipped};
}

static const char *onnx_write(const struct sl__layer *layer, struct sl__onnx_writer *w) {
  struct sl__groupconv2d g = grouped(layer);
  const struct sl__conv2d *c = &g.conv;
  const char *x = sl__onnx_input(w, 0), *weight = sl__onnx_param(w, "weight"),
             *bias = sl__onnx_param(w, "bias");
  const int64_t kernel[] = {c->kernel_h, c->kernel_w}, stride[] = {c->stride_h, c->stride_w},
                dilation[] = {g.dilation_h, g.dilation_w},
                pads[] = {c->pad_h, c->pad_w, c->pad_h, c->pad_w},
                row_pads[] = {0, 0, c->pad_w, c->pad_w};
  struct sl__onnx_attribute list[6] = {
      numbers(layer, "kernel_shape", kernel, 2),
      numbers(layer, "strides", stride, 2),
      numbers(layer, "pads", is_1d(layer) ? row_pads : pads, 4),
      {.name = is_grouped(&g) ? "group" : NULL, .type = SL__ONNX_I, .i = g.groups},
      numbers(layer, "dilations", dilation, 2)};
  const char *y = sl__onnx_node(w, NULL, "Conv", SL__ONNX_NAMES(x, weight, bias), list);
  return sl__onnx_activated(w, c->activation, y);
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
                                         SL_FIELD(sl_conv2d_options, INT, groups),
                                         SL_FIELD(sl_conv2d_options, INT, dilation_h),
                                         SL_FIELD(sl_conv2d_options, INT, dilation_w),
                                         {0}};

static const char keys[] =
    "channels: K; required\n"
    "kernel_h: height of the window; required\n"
    "kernel_w: its width; kernel_h\n"
    "stride_h: 1\n"
    "stride_w: stride_h\n"
    "pad_h: zeros above and below; 0\n"
    "pad_w: zeros left and right; pad_h\n"
    "pad_h_only: pad_w stays 0; false\n"
    "no_bias: false\n"
    "activation: of the output: relu, tanh, sigmoid; none\n"
    "groups: of channels, which do not meet; 1\n"
    "dilation_h: distance of a window's rows; 1\n"
    "dilation_w: of its columns; dilation_h\n";

static const struct sl_field row_fields[] = {SL_FIELD(sl_conv1d_options, INT, channels),
                                             SL_FIELD(sl_conv1d_options, INT, kernel),
                                             SL_FIELD(sl_conv1d_options, INT, stride),
                                             SL_FIELD(sl_conv1d_options, INT, pad),
                                             SL_FIELD(sl_conv1d_options, INT, dilation),
                                             SL_FIELD(sl_conv1d_options, INT, groups),
                                             SL_FIELD(sl_conv1d_options, BOOL, no_bias),
                                             SL_FIELD(sl_conv1d_options, ACTIVATION, activation),
                                             {0}};

static const char row_keys[] =
    "channels: K; required\n"
    "kernel: length of the window; required\n"
    "stride: 1\n"
    "pad: zeros at both ends; 0\n"
    "dilation: distance of a window's values; 1\n"
    "groups: of channels, which do not meet; 1\n"
    "no_bias: false\n"
    "activation: of the output: relu, tanh, sigmoid; none\n";

#define FUNCTIONS                                                                                  \
  .activation = activation, .infer = infer, .forward = forward, .backward_begin = backward_begin,  \
  .backward_data = backward_data, .backward_weight = backward_weight, .onnx_write = onnx_write

SL__KIND_OF(conv2d, sl_conv2d_options, fields, keys,
            .about = "2-D convolution: [C, H, W] -> [K, H', W']", FUNCTIONS)
SL__KIND_OF(conv1d, sl_conv1d_options, row_fields, row_keys,
            .about = "1-D convolution: [C, L] -> [K, L']", FUNCTIONS)
