/* CIFAR-10's binary version: a label, then planes of red, green, blue. */
#include <inttypes.h>
#include <stdlib.h>

#include "tools/predict/failure.h"
#include "tools/predict/sample_format.h"

enum { CIFAR_SIDE = 32 };

static int open_cifar10(struct samples *s) {
  const char *why = sl__picture_room(&s->picture, CIFAR_SIDE, CIFAR_SIDE, 3);
  if (why) return samples_bad(s, why);
  s->picture.most = 255;
  s->size = 1 + 3 * CIFAR_SIDE * CIFAR_SIDE;
  s->bytes = malloc(s->size);
  return s->bytes ? EXIT_DONE : fail_memory();
}

static int next_cifar10(struct samples *s, float *values, int64_t *label, bool *none) {
  (void)values;
  const size_t plane = CIFAR_SIDE * CIFAR_SIDE;
  int code = samples_take(s, s->stream, s->bytes, s->size, none);
  if (code != EXIT_DONE || *none) return code;
  if (s->bytes[0] > 9)
    return fail(EXIT_FAILED, "%s: label %" PRId64 " is %d, but CIFAR-10's are 0 to 9", s->path,
                s->index, s->bytes[0]);
  *label = s->bytes[0];
  for (size_t i = 0; i < plane; i++)
    for (size_t c = 0; c < 3; c++) s->picture.values[3 * i + c] = s->bytes[1 + c * plane + i];
  return EXIT_DONE;
}

/* There is no magic number: the first byte is a label. */
static bool is_cifar10(const struct samples *s, const uint8_t *head, size_t size) {
  return size && head[0] <= 9 &&
         sl_shape_equal(&s->options->preparation.shape, &SL_SHAPE(3, CIFAR_SIDE, CIFAR_SIDE));
}

const struct sample_format cifar10_format = {
    .is = is_cifar10, .open = open_cifar10, .next = next_cifar10};
