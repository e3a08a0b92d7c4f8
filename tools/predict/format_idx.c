/* IDX files of images, with their labels: http://yann.lecun.com/exdb/mnist */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/predict/failure.h"
#include "tools/predict/sample_format.h"

static uint32_t big_endian(const uint8_t *bytes) {
  return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* Reads the header: the magic number and `dims` sizes. */
static int idx_header(struct stream *stream, int dims, uint32_t *sizes) {
  uint8_t head[16];
  size_t size = 4 * (size_t)(1 + dims), got;
  const char *name = stream_name(stream);
  if (!stream_read(stream, head, size, &got)) return EXIT_FAILED;
  if (got < 4) return fail(EXIT_FAILED, "%s: %zu bytes are too short for an IDX file", name, got);
  if (big_endian(head) == 0x0801 && dims != 1)
    return fail(EXIT_FAILED, "%s: holds labels (IDX of one dimension), no images", name);
  if (big_endian(head) != (0x0800u | (unsigned)dims))
    return fail(EXIT_FAILED, "%s: magic number is 0x%08x instead of 0x%08x; is it IDX %s?", name,
                (unsigned)big_endian(head), 0x0800u | (unsigned)dims,
                dims == 1 ? "labels" : "images");
  if (got < size) return fail(EXIT_FAILED, "%s: cut short in its header", name);
  for (int i = 0; i < dims; i++) {
    sizes[i] = big_endian(head + 4 + 4 * i);
    if (!sizes[i]) return fail(EXIT_FAILED, "%s: is empty: it has no values", name);
  }
  return EXIT_DONE;
}

/* Finds "t10k-labels-idx1-ubyte", with or without .gz, beside "t10k-images-idx3-ubyte.gz". */
static bool find_labels(const char *path, char found[PATH_MAX]) {
  static const char images[] = "images-idx3", labels[] = "labels-idx1";
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  const char *at = strstr(name, images);
  if (!at || strlen(path) + sizeof ".gz" > PATH_MAX) return false;
  snprintf(found, PATH_MAX, "%.*s%s%s", (int)(at - path), path, labels, at + strlen(images));
  if (access(found, F_OK) == 0) return true;
  size_t length = strlen(found), suffix = strlen(".gz");
  if (!strcmp(found + length - suffix, ".gz")) /* found is longer than .gz: it has "labels-idx1" */
    found[length - suffix] = '\0';
  else
    strcat(found, ".gz");
  return access(found, F_OK) == 0;
}

static int open_labels(struct samples *s) {
  char beside[PATH_MAX];
  uint32_t count;
  const char *path = s->options->labels;
  if (!path && find_labels(s->path, beside)) path = beside;
  if (!path) return EXIT_DONE;
  s->label_path = strdup(path);
  if (!s->label_path) return fail_memory();
  s->labels = stream_open(s->label_path);
  int code = s->labels ? idx_header(s->labels, 1, &count) : EXIT_FAILED;
  if (code == EXIT_DONE && count != s->count)
    code = fail(EXIT_FAILED, "%s: has %u labels, but %s has %lld images; are they of one set?",
                path, count, s->path, (long long)s->count);
  return code;
}

static int open_idx(struct samples *s) {
  uint32_t sizes[3];
  int code = idx_header(s->stream, 3, sizes);
  if (code != EXIT_DONE) return code;
  s->count = sizes[0];
  const char *why = sl__picture_room(&s->picture, sizes[2], sizes[1], 1);
  if (why) return samples_bad(s, why);
  s->picture.most = 255;
  s->size = (size_t)sizes[1] * sizes[2];
  s->bytes = malloc(s->size);
  return s->bytes ? open_labels(s) : fail_memory();
}

static int next_idx(struct samples *s, float *values, int64_t *label, bool *none) {
  (void)values;
  uint8_t byte;
  size_t more;
  *none = s->index == s->count;
  if (*none) {
    if (!stream_read(s->stream, &byte, 1, &more)) return EXIT_FAILED;
    return more ? samples_bad(s, "has bytes behind its last image; is it the right file?")
                : EXIT_DONE;
  }
  int code = samples_take(s, s->stream, s->bytes, s->size, NULL);
  if (code == EXIT_DONE && s->labels) code = samples_take(s, s->labels, &byte, 1, NULL);
  if (code != EXIT_DONE) return code;
  if (s->labels) *label = byte;
  for (size_t i = 0; i < s->size; i++) s->picture.values[i] = s->bytes[i];
  return EXIT_DONE;
}

static bool is_idx(const struct samples *s, const uint8_t *head, size_t size) {
  (void)s;
  return size >= 4 && head[0] == 0 && head[1] == 0 && head[2] == 8 && head[3] < 8;
}

const struct sample_format idx_format = {.is = is_idx, .open = open_idx, .next = next_idx};
