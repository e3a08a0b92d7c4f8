/* Batch normalisation (Ioffe, Szegedy, arXiv 1502.03167) of x [N, C, plane]. Sums are in double
 * precision, a channel's planes one after the other: a fixed order. */
#include "codelets/batchnorm.h"

#include "codelets/kernels/choice.h"
#include "codelets/kernels/elementwise.h"
#include "codelets/kernels/onednn.h"

/* ---- CPU kernels ------------------------------------------------------------------------- */

/* Sum of f over one plane in eight interleaved parts. */
#define SL__PLANE_SUM(sum, f)                                                                      \
  do {                                                                                             \
    double part_[8] = {0};                                                                         \
    int64_t i = 0;                                                                                 \
    for (; i + 8 <= plane; i += 8)                                                                 \
      for (int k_ = 0; k_ < 8; k_++) part_[k_] += f(i + k_);                                       \
    for (int k_ = 0; i < plane; i++, k_++) part_[k_] += f(i);                                      \
    for (int k_ = 0; k_ < 8; k_++) sum += part_[k_];                                               \
  } while (0)

SL__SIMD static double sum_plane(const float *x, int64_t plane) {
  double sum = 0;
#define SL__TERM(j) (double)x[j]
  SL__PLANE_SUM(sum, SL__TERM);
#undef SL__TERM
  return sum;
}

SL__SIMD static double deviation_plane(const float *x, double mean, int64_t plane) {
  double sum = 0;
#define SL__TERM(j) ((double)x[j] - mean) * ((double)x[j] - mean)
  SL__PLANE_SUM(sum, SL__TERM);
#undef SL__TERM
  return sum;
}

SL__SIMD static double product_plane(const float *x, const float *dy, double mean, int64_t plane) {
  double sum = 0;
#define SL__TERM(j) ((double)x[j] - mean) * (double)dy[j]
  SL__PLANE_SUM(sum, SL__TERM);
#undef SL__TERM
  return sum;
}

/* y over one plane */
SL__SIMD static void affine(const float *x, float *y, float mean, float scale, float shift,
                            int64_t plane) {
  for (int64_t i = 0; i < plane; i++) y[i] = sl__norm_value(x[i], mean, scale, shift);
}

/* oneDNN returns variances; saved holds 1 / sqrt(variance + epsilon). */
static bool forward_by_onednn(const struct sl__norm_args *a, const float *x, const float *param,
                              float *y, float *saved) {
  float *inverse = saved + a->channels;
  if (!sl__onednn_batchnorm_forward(a->rows, a->channels, a->plane, a->epsilon, x, param, y, saved,
                                    inverse))
    return false;
  for (int32_t c = 0; c < a->channels; c++)
    inverse[c] = (float)sl__norm_inverse((double)inverse[c], a->epsilon);
  return true;
}

static void forward(const struct sl__norm_args *a, const float *x, const float *param, float *y,
                    float *saved) {
  if (a->implementation == SL__ONEDNN && forward_by_onednn(a, x, param, y, saved)) return;
  int64_t stride = (int64_t)a->channels * a->plane;
  double count = (double)a->rows * (double)a->plane;
  for (int64_t c = 0; c < a->channels; c++) {
    const float *first = x + c * a->plane;
    double mean = 0, variance = 0;
    for (int64_t n = 0; n < a->rows; n++) mean += sum_plane(first + n * stride, a->plane);
    mean /= count;
    for (int64_t n = 0; n < a->rows; n++)
      variance += deviation_plane(first + n * stride, mean, a->plane);
    double inverse = sl__norm_inverse(variance / count, a->epsilon);
    saved[c] = (float)mean;
    saved[a->channels + c] = (float)inverse;
    float scale = (float)((double)param[c] * inverse);
    for (int64_t n = 0; n < a->rows; n++)
      affine(first + n * stride, y + c * a->plane + n * stride, saved[c], scale,
             param[a->channels + c], a->plane);
  }
}

static int64_t planes_of(const struct sl__norm_args *a) { return (int64_t)a->rows * a->channels; }

/* Planes [first, end) of all images; oneDNN takes all. */
static void inference(const struct sl__norm_args *a, const float *x, const float *param,
                      const float *running, float *y, struct sl__work_range range) {
  if (a->implementation == SL__ONEDNN &&
      sl__onednn_batchnorm_inference(a->rows, a->channels, a->plane, a->epsilon, x, param, running,
                                     running + a->channels, y))
    return;
  for (int64_t i = range.first; i < range.end; i++) {
    int64_t c = i % a->channels;
    affine(x + i * a->plane, y + i * a->plane, running[c],
           sl__norm_scale(param[c], running[a->channels + c], a->epsilon), param[a->channels + c],
           a->plane);
  }
}

/* Of channel c: sum of dy, and sum of dy (x - mean). */
static void channel_sums(const struct sl__norm_args *a, const float *x, const float *dy,
                         const float *saved, int64_t c, double *sum, double *product) {
  int64_t stride = (int64_t)a->channels * a->plane;
  *sum = *product = 0;
  for (int64_t n = 0; n < a->rows; n++) {
    int64_t at = n * stride + c * a->plane;
    *sum += sum_plane(dy + at, a->plane);
    *product += product_plane(x + at, dy + at, (double)saved[c], a->plane);
  }
}

/* dx (+)= ... over one plane */
SL__SIMD static void backward_plane(const float *x, const float *dy, float *dx, float mean,
                                    struct sl__norm_slopes v, int64_t plane, bool add) {
  if (add)
    for (int64_t i = 0; i < plane; i++) dx[i] += sl__norm_slope(x[i], dy[i], mean, v);
  else
    for (int64_t i = 0; i < plane; i++) dx[i] = sl__norm_slope(x[i], dy[i], mean, v);
}

/* Maximum number of channels whose variances fit on the stack; our own code serves more. */
#define CHANNELS_FOR_ONEDNN 4096

static bool backward_by_onednn(const struct sl__norm_args *a, const float *x, const float *param,
                               const float *saved, const float *dy, float *dx) {
  float variance[CHANNELS_FOR_ONEDNN], unused[CHANNELS_FOR_ONEDNN];
  if (a->channels > CHANNELS_FOR_ONEDNN) return false;
  for (int32_t c = 0; c < a->channels; c++) {
    double r = (double)saved[a->channels + c];
    variance[c] = (float)(1 / (r * r) - (double)a->epsilon);
  }
  return sl__onednn_batchnorm_backward_data(a->rows, a->channels, a->plane, a->epsilon, x, param,
                                            saved, variance, dy, dx, unused);
}

static void backward_data(const struct sl__norm_args *a, const float *x, const float *param,
                          const float *saved, const float *dy, float *dx, bool add) {
  if (a->implementation == SL__ONEDNN && !add && backward_by_onednn(a, x, param, saved, dy, dx))
    return;
  int64_t stride = (int64_t)a->channels * a->plane;
  double count = (double)a->rows * (double)a->plane;
  for (int64_t c = 0; c < a->channels; c++) {
    double sum, product;
    channel_sums(a, x, dy, saved, c, &sum, &product);
    struct sl__norm_slopes slopes =
        sl__norm_slopes_of((double)param[c], (double)saved[a->channels + c], sum, product, count);
    for (int64_t n = 0; n < a->rows; n++) {
      int64_t at = n * stride + c * a->plane;
      backward_plane(x + at, dy + at, dx + at, saved[c], slopes, a->plane, add);
    }
  }
}

SL__KERNEL void sl__batchnorm_forward_cpu(void *buffers[], void *cl_arg) {
  forward(sl__args(cl_arg), sl__buffer(buffers, 0), sl__buffer(buffers, 1), sl__buffer(buffers, 2),
          sl__buffer(buffers, 3));
}

SL__KERNEL void sl__batchnorm_inference_cpu(void *buffers[], void *cl_arg) {
  const struct sl__norm_args *a = sl__args(cl_arg);
  inference(a, sl__buffer(buffers, 0), sl__buffer(buffers, 1), sl__buffer(buffers, 2),
            sl__buffer(buffers, 3), sl__work_range(cl_arg, planes_of(a)));
}

SL__KERNEL void sl__batchnorm_backward_data_cpu(void *buffers[], void *cl_arg) {
  backward_data(sl__args(cl_arg), sl__buffer(buffers, 0), sl__buffer(buffers, 1),
                sl__buffer(buffers, 2), sl__buffer(buffers, 3), sl__buffer(buffers, 4),
                sl__accumulate(cl_arg));
}

SL__KERNEL void sl__batchnorm_backward_weight_cpu(void *buffers[], void *cl_arg) {
  const struct sl__norm_args *a = sl__args(cl_arg);
  const float *x = sl__buffer(buffers, 0), *saved = sl__buffer(buffers, 1),
              *dy = sl__buffer(buffers, 2);
  float *grad = sl__buffer(buffers, 3);
  for (int64_t c = 0; c < a->channels; c++) {
    double sum, product;
    channel_sums(a, x, dy, saved, c, &sum, &product);
    float gamma = (float)(product * (double)saved[a->channels + c]), beta = (float)sum;
    grad[c] = sl__accumulate(cl_arg) ? grad[c] + gamma : gamma;
    grad[a->channels + c] = sl__accumulate(cl_arg) ? grad[a->channels + c] + beta : beta;
  }
}

SL__KERNEL void sl__batchnorm_running_cpu(void *buffers[], void *cl_arg) {
  const struct sl__norm_args *a = sl__args(cl_arg);
  const float *saved = sl__buffer(buffers, 0);
  float *running = sl__buffer(buffers, 1);
  for (int64_t c = 0; c < a->channels; c++) sl__norm_run(a, saved, running, c);
}

/* ---- measuring --------------------------------------------------------------------------- */

/* memory: x, y (or dx), parameters, statistics */
static void try_forward(enum sl__implementation i, const void *args, float *const *m) {
  struct sl__norm_args a = *(const struct sl__norm_args *)args;
  a.implementation = i;
  forward(&a, m[0], m[2], m[1], m[3]);
}

static void try_inference(enum sl__implementation i, const void *args, float *const *m) {
  struct sl__norm_args a = *(const struct sl__norm_args *)args;
  a.implementation = i;
  inference(&a, m[0], m[2], m[3], m[1], (struct sl__work_range){0, planes_of(&a)});
}

static void try_backward_data(enum sl__implementation i, const void *args, float *const *m) {
  struct sl__norm_args a = *(const struct sl__norm_args *)args;
  a.implementation = i;
  backward_data(&a, m[0], m[2], m[3], m[0], m[1], false);
}

static void choose(struct sl_context *context, const char *operation, struct sl__norm_args *a,
                   void (*try)(enum sl__implementation, const void *, float *const *)) {
  int64_t size = (int64_t)a->rows * a->channels * a->plane, two = 2 * (int64_t)a->channels;
  struct sl__candidates c = {.operation = operation,
                             .mask = sl__choice_primitives(),
                             .preferred = SL__OWN_OPENBLAS,
                             .sizes = &a->rows,
                             .size_count = 3,
                             .run = try,
                             .elements = {size, size, two, two}};
  a->implementation = sl__choose(context, &c, a);
}

/* ---- submission -------------------------------------------------------------------------- */

/* x [N, C, ...]; `pair` has 2C elements; like has x's size. */
static enum sl_status check(const char *name, const struct sl__tensor *x,
                            const struct sl__tensor *like, struct sl__tensor *const *pairs,
                            int count, struct sl__norm_args *a) {
  char text[96];
  a->rows = (int32_t)x->shape.dim[0];
  a->channels = x->shape.ndim > 1 ? (int32_t)x->shape.dim[1] : 0;
  if (a->channels)
    a->plane = (int32_t)(sl_shape_count(&x->shape) / ((int64_t)a->rows * a->channels));
  bool fits = a->channels > 0 && sl_shape_equal(&x->shape, &like->shape);
  for (int i = 0; i < count; i++)
    fits = fits && sl_shape_count(&pairs[i]->shape) == 2 * a->channels;
  if (fits) return SL_OK;
  return sl__fail(SL_BAD_SHAPE,
                  "%s: x %s does not fit the other tensors: [N, C, ...] and [2C] are needed", name,
                  sl_shape_text(&x->shape, text, sizeof text));
}

static double flops_of(const struct sl__norm_args *a) {
  return 6.0 * (double)a->rows * (double)a->channels * (double)a->plane;
}

enum sl_status sl__batchnorm_forward(struct sl_context *context, const struct sl__launch *l,
                                     struct sl__tensor *x, struct sl__tensor *param,
                                     struct sl__tensor *y, struct sl__tensor *saved,
                                     float epsilon) {
  struct sl__norm_args a = {.epsilon = epsilon};
  enum sl_status status =
      check("batchnorm_forward", x, y, (struct sl__tensor *[]){param, saved}, 2, &a);
  if (status != SL_OK) return status;
  choose(context, "batchnorm_forward", &a, try_forward);
  return sl__submit(context, &sl__op_batchnorm_forward, l, 4,
                    (struct sl__tensor *[]){x, param, y, saved}, &a, sizeof a, flops_of(&a), 0);
}

enum sl_status sl__batchnorm_inference(struct sl_context *context, const struct sl__launch *l,
                                       struct sl__tensor *x, struct sl__tensor *param,
                                       struct sl__tensor *running, struct sl__tensor *y,
                                       float epsilon) {
  struct sl__norm_args a = {.epsilon = epsilon};
  enum sl_status status =
      check("batchnorm_inference", x, y, (struct sl__tensor *[]){param, running}, 2, &a);
  if (status != SL_OK) return status;
  choose(context, "batchnorm_inference", &a, try_inference);
  struct sl__launch launch = *l;
  if (a.implementation != SL__ONEDNN)
    launch.cut = (struct sl__cut){.units = planes_of(&a), .flat = true, .pointwise = true};
  return sl__submit(context, &sl__op_batchnorm_inference, &launch, 4,
                    (struct sl__tensor *[]){x, param, running, y}, &a, sizeof a, flops_of(&a), 0);
}

enum sl_status sl__batchnorm_backward_data(struct sl_context *context, const struct sl__launch *l,
                                           struct sl__tensor *x, struct sl__tensor *param,
                                           struct sl__tensor *saved, struct sl__tensor *dy,
                                           struct sl__tensor *dx) {
  struct sl__norm_args a = {0};
  enum sl_status status =
      check("batchnorm_backward_data", x, dy, (struct sl__tensor *[]){param, saved}, 2, &a);
  if (status == SL_OK && !sl_shape_equal(&dx->shape, &x->shape))
    status = sl__fail(SL_BAD_SHAPE, "batchnorm_backward_data: dx must have x's shape");
  if (status != SL_OK) return status;
  choose(context, "batchnorm_backward_data", &a, try_backward_data);
  return sl__submit(context, &sl__op_batchnorm_backward_data, l, 5,
                    (struct sl__tensor *[]){x, param, saved, dy, dx}, &a, sizeof a, flops_of(&a),
                    0);
}

enum sl_status sl__batchnorm_backward_weight(struct sl_context *context, const struct sl__launch *l,
                                             struct sl__tensor *x, struct sl__tensor *saved,
                                             struct sl__tensor *dy, struct sl__tensor *grad) {
  struct sl__norm_args a = {0};
  enum sl_status status =
      check("batchnorm_backward_weight", x, dy, (struct sl__tensor *[]){saved, grad}, 2, &a);
  if (status != SL_OK) return status;
  return sl__submit(context, &sl__op_batchnorm_backward_weight, l, 4,
                    (struct sl__tensor *[]){x, saved, dy, grad}, &a, sizeof a, flops_of(&a), 0);
}

enum sl_status sl__batchnorm_running(struct sl_context *context, const struct sl__launch *l,
                                     struct sl__tensor *saved, struct sl__tensor *running,
                                     float momentum, float epsilon, int64_t values) {
  int64_t n;
  struct sl__tensor *tensors[] = {saved, running};
  enum sl_status status = sl__same_count("batchnorm_running", 2, tensors, &n);
  if (status != SL_OK) return status;
  struct sl__norm_args a = {.channels = (int32_t)(n / 2),
                            .epsilon = epsilon,
                            .momentum = momentum,
                            .values = (double)values};
  return sl__submit(context, &sl__op_batchnorm_running, l, 2, tensors, &a, sizeof a, (double)n, 0);
}
