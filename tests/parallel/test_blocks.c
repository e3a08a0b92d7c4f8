/* Learned positions and fused activations in trainings and generation: the same bits for chunks
 * along time, cuts of the batch and separate activation layers; generated text has the positions of
 * the whole sequence. */
#include <math.h>

#include "core/base/random.h"
#include "tests/common/training.h"

enum { WORDS = 9, WINDOW = 14, TOKENS = 8 * WINDOW + 1, MOST = 2000, STEPS = 4 };

static int32_t text[TOKENS];

static int open_text(void **state) {
  (void)state;
  for (int i = 0; i < TOKENS; i++) text[i] = (int32_t)(sl__philox(4, 4, (uint64_t)i).v[0] % WORDS);
  return open_context_with(&(struct sl_context_options){.seed = 7});
}

static void dense(struct sl_model *m, const char *name, const char *shares, int64_t features,
                  enum sl_activation activation, bool fused) {
  OK(sl_dense(m, name,
              &(struct sl_dense_options){.layer.shares = shares,
                                         .features = features,
                                         .positions = true,
                                         .activation = fused ? activation : SL_ACTIVATION_NONE}));
  char apart[32];
  snprintf(apart, sizeof apart, "%s.act", name);
  if (!fused) OK(sl_activate(m, apart, &(struct sl_activation_options){.activation = activation}));
}

/* embed, wpe, gelu_tanh, swiglu, gelu, head tied to embed with silu */
static struct sl_model *language_model(int64_t length, bool fused) {
  struct sl_model *m;
  const struct sl_layer_options small = {.init = SL_INIT_NORMAL, .deviation = 0.5f};
  OK(sl_model_new(context, &SL_SHAPE(WINDOW), &m));
  OK(sl_embedding(
      m, "wte",
      &(struct sl_embedding_options){.layer = small, .vocabulary = WORDS, .features = 6}));
  const struct sl_layer_options large = {.init = SL_INIT_NORMAL, .deviation = 2};
  OK(sl_position(m, "wpe", &(struct sl_position_options){.layer = large, .length = length}));
  dense(m, "fc", NULL, 16, SL_ACTIVATION_GELU_TANH, fused);
  OK(sl_swiglu(m, "gate", NULL));
  dense(m, "out", NULL, 6, SL_ACTIVATION_GELU, fused);
  dense(m, "head", "wte", WORDS, SL_ACTIVATION_SILU, fused);
  OK(sl_model_build(m));
  return m;
}

/* Only embedding and positions: a chunk changes no sum. */
static struct sl_model *two_tables(void) {
  struct sl_model *m;
  OK(sl_model_new(context, &SL_SHAPE(WINDOW), &m));
  OK(sl_embedding(m, "wte",
                  &(struct sl_embedding_options){.vocabulary = WORDS, .features = WORDS}));
  OK(sl_position(m, "wpe", &(struct sl_position_options){.length = WINDOW + 3}));
  OK(sl_model_build(m));
  return m;
}

static void train(struct sl_model *m, const struct sl_trainer_options *options, double *loss) {
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  OK(sl_tokens_new("text", text, TOKENS, WINDOW, WORDS, &data));
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = 4}, &loader));
  OK(sl_trainer_new(m, &(struct sl_optimizer){.lr = 0.5f}, NULL, options, &trainer));
  take_steps(trainer, loader, STEPS, loss);
  sl_trainer_free(trainer);
  sl_loader_free(loader);
  sl_dataset_free(data);
}

static void chunks_have_their_positions(void **state) {
  (void)state;
  static const int64_t chunks[] = {0, WINDOW, WINDOW / 2, 7, 5, 1};
  float first[MOST], weights[MOST];
  double loss[6][STEPS];
  for (int i = 0; i < 6; i++) {
    struct sl_model *m = two_tables();
    train(m, &(struct sl_trainer_options){.replicas = 1, .chunk = chunks[i]}, loss[i]);
    OK(sl_model_get(m, "wpe.weight", i ? weights : first));
    if (i) assert_memory_equal(weights, first, (WINDOW + 3) * WORDS * sizeof *weights);
    for (int s = 0; s < STEPS; s++) assert_true(fabs(loss[i][s] - loss[0][s]) <= 1e-6 * loss[0][s]);
    sl_model_free(m);
  }
}

/* Any cut of the batch and any placement: to the bit as with layers of their own. */
static void fused_activations_train_alike(void **state) {
  (void)state;
  static const struct sl_trainer_options runs[] = {{.replicas = 1},
                                                   {.replicas = 2},
                                                   {.replicas = 1, .microbatches = 2},
                                                   {.replicas = 1, .chunk = 5},
                                                   {.replicas = 1, .stages = 2},
                                                   {.replicas = 1, .math = SL_MATH_BF16}};
  for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
    float weights[2][MOST];
    double loss[2][STEPS];
    int64_t count = 0;
    for (int fused = 0; fused < 2; fused++) {
      struct sl_model *m = language_model(WINDOW, fused);
      train(m, &runs[r], loss[fused]);
      count = read_weights(m, weights[fused], MOST);
      sl_model_free(m);
    }
    if (runs[r].math != SL_MATH_BF16)
      assert_memory_equal(weights[0], weights[1], (size_t)count * sizeof(float));
    for (int s = 0; s < STEPS; s++)
      assert_true(fabs(loss[0][s] - loss[1][s]) <= (runs[r].math ? 0.02 : 0) * loss[0][s]);
  }
}

/* The mean loss of a sequence, by the trainer, as a whole. */
static double loss_of(struct sl_model *m, const int32_t *tokens) {
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  double loss, accuracy;
  OK(sl_tokens_new("text", tokens, WINDOW + 1, WINDOW, WORDS, &data));
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = 1}, &loader));
  OK(sl_trainer_new(m, &(struct sl_optimizer){0}, NULL, &(struct sl_trainer_options){.replicas = 1},
                    &trainer));
  OK(sl_trainer_evaluate(trainer, loader, &loss, &accuracy));
  sl_trainer_free(trainer);
  sl_loader_free(loader);
  sl_dataset_free(data);
  return loss;
}

/* The last word of a whole window that has the least loss is the one that is generated. */
static void generated_text_has_its_positions(void **state) {
  (void)state;
  struct sl_model *m = language_model(WINDOW, true);
  int different = 0;
  for (int number = 0; number < 6; number++) {
    int32_t tokens[WINDOW + 1], next, early;
    double least = INFINITY;
    int32_t best = 0;
    memcpy(tokens, text + number * WINDOW, sizeof tokens);
    for (int32_t word = 0; word < WORDS; word++) {
      tokens[WINDOW] = word;
      double loss = loss_of(m, tokens);
      if (loss < least) best = word;
      least = fmin(least, loss);
    }
    OK(sl_generate(m, &(struct sl_generate_options){.prompt = tokens, .prompt_count = WINDOW}, 1,
                   &next));
    assert_int_equal(next, best);
    OK(sl_generate(m,
                   &(struct sl_generate_options){.prompt = tokens + WINDOW - 1, .prompt_count = 1},
                   1, &early));
    different += early != next;
  }
  assert_true(different > 0); /* the position has a say */
  sl_model_free(m);
}

static void a_sequence_past_the_table_is_refused(void **state) {
  (void)state;
  struct sl_model *m = language_model(WINDOW + 2, true);
  int32_t out[WINDOW + 4];
  const struct sl_generate_options options = {.prompt = text, .prompt_count = 3};
  OK(sl_generate(m, &options, WINDOW, out)); /* the last word is not read */
  FAILS(sl_generate(m, &options, WINDOW + 1, out), SL_BAD_ARGUMENT,
        "layer wpe (position): the sequence has 17 time steps or more, but the table of positions "
        "has 16");
  OK(sl_generate(m, &options, WINDOW, out)); /* no harm is done */
  sl_model_free(m);
}

int main(void) {
  setenv("STARPU_NCPU", "2", 0);
  setenv("STARPU_WORKERS_NOBIND", "1", 0);
  const struct CMUnitTest tests[] = {cmocka_unit_test(chunks_have_their_positions),
                                     cmocka_unit_test(fused_activations_train_alike),
                                     cmocka_unit_test(generated_text_has_its_positions),
                                     cmocka_unit_test(a_sequence_past_the_table_is_refused)};
  return cmocka_run_group_tests_name("blocks", tests, open_text, close_context);
}
