/* 2-D convolution. The forward pass has direct and Winograd kernels
 * (codelets/kernels/direct_conv.c, winograd.c), and so have the gradients of the input
 * (conv_backward_data.c, winograd_backward_data.c) and of the weights (conv_backward_weight.c,
 * winograd_backward_weight.c). Otherwise each image is a matrix product
 * (codelets/kernels/conv_matrix.h), with a matrix that stays in the cache. */
#include <string.h>

#include "codelets/activation.h"
#include "codelets/add.h"
#include "codelets/kernels/choice.h"
#include "codelets/codelets.h"
#include "codelets/kernels/conv.h"
#include "codelets/kernels/conv_backward_data.h"
#include "codelets/kernels/conv_bias.h"
#include "codelets/kernels/conv_backward_weight.h"
#include "codelets/batchnorm.h"
#include "codelets/kernels/conv_frame.h"
#include "codelets/kernels/conv_matrix.h"
#include "codelets/kernels/direct_conv.h"
#include "codelets/kernels/gemm.h"
#include "codelets/kernels/onednn.h"
#include "codelets/kernels/planes.h"
#include "codelets/kernels/winograd.h"
#include "codelets/kernels/winograd_backward_weight.h"
#include "core/base/error.h"

static struct sl__conv_windows windows_of(const struct sl__conv_args *a) {
  return (struct sl__conv_windows){a->channels,
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
                                   1,
                                   1};
}

static struct sl__conv_images images_of(const struct sl__conv_args *a) {
  return (struct sl__conv_images){a->images, sl__conv_x_size(a), sl__conv_y_size(a)};
}

/* ---- CPU kernels ------------------------------------------------------------------------- */

static enum sl__gemm product(const struct sl__conv_args *a) {
  return a->implementation == SL__OWN_OPENBLAS ? SL__GEMM_OPENBLAS : sl__gemm_preferred();
}

static struct sl__onednn_window onednn_window(const struct sl__conv_args *a) {
  return (struct sl__onednn_window){a->images,       a->channels,   a->height,    a->width,
                                    a->out_channels, a->out_height, a->out_width, a->kernel_h,
                                    a->kernel_w,     a->stride_h,   a->stride_w,  a->pad_h,
                                    a->pad_w};
}

static bool forward_by_onednn(const struct sl__conv_args *a, const float *x, const float *weight,
                              float *y) {
  struct sl__onednn_window w = onednn_window(a);
  const float *bias = a->has_bias ? weight + a->out_channels * sl__conv_taps(a) : NULL;
  if (!sl__onednn_conv2d_forward(&w, x, weight, bias, y)) return false;
  sl__activate(a->activation, y, y, a->images * a->out_channels * sl__conv_pixels(a));
  return true;
}

/* Following calls that the convolution can absorb, in this order, each at most once: batch
 * normalisation by running statistics, a sum, an activation. */
static bool absorb(void *args, const struct sl__op *next, const void *next_args, int which) {
  struct sl__conv_args *a = args;
  if (a->activation != SL_ACTIVATION_NONE) return false;
  if (next == &sl__op_activation_forward) {
    a->activation = ((const struct sl__activation_args *)next_args)->activation;
    return true;
  }
  if (next == &sl__op_add) {
    const struct sl__add_args *sum = next_args;
    if (a->residual || sum->has_relu || sum->terms != 2) return false;
    a->residual = true;
    return true;
  }
  const struct sl__norm_args *norm = next_args;
  if (next != &sl__op_batchnorm_inference || which != 0 || a->norm || a->residual || norm->has_relu)
    return false;
  a->norm = true;
  a->epsilon = norm->epsilon;
  return true;
}

/* An implementation whose sums stay in registers. */
static bool is_own(const struct sl__conv_args *a) {
  return a->implementation == SL__OWN || a->implementation == SL__WINOGRAD;
}

static int64_t own_units(const struct sl__conv_args *a, bool *planes) {
  return a->implementation == SL__WINOGRAD ? sl__winograd_units(a, planes, 0)
                                           : sl__direct_conv_units(a, planes, 0);
}

/* Floats before a kernel's own scratch memory: the epilogue's. */
static int64_t epilogue_floats(const struct sl__conv_args *a) {
  return ((int64_t)a->out_channels + 15) / 16 * 16;
}

static int64_t own_scratch(const struct sl__conv_args *a, bool is_prepacked) {
  return epilogue_floats(a) + (a->implementation == SL__WINOGRAD
                                   ? sl__winograd_scratch(a, is_prepacked)
                                   : sl__direct_conv_scratch(a));
}

/* The distance between planes is a multiple of a tile. */
static struct sl__cut own_cut(const struct sl__conv_args *a) {
  bool planes;
  int64_t units = own_units(a, &planes);
  return (struct sl__cut){.units = planes && a->out_channels % 8 == 0 ? units / 8 : units,
                          .flat = planes,
                          .absorb = absorb};
}

/* The buffers of absorbed calls follow the convolution's own four. scale [K] is computed here. */
static struct sl__conv_epilogue epilogue_of(const struct sl__conv_args *a, void *buffers[],
                                            float *scale) {
  struct sl__conv_epilogue epilogue = {
      .residual = a->residual ? sl__buffer(buffers, 4 + 2 * a->norm) : NULL};
  if (!a->norm) return epilogue;
  const float *norm = sl__buffer(buffers, 4), *running = sl__buffer(buffers, 5);
  for (int32_t c = 0; c < a->out_channels; c++)
    scale[c] = sl__norm_scale(norm[c], running[a->out_channels + c], a->epsilon);
  epilogue.mean = running;
  epilogue.scale = scale;
  epilogue.shift = norm + a->out_channels;
  return epilogue;
}

/* Transformed weights, and the biases. */
static int64_t formed_size(const struct sl__conv_args *a) {
  return sl__winograd_weights(a) + a->has_bias * a->out_channels;
}

static void make_form(const void *args, const void *from, void *to) {
  const struct sl__conv_args *a = args;
  const float *bias = (const float *)from + a->out_channels * sl__conv_taps(a);
  sl__winograd_transform(a, from, 0, a->out_channels, to);
  if (a->has_bias)
    memcpy((float *)to + sl__winograd_weights(a), bias, (size_t)a->out_channels * sizeof *bias);
}

/* Images of another size may have transformed weights that lie otherwise. */
static struct sl__prepack own_form(const struct sl__conv_args *a) {
  return (struct sl__prepack){.make = make_form,
                              .buffer = 1,
                              .bytes = (size_t)formed_size(a) * sizeof(float),
                              .key = ((uint64_t)a->channels << 32 | (uint32_t)a->out_channels) * 8 +
                                     (uint64_t)sl__winograd_layout(a),
                              .scratch = (size_t)own_scratch(a, true) * sizeof(float)};
}

static void own_forward(const struct sl__conv_args *a, const float *x, const float *weight,
                        float *y, float *scratch, const struct sl__conv_epilogue *epilogue,
                        const void *cl_arg) {
  bool planes, is_prepacked = sl__is_prepacked(cl_arg);
  int64_t weights = is_prepacked ? sl__winograd_weights(a) : a->out_channels * sl__conv_taps(a);
  const float *bias = a->has_bias ? weight + weights : NULL;
  struct sl__work_range range = sl__work_range(cl_arg, own_units(a, &planes));
  if (a->implementation == SL__WINOGRAD)
    sl__winograd_forward(a, x, weight, is_prepacked, bias, epilogue, y, scratch, range, 0);
  else
    sl__direct_conv_forward(a, x, weight, bias, epilogue, y, scratch, range, 0);
}

static void forward(const struct sl__conv_args *a, const float *x, const float *weight, float *y,
                    float *scratch) {
  int64_t k = a->out_channels, p = sl__conv_pixels(a);
  const struct sl__conv_windows w = windows_of(a);
  if (a->implementation == SL__ONEDNN && forward_by_onednn(a, x, weight, y)) return;
  const struct sl__conv_images images = images_of(a);
  sl__conv_matrix_forward(product(a), &w, k, &images, x, weight, y, scratch, false);
  for (int32_t n = 0; n < a->images; n++, y += k * p) {
    if (a->has_bias) sl__conv_add_bias(y, weight + k * sl__conv_taps(a), k, p);
    sl__activate(a->activation, y, y, k * p);
  }
}

/* oneDNN overwrites its output; for accumulation our own code serves. */
static void backward_data(const struct sl__conv_args *a, const float *dy, const float *weight,
                          float *dx, float *scratch, bool add) {
  const struct sl__conv_windows m = windows_of(a);
  struct sl__onednn_window w = onednn_window(a);
  if (is_own(a)) {
    sl__conv_backward_data(a, dy, weight, dx, scratch, add, 0);
    return;
  }
  if (a->implementation == SL__ONEDNN && !add &&
      sl__onednn_conv2d_backward_data(&w, dy, weight, dx))
    return;
  const struct sl__conv_images images = images_of(a);
  sl__conv_matrix_backward_data(product(a), &m, a->out_channels, &images, dy, weight, dx, scratch,
                                add);
}

static void backward_weight(const struct sl__conv_args *a, const float *x, const float *dy,
                            float *grad, float *scratch, bool add) {
  int64_t k = a->out_channels;
  float *bias = a->has_bias ? grad + k * sl__conv_taps(a) : NULL;
  const struct sl__conv_windows m = windows_of(a);
  const struct sl__conv_images images = images_of(a);
  struct sl__onednn_window w = onednn_window(a);
  if (a->implementation == SL__ONEDNN && !add &&
      sl__onednn_conv2d_backward_weight(&w, x, dy, grad, bias))
    return;
  if (is_own(a) && a->implementation != SL__WINOGRAD) {
    sl__conv_backward_weight(a, x, dy, grad, bias, scratch, add, 0);
    return;
  }
  if (a->implementation == SL__WINOGRAD)
    sl__winograd_backward_weight(a, x, dy, grad, scratch, add, 0);
  else
    sl__conv_matrix_backward_weight(product(a), &m, k, &images, x, dy, grad, scratch, add);
  if (bias) sl__conv_bias_gradient(dy, a->images, k, sl__conv_pixels(a), bias, add);
}

SL__KERNEL void sl__conv2d_forward_cpu(void *buffers[], void *cl_arg) {
  const struct sl__conv_args *a = sl__args(cl_arg);
  const float *x = sl__buffer(buffers, 0), *weight = sl__buffer(buffers, 1);
  float *y = sl__buffer(buffers, 2), *scratch = sl__buffer(buffers, 3);
  if (!is_own(a)) {
    forward(a, x, weight, y, scratch);
    return;
  }
  struct sl__conv_epilogue epilogue = epilogue_of(a, buffers, scratch);
  own_forward(a, x, weight, y, scratch + epilogue_floats(a), &epilogue, cl_arg);
}

SL__KERNEL void sl__conv2d_backward_data_cpu(void *buffers[], void *cl_arg) {
  backward_data(sl__args(cl_arg), sl__buffer(buffers, 0), sl__buffer(buffers, 1),
                sl__buffer(buffers, 2), sl__buffer(buffers, 3), sl__accumulate(cl_arg));
}

SL__KERNEL void sl__conv2d_backward_weight_cpu(void *buffers[], void *cl_arg) {
  backward_weight(sl__args(cl_arg), sl__buffer(buffers, 0), sl__buffer(buffers, 1),
                  sl__buffer(buffers, 2), sl__buffer(buffers, 3), sl__accumulate(cl_arg));
}

/* ---- measuring --------------------------------------------------------------------------- */

/* Does not count that a captured graph keeps the transformed weights, and is faster then. */
static void try_forward(enum sl__implementation i, const void *args, float *const *m) {
  struct sl__conv_args a = *(const struct sl__conv_args *)args;
  const struct sl__conv_epilogue nothing = {0};
  a.implementation = i;
  if (is_own(&a))
    own_forward(&a, m[0], m[1], m[2], m[3], &nothing, &(struct sl__args_header){0});
  else
    forward(&a, m[0], m[1], m[2], m[3]);
}

static void try_backward_data(enum sl__implementation i, const void *args, float *const *m) {
  struct sl__conv_args a = *(const struct sl__conv_args *)args;
  a.implementation = i;
  backward_data(&a, m[0], m[1], m[2], m[3], false);
}

static void try_backward_weight(enum sl__implementation i, const void *args, float *const *m) {
  struct sl__conv_args a = *(const struct sl__conv_args *)args;
  a.implementation = i;
  backward_weight(&a, m[0], m[1], m[2], m[3], false);
}

/* ---- submission -------------------------------------------------------------------------- */

static enum sl_status check(const char *name, const struct sl__tensor *x,
                            const struct sl__tensor *param, const struct sl__tensor *y,
                            const struct sl__conv2d *c, struct sl__conv_args *a) {
  char xt[96], yt[96];
  int64_t xd[4], yd[4];
  if (sl__planes_of(&x->shape, xd) && sl__planes_of(&y->shape, yd)) {
    *a = (struct sl__conv_args){(int32_t)xd[0],
                                (int32_t)xd[1],
                                (int32_t)xd[2],
                                (int32_t)xd[3],
                                c->channels,
                                (int32_t)yd[2],
                                (int32_t)yd[3],
                                c->kernel_h,
                                c->kernel_w,
                                c->stride_h,
                                c->stride_w,
                                c->pad_h,
                                c->pad_w,
                                c->has_bias,
                                c->activation,
                                0,
                                0,
                                0,
                                0};
    int64_t h = xd[2] + 2 * c->pad_h - c->kernel_h, w = xd[3] + 2 * c->pad_w - c->kernel_w;
    if (h >= 0 && w >= 0 && c->stride_h > 0 && c->stride_w > 0 && yd[0] == xd[0] &&
        yd[1] == c->channels && yd[2] == h / c->stride_h + 1 && yd[3] == w / c->stride_w + 1 &&
        param->shape.dim[0] == c->channels * (sl__conv_taps(a) + c->has_bias))
      return SL_OK;
  }
  return sl__fail(SL_BAD_SHAPE,
                  "%s: x %s, y %s and %lld parameters do not fit %d channels of %dx%d, stride "
                  "%dx%d, padding %dx%d",
                  name, sl_shape_text(&x->shape, xt, sizeof xt),
                  sl_shape_text(&y->shape, yt, sizeof yt), (long long)param->shape.dim[0],
                  c->channels, c->kernel_h, c->kernel_w, c->stride_h, c->stride_w, c->pad_h,
                  c->pad_w);
}

/* x, y and gradient give the sizes; stride, padding and activation change the cost, too. */
static uint32_t footprint(const struct sl__conv_args *a) {
  size_t size = offsetof(struct sl__conv_args, norm) - offsetof(struct sl__conv_args, kernel_h);
  return starpu_hash_crc32c_be_n(&a->kernel_h, size, 0);
}

typedef void try_conv(enum sl__implementation i, const void *args, float *const *m);

static int64_t scratch_of(const struct sl__op *op, const struct sl__conv_args *a) {
  if (op == &sl__op_conv2d_forward) return own_scratch(a, false);
  if (op == &sl__op_conv2d_backward_data) return sl__conv_backward_data_scratch(a);
  return a->implementation == SL__WINOGRAD ? sl__winograd_backward_weight_scratch(a)
                                           : sl__conv_backward_weight_scratch(a);
}

/* Floats of scratch memory for any implementation. */
static int64_t most_scratch(const struct sl__op *op, const struct sl__conv_args *a, uint32_t mask) {
  const struct sl__conv_windows w = windows_of(a);
  int64_t most = sl__conv_matrix_scratch(&w, a->out_channels, a->images);
  struct sl__conv_args other = *a;
  for (int i = SL__OWN; i <= SL__WINOGRAD; i++) {
    other.implementation = i;
    if (mask >> i & 1 && scratch_of(op, &other) > most) most = scratch_of(op, &other);
  }
  return most;
}

/* The implementations of our own that can serve, as a mask. */
static uint32_t own_choices(const struct sl__op *op, const struct sl__conv_args *a) {
  bool direct = false, winograd = false;
  if (op == &sl__op_conv2d_forward) {
    direct = sl__conv_frame_fits(a);
    winograd = direct && sl__winograd_serves(a);
  } else if (op == &sl__op_conv2d_backward_data) {
    direct = sl__conv_backward_data_fits(a);
    winograd = direct && sl__conv_backward_data_winograd_serves(a);
  } else {
    direct = sl__conv_backward_weight_serves(a);
    winograd = sl__winograd_backward_weight_serves(a);
  }
  return (uint32_t)direct << SL__OWN | (uint32_t)winograd << SL__WINOGRAD;
}

/* Direct kernels fuse the normalisation, sum and activation behind them, and one image's product
 * takes no less time: products serve several images alone. */
static bool direct_pays(const struct sl__op *op, const struct sl__conv_args *a) {
  if (op == &sl__op_conv2d_backward_data) return sl__conv_backward_data_pays(a);
  if (op == &sl__op_conv2d_forward) return a->images < 8 || !sl__conv_waits_for_weights(a, 16);
  return sl__conv_backward_weight_pays(a);
}

/* Returns the scratch memory that the cost estimate includes. */
static int64_t choose(struct sl_context *context, const struct sl__op *op, bool accumulate,
                      struct sl__tensor **t, struct sl__conv_args *a, try_conv *try) {
  uint32_t own = own_choices(op, a);
  bool onednn = sl__onednn_available() && !accumulate; /* it overwrites its output */
  struct sl__candidates c = {
      .operation = op->codelet.name,
      .mask = sl__choice_products() | (uint32_t)onednn << SL__ONEDNN | own,
      .preferred = own >> SL__WINOGRAD & 1                    ? SL__WINOGRAD
                   : own >> SL__OWN & 1 && direct_pays(op, a) ? SL__OWN
                   : sl__gemm_preferred() == SL__GEMM_ONEDNN  ? SL__OWN_ONEDNN
                                                              : SL__OWN_OPENBLAS,
      .sizes = &a->images,
      .size_count = (int)(offsetof(struct sl__conv_args, implementation) / sizeof(int32_t)),
      .run = try,
      .elements = {sl_shape_count(&t[0]->shape), sl_shape_count(&t[1]->shape),
                   sl_shape_count(&t[2]->shape)}};
  c.elements[3] = most_scratch(op, a, c.mask);
  a->implementation = sl__choose(context, &c, a);
  return c.elements[3];
}

static enum sl_status submit(struct sl_context *context, struct sl__op *op,
                             const struct sl__launch *l, struct sl__tensor *first,
                             struct sl__tensor *second, struct sl__tensor *out,
                             struct sl__conv_args *a, try_conv *try) {
  struct sl__tensor *t[4] = {first, second, out};
  struct sl__launch launch = *l;
  int64_t room = choose(context, op, l->accumulate, t, a, try);
  if (l->place.where == STARPU_CUDA) {
    room = 1; /* cuDNN has a workspace */
  } else if (is_own(a)) {
    room = scratch_of(op, a);
  }
  if (op == &sl__op_conv2d_forward && l->place.where != STARPU_CUDA && is_own(a)) {
    launch.cut = own_cut(a);
    launch.cut.scratch = (size_t)room * sizeof(float);
    if (a->implementation == SL__WINOGRAD) launch.prepack = own_form(a);
  }
  if (op == &sl__op_conv2d_backward_weight && first->type == SL_BF16) {
    int64_t widened = sl__conv_bf16_adapted(a) * (sl__conv_x_size(a) + sl__conv_y_size(a));
    if (widened > room) room = widened;
  }
  enum sl_status status = sl__scratch(context, (size_t)room * sizeof(float), &t[3]);
  if (status != SL_OK) return status;
  double flops = 2.0 * a->images * (double)a->out_channels * (double)sl__conv_pixels(a) *
                 (double)sl__conv_taps(a);
  return sl__submit(context, op, &launch, 4, t, a, sizeof *a, flops, footprint(a));
}

enum sl_status sl__conv2d_forward(struct sl_context *context, const struct sl__launch *l,
                                  struct sl__tensor *x, struct sl__tensor *param,
                                  struct sl__tensor *y, const struct sl__conv2d *conv) {
  struct sl__conv_args a;
  enum sl_status status = check("conv2d_forward", x, param, y, conv, &a);
  return status == SL_OK ? submit(context, &sl__op_conv2d_forward, l, x, param, y, &a, try_forward)
                         : status;
}

enum sl_status sl__conv2d_backward_data(struct sl_context *context, const struct sl__launch *l,
                                        struct sl__tensor *dy, struct sl__tensor *param,
                                        struct sl__tensor *dx, const struct sl__conv2d *conv) {
  struct sl__conv_args a;
  enum sl_status status = check("conv2d_backward_data", dx, param, dy, conv, &a);
  return status == SL_OK ? submit(context, &sl__op_conv2d_backward_data, l, dy, param, dx, &a,
                                  try_backward_data)
                         : status;
}

enum sl_status sl__conv2d_backward_weight(struct sl_context *context, const struct sl__launch *l,
                                          struct sl__tensor *x, struct sl__tensor *dy,
                                          struct sl__tensor *grad, const struct sl__conv2d *conv) {
  struct sl__conv_args a;
  enum sl_status status = check("conv2d_backward_weight", x, grad, dy, conv, &a);
  return status == SL_OK ? submit(context, &sl__op_conv2d_backward_weight, l, x, dy, grad, &a,
                                  try_backward_weight)
                         : status;
}
