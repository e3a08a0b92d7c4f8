/* Language models with attention: training in any cut, generation by the cache of keys and values.
 * References: the serial run, the trainer's evaluation of whole sequences, one padded bucket. */
#include <math.h>

#include "core/base/random.h"
#include "tests/common/training.h"

enum { WORDS = 6, WINDOW = 12, TOKENS = 721, STEPS = 20, LEARNING = 200, ROOM = 2000 };

static int32_t text[TOKENS];

/* Lines of WINDOW tokens that repeat two: the next one is that before the last one, of which the
 * last one alone says nothing. */
static int open_text(void **state) {
  (void)state;
  for (int i = 0; i < TOKENS; i++) {
    struct sl__random4 r = sl__philox(4, 4, (uint64_t)(i / WINDOW));
    text[i] = (int32_t)(r.v[i % 2] % WORDS);
  }
  return open_context_with(&(struct sl_context_options){.seed = 7});
}

static struct sl_model *language_model(struct sl_attention_options attention, int64_t steps) {
  struct sl_model *m;
  int kv = attention.kv_heads ? attention.kv_heads : attention.heads;
  OK(sl_model_new(context, &SL_SHAPE(steps), &m));
  OK(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = WORDS, .features = 8}));
  OK(sl_dense(
      m, "qkv",
      &(struct sl_dense_options){.features = 8 * (attention.heads + 2 * kv), .positions = true}));
  OK(sl_attention(m, "attention", &attention));
  OK(sl_dense(m, "decoder", &(struct sl_dense_options){.features = WORDS, .positions = true}));
  OK(sl_model_build(m));
  return m;
}

static const struct sl_attention_options rope = {.heads = 2, .kv_heads = 1, .rope_base = 20};

struct run {
  struct sl_trainer_options options;
  float dropout;
  int steps;
  double loss[LEARNING];
  float weights[ROOM];
  int64_t count;
};

/* Returns the trained model. */
static struct sl_model *train(struct run *run) {
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_report report;
  bool reported;
  struct sl_attention_options attention = rope;
  attention.dropout = run->dropout;
  attention.context = WINDOW + 8;
  struct sl_model *m = language_model(attention, WINDOW);
  OK(sl_tokens_new("text", text, TOKENS, WINDOW, WORDS, &data));
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = 12}, &loader));
  OK(sl_trainer_new(m, &(struct sl_optimizer){.kind = SL_ADAM, .lr = 0.02f, .epsilon = 1e-4f}, NULL,
                    &run->options, &trainer));
  for (int s = 0; s < 2 * run->steps; s++) {
    if (s < run->steps)
      OK(sl_trainer_step(trainer, loader, &report, &reported));
    else
      OK(sl_trainer_drain(trainer, &report, &reported));
    if (reported) run->loss[report.step] = report.loss;
  }
  sl_trainer_free(trainer);
  run->count = read_weights(m, run->weights, ROOM);
  sl_loader_free(loader);
  sl_dataset_free(data);
  return m;
}

static void any_cut_gives_the_serial_curve(void **state) {
  (void)state;
  static const struct sl_trainer_options cuts[] = {
      {.replicas = 3},
      {.replicas = 1, .microbatches = 2},
      {.replicas = 1, .chunk = 6},
      {.replicas = 2, .chunk = 5, .microbatches = 2},
      {.replicas = 1, .stages = 3, .chunk = 1, .kvstore = SL_KVSTORE_DEVICE}};
  static struct run serial, cut;
  serial = (struct run){.options = {.replicas = 1}, .dropout = 0.3f, .steps = STEPS};
  sl_model_free(train(&serial));
  assert_true(serial.loss[STEPS - 1] < serial.loss[0]);
  for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
    cut = serial;
    cut.options = cuts[i];
    sl_model_free(train(&cut));
    for (int s = 0; s < STEPS; s++)
      if (!(fabs(cut.loss[s] - serial.loss[s]) <= 1e-4 * serial.loss[s]))
        fail_msg("cut %zu, step %d: loss %.9g, serial %.9g", i, s, cut.loss[s], serial.loss[s]);
  }
}

/* The model learns to copy the token before the last one. */
static void a_model_learns_to_copy(void **state) {
  (void)state;
  static struct run run;
  run = (struct run){.options = {.replicas = 1}, .steps = LEARNING};
  struct sl_model *m = train(&run);
  /* the first step of a line is a guess */
  if (!(run.loss[LEARNING - 1] < 0.5 * run.loss[0]))
    fail_msg("loss %g at first, %g at last", run.loss[0], run.loss[LEARNING - 1]);
  int32_t out[6];
  const int32_t prompt[] = {text[24], text[25], text[24], text[25]};
  OK(sl_generate(m, &(struct sl_generate_options){.prompt = prompt, .prompt_count = 4}, 6, out));
  for (int i = 0; i < 6; i++) assert_int_equal(out[i], prompt[i % 2]);
  sl_model_free(m);
}

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

/* The last of the generated tokens is the one that makes the whole sequence's loss least. */
static void generation_is_as_the_whole_sequence(void **state) {
  (void)state;
  const struct sl_attention_options options[] = {rope, {.heads = 3}};
  for (int k = 0; k < 2; k++) {
    struct sl_model *m = language_model(options[k], WINDOW);
    for (int prompt = 1; prompt <= WINDOW; prompt += 4) {
      int32_t tokens[WINDOW + 1];
      for (int i = 0; i < prompt; i++) tokens[i] = (i * i * 7 + prompt) % WORDS;
      OK(sl_generate(m, &(struct sl_generate_options){.prompt = tokens, .prompt_count = prompt},
                     WINDOW + 1 - prompt, tokens + prompt));
      int32_t last = tokens[WINDOW];
      double least = loss_of(m, tokens);
      for (tokens[WINDOW] = 0; tokens[WINDOW] < WORDS; tokens[WINDOW]++)
        if (tokens[WINDOW] != last) assert_true(loss_of(m, tokens) > least - 1e-7);
    }
    sl_model_free(m);
  }
}

static void a_sequence_has_an_end(void **state) {
  (void)state;
  int32_t out[32];
  const struct sl_generate_options options = {.prompt = (const int32_t[]){1, 2, 3},
                                              .prompt_count = 3};
  struct sl_model *m = language_model(rope, WINDOW);
  OK(sl_generate(m, &options, WINDOW - 2, out));
  FAILS(sl_generate(m, &options, WINDOW - 1, out), SL_BAD_ARGUMENT,
        "layer attention (attention) takes sequences of at most 12 steps");
  FAILS(sl_generate(m, &options, INT64_MAX, out), SL_BAD_ARGUMENT, "at most 12 steps");
  sl_model_free(m);
  struct sl_attention_options longer = rope;
  longer.context = 20;
  m = language_model(longer, WINDOW);
  OK(sl_generate(m, &options, 18, out));
  FAILS(sl_generate(m, &options, 19, out), SL_BAD_ARGUMENT, "at most 20 steps");
  sl_model_free(m);
}

static void a_state_ends_with_its_sequence(void **state) {
  (void)state;
  struct sl_trainer *trainer;
  struct sl_model *m = language_model(rope, WINDOW);
  FAILS(sl_trainer_new(m, &(struct sl_optimizer){.lr = 1}, NULL,
                       &(struct sl_trainer_options){.replicas = 1, .carry_state = true}, &trainer),
        SL_BAD_ARGUMENT, "carry_state: layer attention (attention) reads a whole sequence");
  sl_model_free(m);
}

/* Sentences in buckets of their lengths, and all padded to the longest; in chunks, too. */
static void sentences_may_be_shorter(void **state) {
  (void)state;
  static const int64_t buckets[] = {4, 9, WINDOW}, longest[] = {WINDOW};
  static int32_t words[300];
  for (int i = 1; i < 300; i++) words[i] = text[i + 60] * (i % 7 && i % 11);
  struct sl_model *m = language_model(rope, WINDOW);
  double loss[3], accuracy;
  for (int i = 0; i < 3; i++) {
    const struct sl_sentences_options options = {.buckets = i ? buckets : longest,
                                                 .bucket_count = i ? 3 : 1};
    struct sl_dataset *data;
    struct sl_loader *loader;
    struct sl_trainer *trainer;
    OK(sl_sentences_new("sentences", words, 300, WORDS, &options, &data));
    OK(sl_loader_new(data, &(struct sl_loader_options){.batch = 3}, &loader));
    OK(sl_trainer_new(m, &(struct sl_optimizer){0}, NULL,
                      &(struct sl_trainer_options){.replicas = 1, .chunk = i == 2 ? 5 : 0},
                      &trainer));
    OK(sl_trainer_evaluate(trainer, loader, &loss[i], &accuracy));
    sl_trainer_free(trainer);
    sl_loader_free(loader);
    sl_dataset_free(data);
  }
  assert_true(fabs(loss[1] - loss[0]) < 1e-6);
  assert_true(fabs(loss[2] - loss[0]) < 1e-6);
  sl_model_free(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(any_cut_gives_the_serial_curve),
                                     cmocka_unit_test(a_model_learns_to_copy),
                                     cmocka_unit_test(generation_is_as_the_whole_sequence),
                                     cmocka_unit_test(a_sequence_has_an_end),
                                     cmocka_unit_test(a_state_ends_with_its_sequence),
                                     cmocka_unit_test(sentences_may_be_shorter)};
  return cmocka_run_group_tests_name("attention in training", tests, open_text, close_context);
}
