#include "codelets/kernels/winograd_backward_data.h"

#include <string.h>

#include "codelets/kernels/copy.h"
#include "codelets/kernels/tiles.h"
#include "codelets/kernels/winograd.h"
#include "codelets/kernels/winograd_product.h"

enum {
  PLACES = 36,
  SHIFTS = 3,       /* tiles whose windows have a pixel, along one axis */
  BEFORE = 16,      /* floats before a plane: its first row reads two */
  BLOCK = 2,        /* vectors that are multiplied at a time, or one image's */
  MOST_PIXELS = 256 /* of an image's outputs, all of whose tiles are in memory */
};

/* An image's tiles are numbered row by row; a vector holds as many as floats. */
struct shape {
  int lanes;
  int32_t images; /* at a time */
  int64_t in, out;
  int32_t x_height, x_width, height, width, pad_h, pad_w;
  int32_t down, across, vectors; /* rows and columns of tiles, and vectors, of an image */

  /* A channel of dy is split into four planes, of tiles' values. A channel of dx is the sum of
   * twelve, of even and of odd rows of each of the windows' six columns. In a plane the values of
   * neighbouring tiles are adjacent. */
  int64_t y_plane, x_plane;
  int64_t y_row, x_row; /* floats of a row of dy and of dx, in a frame of zeros */
  int64_t tiles, sums;  /* floats from matrix to matrix */
  int64_t sums_row;     /* and between channels of the sums */
  int32_t *inside;      /* [SHIFTS][across + 2]: all bits where a tile has the pixel */
  int64_t inside_row;
};

typedef void split_rows(const struct shape *g, const float *dy, float *frame);
typedef void make_tiles(const struct shape *g, const float *frame, float *to);
typedef void scatter_tiles(const struct shape *g, const float *sums, float *planes);
typedef void join_planes(const struct shape *g, const float *planes, float *frame);

#define SL__TILE_FILE "codelets/kernels/winograd_backward_data_tile.h"
#include "codelets/kernels/simd_variants.h"

struct width {
  split_rows *split;
  make_tiles *tiles;
  run_tile *const (*products)[SL__TILE_ROWS + 1];
  scatter_tiles *scatter;
  join_planes *join;
};

static struct width width_of(int lanes) {
#define WIDTH(l)                                                                                   \
  { split_##l, make_##l, tiles_##l, scatter_##l, join_##l }
  static const struct width widths[] = {WIDTH(4),
#ifdef SL__WIDTHS
                                        WIDTH(8), WIDTH(16)
#endif
  };
  return widths[lanes / 8];
}

/* ---- sizes and memory ---- */

static struct shape shape_of(const struct sl__conv_args *a, int lanes) {
  struct shape g = {.lanes = lanes,
                    .in = a->channels,
                    .out = a->out_channels,
                    .x_height = a->height,
                    .x_width = a->width,
                    .height = a->out_height,
                    .width = a->out_width,
                    .pad_h = a->pad_h,
                    .pad_w = a->pad_w,
                    .down = sl__ceil_div(a->out_height, 2),
                    .across = sl__ceil_div(a->out_width, 2)};
  int64_t tiles = (int64_t)g.down * g.across;
  g.vectors = (int32_t)((tiles + lanes - 1) / lanes);
  g.images = g.vectors < BLOCK ? BLOCK / g.vectors : 1;
  if (g.images > a->images) g.images = a->images;
  g.y_plane = sl__whole_lines(tiles + 2 * lanes);
  g.x_plane = sl__whole_lines(BEFORE + tiles + 2 * g.across + 2 * lanes);
  g.y_row = sl__whole_lines(2 * ((int64_t)g.across + lanes));
  g.x_row = sl__whole_lines(2 * ((int64_t)g.across + 2 + lanes));
  g.inside_row = sl__whole_lines(g.across + 2 + lanes);
  g.sums_row = (int64_t)g.images * g.vectors * lanes;
  /* padding: a channel's matrices must not all map to one set of a cache */
  g.tiles = g.sums_row * g.out + 16;
  g.sums = g.sums_row * g.in + 16;
  return g;
}

/* Offsets of the arrays in the scratch memory, behind the alignment. */
struct layout {
  int64_t inside, y_frame, y_planes, x_frame, x_planes, tiles, sums, filters, weights, end;
};

static struct layout layout_of(const struct shape *g) {
  struct layout l = {0};
  l.y_frame = l.inside + SHIFTS * g->inside_row;
  l.y_planes = l.y_frame + 2 * g->down * g->y_row;
  l.x_frame = l.y_planes + 4 * g->y_plane;
  l.x_planes = l.x_frame + 2 * (g->down + 2) * g->x_row;
  l.tiles = l.x_planes + 12 * g->x_plane;
  l.sums = l.tiles + PLACES * g->tiles;
  l.filters = l.sums + PLACES * g->sums;
  l.weights = l.filters + sl__whole_lines(25 * g->in * g->out);
  l.end = l.weights + PLACES * (g->in * g->out + 16);
  return l;
}

/* Maximum over all widths: the largest need depends on the shape. */
int64_t sl__winograd_backward_data_scratch(const struct sl__conv_args *a) {
  int64_t most = 0;
  for (int lanes = 4; lanes <= 16; lanes *= 2) {
    struct shape g = shape_of(a, lanes);
    struct layout l = layout_of(&g);
    if (l.end > most) most = l.end;
  }
  return most + 16;
}

bool sl__winograd_backward_data_serves(const struct sl__conv_args *a) {
  const int32_t least = 16, widest = 16;
  const int64_t most_weights = 1 << 14, most_scratch = 1 << 21, tap_products = 25;
  if (sl__winograd_taps(a) != 5 || a->channels < least || a->out_channels < least ||
      (int64_t)a->channels * a->out_channels > most_weights || sl__conv_pixels(a) > MOST_PIXELS ||
      sl__conv_pixels(a) >= (int64_t)a->height * a->width)
    return false;
  /* for any processor, as the one that computes may be another than the one that submits */
  struct sl__conv_args one = *a;
  one.images = 1;
  struct shape g = shape_of(&one, widest);
  double products = (double)PLACES * g.vectors * g.lanes;
  return products <= 0.8 * (double)(tap_products * sl__conv_pixels(a)) &&
         sl__winograd_backward_data_scratch(&one) <= most_scratch;
}

/* ---- the passes ---- */

struct work {
  struct shape shape;
  struct width width, split, join; /* of whole vectors; for rows, which may be shorter */
  float *y_frame, *y_planes, *x_frame, *x_planes, *tiles, *sums, *weights;
};

static struct work work_of(const struct sl__conv_args *a, float *scratch, int most_lanes) {
  float *begin = sl__line_begin(scratch);
  struct work w = {.shape = shape_of(a, sl__lanes(most_lanes))};
  struct shape *g = &w.shape;
  struct layout at = layout_of(g);
  w.width = width_of(g->lanes);
  w.split = width_of(sl__lanes_for(g->across, g->lanes));
  w.join = width_of(sl__lanes_for(g->across + 2, g->lanes));
  g->inside = (int32_t *)(begin + at.inside);
  w.y_frame = begin + at.y_frame;
  w.y_planes = begin + at.y_planes;
  w.x_frame = begin + at.x_frame;
  w.x_planes = begin + at.x_planes;
  w.tiles = begin + at.tiles;
  w.sums = begin + at.sums;
  w.weights = begin + at.weights;
  memset(begin, 0, (size_t)at.x_frame * sizeof *begin);
  for (int shift = 0; shift < SHIFTS; shift++)
    for (int32_t i = 0; i < g->across; i++) g->inside[shift * g->inside_row + shift + i] = -1;
  return w;
}

/* Filters [C, K, 5, 5] of weight [K, C, 5, 5], transformed. */
static void transform_weights(const struct sl__conv_args *a, const float *weight, float *filters,
                              float *to) {
  for (int64_t k = 0; k < a->out_channels; k++)
    for (int64_t c = 0; c < a->channels; c++, weight += 25)
      memcpy(filters + (c * a->out_channels + k) * 25, weight, 25 * sizeof *weight);
  int64_t count = a->channels * (int64_t)a->out_channels;
  sl__winograd_transform_fives(filters, count, count + 16, to);
}

/* A channel's frame has zeros behind the image; they stay. */
static void transform_tiles(const struct work *w, int64_t image, const float *dy) {
  const struct shape *g = &w->shape;
  float *to = w->tiles + image * g->vectors * g->out * g->lanes;
  for (int64_t k = 0; k < g->out; k++, dy += (int64_t)g->height * g->width, to += g->lanes) {
    for (int32_t r = 0; r < g->height; r++)
      sl__copy_row(w->y_frame + r * g->y_row, dy + r * (int64_t)g->width, g->width);
    w->split.split(g, w->y_frame, w->y_planes);
    w->width.tiles(g, w->y_planes, to);
  }
}

SL__INLINE void add_row(float *restrict to, const float *restrict from, int32_t count) {
  for (int32_t i = 0; i < count; i++) to[i] += from[i];
}

SL__SIMD static void write_plane(const struct shape *g, const float *frame, float *dx, bool add) {
  for (int32_t r = 0; r < g->x_height; r++, dx += g->x_width) {
    const float *from = frame + (r + g->pad_h) * g->x_row + g->pad_w;
    if (add)
      add_row(dx, from, g->x_width);
    else
      sl__copy_row(dx, from, g->x_width);
  }
}

static void write_image(const struct work *w, int64_t image, float *dx, bool add) {
  const struct shape *g = &w->shape;
  const float *sums = w->sums + image * g->vectors * g->lanes;
  for (int64_t c = 0; c < g->in; c++, dx += (int64_t)g->x_height * g->x_width) {
    memset(w->x_planes, 0, (size_t)(12 * g->x_plane) * sizeof *w->x_planes);
    w->width.scatter(g, sums + c * g->sums_row, w->x_planes);
    w->join.join(g, w->x_planes, w->x_frame);
    write_plane(g, w->x_frame, dx, add);
  }
}

void sl__winograd_backward_data(const struct sl__conv_args *a, const float *dy, const float *weight,
                                float *dx, float *scratch, bool add, int most_lanes) {
  struct work w = work_of(a, scratch, most_lanes);
  const struct shape *g = &w.shape;
  transform_weights(a, weight, sl__line_begin(scratch) + layout_of(g).filters, w.weights);
  for (int64_t n = 0; n < a->images; n += g->images) {
    int64_t images = a->images - n < g->images ? a->images - n : g->images;
    struct product p = {.places = PLACES,
                        .lanes = g->lanes,
                        .rows = g->in,
                        .channels = g->out,
                        .vectors = images * g->vectors,
                        .weights = g->in * g->out + 16,
                        .windows = g->tiles,
                        .sums = g->sums,
                        .sums_row = g->sums_row,
                        .run = g->lanes};
    for (int64_t i = 0; i < images; i++) transform_tiles(&w, i, dy + (n + i) * sl__conv_y_size(a));
    multiply(&p, w.width.products, w.weights, w.tiles, w.sums);
    for (int64_t i = 0; i < images; i++) write_image(&w, i, dx + (n + i) * sl__conv_x_size(a), add);
  }
}
