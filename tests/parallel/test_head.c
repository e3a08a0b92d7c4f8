/* The last layer and the loss as one task (parallel/step/plan_head.c): the losses and weights of
 * separate tasks within rounding, for own and shared weights, divisions of the batch, types and
 * settings of the loss; captured and eager steps to the bit; and where the plan keeps separate
 * tasks. */
#include <math.h>

#include "codelets/codelets.h"
#include "core/base/random.h"
#include "core/runtime/hooks.h"
#include "tests/common/training.h"

enum { WORDS = 11, TOKENS = 500, STEPS = 10, WINDOW = 6, BATCH = 8, MOST = 1000 };

static int32_t text[TOKENS];
static int joined[2]; /* tasks of the joined operation: the loss only, with gradients */

static bool count_call(void *data, const struct sl__call *call, enum sl_status *status) {
  (void)data, (void)status;
  joined[0] += call->op == &sl__op_linear_xent;
  joined[1] += call->op == &sl__op_linear_xent_gradient;
  joined[1] += call->op == &sl__op_linear_xent_bias_gradient;
  return false;
}

static int open_text(void **state) {
  (void)state;
  for (int i = 1; i < TOKENS; i++) {
    struct sl__random4 r = sl__philox(4, 4, (uint64_t)i);
    text[i] = r.v[0] % 4 ? (text[i - 1] * 3 + 1) % WORDS : (int32_t)(r.v[1] % WORDS);
  }
  if (open_context_with(&(struct sl_context_options){.seed = 7})) return 1;
  const struct sl__submit_hook hook = {.instead = count_call, .data = joined};
  return sl__submit_hook_add(context, &hook) != SL_OK;
}

struct run {
  const char *name;
  bool tied, no_bias;
  const char *frozen;
  struct sl_optimizer optimizer;
  struct sl_trainer_options options;
  double tolerance; /* of losses and weights; 0: 2e-5 */
  double loss[STEPS], evaluated;
  float weights[MOST];
  int64_t count;
  int tasks[2];
  int measuring; /* tasks while metrics are computed */
};

static struct sl_model *build(const struct run *run) {
  struct sl_model *m;
  OK(sl_model_new(context, &SL_SHAPE(WINDOW), &m));
  OK(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = WORDS, .features = 6}));
  OK(sl_gru(m, "gru", &(struct sl_gru_options){.features = 6}));
  OK(sl_dense(m, "head",
              &(struct sl_dense_options){.features = WORDS,
                                         .positions = true,
                                         .no_bias = run->no_bias,
                                         .layer.shares = run->tied ? "embed" : NULL}));
  if (run->frozen) OK(sl_freeze(m, run->frozen));
  OK(sl_model_build(m));
  return m;
}

/* limit: logits above which the last layer takes the loss; 0: the library's. */
static void train(struct run *run, int64_t limit, bool eager) {
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_evaluation *metrics = NULL;
  double accuracy;
  struct sl_model *m = build(run);
  run->options.eager = eager;
  sl__linear_xent_force(limit);
  memset(joined, 0, sizeof joined);
  OK(sl_tokens_new("text", text, TOKENS, WINDOW, WORDS, &data));
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = BATCH, .contiguous = true}, &loader));
  OK(sl_trainer_new(m, &run->optimizer, NULL, &run->options, &trainer));
  take_steps(trainer, loader, STEPS, run->loss);
  run->tasks[1] = joined[1];
  OK(sl_trainer_evaluate(trainer, loader, &run->evaluated, &accuracy));
  run->tasks[0] = joined[0];
  if (limit && eager) OK(sl_trainer_measure(trainer, loader, &metrics));
  run->measuring = joined[0] - run->tasks[0];
  sl_evaluation_free(metrics);
  sl__linear_xent_force(0);
  sl_trainer_free(trainer);
  run->count = read_weights(m, run->weights, MOST);
  sl_model_free(m);
  sl_loader_free(loader);
  sl_dataset_free(data);
}

static void assert_alike(const struct run *a, const struct run *b) {
  double tolerance = a->tolerance > 0 ? a->tolerance : 2e-5;
  for (int s = 0; s < STEPS; s++)
    if (!(fabs(a->loss[s] - b->loss[s]) <= tolerance * a->loss[s]))
      fail_msg("%s, step %d: loss %.9g and %.9g", a->name, s, a->loss[s], b->loss[s]);
  if (!(fabs(a->evaluated - b->evaluated) <= tolerance * a->evaluated))
    fail_msg("%s: evaluated as %.9g and %.9g", a->name, a->evaluated, b->evaluated);
  assert_int_equal(a->count, b->count);
  for (int64_t i = 0; i < a->count; i++)
    if (!(fabsf(a->weights[i] - b->weights[i]) <= (float)(5 * tolerance)))
      fail_msg("%s: weight %lld is %.9g and %.9g", a->name, (long long)i, (double)a->weights[i],
               (double)b->weights[i]);
}

static void assert_same_bits(const struct run *a, const struct run *b) {
  if (memcmp(a->loss, b->loss, sizeof a->loss) || a->evaluated != b->evaluated ||
      memcmp(a->weights, b->weights, sizeof a->weights))
    fail_msg("%s: captured and eager steps differ", a->name);
}

#define SGD                                                                                        \
  { .lr = 0.5f, .momentum = 0.5f }
static const struct run cases[] = {
    {"own weight", .optimizer = SGD, .options = {.replicas = 1}},
    {"no bias", .no_bias = true, .optimizer = SGD, .options = {.replicas = 2}},
    {"tied", .tied = true, .optimizer = SGD, .options = {.replicas = 2, .carry_state = true}},
    {"tied, no bias, clipped", .tied = true, .no_bias = true,
     .optimizer = {.lr = 0.5f, .clip = 0.1f}, .options = {.replicas = 1, .microbatches = 2}},
    {"rows of the embedding", .optimizer = {.lr = 0.5f}, .options = {.replicas = 2}},
    {"chunks and microbatches", .tied = true, .optimizer = {.lr = 0.5f},
     .options = {.replicas = 2, .microbatches = 2, .chunk = 4}},
    {"stages", .optimizer = SGD,
     .options = {.stages = 2, .microbatches = 2, .chunk = 3, .kvstore = SL_KVSTORE_DEVICE}},
    {"smoothed", .optimizer = SGD, .options = {.replicas = 1, .loss.label_smoothing = 0.1f}},
    {"bf16", .tied = true, .optimizer = SGD, .options = {.math = SL_MATH_BF16}, .tolerance = 0.02}};

static void joined_tasks_train_as_separate_ones(void **state) {
  (void)state;
  static struct run separate, eager, captured;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    separate = eager = captured = cases[i];
    train(&separate, 0, true);
    train(&eager, 4 * WORDS, true);
    train(&captured, 4 * WORDS, false);
    assert_int_equal(separate.tasks[0] + separate.tasks[1], 0);
    if (!eager.tasks[0] || !eager.tasks[1]) fail_msg("%s: separate tasks", eager.name);
    if (eager.measuring) fail_msg("%s: metrics without the outputs", eager.name);
    assert_alike(&separate, &eager);
    assert_same_bits(&eager, &captured);
  }
}

/* With a frozen side, half of the joined task would be for nothing: separate tasks in training. */
static void frozen_sides_keep_separate_tasks(void **state) {
  (void)state;
  static const char *const frozen[] = {"head", "embed,gru"};
  static struct run separate, run;
  for (int i = 0; i < 2; i++) {
    separate = run = cases[0];
    separate.frozen = run.frozen = frozen[i];
    train(&separate, 0, true);
    train(&run, 4 * WORDS, true);
    assert_int_equal(run.tasks[1], 0);
    assert_true(run.tasks[0] > 0);
    assert_alike(&separate, &run);
  }
}

/* Logits that one chunk could hold gain nothing. */
static void few_logits_keep_separate_tasks(void **state) {
  (void)state;
  static struct run run;
  run = cases[0];
  train(&run, WINDOW * BATCH * WORDS, true);
  assert_int_equal(run.tasks[0] + run.tasks[1], 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(joined_tasks_train_as_separate_ones),
                                     cmocka_unit_test(frozen_sides_keep_separate_tasks),
                                     cmocka_unit_test(few_logits_keep_separate_tasks)};
  return cmocka_run_group_tests_name("head", tests, open_text, close_context);
}
