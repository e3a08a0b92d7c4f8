/* Common parts of the operations' tests: tensors from double-precision values, comparison. */
#ifndef SL_TESTS_COMMON_CHECK_H
#define SL_TESTS_COMMON_CHECK_H

#include <math.h>

#include "codelets/kernels/choice.h"
#include "codelets/codelets.h"
#include "core/base/half.h"
#include "core/base/random.h"
#include "tests/common/harness.h"

/* Operations run on the device that SL_TEST_DEVICE names ("cuda:0"), or on any without it. */
static struct sl__launch plain = {.name = "test"}, adding = {.name = "test", .accumulate = true};

/* Group fixture: the context, and the place of `plain` and `adding`. */
static inline int open_operations(void **state) {
  if (open_context(state)) return 1;
  if (getenv("SL_TEST_DEVICE")) plain.place = adding.place = context->devices[0].place;
  return 0;
}

/* Implementations are a CPU's. */
static inline bool operations_run_on_a_gpu(void) {
  const char *device = getenv("SL_TEST_DEVICE");
  return device && !strncmp(device, "cuda", 4);
}

/* A case that runs check() with the preferred implementation and, on a CPU, with each of this set.
 */
#define EACH_OF(set, name, check)                                                                  \
  static void name(void **state) {                                                                 \
    (void)state;                                                                                   \
    for (int i = -1; i < SL__IMPLEMENTATIONS; i++) {                                               \
      if (i >= 0 && (operations_run_on_a_gpu() || !((set) >> i & 1))) continue;                    \
      sl__choice_force(context, i);                                                                \
      check();                                                                                     \
    }                                                                                              \
    sl__choice_force(context, -1);                                                                 \
  }
#define EACH_IMPLEMENTATION(name, check) EACH_OF(~0u, name, check)
/* The same where only products differ: those of this build's libraries, and our own. */
#define EACH_OWN_OR_LIBRARY(name, check) EACH_OF(sl__choice_products() | 1u << SL__OWN, name, check)

/* The i-th random number of a stream, from first to last. */
static inline int from(int first, int last, uint64_t stream, int i) {
  return first + (int)(sl__uniform(7, stream, (uint64_t)i) * (float)(last - first + 1));
}

/* n values in [-1, 1), the same for the same stream; the doubles are rounded to float, so that both
 * sides start alike. */
static inline double *random_values(int64_t n, uint64_t stream) {
  double *v = calloc((size_t)n + 1, sizeof *v);
  for (int64_t i = 0; i < n; i++) v[i] = (double)(2 * sl__uniform(1, stream, (uint64_t)i) - 1);
  return v;
}

static inline float *random_floats(int64_t n, uint64_t stream) {
  float *v = calloc((size_t)n + 1, sizeof *v);
  for (int64_t i = 0; i < n; i++) v[i] = 2 * sl__uniform(1, stream, (uint64_t)i) - 1;
  return v;
}

static inline double *zeros(int64_t n) { return calloc((size_t)n + 1, sizeof(double)); }

static inline struct sl__tensor *tensor(struct sl_shape shape, const double *values) {
  struct sl__tensor *t;
  int64_t n = sl_shape_count(&shape);
  OK(sl__tensor_host(context, &shape, SL_F32, NULL, &t));
  float *f = calloc((size_t)n, sizeof *f);
  for (int64_t i = 0; values && i < n; i++) f[i] = (float)values[i];
  OK(sl__tensor_write(t, f));
  free(f);
  return t;
}

static inline struct sl__tensor *random_tensor(struct sl_shape shape, uint64_t stream) {
  double *values = random_values(sl_shape_count(&shape), stream);
  struct sl__tensor *t = tensor(shape, values);
  free(values);
  return t;
}

/* Windows of 3 x 3 that keep an image's size. */
static inline struct sl__conv2d three_by_three(int channels, bool has_bias) {
  return (struct sl__conv2d){.channels = channels,
                             .kernel_h = 3,
                             .kernel_w = 3,
                             .stride_h = 1,
                             .stride_w = 1,
                             .pad_h = 1,
                             .pad_w = 1,
                             .has_bias = has_bias};
}

static inline struct sl__tensor *integers(struct sl_shape shape, const int32_t *values) {
  struct sl__tensor *t;
  OK(sl__tensor_host(context, &shape, SL_I32, NULL, &t));
  if (values) OK(sl__tensor_write(t, values));
  return t;
}

/* The same as bf16, for values that bf16 holds exactly: see round_bf16. */
static inline struct sl__tensor *bf16_tensor(struct sl_shape shape, const double *values) {
  struct sl__tensor *t;
  int64_t n = sl_shape_count(&shape);
  OK(sl__tensor_host(context, &shape, SL_BF16, NULL, &t));
  uint16_t *codes = calloc((size_t)n, sizeof *codes);
  for (int64_t i = 0; values && i < n; i++) codes[i] = sl__bf16_code((float)values[i]);
  OK(sl__tensor_write(t, codes));
  free(codes);
  return t;
}

/* Rounds the values to bf16, so that both sides start alike. */
static inline double *round_bf16(double *values, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    values[i] = (double)sl__bf16_value(sl__bf16_code((float)values[i]));
  return values;
}

/* The tensor's values; it is freed. */
static inline double *take(struct sl__tensor *t) {
  int64_t n = sl_shape_count(&t->shape);
  float *f = calloc((size_t)n, sizeof *f);
  uint16_t *codes = calloc((size_t)n, sizeof *codes);
  double *v = zeros(n);
  OK(sl__tensor_read(t, t->type == SL_BF16 ? (void *)codes : f));
  for (int64_t i = 0; i < n; i++)
    v[i] = t->type == SL_BF16 ? (double)sl__bf16_value(codes[i]) : (double)f[i];
  free(f);
  free(codes);
  sl__tensor_free(t);
  return v;
}

/* Every value within `terms` roundings of the largest that went into it (magnitude). got is freed.
 */
static inline void assert_near(const char *what, double *got, const double *want, int64_t n,
                               double terms, double magnitude) {
  double tolerance = (terms + 4) * 6e-8 * magnitude;
  for (int64_t i = 0; i < n; i++)
    if (!(fabs(got[i] - want[i]) <= tolerance))
      fail_msg("%s: element %lld of %lld is %.9g, the reference %.9g (tolerance %.2g)", what,
               (long long)i, (long long)n, got[i], want[i], tolerance);
  free(got);
}

/* The same for values stored as bf16: half a unit in its last place more. */
static inline void assert_near_bf16(const char *what, double *got, const double *want, int64_t n,
                                    double terms, double magnitude) {
  for (int64_t i = 0; i < n; i++) {
    double tolerance = fabs(want[i]) / 256 + (terms + 4) * 6e-8 * magnitude + 1e-38;
    if (!(fabs(got[i] - want[i]) <= tolerance))
      fail_msg("%s: element %lld of %lld is %.9g, the reference %.9g (tolerance %.2g)", what,
               (long long)i, (long long)n, got[i], want[i], tolerance);
  }
  free(got);
}

static inline double dot(const double *a, const double *b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
  return sum;
}

/* Finite differences: f(x) is a scalar function in double precision; slope: at x along some
 * directions. */
enum { DIRECTIONS = 3 };

static inline void find_slopes(double (*f)(const double *x, void *data), void *data,
                               const double *x, int64_t n, double slope[DIRECTIONS]) {
  for (uint64_t k = 0; k < DIRECTIONS; k++) {
    double h = 1e-5, *d = random_values(n, 900 + k), *moved = zeros(n), side[2];
    for (int s = 0; s < 2; s++) {
      for (int64_t i = 0; i < n; i++) moved[i] = x[i] + (s ? h : -h) * d[i];
      side[s] = f(moved, data);
    }
    slope[k] = (side[1] - side[0]) / (2 * h);
    free(d);
    free(moved);
  }
}

/* The slope along d must be <gradient, d>. */
static inline void assert_found_slopes(const char *what, const double slope[DIRECTIONS],
                                       const double *gradient, int64_t n) {
  double size = sqrt(dot(gradient, gradient, n)) + 1e-3;
  for (uint64_t k = 0; k < DIRECTIONS; k++) {
    double *d = random_values(n, 900 + k), claimed = dot(gradient, d, n);
    if (!(fabs(slope[k] - claimed) <= 2e-4 * size))
      fail_msg("%s: slope by differences %.9g, by the gradient %.9g", what, slope[k], claimed);
    free(d);
  }
}

static inline void assert_slope(const char *what, double (*f)(const double *x, void *data),
                                void *data, const double *x, const double *gradient, int64_t n) {
  double slope[DIRECTIONS];
  find_slopes(f, data, x, n, slope);
  assert_found_slopes(what, slope, gradient, n);
}

#endif
