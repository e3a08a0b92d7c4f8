/* Whole files in and out. Hard cases: gzip cut at every byte, several members, more than the limit;
 * targets that are folders, devices, links; a disk that is full in the middle of a write. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "core/base/file.h"
#include "core/base/replace.h"
#include "tests/common/files.h"

#define LIMIT ((size_t)1 << 20)
enum { NOBODY = 65534 }; /* a user without rights */

/* The program's own fsync replaces the C library's: it counts the calls for the files and for one
 * folder. */
static struct {
  const char *folder;
  int of_files, of_folder;
} synced;

int fsync(int fd) {
  struct stat info, folder;
  if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) synced.of_files++;
  if (synced.folder && stat(synced.folder, &folder) == 0 && info.st_ino == folder.st_ino &&
      info.st_dev == folder.st_dev)
    synced.of_folder++;
  return (int)syscall(SYS_fsync, fd);
}

/* The program's own linkat replaces the C library's, too: it fails with this value of errno. */
static int link_error;

int linkat(int from, const char *old, int to, const char *new, int flags) {
  if (!link_error) return (int)syscall(SYS_linkat, from, old, to, new, flags);
  errno = link_error;
  return -1;
}

static void count_syncs(const char *folder) {
  memset(&synced, 0, sizeof synced);
  synced.folder = folder;
}

static enum sl_status read_status(const char *path, size_t limit) {
  uint8_t *bytes = NULL;
  size_t size;
  enum sl_status status = sl__file_read(path, limit, &bytes, &size);
  if (status == SL_OK) free(bytes);
  return status;
}

static void check_content(const char *path, const void *expected, size_t expected_size) {
  uint8_t *bytes;
  size_t size;
  assert_int_equal(sl__file_read(path, LIMIT, &bytes, &size), SL_OK);
  assert_int_equal(size, expected_size);
  assert_memory_equal(bytes, expected, size);
  free(bytes);
}

static void test_plain_and_gzip(void **state) {
  (void)state;
  static uint8_t big[300000];
  for (size_t i = 0; i < sizeof big; i++) big[i] = (uint8_t)(i * i >> 7);
  check_content(put("plain", big, sizeof big), big, sizeof big);
  check_content(put_gz("packed.gz", big, sizeof big), big, sizeof big);
  check_content(put_gz("packed-without-suffix", "abc", 3), "abc", 3);
  uint8_t *bytes;
  size_t size;
  assert_int_equal(sl__file_read(put("empty", "", 0), LIMIT, &bytes, &size), SL_OK);
  assert_int_equal(size, 0);
  free(bytes);
}

/* Against the numbers of xxHash's own test vectors and xxh64sum. */
static void test_sums(void **state) {
  (void)state;
  uint64_t bytes, hash;
  assert_int_equal(sl_file_sum(put("nothing", "", 0), &bytes, &hash), SL_OK);
  assert_true(bytes == 0 && hash == 0xef46db3751d8e999u);
  assert_int_equal(sl_file_sum(put("abc", "abc", 3), &bytes, &hash), SL_OK);
  assert_true(bytes == 3 && hash == 0x44bc2cf5ad770999u);
  static char big[3000001];
  struct sl__file_sum sum;
  struct sl__file *file;
  memset(big, 'x', sizeof big);
  assert_int_equal(sl__file_create(in_folder("big"), &file), SL_OK);
  for (size_t i = 0; i < sizeof big; i += 1000)
    sl__file_write(file, big + i, sizeof big - i < 1000 ? sizeof big - i : 1000);
  assert_int_equal(sl__file_commit(file, &sum), SL_OK);
  assert_int_equal(sl_file_sum(in_folder("big"), &bytes, &hash), SL_OK);
  assert_true(bytes == sizeof big && sum.bytes == bytes && sum.xxh64 == hash);
  FAILS(sl_file_sum(in_folder("nowhere"), &bytes, &hash), SL_IO, "nowhere");
  FAILS(sl_file_sum(test_folder, &bytes, &hash), SL_IO, "folder");
  assert_int_equal(sl_file_write(in_folder("big"), "small", 5), SL_OK);
  check_content(in_folder("big"), "small", 5);
  FAILS(sl_file_write(in_folder("no/folder"), "x", 1), SL_IO, "folder does not exist");
}

static void test_not_a_file(void **state) {
  (void)state;
  FAILS(read_status(in_folder("none"), LIMIT), SL_IO, "No such file");
  FAILS(read_status(in_folder("none/deeper"), LIMIT), SL_IO, "none/deeper");
  FAILS(read_status(test_folder, LIMIT), SL_IO, "name a file");
  assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
  FAILS(read_status(in_folder("pipe"), LIMIT), SL_IO, "not a regular file");
  FAILS(read_status("/dev/zero", LIMIT), SL_IO, "not a regular file");
  chmod(put("secret", "x", 1), 0);
  bool root = geteuid() == 0; /* who may read everything */
  if (root) assert_int_equal(seteuid(NOBODY), 0);
  enum sl_status status = read_status(in_folder("secret"), LIMIT);
  if (root) assert_int_equal(seteuid(0), 0);
  FAILS(status, SL_IO, "Permission denied");
}

static void test_limit(void **state) {
  (void)state;
  static uint8_t zeros[200000];
  const char *plain = put("plain", zeros, 1000);
  assert_int_equal(read_status(plain, 1000), SL_OK);
  FAILS(read_status(plain, 999), SL_BAD_FILE, "999 bytes");
  const char *packed = put_gz("packed", zeros, sizeof zeros); /* packs to 200 bytes */
  assert_int_equal(read_status(packed, sizeof zeros), SL_OK);
  assert_int_equal(read_status(packed, SIZE_MAX), SL_OK);
  FAILS(read_status(packed, sizeof zeros - 1), SL_BAD_FILE, "holds more than");
  FAILS(read_status(packed, 1000), SL_BAD_FILE, "holds more than");
}

/* Weights are read without unpacking: some kilobytes could fill the memory. A safetensors file
 * whose header is 559,903 bytes long begins as a gzip file does. */
static void test_plain_only(void **state) {
  (void)state;
  static const uint8_t header[] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, '{', '}'};
  static uint8_t zeros[200000];
  uint8_t *bytes;
  size_t size;
  const char *packed = put_gz("weights", zeros, sizeof zeros);
  FAILS(sl__file_read_plain(packed, LIMIT, &bytes, &size), SL_BAD_FILE, "gunzip");
  const char *plain = put("header", header, sizeof header);
  assert_int_equal(sl__file_read_plain(plain, LIMIT, &bytes, &size), SL_OK);
  assert_true(size == sizeof header && !memcmp(bytes, header, size));
  free(bytes);
  FAILS(sl__file_read_plain(plain, 9, &bytes, &size), SL_BAD_FILE, "9 bytes");
}

/* The bytes of a small gzip file. */
static size_t packed_bytes(uint8_t *bytes, size_t room) {
  FILE *file = fopen(put_gz("one", "hello, hello, hello", 19), "rb");
  size_t size = fread(bytes, 1, room, file);
  fclose(file);
  return size;
}

static void test_damaged_gzip(void **state) {
  (void)state;
  uint8_t bytes[256];
  size_t size = packed_bytes(bytes, sizeof bytes);
  for (size_t cut = 4; cut < size; cut++) /* below 4 bytes nothing says that it is gzip */
    FAILS(read_status(put("cut", bytes, cut), LIMIT), SL_BAD_FILE, "cut short");
  bytes[size - 6] ^= 1; /* of the checksum */
  FAILS(read_status(put("damaged", bytes, size), LIMIT), SL_BAD_FILE, "damaged");
  bytes[size - 6] ^= 1;
  memset(bytes + size, 'x', 5);
  FAILS(read_status(put("more", bytes, size + 5), LIMIT), SL_BAD_FILE, "5 bytes too many");
}

static void test_two_members(void **state) {
  (void)state;
  uint8_t bytes[512];
  size_t size = packed_bytes(bytes, 256);
  memcpy(bytes + size, bytes, size);
  check_content(put("two", bytes, 2 * size), "hello, hello, hellohello, hello, hello", 38);
  FAILS(read_status(put("cut", bytes, 2 * size - 1), LIMIT), SL_BAD_FILE, "cut short");
}

static enum sl_status write_text(const char *path, const char *text) {
  struct sl__file *file;
  enum sl_status status = sl__file_create(path, &file);
  if (status != SL_OK) return status;
  sl__file_write(file, text, strlen(text));
  return sl__file_commit(file, NULL);
}

static void test_write(void **state) {
  (void)state;
  const char *path = in_folder("written");
  assert_int_equal(write_text(path, "first"), SL_OK);
  check_content(path, "first", 5);
  int files = count_files();
  assert_int_equal(write_text(path, "second"), SL_OK);
  check_content(path, "second", 6);
  struct sl__file *file;
  assert_int_equal(sl__file_create(path, &file), SL_OK);
  sl__file_write(file, "third", 5);
  check_content(path, "second", 6); /* until the commit */
  sl__file_abandon(file);
  sl__file_abandon(NULL);
  check_content(path, "second", 6);
  assert_int_equal(count_files(), files);
}

static mode_t mode_of(const char *path) {
  struct stat info;
  assert_int_equal(stat(path, &info), 0);
  return info.st_mode & 07777;
}

static void test_modes(void **state) {
  (void)state;
  static const mode_t modes[] = {0600, 0640, 0644, 0664, 0755};
  const char *path = in_folder("modes");
  mode_t mask = umask(027);
  assert_int_equal(write_text(path, "new"), SL_OK);
  assert_int_equal(mode_of(path), 0640);
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
    assert_int_equal(chmod(path, modes[i]), 0);
    assert_int_equal(write_text(path, "again"), SL_OK);
    assert_int_equal(mode_of(path), modes[i]);
  }
  umask(mask);
}

/* Root's new file belongs to the old one's owner. Another user's gives no user more rights than
 * before: the group that could read the old file is not the new one's. */
static void test_owners(void **state) {
  (void)state;
  struct stat info;
  if (geteuid() != 0) skip();
  char path[4096];
  snprintf(path, sizeof path, "%s", put("owned", "old", 3));
  assert_int_equal(chown(path, 1234, 4321), 0);
  assert_int_equal(chmod(path, 0640), 0);
  assert_int_equal(write_text(path, "new"), SL_OK);
  assert_int_equal(stat(path, &info), 0);
  assert_true(info.st_uid == 1234 && info.st_gid == 4321 && (info.st_mode & 07777) == 0640);
  assert_int_equal(chmod(path, 0662), 0);
  assert_int_equal(chmod(test_folder, 0777), 0);
  assert_int_equal(seteuid(NOBODY), 0);
  enum sl_status status = write_text(path, "of another user");
  assert_int_equal(seteuid(0), 0);
  assert_int_equal(status, SL_OK);
  assert_int_equal(stat(path, &info), 0);
  assert_true(info.st_uid == NOBODY && (info.st_mode & 07777) == 0622);
}

static void test_reaches_the_disk(void **state) {
  (void)state;
  count_syncs(test_folder);
  assert_int_equal(write_text(in_folder("synced"), "x"), SL_OK);
  assert_true(synced.of_files == 1 && synced.of_folder == 1);
  count_syncs(test_folder);
  assert_int_equal(sl_folder_make(in_folder("runs")), SL_OK);
  assert_int_equal(synced.of_folder, 1);
  assert_int_equal(sl_folder_make(in_folder("runs")), SL_OK); /* is there: no error, no fsync */
  assert_int_equal(synced.of_folder, 1);
  assert_int_equal(sl_folder_make(in_folder("slash/")), SL_OK);
  assert_int_equal(synced.of_folder, 2);
  count_syncs(in_folder("runs"));
  assert_int_equal(sl_folder_make(in_folder("runs/one")), SL_OK);
  assert_int_equal(synced.of_folder, 1);
  count_syncs(NULL);
  FAILS(sl_folder_make(in_folder("none/deeper")), SL_IO, "is the path right");
  FAILS(sl_folder_make(put("file", "x", 1)), SL_IO, "Not a directory");
}

static bool has_unnamed_files(void) {
  int unnamed = open(test_folder, O_TMPFILE | O_WRONLY, 0600);
  if (unnamed >= 0) close(unnamed);
  return unnamed >= 0;
}

/* A process that is killed in the midst of writing leaves nothing behind, where the file system has
 * files without names. */
static void test_killed_writer(void **state) {
  (void)state;
  const char *path = put("killed", "old", 3);
  int files = count_files(), code;
  if (!has_unnamed_files()) skip();
  pid_t child = fork();
  if (!child) {
    struct sl__file *file;
    static char big[100000]; /* more than stdio keeps */
    if (sl__file_create(path, &file) != SL_OK) _exit(1);
    sl__file_write(file, big, sizeof big);
    raise(SIGKILL);
  }
  assert_int_equal(waitpid(child, &code, 0), child);
  assert_true(WIFSIGNALED(code));
  assert_int_equal(count_files(), files);
  check_content(path, "old", 3);
}

/* A umask of 0 is one of the cases in which the file has a name from the begin. */
static void test_named_aside(void **state) {
  (void)state;
  struct sl__file *file;
  const char *path = in_folder("named");
  int files = count_files();
  mode_t mask = umask(0);
  assert_int_equal(sl__file_create(path, &file), SL_OK);
  umask(mask);
  assert_int_equal(count_files(), files + 1);
  sl__file_abandon(file);
  assert_int_equal(count_files(), files);
  umask(0);
  assert_int_equal(write_text(path, "new"), SL_OK);
  umask(mask);
  check_content(path, "new", 3);
  assert_int_equal(mode_of(path), 0666);
  assert_int_equal(count_files(), files + 1);
}

/* Links may be forbidden, by AppArmor or seccomp. */
static void test_no_links(void **state) {
  (void)state;
  const int errors[] = {EPERM, EACCES, ENOENT, EXDEV, EOPNOTSUPP};
  const char *old = put("old", "old", 3);
  int files = count_files();
  assert_int_equal(chmod(old, 0604), 0);
  mode_t mask = umask(027);
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
    const char *path = in_folder("unlinked");
    link_error = errors[i];
    enum sl_status status = write_text(path, "new"), other = write_text(old, "newer");
    link_error = 0;
    assert_true(status == SL_OK && other == SL_OK);
    check_content(path, "new", 3);
    check_content(old, "newer", 5);
    assert_int_equal(mode_of(path), 0640);
    assert_int_equal(mode_of(old), 0604);
    assert_int_equal(count_files(), files + 1);
  }
  umask(mask);
}

/* After a flush only the renaming is left, which takes no space. */
static void test_flush_names(void **state) {
  (void)state;
  struct sl__file *file;
  const char *path = in_folder("flushed");
  int files = count_files();
  for (int commits = 0; commits < 2; commits++) {
    assert_int_equal(sl__file_create(path, &file), SL_OK);
    sl__file_write(file, "x", 1);
    assert_int_equal(sl__file_flush(file), SL_OK);
    link_error = ENOSPC;
    if (commits)
      assert_int_equal(sl__file_commit(file, NULL), SL_OK);
    else
      sl__file_abandon(file);
    link_error = 0;
    assert_int_equal(count_files(), files + commits);
  }
  if (!has_unnamed_files()) skip();
  assert_int_equal(sl__file_create(path, &file), SL_OK);
  link_error = ENOSPC;
  enum sl_status status = sl__file_flush(file);
  link_error = 0;
  FAILS(status, SL_IO, "free some space");
  sl__file_abandon(file);
  assert_int_equal(count_files(), files + 1);
}

static void test_two_writers_at_once(void **state) {
  (void)state;
  struct sl__file *one, *other;
  const char *path = in_folder("both");
  assert_int_equal(sl__file_create(path, &one), SL_OK);
  assert_int_equal(sl__file_create(path, &other), SL_OK);
  sl__file_write(one, "one", 3);
  sl__file_write(other, "other", 5);
  assert_int_equal(sl__file_commit(one, NULL), SL_OK);
  assert_int_equal(sl__file_commit(other, NULL), SL_OK);
  check_content(path, "other", 5);
}

static void test_targets(void **state) {
  (void)state;
  FAILS(write_text(in_folder("none/file"), "x"), SL_IO, "folder does not exist");
  FAILS(write_text(test_folder, "x"), SL_IO, "name a file");
  FAILS(write_text("/dev/null", "x"), SL_IO, "will not be replaced");
  const char *target = put("target", "old", 3), *link = in_folder("link");
  struct stat info;
  assert_int_equal(symlink(target, link), 0);
  assert_int_equal(write_text(link, "new"), SL_OK);
  assert_int_equal(lstat(link, &info), 0);
  assert_true(S_ISLNK(info.st_mode));
  check_content(target, "new", 3);
  assert_int_equal(chdir(test_folder), 0); /* a name without a folder */
  assert_int_equal(write_text("bare", "x"), SL_OK);
  check_content("bare", "x", 1);
}

/* A limit on file size stands for a full disk. */
static void test_write_fails(void **state) {
  (void)state;
  static char big[100000];
  struct rlimit before, small = {4096, RLIM_INFINITY};
  struct sl__file *file;
  const char *path = put("kept", "old", 3);
  int files = count_files();
  getrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(sl__file_create(path, &file), SL_OK);
  small.rlim_max = before.rlim_max;
  setrlimit(RLIMIT_FSIZE, &small);
  sl__file_write(file, big, sizeof big);
  sl__file_write(file, big, 10); /* the first error counts */
  enum sl_status status = sl__file_commit(file, NULL);
  setrlimit(RLIMIT_FSIZE, &before);
  FAILS(status, SL_IO, "File too large");
  check_content(path, "old", 3);
  assert_int_equal(count_files(), files);
}

static void test_same_file(void **state) {
  (void)state;
  const char *folder = in_folder("deep"), *deep = in_folder("deep/../not-yet");
  const char *link_path = in_folder("deep/link");
  assert_false(sl__file_is_same(in_folder("not-yet"), deep)); /* the folder is missing */
  OK(sl_folder_make(folder));
  assert_true(sl__file_is_same(in_folder("not-yet"), deep));
  assert_false(sl__file_is_same(in_folder("not-yes"), deep));
  assert_false(sl__file_is_same(link_path, deep));
  put("not-yet", "x", 1);
  assert_int_equal(symlink("../not-yet", link_path), 0);
  assert_true(sl__file_is_same(link_path, deep));
  assert_true(sl__file_is_same("name", "./name"));
  assert_true(sl__file_is_same("/no-name", "//no-name"));
  assert_false(sl__file_is_same("name", "/name"));
  assert_false(sl__file_is_same("one/", "two/")); /* folders that are not there yet */
  assert_true(sl__file_is_same("one/", "one"));
  assert_true(sl__file_is_same("./one//", "one/"));
  assert_true(sl__file_is_same("/", "//"));
  assert_true(sl__file_is_same(in_folder("deep/"), in_folder("deep/../deep")));
  assert_int_equal(unlink(link_path), 0);
  assert_int_equal(rmdir(folder), 0);
}

/* What is written replaces a name, so that hard links stay apart. A symbolic link is followed. */
static void test_hard_links(void **state) {
  (void)state;
  const char *one = put("one", "x", 1), *other = in_folder("other"), *to = in_folder("to-other");
  assert_int_equal(link(one, other), 0);
  assert_int_equal(symlink("other", to), 0);
  assert_false(sl__file_is_same(one, other));
  assert_false(sl__file_is_same(one, to));
  assert_true(sl__file_is_same(other, to));
  OK(write_text(to, "text"));
  check_content(one, "x", 1);
  check_content(other, "text", 4);
  assert_int_equal(unlink(to), 0);
  assert_int_equal(unlink(other), 0);
  assert_int_equal(unlink(one), 0);
}

static enum sl_status read_packed(void) { return read_status(in_folder("packed"), LIMIT); }
static enum sl_status write_again(void) { return write_text(in_folder("again"), "text"); }

static void test_allocations(void **state) {
  (void)state;
  static uint8_t zeros[200000];
  put_gz("packed", zeros, sizeof zeros);
  check_allocations(read_packed);
  int files = count_files();
  check_allocations(write_again);
  assert_int_equal(count_files(), files + 1);
  check_allocations(write_again);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_plain_and_gzip),
      cmocka_unit_test(test_sums),
      cmocka_unit_test(test_not_a_file),
      cmocka_unit_test(test_limit),
      cmocka_unit_test(test_damaged_gzip),
      cmocka_unit_test(test_two_members),
      cmocka_unit_test(test_write),
      cmocka_unit_test(test_killed_writer),
      cmocka_unit_test(test_named_aside),
      cmocka_unit_test(test_no_links),
      cmocka_unit_test(test_flush_names),
      cmocka_unit_test(test_two_writers_at_once),
      cmocka_unit_test(test_targets),
      cmocka_unit_test(test_write_fails),
      cmocka_unit_test(test_modes),
      cmocka_unit_test(test_owners),
      cmocka_unit_test(test_reaches_the_disk),
      cmocka_unit_test(test_plain_only),
      cmocka_unit_test(test_same_file),
      cmocka_unit_test(test_hard_links),
      cmocka_unit_test(test_allocations),
  };
  return cmocka_run_group_tests(tests, folder_setup, folder_teardown);
}
