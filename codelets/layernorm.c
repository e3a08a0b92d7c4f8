/* Normalisation of each sample alone: layer (Ba, Kiros, Hinton, arXiv 1607.06450), group (Wu, He,
 * arXiv 1803.08494), instance (Ulyanov et al., arXiv 1607.08022) and RMS normalisation (Zhang,
 * Sennrich, arXiv 1910.07467). Nothing is saved: the statistics of a row that is in the cache cost
 * less than their memory. */
#include "codelets/layernorm.h"

#include <string.h>

#include "codelets/codelets.h"
#include "codelets/kernels/bf16_adapter.h"
#include "codelets/kernels/sum.h"
#include "core/base/error.h"

enum { PARTS = SL__SUM_PARTS }; /* one order of summation for all widths of vectors */

/* ---- CPU kernels ------------------------------------------------------------------------- */

SL__SIMD static float squares_of(const float *x, float mean, int64_t n) {
  double sum[PARTS] = {0};
  for (int64_t i = 0, end; i < n; i = end) {
    float part[PARTS] = {0};
    end = sl__sum_end(i, n);
    for (; i + PARTS <= end; i += PARTS)
      for (int k = 0; k < PARTS; k++) part[k] += (x[i + k] - mean) * (x[i + k] - mean);
    for (int k = 0; i + k < end; k++) part[k] += (x[i + k] - mean) * (x[i + k] - mean);
    sl__sum_close(part, sum);
  }
  return sl__sum_total(sum);
}

/* The sum of dy (x - mean). */
SL__SIMD static float products_of(const float *dy, const float *x, float mean, int64_t n) {
  double sum[PARTS] = {0};
  for (int64_t i = 0, end; i < n; i = end) {
    float part[PARTS] = {0};
    end = sl__sum_end(i, n);
    for (; i + PARTS <= end; i += PARTS)
      for (int k = 0; k < PARTS; k++) part[k] += dy[i + k] * (x[i + k] - mean);
    for (int k = 0; i + k < end; k++) part[k] += dy[i + k] * (x[i + k] - mean);
    sl__sum_close(part, sum);
  }
  return sl__sum_total(sum);
}

static struct sl__row_stats stats_of(const struct sl__layernorm_args *a, const float *x) {
  struct sl__row_stats s = {a->is_rms ? 0 : sl__sum_run(x, a->size) / (float)a->size, 0};
  s.inverse = sl__row_inverse(a, squares_of(x, s.mean, a->size));
  return s;
}

/* y = (x - mean) scale + shift, with one scale and shift. */
SL__SIMD static void scale_run(const float *x, float mean, float scale, float shift, float *y,
                               int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * scale + shift;
}

/* The same with parameters of each value. */
SL__SIMD static void scale_each(const float *x, struct sl__row_stats s, const float *gamma,
                                const float *beta, float *y, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] = (x[i] - s.mean) * s.inverse * gamma[i];
  if (!beta) return;
  for (int64_t i = 0; i < n; i++) y[i] += beta[i];
}

/* The parameters of row r, or NULL. */
static const float *gamma_of(const struct sl__layernorm_args *a, const float *param, int64_t r) {
  return a->is_plain ? NULL : param + r % a->groups * a->channels;
}

static const float *beta_of(const struct sl__layernorm_args *a, const float *gamma) {
  return gamma && !a->is_rms ? gamma + a->groups * a->channels : NULL;
}

SL__KERNEL void sl__layernorm_forward_cpu(void *buffers[], void *cl_arg) {
  const struct sl__layernorm_args *a = sl__args(cl_arg);
  const float *x = sl__buffer(buffers, 0), *param = sl__buffer(buffers, 1);
  float *y = sl__buffer(buffers, 2);
  struct sl__work_range range = sl__work_range(cl_arg, a->rows);
  for (int64_t r = range.first; r < range.end; r++) {
    const float *row = x + r * a->size, *gamma = gamma_of(a, param, r), *beta = beta_of(a, gamma);
    struct sl__row_stats s = stats_of(a, row);
    float *to = y + r * a->size;
    if (a->plane == 1 && gamma) {
      scale_each(row, s, gamma, beta, to, a->size);
      continue;
    }
    for (int64_t c = 0; c < a->channels; c++)
      scale_run(row + c * a->plane, s.mean, gamma ? s.inverse * gamma[c] : s.inverse,
                beta ? beta[c] : 0, to + c * a->plane, a->plane);
  }
}

/* dx (+)= r g + b (x - mean) + s, with g = gamma dy for one gamma. */
SL__SIMD static void slope_run(const float *x, const float *dy, float mean, float gamma,
                               struct sl__row_slopes v, float *dx, int64_t n, bool add) {
  for (int64_t i = 0; i < n; i++)
    dx[i] = (add ? dx[i] : 0) + (v.r * gamma * dy[i] + (v.b * (x[i] - mean) + v.s));
}

SL__SIMD static void slope_each(const float *x, const float *dy, float mean, const float *gamma,
                                struct sl__row_slopes v, float *dx, int64_t n, bool add) {
  for (int64_t i = 0; i < n; i++)
    dx[i] = (add ? dx[i] : 0) + (v.r * gamma[i] * dy[i] + (v.b * (x[i] - mean) + v.s));
}

/* Sums of g = gamma dy and g (x - mean), with a gamma of each value. */
SL__SIMD static void sums_each(const float *x, const float *dy, float mean, const float *gamma,
                               int64_t n, float *sum, float *product) {
  double sums[PARTS] = {0}, products[PARTS] = {0};
  for (int64_t i = 0, end; i < n; i = end) {
    float part[PARTS] = {0}, other[PARTS] = {0};
    for (end = sl__sum_end(i, n); i < end; i += PARTS) {
      int64_t most = end - i < PARTS ? end - i : PARTS;
      for (int64_t k = 0; k < most; k++) part[k] += gamma[i + k] * dy[i + k];
      for (int64_t k = 0; k < most; k++) other[k] += gamma[i + k] * dy[i + k] * (x[i + k] - mean);
    }
    sl__sum_close(part, sums);
    sl__sum_close(other, products);
  }
  *sum = sl__sum_total(sums);
  *product = sl__sum_total(products);
}

/* The same with a gamma of each channel, or without. */
static void sums_by_channel(const struct sl__layernorm_args *a, const float *x, const float *dy,
                            float mean, const float *gamma, float *sum, float *product) {
  double sums = 0, products = 0;
  for (int64_t c = 0, at = 0; c < a->channels; c++, at += a->plane) {
    double factor = gamma ? (double)gamma[c] : 1;
    sums += factor * (double)sl__sum_run(dy + at, a->plane);
    products += factor * (double)products_of(dy + at, x + at, mean, a->plane);
  }
  *sum = (float)sums;
  *product = (float)products;
}

static void backward_row(const struct sl__layernorm_args *a, const float *x, const float *gamma,
                         const float *dy, float *dx, bool add) {
  struct sl__row_stats s = stats_of(a, x);
  float sum, product;
  if (a->plane == 1 && gamma) {
    sums_each(x, dy, s.mean, gamma, a->size, &sum, &product);
    slope_each(x, dy, s.mean, gamma, sl__row_slopes_of(a, s, sum, product), dx, a->size, add);
    return;
  }
  sums_by_channel(a, x, dy, s.mean, gamma, &sum, &product);
  struct sl__row_slopes v = sl__row_slopes_of(a, s, sum, product);
  for (int64_t c = 0, at = 0; c < a->channels; c++, at += a->plane)
    slope_run(x + at, dy + at, s.mean, gamma ? gamma[c] : 1, v, dx + at, a->plane, add);
}

SL__KERNEL void sl__layernorm_backward_data_cpu(void *buffers[], void *cl_arg) {
  const struct sl__layernorm_args *a = sl__args(cl_arg);
  const float *x = sl__buffer(buffers, 0), *param = sl__buffer(buffers, 1),
              *dy = sl__buffer(buffers, 2);
  float *dx = sl__buffer(buffers, 3);
  for (int64_t r = 0, at = 0; r < a->rows; r++, at += a->size)
    backward_row(a, x + at, gamma_of(a, param, r), dy + at, dx + at, sl__accumulate(cl_arg));
}

SL__SIMD static void weight_each(const float *x, const float *dy, struct sl__row_stats s,
                                 float *gamma, float *beta, int64_t n) {
  for (int64_t i = 0; i < n; i++) gamma[i] += dy[i] * ((x[i] - s.mean) * s.inverse);
  if (!beta) return;
  for (int64_t i = 0; i < n; i++) beta[i] += dy[i];
}

/* Row after row: a fixed order. */
SL__KERNEL void sl__layernorm_backward_weight_cpu(void *buffers[], void *cl_arg) {
  const struct sl__layernorm_args *a = sl__args(cl_arg);
  const float *x = sl__buffer(buffers, 0), *dy = sl__buffer(buffers, 1);
  float *grad = sl__buffer(buffers, 2);
  int64_t params = a->groups * a->channels;
  if (!sl__accumulate(cl_arg))
    memset(grad, 0, (size_t)((a->is_rms ? 1 : 2) * params) * sizeof *grad);
  for (int64_t r = 0; r < a->rows; r++, x += a->size, dy += a->size) {
    float *gamma = grad + r % a->groups * a->channels, *beta = a->is_rms ? NULL : gamma + params;
    struct sl__row_stats s = stats_of(a, x);
    if (a->plane == 1) {
      weight_each(x, dy, s, gamma, beta, a->size);
      continue;
    }
    for (int64_t c = 0, at = 0; c < a->channels; c++, at += a->plane) {
      gamma[c] += s.inverse * products_of(dy + at, x + at, s.mean, a->plane);
      if (beta) beta[c] += sl__sum_run(dy + at, a->plane);
    }
  }
}

/* ---- rows of bf16 ------------------------------------------------------------------------ */

static struct sl__rowwise rows_of(struct sl__layernorm_args *a, uint32_t buffers, bool sums) {
  return (struct sl__rowwise){
      .rows = &a->rows, .group = a->groups, .buffers = buffers, .sums = sums};
}

/* Without parameters, buffer 1 is x, too. */
struct sl__rowwise sl__layernorm_forward_rows(void *args) {
  const struct sl__layernorm_args *a = args;
  return rows_of(args, 1 << 0 | a->is_plain << 1 | 1 << 2, false);
}

struct sl__rowwise sl__layernorm_backward_data_rows(void *args) {
  const struct sl__layernorm_args *a = args;
  return rows_of(args, 1 << 0 | a->is_plain << 1 | 1 << 2 | 1 << 3, false);
}

struct sl__rowwise sl__layernorm_backward_weight_rows(void *args) {
  return rows_of(args, 1 << 0 | 1 << 1, true);
}

/* ---- submission -------------------------------------------------------------------------- */

/* x [N, ...]: a sample is o->rows rows of equal size. */
static enum sl_status check(const char *name, const struct sl__tensor *x,
                            const struct sl__tensor *like, const struct sl__tensor *param,
                            const struct sl__layernorm *o, struct sl__layernorm_args *a) {
  char text[96];
  int64_t values = sl_shape_count(&x->shape);
  *a = (struct sl__layernorm_args){.groups = o->groups,
                                   .channels = 1,
                                   .epsilon = o->epsilon,
                                   .is_plain = !param,
                                   .is_rms = o->rms};
  if (o->groups > 0 && o->params > 0 && o->size > 0 && values % o->size == 0 &&
      o->params % o->groups == 0 && sl_shape_count(&like->shape) == values) {
    a->size = o->size;
    a->rows = values / o->size;
    a->channels = o->params / o->groups;
    a->plane = o->size / a->channels;
    if (a->plane * a->channels == a->size && a->rows % a->groups == 0 &&
        (!param || sl_shape_count(&param->shape) == (o->rms ? 1 : 2) * o->params))
      return SL_OK;
  }
  return sl__fail(SL_BAD_SHAPE, "%s: x %s does not fit rows of %lld, %lld groups, %lld channels",
                  name, sl_shape_text(&x->shape, text, sizeof text), (long long)o->size,
                  (long long)o->groups, (long long)o->params);
}

static uint32_t footprint(const struct sl__layernorm_args *a) {
  return starpu_hash_crc32c_be_n(a, offsetof(struct sl__layernorm_args, epsilon), 0);
}

enum sl_status sl__layernorm_forward(struct sl_context *context, const struct sl__launch *l,
                                     struct sl__tensor *x, struct sl__tensor *param,
                                     struct sl__tensor *y, const struct sl__layernorm *options) {
  struct sl__layernorm_args a;
  struct sl__launch launch = *l;
  enum sl_status status = check("layernorm_forward", x, y, param, options, &a);
  if (status != SL_OK) return status;
  launch.cut = (struct sl__cut){.units = a.rows, .flat = true};
  return sl__submit(context, &sl__op_layernorm_forward, &launch, 3,
                    (struct sl__tensor *[]){x, param ? param : x, y}, &a, sizeof a,
                    6.0 * (double)a.rows * (double)a.size, footprint(&a));
}

enum sl_status sl__layernorm_backward_data(struct sl_context *context, const struct sl__launch *l,
                                           struct sl__tensor *x, struct sl__tensor *param,
                                           struct sl__tensor *dy, struct sl__tensor *dx,
                                           const struct sl__layernorm *options) {
  struct sl__layernorm_args a;
  enum sl_status status = check("layernorm_backward_data", x, dy, param, options, &a);
  if (status == SL_OK && sl_shape_count(&dx->shape) != a.rows * a.size)
    status = sl__fail(SL_BAD_SHAPE, "layernorm_backward_data: dx must have x's shape");
  if (status != SL_OK) return status;
  return sl__submit(context, &sl__op_layernorm_backward_data, l, 4,
                    (struct sl__tensor *[]){x, param ? param : x, dy, dx}, &a, sizeof a,
                    12.0 * (double)a.rows * (double)a.size, footprint(&a));
}

enum sl_status sl__layernorm_backward_weight(struct sl_context *context, const struct sl__launch *l,
                                             struct sl__tensor *x, struct sl__tensor *dy,
                                             struct sl__tensor *grad,
                                             const struct sl__layernorm *options) {
  struct sl__layernorm_args a;
  enum sl_status status = check("layernorm_backward_weight", x, dy, grad, options, &a);
  if (status != SL_OK) return status;
  return sl__submit(context, &sl__op_layernorm_backward_weight, l, 3,
                    (struct sl__tensor *[]){x, dy, grad}, &a, sizeof a,
                    8.0 * (double)a.rows * (double)a.size, footprint(&a));
}
