/* 2-D convolution with groups (depthwise included; Howard et al., arXiv 1704.04861), dilation (Yu,
 * Koltun, arXiv 1511.07122), or transposed (Zeiler et al. 2010). A transposed one is the gradient
 * of a convolution, a group a convolution of fewer channels. Where the kernels of plain
 * convolutions do not serve, a group of an image is a matrix product. */
#include "codelets/groupconv2d.h"

#include <string.h>

#include "codelets/activation.h"
#include "codelets/codelets.h"
#include "codelets/kernels/choice.h"
#include "codelets/kernels/conv.h"
#include "codelets/kernels/conv_backward_data.h"
#include "codelets/kernels/conv_backward_weight.h"
#include "codelets/kernels/conv_bias.h"
#include "codelets/kernels/conv_forward.h"
#include "codelets/kernels/conv_frame.h"
#include "codelets/kernels/conv_matrix.h"
#include "codelets/kernels/gemm.h"
#include "codelets/kernels/planes.h"
#include "codelets/kernels/winograd.h"
#include "codelets/kernels/winograd_backward_weight.h"
#include "core/base/error.h"

/* ---- sizes --------------------------------------------------------------------------------- */

static int64_t x_plane(const struct sl__groupconv_args *a) { return (int64_t)a->height * a->width; }
static int64_t y_plane(const struct sl__groupconv_args *a) {
  return (int64_t)a->out_height * a->out_width;
}

/* The windows of a group's channels. */
static struct sl__conv_windows windows_of(const struct sl__groupconv_args *a) {
  return (struct sl__conv_windows){a->channels / a->groups,
                                   a->height,
                                   a->width,
                                   a->out_height,
                                   a->out_width,
                                   a->kernel_h,
                                   a->kernel_w,
                                   a->stride_h,
                                   a->stride_w,
                                   a->pad_h,
                                   a->pad_w,
                                   a->dilation_h,
                                   a->dilation_w};
}

/* The bias of the outputs, or NULL. back: y is the layer's input. */
static const float *bias_of(const struct sl__groupconv_args *a, const float *weight, bool back) {
  return a->has_bias && !a->transposed == !back ? weight + sl__groupconv_weights(a) : NULL;
}

/* ---- CPU kernels: by products -------------------------------------------------------------- */

/* A unit of work: its bits must not depend on its neighbours, which another worker may have. */
static const struct sl__conv_images one = {1, 0, 0};

/* Adds the biases of `channels` planes, and activates them. */
static void finish(const struct sl__groupconv_args *a, float *y, int64_t channels, int64_t plane,
                   const float *bias) {
  if (bias) sl__conv_add_bias(y, bias, channels, plane);
  sl__activate(a->activation, y, y, channels * plane);
}

/* Units of work: the groups of the images. */
static int64_t units_of(const struct sl__groupconv_args *a) {
  return (int64_t)a->images * a->groups;
}

/* A group of an image. */
struct piece {
  int64_t group, x, y, weight; /* places of the first values */
};

static struct piece piece_of(const struct sl__groupconv_args *a, int64_t unit) {
  int64_t n = unit / a->groups, g = unit % a->groups;
  return (struct piece){.group = g,
                        .x = (n * a->channels + g * (a->channels / a->groups)) * x_plane(a),
                        .y = (n * a->out_channels + g * (a->out_channels / a->groups)) * y_plane(a),
                        .weight = g * (sl__groupconv_weights(a) / a->groups)};
}

static void gather_by_products(const struct sl__groupconv_args *a, const float *x,
                               const float *weight, float *y, float *scratch,
                               struct sl__work_range range, bool add) {
  const struct sl__conv_windows w = windows_of(a);
  int64_t outputs = a->out_channels / a->groups;
  const float *bias = bias_of(a, weight, false);
  for (int64_t u = range.first; u < range.end; u++) {
    struct piece p = piece_of(a, u);
    sl__conv_matrix_forward(sl__gemm_of(a->implementation), &w, outputs, &one, x + p.x,
                            weight + p.weight, y + p.y, scratch, add);
    finish(a, y + p.y, outputs, y_plane(a), bias ? bias + p.group * outputs : NULL);
  }
}

static void scatter_by_products(const struct sl__groupconv_args *a, const float *y,
                                const float *weight, float *x, float *scratch,
                                struct sl__work_range range, bool add) {
  const struct sl__conv_windows w = windows_of(a);
  int64_t channels = a->channels / a->groups, outputs = a->out_channels / a->groups;
  const float *bias = bias_of(a, weight, true);
  for (int64_t u = range.first; u < range.end; u++) {
    struct piece p = piece_of(a, u);
    sl__conv_matrix_backward_data(sl__gemm_of(a->implementation), &w, outputs, &one, y + p.y,
                                  weight + p.weight, x + p.x, scratch, add);
    finish(a, x + p.x, channels, x_plane(a), bias ? bias + p.group * channels : NULL);
  }
}

static void weights_by_products(const struct sl__groupconv_args *a, const float *x, const float *y,
                                float *grad, float *scratch, bool add) {
  const struct sl__conv_windows w = windows_of(a);
  const struct sl__conv_images images = {a->images, a->channels * x_plane(a),
                                         a->out_channels * y_plane(a)};
  for (int64_t g = 0; g < a->groups; g++) {
    struct piece p = piece_of(a, g);
    sl__conv_matrix_backward_weight(sl__gemm_of(a->implementation), &w, a->out_channels / a->groups,
                                    &images, x + p.x, y + p.y, grad + p.weight, scratch, add);
  }
}

/* ---- CPU kernels: as plain convolutions ---------------------------------------------------- */

/* The plain convolution of the units of work that go in one call, without its bias: all images of
 * the only group, or one image of a group. */
static struct sl__conv_args plain_of(const struct sl__groupconv_args *a,
                                     struct sl__work_range units) {
  return (struct sl__conv_args){.images = a->groups > 1 ? 1 : (int32_t)(units.end - units.first),
                                .channels = a->channels / a->groups,
                                .height = a->height,
                                .width = a->width,
                                .out_channels = a->out_channels / a->groups,
                                .out_height = a->out_height,
                                .out_width = a->out_width,
                                .kernel_h = a->kernel_h,
                                .kernel_w = a->kernel_w,
                                .stride_h = a->stride_h,
                                .stride_w = a->stride_w,
                                .pad_h = a->pad_h,
                                .pad_w = a->pad_w,
                                .implementation = a->implementation,
                                .gap_h = a->kernel_h > 1 ? a->dilation_h - 1 : 0,
                                .gap_w = a->kernel_w > 1 ? a->dilation_w - 1 : 0};
}

static void gather_plain(const struct sl__groupconv_args *a, const float *x, const float *weight,
                         float *y, float *scratch, struct sl__work_range units) {
  struct sl__conv_args p = plain_of(a, units);
  const float *bias = bias_of(a, weight, false);
  p.activation = a->activation;
  for (int64_t u = units.first; u < units.end; u += p.images) {
    struct piece g = piece_of(a, u);
    const float *of_group = bias ? bias + g.group * p.out_channels : NULL;
    sl__conv_forward(&p, x + g.x, weight + g.weight, of_group, y + g.y, scratch, 0);
  }
}

static void scatter_plain(const struct sl__groupconv_args *a, const float *y, const float *weight,
                          float *x, float *scratch, struct sl__work_range units, bool add) {
  struct sl__conv_args p = plain_of(a, units);
  const float *bias = bias_of(a, weight, true);
  for (int64_t u = units.first; u < units.end; u += p.images) {
    struct piece g = piece_of(a, u);
    const float *of_group = bias ? bias + g.group * p.channels : NULL;
    sl__conv_backward_data(&p, y + g.y, weight + g.weight, x + g.x, scratch, add, 0);
    for (int32_t n = 0; n < p.images; n++)
      finish(a, x + g.x + n * sl__conv_x_size(&p), p.channels, x_plane(a), of_group);
  }
}

static void weights_plain(const struct sl__groupconv_args *a, const float *x, const float *y,
                          float *grad, float *scratch, bool add) {
  const struct sl__work_range units = {0, units_of(a)};
  const struct sl__conv_args p = plain_of(a, units);
  for (int64_t u = 0; u < units.end; u += p.images) {
    struct piece g = piece_of(a, u);
    bool more = add || u >= a->groups;
    if (p.implementation == SL__WINOGRAD)
      sl__winograd_backward_weight(&p, x + g.x, y + g.y, grad + g.weight, scratch, more, 0);
    else
      sl__conv_backward_weight(&p, x + g.x, y + g.y, grad + g.weight, NULL, scratch, more, 0);
  }
}

/* ---- CPU kernels --------------------------------------------------------------------------- */

/* out (+)= the sum of gathered values: y from x. */
SL__KERNEL void sl__groupconv2d_gather_cpu(void *buffers[], void *cl_arg) {
  const struct sl__groupconv_args *a = sl__args(cl_arg);
  const float *x = sl__buffer(buffers, 0), *weight = sl__buffer(buffers, 1);
  float *y = sl__buffer(buffers, 2), *scratch = sl__buffer(buffers, 3);
  bool add = sl__accumulate(cl_arg);
  struct sl__work_range range = sl__work_range(cl_arg, units_of(a));
  if (a->method == SL__GROUPCONV_MATRIX)
    gather_by_products(a, x, weight, y, scratch, range, add);
  else
    gather_plain(a, x, weight, y, scratch, range);
}

/* out (+)= the sum of scattered values: x from y. */
SL__KERNEL void sl__groupconv2d_scatter_cpu(void *buffers[], void *cl_arg) {
  const struct sl__groupconv_args *a = sl__args(cl_arg);
  const float *y = sl__buffer(buffers, 0), *weight = sl__buffer(buffers, 1);
  float *x = sl__buffer(buffers, 2), *scratch = sl__buffer(buffers, 3);
  bool add = sl__accumulate(cl_arg);
  struct sl__work_range range = sl__work_range(cl_arg, units_of(a));
  if (a->method == SL__GROUPCONV_MATRIX)
    scatter_by_products(a, y, weight, x, scratch, range, add);
  else
    scatter_plain(a, y, weight, x, scratch, range, add);
}

SL__KERNEL void sl__groupconv2d_backward_weight_cpu(void *buffers[], void *cl_arg) {
  const struct sl__groupconv_args *a = sl__args(cl_arg);
  const float *x = sl__buffer(buffers, 0), *y = sl__buffer(buffers, 1);
  float *grad = sl__buffer(buffers, 2), *bias = grad + sl__groupconv_weights(a);
  float *scratch = sl__buffer(buffers, 3);
  bool add = sl__accumulate(cl_arg);
  if (a->method == SL__GROUPCONV_MATRIX)
    weights_by_products(a, x, y, grad, scratch, add);
  else
    weights_plain(a, x, y, grad, scratch, add);
  if (!a->has_bias) return;
  if (a->transposed)
    sl__conv_bias_gradient(x, a->images, a->channels, x_plane(a), bias, add);
  else
    sl__conv_bias_gradient(y, a->images, a->out_channels, y_plane(a), bias, add);
}

/* ---- submission -------------------------------------------------------------------------- */

/* The output's padding of a transposed convolution may have room for more than y has. */
static bool fits_axis(int64_t size, int64_t out, int kernel, int stride, int pad, int dilation,
                      bool transposed) {
  int64_t room = size + 2 * (int64_t)pad - (int64_t)dilation * (kernel - 1) - 1;
  if (kernel < 1 || stride < 1 || pad < 0 || dilation < 1 || room < 0) return false;
  return transposed ? out <= room / stride + 1 : out == room / stride + 1;
}

/* x, y: as in the arguments. */
static enum sl_status check(const char *name, const struct sl__tensor *x,
                            const struct sl__tensor *param, const struct sl__tensor *y,
                            const struct sl__groupconv2d *o, struct sl__groupconv_args *a) {
  char xt[96], yt[96];
  const struct sl__conv2d *c = &o->conv;
  int64_t xd[4], yd[4];
  bool fits = sl__planes_of(&x->shape, xd);
  fits &= sl__planes_of(&y->shape, yd);
  *a = (struct sl__groupconv_args){.images = (int32_t)xd[0],
                                   .channels = (int32_t)xd[1],
                                   .height = (int32_t)xd[2],
                                   .width = (int32_t)xd[3],
                                   .out_channels = (int32_t)yd[1],
                                   .out_height = (int32_t)yd[2],
                                   .out_width = (int32_t)yd[3],
                                   .kernel_h = c->kernel_h,
                                   .kernel_w = c->kernel_w,
                                   .stride_h = c->stride_h,
                                   .stride_w = c->stride_w,
                                   .pad_h = c->pad_h,
                                   .pad_w = c->pad_w,
                                   .dilation_h = o->dilation_h,
                                   .dilation_w = o->dilation_w,
                                   .groups = o->groups,
                                   .has_bias = c->has_bias,
                                   .transposed = o->transposed};
  int64_t biases = !c->has_bias ? 0 : o->transposed ? xd[1] : yd[1];
  if (fits && xd[0] == yd[0] && o->groups > 0 && xd[1] % o->groups == 0 && yd[1] % o->groups == 0 &&
      (o->transposed ? xd[1] : yd[1]) == c->channels &&
      fits_axis(xd[2], yd[2], c->kernel_h, c->stride_h, c->pad_h, o->dilation_h, o->transposed) &&
      fits_axis(xd[3], yd[3], c->kernel_w, c->stride_w, c->pad_w, o->dilation_w, o->transposed) &&
      sl_shape_count(&param->shape) == sl__groupconv_weights(a) + biases)
    return SL_OK;
  return sl__fail(
      SL_BAD_SHAPE,
      "%s: x %s, y %s and %lld parameters do not fit %d channels in %d groups of %dx%d, "
      "stride %dx%d, padding %dx%d, dilation %dx%d",
      name, sl_shape_text(&x->shape, xt, sizeof xt), sl_shape_text(&y->shape, yt, sizeof yt),
      (long long)sl_shape_count(&param->shape), c->channels, o->groups, c->kernel_h, c->kernel_w,
      c->stride_h, c->stride_w, c->pad_h, c->pad_w, o->dilation_h, o->dilation_w);
}

/* ---- the choice of a method ---- */

/* Along one axis: a transposed convolution may leave out outputs. The frame of a dilated one must
 * not be much larger than its outputs: a matrix takes less time and memory then. */
static bool is_plain_axis(int32_t size, int32_t out, int32_t kernel, int32_t stride, int32_t pad,
                          int32_t dilation) {
  int64_t span = (int64_t)(kernel - 1) * dilation;
  return out == (size + 2 * (int64_t)pad - span - 1) / stride + 1 && (dilation == 1 || span <= out);
}

static bool is_plain(const struct sl__groupconv_args *a) {
  return is_plain_axis(a->height, a->out_height, a->kernel_h, a->stride_h, a->pad_h,
                       a->dilation_h) &&
         is_plain_axis(a->width, a->out_width, a->kernel_w, a->stride_w, a->pad_w, a->dilation_w);
}

/* The plain convolution's kernels for an operation: whether they serve, whether Winograd's do, and
 * their scratch memory. */
struct plain_kernels {
  bool serve, by_tiles;
  int64_t (*scratch)(const struct sl__conv_args *a);
};

static int64_t weight_scratch(const struct sl__conv_args *a) {
  return a->implementation == SL__WINOGRAD ? sl__winograd_backward_weight_scratch(a)
                                           : sl__conv_backward_weight_scratch(a);
}

static struct plain_kernels kernels_of(const struct sl__op *op, const struct sl__conv_args *p) {
  if (op == &sl__op_groupconv2d_gather) {
    bool serve = sl__conv_frame_fits(p);
    return (struct plain_kernels){serve, serve && sl__winograd_serves(p), sl__conv_forward_scratch};
  }
  if (op == &sl__op_groupconv2d_scatter) {
    bool fit = sl__conv_backward_data_fits(p);
    bool by_tiles = fit && sl__conv_backward_data_winograd_serves(p);
    return (struct plain_kernels){by_tiles || (fit && sl__conv_backward_data_pays(p)), by_tiles,
                                  sl__conv_backward_data_scratch};
  }
  bool by_tiles = sl__winograd_backward_weight_serves(p);
  bool direct = sl__conv_backward_weight_serves(p) && sl__conv_backward_weight_pays(p);
  return (struct plain_kernels){by_tiles || direct, by_tiles, weight_scratch};
}

/* A unit of work, such as one image, would rearrange, or sum up, more weights than it has values.
 */
static bool has_more_weights(const struct sl__groupconv_args *a) {
  return sl__groupconv_weights(a) > a->channels * x_plane(a) + a->out_channels * y_plane(a);
}

/* A forward kernel overwrites its outputs. Returns the floats of scratch memory. */
static int64_t choose(struct sl_context *context, const struct sl__op *op,
                      const struct sl__launch *l, bool is_cut, struct sl__groupconv_args *a) {
  const struct sl__conv_windows w = windows_of(a);
  int forced = context->forced_implementation - 1;
  bool overwrites = op == &sl__op_groupconv2d_gather;
  bool may = forced < 0 || forced == SL__OWN || forced == SL__WINOGRAD;
  bool by_units = is_cut || a->groups > 1;
  if (may && is_plain(a) && !(overwrites && l->accumulate)) {
    const struct sl__work_range all = {0, a->images};
    struct sl__conv_args p = plain_of(a, all);
    const struct plain_kernels kernels = kernels_of(op, &p);
    p.implementation = a->implementation = kernels.by_tiles ? SL__WINOGRAD : SL__OWN;
    bool rearranges = kernels.by_tiles || !overwrites;
    if (kernels.serve && !(by_units && rearranges && has_more_weights(a))) {
      a->method = SL__GROUPCONV_PLAIN;
      return kernels.scratch(&p);
    }
  }
  a->implementation = sl__product_choice(context);
  a->method = SL__GROUPCONV_MATRIX;
  /* the other two multiply an image at a time */
  int64_t together = op == &sl__op_groupconv2d_backward_weight ? a->images : 1;
  return sl__conv_matrix_scratch(&w, a->out_channels / a->groups, together);
}

static enum sl_status submit(struct sl_context *context, struct sl__op *op,
                             const struct sl__launch *l, struct sl__tensor *first,
                             struct sl__tensor *second, struct sl__tensor *out,
                             struct sl__groupconv_args *a, bool is_cut) {
  struct sl__launch launch = *l;
  struct sl__tensor *scratch;
  double pixels = (double)a->images * a->out_height * a->out_width;
  bool on_gpu = l->place.where == STARPU_CUDA;
  int64_t room = on_gpu ? 1 : choose(context, op, l, is_cut, a);
  enum sl_status status = sl__scratch(context, (size_t)room * sizeof(float), &scratch);
  if (status != SL_OK) return status;
  if (is_cut)
    launch.cut = (struct sl__cut){
        .units = units_of(a), .flat = true, .scratch = (size_t)room * sizeof(float)};
  return sl__submit(context, op, &launch, 4, (struct sl__tensor *[]){first, second, out, scratch},
                    a, sizeof *a, 2.0 * pixels * (double)sl__groupconv_weights(a),
                    starpu_hash_crc32c_be_n(a, sizeof *a, 0));
}

/* The layer's output from its input. */
enum sl_status sl__groupconv2d_forward(struct sl_context *context, const struct sl__launch *l,
                                       struct sl__tensor *x, struct sl__tensor *param,
                                       struct sl__tensor *y, const struct sl__groupconv2d *conv) {
  struct sl__groupconv_args a;
  bool back = conv->transposed;
  enum sl_status status = check("groupconv2d_forward", back ? y : x, param, back ? x : y, conv, &a);
  if (status != SL_OK) return status;
  a.activation = conv->conv.activation;
  return submit(context, back ? &sl__op_groupconv2d_scatter : &sl__op_groupconv2d_gather, l, x,
                param, y, &a, true);
}

enum sl_status sl__groupconv2d_backward_data(struct sl_context *context, const struct sl__launch *l,
                                             struct sl__tensor *dy, struct sl__tensor *param,
                                             struct sl__tensor *dx,
                                             const struct sl__groupconv2d *conv) {
  struct sl__groupconv_args a;
  bool back = conv->transposed;
  enum sl_status status =
      check("groupconv2d_backward_data", back ? dy : dx, param, back ? dx : dy, conv, &a);
  if (status != SL_OK) return status;
  a.has_bias = 0; /* it belongs to the output */
  return submit(context, back ? &sl__op_groupconv2d_gather : &sl__op_groupconv2d_scatter, l, dy,
                param, dx, &a, false);
}

enum sl_status sl__groupconv2d_backward_weight(struct sl_context *context,
                                               const struct sl__launch *l, struct sl__tensor *x,
                                               struct sl__tensor *dy, struct sl__tensor *grad,
                                               const struct sl__groupconv2d *conv) {
  struct sl__groupconv_args a;
  struct sl__tensor *wide = conv->transposed ? dy : x, *narrow = conv->transposed ? x : dy;
  enum sl_status status = check("groupconv2d_backward_weight", wide, grad, narrow, conv, &a);
  if (status != SL_OK) return status;
  return submit(context, &sl__op_groupconv2d_backward_weight, l, wide, narrow, grad, &a, false);
}
