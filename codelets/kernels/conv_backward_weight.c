#include "codelets/kernels/conv_backward_weight.h"

#include <string.h>

#include "codelets/kernels/conv_frame.h"
#include "codelets/kernels/copy.h"
#include "codelets/kernels/tiles.h"

/* Some images in their frames, and their slopes dy. */
struct group {
  const struct sl__conv_frame *frame;
  int32_t images;
  int64_t image, slopes; /* floats of a framed image, and of an image's slopes */
};

/* to: the sum of the first channel and tap. */
typedef void run_tile(const struct group *group, const float *image, const int32_t *offset,
                      const float *dy, float *to);

#define SL__TILE_FILE "codelets/kernels/conv_backward_weight_tile.h"
#include "codelets/kernels/simd_variants.h"

typedef run_tile *const tile_table[SL__TILE_ROWS + 1];

static tile_table *tiles_of(int lanes) {
#ifdef SL__WIDTHS
  if (lanes == 16) return tiles_16;
  if (lanes == 8) return tiles_8;
#endif
  (void)lanes;
  return tiles_4;
}

/* ---- memory ---- */

static int64_t aligned(int64_t floats) { return (floats + 15) / 16 * 16; }

/* The frame of the forward pass. If rows are not whole vectors, vectors go on over the gaps between
 * rows, and meet zeros there in a copy of dy. */
static struct sl__conv_frame frame_of(const struct sl__conv_args *a, int lanes) {
  struct sl__conv_frame g = sl__conv_frame_of(a, lanes);
  g.gathers = a->out_width % lanes != 0 && (g.pitch != a->out_width || g.pixels % lanes != 0);
  g.to_plane = g.gathers ? (int64_t)g.starts * lanes : g.pixels;
  return g;
}

bool sl__conv_backward_weight_serves(const struct sl__conv_args *a) {
  return sl__conv_frame_fits(a) && !frame_of(a, sl__lanes(0)).gathers;
}

/* Images whose sums stay in registers: enough that adding up vectors takes little of the time. */
static int32_t images_of(const struct sl__conv_args *a, const struct sl__conv_frame *g) {
  const int32_t vectors = 48;
  int32_t most = (vectors + g->starts - 1) / g->starts;
  return most < a->images ? most : a->images;
}

/* Offsets of the arrays in the scratch memory, and its end. */
struct layout {
  int64_t start, image, slopes, end;
  int64_t each; /* of a framed image; the last vector reads behind its end */
};

static struct layout layout_of(const struct sl__conv_args *a, const struct sl__conv_frame *g) {
  struct layout l;
  int32_t images = images_of(a, g);
  l.each = aligned(a->channels * g->plane + 64);
  l.start = aligned(g->taps);
  l.image = l.start + aligned(g->starts * (int64_t)(sizeof *g->start / sizeof(float)));
  l.slopes = l.image + images * l.each;
  l.end = l.slopes + (g->gathers ? images * a->out_channels * g->to_plane : 0);
  return l;
}

/* Maximum over all widths: the largest need depends on the shape. */
int64_t sl__conv_backward_weight_scratch(const struct sl__conv_args *a) {
  int64_t most = 0;
  for (int lanes = 4; lanes <= 16; lanes *= 2) {
    struct sl__conv_frame g = frame_of(a, lanes);
    struct layout l = layout_of(a, &g);
    if (l.end > most) most = l.end;
  }
  return most;
}

/* ---- the sums ---- */

/* dy [K, H', W'] with zeros in the gaps between rows and behind them. */
static void spread(const struct sl__conv_args *a, const struct sl__conv_frame *g, const float *dy,
                   float *to) {
  for (int32_t k = 0; k < a->out_channels; k++, to += g->to_plane) {
    memset(to, 0, (size_t)g->to_plane * sizeof *to);
    for (int32_t h = 0; h < a->out_height; h++, dy += a->out_width)
      memcpy(to + (int64_t)h * g->pitch, dy, (size_t)a->out_width * sizeof *to);
  }
}

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

void sl__conv_backward_weight(const struct sl__conv_args *a, const float *x, const float *dy,
                              float *grad, float *scratch, bool add, int most_lanes) {
  int lanes = sl__lanes(most_lanes);
  struct sl__conv_frame g = frame_of(a, lanes);
  struct layout at = layout_of(a, &g);
  struct group group = {&g, images_of(a, &g), at.each, a->out_channels * g.to_plane};
  float *image = scratch + at.image, *slopes = scratch + at.slopes;
  int32_t most = group.images;
  g.offset = (int32_t *)scratch;
  g.start = (struct sl__frame_start *)(scratch + at.start);
  sl__conv_frame_tables(a, &g, lanes);
  memset(image, 0, (size_t)(most * at.each) * sizeof *image);
  if (!add) memset(grad, 0, (size_t)(a->out_channels * g.taps) * sizeof *grad);
  for (int32_t n = 0; n < a->images; n += group.images) {
    group.images = a->images - n < most ? a->images - n : most;
    for (int32_t i = 0; i < group.images; i++, x += sl__conv_x_size(a)) {
      sl__conv_frame_fill(a, &g, (struct sl__frame_rows){0, g.height}, false, x,
                          image + i * at.each);
      if (g.gathers) spread(a, &g, dy + (n + i) * sl__conv_y_size(a), slopes + i * group.slopes);
    }
    multiply(&group, tiles_of(lanes), a->out_channels, image,
             g.gathers ? slopes : dy + n * sl__conv_y_size(a), grad);
  }
}
