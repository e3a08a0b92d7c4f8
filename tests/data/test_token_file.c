/* Token files: samples of every form against the numbers that were written; damaged files. */
#include <starling/data.h>

#include "data/dataset.h"
#include "tests/common/files.h"

/* Sample i, as a loader reads it. */
static enum sl_status read_sample(const struct sl_dataset *set, int64_t i, int32_t *x, int32_t *y) {
  return set->kind->fill(set, 1, &i, &(struct sl__rows){.x = (float *)(void *)x, .labels = y});
}

static uint8_t bytes[1024 + 4 * 100];

/* 100 tokens 7 i (u32: + 70000), behind llm.c's header if there is one. Returns the size. */
static size_t write_tokens(int width, uint32_t magic, uint32_t version, uint32_t count) {
  uint32_t head[3] = {magic, version, count};
  size_t at = magic ? 1024 : 0;
  memset(bytes, 0, sizeof bytes);
  if (magic) memcpy(bytes, head, sizeof head);
  for (uint32_t i = 0; i < 100; i++, at += (size_t)width) {
    uint32_t token = 7 * i + (width == 4 ? 70000 : 0);
    for (int b = 0; b < width; b++) bytes[at + (size_t)b] = (uint8_t)(token >> 8 * b);
  }
  return at;
}

static enum sl_status open_file(size_t size, enum sl_token_type type, double from, double to,
                                int64_t steps, struct sl_dataset **set) {
  return sl_token_file_open(put("t.bin", bytes, size),
                            &(struct sl_token_file_options){type, from, to, steps, 80000}, set);
}

static void check_part(size_t size, enum sl_token_type type, double from, double to, int first,
                       int count) {
  struct sl_dataset *set;
  OK(open_file(size, type, from, to, 4, &set));
  assert_int_equal(sl_dataset_info(set)->count, count);
  int base = type == SL_TOKENS_U32 ? 70000 : 0;
  for (int i = 0; i < count; i++) {
    int32_t x[4], y[4];
    OK(read_sample(set, i, x, y));
    for (int k = 0; k < 4; k++) {
      assert_int_equal(x[k], base + 7 * (first + 4 * i + k));
      assert_int_equal(y[k], base + 7 * (first + 4 * i + k + 1));
    }
  }
  sl_dataset_free(set);
}

static void test_parts(void **state) {
  (void)state;
  check_part(write_tokens(2, 0, 0, 0), SL_TOKENS_U16, 0, 0, 0, 24);
  check_part(write_tokens(2, 0, 0, 0), SL_TOKENS_U16, 0, 0.9, 0, 22);
  check_part(write_tokens(4, 0, 0, 0), SL_TOKENS_U32, 0.9, 1, 90, 2);
  check_part(write_tokens(2, 20240520, 1, 100), SL_TOKENS_U16, 0, 1, 0, 24);
  check_part(write_tokens(4, 20240801, 1, 100), SL_TOKENS_U32, 0.5, 0, 50, 12);
}

static void test_refused(void **state) {
  (void)state;
  struct sl_dataset *set;
  size_t u16 = write_tokens(2, 0, 0, 0);
  FAILS(open_file(u16 - 1, SL_TOKENS_U16, 0, 0, 4, &set), SL_BAD_FILE, "no multiple of 2");
  FAILS(open_file(u16 - 2, SL_TOKENS_U32, 0, 0, 4, &set), SL_BAD_FILE, "no multiple of 4");
  FAILS(open_file(u16, SL_TOKENS_U16, 0, 0, 100, &set), SL_BAD_ARGUMENT, "too few");
  FAILS(open_file(u16, SL_TOKENS_U16, 0.5, 0.5, 4, &set), SL_BAD_ARGUMENT, "shares from 0 to 1");
  FAILS(open_file(u16, (enum sl_token_type)2, 0, 0, 4, &set), SL_BAD_ARGUMENT, "type 2");
  size_t u32 = write_tokens(4, 20240801, 1, 100);
  FAILS(open_file(u32, SL_TOKENS_U16, 0, 0, 4, &set), SL_BAD_FILE, "header says u32");
  FAILS(open_file(u32 - 4, SL_TOKENS_U32, 0, 0, 4, &set), SL_BAD_FILE, "promises 100");
  write_tokens(4, 20240801, 2, 100);
  FAILS(open_file(u32, SL_TOKENS_U32, 0, 0, 4, &set), SL_BAD_FILE, "version 2");
}

static void test_outside(void **state) {
  (void)state;
  struct sl_dataset *set;
  int32_t x[4], y[4];
  put("t.bin", bytes, write_tokens(2, 0, 0, 0));
  OK(sl_token_file_open(in_folder("t.bin"),
                        &(struct sl_token_file_options){SL_TOKENS_U16, 0, 0, 4, 35}, &set));
  OK(read_sample(set, 0, x, y)); /* tokens 0 to 28: all are inside */
  FAILS(read_sample(set, 1, x, y), SL_BAD_FILE, "token 5 is 35");
  sl_dataset_free(set);
}

/* What is written is read again, with the type of the header. */
static void test_written(void **state) {
  (void)state;
  enum { COUNT = 5000 };
  int32_t tokens[COUNT], *read;
  int64_t count;
  for (int width = 2; width <= 4; width += 2) {
    enum sl_token_type type = width == 2 ? SL_TOKENS_U16 : SL_TOKENS_U32;
    for (int i = 0; i < COUNT; i++) tokens[i] = (width == 2 ? 13 : 400009) * i;
    OK(sl_token_file_write(in_folder("written.bin"), type, tokens, COUNT));
    OK(sl_token_file_read(in_folder("written.bin"), SL_TOKENS_U16, &read, &count));
    assert_int_equal(count, COUNT);
    assert_memory_equal(read, tokens, sizeof tokens);
    free(read);
  }
  FAILS(sl_token_file_write(in_folder("x.bin"), SL_TOKENS_U16, tokens, COUNT), SL_BAD_ARGUMENT,
        "token 1 is 400009; its type holds 0 to 65535");
  FAILS(sl_token_file_write(in_folder("x.bin"), SL_TOKENS_U32, (int32_t[]){-1}, 1), SL_BAD_ARGUMENT,
        "is -1");
  FAILS(sl_token_file_write(in_folder("none/x.bin"), SL_TOKENS_U16, NULL, 0), SL_IO, "not exist");
  FAILS(sl_token_file_write("x.bin", (enum sl_token_type)5, NULL, 0), SL_BAD_ARGUMENT, "type 5");
  OK(sl_token_file_read(put("t.bin", "\1\0\2\0", 4), SL_TOKENS_U16, &read, &count));
  assert_true(count == 2 && read[0] == 1 && read[1] == 2);
  free(read);
  FAILS(sl_token_file_read(put("t.bin", "\1\0\2", 3), SL_TOKENS_U16, &read, &count), SL_BAD_FILE,
        "no multiple of 2");
  FAILS(sl_token_file_read(put("t.bin", "\1\0\2\xff", 4), SL_TOKENS_U32, &read, &count),
        SL_BAD_FILE, "another type");
  FAILS(sl_token_file_read(in_folder("none"), SL_TOKENS_U32, &read, &count), SL_IO, "No such");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts), cmocka_unit_test(test_refused),
                                     cmocka_unit_test(test_outside),
                                     cmocka_unit_test(test_written)};
  return cmocka_run_group_tests(tests, folder_setup, folder_teardown);
}
