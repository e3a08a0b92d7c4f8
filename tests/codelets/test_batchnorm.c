/* Batch normalisation against double precision and finite differences; bf16 against the formula.
 * Hard shapes: one row, one value a plane, odd planes, a mean that is large beside the deviation,
 * channels whose sums come in several parts. */
#include "tests/common/check.h"

struct norm {
  int64_t n, c, plane;
  double mean;
  bool has_relu;
  const double *x, *param, *dy;
};
static const double epsilon = 1e-5;

static int64_t count(const struct norm *v) { return v->n * v->c * v->plane; }
static int64_t at(const struct norm *v, int64_t n, int64_t c, int64_t p) {
  return (n * v->c + c) * v->plane + p;
}

static void statistics(const struct norm *v, int64_t c, double *mean, double *variance) {
  *mean = *variance = 0;
  for (int64_t n = 0; n < v->n; n++)
    for (int64_t p = 0; p < v->plane; p++)
      *mean += v->x[at(v, n, c, p)] / (double)(v->n * v->plane);
  for (int64_t n = 0; n < v->n; n++)
    for (int64_t p = 0; p < v->plane; p++) {
      double difference = v->x[at(v, n, c, p)] - *mean;
      *variance += difference * difference / (double)(v->n * v->plane);
    }
}

static void normalise(const struct norm *v, const double *running, double *y) {
  for (int64_t c = 0; c < v->c; c++) {
    double mean, variance;
    statistics(v, c, &mean, &variance);
    if (running) mean = running[c], variance = running[v->c + c];
    for (int64_t n = 0; n < v->n; n++)
      for (int64_t p = 0; p < v->plane; p++)
        y[at(v, n, c, p)] = v->param[c] * (v->x[at(v, n, c, p)] - mean) / sqrt(variance + epsilon) +
                            v->param[v->c + c];
  }
}

/* What the forward pass writes; running: in inference. */
static void outputs(const struct norm *v, const double *running, double *y) {
  normalise(v, running, y);
  for (int64_t i = 0; v->has_relu && i < count(v); i++) y[i] = fmax(y[i], 0);
}

static double of_x(const double *x, void *data) {
  struct norm v = *(struct norm *)data;
  double *y = zeros(count(&v));
  v.x = x;
  outputs(&v, NULL, y);
  double sum = dot(y, v.dy, count(&v));
  free(y);
  return sum;
}

static double of_param(const double *param, void *data) {
  struct norm v = *(struct norm *)data;
  v.param = param;
  return of_x(v.x, &v);
}

static const struct norm cases[] = {
    {2, 1, 1, 0},    {5, 3, 1, 0},      {1, 2, 7, 0},      {4, 6, 33, 0.5},   {3, 2, 64, 100},
    {300, 40, 1, 0}, {170, 3, 15, 0.5}, {4, 2, 4096, 0.5}, {5, 2, 4001, 0.5},
};

/* Each case, without a relu and with one, overwriting and adding. */
static void each(void (*check)(struct norm, bool)) {
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
    for (int i = 0; i < 4; i++) {
      struct norm v = cases[c];
      v.has_relu = i / 2;
      check(v, i % 2);
    }
}

static void check(struct norm v, bool add) {
  const struct sl__launch *l = add ? &adding : &plain;
  int64_t size = count(&v), two = 2 * v.c;
  double *x = random_values(size, 1), *param = random_values(two, 2), *dy = random_values(size, 3);
  double *old_x = random_values(size, 4), *old_g = random_values(two, 5), *want = zeros(size),
         *running = zeros(two);
  for (int64_t i = 0; i < size; i++) x[i] = (double)(float)(x[i] + v.mean);
  for (int64_t c = 0; c < v.c; c++) running[c] = 0.25, running[v.c + c] = 1.5;
  v.x = x, v.param = param, v.dy = dy;
  struct sl_shape shape = SL_SHAPE(v.n, v.c, v.plane);
  struct sl__tensor *tx = tensor(shape, x), *tp = tensor(SL_SHAPE(two), param),
                    *ty = tensor(shape, NULL);
  struct sl__tensor *saved = tensor(SL_SHAPE(2 * two), NULL), *tdy = tensor(shape, dy),
                    *tdx = tensor(shape, old_x);
  struct sl__tensor *tg = tensor(SL_SHAPE(two), old_g), *tr = tensor(SL_SHAPE(two), running),
                    *ti = tensor(shape, NULL);
  OK(sl__batchnorm_forward(context, &plain, tx, tp, ty, saved, (float)epsilon, v.has_relu));
  OK(sl__batchnorm_inference(context, &plain, tx, tp, tr, ti, (float)epsilon, v.has_relu));
  OK(sl__batchnorm_backward_sums(context, &plain, tx, tp, saved, tdy, v.has_relu));
  OK(sl__batchnorm_backward_data(context, l, tx, tp, saved, tdy, tdx, v.has_relu));
  OK(sl__batchnorm_backward_weight(context, l, saved, tg));
  OK(sl__batchnorm_running(context, &plain, saved, tr, 0.1f, (float)epsilon, v.n * v.plane));
  outputs(&v, running, want);
  assert_near("inference", take(ti), want, size, 8, 1 + 2 * v.mean);
  outputs(&v, NULL, want);
  assert_near("y", take(ty), want, size, 16, 4 + v.mean);
  double *dx = take(tdx), *grad = take(tg);
  for (int64_t i = 0; add && i < size; i++) dx[i] -= old_x[i];
  for (int64_t i = 0; add && i < two; i++) grad[i] -= old_g[i];
  assert_slope("dx", of_x, &v, x, dx, size);
  assert_slope("grad", of_param, &v, param, grad, two);
  for (int64_t c = 0; c < v.c; c++) {
    double mean, variance, values = (double)(v.n * v.plane);
    statistics(&v, c, &mean, &variance);
    running[c] = 0.9 * running[c] + 0.1 * mean;
    running[v.c + c] = 0.9 * running[v.c + c] + 0.1 * variance * values / (values - 1);
  }
  assert_near("running statistics", take(tr), running, two, 20, 2 + v.mean);
  struct sl__tensor *rest[] = {tx, tp, saved, tdy};
  for (int i = 0; i < 4; i++) sl__tensor_free(rest[i]);
  free(dx), free(grad), free(x), free(param), free(dy), free(old_x), free(old_g), free(want),
      free(running);
}

static void all_passes_match(void **state) {
  (void)state;
  each(check);
}

/* Fixed statistics: dx = gamma r dy, of the outputs above 0 if a relu follows. */
static void check_fixed(struct norm v, bool add) {
  const struct sl__launch *l = add ? &adding : &plain;
  int64_t size = count(&v), two = 2 * v.c;
  double *x = random_values(size, 1), *param = random_values(two, 2), *dy = random_values(size, 3),
         *want = random_values(size, 4), *y = zeros(size), *running = zeros(two);
  for (int64_t c = 0; c < v.c; c++) running[c] = 0.25, running[v.c + c] = 1.5;
  v.x = x, v.param = param, v.dy = dy;
  struct sl_shape shape = SL_SHAPE(v.n, v.c, v.plane);
  struct sl__tensor *tx = tensor(shape, x), *tp = tensor(SL_SHAPE(two), param),
                    *tr = tensor(SL_SHAPE(two), running), *tdy = tensor(shape, dy),
                    *saved = tensor(SL_SHAPE(2 * two), NULL), *tdx = tensor(shape, want);
  OK(sl__batchnorm_take_running(context, &plain, tr, saved, (float)epsilon));
  OK(sl__batchnorm_backward_data(context, l, tx, tp, saved, tdy, tdx, v.has_relu));
  outputs(&v, running, y);
  for (int64_t n = 0; n < v.n; n++)
    for (int64_t c = 0; c < v.c; c++)
      for (int64_t p = 0; p < v.plane; p++) {
        int64_t i = at(&v, n, c, p);
        double slope = param[c] / sqrt(1.5 + epsilon) * (!v.has_relu || y[i] > 0);
        want[i] = (add ? want[i] : 0) + slope * dy[i];
      }
  assert_near("dx of fixed statistics", take(tdx), want, size, 8, 2);
  struct sl__tensor *rest[] = {tx, tp, tr, tdy, saved};
  for (int i = 0; i < 5; i++) sl__tensor_free(rest[i]);
  free(x), free(param), free(dy), free(want), free(y), free(running);
}

static void fixed_statistics_match(void **state) {
  (void)state;
  each(check_fixed);
}

/* dx = gamma r (dy - mean(dy) - xhat mean(dy xhat)); gradients of gamma and beta: the sums. dy: the
 * gradient before a relu. */
static void slopes(const struct norm *v, const double *dy, double *dx, double *grad) {
  for (int64_t c = 0; c < v->c; c++) {
    double mean, variance, sum = 0, product = 0, values = (double)(v->n * v->plane);
    statistics(v, c, &mean, &variance);
    double r = 1 / sqrt(variance + epsilon);
    for (int64_t n = 0; n < v->n; n++)
      for (int64_t p = 0; p < v->plane; p++) {
        int64_t i = at(v, n, c, p);
        sum += dy[i];
        product += dy[i] * (v->x[i] - mean) * r;
      }
    grad[c] += product;
    grad[v->c + c] += sum;
    for (int64_t n = 0; n < v->n; n++)
      for (int64_t p = 0; p < v->plane; p++) {
        int64_t i = at(v, n, c, p);
        dx[i] += v->param[c] * r * (dy[i] - sum / values - (v->x[i] - mean) * r * product / values);
      }
  }
}

static void check_half(struct norm v, bool add) {
  const struct sl__launch *l = add ? &adding : &plain;
  int64_t size = count(&v), two = 2 * v.c;
  double *x = random_values(size, 1), *param = random_values(two, 2);
  double *dy = round_bf16(random_values(size, 3), size), *want = zeros(size), *running = zeros(two);
  double *dx = round_bf16(random_values(size, 4), size), *grad = random_values(two, 5);
  for (int64_t i = 0; i < size; i++) x[i] += v.mean;
  for (int64_t c = 0; c < v.c; c++) running[c] = 0.25, running[v.c + c] = 1.5;
  v.x = round_bf16(x, size), v.param = param, v.dy = dy;
  struct sl_shape shape = SL_SHAPE(v.n, v.c, v.plane), pair = SL_SHAPE(two);
  struct sl__tensor *tx = bf16_tensor(shape, x), *tp = tensor(pair, param),
                    *ty = bf16_tensor(shape, NULL), *ti = bf16_tensor(shape, NULL);
  struct sl__tensor *saved = tensor(SL_SHAPE(2 * two), NULL), *tdy = bf16_tensor(shape, dy),
                    *tdx = bf16_tensor(shape, dx), *tg = tensor(pair, grad),
                    *tr = tensor(pair, running);
  OK(sl__batchnorm_forward(context, &plain, tx, tp, ty, saved, (float)epsilon, v.has_relu));
  OK(sl__batchnorm_inference(context, &plain, tx, tp, tr, ti, (float)epsilon, v.has_relu));
  OK(sl__batchnorm_backward_sums(context, &plain, tx, tp, saved, tdy, v.has_relu));
  OK(sl__batchnorm_backward_data(context, l, tx, tp, saved, tdy, tdx, v.has_relu));
  OK(sl__batchnorm_backward_weight(context, l, saved, tg));
  outputs(&v, running, want);
  assert_near_bf16("inference", take(ti), want, size, 8, 1 + 2 * v.mean);
  outputs(&v, NULL, want);
  assert_near_bf16("y", take(ty), want, size, 16, 4 + v.mean);
  for (int64_t i = 0; !add && i < size; i++) dx[i] = 0;
  for (int64_t i = 0; !add && i < two; i++) grad[i] = 0;
  for (int64_t i = 0; i < size; i++) dy[i] *= !v.has_relu || want[i] > 0;
  slopes(&v, dy, dx, grad);
  assert_near_bf16("dx", take(tdx), dx, size, 64, 4 + v.mean);
  assert_near("grad", take(tg), grad, two, 64 * sqrt((double)size), 4 + v.mean);
  struct sl__tensor *rest[] = {tx, tp, saved, tdy, tr};
  for (int i = 0; i < 5; i++) sl__tensor_free(rest[i]);
  free(x), free(param), free(dy), free(want), free(running), free(dx), free(grad);
}

static void halves_match(void **state) {
  (void)state;
  each(check_half);
}

static void shapes_are_checked(void **state) {
  (void)state;
  struct sl__tensor *x = tensor(SL_SHAPE(2, 3, 4), NULL), *y = tensor(SL_SHAPE(2, 3, 5), NULL);
  struct sl__tensor *six = tensor(SL_SHAPE(6), NULL), *five = tensor(SL_SHAPE(5), NULL);
  struct sl__tensor *kept = tensor(SL_SHAPE(12), NULL);
  assert_int_equal(sl__batchnorm_forward(context, &plain, x, six, y, kept, 1e-5f, false),
                   SL_BAD_SHAPE);
  assert_int_equal(sl__batchnorm_forward(context, &plain, x, five, x, kept, 1e-5f, false),
                   SL_BAD_SHAPE);
  assert_int_equal(sl__batchnorm_forward(context, &plain, x, six, x, six, 1e-5f, false),
                   SL_BAD_SHAPE);
  assert_int_equal(sl__batchnorm_inference(context, &plain, x, six, five, x, 1e-5f, false),
                   SL_BAD_SHAPE);
  assert_int_equal(sl__batchnorm_backward_sums(context, &plain, x, six, six, x, false),
                   SL_BAD_SHAPE);
  assert_int_equal(sl__batchnorm_backward_data(context, &plain, x, six, kept, x, y, false),
                   SL_BAD_SHAPE);
  assert_int_equal(sl__batchnorm_backward_weight(context, &plain, six, six), SL_BAD_SHAPE);
  assert_int_equal(sl__batchnorm_running(context, &plain, six, five, 0.1f, 1e-5f, 4), SL_BAD_SHAPE);
  assert_int_equal(sl__batchnorm_running(context, &plain, six, six, 0.1f, 1e-5f, 4), SL_BAD_SHAPE);
  assert_int_equal(sl__batchnorm_take_running(context, &plain, six, six, 1e-5f), SL_BAD_SHAPE);
  assert_int_equal(sl__batchnorm_take_running(context, &plain, five, kept, 1e-5f), SL_BAD_SHAPE);
  struct sl__tensor *all[] = {x, y, six, five, kept};
  for (int i = 0; i < 5; i++) sl__tensor_free(all[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_passes_match), cmocka_unit_test(halves_match),
      cmocka_unit_test(fixed_statistics_match), cmocka_unit_test(shapes_are_checked)};
  return cmocka_run_group_tests_name("batchnorm", tests, open_operations, close_context);
}
