/* Pictures of any kind, by their first bytes. */
#include "data/picture.h"

const char *sl__picture_read(const uint8_t *bytes, size_t size, int64_t width, int64_t height,
                             struct sl__picture *picture) {
  if (sl__is_jpeg(bytes, size)) return sl__jpeg_read(bytes, size, width, height, picture);
  if (sl__is_png(bytes, size)) return sl__png_read(bytes, size, picture);
  if (size < 2 || bytes[0] != 'P') return "is neither JPEG, PNG, PGM nor PPM";
  size_t used;
  const char *why = sl__pnm_read(bytes, size, picture, &used);
  return why ? why : used < size ? "has more than one picture" : NULL;
}
