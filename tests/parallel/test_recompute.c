/* Layers whose outputs the backward pass computes again: the bits of a training that keeps them, in
 * every grid; layers that cannot be computed twice are refused. (tests/examples/test_gpt.sh: less
 * memory.) */
#include <stdlib.h>
#include <string.h>

#include "parallel/step/plan.h"
#include "tests/common/small_model.h"
#include "tests/common/training.h"

enum { BATCH = 12, STEPS = 4, CLASSES = 10, WORDS = 23, TOKENS = 8 };

/* Three blocks, with a layer that saves an index, a relu that the sum before it applies, dropout.
 */
static struct sl_model *pictures(void) {
  struct sl_model *m = new_model(SL_SHAPE(1, 28, 28));
  const char *const inputs[] = {"input", "b0.drop", "b1.drop"};
  for (int b = 0; b < 3; b++) {
    char group[16], name[5][24], sum[48];
    const char *const parts[] = {"conv", "pool", "sum", "relu", "drop"};
    snprintf(group, sizeof group, "b%d", b);
    for (int i = 0; i < 5; i++) snprintf(name[i], sizeof name[i], "b%d.%s", b, parts[i]);
    snprintf(sum, sizeof sum, "%s,%s", inputs[b], name[1]);
    const struct sl_conv2d_options conv = {
        .layer = {.group = group, .inputs = inputs[b]}, .channels = 4, .kernel_h = 3, .pad_h = 1};
    const struct sl_pool2d_options pool = {.layer.group = group, .kernel_h = b ? 1 : 2};
    const struct sl_add_options add = {.layer = {.inputs = sum, .group = group}};
    const struct sl_activation_options relu = {.layer.group = group,
                                               .activation = SL_ACTIVATION_RELU};
    const struct sl_dropout_options drop = {.layer.group = group, .rate = 0.25f};
    OK(sl_conv2d(m, name[0], &conv));
    OK(sl_maxpool2d(m, name[1], &pool));
    if (b) OK(sl_add(m, name[2], &add));
    OK(sl_activate(m, name[3], &relu));
    OK(sl_dropout(m, name[4], &drop));
  }
  add_dense(m, "fc", CLASSES, SL_INIT_DEFAULT);
  return m;
}

static struct sl_model *words(void) {
  struct sl_model *m = new_model(SL_SHAPE(TOKENS));
  OK(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = WORDS, .features = 6}));
  for (int b = 0; b < 2; b++) {
    char norm[24], fc[24], out[24];
    snprintf(norm, sizeof norm, "h%d.norm", b);
    snprintf(fc, sizeof fc, "h%d.fc", b);
    snprintf(out, sizeof out, "h%d.out", b);
    OK(sl_layernorm(m, norm, &(struct sl_layernorm_options){.rms = b > 0}));
    OK(sl_dense(m, fc,
                &(struct sl_dense_options){
                    .features = 9, .positions = true, .activation = SL_ACTIVATION_TANH}));
    OK(sl_dense(m, out, &(struct sl_dense_options){.features = 6, .positions = true}));
  }
  OK(sl_dense(
      m, "decoder",
      &(struct sl_dense_options){.layer.shares = "embed", .features = WORDS, .positions = true}));
  return m;
}

/* Attention, whose cache of keys and values stays while a chunk is computed again. */
static struct sl_model *attention(void) {
  struct sl_model *m = new_model(SL_SHAPE(TOKENS));
  const struct sl_dense_options qkv = {.features = 24, .positions = true};
  OK(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = WORDS, .features = 8}));
  OK(sl_layernorm(m, "h0.norm", &(struct sl_layernorm_options){0}));
  OK(sl_dense(m, "h0.qkv", &qkv));
  OK(sl_attention(m, "h0.attention",
                  &(struct sl_attention_options){.heads = 2, .rope_base = 100, .dropout = 0.2f}));
  OK(sl_dense(m, "h0.out", &(struct sl_dense_options){.features = 8, .positions = true}));
  OK(sl_add(m, "h0.add", &(struct sl_add_options){.layer.inputs = "embed,h0.out"}));
  OK(sl_dense(m, "decoder", &(struct sl_dense_options){.features = WORDS, .positions = true}));
  return m;
}

static struct sl_dataset *data_of(const struct sl_model *m) {
  struct sl_dataset *data;
  int32_t tokens[40 * TOKENS + 1];
  if (sl_model_input(m)->ndim > 1) {
    OK(sl_digits_new(60, 5, true, &data));
    return data;
  }
  for (int i = 0; i < 40 * TOKENS + 1; i++) tokens[i] = i * i % WORDS;
  OK(sl_tokens_new("words", tokens, 40 * TOKENS + 1, TOKENS, WORDS, &data));
  return data;
}

static void train(struct sl_model *m, const struct sl_trainer_options *options) {
  const struct sl_optimizer momentum = {.lr = 0.05f, .momentum = 0.9f};
  struct sl_dataset *data = data_of(m);
  struct sl_loader *loader;
  struct sl_trainer *t;
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = BATCH}, &loader));
  OK(sl_trainer_new(m, &momentum, NULL, options, &t));
  take_steps(t, loader, STEPS, NULL);
  sl_trainer_free(t);
  sl_loader_free(loader);
  sl_dataset_free(data);
}

static void assert_same(struct sl_model *a, struct sl_model *b, const char *what) {
  for (int i = 0; i < sl_model_parameter_count(a); i++) {
    const char *name = sl_model_parameter(a, i, NULL);
    float *x = get_values(a, name), *y = get_values(b, name);
    if (memcmp(x, y, (size_t)value_count(a, name) * sizeof *x)) fail_msg("%s: %s", what, name);
    free(x), free(y);
  }
}

/* The same training, with and without these layers computed again. */
static void compare(struct sl_model *(*build)(void), struct sl_trainer_options options,
                    const char *layers) {
  struct sl_model *keeps = build(), *computes = build();
  train(keeps, &options);
  options.recompute = layers;
  train(computes, &options);
  assert_same(keeps, computes, layers);
  sl_model_free(keeps);
  sl_model_free(computes);
}

static const struct sl_trainer_options grids[] = {
    {.replicas = 1},
    {.replicas = 1, .eager = true},
    {.replicas = 2, .microbatches = 2},
    {.replicas = 2, .eager = true, .microbatches = 3},
    {.replicas = 1, .stages = 2},
    {.replicas = 1, .math = SL_MATH_BF16},
};

static void pictures_give_the_same_bits(void **state) {
  (void)state;
  const char *const layers[] = {
      "b*", "b0-2", "b1", "b1.conv,b1.pool,b1.relu", "b1.conv,b1.pool,b1.sum", "*"};
  for (size_t g = 0; g < sizeof grids / sizeof *grids; g++)
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
      compare(pictures, grids[g], layers[i]);
}

static void words_give_the_same_bits(void **state) {
  (void)state;
  const char *const layers[] = {"h*", "h1*", "h0.fc,h0.out", "embed,h0*"};
  struct sl_trainer_options chunks = {.replicas = 2, .chunk = 3};
  for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
    for (size_t g = 0; g < sizeof grids / sizeof *grids; g++) compare(words, grids[g], layers[i]);
    compare(words, chunks, layers[i]);
  }
}

static void attention_gives_the_same_bits(void **state) {
  (void)state;
  for (size_t g = 0; g < sizeof grids / sizeof *grids; g++) compare(attention, grids[g], "h0*");
  compare(attention, (struct sl_trainer_options){.replicas = 2, .chunk = 3}, "h0*");
}

/* Is the output of the layer computed again, and so not kept? */
static bool is_again(const struct sl__plan *plan, const char *layer) {
  for (int i = 0; i < plan->model->count; i++)
    if (!strcmp(plan->model->layers[i].name, layer)) return plan->slices[0].y_again[i] != NULL;
  fail_msg("no layer %s", layer);
  return false;
}

static void outputs_before_and_behind_a_run_are_kept(void **state) {
  (void)state;
  const char *const again[] = {"b0.conv", "b0.relu", "b1.conv", "b1.pool", "b1.relu", "b2.relu"};
  const char *const kept[] = {"b0.drop", "b1.sum", "b1.drop", "b2.drop", "fc"};
  struct sl_model *m = pictures();
  struct sl__grid grid;
  struct sl__plan *plan;
  OK(sl_model_build(m));
  OK(sl__grid_new(m, &(struct sl_trainer_options){.replicas = 1, .recompute = "b*"}, &grid));
  OK(sl__plan_new(m, &grid, BATCH, 0, true, &plan));
  for (size_t i = 0; i < sizeof again / sizeof *again; i++) assert_true(is_again(plan, again[i]));
  for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) assert_false(is_again(plan, kept[i]));
  sl__plan_free(plan);
  OK(sl__plan_new(m, &grid, BATCH, 0, false, &plan)); /* an evaluation keeps nothing anyway */
  for (size_t i = 0; i < sizeof again / sizeof *again; i++) assert_false(is_again(plan, again[i]));
  sl__plan_free(plan);
  sl__grid_clear(&grid);
  sl_model_free(m);
}

static struct sl_model *half_frozen(void) {
  struct sl_model *m = pictures();
  OK(sl_freeze(m, "b0.conv,b1.conv"));
  return m;
}

static void frozen_layers_below_are_kept(void **state) {
  (void)state;
  compare(half_frozen, (struct sl_trainer_options){.replicas = 2}, "b*");
}

static void layers_that_change_something_are_refused(void **state) {
  (void)state;
  const struct {
    const char *layers, *message;
  } bad[] = {{"norm", "layer norm (batchnorm) updates its statistics"},
             {"fc3", "no layer or group 'fc3'"},
             {"fc,,norm", "a layer's name is empty"}};
  struct sl_model *m = new_model(SL_SHAPE(1, 6, 6));
  struct sl_trainer *t;
  OK(sl_batchnorm(m, "norm", &(struct sl_batchnorm_options){0}));
  add_dense(m, "fc", CLASSES, SL_INIT_DEFAULT);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    FAILS(sl_trainer_new(m, &(struct sl_optimizer){0}, NULL,
                         &(struct sl_trainer_options){.recompute = bad[i].layers}, &t),
          SL_BAD_ARGUMENT, bad[i].message);
  sl_model_free(m);
  m = new_model(SL_SHAPE(TOKENS));
  OK(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = WORDS, .features = 4}));
  OK(sl_lstm(m, "lstm", &(struct sl_lstm_options){.features = 4}));
  FAILS(sl_trainer_new(m, &(struct sl_optimizer){0}, NULL,
                       &(struct sl_trainer_options){.recompute = "lstm"}, &t),
        SL_BAD_ARGUMENT, "layer lstm (lstm) changes the state");
  sl_model_free(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pictures_give_the_same_bits),
      cmocka_unit_test(words_give_the_same_bits),
      cmocka_unit_test(attention_gives_the_same_bits),
      cmocka_unit_test(outputs_before_and_behind_a_run_are_kept),
      cmocka_unit_test(frozen_layers_below_are_kept),
      cmocka_unit_test(layers_that_change_something_are_refused),
  };
  return cmocka_run_group_tests_name("recompute", tests, open_context, close_context);
}
