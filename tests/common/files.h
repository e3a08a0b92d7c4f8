/* For tests of readers and writers: a folder for each test, and allocations that fail. */
#ifndef SL_TESTS_COMMON_FILES_H
#define SL_TESTS_COMMON_FILES_H

#include <fts.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "core/base/error.h"
#include "tests/common/harness.h"

static char test_folder[4096 - 300];

/* Group fixtures for cmocka_run_group_tests. */
static inline int folder_setup(void **state) {
  const char *parent = getenv("TMPDIR");
  (void)state;
  snprintf(test_folder, sizeof test_folder, "%s/starling-test-XXXXXX", parent ? parent : "/tmp");
  return mkdtemp(test_folder) ? 0 : -1;
}

/* Counts the entries of the test's folder; removes them and the folder if `removing` is set. */
static inline int walk_folder(int removing) {
  char *const folders[] = {test_folder, NULL};
  FTS *walk = fts_open(folders, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
  int entries = -1; /* the folder itself */
  if (!walk) return -1;
  for (FTSENT *entry; (entry = fts_read(walk));) {
    if (entry->fts_info == FTS_D)
      continue; /* an entry of the folder follows the folder's own contents */
    if (removing && remove(entry->fts_accpath) != 0) perror(entry->fts_path);
    entries++;
  }
  fts_close(walk);
  return entries;
}

static inline int folder_teardown(void **state) {
  (void)state;
  return walk_folder(1) < 0 ? -1 : 0;
}

/* For checks that no file is left over. */
static inline int count_files(void) { return walk_folder(0); }

/* The top of the source tree; SL_SRCDIR names it in a build elsewhere. */
static inline const char *source_folder(void) {
  const char *folder = getenv("SL_SRCDIR");
  return folder ? folder : ".";
}

/* Path of a file in the test's folder; valid for the next seven calls. */
static inline const char *in_folder(const char *name) {
  static char paths[8][4096];
  static int turn;
  char *path = paths[turn++ % 8];
  snprintf(path, sizeof paths[0], "%s/%s", test_folder, name);
  return path;
}

static inline const char *put(const char *name, const void *bytes, size_t size) {
  const char *path = in_folder(name);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, size, file), size);
  assert_int_equal(fclose(file), 0);
  return path;
}

static inline const char *put_gz(const char *name, const void *bytes, size_t size) {
  const char *path = in_folder(name);
  gzFile file = gzopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(gzwrite(file, bytes, (unsigned)size), size);
  assert_int_equal(gzclose(file), Z_OK);
  return path;
}

/* Asserts that action succeeds, and returns SL_NO_MEMORY if any one allocation fails; the sanitizer
 * build finds leaks. */
static inline void check_allocations(enum sl_status (*action)(void)) {
  for (long n = 1;; n++) {
    assert_true(n < 10000);
    sl__alloc_fail_after(n);
    enum sl_status status = action();
    sl__alloc_fail_after(0);
    if (status == SL_OK) break;
    assert_int_equal(status, SL_NO_MEMORY);
  }
}

#endif
