/* Reads whole files, and writes them whole: no file is ever half-written. */
#include "core/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include <zlib.h>

#include "core/base/error.h"
#include "core/base/replace.h"

/* What to do about a failed open, read or write; "" where errno's own text says it. */
static const char *remedy(int error) {
  switch (error) {
    case ENOENT: return "; is the path right?";
    case EACCES:
    case EPERM:
    case EROFS: return "; check the permissions or choose another place";
    case ENOSPC:
    case EDQUOT: return "; free some space or choose another place";
    case EFBIG: return "; is there a limit on the size of files (ulimit -f)?";
    case EISDIR: return "; name a file, not a folder";
    default: return "";
  }
}

static enum sl_status fail_io(const char *path, const char *what, int error) {
  return sl__fail(SL_IO, "%s: cannot be %s: %s%s", path, what, strerror(error), remedy(error));
}

/* ---- reading ---- */

static enum sl_status fail_limit(const char *path, size_t limit) {
  return sl__fail(SL_BAD_FILE, "%s: holds more than the %zu bytes that such a file may have", path,
                  limit);
}

/* A descriptor of a regular file. Pipes and devices are refused: they might never end. own: refuses
 * a link and another user's file, too. */
static enum sl_status open_regular(const char *path, bool own, int *fd, size_t *size) {
  struct stat info;
  int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK; /* no waiting for a pipe's writer */
  *fd = open(path, own ? flags | O_NOFOLLOW : flags);
  if (*fd < 0) return fail_io(path, "opened", errno);
  if (fstat(*fd, &info) != 0) return fail_io(path, "read", errno);
  if (S_ISDIR(info.st_mode)) return fail_io(path, "read", EISDIR);
  if (!S_ISREG(info.st_mode)) return sl__fail(SL_IO, "%s: is not a regular file", path);
  if (own && info.st_uid != geteuid())
    return sl__fail(SL_IO, "%s: belongs to another user, and is not read", path);
  *size = (size_t)info.st_size;
  return SL_OK;
}

/* The plain file. If it shrinks meanwhile, the bytes up to its new end. */
static enum sl_status read_plain(const char *path, size_t limit, bool own, uint8_t **bytes,
                                 size_t *size) {
  enum sl_status status;
  uint8_t *block = NULL;
  size_t filled = 0, length = 0;
  int fd = -1;
  SL__TRY(open_regular(path, own, &fd, &length));
  if (length > limit) SL__TRY(fail_limit(path, limit));
  block = sl__alloc(length, 1, path);
  if (!block) SL__TRY(SL_NO_MEMORY);
  while (filled < length) {
    ssize_t got = read(fd, block + filled, length - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) SL__TRY(fail_io(path, "read", errno));
    if (got == 0) break;
    filled += (size_t)got;
  }
  *bytes = block;
  *size = filled;
  block = NULL;
out:
  free(block);
  if (fd >= 0) close(fd);
  return status;
}

/* RFC 1952: two bytes of identification, 8 for deflate, three reserved flags that are 0. */
static bool is_gzip(const uint8_t *bytes, size_t size) {
  return size >= 4 && bytes[0] == 0x1f && bytes[1] == 0x8b && bytes[2] == 8 && bytes[3] < 0x20;
}

static void *zlib_alloc(void *unused, unsigned count, unsigned size) {
  (void)unused;
  return sl__alloc(count, size, "unpacking");
}

static void zlib_free(void *unused, void *block) {
  (void)unused;
  free(block);
}

struct unpacked {
  uint8_t *bytes;
  size_t size, capacity;
};

/* Room for more, but never for more than limit + 1 bytes: the one byte above shows the excess. */
static enum sl_status make_room(struct unpacked *to, size_t limit) {
  size_t capacity = to->capacity < 32768 ? 65536 : to->capacity * 2;
  if (capacity > limit) capacity = limit + 1;
  uint8_t *grown = sl__realloc(to->bytes, capacity, 1, "an unpacked file");
  if (!grown) return SL_NO_MEMORY;
  to->bytes = grown;
  to->capacity = capacity;
  return SL_OK;
}

/* One call of inflate, on pieces that fit zlib's 32-bit counts. */
static int inflate_piece(z_stream *stream, const uint8_t **from, size_t *left,
                         struct unpacked *to) {
  size_t room = to->capacity - to->size;
  unsigned in = *left < UINT_MAX ? (unsigned)*left : UINT_MAX;
  unsigned out = room < UINT_MAX ? (unsigned)room : UINT_MAX;
  stream->next_in = (uint8_t *)*from;
  stream->avail_in = in;
  stream->next_out = to->bytes + to->size;
  stream->avail_out = out;
  int result = inflate(stream, Z_NO_FLUSH);
  *from += in - stream->avail_in;
  *left -= in - stream->avail_in;
  to->size += out - stream->avail_out;
  return result;
}

/* Every member of a gzip file, one after the other, as gunzip does. */
static enum sl_status inflate_all(const char *path, z_stream *stream, const uint8_t *from,
                                  size_t left, size_t limit, struct unpacked *to) {
  for (;;) {
    if (to->size == to->capacity) {
      enum sl_status status = make_room(to, limit);
      if (status != SL_OK) return status;
    }
    int result = inflate_piece(stream, &from, &left, to);
    if (to->size > limit) return fail_limit(path, limit);
    if (result == Z_STREAM_END) {
      if (left == 0) return SL_OK;
      if (!is_gzip(from, left))
        return sl__fail(SL_BAD_FILE, "%s: %zu bytes too many after the gzip data", path, left);
      inflateReset(stream);
    } else if (result == Z_MEM_ERROR) {
      return SL_NO_MEMORY;
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      return sl__fail(SL_BAD_FILE, "%s: the gzip data are damaged (%s); fetch the file again", path,
                      stream->msg ? stream->msg : "no detail");
    } else if (left == 0 && to->size < to->capacity) {
      return sl__fail(SL_BAD_FILE, "%s: the gzip data are cut short; was the download complete?",
                      path);
    }
  }
}

static enum sl_status gunzip(const char *path, const uint8_t *packed, size_t packed_size,
                             size_t limit, uint8_t **bytes, size_t *size) {
  struct unpacked to = {0};
  z_stream stream = {.zalloc = zlib_alloc, .zfree = zlib_free};
  if (inflateInit2(&stream, 15 + 16) != Z_OK) return SL_NO_MEMORY;
  enum sl_status status = inflate_all(path, &stream, packed, packed_size, limit, &to);
  inflateEnd(&stream);
  if (status != SL_OK) {
    free(to.bytes);
    return status;
  }
  *bytes = to.bytes;
  *size = to.size;
  return SL_OK;
}

enum sl_status sl__file_read(const char *path, size_t limit, uint8_t **bytes, size_t *size) {
  uint8_t *packed = NULL;
  size_t packed_size = 0;
  if (limit == SIZE_MAX) limit--; /* limit + 1 must not wrap */
  enum sl_status status = read_plain(path, limit, false, &packed, &packed_size);
  if (status != SL_OK) return status;
  if (!is_gzip(packed, packed_size)) {
    *bytes = packed;
    *size = packed_size;
    return SL_OK;
  }
  status = gunzip(path, packed, packed_size, limit, bytes, size);
  free(packed);
  return status;
}

/* A safetensors file whose header is 559,903 bytes long begins as a gzip file does; but then comes
 * a brace, where gzip has its flags. */
enum sl_status sl__file_read_plain(const char *path, size_t limit, uint8_t **bytes, size_t *size) {
  enum { AFTER_LENGTH = 8 };
  enum sl_status status = read_plain(path, limit, false, bytes, size);
  if (status != SL_OK) return status;
  if (!is_gzip(*bytes, *size) || (*size > AFTER_LENGTH && (*bytes)[AFTER_LENGTH] == '{'))
    return SL_OK;
  free(*bytes);
  *bytes = NULL;
  return sl__fail(SL_BAD_FILE, "%s: is packed by gzip; unpack it first (gunzip)", path);
}

enum sl_status sl__file_read_own(const char *path, size_t limit, uint8_t **bytes, size_t *size) {
  return read_plain(path, limit, true, bytes, size);
}

enum sl_status sl__file_map(const char *path, struct sl__mapping *mapping) {
  enum sl_status status;
  size_t size = 0;
  void *bytes;
  int fd = -1;
  SL__TRY(open_regular(path, false, &fd, &size));
  if (size == 0) SL__TRY(sl__fail(SL_BAD_FILE, "%s: is empty", path));
  bytes = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
  if (bytes == MAP_FAILED) SL__TRY(fail_io(path, "mapped into memory", errno));
  *mapping = (struct sl__mapping){bytes, size, fd};
  return SL_OK;
out:
  if (fd >= 0) close(fd);
  return status;
}

static enum sl_status fail_shorter(const char *path) {
  return sl__fail(SL_BAD_FILE, "%s: became shorter while it was read; leave it alone meanwhile",
                  path);
}

enum sl_status sl__file_map_check(const char *path, const struct sl__mapping *mapping) {
  struct stat info;
  if (fstat(mapping->file, &info) != 0) return fail_io(path, "read", errno);
  return (size_t)info.st_size >= mapping->size ? SL_OK : fail_shorter(path);
}

enum sl_status sl__file_map_read(const char *path, const struct sl__mapping *mapping,
                                 const uint8_t *from, size_t size, uint8_t *to) {
  off_t place = from - mapping->bytes;
  while (size) {
    ssize_t got = pread(mapping->file, to, size, place);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_io(path, "read", errno);
    if (got == 0) return fail_shorter(path);
    to += got;
    place += got;
    size -= (size_t)got;
  }
  return SL_OK;
}

void sl__file_map_expect(const struct sl__mapping *mapping, const uint8_t *from, size_t size) {
  const size_t most = 1 << 20; /* Linux leaves the rest of a large piece out */
  off_t place = from - mapping->bytes;
  for (size_t piece; size; size -= piece, place += (off_t)piece) {
    piece = size < most ? size : most;
    /* a failure costs time alone */
    posix_fadvise(mapping->file, place, (off_t)piece, POSIX_FADV_WILLNEED);
  }
}

void sl__file_unmap(struct sl__mapping *mapping) {
  if (!mapping->bytes) return;
  munmap((void *)mapping->bytes, mapping->size);
  close(mapping->file);
  *mapping = (struct sl__mapping){0};
}

/* ---- writing ---- */

struct sl__file {
  char *path;    /* where the file goes */
  char *aside;   /* where it is until then */
  bool is_named; /* it is there; else it has no name yet */
  FILE *stream;
  bool replaces;      /* a file that is there, whose owner and mode stay */
  struct stat before; /* that file */
  int error;          /* errno of the first write that failed */
  XXH64_state_t *hash;
  uint64_t bytes;
};

static void file_free(struct sl__file *file) {
  if (file->stream) fclose(file->stream);
  XXH64_freeState(file->hash);
  free(file->path);
  free(file->aside);
  free(file);
}

/* A folder or a device is never replaced. */
static enum sl_status check_kind(const char *path, const struct stat *there) {
  if (S_ISDIR(there->st_mode)) return fail_io(path, "written", EISDIR);
  if (S_ISREG(there->st_mode)) return SL_OK;
  return sl__fail(SL_IO, "%s: is not a regular file and will not be replaced", path);
}

enum sl_status sl__file_check_target(const char *path) {
  struct stat there;
  return stat(path, &there) == 0 ? check_kind(path, &there) : SL_OK;
}

/* The path of the file itself: a symbolic link stays one. */
static enum sl_status find_target(struct sl__file *file, const char *path) {
  char resolved[PATH_MAX];
  file->replaces = stat(path, &file->before) == 0;
  if (file->replaces) {
    enum sl_status status = check_kind(path, &file->before);
    if (status != SL_OK) return status;
    if (access(path, W_OK) != 0 || !realpath(path, resolved))
      return fail_io(path, "written", errno);
  }
  file->path = sl__strdup(file->replaces ? resolved : path);
  return file->path ? SL_OK : SL_NO_MEMORY;
}

/* The n-th name to try. */
static void set_aside(struct sl__file *file, unsigned attempt) {
  unsigned number = ((unsigned)getpid() * 2654435761u + attempt * 40503u) & 0xffffff;
  sprintf(file->aside, "%s.%06x", file->path, number);
}

/* A file without a name, which ends with the process, however that ends. -1: not on this file
 * system. Some Linux before 6.0 does not look at the umask. */
static int open_unnamed(const struct sl__file *file, mode_t mode) {
  char folder[PATH_MAX];
  struct stat info;
  if (!sl__folder_of(file->path, folder)) return -1;
  int fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
  if (fd < 0) return -1;
  if (file->replaces) sl__keep_owner_and_mode(fd, &file->before);
  if (fstat(fd, &info) == 0 && (file->replaces || (info.st_mode & 0777) != 0666)) return fd;
  close(fd);
  return -1;
}

/* open() instead of mkstemp(), whose files only their owner may read. */
static int open_named(struct sl__file *file, mode_t mode) {
  for (unsigned attempt = 0;; attempt++) {
    set_aside(file, attempt);
    int fd = open(file->aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    file->is_named = fd >= 0;
    if (fd < 0 && errno == EEXIST && attempt < 1000) continue;
    if (fd >= 0 && file->replaces) sl__keep_owner_and_mode(fd, &file->before);
    return fd;
  }
}

/* Gives an unnamed file the name aside. Returns the value of errno, or 0. */
static int link_aside(struct sl__file *file, int fd) {
  char link[32];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  for (unsigned attempt = 0;; attempt++) {
    set_aside(file, attempt);
    if (linkat(AT_FDCWD, link, AT_FDCWD, file->aside, AT_SYMLINK_FOLLOW) == 0) return 0;
    if (errno != EEXIST || attempt == 1000) return errno;
  }
}

/* AppArmor, seccomp or a FUSE server may forbid links, and /proc may be missing: an empty file
 * shows it, before one is written that could get no name. It cannot be the same one: without its
 * name it takes no other. */
static bool may_link(struct sl__file *file, mode_t mode) {
  int fd = open_unnamed(file, mode);
  bool may = fd >= 0 && link_aside(file, fd) == 0;
  if (may) unlink(file->aside);
  if (fd >= 0) close(fd);
  return may;
}

/* A file that replaces another one is private until it has that file's mode. */
static enum sl_status open_aside(struct sl__file *file) {
  file->aside = sl__alloc(strlen(file->path) + 8, 1, "a file name");
  if (!file->aside) return SL_NO_MEMORY;
  mode_t mode = file->replaces ? 0600 : 0666;
  int fd = may_link(file, mode) ? open_unnamed(file, mode) : -1;
  if (fd < 0) fd = open_named(file, mode);
  if (fd < 0 && errno == ENOENT)
    return sl__fail(SL_IO, "%s: cannot be written: its folder does not exist; make it first",
                    file->path);
  if (fd < 0) return fail_io(file->path, "written", errno);
  file->stream = fdopen(fd, "wb");
  if (file->stream) return SL_OK;
  enum sl_status status = fail_io(file->path, "written", errno);
  close(fd);
  if (file->is_named) unlink(file->aside);
  return status;
}

static enum sl_status new_hash(XXH64_state_t **hash) {
  *hash = XXH64_createState();
  if (!*hash) return sl__fail(SL_NO_MEMORY, "no memory for a checksum");
  XXH64_reset(*hash, 0);
  return SL_OK;
}

enum sl_status sl__file_create(const char *path, struct sl__file **result) {
  enum sl_status status;
  struct sl__file *file = sl__alloc(1, sizeof *file, "a file");
  if (!file) return SL_NO_MEMORY;
  SL__TRY(new_hash(&file->hash));
  SL__TRY(find_target(file, path));
  SL__TRY(open_aside(file));
  *result = file;
  return SL_OK;
out:
  file_free(file);
  return status;
}

void sl__file_write(struct sl__file *file, const void *bytes, size_t size) {
  if (file->error || size == 0) return;
  errno = 0;
  if (fwrite(bytes, 1, size, file->stream) != size) file->error = errno ? errno : EIO;
  XXH64_update(file->hash, bytes, size);
  file->bytes += size;
}

/* The new name itself must survive a power cut. */
static int sync_folder_of(const char *path) {
  char folder[PATH_MAX];
  if (!sl__folder_of(path, folder)) return ENAMETOOLONG;
  int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), error = 0;
  /* a folder that may be written but not read, or a file system without this call: nothing to do */
  if (fd < 0) return 0;
  if (fsync(fd) != 0 && errno != EINVAL && errno != EBADF) error = errno;
  close(fd);
  return error;
}

/* Writes all of it to the disk, and names it: rename() needs a name, which may take space, too.
 * Returns the value of errno, or 0. */
static int flush(struct sl__file *file) {
  int error = file->error;
  if (!error && (fflush(file->stream) != 0 || fsync(fileno(file->stream)) != 0)) error = errno;
  if (error || file->is_named) return error;
  error = link_aside(file, fileno(file->stream));
  file->is_named = !error;
  return error;
}

enum sl_status sl__file_flush(struct sl__file *file) {
  file->error = flush(file);
  return file->error ? fail_io(file->path, "written", file->error) : SL_OK;
}

static int flush_and_close(struct sl__file *file) {
  int error = flush(file);
  if (fclose(file->stream) != 0 && !error) error = errno;
  file->stream = NULL;
  return error;
}

enum sl_status sl__file_commit(struct sl__file *file, struct sl__file_sum *sum) {
  enum sl_status status = SL_OK;
  int error = flush_and_close(file);
  if (!error && rename(file->aside, file->path) != 0) error = errno;
  if (!error)
    error = sync_folder_of(file->path);
  else if (file->is_named)
    unlink(file->aside);
  if (error) status = fail_io(file->path, "written", error);
  if (sum) *sum = (struct sl__file_sum){file->bytes, XXH64_digest(file->hash)};
  file_free(file);
  return status;
}

void sl__file_abandon(struct sl__file *file) {
  if (!file) return;
  if (file->is_named) unlink(file->aside);
  file_free(file);
}

/* ---- for programs ---- */

enum sl_status sl_folder_make(const char *path) {
  SL__NEEDS(path);
  struct stat info;
  int error = mkdir(path, 0777) == 0 ? sync_folder_of(path) : errno;
  if (error == EEXIST) error = stat(path, &info) != 0 ? errno : S_ISDIR(info.st_mode) ? 0 : ENOTDIR;
  if (!error) return SL_OK;
  enum sl_status status =
      sl__fail(SL_IO, "%s: this folder cannot be made: %s%s", path, strerror(error), remedy(error));
  errno = error;
  return status;
}

enum sl_status sl_file_write(const char *path, const void *bytes, size_t size) {
  SL__NEEDS(path);
  if (size) SL__NEEDS(bytes);
  struct sl__file *file;
  enum sl_status status = sl__file_create(path, &file);
  if (status != SL_OK) return status;
  sl__file_write(file, bytes, size);
  return sl__file_commit(file, NULL);
}

/* From the position of fd to the end. Returns the value of errno, or 0. */
static int sum_up(int fd, XXH64_state_t *hash, uint64_t *bytes) {
  static const size_t most = 1 << 20;
  char *block = malloc(most);
  if (!block) return ENOMEM;
  ssize_t got;
  while ((got = read(fd, block, most)) > 0 || (got < 0 && errno == EINTR)) {
    if (got < 0) continue;
    XXH64_update(hash, block, (size_t)got);
    *bytes += (uint64_t)got;
  }
  int error = got < 0 ? errno : 0;
  free(block);
  return error;
}

enum sl_status sl_file_sum(const char *path, uint64_t *bytes, uint64_t *xxh64) {
  SL__NEEDS(path, bytes, xxh64);
  enum sl_status status;
  XXH64_state_t *hash = NULL;
  size_t size;
  int fd = -1;
  *bytes = *xxh64 = 0;
  SL__TRY(open_regular(path, false, &fd, &size));
  SL__TRY(new_hash(&hash));
  int error = sum_up(fd, hash, bytes);
  if (error) SL__TRY(fail_io(path, "read", error));
  *xxh64 = XXH64_digest(hash);
out:
  XXH64_freeState(hash);
  if (fd >= 0) close(fd);
  return status;
}
