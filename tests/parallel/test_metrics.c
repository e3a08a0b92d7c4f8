/* The metrics of an evaluation against naive loops over a linear model's outputs in double
 * precision: with missing targets, equal scores, targets in other units, and several divisions of
 * the work. */
#include <math.h>

#include "core/base/error.h"
#include "core/base/random.h"
#include "tests/common/small_model.h"

enum { COUNT = 61, IN = 3, MOST = 12, BATCH = 16 };

static float inputs[COUNT * IN], targets[COUNT * MOST];
static int32_t labels[COUNT];
static double outputs[COUNT * MOST]; /* of the model, in double precision */
static const float target_deviation[MOST] = {1, 10, -0.5f, 2, 3, 4, 5, 1, 1, 1, 1, 1};

static float draw(uint64_t stream, int64_t i) {
  return 2 * sl__uniform(11, stream, (uint64_t)i) - 1;
}

/* A multiple of 1/parts. */
static float rounded(float value, float parts) { return roundf(value * parts) / parts; }

/* Every third sample has the inputs of the one before: equal scores. Inputs and weights have so few
 * bits that every order of summation gives the same outputs. */
static void make_values(enum sl_loss_kind kind, int64_t width) {
  for (int i = 0; i < COUNT * IN; i++)
    inputs[i] = rounded(draw(1, i / IN % 3 == 2 ? i - IN : i), 4096);
  for (int i = 0; i < COUNT * width; i++) {
    targets[i] = kind == SL_LOSS_BCE ? (float)(draw(2, i) > 0.3f) : draw(2, i);
    if (i % 10 == 7) targets[i] = NAN;
  }
  for (int n = 0; n < COUNT; n++)
    labels[n] = n % 12 == 5 ? SL_IGNORE : (int32_t)((draw(3, n) + 1) / 2 * (float)width);
}

static void round_weights(struct sl_model *model, const char *parameter) {
  float *values = get_values(model, parameter);
  for (int64_t i = 0; i < value_count(model, parameter); i++) values[i] = rounded(values[i], 64);
  OK(sl_model_set(model, parameter, values));
  free(values);
}

/* The evaluation of a model by a trainer with these options. */
static struct sl_evaluation *evaluate(enum sl_loss_kind kind, int64_t width,
                                      struct sl_trainer_options options) {
  struct sl_dataset *set;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_evaluation *evaluation;
  struct sl_model *model = new_model(SL_SHAPE(IN));
  bool has_labels = kind == SL_LOSS_CROSS_ENTROPY;
  const struct sl_dataset_options description = {
      .name = "table",
      .sample = SL_SHAPE(IN),
      .target = has_labels ? (struct sl_shape){0} : SL_SHAPE(width),
      .count = COUNT,
      .classes = has_labels ? (int)width : 0,
      .missing = true,
      .target_channels = (int)width,
      .target_deviation = kind == SL_LOSS_MSE ? target_deviation : NULL};
  double loss, accuracy;
  make_values(kind, width);
  add_dense(model, "fc", width, SL_INIT_DEFAULT);
  round_weights(model, "fc.weight"), round_weights(model, "fc.bias");
  OK(sl_dataset_floats(&description, inputs, has_labels ? NULL : targets,
                       has_labels ? labels : NULL, false, &set));
  OK(sl_loader_new(set, &(struct sl_loader_options){.batch = BATCH}, &loader));
  options.loss.kind = kind;
  OK(sl_trainer_new(model, &(struct sl_optimizer){0}, NULL, &options, &trainer));
  OK(sl_trainer_measure(trainer, loader, &evaluation));
  OK(sl_trainer_evaluate(trainer, loader, &loss, &accuracy));
  assert_true(loss == evaluation->loss);
  float *w = get_values(model, "fc.weight"), *b = get_values(model, "fc.bias");
  for (int64_t i = 0; i < COUNT * width; i++) {
    outputs[i] = (double)b[i % width];
    for (int k = 0; k < IN; k++)
      outputs[i] += (double)w[i % width * IN + k] * (double)inputs[i / width * IN + k];
    if (!has_labels) continue;
    if (labels[i / width] >= 0 && i % width == 0) assert_true(labels[i / width] < width);
  }
  free(w), free(b);
  sl_trainer_free(trainer);
  sl_model_free(model);
  sl_loader_free(loader);
  sl_dataset_free(set);
  return evaluation;
}

static const struct sl_metric *metric(const struct sl_evaluation *e, const char *name) {
  const struct sl_metric *found = sl_evaluation_metric(e, name);
  if (!found) fail_msg("no metric %s", name);
  return found;
}

static void assert_value(const char *name, double got, double want) {
  if (!(fabs(got - want) < 1e-5 * (1 + fabs(want))) && !(isnan(got) && isnan(want)))
    fail_msg("%s is %.9g, the reference %.9g", name, got, want);
}

/* Pairs of a positive and a negative one in the right order; stride: of the scores. */
static double naive_auc(const double *score, const bool *positive, const bool *counts) {
  double right = 0, pairs = 0;
  for (int i = 0; i < COUNT; i++)
    for (int j = 0; j < COUNT; j++) {
      if (!counts[i] || !counts[j] || !positive[i] || positive[j]) continue;
      pairs++;
      right += score[i] > score[j] ? 1 : score[i] == score[j] ? 0.5 : 0;
    }
  return pairs > 0 ? right / pairs : NAN;
}

static void check_values(const struct sl_evaluation *e, int64_t width) {
  double squares = 0, absolute = 0, terms = 0, r2 = 0;
  for (int64_t i = 0; i < width; i++) {
    double n = 0, sum = 0, square = 0, spread = 0, size = 0, unit = (double)target_deviation[i];
    for (int row = 0; row < COUNT; row++) {
      double t = (double)targets[row * width + i], d = outputs[row * width + i] * unit - t;
      if (isnan(t)) continue;
      n++, sum += t, square += d * d, size += fabs(d);
    }
    for (int row = 0; row < COUNT; row++) {
      double t = (double)targets[row * width + i];
      if (!isnan(t)) spread += (t - sum / n) * (t - sum / n);
    }
    assert_value("rmse", metric(e, "rmse")->each[i], sqrt(square / n));
    assert_value("mae", metric(e, "mae")->each[i], size / n);
    assert_value("r2", metric(e, "r2")->each[i], 1 - square / spread);
    squares += square, absolute += size, terms += n, r2 += (1 - square / spread) / (double)width;
  }
  assert_value("rmse", metric(e, "rmse")->value, sqrt(squares / terms));
  assert_value("mae", metric(e, "mae")->value, absolute / terms);
  assert_value("r2", metric(e, "r2")->value, r2);
  assert_null(sl_evaluation_metric(e, "accuracy"));
}

/* Targets come normalised: value = target / deviation. */
static void test_values(void **state) {
  (void)state;
  for (int64_t width = 1; width <= 3; width += 2) {
    struct sl_evaluation *e = evaluate(SL_LOSS_MSE, width, (struct sl_trainer_options){0});
    check_values(e, width);
    assert_int_equal(metric(e, "mae")->count, width);
    sl_evaluation_free(e);
  }
}

static void test_labels(void **state) {
  (void)state;
  static const int64_t widths[] = {2, 3, 4, 7, 12};
  for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
    int64_t width = widths[w];
    struct sl_evaluation *e =
        evaluate(SL_LOSS_CROSS_ENTROPY, width, (struct sl_trainer_options){.replicas = 2});
    double within[MOST] = {0}, pairs[MOST * MOST] = {0}, samples = 0, score[COUNT];
    bool positive[COUNT], counts[COUNT];
    for (int n = 0; n < COUNT; n++) {
      const double *y = outputs + n * width;
      int64_t before = 0, best = 0;
      counts[n] = labels[n] >= 0;
      positive[n] = labels[n] == 1;
      score[n] = y[1] - y[0];
      if (!counts[n]) continue;
      for (int64_t c = 0; c < width; c++) {
        before += y[c] > y[labels[n]];
        if (y[c] > y[best]) best = c;
      }
      samples++;
      for (int64_t k = before; k < width; k++) within[k]++;
      pairs[labels[n] * width + best]++;
    }
    assert_int_equal(e->samples, (int64_t)samples);
    assert_value("accuracy", metric(e, "accuracy")->value, within[0] / samples);
    for (int64_t i = 0; i < width * width; i++)
      assert_value("confusion", metric(e, "confusion")->each[i], pairs[i]);
    if (width == 2)
      assert_value("auc", metric(e, "auc")->value, naive_auc(score, positive, counts));
    static const struct {
      const char *name;
      int64_t k;
    } tops[] = {{"top2", 2}, {"top3", 3}, {"top5", 5}, {"top10", 10}};
    for (size_t i = 0; i < sizeof tops / sizeof *tops; i++) {
      assert_int_equal(sl_evaluation_metric(e, tops[i].name) != NULL, width > tops[i].k);
      if (width > tops[i].k)
        assert_value(tops[i].name, metric(e, tops[i].name)->value, within[tops[i].k - 1] / samples);
    }
    sl_evaluation_free(e);
  }
}

static void test_binary(void **state) {
  (void)state;
  enum { WIDTH = 3 };
  struct sl_evaluation *e = evaluate(SL_LOSS_BCE, WIDTH, (struct sl_trainer_options){0});
  double right = 0, terms = 0, mean = 0;
  for (int64_t i = 0; i < WIDTH; i++) {
    double score[COUNT];
    bool positive[COUNT], counts[COUNT];
    for (int n = 0; n < COUNT; n++) {
      float t = targets[n * WIDTH + i];
      score[n] = outputs[n * WIDTH + i];
      counts[n] = !isnan(t);
      positive[n] = t > 0.5f;
      right += counts[n] && (score[n] > 0) == positive[n];
      terms += counts[n];
    }
    double area = naive_auc(score, positive, counts);
    assert_value("auc", metric(e, "auc")->each[i], area);
    mean += area / WIDTH;
  }
  assert_value("auc", metric(e, "auc")->value, mean);
  assert_value("accuracy", metric(e, "accuracy")->value, right / terms);
  sl_evaluation_free(e);
}

/* Whatever the division of the work, in bf16 nearly. */
static void test_divisions(void **state) {
  (void)state;
  const struct sl_trainer_options divisions[] = {{.replicas = 1},
                                                 {.replicas = 2, .microbatches = 3},
                                                 {.replicas = 1, .eager = true},
                                                 {.replicas = 2, .math = SL_MATH_BF16}};
  for (int d = 0; d < 4; d++) {
    struct sl_evaluation *e = evaluate(SL_LOSS_MSE, 3, divisions[d]);
    if (divisions[d].math == SL_MATH_F32) check_values(e, 3);
    assert_true(metric(e, "rmse")->value > 1 && metric(e, "rmse")->value < 20);
    sl_evaluation_free(e);
  }
}

/* ---- texts ---- */

enum { VOCABULARY = 7, STEPS = 5, WINDOWS = 9, TEXT = STEPS * WINDOWS + 1, FEATURES = 3 };

/* exp of the mean of -log softmax(W e + b), and the shares of labels that are among the first. */
static void naive_text(struct sl_model *m, const int32_t *text, double want[3]) {
  float *e = get_values(m, "embed.weight"), *w = get_values(m, "fc.weight"),
        *b = get_values(m, "fc.bias");
  double loss = 0, first = 0, five = 0, all = TEXT - 1;
  for (int i = 0; i < TEXT - 1; i++) {
    double y[VOCABULARY], sum = 0;
    int32_t label = text[i + 1];
    int before = 0;
    for (int c = 0; c < VOCABULARY; c++) {
      y[c] = (double)b[c];
      for (int k = 0; k < FEATURES; k++)
        y[c] += (double)w[c * FEATURES + k] * (double)e[text[i] * FEATURES + k];
    }
    for (int c = 0; c < VOCABULARY; c++) {
      sum += exp(y[c] - y[label]);
      before += y[c] > y[label];
    }
    loss += log(sum) / all;
    first += before < 1;
    five += before < 5;
  }
  want[0] = exp(loss), want[1] = first / all, want[2] = five / all;
  free(e), free(w), free(b);
}

static void check_text(const struct sl_trainer_options *options) {
  int32_t text[TEXT];
  double want[3], pairs = 0;
  struct sl_dataset *set;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_evaluation *e;
  struct sl_model *m = new_model(SL_SHAPE(STEPS));
  for (int i = 0; i < TEXT; i++) text[i] = (int32_t)((draw(5, i) + 1) / 2 * VOCABULARY);
  OK(sl_tokens_new("text", text, TEXT, STEPS, VOCABULARY, &set));
  OK(sl_loader_new(set, &(struct sl_loader_options){.batch = 4}, &loader));
  OK(sl_embedding(m, "embed",
                  &(struct sl_embedding_options){.vocabulary = VOCABULARY, .features = FEATURES}));
  OK(sl_dense(m, "fc", &(struct sl_dense_options){.features = VOCABULARY, .positions = true}));
  OK(sl_trainer_new(m, &(struct sl_optimizer){0}, NULL, options, &trainer));
  OK(sl_trainer_measure(trainer, loader, &e));
  naive_text(m, text, want);
  assert_int_equal(e->samples, TEXT - 1);
  assert_value("perplexity", metric(e, "perplexity")->value, want[0]);
  assert_value("accuracy", metric(e, "accuracy")->value, want[1]);
  assert_value("top5", metric(e, "top5")->value, want[2]);
  for (int i = 0; i < VOCABULARY * VOCABULARY; i++) pairs += metric(e, "confusion")->each[i];
  assert_true(pairs == TEXT - 1);
  sl_evaluation_free(e);
  sl_trainer_free(trainer);
  sl_model_free(m);
  sl_loader_free(loader);
  sl_dataset_free(set);
}

/* Each token counts, also in chunks of time steps that are not equal. */
static void test_texts(void **state) {
  (void)state;
  const struct sl_trainer_options ways[] = {{.replicas = 1},
                                            {.replicas = 2, .microbatches = 2},
                                            {.replicas = 1, .chunk = 2},
                                            {.replicas = 2, .chunk = 3, .eager = true}};
  for (int w = 0; w < 4; w++) check_text(&ways[w]);
}

/* Each allocation fails once: no result, and nothing is lost. */
static void test_no_memory(void **state) {
  (void)state;
  enum sl_status status = SL_NO_MEMORY;
  make_values(SL_LOSS_BCE, 2);
  for (long n = 1; status != SL_OK; n++) {
    struct sl_dataset *set;
    struct sl_loader *loader;
    struct sl_trainer *trainer;
    struct sl_evaluation *evaluation = NULL;
    struct sl_model *model = new_model(SL_SHAPE(IN));
    const struct sl_dataset_options description = {.name = "table",
                                                   .sample = SL_SHAPE(IN),
                                                   .target = SL_SHAPE(2),
                                                   .count = COUNT,
                                                   .missing = true};
    const struct sl_trainer_options options = {.replicas = 1, .loss.kind = SL_LOSS_BCE};
    assert_true(n < 2000);
    add_dense(model, "fc", 2, SL_INIT_DEFAULT);
    OK(sl_dataset_floats(&description, inputs, targets, NULL, false, &set));
    OK(sl_loader_new(set, &(struct sl_loader_options){.batch = BATCH}, &loader));
    OK(sl_trainer_new(model, &(struct sl_optimizer){0}, NULL, &options, &trainer));
    sl__alloc_fail_after(n);
    status = sl_trainer_measure(trainer, loader, &evaluation);
    sl__alloc_fail_after(0);
    if (status != SL_OK) assert_int_equal(status, SL_NO_MEMORY);
    assert_int_equal(evaluation == NULL, status != SL_OK);
    sl_evaluation_free(evaluation);
    sl_trainer_free(trainer);
    sl_model_free(model);
    sl_loader_free(loader);
    sl_dataset_free(set);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_values), cmocka_unit_test(test_labels),
      cmocka_unit_test(test_binary), cmocka_unit_test(test_divisions),
      cmocka_unit_test(test_texts),  cmocka_unit_test(test_no_memory)};
  return cmocka_run_group_tests_name("metrics", tests, open_context, close_context);
}
