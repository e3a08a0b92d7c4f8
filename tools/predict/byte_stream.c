/* Bytes of files or of a pipe, unpacked if they are gzip. A read never waits for more than one byte
 * beyond the requested ones, so that lines are answered as they are typed. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "tools/predict/byte_stream.h"
#include "tools/predict/failure.h"

enum { RAW = 1 << 16, MOST_LINE = 1 << 24 };

struct stream {
  const char *name;
  int file;
  int64_t size; /* of a plain file; -1: not known */
  bool packed;
  bool whole; /* packed: at the end of a member */
  bool ended;
  z_stream z;
  uint8_t raw[RAW + 1]; /* packed bytes; at first those of look() */
  uint8_t *bytes;       /* [at, end) are read and not taken */
  size_t at, end, room;
};

const char *stream_name(const struct stream *s) { return s->name; }
int64_t stream_size(const struct stream *s) { return s->size; }

static bool failed(const struct stream *s, const char *why) {
  fail(EXIT_FAILED, "%s: %s", s->name, why);
  return false;
}

static bool read_some(struct stream *s, uint8_t *to, size_t room, size_t *count) {
  ssize_t got;
  do got = read(s->file, to, room);
  while (got < 0 && errno == EINTR);
  *count = got > 0 ? (size_t)got : 0;
  if (got >= 0) return true;
  fail(EXIT_FAILED, "%s: cannot be read: %s", s->name, strerror(errno));
  return false;
}

/* Some further bytes, unpacked; none at the end. */
static bool unpack_some(struct stream *s, uint8_t *to, size_t room, size_t *count) {
  *count = 0;
  while (*count == 0) {
    size_t got = s->z.avail_in;
    if (!got && !read_some(s, s->raw, RAW, &got)) return false;
    if (!got) return s->whole || failed(s, "cut short, in the midst of packed data");
    if (!s->z.avail_in) s->z.next_in = s->raw;
    s->z.avail_in = (uInt)got;
    if (s->whole) inflateReset(&s->z); /* several members of one file are one text */
    s->whole = false;
    s->z.next_out = to;
    s->z.avail_out = (uInt)room;
    int result = inflate(&s->z, Z_NO_FLUSH);
    *count = room - s->z.avail_out;
    s->whole = result == Z_STREAM_END;
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
      return failed(s, "damaged: its packed data cannot be unpacked");
  }
  return true;
}

/* Reads at least one further byte, or sets `ended`. */
static bool fill(struct stream *s) {
  size_t got;
  if (s->at) memmove(s->bytes, s->bytes + s->at, s->end - s->at);
  s->end -= s->at;
  s->at = 0;
  if (s->room - s->end < RAW) {
    uint8_t *grown = realloc(s->bytes, s->room * 2);
    if (!grown) return fail_memory(), false;
    s->bytes = grown;
    s->room *= 2;
  }
  bool fine = s->packed ? unpack_some(s, s->bytes + s->end, RAW, &got)
                        : read_some(s, s->bytes + s->end, RAW, &got);
  if (!fine) return false;
  s->end += got;
  s->ended = got == 0;
  return true;
}

/* No other format begins with gzip's first two bytes. */
static bool look(struct stream *s) {
  while (s->end < 2 && !s->ended)
    if (!fill(s)) return false;
  if (s->end < 2 || s->bytes[0] != 0x1f || s->bytes[1] != 0x8b) return true;
  const int gzip = 16 + MAX_WBITS;
  if (inflateInit2(&s->z, gzip) != Z_OK) return fail_memory(), false;
  memcpy(s->raw, s->bytes, s->end); /* the bytes that were read so far */
  s->z.next_in = s->raw;
  s->z.avail_in = (uInt)s->end;
  s->end = 0;
  s->size = -1;
  s->packed = true;
  s->ended = false;
  return true;
}

static bool open_file(struct stream *s, const char *path) {
  struct stat info;
  s->file = strcmp(path, "-") != 0 ? open(path, O_RDONLY | O_CLOEXEC) : dup(STDIN_FILENO);
  if (s->file < 0 || fstat(s->file, &info) != 0) {
    fail(EXIT_FAILED, "%s: cannot be opened: %s", s->name, strerror(errno));
    return false;
  }
  if (S_ISDIR(info.st_mode)) return failed(s, "is a folder");
  s->size = S_ISREG(info.st_mode) ? (int64_t)info.st_size : -1;
  return true;
}

struct stream *stream_open(const char *path) {
  struct stream *s = calloc(1, sizeof *s);
  if (!s) return fail_memory(), NULL;
  s->name = strcmp(path, "-") != 0 ? path : "standard input";
  s->file = -1;
  s->room = 2 * RAW;
  s->bytes = malloc(s->room);
  bool fine = s->bytes || (fail_memory(), false);
  if (fine && open_file(s, path) && look(s)) return s;
  stream_close(s);
  return NULL;
}

void stream_close(struct stream *s) {
  if (!s) return;
  if (s->packed) inflateEnd(&s->z);
  if (s->file >= 0) close(s->file);
  free(s->bytes);
  free(s);
}

/* ---- reading ---- */

bool stream_peek(struct stream *s, const uint8_t **bytes, size_t *count) {
  while (s->end - s->at < STREAM_PEEK && !s->ended)
    if (!fill(s)) return false;
  *bytes = s->bytes + s->at;
  *count = s->end - s->at < STREAM_PEEK ? s->end - s->at : STREAM_PEEK;
  return true;
}

bool stream_read(struct stream *s, void *bytes, size_t size, size_t *count) {
  for (*count = 0; *count < size;) {
    if (s->at == s->end && (s->ended || !fill(s) || s->at == s->end)) return s->ended;
    size_t part = s->end - s->at < size - *count ? s->end - s->at : size - *count;
    memcpy((uint8_t *)bytes + *count, s->bytes + s->at, part);
    s->at += part;
    *count += part;
  }
  return true;
}

bool stream_rest(struct stream *s, size_t most, uint8_t **bytes, size_t *count) {
  *bytes = NULL;
  while (!s->ended && s->end - s->at <= most)
    if (!fill(s)) return false;
  *count = s->end - s->at;
  if (*count > most) return failed(s, "is too large for a picture");
  *bytes = malloc(*count ? *count : 1);
  if (!*bytes) return fail_memory(), false;
  memcpy(*bytes, s->bytes + s->at, *count);
  s->at = s->end;
  return true;
}

bool stream_line(struct stream *s, const char **line, size_t *length, bool *ended) {
  size_t seen = 0;
  const uint8_t *end = NULL;
  *line = NULL;
  while (!(end = memchr(s->bytes + s->at + seen, '\n', s->end - s->at - seen)) && !s->ended) {
    seen = s->end - s->at;
    if (seen > MOST_LINE) return failed(s, "has a line of more than 16 MB; is it a text?");
    if (!fill(s)) return false;
  }
  *ended = end != NULL;
  *length = end ? (size_t)(end - (s->bytes + s->at)) : s->end - s->at;
  if (!end && !*length) return true;
  *line = (const char *)s->bytes + s->at;
  s->at += *length + *ended;
  return true;
}
