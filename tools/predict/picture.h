/* Pictures, and their readers, which read from memory (so that fuzzers need no files). */
#ifndef SL_TOOLS_PREDICT_PICTURE_H
#define SL_TOOLS_PREDICT_PICTURE_H

#include <stddef.h>
#include <stdint.h>

/* A limit, so that a damaged header cannot fill the memory. */
enum { MOST_PIXELS = 1 << 26 };

struct picture {
  int64_t width, height;
  int channels;     /* 1 grey, 3 red, green, blue */
  unsigned most;    /* of a value: 255 is white in 8 bits */
  uint16_t *values; /* [height, width, channels], to be freed */
};

/* Each fills the picture, or returns the reason why it cannot. The picture must be zero, or an
 * earlier one, whose memory is used again. */

/* PGM and PPM, P2, P3, P5, P6 (https://netpbm.sourceforge.net/doc/pgm.html); *used: bytes of
 * the first picture; others may follow. */
const char *pnm_read(const uint8_t *bytes, size_t size, struct picture *picture, size_t *used);

/* Transparent pixels lie on black. */
const char *png_read(const uint8_t *bytes, size_t size, struct picture *picture);

/* Allocates memory for the values. */
const char *picture_room(struct picture *picture, int64_t width, int64_t height, int channels);

#endif
