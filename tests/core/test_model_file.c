/* StarPU's files of performance models: StarPU aborts the process at one that it cannot read. Each
 * run is a context and a short training with a scheduler that writes them. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/common/comma_locale.h"

static int warnings;

/* The program's own calls replace the C library's: locks fail where there is none, and in the pause
 * between two looks another process ends its writing. */
static struct {
  bool is_missing;
  const char *path; /* of the file that it writes */
  char bytes[1 << 16];
  size_t size;
} locks;

int fcntl(int fd, int command, ...) {
  va_list list;
  va_start(list, command);
  void *argument = va_arg(list, void *);
  va_end(list);
  if (locks.is_missing && command == F_SETLKW) return errno = ENOLCK, -1;
  return (int)syscall(SYS_fcntl, fd, command, argument);
}

int fcntl64(int fd, int command, ...) __attribute__((alias("fcntl")));

int nanosleep(const struct timespec *time, struct timespec *rest) {
  if (locks.path && time->tv_nsec == 100000000) {
    FILE *f = fopen(locks.path, "w");
    fwrite(locks.bytes, 1, locks.size, f);
    fclose(f);
    locks.path = NULL;
  }
  return (int)syscall(SYS_nanosleep, time, rest);
}

static void count_warnings(void *user, enum sl_level level, const char *text) {
  (void)user;
  warnings += level == SL_LOG_WARNING && strstr(text, "performance model");
}

static void train(void) {
  struct sl_dataset *digits;
  struct sl_loader *loader;
  struct sl_model *model;
  struct sl_trainer *trainer;
  struct sl_fit_result result;
  warnings = 0;
  assert_int_equal(
      open_context_with(&(struct sl_context_options){.devices = "cpu", .log = count_warnings}), 0);
  OK(sl_dataset_open("digits", 1, true, &digits));
  OK(sl_loader_new(digits, &(struct sl_loader_options){.batch = 16}, &loader));
  OK(sl_model_new(context, &SL_SHAPE(1, 28, 28), &model));
  OK(sl_dense(model, "fc1", &(struct sl_dense_options){.features = 10}));
  OK(sl_trainer_new(model, &(struct sl_optimizer){.lr = 0.1f}, NULL, NULL, &trainer));
  OK(sl_fit(trainer, loader, &(struct sl_fit_options){.steps = 12}, &result));
  sl_trainer_free(trainer);
  sl_model_free(model);
  sl_close(context);
  sl_loader_free(loader);
  sl_dataset_free(digits);
}

/* How many files there are of this pattern; to be freed by globfree. */
static int find(const char *pattern, glob_t *found) {
  return glob(in_folder(pattern), 0, NULL, found) == 0 ? (int)found->gl_pathc : 0;
}

static int count(const char *pattern) {
  glob_t found = {0};
  int files = find(pattern, &found);
  globfree(&found);
  return files;
}

static bool has_comma(const char *path) {
  char line[512];
  bool found = false;
  FILE *f = fopen(path, "r");
  assert_non_null(f);
  while (fgets(line, sizeof line, f)) found |= line[0] != '#' && strchr(line, ',');
  fclose(f);
  return found;
}

static void a_locale_changes_no_file(void **state) {
  (void)state;
  glob_t found = {0};
  if (!set_comma_locale()) skip();
  train();
  setlocale(LC_ALL, "C");
  assert_true(find(".starpu/sampling/codelets/*/sl_*.vm*", &found) > 0);
  for (size_t i = 0; i < found.gl_pathc; i++) assert_false(has_comma(found.gl_pathv[i]));
  globfree(&found);
  train();
  assert_int_equal(warnings, 0);
  assert_non_null(setlocale(LC_ALL, "de_DE.UTF-8"));
  train();
  assert_int_equal(warnings, 0);
  setlocale(LC_ALL, "C");
}

/* Files that were cut at their begin, in the middle, in the last line, and before its end. */
static void a_cut_file_is_set_aside(void **state) {
  (void)state;
  train();
  for (int where = 0; where < 5; where++) {
    glob_t found = {0};
    int files = find(".starpu/sampling/codelets/*/sl_*.vm", &found);
    assert_true(files > 0);
    for (int i = 0; i < files; i++) {
      struct stat info;
      assert_int_equal(stat(found.gl_pathv[i], &info), 0);
      const off_t sizes[] = {1, 200, info.st_size / 2, info.st_size - 4, info.st_size - 2};
      assert_int_equal(truncate(found.gl_pathv[i], sizes[where]), 0);
    }
    globfree(&found);
    train();
    assert_int_equal(warnings, files);
    assert_int_equal(count(".starpu/sampling/codelets/*/sl_*.vm.damaged"), files);
    assert_int_equal(count(".starpu/sampling/codelets/*/sl_*.vm"), files); /* written anew */
  }
  train();
  assert_int_equal(warnings, 0);
}

/* A file that looks cut may just be written, where no lock tells. */
static void a_file_in_the_making_stays(void **state) {
  (void)state;
  glob_t found = {0};
  train();
  int files = find(".starpu/sampling/codelets/*/sl_*.vm", &found);
  int aside = count(".starpu/sampling/codelets/*/sl_*.vm.damaged");
  assert_true(files > 0);
  FILE *f = fopen(found.gl_pathv[0], "r");
  assert_non_null(f);
  locks.size = fread(locks.bytes, 1, sizeof locks.bytes, f);
  fclose(f);
  assert_int_equal(truncate(found.gl_pathv[0], (off_t)locks.size / 2), 0);
  locks.path = found.gl_pathv[0];
  locks.is_missing = true;
  train();
  assert_null(locks.path);
  assert_int_equal(warnings, 0);
  assert_int_equal(count(".starpu/sampling/codelets/*/sl_*.vm.damaged"), aside);
  assert_int_equal(truncate(found.gl_pathv[0], (off_t)locks.size / 2), 0);
  train();
  locks.is_missing = false;
  assert_int_equal(warnings, 1);
  globfree(&found);
}

static void write_number_with_comma(const char *path) {
  FILE *f = fopen(path, "r+");
  int c;
  assert_non_null(f);
  while ((c = fgetc(f)) != EOF && c != '.') continue;
  assert_int_equal(c, '.');
  fseek(f, -1, SEEK_CUR);
  fputc(',', f);
  fclose(f);
}

static void a_file_with_commas_is_set_aside(void **state) {
  (void)state;
  glob_t found = {0};
  train();
  int files = find(".starpu/sampling/codelets/*/sl_*.vm", &found);
  assert_true(files > 0);
  for (int i = 0; i < files; i++) write_number_with_comma(found.gl_pathv[i]);
  globfree(&found);
  train();
  assert_int_equal(warnings, files);
}

static void an_empty_file_is_left_to_starpu(void **state) {
  (void)state;
  glob_t found = {0};
  train();
  int files = find(".starpu/sampling/codelets/*/sl_*.vm", &found);
  for (int i = 0; i < files; i++) assert_int_equal(truncate(found.gl_pathv[i], 0), 0);
  globfree(&found);
  train();
  assert_int_equal(warnings, 0);
}

static int setup(void **state) {
  if (folder_setup(state)) return -1;
  unsetenv("STARPU_PERF_MODEL_DIR");
  unsetenv("XDG_CACHE_HOME");
  setenv("STARPU_HOME", test_folder, 1);
  setenv("STARPU_SCHED", "dmda", 1);
  setenv("STARPU_NCPU", "2", 0);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_locale_changes_no_file),
      cmocka_unit_test(a_cut_file_is_set_aside),
      cmocka_unit_test(a_file_in_the_making_stays),
      cmocka_unit_test(a_file_with_commas_is_set_aside),
      cmocka_unit_test(an_empty_file_is_left_to_starpu),
  };
  return cmocka_run_group_tests(tests, setup, folder_teardown);
}
