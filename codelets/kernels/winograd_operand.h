/* Images with their channels side by side, for Winograd convolutions whose vectors hold channels.
 * codelets/kernels/winograd_channels.c and winograd_backward_weight.c include this file
 * before their inner loops, and winograd_operand_tile.h among them. */
#ifndef SL_CODELETS_KERNELS_WINOGRAD_OPERAND_H
#define SL_CODELETS_KERNELS_WINOGRAD_OPERAND_H

#include <stdint.h>
#include <string.h>

#include "codelets/kernels/winograd_kind.h"

/* The images x or the gradients dy: an image in a frame of zeros with its channels side by side,
 * and the transformed tiles of some rows. */
struct operand {
  int64_t channels, pixels;
  int32_t width;                    /* of the image */
  int64_t pitch;                    /* floats from pixel to pixel, and from tile to tile: whole
                                       vectors */
  int32_t top, left, rows, columns; /* the frame, and where the image begins in it */
  int64_t place;                    /* floats from matrix to matrix */
  int32_t *at;                      /* [pixels]: offsets in the frame */
  float *frame, *tiles;
};

typedef void frame_image(const struct operand *o, const float *image);
typedef void transform_row(const struct operand *o, int32_t across, const float *row, float *to);

static inline int64_t frame_floats(const struct operand *o) {
  return (int64_t)o->rows * o->columns * o->pitch;
}

/* The offsets of an image's pixels in a frame, where the image begins at pixel `first` and rows are
 * `columns` pixels apart. pitch: floats from pixel to pixel. */
static inline void find_pixels(int64_t pixels, int32_t width, int64_t first, int32_t columns,
                               int64_t pitch, int32_t *at) {
  for (int64_t p = 0; p < pixels; first += columns)
    for (int32_t i = 0; i < width; i++, p++) at[p] = (int32_t)((first + i) * pitch);
}

/* Fills the table of offsets, and the frame with zeros. */
static inline void clear_frame(struct operand *o) {
  int64_t first = (int64_t)o->top * o->columns + o->left;
  find_pixels(o->pixels, o->width, first, o->columns, o->pitch, o->at);
  memset(o->frame, 0, (size_t)frame_floats(o) * sizeof *o->frame);
}

#endif
