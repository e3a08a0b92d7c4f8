/* Batch normalisation (Ioffe, Szegedy, arXiv 1502.03167) of x [N, C, plane]. Sums are in double
 * precision, a channel's planes one after the other in several lanes: a fixed order. */
#include "codelets/batchnorm.h"

#include <string.h>

#include "codelets/kernels/cache_prefetch.h"
#include "codelets/kernels/choice.h"
#include "codelets/codelets.h"
#include "core/base/error.h"

/* ---- CPU kernels ------------------------------------------------------------------------- */

/* A plane is added up in this many interleaved parts: one chain of additions would wait for each of
 * them. Planes are added up in lanes, and the lanes at the end: to add them up for each small plane
 * would take longer than its values. */
enum { PARTS = 32, LANES = 8 };

struct lanes {
  double g[LANES], product[LANES];
};

struct sums {
  double g, product;
};

/* A channel's y = scale (x - mean) + shift. */
struct line {
  float mean, scale, shift;
};

/* The sums of g and of g (x - centre) over some values of a plane; g is dy, before a relu if there
 * is one, or x - centre if dy is NULL. */
SL__INLINE void add_values(const float *x, const float *dy, const struct line *relu, double centre,
                           const int count, double *sum, double *product) {
  float g[PARTS];
  for (int k = 0; k < count && dy; k++)
    g[k] = relu ? sl__norm_before_relu(x[k], dy[k], relu->mean, relu->scale, relu->shift) : dy[k];
  for (int k = 0; k < count; k++) {
    double d = (double)x[k] - centre, v = dy ? (double)g[k] : d;
    sum[k] += v;
    product[k] += v * d;
  }
}

/* Adds a plane's sums to its channel's. */
SL__INLINE void add_plane(const float *x, const float *dy, const struct line *relu, double centre,
                          int64_t plane, struct lanes *all) {
  double sum[PARTS] = {0}, product[PARTS] = {0};
  int64_t i = 0;
  for (; i + PARTS <= plane; i += PARTS)
    add_values(x + i, dy ? dy + i : NULL, relu, centre, PARTS, sum, product);
  add_values(x + i, dy ? dy + i : NULL, relu, centre, (int)(plane - i), sum, product);
  for (int half = PARTS / 2; half >= LANES; half /= 2)
    for (int k = 0; k < half; k++) sum[k] += sum[k + half], product[k] += product[k + half];
  for (int k = 0; k < LANES; k++) all->g[k] += sum[k], all->product[k] += product[k];
}

SL__SIMD static void add_values_of(const float *x, double centre, int64_t plane,
                                   struct lanes *all) {
  add_plane(x, NULL, NULL, centre, plane, all);
}

SL__SIMD static void add_slopes_of(const float *x, const float *dy, float mean, int64_t plane,
                                   struct lanes *all) {
  add_plane(x, dy, NULL, (double)mean, plane, all);
}

SL__SIMD static void add_relu_slopes_of(const float *x, const float *dy, struct line relu,
                                        int64_t plane, struct lanes *all) {
  add_plane(x, dy, &relu, (double)relu.mean, plane, all);
}

/* Only as many as are used: all of them would take a first cache. */
static void clear(struct lanes *all, struct sl__work_range some) {
  memset(all, 0, (size_t)(some.end - some.first) * sizeof *all);
}

static struct sums sums_of(const struct lanes *all) {
  struct lanes l = *all;
  for (int half = LANES / 2; half; half /= 2)
    for (int k = 0; k < half; k++) l.g[k] += l.g[k + half], l.product[k] += l.product[k + half];
  return (struct sums){l.g[0], l.product[0]};
}

/* y over one plane */
SL__INLINE void affine(const float *x, float *y, struct line l, const bool has_relu,
                       int64_t plane) {
  for (int64_t i = 0; i < plane; i++) {
    float v = sl__norm_value(x[i], l.mean, l.scale, l.shift);
    y[i] = has_relu ? sl__activation_value(SL_ACTIVATION_RELU, v) : v;
  }
}

SL__SIMD static void normalise(const float *x, float *y, struct line l, bool has_relu,
                               int64_t plane) {
  if (has_relu)
    affine(x, y, l, true, plane);
  else
    affine(x, y, l, false, plane);
}

/* Channels [first, end) that are done together: their planes of an image follow each other in
 * memory and make a run that is long enough to be read ahead. The fewer they are, the more of what
 * the first pass over them has read is in a cache when the second one reads it. */
enum { MOST_TOGETHER = 256, RUN = 1024 /* floats */ };

/* The first channels of a range. */
static struct sl__work_range channels_of(const struct sl__norm_args *a,
                                         struct sl__work_range range) {
  int64_t count = RUN / a->plane, most = range.end - range.first;
  if (count > MOST_TOGETHER) count = MOST_TOGETHER;
  if (count < 1) count = 1;
  range.end = range.first + (count < most ? count : most);
  return range;
}

static int64_t plane_at(const struct sl__norm_args *a, int64_t n, int64_t c) {
  return (n * a->channels + c) * a->plane;
}

static int64_t run_length(const struct sl__norm_args *a, struct sl__work_range some) {
  int64_t length = (some.end - some.first) * a->plane;
  return length < RUN ? length : RUN;
}

/* Requests some channels of the row behind row n: they lie in another page of memory, where no
 * processor looks ahead. */
static void read_ahead(const struct sl__norm_args *a, const float *x, int64_t n,
                       struct sl__work_range some) {
  if (n + 1 < a->rows)
    sl__prefetch_for_read(x + plane_at(a, n + 1, some.first), run_length(a, some));
}

static void write_ahead(const struct sl__norm_args *a, float *y, int64_t n,
                        struct sl__work_range some) {
  if (n + 1 < a->rows)
    sl__prefetch_for_write(y + plane_at(a, n + 1, some.first), run_length(a, some));
}

/* Keeps a channel's statistics, and returns its line. all: the sums of values minus `first` and of
 * their squares, so that a large mean costs no digits. */
static struct line keep_statistics(const struct sl__norm_args *a, const float *param, float first,
                                   struct sums all, float *saved, int64_t c) {
  double count = (double)a->rows * (double)a->plane, moved = all.g / count;
  double variance = all.product / count - moved * moved;
  double inverse = sl__norm_inverse(variance < 0 ? 0 : variance, a->epsilon); /* NaN stays */
  saved[c] = (float)((double)first + moved);
  saved[a->channels + c] = (float)inverse;
  saved[2 * a->channels + c] = saved[3 * a->channels + c] = 0;
  return (struct line){saved[c], (float)((double)param[c] * inverse), param[a->channels + c]};
}

static void forward(const struct sl__norm_args *a, const float *x, const float *param, float *y,
                    float *saved, struct sl__work_range range) {
  struct line line[MOST_TOGETHER];
  struct lanes all[MOST_TOGETHER];
  for (struct sl__work_range some; range.first < range.end; range.first = some.end) {
    some = channels_of(a, range);
    clear(all, some);
    for (int64_t n = 0; n < a->rows; n++) {
      read_ahead(a, x, n, some);
      for (int64_t c = some.first; c < some.end; c++)
        add_values_of(x + plane_at(a, n, c), (double)x[plane_at(a, 0, c)], a->plane,
                      &all[c - some.first]);
    }
    for (int64_t c = some.first; c < some.end; c++)
      line[c - some.first] =
          keep_statistics(a, param, x[plane_at(a, 0, c)], sums_of(&all[c - some.first]), saved, c);
    for (int64_t n = 0; n < a->rows; n++) {
      write_ahead(a, y, n, some);
      for (int64_t c = some.first; c < some.end; c++)
        normalise(x + plane_at(a, n, c), y + plane_at(a, n, c), line[c - some.first], a->has_relu,
                  a->plane);
    }
  }
}

static int64_t planes_of(const struct sl__norm_args *a) { return (int64_t)a->rows * a->channels; }

/* Planes [first, end) of all images. */
static void inference(const struct sl__norm_args *a, const float *x, const float *param,
                      const float *running, float *y, struct sl__work_range range) {
  for (int64_t i = range.first; i < range.end; i++) {
    int64_t c = i % a->channels;
    struct line line = {running[c], sl__norm_scale(param[c], running[a->channels + c], a->epsilon),
                        param[a->channels + c]};
    normalise(x + i * a->plane, y + i * a->plane, line, a->has_relu, a->plane);
  }
}

/* The line of channel c in the forward pass. */
static struct line line_of(const struct sl__norm_args *a, const float *param, const float *saved,
                           int64_t c) {
  double inverse = (double)saved[a->channels + c];
  return (struct line){saved[c], (float)((double)param[c] * inverse), param[a->channels + c]};
}

/* Of each channel the sums of dy, and of dy (x - mean). */
static void backward_sums(const struct sl__norm_args *a, const float *x, const float *param,
                          const float *dy, float *saved, struct sl__work_range range) {
  struct lanes all[MOST_TOGETHER];
  for (struct sl__work_range some; range.first < range.end; range.first = some.end) {
    some = channels_of(a, range);
    clear(all, some);
    for (int64_t n = 0; n < a->rows; n++) {
      read_ahead(a, x, n, some);
      read_ahead(a, dy, n, some);
      for (int64_t c = some.first; c < some.end; c++) {
        int64_t at = plane_at(a, n, c);
        struct lanes *own = &all[c - some.first];
        if (a->has_relu)
          add_relu_slopes_of(x + at, dy + at, line_of(a, param, saved, c), a->plane, own);
        else
          add_slopes_of(x + at, dy + at, saved[c], a->plane, own);
      }
    }
    for (int64_t c = some.first; c < some.end; c++) {
      struct sums sums = sums_of(&all[c - some.first]);
      saved[2 * a->channels + c] = (float)sums.g;
      saved[3 * a->channels + c] = (float)sums.product;
    }
  }
}

/* dx (+)= ... over one plane */
SL__INLINE void slope_values(const float *x, const float *dy, float *dx, struct line l,
                             struct sl__norm_slopes v, int64_t plane, const bool has_relu,
                             const bool add) {
  for (int64_t i = 0; i < plane; i++) {
    float g = has_relu ? sl__norm_before_relu(x[i], dy[i], l.mean, l.scale, l.shift) : dy[i];
    float slope = sl__norm_slope(x[i], g, l.mean, v);
    dx[i] = add ? dx[i] + slope : slope;
  }
}

SL__SIMD static void backward_plane(const float *x, const float *dy, float *dx, struct line l,
                                    struct sl__norm_slopes v, int64_t plane, bool has_relu,
                                    bool add) {
  if (has_relu && add)
    slope_values(x, dy, dx, l, v, plane, true, true);
  else if (has_relu)
    slope_values(x, dy, dx, l, v, plane, true, false);
  else if (add)
    slope_values(x, dy, dx, l, v, plane, false, true);
  else
    slope_values(x, dy, dx, l, v, plane, false, false);
}

static void backward_data(const struct sl__norm_args *a, const float *x, const float *param,
                          const float *saved, const float *dy, float *dx, bool add,
                          struct sl__work_range range) {
  const float *sum = saved + 2 * a->channels, *product = saved + 3 * a->channels;
  double count = (double)a->rows * (double)a->plane;
  for (struct sl__work_range some; range.first < range.end; range.first = some.end) {
    some = channels_of(a, range);
    struct sl__norm_slopes slopes[MOST_TOGETHER];
    for (int64_t c = some.first; c < some.end; c++)
      slopes[c - some.first] = sl__norm_slopes_of((double)param[c], (double)saved[a->channels + c],
                                                  (double)sum[c], (double)product[c], count);
    for (int64_t n = 0; n < a->rows; n++) {
      write_ahead(a, dx, n, some);
      for (int64_t c = some.first; c < some.end; c++) {
        int64_t at = plane_at(a, n, c);
        backward_plane(x + at, dy + at, dx + at, line_of(a, param, saved, c),
                       slopes[c - some.first], a->plane, a->has_relu, add);
      }
    }
  }
}

SL__KERNEL void sl__batchnorm_forward_cpu(void *buffers[], void *cl_arg) {
  const struct sl__norm_args *a = sl__args(cl_arg);
  forward(a, sl__buffer(buffers, 0), sl__buffer(buffers, 1), sl__buffer(buffers, 2),
          sl__buffer(buffers, 3), sl__work_range(cl_arg, a->channels));
}

SL__KERNEL void sl__batchnorm_inference_cpu(void *buffers[], void *cl_arg) {
  const struct sl__norm_args *a = sl__args(cl_arg);
  inference(a, sl__buffer(buffers, 0), sl__buffer(buffers, 1), sl__buffer(buffers, 2),
            sl__buffer(buffers, 3), sl__work_range(cl_arg, planes_of(a)));
}

SL__KERNEL void sl__batchnorm_backward_data_cpu(void *buffers[], void *cl_arg) {
  const struct sl__norm_args *a = sl__args(cl_arg);
  backward_data(a, sl__buffer(buffers, 0), sl__buffer(buffers, 1), sl__buffer(buffers, 2),
                sl__buffer(buffers, 3), sl__buffer(buffers, 4), sl__accumulate(cl_arg),
                sl__work_range(cl_arg, a->channels));
}

SL__KERNEL void sl__batchnorm_backward_sums_cpu(void *buffers[], void *cl_arg) {
  const struct sl__norm_args *a = sl__args(cl_arg);
  backward_sums(a, sl__buffer(buffers, 0), sl__buffer(buffers, 1), sl__buffer(buffers, 3),
                sl__buffer(buffers, 2), sl__work_range(cl_arg, a->channels));
}

SL__KERNEL void sl__batchnorm_backward_weight_cpu(void *buffers[], void *cl_arg) {
  const struct sl__norm_args *a = sl__args(cl_arg);
  for (int64_t c = 0; c < a->channels; c++)
    sl__norm_weight_slopes(a, sl__buffer(buffers, 0), sl__buffer(buffers, 1), c,
                           sl__accumulate(cl_arg));
}

SL__KERNEL void sl__batchnorm_running_cpu(void *buffers[], void *cl_arg) {
  const struct sl__norm_args *a = sl__args(cl_arg);
  const float *saved = sl__buffer(buffers, 0);
  float *running = sl__buffer(buffers, 1);
  struct sl__work_range range = sl__work_range(cl_arg, a->channels);
  for (int64_t c = range.first; c < range.end; c++) sl__norm_run(a, saved, running, c);
}

SL__KERNEL void sl__batchnorm_take_running_cpu(void *buffers[], void *cl_arg) {
  const struct sl__norm_args *a = sl__args(cl_arg);
  for (int64_t c = 0; c < a->channels; c++)
    sl__norm_take_running(a, sl__buffer(buffers, 0), sl__buffer(buffers, 1), c);
}

/* ---- submission -------------------------------------------------------------------------- */

/* x [N, C, ...]; like has x's size; pair has 2C elements, and saved 4C. */
static enum sl_status check(const char *name, const struct sl__tensor *x,
                            const struct sl__tensor *like, const struct sl__tensor *pair,
                            const struct sl__tensor *saved, struct sl__norm_args *a) {
  char text[96];
  a->rows = (int32_t)x->shape.dim[0];
  a->channels = x->shape.ndim > 1 ? (int32_t)x->shape.dim[1] : 0;
  if (a->channels)
    a->plane = (int32_t)(sl_shape_count(&x->shape) / ((int64_t)a->rows * a->channels));
  if (a->channels > 0 && sl_shape_equal(&x->shape, &like->shape) &&
      sl_shape_count(&pair->shape) == 2 * a->channels &&
      (!saved || sl_shape_count(&saved->shape) == 4 * a->channels))
    return SL_OK;
  return sl__fail(SL_BAD_SHAPE,
                  "%s: x %s does not fit the other tensors: [N, C, ...], [2C] and what is saved, "
                  "[4C], are needed",
                  name, sl_shape_text(&x->shape, text, sizeof text));
}

static double flops_of(const struct sl__norm_args *a) {
  return 6.0 * (double)a->rows * (double)a->channels * (double)a->plane;
}

/* The same launch, of a call that can be cut between channels. */
static struct sl__launch by_channels(const struct sl__launch *l, const struct sl__norm_args *a) {
  struct sl__launch launch = *l;
  launch.cut = (struct sl__cut){.units = a->channels, .by_channels = true};
  return launch;
}

enum sl_status sl__batchnorm_forward(struct sl_context *context, const struct sl__launch *l,
                                     struct sl__tensor *x, struct sl__tensor *param,
                                     struct sl__tensor *y, struct sl__tensor *saved, float epsilon,
                                     bool has_relu) {
  struct sl__norm_args a = {.epsilon = epsilon, .has_relu = has_relu};
  enum sl_status status = check("batchnorm_forward", x, y, param, saved, &a);
  if (status != SL_OK) return status;
  struct sl__launch launch = by_channels(l, &a);
  return sl__submit(context, &sl__op_batchnorm_forward, &launch, 4,
                    (struct sl__tensor *[]){x, param, y, saved}, &a, sizeof a, flops_of(&a),
                    has_relu);
}

enum sl_status sl__batchnorm_inference(struct sl_context *context, const struct sl__launch *l,
                                       struct sl__tensor *x, struct sl__tensor *param,
                                       struct sl__tensor *running, struct sl__tensor *y,
                                       float epsilon, bool has_relu) {
  struct sl__norm_args a = {.epsilon = epsilon, .has_relu = has_relu};
  enum sl_status status = check("batchnorm_inference", x, y, param, NULL, &a);
  if (status == SL_OK && sl_shape_count(&running->shape) != 2 * a.channels)
    status = sl__fail(SL_BAD_SHAPE, "batchnorm_inference: running must be [2C]");
  if (status != SL_OK) return status;
  struct sl__launch launch = *l;
  launch.cut = (struct sl__cut){.units = planes_of(&a), .flat = true, .pointwise = true};
  return sl__submit(context, &sl__op_batchnorm_inference, &launch, 4,
                    (struct sl__tensor *[]){x, param, running, y}, &a, sizeof a, flops_of(&a),
                    has_relu);
}

enum sl_status sl__batchnorm_backward_sums(struct sl_context *context, const struct sl__launch *l,
                                           struct sl__tensor *x, struct sl__tensor *param,
                                           struct sl__tensor *saved, struct sl__tensor *dy,
                                           bool has_relu) {
  struct sl__norm_args a = {.has_relu = has_relu};
  enum sl_status status = check("batchnorm_backward_sums", x, dy, param, saved, &a);
  if (status != SL_OK) return status;
  struct sl__launch launch = by_channels(l, &a);
  return sl__submit(context, &sl__op_batchnorm_backward_sums, &launch, 4,
                    (struct sl__tensor *[]){x, param, saved, dy}, &a, sizeof a, flops_of(&a),
                    has_relu);
}

enum sl_status sl__batchnorm_backward_data(struct sl_context *context, const struct sl__launch *l,
                                           struct sl__tensor *x, struct sl__tensor *param,
                                           struct sl__tensor *saved, struct sl__tensor *dy,
                                           struct sl__tensor *dx, bool has_relu) {
  struct sl__norm_args a = {.has_relu = has_relu};
  enum sl_status status = check("batchnorm_backward_data", x, dy, param, saved, &a);
  if (status == SL_OK && !sl_shape_equal(&dx->shape, &x->shape))
    status = sl__fail(SL_BAD_SHAPE, "batchnorm_backward_data: dx must have x's shape");
  if (status != SL_OK) return status;
  struct sl__launch launch = by_channels(l, &a);
  launch.cut.in_place = 1u << 3;
  return sl__submit(context, &sl__op_batchnorm_backward_data, &launch, 5,
                    (struct sl__tensor *[]){x, param, saved, dy, dx}, &a, sizeof a, flops_of(&a),
                    has_relu);
}

enum sl_status sl__batchnorm_backward_weight(struct sl_context *context, const struct sl__launch *l,
                                             struct sl__tensor *saved, struct sl__tensor *grad) {
  struct sl__norm_args a = {.channels = (int32_t)(sl_shape_count(&grad->shape) / 2)};
  if (sl_shape_count(&grad->shape) != 2 * a.channels ||
      sl_shape_count(&saved->shape) != 4 * a.channels)
    return sl__fail(SL_BAD_SHAPE, "batchnorm_backward_weight: needs saved [4C] and grad [2C]");
  return sl__submit(context, &sl__op_batchnorm_backward_weight, l, 2,
                    (struct sl__tensor *[]){saved, grad}, &a, sizeof a, 2.0 * a.channels, 0);
}

enum sl_status sl__batchnorm_running(struct sl_context *context, const struct sl__launch *l,
                                     struct sl__tensor *saved, struct sl__tensor *running,
                                     float momentum, float epsilon, int64_t values) {
  int64_t n = sl_shape_count(&running->shape);
  if (n % 2 || sl_shape_count(&saved->shape) != 2 * n)
    return sl__fail(SL_BAD_SHAPE, "batchnorm_running: needs saved [4C] and running [2C]");
  struct sl__norm_args a = {.channels = (int32_t)(n / 2),
                            .epsilon = epsilon,
                            .momentum = momentum,
                            .values = (double)values};
  struct sl__launch launch = by_channels(l, &a);
  return sl__submit(context, &sl__op_batchnorm_running, &launch, 2,
                    (struct sl__tensor *[]){saved, running}, &a, sizeof a, (double)n, 0);
}

enum sl_status sl__batchnorm_take_running(struct sl_context *context, const struct sl__launch *l,
                                          struct sl__tensor *running, struct sl__tensor *saved,
                                          float epsilon) {
  int64_t n = sl_shape_count(&running->shape);
  if (n % 2 || sl_shape_count(&saved->shape) != 2 * n)
    return sl__fail(SL_BAD_SHAPE, "batchnorm_take_running: needs running [2C] and saved [4C]");
  struct sl__norm_args a = {.channels = (int32_t)(n / 2), .epsilon = epsilon};
  return sl__submit(context, &sl__op_batchnorm_take_running, l, 2,
                    (struct sl__tensor *[]){running, saved}, &a, sizeof a, (double)n, 0);
}
