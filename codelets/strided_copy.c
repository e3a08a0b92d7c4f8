/* Slices, concatenations, permutations and flips of axes, and broadcasts: all are copies between
 * views of two tensors whose strides differ. */
#include "codelets/strided_copy.h"

#include <string.h>

#include "codelets/kernels/elementwise.h"

/* ---- CPU kernels ------------------------------------------------------------------------- */

SL__INLINE void copy_run(const float *x, int64_t xs, float *y, int64_t ys, int64_t n, float factor,
                         bool add) {
  if (add)
    for (int64_t i = 0; i < n; i++) y[i * ys] += factor * x[i * xs];
  else
    for (int64_t i = 0; i < n; i++) y[i * ys] = factor * x[i * xs];
}

/* A run along the last axis; strides of 1 and 0 get loops of their own, which are vectors. */
SL__SIMD static void copy(const float *x, int64_t xs, float *y, int64_t ys, int64_t n, float factor,
                          bool add) {
  if (ys == 1 && xs == 1)
    copy_run(x, 1, y, 1, n, factor, add);
  else if (ys == 1 && xs == 0)
    copy_run(x, 0, y, 1, n, factor, add);
  else
    copy_run(x, xs, y, ys, n, factor, add);
}

SL__KERNEL void sl__strided_copy_cpu(void *buffers[], void *cl_arg) {
  const struct sl__strided *a = sl__args(cl_arg);
  const float *x = (const float *)sl__buffer(buffers, 0) + a->x_first;
  float *y = sl__buffer(buffers, 1);
  bool add = sl__accumulate(cl_arg);
  int last = a->ndim - 1;
  int64_t at[SL_MAX_DIMS] = {0};
  if (a->clears && !add) memset(y, 0, (size_t)a->y_count * sizeof *y);
  y += a->y_first;
  for (int d = last; d >= 0;) {
    copy(x, a->x_stride[last], y, a->y_stride[last], a->dim[last], a->factor, add);
    for (d = last - 1; d >= 0; d--) { /* the next run, as an odometer counts */
      x += a->x_stride[d];
      y += a->y_stride[d];
      if (++at[d] < a->dim[d]) break;
      x -= a->dim[d] * a->x_stride[d];
      y -= a->dim[d] * a->y_stride[d];
      at[d] = 0;
    }
  }
}

SL__KERNEL void sl__concatenate_cpu(void *buffers[], void *cl_arg) {
  const struct sl__concatenate_args *a = sl__args(cl_arg);
  int64_t row = a->whole * a->inner;
  float *y = sl__buffer(buffers, 0);
  for (int i = 1; i < sl__buffer_count(cl_arg); i++) {
    int64_t run = sl__concatenate_sizes(a)[i - 1] * a->inner;
    const float *x = sl__buffer(buffers, i);
    for (int64_t o = 0; o < a->outer; o++)
      memcpy(y + o * row, x + o * run, (size_t)run * sizeof *y);
    y += run;
  }
}

/* ---- submission -------------------------------------------------------------------------- */

/* The strides of a tensor's axes. */
static void strides_of(const struct sl_shape *shape, int64_t stride[SL_MAX_DIMS]) {
  int64_t values = 1;
  for (int d = shape->ndim - 1; d >= 0; d--) {
    stride[d] = values;
    values *= shape->dim[d];
  }
}

static void add_axis(struct sl__strided *a, int64_t dim, int64_t x_stride, int64_t y_stride) {
  int last = a->ndim - 1;
  if (dim == 1) return;
  if (last >= 0 && a->x_stride[last] == dim * x_stride && a->y_stride[last] == dim * y_stride) {
    a->dim[last] *= dim;
    a->x_stride[last] = x_stride;
    a->y_stride[last] = y_stride;
    return;
  }
  a->dim[a->ndim] = dim;
  a->x_stride[a->ndim] = x_stride;
  a->y_stride[a->ndim++] = y_stride;
}

static enum sl_status submit(struct sl_context *context, const struct sl__launch *l,
                             struct sl__tensor *x, struct sl__tensor *y, struct sl__strided *a) {
  double values = 1;
  if (!a->ndim) { /* one value */
    a->dim[0] = 1;
    a->ndim = 1;
  }
  for (int d = 0; d < a->ndim; d++) values *= (double)a->dim[d];
  a->y_count = sl_shape_count(&y->shape);
  uint32_t footprint = starpu_hash_crc32c_be_n(
      a->dim, sizeof *a - offsetof(struct sl__strided, dim), 0); /* without the padding before */
  return sl__submit(context, &sl__op_strided_copy, l, 2, (struct sl__tensor *[]){x, y}, a,
                    sizeof *a, values, footprint);
}

static enum sl_status bad_shapes(const char *name, const struct sl__tensor *x,
                                 const struct sl__tensor *y) {
  char xt[96], yt[96];
  return sl__fail(SL_BAD_SHAPE, "%s: x %s and y %s do not fit", name,
                  sl_shape_text(&x->shape, xt, sizeof xt), sl_shape_text(&y->shape, yt, sizeof yt));
}

enum sl_status sl__permute(struct sl_context *context, const struct sl__launch *l,
                           struct sl__tensor *x, struct sl__tensor *y, const int *axes) {
  struct sl__strided a = {.factor = 1};
  int64_t x_stride[SL_MAX_DIMS], y_stride[SL_MAX_DIMS];
  bool fits = x->shape.ndim == y->shape.ndim;
  for (int d = 0; fits && d < y->shape.ndim; d++)
    fits = axes[d] >= 0 && axes[d] < x->shape.ndim && y->shape.dim[d] == x->shape.dim[axes[d]];
  if (!fits) return bad_shapes("permute", x, y);
  strides_of(&x->shape, x_stride);
  strides_of(&y->shape, y_stride);
  for (int d = 0; d < y->shape.ndim; d++)
    add_axis(&a, y->shape.dim[d], x_stride[axes[d]], y_stride[d]);
  return submit(context, l, x, y, &a);
}

/* Do the shapes differ at most along the axis, where `part` has the range from `first` on? */
static bool is_range(const struct sl_shape *whole, const struct sl_shape *part, int axis,
                     int64_t first) {
  bool fits = whole->ndim == part->ndim && axis >= 0 && axis < whole->ndim && first >= 0 &&
              first + part->dim[axis] <= whole->dim[axis];
  for (int d = 0; fits && d < whole->ndim; d++) fits = d == axis || whole->dim[d] == part->dim[d];
  return fits;
}

enum sl_status sl__slice(struct sl_context *context, const struct sl__launch *l,
                         struct sl__tensor *x, struct sl__tensor *y, int axis, int64_t first) {
  struct sl__strided a = {.factor = 1};
  int64_t x_stride[SL_MAX_DIMS], y_stride[SL_MAX_DIMS];
  if (!is_range(&x->shape, &y->shape, axis, first)) return bad_shapes("slice", x, y);
  strides_of(&x->shape, x_stride);
  strides_of(&y->shape, y_stride);
  for (int d = 0; d < y->shape.ndim; d++) add_axis(&a, y->shape.dim[d], x_stride[d], y_stride[d]);
  a.x_first = first * x_stride[axis];
  return submit(context, l, x, y, &a);
}

enum sl_status sl__slice_backward(struct sl_context *context, const struct sl__launch *l,
                                  struct sl__tensor *dy, struct sl__tensor *dx, int axis,
                                  int64_t first) {
  struct sl__strided a = {.factor = 1, .clears = true};
  int64_t x_stride[SL_MAX_DIMS], y_stride[SL_MAX_DIMS];
  if (!is_range(&dx->shape, &dy->shape, axis, first)) return bad_shapes("slice_backward", dy, dx);
  strides_of(&dy->shape, x_stride);
  strides_of(&dx->shape, y_stride);
  for (int d = 0; d < dy->shape.ndim; d++) add_axis(&a, dy->shape.dim[d], x_stride[d], y_stride[d]);
  a.y_first = first * y_stride[axis];
  return submit(context, l, dy, dx, &a);
}

enum sl_status sl__flip(struct sl_context *context, const struct sl__launch *l,
                        struct sl__tensor *x, struct sl__tensor *y, int axis) {
  struct sl__strided a = {.factor = 1};
  int64_t stride[SL_MAX_DIMS];
  if (!sl_shape_equal(&x->shape, &y->shape) || axis < 0 || axis >= x->shape.ndim)
    return bad_shapes("flip", x, y);
  strides_of(&x->shape, stride);
  for (int d = 0; d < x->shape.ndim; d++)
    add_axis(&a, x->shape.dim[d], d == axis ? -stride[d] : stride[d], stride[d]);
  a.x_first = (x->shape.dim[axis] - 1) * stride[axis];
  return submit(context, l, x, y, &a);
}

enum sl_status sl__broadcast(struct sl_context *context, const struct sl__launch *l, float factor,
                             struct sl__tensor *x, struct sl__tensor *y, uint32_t axes) {
  struct sl__strided a = {.factor = factor};
  int64_t y_stride[SL_MAX_DIMS], x_stride[SL_MAX_DIMS] = {0}, values = 1;
  strides_of(&y->shape, y_stride);
  for (int d = y->shape.ndim - 1; d >= 0; d--)
    if (!(axes >> d & 1)) {
      x_stride[d] = values;
      values *= y->shape.dim[d];
    }
  if (sl_shape_count(&x->shape) != values) return bad_shapes("broadcast", x, y);
  for (int d = 0; d < y->shape.ndim; d++) add_axis(&a, y->shape.dim[d], x_stride[d], y_stride[d]);
  return submit(context, l, x, y, &a);
}

static enum sl_status submit_join(struct sl_context *context, const struct sl__launch *l, int count,
                                  struct sl__tensor *const *x, struct sl__tensor *y,
                                  const struct sl__concatenate_args *a, const int64_t *size) {
  size_t sizes = (size_t)count * sizeof *size;
  _Alignas(8) char args[sizeof *a + sizes];
  struct sl__tensor *tensors[count + 1];
  memcpy(args, a, sizeof *a);
  memcpy(args + sizeof *a, size, sizes);
  tensors[0] = y;
  for (int i = 0; i < count; i++) tensors[i + 1] = x[i];
  return sl__submit(context, &sl__op_concatenate, l, count + 1, tensors, args, sizeof args,
                    (double)sl_shape_count(&y->shape), 0);
}

enum sl_status sl__concatenate(struct sl_context *context, const struct sl__launch *l, int count,
                               struct sl__tensor *const *x, struct sl__tensor *y, int axis) {
  struct sl__concatenate_args a = {.outer = 1, .inner = 1, .whole = y->shape.dim[axis]};
  int64_t first = 0, size[count];
  for (int d = 0; d < y->shape.ndim; d++)
    *(d < axis ? &a.outer : &a.inner) *= d == axis ? 1 : y->shape.dim[d];
  for (int i = 0; i < count; i++) {
    if (!is_range(&y->shape, &x[i]->shape, axis, first)) return bad_shapes("concatenate", x[i], y);
    size[i] = x[i]->shape.dim[axis];
    first += size[i];
  }
  if (first != a.whole) return bad_shapes("concatenate", x[count - 1], y);
  return submit_join(context, l, count, x, y, &a, size);
}

/* ---- ranges of rows ---------------------------------------------------------------------- */

static int64_t row_size(const struct sl__tensor *t) {
  return sl_shape_count(&t->shape) / t->shape.dim[0];
}

/* Does each row of `part` lie in the row of `whole` from value `first` on? */
static bool is_in_rows(const struct sl__tensor *whole, const struct sl__tensor *part,
                       int64_t first) {
  return whole->shape.dim[0] == part->shape.dim[0] && first >= 0 &&
         first + row_size(part) <= row_size(whole);
}

enum sl_status sl__columns(struct sl_context *context, const struct sl__launch *l,
                           struct sl__tensor *x, struct sl__tensor *y, int64_t first) {
  struct sl__strided a = {.factor = 1, .x_first = first};
  if (!is_in_rows(x, y, first)) return bad_shapes("columns", x, y);
  add_axis(&a, y->shape.dim[0], row_size(x), row_size(y));
  add_axis(&a, row_size(y), 1, 1);
  return submit(context, l, x, y, &a);
}

enum sl_status sl__columns_backward(struct sl_context *context, const struct sl__launch *l,
                                    struct sl__tensor *dy, struct sl__tensor *dx, int64_t first) {
  struct sl__strided a = {.factor = 1, .clears = true, .y_first = first};
  if (!is_in_rows(dx, dy, first)) return bad_shapes("columns_backward", dy, dx);
  add_axis(&a, dy->shape.dim[0], row_size(dy), row_size(dx));
  add_axis(&a, row_size(dy), 1, 1);
  return submit(context, l, dy, dx, &a);
}

enum sl_status sl__columns_join(struct sl_context *context, const struct sl__launch *l, int count,
                                struct sl__tensor *const *x, struct sl__tensor *y) {
  struct sl__concatenate_args a = {.outer = y->shape.dim[0], .inner = 1, .whole = row_size(y)};
  int64_t first = 0, size[count];
  for (int i = 0; i < count; i++) {
    if (!is_in_rows(y, x[i], first)) return bad_shapes("columns_join", x[i], y);
    size[i] = row_size(x[i]);
    first += size[i];
  }
  if (first != a.whole) return bad_shapes("columns_join", x[count - 1], y);
  return submit_join(context, l, count, x, y, &a, size);
}
