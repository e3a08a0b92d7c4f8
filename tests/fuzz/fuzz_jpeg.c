/* JPEG, whole and in a fraction of its size: the first two bytes are the least height and width.
 * Its floats, if they go to a batch at once, are those of its values. */
#include "data/picture.h"
#include "tests/fuzz/fuzz.h"

static void read_direct(const uint8_t *bytes, size_t size, const struct sl__picture *whole) {
  size_t plane = (size_t)(whole->width * whole->height), channels = (size_t)whole->channels;
  struct sl__direct direct = {.width = whole->width,
                              .height = whole->height,
                              .channels = whole->channels,
                              .deviation = {1, 1, 1}};
  struct sl__picture picture = {.direct = &direct};
  direct.planes = malloc(plane * channels * sizeof *direct.planes);
  if (!direct.planes) abort();
  if (sl__jpeg_read(bytes + 2, size - 2, bytes[1], bytes[0], &picture) || !picture.is_direct)
    abort();
  for (size_t i = 0; i < plane * channels; i++) {
    float want = (float)whole->values[i] / 255.0f,
          got = direct.planes[i % channels * plane + i / channels];
    if (got > want || got < want) abort();
  }
  free(direct.planes);
  sl__picture_free(&picture);
}

FUZZER(jpeg)(const uint8_t *bytes, size_t size) {
  struct sl__picture picture = {0};
  if (size < 2) return 0;
  if (!sl__jpeg_read(bytes + 2, size - 2, bytes[1], bytes[0], &picture)) {
    size_t count = (size_t)(picture.width * picture.height) * (size_t)picture.channels;
    for (size_t i = 0; i < count; i++)
      if (picture.values[i] > picture.most) abort();
    if (count < 1 << 16) read_direct(bytes, size, &picture);
  }
  sl__picture_free(&picture);
  return 0;
}
