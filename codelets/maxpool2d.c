/* Max pooling; index stores the position of each maximum in its plane (the first of equals), for
 * the gradient. */
#include <string.h>

#include "codelets/kernels/pool2d.h"

/* ---- CPU kernels ------------------------------------------------------------------------- */

/* One row of adjacent 2x2 windows, written so that it vectorises: pairs first, one condition a
 * select, and NaN (which wins, as in PyTorch) separately. */
SL__INLINE void row_2x2(const float *restrict top, const float *restrict low, int32_t at,
                        int32_t width, int32_t count, float *restrict y, int32_t *restrict index) {
  for (int32_t ow = 0; ow < count; ow++) {
    float a = top[2 * ow], b = top[2 * ow + 1], c = low[2 * ow], d = low[2 * ow + 1];
    int32_t upper = at + 2 * ow, lower = upper + width;
    upper = b > a ? upper + 1 : upper;
    lower = d > c ? lower + 1 : lower;
    float above = b > a ? b : a, below = d > c ? d : c;
    float best = below > above ? below : above;
    index[ow] = below > above ? lower : upper;
    best = a != a ? a : best;
    best = b != b ? b : best;
    best = c != c ? c : best;
    y[ow] = d != d ? d : best;
  }
}

/* Four rows together: a row is often too short for the widest vectors. */
typedef float quad __attribute__((vector_size(16)));
typedef float loose_quad __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t quad_index __attribute__((vector_size(16)));
typedef int32_t loose_index __attribute__((vector_size(16), aligned(4), may_alias));

#define EVEN(row)                                                                                  \
  __builtin_shuffle(*(const loose_quad *)(row), *(const loose_quad *)((row) + 4),                  \
                    (quad_index){0, 2, 4, 6})
#define ODD(row)                                                                                   \
  __builtin_shuffle(*(const loose_quad *)(row), *(const loose_quad *)((row) + 4),                  \
                    (quad_index){1, 3, 5, 7})
#define CHOOSE(type, which, one, other)                                                            \
  ((type)(((quad_index)(one) & (which)) | ((quad_index)(other) & ~(which))))

SL__INLINE void quad_2x2(const float *restrict top, const float *restrict low, int32_t at,
                         int32_t width, float *restrict y, int32_t *restrict index) {
  const quad a = EVEN(top), b = ODD(top), c = EVEN(low), d = ODD(low);
  const quad_index right = b > a, under_right = d > c; /* -1 where it is */
  const quad_index upper = (quad_index){0, 2, 4, 6} + at - right;
  const quad_index lower = (quad_index){0, 2, 4, 6} + at + width - under_right;
  const quad above = CHOOSE(quad, right, b, a), below = CHOOSE(quad, under_right, d, c);
  const quad_index under = below > above;
  quad best = CHOOSE(quad, under, below, above);
  best = CHOOSE(quad, a != a, a, best);
  best = CHOOSE(quad, b != b, b, best);
  best = CHOOSE(quad, c != c, c, best);
  best = CHOOSE(quad, d != d, d, best);
  *(loose_quad *)y = best;
  *(loose_index *)index = CHOOSE(quad_index, under, lower, upper);
}

SL__INLINE void short_row_2x2(const float *restrict top, const float *restrict low, int32_t at,
                              int32_t width, int32_t count, float *restrict y,
                              int32_t *restrict index) {
  int32_t ow = 0;
  for (; ow + 4 <= count; ow += 4)
    quad_2x2(top + 2 * ow, low + 2 * ow, at + 2 * ow, width, y + ow, index + ow);
  for (; ow < count; ow++)
    row_2x2(top + 2 * ow, low + 2 * ow, at + 2 * ow, width, 1, y + ow, index + ow);
}

SL__SIMD static void forward_2x2(const struct sl__pool_args *a, const float *x, float *y,
                                 int32_t *index) {
  int32_t width = a->width, count = a->out_width, rows = a->out_height;
  for (int32_t p = 0; p < a->planes; p++, x += (int64_t)a->height * width)
    for (int32_t oh = 0; oh < rows; oh++, y += count, index += count) {
      const float *top = x + (int64_t)2 * oh * width;
      int32_t wide = count / 16 * 16, at = 2 * oh * width;
      row_2x2(top, top + width, at, width, wide, y, index);
      short_row_2x2(top + 2 * wide, top + width + 2 * wide, at + 2 * wide, width, count - wide,
                    y + wide, index + wide);
    }
}

static void forward_any(const struct sl__pool_args *a, const float *x, float *y, int32_t *index) {
  for (int32_t p = 0; p < a->planes; p++, x += (int64_t)a->height * a->width)
    for (int32_t oh = 0; oh < a->out_height; oh++)
      for (int32_t ow = 0; ow < a->out_width; ow++) {
        struct sl__pool_window v = sl__pool_window(a, oh, ow);
        int32_t best = v.h0 * a->width + v.w0;
        for (int32_t h = v.h0; h < v.h1; h++)
          for (int32_t w = v.w0; w < v.w1; w++)
            if (sl__pool_wins(x[h * a->width + w], x[best])) best = h * a->width + w;
        *y++ = x[best];
        *index++ = best;
      }
}

SL__KERNEL void sl__maxpool2d_forward_cpu(void *buffers[], void *cl_arg) {
  const struct sl__pool_args *all = sl__args(cl_arg);
  struct sl__work_range range = sl__work_range(cl_arg, all->planes);
  struct sl__pool_args a = sl__pool_part(all, range);
  const float *x = sl__buffer(buffers, 0);
  float *y = sl__buffer(buffers, 1);
  int32_t *index = sl__buffer(buffers, 2);
  int64_t from = range.first * a.height * a.width, to = range.first * a.out_height * a.out_width;
  (sl__pool_is_2x2(&a.pool) ? forward_2x2 : forward_any)(&a, x + from, y + to, index + to);
}

static void backward_any(const struct sl__pool_args *a, const float *dy, const int32_t *index,
                         float *dx, bool add) {
  int64_t plane = (int64_t)a->height * a->width, out = (int64_t)a->out_height * a->out_width;
  for (int32_t p = 0; p < a->planes; p++, dx += plane, dy += out, index += out) {
    if (!add) memset(dx, 0, (size_t)plane * sizeof *dx);
    for (int64_t i = 0; i < out; i++) dx[index[i]] += dy[i];
  }
}

/* The values of even and odd columns, one after the other. */
#define STORE_PAIRS(row, even, odd)                                                                \
  do {                                                                                             \
    *(loose_quad *)(row) = __builtin_shuffle(even, odd, (quad_index){0, 4, 1, 5});                 \
    *(loose_quad *)((row) + 4) = __builtin_shuffle(even, odd, (quad_index){2, 6, 3, 7});           \
  } while (0)

/* The gradients of four adjacent 2x2 windows: each value is written once, most as zero. at: the
 * first one's position in the plane. As 0 + dy: no negative zero. */
SL__INLINE void quad_gradient_2x2(const float *restrict dy, const int32_t *restrict index,
                                  int32_t at, int32_t width, float *restrict top,
                                  float *restrict low) {
  const quad_index which = *(const loose_index *)index - ((quad_index){0, 2, 4, 6} + at);
  const quad_index value = (quad_index)(*(const loose_quad *)dy + 0.0f);
  STORE_PAIRS(top, (quad)(value & (which == 0)), (quad)(value & (which == 1)));
  STORE_PAIRS(low, (quad)(value & (which == width)), (quad)(value & (which == width + 1)));
}

/* Two rows of a plane, which follow each other. */
SL__INLINE void rows_gradient_2x2(const struct sl__pool_args *a, const float *dy,
                                  const int32_t *index, int32_t at, float *top) {
  float *low = top + a->width;
  int32_t ow = 0;
  for (; ow + 4 <= a->out_width; ow += 4)
    quad_gradient_2x2(dy + ow, index + ow, at + 2 * ow, a->width, top + 2 * ow, low + 2 * ow);
  for (int32_t w = 2 * ow; w < a->width; w++) top[w] = low[w] = 0;
  for (; ow < a->out_width; ow++) top[index[ow] - at] += dy[ow];
}

SL__SIMD static void backward_2x2(const struct sl__pool_args *a, const float *dy,
                                  const int32_t *index, float *dx) {
  int64_t plane = (int64_t)a->height * a->width, pair = (int64_t)2 * a->width;
  for (int32_t p = 0; p < a->planes; p++, dx += plane) {
    for (int32_t oh = 0; oh < a->out_height; oh++, dy += a->out_width, index += a->out_width)
      rows_gradient_2x2(a, dy, index, (int32_t)(oh * pair), dx + oh * pair);
    int64_t rest = plane - a->out_height * pair;
    memset(dx + a->out_height * pair, 0, (size_t)rest * sizeof *dx);
  }
}

SL__KERNEL void sl__maxpool2d_backward_cpu(void *buffers[], void *cl_arg) {
  const struct sl__pool_args *a = sl__args(cl_arg);
  const float *dy = sl__buffer(buffers, 0);
  const int32_t *index = sl__buffer(buffers, 1);
  float *dx = sl__buffer(buffers, 2);
  if (sl__pool_is_2x2(&a->pool) && !sl__accumulate(cl_arg))
    backward_2x2(a, dy, index, dx);
  else
    backward_any(a, dy, index, dx, sl__accumulate(cl_arg));
}

/* ---- submission -------------------------------------------------------------------------- */

enum sl_status sl__maxpool2d_forward(struct sl_context *context, const struct sl__launch *l,
                                     struct sl__tensor *x, struct sl__tensor *y,
                                     struct sl__tensor *index, const struct sl__pool2d *pool) {
  struct sl__pool_args a;
  enum sl_status status = sl__pool_check("maxpool2d_forward", x, y, pool, &a);
  if (status == SL_OK && !sl_shape_equal(&index->shape, &y->shape))
    status = sl__fail(SL_BAD_SHAPE, "maxpool2d_forward: index must have y's shape");
  if (status != SL_OK) return status;
  struct sl__launch launch = *l;
  launch.cut = sl__pool_cut(&a);
  return sl__submit(context, &sl__op_maxpool2d_forward, &launch, 3,
                    (struct sl__tensor *[]){x, y, index}, &a, sizeof a, sl__pool_flops(&a),
                    sl__pool_footprint(&a));
}

enum sl_status sl__maxpool2d_backward(struct sl_context *context, const struct sl__launch *l,
                                      struct sl__tensor *dy, struct sl__tensor *index,
                                      struct sl__tensor *dx, const struct sl__pool2d *pool) {
  struct sl__pool_args a;
  enum sl_status status = sl__pool_check("maxpool2d_backward", dx, dy, pool, &a);
  if (status == SL_OK && !sl_shape_equal(&index->shape, &dy->shape))
    status = sl__fail(SL_BAD_SHAPE, "maxpool2d_backward: index must have dy's shape");
  if (status != SL_OK) return status;
  return sl__submit(context, &sl__op_maxpool2d_backward, l, 3,
                    (struct sl__tensor *[]){dy, index, dx}, &a, sizeof a, sl__pool_flops(&a),
                    sl__pool_footprint(&a));
}
