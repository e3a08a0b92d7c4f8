#include "core/memory/swap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <starpu.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/base/numbers.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/runtime/failure.h"

/* A piece of the file: a tensor's, or free. */
struct extent {
  struct extent *next;
  off_t at;
  size_t size;
};

/* StarPU's hooks take no argument of ours, so this state cannot live in the context. */
static struct {
  pthread_mutex_t mutex;
  char folder[PATH_MAX];
  int file;
  off_t end;
  size_t most; /* bytes; 0: what the disk has */
  struct extent *free;
  int64_t out, in, moved; /* bytes; the last one while they are on their way */
  enum sl_status status;
  char why[PATH_MAX + 256];
  bool probing; /* StarPU measures the disk with its own functions */
} swap = {.mutex = PTHREAD_MUTEX_INITIALIZER, .file = -1};

/* Only the first error is kept. */
static void fail(enum sl_status status, const char *what, int error) {
  pthread_mutex_lock(&swap.mutex);
  if (swap.status == SL_OK) {
    swap.status = status;
    snprintf(swap.why, sizeof swap.why, "%s: %s%s%s", swap.folder, what, error ? ": " : "",
             error ? strerror(error) : "");
    sl__data_failed(status, swap.why); /* tensors that are read back from now on may be zeros */
  }
  pthread_mutex_unlock(&swap.mutex);
}

enum sl_status sl__swap_error(void) {
  pthread_mutex_lock(&swap.mutex);
  enum sl_status status = swap.status;
  if (status != SL_OK) sl__fail(status, "%s", swap.why);
  pthread_mutex_unlock(&swap.mutex);
  return status;
}

/* ---- the file's pieces ---- */

/* Tensors have few sizes, so an exact fit is likely; a larger extent would be lost for tensors
 * of its own size. */
static struct extent *take_free(size_t size) {
  for (struct extent **e = &swap.free; *e; e = &(*e)->next)
    if ((*e)->size == size) {
      struct extent *found = *e;
      *e = found->next;
      return found;
    }
  return NULL;
}

/* Its blocks are reserved, so that no write finds the disk full later. */
static int grow(size_t size) {
  if (swap.most && (size_t)swap.end + size > swap.most) return ENOSPC;
  int error = posix_fallocate(swap.file, swap.end, (off_t)size);
  if (!error) swap.end += (off_t)size;
  return error;
}

static void *extent_new(void *base, size_t size) {
  if (swap.probing) return starpu_disk_unistd_ops.alloc(base, size);
  pthread_mutex_lock(&swap.mutex);
  struct extent *e = take_free(size);
  int error = 0;
  if (!e && (e = malloc(sizeof *e))) {
    *e = (struct extent){.at = swap.end, .size = size};
    if ((error = grow(size))) {
      free(e);
      e = NULL;
    }
  }
  pthread_mutex_unlock(&swap.mutex);
  if (!e && error == ENOSPC)
    fail(SL_NO_MEMORY,
         "the swap folder is full; free space there, name a folder with more, or raise the memory "
         "limit",
         0);
  else if (!e)
    fail(SL_IO, "the swap file cannot grow", error ? error : ENOMEM);
  return e;
}

static void extent_free(void *base, void *object, size_t size) {
  if (swap.probing) {
    starpu_disk_unistd_ops.free(base, object, size);
    return;
  }
  struct extent *e = object;
  pthread_mutex_lock(&swap.mutex);
  e->next = swap.free;
  swap.free = e;
  pthread_mutex_unlock(&swap.mutex);
}

/* ---- transfers ---- */

int64_t sl__swap_moved(void) { return __atomic_load_n(&swap.moved, __ATOMIC_RELAXED); }

/* Even a slow disk writes such a piece in a second or two, so that the watchdog sees progress. */
static size_t piece_of(size_t size) { return size < (64u << 20) ? size : 64u << 20; }

static bool write_all(const char *from, off_t at, size_t size) {
  while (size) {
    ssize_t n = pwrite(swap.file, from, piece_of(size), at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    __atomic_fetch_add(&swap.moved, n, __ATOMIC_RELAXED);
    from += n;
    at += n;
    size -= (size_t)n;
  }
  return true;
}

static bool read_all(char *to, off_t at, size_t size) {
  while (size) {
    ssize_t n = pread(swap.file, to, piece_of(size), at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    __atomic_fetch_add(&swap.moved, n, __ATOMIC_RELAXED);
    to += n;
    at += n;
    size -= (size_t)n;
  }
  return true;
}

static int extent_write(void *base, void *object, const void *from, off_t offset, size_t size) {
  if (swap.probing) return starpu_disk_unistd_ops.write(base, object, from, offset, size);
  const struct extent *e = object;
  __atomic_fetch_add(&swap.out, (int64_t)size, __ATOMIC_RELAXED);
  if (!write_all(from, e->at + offset, size)) fail(SL_IO, "the swap file cannot be written", errno);
  return 0;
}

static int extent_read(void *base, void *object, void *to, off_t offset, size_t size) {
  if (swap.probing) return starpu_disk_unistd_ops.read(base, object, to, offset, size);
  const struct extent *e = object;
  __atomic_fetch_add(&swap.in, (int64_t)size, __ATOMIC_RELAXED);
  if (!read_all(to, e->at + offset, size)) {
    fail(SL_IO, "the swap file cannot be read", errno);
    memset(to, 0, size);
  }
  return (int)(size < INT_MAX ? size : INT_MAX);
}

static int full_write(void *base, void *object, void *from, size_t size) {
  return extent_write(base, object, from, 0, size);
}

static int full_read(void *base, void *object, void **to, size_t *size, unsigned node) {
  const struct extent *e = object;
  *size = e->size;
  *to = (void *)starpu_malloc_on_node_flags(node, *size, 0);
  return *to ? extent_read(base, object, *to, 0, *size) : -ENOMEM;
}

static int measure(unsigned node, void *base) {
  swap.probing = true;
  int result = starpu_disk_unistd_ops.bandwidth(node, base);
  swap.probing = false;
  return result;
}

static void *plug(void *folder, starpu_ssize_t size) {
  return starpu_disk_unistd_ops.plug(folder, size);
}

static void unplug(void *base) { starpu_disk_unistd_ops.unplug(base); }

static struct starpu_disk_ops operations = {.plug = plug,
                                            .unplug = unplug,
                                            .bandwidth = measure,
                                            .alloc = extent_new,
                                            .free = extent_free,
                                            .read = extent_read,
                                            .write = extent_write,
                                            .full_read = full_read,
                                            .full_write = full_write};

/* ---- opening ---- */

/* A file without a name: it goes with the process, however that ends. */
static int open_file(const char *folder) {
  char name[PATH_MAX];
  if (snprintf(name, sizeof name, "%s/starling-swap-XXXXXX", folder) >= (int)sizeof name) {
    errno = ENAMETOOLONG;
    return -1;
  }
  int file = mkostemp(name, O_CLOEXEC);
  if (file >= 0) unlink(name);
  return file;
}

/* STARPU_DISK_SWAP_SIZE, MiB, bounds what StarPU itself would take, and this as well. */
static size_t most_bytes(void) {
  const char *text = getenv("STARPU_DISK_SWAP_SIZE");
  int64_t mib;
  return text && sl__parse_whole(text, 0, INT64_MAX >> 20, &mib) ? (size_t)mib << 20 : 0;
}

static int64_t free_bytes(const char *folder) {
  struct statvfs disk;
  if (statvfs(folder, &disk)) return 0;
  return (int64_t)disk.f_bavail * (int64_t)disk.f_frsize;
}

enum sl_status sl__swap_check(const char *folder) {
  const int64_t least = STARPU_DISK_SIZE_MIN; /* with which StarPU measures the disk */
  struct stat s;
  if (stat(folder, &s))
    return sl__fail(SL_IO, "%s: the swap folder cannot be used: %s%s", folder, strerror(errno),
                    errno == ENOENT ? "; make it first" : "");
  if (!S_ISDIR(s.st_mode))
    return sl__fail(SL_IO, "%s: is no folder; name one for the swap file", folder);
  int file = open_file(folder);
  if (file < 0)
    return sl__fail(SL_IO, "%s: the swap folder cannot be written to: %s", folder, strerror(errno));
  close(file);
  int64_t room = free_bytes(folder), most = (int64_t)most_bytes();
  if (most && most < room) room = most;
  if (room >= least) return SL_OK;
  int digits = sl__megabyte_digits((double)room, (double)least);
  return sl__fail(SL_NO_MEMORY,
                  "%s: the swap folder has room for %.*f MB, but needs at least %.*f MB; free "
                  "space there or name another folder",
                  folder, digits, (double)room / 1e6, digits, (double)least / 1e6);
}

enum sl_status sl__swap_open(const char *folder) {
  if (swap.file >= 0) return sl__fail(SL_BAD_ARGUMENT, "%s: there is a swap file already", folder);
  snprintf(swap.folder, sizeof swap.folder, "%s", folder);
  swap.status = SL_OK;
  swap.end = 0;
  swap.out = swap.in = 0;
  swap.most = most_bytes();
  swap.file = open_file(folder);
  if (swap.file < 0)
    return sl__fail(SL_IO, "%s: the swap folder cannot be written to: %s", folder, strerror(errno));
  if (starpu_disk_register(&operations, swap.folder, -1) < 0)
    return sl__fail(SL_IO, "%s: StarPU cannot use the swap folder", folder);
  return SL_OK;
}

void sl__swap_close(void) {
  if (swap.file < 0) return;
  close(swap.file);
  swap.file = -1;
  while (swap.free) {
    struct extent *e = swap.free;
    swap.free = e->next;
    free(e);
  }
}

void sl__swap_count(int64_t *out, int64_t *in, int64_t *size) {
  *out = __atomic_load_n(&swap.out, __ATOMIC_RELAXED);
  *in = __atomic_load_n(&swap.in, __ATOMIC_RELAXED);
  pthread_mutex_lock(&swap.mutex);
  *size = swap.end;
  pthread_mutex_unlock(&swap.mutex);
}
