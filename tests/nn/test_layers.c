/* Layers between the model and the operations: options that are refused, and the effect of a
 * pass's flags (training, slices, rows, gradients that add up). References are worked out in double
 * precision here. */
#include <math.h>

#include "core/base/random.h"
#include "nn/layer.h"
#include "tests/common/small_model.h"

/* ---- refused options ---- */

static void options_out_of_range_are_refused(void **state) {
  (void)state;
  struct sl_model *m = new_model(SL_SHAPE(4, 6, 6));
#define REFUSED(kind, options_type, words, ...)                                                    \
  FAILS(kind(m, "x", &(struct options_type){__VA_ARGS__}), SL_BAD_ARGUMENT, words)
  REFUSED(sl_batchnorm, sl_batchnorm_options, "epsilon", .epsilon = -1);
  REFUSED(sl_batchnorm, sl_batchnorm_options, "epsilon", .epsilon = NAN);
  REFUSED(sl_batchnorm, sl_batchnorm_options, "momentum", .momentum = 1.5f);
  REFUSED(sl_batchnorm, sl_batchnorm_options, "momentum", .momentum = -0.1f);
  REFUSED(sl_dropout, sl_dropout_options, "rate", .rate = 1);
  REFUSED(sl_dropout, sl_dropout_options, "rate", .rate = -0.5f);
  REFUSED(sl_dropout, sl_dropout_options, "rate", .rate = NAN);
  REFUSED(sl_activate, sl_activation_options, "activation", .activation = SL_ACTIVATION_NONE);
  REFUSED(sl_activate, sl_activation_options, "activation", .activation = (enum sl_activation)9);
  REFUSED(sl_embedding, sl_embedding_options, "vocabulary", .features = 3);
  REFUSED(sl_embedding, sl_embedding_options, "vocabulary", .vocabulary = 1ll << 40, .features = 3);
  REFUSED(sl_embedding, sl_embedding_options, "features", .vocabulary = 3);
  REFUSED(sl_dropout, sl_dropout_options, "one input", .layer.inputs = "input,input");
  REFUSED(sl_batchnorm, sl_batchnorm_options, "one input", .layer.inputs = "input,input");
  REFUSED(sl_add, sl_add_options, "two inputs or more", .layer.inputs = NULL);
  REFUSED(sl_dense, sl_dense_options, "activation is 99", .features = 2,
          .activation = (enum sl_activation)99);
  REFUSED(sl_dense, sl_dense_options, "activation is -1", .features = 2,
          .activation = (enum sl_activation) - 1);
  REFUSED(sl_conv2d, sl_conv2d_options, "activation is 99", .channels = 2, .kernel_h = 2,
          .activation = (enum sl_activation)99);
  REFUSED(sl_dense, sl_dense_options, "layer x (dense): group", .features = 2,
          .layer.group = "\xff\xfe");

#undef REFUSED
  sl_model_free(m);
}

static void shapes_that_do_not_fit_are_refused(void **state) {
  (void)state;
  struct sl_model *m = new_model(SL_SHAPE(2, 2, 2, 2));
  add_dense(m, "fc1", 3, SL_INIT_DEFAULT);
  add_dense(m, "fc2", 4, SL_INIT_DEFAULT);
  FAILS(sl_add(m, "sum", &(struct sl_add_options){.layer.inputs = "fc1,fc2"}), SL_BAD_SHAPE,
        "[3] and [4]");
  const struct sl_embedding_options words = {.vocabulary = 3, .features = 3};
  FAILS(sl_embedding(m, "words", &words), SL_BAD_ARGUMENT, "model's own input");
  struct sl_embedding_options tokens = words;
  tokens.layer.inputs = "input";
  FAILS(sl_embedding(m, "words", &tokens), SL_BAD_SHAPE, "at most 3 dimensions");
  sl_model_free(m);
}

static void activations_are_parsed(void **state) {
  (void)state;
  const char *const names[] = {"none", "relu", "tanh", "sigmoid", "gelu", "gelu_tanh", "silu"};
  enum sl_activation activation;
  for (int i = 0; i < 7; i++) {
    OK(sl_activation_parse(names[i], &activation));
    assert_int_equal(activation, i);
  }
  FAILS(sl_activation_parse("swish", &activation), SL_BAD_ARGUMENT, "swish");
  FAILS(sl_activation_parse("", &activation), SL_BAD_ARGUMENT, "relu");
}

/* ---- passes ---- */

static struct sl__tensor *tensor(enum sl_type type, struct sl_shape shape, const void *values) {
  struct sl__tensor *t;
  OK(sl__tensor_temporary(context, &shape, type, &t));
  if (values) OK(sl__tensor_write(t, values));
  return t;
}

static struct sl__tensor *floats(struct sl_shape shape, const float *values) {
  return tensor(SL_F32, shape, values);
}

static void read_floats(struct sl__tensor *t, float *values) { OK(sl__tensor_read(t, values)); }

/* The last layer of a model that has just been built. */
static const struct sl__layer *built(struct sl_model *m) {
  OK(sl_model_build(m));
  return &m->layers[m->count - 1];
}

static void draw(float *values, int count, uint64_t stream) {
  for (int i = 0; i < count; i++) values[i] = (float)sl__normal(99, stream, (uint64_t)i);
}

/* y = x + x for one layer named twice: both its gradients count, with an earlier consumer's. */
static void an_addition_to_itself_has_two_gradients(void **state) {
  (void)state;
  struct sl_model *m = new_model(SL_SHAPE(3));
  add_dense(m, "fc", 3, SL_INIT_DEFAULT);
  OK(sl_add(m, "sum", &(struct sl_add_options){.layer.inputs = "fc,fc"}));
  const struct sl__layer *add = built(m);
  const float values[6] = {1, -2, 3, 4, 5, -6}, gradient[6] = {1, 2, 3, 4, 5, 6};
  struct sl_shape shape = SL_SHAPE(2, 3);
  struct sl__tensor *x = floats(shape, values), *y = floats(shape, NULL);
  struct sl__tensor *dy = floats(shape, gradient), *dx = floats(shape, values);
  for (int added = 0; added < 2; added++) {
    float result[6];
    struct sl__pass pass = {.context = context,
                            .training = true,
                            .slices = 1,
                            .x = (struct sl__tensor *[]){x, x},
                            .y = y,
                            .dy = dy,
                            .dx = (struct sl__tensor *[]){dx, dx},
                            .add_dx = (bool[]){added, added}};
    OK(add->kind->forward(add, &pass));
    OK(add->kind->backward_data(add, &pass));
    read_floats(y, result);
    for (int i = 0; i < 6; i++) assert_true(result[i] == 2 * values[i]);
    read_floats(dx, result);
    /* the second round adds to what the first one left */
    for (int i = 0; i < 6; i++) assert_true(result[i] == 2 * gradient[i] * (float)(1 + added));
  }
  sl__tensor_free(x);
  sl__tensor_free(y);
  sl__tensor_free(dy);
  sl__tensor_free(dx);
  sl_model_free(m);
}

#define ROWS 8
#define COUNT 50

/* A whole batch, and its last five rows as a slice of their own, drop the same values. */
static void dropout_counts_through_the_batch(void **state) {
  (void)state;
  struct sl_model *m = new_model(SL_SHAPE(COUNT));
  OK(sl_dropout(m, "drop", &(struct sl_dropout_options){.rate = 0.25f}));
  const struct sl__layer *drop = built(m);
  float x[ROWS * COUNT], y[ROWS * COUNT], dx[ROWS * COUNT], other[ROWS * COUNT];
  draw(x, ROWS * COUNT, 1);
  struct sl_shape whole = SL_SHAPE(ROWS, COUNT), part = SL_SHAPE(5, COUNT);
  struct sl__tensor *tx = floats(whole, x), *ty = floats(whole, NULL), *tdx = floats(whole, NULL);
  struct sl__tensor *sx = floats(part, x + 3 * COUNT), *sy = floats(part, NULL);
  struct sl__pass pass = {.context = context,
                          .training = true,
                          .step = 7,
                          .slices = 1,
                          .x = (struct sl__tensor *[]){tx},
                          .y = ty,
                          .dy = tx,
                          .dx = (struct sl__tensor *[]){tdx},
                          .add_dx = (bool[]){false}};
  struct sl__pass slice = {.context = context,
                           .training = true,
                           .step = 7,
                           .slices = 2,
                           .first_row = 3,
                           .x = (struct sl__tensor *[]){sx},
                           .y = sy};
  int dropped = 0, moved = 0;
  OK(drop->kind->forward(drop, &pass));
  OK(drop->kind->backward_data(drop, &pass));
  OK(drop->kind->forward(drop, &slice));
  read_floats(ty, y);
  read_floats(tdx, dx);
  read_floats(sy, other);
  for (int i = 0; i < ROWS * COUNT; i++) {
    dropped += y[i] == 0;
    if (y[i] != 0) assert_float_equal(y[i], x[i] / 0.75f, 1e-6);
  }
  assert_true(dropped > 60 && dropped < 140); /* 100 expected, deviation 8.7 */
  assert_memory_equal(y, dx, sizeof y);       /* the same mask on the way back */
  assert_memory_equal(y + 3 * COUNT, other, 5 * COUNT * sizeof *y);
  pass.step = 8;
  OK(drop->kind->forward(drop, &pass));
  read_floats(ty, other);
  for (int i = 0; i < ROWS * COUNT; i++) moved += (y[i] == 0) != (other[i] == 0);
  assert_true(moved > 60); /* another step drops others */
  pass.training = false;
  OK(drop->kind->forward(drop, &pass));
  read_floats(ty, other);
  assert_memory_equal(x, other, sizeof x);
  sl__tensor_free(tx);
  sl__tensor_free(ty);
  sl__tensor_free(tdx);
  sl__tensor_free(sx);
  sl__tensor_free(sy);
  sl_model_free(m);
}

/* Two layers alike but for their names, at the same step: their masks are as different as those of
 * two draws. */
static void dropouts_draw_apart(void **state) {
  (void)state;
  struct sl_model *m = new_model(SL_SHAPE(COUNT));
  OK(sl_dropout(m, "drop1", &(struct sl_dropout_options){.rate = 0.5f}));
  OK(sl_dropout(m, "drop2", &(struct sl_dropout_options){.rate = 0.5f}));
  OK(sl_model_build(m));
  float x[ROWS * COUNT], y[2][ROWS * COUNT];
  for (int i = 0; i < ROWS * COUNT; i++) x[i] = 1;
  struct sl__tensor *tx = floats(SL_SHAPE(ROWS, COUNT), x);
  for (int l = 0; l < 2; l++) {
    const struct sl__layer *drop = &m->layers[l];
    struct sl__tensor *ty = floats(SL_SHAPE(ROWS, COUNT), NULL);
    struct sl__pass pass = {.context = context,
                            .training = true,
                            .step = 7,
                            .slices = 1,
                            .x = (struct sl__tensor *[]){tx},
                            .y = ty};
    OK(drop->kind->forward(drop, &pass));
    read_floats(ty, y[l]);
    sl__tensor_free(ty);
  }
  int apart = 0;
  for (int i = 0; i < ROWS * COUNT; i++) apart += (y[0][i] == 0) != (y[1][i] == 0);
  assert_in_range(apart, 140, 260); /* 200 expected, deviation 10 */
  sl__tensor_free(tx);
  sl_model_free(m);
}

/* Two slices of two rows, three channels of four values: running = the old ones, and both slices',
 * weighted so that 1 - momentum of the old ones is left. */
static void running_statistics_average_the_slices(void **state) {
  (void)state;
  struct sl_model *m = new_model(SL_SHAPE(3, 2, 2));
  OK(sl_batchnorm(m, "bn", &(struct sl_batchnorm_options){.momentum = 0.36f}));
  const struct sl__layer *bn = built(m);
  double mean[3] = {0, 0, 0}, variance[3] = {1, 1, 1}, share = 0.2; /* (1 - 0.2)^2 = 1 - 0.36 */
  for (int s = 0; s < 2; s++) {
    float x[24];
    draw(x, 24, 10 + (uint64_t)s);
    struct sl_shape shape = SL_SHAPE(2, 3, 2, 2);
    struct sl__tensor *tx = floats(shape, x), *ty = floats(shape, NULL),
                      *saved = floats(SL_SHAPE(12), NULL);
    struct sl__pass pass = {.context = context,
                            .training = true,
                            .slices = 2,
                            .param = bn->params.tensor,
                            .x = (struct sl__tensor *[]){tx},
                            .y = ty,
                            .saved = saved};
    OK(bn->kind->forward(bn, &pass));
    for (int c = 0; c < 3; c++) {
      double sum = 0, square = 0;
      for (int i = 0; i < 8; i++) sum += x[(i / 4 * 3 + c) * 4 + i % 4];
      for (int i = 0; i < 8; i++) square += pow(x[(i / 4 * 3 + c) * 4 + i % 4] - sum / 8, 2);
      mean[c] += share * (sum / 8 - mean[c]);
      variance[c] += share * (square / 7 - variance[c]); /* unbiased */
    }
    sl__tensor_free(tx);
    sl__tensor_free(ty);
    sl__tensor_free(saved);
  }
  float *running_mean = get_values(m, "bn.running_mean");
  float *running_var = get_values(m, "bn.running_var");
  for (int c = 0; c < 3; c++) {
    assert_float_equal(running_mean[c], mean[c], 1e-5);
    assert_float_equal(running_var[c], variance[c], 1e-5);
  }
  free(running_mean);
  free(running_var);
  sl_model_free(m);
}

/* 1 / r^2 of a rounded r is a little less than epsilon for some variances of 0. */
static void running_variance_is_never_negative(void **state) {
  (void)state;
  static const float epsilons[] = {1e-5f, 1e-3f, 0.7f, 3e-5f, 1e-4f, 2e-5f, 0.1f, 0.02f};
  for (size_t e = 0; e < sizeof epsilons / sizeof *epsilons; e++) {
    struct sl_model *m = new_model(SL_SHAPE(1, 2, 2));
    OK(sl_batchnorm(m, "bn",
                    &(struct sl_batchnorm_options){.momentum = 1, .epsilon = epsilons[e]}));
    const struct sl__layer *bn = built(m);
    const float x[8] = {3, 3, 3, 3, 3, 3, 3, 3};
    struct sl__tensor *tx = floats(SL_SHAPE(2, 1, 2, 2), x),
                      *ty = floats(SL_SHAPE(2, 1, 2, 2), NULL), *saved = floats(SL_SHAPE(4), NULL);
    struct sl__pass pass = {.context = context,
                            .training = true,
                            .slices = 1,
                            .param = bn->params.tensor,
                            .x = (struct sl__tensor *[]){tx},
                            .y = ty,
                            .saved = saved};
    OK(bn->kind->forward(bn, &pass));
    float *variance = get_values(m, "bn.running_var");
    assert_true(variance[0] >= 0 && variance[0] < 1e-6f * (1 + epsilons[e]));
    free(variance);
    sl__tensor_free(tx);
    sl__tensor_free(ty);
    sl__tensor_free(saved);
    sl_model_free(m);
  }
}

static void one_value_has_no_variance(void **state) {
  (void)state;
  struct sl_model *m = new_model(SL_SHAPE(3));
  OK(sl_batchnorm(m, "bn", &(struct sl_batchnorm_options){0}));
  const struct sl__layer *bn = built(m);
  const float x[3] = {1, 2, 3};
  float y[3];
  struct sl__tensor *tx = floats(SL_SHAPE(1, 3), x), *ty = floats(SL_SHAPE(1, 3), NULL);
  struct sl__pass pass = {.context = context,
                          .training = true,
                          .slices = 1,
                          .param = bn->params.tensor,
                          .x = (struct sl__tensor *[]){tx},
                          .y = ty};
  FAILS(bn->kind->forward(bn, &pass), SL_BAD_SHAPE, "larger batch");
  pass.training = false; /* the running statistics are enough for one */
  OK(bn->kind->forward(bn, &pass));
  read_floats(ty, y);
  for (int i = 0; i < 3; i++) assert_float_equal(y[i], x[i], 1e-4);
  sl__tensor_free(tx);
  sl__tensor_free(ty);
  sl_model_free(m);
}

/* Rows of the table, in the tokens' order; a token's gradients add up, others stay zero. */
static void an_embedding_looks_up_and_adds(void **state) {
  (void)state;
  struct sl_model *m = new_model(SL_SHAPE(3));
  OK(sl_embedding(m, "words", &(struct sl_embedding_options){.vocabulary = 5, .features = 2}));
  const struct sl__layer *words = built(m);
  const float table[10] = {0, 1, 10, 11, 20, 21, 30, 31, 40, 41};
  const int32_t tokens[6] = {4, 0, 4, 2, 2, 4};
  const float expected[10] = {3, 4, 0, 0, 16, 18, 0, 0, 17, 20};
  float y[12], dy[12], grad[10];
  for (int i = 0; i < 12; i++) dy[i] = (float)(i + 1);
  OK(sl_model_set(m, "words.weight", table));
  struct sl__tensor *tx = tensor(SL_I32, SL_SHAPE(2, 3), tokens);
  struct sl__tensor *ty = floats(SL_SHAPE(2, 3, 2), NULL), *tdy = floats(SL_SHAPE(2, 3, 2), dy);
  struct sl__tensor *tgrad = floats(SL_SHAPE(10), NULL);
  struct sl__pass pass = {.context = context,
                          .training = true,
                          .slices = 1,
                          .x = (struct sl__tensor *[]){tx},
                          .y = ty,
                          .dy = tdy,
                          .param = words->params.tensor,
                          .grad = tgrad};
  OK(words->kind->forward(words, &pass));
  read_floats(ty, y);
  for (int i = 0; i < 12; i++) assert_true(y[i] == table[tokens[i / 2] * 2 + i % 2]);
  for (int microbatch = 0; microbatch < 2; microbatch++) {
    pass.add_grad = microbatch > 0;
    OK(words->kind->backward_weight(words, &pass));
    read_floats(tgrad, grad);
    for (int i = 0; i < 10; i++) assert_true(grad[i] == expected[i] * (float)(microbatch + 1));
  }
  sl__tensor_free(tx);
  sl__tensor_free(ty);
  sl__tensor_free(tdy);
  sl__tensor_free(tgrad);
  sl_model_free(m);
}

static double activation_value(enum sl_activation activation, double x) {
  switch (activation) {
    case SL_ACTIVATION_RELU: return x > 0 ? x : 0;
    case SL_ACTIVATION_TANH: return tanh(x);
    case SL_ACTIVATION_SIGMOID: return 1 / (1 + exp(-x));
    case SL_ACTIVATION_GELU: return x * 0.5 * (1 + erf(x / sqrt(2.0)));
    case SL_ACTIVATION_GELU_TANH:
      return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    case SL_ACTIVATION_SILU: return x / (1 + exp(-x));
    default: return x;
  }
}

/* Each kind asks the pass for what its derivative needs: its output, or (gelu) its input. */
static void activations_match_differences(void **state) {
  (void)state;
  for (enum sl_activation a = SL_ACTIVATION_RELU; a <= SL_ACTIVATION_SILU; a++) {
    struct sl_model *m = new_model(SL_SHAPE(COUNT));
    OK(sl_activate(m, "act", &(struct sl_activation_options){.activation = a}));
    const struct sl__layer *act = built(m);
    float x[COUNT], y[COUNT], dy[COUNT], dx[COUNT];
    draw(x, COUNT, 20);
    draw(dy, COUNT, 21);
    struct sl_shape shape = SL_SHAPE(1, COUNT);
    struct sl__tensor *tx = floats(shape, x), *ty = floats(shape, NULL);
    struct sl__tensor *tdy = floats(shape, dy), *tdx = floats(shape, NULL);
    struct sl__pass pass = {.context = context,
                            .training = true,
                            .slices = 1,
                            .x = (struct sl__tensor *[]){tx},
                            .y = ty,
                            .dy = tdy,
                            .dx = (struct sl__tensor *[]){tdx},
                            .add_dx = (bool[]){false}};
    OK(act->kind->forward(act, &pass));
    OK(act->kind->backward_data(act, &pass));
    read_floats(ty, y);
    read_floats(tdx, dx);
    for (int i = 0; i < COUNT; i++) {
      double h = 1e-6;
      double slope = (activation_value(a, x[i] + h) - activation_value(a, x[i] - h)) / (2 * h);
      assert_float_equal(y[i], activation_value(a, x[i]), 1e-5);
      assert_float_equal(dx[i], slope * dy[i], 1e-4);
    }
    sl__tensor_free(tx);
    sl__tensor_free(ty);
    sl__tensor_free(tdy);
    sl__tensor_free(tdx);
    sl_model_free(m);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(options_out_of_range_are_refused),
                                     cmocka_unit_test(shapes_that_do_not_fit_are_refused),
                                     cmocka_unit_test(activations_are_parsed),
                                     cmocka_unit_test(an_addition_to_itself_has_two_gradients),
                                     cmocka_unit_test(dropout_counts_through_the_batch),
                                     cmocka_unit_test(dropouts_draw_apart),
                                     cmocka_unit_test(running_statistics_average_the_slices),
                                     cmocka_unit_test(running_variance_is_never_negative),
                                     cmocka_unit_test(one_value_has_no_variance),
                                     cmocka_unit_test(an_embedding_looks_up_and_adds),
                                     cmocka_unit_test(activations_match_differences)};
  return cmocka_run_group_tests(tests, open_context, close_context);
}
