/* What the fuzzers found worth keeping (tests/fuzz/corpus), replayed: none may crash. To look for
 * more: make fuzz mkdir new && tests/fuzz/fuzz_idx -max_total_time=600 -max_len=8192 new
 * tests/fuzz/corpus/idx and to keep what is new, in few files: mkdir kept && tests/fuzz/fuzz_idx
 * -merge=1 kept tests/fuzz/corpus/idx new */
#include <dirent.h>

#include "core/base/file.h"
#include "tests/common/files.h"

#define LLVMFuzzerTestOneInput fuzz_idx
#include "tests/fuzz/fuzz_idx.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_cifar
#include "tests/fuzz/fuzz_cifar.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_model
#include "tests/fuzz/fuzz_model.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_onnx
#include "tests/fuzz/fuzz_onnx.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_safetensors
#include "tests/fuzz/fuzz_safetensors.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_pnm
#include "tests/fuzz/fuzz_pnm.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_trace
#include "tests/fuzz/fuzz_trace.c"
#undef LLVMFuzzerTestOneInput

static void replay(const char *reader, int (*fuzz)(const uint8_t *bytes, size_t size)) {
  char folder[2048], path[4096];
  int files = 0;
  snprintf(folder, sizeof folder, "%s/tests/fuzz/corpus/%s", source_folder(), reader);
  DIR *entries = opendir(folder);
  assert_non_null(entries);
  for (struct dirent *entry; (entry = readdir(entries));) {
    uint8_t *bytes;
    size_t size;
    if (entry->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    assert_int_equal(sl__file_read(path, 1 << 20, &bytes, &size), SL_OK);
    assert_int_equal(fuzz(bytes, size), 0);
    free(bytes);
    files++;
  }
  closedir(entries);
  assert_true(files > 0);
}

static void test_idx(void **state) {
  (void)state;
  replay("idx", fuzz_idx);
}

static void test_cifar(void **state) {
  (void)state;
  replay("cifar", fuzz_cifar);
}

static void test_safetensors(void **state) {
  (void)state;
  replay("safetensors", fuzz_safetensors);
}

static void test_model(void **state) {
  (void)state;
  replay("model", fuzz_model);
}

static void test_onnx(void **state) {
  (void)state;
  replay("onnx", fuzz_onnx);
}

static void test_pnm(void **state) {
  (void)state;
  replay("pnm", fuzz_pnm);
}

static void test_trace(void **state) {
  (void)state;
  replay("trace", fuzz_trace);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_idx),         cmocka_unit_test(test_cifar),
      cmocka_unit_test(test_safetensors), cmocka_unit_test(test_model),
      cmocka_unit_test(test_onnx),        cmocka_unit_test(test_pnm),
      cmocka_unit_test(test_trace),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
