/* Pictures as files have them, and the readers that make one of bytes (so that fuzzers need no
 * files). */
#ifndef SL_TOOLS_PREDICT_PICTURE_H
#define SL_TOOLS_PREDICT_PICTURE_H

#include <stddef.h>
#include <stdint.h>

/* Against a header that fills the memory. */
enum { MOST_PIXELS = 1 << 26 };

struct picture {
  int64_t width, height;
  int channels;     /* 1 grey, 3 red, green, blue */
  unsigned most;    /* of a value: 255 is white in 8 bits */
  uint16_t *values; /* [height, width, channels], to be freed */
};

/* Each fills picture, or returns why it does not; it must be zero, or an earlier one to be reused.
 */

/* PGM and PPM, P2, P3, P5, P6 (https://netpbm.sourceforge.net/doc/pgm.html); *used: bytes that the
 * first picture there takes, others may follow. */
const char *pnm_read(const uint8_t *bytes, size_t size, struct picture *picture, size_t *used);

/* Transparent pixels lie on black. */
const char *png_read(const uint8_t *bytes, size_t size, struct picture *picture);

/* Room for so many values. */
const char *picture_room(struct picture *picture, int64_t width, int64_t height, int channels);

#endif
