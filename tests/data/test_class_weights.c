/* Weights of classes by their number, of every kind of dataset: against scikit-learn's formula. */
#include <math.h>

#include "tests/common/files.h"

enum { COUNT = 12, CLASSES = 4 };

/* 6 of class 0, 3 of 1, none of 2, 1 of 3, and 2 that do not count */
static const int32_t labels[COUNT] = {0, 0, 1, SL_IGNORE, 0, 3, 0, 1, 0, SL_IGNORE, 1, 0};
static const float wanted[CLASSES] = {10.0f / (3 * 6), 10.0f / (3 * 3), 0, 10.0f / (3 * 1)};

static void check(struct sl_dataset *set, const float *expected, int classes) {
  float weights[8];
  assert_int_equal(sl_dataset_info(set)->classes, classes);
  OK(sl_class_weights(set, weights));
  for (int k = 0; k < classes; k++) assert_true(fabsf(weights[k] - expected[k]) < 1e-6f);
  sl_dataset_free(set);
}

static struct sl_dataset *floats(void) {
  static float x[COUNT][3];
  const struct sl_dataset_options options = {
      .name = "floats", .sample = SL_SHAPE(3), .count = COUNT, .classes = CLASSES, .missing = true};
  struct sl_dataset *set;
  OK(sl_dataset_floats(&options, &x[0][0], NULL, labels, true, &set));
  return set;
}

static void test_labels(void **state) {
  (void)state;
  check(floats(), wanted, CLASSES);
  static uint8_t bytes[5];
  static const int32_t two[5] = {1, 1, 0, 1, 1};
  struct sl_dataset *set;
  OK(sl_dataset_new("bytes", &SL_SHAPE(1), 5, 2, bytes, two, NULL, NULL, &set));
  check(set, (const float[]){2.5f, 0.625f}, 2);
}

/* More samples than are read at once. */
static void test_many(void **state) {
  (void)state;
  enum { MANY = 5000 };
  static uint8_t bytes[MANY][1 << 10];
  static int32_t many[MANY];
  struct sl_dataset *set;
  for (int i = 0; i < MANY; i++) many[i] = i % 5 == 0;
  OK(sl_dataset_new("many", &SL_SHAPE(1, 32, 32), MANY, 2, &bytes[0][0], many, NULL, NULL, &set));
  check(set, (const float[]){0.625f, 2.5f}, 2);
}

static void test_texts(void **state) {
  (void)state;
  static const int32_t tokens[9] = {0, 1, 1, 1, 1, 0, 1, 1, 2}; /* labels: those after the first */
  struct sl_dataset *set;
  OK(sl_tokens_new("text", tokens, 9, 4, 3, &set));
  check(set, (const float[]){8.0f / 3, 8.0f / 18, 8.0f / 3}, 3);
  const struct sl_sentences_options options = {.end = 2, .bucket_count = 1};
  static const int32_t sentences[6] = {1, 1, 2, 0, 1, 2}; /* and padding, which does not count */
  OK(sl_sentences_new("sentences", sentences, 6, 3, &options, &set));
  check(set, (const float[]){2, 6.0f / 9, 1}, 3);
}

/* The training part alone, of a table and of pictures. */
static void test_parts(void **state) {
  (void)state;
  static const char table[] = "x,y\n1,a\n2,b\n3,a\n4,a\n5,c\n6,b\n", held[] = "x,y\n1,a\n";
  struct sl_reader_options options = {.target = "y",
                                      .validation = put("v.csv", held, sizeof held - 1)};
  struct sl_dataset *set;
  OK(sl_dataset_read(put("t.csv", table, sizeof table - 1), &options, true, &set));
  check(set, (const float[]){6.0f / 9, 1, 2}, 3);
  OK(sl_dataset_read(in_folder("t.csv"), &options, false, &set));
  check(set, (const float[]){1, 0, 0}, 3);
  static const char *const folders[] = {"set",         "set/train",   "set/val",
                                        "set/train/a", "set/train/b", "set/val/b"};
  static const char *const files[] = {"set/train/a/1.pgm", "set/train/a/2.pgm", "set/train/a/3.pgm",
                                      "set/train/b/1.pgm", "set/val/b/1.pgm"};
  for (int i = 0; i < 6; i++) mkdir(in_folder(folders[i]), 0777);
  for (int i = 0; i < 5; i++) put(files[i], "P2 1 1 255 7", 12);
  OK(sl_dataset_open(in_folder("set"), 1, true, &set));
  put(files[0], "no picture", 10); /* labels need no decoding */
  check(set, (const float[]){4.0f / 6, 2}, 2);
  put(files[0], "P2 1 1 255 7", 12);
  OK(sl_dataset_read(in_folder("set"), &(struct sl_reader_options){.raw = true}, false, &set));
  check(set, (const float[]){0, 1}, 2);
}

static void test_refused(void **state) {
  (void)state;
  struct sl_dataset *set;
  float weights[1];
  OK(sl_friedman_new(5, 1, true, &set));
  FAILS(sl_class_weights(set, weights), SL_BAD_ARGUMENT, "has targets; only classes have weights");
  sl_dataset_free(set);
}

static struct sl_dataset *shared;
static enum sl_status weigh(void) {
  float weights[CLASSES];
  return sl_class_weights(shared, weights);
}

static void test_allocations(void **state) {
  (void)state;
  shared = floats();
  check_allocations(weigh);
  sl_dataset_free(shared);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_labels),  cmocka_unit_test(test_many),
      cmocka_unit_test(test_texts),   cmocka_unit_test(test_parts),
      cmocka_unit_test(test_refused), cmocka_unit_test(test_allocations),
  };
  return cmocka_run_group_tests(tests, folder_setup, folder_teardown);
}
