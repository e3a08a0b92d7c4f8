/* Initial weights. References: the bounds and moments of each distribution, another implementation
 * of the random numbers for the first values, and the promise that a weight depends on seed, name
 * and index only. */
#include <math.h>

#include "tests/common/small_model.h"

#define IN 400
#define OUT 500 /* 200,000 weights: a mean's deviation is 1/447 of the distribution's */

struct moments {
  double mean, variance, kurtosis, least, most;
};

static struct moments moments_of(const float *values, int64_t count) {
  struct moments m = {.least = values[0], .most = values[0]};
  double fourth = 0;
  for (int64_t i = 0; i < count; i++) m.mean += values[i] / (double)count;
  for (int64_t i = 0; i < count; i++) {
    double d = values[i] - m.mean;
    m.variance += d * d / (double)count;
    fourth += d * d * d * d / (double)count;
    m.least = fmin(m.least, values[i]);
    m.most = fmax(m.most, values[i]);
  }
  m.kurtosis = fourth / (m.variance * m.variance);
  return m;
}

/* Fills its range, evenly: variance bound^2 / 3, kurtosis 9/5. */
static void assert_uniform(const float *values, int64_t count, double bound) {
  struct moments m = moments_of(values, count);
  assert_true(m.least >= -bound * (1 + 1e-6) && m.most <= bound * (1 + 1e-6));
  assert_true(m.least < -0.999 * bound && m.most > 0.999 * bound);
  assert_true(fabs(m.mean) < 4 * bound / sqrt(3.0 * (double)count));
  assert_true(fabs(m.variance / (bound * bound / 3) - 1) < 0.02);
  assert_true(fabs(m.kurtosis - 1.8) < 0.05);
}

static void assert_normal(const float *values, int64_t count, double deviation) {
  struct moments m = moments_of(values, count);
  assert_true(fabs(m.mean) < 4 * deviation / sqrt((double)count));
  assert_true(fabs(m.variance / (deviation * deviation) - 1) < 0.02);
  assert_true(fabs(m.kurtosis - 3) < 0.1);
  assert_true(m.most > 3.5 * deviation && m.least < -3.5 * deviation);
}

static void assert_all(const float *values, int64_t count, float expected) {
  for (int64_t i = 0; i < count; i++) assert_true(values[i] == expected);
}

static struct sl_model *dense_model(enum sl_init init) {
  struct sl_model *model = new_model(SL_SHAPE(IN));
  const struct sl_layer_options layer = {.init = init,
                                         .deviation = init == SL_INIT_NORMAL ? 0.02f : 0};
  OK(sl_dense(model, "fc", &(struct sl_dense_options){.layer = layer, .features = OUT}));
  OK(sl_model_build(model));
  return model;
}

static void each_kind_has_its_distribution(void **state) {
  (void)state;
  for (enum sl_init init = SL_INIT_DEFAULT; init <= SL_INIT_NORMAL; init++) {
    struct sl_model *model = dense_model(init);
    float *weight = get_values(model, "fc.weight"), *bias = get_values(model, "fc.bias");
    switch (init) {
      case SL_INIT_DEFAULT: assert_uniform(weight, IN * OUT, 1 / sqrt(IN)); break;
      case SL_INIT_XAVIER: assert_uniform(weight, IN * OUT, sqrt(6.0 / (IN + OUT))); break;
      case SL_INIT_HE: assert_normal(weight, IN * OUT, sqrt(2.0 / IN)); break;
      case SL_INIT_UNIFORM: assert_uniform(weight, IN * OUT, 0.07); break;
      case SL_INIT_ZERO: assert_all(weight, IN * OUT, 0); break;
      case SL_INIT_NORMAL: assert_normal(weight, IN * OUT, 0.02); break;
    }
    if (init == SL_INIT_DEFAULT) { /* the bias is drawn too, from the weight's fan_in */
      struct moments m = moments_of(bias, OUT);
      assert_true(m.most <= 0.05 && m.most > 0.04 && m.least < -0.04);
      assert_true(bias[0] != weight[0]);
    } else {
      assert_all(bias, OUT, 0);
    }
    free(weight);
    free(bias);
    sl_model_free(model);
  }
}

/* Weights of a normalisation stay 1; an embedding takes the deviation, too. */
static void a_deviation_is_the_layers_own(void **state) {
  (void)state;
  struct sl_model *model = new_model(SL_SHAPE(7));
  const struct sl_layer_options small = {.init = SL_INIT_NORMAL, .deviation = 0.25f};
  OK(sl_embedding(
      model, "words",
      &(struct sl_embedding_options){.layer = small, .vocabulary = 1000, .features = 100}));
  OK(sl_layernorm(model, "ln", &(struct sl_layernorm_options){.layer = small}));
  OK(sl_model_build(model));
  float *words = get_values(model, "words.weight"), *ln = get_values(model, "ln.weight");
  assert_normal(words, 100000, 0.25);
  assert_all(ln, 100, 1);
  free(words), free(ln);
  sl_model_free(model);
}

static void a_deviation_is_checked(void **state) {
  (void)state;
  static const struct sl_layer_options bad[] = {{.init = SL_INIT_NORMAL},
                                                {.init = SL_INIT_NORMAL, .deviation = -0.1f},
                                                {.init = SL_INIT_NORMAL, .deviation = NAN},
                                                {.init = SL_INIT_NORMAL, .deviation = INFINITY},
                                                {.init = SL_INIT_HE, .deviation = 0.1f},
                                                {.deviation = 0.1f}};
  struct sl_model *model = new_model(SL_SHAPE(7));
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    FAILS(sl_dense(model, "fc", &(struct sl_dense_options){.layer = bad[i], .features = 2}),
          SL_BAD_ARGUMENT, "layer fc (dense): deviation is");
  sl_model_free(model);
}

static void a_convolution_counts_its_window(void **state) {
  (void)state;
  struct sl_model *model = new_model(SL_SHAPE(8, 9, 9));
  OK(sl_conv2d(model, "conv",
               &(struct sl_conv2d_options){.channels = 300, .kernel_h = 3, .kernel_w = 5}));
  OK(sl_model_build(model));
  float *weight = get_values(model, "conv.weight");
  assert_uniform(weight, value_count(model, "conv.weight"), 1 / sqrt(8 * 3 * 5));
  free(weight);
  sl_model_free(model);
}

static void an_embedding_is_standard_normal(void **state) {
  (void)state;
  struct sl_model *model = new_model(SL_SHAPE(7));
  OK(sl_embedding(model, "words",
                  &(struct sl_embedding_options){.vocabulary = 1000, .features = 100}));
  OK(sl_model_build(model));
  float *weight = get_values(model, "words.weight");
  assert_normal(weight, 100000, 1.0);
  free(weight);
  sl_model_free(model);
}

static void a_normalisation_begins_as_identity(void **state) {
  (void)state;
  const char *const names[] = {"weight", "bias", "running_mean", "running_var"};
  for (int zero = 0; zero < 2; zero++) {
    const float expected[] = {zero ? 0 : 1, 0, 0, 1};
    struct sl_model *model = new_model(SL_SHAPE(6, 4, 4));
    OK(sl_batchnorm(
        model, "bn",
        &(struct sl_batchnorm_options){.layer.init = zero ? SL_INIT_ZERO : SL_INIT_HE}));
    OK(sl_model_build(model));
    for (int i = 0; i < 4; i++) {
      char name[32] = "bn.";
      float *values = get_values(model, strcat(name, names[i]));
      assert_all(values, 6, expected[i]);
      free(values);
    }
    sl_model_free(model);
  }
}

/* fc1 alone, and fc1 between other layers: the same weights. */
static void order_does_not_matter(void **state) {
  (void)state;
  struct sl_model *one = new_model(SL_SHAPE(30)), *other = new_model(SL_SHAPE(20));
  add_dense(one, "fc1", 40, SL_INIT_DEFAULT);
  add_dense(one, "fc2", 40, SL_INIT_DEFAULT);
  add_dense(other, "before", 30, SL_INIT_DEFAULT);
  add_dense(other, "fc1", 40, SL_INIT_DEFAULT);
  OK(sl_model_build(one));
  OK(sl_model_build(other));
  float *a = get_values(one, "fc1.weight"), *b = get_values(other, "fc1.weight");
  float *c = get_values(one, "fc2.weight");
  assert_memory_equal(a, b, 30 * 40 * sizeof *a);
  assert_memory_not_equal(a, c, 30 * 40 * sizeof *a); /* but another name draws others */
  free(a);
  free(b);
  free(c);
  sl_model_free(one);
  sl_model_free(other);
}

static float *weights_of_seed(uint64_t seed) {
  sl_close(context);
  const struct sl_context_options options = {.seed = seed, .devices = getenv("SL_TEST_DEVICE")};
  OK(sl_open(&options, &context));
  struct sl_model *model = dense_model(SL_INIT_DEFAULT);
  float *weight = get_values(model, "fc.weight");
  sl_model_free(model);
  return weight;
}

static void the_seed_decides(void **state) {
  (void)state;
  float *one = weights_of_seed(1), *big = weights_of_seed(1ull << 40), *again = weights_of_seed(1);
  assert_memory_equal(one, again, IN * OUT * sizeof *one);
  assert_memory_not_equal(one, big, IN * OUT * sizeof *one);
  free(one);
  free(big);
  free(again);
}

/* From an implementation of Philox and FNV-1a in Python: seed 1, "fc.weight", fan_in 400. Whoever
 * changes the numbers changes every published result. */
static void first_values_are_known(void **state) {
  (void)state;
  const float expected[] = {-0.037240160f, 0.015383166f,  0.019868833f,
                            -0.034691507f, -0.004830444f, 0.049413967f};
  float *weight = weights_of_seed(1);
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
    assert_float_equal(weight[i], expected[i], 1e-9);
  free(weight);
}

static void an_unknown_kind_is_refused(void **state) {
  (void)state;
  struct sl_model *model = new_model(SL_SHAPE(4));
  const struct sl_layer_options layer = {.init = (enum sl_init)99};
  FAILS(sl_dense(model, "fc", &(struct sl_dense_options){.layer = layer, .features = 3}),
        SL_BAD_ARGUMENT, "99");
  sl_model_free(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_kind_has_its_distribution),
                                     cmocka_unit_test(a_deviation_is_the_layers_own),
                                     cmocka_unit_test(a_deviation_is_checked),
                                     cmocka_unit_test(a_convolution_counts_its_window),
                                     cmocka_unit_test(an_embedding_is_standard_normal),
                                     cmocka_unit_test(a_normalisation_begins_as_identity),
                                     cmocka_unit_test(order_does_not_matter),
                                     cmocka_unit_test(the_seed_decides),
                                     cmocka_unit_test(first_values_are_known),
                                     cmocka_unit_test(an_unknown_kind_is_refused)};
  return cmocka_run_group_tests(tests, open_context, close_context);
}
