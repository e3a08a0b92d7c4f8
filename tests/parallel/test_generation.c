/* Generated tokens: reference is the trainer's evaluation of the same tokens, whole and at once. */
#include <math.h>

#include "tests/common/harness.h"

enum { WORDS = 7, WINDOW = 12, DRAWS = 120 };

static int open_seeded(void **state) {
  (void)state;
  return open_context_with(&(struct sl_context_options){.seed = 5});
}

/* Weights from a normal distribution, so that the outputs differ much. */
static struct sl_model *language_model(void) {
  struct sl_model *m;
  OK(sl_model_new(context, &SL_SHAPE(WINDOW), &m));
  OK(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = WORDS, .features = 5}));
  OK(sl_lstm(m, "lstm", &(struct sl_lstm_options){.features = 6}));
  OK(sl_dropout(m, "drop", &(struct sl_dropout_options){.rate = 0.5f}));
  OK(sl_gru(m, "gru", &(struct sl_gru_options){.features = 6}));
  OK(sl_dense(
      m, "decoder",
      &(struct sl_dense_options){.layer.init = SL_INIT_HE, .features = WORDS, .positions = true}));
  OK(sl_model_build(m));
  return m;
}

/* The mean loss of tokens 1 to WINDOW, by the trainer. */
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

/* The probability of each word after a window, from the trainer's losses. */
static void probabilities_of(struct sl_model *m, const int32_t *window, double *p) {
  int32_t tokens[WINDOW + 1];
  double sum = 0, loss[WORDS];
  memcpy(tokens, window, WINDOW * sizeof *tokens);
  for (int32_t word = 0; word < WORDS; word++) {
    tokens[WINDOW] = word;
    loss[word] = WINDOW * loss_of(m, tokens); /* what the words share cancels out */
  }
  for (int word = 0; word < WORDS; word++) sum += p[word] = exp(loss[0] - loss[word]);
  for (int word = 0; word < WORDS; word++) p[word] /= sum;
}

static void window_of(int number, int32_t *window) {
  for (int i = 0; i < WINDOW; i++) window[i] = (number * 31 + i * i * 7 + i * number) % WORDS;
}

static int32_t next_of(struct sl_model *m, const int32_t *prompt, int64_t count, float temperature,
                       uint64_t seed) {
  int32_t token = -1;
  OK(sl_generate(
      m,
      &(struct sl_generate_options){
          .seed = seed, .temperature = temperature, .prompt = prompt, .prompt_count = count},
      1, &token));
  return token;
}

static void the_likeliest_token_is_taken(void **state) {
  (void)state;
  struct sl_model *m = language_model();
  bool seen[WORDS] = {false};
  int different = 0;
  for (int number = 0; number < 12; number++) {
    int32_t window[WINDOW];
    double p[WORDS];
    int best = 0;
    window_of(number, window);
    probabilities_of(m, window, p);
    for (int word = 1; word < WORDS; word++) best = p[word] > p[best] ? word : best;
    assert_int_equal(next_of(m, window, WINDOW, 0, 1), best);
    different += !seen[best];
    seen[best] = true;
  }
  assert_true(different > 1); /* the window has a say */
  sl_model_free(m);
}

/* The model reads generated tokens as it reads a prompt. */
static void generated_tokens_are_read(void **state) {
  (void)state;
  struct sl_model *m = language_model();
  int32_t tokens[WINDOW + 6];
  window_of(3, tokens);
  OK(sl_generate(m, &(struct sl_generate_options){.prompt = tokens, .prompt_count = WINDOW}, 6,
                 tokens + WINDOW));
  for (int64_t k = 0; k < 6; k++)
    assert_int_equal(next_of(m, tokens, WINDOW + k, 0, 1), tokens[WINDOW + k]);
  sl_model_free(m);
}

/* Frequencies within five deviations; a temperature sharpens or flattens them. */
static void draws_follow_the_probabilities(void **state) {
  (void)state;
  static const float temperatures[] = {0.5f, 1.5f};
  struct sl_model *m = language_model();
  int32_t window[WINDOW];
  double p[WORDS], sum;
  window_of(1, window);
  probabilities_of(m, window, p);
  for (int t = 0; t < 2; t++) {
    int count[WORDS] = {0};
    for (uint64_t seed = 0; seed < DRAWS; seed++)
      count[next_of(m, window, WINDOW, temperatures[t], seed)]++;
    sum = 0;
    for (int word = 0; word < WORDS; word++) sum += pow(p[word], 1 / (double)temperatures[t]);
    for (int word = 0; word < WORDS; word++) {
      double want = pow(p[word], 1 / (double)temperatures[t]) / sum;
      if (fabs(count[word] - want * DRAWS) > 5 * sqrt(want * DRAWS + 1))
        fail_msg("temperature %g, word %d: %d of %d, expected %.1f", (double)temperatures[t], word,
                 count[word], DRAWS, want * DRAWS);
    }
  }
  sl_model_free(m);
}

/* The last outputs of a padded model are no words. */
static void only_the_first_words_are_drawn(void **state) {
  (void)state;
  struct sl_model *m = language_model();
  struct sl_generate_options options = {.prompt_count = WINDOW, .words = WORDS / 2};
  double p[WORDS];
  int32_t window[WINDOW];
  int others = 0;
  options.prompt = window;
  for (int number = 0; number < 12; number++) {
    int32_t tokens[20];
    int best = 0;
    window_of(number, window);
    probabilities_of(m, window, p);
    for (int word = 1; word < options.words; word++) best = p[word] > p[best] ? word : best;
    options.temperature = 0;
    OK(sl_generate(m, &options, 1, tokens));
    assert_int_equal(tokens[0], best);
    options.temperature = 2;
    OK(sl_generate(m, &options, 20, tokens));
    for (int i = 0; i < 20; i++) assert_in_range(tokens[i], 0, options.words - 1);
    others += next_of(m, window, WINDOW, 0, 1) >= options.words;
  }
  assert_true(others > 0);
  for (options.words = 1; options.words <= WORDS; options.words += WORDS - 1)
    OK(sl_generate(m, &options, 1, &(int32_t){0}));
  for (options.words = -1; options.words <= WORDS + 1; options.words += WORDS + 2)
    FAILS(sl_generate(m, &options, 1, &(int32_t){0}), SL_BAD_ARGUMENT, "must be 0 to 7");
  sl_model_free(m);
}

static void placement_and_seed_decide(void **state) {
  (void)state;
  struct sl_model *m = language_model();
  int32_t window[WINDOW], a[20], b[20];
  struct sl_generate_options options = {
      .seed = 9, .temperature = 1, .prompt = window, .prompt_count = WINDOW};
  window_of(2, window);
  OK(sl_generate(m, &options, 20, a));
  OK(sl_place(m, "embed,lstm=cpu:0;drop,gru,decoder=cpu:1"));
  OK(sl_generate(m, &options, 20, b));
  assert_memory_equal(a, b, sizeof a);
  options.seed = 10;
  OK(sl_generate(m, &options, 20, b));
  assert_memory_not_equal(a, b, sizeof a);
  sl_model_free(m);
}

static void what_cannot_be_is_refused(void **state) {
  (void)state;
  struct sl_model *m = language_model(), *image;
  int32_t prompt[2] = {1, WORDS}, out[1];
  float bad[WORDS] = {0, NAN};
  struct sl_generate_options options = {.prompt = prompt};
  assert_int_equal(sl_generate(m, &options, 1, out), SL_BAD_ARGUMENT);
  options.prompt_count = 2;
  FAILS(sl_generate(m, &(struct sl_generate_options){.prompt_count = 2}, 1, out), SL_BAD_ARGUMENT,
        "a prompt of 2 tokens, but prompt is NULL");
  assert_int_equal(sl_generate(m, &options, 1, out), SL_BAD_ARGUMENT);
  assert_non_null(strstr(sl_error(), "token 1 of the prompt is 7"));
  options.prompt_count = 1;
  options.temperature = -1;
  assert_int_equal(sl_generate(m, &options, 1, out), SL_BAD_ARGUMENT);
  options.temperature = NAN;
  assert_int_equal(sl_generate(m, &options, 1, out), SL_BAD_ARGUMENT);
  options.temperature = 1;
  OK(sl_generate(m, &options, 0, out));
  OK(sl_model_set(m, "decoder.bias", bad));
  assert_int_equal(sl_generate(m, &options, 1, out), SL_NOT_FINITE);
  sl_model_free(m);
  OK(sl_model_new(context, &SL_SHAPE(4), &m)); /* words that it could not read */
  OK(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = 3, .features = 5}));
  OK(sl_dense(m, "decoder", &(struct sl_dense_options){.features = WORDS, .positions = true}));
  assert_int_equal(sl_generate(m, &options, 1, out), SL_BAD_ARGUMENT);
  assert_non_null(strstr(sl_error(), "its embedding only 3"));
  sl_model_free(m);
  OK(sl_model_new(context, &SL_SHAPE(4), &image));
  OK(sl_dense(image, "fc", &(struct sl_dense_options){.features = 3}));
  FAILS(sl_generate(image, &options, 1, out), SL_BAD_ARGUMENT, "only models of tokens");
  assert_null(strstr(sl_error(), "layer fc"));
  sl_model_free(image);
}

int main(void) {
  setenv("STARPU_NCPU", "2", 0);
  setenv("STARPU_WORKERS_NOBIND", "1", 0);
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_likeliest_token_is_taken),
                                     cmocka_unit_test(generated_tokens_are_read),
                                     cmocka_unit_test(draws_follow_the_probabilities),
                                     cmocka_unit_test(only_the_first_words_are_drawn),
                                     cmocka_unit_test(placement_and_seed_decide),
                                     cmocka_unit_test(what_cannot_be_is_refused)};
  return cmocka_run_group_tests_name("generate", tests, open_seeded, close_context);
}
