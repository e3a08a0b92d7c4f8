/* Models some of whose inputs are tokens: against the same network in double precision, whatever
 * the division of the work and the optimizer's kind of gradient; bf16; files; bad input. */
#include <math.h>
#include <string.h>

#include "core/base/random.h"
#include "tests/common/training.h"

enum {
  COUNT = 20,
  BATCH = 8,
  STEPS = 9,
  WORDS = 3,        /* of a sample */
  KNOWN = 7,        /* different tokens in the data */
  VOCABULARY = 700, /* tokens beyond 256 are no bf16 numbers */
  D = 2,
  NUMBERS = 2,
  HE = 4,
  HN = 3,
  ROW = WORDS + NUMBERS,
  E_AT = 0,
  HE_AT = E_AT + KNOWN * D,
  HN_AT = HE_AT + HE * (WORDS * D + 1),
  Y_AT = HN_AT + HN * (NUMBERS + 1),
  WEIGHTS = Y_AT + HE + HN + 1
};
static const int tokens[KNOWN] = {0, 3, 257, 259, 513, 640, 699};
static const double rate = 0.2;

static float inputs[COUNT * ROW], targets[COUNT];
static int word[COUNT][WORDS]; /* places in `tokens` */
static const struct sl_row_field fields[] = {
    {.name = "words", .shape = {1, {WORDS}}, .classes = VOCABULARY},
    {.name = "numbers", .shape = {1, {NUMBERS}}}};
static const struct sl_dataset_options about = {
    .name = "notes", .target = {1, {1}}, .count = COUNT, .inputs = fields, .input_count = 2};

static struct sl_dataset *make_set(void) {
  struct sl_dataset *set;
  for (int n = 0; n < COUNT; n++) {
    float *row = inputs + n * ROW;
    for (int t = 0; t < WORDS; t++) {
      word[n][t] = (int)(sl__uniform(7, 1, (uint64_t)(n * WORDS + t)) * KNOWN);
      row[t] = (float)tokens[word[n][t]];
    }
    for (int i = 0; i < NUMBERS; i++)
      row[WORDS + i] = 2 * sl__uniform(7, 2, (uint64_t)(n * NUMBERS + i)) - 1;
    targets[n] = (float)word[n][0] / KNOWN - 0.4f * row[WORDS] + 0.3f * (float)(word[n][2] == 1);
  }
  OK(sl_dataset_floats(&about, inputs, targets, NULL, true, &set));
  return set;
}

static struct sl_model *make_model(void) {
  struct sl_model *m;
  OK(sl_model_new_fields(context, fields, 2, &m));
  OK(sl_embedding(m, "e",
                  &(struct sl_embedding_options){
                      .layer.inputs = "words", .vocabulary = VOCABULARY, .features = D}));
  OK(sl_dense(m, "he",
              &(struct sl_dense_options){.features = HE, .activation = SL_ACTIVATION_TANH}));
  OK(sl_dense(m, "hn",
              &(struct sl_dense_options){
                  .layer.inputs = "numbers", .features = HN, .activation = SL_ACTIVATION_TANH}));
  OK(sl_concatenate(m, "joined", &(struct sl_concatenate_options){.layer.inputs = "he,hn"}));
  OK(sl_dense(m, "y", &(struct sl_dense_options){.features = 1}));
  return m;
}

/* ---- the same in double precision ---- */

static double answer(const double *w, int n) {
  double joined[HE + HN], y = w[Y_AT + HE + HN];
  for (int o = 0; o < HE; o++) {
    const double *row = w + HE_AT + o * WORDS * D;
    joined[o] = w[HE_AT + HE * WORDS * D + o];
    for (int t = 0; t < WORDS; t++)
      for (int d = 0; d < D; d++) joined[o] += row[t * D + d] * w[E_AT + word[n][t] * D + d];
  }
  for (int o = 0; o < HN; o++) {
    joined[HE + o] = w[HN_AT + HN * NUMBERS + o];
    for (int i = 0; i < NUMBERS; i++)
      joined[HE + o] += w[HN_AT + o * NUMBERS + i] * (double)inputs[n * ROW + WORDS + i];
  }
  for (int o = 0; o < HE + HN; o++) y += w[Y_AT + o] * tanh(joined[o]);
  return y;
}

static double mean_loss(const double *w, int first, int count) {
  double sum = 0;
  for (int n = first; n < first + count; n++) sum += pow(answer(w, n) - (double)targets[n], 2);
  return sum / count;
}

/* A step of SGD with momentum; gradients are differences. Returns the loss before it. */
static double step(double *w, double *velocity, double momentum, int s) {
  int first = s % 3 * BATCH, count = s % 3 == 2 ? COUNT - first : BATCH;
  double gradient[WEIGHTS], loss = mean_loss(w, first, count);
  for (int i = 0; i < WEIGHTS; i++) {
    const double h = 1e-5, before = w[i];
    w[i] = before + h;
    gradient[i] = mean_loss(w, first, count);
    w[i] = before - h;
    gradient[i] = (gradient[i] - mean_loss(w, first, count)) / (2 * h);
    w[i] = before;
  }
  for (int i = 0; i < WEIGHTS; i++) {
    velocity[i] = momentum * velocity[i] + gradient[i];
    w[i] -= rate * velocity[i];
  }
  return loss;
}

/* ---- trainings ---- */

struct run {
  double start[WEIGHTS], end[WEIGHTS], loss[STEPS];
};

static void read_known(struct sl_model *m, double *w) {
  static float table[VOCABULARY * D], rest[WEIGHTS];
  static const char *const names[] = {"he.weight", "he.bias",  "hn.weight",
                                      "hn.bias",   "y.weight", "y.bias"};
  static const int sizes[] = {HE * WORDS * D, HE, HN * NUMBERS, HN, HE + HN, 1};
  OK(sl_model_get(m, "e.weight", table));
  for (int k = 0; k < KNOWN; k++)
    for (int d = 0; d < D; d++) w[E_AT + k * D + d] = (double)table[tokens[k] * D + d];
  w += HE_AT;
  for (int p = 0; p < 6; w += sizes[p++]) {
    OK(sl_model_get(m, names[p], rest));
    for (int i = 0; i < sizes[p]; i++) w[i] = (double)rest[i];
  }
}

static void train(float momentum, struct sl_trainer_options options, struct run *run) {
  struct sl_dataset *set = make_set();
  struct sl_model *model = make_model();
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  options.loss.kind = SL_LOSS_MSE;
  OK(sl_loader_new(set, &(struct sl_loader_options){.batch = BATCH}, &loader));
  OK(sl_trainer_new(model, &(struct sl_optimizer){.lr = (float)rate, .momentum = momentum}, NULL,
                    &options, &trainer));
  read_known(model, run->start);
  take_steps(trainer, loader, STEPS, run->loss);
  OK(sl_trainer_settle(trainer, NULL));
  read_known(model, run->end);
  sl_trainer_free(trainer);
  sl_model_free(model);
  sl_loader_free(loader);
  sl_dataset_free(set);
}

static void assert_as_reference(double momentum, const struct run *run) {
  double w[WEIGHTS], velocity[WEIGHTS] = {0};
  memcpy(w, run->start, sizeof w);
  for (int s = 0; s < STEPS; s++) {
    double want = step(w, velocity, momentum, s);
    if (!(fabs(run->loss[s] - want) < 1e-5 * (1 + want)))
      fail_msg("step %d has %.9g, the reference %.9g", s, run->loss[s], want);
  }
  for (int i = 0; i < WEIGHTS; i++)
    if (!(fabs(run->end[i] - w[i]) < 2e-5))
      fail_msg("weight %d is %.9g, of the reference %.9g", i, run->end[i], w[i]);
}

/* Without momentum the table's gradient has only the rows that were touched. */
static void trainings_match_the_reference(void **state) {
  (void)state;
  static const struct sl_trainer_options divisions[] = {
      {.replicas = 1}, {.replicas = 2, .microbatches = 2}, {.replicas = 1, .stages = 2}};
  for (int d = 0; d < 3; d++)
    for (int m = 0; m < 2; m++) {
      struct run captured, eager;
      struct sl_trainer_options options = divisions[d];
      train(m ? 0.5f : 0, options, &captured);
      assert_as_reference(m ? 0.5 : 0, &captured);
      options.eager = true;
      train(m ? 0.5f : 0, options, &eager);
      assert_memory_equal(captured.loss, eager.loss, sizeof eager.loss);
      assert_memory_equal(captured.end, eager.end, sizeof eager.end);
    }
}

/* bf16 holds whole numbers up to 256 only. */
static void bf16_does_not_round_tokens(void **state) {
  (void)state;
  struct run full, half;
  train(0.5f, (struct sl_trainer_options){.replicas = 2}, &full);
  train(0.5f, (struct sl_trainer_options){.replicas = 2, .math = SL_MATH_BF16}, &half);
  for (int s = 0; s < STEPS; s++)
    assert_true(fabs(full.loss[s] - half.loss[s]) < 0.03 * (1 + full.loss[s]));
}

/* ---- files and answers ---- */

static void files_keep_the_tokens(void **state) {
  (void)state;
  static const char *const paths[] = {"tokens.json", "tokens.onnx"};
  struct sl_dataset *set = make_set();
  struct sl_model *m = make_model();
  double w[WEIGHTS];
  OK(sl_model_build(m));
  read_known(m, w);
  for (int p = 0; p < 2; p++) {
    struct sl_model *other;
    struct sl_predictor *predictor;
    struct sl_row_field field;
    float answers[COUNT], bad[ROW];
    OK(sl_model_save(m, paths[p]));
    OK(sl_model_open(context, paths[p], &other));
    assert_true(sl_model_input_field(other, 0, &field));
    assert_string_equal(field.name, "words");
    assert_int_equal(field.classes, VOCABULARY);
    assert_true(sl_model_input_field(other, 1, &field));
    assert_int_equal(field.classes, 0);
    OK(sl_predictor_open(other, NULL, &predictor));
    OK(sl_predict(predictor, inputs, COUNT, answers));
    for (int n = 0; n < COUNT; n++) assert_true(fabs((double)answers[n] - answer(w, n)) < 1e-5);
    memcpy(bad, inputs, sizeof bad);
    bad[1] = VOCABULARY;
    FAILS(sl_predict(predictor, bad, 1, answers), SL_BAD_ARGUMENT,
          "sample 0: token 1 of 'words' is 700, but the model has 0 to 699");
    bad[1] = 2.5f;
    FAILS(sl_predict(predictor, bad, 1, answers), SL_BAD_ARGUMENT, "token 1 of 'words' is 2.5");
    sl_predictor_free(predictor);
    sl_model_free(other);
  }
  sl_model_free(m);
  sl_dataset_free(set);
}

/* ---- bad input ---- */

static void data_have_no_other_tokens(void **state) {
  (void)state;
  static const float bad[] = {VOCABULARY, -1, 1.5f};
  struct sl_dataset *set = make_set();
  const float mean = 5, deviation = 2;
  struct sl_dataset_options scaled = about;
  float row[ROW], target;
  sl_dataset_free(set);
  for (int i = 0; i < 3; i++) {
    float before = inputs[4 * ROW + 1];
    inputs[4 * ROW + 1] = bad[i];
    FAILS(sl_dataset_floats(&about, inputs, targets, NULL, true, &set), SL_BAD_ARGUMENT,
          i ? "sample 4: token" : "sample 4: token 700 of 'words' is no token");
    inputs[4 * ROW + 1] = before;
  }
  scaled.channels = 1, scaled.mean = &mean, scaled.deviation = &deviation; /* of numbers alone */
  OK(sl_dataset_floats(&scaled, inputs, targets, NULL, true, &set));
  OK(sl_dataset_get_targets(set, 4, row, &target));
  assert_true(row[1] == inputs[4 * ROW + 1]);
  assert_true(row[WORDS] == (inputs[4 * ROW + WORDS] - mean) / deviation);
  sl_dataset_free(set);
}

static void try_set(struct sl_model *m, const struct sl_dataset_options *options, const char *why) {
  struct sl_dataset *set;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_report report;
  bool reported;
  OK(sl_dataset_floats(options, inputs, targets, NULL, true, &set));
  OK(sl_loader_new(set, &(struct sl_loader_options){.batch = BATCH}, &loader));
  OK(sl_trainer_new(m, &(struct sl_optimizer){.lr = 0.1f}, NULL,
                    &(struct sl_trainer_options){.loss.kind = SL_LOSS_MSE}, &trainer));
  FAILS(sl_trainer_step(trainer, loader, &report, &reported), SL_BAD_ARGUMENT, why);
  sl_trainer_free(trainer);
  sl_loader_free(loader);
  sl_dataset_free(set);
}

static void data_and_model_agree(void **state) {
  (void)state;
  struct sl_dataset *set = make_set();
  struct sl_model *m = make_model(), *numbers;
  struct sl_row_field other[2] = {fields[0], fields[1]};
  struct sl_dataset_options options = about;
  options.inputs = other;
  other[0].classes = 800;
  inputs[13 * ROW + 2] = 700;
  try_set(m, &options, "sample 13: token 700 of 'words', but the model's embedding has 0 to 699");
  inputs[13 * ROW + 2] = 0;
  other[0].classes = 0;
  try_set(m, &options, "'words' has numbers, but the model takes tokens");
  options.input_count = 0, options.sample = SL_SHAPE(ROW);
  try_set(m, &options, "'words' has numbers, but the model takes tokens");
  OK(sl_model_new(context, &SL_SHAPE(ROW), &numbers));
  OK(sl_dense(numbers, "y", &(struct sl_dense_options){.features = 1}));
  try_set(numbers, &about, "'words' has tokens, but the model takes numbers");
  sl_model_free(numbers);
  sl_model_free(m);
  sl_dataset_free(set);
}

static void only_embeddings_take_tokens(void **state) {
  (void)state;
  const struct sl_embedding_options table = {.layer.inputs = "h", .vocabulary = 9, .features = 2};
  struct sl_model *m;
  OK(sl_model_new_fields(context, fields, 2, &m));
  OK(sl_dense(m, "h", &(struct sl_dense_options){.layer.inputs = "words", .features = 3}));
  FAILS(sl_embedding(m, "e", &table), SL_BAD_ARGUMENT,
        "layer e (embedding): takes the model's own input or a field of it");
  struct sl_embedding_options of_field = table;
  of_field.layer.inputs = "words";
  OK(sl_embedding(m, "e", &of_field));
  OK(sl_dense(m, "n", &(struct sl_dense_options){.layer.inputs = "numbers", .features = 3}));
  OK(sl_outputs(m, "h,e,n"));
  FAILS(sl_model_build(m), SL_BAD_ARGUMENT,
        "layer h (dense): it takes 'words', which an embedding takes as tokens");
  sl_model_free(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(trainings_match_the_reference),
                                     cmocka_unit_test(bf16_does_not_round_tokens),
                                     cmocka_unit_test(files_keep_the_tokens),
                                     cmocka_unit_test(data_have_no_other_tokens),
                                     cmocka_unit_test(data_and_model_agree),
                                     cmocka_unit_test(only_embeddings_take_tokens)};
  return cmocka_run_group_tests_name("token fields", tests, open_context, close_context);
}
