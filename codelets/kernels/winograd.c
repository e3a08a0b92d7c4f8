#include "codelets/kernels/winograd.h"

#include <string.h>

#include "codelets/kernels/copy.h"
#include "codelets/kernels/cache_prefetch.h"
#include "codelets/kernels/tiles.h"

/* An image's tiles of 2x2 or 4x4 outputs are numbered row by row, `pitch` tiles a row; a vector
 * holds as many tiles as floats. Whole rows in whole vectors form a unit. */
struct shape {
  int32_t lanes;
  int32_t side, places; /* of a tile: outputs, and values of its transformed window */
  int64_t channels;
  int32_t height, width;
  int32_t down, across; /* rows and columns of tiles */
  int32_t pitch;        /* tiles from row to row */
  int32_t unit_rows, unit_vectors;
  int32_t units; /* units of an image; the last may have fewer rows */
  int32_t block; /* units that are processed at a time */
  bool halves;   /* side 2: two rows of y are a vector of outputs */
  int32_t group; /* side 4: rows of tiles whose rows of x together are vectors in fours; 0: none */
  bool gathers;  /* vectors are neither of these nor parts of a row: they go through a buffer */

  /* A channel of an image is split into one plane for each of a tile's outputs, with a row before
   * and behind; in a plane the values of neighbouring tiles are adjacent. */
  int64_t plane; /* floats */

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
/* Sums of `rows` rows of weights by `vectors` vectors. */
typedef void run_tile(const struct shape *g, const float *weight, const float *window, float *to);
typedef void make_outputs(const struct shape *g, const float *sums, float bias, int32_t vectors,
                          const int32_t *at, float *to);

enum {
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

static struct width width_of(int lanes, int side) {
#ifdef SL__WIDTHS
  if (lanes == 16 && side == 4)
    return (struct width){split4_16, windows4_16, tiles_16, outputs4_16};
  if (lanes == 16) return (struct width){split_16, windows_16, tiles_16, outputs_16};
  if (lanes == 8 && side == 4) return (struct width){split4_8, windows4_8, tiles_8, outputs4_8};
  if (lanes == 8) return (struct width){split_8, windows_8, tiles_8, outputs_8};
#endif
  (void)lanes;
  if (side == 4) return (struct width){split4_4, windows4_4, tiles_4, outputs4_4};
  return (struct width){split_4, windows_4, tiles_4, outputs_4};
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

/* Outputs a side of the tiles: 4, with 36 products instead of 64, if few tiles lie beyond the image
 * and the larger weights stay in a core's caches. It depends on the image only: weights are
 * transformed before the number of workers is known. */
static int32_t side_of(const struct sl__conv_args *a) {
  const int64_t most_weights = 1 << 13;
  int64_t fours = sl__whole_lines((int64_t)sl__ceil_div(a->height, 4) * sl__ceil_div(a->width, 4));
  int64_t twos = sl__whole_lines((int64_t)sl__ceil_div(a->height, 2) * sl__ceil_div(a->width, 2));
  bool few = (int64_t)a->channels * a->out_channels <= most_weights;
  return few && 36 * fours < 16 * twos ? 4 : 2;
}

/* See group. */
static int32_t group_of(const struct shape *g) {
  int32_t columns = 4 * g->lanes;
  if (g->width % columns == 0) return 1;
  bool whole = g->width % g->lanes == 0 && columns % g->width == 0 && g->pitch == g->across;
  return whole ? columns / g->width : 0;
}

static struct shape shape_of(const struct sl__conv_args *a, int lanes) {
  int32_t side = side_of(a);
  struct shape g = {.lanes = lanes,
                    .side = side,
                    .places = (side + 2) * (side + 2),
                    .channels = a->channels,
                    .height = a->height,
                    .width = a->width,
                    .down = sl__ceil_div(a->height, side),
                    .across = sl__ceil_div(a->width, side)};
  find_units(&g, a->images);
  bool whole = a->height % side == 0 && g.pitch == g.across && g.down % g.unit_rows == 0 &&
               g.unit_rows * g.pitch % lanes == 0;
  g.halves = whole && side == 2 && 2 * a->width == lanes;
  g.group = side == 4 ? group_of(&g) : 0;
  g.gathers = !whole || (!g.halves && a->width % lanes);
  int64_t rows = g.units * (int64_t)g.unit_rows + 2, vectors = g.block * (int64_t)g.unit_vectors;
  g.plane = sl__whole_lines(BEFORE + rows * g.pitch + lanes + 1);
  g.sums_row = vectors * lanes;
  /* padding: a channel's matrices must not all map to one set of a cache */
  g.windows = g.sums_row * a->channels + 16;
  g.sums = g.sums_row * a->out_channels + 16;
  g.below = g.gathers ? side * g.sums_row : a->width;
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
  l.windows = l.frame + g->side * g->side * g->plane;
  l.sums = l.windows + g->places * g->windows;
  l.buffer = l.sums + g->places * g->sums;
  l.own = l.buffer + (g->gathers ? g->side * g->side * g->sums_row : 0);
  return l;
}

/* Floats between the matrices of weights, padded so that they do not all map to one set of a cache.
 */
static int64_t place_of(int64_t rows, int64_t channels) { return rows * channels + 16; }

int64_t sl__winograd_weights(const struct sl__conv_args *a) {
  int32_t side = side_of(a);
  return (side + 2) * (side + 2) * place_of(a->out_channels, a->channels);
}

/* Maximum over all widths: the largest need depends on the shape. */
int64_t sl__winograd_scratch(const struct sl__conv_args *a, bool is_transformed) {
  int64_t most = 0;
  for (int lanes = 4; lanes <= 16; lanes *= 2) {
    struct shape g = shape_of(a, lanes);
    struct layout l = layout_of(&g);
    if (l.own > most) most = l.own;
  }
  return most + (is_transformed ? 0 : sl__winograd_weights(a)) + 16;
}

/* Tiles that fill vectors need 36 of 144 or 16 of 36 products, other tiles more; measured, it pays
 * up to 0.8. More weights than this do not stay in a core's caches. */
bool sl__winograd_serves(const struct sl__conv_args *a) {
  const int32_t least = 16;
  const int64_t most_weights = 1 << 16, most_scratch = 1 << 21;
  if (!sl__winograd_has_window(a) || a->channels < least || a->out_channels < least ||
      (int64_t)a->channels * a->out_channels > most_weights || sl__conv_x_size(a) > INT32_MAX / 4 ||
      sl__conv_y_size(a) > INT32_MAX / 4)
    return false;
  struct shape g = shape_of(a, sl__lanes(0));
  double products = (double)g.places * g.units * g.unit_vectors * g.lanes;
  return products <= 0.8 * 9 * (double)sl__conv_pixels(a) &&
         sl__winograd_scratch(a, false) <= most_scratch;
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

/* G g of three values; the results in u are `step` apart. */
SL__INLINE void times_2(const float *g0, const float *g1, const float *g2, float *u, int64_t step) {
  for (int i = 0; i < 16; i++) {
    float sum = 0.5f * (g0[i] + g2[i]), middle = 0.5f * g1[i];
    u[i] = g0[i];
    u[step + i] = sum + middle;
    u[2 * step + i] = sum - middle;
    u[3 * step + i] = g2[i];
  }
}

/* With the points of codelets/kernels/winograd_window.h. */
SL__INLINE void times_4(const float *g0, const float *g1, const float *g2, float *u, int64_t step) {
  const float p = 0.625f, q = 1.5f, none = 1 / (p * p * q * q);
  const float by_p = 1 / (2 * p * p * (p * p - q * q)), by_q = 1 / (2 * q * q * (q * q - p * p));
  for (int i = 0; i < 16; i++) {
    float even_p = by_p * (g0[i] + p * p * g2[i]), odd_p = by_p * p * g1[i];
    float even_q = by_q * (g0[i] + q * q * g2[i]), odd_q = by_q * q * g1[i];
    u[i] = none * g0[i];
    u[step + i] = even_p + odd_p;
    u[2 * step + i] = even_p - odd_p;
    u[3 * step + i] = even_q + odd_q;
    u[4 * step + i] = even_q - odd_q;
    u[5 * step + i] = g2[i];
  }
}

SL__INLINE void times(const int side, const float *g0, const float *g1, const float *g2, float *u,
                      int64_t step) {
  if (side == 4)
    times_4(g0, g1, g2, u, step);
  else
    times_2(g0, g1, g2, u, step);
}

/* One output channel and up to 16 input channels; to: the first matrix. */
SL__INLINE void transform_some(const float *weight, const int32_t count, const int side,
                               int64_t pitch, float *to) {
  float g[9][16], t[6][3][16], u[6][6][16];
  const int n = side + 2;
  for (int j = 0; j < 9; j++)
    for (int32_t i = 0; i < 16; i++) g[j][i] = i < count ? weight[i * 9 + j] : 0;
  for (int j = 0; j < 3; j++) times(side, g[j], g[3 + j], g[6 + j], t[0][j], 3 * 16);
  for (int r = 0; r < n; r++) times(side, t[r][0], t[r][1], t[r][2], u[r][0], 16);
  for (int r = 0; r < n; r++)
    for (int c = 0; c < n; c++, to += pitch) memcpy(to, u[r][c], (size_t)count * sizeof *to);
}

SL__INLINE void transform(const float *weight, int64_t rows, int32_t channels, const int side,
                          float *to) {
  int64_t pitch = place_of(rows, channels);
  for (int64_t k = 0; k < rows; k++)
    for (int32_t c = 0; c < channels; c += 16) {
      const float *from = weight + (k * channels + c) * 9;
      int32_t count = channels - c < 16 ? channels - c : 16;
      transform_some(from, count, side, pitch, to + k * channels + c);
    }
}

SL__SIMD static void weights_of_2(const float *weight, int64_t rows, int32_t channels, float *to) {
  transform(weight, rows, channels, 2, to);
}

SL__SIMD static void weights_of_4(const float *weight, int64_t rows, int32_t channels, float *to) {
  transform(weight, rows, channels, 4, to);
}

void sl__winograd_transform(const struct sl__conv_args *a, const float *weight, int64_t first,
                            int64_t end, float *to) {
  (side_of(a) == 4 ? weights_of_4 : weights_of_2)(weight + first * a->channels * 9, end - first,
                                                  a->channels, to);
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
  float *begin = (float *)(((uintptr_t)scratch + 63) / 64 * 64);
  int lanes = sl__lanes(most_lanes);
  struct work w = {.args = a, .shape = shape_of(a, lanes)};
  struct layout at = layout_of(&w.shape);
  w.width = width_of(lanes, w.shape.side);
  w.shape.edges = (int32_t *)(begin + at.edges);
  w.shape.at = (int32_t *)(begin + at.at);
  w.frame = begin + at.frame;
  w.windows = begin + at.windows;
  w.sums = begin + at.sums;
  w.buffer = begin + at.buffer;
  w.own = begin + at.own;
  return w;
}

/* With tiles of 2x2, vectors that are not longer than a row. */
static split_rows *split_of(const struct work *w) {
  int lanes = w->shape.lanes, columns = w->args->width;
  if (w->shape.side == 4) return w->width.split;
  while (lanes > 4 && columns < lanes) lanes /= 2;
  if (columns != lanes && lanes > 4 && columns / 2 < lanes) lanes /= 2;
  return width_of(lanes, 2).split;
}

/* Channel by channel, each through a frame that stays in the first-level cache. */
static void transform_windows(const struct work *w, const struct block *b) {
  const struct shape *g = &w->shape;
  split_rows *split = split_of(w);
  int64_t each = (int64_t)g->height * g->width;
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

/* Vectors in pairs, with as many channels at a time as fit into registers. */
static void multiply(const struct work *w, int64_t vectors) {
  const struct shape *g = &w->shape;
  int64_t rows = w->channels.end - w->channels.first;
  for (int place = 0; place < g->places; place++)
    for (int64_t v = 0; v < vectors; v += 2) {
      run_tile *const *tiles = w->width.tiles[v + 1 < vectors ? 2 : 1];
      const float *weight =
          w->weight + place * w->weights + (w->channels.first - w->first_weight) * g->channels;
      const float *window = w->windows + place * g->windows + v * g->channels * g->lanes;
      int most = SL__TILE_ROWS;
      while (!tiles[most]) most--;
      for (int64_t k = 0; k < rows; k += most)
        tiles[rows - k < most ? rows - k : most](
            g, weight + k * g->channels, window,
            w->sums + place * g->sums + k * g->sums_row + v * g->lanes);
    }
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
  multiply(w, b->images * each);
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

/* Some channels of the outputs of the images [image, last), if any. */
static void run_channels(const struct work *w, int64_t image, int64_t last,
                         struct sl__work_range channels) {
  struct work some = *w;
  if (image >= last || channels.first >= channels.end) return;
  some.channels = channels;
  some.is_shared = channels.end - channels.first < w->args->out_channels;
  if (some.is_shared)
    sl__prefetch_cache_lines(w->x + image * sl__conv_x_size(w->args), sl__conv_x_size(w->args));
  run_images(&some, image, last, 0, w->shape.units);
}

/* Planes of consecutive images: the first and the last image may be partial. */
static void run_planes(struct work *w, const float *weight, bool is_transformed,
                       struct sl__work_range planes) {
  int64_t k = w->args->out_channels, first = planes.first / k, last = planes.end / k;
  int64_t from = planes.first % k, to = planes.end % k;
  struct sl__work_range whole = {0, k}, inside = {from, to};
  find_weights(w, weight, is_transformed, first == last ? inside : whole);
  if (first == last) {
    run_channels(w, first, first + 1, inside);
    return;
  }
  if (from) run_channels(w, first, first + 1, (struct sl__work_range){from, k});
  run_channels(w, first + (from > 0), last, whole);
  run_channels(w, last, last + 1, (struct sl__work_range){0, to});
}

void sl__winograd_forward(const struct sl__conv_args *a, const float *x, const float *weight,
                          bool is_transformed, const float *bias,
                          const struct sl__conv_epilogue *epilogue, float *y, float *scratch,
                          struct sl__work_range range, int most_lanes) {
  struct work w = work_of(a, scratch, most_lanes);
  if (range.first >= range.end) return;
  find_tables(&w.shape);
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
