/* ONNX's convolutions, pooling and upsampling. */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "nn/formats/onnx_operators.h"

struct window {
  int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  int less_h, less_w; /* of a transposed one: padding that the end has less than the start */
  bool is_1d;         /* over rows [C, L]: the heights are those of one row */
  bool transposed;
};

/* Reads two numbers of a list attribute, or the second one of a window over rows, each at least
 * at_least. */
static enum sl_status read_pair(const reader *r, const node_of *node, const char *name, bool is_1d,
                                int at_least, int *first, int *second) {
  const int64_t *list;
  int count;
  enum sl_status status = sl__onnx_get_list(r, node, name, &list, &count);
  if (status != SL_OK || !list) return status;
  if (count != (is_1d ? 1 : 2))
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "attribute %s has %d numbers; windows of 1 and 2 dimensions are "
                           "supported, as the input's",
                           name, count);
  if (list[0] < at_least || list[count - 1] < at_least || list[0] > SL__ONNX_MOST ||
      list[count - 1] > SL__ONNX_MOST)
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "attribute %s is %lld, %lld", name,
                           (long long)list[0], (long long)list[count - 1]);
  if (!is_1d) *first = (int)list[0];
  *second = (int)list[count - 1];
  return SL_OK;
}

/* Less padding at the end is a transposed convolution's output_pad. */
static bool fits_end(const struct window *w, int64_t start, int64_t end) {
  return start == end || (w->transposed && 0 <= end && end < start);
}

static enum sl_status read_pads(const reader *r, const node_of *node, struct window *w) {
  const int64_t *pads;
  const char *way;
  enum sl_status status;
  int count;
  SL__TRY(sl__onnx_get_list(r, node, "pads", &pads, &count));
  SL__TRY(sl__onnx_get_text(r, node, "auto_pad", &way));
  if (way && strcmp(way, "NOTSET") != 0 && strcmp(way, "VALID") != 0)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "attribute auto_pad is %.32s; export it with pads in numbers", way);
  if (!pads || (way && !strcmp(way, "VALID"))) return SL_OK;
  const int64_t row_pads[4] = {0, pads[0], 0, pads[count - 1]};
  if (w->is_1d && count == 2) {
    pads = row_pads;
    count = 4;
  } else if (w->is_1d) {
    count = 0;
  }
  if (count != 4 || !fits_end(w, pads[0], pads[2]) || !fits_end(w, pads[1], pads[3]))
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "attribute pads: both sides must have the same");
  int64_t high = (int64_t)w->dilation_h * (w->kernel_h - 1) + 1,
          wide = (int64_t)w->dilation_w * (w->kernel_w - 1) + 1;
  if (pads[0] < 0 || pads[1] < 0 || pads[0] >= high || pads[1] >= wide)
    return sl__onnx_refuse(
        r, node, SL_UNSUPPORTED,
        "attribute pads is %lld, %lld; each must be from 0 to below the kernel's "
        "%lld, %lld",
        (long long)pads[0], (long long)pads[1], (long long)high, (long long)wide);
  w->pad_h = (int)pads[0];
  w->pad_w = (int)pads[1];
  w->less_h = (int)(pads[0] - pads[2]);
  w->less_w = (int)(pads[1] - pads[3]);
out:
  return status;
}

static enum sl_status read_window(const reader *r, const node_of *node, struct window *w) {
  enum sl_status status;
  w->stride_h = w->stride_w = w->dilation_h = w->dilation_w = 1;
  if (w->is_1d) w->kernel_h = 1;
  SL__TRY(read_pair(r, node, "kernel_shape", w->is_1d, 1, &w->kernel_h, &w->kernel_w));
  SL__TRY(read_pair(r, node, "strides", w->is_1d, 1, &w->stride_h, &w->stride_w));
  SL__TRY(read_pair(r, node, "dilations", w->is_1d, 1, &w->dilation_h, &w->dilation_w));
  if (w->kernel_h < 1 || w->kernel_w < 1)
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "attribute kernel_shape must be there");
  status = read_pads(r, node, w);
out:
  return status;
}

enum sl_status sl__onnx_read_bias(const reader *r, const node_of *node, int i, int64_t count,
                                  const float **values) {
  const struct sl__onnx_tensor *bias;
  enum sl_status status;
  *values = NULL;
  if (!sl__onnx_has(node, i)) return SL_OK;
  SL__TRY(sl__onnx_take_weight(r, node, i, -1, &bias));
  if (bias->count != count || bias->dim[bias->ndim ? bias->ndim - 1 : 0] != count)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "its bias has %lld values, not %lld",
                           (long long)bias->count, (long long)count);
  *values = bias->reals;
out:
  return status;
}

/* Of a transposed one the weight's first dimension is the input's. */
static enum sl_status check_conv(const reader *r, const node_of *node, const value_of *x,
                                 const struct sl__onnx_tensor *weight, struct window *w,
                                 int64_t *groups) {
  enum sl_status status;
  SL__TRY(sl__onnx_get_whole(r, node, "group", 1, groups));
  if (*groups < 1 || *groups > SL__ONNX_MOST)
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "attribute group is %lld", (long long)*groups);
  int last = weight->ndim - 1;
  w->is_1d = last == 2;
  int64_t high = w->is_1d ? 1 : weight->dim[2], wide = weight->dim[last];
  if (weight->dim[0] < 1 || weight->dim[0] > INT_MAX || high < 1 || wide < 1 ||
      high > SL__ONNX_MOST || wide > SL__ONNX_MOST)
    return sl__onnx_refuse(r, node, SL_BAD_FILE,
                           "the shape of its weight is none of a convolution");
  w->kernel_h = (int)high;
  w->kernel_w = (int)wide;
  SL__TRY(read_window(r, node, w));
  int64_t channels = w->transposed ? weight->dim[0] : weight->dim[1] * *groups;
  if (x->view.ndim != last || x->view.dim[0] != channels || w->kernel_h != high ||
      w->kernel_w != wide)
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "its weight does not fit its input or its window");
out:
  return status;
}

/* As the layers' options: 0 is their default. */
static int dilation_h_of(const struct window *w) {
  return w->dilation_h == 1 && w->dilation_w == 1 ? 0 : w->dilation_h;
}

static int dilation_w_of(const struct window *w) {
  return w->dilation_w == w->dilation_h ? 0 : w->dilation_w;
}

enum sl_status sl__onnx_read_conv(reader *r, const node_of *node) {
  const struct sl__onnx_tensor *weight;
  const node_of *last = node;
  struct window w = {0};
  enum sl_status status;
  const float *bias;
  int64_t groups;
  value_of x;
  SL__TRY(sl__onnx_take_whole(r, node, 0, &x));
  SL__TRY(sl__onnx_take_weight(r, node, 1, x.view.ndim == 2 ? 3 : 4, &weight));
  SL__TRY(check_conv(r, node, &x, weight, &w, &groups));
  SL__TRY(sl__onnx_read_bias(r, node, 2, weight->dim[0], &bias));
  struct sl_conv2d_options o = {.channels = (int)weight->dim[0],
                                .kernel_h = w.kernel_h,
                                .kernel_w = w.kernel_w == w.kernel_h ? 0 : w.kernel_w,
                                .stride_h = w.stride_h == 1 ? 0 : w.stride_h,
                                .stride_w = w.stride_w == w.stride_h ? 0 : w.stride_w,
                                .pad_h = w.pad_h,
                                .pad_w = w.pad_w == w.pad_h ? 0 : w.pad_w,
                                .pad_h_only = w.pad_h && !w.pad_w,
                                .groups = groups == 1 ? 0 : (int)groups,
                                .dilation_h = dilation_h_of(&w),
                                .dilation_w = dilation_w_of(&w),
                                .no_bias = !bias,
                                .activation = sl__onnx_fuse(r, node, &last)};
  struct sl_conv1d_options row = {.channels = o.channels,
                                  .kernel = w.kernel_w,
                                  .stride = w.stride_w == 1 ? 0 : w.stride_w,
                                  .pad = w.pad_w,
                                  .dilation = w.dilation_w == 1 ? 0 : w.dilation_w,
                                  .groups = o.groups,
                                  .no_bias = o.no_bias,
                                  .activation = o.activation};
  SL__TRY(sl__onnx_append(r, node, weight->name, w.is_1d ? &sl__conv1d_kind : &sl__conv2d_kind,
                          w.is_1d ? (void *)&row : &o, &x, 1));
  SL__TRY(sl__onnx_set(r, node, "weight", weight->reals, weight->count, NULL));
  if (bias) SL__TRY(sl__onnx_set(r, node, "bias", bias, weight->dim[0], NULL));
  status = sl__onnx_give_first(r, last, NULL);
out:
  return status;
}

/* What the end has less than the start counts as output padding, of which the layer takes less than
 * the stride or the dilation. */
static enum sl_status check_less(const reader *r, const node_of *node, const struct window *w,
                                 int output_h, int output_w) {
  int most_h = (w->stride_h > w->dilation_h ? w->stride_h : w->dilation_h) - 1 - output_h;
  int most_w = (w->stride_w > w->dilation_w ? w->stride_w : w->dilation_w) - 1 - output_w;
  if ((!w->less_h || w->less_h <= most_h) && (!w->less_w || w->less_w <= most_w)) return SL_OK;
  return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                         "attribute pads: the end may have %d, %d less than the start, of which "
                         "stride, dilation and output_padding leave room",
                         most_h > 0 ? most_h : 0, most_w > 0 ? most_w : 0);
}

enum sl_status sl__onnx_read_conv_transpose(reader *r, const node_of *node) {
  const struct sl__onnx_tensor *weight;
  const node_of *last = node;
  struct window w = {.transposed = true};
  int output_h = 0, output_w = 0;
  enum sl_status status;
  const float *bias;
  int64_t groups;
  value_of x;
  SL__TRY(sl__onnx_take_whole(r, node, 0, &x));
  SL__TRY(sl__onnx_take_weight(r, node, 1, x.view.ndim == 2 ? 3 : 4, &weight));
  SL__TRY(check_conv(r, node, &x, weight, &w, &groups));
  SL__TRY(read_pair(r, node, "output_padding", w.is_1d, 0, &output_h, &output_w));
  SL__TRY(check_less(r, node, &w, output_h, output_w));
  if (weight->dim[1] < 1 || weight->dim[1] > SL__ONNX_MOST)
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "its weight does not fit its input or its window");
  int64_t channels = weight->dim[1] * groups;
  SL__TRY(sl__onnx_read_bias(r, node, 2, channels, &bias));
  struct sl_conv_transpose2d_options o = {
      .channels = channels > INT32_MAX ? 0 : (int)channels,
      .kernel_h = w.kernel_h,
      .kernel_w = w.kernel_w == w.kernel_h ? 0 : w.kernel_w,
      .stride_h = w.stride_h == 1 && w.stride_w == 1 ? 0 : w.stride_h,
      .stride_w = w.stride_w == w.stride_h ? 0 : w.stride_w,
      .pad_h = w.pad_h,
      .pad_w = w.pad_w == w.pad_h ? 0 : w.pad_w,
      .pad_h_only = w.pad_h && !w.pad_w,
      .output_pad_h = output_h + w.less_h,
      .output_pad_w = output_w + w.less_w,
      .groups = groups == 1 ? 0 : (int)groups,
      .dilation_h = dilation_h_of(&w),
      .dilation_w = dilation_w_of(&w),
      .no_bias = !bias,
      .activation = sl__onnx_fuse(r, node, &last)};
  struct sl_conv_transpose1d_options row = {.channels = o.channels,
                                            .kernel = w.kernel_w,
                                            .stride = w.stride_w == 1 ? 0 : w.stride_w,
                                            .pad = w.pad_w,
                                            .output_pad = o.output_pad_w,
                                            .dilation = w.dilation_w == 1 ? 0 : w.dilation_w,
                                            .groups = o.groups,
                                            .no_bias = o.no_bias,
                                            .activation = o.activation};
  SL__TRY(sl__onnx_append(r, node, weight->name,
                          w.is_1d ? &sl__conv_transpose1d_kind : &sl__conv_transpose2d_kind,
                          w.is_1d ? (void *)&row : &o, &x, 1));
  SL__TRY(sl__onnx_set(r, node, "weight", weight->reals, weight->count, NULL));
  if (bias) SL__TRY(sl__onnx_set(r, node, "bias", bias, channels, NULL));
  status = sl__onnx_give_first(r, last, NULL);
out:
  return status;
}

/* Pooling has no dilation. */
static enum sl_status read_pool_window(const reader *r, const node_of *node, struct window *w) {
  enum sl_status status = read_window(r, node, w);
  if (status == SL_OK && (w->dilation_h != 1 || w->dilation_w != 1))
    status = sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                             "attribute dilations is %d, %d; only 1 is supported", w->dilation_h,
                             w->dilation_w);
  return status;
}

static enum sl_status append_pool(reader *r, const node_of *node, const value_of *x, bool average,
                                  struct sl_pool2d_options *o, struct sl_pool1d_options *row) {
  if (x->view.ndim == 2)
    return sl__onnx_append(r, node, NULL, average ? &sl__avgpool1d_kind : &sl__maxpool1d_kind, row,
                           x, 1);
  if (x->view.ndim == 3)
    return sl__onnx_append(r, node, NULL, average ? &sl__avgpool2d_kind : &sl__maxpool2d_kind, o, x,
                           1);
  return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                         "pools over %d dimensions of a sample; [C, H, W] and [C, L] are supported",
                         x->view.ndim);
}

enum sl_status sl__onnx_read_pool(reader *r, const node_of *node) {
  bool average = !strcmp(node->op, "AveragePool");
  struct window w = {0};
  enum sl_status status;
  value_of x;
  SL__TRY(sl__onnx_take_whole(r, node, 0, &x));
  w.is_1d = x.view.ndim == 2;
  SL__TRY(read_pool_window(r, node, &w));
  SL__TRY(sl__onnx_must_be(r, node, "ceil_mode", 0, 0));
  if (average && (w.pad_h || w.pad_w))
    SL__TRY(sl__onnx_must_be(r, node, "count_include_pad", 0, 1));
  bool usual = w.stride_h == w.kernel_h && w.stride_w == w.kernel_w;
  struct sl_pool2d_options o = {.kernel_h = w.kernel_h,
                                .kernel_w = w.kernel_w == w.kernel_h ? 0 : w.kernel_w,
                                .stride_h = usual ? 0 : w.stride_h,
                                .stride_w = usual || w.stride_w == w.stride_h ? 0 : w.stride_w,
                                .pad_h = w.pad_h,
                                .pad_w = w.pad_w == w.pad_h ? 0 : w.pad_w,
                                .pad_h_only = w.pad_h && !w.pad_w};
  struct sl_pool1d_options row = {
      .kernel = w.kernel_w, .stride = w.stride_w == w.kernel_w ? 0 : w.stride_w, .pad = w.pad_w};
  SL__TRY(append_pool(r, node, &x, average, &o, &row));
  status = sl__onnx_give_first(r, node, NULL);
out:
  return status;
}

enum sl_status sl__onnx_read_global(reader *r, const node_of *node) {
  struct sl_pool2d_options o = {.global = true};
  struct sl_pool1d_options row = {.global = true};
  enum sl_status status;
  value_of x;
  SL__TRY(sl__onnx_take_whole(r, node, 0, &x));
  SL__TRY(append_pool(r, node, &x, !strcmp(node->op, "GlobalAveragePool"), &o, &row));
  status = sl__onnx_give_first(r, node, NULL);
out:
  return status;
}

/* The factors of the plane, or of the row: constants, or the ratio of a constant size. */
static enum sl_status read_scales(const reader *r, const node_of *node, const value_of *x,
                                  int scale[2]) {
  const struct sl__onnx_tensor *scales = sl__onnx_constant(r, node, node->inputs == 2 ? 1 : 2),
                               *sizes = sl__onnx_constant(r, node, 3);
  int ndim = x->view.ndim + 1;
  double factor[4] = {0};
  for (int d = 0; d < ndim; d++) {
    int64_t size = d ? x->view.dim[d - 1] : 1;
    if (scales && scales->reals && scales->count == ndim)
      factor[d] = (double)scales->reals[d];
    else if (sizes && sizes->wholes && sizes->count == ndim)
      factor[d] = d ? (double)sizes->wholes[d] / (double)size : 1;
  }
  for (int d = 0; d < ndim; d++)
    if (factor[d] != floor(factor[d]) || factor[d] < 1 || factor[d] > 1024 ||
        (d < 2 && factor[d] != 1))
      return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                             "scales must be constant whole numbers, of %s only",
                             ndim == 3 ? "L" : "H and W");
  for (int d = 2; d < ndim; d++) scale[d - 2] = (int)factor[d];
  return SL_OK;
}

static enum sl_status append_upsampling(reader *r, const node_of *node, const value_of *x,
                                        bool linear) {
  int scale[2] = {0};
  enum sl_status status = read_scales(r, node, x, scale);
  struct sl_upsample1d_options row = {.scale = scale[0], .linear = linear};
  struct sl_upsample2d_options plane = {
      .scale_h = scale[0], .scale_w = scale[1] == scale[0] ? 0 : scale[1], .bilinear = linear};
  if (status != SL_OK) return status;
  if (x->view.ndim == 2) return sl__onnx_append(r, node, NULL, &sl__upsample1d_kind, &row, x, 1);
  return sl__onnx_append(r, node, NULL, &sl__upsample2d_kind, &plane, x, 1);
}

/* An attribute's text, or the usual one. */
static enum sl_status get_way(const reader *r, const node_of *node, const char *name,
                              const char *usual, const char **way) {
  enum sl_status status = sl__onnx_get_text(r, node, name, way);
  if (!*way) *way = usual;
  return status;
}

/* Does the layer compute the same? Its pixels' places: nearest takes floor(i / scale), linear has
 * centres at halves. Before operator set 11 nodes have no choice: places are asymmetric. */
static enum sl_status check_ways(const reader *r, const node_of *node, bool *linear, bool *same) {
  bool is_old = r->graph.opset < 11 || !strcmp(node->op, "Upsample");
  const char *mode, *places, *rounds, *policy;
  enum sl_status status;
  SL__TRY(get_way(r, node, "mode", "nearest", &mode));
  SL__TRY(get_way(r, node, "coordinate_transformation_mode", is_old ? "asymmetric" : "half_pixel",
                  &places));
  SL__TRY(get_way(r, node, "nearest_mode", is_old ? "floor" : "round_prefer_floor", &rounds));
  SL__TRY(get_way(r, node, "keep_aspect_ratio_policy", "stretch", &policy));
  /* these three differ only for a scale that is no whole number, or a single pixel that stays one;
   * tf_half_pixel_for_nn has other places */
  bool at_halves = !strcmp(places, "half_pixel") || !strcmp(places, "pytorch_half_pixel") ||
                   !strcmp(places, "half_pixel_symmetric");
  bool floors = !strcmp(places, "asymmetric") && !strcmp(rounds, "floor");
  *linear = !strcmp(mode, "linear");
  *same = !strcmp(policy, "stretch") && (*linear ? at_halves : !strcmp(mode, "nearest") && floors);
out:
  return status;
}

enum sl_status sl__onnx_read_resize(reader *r, const node_of *node) {
  bool linear, same;
  enum sl_status status;
  value_of x;
  SL__TRY(sl__onnx_take_whole(r, node, 0, &x));
  SL__TRY(check_ways(r, node, &linear, &same));
  SL__TRY(sl__onnx_must_be(r, node, "antialias", 0, 0));
  if (x.view.ndim < 2 || x.view.ndim > 3 || !same)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "nearest (asymmetric, floor) and linear (half_pixel, from operator set "
                           "11 on) of [N, C, H, W] and [N, C, L] are supported, with the policy "
                           "stretch");
  SL__TRY(append_upsampling(r, node, &x, linear));
  status = sl__onnx_give_first(r, node, NULL);
out:
  return status;
}
