/* PNG, as starling-predict reads it. If the first byte is odd, the chunks' checksums are made right
 * first: chance would never get by them. */
#include <arpa/inet.h>
#include <zlib.h>

#include "tests/fuzz/fuzz.h"
#include "data/picture.h"

enum { SIGNATURE = 8, LENGTH = 4, NAME = 4, CRC = 4 };

static void repair(uint8_t *bytes, size_t size) {
  size_t at = SIGNATURE;
  while (at + LENGTH + NAME + CRC <= size) {
    uint32_t length;
    memcpy(&length, bytes + at, LENGTH);
    length = ntohl(length);
    if (length > size - at - LENGTH - NAME - CRC) return;
    uint8_t *name = bytes + at + LENGTH;
    uint32_t sum = htonl((uint32_t)crc32_z(0, name, NAME + length));
    memcpy(name + NAME + length, &sum, CRC);
    at += LENGTH + NAME + length + CRC;
  }
}

FUZZER(png)(const uint8_t *bytes, size_t size) {
  struct sl__picture picture = {0};
  if (size < 2) return 0;
  uint8_t *copy = malloc(size - 1);
  if (!copy) abort();
  memcpy(copy, bytes + 1, size - 1);
  if (bytes[0] & 1) repair(copy, size - 1);
  if (!sl__png_read(copy, size - 1, &picture)) {
    size_t count = (size_t)(picture.width * picture.height) * (size_t)picture.channels;
    for (size_t i = 0; i < count; i++)
      if (picture.values[i] > picture.most) abort();
  }
  sl__picture_free(&picture);
  free(copy);
  return 0;
}
