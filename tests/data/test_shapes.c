/* The generated shapes: the same ones again, all classes alike, nothing to be had from colours
 * alone; and a round trip through CIFAR-10's files. */
#include <math.h>

#include "data/dataset.h"
#include "tests/common/files.h"

#define PLANE (32 * 32)
#define PIXELS (3 * PLANE)

static const uint8_t *samples_of(const struct sl_dataset *set) {
  return sl__as_byte_set(set)->samples;
}
static const int32_t *labels_of(const struct sl_dataset *set) {
  return sl__as_byte_set(set)->labels;
}

/* All samples are drawn. */
static struct sl_dataset *shapes(int64_t count, uint64_t seed, bool train) {
  struct sl_dataset *set;
  assert_int_equal(sl_shapes_new(count, seed, train, &set), SL_OK);
  for (int64_t i = 0; i < sl_dataset_info(set)->count; i++)
    sl__byte_set_sample(sl__as_byte_set(set), i);
  return set;
}

static void shapes_are_reproducible(void **state) {
  (void)state;
  struct sl_dataset *set = shapes(100, 3, true), *longer = shapes(200, 3, true);
  struct sl_dataset *test = shapes(100, 3, false), *other = shapes(100, 4, true);
  assert_memory_equal(samples_of(set), samples_of(longer), 100 * PIXELS);
  assert_memory_equal(labels_of(set), labels_of(longer), 100 * sizeof(int32_t));
  assert_memory_not_equal(samples_of(set), samples_of(test), 100 * PIXELS);
  assert_memory_not_equal(samples_of(set), samples_of(other), 100 * PIXELS);
  assert_memory_not_equal(labels_of(set), labels_of(test), 100 * sizeof(int32_t));
  assert_memory_not_equal(samples_of(longer), samples_of(longer) + 100 * PIXELS, 100 * PIXELS);
  sl_dataset_free(set);
  sl_dataset_free(longer);
  sl_dataset_free(test);
  sl_dataset_free(other);
  struct sl_dataset *none;
  FAILS(sl_shapes_new(-1, 1, true, &none), SL_BAD_ARGUMENT, "-1 samples");
}

static void they_are_open_by_name(void **state) {
  (void)state;
  struct sl_dataset *set;
  float values[PIXELS];
  int32_t label;
  assert_int_equal(sl_dataset_open("shapes", 1, false, &set), SL_OK);
  const struct sl_dataset_info *info = sl_dataset_info(set);
  assert_int_equal(info->count, 2000);
  assert_int_equal(info->classes, 10);
  assert_true(sl_shape_equal(&info->sample, &SL_SHAPE(3, 32, 32)));
  /* as CIFAR-10 is normalised: a byte of 0 or 255 is not far beyond two deviations */
  assert_int_equal(sl_dataset_get(set, 0, values, &label), SL_OK);
  for (int p = 0; p < PIXELS; p++) assert_true(fabsf(values[p]) < 2.2f);
  assert_true(fabs(values[0] - (samples_of(set)[0] / 255.0 - 0.4914) / 0.2470) < 1e-6);
  assert_int_equal(label, labels_of(set)[0]);
  sl_dataset_free(set);
}

/* Mean and deviation of a channel. */
static void measure(const struct sl_dataset *set, int channel, double *mean, double *deviation) {
  double sum = 0, squares = 0, n = (double)set->info.count * PLANE;
  for (int64_t i = 0; i < set->info.count; i++)
    for (int p = 0; p < PLANE; p++) {
      double v = samples_of(set)[i * PIXELS + channel * PLANE + p];
      sum += v;
      squares += v * v;
    }
  *mean = sum / n;
  *deviation = sqrt(squares / n - *mean * *mean);
}

static void classes_and_values_are_balanced(void **state) {
  (void)state;
  struct sl_dataset *set = shapes(5000, 1, true);
  int seen[10] = {0};
  for (int64_t i = 0; i < set->info.count; i++) seen[labels_of(set)[i]]++;
  for (int c = 0; c < 10; c++) assert_in_range(seen[c], 400, 600); /* 500 +- 21, binomially */
  for (int channel = 0; channel < 3; channel++) {
    double mean, deviation;
    measure(set, channel, &mean, &deviation);
    assert_true(mean > 117 && mean < 138);
    assert_true(deviation > 60 && deviation < 90);
  }
  sl_dataset_free(set);
}

/* A sample as a colour: the means of its channels; and as its texture: their deviations. */
enum { FEATURES = 6 };
static void describe(const uint8_t *sample, double *feature) {
  for (int c = 0; c < 3; c++) {
    double sum = 0, squares = 0;
    for (int p = 0; p < PLANE; p++) {
      sum += sample[c * PLANE + p];
      squares += sample[c * PLANE + p] * sample[c * PLANE + p];
    }
    feature[c] = sum / PLANE;
    feature[3 + c] = sqrt(squares / PLANE - feature[c] * feature[c]);
  }
}

static double distance(const double *a, const double *b, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

/* Samples of `test` whose class's mean, in train, is the nearest of all. */
static int nearest_means(const double *train, const int32_t *labels, int64_t count,
                         const double *test, const int32_t *truth, int64_t asked, int n) {
  double *mean = calloc(10 * (size_t)n, sizeof *mean);
  int seen[10] = {0}, right = 0;
  for (int64_t i = 0; i < count; i++) {
    seen[labels[i]]++;
    for (int k = 0; k < n; k++) mean[labels[i] * n + k] += train[i * n + k];
  }
  for (int c = 0; c < 10; c++)
    for (int k = 0; k < n; k++) mean[c * n + k] /= seen[c];
  for (int64_t i = 0; i < asked; i++) {
    int nearest = 0;
    for (int c = 1; c < 10; c++)
      if (distance(test + i * n, mean + c * n, n) < distance(test + i * n, mean + nearest * n, n))
        nearest = c;
    right += nearest == truth[i];
  }
  free(mean);
  return right;
}

/* Neither by pixels nor by colours and contrasts do class means tell much more than chance, one in
 * ten: the outline must be seen. */
static void colours_tell_no_class(void **state) {
  (void)state;
  enum { TRAIN = 2000, TEST = 500 };
  struct sl_dataset *train = shapes(TRAIN, 1, true), *test = shapes(TEST, 1, false);
  double *a = calloc(TRAIN, PIXELS * sizeof *a), *b = calloc(TEST, PIXELS * sizeof *b);
  assert_true(a && b);
  for (int i = 0; i < TRAIN; i++) describe(samples_of(train) + i * PIXELS, a + i * FEATURES);
  for (int i = 0; i < TEST; i++) describe(samples_of(test) + i * PIXELS, b + i * FEATURES);
  int colours = nearest_means(a, labels_of(train), TRAIN, b, labels_of(test), TEST, FEATURES);
  for (int64_t i = 0; i < (int64_t)TRAIN * PIXELS; i++) a[i] = samples_of(train)[i];
  for (int64_t i = 0; i < (int64_t)TEST * PIXELS; i++) b[i] = samples_of(test)[i];
  int pixels = nearest_means(a, labels_of(train), TRAIN, b, labels_of(test), TEST, PIXELS);
  printf("# nearest mean: by colours %d, by pixels %d of %d right\n", colours, pixels, TEST);
  assert_true(colours < TEST / 4);
  assert_true(pixels < TEST / 4);
  free(a);
  free(b);
  sl_dataset_free(train);
  sl_dataset_free(test);
}

/* ---- CIFAR-10's files ---- */

static void check_same(struct sl_dataset *written, bool train) {
  struct sl_dataset *read;
  float one[PIXELS], other[PIXELS];
  int32_t label, other_label;
  assert_int_equal(sl_cifar10_write(written, test_folder, train), SL_OK);
  assert_int_equal(sl_cifar10_open(test_folder, train, &read), SL_OK);
  assert_int_equal(sl_dataset_info(read)->count, sl_dataset_info(written)->count);
  for (int64_t i = 0; i < sl_dataset_info(read)->count; i++) {
    assert_int_equal(sl_dataset_get(written, i, one, &label), SL_OK);
    assert_int_equal(sl_dataset_get(read, i, other, &other_label), SL_OK);
    assert_memory_equal(one, other, sizeof one);
    assert_int_equal(label, other_label);
  }
  sl_dataset_free(read);
  sl_dataset_free(written);
}

static void files_are_read_back(void **state) {
  (void)state;
  check_same(shapes(35, 5, true), true);
  check_same(shapes(7, 5, false), false);
  assert_int_equal(count_files(), 6);
}

static void what_does_not_fit_is_refused(void **state) {
  (void)state;
  struct sl_dataset *set, *digits, *classes, *tokens;
  const uint8_t pixels[PIXELS] = {0};
  const int32_t label = 10;
  const int32_t words[4] = {0};
  set = shapes(6, 1, true);
  assert_int_equal(sl_digits_new(5, 1, true, &digits), SL_OK);
  assert_int_equal(
      sl_dataset_new("eleven", &SL_SHAPE(3, 32, 32), 1, 11, pixels, &label, NULL, NULL, &classes),
      SL_OK);
  assert_int_equal(sl_tokens_new("words", words, 4, 1, 1, &tokens), SL_OK);
  int files = count_files();
  FAILS(sl_cifar10_write(set, test_folder, true), SL_BAD_ARGUMENT, "multiple of 5");
  FAILS(sl_cifar10_write(digits, test_folder, true), SL_BAD_ARGUMENT, "[3, 32, 32]");
  FAILS(sl_cifar10_write(classes, test_folder, false), SL_BAD_ARGUMENT, "10 classes");
  FAILS(sl_cifar10_write(tokens, test_folder, false), SL_BAD_ARGUMENT, "[3, 32, 32]");
  FAILS(sl_cifar10_write(set, in_folder("nowhere"), false), SL_IO, "nowhere");
  assert_int_equal(count_files(), files);
  sl_dataset_free(set);
  sl_dataset_free(digits);
  sl_dataset_free(classes);
  sl_dataset_free(tokens);
}

static enum sl_status make_and_write(void) {
  struct sl_dataset *set;
  enum sl_status status = sl_shapes_new(5, 1, true, &set);
  if (status != SL_OK) return status;
  status = sl_cifar10_write(set, test_folder, true);
  sl_dataset_free(set);
  return status;
}

static void allocations_may_fail(void **state) {
  (void)state;
  check_allocations(make_and_write);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(shapes_are_reproducible),
                                     cmocka_unit_test(they_are_open_by_name),
                                     cmocka_unit_test(classes_and_values_are_balanced),
                                     cmocka_unit_test(colours_tell_no_class),
                                     cmocka_unit_test(files_are_read_back),
                                     cmocka_unit_test(what_does_not_fit_is_refused),
                                     cmocka_unit_test(allocations_may_fail)};
  return cmocka_run_group_tests(tests, folder_setup, folder_teardown);
}
