/* Max and average pooling over planes, and over rows, which are planes of one row. */
#include "nn/onnx_graph.h"
#include "nn/layers/window.h"

static bool is_1d(const struct sl__layer *layer) {
  return layer->kind == &sl__maxpool1d_kind || layer->kind == &sl__avgpool1d_kind;
}

/* The options of a pooling over rows as those over planes. */
static struct sl_pool2d_options options_of(const struct sl__layer *layer) {
  const struct sl_pool1d_options *o = layer->options;
  if (!is_1d(layer)) return *(const struct sl_pool2d_options *)layer->options;
  int kernel = o->kernel ? o->kernel : -1; /* 0 is no window */
  return (struct sl_pool2d_options){.kernel_h = 1,
                                    .kernel_w = kernel,
                                    .stride_h = 1,
                                    .stride_w = o->stride ? o->stride : kernel,
                                    .pad_w = o->pad,
                                    .global = o->global};
}

/* A width of 0 becomes the height, a stride of 0 the kernel. A global window is the whole plane. */
static struct sl__pool2d parameters(const struct sl__layer *layer) {
  const struct sl_pool2d_options all = options_of(layer), *o = &all;
  if (o->global) {
    int h = is_1d(layer) ? 1 : (int)layer->in[0].dim[1];
    int w = (int)layer->in[0].dim[layer->in[0].ndim - 1];
    return (struct sl__pool2d){h, w, h, w, 0, 0};
  }
  int kernel_w = o->kernel_w ? o->kernel_w : o->kernel_h;
  return (struct sl__pool2d){.kernel_h = o->kernel_h,
                             .kernel_w = kernel_w,
                             .stride_h = o->stride_h ? o->stride_h : o->kernel_h,
                             .stride_w = o->stride_w   ? o->stride_w
                                         : o->stride_h ? o->stride_h
                                                       : kernel_w,
                             .pad_h = o->pad_h,
                             .pad_w = sl__window_pad_w(o->pad_h, o->pad_w, o->pad_h_only)};
}

static enum sl_status infer(struct sl__layer *layer) {
  const struct sl_pool2d_options all = options_of(layer), *o = &all;
  struct sl__pool2d p = parameters(layer);
  struct sl__window window = {p.kernel_h, p.kernel_w, p.stride_h,  p.stride_w,
                              p.pad_h,    p.pad_w,    is_1d(layer)};
  int64_t height, width;
  enum sl_status status = sl__window_output(layer, &window, o->pad_h_only, &height, &width);
  if (status != SL_OK) return status;
  layer->out = sl__window_shape(&window, layer->in[0].dim[0], height, width);
  layer->flops = (double)sl_shape_count(&layer->out) * p.kernel_h * p.kernel_w;
  return SL_OK;
}

static enum sl_status infer_max(struct sl__layer *layer) {
  enum sl_status status = infer(layer);
  layer->saved = layer->out; /* index of each maximum */
  layer->saved_per_row = true;
  layer->saved_type = SL_I32;
  return status;
}

static enum sl_status forward_max(const struct sl__layer *layer, struct sl__pass *p) {
  struct sl__pool2d pool = parameters(layer);
  return sl__maxpool2d_forward(p->context, &p->launch, p->x[0], p->y, p->saved, &pool);
}

/* Of windows that overlap, several may have chosen the same value. */
static bool selects(const struct sl__layer *layer) {
  struct sl__pool2d p = parameters(layer);
  return p.stride_h >= p.kernel_h && p.stride_w >= p.kernel_w;
}

/* The maxima are the only values with a gradient, and there are fewer of them than inputs. */
static enum sl_status backward_max_begin(const struct sl__layer *layer, struct sl__pass *p) {
  (void)layer;
  if (p->input_activation == SL_ACTIVATION_NONE) return SL_OK;
  return sl__activation_backward_inplace(p->context, &p->launch, p->y, p->dy, p->input_activation);
}

static enum sl_status backward_max(const struct sl__layer *layer, struct sl__pass *p) {
  struct sl__pool2d pool = parameters(layer);
  p->launch.accumulate = p->add_dx[0];
  return sl__maxpool2d_backward(p->context, &p->launch, p->dy, p->saved, p->dx[0], &pool);
}

static enum sl_status forward_average(const struct sl__layer *layer, struct sl__pass *p) {
  struct sl__pool2d pool = parameters(layer);
  return sl__avgpool2d_forward(p->context, &p->launch, p->x[0], p->y, &pool);
}

static enum sl_status backward_average(const struct sl__layer *layer, struct sl__pass *p) {
  struct sl__pool2d pool = parameters(layer);
  p->launch.accumulate = p->add_dx[0];
  return sl__avgpool2d_backward(p->context, &p->launch, p->dy, p->dx[0], &pool);
}

/* counts_padding: ONNX's averages leave padding out unless this attribute is set. */
static const char *write_window(const struct sl__layer *layer, struct sl__onnx_writer *w,
                                const char *op, bool counts_padding) {
  struct sl__pool2d p = parameters(layer);
  const char *x = sl__onnx_input(w, 0);
  const struct sl__onnx_attribute counts = {
      .name = counts_padding ? "count_include_pad" : NULL, .type = SL__ONNX_I, .i = 1};
  if (is_1d(layer))
    return sl__onnx_node(w, NULL, op, SL__ONNX_NAMES(x),
                         SL__ONNX_ATTRIBUTES(SL__ONNX_LIST("kernel_shape", p.kernel_w),
                                             SL__ONNX_LIST("strides", p.stride_w),
                                             SL__ONNX_LIST("pads", p.pad_w, p.pad_w), counts));
  return sl__onnx_node(
      w, NULL, op, SL__ONNX_NAMES(x),
      SL__ONNX_ATTRIBUTES(SL__ONNX_LIST("kernel_shape", p.kernel_h, p.kernel_w),
                          SL__ONNX_LIST("strides", p.stride_h, p.stride_w),
                          SL__ONNX_LIST("pads", p.pad_h, p.pad_w, p.pad_h, p.pad_w), counts));
}

static const char *write_global(struct sl__onnx_writer *w, const char *op) {
  const char *x = sl__onnx_input(w, 0);
  return sl__onnx_node(w, NULL, op, SL__ONNX_NAMES(x), NULL);
}

static const char *onnx_write_max(const struct sl__layer *layer, struct sl__onnx_writer *w) {
  bool global = options_of(layer).global;
  return global ? write_global(w, "GlobalMaxPool") : write_window(layer, w, "MaxPool", false);
}

static const char *onnx_write_average(const struct sl__layer *layer, struct sl__onnx_writer *w) {
  bool global = options_of(layer).global;
  return global ? write_global(w, "GlobalAveragePool")
                : write_window(layer, w, "AveragePool", true);
}

static const struct sl_field fields[] = {SL_FIELD(sl_pool2d_options, INT, kernel_h),
                                         SL_FIELD(sl_pool2d_options, INT, kernel_w),
                                         SL_FIELD(sl_pool2d_options, INT, stride_h),
                                         SL_FIELD(sl_pool2d_options, INT, stride_w),
                                         SL_FIELD(sl_pool2d_options, INT, pad_h),
                                         SL_FIELD(sl_pool2d_options, INT, pad_w),
                                         SL_FIELD(sl_pool2d_options, BOOL, global),
                                         SL_FIELD(sl_pool2d_options, BOOL, pad_h_only),
                                         {0}};

static const char plane_keys[] =
    "kernel_h: height of the window; required unless global\n"
    "kernel_w: its width; kernel_h\n"
    "stride_h: the window's height\n"
    "stride_w: the window's width; stride_h if that is given\n"
    "pad_h: rows added above and below; 0\n"
    "pad_w: columns added left and right; pad_h\n"
    "global: the window is the whole plane; false\n"
    "pad_h_only: pad_w stays 0; false\n";

static const struct sl_field row_fields[] = {SL_FIELD(sl_pool1d_options, INT, kernel),
                                             SL_FIELD(sl_pool1d_options, INT, stride),
                                             SL_FIELD(sl_pool1d_options, INT, pad),
                                             SL_FIELD(sl_pool1d_options, BOOL, global),
                                             {0}};

static const char row_keys[] =
    "kernel: length of the window; required unless global\n"
    "stride: the window's length\n"
    "pad: values added at both ends; 0\n"
    "global: the window is the whole row; false\n";

#define MAXIMA                                                                                     \
  .selects = selects, .infer = infer_max, .forward = forward_max,                                  \
  .backward_begin = backward_max_begin, .backward_data = backward_max,                             \
  .onnx_write = onnx_write_max
#define AVERAGES                                                                                   \
  .infer = infer, .forward = forward_average, .backward_data = backward_average,                   \
  .onnx_write = onnx_write_average

SL__KIND_OF(maxpool2d, sl_pool2d_options, fields, plane_keys,
            .about = "Maxima of windows: [C, H, W] -> [C, H', W']", MAXIMA)
SL__KIND_OF(maxpool1d, sl_pool1d_options, row_fields, row_keys,
            .about = "Maxima of windows: [C, L] -> [C, L']", MAXIMA)
SL__KIND_OF(avgpool2d, sl_pool2d_options, fields, plane_keys,
            .about = "Means of windows: [C, H, W] -> [C, H', W']", AVERAGES)
SL__KIND_OF(avgpool1d, sl_pool1d_options, row_fields, row_keys,
            .about = "Means of windows: [C, L] -> [C, L']", AVERAGES)
