/* The arithmetic of curves: smoothing against the definition of an exponential mean, and values
 * between samples. */
#include <math.h>

#include "tests/common/files.h"
#include "tests/common/harness.h"
#include "tools/common/curves.h"

static struct series series_of(size_t count, double (*y)(size_t i)) {
  struct series series = {0};
  for (size_t i = 0; i < count; i++) assert_true(series_append(&series, (double)i, y(i)));
  return series;
}

static double constant(size_t i) {
  (void)i;
  return 2.5;
}
static double odd(size_t i) { return i % 3 ? -1.0 / (double)i : (double)(i * i % 7); }

static void a_constant_stays(void **state) {
  (void)state;
  struct series flat = series_of(50, constant), smooth = {0};
  assert_true(series_smooth(&flat, 9, &smooth));
  assert_int_equal(smooth.count, 50);
  for (size_t i = 0; i < smooth.count; i++) assert_true(fabs(smooth.samples[i].y - 2.5) < 1e-12);
  free(flat.samples), free(smooth.samples);
}

/* A mean of all values so far, whose weights fall by 1 - 2 / (window + 1) a step. */
static void means_are_weighted(void **state) {
  (void)state;
  static const double windows[] = {0, 1, 3, 20};
  struct series values = series_of(40, odd);
  for (int w = 0; w < 4; w++) {
    struct series smooth = {0};
    double keep = windows[w] > 1 ? 1 - 2 / (windows[w] + 1) : 0;
    assert_true(series_smooth(&values, windows[w], &smooth));
    for (size_t i = 0; i < values.count; i++) {
      double sum = 0, weights = 0;
      for (size_t k = 0; k <= i; k++) {
        double weight = keep > 0 ? pow(keep, (double)(i - k)) : k == i;
        sum += weight * values.samples[k].y;
        weights += weight;
      }
      assert_true(fabs(smooth.samples[i].y - sum / weights) < 1e-12);
      assert_true(smooth.samples[i].x == (double)i);
    }
    free(smooth.samples);
  }
  free(values.samples);
}

static void values_between_samples(void **state) {
  (void)state;
  struct series series = {0};
  assert_true(series_at(&series, 3) == 0);
  assert_true(series_append(&series, 2, 10) && series_append(&series, 6, 30));
  assert_true(fabs(series_at(&series, 1) - 5) < 1e-12); /* from 0 at 0 */
  assert_true(fabs(series_at(&series, 3) - 15) < 1e-12);
  assert_true(fabs(series_at(&series, 6) - 30) < 1e-12);
  assert_true(fabs(series_at(&series, 99) - 30) < 1e-12);
  free(series.samples);
}

/* The log of its own of a run that goes on in the middle of an epoch of 100 steps. */
static void a_log_begins_within_an_epoch(void **state) {
  (void)state;
  struct run_curves run;
  char message[200];
  FILE *log = fopen(in_folder("log"), "w");
  fputs("{\"format\": \"starling log\", \"version\": 1, \"from\": 150}\n", log);
  fputs("{\"step\": 150, \"resumed\": \"x\"}\n", log);
  fputs("{\"epoch\": 2, \"test_loss\": 7}\n", log);
  for (int step = 150; step < 310; step++)
    fprintf(log, "{\"step\": %d, \"epoch\": %d, \"loss\": 1}\n", step, step / 100 + 1);
  assert_int_equal(fclose(log), 0);
  assert_true(curves_read(in_folder("log"), &run, message, sizeof message));
  assert_int_equal(run.epochs.count, 160);
  for (size_t i = 0; i < 160; i++)
    assert_true(fabs(run.epochs.samples[i].y - 1e-2 * (double)(151 + i)) < 1e-9);
  for (size_t i = 0; i < 2; i++)
    assert_true(json_number_value(json_object_get(json_array_get(run.notes, i), "after")) == 150);
  assert_true(run.test_loss.samples[0].x == 150);
  curves_free(&run);
}

/* The same of a run of 10 epochs of 100 steps that goes on with twice the batch. */
static void epochs_may_become_shorter(void **state) {
  (void)state;
  struct run_curves run;
  char message[200];
  FILE *log = fopen(in_folder("log"), "w");
  fputs("{\"format\": \"starling log\", \"version\": 1, \"from\": 1000}\n", log);
  for (int step = 1000; step < 1120; step++)
    fprintf(log, "{\"step\": %d, \"epoch\": %d, \"loss\": 1}\n", step, (step - 1000) / 50 + 11);
  assert_int_equal(fclose(log), 0);
  assert_true(curves_read(in_folder("log"), &run, message, sizeof message));
  assert_int_equal(run.epochs.count, 120);
  for (size_t i = 0; i < 120; i++)
    assert_true(fabs(run.epochs.samples[i].y - 10 - 0.02 * (double)(i + 1)) < 1e-9);
  curves_free(&run);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_constant_stays), cmocka_unit_test(means_are_weighted),
      cmocka_unit_test(values_between_samples), cmocka_unit_test(a_log_begins_within_an_epoch),
      cmocka_unit_test(epochs_may_become_shorter)};
  return cmocka_run_group_tests_name("curves", tests, folder_setup, folder_teardown);
}
