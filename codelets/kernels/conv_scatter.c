#include "codelets/kernels/conv_scatter.h"

#include <string.h>

#include "codelets/kernels/tiles.h"

/* Output channels, floats of a channel's dy and of its taps, distances from one tap of the tile to
 * the next in the weights and in the products. */
struct tile_shape {
  int64_t channels, pixels, taps, below, plane;
};

/* at: offsets of the vectors of pixels. */
typedef void run_tile(const struct tile_shape *s, const int64_t *at, const float *weight,
                      const float *dy, float *to);

#define SL__TILE_FILE "codelets/kernels/conv_scatter_tile.h"
#include "codelets/kernels/simd_variants.h"

typedef run_tile *const tile_table[SL__TILE_ROWS + 1];

/* ---- sizes ---- */

/* Measured: it takes up to twice the time for as many products as the convolutions with the rotated
 * filters, which go to all pixels of dx; longer where a tile has few rows, as each of its sums
 * waits for the one before. */
bool sl__conv_scatter_pays(const struct sl__conv_args *a) {
  double rotated = (double)a->height * a->width / a->stride_h / a->stride_w;
  return !a->gap_h && !a->gap_w && sl__conv_pixels(a) >= 4 && a->kernel_h > 2 &&
         rotated > 2 * (double)sl__conv_pixels(a);
}

/* The products of one tile in the scratch memory: a plane a tap, between rows of zeros, so that
 * every row of dx that the taps meet adds the same number of rows. */
struct planes {
  int64_t plane, zeros; /* floats of a tap's plane, and of the zeros before its products */
};

static struct planes planes_of(const struct sl__conv_args *a, int32_t rows) {
  int64_t zeros = (rows - 1) / a->stride_h * (int64_t)a->out_width;
  return (struct planes){sl__conv_pixels(a) + 2 * zeros, zeros};
}

int64_t sl__conv_scatter_scratch(const struct sl__conv_args *a) {
  int32_t rows = SL__TILE_ROWS < a->kernel_h ? SL__TILE_ROWS : a->kernel_h;
  return rows * planes_of(a, rows).plane;
}

/* ---- products ---- */

/* Taps of one tile: below each other in the window, so that their products meet the same columns of
 * dx. */
struct taps {
  int32_t channel, first, rows, column;
};

/* The products of these taps, for all pixels. The last vector is moved back to end with them, and
 * writes some of them again. */
static void multiply(const struct sl__conv_args *a, tile_table *tiles, int lanes,
                     const struct taps *t, const struct planes *p, const float *weight,
                     const float *dy, float *to) {
  int64_t pixels = sl__conv_pixels(a), at[SL__TILE_COLUMNS];
  int most = SL__TILE_COLUMNS;
  struct tile_shape shape = {a->out_channels, pixels, sl__conv_taps(a), a->kernel_w, p->plane};
  while (!tiles[most][t->rows]) most--;
  weight += ((int64_t)t->channel * a->kernel_h + t->first) * a->kernel_w + t->column;
  for (int64_t i = 0; i < pixels;) {
    int vectors = 0;
    for (; vectors < most && i < pixels; i += lanes)
      at[vectors++] = i < pixels - lanes ? i : pixels - lanes;
    tiles[vectors][t->rows](&shape, at, weight, dy, to + p->zeros);
  }
}

/* ---- sums ---- */

/* Adds `rows` rows, from the one at `from` on, to a row of dx. Sums stay in a register. */
#define ADD_VECTOR(VECTOR)                                                                         \
  do {                                                                                             \
    VECTOR sum = *(const VECTOR *)(to + i);                                                        \
    for (int32_t k = 0; k < rows; k++) sum += *(const VECTOR *)(from + k * next + i);              \
    *(VECTOR *)(to + i) = sum;                                                                     \
  } while (0)
SL__INLINE void add_rows(float *to, const int32_t stride, const float *from, int64_t next,
                         int32_t rows, int32_t width) {
  int32_t i = 0;
  if (stride == 1) {
    for (; i + 8 <= width; i += 8) ADD_VECTOR(sl__loose8);
    for (; i + 4 <= width; i += 4) ADD_VECTOR(sl__loose4);
  }
  for (; i < width; i++) {
    float sum = to[(int64_t)i * stride];
    for (int32_t k = 0; k < rows; k++) sum += from[k * next + i];
    to[(int64_t)i * stride] = sum;
  }
}

/* Row y of dx meets row (y + pad_h - r) / stride_h of tap r, where that is a whole number. */
SL__INLINE void scatter_with(const struct sl__conv_args *a, const struct taps *t,
                             const int32_t rows, const int32_t stride_h, const int32_t stride_w,
                             const struct planes *p, const float *products, float *dx) {
  int32_t left, right, above = t->first - a->pad_h;
  int32_t end = above + (a->out_height - 1) * stride_h + rows;
  sl__conv_inside(a->width, a->out_width, stride_w, t->column, a->pad_w, &left, &right);
  if (left >= right) return;
  int64_t next = p->plane * stride_h - a->out_width;
  int32_t y = above > 0 ? above : 0;
  dx += ((int64_t)t->channel * a->height + y) * a->width + (int64_t)left * stride_w + t->column -
        a->pad_w;
  products += p->zeros + left;
  for (; y < end && y < a->height; y++, dx += a->width) {
    int32_t r = (y - above) % stride_h, h = (y - above) / stride_h;
    if (r < rows)
      add_rows(dx, stride_w, products + r * p->plane + h * (int64_t)a->out_width, next,
               (rows - r - 1) / stride_h + 1, right - left);
  }
}

/* Constants where they often occur: divisions and loops would take longer than the sums. */
SL__SIMD static void scatter(const struct sl__conv_args *a, const struct taps *t,
                             const struct planes *p, const float *products, float *dx) {
  if (a->stride_h != 1 || a->stride_w != 1)
    scatter_with(a, t, t->rows, a->stride_h, a->stride_w, p, products, dx);
  else if (t->rows == 5)
    scatter_with(a, t, 5, 1, 1, p, products, dx);
  else
    scatter_with(a, t, t->rows, 1, 1, p, products, dx);
}

/* Rows of a window in one tile: its parts are as equal as can be. most: rows of the largest tile.
 */
static int32_t rows_of(const struct sl__conv_args *a, int32_t most) {
  return sl__ceil_div(a->kernel_h, sl__ceil_div(a->kernel_h, most));
}

void sl__conv_scatter(const struct sl__conv_args *a, const float *dy, const float *weight,
                      float *dx, float *scratch, bool add, int most_lanes) {
  int64_t pixels = sl__conv_pixels(a);
  int lanes = sl__lanes_of(pixels, most_lanes), most = SL__TILE_ROWS;
  tile_table *tiles = SL__TILES_OF(lanes);
  /* sums of four vectors, or as many as there are, in one tile */
  int columns = pixels > 3 * lanes ? 4 : (int)((pixels + lanes - 1) / lanes);
  while (!tiles[columns][most]) most--;
  int32_t rows = rows_of(a, most);
  struct planes p = planes_of(a, rows);
  memset(scratch, 0, (size_t)(rows * p.plane) * sizeof *scratch);
  if (!add) memset(dx, 0, (size_t)(a->images * sl__conv_x_size(a)) * sizeof *dx);
  for (int32_t n = 0; n < a->images; n++, dx += sl__conv_x_size(a), dy += sl__conv_y_size(a))
    for (int32_t c = 0; c < a->channels; c++)
      for (int32_t s = 0; s < a->kernel_w; s++)
        for (int32_t r = 0; r < a->kernel_h; r += rows) {
          struct taps t = {c, r, a->kernel_h - r < rows ? a->kernel_h - r : rows, s};
          multiply(a, tiles, lanes, &t, &p, weight, dy, scratch);
          scatter(a, &t, &p, scratch, dx);
        }
}
