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

const char *sl__png_read(const uint8_t *bytes, size_t size, struct sl__picture *picture) {
  png_image image = {.version = PNG_IMAGE_VERSION};
  if (!png_image_begin_read_from_memory(&image, bytes, size)) {
    png_image_free(&image);
    return "is no PNG, damaged, or cut short";
  }
  const char *why = read_pixels(&image, picture);
  png_image_free(&image);
  return why;
}
#else
const char *sl__png_read(const uint8_t *bytes, size_t size, struct sl__picture *picture) {
  (void)bytes, (void)size, (void)picture;
  return "is a PNG, which this build cannot read: it was made without libpng; take a PGM or PPM";
}
#endif
