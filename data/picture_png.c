#include "data/picture.h"

#include <stdlib.h>
#include <string.h>

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

bool sl__is_png(const uint8_t *bytes, size_t size) {
  static const uint8_t start[] = {0x89, 'P', 'N', 'G'};
  return size >= sizeof start && !memcmp(bytes, start, sizeof start);
}

#ifdef SL_HAVE_PNG
#include <png.h>

enum { SIGNATURE = 8 }; /* bytes before the first chunk */

/* As it is kept in the file: the eye's grey of a colour is for prepare() to make, of any kind of
 * file. */
static const char *read_pixels(png_image *image, struct sl__picture *picture) {
  static const png_color black = {0, 0, 0};
  int channels = image->format & PNG_FORMAT_FLAG_COLOR ? 3 : 1;
  const char *why =
      sl__picture_begin(picture, image->width, image->height, channels, channels, image->height);
  if (why) return why;
  image->format = channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  image->flags |= PNG_IMAGE_FLAG_16BIT_sRGB; /* 16 bits: scaled alone, as 8 are */
  if (!png_image_finish_read(image, &black, picture->bytes, 0, NULL))
    return "damaged, or cut short";
  sl__picture_lines(picture, 0, image->height);
  return NULL;
}

/* Bytes of the chunk there: length, type, data, checksum; 0: its pixels or the file's end. */
static size_t chunk_size(const uint8_t *at, size_t left) {
  const size_t frame = 12;
  if (left < frame || !memcmp(at + 4, "IDAT", 4)) return 0;
  size_t length = png_get_uint_32(at);
  return length > left - frame ? 0 : frame + length;
}

static bool is_gamma(const uint8_t *chunk) {
  return !memcmp(chunk + 4, "gAMA", 4) || !memcmp(chunk + 4, "cICP", 4);
}

/* A copy without the chunks from which libpng would convert the values to sRGB: models are trained
 * on the stored ones, as PIL gives them. *size becomes the copy's; NULL: no memory. */
static uint8_t *without_gamma(const uint8_t *bytes, size_t *size) {
  uint8_t *copy = malloc(*size);
  size_t at = SIGNATURE, to = SIGNATURE, chunk;
  if (!copy) return NULL;
  memcpy(copy, bytes, SIGNATURE);
  for (; (chunk = chunk_size(bytes + at, *size - at)); at += chunk) {
    if (is_gamma(bytes + at)) continue;
    memcpy(copy + to, bytes + at, chunk);
    to += chunk;
  }
  memcpy(copy + to, bytes + at, *size - at);
  *size = to + (*size - at);
  return copy;
}

const char *sl__png_read(const uint8_t *bytes, size_t size, struct sl__picture *picture) {
  png_image image = {.version = PNG_IMAGE_VERSION};
  const char *why = "is no PNG, damaged, or cut short";
  if (size < SIGNATURE) return why;
  uint8_t *copy = without_gamma(bytes, &size);
  if (!copy) return "is too large for the memory";
  if (png_image_begin_read_from_memory(&image, copy, size)) why = read_pixels(&image, picture);
  png_image_free(&image);
  free(copy);
  return why;
}
#else
const char *sl__png_read(const uint8_t *bytes, size_t size, struct sl__picture *picture) {
  (void)bytes, (void)size, (void)picture;
  return "is a PNG, which this build cannot read: it was made without libpng; take a PGM or PPM";
}
#endif
