/* safetensors: round trips, a file that PyTorch wrote (tools/make_fixture.py small), every float
 * type, and files made to do harm: ranges that overlap, leave holes or run out of the file,
 * products that overflow, lengths that lie, names that come twice, nesting without end. */
#include <math.h>

#include "core/base/safetensors.h"
#include "tests/common/files.h"

/* A file's bytes from its header's text and data_size bytes of data. */
static size_t make_bytes(const char *header, size_t data_size, uint8_t *bytes) {
  uint64_t length = strlen(header);
  memcpy(bytes, &length, 8);
  memcpy(bytes + 8, header, length);
  for (size_t i = 0; i < data_size; i++) bytes[8 + length + i] = (uint8_t)i;
  return 8 + length + data_size;
}

static enum sl_status parse_status(const uint8_t *bytes, size_t size) {
  struct sl__safetensors *file;
  /* a block of just that size, so that the sanitizer sees a read behind it */
  uint8_t *block = malloc(size ? size : 1);
  memcpy(block, bytes, size);
  enum sl_status status = sl__safetensors_parse("a file", block, size, &file);
  if (status == SL_OK) sl__safetensors_close(file);
  free(block);
  return status;
}

#define T(dtype, shape, offsets)                                                                   \
  "{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" offsets "]}"

static void test_hostile_headers(void **state) {
  (void)state;
  static const struct {
    const char *header;
    size_t data;
    const char *message; /* NULL: a good file */
  } cases[] = {
      {"{}", 0, NULL},
      {"{}   ", 0, NULL},
      {"{\"a\":" T("F32", "2", "0,8") "}", 8, NULL},
      {"{\"a\":" T("F32", "", "0,4") "}", 4, NULL},
      {"{\"a\":" T("F32", "0,7", "0,0") ",\"b\":" T("U8", "1", "0,1") "}", 1, NULL},
      {"{\"b\":" T("U8", "1", "1,2") ",\"a\":" T("U8", "1", "0,1") "}", 2, NULL},
      {"{\"__metadata__\":{\"k\":\"v\"},\"a\":" T("U8", "1", "0,1") "}", 1, NULL},
      {"{\"__metadata__\":{\"k\":1}}", 0, "something else than text"},
      {"{\"__metadata__\":[]}", 0, "not an object"},
      {"", 0, "damaged header"},
      {"[]", 0, "no JSON header"},
      {"{\"a\":", 0, "damaged header"},
      {"{\"a\":" T("F32", "2", "0,8") "} x", 8, "damaged header"},
      {"{\"a\":1}", 0, "no \"dtype\""},
      {"{\"a\":{}}", 0, "no \"dtype\""},
      {"{\"a\":" T("F33", "2", "0,8") "}", 8, NULL}, /* a type of a later format */
      {"{\"a\":" T("F4", "6", "0,3") ",\"b\":" T("U8", "1", "3,4") "}", 4, NULL},
      {"{\"a\":" T("F33", "2", "0,8") "}", 9, "1 bytes too many"},
      {"{\"a\":" T("F33", "2", "0,8") "}", 7, "beyond the end"},
      {"{\"a\":" T("F33", "2", "8,0") "}", 8, "run backwards"},
      {"{\"a\":" T("F33", "2", "0") "}", 8, "no pair"},
      {"{\"a\":" T("F33", "-2", "0,8") "}", 8, "no natural number"},
      {"{\"a\":" T("F33", "4294967296,4294967296,4", "0,8") "}", 8, "too large"},
      {"{\"a\":" T("F33", "2", "0,3") ",\"b\":" T("U8", "2", "2,4") "}", 4, "overlaps"},
      {"{\"a\":" T("F33", "2", "0,1") ",\"b\":" T("U8", "2", "2,4") "}", 4, "unused bytes"},
      {"{\"a\":{\"dtype\":7,\"shape\":[],\"data_offsets\":[0,4]}}", 4, "no \"dtype\""},
      {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,4]}}", 4, "no list \"shape\""},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4]}}", 4, "no pair"},
      {"{\"a\":" T("U8", "4", "0") "}", 4, "no pair"},
      {"{\"a\":" T("U8", "4", "0,4,4") "}", 4, "no pair"},
      {"{\"a\":" T("U8", "4", "0,4.0") "}", 4, "no pair"},
      {"{\"a\":" T("U8", "4.0", "0,4") "}", 4, "no natural number"},
      {"{\"a\":" T("U8", "-4", "0,4") "}", 4, "no natural number"},
      {"{\"a\":" T("U8", "-2,-2", "0,4") "}", 4, "no natural number"},
      {"{\"a\":" T("U8", "1,1,1,1,1,4", "0,4") "}", 4, NULL},
      {"{\"a\":" T("U8", "1,1,1,1,1,5", "0,4") "}", 4, "differs from its size"},
      {"{\"a\":" T("U8", "1,1,1,1,1,-4", "0,4") "}", 4, "no natural number"},
      {"{\"a\":" T("U8", "1,1,1,1,1,4.0", "0,4") "}", 4, "no natural number"},
      {"{\"a\":" T("U8", "1,1,1,1,4294967296,4294967296", "0,4") "}", 4, "too large"},
      {"{\"a\":" T("U8", "4", "4,0") "}", 4, "run backwards"},
      {"{\"a\":" T("U8", "4", "-4,0") "}", 4, "run backwards"},
      {"{\"a\":" T("U8", "5", "0,5") "}", 4, "beyond the end"},
      {"{\"a\":" T("U8", "5", "0,4") "}", 4, "differs from its size"},
      {"{\"a\":" T("U8", "4", "0,4") "}", 5, "1 bytes too many"},
      {"{\"a\":" T("F32", "4611686018427387904", "0,0") "}", 0, "too large"},
      {"{\"a\":" T("F32", "4294967296,4294967296", "0,0") "}", 0, "too large"},
      {"{\"a\":" T("U8", "4294967296,4294967296,0", "0,0") "}", 0, "too large"},
      {"{\"a\":" T("U8", "99999999999999999999", "0,4") "}", 4, "damaged header"},
      {"{\"a\":" T("U8", "2", "0,2") ",\"a\":" T("U8", "2", "2,4") "}", 4, "duplicate"},
      {"{\"a\":" T("U8", "3", "0,3") ",\"b\":" T("U8", "2", "2,4") "}", 4, "overlaps"},
      {"{\"a\":" T("U8", "4", "0,4") ",\"b\":" T("U8", "4", "0,4") "}", 4, "overlaps"},
      {"{\"a\":" T("U8", "1", "0,1") ",\"b\":" T("U8", "2", "2,4") "}", 4, "unused bytes"},
      {"{\"a\":" T("U8", "3", "1,4") "}", 4, "unused bytes"},
      {"{\"a\\u0000b\":" T("U8", "4", "0,4") "}", 4, "damaged header"},
      {"{\"\xff\":" T("U8", "4", "0,4") "}", 4, "damaged header"},
      {"{\"\\u001b[31m\":" T("U9", "4", "0,5") "}", 4, "\"?[31m\""},
  };
  uint8_t bytes[1024];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    enum sl_status status = parse_status(bytes, make_bytes(cases[i].header, cases[i].data, bytes));
    if (cases[i].message)
      FAILS(status, SL_BAD_FILE, cases[i].message);
    else
      assert_int_equal(status, SL_OK);
  }
}

static void test_lengths_that_lie(void **state) {
  (void)state;
  uint8_t bytes[64];
  size_t size = make_bytes("{}", 0, bytes);
  static const uint64_t lengths[] = {3,          1000,       100000001,     1ull << 32,
                                     1ull << 63, UINT64_MAX, UINT64_MAX - 7};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    memcpy(bytes, &lengths[i], 8);
    FAILS(parse_status(bytes, size), SL_BAD_FILE, "a file: ");
  }
}

static void test_a_file_of_torch_save(void **state) {
  (void)state;
  const uint8_t bytes[64] = "PK\003\004\0\0\b\b\0\0";
  FAILS(parse_status(bytes, sizeof bytes), SL_BAD_FILE, "safetensors.torch.save_file(torch.load(");
}

static void test_nesting(void **state) {
  (void)state;
  size_t depth = 1000000;
  char *header = malloc(depth + 1);
  uint8_t *bytes = malloc(depth + 9);
  memset(header, '[', depth);
  header[depth] = '\0';
  memcpy(header, "{\"a\":", 5);
  FAILS(parse_status(bytes, make_bytes(header, 0, bytes)), SL_BAD_FILE, "depth");
  free(header);
  free(bytes);
}

static void test_cut_anywhere(void **state) {
  (void)state;
  uint8_t bytes[1024];
  size_t size =
      make_bytes("{\"a\":" T("F32", "2", "0,8") ",\"b\":" T("F16", "2", "8,12") "}", 12, bytes);
  assert_int_equal(parse_status(bytes, size), SL_OK);
  for (size_t cut = 0; cut < size; cut++) FAILS(parse_status(bytes, cut), SL_BAD_FILE, "a file: ");
}

static void test_round_trip(void **state) {
  (void)state;
  static const float weight[6] = {1, -2, 3.5f, -0.0f, 1e-40f, 3e38f};
  static const int64_t step = 1234567890123;
  static const float bias[1] = {7};
  const struct sl__safetensors_entry entries[] = {
      {"fc1.bias", "F32", SL_SHAPE(1), bias, sizeof bias},
      {"step", "I64", {0}, &step, sizeof step},
      {"fc1.weight \"\\ \xc3\xa9", "F32", SL_SHAPE(2, 3), weight, sizeof weight},
      {"empty", "F32", SL_SHAPE(0), weight, 0},
  };
  const char *const metadata[] = {"format", "pt", "epoch", "3", NULL};
  const char *path = in_folder("round.safetensors");
  struct sl__safetensors *file;
  float values[6];
  assert_int_equal(sl__safetensors_write(path, entries, 4, metadata, NULL), SL_OK);
  assert_int_equal(sl__safetensors_open(path, &file), SL_OK);
  assert_int_equal(sl__safetensors_count(file), 4);
  assert_string_equal(sl__safetensors_path(file), path);
  for (size_t i = 0; i < 4; i++) {
    const struct sl__safetensors_entry *entry = sl__safetensors_at(file, i);
    assert_string_equal(entry->name, entries[i].name);
    assert_string_equal(entry->dtype, entries[i].dtype);
    assert_true(sl_shape_equal(&entry->shape, &entries[i].shape));
    assert_int_equal(entry->bytes, entries[i].bytes);
    assert_memory_equal(entry->data, entries[i].data, entry->bytes);
    assert_ptr_equal(sl__safetensors_find(file, entry->name), entry);
  }
  /* whatever the order, readers that map the file find every value aligned */
  assert_int_equal((uintptr_t)sl__safetensors_find(file, "step")->data % 8, 0);
  assert_int_equal(sl__safetensors_floats(file, entries[2].name, &SL_SHAPE(2, 3), values), SL_OK);
  assert_memory_equal(values, weight, sizeof weight);
  assert_null(sl__safetensors_find(file, "fc1"));
  FAILS(sl__safetensors_floats(file, "fc9", &SL_SHAPE(1), values), SL_BAD_FILE, "\"fc9\"");
  FAILS(sl__safetensors_floats(file, "fc1.bias", &SL_SHAPE(1, 1), values), SL_BAD_SHAPE,
        "is [1], the model needs [1, 1]");
  FAILS(sl__safetensors_floats(file, "step", &(struct sl_shape){0}, values), SL_BAD_FILE,
        "type I64");
  sl__safetensors_close(file);
  sl__safetensors_close(NULL);
}

static void test_float_types(void **state) {
  (void)state;
  /* 1, -2, the largest, the smallest normal, the smallest subnormal, -0, infinity, not a number */
  static const uint16_t half[8] = {0x3c00, 0xc000, 0x7bff, 0x0400, 0x0001, 0x8000, 0x7c00, 0x7e01};
  static const float half_values[7] = {1, -2, 65504, 0x1p-14f, 0x1p-24f, -0.0f, INFINITY};
  static const uint16_t brain[2] = {0x3f80, 0xc049};
  static const double large[2] = {0.1, -1e300};
  const struct sl__safetensors_entry entries[] = {
      {"half", "F16", SL_SHAPE(8), half, sizeof half},
      {"brain", "BF16", SL_SHAPE(2), brain, sizeof brain},
      {"double", "F64", SL_SHAPE(2), large, sizeof large},
  };
  struct sl__safetensors *file;
  float values[8];
  assert_int_equal(sl__safetensors_write(in_folder("types"), entries, 3, NULL, NULL), SL_OK);
  assert_int_equal(sl__safetensors_open(in_folder("types"), &file), SL_OK);
  assert_int_equal(sl__safetensors_floats(file, "half", &SL_SHAPE(8), values), SL_OK);
  assert_memory_equal(values, half_values, sizeof half_values);
  assert_true(isnan(values[7]));
  assert_int_equal(sl__safetensors_floats(file, "brain", &SL_SHAPE(2), values), SL_OK);
  assert_true(values[0] == 1.0f && values[1] == -3.140625f);
  assert_int_equal(sl__safetensors_floats(file, "double", &SL_SHAPE(2), values), SL_OK);
  assert_true(values[0] == 0.1f && values[1] == -INFINITY);
  sl__safetensors_close(file);
}

/* A mapped file has the same values, over the end of a piece, too; and it may be cut short. */
static void test_mapped(void **state) {
  (void)state;
  enum { COUNT = 10000 };
  static uint16_t brain[COUNT];
  static float single[COUNT], values[COUNT];
  for (int i = 0; i < COUNT; i++) brain[i] = (uint16_t)(i + 1), single[i] = (float)i;
  const struct sl__safetensors_entry entries[] = {
      {"brain", "BF16", SL_SHAPE(COUNT), brain, sizeof brain},
      {"single", "F32", SL_SHAPE(COUNT), single, sizeof single},
      {"whole", "I32", SL_SHAPE(COUNT), single, sizeof single},
  };
  struct sl__safetensors *file;
  OK(sl__safetensors_write(in_folder("mapped"), entries, 3, NULL, NULL));
  OK(sl__safetensors_map(in_folder("mapped"), &file));
  OK(sl__safetensors_floats(file, "single", &SL_SHAPE(COUNT), values));
  assert_memory_equal(values, single, sizeof single);
  OK(sl__safetensors_floats(file, "brain", &SL_SHAPE(COUNT), values));
  for (int i = 0; i < COUNT; i++) {
    uint32_t bits = (uint32_t)brain[i] << 16;
    assert_memory_equal(&values[i], &bits, sizeof bits);
  }
  FAILS(sl__safetensors_floats(file, "whole", &SL_SHAPE(COUNT), values), SL_BAD_FILE,
        "tensor \"whole\" is of type I32, not F32, F64, F16 or BF16");
  assert_int_equal(truncate(in_folder("mapped"), 50000), 0);
  FAILS(sl__safetensors_floats(file, "brain", &SL_SHAPE(COUNT), values), SL_BAD_FILE,
        "became shorter"); /* it lies behind the larger values */
  sl__safetensors_close(file);
}

/* Tensors that cannot be read do not hide the others: one with many dimensions, one of a type of a
 * later format. */
static void test_unread_tensors(void **state) {
  (void)state;
  uint8_t bytes[512];
  struct sl__safetensors *file;
  float values[8];
  size_t size = make_bytes("{\"deep\":" T("F32", "1,1,1,1,1,2", "0,8") ",\"new\":" T(
                               "F6", "2", "8,10") ",\"known\":" T("F16", "2", "10,14") "}",
                           14, bytes);
  assert_int_equal(sl__safetensors_parse("a file", bytes, size, &file), SL_OK);
  assert_int_equal(sl__safetensors_count(file), 3);
  assert_int_equal(sl__safetensors_find(file, "deep")->bytes, 8);
  assert_int_equal(sl__safetensors_find(file, "new")->bytes, 2);
  assert_string_equal(sl__safetensors_find(file, "new")->dtype, "F6");
  assert_int_equal(sl__safetensors_floats(file, "known", &SL_SHAPE(2), values), SL_OK);
  FAILS(sl__safetensors_floats(file, "deep", &SL_SHAPE(2), values), SL_UNSUPPORTED,
        "a file: tensor \"deep\" has 6 dimensions");
  FAILS(sl__safetensors_floats(file, "deep", &SL_SHAPE(1, 1, 1, 1, 1), values), SL_UNSUPPORTED,
        "6 dimensions");
  FAILS(sl__safetensors_floats(file, "new", &SL_SHAPE(2), values), SL_UNSUPPORTED,
        "a file: tensor \"new\" is of type F6");
  sl__safetensors_close(file);
}

static void test_bad_writes(void **state) {
  (void)state;
  static const float values[4];
  const struct {
    struct sl__safetensors_entry entries[2];
    enum sl_status status;
    const char *message;
  } cases[] = {
      {{{"a", "F32", SL_SHAPE(4), values, 16}, {"a", "F32", SL_SHAPE(4), values, 16}},
       SL_BAD_ARGUMENT,
       "twice"},
      {{{"a", "F32", SL_SHAPE(4), values, 12}, {"b", "F32", SL_SHAPE(4), values, 16}},
       SL_BAD_SHAPE,
       "12 bytes"},
      {{{"a", "F32", SL_SHAPE(-4), values, 16}, {"b", "F32", SL_SHAPE(4), values, 16}},
       SL_BAD_SHAPE,
       "impossible"},
      {{{"a", "F99", SL_SHAPE(4), values, 16}, {"b", "F32", SL_SHAPE(4), values, 16}},
       SL_BAD_ARGUMENT,
       "F99"},
      {{{"__metadata__", "F32", SL_SHAPE(4), values, 16}, {"b", "F32", SL_SHAPE(4), values, 16}},
       SL_BAD_ARGUMENT,
       "__metadata__"},
      {{{"\xff", "F32", SL_SHAPE(4), values, 16}, {"b", "F32", SL_SHAPE(4), values, 16}},
       SL_BAD_ARGUMENT,
       "UTF-8"},
  };
  int files = count_files();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    FAILS(sl__safetensors_write(in_folder("bad"), cases[i].entries, 2, NULL, NULL), cases[i].status,
          cases[i].message);
  assert_int_equal(count_files(), files);
  FAILS(sl__safetensors_write(in_folder("none/file"), cases[0].entries, 1, NULL, NULL), SL_IO,
        "folder does not exist");
  FAILS(sl__safetensors_write(test_folder, cases[0].entries, 1, NULL, NULL), SL_IO, "folder");
}

/* The i-th value is i / 4 - (length of the name). */
static void check_formula(const struct sl__safetensors *file, const char *name,
                          struct sl_shape shape) {
  float values[64];
  assert_int_equal(sl__safetensors_floats(file, name, &shape, values), SL_OK);
  for (int64_t i = 0; i < sl_shape_count(&shape); i++)
    assert_true(values[i] == (float)i / 4 - (float)strlen(name));
}

static void test_written_by_pytorch(void **state) {
  (void)state;
  char path[4096];
  struct sl__safetensors *file;
  snprintf(path, sizeof path, "%s/tests/fixtures/torch_small.safetensors", source_folder());
  assert_int_equal(sl__safetensors_open(path, &file), SL_OK);
  assert_int_equal(sl__safetensors_count(file), 15);
  check_formula(file, "conv1.weight", SL_SHAPE(3, 1, 2, 2));
  check_formula(file, "conv1.bias", SL_SHAPE(3));
  check_formula(file, "bn1.running_var", SL_SHAPE(3));
  check_formula(file, "fc1.weight", SL_SHAPE(5, 12));
  check_formula(file, "fc1.bias", SL_SHAPE(5));
  check_formula(file, "half.weight", SL_SHAPE(2, 4));
  check_formula(file, "brain.weight", SL_SHAPE(2, 4));
  check_formula(file, "double.weight", SL_SHAPE(2, 4));
  const struct sl__safetensors_entry *batches =
      sl__safetensors_find(file, "bn1.num_batches_tracked");
  assert_non_null(batches);
  assert_string_equal(batches->dtype, "I64");
  assert_int_equal(batches->shape.ndim, 0);
  sl__safetensors_close(file);
}

static enum sl_status write_one(void) {
  static const float values[4];
  const struct sl__safetensors_entry entry = {"a", "F32", SL_SHAPE(4), values, sizeof values};
  const char *const metadata[] = {"key", "value", NULL};
  return sl__safetensors_write(in_folder("one"), &entry, 1, metadata, NULL);
}

static enum sl_status open_one(void) {
  struct sl__safetensors *file;
  enum sl_status status = sl__safetensors_open(in_folder("one"), &file);
  if (status == SL_OK) sl__safetensors_close(file);
  return status;
}

static void test_allocations(void **state) {
  (void)state;
  int files = count_files();
  check_allocations(write_one);
  assert_int_equal(count_files(), files + 1);
  check_allocations(open_one);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_hostile_headers),
      cmocka_unit_test(test_lengths_that_lie),
      cmocka_unit_test(test_a_file_of_torch_save),
      cmocka_unit_test(test_nesting),
      cmocka_unit_test(test_cut_anywhere),
      cmocka_unit_test(test_round_trip),
      cmocka_unit_test(test_float_types),
      cmocka_unit_test(test_unread_tensors),
      cmocka_unit_test(test_bad_writes),
      cmocka_unit_test(test_written_by_pytorch),
      cmocka_unit_test(test_mapped),
      cmocka_unit_test(test_allocations),
  };
  return cmocka_run_group_tests(tests, folder_setup, folder_teardown);
}
