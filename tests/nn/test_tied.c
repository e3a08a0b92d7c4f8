/* A decoder tied to the embedding: one weight, two layers. Reference: the untied model with equal
 * weights, whose two gradients add up. */
#include <math.h>
#include <unistd.h>

#include "core/base/random.h"
#include "core/base/safetensors.h"
#include "tests/common/training.h"

enum { WORDS = 13, WIDTH = 7, TOKENS = 601, WINDOW = 6, BATCH = 12, STEPS = 50, TABLE = 13 * 7 };

static struct sl_dataset *data;

static int open_text(void **state) {
  (void)state;
  int32_t text[TOKENS] = {0};
  for (int i = 1; i < TOKENS; i++) {
    struct sl__random4 r = sl__philox(4, 4, (uint64_t)i);
    text[i] = r.v[0] % 4 ? (text[i - 1] * 3 + 1) % WORDS : (int32_t)(r.v[1] % WORDS);
  }
  OK(sl_tokens_new("text", text, TOKENS, WINDOW, WORDS, &data));
  return open_context_with(&(struct sl_context_options){.seed = 7});
}

static int close_text(void **state) {
  sl_dataset_free(data);
  return close_context(state);
}

static struct sl_model *model_of(bool tied, bool bias) {
  struct sl_model *m;
  const struct sl_layer_options small = {.init = SL_INIT_UNIFORM};
  OK(sl_model_new(context, &SL_SHAPE(WINDOW), &m));
  OK(sl_embedding(
      m, "embed",
      &(struct sl_embedding_options){.layer = small, .vocabulary = WORDS, .features = WIDTH}));
  OK(sl_gru(m, "gru", &(struct sl_gru_options){.features = WIDTH}));
  OK(sl_dense(m, "decoder",
              &(struct sl_dense_options){.layer.shares = tied ? "embed" : NULL,
                                         .features = WORDS,
                                         .no_bias = !bias,
                                         .positions = true}));
  OK(sl_model_build(m));
  return m;
}

static void train(struct sl_model *m, const struct sl_trainer_options *options, int steps,
                  double *losses) {
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = BATCH}, &loader));
  OK(sl_trainer_new(m, &(struct sl_optimizer){.lr = 4}, NULL, options, &trainer));
  take_steps(trainer, loader, steps, losses);
  sl_trainer_free(trainer);
  sl_loader_free(loader);
}

/* After one step of plain SGD: tied = start + both of the untied model's changes. */
static void both_gradients_add_up(void **state) {
  (void)state;
  for (int bias = 0; bias < 2; bias++) {
    struct sl_model *tied = model_of(true, bias), *apart = model_of(false, bias);
    float start[TABLE], in[TABLE], out[TABLE], got[TABLE], tied_bias[WORDS], apart_bias[WORDS];
    double loss[2][1];
    assert_int_equal(sl_model_parameters(apart) - sl_model_parameters(tied), TABLE);
    OK(sl_model_get(tied, "embed.weight", start));
    OK(sl_model_set(apart, "embed.weight", start));
    OK(sl_model_set(apart, "decoder.weight", start));
    /* one replica, three microbatches: what is added to what matters */
    const struct sl_trainer_options options = {.replicas = 1, .microbatches = 3};
    train(tied, &options, 1, loss[0]);
    train(apart, &options, 1, loss[1]);
    assert_true(fabs(loss[0][0] - loss[1][0]) < 1e-6);
    OK(sl_model_get(apart, "embed.weight", in));
    OK(sl_model_get(apart, "decoder.weight", out));
    OK(sl_model_get(tied, "embed.weight", got));
    double moved = 0;
    for (int i = 0; i < TABLE; i++) {
      double want = (double)in[i] + (double)out[i] - (double)start[i];
      moved = fmax(moved, fabs((double)in[i] - (double)start[i]));
      if (fabs((double)got[i] - want) > 2e-6) fail_msg("%d: %.9g, not %.9g", i, got[i], want);
    }
    assert_true(moved > 1e-3);
    if (bias) {
      OK(sl_model_get(apart, "decoder.bias", apart_bias));
      OK(sl_model_get(tied, "decoder.bias", tied_bias));
      for (int i = 0; i < WORDS; i++) assert_true(fabsf(apart_bias[i] - tied_bias[i]) < 1e-6f);
    }
    sl_model_free(tied);
    sl_model_free(apart);
  }
}

static void any_cut_gives_the_serial_curve(void **state) {
  (void)state;
  static const struct sl_trainer_options cuts[] = {
      {.replicas = 3},
      {.replicas = 1, .microbatches = 4},
      {.replicas = 2, .chunk = 2, .microbatches = 2},
      {.replicas = 1, .stages = 3, .microbatches = 2, .kvstore = SL_KVSTORE_DEVICE},
      {.replicas = 2, .big_shard = 20}};
  double serial[STEPS], cut[STEPS];
  struct sl_model *m = model_of(true, true);
  train(m, &(struct sl_trainer_options){.replicas = 1}, STEPS, serial);
  sl_model_free(m);
  assert_true(serial[STEPS - 1] < 0.9 * serial[0]);
  for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
    m = model_of(true, true);
    train(m, &cuts[i], STEPS, cut);
    sl_model_free(m);
    for (int s = 0; s < STEPS; s++)
      if (fabs(cut[s] - serial[s]) > 1e-5 * serial[s])
        fail_msg("cut %zu, step %d: loss %.9g, serial %.9g", i, s, cut[s], serial[s]);
  }
}

/* PyTorch's file has the weight under both names. */
static void files_may_have_it_twice(void **state) {
  (void)state;
  char path[] = "/tmp/starling-tied-XXXXXX";
  close(mkstemp(path));
  struct sl_model *tied = model_of(true, true), *apart = model_of(false, true);
  float table[TABLE], got[TABLE];
  for (int i = 0; i < TABLE; i++) table[i] = (float)i / 100;
  OK(sl_model_save(apart, path)); /* two weights that differ */
  assert_int_equal(sl_model_load(tied, path), SL_BAD_FILE);
  assert_non_null(strstr(sl_error(), "\"decoder.weight\" and \"embed.weight\" differ"));
  OK(sl_model_set(apart, "embed.weight", table));
  OK(sl_model_set(apart, "decoder.weight", table));
  OK(sl_model_save(apart, path));
  OK(sl_model_load(tied, path));
  OK(sl_model_get(tied, "embed.weight", got));
  assert_memory_equal(got, table, sizeof table);
  for (int at = 1; at < TABLE; at += TABLE - 2) { /* one value, the second one or the last */
    table[at] += 1;
    OK(sl_model_set(apart, "decoder.weight", table));
    table[at] -= 1;
    OK(sl_model_save(apart, path));
    FAILS(sl_model_load(tied, path), SL_BAD_FILE, "differ");
  }
  OK(sl_model_save(tied, path)); /* once is enough, too; but not for a model with two */
  OK(sl_model_load(tied, path));
  assert_int_not_equal(sl_model_load(apart, path), SL_OK);
  unlink(path);
  sl_model_free(tied);
  sl_model_free(apart);
}

/* safetensors' save_model keeps one name of a shared weight, which need not be the embedding's. */
static void files_may_have_the_second_name_alone(void **state) {
  (void)state;
  char path[] = "/tmp/starling-tied-XXXXXX";
  close(mkstemp(path));
  struct sl_model *tied = model_of(true, false), *apart = model_of(false, false);
  float table[TABLE], got[TABLE];
  struct sl__safetensors *whole;
  struct sl__safetensors_entry entries[16];
  size_t count = 0;
  for (int i = 0; i < TABLE; i++) table[i] = (float)i / 100;
  OK(sl_model_set(apart, "decoder.weight", table));
  OK(sl_model_save(apart, path));
  OK(sl__safetensors_open(path, &whole));
  for (size_t i = 0; i < sl__safetensors_count(whole); i++)
    if (strcmp(sl__safetensors_at(whole, i)->name, "embed.weight") != 0)
      entries[count++] = *sl__safetensors_at(whole, i);
  OK(sl__safetensors_write(path, entries, count, NULL, NULL));
  OK(sl_model_load(tied, path));
  OK(sl_model_get(tied, "embed.weight", got));
  assert_memory_equal(got, table, sizeof table);
  for (size_t i = 0; i < count; i++) /* without both names it is refused, not left at random */
    if (!strcmp(entries[i].name, "decoder.weight")) entries[i] = entries[--count];
  OK(sl__safetensors_write(path, entries, count, NULL, NULL));
  FAILS(sl_model_load(tied, path), SL_BAD_FILE, "no tensor \"embed.weight\"");
  sl__safetensors_close(whole);
  unlink(path);
  sl_model_free(tied);
  sl_model_free(apart);
}

static void what_cannot_be_shared_is_refused(void **state) {
  (void)state;
  struct sl_model *m;
  OK(sl_model_new(context, &SL_SHAPE(WINDOW), &m));
  OK(sl_embedding(m, "embed",
                  &(struct sl_embedding_options){.vocabulary = WORDS, .features = WIDTH}));
  assert_int_equal(
      sl_lstm(m, "lstm", &(struct sl_lstm_options){.layer.shares = "embed", .features = WIDTH}),
      SL_BAD_ARGUMENT);
  assert_non_null(strstr(sl_error(), "only dense layers"));
  OK(sl_lstm(m, "lstm", &(struct sl_lstm_options){.features = WIDTH}));
  struct sl_dense_options dense = {.features = WORDS, .positions = true};
  dense.layer.shares = "lstm";
  assert_int_equal(sl_dense(m, "decoder", &dense), SL_BAD_ARGUMENT);
  dense.layer.shares = "missing";
  assert_int_equal(sl_dense(m, "decoder", &dense), SL_BAD_ARGUMENT);
  dense.layer.shares = "embed";
  dense.features = WORDS + 1;
  assert_int_equal(sl_dense(m, "decoder", &dense), SL_BAD_SHAPE);
  assert_non_null(strstr(sl_error(), "[13, 7]"));
  dense.features = WORDS;
  OK(sl_dense(m, "decoder", &dense));
  assert_int_equal(sl_dense(m, "again", &dense),
                   SL_BAD_ARGUMENT); /* its input is no match either */
  sl_model_free(m);
}

int main(void) {
  setenv("STARPU_NCPU", "3", 0);
  setenv("STARPU_WORKERS_NOBIND", "1", 0);
  const struct CMUnitTest tests[] = {cmocka_unit_test(both_gradients_add_up),
                                     cmocka_unit_test(any_cut_gives_the_serial_curve),
                                     cmocka_unit_test(files_may_have_it_twice),
                                     cmocka_unit_test(files_may_have_the_second_name_alone),
                                     cmocka_unit_test(what_cannot_be_shared_is_refused)};
  return cmocka_run_group_tests_name("tied", tests, open_text, close_text);
}
