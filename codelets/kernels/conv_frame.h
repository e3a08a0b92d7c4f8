/* Images in a frame of zeros, in which windows need no tests at the edges, and the positions of the
 * outputs' vectors in it. */
#ifndef SL_CODELETS_KERNELS_CONV_FRAME_H
#define SL_CODELETS_KERNELS_CONV_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#include "codelets/kernels/conv.h"

/* The position of a vector of outputs. */
struct sl__frame_start {
  int64_t offset; /* offset of its first window's first tap in the framed image */
  int64_t to;     /* offset in a channel's plane of outputs */
};

/* Images are copied into a frame of zeros, separated by the remainders of the stride. So the
 * windows of neighbouring outputs are adjacent, and edges need no tests. If rows are not whole
 * vectors, each column of the window may have a copy of its own, of the values that the outputs
 * meet there: rows of the copy then follow each other as outputs do. */
struct sl__conv_frame {
  int64_t taps, pixels;          /* C R S; H' W' */
  int32_t out_height, out_width; /* H', W' */
  bool copies;                   /* each column of the window has its own */
  int32_t down, across; /* number of remainders of rows and columns that a tap of the window has, or
                           columns of the window */
  int32_t height, pitch; /* one remainder's plane: rows, and floats of a row */
  int64_t plane;         /* floats of a channel, all remainders */
  bool gathers;          /* tiles also write the gaps between rows, or behind them */
  int64_t to_plane;      /* floats of a channel's outputs where tiles write */
  int32_t starts;
  int32_t *offset;               /* [taps], from the window's first tap */
  struct sl__frame_start *start; /* [starts] */
};

/* Rows of each plane of the frame. */
struct sl__frame_rows {
  int32_t first, end;
};

/* Returns true if all offsets fit into 32 bits. */
bool sl__conv_frame_fits(const struct sl__conv_args *a);

/* The frame for the forward pass, and one whose vectors leave out no gaps between rows if a plane
 * of outputs has at least as many floats as a vector. */
struct sl__conv_frame sl__conv_frame_of(const struct sl__conv_args *a, int lanes);
struct sl__conv_frame sl__conv_frame_gapless(const struct sl__conv_args *a, int lanes);

/* Fills offset and start, which the caller has allocated. */
void sl__conv_frame_tables(const struct sl__conv_args *a, const struct sl__conv_frame *g,
                           int lanes);

/* Copies some rows of an image x [C, H, W] into the frame. clear: its zeros are written, too. */
void sl__conv_frame_fill(const struct sl__conv_args *a, const struct sl__conv_frame *g,
                         struct sl__frame_rows rows, bool clear, const float *x, float *image);

#endif
