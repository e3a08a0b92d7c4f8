/* Dense layer: y = act(x W^T + b), W [O, I] as in PyTorch, the flat parameter block is W then b. */
#include "codelets/activation.h"
#include "codelets/kernels/bf16_adapter.h"
#include "codelets/kernels/cache_prefetch.h"
#include "codelets/kernels/choice.h"
#include "codelets/codelets.h"
#include "codelets/dense.h"
#include "codelets/kernels/skinny_gemm.h"
#include "codelets/kernels/gemm.h"
#include "codelets/kernels/onednn.h"
#include "codelets/kernels/tiles.h"
#include "codelets/kernels/weight_gradient.h"
#include "core/base/error.h"

/* ---- CPU kernels ------------------------------------------------------------------------- */

/* A library's product, the biases and the activation take this number of outputs at a time: all
 * rows of them fit a second-level cache, and are not read from memory again. That was measured with
 * vectors of 16 floats; with AVX2 oneDNN reads narrow products in place, and slowly. */
static int64_t block_of(const struct sl__dense_args *a) {
  const int64_t cached = 3 << 16 /* floats */, least = 256, run = 64;
  int64_t block = cached / a->rows / run * run;
  return block < least || block > a->out || sl__lanes(0) < 16 ? a->out : block;
}

/* The range of rows for which our own product (codelets/kernels/skinny_gemm.h) is at least as fast
 * as oneDNN's, measured. Between one row, which needs no transposed matrix, and `some` rows it
 * serves matrices that exceed a core's cache. With vectors of 16 floats it serves any number of
 * rows if sums are long, for which oneDNN transposes W at each call. */
static bool few_rows_pay(const struct sl__dense_args *a) {
  const int32_t some = 16, very_few = 4, most = 48;
  const int64_t large = 1 << 20;
  if (a->rows == 1) return true;
  if (a->rows > most) return sl__skinny_gemm_pays(a->in);
  return a->rows >= ((int64_t)a->in * a->out >= large ? very_few : some);
}

/* One row is computed in another order than several, if that may be. */
static bool is_one_row(const struct sl__dense_args *a) {
  return a->rows == 1 && !a->batch_invariant;
}

/* One row may be divided anywhere, preferably between vectors; more rows are divided between blocks
 * of columns. */
static struct sl__cut cut_of(const struct sl__dense_args *a) {
  if (!is_one_row(a)) return (struct sl__cut){.units = sl__skinny_gemm_blocks(a->out)};
  int32_t run = 16;
  while (a->out % run) run /= 2;
  return (struct sl__cut){.units = a->out / run, .flat = true};
}

/* W transposed, then the biases. */
static int64_t formed_size(const struct sl__dense_args *a) {
  return sl__skinny_gemm_transposed_size(a->out, a->in) + (a->has_bias ? a->out : 0);
}

static void make_form(const void *args, const void *from, void *to) {
  const struct sl__dense_args *a = args;
  sl__skinny_gemm_transpose(a->out, a->in, from, to, 0);
  const float *bias = (const float *)from + (int64_t)a->out * a->in;
  if (a->has_bias)
    memcpy((float *)to + sl__skinny_gemm_transposed_size(a->out, a->in), bias,
           (size_t)a->out * sizeof *bias);
}

static void few_forward(const struct sl__dense_args *a, struct sl__work_range range, const float *x,
                        const float *weight, bool is_prepacked, const float *bias, float *saved,
                        float *y) {
  int64_t out = a->out, in = a->in,
          each = is_one_row(a) ? out / cut_of(a).units : SL__SKINNY_GEMM_COLUMNS;
  int64_t first = range.first * each, end = range.end * each < out ? range.end * each : out;
  if (is_one_row(a))
    sl__skinny_gemm_dots(in, x, weight, bias, saved, first, end, 0);
  else
    sl__skinny_gemm_product(a->rows, out, in, x, weight, is_prepacked, bias, saved, out,
                            range.first, range.end, 0);
  for (int64_t n = 0; n < a->rows && first < end; n++)
    sl__activate(a->activation, saved + n * out + first, y + n * out + first, end - first);
}

/* `count` outputs from output o on of all rows. */
static void forward_block(const struct sl__dense_args *a, int64_t o, int64_t count, const float *x,
                          const float *weight, const float *bias, float *saved, float *y) {
  int64_t out = a->out, in = a->in;
  sl__gemm(sl__gemm_of(a->implementation), false, true, a->rows, count, in, 1, x, in,
           weight + o * in, in, 0, saved + o, out);
  if (bias) sl__add_bias(saved + o, bias + o, a->rows, count, out);
  int64_t pieces = count == out ? 1 : a->rows, length = count == out ? a->rows * out : count;
  for (int64_t n = 0; n < pieces; n++)
    sl__activate(a->activation, saved + n * out + o, y + n * out + o, length);
}

/* saved: gets the values before the activation; NULL: they are of no use. */
static void forward(const struct sl__dense_args *a, struct sl__work_range range, const float *x,
                    const float *weight, bool is_prepacked, const float *bias, float *saved,
                    float *y) {
  bool is_product = !a->has_bias && a->activation == SL_ACTIVATION_NONE;
  int64_t out = a->out, block = is_product ? out : block_of(a);
  float *sum = saved ? saved : y;
  if (!a->has_bias) bias = NULL;
  if (a->implementation == SL__OWN) {
    few_forward(a, range, x, weight, is_prepacked, bias, sum, y);
    return;
  }
  for (int64_t o = 0; o < out; o += block)
    forward_block(a, o, out - o < block ? out - o : block, x, weight, bias, sum, y);
}

static void backward_data(const struct sl__dense_args *a, const float *dy, const float *param,
                          float *dx, bool add) {
  if (a->implementation == SL__OWN) {
    sl__skinny_gemm_plain(a->rows, a->in, a->out, dy, a->out, param, add, dx, 0);
    return;
  }
  sl__gemm(sl__gemm_of(a->implementation), false, false, a->rows, a->in, a->out, 1, dy, a->out,
           param, a->in, add, dx, a->in);
}

/* Stored, a gradient of our own (codelets/kernels/weight_gradient.h) has 0.9 to 1.2 of the speed of
 * oneDNN's with vectors of 16 floats, measured; within an optimizer's step it need not be stored.
 * With AVX2 it has three quarters of that speed. */
static bool own_gradient_pays(void) { return sl__lanes(0) == 16; }

struct stored_gradient {
  float *grad;
  int64_t in, out;
  bool add;
};

/* The rows of the next tile are prefetched meanwhile. */
SL__SIMD static void store_tile(const struct sl__gradient_tile *tile, void *data) {
  const struct stored_gradient *s = data;
  for (int r = 0; r < tile->rows; r++) {
    float *to = s->grad + (tile->row + r) * s->in + tile->column;
    if (tile->row + tile->rows + r < s->out)
      sl__prefetch_for_write(to + tile->rows * s->in, tile->columns);
    const float *from = tile->values + r * SL__SKINNY_GEMM_COLUMNS;
    for (int i = 0; i < tile->columns; i++) to[i] = s->add ? to[i] + from[i] : from[i];
  }
}

static void backward_weight(const struct sl__dense_args *a, const float *x, const float *dy,
                            float *grad, bool add) {
  bool is_own = a->implementation == SL__OWN;
  int64_t out = a->out, in = a->in, block = is_own ? sl__weight_gradient_rows(a->rows, 1) : out;
  const struct sl__weight_gradient gradient = {a->rows, in, out, 1, {{x, dy}}};
  struct stored_gradient stored = {grad, in, out, add};
  if (!is_own)
    sl__gemm(sl__gemm_of(a->implementation), true, false, out, in, a->rows, 1, dy, out, x, in, add,
             grad, in);
  for (int64_t o = 0; o < out; o += block) { /* a block's dy is in the cache for its biases */
    int64_t count = out - o < block ? out - o : block;
    if (is_own) sl__weight_gradient(&gradient, o, o + count, store_tile, &stored, 0);
    if (a->has_bias) sl__bias_gradient(a->rows, count, dy + o, out, add, grad + out * in + o);
  }
}

static struct sl__work_range share_of(const void *cl_arg) {
  return sl__work_range(cl_arg, cut_of(sl__args(cl_arg)).units);
}

SL__KERNEL void sl__dense_forward_cpu(void *buffers[], void *cl_arg) {
  const struct sl__dense_args *a = sl__args(cl_arg);
  const float *param = sl__buffer(buffers, 1);
  bool is_prepacked = sl__is_prepacked(cl_arg);
  int64_t weights =
      is_prepacked ? sl__skinny_gemm_transposed_size(a->out, a->in) : (int64_t)a->out * a->in;
  forward(a, share_of(cl_arg), sl__buffer(buffers, 0), param, is_prepacked, param + weights,
          sl__buffer_count(cl_arg) > 3 ? sl__buffer(buffers, 3) : NULL, sl__buffer(buffers, 2));
}

SL__KERNEL void sl__dense_shared_forward_cpu(void *buffers[], void *cl_arg) {
  forward(sl__args(cl_arg), share_of(cl_arg), sl__buffer(buffers, 0), sl__buffer(buffers, 1), false,
          sl__buffer(buffers, 2), sl__buffer_count(cl_arg) > 4 ? sl__buffer(buffers, 4) : NULL,
          sl__buffer(buffers, 3));
}

SL__KERNEL void sl__bias_backward_cpu(void *buffers[], void *cl_arg) {
  const struct sl__dense_args *a = sl__args(cl_arg);
  sl__bias_gradient(a->rows, a->out, sl__buffer(buffers, 0), a->out, sl__accumulate(cl_arg),
                    sl__buffer(buffers, 1));
}

SL__KERNEL void sl__dense_backward_data_cpu(void *buffers[], void *cl_arg) {
  backward_data(sl__args(cl_arg), sl__buffer(buffers, 0), sl__buffer(buffers, 1),
                sl__buffer(buffers, 2), sl__accumulate(cl_arg));
}

SL__KERNEL void sl__dense_backward_weight_cpu(void *buffers[], void *cl_arg) {
  backward_weight(sl__args(cl_arg), sl__buffer(buffers, 0), sl__buffer(buffers, 1),
                  sl__buffer(buffers, 2), sl__accumulate(cl_arg));
}

/* ---- bf16 as it is ------------------------------------------------------------------------- */

/* saved as for floats. The activation reads sums that are rounded already. */
static bool forward_bf16(const struct sl__dense_args *a, const uint16_t *x, const uint16_t *weight,
                         const uint16_t *bias, uint16_t *saved, uint16_t *y) {
  uint16_t *sum = saved ? saved : y;
  if (a->implementation != SL__BF16 ||
      !sl__onednn_product(
          &(struct sl__onednn_product){.m = a->rows, .n = a->out, .k = a->in, .transpose_b = true},
          x, weight, a->has_bias ? bias : NULL, sum))
    return false;
  sl__activate_bf16(a->activation, sum, y, (int64_t)a->rows * a->out);
  return true;
}

bool sl__dense_forward_bf16(void *buffers[], void *cl_arg) {
  const struct sl__dense_args *a = sl__args(cl_arg);
  const uint16_t *param = sl__buffer(buffers, 1);
  return forward_bf16(a, sl__buffer(buffers, 0), param, param + (int64_t)a->out * a->in,
                      sl__buffer_count(cl_arg) > 3 ? sl__buffer(buffers, 3) : NULL,
                      sl__buffer(buffers, 2));
}

bool sl__dense_shared_forward_bf16(void *buffers[], void *cl_arg) {
  return forward_bf16(
      sl__args(cl_arg), sl__buffer(buffers, 0), sl__buffer(buffers, 1), sl__buffer(buffers, 2),
      sl__buffer_count(cl_arg) > 4 ? sl__buffer(buffers, 4) : NULL, sl__buffer(buffers, 3));
}

bool sl__bias_backward_bf16(void *buffers[], void *cl_arg) {
  const struct sl__dense_args *a = sl__args(cl_arg);
  sl__bias_gradient_bf16(a->rows, a->out, sl__buffer(buffers, 0), sl__accumulate(cl_arg),
                         sl__buffer(buffers, 1));
  return true;
}

bool sl__dense_backward_data_bf16(void *buffers[], void *cl_arg) {
  const struct sl__dense_args *a = sl__args(cl_arg);
  return a->implementation == SL__BF16 &&
         sl__onednn_product(
             &(struct sl__onednn_product){
                 .m = a->rows, .n = a->in, .k = a->out, .add = sl__accumulate(cl_arg)},
             sl__buffer(buffers, 0), sl__buffer(buffers, 1), NULL, sl__buffer(buffers, 2));
}

bool sl__dense_backward_weight_bf16(void *buffers[], void *cl_arg) {
  const struct sl__dense_args *a = sl__args(cl_arg);
  const uint16_t *x = sl__buffer(buffers, 0), *dy = sl__buffer(buffers, 1);
  float *grad = sl__buffer(buffers, 2);
  bool add = sl__accumulate(cl_arg);
  if (a->implementation != SL__BF16 ||
      !sl__onednn_product(
          &(struct sl__onednn_product){
              .m = a->out, .n = a->in, .k = a->rows, .transpose_a = true, .wide = true, .add = add},
          dy, x, NULL, grad))
    return false;
  if (a->has_bias) sl__bias_gradient_bf16(a->rows, a->out, dy, add, grad + (int64_t)a->out * a->in);
  return true;
}

/* ---- measuring --------------------------------------------------------------------------- */

typedef void try_dense(enum sl__implementation i, const void *args, float *const *m);

static struct sl__work_range whole(const struct sl__dense_args *a) {
  return (struct sl__work_range){0, cut_of(a).units};
}

static void try_forward(enum sl__implementation i, const void *args, float *const *m) {
  struct sl__dense_args a = *(const struct sl__dense_args *)args;
  a.implementation = i;
  forward(&a, whole(&a), m[0], m[1], false, m[1] + (int64_t)a.out * a.in, NULL, m[2]);
}

static void try_shared_forward(enum sl__implementation i, const void *args, float *const *m) {
  struct sl__dense_args a = *(const struct sl__dense_args *)args;
  a.implementation = i;
  forward(&a, whole(&a), m[0], m[1], false, m[2], NULL, m[3]);
}

static void try_backward_data(enum sl__implementation i, const void *args, float *const *m) {
  struct sl__dense_args a = *(const struct sl__dense_args *)args;
  a.implementation = i;
  backward_data(&a, m[0], m[1], m[2], false);
}

static void try_backward_weight(enum sl__implementation i, const void *args, float *const *m) {
  struct sl__dense_args a = *(const struct sl__dense_args *)args;
  a.implementation = i;
  backward_weight(&a, m[0], m[1], m[2], false);
}

/* ---- submission -------------------------------------------------------------------------- */

static enum sl_status check(const char *name, const struct sl__tensor *x,
                            const struct sl__tensor *param, const struct sl__tensor *y,
                            bool has_bias, struct sl__dense_args *a) {
  char xt[96], yt[96];
  int64_t out = y->shape.dim[y->shape.ndim - 1], rows = sl_shape_count(&y->shape) / out;
  a->rows = (int32_t)rows;
  a->in = (int32_t)(sl_shape_count(&x->shape) / rows);
  a->out = (int32_t)out;
  a->has_bias = has_bias;
  int64_t needed = (int64_t)a->out * (a->in + has_bias);
  if (sl_shape_count(&x->shape) == rows * a->in && y->shape.dim[0] == x->shape.dim[0] &&
      param->shape.dim[0] == needed)
    return SL_OK;
  return sl__fail(SL_BAD_SHAPE, "%s: x %s, y %s and %lld parameters do not fit; %lld are needed",
                  name, sl_shape_text(&x->shape, xt, sizeof xt),
                  sl_shape_text(&y->shape, yt, sizeof yt), (long long)param->shape.dim[0],
                  (long long)needed);
}

static double product_flops(const struct sl__dense_args *a) {
  return 2.0 * (double)a->rows * (double)a->in * (double)a->out;
}

/* Libraries choose another kernel for other numbers of rows; our own products do not, and of
 * oneDNN's products of bf16 no test has seen it. A gradient of weights has sums over the rows. */
static enum sl__implementation choose(struct sl_context *context, const struct sl__op *op,
                                      int count, struct sl__tensor *const *tensors,
                                      const struct sl__dense_args *a, try_dense *try) {
  struct sl__candidates c = {
      .operation = op->codelet.name,
      .mask = sl__choice_products(),
      .preferred = sl__gemm_preferred() == SL__GEMM_ONEDNN ? SL__OWN_ONEDNN : SL__OWN_OPENBLAS,
      .sizes = &a->rows,
      .size_count = (int)(offsetof(struct sl__dense_args, implementation) / sizeof(int32_t)),
      .run = try};
  if (try == try_forward || try == try_shared_forward) {
    c.mask |= 1u << SL__OWN;
    if (few_rows_pay(a)) c.preferred = SL__OWN;
  }
  if (try == try_backward_weight && sl__weight_gradient_fits(a->rows, 1)) {
    c.mask |= 1u << SL__OWN;
    if (own_gradient_pays()) c.preferred = SL__OWN;
  }
  if (try == try_backward_data) {
    c.mask |= 1u << SL__OWN;
    if (sl__skinny_gemm_plain_pays(a->rows, a->in)) c.preferred = SL__OWN;
  }
  if (a->batch_invariant && try != try_backward_weight) {
    c.mask = 1u << SL__OWN;
    c.preferred = SL__OWN;
  }
  /* the measurement saves nothing: neither way is faster at that */
  int measured = try == try_shared_forward ? 4 : 3;
  for (int i = 0; i < count && i < measured; i++)
    c.elements[i] = sl_shape_count(&tensors[i]->shape);
  return sl__choose(context, &c, a);
}

static enum sl_status submit(struct sl_context *context, struct sl__op *op,
                             const struct sl__launch *l, int count,
                             struct sl__tensor *const *tensors, struct sl__dense_args *a,
                             try_dense *try) {
  struct sl__launch own = *l;
  a->batch_invariant = l->batch_invariant;
  a->implementation =
      sl__reads_bf16(context, tensors[0]) ? SL__BF16 : choose(context, op, count, tensors, a, try);
  bool is_forward = try == try_forward || try == try_shared_forward;
  if (is_forward && a->implementation == SL__OWN && tensors[0]->type != SL_BF16) {
    own.cut = cut_of(a);
    if (!is_one_row(a) && op == &sl__op_dense_forward)
      own.prepack = (struct sl__prepack){.make = make_form,
                                         .buffer = 1,
                                         .bytes = (size_t)formed_size(a) * sizeof(float),
                                         .key = (uint64_t)a->in << 32 | (uint32_t)a->out};
  }
  return sl__submit(context, op, &own, count, tensors, a, sizeof *a, product_flops(a),
                    (uint32_t)a->activation);
}

/* saved may be NULL. */
static enum sl_status check_saved(const char *name, const struct sl__tensor *y,
                                  const struct sl__tensor *saved) {
  if (!saved || sl_shape_count(&saved->shape) == sl_shape_count(&y->shape)) return SL_OK;
  return sl__fail(SL_BAD_SHAPE, "%s: saved has %lld values, y %lld; they must be alike", name,
                  (long long)sl_shape_count(&saved->shape), (long long)sl_shape_count(&y->shape));
}

enum sl_status sl__dense_forward_saving(struct sl_context *context, const struct sl__launch *l,
                                        struct sl__tensor *x, struct sl__tensor *param,
                                        struct sl__tensor *y, struct sl__tensor *saved,
                                        bool has_bias, enum sl_activation activation) {
  struct sl__dense_args a = {.activation = activation};
  enum sl_status status = check("dense_forward", x, param, y, has_bias, &a);
  if (status == SL_OK) status = check_saved("dense_forward", y, saved);
  if (status != SL_OK) return status;
  return submit(context, &sl__op_dense_forward, l, saved ? 4 : 3,
                (struct sl__tensor *[]){x, param, y, saved}, &a, try_forward);
}

enum sl_status sl__dense_forward(struct sl_context *context, const struct sl__launch *l,
                                 struct sl__tensor *x, struct sl__tensor *param,
                                 struct sl__tensor *y, bool has_bias,
                                 enum sl_activation activation) {
  return sl__dense_forward_saving(context, l, x, param, y, NULL, has_bias, activation);
}

enum sl_status sl__dense_shared_forward_saving(struct sl_context *context,
                                               const struct sl__launch *l, struct sl__tensor *x,
                                               struct sl__tensor *weight, struct sl__tensor *bias,
                                               struct sl__tensor *y, struct sl__tensor *saved,
                                               enum sl_activation activation) {
  struct sl__dense_args a = {.activation = activation};
  enum sl_status status = check("dense_shared_forward", x, weight, y, false, &a);
  if (status == SL_OK) status = check_saved("dense_shared_forward", y, saved);
  if (status != SL_OK) return status;
  if (bias->shape.dim[0] != a.out)
    return sl__fail(SL_BAD_SHAPE, "dense_shared_forward: a bias of %lld for %d outputs",
                    (long long)bias->shape.dim[0], a.out);
  a.has_bias = true;
  return submit(context, &sl__op_dense_shared_forward, l, saved ? 5 : 4,
                (struct sl__tensor *[]){x, weight, bias, y, saved}, &a, try_shared_forward);
}

enum sl_status sl__dense_shared_forward(struct sl_context *context, const struct sl__launch *l,
                                        struct sl__tensor *x, struct sl__tensor *weight,
                                        struct sl__tensor *bias, struct sl__tensor *y,
                                        enum sl_activation activation) {
  return sl__dense_shared_forward_saving(context, l, x, weight, bias, y, NULL, activation);
}

enum sl_status sl__bias_backward(struct sl_context *context, const struct sl__launch *l,
                                 struct sl__tensor *dy, struct sl__tensor *grad) {
  int64_t out = grad->shape.dim[0], rows = sl_shape_count(&dy->shape) / out;
  struct sl__dense_args a = {.rows = (int32_t)rows, .out = (int32_t)out};
  if (dy->shape.dim[dy->shape.ndim - 1] != out)
    return sl__fail(SL_BAD_SHAPE, "bias_backward: a bias of %lld for %lld outputs", (long long)out,
                    (long long)dy->shape.dim[dy->shape.ndim - 1]);
  return sl__submit(context, &sl__op_bias_backward, l, 2, (struct sl__tensor *[]){dy, grad}, &a,
                    sizeof a, (double)rows * (double)out, 0);
}

enum sl_status sl__dense_backward_data(struct sl_context *context, const struct sl__launch *l,
                                       struct sl__tensor *dy, struct sl__tensor *param,
                                       struct sl__tensor *dx) {
  struct sl__dense_args a = {0};
  int64_t out = dy->shape.dim[dy->shape.ndim - 1];
  int64_t weights = sl_shape_count(&dx->shape) / (sl_shape_count(&dy->shape) / out) * out;
  /* the block may end with a bias, which this pass does not need */
  enum sl_status status =
      check("dense_backward_data", dx, param, dy, param->shape.dim[0] != weights, &a);
  if (status != SL_OK) return status;
  return submit(context, &sl__op_dense_backward_data, l, 3, (struct sl__tensor *[]){dy, param, dx},
                &a, try_backward_data);
}

enum sl_status sl__dense_backward_weight(struct sl_context *context, const struct sl__launch *l,
                                         struct sl__tensor *x, struct sl__tensor *dy,
                                         struct sl__tensor *grad, bool has_bias) {
  struct sl__dense_args a = {0};
  enum sl_status status = check("dense_backward_weight", x, grad, dy, has_bias, &a);
  if (status != SL_OK) return status;
  return submit(context, &sl__op_dense_backward_weight, l, 3, (struct sl__tensor *[]){x, dy, grad},
                &a, try_backward_weight);
}
