/* y (+)= the sum, over the axes that y lacks, of the product of factors, each constant along the
 * axes that it lacks: products of layers' outputs that broadcast, and their gradients. */
#include "codelets/multiply_broadcast.h"

#include <string.h>

#include "codelets/kernels/elementwise.h"
#include "codelets/kernels/sum.h"

/* ---- CPU kernel -------------------------------------------------------------------------- */

SL__SIMD static void fill_block(const float *x, int64_t stride, float *restrict block, int64_t n) {
  if (stride)
    memcpy(block, x, (size_t)n * sizeof *block);
  else
    for (int64_t i = 0; i < n; i++) block[i] = *x;
}

SL__SIMD static void multiply_block(const float *x, int64_t stride, float *restrict block,
                                    int64_t n) {
  float factor = *x;
  if (stride)
    for (int64_t i = 0; i < n; i++) block[i] *= x[i];
  else
    for (int64_t i = 0; i < n; i++) block[i] *= factor;
}

SL__SIMD static void add_block(const float *restrict block, float *restrict y, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] += block[i];
}

/* The products of a run of n values along the last axis. Returns where they are. */
static const float *multiply_run(int factors, const float *const *x, const int64_t *stride,
                                 float *block, int64_t n) {
  if (factors == 1 && stride[0]) return x[0];
  fill_block(x[0], stride[0], block, n);
  for (int f = 1; f < factors; f++) multiply_block(x[f], stride[f], block, n);
  return block;
}

/* A run of products into y. adds: y has a part of the sum already. */
static void take_run(const float *products, int64_t n, float *y, bool sums, bool adds) {
  if (sums)
    *y = adds ? *y + sl__sum_run(products, n) : sl__sum_run(products, n);
  else if (adds)
    add_block(products, y, n);
  else
    memcpy(y, products, (size_t)n * sizeof *y);
}

/* The place of a run's first value in each tensor: it counts the other axes as an odometer does. */
struct place {
  int64_t at[SL_MAX_DIMS], *first, (*stride)[SL_MAX_DIMS];
};

static bool next_run(const struct sl__multiply_broadcast_args *a, int tensors, struct place *p) {
  for (int64_t d = a->ndim - 2; d >= 0; d--) {
    bool more = ++p->at[d] < a->dim[d];
    for (int t = 0; t < tensors; t++)
      p->first[t] += more ? p->stride[t][d] : -(a->dim[d] - 1) * p->stride[t][d];
    if (more) return true;
    p->at[d] = 0;
  }
  return false;
}

/* Are y's values of this run without any term yet? */
static bool is_first_term(const struct sl__multiply_broadcast_args *a, const struct place *p) {
  for (int d = 0; d < a->ndim - 1; d++)
    if ((*sl__broadcast_lacks(a) >> d & 1) && p->at[d]) return false;
  return true;
}

SL__KERNEL void sl__multiply_broadcast_cpu(void *buffers[], void *cl_arg) {
  const struct sl__multiply_broadcast_args *a = sl__args(cl_arg);
  int last = (int)a->ndim - 1, tensors = sl__buffer_count(cl_arg);
  bool sums = *sl__broadcast_lacks(a) >> last & 1;
  float block[SL__CACHED];
  const float *x[tensors];
  int64_t stride[tensors], first[tensors], strides[tensors][SL_MAX_DIMS];
  struct place p = {{0}, first, strides};
  for (int t = 0; t < tensors; t++) {
    first[t] = 0;
    sl__broadcast_strides(a, t, strides[t]);
    if (t) stride[t - 1] = strides[t][last];
  }
  do {
    bool adds = sl__accumulate(cl_arg) || !is_first_term(a, &p);
    for (int64_t i = 0, n; i < a->dim[last]; i += n) {
      n = a->dim[last] - i < SL__CACHED ? a->dim[last] - i : SL__CACHED;
      for (int t = 1; t < tensors; t++)
        x[t - 1] = (const float *)sl__buffer(buffers, t) + p.first[t] + i * stride[t - 1];
      take_run(multiply_run(tensors - 1, x, stride, block, n), n,
               (float *)sl__buffer(buffers, 0) + p.first[0] + (sums ? 0 : i), sums,
               adds || (sums && i));
    }
  } while (next_run(a, tensors, &p));
}

/* ---- submission -------------------------------------------------------------------------- */

/* The axes of `whole` that t lacks, as bits. The batch's comes first; those of a sample lie at the
 * end. false: the shapes do not fit. */
static bool find_lacking(const struct sl_shape *whole, const struct sl_shape *t, uint32_t *lacks) {
  int missing = whole->ndim - t->ndim;
  *lacks = 0;
  if (missing < 0 || t->dim[0] != whole->dim[0]) return false;
  for (int d = 1; d < whole->ndim; d++) {
    int64_t dim = d > missing ? t->dim[d - missing] : 1;
    if (dim != 1 && dim != whole->dim[d]) return false;
    if (dim == 1) *lacks |= 1u << d;
  }
  return true;
}

/* Joins neighbours that the same tensors have, and leaves out axes of size 1. */
static void join_axes(const struct sl_shape *whole, int tensors, const uint32_t *lacks,
                      struct sl__multiply_broadcast_args *a, uint32_t *joined) {
  int last = 0; /* the axis of `whole` that the last one of a comes from */
  for (int d = 0; d < whole->ndim; d++) {
    bool alike = a->ndim > 0;
    if (whole->dim[d] == 1 && (d < whole->ndim - 1 || a->ndim)) continue;
    for (int t = 0; t < tensors; t++) alike &= (lacks[t] >> d & 1) == (lacks[t] >> last & 1);
    last = d;
    if (alike) {
      a->dim[a->ndim - 1] *= whole->dim[d];
      continue;
    }
    for (int t = 0; t < tensors; t++) joined[t] |= (lacks[t] >> d & 1) << a->ndim;
    a->dim[a->ndim++] = whole->dim[d];
  }
}

enum sl_status sl__multiply_broadcast(struct sl_context *context, const struct sl__launch *l,
                                      int count, struct sl__tensor *const *factors,
                                      struct sl__tensor *y) {
  _Alignas(8) char
      args[sizeof(struct sl__multiply_broadcast_args) + ((size_t)count + 1) * sizeof(uint32_t)];
  struct sl__multiply_broadcast_args *a = (struct sl__multiply_broadcast_args *)args;
  struct sl__tensor *tensors[count + 1];
  const struct sl_shape *whole = &factors[0]->shape;
  uint32_t lacks[count + 1];
  char wt[96], tt[96];
  memset(args, 0, sizeof args);
  tensors[0] = y;
  for (int t = 0; t <= count; t++) {
    if (t) tensors[t] = factors[t - 1];
    if (!find_lacking(whole, &tensors[t]->shape, &lacks[t]))
      return sl__fail(SL_BAD_SHAPE, "multiply_broadcast: %s does not broadcast to %s",
                      sl_shape_text(&tensors[t]->shape, tt, sizeof tt),
                      sl_shape_text(whole, wt, sizeof wt));
  }
  join_axes(whole, count + 1, lacks, a, (uint32_t *)(a + 1));
  return sl__submit(context, &sl__op_multiply_broadcast, l, count + 1, tensors, args, sizeof args,
                    (double)sl_shape_count(whole) * count,
                    starpu_hash_crc32c_be_n(args, sizeof args, 0));
}
