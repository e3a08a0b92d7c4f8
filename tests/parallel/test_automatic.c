/* The cost model, the played pipeline, and sl_place_auto. */
#include "core/base/error.h"
#include "parallel/planning/cost.h"
#include "parallel/planning/step_simulator.h"
#include "tests/common/check.h"

/* ---- the played pipeline ------------------------------------------------------------------- */

enum { LAYERS = 8 };

static double forward[LAYERS], data[LAYERS], weight[LAYERS], update[LAYERS], cuts[LAYERS];

static double period(int stages, int microbatches, int chunks, int in_flight, bool barrier) {
  int stage[LAYERS];
  double ms;
  for (int i = 0; i < LAYERS; i++) stage[i] = i * stages / LAYERS;
  const struct sl__step_model p = {.layers = LAYERS,
                                   .stages = stages,
                                   .microbatches = microbatches,
                                   .chunks = chunks,
                                   .in_flight = in_flight,
                                   .stage = stage,
                                   .forward = forward,
                                   .backward_data = data,
                                   .backward_weight = weight,
                                   .update = update,
                                   .cut_ms = cuts,
                                   .barrier = barrier};
  OK(sl__simulate_step_period(&p, &ms));
  return ms;
}

static void set_times(double f, double d, double w, double u, double cut) {
  for (int i = 0; i < LAYERS; i++) {
    forward[i] = f;
    data[i] = d;
    weight[i] = w;
    update[i] = u;
    cuts[i] = cut;
  }
}

static void assert_about(double got, double want, double tolerance) {
  if (fabs(got - want) > tolerance * want) fail_msg("%.6g, expected %.6g", got, want);
}

static void one_stage_takes_the_sum(void **state) {
  (void)state;
  set_times(1, 2, 3, 4, 0);
  assert_about(period(1, 1, 1, 1, false), LAYERS * 10, 1e-9);
  assert_about(period(1, 5, 1, 2, false), LAYERS * (5 * 6 + 4), 1e-9);
  assert_about(period(1, 5, 3, 2, true), LAYERS * (15 * 6 + 4), 1e-9);
}

/* One microbatch: forward and backward go through the stages one after the other; weight gradients
 * and updates of the late stages are done while the early ones go backward, so only the first
 * stage's show. */
static void one_microbatch_has_no_overlap(void **state) {
  (void)state;
  set_times(1, 1, 0, 0, 0);
  assert_about(period(4, 1, 1, 1, false), LAYERS * 2, 1e-9);
  set_times(1, 1, 0, 0, 0.5); /* three cuts, there and back */
  assert_about(period(4, 1, 1, 1, false), LAYERS * 2 + 3, 1e-9);
}

/* Without weight gradients to fill the gaps, one step at a time: GPipe's (m + p - 1) / m. */
static void a_step_alone_has_the_known_bubble(void **state) {
  (void)state;
  set_times(1, 1, 0, 0, 0);
  for (int m = 1; m <= 16; m *= 2) {
    double work = m * 2.0 * LAYERS / 4;
    assert_about(period(4, m, 1, 1, false), work * (m + 3) / m, 1e-9);
    assert_about(period(4, 1, m, 1, false), work * (m + 3) / m, 1e-9); /* chunks in time likewise */
  }
}

/* Weight gradients fill gaps; steps in flight close them; a barrier opens them again. */
static void what_fills_the_gaps(void **state) {
  (void)state;
  set_times(1, 1, 1, 0.1, 0);
  double work = 16 * 3.0 * LAYERS / 4 + 0.1 * LAYERS / 4;
  double alone = period(4, 16, 1, 1, false), many = period(4, 16, 1, 4, false);
  double barrier = period(4, 16, 1, 4, true);
  assert_true(alone >= work && alone < work * 19 / 16);
  assert_true(many >= work * (1 - 1e-9) && many < 1.04 * work);
  assert_true(barrier > many && barrier <= alone * 1.001);
}

/* Thousands of cells are merged: quickly done, and nearly the same answer. */
static void many_cells_are_merged(void **state) {
  (void)state;
  set_times(1, 1, 1, 1, 0);
  double few = period(4, 200, 1, 2, false) / 200, many = period(4, 4000, 100, 2, false) / 400000;
  assert_about(many, few, 0.02);
}

/* ---- automatic placement ------------------------------------------------------------------- */

enum { WORDS = 300, STEPS = 10, BATCH = 16 };

static struct sl_model *language_model(int layers, int vocabulary, int hidden) {
  struct sl_model *m;
  char name[16];
  OK(sl_model_new(context, &SL_SHAPE(STEPS), &m));
  OK(sl_embedding(m, "embed",
                  &(struct sl_embedding_options){.vocabulary = vocabulary, .features = hidden}));
  for (int i = 0; i < layers; i++) {
    snprintf(name, sizeof name, "lstm%d", i);
    OK(sl_lstm(m, name, &(struct sl_lstm_options){.features = hidden}));
  }
  OK(sl_dense(m, "decoder", &(struct sl_dense_options){.features = vocabulary, .positions = true}));
  OK(sl_model_build(m));
  return m;
}

static const struct sl_optimizer sgd = {.lr = 1};

/* Weights stay; the text is a legal placement of all layers; equal layers are shared out. */
static void layers_are_shared_out(void **state) {
  (void)state;
  struct sl_model *m = language_model(8, 11, 40);
  struct sl_trainer *trainer;
  static float before[40 * 160], after[40 * 160];
  char *table;
  double ms;
  OK(sl_model_get(m, "lstm3.weight_hh_l0", before));
  OK(sl_place_auto(m, &sgd, &(struct sl_trainer_options){.microbatches = 4}, BATCH, &ms, &table));
  OK(sl_model_get(m, "lstm3.weight_hh_l0", after));
  assert_memory_equal(before, after, sizeof before);
  assert_true(ms > 0 && ms < 1e5);
  assert_non_null(strstr(sl_placement(m), "cpu:0"));
  assert_non_null(strstr(sl_placement(m), "cpu:1"));
  assert_non_null(strstr(table, "cpu:0"));
  assert_non_null(strstr(table, "cpu:1"));
  assert_non_null(strstr(table, "ms predicted"));
  assert_null(strstr(table, "guessed")); /* it was measured */
  /* a trainer takes it */
  OK(sl_trainer_new(m, &sgd, NULL, &(struct sl_trainer_options){.microbatches = 4}, &trainer));
  sl_trainer_free(trainer);
  free(table);
  /* fewer stages, if so asked */
  OK(sl_place_auto(m, &sgd, &(struct sl_trainer_options){.microbatches = 4, .stages = 1}, BATCH,
                   &ms, NULL));
  assert_null(strchr(sl_placement(m), ';'));
  sl_model_free(m);
}

/* Two replicas: every stage takes two devices, so four workers give two stages. */
static void replicas_take_a_device_each(void **state) {
  (void)state;
  struct sl_model *m = language_model(6, 11, 40);
  struct sl_trainer *trainer;
  OK(sl_place_auto(m, &sgd, &(struct sl_trainer_options){.replicas = 2, .microbatches = 2}, BATCH,
                   NULL, NULL));
  const char *text = sl_placement(m);
  int stages = 1, commas = 0;
  for (const char *c = text; *c; c++) stages += *c == ';';
  for (const char *c = strchr(text, '='); c && *c && *c != ';'; c++) commas += *c == ',';
  assert_true(stages <= 2);
  assert_int_equal(commas, 1);
  OK(sl_trainer_new(m, &sgd, NULL, &(struct sl_trainer_options){.replicas = 2, .microbatches = 2},
                    &trainer));
  sl_trainer_free(trainer);
  sl_model_free(m);
}

/* A decoder that costs more than all else together stands alone. */
static void a_dear_decoder_stands_alone(void **state) {
  (void)state;
  struct sl_model *m = language_model(1, 40000, 32);
  OK(sl_place_auto(m, &sgd, &(struct sl_trainer_options){.microbatches = 2, .stages = 2}, BATCH,
                   NULL, NULL));
  if (!strstr(sl_placement(m), ";decoder=cpu:1")) fail_msg("%s", sl_placement(m));
  sl_model_free(m);
}

/* A guess stands in where nothing was measured: the larger of flops and bytes. */
static void guesses_are_of_the_right_kind(void **state) {
  (void)state;
  const struct sl__device cpu = {.place.where = STARPU_CPU}, gpu = {.place.where = STARPU_CUDA};
  struct sl__dry_run_task busy = {.flops = 3e9, .bytes = 10}, moving = {.flops = 10, .bytes = 1e9};
  assert_about(sl__cost_estimate(&busy, &cpu), 100, 1e-6);
  assert_about(sl__cost_estimate(&moving, &cpu), 100, 1e-6);
  assert_true(sl__cost_estimate(&busy, &gpu) < sl__cost_estimate(&busy, &cpu) / 10);
  assert_true(sl__cost_estimate(&moving, &gpu) < sl__cost_estimate(&moving, &cpu) / 10);
}

static void memory_is_counted(void **state) {
  (void)state;
  struct sl_model *m = language_model(1, 11, 40);
  const struct sl_optimizer adam = {.kind = SL_ADAM};
  struct sl__cost_case c = {.model = m, .optimizer = &adam, .rows = 3};
  /* decoder: 11 x 40 + 11 parameters, their gradients, two states; 3 x 10 x 11 outputs of 5 slices
   */
  assert_true(sl__cost_bytes(&c, 2, 5) == 4.0 * (4 * 451 + 330 * 5));
  /* lstm: 4 x 40 x (40 + 40 + 2), and 6 x 40 saved values a step */
  c.optimizer = &sgd;
  assert_true(sl__cost_bytes(&c, 1, 2) == 4.0 * (2 * 13120 + 3 * 10 * 40 * 2 * 7));
  /* embedding, of one token each: only the rows that 2 x 3 x 10 tokens touch have a gradient */
  struct sl_model *wide = language_model(1, 600, 40);
  c.model = wide;
  c.microbatches = 2;
  assert_true(sl__cost_bytes(&c, 0, 1) == 4.0 * (600 * 40 + 60 * 40 + 3 * 10 * 40));
  sl_model_free(wide);
  struct sl__device cpu = {.node = STARPU_MAIN_RAM};
  assert_true(sl__device_memory(&cpu) > 1e8);
  sl_model_free(m);
}

/* Residual, normalised; with an embedding or without. */
static struct sl_model *small_model(bool tokens) {
  struct sl_model *m;
  OK(sl_model_new(context, &SL_SHAPE(STEPS), &m));
  if (tokens)
    OK(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = 11, .features = 8}));
  else
    OK(sl_dense(m, "embed", &(struct sl_dense_options){.features = 8}));
  if (!tokens) OK(sl_batchnorm(m, "bn", &(struct sl_batchnorm_options){0}));
  OK(sl_dense(m, "fc", &(struct sl_dense_options){.features = 8, .positions = true}));
  OK(sl_add(m, "sum", &(struct sl_add_options){.layer.inputs = tokens ? "embed,fc" : "bn,fc"}));
  OK(sl_dense(m, "out", &(struct sl_dense_options){.features = 11, .positions = true}));
  OK(sl_model_build(m));
  return m;
}

/* Weights and buffers of before, and no crash, whichever allocation fails. */
static void a_failure_changes_nothing(void **state) {
  (void)state;
  struct sl_model *m = small_model(false);
  float weight[80], mean[8], variance[8], got[80];
  OK(sl_model_get(m, "embed.weight", weight));
  OK(sl_model_get(m, "bn.running_mean", mean));
  OK(sl_model_get(m, "bn.running_var", variance));
  enum sl_status status = SL_NO_MEMORY;
  for (long n = 1; status != SL_OK; n++) {
    assert_true(n < 3000);
    sl__alloc_fail_after(n);
    status =
        sl_place_auto(m, &sgd, &(struct sl_trainer_options){.microbatches = 2, .big_shard = 20},
                      BATCH, NULL, NULL);
    sl__alloc_fail_after(0);
    if (status != SL_OK) assert_int_equal(status, SL_NO_MEMORY);
    OK(sl_model_get(m, "embed.weight", got));
    assert_memory_equal(got, weight, sizeof weight);
    OK(sl_model_get(m, "bn.running_mean", got));
    assert_memory_equal(got, mean, sizeof mean);
    OK(sl_model_get(m, "bn.running_var", got));
    assert_memory_equal(got, variance, sizeof variance);
  }
  sl_model_free(m);
}

static void a_trainer_without_memory_is_an_error(void **state) {
  (void)state;
  for (int replicas = 1; replicas <= 3; replicas++) {
    struct sl_model *m = small_model(true);
    struct sl_trainer *trainer;
    enum sl_status status = SL_NO_MEMORY;
    const struct sl_optimizer adam = {.kind = SL_ADAM, .clip = 1};
    for (long n = 1; status != SL_OK; n++) {
      assert_true(n < 3000);
      sl__alloc_fail_after(n);
      status = sl_trainer_new(m, replicas == 2 ? &adam : &sgd, NULL,
                              &(struct sl_trainer_options){.replicas = replicas, .big_shard = 30},
                              &trainer);
      sl__alloc_fail_after(0);
      if (status != SL_OK) assert_int_equal(status, SL_NO_MEMORY);
    }
    sl_trainer_free(trainer);
    sl_model_free(m);
  }
}

/* Shards in use stay as they are cut. */
static void two_trainers_cut_alike(void **state) {
  (void)state;
  struct sl_model *m = small_model(true);
  struct sl_trainer *first, *second;
  const struct sl_trainer_options whole = {.replicas = 1}, cut = {.replicas = 1, .big_shard = 20};
  OK(sl_trainer_new(m, &sgd, NULL, &whole, &first));
  OK(sl_trainer_new(m, &sgd, NULL, &whole, &second));
  sl_trainer_free(second);
  assert_int_equal(sl_trainer_new(m, &sgd, NULL, &cut, &second), SL_BAD_ARGUMENT);
  assert_non_null(strstr(sl_error(), "another trainer"));
  assert_int_equal(sl_place_auto(m, &sgd, &cut, BATCH, NULL, NULL), SL_BAD_ARGUMENT);
  sl_trainer_free(first);
  OK(sl_trainer_new(m, &sgd, NULL, &cut, &first));
  OK(sl_trainer_new(m, &sgd, NULL, &whole, &second)); /* takes the cut that is there */
  sl_trainer_free(first);
  sl_trainer_free(second);
  sl_model_free(m);
}

/* A batch with fewer rows than slices: the words of the trainer, whatever the layers. */
static void too_small_a_batch_is_told(void **state) {
  (void)state;
  struct sl_model *m;
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_report report;
  bool reported;
  OK(sl_digits_new(10, 1, true, &data));
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = 2}, &loader));
  OK(sl_model_new(context, &SL_SHAPE(1, 28, 28), &m));
  OK(sl_batchnorm(m, "bn", &(struct sl_batchnorm_options){0}));
  OK(sl_dense(m, "fc", &(struct sl_dense_options){.features = 10}));
  OK(sl_trainer_new(m, &sgd, NULL, &(struct sl_trainer_options){.replicas = 4}, &trainer));
  assert_int_equal(sl_trainer_step(trainer, loader, &report, &reported), SL_BAD_ARGUMENT);
  assert_non_null(strstr(sl_error(), "a batch of 2 cannot be cut into 4 replicas"));
  sl_trainer_free(trainer);
  sl_model_free(m);
  sl_loader_free(loader);
  sl_dataset_free(data);
}

static void what_cannot_be_is_refused(void **state) {
  (void)state;
  struct sl_model *m = language_model(1, 11, 8);
  assert_int_equal(
      sl_place_auto(m, &sgd, &(struct sl_trainer_options){.microbatches = 20}, BATCH, NULL, NULL),
      SL_BAD_ARGUMENT);
  assert_int_equal(
      sl_place_auto(m, &sgd, &(struct sl_trainer_options){.chunk = -1}, BATCH, NULL, NULL),
      SL_BAD_ARGUMENT);
  assert_int_equal(sl_place_auto(m, &(struct sl_optimizer){.lr = -1}, NULL, BATCH, NULL, NULL),
                   SL_BAD_ARGUMENT);
  assert_int_equal(
      sl_place_auto(m, &sgd, &(struct sl_trainer_options){.replicas = 5}, BATCH, NULL, NULL),
      SL_BAD_ARGUMENT);
  assert_non_null(strstr(sl_error(), "5 replicas need as many devices"));
  assert_int_equal(
      sl_place_auto(m, &sgd, &(struct sl_trainer_options){.in_flight = -1}, BATCH, NULL, NULL),
      SL_BAD_ARGUMENT);
  assert_int_equal(
      sl_place_auto(m, &sgd, &(struct sl_trainer_options){.big_shard = -1}, BATCH, NULL, NULL),
      SL_BAD_ARGUMENT);
  assert_null(sl_placement(m));
  sl_model_free(m);
}

int main(void) {
  setenv("STARPU_NCPU", "4", 0);
  const struct CMUnitTest tests[] = {cmocka_unit_test(one_stage_takes_the_sum),
                                     cmocka_unit_test(one_microbatch_has_no_overlap),
                                     cmocka_unit_test(a_step_alone_has_the_known_bubble),
                                     cmocka_unit_test(what_fills_the_gaps),
                                     cmocka_unit_test(many_cells_are_merged),
                                     cmocka_unit_test(layers_are_shared_out),
                                     cmocka_unit_test(replicas_take_a_device_each),
                                     cmocka_unit_test(a_dear_decoder_stands_alone),
                                     cmocka_unit_test(guesses_are_of_the_right_kind),
                                     cmocka_unit_test(memory_is_counted),
                                     cmocka_unit_test(a_failure_changes_nothing),
                                     cmocka_unit_test(a_trainer_without_memory_is_an_error),
                                     cmocka_unit_test(two_trainers_cut_alike),
                                     cmocka_unit_test(too_small_a_batch_is_told),
                                     cmocka_unit_test(what_cannot_be_is_refused)};
  return cmocka_run_group_tests_name("automatic", tests, open_operations, close_context);
}
