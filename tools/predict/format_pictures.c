/* Pictures: a PNG or JPEG file, or PGM and PPM pictures, of which a file may have several. */
#include "tools/predict/failure.h"
#include "tools/predict/sample_format.h"

enum { MOST_PICTURE_BYTES = 1 << 28 };

static int open_pictures(struct samples *s) {
  return stream_rest(s->stream, MOST_PICTURE_BYTES, &s->bytes, &s->size) ? EXIT_DONE : EXIT_FAILED;
}

static bool is_png(const struct samples *s, const uint8_t *head, size_t size) {
  (void)s;
  return sl__is_png(head, size);
}

static bool is_jpeg(const struct samples *s, const uint8_t *head, size_t size) {
  (void)s;
  return sl__is_jpeg(head, size);
}

/* A file of one picture. */
static int next_file(struct samples *s, bool *none, bool png) {
  *none = s->at == s->size;
  if (*none) return EXIT_DONE;
  const char *why = png ? sl__png_read(s->bytes, s->size, &s->picture)
                        : sl__jpeg_read(s->bytes, s->size, 0, 0, &s->picture);
  s->at = s->size;
  return samples_undecoded(s, why, none);
}

static int next_png(struct samples *s, float *values, int64_t *label, bool *none) {
  (void)values, (void)label;
  return next_file(s, none, true);
}

static int next_jpeg(struct samples *s, float *values, int64_t *label, bool *none) {
  (void)values, (void)label;
  return next_file(s, none, false);
}

static bool is_pnm(const struct samples *s, const uint8_t *head, size_t size) {
  (void)s;
  return size >= 2 && head[0] == 'P' && head[1] >= '1' && head[1] <= '7';
}

static int next_pnm(struct samples *s, float *values, int64_t *label, bool *none) {
  size_t used = s->size - s->at;
  (void)values, (void)label;
  *none = s->at == s->size;
  if (*none) return EXIT_DONE;
  const char *why = sl__pnm_read(s->bytes + s->at, used, &s->picture, &used);
  s->at += used;
  return samples_undecoded(s, why, none);
}

const struct sample_format png_format = {.is = is_png, .open = open_pictures, .next = next_png};
const struct sample_format jpeg_format = {.is = is_jpeg, .open = open_pictures, .next = next_jpeg};
const struct sample_format pnm_format = {.is = is_pnm, .open = open_pictures, .next = next_pnm};
