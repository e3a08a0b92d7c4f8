/* Pictures: their readers, which read from memory (so that fuzzers need no files), their colours
 * and their size. starling-predict is built with these files, too: they call nothing of the
 * library. */
#ifndef SL_DATA_PICTURE_H
#define SL_DATA_PICTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <starling/base.h>

/* A limit, so that a damaged header cannot fill the memory. */
enum { SL__MOST_PIXELS = 1 << 26 };

/* Where a picture of 8 bits goes at once, if it has this size: to planes [channels, height, width],
 * normalised: (value / 255 - mean) / deviation. Grey goes to all channels; colours to 3 alone. */
struct sl__direct {
  int64_t width, height;
  int channels;
  float mean[3], deviation[3]; /* [channels] */
  bool multiplies;             /* see sl__direct_prepare */
  float *planes;
};

/* Once mean and deviation are there: may quotients be made of products, with the same bits? */
void sl__direct_prepare(struct sl__direct *direct);

struct sl__picture {
  const struct sl__direct *direct; /* NULL: none */
  bool is_direct;                  /* it went there; values has nothing of it */
  uint8_t *bytes;                  /* [lines, width, stride] on their way there, in `room` */
  uint8_t *room;                   /* to be freed */
  int stride; /* bytes a pixel: the channels, or 4, of which the last one is none */
  int64_t width, height;
  int channels;                     /* 1 grey, 3 red, green, blue */
  unsigned most;                    /* of a value: 255 is white in 8 bits */
  uint16_t *values;                 /* [height, width, channels], to be freed */
  struct sl__jpeg_decoder *decoder; /* NULL before the first JPEG; to be freed */
};

/* Each fills the picture, or returns the reason why it cannot. The picture must be zero, or an
 * earlier one, whose memory is used again. */

/* This reason, the text itself, says nothing of the picture: it may be decoded another time. */
extern const char sl__picture_no_memory[];

/* PGM and PPM, P2, P3, P5, P6 (https://netpbm.sourceforge.net/doc/pgm.html); *used: bytes of
 * the first picture; others may follow. */
const char *sl__pnm_read(const uint8_t *bytes, size_t size, struct sl__picture *picture,
                         size_t *used);

/* Transparent pixels lie on black. */
const char *sl__png_read(const uint8_t *bytes, size_t size, struct sl__picture *picture);

/* JPEG, by libjpeg. width, height: it may be decoded to an eighth to seven eighths of its size, as
 * long as it is not smaller than this, which takes less time; 0: in its own size. */
const char *sl__jpeg_read(const uint8_t *bytes, size_t size, int64_t width, int64_t height,
                          struct sl__picture *picture);

void sl__jpeg_free(struct sl__jpeg_decoder *decoder); /* may be NULL */

/* Any of the three, by its first bytes, with nothing behind it; width and height as above. */
const char *sl__picture_read(const uint8_t *bytes, size_t size, int64_t width, int64_t height,
                             struct sl__picture *picture);

bool sl__is_png(const uint8_t *bytes, size_t size);
bool sl__is_jpeg(const uint8_t *bytes, size_t size);

/* A picture of 8 bits is read in steps: begin decides whether it goes to picture->direct, and
 * allocates memory; then `bytes` is filled with some lines, of which sl__picture_lines makes planes
 * or values, until all are made. Bytes of few lines stay in a processor's nearest cache. */
const char *sl__picture_begin(struct sl__picture *picture, int64_t width, int64_t height,
                              int channels, int stride, int64_t lines);
void sl__picture_lines(struct sl__picture *picture, int64_t first, int64_t lines);

/* Frees the memory. */
void sl__picture_free(struct sl__picture *picture);

/* Allocates memory for the values. */
const char *sl__picture_room(struct sl__picture *picture, int64_t width, int64_t height,
                             int channels);

/* ---- colours and size (data/picture_size.c) ---- */

/* The filter: each value, or a mean of neighbours. If the picture shrinks, both take in all values
 * between two of the new ones. */
enum sl__resize { SL__RESIZE_NONE, SL__RESIZE_BILINEAR, SL__RESIZE_BOX };

/* Values from 0 to 1, [channels, height, width], of 1 or 3 channels, whatever the picture has. */
void sl__picture_planes(const struct sl__picture *picture, int channels, bool invert,
                        float *planes);

/* The picture's planes [C, h, w] to values [C, H, W]; false without memory. */
bool sl__picture_fit(enum sl__resize kind, const struct sl__picture *picture,
                     const struct sl_shape *shape, const float *planes, float *values);

#endif
