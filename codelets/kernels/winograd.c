#include "codelets/kernels/winograd.h"

#include <string.h>

#include "codelets/kernels/copy.h"
#include "codelets/kernels/cache_prefetch.h"
#include "codelets/kernels/tiles.h"
#include "codelets/kernels/winograd_channels.h"
#include "codelets/kernels/winograd_kind.h"
#include "codelets/kernels/winograd_product.h"

/* An image's tiles of 2x2 or 4x4 outputs are numbered row by row, `pitch` tiles a row; a vector
 * holds as many tiles as floats. Whole rows in whole vectors form a unit. */
struct shape {
  int32_t lanes;
  enum kind kind;
  int32_t side, places; /* of a tile: outputs, and values of its transformed window */
  int64_t channels;
  int32_t height, width;                   /* of y */
  int32_t x_height, x_width, pad_h, pad_w; /* with 3x3 taps x is as large as y */
  int32_t down, across;                    /* rows and columns of tiles */
  int32_t pitch;                           /* tiles from row to row */
  int32_t unit_rows, unit_vectors;
  int32_t units; /* units of an image; the last may have fewer rows */
  int32_t block; /* units that are processed at a time */
  bool halves;   /* side 2: two rows of y are a vector of outputs */
  int32_t group; /* side 4: rows of tiles whose rows of x together are vectors in fours; 0: none */
  int32_t fours[4]; /* offsets of four such vectors in x */
  bool gathers;     /* vectors are neither of these nor parts of a row: they go through a buffer */

  /* A channel of an image is split into planes in which the values of neighbouring tiles are
   * adjacent. With 3x3 taps there is one plane for each of a tile's outputs, with a row before and
   * behind. With 5x5 taps there is one for even and one for odd rows of each of a window's six
   * columns, made from an image in a frame of zeros: no tile looks for a neighbour's column. */
  int64_t plane; /* floats */
  int32_t planes;
  int64_t image_row, image; /* floats of a row of the framed image, and of all rows */

  int64_t windows;        /* distance between matrices */
  int64_t sums, sums_row; /* the same, and between channels */
  int32_t *edges; /* [unit's vectors][2][lanes]: all bits where a window has a column at its left,
                     and at its right */
  int32_t *at;    /* [image's vectors][side]: offsets of the parts of their first rows' outputs */
  int64_t below;  /* distance to the next rows' outputs */
};

typedef void split_rows(const struct shape *g, const float *x, int32_t first, int32_t end,
                        float *to);
typedef void make_windows(const struct shape *g, const float *frame, int32_t first, int32_t end,
                          float *to);
typedef void make_outputs(const struct shape *g, const float *sums, float bias, int32_t vectors,
                          const int32_t *at, float *to);

enum {
  FILTERS = SL__WINOGRAD_FILTERS,
  BEFORE = 16,      /* floats before a plane's first row: its first tile reads one; aligned */
  BLOCK = 4,        /* vectors */
  MOST_VECTORS = 16 /* of a unit of several rows */
};

#define SL__TILE_FILE "codelets/kernels/winograd_tile.h"
#include "codelets/kernels/simd_variants.h"

struct width {
  split_rows *split;
  make_windows *windows;
  run_tile *const (*tiles)[SL__TILE_ROWS + 1];
  make_outputs *outputs;
};

#define WIDTH(l)                                                                                   \
  {                                                                                                \
    {split_##l, windows_##l, tiles_##l, outputs_##l},                                              \
        {split4_##l, windows4_##l, tiles_##l, outputs4_##l}, {                                     \
      split5_##l, windows5_##l, tiles_##l, outputs5_##l                                            \
    }                                                                                              \
  }

static struct width width_of(int lanes, enum kind kind) {
  static const struct width widths[][KINDS] = {WIDTH(4),
#ifdef SL__WIDTHS
                                               WIDTH(8), WIDTH(16)
#endif
  };
  return widths[lanes / 8][kind];
}

/* ---- tables and memory ---- */

static int32_t gcd(int32_t a, int32_t b) { return b ? gcd(b, a % b) : a; }

/* The number of rows of tiles that are whole vectors, or all rows. Larger units pay if they save a
 * tenth of the vectors or more. */
static void try_rows(struct shape *g, int32_t rows, int32_t pitch) {
  struct shape other = *g;
  other.pitch = pitch;
  other.unit_rows = rows;
  other.unit_vectors = sl__ceil_div(rows * pitch, g->lanes);
  other.units = sl__ceil_div(g->down, rows);
  int64_t before = (int64_t)g->units * g->unit_vectors;
  if (!before || (int64_t)other.units * other.unit_vectors * 10 <= 9 * before) *g = other;
}

static void find_units(struct shape *g, int32_t images) {
  int32_t lanes = g->lanes, exact = lanes / gcd(g->across, lanes);
  try_rows(g, 1, sl__ceil_div(g->across, lanes) * lanes);
  bool fits = (int64_t)exact * g->across <= (int64_t)MOST_VECTORS * lanes; /* into caches */
  if (exact < g->down && fits) try_rows(g, exact, g->across);
  if (g->down * (int64_t)g->across <= MOST_VECTORS * lanes) try_rows(g, g->down, g->across);
  g->block = g->unit_vectors < BLOCK ? BLOCK / g->unit_vectors : 1;
  if (g->block > (int64_t)g->units * images) g->block = g->units * images;
}

/* It depends on the image only: weights are transformed before the number of workers is known. */
static enum kind image_kind(const struct sl__conv_args *a) { return cached_kind_of(a, FILTERS); }

/* See group and fours. */
static void find_group(struct shape *g) {
  int32_t columns = 4 * g->lanes;
  bool whole = g->width % g->lanes == 0 && columns % g->width == 0 && g->pitch == g->across;
  g->group = g->width % columns == 0 ? 1 : whole ? columns / g->width : 0;
  for (int32_t i = 0, at = 0; i < 4; i++, at += g->lanes)
    g->fours[i] = g->group > 1 ? at / g->width * 4 * g->width + at % g->width : at;
}

static struct shape shape_of(const struct sl__conv_args *a, int lanes) {
  enum kind kind = image_kind(a);
  int32_t side = side_of(kind);
  struct shape g = {.lanes = lanes,
                    .kind = kind,
                    .side = side,
                    .places = places_of(kind),
                    .planes = kind == TWO_BY_FIVE ? 12 : side * side,
                    .channels = a->channels,
                    .height = a->out_height,
                    .width = a->out_width,
                    .x_height = a->height,
                    .x_width = a->width,
                    .pad_h = a->pad_h,
                    .pad_w = a->pad_w,
                    .down = sl__ceil_div(a->out_height, side),
                    .across = sl__ceil_div(a->out_width, side)};
  find_units(&g, a->images);
  bool whole = g.height % side == 0 && g.pitch == g.across && g.down % g.unit_rows == 0 &&
               g.unit_rows * g.pitch % lanes == 0;
  g.halves = whole && side == 2 && 2 * g.width == lanes;
  if (side == 4) find_group(&g);
  g.gathers = !whole || (!g.halves && g.width % lanes);
  int64_t rows = g.units * (int64_t)g.unit_rows + 2, vectors = g.block * (int64_t)g.unit_vectors;
  g.plane = sl__whole_lines(BEFORE + rows * g.pitch + lanes + 1);
  if (kind == TWO_BY_FIVE) { /* and what vectors read behind a row */
    g.image_row = sl__whole_lines(2 * ((int64_t)g.pitch + lanes) + 8);
    g.image = 2 * rows * g.image_row;
  }
  g.sums_row = vectors * lanes;
  /* padding: a channel's matrices must not all map to one set of a cache */
  g.windows = g.sums_row * a->channels + 16;
  g.sums = g.sums_row * a->out_channels + 16;
  g.below = g.gathers ? side * g.sums_row : g.width;
  return g;
}

/* Images that share a block, if one image has fewer units. */
static int32_t together(const struct sl__conv_args *a, const struct shape *g) {
  int32_t most = g->units < g->block ? g->block / g->units : 1;
  return most < a->images ? most : a->images;
}

/* Offsets of the arrays in the scratch memory, behind the alignment. */
struct layout {
  int64_t edges, at, frame, windows, sums, buffer, own; /* own weights: at the end */
};

static struct layout layout_of(const struct shape *g) {
  struct layout l = {0};
  l.at = l.edges + sl__whole_lines(2 * (int64_t)g->unit_vectors * g->lanes);
  l.frame = l.at + sl__whole_lines(g->side * (int64_t)g->units * g->unit_vectors);
  l.windows = l.frame + g->planes * g->plane + g->image;
  l.sums = l.windows + g->places * g->windows;
  l.buffer = l.sums + g->places * g->sums;
  l.own = l.buffer + (g->gathers ? g->side * g->side * g->sums_row : 0);
  return l;
}

/* Floats between the matrices of weights, padded so that they do not all map to one set of a cache.
 */
static int64_t place_of(int64_t rows, int64_t channels) { return rows * channels + 16; }

/* Products of vectors with all channels, of a channel of an image, for the widest vectors: the
 * result depends on the image only. */
static bool goes_by_channels(const struct sl__conv_args *a) {
  struct shape g = shape_of(a, FILTERS);
  int64_t by_tiles = (int64_t)g.places * g.units * g.unit_vectors * a->out_channels;
  int64_t by_channels = sl__winograd_channels_products(a);
  return by_channels && 10 * by_channels <= 9 * by_tiles;
}

int sl__winograd_layout(const struct sl__conv_args *a) {
  return goes_by_channels(a) ? KINDS + sl__winograd_channels_kind(a) : image_kind(a);
}

int64_t sl__winograd_weights(const struct sl__conv_args *a) {
  if (goes_by_channels(a)) return sl__winograd_channels_weights(a);
  return places_of(image_kind(a)) * place_of(a->out_channels, a->channels);
}

/* Maximum over all widths: the largest need depends on the shape. */
int64_t sl__winograd_scratch(const struct sl__conv_args *a, bool is_transformed) {
  int64_t most = 0;
  if (goes_by_channels(a)) return sl__winograd_channels_scratch(a, is_transformed);
  for (int lanes = 4; lanes <= 16; lanes *= 2) {
    struct shape g = shape_of(a, lanes);
    struct layout l = layout_of(&g);
    if (l.own > most) most = l.own;
  }
  return most + (is_transformed ? 0 : sl__winograd_weights(a)) + 16;
}

/* Tiles that fill vectors need 36 of 144, 16 of 36 or 36 of 100 products, other tiles more;
 * measured, it pays up to 0.8. More weights than this do not stay in a core's caches. */
bool sl__winograd_serves(const struct sl__conv_args *a) {
  const int32_t least = 16, taps = sl__winograd_taps(a);
  const int64_t most_weights = taps == 5 ? 1 << 14 : 1 << 16, most_scratch = 1 << 21;
  if (!taps || a->channels < least || a->out_channels < least ||
      (int64_t)a->channels * a->out_channels > most_weights || sl__conv_x_size(a) > INT32_MAX / 4 ||
      sl__conv_y_size(a) > INT32_MAX / 4)
    return false;
  struct sl__conv_args one = *a; /* whose bits do not depend on the number of images */
  one.images = 1;
  struct shape g = shape_of(a, sl__lanes(0));
  double products = (double)g.places * g.units * g.unit_vectors * g.lanes;
  if (goes_by_channels(a))
    products = (double)sl__winograd_channels_products(a) * FILTERS / a->out_channels;
  return products <= 0.8 * taps * taps * (double)sl__conv_pixels(a) &&
         sl__winograd_scratch(&one, false) <= most_scratch;
}

static void find_tables(const struct shape *g) {
  int32_t lanes = g->lanes, tiles = g->unit_vectors * lanes, width = g->side * g->across;
  for (int32_t i = 0; i < tiles; i++) {
    int32_t *edges = g->edges + i / lanes * 2 * lanes + i % lanes, column = i % g->pitch;
    edges[0] = column > 0 ? -1 : 0;
    edges[lanes] = column < g->across - 1 ? -1 : 0;
  }
  int32_t parts = g->side * g->units * g->unit_vectors;
  for (int32_t i = 0; i < parts; i++) {
    int32_t pixel = i * lanes; /* of the first rows' */
    g->at[i] = g->gathers ? pixel : pixel / width * g->side * width + pixel % width;
  }
}

/* ---- weights ---- */

/* G g: values of g are `apart` floats apart, results in u `step`. */
SL__INLINE void times_2(const float *g, const int apart, float *u, const int step) {
  for (int i = 0; i < FILTERS; i++) {
    float sum = 0.5f * (g[i] + g[2 * apart + i]), middle = 0.5f * g[apart + i];
    u[i] = g[i];
    u[step + i] = sum + middle;
    u[2 * step + i] = sum - middle;
    u[3 * step + i] = g[2 * apart + i];
  }
}

/* Of 3 or 5 values, with the points of codelets/kernels/winograd_window.h. */
SL__INLINE void times_6(const int taps, const float *g, const int apart, float *u, const int step) {
  const float p = 0.625f, q = 1.5f, none = 1 / (p * p * q * q);
  const float by_p = 1 / (2 * p * p * (p * p - q * q)), by_q = 1 / (2 * q * q * (q * q - p * p));
  for (int i = 0; i < FILTERS; i++) {
    float g1 = g[apart + i], g2 = g[2 * apart + i];
    float g3 = taps == 5 ? g[3 * apart + i] : 0, g4 = taps == 5 ? g[4 * apart + i] : 0;
    float even_p = by_p * (g[i] + p * p * (g2 + p * p * g4)), odd_p = by_p * p * (g1 + p * p * g3);
    float even_q = by_q * (g[i] + q * q * (g2 + q * q * g4)), odd_q = by_q * q * (g1 + q * q * g3);
    u[i] = none * g[i];
    u[step + i] = even_p + odd_p;
    u[2 * step + i] = even_p - odd_p;
    u[3 * step + i] = even_q + odd_q;
    u[4 * step + i] = even_q - odd_q;
    u[5 * step + i] = taps == 5 ? g4 : g2;
  }
}

SL__INLINE void times(const enum kind kind, const float *g, const int apart, float *u,
                      const int step) {
  if (kind == TWO_BY_THREE)
    times_2(g, apart, u, step);
  else
    times_6(taps_of(kind), g, apart, u, step);
}

/* Up to 16 filters, `apart` floats apart; to: their place in the first matrix, which gets `written`
 * values. */
SL__INLINE void transform_some(const float *weight, int64_t apart, const int64_t count,
                               const int64_t written, const enum kind kind, int64_t pitch,
                               float *to) {
  const int taps = taps_of(kind), n = values_of(kind);
  float g[25][FILTERS], t[6 * 5][FILTERS], u[36][FILTERS];
  for (int j = 0; j < taps * taps; j++)
    for (int i = 0; i < FILTERS; i++) g[j][i] = i < count ? weight[i * apart + j] : 0;
  for (int s = 0; s < taps; s++) times(kind, g[s], taps * FILTERS, t[s], taps * FILTERS);
  for (int r = 0; r < n; r++) times(kind, t[r * taps], FILTERS, u[r * n], FILTERS);
  for (int place = 0; place < n * n; place++, to += pitch)
    memcpy(to, u[place], (size_t)written * sizeof *to);
}

/* Filters of some output channels, `apart` floats apart, and those of the next input channels
 * behind each of them. Or all filters, each as if it were an output channel's only one. */
struct filters {
  const float *weight;
  int64_t count, apart, channels;
  int64_t pitch;       /* floats from matrix to matrix */
  bool has_whole_runs; /* the last run is filled with zeros */
};

/* Runs of 16 output channels, each input channel by input channel. */
SL__INLINE void transform(const struct filters *f, const enum kind kind, float *to) {
  const int window = taps_of(kind) * taps_of(kind);
  for (int64_t i = 0; i < f->count; i += FILTERS)
    for (int64_t c = 0; c < f->channels; c++) {
      const float *weight = f->weight + i * f->apart + c * window;
      float *at = to + i * f->channels + c * FILTERS;
      if (i + FILTERS <= f->count)
        transform_some(weight, f->apart, FILTERS, FILTERS, kind, f->pitch, at);
      else
        transform_some(weight, f->apart, f->count - i, f->has_whole_runs ? FILTERS : f->count - i,
                       kind, f->pitch, at);
    }
}

SL__SIMD static void weights_of_2_by_3(const struct filters *f, float *to) {
  transform(f, TWO_BY_THREE, to);
}

SL__SIMD static void weights_of_4_by_3(const struct filters *f, float *to) {
  transform(f, FOUR_BY_THREE, to);
}

SL__SIMD static void weights_of_2_by_5(const struct filters *f, float *to) {
  transform(f, TWO_BY_FIVE, to);
}

void sl__winograd_transform(const struct sl__conv_args *a, const float *weight, int64_t first,
                            int64_t end, float *to) {
  int64_t window = a->kernel_h * a->kernel_w, taps = sl__conv_taps(a);
  bool by_channels = goes_by_channels(a);
  struct filters f = {weight + first * taps,
                      (end - first) * a->channels,
                      window,
                      1,
                      place_of(end - first, a->channels),
                      false};
  if (by_channels)
    f = (struct filters){weight + first * taps,
                         end - first,
                         taps,
                         a->channels,
                         sl__winograd_channels_place(end - first, a->channels),
                         true};
  switch (by_channels ? sl__winograd_channels_kind(a) : image_kind(a)) {
    case TWO_BY_THREE: weights_of_2_by_3(&f, to); break;
    case FOUR_BY_THREE: weights_of_4_by_3(&f, to); break;
    default: weights_of_2_by_5(&f, to);
  }
}

void sl__winograd_transform_fives(const float *filters, int64_t count, int64_t pitch, float *to) {
  weights_of_2_by_5(&(struct filters){filters, count, 25, 1, pitch, false}, to);
}

/* ---- blocks ---- */

struct work {
  const struct sl__conv_args *args;
  struct width width;
  struct shape shape;
  struct sl__work_range channels; /* of the outputs */
  const float *weight;            /* transformed weights of the channels from first_weight on */
  int64_t first_weight, weights;  /* distance between the matrices of weights */
  const float *bias, *x;
  float *y;
  const struct sl__conv_epilogue *epilogue;
  float *frame, *windows, *sums, *buffer;
  float *own;     /* memory for weights that this call transforms */
  bool is_shared; /* other cores compute the other channels of the same image at the same time */
};

/* Units of each of some images. */
struct block {
  int64_t image, images;
  int32_t first, end;
};

static struct work work_of(const struct sl__conv_args *a, float *scratch, int most_lanes) {
  float *begin = sl__line_begin(scratch);
  int lanes = sl__lanes(most_lanes);
  struct work w = {.args = a, .shape = shape_of(a, lanes)};
  struct layout at = layout_of(&w.shape);
  w.width = width_of(lanes, w.shape.kind);
  w.shape.edges = (int32_t *)(begin + at.edges);
  w.shape.at = (int32_t *)(begin + at.at);
  w.frame = begin + at.frame;
  w.windows = begin + at.windows;
  w.sums = begin + at.sums;
  w.buffer = begin + at.buffer;
  w.own = begin + at.own;
  return w;
}

/* With tiles of 2x2, vectors that are not longer than a row, or than what holds one. */
static split_rows *split_of(const struct work *w) {
  int lanes = w->shape.lanes, columns = w->args->width;
  if (w->shape.kind == FOUR_BY_THREE) return w->width.split;
  if (w->shape.kind == TWO_BY_FIVE)
    return width_of(sl__lanes_for(w->shape.pitch, lanes), TWO_BY_FIVE).split;
  while (lanes > 4 && columns < lanes) lanes /= 2;
  if (columns != lanes && lanes > 4 && columns / 2 < lanes) lanes /= 2;
  return width_of(lanes, TWO_BY_THREE).split;
}

/* Channel by channel, each through a frame that stays in the first-level cache. */
static void transform_windows(const struct work *w, const struct block *b) {
  const struct shape *g = &w->shape;
  split_rows *split = split_of(w);
  int64_t each = (int64_t)g->x_height * g->x_width;
  int32_t first = b->first * g->unit_vectors, end = b->end * g->unit_vectors;
  const float *x = w->x + b->image * g->channels * each;
  for (int64_t i = 0; i < b->images; i++) {
    float *to = w->windows + i * (end - first) * g->channels * g->lanes;
    for (int64_t c = 0; c < g->channels; c++, x += each) {
      split(g, x, b->first * g->unit_rows - 1, b->end * g->unit_rows + 1, w->frame);
      w->width.windows(g, w->frame, first, end, to + c * g->lanes);
    }
  }
}

static void multiply_windows(const struct work *w, int64_t vectors) {
  const struct shape *g = &w->shape;
  struct product p = {.places = g->places,
                      .lanes = g->lanes,
                      .rows = w->channels.end - w->channels.first,
                      .channels = g->channels,
                      .vectors = vectors,
                      .weights = w->weights,
                      .windows = g->windows,
                      .sums = g->sums,
                      .sums_row = g->sums_row,
                      .run = g->lanes};
  multiply(&p, w->width.tiles, w->weight + (w->channels.first - w->first_weight) * g->channels,
           w->windows, w->sums);
}

/* Rows of tiles [first, end) from the buffer, in which the tiles' rows follow each other. */
static void gather(const struct work *w, int32_t first, int32_t end, float *y) {
  const struct shape *g = &w->shape;
  const float *from = w->buffer;
  for (int32_t i = first; i < end; i++, from += g->side * g->pitch)
    for (int32_t r = 0; r < g->side && g->side * i + r < g->height; r++)
      sl__copy_row(y + (g->side * i + r) * (int64_t)g->width, from + r * g->below, g->width);
}

/* One image's, all channels. */
static void write_image(const struct work *w, const struct block *b, int64_t image,
                        const float *sums) {
  const struct shape *g = &w->shape;
  const struct sl__conv_args *a = w->args;
  int32_t v = b->first * g->unit_vectors, end = b->end * g->unit_vectors;
  int32_t row = b->first * g->unit_rows, last = b->end * g->unit_rows;
  if (last > g->down) last = g->down;
  struct sl__conv_epilogue epilogue = *w->epilogue;
  if (epilogue.residual) epilogue.residual += image * sl__conv_y_size(a);
  struct sl__runs out = sl__runs_of(a, &epilogue, w->y + image * sl__conv_y_size(a),
                                    w->channels.first, w->channels.end);
  for (int64_t k = 0; k < out.channels; k++, sums += g->sums_row) {
    float bias = w->bias ? w->bias[w->channels.first + k] : 0, *y = out.y + k * out.plane;
    if (!g->gathers) {
      w->width.outputs(g, sums, bias, end - v, g->at + g->side * v, y);
    } else {
      w->width.outputs(g, sums, bias, end - v, g->at, w->buffer);
      gather(w, row, last, y);
    }
  }
  int32_t below = g->side * last < g->height ? g->side * last : g->height;
  sl__conv_epilogue_apply(&out, (enum sl_activation)a->activation,
                          g->side * row * (int64_t)g->width, below * (int64_t)g->width);
}

static void run_block(const struct work *w, const struct block *b) {
  int64_t each = (int64_t)(b->end - b->first) * w->shape.unit_vectors;
  transform_windows(w, b);
  if (w->is_shared && b->first == 0) {
    int64_t plane = (int64_t)w->shape.height * w->shape.width;
    sl__prefetch_for_write(w->y + (b->image * w->args->out_channels + w->channels.first) * plane,
                           (w->channels.end - w->channels.first) * plane);
  }
  multiply_windows(w, b->images * each);
  for (int64_t i = 0; i < b->images; i++)
    write_image(w, b, b->image + i, w->sums + i * each * w->shape.lanes);
}

/* Units [first, end) of images [image, last). */
static void run_images(const struct work *w, int64_t image, int64_t last, int32_t first,
                       int32_t end) {
  const struct shape *g = &w->shape;
  int32_t most = together(w->args, g);
  for (int64_t n = image; n < last; n += most) {
    struct block b = {n, last - n < most ? last - n : most, first, end};
    for (; b.first < end; b.first = b.end) {
      b.end = end - b.first < g->block ? end : b.first + g->block;
      run_block(w, &b);
    }
  }
}

/* ---- public functions ---- */

/* As in codelets/kernels/direct_conv.c. With this division each core reads all weights; divided by
 * channels each core would transform the windows of all channels, at about twice the cost a value.
 */
static bool goes_by_units(const struct sl__conv_args *a, const struct shape *g) {
  return a->images == 1 && g->units > 1 &&
         sl__winograd_weights(a) < 2 * (sl__conv_x_size(a) + sl__conv_y_size(a));
}

int64_t sl__winograd_units(const struct sl__conv_args *a, bool *planes, int most_lanes) {
  *planes = true;
  if (goes_by_channels(a)) return (int64_t)a->images * a->out_channels;
  struct shape g = shape_of(a, sl__lanes(most_lanes));
  *planes = !goes_by_units(a, &g);
  return *planes ? (int64_t)a->images * a->out_channels : g.units;
}

/* The channels of which the call has a part. */
static void find_weights(struct work *w, const float *weight, bool is_transformed,
                         struct sl__work_range channels) {
  const struct sl__conv_args *a = w->args;
  w->weight = is_transformed ? weight : w->own;
  w->first_weight = is_transformed ? 0 : channels.first;
  w->weights =
      place_of(is_transformed ? a->out_channels : channels.end - channels.first, a->channels);
  if (!is_transformed) sl__winograd_transform(a, weight, channels.first, channels.end, w->own);
}

static void run_part(const struct work *w, const struct sl__winograd_part *part) {
  struct work some = *w;
  int64_t images = part->last - part->first, x_size = sl__conv_x_size(w->args);
  some.channels = part->channels;
  some.is_shared = part->channels.end - part->channels.first < w->args->out_channels;
  if (some.is_shared) sl__prefetch_cache_lines(w->x + part->first * x_size, images * x_size);
  run_images(&some, part->first, part->last, 0, w->shape.units);
}

int sl__winograd_parts(int64_t channels, struct sl__work_range planes,
                       struct sl__winograd_part parts[3]) {
  int64_t first = planes.first / channels, last = planes.end / channels;
  int64_t from = planes.first % channels, to = planes.end % channels;
  int n = 0;
  if (first == last) {
    parts[n++] = (struct sl__winograd_part){first, first + 1, {from, to}};
    return n;
  }
  if (from) parts[n++] = (struct sl__winograd_part){first, first + 1, {from, channels}};
  first += from > 0;
  if (first < last) parts[n++] = (struct sl__winograd_part){first, last, {0, channels}};
  if (to) parts[n++] = (struct sl__winograd_part){last, last + 1, {0, to}};
  return n;
}

static void run_planes(struct work *w, const float *weight, bool is_transformed,
                       struct sl__work_range planes) {
  struct sl__winograd_part parts[3];
  int count = sl__winograd_parts(w->args->out_channels, planes, parts);
  struct sl__work_range whole = {0, w->args->out_channels};
  find_weights(w, weight, is_transformed, count == 1 ? parts[0].channels : whole);
  for (int i = 0; i < count; i++) run_part(w, &parts[i]);
}

void sl__winograd_forward(const struct sl__conv_args *a, const float *x, const float *weight,
                          bool is_transformed, const float *bias,
                          const struct sl__conv_epilogue *epilogue, float *y, float *scratch,
                          struct sl__work_range range, int most_lanes) {
  if (range.first >= range.end) return;
  if (goes_by_channels(a)) {
    sl__winograd_channels_forward(a, x, weight, is_transformed, bias, epilogue, y, scratch, range,
                                  most_lanes);
    return;
  }
  struct work w = work_of(a, scratch, most_lanes);
  find_tables(&w.shape);
  if (w.shape.image) /* vectors read behind the planes' last rows, too */
    memset(w.frame, 0, (size_t)(w.shape.planes * w.shape.plane + w.shape.image) * sizeof *w.frame);
  w.x = x;
  w.y = y;
  w.bias = bias;
  w.epilogue = epilogue;
  if (!goes_by_units(a, &w.shape)) {
    run_planes(&w, weight, is_transformed, range);
    return;
  }
  w.channels = (struct sl__work_range){0, a->out_channels};
  find_weights(&w, weight, is_transformed, w.channels);
  run_images(&w, 0, 1, (int32_t)range.first, (int32_t)range.end);
}
