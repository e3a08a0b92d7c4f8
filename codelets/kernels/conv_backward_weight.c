#include "codelets/kernels/conv_backward_weight.h"

#include <string.h>

#include "codelets/kernels/conv_frame.h"
#include "codelets/kernels/tiles.h"

/* Some images in their frames. If a plane of outputs is not whole vectors, the last one is moved
 * back to end with it, and `keep` clears those floats of it that the one before has, too. Plain
 * zeros in dy would not do: NaN in x would spread to weights that have nothing to do with it. */
struct group {
  const struct sl__conv_frame *frame;
  const int32_t *keep; /* bits of the last vector's floats; NULL: all */
  int32_t images;
  int64_t image, slopes; /* floats of a framed image, and of an image's dy */
};

/* to: the sum of the first channel and tap. */
typedef void run_tile(const struct group *group, const float *image, const int32_t *offset,
                      const float *dy, float *to);

#define SL__TILE_FILE "codelets/kernels/conv_backward_weight_tile.h"
#include "codelets/kernels/simd_variants.h"

typedef run_tile *const tile_table[SL__TILE_ROWS + 1];

/* ---- memory ---- */

/* A vector has at most as many floats as a plane of outputs. */
static int lanes_of(const struct sl__conv_args *a, int most) {
  return sl__lanes_of(sl__conv_pixels(a), most);
}

bool sl__conv_backward_weight_serves(const struct sl__conv_args *a) {
  if (!sl__conv_frame_fits(a) || sl__conv_pixels(a) < 4) return false;
  return sl__conv_frame_gapless(a, lanes_of(a, 0)).plane * a->channels < INT32_MAX / 2;
}

/* Images whose sums stay in registers: enough that adding up vectors takes little of the time. */
static int32_t images_of(const struct sl__conv_args *a, const struct sl__conv_frame *g) {
  const int32_t vectors = 48;
  int32_t most = (vectors + g->starts - 1) / g->starts;
  return most < a->images ? most : a->images;
}

/* Offsets of the arrays in the scratch memory, and its end. */
struct layout {
  int64_t start, image, end;
  int64_t each; /* floats of a framed image */
};

static struct layout layout_of(const struct sl__conv_args *a, const struct sl__conv_frame *g) {
  struct layout l;
  l.each = sl__whole_lines(a->channels * g->plane);
  l.start = sl__whole_lines(g->taps);
  l.image = l.start + sl__whole_lines(g->starts * (int64_t)(sizeof *g->start / sizeof(float)));
  l.end = l.image + images_of(a, g) * l.each;
  return l;
}

/* Maximum over all widths: the largest need depends on the shape. */
int64_t sl__conv_backward_weight_scratch(const struct sl__conv_args *a) {
  int64_t most = 0;
  for (int lanes = 4; lanes <= 16; lanes *= 2) {
    struct sl__conv_frame g = sl__conv_frame_gapless(a, lanes_of(a, lanes));
    struct layout l = layout_of(a, &g);
    if (l.end > most) most = l.end;
  }
  return most;
}

/* ---- the sums ---- */

/* All channels by all taps: an output channel's slopes stay in the first cache meanwhile. */
static void multiply(const struct group *group, tile_table *tiles, int64_t channels,
                     const float *image, const float *dy, float *grad) {
  const struct sl__conv_frame *g = group->frame;
  const int columns = 3; /* those of a 3x3 window */
  int rows = SL__TILE_ROWS;
  while (!tiles[columns][rows]) rows--;
  for (int64_t k = 0; k < channels; k += rows)
    for (int64_t t = 0; t < g->taps; t += columns) {
      int64_t down = channels - k < rows ? channels - k : rows;
      int64_t across = g->taps - t < columns ? g->taps - t : columns;
      tiles[across][down](group, image, g->offset + t, dy + k * g->to_plane,
                          grad + k * g->taps + t);
    }
}

/* A pointer into it: first zeros, then ones. */
static const int32_t bits[32] = {[16] = -1, -1, -1, -1, -1, -1, -1, -1,
                                 -1,        -1, -1, -1, -1, -1, -1, -1};

static const int32_t *kept_of(const struct sl__conv_frame *g, int lanes) {
  int64_t twice = g->starts * (int64_t)lanes - g->pixels;
  return twice ? bits + 16 - twice : NULL;
}

void sl__conv_backward_weight(const struct sl__conv_args *a, const float *x, const float *dy,
                              float *grad, float *scratch, bool add, int most_lanes) {
  int lanes = lanes_of(a, most_lanes);
  struct sl__conv_frame g = sl__conv_frame_gapless(a, lanes);
  struct layout at = layout_of(a, &g);
  struct group group = {&g, kept_of(&g, lanes), images_of(a, &g), at.each, sl__conv_y_size(a)};
  float *image = scratch + at.image;
  int32_t most = group.images;
  g.offset = (int32_t *)scratch;
  g.start = (struct sl__frame_start *)(scratch + at.start);
  sl__conv_frame_tables(a, &g, lanes);
  if (!add) memset(grad, 0, (size_t)(a->out_channels * g.taps) * sizeof *grad);
  for (int32_t n = 0; n < a->images; n += group.images) {
    group.images = a->images - n < most ? a->images - n : most;
    for (int32_t i = 0; i < group.images; i++)
      sl__conv_frame_fill(a, &g, (struct sl__frame_rows){0, g.height}, n == 0,
                          x + (n + i) * sl__conv_x_size(a), image + i * at.each);
    multiply(&group, SL__TILES_OF(lanes), a->out_channels, image, dy + n * sl__conv_y_size(a),
             grad);
  }
}
