/* Transposed convolution (Zeiler et al. 2010), as torch.nn.ConvTranspose2d and ConvTranspose1d:
 * rows are planes of one row. */
#include "nn/layers/activation.h"
#include "nn/layers/window.h"

enum { MOST = 1 << 15 }; /* of each number of a window: their products fit an int */

static bool is_1d(const struct sl__layer *layer) {
  return layer->kind == &sl__conv_transpose1d_kind;
}

/* The options of a layer over rows as those over planes. */
static struct sl_conv_transpose2d_options options_of(const struct sl__layer *layer) {
  const struct sl_conv_transpose1d_options *o = layer->options;
  if (!is_1d(layer)) return *(const struct sl_conv_transpose2d_options *)layer->options;
  return (struct sl_conv_transpose2d_options){
      .channels = o->channels,
      .kernel_h = 1,
      .kernel_w = o->kernel ? o->kernel : -1, /* no window */
      .stride_h = 1,
      .stride_w = o->stride ? o->stride : 1,
      .pad_w = o->pad,
      .output_pad_w = o->output_pad,
      .dilation_h = 1,
      .dilation_w = o->dilation ? o->dilation : 1,
      .groups = o->groups,
      .no_bias = o->no_bias,
      .activation = o->activation};
}

/* A width of 0 becomes the height. */
static struct sl__groupconv2d parameters(const struct sl__layer *layer) {
  const struct sl_conv_transpose2d_options all = options_of(layer), *o = &all;
  int stride_h = o->stride_h ? o->stride_h : 1, dilation_h = o->dilation_h ? o->dilation_h : 1;
  return (struct sl__groupconv2d){
      .conv = {.channels = o->channels,
               .kernel_h = o->kernel_h,
               .kernel_w = o->kernel_w ? o->kernel_w : o->kernel_h,
               .stride_h = stride_h,
               .stride_w = o->stride_w ? o->stride_w : stride_h,
               .pad_h = o->pad_h,
               .pad_w = sl__window_pad_w(o->pad_h, o->pad_w, o->pad_h_only),
               .has_bias = !o->no_bias,
               .activation = o->activation},
      .groups = o->groups ? o->groups : 1,
      .dilation_h = dilation_h,
      .dilation_w = o->dilation_w ? o->dilation_w : dilation_h,
      .transposed = true};
}

static bool is_window(int kernel, int stride, int pad, int dilation, int output_pad) {
  return kernel >= 1 && kernel <= MOST && stride >= 1 && stride <= MOST && pad >= 0 &&
         dilation >= 1 && dilation <= MOST && pad <= dilation * (kernel - 1) && output_pad >= 0 &&
         (output_pad < stride || output_pad < dilation);
}

static enum sl_status check_options(const struct sl__layer *layer,
                                    const struct sl__groupconv2d *g) {
  const struct sl_conv_transpose2d_options all = options_of(layer), *o = &all;
  const struct sl__conv2d *c = &g->conv;
  char text[96];
  int64_t in = layer->in[0].dim[0];
  if (layer->in[0].ndim != (is_1d(layer) ? 2 : 3))
    return sl__layer_fail(layer, SL_BAD_SHAPE, "takes %s, not %s",
                          is_1d(layer) ? "[C, L]" : "[C, H, W]",
                          sl_shape_text(&layer->in[0], text, sizeof text));
  if (c->channels < 1 || g->groups < 1 || in % g->groups || c->channels % g->groups)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                          "channels is %d, groups %d: groups must divide them and the input's %lld",
                          c->channels, g->groups, (long long)in);
  if (sl__activation_saves_input(c->activation))
    return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                          "%s needs the values before it: append it as a layer, sl_activate",
                          sl_activation_name(c->activation));
  if (o->pad_h_only && o->pad_w)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT, "pad_h_only is set, and pad_w is %d; use one",
                          o->pad_w);
  if (!is_window(c->kernel_h, c->stride_h, c->pad_h, g->dilation_h, o->output_pad_h) ||
      !is_window(c->kernel_w, c->stride_w, c->pad_w, g->dilation_w, o->output_pad_w))
    return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                          "kernel %dx%d, stride %dx%d, padding %dx%d, dilation %dx%d, output_pad "
                          "%dx%d: from 1 to %d, padding below the dilated kernel, output_pad below "
                          "stride or dilation",
                          c->kernel_h, c->kernel_w, c->stride_h, c->stride_w, c->pad_h, c->pad_w,
                          g->dilation_h, g->dilation_w, o->output_pad_h, o->output_pad_w, MOST);
  return SL_OK;
}

static int64_t grown(int64_t size, int kernel, int stride, int pad, int dilation, int output_pad) {
  return (size - 1) * stride - 2 * (int64_t)pad + (int64_t)dilation * (kernel - 1) + output_pad + 1;
}

/* The output's shape; SL_BAD_SHAPE if it would be empty or too large. */
static enum sl_status infer_output(struct sl__layer *layer, const struct sl__groupconv2d *g) {
  const struct sl_conv_transpose2d_options all = options_of(layer), *o = &all;
  const struct sl__conv2d *c = &g->conv;
  const struct sl_shape *in = &layer->in[0];
  char text[96];
  int64_t high = grown(is_1d(layer) ? 1 : in->dim[1], c->kernel_h, c->stride_h, c->pad_h,
                       g->dilation_h, o->output_pad_h);
  int64_t wide = grown(in->dim[in->ndim - 1], c->kernel_w, c->stride_w, c->pad_w, g->dilation_w,
                       o->output_pad_w);
  layer->out = is_1d(layer) ? SL_SHAPE(c->channels, wide) : SL_SHAPE(c->channels, high, wide);
  if (high < 1 || wide < 1 || high > INT32_MAX / 4 || wide > INT32_MAX / 4)
    return sl__layer_fail(layer, SL_BAD_SHAPE, "its output would be %s",
                          sl_shape_text(&layer->out, text, sizeof text));
  return SL_OK;
}

static enum sl_status infer(struct sl__layer *layer) {
  struct sl__groupconv2d g = parameters(layer);
  const struct sl__conv2d *c = &g.conv;
  enum sl_status status;
  SL__TRY(sl__input_alone(layer));
  SL__TRY(check_options(layer, &g));
  SL__TRY(infer_output(layer, &g));
  int64_t in = layer->in[0].dim[0], area = (int64_t)c->kernel_h * c->kernel_w;
  int64_t outputs = c->channels / g.groups;
  layer->flops = 2.0 * (double)sl_shape_count(&layer->in[0]) * (double)(outputs * area);
  struct sl_shape shape = is_1d(layer) ? SL_SHAPE(in, outputs, c->kernel_w)
                                       : SL_SHAPE(in, outputs, c->kernel_h, c->kernel_w);
  struct sl__param *weight = sl__block_add(&layer->params, "weight", &shape);
  weight->fan_in = outputs * area; /* as PyTorch counts: the second dimension's */
  weight->fan_out = in * area;
  if (!c->has_bias) return SL_OK;
  struct sl__param *bias = sl__block_add(&layer->params, "bias", &SL_SHAPE(c->channels));
  bias->fan_in = outputs * area;
  bias->fan_out = in * area;
  bias->is_bias = true;
out:
  return status;
}

static enum sl_status forward(const struct sl__layer *layer, struct sl__pass *p) {
  struct sl__groupconv2d g = parameters(layer);
  return sl__groupconv2d_forward(p->context, &p->launch, p->x[0], p->param, p->y, &g);
}

static enum sl_activation activation(const struct sl__layer *layer) {
  return parameters(layer).conv.activation;
}

static enum sl_status backward_begin(const struct sl__layer *layer, struct sl__pass *p) {
  enum sl_activation own = activation(layer);
  if (own == SL_ACTIVATION_NONE || p->defers_activation) return SL_OK;
  return sl__activation_backward_inplace(p->context, &p->launch, p->y, p->dy, own);
}

static enum sl_status backward_data(const struct sl__layer *layer, struct sl__pass *p) {
  struct sl__groupconv2d g = parameters(layer);
  p->launch.accumulate = p->add_dx[0];
  return sl__groupconv2d_backward_data(p->context, &p->launch, p->dy, p->param, p->dx[0], &g);
}

static enum sl_status backward_weight(const struct sl__layer *layer, struct sl__pass *p) {
  struct sl__groupconv2d g = parameters(layer);
  p->launch.accumulate = p->add_grad;
  return sl__groupconv2d_backward_weight(p->context, &p->launch, p->x[0], p->dy, p->grad, &g);
}

/* A list of the heights' and the widths' numbers, of which rows have the last half. */
static struct sl__onnx_attribute numbers(const struct sl__layer *layer, const char *name,
                                         const int64_t *list, int count) {
  int skipped = is_1d(layer) ? count / 2 : 0;
  return (struct sl__onnx_attribute){
      .name = name, .type = SL__ONNX_INTS, .ints = list + skipped, .count = count - skipped};
}

/* ONNX's output_padding is below the stride: the rest is taken off the padding at the end. */
static int above(int output_pad, int stride) {
  return output_pad < stride ? 0 : output_pad - stride + 1;
}

static const char *onnx_write(const struct sl__layer *layer, struct sl__onnx_writer *w) {
  const struct sl_conv_transpose2d_options all = options_of(layer), *o = &all;
  struct sl__groupconv2d g = parameters(layer);
  const struct sl__conv2d *c = &g.conv;
  int above_h = above(o->output_pad_h, c->stride_h), above_w = above(o->output_pad_w, c->stride_w);
  if (above_h > c->pad_h || above_w > c->pad_w) {
    w->status = sl__layer_fail(layer, SL_UNSUPPORTED,
                               "ONNX has no output_pad that is as large as stride + pad; save the "
                               "model as .json");
    return "";
  }
  const char *x = sl__onnx_input(w, 0), *weight = sl__onnx_param(w, "weight"),
             *bias = sl__onnx_param(w, "bias");
  const int64_t kernel[] = {c->kernel_h, c->kernel_w}, stride[] = {c->stride_h, c->stride_w},
                dilation[] = {g.dilation_h, g.dilation_w},
                output_pad[] = {o->output_pad_h - above_h, o->output_pad_w - above_w},
                pads[] = {c->pad_h, c->pad_w, c->pad_h - above_h, c->pad_w - above_w},
                row_pads[] = {0, 0, pads[1], pads[3]};
  const char *y = sl__onnx_node(
      w, NULL, "ConvTranspose", SL__ONNX_NAMES(x, weight, bias),
      SL__ONNX_ATTRIBUTES(
          numbers(layer, "kernel_shape", kernel, 2), numbers(layer, "strides", stride, 2),
          numbers(layer, "pads", is_1d(layer) ? row_pads : pads, 4),
          numbers(layer, "dilations", dilation, 2), numbers(layer, "output_padding", output_pad, 2),
          SL__ONNX_WHOLE("group", g.groups)));
  return sl__onnx_activated(w, c->activation, y);
}

static const struct sl_field fields[] = {
    SL_FIELD(sl_conv_transpose2d_options, INT, channels),
    SL_FIELD(sl_conv_transpose2d_options, INT, kernel_h),
    SL_FIELD(sl_conv_transpose2d_options, INT, kernel_w),
    SL_FIELD(sl_conv_transpose2d_options, INT, stride_h),
    SL_FIELD(sl_conv_transpose2d_options, INT, stride_w),
    SL_FIELD(sl_conv_transpose2d_options, INT, pad_h),
    SL_FIELD(sl_conv_transpose2d_options, INT, pad_w),
    SL_FIELD(sl_conv_transpose2d_options, INT, output_pad_h),
    SL_FIELD(sl_conv_transpose2d_options, INT, output_pad_w),
    SL_FIELD(sl_conv_transpose2d_options, INT, dilation_h),
    SL_FIELD(sl_conv_transpose2d_options, INT, dilation_w),
    SL_FIELD(sl_conv_transpose2d_options, INT, groups),
    SL_FIELD(sl_conv_transpose2d_options, BOOL, no_bias),
    SL_FIELD(sl_conv_transpose2d_options, ACTIVATION, activation),
    SL_FIELD(sl_conv_transpose2d_options, BOOL, pad_h_only),
    {0}};

static const char keys[] =
    "channels: K; required\n"
    "kernel_h: height of the window; required\n"
    "kernel_w: its width; kernel_h\n"
    "stride_h: 1\n"
    "stride_w: stride_h\n"
    "pad_h: rows cut off above and below; 0\n"
    "pad_w: columns cut off left and right; pad_h\n"
    "output_pad_h: rows added below; 0\n"
    "output_pad_w: columns added at the right; 0\n"
    "dilation_h: distance of a window's rows; 1\n"
    "dilation_w: of its columns; dilation_h\n"
    "groups: of channels, which do not meet; 1\n"
    "no_bias: false\n"
    "activation: of the output: relu, tanh, sigmoid; none\n"
    "pad_h_only: pad_w stays 0; false\n";

static const struct sl_field row_fields[] = {
    SL_FIELD(sl_conv_transpose1d_options, INT, channels),
    SL_FIELD(sl_conv_transpose1d_options, INT, kernel),
    SL_FIELD(sl_conv_transpose1d_options, INT, stride),
    SL_FIELD(sl_conv_transpose1d_options, INT, pad),
    SL_FIELD(sl_conv_transpose1d_options, INT, output_pad),
    SL_FIELD(sl_conv_transpose1d_options, INT, dilation),
    SL_FIELD(sl_conv_transpose1d_options, INT, groups),
    SL_FIELD(sl_conv_transpose1d_options, BOOL, no_bias),
    SL_FIELD(sl_conv_transpose1d_options, ACTIVATION, activation),
    {0}};

static const char row_keys[] =
    "channels: K; required\n"
    "kernel: length of the window; required\n"
    "stride: 1\n"
    "pad: values cut off at both ends; 0\n"
    "output_pad: values added at the end; 0\n"
    "dilation: distance of a window's values; 1\n"
    "groups: of channels, which do not meet; 1\n"
    "no_bias: false\n"
    "activation: of the output: relu, tanh, sigmoid; none\n";

#define FUNCTIONS                                                                                  \
  .activation = activation, .infer = infer, .forward = forward, .backward_begin = backward_begin,  \
  .backward_data = backward_data, .backward_weight = backward_weight, .onnx_write = onnx_write

SL__KIND_OF(conv_transpose2d, sl_conv_transpose2d_options, fields, keys,
            .about = "Transposed 2-D convolution, which enlarges: [C, H, W] -> [K, H', W']",
            FUNCTIONS)
SL__KIND_OF(conv_transpose1d, sl_conv_transpose1d_options, row_fields, row_keys,
            .about = "Transposed 1-D convolution, which enlarges: [C, L] -> [K, L']", FUNCTIONS)
