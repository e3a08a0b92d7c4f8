#include "codelets/kernels/conv_scatter.h"

#include <string.h>

#include "codelets/kernels/tiles.h"

typedef void run_tile(int64_t channels, int64_t pixels, int64_t taps, const int64_t *at,
                      const float *weight, const float *dy, float *to);

#define SL__TILE_FILE "codelets/kernels/conv_scatter_tile.h"
#include "codelets/kernels/simd_variants.h"

typedef run_tile *const tile_table[SL__TILE_ROWS + 1];

/* ---- sizes ---- */

/* Measured: it takes up to twice the time for as many products as the convolutions with the rotated
 * filters, which go to all pixels of dx. */
bool sl__conv_scatter_pays(const struct sl__conv_args *a) {
  double rotated = (double)a->height * a->width / a->stride_h / a->stride_w;
  return sl__conv_pixels(a) >= 4 && rotated > 2 * (double)sl__conv_pixels(a);
}

int64_t sl__conv_scatter_scratch(const struct sl__conv_args *a) {
  return SL__TILE_ROWS * sl__conv_pixels(a);
}

/* ---- products ---- */

/* The products of `rows` taps, for all pixels. The last vector is moved back to end with them, and
 * writes some of them again. */
static void multiply(const struct sl__conv_args *a, tile_table *tiles, int lanes, int rows,
                     const float *weight, const float *dy, float *to) {
  int64_t pixels = sl__conv_pixels(a), at[SL__TILE_COLUMNS];
  int most = SL__TILE_COLUMNS;
  while (!tiles[most][rows]) most--;
  for (int64_t p = 0; p < pixels;) {
    int vectors = 0;
    for (; vectors < most && p < pixels; p += lanes)
      at[vectors++] = p < pixels - lanes ? p : pixels - lanes;
    tiles[vectors][rows](a->out_channels, pixels, sl__conv_taps(a), at, weight, dy, to);
  }
}

/* ---- sums ---- */

/* Adds rows of `from` to rows of `to`. width and stride are constants where they often occur: a
 * loop over few floats costs more than the sums. */
SL__INLINE void add_rows(float *restrict to, int64_t below, const float *restrict from,
                         int64_t next, int32_t rows, const int32_t width, const int32_t stride) {
  for (int32_t h = 0; h < rows; h++, to += below, from += next)
    for (int32_t i = 0; i < width; i++) to[(int64_t)i * stride] += from[i];
}

/* Adds a tap's products [H', W'] to the pixels of its channel's plane that it meets. */
SL__SIMD static void scatter(const struct sl__conv_args *a, int64_t tap, const float *from,
                             float *dx) {
  int32_t window = a->kernel_h * a->kernel_w, top, bottom, left, right;
  int32_t r = (int32_t)(tap % window) / a->kernel_w, s = (int32_t)(tap % window) % a->kernel_w;
  sl__conv_inside(a->height, a->out_height, a->stride_h, r, a->pad_h, &top, &bottom);
  sl__conv_inside(a->width, a->out_width, a->stride_w, s, a->pad_w, &left, &right);
  int64_t below = (int64_t)a->stride_h * a->width;
  float *to = dx + tap / window * a->height * a->width + top * below +
              (int64_t)(r - a->pad_h) * a->width + (int64_t)left * a->stride_w + s - a->pad_w;
  int32_t rows = bottom - top, width = right - left;
  from += (int64_t)top * a->out_width + left;
  if (a->stride_w != 1)
    add_rows(to, below, from, a->out_width, rows, width, a->stride_w);
  else if (width == 8)
    add_rows(to, below, from, a->out_width, rows, 8, 1);
  else if (width == 4)
    add_rows(to, below, from, a->out_width, rows, 4, 1);
  else
    add_rows(to, below, from, a->out_width, rows, width, 1);
}

void sl__conv_scatter(const struct sl__conv_args *a, const float *dy, const float *weight,
                      float *dx, float *scratch, bool add, int most_lanes) {
  int64_t taps = sl__conv_taps(a), pixels = sl__conv_pixels(a);
  int lanes = sl__lanes_of(pixels, most_lanes), most = SL__TILE_ROWS;
  tile_table *tiles = SL__TILES_OF(lanes);
  /* sums of four vectors, or as many as there are, in one tile */
  int columns = pixels > 3 * lanes ? 4 : (int)((pixels + lanes - 1) / lanes);
  while (!tiles[columns][most]) most--;
  if (!add) memset(dx, 0, (size_t)(a->images * sl__conv_x_size(a)) * sizeof *dx);
  for (int32_t n = 0; n < a->images; n++) {
    for (int64_t t = 0; t < taps; t += most) {
      int rows = (int)(taps - t < most ? taps - t : most);
      multiply(a, tiles, lanes, rows, weight + t, dy, scratch);
      for (int i = 0; i < rows; i++) scatter(a, t + i, scratch + i * pixels, dx);
    }
    dx += sl__conv_x_size(a);
    dy += sl__conv_y_size(a);
  }
}
