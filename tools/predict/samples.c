/* Samples of files, whose kind their first bytes say. Every kind is read one sample at a time, so
 * that a file may be larger than the memory. */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/predict/byte_stream.h"
#include "tools/predict/failure.h"
#include "tools/predict/samples.h"

enum { MOST_PICTURE_BYTES = 1 << 28, CIFAR_SIDE = 32 };

struct samples {
  const struct image_options *options;
  enum format format;
  const char *path;
  struct stream *stream, *labels; /* labels: beside an IDX file, or NULL */
  char *label_path;
  int64_t index, count; /* samples so far, and in all; count -1: not known */
  struct picture picture;
  uint8_t *bytes; /* a sample's, or all of a file of pictures */
  size_t size, at;
  struct sl_dataset *set; /* one that the library opened, or NULL */
};

static int bad(const struct samples *s, const char *why) {
  return fail(EXIT_FAILED, "%s: %s", s->path, why);
}

static uint32_t big_endian(const uint8_t *bytes) {
  return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* Reads exactly `size` bytes. *none: the stream had ended; if none is NULL, that is a failure, too.
 */
static int take(const struct samples *s, struct stream *stream, void *bytes, size_t size,
                bool *none) {
  size_t got;
  if (!stream_read(stream, bytes, size, &got)) return EXIT_FAILED;
  if (none) *none = got == 0;
  if (got == size || (none && got == 0)) return EXIT_DONE;
  return fail(EXIT_FAILED, "%s: cut short in sample %" PRId64 "%s; was the download complete?",
              stream_name(stream), s->index, stream == s->labels ? "'s label" : "");
}

/* ---- IDX: http://yann.lecun.com/exdb/mnist ---- */

/* Type, sizes; dims of them. */
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

/* "t10k-images-idx3-ubyte.gz" to "t10k-labels-idx1-ubyte.gz", or without .gz, whichever is there.
 */
static bool find_labels(const char *path, char found[PATH_MAX]) {
  static const char images[] = "images-idx3", labels[] = "labels-idx1";
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  const char *at = strstr(name, images);
  if (!at || strlen(path) + sizeof ".gz" > PATH_MAX) return false;
  snprintf(found, PATH_MAX, "%.*s%s%s", (int)(at - path), path, labels, at + strlen(images));
  if (access(found, F_OK) == 0) return true;
  size_t length = strlen(found), suffix = strlen(".gz");
  if (!strcmp(found + length - suffix, ".gz")) /* it is longer: it has "labels-idx1" */
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
  const char *why = picture_room(&s->picture, sizes[2], sizes[1], 1);
  if (why) return bad(s, why);
  s->picture.most = 255;
  s->size = (size_t)sizes[1] * sizes[2];
  s->bytes = malloc(s->size);
  return s->bytes ? open_labels(s) : fail_memory();
}

static int next_idx(struct samples *s, int64_t *label, bool *none) {
  uint8_t byte;
  size_t more;
  *none = s->index == s->count;
  if (*none) {
    if (!stream_read(s->stream, &byte, 1, &more)) return EXIT_FAILED;
    return more ? bad(s, "has bytes behind its last image; is it the right file?") : EXIT_DONE;
  }
  int code = take(s, s->stream, s->bytes, s->size, NULL);
  if (code == EXIT_DONE && s->labels) code = take(s, s->labels, &byte, 1, NULL);
  if (code != EXIT_DONE) return code;
  if (s->labels) *label = byte;
  for (size_t i = 0; i < s->size; i++) s->picture.values[i] = s->bytes[i];
  return EXIT_DONE;
}

/* ---- CIFAR-10's binary version: a label, then planes of red, green, blue ---- */

static int open_cifar10(struct samples *s) {
  const char *why = picture_room(&s->picture, CIFAR_SIDE, CIFAR_SIDE, 3);
  if (why) return bad(s, why);
  s->picture.most = 255;
  s->size = 1 + 3 * CIFAR_SIDE * CIFAR_SIDE;
  s->bytes = malloc(s->size);
  return s->bytes ? EXIT_DONE : fail_memory();
}

static int next_cifar10(struct samples *s, int64_t *label, bool *none) {
  const size_t plane = CIFAR_SIDE * CIFAR_SIDE;
  int code = take(s, s->stream, s->bytes, s->size, none);
  if (code != EXIT_DONE || *none) return code;
  if (s->bytes[0] > 9)
    return fail(EXIT_FAILED, "%s: label %" PRId64 " is %d, but CIFAR-10's are 0 to 9", s->path,
                s->index, s->bytes[0]);
  *label = s->bytes[0];
  for (size_t i = 0; i < plane; i++)
    for (size_t c = 0; c < 3; c++) s->picture.values[3 * i + c] = s->bytes[1 + c * plane + i];
  return EXIT_DONE;
}

/* ---- pictures ---- */

static int open_pictures(struct samples *s) {
  return stream_rest(s->stream, MOST_PICTURE_BYTES, &s->bytes, &s->size) ? EXIT_DONE : EXIT_FAILED;
}

/* A file may have several PGM pictures, one after the other. */
static int next_picture(struct samples *s, bool *none) {
  size_t used = s->size - s->at;
  *none = s->at == s->size;
  if (*none) return EXIT_DONE;
  const char *why = s->format == FORMAT_PNG ? png_read(s->bytes + s->at, used, &s->picture)
                                            : pnm_read(s->bytes + s->at, used, &s->picture, &used);
  s->at += used;
  return why ? bad(s, why) : EXIT_DONE;
}

/* ---- raw f32, as the model takes it ---- */

static int next_raw(struct samples *s, float *values, bool *none) {
  int64_t count = sl_shape_count(&s->options->preparation.shape);
  int code = take(s, s->stream, values, (size_t)count * sizeof *values, none);
  for (int64_t i = 0; code == EXIT_DONE && !*none && i < count; i++)
    if (!isfinite(values[i]))
      code = fail(EXIT_FAILED, "%s: value %lld of sample %lld is infinite or not a number", s->path,
                  (long long)i, (long long)s->index);
  return code;
}

/* ---- datasets that the library opens: generated ones, and folders ---- */

bool is_dataset(const char *name) {
  const struct sl_dataset_format *format = sl_dataset_detect(name);
  return format && (!format->generated || access(name, F_OK) != 0);
}

static int open_dataset(struct samples *s) {
  enum sl_status status = sl_dataset_open(s->path, s->options->seed, s->options->train, &s->set);
  if (status != SL_OK) return fail_library(status);
  const struct sl_dataset_info *info = sl_dataset_info(s->set);
  const int64_t *dim = info->sample.dim;
  const char *why = picture_room(&s->picture, dim[2], dim[1], (int)dim[0]);
  if (why) return bad(s, why);
  s->size = (size_t)sl_shape_count(&info->sample) * sizeof(float);
  s->bytes = malloc(s->size);
  s->count = info->count;
  s->picture.most = 255;
  return s->bytes ? EXIT_DONE : fail_memory();
}

/* Back to bytes, which are then normalised for the model. */
static int next_of_dataset(struct samples *s, int64_t *label, bool *none) {
  const struct sl_dataset_info *info = sl_dataset_info(s->set);
  int64_t channels = info->sample.dim[0], plane = info->sample.dim[1] * info->sample.dim[2];
  float *values = (float *)s->bytes;
  int32_t class;
  *none = s->index == s->count;
  if (*none) return EXIT_DONE;
  enum sl_status status = sl_dataset_get(s->set, s->index, values, &class);
  if (status != SL_OK) return fail_library(status);
  for (int64_t c = 0; c < channels; c++) {
    int k = info->channels > 1 ? (int)c : 0;
    for (int64_t i = 0; i < plane; i++)
      s->picture.values[i * channels + c] =
          (uint16_t)lrintf((values[c * plane + i] * info->deviation[k] + info->mean[k]) * 255);
  }
  *label = class;
  return EXIT_DONE;
}

/* ---- the kind of a file ---- */

/* CIFAR-10 has no magic number: a label comes first. */
static enum format guess(const struct samples *s, const uint8_t *head, size_t size) {
  const struct sl_shape *shape = &s->options->preparation.shape;
  static const uint8_t png[] = {0x89, 'P', 'N', 'G'};
  if (size >= 4 && head[0] == 0 && head[1] == 0 && head[2] == 8 && head[3] < 8) return FORMAT_IDX;
  if (size >= sizeof png && !memcmp(head, png, sizeof png)) return FORMAT_PNG;
  if (size >= 2 && head[0] == 'P' && head[1] >= '1' && head[1] <= '7') return FORMAT_PNM;
  if (size && head[0] <= 9 && sl_shape_equal(shape, &SL_SHAPE(3, CIFAR_SIDE, CIFAR_SIDE)))
    return FORMAT_CIFAR10;
  return FORMAT_AUTO;
}

static int choose(struct samples *s) {
  const uint8_t *head;
  size_t size;
  if (!stream_peek(s->stream, &head, &size)) return EXIT_FAILED;
  if (!size) return bad(s, "is empty");
  s->format = s->options->format;
  if (s->format == FORMAT_AUTO) s->format = guess(s, head, size);
  if (s->format != FORMAT_AUTO) return EXIT_DONE;
  return bad(s,
             "is neither IDX, PGM, PPM nor PNG, nor CIFAR-10 for a model of its size; name its "
             "kind with --format");
}

static int open_one(struct samples *s) {
  bool from_set = is_dataset(s->path);
  if (from_set && s->options->format == FORMAT_RAW)
    return bad(s, "is a dataset of pictures; --format raw is of files");
  if (from_set && !s->options->preparation.pictures)
    return bad(s, "the model takes no pictures, and these are some");
  if (from_set) return open_dataset(s);
  s->stream = stream_open(s->path);
  if (!s->stream) return EXIT_FAILED;
  int code = choose(s);
  if (code == EXIT_DONE && s->format != FORMAT_RAW && !s->options->preparation.pictures)
    code = fail(EXIT_FAILED, "%s: the model takes no pictures; give its values, --format raw",
                s->path);
  if (code != EXIT_DONE) return code;
  switch (s->format) {
    case FORMAT_IDX: return open_idx(s);
    case FORMAT_CIFAR10: return open_cifar10(s);
    case FORMAT_PNM:
    case FORMAT_PNG: return open_pictures(s);
    default: return EXIT_DONE;
  }
}

struct samples *samples_open(const struct image_options *options, const char *path) {
  struct samples *s = calloc(1, sizeof *s);
  if (!s) return fail_memory(), NULL;
  s->options = options;
  s->path = path;
  if (open_one(s) == EXIT_DONE) return s;
  samples_close(s);
  return NULL;
}

bool samples_next(struct samples *s, float *values, struct origin *origin, int *code) {
  bool none = false;
  char what[PATH_MAX + 32];
  int64_t *label = &origin->label;
  *origin = (struct origin){s->path, s->index, -1};
  if (s->set)
    *code = next_of_dataset(s, label, &none);
  else if (s->format == FORMAT_IDX)
    *code = next_idx(s, label, &none);
  else if (s->format == FORMAT_CIFAR10)
    *code = next_cifar10(s, label, &none);
  else if (s->format == FORMAT_RAW)
    *code = next_raw(s, values, &none);
  else
    *code = next_picture(s, &none);
  if (*code != EXIT_DONE || none) return false;
  snprintf(what, sizeof what, "%s", s->path);
  if (s->index) snprintf(what, sizeof what, "%s: picture %" PRId64, s->path, s->index);
  if (s->format != FORMAT_RAW) *code = prepare(&s->options->preparation, what, &s->picture, values);
  s->index++;
  return *code == EXIT_DONE;
}

void samples_close(struct samples *s) {
  if (!s) return;
  stream_close(s->stream);
  stream_close(s->labels);
  free(s->label_path);
  sl_dataset_free(s->set);
  free(s->picture.values);
  free(s->bytes);
  free(s);
}
