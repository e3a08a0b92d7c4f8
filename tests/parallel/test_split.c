/* Uneven slices. References: for the rows, sums and proportions; for the balance, every way to
 * share out a small batch; for training, one replica with the whole batch. */
#include <math.h>

#include "core/base/error.h"
#include "core/base/random.h"
#include "parallel/step/split.h"
#include "tests/common/training.h"

static int open_two(void **state) {
  (void)state;
  setenv("STARPU_NCPU", "2", 1);
  setenv("STARPU_NCUDA", "0", 1);
  return open_context_with(&(struct sl_context_options){.seed = 7, .devices = "cpu:0,cpu:1"});
}

/* ---- rows ---- */

static int64_t sum_of(int count, const int64_t *rows) {
  int64_t sum = 0;
  for (int r = 0; r < count; r++) sum += rows[r];
  return sum;
}

static void rows_are_in_proportion(void **state) {
  (void)state;
  int64_t rows[3];
  sl__split_rows((const double[]){4, 1}, 2, 100, 1, rows);
  assert_int_equal(rows[0], 80);
  assert_int_equal(rows[1], 20);
  sl__split_rows((const double[]){41, 22, 1}, 3, 64, 1, rows);
  assert_int_equal(rows[0], 41); /* what auto has said comes back as it was */
  assert_int_equal(rows[1], 22);
  assert_int_equal(rows[2], 1);
  sl__split_rows((const double[]){1000, 1}, 2, 10, 1, rows);
  assert_int_equal(rows[0], 9); /* each has one */
  assert_int_equal(rows[1], 1);
  sl__split_rows((const double[]){1000, 1, 1}, 3, 12, 3, rows);
  assert_int_equal(rows[0], 6);
  assert_int_equal(rows[1], 3);
  sl__split_rows((const double[]){2, 1}, 2, 10, 1, rows);
  assert_int_equal(rows[0], 7); /* 6.67 */
  assert_int_equal(rows[1], 3);
}

static void rows_are_exact_whatever_the_weights(void **state) {
  (void)state;
  enum { MOST = 9 };
  double share[MOST];
  int64_t rows[MOST];
  for (int trial = 0; trial < 3000; trial++) {
    uint64_t n = (uint64_t)trial;
    int count = 1 + (int)(sl__uniform(3, 0, n) * MOST);
    int64_t least = 1 + (int64_t)(sl__uniform(3, 1, n) * 3);
    int64_t batch = least * count + (int64_t)(sl__uniform(3, 2, n) * 200);
    double total = 0;
    for (int r = 0; r < count; r++) {
      share[r] = pow(10, (double)(6 * sl__uniform(3, 3 + (uint64_t)r, n) - 3));
      total += share[r];
    }
    sl__split_rows(share, count, batch, least, rows);
    assert_int_equal(sum_of(count, rows), batch);
    bool all_large = true;
    for (int r = 0; r < count; r++)
      all_large &= (double)batch * share[r] / total >= (double)least + 1;
    double end = 0, exact = 0;
    for (int r = 0; r < count; r++) {
      assert_true(rows[r] >= least);
      end += (double)rows[r];
      exact += (double)batch * share[r] / total;
      if (all_large) assert_true(fabs(end - exact) <= 0.5 + 1e-9);
    }
  }
}

static void a_batch_too_small_ends(void **state) {
  (void)state;
  int64_t rows[3];
  sl__split_rows((const double[]){5, 1, 1}, 3, 4, 2, rows); /* others refuse it */
  assert_int_equal(sum_of(3, rows), 4);
}

static void texts_are_read_strictly(void **state) {
  (void)state;
  double *share;
  OK(sl__split_parse(NULL, 2, &share));
  assert_null(share);
  OK(sl__split_parse("even", 2, &share));
  assert_null(share);
  OK(sl__split_parse("3,3", 2, &share)); /* the same bits as even */
  assert_null(share);
  OK(sl__split_parse("0.5,2e1", 2, &share));
  assert_true(share[0] == 0.5 && share[1] == 20);
  free(share);
  static const char *const bad[] = {"",      "4",      "4,1,1",   "4,",  ",4",    "4,0",
                                    "4,-1",  "4,x",    "4, 1",    "4;1", "nan,1", "inf,1",
                                    "0x4,1", "1e10,1", "1.5.2,1", "auto"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    assert_int_equal(sl__split_parse(bad[i], 2, &share), SL_BAD_ARGUMENT);
    assert_null(share);
    assert_non_null(strstr(sl_error(), "split '"));
  }
}

/* ---- balance ---- */

static double slowest_of(int count, const double *fixed, const double *slope, const int64_t *rows) {
  double slowest = 0;
  for (int r = 0; r < count; r++) slowest = fmax(slowest, fixed[r] + slope[r] * (double)rows[r]);
  return slowest;
}

static void the_balance_is_the_best_of_all(void **state) {
  (void)state;
  enum { BATCH = 17, COUNT = 3 };
  for (uint64_t n = 0; n < 200; n++) {
    double fixed[COUNT], slope[COUNT], best = INFINITY;
    int64_t rows[COUNT];
    for (uint64_t r = 0; r < COUNT; r++) {
      fixed[r] = 10 * (double)sl__uniform(5, r, n);
      slope[r] = 0.01 + 5 * (double)sl__uniform(5, 10 + r, n);
    }
    double got = sl__split_balance(COUNT, fixed, slope, BATCH, 1, rows);
    assert_int_equal(sum_of(COUNT, rows), BATCH);
    assert_true(got == slowest_of(COUNT, fixed, slope, rows));
    for (int64_t a = 1; a <= BATCH - 2; a++)
      for (int64_t b = 1; a + b < BATCH; b++)
        best = fmin(best, slowest_of(COUNT, fixed, slope, (const int64_t[]){a, b, BATCH - a - b}));
    assert_true(got <= best * (1 + 1e-12));
  }
}

/* Devices that are lines: a GPU with a long way to it, a slow CPU. */
struct fake {
  double fixed[2], slope[2];
  int calls;
};

static enum sl_status fake_measure(void *user, int k, int64_t rows, double *ms) {
  struct fake *fake = user;
  fake->calls++;
  *ms = fake->fixed[k] + fake->slope[k] * (double)rows;
  return rows < 1 ? sl__fail(SL_BAD_ARGUMENT, "no rows") : SL_OK;
}

static void measured_devices_end_together(void **state) {
  (void)state;
  struct fake fake = {.fixed = {8, 1}, .slope = {0.1, 1}};
  int64_t rows[3];
  double ms[3];
  OK(sl__split_choose(2, (const int[]){0, 1}, (const int[]){1, 1}, 2, 128, 1, fake_measure, &fake,
                      rows, ms));
  /* 8 + 0.1 a = 1 + b, a + b = 128: b = 18 */
  assert_int_equal(rows[0], 110);
  assert_int_equal(rows[1], 18);
  assert_true(fabs(ms[0] - 19) < 1e-9 && fabs(ms[1] - 19) < 1e-9);
  assert_int_equal(fake.calls, 4);
  /* two replicas on one CPU, which ends when both have: 2 + 2 b = 8 + 0.1 a, a + 2 b = 128 */
  OK(sl__split_choose(3, (const int[]){0, 1, 1}, (const int[]){1, 2, 2}, 2, 128, 1, fake_measure,
                      &fake, rows, ms));
  assert_int_equal(sum_of(3, rows), 128);
  assert_true(labs((long)(rows[1] - rows[2])) <= 1 && rows[1] + rows[2] >= 16 &&
              rows[1] + rows[2] <= 18);
}

/* A device whose second time is smaller than the first one: noise. */
static enum sl_status noisy_measure(void *user, int k, int64_t rows, double *ms) {
  (void)rows;
  int *calls = user;
  *ms = (k ? 10 : 1) * (++*calls > 2 ? 0.9 : 1.0);
  return SL_OK;
}

static void noise_does_no_harm(void **state) {
  (void)state;
  int calls = 0;
  int64_t rows[2];
  double ms[2];
  OK(sl__split_choose(2, (const int[]){0, 1}, (const int[]){1, 1}, 2, 64, 1, noisy_measure, &calls,
                      rows, ms));
  assert_int_equal(rows[0] + rows[1], 64);
  assert_true(rows[0] >= 1 && rows[1] >= 1 && isfinite(ms[0]) && isfinite(ms[1]));
}

/* ---- training ---- */

struct run {
  int replicas, microbatches;
  const char *split;
  double loss[64];
  float *weights;
  int64_t weight_count;
};
enum { STEPS = 40, BATCH = 37 }; /* of 300: the last batch of an epoch has 4 */

static struct sl_model *small_model(void) {
  struct sl_model *m;
  OK(sl_model_new(context, &SL_SHAPE(1, 28, 28), &m));
  OK(sl_conv2d(m, "conv1",
               &(struct sl_conv2d_options){
                   .channels = 4, .kernel_h = 5, .stride_h = 2, .activation = SL_ACTIVATION_TANH}));
  OK(sl_dropout(m, "drop", &(struct sl_dropout_options){.rate = 0.25f}));
  OK(sl_dense(m, "fc", &(struct sl_dense_options){.features = 10}));
  OK(sl_model_build(m));
  return m;
}

static void note_weights(struct sl_model *m, struct run *run) {
  struct sl_shape shape;
  for (int i = 0; i < sl_model_parameter_count(m); i++) {
    const char *name = sl_model_parameter(m, i, &shape);
    int64_t count = sl_shape_count(&shape);
    run->weights =
        realloc(run->weights, (size_t)(run->weight_count + count) * sizeof *run->weights);
    OK(sl_model_get(m, name, run->weights + run->weight_count));
    run->weight_count += count;
  }
}

static void train(struct run *run) {
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_model *m = small_model();
  OK(sl_digits_new(300, 3, true, &data));
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = BATCH, .seed = 5, .shuffle = true},
                   &loader));
  OK(sl_trainer_new(
      m, &(struct sl_optimizer){.lr = 0.05f, .momentum = 0.9f}, NULL,
      &(struct sl_trainer_options){
          .replicas = run->replicas, .microbatches = run->microbatches, .split = run->split},
      &trainer));
  take_steps(trainer, loader, STEPS, run->loss);
  sl_trainer_free(trainer);
  note_weights(m, run);
  sl_model_free(m);
  sl_loader_free(loader);
  sl_dataset_free(data);
}

/* And twice the same bits, but others than those of even slices. */
static void any_split_gives_the_serial_curve(void **state) {
  (void)state;
  static const struct run cases[] = {{2, 1, "4,1", {0}, 0, 0},
                                     {2, 1, "1,36", {0}, 0, 0},
                                     {2, 3, "1,30", {0}, 0, 0},
                                     {3, 2, "1,2.5,0.3", {0}, 0, 0},
                                     {4, 1, "1,9,1,9", {0}, 0, 0}};
  struct run serial = {.replicas = 1, .microbatches = 1}, even = {.replicas = 2, .microbatches = 1};
  train(&serial);
  train(&even);
  assert_true(serial.loss[STEPS - 1] < 0.9 * serial.loss[0]);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct run a = cases[i], b = cases[i];
    train(&a);
    train(&b);
    for (int s = 0; s < STEPS; s++)
      if (!(fabs(a.loss[s] - serial.loss[s]) <= 1e-5 * serial.loss[s]))
        fail_msg("split %s: step %d: loss %.9g, serial %.9g", a.split, s, a.loss[s],
                 serial.loss[s]);
    assert_memory_equal(a.weights, b.weights, (size_t)a.weight_count * sizeof *a.weights);
    assert_memory_not_equal(a.weights, even.weights, (size_t)a.weight_count * sizeof *a.weights);
    free(a.weights);
    free(b.weights);
  }
  free(serial.weights);
  free(even.weights);
}

static void equal_weights_are_even_slices(void **state) {
  (void)state;
  struct run even = {.replicas = 2, .microbatches = 2};
  struct run equal = {.replicas = 2, .microbatches = 2, .split = "3,3"};
  train(&even);
  train(&equal);
  assert_memory_equal(even.weights, equal.weights,
                      (size_t)even.weight_count * sizeof *even.weights);
  free(even.weights);
  free(equal.weights);
}

static void a_small_batch_is_refused(void **state) {
  (void)state;
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_report report;
  bool reported;
  struct sl_model *m = small_model();
  OK(sl_digits_new(30, 3, true, &data));
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = 5}, &loader));
  OK(sl_trainer_new(
      m, &(struct sl_optimizer){.lr = 0.05f}, NULL,
      &(struct sl_trainer_options){.replicas = 3, .microbatches = 2, .split = "5,1,1"}, &trainer));
  assert_int_equal(sl_trainer_step(trainer, loader, &report, &reported), SL_BAD_ARGUMENT);
  assert_non_null(strstr(sl_error(), "3 replicas x 2 microbatches"));
  sl_trainer_free(trainer);
  assert_int_equal(sl_trainer_new(m, &(struct sl_optimizer){.lr = 0.05f}, NULL,
                                  &(struct sl_trainer_options){.split = "5,1,1"}, &trainer),
                   SL_BAD_ARGUMENT); /* the devices are two */
  sl_model_free(m);
  sl_loader_free(loader);
  sl_dataset_free(data);
}

/* ---- auto ---- */

/* Cores are alike: nothing is measured, nothing changes. What differs is tested where there is a
 * GPU, or a stand-in for one. */
static void devices_that_are_alike_get_the_same(void **state) {
  (void)state;
  struct sl_trainer_options options = {.microbatches = 2};
  const struct sl_optimizer optimizer = {.lr = 0.05f};
  char *split, *table;
  struct sl_model *m = small_model();
  OK(sl_split_auto(m, &optimizer, &options, 37, &split, &table));
  assert_null(split);
  assert_null(options.split);
  assert_int_equal(options.replicas, 2);
  assert_non_null(strstr(table, "split even"));
  free(table);
  options = (struct sl_trainer_options){.microbatches = 3};
  OK(sl_split_auto(m, &optimizer, &options, 5, &split, NULL));
  assert_int_equal(options.replicas, 1); /* of two devices: each slice has a row */
  FAILS(sl_split_auto(m, &optimizer, &(struct sl_trainer_options){.microbatches = 3}, 2, &split,
                      NULL),
        SL_BAD_ARGUMENT, "a batch of 2 cannot be cut");
  options.replicas = 2;
  FAILS(sl_split_auto(m, &optimizer, &options, 5, &split, NULL), SL_BAD_ARGUMENT,
        "2 replicas x 3 microbatches");
  options.stages = 2;
  assert_int_equal(sl_split_auto(m, &optimizer, &options, 37, &split, NULL), SL_BAD_ARGUMENT);
  options.stages = 0;
  OK(sl_place(m, "conv1,drop,fc=any"));
  assert_int_equal(sl_split_auto(m, &optimizer, &options, 37, &split, NULL), SL_BAD_ARGUMENT);
  options.split = "4,1";
  assert_int_equal(sl_place_auto(m, &optimizer, &options, 37, NULL, NULL), SL_BAD_ARGUMENT);
  sl_model_free(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_are_in_proportion),
      cmocka_unit_test(rows_are_exact_whatever_the_weights),
      cmocka_unit_test(a_batch_too_small_ends),
      cmocka_unit_test(texts_are_read_strictly),
      cmocka_unit_test(the_balance_is_the_best_of_all),
      cmocka_unit_test(measured_devices_end_together),
      cmocka_unit_test(noise_does_no_harm),
      cmocka_unit_test(any_split_gives_the_serial_curve),
      cmocka_unit_test(equal_weights_are_even_slices),
      cmocka_unit_test(a_small_batch_is_refused),
      cmocka_unit_test(devices_that_are_alike_get_the_same),
  };
  return cmocka_run_group_tests(tests, open_two, close_context);
}
