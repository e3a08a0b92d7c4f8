/* Datasets of floats with targets or labels, and of the program's own: values and their
 * normalisation, batches and their order, missing targets, and descriptions and values that are
 * refused with the sample's number. */
#include <limits.h>
#include <math.h>

#include "core/base/error.h"
#include "data/dataset.h"
#include "tests/common/harness.h"

enum { COUNT = 11, FEATURES = 3, TARGETS = 2 };

static float inputs[COUNT * FEATURES], targets[COUNT * TARGETS];
static int32_t labels[COUNT];

/* Value i of sample n is 100 n + i; its targets are n and -n. */
static void make_values(void) {
  for (int i = 0; i < COUNT * FEATURES; i++)
    inputs[i] = (float)(100 * (i / FEATURES) + i % FEATURES);
  for (int n = 0; n < COUNT; n++) {
    targets[2 * n] = (float)n;
    targets[2 * n + 1] = (float)-n;
    labels[n] = 1000 + n;
  }
}

static struct sl_dataset_options regression(void) {
  make_values();
  return (struct sl_dataset_options){
      .name = "table", .sample = SL_SHAPE(FEATURES), .target = SL_SHAPE(TARGETS), .count = COUNT};
}

static struct sl_dataset *new_floats(const struct sl_dataset_options *options, bool borrow) {
  struct sl_dataset *set;
  OK(sl_dataset_floats(options, inputs, options->target.ndim ? targets : NULL,
                       options->target.ndim ? NULL : labels, borrow, &set));
  return set;
}

/* ---- values ---- */

static void test_values(void **state) {
  (void)state;
  struct sl_dataset_options options = regression();
  float x[FEATURES], t[TARGETS];
  int32_t label;
  for (int borrow = 0; borrow < 2; borrow++) {
    struct sl_dataset *set = new_floats(&options, borrow);
    inputs[3] = 5; /* the caller's own again */
    OK(sl_dataset_get_targets(set, 1, x, t));
    assert_true(x[0] == (borrow ? 5.0f : 100.0f) && x[2] == 102);
    assert_true(t[0] == 1 && t[1] == -1);
    FAILS(sl_dataset_get_targets(set, COUNT, x, t), SL_BAD_ARGUMENT, "no sample 11");
    FAILS(sl_dataset_get(set, 0, x, &label), SL_UNSUPPORTED, "sl_dataset_get_targets");
    const struct sl_dataset_info *info = sl_dataset_info(set);
    assert_int_equal(info->classes, 0);
    assert_true(sl_shape_equal(&info->target, &SL_SHAPE(TARGETS)));
    assert_true(info->target_channels == 1 && info->target_deviation[0] == 1 && !info->bytes);
    sl_dataset_free(set);
    make_values();
  }
}

/* Labels of more than 8 bits. */
static void test_labels(void **state) {
  (void)state;
  struct sl_dataset_options options = regression();
  float x[FEATURES], t[TARGETS];
  int32_t label;
  options.target = (struct sl_shape){0};
  options.classes = 1000 + COUNT;
  struct sl_dataset *set = new_floats(&options, false);
  OK(sl_dataset_get(set, 7, x, &label));
  assert_int_equal(label, 1007);
  FAILS(sl_dataset_get_targets(set, 0, x, t), SL_UNSUPPORTED, "call sl_dataset_get");
  sl_dataset_free(set);
}

/* By channels of the inputs, and all targets alike. */
static void test_normalisation(void **state) {
  (void)state;
  struct sl_dataset_options options = regression();
  const float mean[FEATURES] = {1, 2, 3}, deviation[FEATURES] = {2, -4, 0.5f};
  float x[FEATURES], t[TARGETS], found[2][FEATURES];
  options.channels = FEATURES;
  options.mean = mean;
  options.deviation = deviation;
  options.target_channels = 1;
  options.target_deviation = &(float){4};
  struct sl_dataset *set = new_floats(&options, false);
  OK(sl_dataset_get_targets(set, 2, x, t));
  assert_true(x[0] == 199.0f / 2 && x[1] == 199.0f / -4 && x[2] == 199.0f / 0.5f);
  assert_true(t[0] == 0.5f && t[1] == -0.5f);
  assert_true(sl_dataset_info(set)->target_mean[0] == 0);
  sl_dataset_free(set);

  options.channels = 1;
  options.mean = &(float){0};
  options.deviation = &(float){1e-37f};
  set = new_floats(&options, false);
  FAILS(sl_dataset_get_targets(set, 2, x, t), SL_BAD_ARGUMENT,
        "sample 2: value 0 is too large for f32 when it is normalised");
  sl_dataset_free(set);

  OK(sl_measure(inputs, COUNT, &SL_SHAPE(FEATURES), FEATURES, found[0], found[1]));
  for (int c = 0; c < FEATURES; c++) { /* of 0, 100, ... 1000, and c */
    assert_true(fabsf(found[0][c] - (float)(500 + c)) < 1e-3f);
    assert_true(fabsf(found[1][c] - 316.227766f) < 1e-3f);
  }
  OK(sl_measure((float[]){7, NAN, 7}, 3, &SL_SHAPE(1), 1, found[0], found[1]));
  assert_true(found[0][0] == 7 && found[1][0] == 1);
  FAILS(sl_measure((float[]){NAN, NAN}, 2, &SL_SHAPE(1), 1, found[0], found[1]), SL_BAD_ARGUMENT,
        "channel 0");
  FAILS(sl_measure((float[]){1, INFINITY}, 1, &SL_SHAPE(2), 2, found[0], found[1]), SL_BAD_ARGUMENT,
        "channel 1");
  FAILS(sl_measure(inputs, COUNT, &SL_SHAPE(FEATURES), 2, found[0], found[1]), SL_BAD_ARGUMENT,
        "give 1 or 3");
  FAILS(
      sl_measure(inputs, COUNT, &(struct sl_shape){.ndim = 77, .dim = {1}}, 1, found[0], found[1]),
      SL_BAD_ARGUMENT, "shape [?] is impossible");
  FAILS(sl_measure(inputs, COUNT, &SL_SHAPE(-3), 1, found[0], found[1]), SL_BAD_ARGUMENT,
        "shape [-3] is impossible");
}

/* ---- refusals ---- */

static void test_refused(void **state) {
  (void)state;
  struct sl_dataset_options options = regression(), bad;
  struct sl_dataset *set;
#define REFUSED(change, text)                                                                      \
  bad = options;                                                                                   \
  bad.change;                                                                                      \
  FAILS(sl_dataset_floats(&bad, inputs, targets, NULL, true, &set), SL_BAD_ARGUMENT, text)
  REFUSED(count = 0, "0 samples");
  REFUSED(classes = 3, "beside targets");
  REFUSED(target = SL_SHAPE(0), "targets' shape");
  REFUSED(sample = SL_SHAPE(1, 1, 1, 1, 1), "samples' shape");
  REFUSED(deviation = &(float){0}; bad.channels = 1, "deviation 0");
  REFUSED(deviation = inputs; bad.channels = 2, "give 1 or 3");
  REFUSED(target = (struct sl_shape){0}; bad.classes = SL_MAX_CLASSES + 1, "classes");
  REFUSED(target = (struct sl_shape){0}; bad.classes = 3, "labels and no targets");
  FAILS(sl_dataset_floats(&options, inputs, targets, labels, true, &set), SL_BAD_ARGUMENT,
        "targets and no labels");
  inputs[4 * FEATURES + 1] = INFINITY;
  REFUSED(count = COUNT, "sample 4: value 1 is infinite");
  make_values();
  targets[9] = NAN;
  REFUSED(count = COUNT, "sample 4: target 1 is not a number; leave the sample out, or allow");
  targets[9] = -INFINITY;
  REFUSED(missing = true, "sample 4: target 1 is minus infinite");
  options.target = (struct sl_shape){0};
  options.classes = 1000 + COUNT - 1;
  FAILS(sl_dataset_floats(&options, inputs, NULL, labels, true, &set), SL_BAD_ARGUMENT,
        "sample 10: label is 1010");
#undef REFUSED
}

/* Each allocation fails once. */
static void test_no_memory(void **state) {
  (void)state;
  struct sl_dataset_options options = regression();
  struct sl_dataset *set;
  enum sl_status status = SL_NO_MEMORY;
  long n = 0;
  while (status != SL_OK) {
    sl__alloc_fail_after(++n);
    status = sl_dataset_floats(&options, inputs, targets, NULL, false, &set);
    if (status != SL_OK) assert_int_equal(status, SL_NO_MEMORY);
  }
  sl__alloc_fail_after(0);
  assert_true(n > 5);
  sl_dataset_free(set);
}

static void count_release(void *user) { ++*(int *)user; }

static void test_release(void **state) {
  (void)state;
  struct sl_dataset_options options = regression();
  int released = 0;
  options.release = count_release;
  options.user = &released;
  sl_dataset_free(new_floats(&options, true));
  assert_int_equal(released, 1);
  inputs[0] = NAN;
  struct sl_dataset *set;
  FAILS(sl_dataset_floats(&options, inputs, targets, NULL, true, &set), SL_BAD_ARGUMENT, "value 0");
  assert_int_equal(released, 1);
}

/* ---- batches ---- */

/* Every sample once an epoch in all parts together; rows behind the last one are NaN. */
static void test_batches(void **state) {
  (void)state;
  struct sl_dataset_options options = regression();
  options.missing = true;
  make_values();
  targets[2 * 3] = NAN;
  struct sl_dataset *set = new_floats(&options, true);
  int seen[COUNT] = {0};
  int64_t valid = 0;
  for (int part = 0; part < 2; part++) {
    struct sl_loader *loader;
    struct sl_batch batch;
    OK(sl_loader_new(
        set,
        &(struct sl_loader_options){
            .batch = 4, .shuffle = true, .seed = 1, .num_parts = 2, .part_index = part},
        &loader));
    for (int64_t k = 0; k < sl_loader_length(loader); k++) {
      OK(sl_loader_next(loader, &batch));
      assert_null(batch.labels);
      assert_ptr_equal(batch.targets, sl_loader_slot_targets(loader, batch.slot));
      valid += batch.valid;
      for (int row = 0; row < 4; row++) {
        const float *t = batch.targets + (size_t)(row * TARGETS);
        if (isnan(t[1]))
          continue; /* a repeated row; of sample 3 only the first target is missing */
        int n = (int)(batch.x[row * FEATURES] / 100);
        assert_true(n == 3 ? isnan(t[0]) : t[0] == (float)n);
        seen[n]++;
      }
      sl_loader_recycle(loader, batch.slot);
    }
    sl_loader_free(loader);
  }
  for (int n = 0; n < COUNT; n++) assert_int_equal(seen[n], 1);
  assert_int_equal(valid, COUNT * TARGETS - 1);
  sl_dataset_free(set);
}

/* Images of floats are shifted and mirrored as those of bytes; the pixels that come in are 0 before
 * normalisation. */
static void test_augmentation(void **state) {
  (void)state;
  enum { SIDE = 4, SIZE = 2 * SIDE * SIDE, IMAGES = 8 };
  static uint8_t bytes[IMAGES * SIZE];
  static float values[IMAGES * SIZE];
  static int32_t classes[IMAGES];
  const float mean[2] = {0.25f, 0.5f}, deviation[2] = {0.5f, 2};
  for (int i = 0; i < IMAGES * SIZE; i++) {
    bytes[i] = (uint8_t)(i * 7);
    values[i] = (float)bytes[i] / 255.0f;
  }
  struct sl_dataset *sets[2];
  struct sl_loader *loaders[2];
  struct sl_batch batches[2];
  const struct sl_shape sample = SL_SHAPE(2, SIDE, SIDE);
  OK(sl_dataset_new("bytes", &sample, IMAGES, 1, bytes, classes, mean, deviation, &sets[0]));
  OK(sl_dataset_floats(&(struct sl_dataset_options){.name = "floats",
                                                    .sample = sample,
                                                    .count = IMAGES,
                                                    .classes = 1,
                                                    .channels = 2,
                                                    .mean = mean,
                                                    .deviation = deviation},
                       values, NULL, classes, true, &sets[1]));
  for (int i = 0; i < 2; i++) {
    const struct sl_loader_options options = {.batch = IMAGES, .seed = 5, .shift = 2, .flip = true};
    OK(sl_loader_new(sets[i], &options, &loaders[i]));
    OK(sl_loader_next(loaders[i], &batches[i]));
  }
  assert_memory_equal(batches[0].x, batches[1].x, sizeof values);
  for (int i = 0; i < 2; i++) {
    sl_loader_free(loaders[i]);
    sl_dataset_free(sets[i]);
  }
}

/* ---- a generated regression ---- */

/* The targets without the function are the noise: mean 0, deviation 1. */
static void test_friedman(void **state) {
  (void)state;
  enum { MANY = 4000 };
  struct sl_dataset *set, *longer, *test;
  OK(sl_friedman_new(MANY, 3, true, &set));
  OK(sl_friedman_new(MANY + 1, 3, true, &longer));
  OK(sl_dataset_open("friedman", 3, false, &test));
  const struct sl_dataset_info *info = sl_dataset_info(set);
  double sum = 0, squares = 0, targets_sum = 0;
  for (int64_t i = 0; i < MANY; i++) {
    float x[10], again[10], t, other;
    double v[10];
    OK(sl_dataset_get_targets(set, i, x, &t));
    OK(sl_dataset_get_targets(longer, i, again, &other));
    assert_true(t == other && x[9] == again[9]);
    for (int k = 0; k < 10; k++) v[k] = (double)(x[k] * info->deviation[0] + info->mean[0]);
    double y = 10 * sin(acos(-1) * v[0] * v[1]) + 20 * pow(v[2] - 0.5, 2) + 10 * v[3] + 5 * v[4];
    double noise = (double)(t * info->target_deviation[0] + info->target_mean[0]) - y;
    sum += noise;
    squares += noise * noise;
    targets_sum += (double)t;
  }
  assert_true(fabs(sum / MANY) < 0.06 && fabs(squares / MANY - 1) < 0.08);
  assert_true(fabs(targets_sum / MANY) < 0.06);
  float x[2][10], t[2];
  OK(sl_dataset_get_targets(set, 0, x[0], &t[0]));
  OK(sl_dataset_get_targets(test, 0, x[1], &t[1]));
  assert_true(x[0][0] != x[1][0]);
  FAILS(sl_friedman_new(-1, 3, true, &set), SL_BAD_ARGUMENT, "-1 samples");
  sl_dataset_free(set);
  sl_dataset_free(longer);
  sl_dataset_free(test);
}

/* ---- the program's own ---- */

struct own {
  int64_t refuse; /* the sample that cannot be had; -1: none */
  int64_t skip;   /* the sample whose row is not written */
  int64_t not_a_number, class_outside, infinite;
};

static enum sl_status fill_own(struct sl_fill *rows) {
  const struct own *own = rows->user;
  for (int64_t row = 0; row < rows->count; row++) {
    int64_t n = rows->samples[row];
    if (n == own->refuse) {
      rows->failed = row;
      snprintf(rows->message, sizeof rows->message, "the disk has gone");
      return SL_IO;
    }
    if (n == own->skip) continue;
    for (int i = 0; i < FEATURES; i++) rows->x[row * FEATURES + i] = (float)(100 * n + i);
    if (n == own->not_a_number) rows->x[row * FEATURES + 2] = NAN;
    if (rows->labels) rows->labels[row] = n == own->class_outside ? 5 : (int32_t)n % 5;
    if (!rows->targets) continue;
    rows->targets[row * TARGETS] = (float)n;
    rows->targets[row * TARGETS + 1] = n == own->infinite ? INFINITY : (float)-n;
  }
  return SL_OK;
}

/* The batches of an own set and of one of floats are the same to the bit. */
static void test_own(void **state) {
  (void)state;
  struct sl_dataset_options options = regression();
  struct own own = {-1, -1, -1, -1, -1};
  options.deviation = &(float){3};
  options.channels = 1;
  options.user = &own;
  struct sl_dataset *sets[2] = {new_floats(&options, true)};
  OK(sl_dataset_custom(&options, fill_own, &sets[1]));
  struct sl_loader *loaders[2];
  for (int i = 0; i < 2; i++)
    OK(sl_loader_new(sets[i], &(struct sl_loader_options){.batch = 4, .shuffle = true, .seed = 9},
                     &loaders[i]));
  for (int64_t k = 0; k < 2 * sl_loader_length(loaders[0]); k++) {
    struct sl_batch batches[2];
    for (int i = 0; i < 2; i++) OK(sl_loader_next(loaders[i], &batches[i]));
    assert_memory_equal(batches[0].x, batches[1].x, 4 * FEATURES * sizeof(float));
    assert_memory_equal(batches[0].targets, batches[1].targets, 4 * TARGETS * sizeof(float));
    assert_int_equal(batches[0].valid, batches[1].valid);
    for (int i = 0; i < 2; i++) sl_loader_recycle(loaders[i], batches[i].slot);
  }
  for (int i = 0; i < 2; i++) {
    sl_loader_free(loaders[i]);
    sl_dataset_free(sets[i]);
  }
}

/* A failure comes with its batch, as often as it is asked for, and a seek goes past it. */
static void fails_at_7(struct own own, bool has_labels, enum sl_status expected, const char *text) {
  struct sl_dataset_options options = regression();
  struct sl_dataset *set;
  struct sl_loader *loader;
  struct sl_batch batch;
  options.user = &own;
  if (has_labels) options.target = (struct sl_shape){0}, options.classes = 5;
  OK(sl_dataset_custom(&options, fill_own, &set));
  OK(sl_loader_new(set, &(struct sl_loader_options){.batch = 3}, &loader));
  for (int k = 0; k < 2; k++) {
    OK(sl_loader_next(loader, &batch));
    sl_loader_recycle(loader, batch.slot);
  }
  FAILS(sl_loader_next(loader, &batch), expected, text);
  FAILS(sl_loader_next(loader, &batch), expected, text);
  OK(sl_loader_seek_batch(loader, 0, 3));
  OK(sl_loader_next(loader, &batch));
  assert_int_equal(batch.index, 3);
  sl_loader_free(loader);
  sl_dataset_free(set);
}

static void test_own_fails(void **state) {
  (void)state;
  fails_at_7((struct own){7, -1, -1, -1, -1}, false, SL_IO, "table: sample 7: the disk has gone");
  fails_at_7((struct own){-1, 7, -1, -1, -1}, false, SL_BAD_ARGUMENT,
             "sample 7: value 0 is not a number");
  fails_at_7((struct own){-1, -1, 7, -1, -1}, false, SL_BAD_ARGUMENT,
             "sample 7: value 2 is not a number");
  fails_at_7((struct own){-1, -1, -1, 7, -1}, true, SL_BAD_ARGUMENT, "sample 7: label is 5");
  fails_at_7((struct own){-1, -1, -1, -1, 7}, false, SL_BAD_ARGUMENT,
             "sample 7: target 1 is infinite");
}

/* A function that says that a row failed which it was not asked for, in a message without an end.
 */
static enum sl_status fill_lying(struct sl_fill *rows) {
  rows->failed = *(int64_t *)rows->user;
  memset(rows->message, 'x', sizeof rows->message);
  return SL_IO;
}

/* The message names no sample, as none that the function gives is in the batch, and ends. */
static void test_own_lies(void **state) {
  (void)state;
  struct sl_dataset_options options = regression();
  static const int64_t places[] = {-1, 3, 1000, INT64_MAX, INT64_MIN};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    int64_t place = places[i];
    struct sl_dataset *set;
    struct sl_loader *loader;
    struct sl_batch batch;
    options.user = &place;
    OK(sl_dataset_custom(&options, fill_lying, &set));
    OK(sl_loader_new(set, &(struct sl_loader_options){.batch = 3}, &loader));
    FAILS(sl_loader_next(loader, &batch), SL_IO, "table: a batch of 3 samples (0, 1, 2): xxxx");
    assert_int_equal(strlen(strchr(sl_error(), 'x')), 199);
    sl_loader_free(loader);
    sl_dataset_free(set);
  }
}

struct silent {
  int status;
  int64_t failed; /* -2: it is not set */
};

static enum sl_status fill_silent(struct sl_fill *rows) {
  const struct silent *own = rows->user;
  assert_int_equal(rows->failed, -1);
  if (own->failed != -2) rows->failed = own->failed;
  return (enum sl_status)own->status;
}

/* A function that says no reason, and which row or not; one that returns what is no status. */
static void test_own_silent(void **state) {
  (void)state;
  static const struct {
    struct silent own;
    int batch;
    const char *message;
    enum sl_status status;
  } cases[] = {
      {{99, -2},
       4,
       "table: a batch of 4 samples (0, 1, 2, ...): its function fill failed with "
       "status 99, and without a message; let it set `failed` and `message`",
       SL_BAD_ARGUMENT},
      {{SL_IO, -2},
       3,
       "table: a batch of 3 samples (0, 1, 2): its function fill failed with "
       "status IO, and",
       SL_IO},
      {{-5, -2},
       2,
       "table: samples 0 and 1: its function fill failed with status -5, and",
       SL_BAD_ARGUMENT},
      {{SL_IO, 1}, 3, "table: sample 1: its function fill failed with status IO, and", SL_IO},
      {{SL_IO, -2}, 1, "table: sample 0: its function fill failed with status IO, and", SL_IO},
  };
  struct sl_dataset_options options = regression();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct silent own = cases[i].own;
    struct sl_dataset *set;
    struct sl_loader *loader;
    struct sl_batch batch;
    options.user = &own;
    OK(sl_dataset_custom(&options, fill_silent, &set));
    OK(sl_loader_new(set, &(struct sl_loader_options){.batch = cases[i].batch}, &loader));
    FAILS(sl_loader_next(loader, &batch), cases[i].status, cases[i].message);
    sl_loader_free(loader);
    sl_dataset_free(set);
  }
}

static void test_own_refused(void **state) {
  (void)state;
  struct sl_dataset_options options = regression();
  struct sl_dataset *set;
  FAILS(sl_dataset_custom(&options, NULL, &set), SL_BAD_ARGUMENT, "fill is NULL");
  options.count = -1;
  FAILS(sl_dataset_custom(&options, fill_own, &set), SL_BAD_ARGUMENT, "-1 samples");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_values),        cmocka_unit_test(test_labels),
      cmocka_unit_test(test_normalisation), cmocka_unit_test(test_refused),
      cmocka_unit_test(test_no_memory),     cmocka_unit_test(test_release),
      cmocka_unit_test(test_batches),       cmocka_unit_test(test_augmentation),
      cmocka_unit_test(test_own),           cmocka_unit_test(test_friedman),
      cmocka_unit_test(test_own_fails),     cmocka_unit_test(test_own_refused),
      cmocka_unit_test(test_own_lies),      cmocka_unit_test(test_own_silent),
  };
  cmocka_set_message_output(CM_OUTPUT_TAP);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
