/* JPEG, whole and in a fraction of its size: the first two bytes are the least height and width. */
#include "data/picture.h"
#include "tests/fuzz/fuzz.h"

FUZZER(jpeg)(const uint8_t *bytes, size_t size) {
  struct sl__picture picture = {0};
  if (size < 2) return 0;
  if (!sl__jpeg_read(bytes + 2, size - 2, bytes[1], bytes[0], &picture)) {
    size_t count = (size_t)(picture.width * picture.height) * (size_t)picture.channels;
    for (size_t i = 0; i < count; i++)
      if (picture.values[i] > picture.most) abort();
  }
  sl__picture_free(&picture);
  return 0;
}
