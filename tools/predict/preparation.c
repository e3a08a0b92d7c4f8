/* A picture becomes a model's input in three steps: colours, size, the training's range of values.
 */
#include <stdlib.h>

#include "tools/predict/failure.h"
#include "tools/predict/preparation.h"

static int check(const struct preparation *how, const char *what,
                 const struct sl__picture *picture) {
  const int64_t *to = how->shape.dim;
  if (how->resize != SL__RESIZE_NONE ||
      (picture->width == to[2] && picture->height == to[1] && picture->channels == to[0]))
    return EXIT_DONE;
  return fail(EXIT_FAILED,
              "%s: is %lld x %lld in %s, the model takes %lld x %lld in %s; --resize makes it so",
              what, (long long)picture->height, (long long)picture->width,
              picture->channels == 1 ? "grey" : "colour", (long long)to[1], (long long)to[2],
              to[0] == 1 ? "grey" : "colour");
}

int prepare(const struct preparation *how, const char *what, const struct sl__picture *picture,
            float *values) {
  const int64_t *to = how->shape.dim;
  int64_t plane = to[1] * to[2];
  int code = check(how, what, picture);
  if (code != EXIT_DONE) return code;
  if (picture->width == to[2] && picture->height == to[1]) {
    sl__picture_planes(picture, (int)to[0], how->invert, values);
  } else {
    float *planes = calloc((size_t)(to[0] * picture->width * picture->height), sizeof *planes);
    if (planes) sl__picture_planes(picture, (int)to[0], how->invert, planes);
    bool done = planes && sl__picture_fit(how->resize, picture, &how->shape, planes, values);
    free(planes);
    if (!done) return fail_memory();
  }
  for (int64_t c = 0; c < to[0]; c++)
    for (int64_t i = 0; i < plane; i++)
      values[c * plane + i] = (values[c * plane + i] - how->mean[c]) / how->deviation[c];
  return EXIT_DONE;
}
