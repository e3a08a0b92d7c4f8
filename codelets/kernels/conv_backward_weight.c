#include "codelets/kernels/conv_backward_weight.h"

#include <string.h>

#include "codelets/kernels/conv_bias.h"
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
  int64_t pitch;         /* channels, whole tiles */
};

/* to: the sums [taps, pitch], of the first channel and tap. Channels are next to each other there,
 * so that those of a tile are added as a vector. */
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
  const int32_t vectors = 32;
  int32_t most = (vectors + g->starts - 1) / g->starts;
  return most < a->images ? most : a->images;
}

/* Offsets of the arrays in the scratch memory, and its end. */
struct layout {
  int64_t start, image, sums, bias, end;
  int64_t each;  /* floats of a framed image */
  int64_t pitch; /* channels, whole tiles */
};

static struct layout layout_of(const struct sl__conv_args *a, const struct sl__conv_frame *g) {
  struct layout l;
  l.each = sl__whole_lines(a->channels * g->plane);
  l.start = sl__whole_lines(g->taps);
  l.image = l.start + sl__whole_lines(g->starts * (int64_t)(sizeof *g->start / sizeof(float)));
  l.pitch = sl__ceil_div(a->out_channels, SL__TILE_ROWS) * (int64_t)SL__TILE_ROWS;
  l.sums = l.image + images_of(a, g) * l.each;
  l.bias = l.sums + sl__whole_lines(l.pitch * g->taps);
  l.end = l.bias + (a->has_bias ? a->out_channels * (int64_t)SL__BIAS_PARTS : 0);
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
                     const float *image, const float *dy, float *sums) {
  const struct sl__conv_frame *g = group->frame;
  const int columns = 3; /* those of a 3x3 window */
  int rows = SL__TILE_ROWS;
  while (!tiles[columns][rows]) rows--;
  for (int64_t k = 0; k < channels; k += rows)
    for (int64_t t = 0; t < g->taps; t += columns) {
      int64_t down = channels - k < rows ? channels - k : rows;
      int64_t across = g->taps - t < columns ? g->taps - t : columns;
      tiles[across][down](group, image, g->offset + t, dy + k * g->to_plane,
                          sums + t * group->pitch + k);
    }
}

/* grad [channels, taps] from the sums [taps, pitch]. */
SL__SIMD static void write_gradient(const float *sums, int64_t channels, int64_t taps,
                                    int64_t pitch, float *grad, bool add) {
  for (int64_t k = 0; k < channels; k += SL__TILE_ROWS) {
    int64_t down = channels - k < SL__TILE_ROWS ? channels - k : SL__TILE_ROWS;
    for (int64_t t = 0; t < taps; t++)
      for (int64_t i = 0; i < down; i++) {
        float *to = grad + (k + i) * taps + t, sum = sums[t * pitch + k + i];
        *to = add ? *to + sum : sum;
      }
  }
}

SL__SIMD static void add_bias(const struct group *group, int64_t channels, const float *dy,
                              float *parts) {
  int64_t plane = group->frame->pixels;
  for (int64_t k = 0; k < channels; k++)
    sl__conv_bias_add(dy + k * plane, group->images, group->slopes, plane,
                      parts + k * SL__BIAS_PARTS);
}

/* A pointer into it: first zeros, then ones. */
static const int32_t bits[32] = {[16] = -1, -1, -1, -1, -1, -1, -1, -1,
                                 -1,        -1, -1, -1, -1, -1, -1, -1};

static const int32_t *kept_of(const struct sl__conv_frame *g, int lanes) {
  int64_t twice = g->starts * (int64_t)lanes - g->pixels;
  return twice ? bits + 16 - twice : NULL;
}

/* Adds the images' products to the sums, some images at a time: their slopes stay in a cache
 * between the bias and the weights. */
static void add_images(const struct sl__conv_args *a, struct group *group, int lanes,
                       const float *x, const float *dy, float *scratch, const struct layout *at) {
  const struct sl__conv_frame *g = group->frame;
  float *image = scratch + at->image;
  int32_t most = group->images;
  for (int32_t n = 0; n < a->images; n += most) {
    group->images = a->images - n < most ? a->images - n : most;
    for (int32_t i = 0; i < group->images; i++)
      sl__conv_frame_fill(a, g, (struct sl__frame_rows){0, g->height}, n == 0,
                          x + (n + i) * sl__conv_x_size(a), image + i * at->each);
    const float *slopes = dy + n * sl__conv_y_size(a);
    if (a->has_bias) add_bias(group, a->out_channels, slopes, scratch + at->bias);
    multiply(group, SL__TILES_OF(lanes), a->out_channels, image, slopes, scratch + at->sums);
  }
}

void sl__conv_backward_weight(const struct sl__conv_args *a, const float *x, const float *dy,
                              float *grad, float *bias, float *scratch, bool add, int most_lanes) {
  int lanes = lanes_of(a, most_lanes);
  struct sl__conv_frame g = sl__conv_frame_gapless(a, lanes);
  struct layout at = layout_of(a, &g);
  struct group group = {&g,      kept_of(&g, lanes), images_of(a, &g),
                        at.each, sl__conv_y_size(a), at.pitch};
  g.offset = (int32_t *)scratch;
  g.start = (struct sl__frame_start *)(scratch + at.start);
  sl__conv_frame_tables(a, &g, lanes);
  memset(scratch + at.sums, 0, (size_t)(at.end - at.sums) * sizeof *scratch);
  add_images(a, &group, lanes, x, dy, scratch, &at);
  write_gradient(scratch + at.sums, a->out_channels, g.taps, at.pitch, grad, add);
  for (int64_t k = 0; a->has_bias && k < a->out_channels; k++)
    sl__conv_bias_end(scratch + at.bias + k * SL__BIAS_PARTS, bias + k, add);
}
