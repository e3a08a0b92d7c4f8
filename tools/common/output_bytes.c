#include "tools/common/output_bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/replace.h"

/* Where the bytes go. */
struct target {
  char path[PATH_MAX]; /* a symbolic link's file, so that the link stays one */
  int own;             /* an open file of this process; -1: none */
  bool through;        /* opened as it is: a file beside it could not take its place */
  bool replaces;       /* a file that is there, whose owner and mode stay */
  struct stat before;  /* that file */
};

static bool begins_with(const char *text, const char *beginning) {
  return !strncmp(text, beginning, strlen(beginning));
}

/* Another program may hold it, or the system. */
static bool is_system_path(const char *path) {
  return begins_with(path, "/dev/") || begins_with(path, "/proc/");
}

/* The number in "/dev/fd/3": its file goes on at its position, and may have no name. */
static int own_file(const char *path) {
  int fd, length = 0;
  if (!strcmp(path, "/dev/stdout")) return STDOUT_FILENO;
  if (!strcmp(path, "/dev/stderr")) return STDERR_FILENO;
  if (sscanf(path, "/dev/fd/%d%n", &fd, &length) == 1 && !path[length]) return fd;
  if (sscanf(path, "/proc/self/fd/%d%n", &fd, &length) == 1 && !path[length]) return fd;
  return -1;
}

static int find_target(const char *path, struct target *target) {
  *target = (struct target){.own = own_file(path)};
  target->replaces = stat(path, &target->before) == 0;
  if (strlen(path) >= PATH_MAX) return ENAMETOOLONG;
  strcpy(target->path, path);
  if (!target->replaces) return 0;
  if (S_ISDIR(target->before.st_mode)) return EISDIR;
  if (access(path, W_OK) != 0) return errno;
  target->through = !S_ISREG(target->before.st_mode) || is_system_path(path);
  if (target->through) return 0;
  if (!realpath(path, target->path)) return errno;
  target->through = is_system_path(target->path);
  return 0;
}

static int write_through(const struct target *target, const char *bytes, size_t size) {
  int truncate = S_ISREG(target->before.st_mode) ? O_TRUNC : 0;
  if (target->own == STDOUT_FILENO && fflush(stdout) != 0)
    return errno; /* of the text printed before */
  int fd = target->own < 0 ? open(target->path, O_WRONLY | O_CLOEXEC | truncate)
                           : fcntl(target->own, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return errno;
  int error = sl__write_all(fd, bytes, size);
  if (close(fd) != 0 && !error) error = errno;
  return error;
}

/* A file beside the target's; *aside: its name, to be freed. Returns -1 with errno, or the file. */
static int open_aside(const struct target *target, char **aside) {
  int mode = target->replaces ? 0600 : 0666;
  if (asprintf(aside, "%s.%d", target->path, (int)getpid()) < 0) {
    *aside = NULL;
    errno = ENOMEM;
    return -1;
  }
  return open(*aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
}

/* Whole, or not there. */
static int replace(const struct target *target, const char *bytes, size_t size) {
  char *aside;
  int fd = open_aside(target, &aside), error = fd < 0 ? errno : 0;
  if (fd >= 0) {
    if (target->replaces) sl__keep_owner_and_mode(fd, &target->before);
    error = sl__write_all(fd, bytes, size);
    if (!error && fsync(fd) != 0) error = errno;
    if (close(fd) != 0 && !error) error = errno;
    if (!error && rename(aside, target->path) != 0) error = errno;
    if (error) unlink(aside);
  }
  free(aside);
  return error;
}

int output_bytes(const char *path, const char *bytes, size_t size) {
  struct target target;
  int error = find_target(path, &target);
  if (error) return error;
  return target.through ? write_through(&target, bytes, size) : replace(&target, bytes, size);
}

int output_check(const char *path) {
  struct target target;
  char *aside;
  int error = find_target(path, &target);
  if (error || target.through) return error;
  int fd = open_aside(&target, &aside);
  if (fd < 0) error = errno;
  if (fd >= 0) {
    close(fd);
    unlink(aside);
  }
  free(aside);
  return error;
}
