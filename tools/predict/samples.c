/* Samples of files and datasets. Each format is read one sample at a time, so that a file may be
 * larger than the memory. */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>

#include "tools/predict/failure.h"
#include "tools/predict/sample_format.h"

/* The formats of text have none. */
static const struct sample_format *const formats[FORMAT_TOKENS + 1] = {
#define SAMPLE_FORMAT(upper, lower) [FORMAT_##upper] = &lower##_format,
#include "tools/predict/formats.def"
#undef SAMPLE_FORMAT
};

int samples_bad(const struct samples *s, const char *why) {
  return fail(EXIT_FAILED, "%s: %s", s->path, why);
}

int samples_undecoded(const struct samples *s, const char *why, bool *none) {
  char from[64] = "";
  if (!why) return EXIT_DONE;
  if (!s->options->skip_bad || why == sl__picture_no_memory) return samples_bad(s, why);
  if (s->index) snprintf(from, sizeof from, " from picture %" PRId64 " on", s->index);
  remark("%s: left out%s: %s", s->path, from, why);
  *none = true;
  return EXIT_DONE;
}

int samples_take(const struct samples *s, struct stream *stream, void *bytes, size_t size,
                 bool *none) {
  size_t got;
  if (!stream_read(stream, bytes, size, &got)) return EXIT_FAILED;
  if (none) *none = got == 0;
  if (got == size || (none && got == 0)) return EXIT_DONE;
  return fail(EXIT_FAILED, "%s: cut short in sample %" PRId64 "%s; was the download complete?",
              stream_name(stream), s->index, stream == s->labels ? "'s label" : "");
}

/* ---- the format of a file ---- */

static const struct sample_format *recognise(const struct samples *s, const uint8_t *head,
                                             size_t size) {
  for (int i = 0; i <= FORMAT_TOKENS; i++)
    if (formats[i] && formats[i]->is && formats[i]->is(s, head, size)) return formats[i];
  return NULL;
}

static int next_of_none(struct samples *s, float *values, int64_t *label, bool *none) {
  (void)s, (void)values, (void)label;
  *none = true;
  return EXIT_DONE;
}

static const struct sample_format no_format = {.is_values = true, .next = next_of_none};

/* A file that is no picture cannot be decoded, either. */
static int choose_none(struct samples *s, const char *why) {
  bool none;
  s->format = &no_format;
  return samples_undecoded(s, why, &none);
}

static int choose(struct samples *s) {
  enum format wanted = s->options->format;
  const uint8_t *head;
  size_t size;
  if (!stream_peek(s->stream, &head, &size)) return EXIT_FAILED;
  if (!size) return choose_none(s, "is empty");
  s->format = wanted == FORMAT_AUTO ? recognise(s, head, size) : formats[wanted];
  if (!s->format)
    return choose_none(
        s,
        "is neither IDX, PGM, PPM, PNG nor JPEG, nor CIFAR-10 for a model of its size; name its "
        "kind with --format");
  if (s->format->is_values || s->options->preparation.pictures) return EXIT_DONE;
  return fail(EXIT_FAILED, "%s: the model takes no pictures; give its values, --format raw",
              s->path);
}

static int open_file(struct samples *s) {
  s->stream = stream_open(s->path);
  return s->stream ? choose(s) : EXIT_FAILED;
}

static int open_set(struct samples *s) {
  enum format wanted = s->options->format;
  s->format = &dataset_format;
  if (formats[wanted] && formats[wanted]->is_values)
    return samples_bad(s, "is a dataset of pictures; --format raw is of files");
  return EXIT_DONE;
}

/* Options that say nothing of this input. */
static int check_options(const struct samples *s) {
  bool own = s->kind && s->kind->own && !s->kind->generated;
  if (s->options->labels && s->format != &idx_format)
    return samples_bad(s, "is no IDX file: leave --labels out");
  if (!own && (s->options->validation || s->options->fold))
    return samples_bad(s, "nothing of it was held back: leave --validation and --fold out");
  return EXIT_DONE;
}

static int open_one(struct samples *s) {
  s->kind = dataset_kind(s->path);
  if (s->options->arrays && !s->kind)
    return samples_bad(s, "has no arrays by name; leave --inputs out");
  int code = s->kind ? open_set(s) : open_file(s);
  if (code == EXIT_DONE) code = check_options(s);
  return code == EXIT_DONE && s->format->open ? s->format->open(s) : code;
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
  *origin = (struct origin){s->path, s->set ? sl_dataset_number(s->set, s->index) : s->index, -1};
  *code = s->format->next(s, values, &origin->label, &none);
  if (*code != EXIT_DONE || none) return false;
  snprintf(what, sizeof what, "%s", s->path);
  if (s->index) snprintf(what, sizeof what, "%s: picture %" PRId64, s->path, s->index);
  if (!s->format->is_values) *code = prepare(&s->options->preparation, what, &s->picture, values);
  s->index++;
  return *code == EXIT_DONE;
}

void samples_close(struct samples *s) {
  if (!s) return;
  stream_close(s->stream);
  stream_close(s->labels);
  free(s->label_path);
  sl_dataset_free(s->set);
  sl__picture_free(&s->picture);
  free(s->bytes);
  free(s);
}
