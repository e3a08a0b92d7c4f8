/* Dense layer: y = act(x W^T + b), W [O, I] as in PyTorch, the flat parameter block is W then b. */
#include "codelets/activation.h"
#include "codelets/codelets.h"
#include "codelets/gemm.h"
#include "core/error.h"

struct dense_args {
  int64_t rows, in, out;
  int32_t has_bias, activation, gemm;
};

/* ---- CPU kernels --------------------------------------------------------------------------------- */

SL_SIMD static void add_bias(float *y, const float *bias, int64_t rows, int64_t out) {
  for (int64_t n = 0; n < rows; n++)
    for (int64_t o = 0; o < out; o++) y[n * out + o] += bias[o];
}

SL_KERNEL void dense_forward_cpu(void *buffers[], void *cl_arg) {
  const struct dense_args *a = sl__args(cl_arg);
  const float *x = sl__buffer(buffers, 0), *param = sl__buffer(buffers, 1);
  float *y = sl__buffer(buffers, 2);
  sl__gemm(a->gemm, false, true, a->rows, a->out, a->in, 1, x, a->in, param, a->in, 0, y, a->out);
  if (a->has_bias) add_bias(y, param + a->out * a->in, a->rows, a->out);
  sl__activate(a->activation, y, y, a->rows * a->out);
}

SL_KERNEL void dense_backward_data_cpu(void *buffers[], void *cl_arg) {
  const struct dense_args *a = sl__args(cl_arg);
  const float *dy = sl__buffer(buffers, 0), *param = sl__buffer(buffers, 1);
  sl__gemm(a->gemm, false, false, a->rows, a->in, a->out, 1, dy, a->out, param, a->in,
           sl__accumulate(cl_arg), sl__buffer(buffers, 2), a->in);
}

/* Column sums, row after row: each sum's order is that of the rows. */
SL_SIMD static void bias_gradient(const float *dy, float *grad, int64_t rows, int64_t out, bool add) {
  for (int64_t o = 0; o < out && !add; o++) grad[o] = 0;
  for (int64_t n = 0; n < rows; n++)
    for (int64_t o = 0; o < out; o++) grad[o] += dy[n * out + o];
}

SL_KERNEL void dense_backward_weight_cpu(void *buffers[], void *cl_arg) {
  const struct dense_args *a = sl__args(cl_arg);
  const float *x = sl__buffer(buffers, 0), *dy = sl__buffer(buffers, 1);
  float *grad = sl__buffer(buffers, 2);
  bool add = sl__accumulate(cl_arg);
  sl__gemm(a->gemm, true, false, a->out, a->in, a->rows, 1, dy, a->out, x, a->in, add, grad, a->in);
  if (a->has_bias) bias_gradient(dy, grad + a->out * a->in, a->rows, a->out, add);
}

/* ---- submission ---------------------------------------------------------------------------------- */

static enum sl_status check(const char *name, const struct sl_tensor *x, const struct sl_tensor *param,
                            const struct sl_tensor *y, bool has_bias, struct dense_args *a) {
  char xt[96], yt[96];
  int64_t rows = x->shape.dim[0];
  a->rows = rows;
  a->in = sl_shape_count(&x->shape) / rows;
  a->out = sl_shape_count(&y->shape) / rows;
  a->has_bias = has_bias;
  a->gemm = sl__gemm_preferred();
  if (y->shape.dim[0] == rows && param->shape.dim[0] == a->out * (a->in + has_bias)) return SL_OK;
  return sl_fail(SL_BAD_SHAPE, "%s: x %s, y %s and %lld parameters do not fit; %lld are needed", name,
                 sl_shape_text(&x->shape, xt, sizeof xt), sl_shape_text(&y->shape, yt, sizeof yt),
                 (long long)param->shape.dim[0], (long long)(a->out * (a->in + has_bias)));
}

static double product_flops(const struct dense_args *a) {
  return 2.0 * (double)a->rows * (double)a->in * (double)a->out;
}

enum sl_status sl__dense_forward(struct sl_context *context, const struct sl__launch *l,
                                 struct sl_tensor *x, struct sl_tensor *param, struct sl_tensor *y,
                                 bool has_bias, enum sl_activation activation) {
  struct dense_args a = {.activation = activation};
  enum sl_status status = check("dense_forward", x, param, y, has_bias, &a);
  if (status != SL_OK) return status;
  return sl__submit(context, &sl__op_dense_forward, l, 3, (struct sl_tensor *[]){x, param, y}, &a,
                    sizeof a, product_flops(&a), (uint32_t)activation);
}

enum sl_status sl__dense_backward_data(struct sl_context *context, const struct sl__launch *l,
                                       struct sl_tensor *dy, struct sl_tensor *param,
                                       struct sl_tensor *dx) {
  struct dense_args a = {0};
  int64_t weights = sl_shape_count(&dx->shape) / dx->shape.dim[0] *
                    (sl_shape_count(&dy->shape) / dy->shape.dim[0]);
  /* the block may end with a bias, of which this pass has no use */
  enum sl_status status =
      check("dense_backward_data", dx, param, dy, param->shape.dim[0] != weights, &a);
  if (status != SL_OK) return status;
  return sl__submit(context, &sl__op_dense_backward_data, l, 3, (struct sl_tensor *[]){dy, param, dx},
                    &a, sizeof a, product_flops(&a), 0);
}

enum sl_status sl__dense_backward_weight(struct sl_context *context, const struct sl__launch *l,
                                         struct sl_tensor *x, struct sl_tensor *dy,
                                         struct sl_tensor *grad, bool has_bias) {
  struct dense_args a = {0};
  enum sl_status status = check("dense_backward_weight", x, grad, dy, has_bias, &a);
  if (status != SL_OK) return status;
  return sl__submit(context, &sl__op_dense_backward_weight, l, 3, (struct sl_tensor *[]){x, dy, grad},
                    &a, sizeof a, product_flops(&a), has_bias);
}
