/* A picture becomes a model's input in three steps: colours, size, the training's range of values.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/predict/failure.h"
#include "tools/predict/preparation.h"

/* ---- colours ---- */

/* The weights of ITU-R BT.601, which most programs use for greyscale. */
static float grey(const uint16_t *colour) {
  return 0.299f * (float)colour[0] + 0.587f * (float)colour[1] + 0.114f * (float)colour[2];
}

/* Planes of values from 0 to 1. */
static void to_planes(const struct picture *picture, int channels, bool invert, float *planes) {
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

/* ---- size ---- */

/* The values, with their weights, of which one value of the other size is made. If the picture
 * shrinks, the filter becomes wider, so that every value counts. */
struct tap {
  int64_t first;
  int count;
  float *weight;
};

static double filter(enum resize kind, double x) {
  if (kind == RESIZE_BOX) return x > -0.5 && x <= 0.5;
  return fabs(x) < 1 ? 1 - fabs(x) : 0;
}

static void fill_tap(struct tap *tap, enum resize kind, int64_t from, int64_t to, int64_t i) {
  double scale = (double)from / (double)to, widening = scale > 1 ? scale : 1, sum = 0;
  double support = (kind == RESIZE_BOX ? 0.5 : 1) * widening, centre = ((double)i + 0.5) * scale;
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
static bool resample(enum resize kind, const float *in, int64_t blocks, int64_t from, int64_t to,
                     int64_t stride, float *out) {
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

/* planes [C, h, w] to values [C, H, W]. */
static bool fit(enum resize kind, const struct picture *picture, const struct sl_shape *shape,
                const float *planes, float *values) {
  const int64_t *to = shape->dim;
  float *wide = calloc((size_t)(to[0] * picture->height * to[2]), sizeof *wide);
  bool done =
      wide && resample(kind, planes, to[0] * picture->height, picture->width, to[2], 1, wide);
  if (done) done = resample(kind, wide, to[0], picture->height, to[1], to[2], values);
  free(wide);
  return done;
}

/* ---- all of it ---- */

static int check(const struct preparation *how, const char *what, const struct picture *picture) {
  const int64_t *to = how->shape.dim;
  if (how->resize != RESIZE_NONE ||
      (picture->width == to[2] && picture->height == to[1] && picture->channels == to[0]))
    return EXIT_DONE;
  return fail(EXIT_FAILED,
              "%s: is %lld x %lld in %s, the model takes %lld x %lld in %s; --resize makes it so",
              what, (long long)picture->width, (long long)picture->height,
              picture->channels == 1 ? "grey" : "colour", (long long)to[2], (long long)to[1],
              to[0] == 1 ? "grey" : "colour");
}

int prepare(const struct preparation *how, const char *what, const struct picture *picture,
            float *values) {
  const int64_t *to = how->shape.dim;
  int64_t plane = to[1] * to[2];
  int code = check(how, what, picture);
  if (code != EXIT_DONE) return code;
  if (picture->width == to[2] && picture->height == to[1]) {
    to_planes(picture, (int)to[0], how->invert, values);
  } else {
    float *planes = calloc((size_t)(to[0] * picture->width * picture->height), sizeof *planes);
    if (planes) to_planes(picture, (int)to[0], how->invert, planes);
    bool done = planes && fit(how->resize, picture, &how->shape, planes, values);
    free(planes);
    if (!done) return fail_memory();
  }
  for (int64_t c = 0; c < to[0]; c++)
    for (int64_t i = 0; i < plane; i++)
      values[c * plane + i] = (values[c * plane + i] - how->mean[c]) / how->deviation[c];
  return EXIT_DONE;
}
