/* Activations against the C library in double precision, over a dense sweep of floats, and their
 * gradients by finite differences. Hard values: denormals, infinities, NaN, where exp overflows. */
#include "codelets/activation.h"

#include "tests/common/check.h"

static double reference(enum sl_activation a, double x) {
  switch (a) {
    case SL_ACTIVATION_RELU: return x < 0 ? 0 : x;
    case SL_ACTIVATION_TANH: return tanh(x);
    case SL_ACTIVATION_SIGMOID: return 1 / (1 + exp(-x));
    case SL_ACTIVATION_GELU: return x * 0.5 * erfc(-x / sqrt(2));
    case SL_ACTIVATION_GELU_TANH:
      return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    case SL_ACTIVATION_SILU: return x / (1 + exp(-x));
    default: return x;
  }
}

static const enum sl_activation all[] = {
    SL_ACTIVATION_NONE, SL_ACTIVATION_RELU,      SL_ACTIVATION_TANH, SL_ACTIVATION_SIGMOID,
    SL_ACTIVATION_GELU, SL_ACTIVATION_GELU_TANH, SL_ACTIVATION_SILU};

/* The distance in units in the last place of the wanted value. */
static double ulps(float got, double want) {
  float near = fabsf((float)want);
  double ulp = (double)nextafterf(near, INFINITY) - (double)near;
  return fabs((double)got - want) / ulp;
}

/* Every 1,237th float of either sign in the range where the result is a normal number. */
static double worst(float (*f)(float), double (*g)(double), float limit) {
  double most = 0;
  for (uint32_t bits = 0x20000000; bits < 0x7f000000; bits += 1237) {
    for (uint32_t sign = 0; sign < 2; sign++) {
      uint32_t b = bits | sign << 31;
      float x;
      memcpy(&x, &b, sizeof x);
      if (fabsf(x) > limit) continue;
      double error = ulps(f(x), g((double)x));
      if (error > most) most = error;
    }
  }
  return most;
}

static float exp_f(float x) { return sl__exp(x); }
static float tanh_f(float x) { return sl__tanh(x); }
static float sigmoid_f(float x) { return sl__sigmoid(x); }
static double sigmoid_d(double x) { return 1 / (1 + exp(-x)); }
static float silu_f(float x) { return sl__silu(x); }
static double silu_d(double x) { return x / (1 + exp(-x)); }

static void approximations_are_close(void **state) {
  (void)state;
  double e = worst(exp_f, exp, 87), t = worst(tanh_f, tanh, 1e30f),
         s = worst(sigmoid_f, sigmoid_d, 87), l = worst(silu_f, silu_d, 80);
  print_message("# worst error in ulp: exp %.2f, tanh %.2f, sigmoid %.2f, silu %.2f\n", e, t, s, l);
  assert_true(e < 2);
  assert_true(t < 8);
  assert_true(s < 4);
  assert_true(l < 4);
}

/* The normal distribution, whose error counts beside 1, and its tail, which has digits of its own.
 */
static void normal_distribution_is_close(void **state) {
  (void)state;
  double most = 0, tail = 0, gelu = 0;
  for (float x = -12.5f; x < 12.5f; x += 0.00037f) {
    double phi = 0.5 * erfc(-(double)x / sqrt(2)), got = (double)sl__phi(x, sl__bell(x));
    most = fmax(most, fabs(got - phi));
    gelu = fmax(gelu, fabs((double)sl__gelu(x) - (double)x * phi) / fmax(1, fabs((double)x)));
    if (x < 0) tail = fmax(tail, fabs(got / phi - 1));
  }
  print_message("# worst error of Phi %.2g, of gelu %.2g, in the tail %.2g of it\n", most, gelu,
                tail);
  assert_true(most < 2e-7);
  assert_true(gelu < 1.3e-7);
  assert_true(tail < 1e-5);
}

/* All floats of one sign in steps of 1,009 of their last digit, and the borders. */
static void bounded_exponential_has_the_same_bits(void **state) {
  (void)state;
  const float borders[] = {-87.3f, -87.29999f, -87.30001f, -104, -1e30f, -INFINITY, 0, -0.0f, 88};
  for (uint32_t bits = 0x80000000u; bits <= 0xFF800000u; bits += 1009) {
    float x, a, b;
    memcpy(&x, &bits, sizeof x);
    a = sl__exp(x);
    b = sl__exp_bounded(x);
    if (memcmp(&a, &b, sizeof a))
      fail_msg("e^%.9g is %.9g, not %.9g", (double)x, (double)b, (double)a);
  }
  for (size_t i = 0; i < sizeof borders / sizeof *borders; i++)
    assert_true(sl__exp_bounded(borders[i]) == sl__exp(borders[i]));
  for (float x = 0; x <= 88; x += 0.001f) assert_true(sl__exp_bounded(x) == sl__exp(x));
  assert_true(isnan(sl__exp_bounded(NAN)));
}

static void special_values_stay(void **state) {
  (void)state;
  for (size_t a = 0; a < sizeof all / sizeof *all; a++)
    assert_true(isnan(sl__activation_value(all[a], NAN)));
  assert_true(sl__exp(INFINITY) == INFINITY && sl__exp(-INFINITY) == 0 && isnan(sl__exp(NAN)));
  assert_true(sl__exp(0) == 1 && sl__exp(89) == INFINITY && sl__exp(-104) == 0);
  assert_true(sl__tanh(0) == 0 && fabsf(sl__tanh(INFINITY) - 1) < 1e-6f &&
              fabsf(sl__tanh(-INFINITY) + 1) < 1e-6f);
  assert_true(sl__sigmoid(-INFINITY) == 0 && sl__sigmoid(INFINITY) == 1);
  assert_true(sl__tanh(1e-40f) == 1e-40f);
  for (float x = 20; x < 1e30f; x *= 1e4f)
    for (size_t a = 0; a < sizeof all / sizeof *all; a++) {
      if (!sl__activation_saves_input(all[a])) continue;
      assert_true(sl__activation_value(all[a], x) == x);
      assert_true(fabsf(sl__activation_value(all[a], -x)) < 1e-6f);
      assert_true(sl__activation_slope(all[a], x) == 1);
      assert_true(fabsf(sl__activation_slope(all[a], -x)) < 1e-6f);
    }
}

static enum sl_activation current;
static const double *weights;

static double weighted(const double *x, void *data) {
  int64_t n = *(int64_t *)data;
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += weights[i] * reference(current, x[i]);
  return sum;
}

static void operations_match(void **state) {
  (void)state;
  static const int64_t sizes[] = {1, 15, 64, 1003};
  for (size_t a = 0; a < sizeof all / sizeof *all; a++)
    for (size_t s = 0; s < 4; s++)
      for (int add = 0; add < 2; add++) {
        int64_t n = sizes[s];
        double *x = random_values(n, 1), *dy = random_values(n, 2), *old = random_values(n, 3),
               *want = zeros(n);
        current = all[a];
        weights = dy;
        for (int64_t i = 0; i < n; i++) {
          x[i] *= 4;
          want[i] = reference(current, x[i]);
        }
        struct sl__tensor *tx = tensor(SL_SHAPE(n), x), *ty = tensor(SL_SHAPE(n), NULL);
        struct sl__tensor *tdy = tensor(SL_SHAPE(n), dy), *tdx = tensor(SL_SHAPE(n), old);
        OK(sl__activation_forward(context, &plain, tx, ty, current));
        struct sl__tensor *saved = sl__activation_saves_input(current) ? tx : ty;
        OK(sl__activation_backward(context, add ? &adding : &plain, saved, tdy, tdx, current));
        double *dx = take(tdx);
        for (int64_t i = 0; add && i < n; i++) dx[i] -= old[i];
        assert_slope("dx", weighted, &n, x, dx, n);
        OK(sl__activation_backward_inplace(context, &plain, saved, tdy, current));
        double *inplace = take(tdy);
        assert_slope("in place", weighted, &n, x, inplace, n);
        free(inplace);
        assert_near("y", take(ty), want, n, 8, 4);
        sl__tensor_free(tx);
        free(dx), free(x), free(dy), free(old), free(want);
      }
}

/* The same arithmetic on values that bf16 has; only what is stored is rounded. */
static void bf16_tensors_match(void **state) {
  (void)state;
  static const int64_t sizes[] = {1, 15, 1003};
  for (size_t a = 0; a < sizeof all / sizeof *all; a++)
    for (size_t s = 0; s < 3; s++) {
      int64_t n = sizes[s];
      double *x = random_values(n, 1), *dy = round_bf16(random_values(n, 2), n),
             *old = round_bf16(random_values(n, 3), n), *want = zeros(n), *slope = zeros(n);
      for (int64_t i = 0; i < n; i++) x[i] *= 4;
      round_bf16(x, n);
      for (int64_t i = 0; i < n; i++) want[i] = reference(all[a], x[i]);
      struct sl__tensor *tx = bf16_tensor(SL_SHAPE(n), x), *ty = bf16_tensor(SL_SHAPE(n), NULL);
      struct sl__tensor *tdy = bf16_tensor(SL_SHAPE(n), dy), *tdx = bf16_tensor(SL_SHAPE(n), old);
      OK(sl__activation_forward(context, &plain, tx, ty, all[a]));
      assert_near_bf16("bf16 y", take(ty), want, n, 8, 4);
      /* relu, tanh and sigmoid know their slope by y: any y that bf16 has will do */
      double *saved = sl__activation_saves_input(all[a]) ? x : round_bf16(want, n);
      for (int64_t i = 0; i < n; i++)
        slope[i] = dy[i] * (double)sl__activation_slope(all[a], (float)saved[i]);
      struct sl__tensor *ts = bf16_tensor(SL_SHAPE(n), saved);
      struct sl__tensor *inplace = bf16_tensor(SL_SHAPE(n), dy);
      OK(sl__activation_backward_inplace(context, &plain, ts, inplace, all[a]));
      assert_near_bf16("bf16 in place", take(inplace), slope, n, 4, 2);
      for (int64_t i = 0; i < n; i++) slope[i] += old[i];
      OK(sl__activation_backward(context, &adding, ts, tdy, tdx, all[a]));
      assert_near_bf16("bf16 dx", take(tdx), slope, n, 4, 3);
      sl__tensor_free(tx), sl__tensor_free(tdy), sl__tensor_free(ts);
      free(x), free(dy), free(old), free(want), free(slope);
    }
}

static void shapes_are_checked(void **state) {
  (void)state;
  struct sl__tensor *a = tensor(SL_SHAPE(4), NULL), *b = tensor(SL_SHAPE(5), NULL);
  assert_int_equal(sl__activation_forward(context, &plain, a, b, SL_ACTIVATION_TANH), SL_BAD_SHAPE);
  assert_int_equal(sl__activation_backward(context, &plain, a, a, b, SL_ACTIVATION_TANH),
                   SL_BAD_SHAPE);
  sl__tensor_free(a);
  sl__tensor_free(b);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(approximations_are_close),
                                     cmocka_unit_test(normal_distribution_is_close),
                                     cmocka_unit_test(bounded_exponential_has_the_same_bits),
                                     cmocka_unit_test(special_values_stay),
                                     cmocka_unit_test(operations_match),
                                     cmocka_unit_test(bf16_tensors_match),
                                     cmocka_unit_test(shapes_are_checked)};
  return cmocka_run_group_tests_name("activation", tests, open_operations, close_context);
}
