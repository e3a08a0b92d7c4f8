/* PGM and PPM: one picture after the other, as starling-predict reads them. */
#include <stdlib.h>

#include "data/picture.h"
#include "tests/fuzz/fuzz.h"

FUZZER(pnm)(const uint8_t *bytes, size_t size) {
  struct sl__picture picture = {0};
  size_t used = 0;
  while (size && !sl__pnm_read(bytes, size, &picture, &used)) {
    size_t count = (size_t)(picture.width * picture.height) * (size_t)picture.channels;
    /* the announced pixels are there */
    for (size_t i = 0; i < count; i++)
      if (picture.values[i] > picture.most) abort();
    if (!used || used > size) abort();
    bytes += used;
    size -= used;
  }
  sl__picture_free(&picture);
  return 0;
}
