/* NumPy's arrays: every kind of element in both byte orders and both orders of axes against values
 * that are computed here; archives, stored and deflated; pairs of files; files that are damaged in
 * every way that we could think of. */
#include <math.h>

#include "data/dataset.h"
#include "data/npy.h"
#include "data/slice.h"
#include "tests/common/array_files.h"
#include "tests/common/slices.h"

/* ---- the parser of .npy ---- */

/* Values 0, 1, 2, ... of that kind, in its byte order. */
static struct bytes counting(struct sl__element element, int count, int version,
                             const char *header) {
  static const uint16_t halves[] = {0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500};
  uint8_t values[512];
  for (int i = 0; i < count; i++) {
    uint64_t bits = element.kind == 'b' ? (uint64_t)i & 1 : (uint64_t)i;
    double wide = i;
    float narrow = (float)i;
    if (element.kind == 'f') bits = element.size == 2 ? halves[i] : 0;
    if (element.kind == 'f' && element.size == 4) memcpy(&bits, &narrow, 4);
    if (element.kind == 'f' && element.size == 8) memcpy(&bits, &wide, 8);
    for (int k = 0; k < element.size; k++)
      values[i * element.size + (element.big_endian ? element.size - 1 - k : k)] =
          (uint8_t)(bits >> 8 * k);
  }
  return npy_of(version, header, values, (size_t)(count * element.size));
}

static void check_element(struct sl__element element, int version) {
  struct sl__npy npy;
  char header[128];
  float values[6];
  snprintf(header, sizeof header, NPY_HEADER("%c%c%d", "False", "(2, 3)"),
           element.big_endian ? '>' : '<', element.kind, element.size);
  struct bytes file = counting(element, 6, version, header);
  OK(sl__npy_parse("a.npy", file.at, file.size, &npy));
  assert_true(npy.ndim == 2 && npy.dim[0] == 2 && npy.dim[1] == 3 && !npy.fortran);
  sl__elements_to_floats(&npy.element, npy.values, 6, values);
  for (int i = 0; i < 6; i++) {
    float expected = element.kind == 'b' ? (float)(i & 1) : (float)i;
    assert_true(values[i] == expected);
    if (element.kind != 'f')
      assert_true(sl__element_whole(&npy.element, npy.values + i * element.size) ==
                  (int64_t)expected);
  }
}

static void test_elements(void **state) {
  (void)state;
  static const char *const kinds[] = {"f2", "f4", "f8", "i1", "i2", "i4",
                                      "i8", "u1", "u2", "u4", "u8", "b1"};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
    for (int big = 0; big < 2; big++)
      for (int version = 1; version <= 3; version++)
        check_element((struct sl__element){kinds[k][0], kinds[k][1] - '0', big}, version);
}

static void test_signs_and_limits(void **state) {
  (void)state;
  static const uint8_t ones[8] = {255, 255, 255, 255, 255, 255, 255, 255};
  float value;
  for (int size = 1; size <= 8; size *= 2) {
    assert_true(sl__element_whole(&(struct sl__element){'i', size, false}, ones) == -1);
    sl__elements_to_floats(&(struct sl__element){'i', size, true}, ones, 1, &value);
    assert_true(value == -1.0f);
    sl__elements_to_floats(&(struct sl__element){'u', size, false}, ones, 1, &value);
    assert_true(value == (float)(pow(2, 8 * size) - 1));
  }
  assert_true(sl__element_whole(&(struct sl__element){'u', 8, false}, ones) == INT64_MAX);
}

#define ENTRIES "{'descr': '<f4', 'fortran_order': False, 'shape': "

static void test_headers(void **state) {
  (void)state;
  static const struct {
    const char *header, *message;
  } cases[] = {
      {"", "no brace"},
      {"{", "no string"},
      {"{}", "missing"},
      {"{'descr': '<f4', 'shape': (2,)}", "missing"},
      {"{'descr': '<f4', 'fortran_order': False}", "missing"},
      {"{'descr': '<f4', 'fortran_order': no, 'shape': (2,)}", "neither True nor False"},
      {ENTRIES "2}", "no shape"},
      {ENTRIES "(2 2)}", "no comma in the shape"},
      {ENTRIES "(-2,)}", "no number"},
      {ENTRIES "(99999999999999999999,)}", "too long"},
      {ENTRIES "(1,1,1,1,1,2)}", "more than 5 axes"},
      {ENTRIES "()}", "holds one number"},
      {ENTRIES "(2, 0)}", "axis 1 is 0 long"},
      {ENTRIES "(4294967296, 4294967296)}", "promises"},
      {ENTRIES "(2,)} x", "more than a dictionary"},
      {"{'descr': '<f4', 'fortran_order': False 'shape': (2,)}", "no comma behind"},
      {"{'descr' '<f4'}", "no colon"},
      {"{'kind': '<f4'}", "unknown key"},
      {"{'descr': '<f4", "does not end"},
      {"{'descr': '<f4 and more than that'}", "too long"},
      {"{'descr': [('a', '<f4')]}", "are records"},
      {"{'descr': '|O'}", "its elements are \"|O\""},
      {"{'descr': '<c8'}", "its elements are \"<c8\""},
      {"{'descr': '<f1'}", "its elements are \"<f1\""},
      {"{'descr': '<U12'}", "its elements are \"<U12\""},
      {"{'descr': 'f4'}", "its elements are \"f4\""},
  };
  struct sl__npy npy;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct bytes file = npy_of(1, cases[i].header, "\0\0\0\0\0\0\0\0", 8);
    FAILS(sl__npy_parse("a.npy", file.at, file.size, &npy), SL_BAD_FILE, cases[i].message);
  }
  /* another order of keys, other quotes, Python 2's long integers, no comma at the end */
  struct bytes file = npy_of(1, "{\"shape\": (2L,), 'fortran_order': True, \"descr\": \"<f4\"}",
                             "\0\0\0\0\0\0\0\0", 8);
  OK(sl__npy_parse("a.npy", file.at, file.size, &npy));
  assert_true(npy.fortran && npy.ndim == 1 && npy.dim[0] == 2);
}

/* Cut at every place, and a byte too many. */
static void test_cut(void **state) {
  (void)state;
  struct sl__npy npy;
  for (int version = 1; version <= 2; version++) {
    struct bytes file = counting((struct sl__element){'f', 4, false}, 6, version,
                                 NPY_HEADER("<f4", "False", "(2, 3)"));
    for (size_t size = 0; size < file.size; size++)
      assert_int_equal(sl__npy_parse("a.npy", file.at, size, &npy), SL_BAD_FILE);
    FAILS(sl__npy_parse("a.npy", file.at, file.size - 1, &npy), SL_BAD_FILE, "after row 1 of 2");
    FAILS(sl__npy_parse("a.npy", file.at, file.size + 1, &npy), SL_BAD_FILE, "1 bytes too many");
    file.at[6] = 4;
    FAILS(sl__npy_parse("a.npy", file.at, file.size, &npy), SL_BAD_FILE, "version 4");
  }
}

/* ---- sets ---- */

enum { COUNT = 6 };

/* Inputs [6, 2, 2], 10 i + place, in C or Fortran order; targets [6] -i; labels i % 3. */
static struct bytes inputs_file(bool fortran) {
  float values[COUNT * 4];
  for (int i = 0; i < COUNT; i++)
    for (int k = 0; k < 4; k++) {
      int row = k / 2, column = k % 2;
      int at = fortran ? i + COUNT * (row + 2 * column) : 4 * i + k;
      values[at] = (float)(10 * i + k);
    }
  return npy_of(
      1, fortran ? NPY_HEADER("<f4", "True", "(6, 2, 2)") : NPY_HEADER("<f4", "False", "(6, 2, 2)"),
      values, sizeof values);
}

static struct bytes targets_file(void) {
  double values[COUNT];
  for (int i = 0; i < COUNT; i++) values[i] = -i;
  return npy_of(1, NPY_HEADER("<f8", "False", "(6,)"), values, sizeof values);
}

static struct bytes labels_file(void) {
  uint8_t values[COUNT];
  for (int i = 0; i < COUNT; i++) values[i] = (uint8_t)(i % 3);
  return npy_of(2, NPY_HEADER("|u1", "False", "(6,)"), values, sizeof values);
}

/* The values of a sample tell its number; all parts together must have each sample once. */
static void check_parts(const char *path, struct sl_reader_options options, int held_back,
                        bool labels) {
  int seen[COUNT] = {0};
  options.raw = options.raw_targets = true;
  for (int train = 0; train < 2; train++) {
    struct sl_dataset *set;
    OK(sl_dataset_read(path, &options, train, &set));
    const struct sl_dataset_info *info = sl_dataset_info(set);
    assert_int_equal(info->count, train ? COUNT - held_back : held_back);
    assert_int_equal(info->classes, labels ? 3 : 0);
    assert_true(sl_shape_equal(&info->sample, &SL_SHAPE(2, 2)));
    for (int64_t i = 0; i < info->count; i++) {
      float x[4], target;
      int32_t label;
      OK(labels ? sl_dataset_get(set, i, x, &label) : sl_dataset_get_targets(set, i, x, &target));
      int number = (int)x[0] / 10;
      for (int k = 0; k < 4; k++) assert_true(x[k] == (float)(10 * number + k));
      if (labels)
        assert_int_equal(label, number % 3);
      else
        assert_true(target == (float)-number);
      seen[number]++;
    }
    sl_dataset_free(set);
  }
  for (int i = 0; i < COUNT; i++) assert_int_equal(seen[i], 1);
}

static void put_bytes(const char *name, struct bytes bytes) { put(name, bytes.at, bytes.size); }

static void test_pairs(void **state) {
  (void)state;
  for (int fortran = 0; fortran < 2; fortran++) {
    put_bytes("x.npy", inputs_file(fortran));
    put_bytes("y.npy", targets_file());
    put_bytes("class.npy", labels_file());
    check_parts(test_folder, (struct sl_reader_options){.validation = "0.3"}, 2, false);
    check_parts(test_folder, (struct sl_reader_options){.target = "class", .seed = 7}, 1, true);
    check_parts(in_folder("x.npy"), (struct sl_reader_options){.target = in_folder("y.npy")}, 1,
                false);
  }
  unlink(in_folder("x.npy")), unlink(in_folder("y.npy")), unlink(in_folder("class.npy"));
}

static void test_archives(void **state) {
  (void)state;
  for (int variant = 0; variant < 4; variant++) {
    bool deflate = variant & 1, wide = variant & 2;
    const struct member members[] = {{"y.npy", targets_file(), deflate},
                                     {"readme.txt", {"hello", 5}, false},
                                     {"x.npy", inputs_file(false), deflate},
                                     {"class.npy", labels_file(), false}};
    put_bytes("set.npz", zip_of(members, 4, wide));
    check_parts(in_folder("set.npz"), (struct sl_reader_options){0}, 1, false);
    check_parts(in_folder("set.npz"), (struct sl_reader_options){.target = "class"}, 1, true);
    struct sl_dataset *set;
    FAILS(sl_dataset_read(in_folder("set.npz"), &(struct sl_reader_options){.target = "z"}, true,
                          &set),
          SL_BAD_FILE, "has no array \"z\"; it has y, readme, x, class");
  }
}

/* Of two members of one name the last one is meant, as of NumPy. */
static void test_same_members(void **state) {
  (void)state;
  const struct member members[] = {{"x.npy", labels_file(), false},
                                   {"y.npy", targets_file(), false},
                                   {"x.npy", inputs_file(false), true}};
  put_bytes("set.npz", zip_of(members, 3, false));
  check_parts(in_folder("set.npz"), (struct sl_reader_options){0}, 1, false);
}

/* A file that numpy itself has written: numpy.savez_compressed("numpy.npz", x=..., y=...). */
static void test_numpy(void **state) {
  (void)state;
  char path[2048];
  snprintf(path, sizeof path, "%s/tests/fixtures/numpy.npz", source_folder());
  check_parts(path, (struct sl_reader_options){0}, 1, true);
}

/* Keras' names of a training set and a test set: the first `count` of its four arrays. */
static void put_keras(int count) {
  const struct member members[] = {{"x_train.npy", inputs_file(false), true},
                                   {"y_train.npy", labels_file(), true},
                                   {"x_test.npy", inputs_file(false), false},
                                   {"y_test.npy", labels_file(), false}};
  put_bytes("keras.npz", zip_of(members, count, false));
}

static void test_parts(void **state) {
  (void)state;
  struct sl_dataset *set;
  put_keras(4);
  for (int train = 0; train < 2; train++) {
    OK(sl_dataset_open(in_folder("keras.npz"), 1, train, &set));
    assert_int_equal(sl_dataset_info(set)->count, COUNT);
    sl_dataset_free(set);
  }
  FAILS(sl_dataset_read(in_folder("keras.npz"), &(struct sl_reader_options){.validation = "0.5"},
                        true, &set),
        SL_BAD_ARGUMENT, "has a test set of its own");
  put_keras(2);
  FAILS(sl_dataset_open(in_folder("keras.npz"), 1, true, &set), SL_BAD_FILE, "no array \"x_test\"");
}

/* Arrays of just the names that are given go before those with _train and _test behind them. */
static void test_named_beside_parts(void **state) {
  (void)state;
  const struct sl_reader_options options = {.inputs = "x", .target = "y", .validation = "0.5"};
  struct sl_dataset *set;
  const struct member members[] = {
      {"x.npy", inputs_file(false), false},       {"y.npy", labels_file(), false},
      {"x_train.npy", inputs_file(false), false}, {"y_train.npy", labels_file(), false},
      {"x_test.npy", inputs_file(false), false},  {"y_test.npy", labels_file(), false}};
  put_bytes("both.npz", zip_of(members, 6, false));
  OK(sl_dataset_read(in_folder("both.npz"), &options, true, &set));
  assert_int_equal(sl_dataset_info(set)->count, COUNT / 2);
  sl_dataset_free(set);
}

/* Means and deviations are the training part's, over which they become 0 and 1. */
static void test_normalised(void **state) {
  (void)state;
  struct sl_dataset *train, *test;
  float x[4], target, sum = 0, squares = 0, targets = 0;
  put_bytes("x.npy", inputs_file(false));
  put_bytes("y.npy", targets_file());
  OK(sl_dataset_open(test_folder, 3, true, &train));
  OK(sl_dataset_open(test_folder, 3, false, &test));
  const struct sl_dataset_info *info = sl_dataset_info(train), *other = sl_dataset_info(test);
  for (int64_t i = 0; i < info->count; i++) {
    OK(sl_dataset_get_targets(train, i, x, &target));
    targets += target;
    for (int k = 0; k < 4; k++) sum += x[k], squares += x[k] * x[k];
  }
  assert_true(fabsf(sum) < 1e-4f && fabsf(targets) < 1e-5f);
  assert_true(fabsf(squares / (4 * (float)info->count) - 1) < 1e-4f);
  assert_int_equal(info->channels, 1);
  assert_true(info->mean[0] == other->mean[0] && info->deviation[0] == other->deviation[0]);
  assert_true(info->target_mean[0] == other->target_mean[0]);
  OK(sl_dataset_get_targets(test, 0, x, &target));
  float number = x[0] * other->deviation[0] + other->mean[0];               /* 10 i */
  float back = target * other->target_deviation[0] + other->target_mean[0]; /* -i */
  assert_true(fabsf(number / 10 + back) < 1e-4f);
  sl_dataset_free(train), sl_dataset_free(test);
  unlink(in_folder("x.npy")), unlink(in_folder("y.npy"));
}

/* ---- several inputs and targets ---- */

static enum sl_status open_fields(const char *inputs, const char *target, const char *raw) {
  struct sl_dataset *set;
  enum sl_status status = sl_dataset_read(
      in_folder("fields.npz"),
      &(struct sl_reader_options){.inputs = inputs, .target = target, .raw_fields = raw}, true,
      &set);
  if (status == SL_OK) sl_dataset_free(set);
  return status;
}

/* Rows are the arrays' rows one behind the other; whole numbers are classes. */
static void test_fields(void **state) {
  (void)state;
  const struct member members[] = {{"x.npy", inputs_file(false), true},
                                   {"y.npy", targets_file(), false},
                                   {"class.npy", labels_file(), true}};
  struct sl_dataset *set;
  float x[5], targets[2];
  put_bytes("fields.npz", zip_of(members, 3, false));
  OK(sl_dataset_read(in_folder("fields.npz"),
                     &(struct sl_reader_options){
                         .inputs = "y,x", .target = "class,y", .raw = true, .raw_targets = true},
                     true, &set));
  const struct sl_dataset_info *info = sl_dataset_info(set);
  assert_true(sl_shape_equal(&info->sample, &SL_SHAPE(5)));
  assert_true(sl_shape_equal(&info->target, &SL_SHAPE(2)));
  assert_int_equal(info->input_count, 2);
  assert_int_equal(info->target_count, 2);
  assert_string_equal(info->inputs[1].name, "x");
  assert_true(sl_shape_equal(&info->inputs[1].shape, &SL_SHAPE(2, 2)));
  assert_int_equal(info->inputs[1].first, 1);
  assert_string_equal(info->targets[0].name, "class");
  assert_int_equal(info->targets[0].classes, 3);
  assert_int_equal(info->targets[1].classes, 0);
  for (int64_t i = 0; i < info->count; i++) {
    OK(sl_dataset_get_targets(set, i, x, targets));
    int number = -(int)x[0];
    for (int k = 0; k < 4; k++) assert_true(x[1 + k] == (float)(10 * number + k));
    assert_true(targets[0] == (float)(number % 3) && targets[1] == (float)-number);
  }
  sl_dataset_free(set);
}

/* Means and deviations are those of each field; class labels stay, and so do fields by name. */
static void test_normalised_fields(void **state) {
  (void)state;
  struct sl_dataset *set;
  float x[5], targets[2], sums[3] = {0}, squares[3] = {0};
  for (int raw = 0; raw < 2; raw++) {
    OK(sl_dataset_read(
        in_folder("fields.npz"),
        &(struct sl_reader_options){
            .inputs = "y,x", .target = "class,y", .seed = 3, .raw_fields = raw ? "y" : NULL},
        true, &set));
    const struct sl_dataset_info *info = sl_dataset_info(set);
    memset(sums, 0, sizeof sums);
    memset(squares, 0, sizeof squares);
    for (int64_t i = 0; i < info->count; i++) {
      OK(sl_dataset_get_targets(set, i, x, targets));
      assert_true(targets[0] == 0 || targets[0] == 1 || targets[0] == 2);
      const float values[3] = {x[0], (x[1] + x[2] + x[3] + x[4]) / 4, targets[1]};
      for (int k = 0; k < 3; k++) sums[k] += values[k];
      squares[0] += x[0] * x[0];
      for (int k = 1; k < 5; k++) squares[1] += x[k] * x[k] / 4;
      squares[2] += targets[1] * targets[1];
    }
    for (int k = 0; k < (raw ? 2 : 3); k++) {
      assert_true(fabsf(sums[k]) < 1e-4f);
      assert_true(fabsf(squares[k] / (float)info->count - 1) < 1e-4f);
    }
    /* one mean and one deviation for the matrix x */
    assert_true(info->mean[1] == info->mean[4] && info->deviation[1] == info->deviation[4]);
    assert_true(info->mean[0] != info->mean[1]);
    if (raw) assert_true(info->target_mean[1] == 0 && info->target_deviation[1] == 1);
    sl_dataset_free(set);
  }
}

static void test_refused_fields(void **state) {
  (void)state;
  static const int32_t negative[] = {0, 1, 2, -1, 4, 5};
  FAILS(open_fields("x,z", NULL, NULL), SL_BAD_FILE, "has no array \"z\"; it has x, y, class");
  FAILS(open_fields("x,", NULL, NULL), SL_BAD_ARGUMENT, "'x,' is no list of arrays");
  FAILS(open_fields("x,x", NULL, NULL), SL_BAD_ARGUMENT, "input field 'x' is there twice");
  FAILS(open_fields("x", "y,y", NULL), SL_BAD_ARGUMENT, "target field 'y' is there twice");
  FAILS(open_fields("x", "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p", NULL), SL_BAD_ARGUMENT,
        "names more than 15 arrays");
  FAILS(open_fields("x", "class,y", "z"), SL_BAD_ARGUMENT,
        "has no target 'z', which is to stay as it is");
  OK(open_fields("x,y", "class", NULL));
  const struct member members[] = {
      {"x.npy", inputs_file(false), true},
      {"y.npy", npy_of(1, NPY_HEADER("<f8", "False", "(2,)"), negative, 16), false},
      {"class.npy", npy_of(1, NPY_HEADER("<i4", "False", "(6,)"), negative, sizeof negative),
       false}};
  put_bytes("fields.npz", zip_of(members, 3, false));
  FAILS(open_fields("x", "y,class", NULL), SL_BAD_SHAPE, "has 2 targets");
  FAILS(open_fields("x,y", "class", NULL), SL_BAD_SHAPE, "6 samples, but");
  FAILS(open_fields("x", "class,x", NULL), SL_BAD_FILE, "class: sample 3 is no class");
}

/* ---- inputs that are tokens ---- */

static enum sl_status open_tokens(const char *inputs, const char *tokens, struct sl_dataset **set) {
  return sl_dataset_read(
      in_folder("tokens.npz"),
      &(struct sl_reader_options){.inputs = inputs, .tokens = tokens, .target = "y"}, true, set);
}

/* They are not normalised, and the other fields are; their number is that of both sets. */
static void test_tokens(void **state) {
  (void)state;
  static const int32_t words[] = {0, 7, 3, 900, 5, 1, 2, 2}, other[] = {0, 1000, 3, -1};
  static const float wear[] = {10, 20, 30, 40}, y[] = {1, 2, 3, 4};
  struct member members[] = {
      {"words_train.npy", npy_of(1, NPY_HEADER("<i4", "False", "(4, 2)"), words, sizeof words)},
      {"wear_train.npy", npy_of(1, NPY_HEADER("<f4", "False", "(4,)"), wear, sizeof wear)},
      {"y_train.npy", npy_of(1, NPY_HEADER("<f4", "False", "(4,)"), y, sizeof y)},
      {"words_test.npy", npy_of(1, NPY_HEADER("<i4", "False", "(1, 2)"), other, 8)},
      {"wear_test.npy", npy_of(1, NPY_HEADER("<f4", "False", "(1,)"), wear, 4)},
      {"y_test.npy", npy_of(1, NPY_HEADER("<f4", "False", "(1,)"), y, 4)}};
  struct sl_dataset *set;
  float row[3], target;
  put_bytes("tokens.npz", zip_of(members, 6, false));
  OK(open_tokens("wear,words", "words", &set));
  const struct sl_dataset_info *info = sl_dataset_info(set);
  assert_int_equal(info->inputs[0].classes, 0);
  assert_int_equal(info->inputs[1].classes, 1001);
  for (int64_t i = 0; i < info->count; i++) {
    OK(sl_dataset_get_targets(set, i, row, &target));
    assert_true(row[1] == (float)words[2 * i] && row[2] == (float)words[2 * i + 1]);
    assert_true(fabsf(row[0] * info->deviation[0] + info->mean[0] - wear[i]) < 1e-4f);
    assert_true(fabsf(row[0]) < 2);
  }
  sl_dataset_free(set);
  OK(open_tokens("words", "words", &set)); /* one input is a field, too */
  assert_int_equal(sl_dataset_info(set)->input_count, 1);
  sl_dataset_free(set);
  FAILS(open_tokens("words,wear", "tags", &set), SL_BAD_ARGUMENT,
        "tokens 'tags' are none of the inputs");
  FAILS(open_tokens("words,wear", "words,wear", &set), SL_BAD_FILE,
        "has no whole numbers, so they are no tokens");
  members[3].bytes = npy_of(1, NPY_HEADER("<i4", "False", "(1, 2)"), other + 2, 8);
  put_bytes("tokens.npz", zip_of(members, 6, false));
  FAILS(open_tokens("words,wear", "words", &set), SL_BAD_FILE,
        "words_test: sample 0 is no token (0 to 16777215), but has -1");
  unlink(in_folder("tokens.npz"));
}

/* ---- slices ---- */

static enum sl_status parse_slice(const char *name, struct sl__slice *slice) {
  static const int64_t dim[] = {40, 3, 2};
  const char *text = sl__slice_find(name);
  assert_non_null(text);
  sl__slice_all(3, dim, slice);
  return sl__slice_parse(name, text, slice);
}

static void test_slice_names(void **state) {
  (void)state;
  static const char *const none[] = {"", "x", "[0]", "x[0", "x0]", "T[K]", "x[:,a]", "[:][K]"};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++) assert_null(sl__slice_find(none[i]));
  assert_string_equal(sl__slice_find("T [K][:, 0]"), "[:, 0]");
  assert_string_equal(sl__slice_find("x[]"), "[]");
}

/* Of an array [40, 3, 2]. */
static void test_slice_texts(void **state) {
  (void)state;
  static const struct {
    const char *name;
    struct sl_shape shape;
    int64_t first[3], step[3], count[3];
  } good[] = {
      {"x[:]", SL_SHAPE(40, 3, 2), {0, 0, 0}, {1, 1, 1}, {40, 3, 2}},
      {"x[:, :, :]", SL_SHAPE(40, 3, 2), {0, 0, 0}, {1, 1, 1}, {40, 3, 2}},
      {"x[5:]", SL_SHAPE(35, 3, 2), {5, 0, 0}, {1, 1, 1}, {35, 3, 2}},
      {"x[:-5,1:3]", SL_SHAPE(35, 2, 2), {0, 1, 0}, {1, 1, 1}, {35, 2, 2}},
      {"x[-5:-2,0]", SL_SHAPE(3, 2), {35, 0, 0}, {1, 1, 1}, {3, 1, 2}},
      {"x[::7,-1,-2]", SL_SHAPE(6), {0, 2, 0}, {7, 1, 1}, {6, 1, 1}},
      {"x[ 1 : 39 : 2 , : : 2 ]", SL_SHAPE(19, 2, 2), {1, 0, 0}, {2, 2, 1}, {19, 2, 2}},
      {"x[39:40:9,2:,:1]", SL_SHAPE(1, 1, 1), {39, 2, 0}, {9, 1, 1}, {1, 1, 1}},
  };
  static const struct {
    const char *name, *message;
  } bad[] = {
      {"a.h5: x[]", "a.h5: x[]: '' for axis 0: is no range; write a:b, a:, :b, a:b:step, : or one"},
      {"x[:,]", "'' for axis 1: is no range"},
      {"x[:,0 1]", "'0 1' for axis 1: is no range"},
      {"x[:,-]", "'-' for axis 1: is no range"},
      {"x[...,0]", "'...' for axis 0: is no range"},
      {"x[:,0:1:1:1]", "'0:1:1:1' for axis 1: is no range"},
      {"x[:,99999999999999999999]", "for axis 1: is no range"},
      {"x[:,:,:,0]", "more parts than the array has axes, 3"},
      {"x[3]", "'3' for axis 0: the first axis counts samples; take a range"},
      {"x[:41]", "':41' for axis 0: reaches beyond the axis; its shape is [40, 3, 2]"},
      {"x[-41:]", "'-41:' for axis 0: reaches beyond the axis"},
      {"x[:,3]", "'3' for axis 1: reaches beyond the axis"},
      {"x[:,-4]", "'-4' for axis 1: reaches beyond the axis"},
      {"x[:,3:]", "'3:' for axis 1: reaches beyond the axis"},
      {"x[:,0:-4]", "'0:-4' for axis 1: reaches beyond the axis"},
      {"x[:,-9223372036854775807]", "for axis 1: reaches beyond the axis"},
      {"x[:,9223372036854775807]", "for axis 1: reaches beyond the axis"},
      {"x[:,2:1]", "'2:1' for axis 1: takes nothing"},
      {"x[:,:, 0:0 ]", "'0:0' for axis 2: takes nothing"},
      {"x[:,::0]", "'::0' for axis 1: a step is at least 1"},
      {"x[::-1]", "'::-1' for axis 0: a step is at least 1"},
  };
  struct sl__slice slice;
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    OK(parse_slice(good[i].name, &slice));
    const struct sl_shape shape = sl__slice_shape(&slice);
    assert_true(sl_shape_equal(&shape, &good[i].shape));
    for (int d = 0; d < 3; d++)
      assert_true(slice.first[d] == good[i].first[d] && slice.step[d] == good[i].step[d] &&
                  slice.count[d] == good[i].count[d]);
    assert_true(slice.whole_rows == (slice.count[1] == 3 && slice.count[2] == 2));
  }
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    FAILS(parse_slice(bad[i].name, &slice), SL_BAD_ARGUMENT, bad[i].message);
}

static void check_slice(const char *path, const char *inputs, int64_t first, int64_t step,
                        const struct sl_shape *shape, const int *places) {
  check_slice_of(path, inputs, COUNT, 10, first, step, shape, places);
}

/* Of files that are mapped and members that are unpacked, in both orders of axes. */
static void test_slices(void **state) {
  (void)state;
  for (int variant = 0; variant < 4; variant++) {
    const struct member x = {"x.npy", inputs_file(variant & 1), variant & 2};
    put_bytes("slices.npz", zip_of(&x, 1, false));
    put_bytes("x.npy", inputs_file(variant & 1));
    const char *path = variant & 2 ? in_folder("slices.npz") : test_folder;
    check_slice(path, "x[:]", 0, 1, &SL_SHAPE(2, 2), (const int[]){0, 1, 2, 3});
    check_slice(path, "x[2:]", 2, 1, &SL_SHAPE(2, 2), (const int[]){0, 1, 2, 3});
    check_slice(path, "x[1::2]", 1, 2, &SL_SHAPE(2, 2), (const int[]){0, 1, 2, 3});
    check_slice(path, "x[:, 1]", 0, 1, &SL_SHAPE(2), (const int[]){2, 3});
    check_slice(path, "x[::3, :, -1]", 0, 3, &SL_SHAPE(2), (const int[]){1, 3});
    check_slice(path, "x[:,1:,:1]", 0, 1, &SL_SHAPE(1, 1), (const int[]){2});
    check_slice(path, "x[3:,0,1]", 3, 1, &SL_SHAPE(1), (const int[]){1});
  }
  unlink(in_folder("x.npy")), unlink(in_folder("slices.npz"));
}

/* Behind the paths of a pair of files, too. */
static void test_slice_pair(void **state) {
  (void)state;
  char inputs[4096], targets[4096];
  struct sl_reader_options options = {.target = targets, .raw = true, .raw_targets = true};
  struct sl_dataset *set;
  float x[2], target[2];
  put_bytes("x.npy", inputs_file(false));
  snprintf(inputs, sizeof inputs, "%s[1:, :, 0]", in_folder("x.npy"));
  snprintf(targets, sizeof targets, "%s[1:,1]", in_folder("x.npy"));
  OK(sl_dataset_read(inputs, &options, true, &set));
  assert_int_equal(sl_dataset_info(set)->count, 4);
  for (int64_t i = 0; i < 4; i++) {
    OK(sl_dataset_get_targets(set, i, x, target));
    assert_true(x[0] >= 10 && x[1] == x[0] + 2 && target[0] == x[1] && target[1] == x[0] + 3);
  }
  sl_dataset_free(set);
  snprintf(inputs, sizeof inputs, "%s[:,2]", in_folder("x.npy"));
  FAILS(sl_dataset_read(inputs, &options, true, &set), SL_BAD_ARGUMENT,
        "x.npy[:,2]: '2' for axis 1: reaches beyond the axis");
  snprintf(inputs, sizeof inputs, "%s[:,2]", in_folder("absent.npy"));
  FAILS(sl_dataset_read(inputs, &options, true, &set), SL_IO, "absent.npy: cannot be opened");
  unlink(in_folder("x.npy"));
}

/* A comma in brackets does not end a name; two slices of one array have two names; all have as many
 * samples. */
static void test_slice_fields(void **state) {
  (void)state;
  const struct member members[] = {{"x.npy", inputs_file(true), true},
                                   {"y.npy", targets_file(), false},
                                   {"q[0].npy", targets_file(), false},
                                   {"class.npy", labels_file(), true}};
  static const float expected[] = {2, 3, 1, 0, 0};
  struct sl_reader_options options = {.inputs = "x[:,1],x[: , 0:1,-1],y[:],q[0]",
                                      .target = "class[:],y",
                                      .raw = true,
                                      .raw_targets = true};
  struct sl_dataset *set;
  float x[5], targets[2];
  put_bytes("fields.npz", zip_of(members, 4, false));
  OK(sl_dataset_read(in_folder("fields.npz"), &options, true, &set));
  const struct sl_dataset_info *info = sl_dataset_info(set);
  static const char *const names[] = {"x_1", "x_0.1_-1", "y", "q"};
  assert_int_equal(info->input_count, 4);
  for (int i = 0; i < 4; i++) assert_string_equal(info->inputs[i].name, names[i]);
  assert_string_equal(info->targets[0].name, "class");
  assert_true(sl_shape_equal(&info->inputs[0].shape, &SL_SHAPE(2)));
  assert_true(sl_shape_equal(&info->inputs[1].shape, &SL_SHAPE(1)));
  for (int64_t i = 0; i < info->count; i++) {
    OK(sl_dataset_get_targets(set, i, x, targets));
    int number = -(int)targets[1];
    for (int k = 0; k < 3; k++) assert_true(x[k] == expected[k] + (float)(10 * number));
    assert_true(x[3] == (float)-number && x[4] == x[3] && targets[0] == (float)(number % 3));
  }
  sl_dataset_free(set);
  FAILS(open_fields("x[:,1],x[0:6,1],x[:,1]", "y", NULL), SL_BAD_ARGUMENT, "'x_1' is there twice");
  FAILS(open_fields("x[:5]", "y", NULL), SL_BAD_SHAPE, "x[:5]: 5 samples, but");
  FAILS(open_fields("x", "y[1:]", NULL), SL_BAD_SHAPE, "y[1:] has 5 targets");
  FAILS(open_fields("x[:,2]", "y", NULL), SL_BAD_ARGUMENT,
        "fields.npz: x[:,2]: '2' for axis 1: reaches beyond the axis; its shape is [6, 2, 2]");
  FAILS(open_fields("x[:,0", "y", NULL), SL_BAD_ARGUMENT, "'x[:,0': a bracket is not closed");
  FAILS(open_fields("z[:,0]", "y", NULL), SL_BAD_FILE, "has no array \"z\"; it has x, y");
  FAILS(open_fields("x[:,a]", "y", NULL), SL_BAD_FILE, "has no array \"x[:,a]\"");
  unlink(in_folder("fields.npz"));
}

/* Keras' names have their endings before the slice. */
static void test_slice_parts(void **state) {
  (void)state;
  struct sl_dataset *set;
  put_keras(4);
  for (int train = 0; train < 2; train++) {
    OK(sl_dataset_read(in_folder("keras.npz"),
                       &(struct sl_reader_options){.inputs = "x[:4,0],x[0:4,1]", .target = "y[:4]"},
                       train, &set));
    assert_int_equal(sl_dataset_info(set)->count, 4);
    assert_string_equal(sl_dataset_info(set)->inputs[1].name, "x_0.4_1");
    sl_dataset_free(set);
  }
  unlink(in_folder("keras.npz"));
}

/* ---- damaged sets ---- */

static enum sl_status open_set(const char *path, struct sl_reader_options options) {
  struct sl_dataset *set;
  enum sl_status status = sl_dataset_read(path, &options, true, &set);
  if (status == SL_OK) sl_dataset_free(set);
  return status;
}

static void test_refused(void **state) {
  (void)state;
  static const float bad[] = {0, 1, 2, NAN, 4, 5, 6, 7, 8, 9, 10, 11};
  static const int32_t negative[] = {0, 1, 2, -1, 4, 5};
  struct bytes short_targets = npy_of(1, NPY_HEADER("<f8", "False", "(2,)"), bad, 16);
  put_bytes("x.npy", inputs_file(false));
  put_bytes("y.npy", short_targets);
  FAILS(open_set(test_folder, (struct sl_reader_options){0}), SL_BAD_SHAPE, "has 2 targets");
  FAILS(open_set(in_folder("x.npy"), (struct sl_reader_options){0}), SL_BAD_ARGUMENT,
        "name the file of the targets");
  put_bytes("y.npy", npy_of(1, NPY_HEADER("<i4", "False", "(6,)"), negative, sizeof negative));
  FAILS(open_set(test_folder, (struct sl_reader_options){0}), SL_BAD_FILE, "sample 3 is no class");
  OK(open_set(test_folder, (struct sl_reader_options){.targets = SL_TARGET_VALUES}));
  put_bytes("y.npy", npy_of(1, NPY_HEADER("<f4", "False", "(6, 2)"), bad, sizeof bad));
  FAILS(open_set(test_folder, (struct sl_reader_options){.targets = SL_TARGET_CLASSES}),
        SL_BAD_SHAPE, "classes take one");
  FAILS(open_set(test_folder, (struct sl_reader_options){0}), SL_BAD_ARGUMENT,
        "sample 1: target 1 is not a number");
  put_bytes("y.npy", labels_file());
  put_bytes("x.npy", npy_of(1, NPY_HEADER("<f4", "False", "(6, 2)"), bad, sizeof bad));
  FAILS(open_set(test_folder, (struct sl_reader_options){0}), SL_BAD_ARGUMENT,
        "sample 1: value 1 is not a number");
  put_bytes("x.npy", inputs_file(false));
  static const char *const shares[] = {"0", "1", "-0.5", "2", "nothing.npz"};
  static const enum sl_status statuses[] = {SL_BAD_ARGUMENT, SL_BAD_ARGUMENT, SL_BAD_ARGUMENT,
                                            SL_BAD_ARGUMENT, SL_IO};
  for (int i = 0; i < 5; i++)
    assert_int_equal(open_set(test_folder, (struct sl_reader_options){.validation = shares[i]}),
                     statuses[i]);
  FAILS(open_set(test_folder, (struct sl_reader_options){.ignore = "a"}), SL_BAD_ARGUMENT,
        "which takes no ignored columns");
  FAILS(open_set("digits", (struct sl_reader_options){.validation = "fold:1/5"}), SL_BAD_ARGUMENT,
        "digits: has a test set of its own, and takes no validation part; leave the share, fold");
  FAILS(open_set("digits", (struct sl_reader_options){.target = "a"}), SL_BAD_ARGUMENT,
        "is digits, which takes no target");
  unlink(in_folder("x.npy")), unlink(in_folder("y.npy"));
  put_bytes("z.npy", labels_file());
  FAILS(open_set(test_folder, (struct sl_reader_options){0}), SL_IO, "x.npy: cannot be opened");
  unlink(in_folder("z.npy"));
}

/* The file of the validation must fit. */
static void test_validation_file(void **state) {
  (void)state;
  const struct member members[] = {{"x.npy", inputs_file(false), true},
                                   {"y.npy", labels_file(), true},
                                   {"z.npy", targets_file(), false}};
  struct sl_dataset *set;
  put_bytes("train.npz", zip_of(members, 2, false));
  put_bytes("test.npz", zip_of(members, 2, false));
  struct sl_reader_options options = {.validation = in_folder("test.npz")};
  for (int train = 0; train < 2; train++) {
    OK(sl_dataset_read(in_folder("train.npz"), &options, train, &set));
    assert_int_equal(sl_dataset_info(set)->count, COUNT);
    sl_dataset_free(set);
  }
  struct member other[] = {{"x.npy", targets_file(), true}, {"y.npy", labels_file(), true}};
  put_bytes("test.npz", zip_of(other, 2, false));
  FAILS(open_set(in_folder("train.npz"), options), SL_BAD_SHAPE, "samples are [1], but [2, 2]");
  static const uint8_t more[] = {0, 1, 2, 3, 0, 1};
  other[0].bytes = inputs_file(false);
  other[1].bytes = npy_of(1, NPY_HEADER("|u1", "False", "(6,)"), more, sizeof more);
  put_bytes("test.npz", zip_of(other, 2, false));
  FAILS(open_set(in_folder("train.npz"), options), SL_BAD_FILE, "has class 3");
}

/* An archive with one byte changed, and cut at any place. */
static void test_damaged_archive(void **state) {
  (void)state;
  const struct member members[] = {{"x.npy", inputs_file(false), true},
                                   {"y.npy", labels_file(), true}};
  struct bytes good = zip_of(members, 2, false), other = good;
  uint8_t *entry = memmem(other.at, other.size, "PK\1\2", 4);
  assert_non_null(entry);
  entry[16] ^= 1;
  put_bytes("bad.npz", other);
  FAILS(open_set(in_folder("bad.npz"), (struct sl_reader_options){0}), SL_BAD_FILE,
        "x.npy is damaged (its checksum differs)");
  for (size_t i = 0; i < good.size; i++) {
    struct bytes bad = good;
    bad.at[i] ^= 0x55;
    put_bytes("bad.npz", bad);
    enum sl_status status = open_set(in_folder("bad.npz"), (struct sl_reader_options){0});
    assert_true(status == SL_OK || status == SL_BAD_FILE || status == SL_BAD_SHAPE);
    bad = good;
    bad.size = i;
    put_bytes("bad.npz", bad);
    assert_int_equal(open_set(in_folder("bad.npz"), (struct sl_reader_options){0}), SL_BAD_FILE);
  }
}

/* A file that becomes shorter while it is in use. */
static void test_shrinks(void **state) {
  (void)state;
  struct sl_dataset *set;
  float x[4], target;
  put_bytes("x.npy", inputs_file(false));
  put_bytes("y.npy", targets_file());
  OK(sl_dataset_open(test_folder, 1, true, &set));
  assert_int_equal(truncate(in_folder("x.npy"), 100), 0);
  FAILS(sl_dataset_get_targets(set, 0, x, &target), SL_BAD_FILE, "became shorter");
  sl_dataset_free(set);
  unlink(in_folder("x.npy")), unlink(in_folder("y.npy"));
}

static long resident_kilobytes(void) {
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  assert_non_null(file);
  assert_int_equal(fscanf(file, "%*d %ld", &pages), 1);
  fclose(file);
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* 64 GB, nearly all of them a hole: only the rows that are asked for are read. */
static void test_larger_than_memory(void **state) {
  (void)state;
  enum { ROWS = 4096, SIDE = 2048, MOST_KILOBYTES = 100 * 1024 };
  static float row[SIDE * SIDE];
  static uint8_t labels[ROWS];
  const float marker = 42;
  struct sl_reader_options options = {.raw = true};
  struct bytes header = npy_of(1, NPY_HEADER("<f4", "False", "(4096, 2048, 2048)"), NULL, 0);
  off_t each = (off_t)sizeof row, first = (off_t)header.size;
  struct sl_dataset *set;
  int32_t label;
  put_bytes("x.npy", header);
  put_bytes("y.npy", npy_of(1, NPY_HEADER("|u1", "False", "(4096,)"), labels, sizeof labels));
  FILE *file = fopen(in_folder("x.npy"), "r+b");
  assert_non_null(file);
  if (ftruncate(fileno(file), first + ROWS * each) != 0) {
    fclose(file);
    printf("# skipped: no sparse files here\n");
    skip();
  }
  for (off_t i = 0; i < ROWS; i += ROWS / 4)
    assert_int_equal(pwrite(fileno(file), &marker, sizeof marker, first + i * each), 4);
  fclose(file);
  options.validation = test_folder; /* so that the rows stand in their order */
  long before = resident_kilobytes();
  OK(sl_dataset_read(test_folder, &options, true, &set));
  assert_int_equal(sl_dataset_info(set)->count, ROWS);
  for (int64_t i = 0; i < ROWS; i += ROWS / 4) {
    OK(sl_dataset_get(set, i, row, &label));
    assert_true(row[0] == marker && row[SIDE * SIDE - 1] == 0);
  }
  assert_true(resident_kilobytes() - before < MOST_KILOBYTES);
  sl_dataset_free(set);
  unlink(in_folder("x.npy")), unlink(in_folder("y.npy"));
}

/* Rows of more than a page, which are announced and read by calls of the system: a loader's batches
 * hold each sample once an epoch, with its own values. */
static void check_wide_rows(int readers, bool shuffle) {
  enum { ROWS = 24, VALUES = 1500, BATCH = 5 };
  struct sl_reader_options options = {.raw = true, .validation = test_folder};
  struct sl_loader_options o = {.batch = BATCH, .readers = readers, .shuffle = shuffle, .seed = 1};
  struct sl_dataset *set;
  struct sl_loader *loader;
  struct sl_batch batch;
  int seen[ROWS] = {0};
  OK(sl_dataset_read(test_folder, &options, true, &set));
  OK(sl_loader_new(set, &o, &loader));
  for (int64_t i = 0; i < 2 * sl_loader_length(loader); i++) {
    OK(sl_loader_next(loader, &batch));
    for (int64_t row = 0; row < batch.valid; row++) {
      const float *x = batch.x + row * VALUES;
      assert_int_equal(++seen[batch.labels[row]], 1 + batch.epoch);
      for (int k = 0; k < VALUES; k++) assert_true(x[k] == (float)(batch.labels[row] * VALUES + k));
    }
    sl_loader_recycle(loader, batch.slot);
  }
  for (int i = 0; i < ROWS; i++) assert_int_equal(seen[i], 2);
  sl_loader_free(loader);
  sl_dataset_free(set);
}

static void test_wide_rows(void **state) {
  (void)state;
  static float values[24 * 1500];
  uint8_t labels[24];
  for (int i = 0; i < 24 * 1500; i++) values[i] = (float)i;
  for (int i = 0; i < 24; i++) labels[i] = (uint8_t)i;
  put_bytes("x.npy", npy_of(1, NPY_HEADER("<f4", "False", "(24, 1500)"), NULL, 0));
  FILE *file = fopen(in_folder("x.npy"), "ab");
  assert_non_null(file);
  assert_int_equal(fwrite(values, sizeof values, 1, file), 1);
  assert_int_equal(fclose(file), 0);
  put_bytes("y.npy", npy_of(1, NPY_HEADER("|u1", "False", "(24,)"), labels, sizeof labels));
  check_wide_rows(1, false);
  check_wide_rows(1, true);
  check_wide_rows(3, true);
  unlink(in_folder("x.npy")), unlink(in_folder("y.npy"));
}

static enum sl_status open_good(void) {
  return open_set(in_folder("good.npz"), (struct sl_reader_options){.seed = 1});
}

static enum sl_status open_good_slices(void) {
  return open_set(in_folder("good.npz"),
                  (struct sl_reader_options){.inputs = "x[:,0],x[:,1]", .seed = 1});
}

static void test_allocations(void **state) {
  (void)state;
  const struct member members[] = {{"x.npy", inputs_file(true), true},
                                   {"y.npy", labels_file(), true}};
  put_bytes("good.npz", zip_of(members, 2, false));
  check_allocations(open_good);
  check_allocations(open_good_slices);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_elements),
      cmocka_unit_test(test_signs_and_limits),
      cmocka_unit_test(test_headers),
      cmocka_unit_test(test_cut),
      cmocka_unit_test(test_pairs),
      cmocka_unit_test(test_archives),
      cmocka_unit_test(test_same_members),
      cmocka_unit_test(test_numpy),
      cmocka_unit_test(test_parts),
      cmocka_unit_test(test_named_beside_parts),
      cmocka_unit_test(test_normalised),
      cmocka_unit_test(test_fields),
      cmocka_unit_test(test_normalised_fields),
      cmocka_unit_test(test_refused_fields),
      cmocka_unit_test(test_tokens),
      cmocka_unit_test(test_slice_names),
      cmocka_unit_test(test_slice_texts),
      cmocka_unit_test(test_slices),
      cmocka_unit_test(test_slice_pair),
      cmocka_unit_test(test_slice_fields),
      cmocka_unit_test(test_slice_parts),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_validation_file),
      cmocka_unit_test(test_damaged_archive),
      cmocka_unit_test(test_shrinks),
      cmocka_unit_test(test_larger_than_memory),
      cmocka_unit_test(test_wide_rows),
      cmocka_unit_test(test_allocations),
  };
  return cmocka_run_group_tests(tests, folder_setup, folder_teardown);
}
