/* Transformers whose sequences are cut into chunks along time: whatever the chunks, trainings and
 * evaluations have the same bits, with the loss apart and in the last layer, own and shared
 * weights, gradients of rows, several slices, stages, recomputation, dropout, bf16, sentences of
 * different lengths. On a GPU, whose libraries choose kernels by the number of rows, within
 * rounding. */
#include <math.h>

#include "codelets/codelets.h"
#include "core/base/random.h"
#include "tests/common/small_model.h"
#include "tests/common/training.h"

enum { WORDS = 11, WINDOW = 14, TOKENS = 64 * WINDOW + 1, WIDTH = 8, MOST = 5000, STEPS = 4 };

static int32_t text[TOKENS];

static int open_text(void **state) {
  (void)state;
  for (int i = 0; i < TOKENS; i++) text[i] = (int32_t)(sl__philox(4, 4, (uint64_t)i).v[0] % WORDS);
  return open_context_with(&(struct sl_context_options){.seed = 7});
}

struct run {
  const char *name;
  struct sl_trainer_options options;
  struct sl_optimizer optimizer;
  float dropout;
  bool own_head;    /* its weight is not that of the embedding */
  bool joined_head; /* the last layer takes the loss */
  bool sentences;
  int64_t window; /* time steps; 0: WINDOW */
  double loss[STEPS], evaluated;
  float weights[MOST];
  int64_t count;
};

static int64_t window_of(const struct run *run) { return run->window ? run->window : WINDOW; }

static void dense(struct sl_model *m, const char *name, const char *shares, int64_t features,
                  enum sl_activation activation) {
  OK(sl_dense(
      m, name,
      &(struct sl_dense_options){.layer = {.group = *name == 'h' ? "h" : NULL, .shares = shares},
                                 .features = features,
                                 .positions = true,
                                 .activation = activation}));
}

static void layernorm(struct sl_model *m, const char *name, bool rms) {
  OK(sl_layernorm(m, name, &(struct sl_layernorm_options){.layer.group = "h", .rms = rms}));
}

/* A block of both halves, with a residual sum around each. */
static struct sl_model *transformer(const struct run *run) {
  struct sl_model *m = new_model(SL_SHAPE(window_of(run)));
  OK(sl_embedding(m, "wte",
                  &(struct sl_embedding_options){.vocabulary = WORDS, .features = WIDTH}));
  OK(sl_position(m, "wpe", &(struct sl_position_options){.length = window_of(run) + 3}));
  OK(sl_dropout(m, "drop", &(struct sl_dropout_options){.rate = run->dropout}));
  layernorm(m, "h.norm", false);
  dense(m, "h.qkv", NULL, 3 * WIDTH, SL_ACTIVATION_NONE);
  OK(sl_attention(m, "h.attention",
                  &(struct sl_attention_options){
                      .layer.group = "h", .heads = 2, .rope_base = 20, .dropout = run->dropout}));
  dense(m, "h.out", NULL, WIDTH, SL_ACTIVATION_NONE);
  OK(sl_add(m, "h.sum", &(struct sl_add_options){.layer = {"drop,h.out", .group = "h"}}));
  layernorm(m, "h.norm2", true);
  dense(m, "h.fc", NULL, 18, SL_ACTIVATION_GELU);
  OK(sl_swiglu(m, "h.gate", &(struct sl_swiglu_options){.layer.group = "h"}));
  dense(m, "h.down", NULL, WIDTH, SL_ACTIVATION_TANH);
  OK(sl_add(m, "h.sum2", &(struct sl_add_options){.layer = {"h.sum,h.down", .group = "h"}}));
  dense(m, "decoder", run->own_head ? NULL : "wte", WORDS, SL_ACTIVATION_NONE);
  OK(sl_model_build(m));
  return m;
}

static struct sl_dataset *open_data(const struct run *run) {
  static const int64_t buckets[] = {5, 9, WINDOW};
  struct sl_dataset *data;
  if (run->sentences)
    OK(sl_sentences_new("sentences", text, TOKENS, WORDS,
                        &(struct sl_sentences_options){.buckets = buckets, .bucket_count = 3},
                        &data));
  else
    OK(sl_tokens_new("text", text, TOKENS, window_of(run), WORDS, &data));
  return data;
}

static void train(struct run *run, int64_t chunk) {
  struct sl_dataset *data = open_data(run);
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  double accuracy;
  struct sl_model *m = transformer(run);
  run->options.chunk = chunk;
  sl__linear_xent_force(run->joined_head ? 4 * WORDS : 0);
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = run->sentences ? 2 : 6}, &loader));
  OK(sl_trainer_new(m, &run->optimizer, NULL, &run->options, &trainer));
  take_steps(trainer, loader, STEPS, run->loss);
  OK(sl_trainer_evaluate(trainer, loader, &run->evaluated, &accuracy));
  sl__linear_xent_force(0);
  sl_trainer_free(trainer);
  run->count = read_weights(m, run->weights, MOST);
  sl_model_free(m);
  sl_loader_free(loader);
  sl_dataset_free(data);
}

static bool alike(double a, double b, double tolerance) {
  return on_gpu() ? fabs(a - b) <= tolerance * (1 + fabs(a)) : !memcmp(&a, &b, sizeof a);
}

static void compare(const struct run *a, const struct run *b) {
  double tolerance = a->options.math == SL_MATH_BF16 ? 0.02 : 1e-5;
  for (int s = 0; s < STEPS; s++)
    if (!alike(a->loss[s], b->loss[s], tolerance))
      fail_msg("%s, chunks of %lld, step %d: loss %.9g, not %.9g", b->name,
               (long long)b->options.chunk, s, b->loss[s], a->loss[s]);
  if (!alike(a->evaluated, b->evaluated, tolerance))
    fail_msg("%s, chunks of %lld: evaluated as %.9g, not %.9g", b->name,
             (long long)b->options.chunk, b->evaluated, a->evaluated);
  assert_int_equal(a->count, b->count);
  for (int64_t i = 0; i < a->count; i++)
    if (!alike((double)a->weights[i], (double)b->weights[i], 5 * tolerance))
      fail_msg("%s, chunks of %lld: value %lld of the weights is %.9g, not %.9g", b->name,
               (long long)b->options.chunk, (long long)i, (double)b->weights[i],
               (double)a->weights[i]);
}

#define ADAM                                                                                       \
  { .kind = SL_ADAMW, .lr = 0.02f, .epsilon = 1e-4f }
#define SGD                                                                                        \
  { .lr = 0.3f, .momentum = 0.5f }
static const struct run cases[] = {
    {"one slice", .optimizer = ADAM, .options = {.replicas = 1}},
    {"eager", .optimizer = ADAM, .options = {.replicas = 1, .eager = true}},
    {"few rows", .optimizer = ADAM, .options = {.replicas = 6}},
    {"slices, dropout", .optimizer = SGD, .dropout = 0.3f,
     .options = {.replicas = 2, .microbatches = 2}},
    {"rows of the embedding", .own_head = true, .optimizer = {.lr = 0.3f},
     .options = {.replicas = 2}},
    {"the loss in the last layer", .joined_head = true, .optimizer = SGD,
     .options = {.replicas = 1, .microbatches = 2}},
    {"the loss in the last layer, own weight", .joined_head = true, .own_head = true,
     .optimizer = ADAM, .options = {.replicas = 2}},
    {"clipped", .optimizer = {.lr = 0.3f, .clip = 0.1f}, .options = {.replicas = 2}},
    {"stages", .optimizer = SGD, .joined_head = true,
     .options = {.stages = 2, .microbatches = 2, .kvstore = SL_KVSTORE_DEVICE}},
    {"computed again", .optimizer = ADAM, .dropout = 0.2f,
     .options = {.replicas = 2, .recompute = "h*"}},
    {"computed again, task by task", .optimizer = ADAM,
     .options = {.replicas = 1, .recompute = "h*", .eager = true}},
    {"bf16", .optimizer = ADAM, .options = {.replicas = 2, .math = SL_MATH_BF16}},
    {"a long sequence", .window = 149, .optimizer = ADAM, .options = {.replicas = 2}},
    {"sentences", .sentences = true, .optimizer = SGD, .options = {.replicas = 2}}};

static void any_chunk_has_the_same_bits(void **state) {
  static struct run whole, cut;
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    whole = cases[i];
    int64_t window = window_of(&cases[i]), chunks[] = {window / 2, 5, 9, window / 14};
    train(&whole, window);
    assert_true(whole.loss[STEPS - 1] != whole.loss[0]);
    for (size_t k = 0; k < sizeof chunks / sizeof *chunks; k++) {
      cut = cases[i];
      train(&cut, chunks[k]);
      compare(&whole, &cut);
    }
  }
}

/* Without a number of steps for the chunks, products are those of the fastest library: the same
 * numbers within rounding. */
static void no_chunks_have_the_same_numbers(void **state) {
  static struct run whole, plain;
  (void)state;
  whole = plain = cases[0];
  train(&whole, WINDOW);
  train(&plain, 0);
  for (int s = 0; s < STEPS; s++)
    assert_true(fabs(whole.loss[s] - plain.loss[s]) <= 1e-5 * plain.loss[s]);
}

static void too_many_chunks_are_refused(void **state) {
  struct sl_trainer *trainer;
  (void)state;
  struct sl_model *m = new_model(SL_SHAPE(9000));
  OK(sl_embedding(m, "wte", &(struct sl_embedding_options){.vocabulary = WORDS, .features = 2}));
  dense(m, "decoder", NULL, WORDS, SL_ACTIVATION_NONE);
  assert_int_equal(sl_trainer_new(m, &(struct sl_optimizer){0}, NULL,
                                  &(struct sl_trainer_options){.chunk = 2}, &trainer),
                   SL_BAD_ARGUMENT);
  assert_non_null(strstr(sl_error(), "take 3 steps or more"));
  OK(sl_trainer_new(m, &(struct sl_optimizer){0}, NULL, &(struct sl_trainer_options){.chunk = 3},
                    &trainer));
  sl_trainer_free(trainer);
  sl_model_free(m);
  m = new_model(SL_SHAPE(9000)); /* a recurrent state: chunks are not put together */
  OK(sl_embedding(m, "wte", &(struct sl_embedding_options){.vocabulary = WORDS, .features = 2}));
  OK(sl_gru(m, "gru", &(struct sl_gru_options){.features = WORDS}));
  OK(sl_trainer_new(m, &(struct sl_optimizer){0}, NULL, &(struct sl_trainer_options){.chunk = 2},
                    &trainer));
  sl_trainer_free(trainer);
  sl_model_free(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(any_chunk_has_the_same_bits),
                                     cmocka_unit_test(no_chunks_have_the_same_numbers),
                                     cmocka_unit_test(too_many_chunks_are_refused)};
  return cmocka_run_group_tests_name("chunks", tests, open_text, close_context);
}
