/* A search for a learning rate: its losses against a network in double precision, and that the
 * training does not notice it. test_exact_ranks.sh has the ranks. */
#include <signal.h>

#include "tests/common/exact_network.h"
#include "tests/common/files.h"
#include "tests/common/small_model.h"
#include "parallel/train/rate_search.h"
#include "tests/common/training.h"

enum { SAMPLES = 43, BATCH = 18, STEPS = 40 };

static struct sl_dataset *data;

struct training {
  struct sl_model *model;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
};

static struct training begin(const struct sl_optimizer *optimizer,
                             const struct sl_trainer_options *options) {
  struct training t;
  OK(sl_model_new(context, &SL_SHAPE(1, EXACT_SIDE, EXACT_SIDE), &t.model));
  OK(exact_build(t.model));
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = BATCH}, &t.loader));
  OK(sl_trainer_new(t.model, optimizer, &(struct sl_schedule){.warmup = 30}, options, &t.trainer));
  return t;
}

static void end(struct training *t) {
  sl_trainer_free(t->trainer);
  sl_loader_free(t->loader);
  sl_model_free(t->model);
}

static void train(struct training *t, int steps) { take_steps(t->trainer, t->loader, steps, NULL); }

/* The point whose line y = a + b k through its neighbours, k from -half to half, falls most, by the
 * normal equations with sums from the first point on. */
static int64_t steepest_line(const struct sl_rate_search *s, int64_t half) {
  int64_t best = -1, n = 2 * half + 1;
  double steepest = 0;
  for (int64_t first = 0; first + n <= s->count; first++) {
    double x = 0, y = 0, xx = 0, xy = 0;
    for (int64_t k = 0; k < n; k++) {
      x += (double)k;
      y += s->points[first + k].loss;
      xx += (double)(k * k);
      xy += (double)k * s->points[first + k].loss;
    }
    double slope = ((double)n * xy - x * y) / ((double)n * xx - x * x);
    if (slope >= steepest) continue;
    steepest = slope;
    best = first + half;
  }
  return best;
}

static void losses_are_those_of_the_rates(void **state) {
  (void)state;
  static struct exact_network net;
  const struct sl_optimizer sgd = {.lr = 7, .momentum = 0.9f};
  struct training t = begin(&sgd, &(struct sl_trainer_options){.replicas = 2, .in_flight = 3});
  const struct sl_rate_search_options options = {
      .low = 1e-3, .high = 1, .steps = STEPS, .smoothing = 0.5};
  struct sl_rate_search *s;
  double smoothed = 0, weight = 0, least = 0;
  OK(exact_begin(t.model, &net));
  OK(sl_find_rate(t.trainer, t.loader, &options, &s));
  assert_true(s->count > STEPS / 2);
  for (int64_t i = 0; i < s->count; i++) {
    const struct sl_rate_point *p = &s->points[i];
    int64_t first = i * BATCH % (3 * BATCH), left = SAMPLES - first;
    struct sl_optimizer now = sgd;
    double want, rate = pow(1e3, (double)i / (STEPS - 1)) * 1e-3;
    now.lr = (float)rate;
    OK(exact_step(&net, data, first, left < BATCH ? left : BATCH, &now, &want));
    smoothed = 0.5 * smoothed + 0.5 * want;
    weight = 0.5 * weight + 0.5;
    assert_true(fabs(p->lr / rate - 1) < 1e-6);
    if (!(fabs(p->loss - want) < 1e-4 * want) || !(fabs(p->smoothed - smoothed / weight) < 1e-3))
      fail_msg("rate %g: loss %.9g, not %.9g; smoothed %.9g, not %.9g", p->lr, p->loss, want,
               p->smoothed, smoothed / weight);
    if (!i || p->smoothed < least) least = p->smoothed;
  }
  assert_true(s->steepest == s->points[steepest_line(s, STEPS / 10)].lr);
  for (int64_t i = 1; i + 1 < s->count; i++)
    if (s->points[i].lr == s->least) assert_true(s->points[i].smoothed == least);
  assert_true(s->steepest > 1e-3 && s->steepest < s->least && s->least <= 1.001);
  sl_rate_search_free(s);
  end(&t);
}

/* Losses of 1 fall to 0.3, leap to 1.1, which is no divergence, and fall again, faster. */
static void a_fall_after_a_rise_is_none(void **state) {
  (void)state;
  struct sl_rate_point points[100];
  struct sl_rate_search s = {.count = 100, .points = points};
  for (int i = 0; i < 100; i++) {
    double loss = i < 20 ? 1 : i < 50 ? 1 - 0.7 * (i - 20) / 30 : i < 65 ? 0.3 : 0.35;
    if (i >= 65 && i < 85) loss = 1.1 - 0.75 * (i - 65) / 20;
    loss += 0.01 * (i % 2 ? 1 : -1);
    points[i] =
        (struct sl_rate_point){.lr = pow(10, -6 + 0.07 * i), .loss = loss, .smoothed = loss};
  }
  sl__rate_search_judge(&s, 100);
  assert_true(s.steepest >= points[25].lr && s.steepest <= points[45].lr);
  assert_true(s.least >= points[50].lr && s.least < points[65].lr);
}

/* From -1 to 1 (Knuth's MMIX generator). */
static double draw(uint64_t *seed) {
  *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (double)(*seed >> 33) / (double)(UINT64_C(1) << 30) - 1;
}

/* A regression whose batches differ: y = w x + noise, of which the batch's part is seldom small. */
static struct sl_dataset *noisy_data(double noise, uint64_t seed) {
  enum { ROWS = 600, IN = 6 };
  static const float w[IN] = {0.9f, -0.4f, 0.7f, 0.2f, -1.1f, 0.5f};
  float x[ROWS * IN], y[ROWS];
  struct sl_dataset *table;
  for (int i = 0; i < ROWS; i++) {
    y[i] = (float)(noise * draw(&seed));
    for (int k = 0; k < IN; k++) {
      x[i * IN + k] = (float)draw(&seed);
      y[i] += w[k] * x[i * IN + k];
    }
  }
  const struct sl_dataset_options options = {
      .name = "noisy", .sample = SL_SHAPE(IN), .target = SL_SHAPE(1), .count = ROWS};
  OK(sl_dataset_floats(&options, x, y, NULL, false, &table));
  return table;
}

static void search_on(struct sl_dataset *table, struct sl_rate_search **s) {
  const struct sl_optimizer sgd = {.lr = 0.1f};
  const struct sl_loss mse = {.kind = SL_LOSS_MSE};
  struct training t;
  OK(sl_model_new(context, &SL_SHAPE(6), &t.model));
  OK(sl_dense(t.model, "hidden",
              &(struct sl_dense_options){.features = 16, .activation = SL_ACTIVATION_TANH}));
  OK(sl_dense(t.model, "out", &(struct sl_dense_options){.features = 1}));
  OK(sl_loader_new(table, &(struct sl_loader_options){.batch = 16, .shuffle = true}, &t.loader));
  OK(sl_trainer_new(t.model, &sgd, NULL, &(struct sl_trainer_options){.loss = mse}, &t.trainer));
  OK(sl_find_rate(t.trainer, t.loader, NULL, s));
  end(&t);
}

/* The rate is one that trains, whatever the first batches are; where noise hides the fall, there is
 * none, not that of a lucky batch. */
static void batches_may_differ(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 6; seed++)
    for (int noise = 0; noise < 2; noise++) {
      struct sl_dataset *table = noisy_data(noise ? 30 : 0.1, seed);
      struct sl_rate_search *s;
      search_on(table, &s);
      bool fine = noise ? s->steepest == 0 : s->steepest > 1e-3 && s->steepest < 0.2;
      if (!fine) fail_msg("seed %d: falls fastest at %g", (int)seed, s->steepest);
      assert_true(s->least > s->steepest);
      sl_rate_search_free(s);
      sl_dataset_free(table);
    }
}

/* One training searches in its middle, the other does not. */
static void a_training_does_not_notice(void **state) {
  (void)state;
  static const struct sl_optimizer optimizers[] = {{.lr = 0.1f, .momentum = 0.9f, .average = 0.9f},
                                                   {.kind = SL_LAMB, .lr = 0.01f}};
  for (int i = 0; i < 4; i++) {
    const struct sl_trainer_options options = {.replicas = 2, .eager = i % 2, .big_shard = 50};
    struct training a = begin(&optimizers[i / 2], &options),
                    b = begin(&optimizers[i / 2], &options);
    struct sl_rate_search *s;
    /* infinite at the end; also before the first step */
    const struct sl_rate_search_options far = {.low = 1e-3, .high = 1e30, .steps = 30};
    OK(sl_find_rate(a.trainer, a.loader, &far, &s));
    assert_true(s->divergence > 0.01 && s->count < 30);
    sl_rate_search_free(s);
    train(&a, 4);
    train(&b, 4);
    OK(sl_trainer_save(b.trainer, in_folder("before")));
    OK(sl_find_rate(b.trainer, b.loader, &far, &s));
    assert_true(fabs(log(s->divergence / 1e-3) / log(1e33) * 29 -
                     round(log(s->divergence / 1e-3) / log(1e33) * 29)) < 1e-6);
    sl_rate_search_free(s);
    OK(sl_trainer_save(b.trainer, in_folder("after")));
    train(&a, 4);
    train(&b, 4);
    OK(sl_trainer_save(a.trainer, in_folder("a")));
    OK(sl_trainer_save(b.trainer, in_folder("b")));
    const char *const pairs[][2] = {{"before", "after"}, {"a", "b"}};
    for (int k = 0; k < 2; k++) {
      char command[512], one[200];
      snprintf(one, sizeof one, "%s", in_folder(pairs[k][0]));
      snprintf(command, sizeof command, "cmp -s %s %s", one, in_folder(pairs[k][1]));
      if (system(command)) fail_msg("run %d: %s and %s differ", i, pairs[k][0], pairs[k][1]);
    }
    end(&a);
    end(&b);
  }
}

static void bad_options_are_refused(void **state) {
  (void)state;
  const struct sl_optimizer sgd = {.lr = 0.1f};
  struct training t = begin(&sgd, NULL);
  struct sl_rate_search *s;
  const struct {
    struct sl_rate_search_options options;
    const char *words;
  } bad[] = {{{.low = -1}, "must rise"},     {{.low = 1, .high = 1}, "must rise"},
             {{.low = NAN}, "must rise"},    {{.high = INFINITY}, "must rise"},
             {{.steps = 9}, "from 10"},      {{.smoothing = 1}, "below 1"},
             {{.smoothing = NAN}, "below 1"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    FAILS(sl_find_rate(t.trainer, t.loader, &bad[i].options, &s), SL_BAD_ARGUMENT, bad[i].words);
    assert_null(s);
  }
  train(&t, 1); /* nothing has happened */
  end(&t);
}

/* Programs note signals by sl_signals_catch; one that came in an earlier run has no say. */
static void signals_and_the_program_end_it(void **state) {
  (void)state;
  const struct sl_optimizer sgd = {.lr = 0.1f, .momentum = 0.9f};
  const struct sl_rate_search_options options = {.low = 1e-9, .high = 1e-8, .steps = 1000};
  struct training a = begin(&sgd, NULL), b = begin(&sgd, NULL);
  struct sl_rate_search *s;
  train(&a, 2), train(&b, 2);
  for (int i = 0; i < 3; i++) {
    if (i == 0) sl_signals_catch(), assert_int_equal(raise(SIGTERM), 0);
    OK(sl_find_rate(a.trainer, a.loader, &options, &s));
    if (i == 0) sl_signals_release();
    assert_true(s->divergence == 0);
    assert_true(i == 0 ? s->count > 0 && s->count < 100 : s->count == 1000);
    sl_rate_search_free(s);
    sl_trainer_stop(a.trainer); /* of a run before: it is over */
  }
  train(&a, 3), train(&b, 3);
  OK(sl_model_save(a.model, in_folder("a.safetensors")));
  OK(sl_model_save(b.model, in_folder("b.safetensors")));
  char command[512], one[200];
  snprintf(one, sizeof one, "%s", in_folder("a.safetensors"));
  snprintf(command, sizeof command, "cmp -s %s %s", one, in_folder("b.safetensors"));
  assert_int_equal(system(command), 0);
  end(&a);
  end(&b);
}

static int open_all(void **state) {
  if (open_context_with(&(struct sl_context_options){.seed = 11}) || folder_setup(state)) return 1;
  return sl_digits_new(SAMPLES, 3, true, &data) != SL_OK;
}

static int close_all(void **state) {
  sl_dataset_free(data);
  return folder_teardown(state) || close_context(state);
}

int main(void) {
  setenv("STARPU_NCPU", "2", 0);
  const struct CMUnitTest tests[] = {cmocka_unit_test(losses_are_those_of_the_rates),
                                     cmocka_unit_test(a_fall_after_a_rise_is_none),
                                     cmocka_unit_test(batches_may_differ),
                                     cmocka_unit_test(a_training_does_not_notice),
                                     cmocka_unit_test(bad_options_are_refused),
                                     cmocka_unit_test(signals_and_the_program_end_it)};
  return cmocka_run_group_tests_name("searches for a rate", tests, open_all, close_all);
}
