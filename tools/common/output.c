#include "tools/common/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/replace.h"

static bool ends_in(const char *path, const char *end) {
  size_t length = strlen(path), tail = strlen(end);
  return length > tail && strcasecmp(path + length - tail, end) == 0;
}

static int write_all(int fd, const char *bytes, size_t size) {
  for (size_t done = 0; done < size;) {
    ssize_t count = write(fd, bytes + done, size - done);
    if (count < 0 && errno != EINTR) return errno;
    if (count > 0) done += (size_t)count;
  }
  return 0;
}

/* A pipe or a device, such as /dev/stdout. */
static int write_through(const char *path, const char *bytes, size_t size) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  int error = write_all(fd, bytes, size);
  if (close(fd) != 0 && !error) error = errno;
  return error;
}

/* Beside the file first, then renamed: it is whole or not there. */
int output_bytes(const char *path, const char *bytes, size_t size) {
  struct stat info;
  char *aside;
  int error = 0;
  bool replaces = stat(path, &info) == 0;
  if (replaces && S_ISDIR(info.st_mode)) return EISDIR;
  if (replaces && !S_ISREG(info.st_mode)) return write_through(path, bytes, size);
  if (asprintf(&aside, "%s.%d", path, (int)getpid()) < 0) return ENOMEM;
  int fd = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, replaces ? 0600 : 0666);
  if (fd < 0) {
    error = errno;
    free(aside);
    return error;
  }
  if (replaces) sl__keep_owner_and_mode(fd, &info);
  error = write_all(fd, bytes, size);
  if (!error && fsync(fd) != 0) error = errno;
  if (close(fd) != 0 && !error) error = errno;
  if (!error && rename(aside, path) != 0) error = errno;
  if (error) unlink(aside);
  free(aside);
  return error;
}

bool output_is_png(const char *path) { return ends_in(path, ".png"); }

bool output_is_page(const char *path) { return ends_in(path, ".html") || ends_in(path, ".htm"); }

bool output_name_is_fine(const char *path) { return ends_in(path, ".svg") || output_is_png(path); }

struct canvas *output_canvas(const char *path, int width, int height) {
  return output_is_png(path) ? canvas_png(width, height) : canvas_svg(width, height);
}

int output_write(const char *path, struct canvas *canvas) {
  char *bytes = NULL;
  size_t size;
  int error = canvas->finish(canvas, &bytes, &size) ? output_bytes(path, bytes, size) : ENOMEM;
  free(bytes);
  return error;
}
