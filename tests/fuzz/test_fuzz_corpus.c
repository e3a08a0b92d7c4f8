/* Every fuzzer, called on the seeds and findings in its folder of tests/fuzz/corpus: none may
 * crash. To look for more: make fuzz FUZZ_SECONDS=600; see CONTRIBUTING.md. */
#include <dirent.h>

#include "tests/common/files.h"

#define FUZZER(name) int fuzz_##name(const uint8_t *bytes, size_t size);
#include "tests/fuzz/fuzzers.def"
#undef FUZZER

/* As it is: sl__file_read would unpack it. */
static uint8_t *read_seed(const char *path, size_t *size) {
  const size_t most = 1 << 20;
  FILE *file = fopen(path, "rb");
  uint8_t *room = malloc(most), *bytes;
  assert_non_null(file);
  assert_non_null(room);
  *size = fread(room, 1, most, file);
  assert_true(*size < most);
  fclose(file);
  bytes = malloc(*size ? *size : 1); /* no byte too many is read */
  assert_non_null(bytes);
  memcpy(bytes, room, *size);
  free(room);
  return bytes;
}

static void replay(const char *reader, int (*fuzz)(const uint8_t *bytes, size_t size)) {
  char folder[2048], path[4096];
  int files = 0;
  snprintf(folder, sizeof folder, "%s/tests/fuzz/corpus/%s", source_folder(), reader);
  DIR *entries = opendir(folder);
  assert_non_null(entries);
  for (struct dirent *entry; (entry = readdir(entries));) {
    size_t size;
    if (entry->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    uint8_t *bytes = read_seed(path, &size);
    assert_int_equal(fuzz(bytes, size), 0);
    free(bytes);
    files++;
  }
  closedir(entries);
  assert_true(files > 0);
}

#define FUZZER(name)                                                                               \
  static void test_##name(void **state) {                                                          \
    (void)state;                                                                                   \
    replay(#name, fuzz_##name);                                                                    \
  }
#include "tests/fuzz/fuzzers.def"
#undef FUZZER

/* A folder without a fuzzer would never be replayed. */
static void test_folders(void **state) {
  static const char *const names[] = {
#define FUZZER(name) #name,
#include "tests/fuzz/fuzzers.def"
#undef FUZZER
  };
  char folder[2048];
  size_t found = 0;
  (void)state;
  snprintf(folder, sizeof folder, "%s/tests/fuzz/corpus", source_folder());
  DIR *entries = opendir(folder);
  assert_non_null(entries);
  for (struct dirent *entry; (entry = readdir(entries));) {
    bool known = entry->d_name[0] == '.';
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
      if (!strcmp(entry->d_name, names[i])) known = true, found++;
    if (!known) fail_msg("corpus/%s belongs to no row of fuzzers.def", entry->d_name);
  }
  closedir(entries);
  assert_int_equal(found, sizeof names / sizeof *names);
}

int main(void) {
  const struct CMUnitTest tests[] = {
#define FUZZER(name) cmocka_unit_test(test_##name),
#include "tests/fuzz/fuzzers.def"
#undef FUZZER
      cmocka_unit_test(test_folders),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
