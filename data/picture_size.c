/* Colours and sizes of pictures. */
#include <math.h>
#include <stdlib.h>

#include "core/base/simd.h"
#include "data/byte_normal.h"
#include "data/picture.h"

/* ---- colours ---- */

/* The weights of ITU-R BT.601, which most programs use for greyscale. */
static float grey(const uint16_t *colour) {
  return 0.299f * (float)colour[0] + 0.587f * (float)colour[1] + 0.114f * (float)colour[2];
}

void sl__picture_planes(const struct sl__picture *picture, int channels, bool invert,
                        float *planes) {
  size_t plane = (size_t)(picture->width * picture->height);
  float most = (float)picture->most;
  for (size_t i = 0; i < plane; i++) {
    const uint16_t *from = picture->values + i * (size_t)picture->channels;
    for (int c = 0; c < channels; c++) {
      float value = picture->channels == 1 ? (float)from[0]
                    : channels == 3        ? (float)from[c]
                                           : grey(from);
      planes[(size_t)c * plane + i] = (invert ? most - value : value) / most;
    }
  }
}

/* ---- pictures of bytes ---- */

/* libjpeg-turbo writes lines that begin on a vector past the caches, from where they come back
 * slowly. Lines of an even number of pixels never begin there, if the first one begins a pixel of 4
 * bytes behind. */
enum { VECTOR = 32, BESIDE = 4 };

const char *sl__picture_begin(struct sl__picture *picture, int64_t width, int64_t height,
                              int channels, int stride, int64_t lines) {
  const struct sl__direct *direct = picture->direct;
  bool fits = direct && width == direct->width && height == direct->height &&
              (channels == 1 || direct->channels == 3);
  const char *why = fits ? NULL : sl__picture_room(picture, width, height, channels);
  if (why) return why;
  uint8_t *room = realloc(picture->room, (size_t)(width * lines) * (size_t)stride + 2 * VECTOR);
  if (!room) return sl__picture_no_memory;
  picture->room = room;
  picture->bytes = room + (VECTOR - (uintptr_t)room % VECTOR) + BESIDE;
  picture->stride = stride;
  picture->is_direct = fits;
  picture->width = width;
  picture->height = height;
  picture->channels = channels;
  picture->most = 255;
  return NULL;
}

static struct sl__byte_normal normal_of(const struct sl__direct *direct, int channel) {
  return sl__byte_normal(direct->mean[channel], direct->deviation[channel]);
}

void sl__direct_prepare(struct sl__direct *direct) {
  direct->multiplies = true;
  for (int c = 0; c < direct->channels; c++)
    direct->multiplies = direct->multiplies && sl__products_are_exact(normal_of(direct, c));
}

/* Pixels of a picture on their way to its planes, which are `plane` values apart. */
struct pixels {
  const uint8_t *bytes;
  size_t count, stride, plane;
};

static SL__SIMD void divide_grey(struct pixels p, struct sl__byte_normal n, float *restrict to) {
  for (size_t i = 0; i < p.count; i++) to[i] = sl__by_division(p.bytes[i], n);
}

static SL__SIMD void divide_colours(struct pixels p, const struct sl__byte_normal n[3],
                                    float *restrict red) {
  const struct sl__byte_normal n0 = n[0], n1 = n[1], n2 = n[2];
  const uint8_t *restrict bytes = p.bytes;
  float *restrict green = red + p.plane, *restrict blue = green + p.plane;
  for (size_t i = 0; i < p.count; i++) {
    red[i] = sl__by_division(bytes[p.stride * i], n0);
    green[i] = sl__by_division(bytes[p.stride * i + 1], n1);
    blue[i] = sl__by_division(bytes[p.stride * i + 2], n2);
  }
}

static SL__SIMD void multiply_colours(struct pixels p, const struct sl__byte_normal n[3],
                                      float *restrict red) {
  const struct sl__byte_normal n0 = n[0], n1 = n[1], n2 = n[2];
  const uint8_t *restrict bytes = p.bytes;
  float *restrict green = red + p.plane, *restrict blue = green + p.plane;
  for (size_t i = 0; i < p.count; i++) {
    red[i] = sl__by_product(bytes[3 * i], n0);
    green[i] = sl__by_product(bytes[3 * i + 1], n1);
    blue[i] = sl__by_product(bytes[3 * i + 2], n2);
  }
}

/* Bytes of a pixel in one word are taken apart without moves between lanes. */
static SL__SIMD void multiply_words(struct pixels p, const struct sl__byte_normal n[3],
                                    float *restrict red) {
  const struct sl__byte_normal n0 = n[0], n1 = n[1], n2 = n[2];
  const uint32_t *restrict words = (const uint32_t *)(const void *)p.bytes;
  float *restrict green = red + p.plane, *restrict blue = green + p.plane;
  for (size_t i = 0; i < p.count; i++) {
    red[i] = sl__by_product(words[i] & 255, n0);
    green[i] = sl__by_product(words[i] >> 8 & 255, n1);
    blue[i] = sl__by_product(words[i] >> 16 & 255, n2);
  }
}

static void make_planes(const struct sl__direct *direct, int channels, struct pixels p, float *to) {
  struct sl__byte_normal n[3];
  for (int c = 0; c < direct->channels; c++) n[c] = normal_of(direct, c);
  if (channels == 3 && !direct->multiplies)
    divide_colours(p, n, to);
  else if (channels == 3 && p.stride == 4)
    multiply_words(p, n, to);
  else if (channels == 3)
    multiply_colours(p, n, to);
  if (channels == 3) return;
  for (int c = 0; c < direct->channels; c++, to += p.plane)
    if (direct->multiplies)
      sl__bytes_multiply(p.bytes, p.count, n[c], to);
    else
      divide_grey(p, n[c], to);
}

void sl__picture_lines(struct sl__picture *picture, int64_t first, int64_t lines) {
  const struct pixels p = {picture->bytes, (size_t)(picture->width * lines),
                           (size_t)picture->stride, (size_t)(picture->width * picture->height)};
  size_t begin = (size_t)(picture->width * first), channels = (size_t)picture->channels;
  if (picture->is_direct) {
    make_planes(picture->direct, picture->channels, p, picture->direct->planes + begin);
    return;
  }
  uint16_t *values = picture->values + begin * channels;
  for (size_t i = 0; i < p.count; i++)
    for (size_t c = 0; c < channels; c++) values[channels * i + c] = p.bytes[p.stride * i + c];
}

void sl__picture_free(struct sl__picture *picture) {
  free(picture->values);
  free(picture->room);
  sl__jpeg_free(picture->decoder);
  *picture = (struct sl__picture){0};
}

/* ---- size ---- */

/* The values, with their weights, of which one value of the other size is made. If the picture
 * shrinks, the filter becomes wider, so that every value counts. */
struct tap {
  int64_t first;
  int count;
  float *weight;
};

static double filter(enum sl__resize kind, double x) {
  if (kind == SL__RESIZE_BOX) return x > -0.5 && x <= 0.5;
  return fabs(x) < 1 ? 1 - fabs(x) : 0;
}

static void fill_tap(struct tap *tap, enum sl__resize kind, int64_t from, int64_t to, int64_t i) {
  double scale = (double)from / (double)to, widening = scale > 1 ? scale : 1, sum = 0;
  double support = (kind == SL__RESIZE_BOX ? 0.5 : 1) * widening,
         centre = ((double)i + 0.5) * scale;
  int64_t first = (int64_t)(centre - support + 0.5), end = (int64_t)(centre + support + 0.5);
  if (first < 0) first = 0;
  if (end > from) end = from;
  tap->first = first;
  tap->count = (int)(end - first);
  for (int k = 0; k < tap->count; k++) {
    double weight = filter(kind, ((double)(first + k) + 0.5 - centre) / widening);
    tap->weight[k] = (float)weight;
    sum += weight;
  }
  for (int k = 0; k < tap->count; k++) tap->weight[k] = (float)(tap->weight[k] / sum);
}

static float pull(const struct tap *tap, const float *values, int64_t stride) {
  float sum = 0;
  for (int k = 0; k < tap->count; k++) sum += tap->weight[k] * values[(tap->first + k) * stride];
  return sum;
}

/* lines x from values to lines x to values, along one axis: values of a line are `stride` apart, of
 * which there are `stride` lines between each other. */
static bool resample(enum sl__resize kind, const float *in, int64_t blocks, int64_t from,
                     int64_t to, int64_t stride, float *out) {
  struct tap tap = {.weight = calloc((size_t)(2 * (from / to) + 8), sizeof(float))};
  if (!tap.weight) return false;
  for (int64_t i = 0; i < to; i++) {
    fill_tap(&tap, kind, from, to, i);
    for (int64_t b = 0; b < blocks; b++)
      for (int64_t s = 0; s < stride; s++)
        out[(b * to + i) * stride + s] = pull(&tap, in + b * from * stride + s, stride);
  }
  free(tap.weight);
  return true;
}

bool sl__picture_fit(enum sl__resize kind, const struct sl__picture *picture,
                     const struct sl_shape *shape, const float *planes, float *values) {
  const int64_t *to = shape->dim;
  float *wide = calloc((size_t)(to[0] * picture->height * to[2]), sizeof *wide);
  bool done =
      wide && resample(kind, planes, to[0] * picture->height, picture->width, to[2], 1, wide);
  if (done) done = resample(kind, wide, to[0], picture->height, to[1], to[2], values);
  free(wide);
  return done;
}
