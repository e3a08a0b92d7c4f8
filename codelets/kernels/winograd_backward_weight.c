#include "codelets/kernels/winograd_backward_weight.h"

#include <string.h>

#include "codelets/kernels/tiles.h"
#include "codelets/kernels/winograd.h"

/* The images x or the gradients dy: an image in a frame of zeros with its channels side by side,
 * and the transformed tiles of some rows. */
struct operand {
  int64_t channels, pixels;
  int64_t pitch; /* floats from pixel to pixel, and from tile to tile: whole vectors */
  int32_t border, rows, columns; /* the frame */
  int64_t place;                 /* floats from matrix to matrix */
  int32_t *at;                   /* [pixels]: offsets in the frame */
  float *frame, *tiles;
};

struct shape {
  int lanes, side, places;
  int32_t down, across; /* rows and columns of tiles */
  int32_t rows;         /* rows of tiles, also of several images, that are multiplied at a time */
  struct operand in, out;
  int64_t place; /* floats from matrix to matrix of the sums [K, in.pitch] */
  float *sums;
};

typedef void frame_image(const struct operand *o, const float *image);
typedef void transform_row(const struct operand *o, int32_t across, const float *row, float *to);
typedef void run_tile(const struct operand *in, const struct operand *out, int64_t tiles,
                      const float *window, const float *slope, float *to);
typedef void make_gradient(const float *sums, int64_t place, float *to);

#define SL__TILE_FILE "codelets/kernels/winograd_backward_weight_tile.h"
#include "codelets/kernels/simd_variants.h"

struct width {
  frame_image *frame;
  transform_row *windows[2], *slopes[2]; /* of tiles of 2x2, and of 4x4 */
  run_tile *const (*tiles)[SL__TILE_ROWS + 1];
  make_gradient *gradient[2];
};

static struct width width_of(int lanes) {
#define WIDTH(l)                                                                                   \
  (struct width) {                                                                                 \
    frame_##l, {windows2_##l, windows4_##l}, {slopes2_##l, slopes4_##l}, tiles_##l, {              \
      gradient2_##l, gradient4_##l                                                                 \
    }                                                                                              \
  }
#ifdef SL__WIDTHS
  if (lanes == 16) return WIDTH(16);
  if (lanes == 8) return WIDTH(8);
#endif
  (void)lanes;
  return WIDTH(4);
}

/* ---- sizes and memory ---- */

/* Tiles of 4x4 need 36 products for 144, those of 2x2 16 for 36; both count beyond the image. */
static int side_of(const struct sl__conv_args *a) {
  int64_t fours = (int64_t)sl__ceil_div(a->height, 4) * sl__ceil_div(a->width, 4);
  int64_t twos = (int64_t)sl__ceil_div(a->height, 2) * sl__ceil_div(a->width, 2);
  return 36 * fours < 16 * twos ? 4 : 2;
}

static struct operand operand_of(const struct shape *g, const struct sl__conv_args *a,
                                 int64_t channels, int32_t border) {
  struct operand o = {.channels = channels,
                      .pixels = sl__conv_pixels(a),
                      .pitch = (channels + g->lanes - 1) / g->lanes * g->lanes,
                      .border = border,
                      .rows = g->side * g->down + 2 * border,
                      .columns = g->side * g->across + 2 * border};
  /* padding: the matrices must not all map to one set of a cache */
  o.place = (int64_t)g->rows * g->across * o.pitch + 16;
  return o;
}

static struct shape shape_of(const struct sl__conv_args *a, int lanes) {
  const int32_t most_tiles = 64;
  int side = side_of(a);
  struct shape g = {.lanes = lanes,
                    .side = side,
                    .places = (side + 2) * (side + 2),
                    .down = sl__ceil_div(a->height, side),
                    .across = sl__ceil_div(a->width, side)};
  int64_t rows = (int64_t)g.down * a->images;
  g.rows = g.across < most_tiles ? most_tiles / g.across : 1;
  if (g.rows > rows) g.rows = (int32_t)rows;
  g.in = operand_of(&g, a, a->channels, 1);
  g.out = operand_of(&g, a, a->out_channels, 0);
  g.place = a->out_channels * g.in.pitch + 16;
  return g;
}

/* Offsets of the arrays in the scratch memory, behind the alignment. */
struct layout {
  int64_t at[2], frame[2], tiles[2], sums, end;
};

static int64_t frame_floats(const struct operand *o) {
  return (int64_t)o->rows * o->columns * o->pitch;
}

static struct layout layout_of(const struct shape *g) {
  const struct operand *operands[] = {&g->in, &g->out};
  struct layout l = {.end = 0};
  for (int i = 0; i < 2; i++) {
    l.at[i] = l.end;
    l.frame[i] = l.at[i] + sl__whole_lines(operands[i]->pixels);
    l.tiles[i] = l.frame[i] + sl__whole_lines(frame_floats(operands[i]));
    l.end = l.tiles[i] + g->places * operands[i]->place;
  }
  l.sums = l.end;
  l.end += g->places * g->place;
  return l;
}

/* Maximum over all widths: the largest need depends on the shape. */
int64_t sl__winograd_backward_weight_scratch(const struct sl__conv_args *a) {
  int64_t most = 0;
  for (int lanes = 4; lanes <= 16; lanes *= 2) {
    struct shape g = shape_of(a, lanes);
    struct layout l = layout_of(&g);
    if (l.end > most) most = l.end;
  }
  return most + 16;
}

bool sl__winograd_backward_weight_serves(const struct sl__conv_args *a) {
  const int32_t least = 16;
  const int64_t most_weights = 1 << 14, most_scratch = 1 << 21;
  if (!sl__winograd_has_window(a) || a->channels < least || a->out_channels < least ||
      sl__conv_pixels(a) < 16 || (int64_t)a->channels * a->out_channels > most_weights ||
      sl__conv_x_size(a) > most_scratch || sl__conv_y_size(a) > most_scratch)
    return false;
  return sl__winograd_backward_weight_scratch(a) <= most_scratch;
}

static void place_operand(struct operand *o, int32_t width, const struct layout *l, int i,
                          float *begin) {
  o->at = (int32_t *)(begin + l->at[i]);
  o->frame = begin + l->frame[i];
  o->tiles = begin + l->tiles[i];
  for (int64_t p = 0; p < o->pixels; p++)
    o->at[p] = (int32_t)(((p / width + o->border) * o->columns + p % width + o->border) * o->pitch);
  memset(o->frame, 0, (size_t)frame_floats(o) * sizeof *o->frame);
}

/* ---- the sums ---- */

static void multiply(const struct shape *g, const struct width *w, int64_t tiles) {
  for (int place = 0; place < g->places; place++) {
    const float *window = g->in.tiles + place * g->in.place;
    const float *slope = g->out.tiles + place * g->out.place;
    float *sums = g->sums + place * g->place;
    for (int64_t c = 0, vectors; c < g->in.pitch; c += vectors * g->lanes) {
      vectors = c + g->lanes < g->in.pitch ? 2 : 1;
      run_tile *const *run = w->tiles[vectors];
      int64_t most = SL__TILE_ROWS, k = 0;
      while (!run[most]) most--;
      for (; k < g->out.channels; k += most)
        run[g->out.channels - k < most ? g->out.channels - k : most](
            &g->in, &g->out, tiles, window + c, slope + k, sums + k * g->in.pitch + c);
    }
  }
}

/* Row i of an image's tiles, behind `before` rows. */
static void transform(const struct shape *g, const struct width *w, int32_t i, int32_t before) {
  const struct operand *in = &g->in, *out = &g->out;
  int64_t row = (int64_t)g->side * i, tiles = (int64_t)before * g->across;
  w->windows[g->side == 4](in, g->across, in->frame + row * in->columns * in->pitch,
                           in->tiles + tiles * in->pitch);
  w->slopes[g->side == 4](out, g->across, out->frame + row * out->columns * out->pitch,
                          out->tiles + tiles * out->pitch);
}

static void write_gradient(const struct shape *g, const struct width *w, float *grad, bool add) {
  int64_t channels = g->in.channels;
  float some[9 * 16] __attribute__((aligned(64)));
  for (int64_t k = 0; k < g->out.channels; k++)
    for (int64_t c = 0; c < channels; c += g->lanes) {
      w->gradient[g->side == 4](g->sums + k * g->in.pitch + c, g->place, some);
      for (int64_t i = c; i < c + g->lanes && i < channels; i++, grad += 9)
        for (int j = 0; j < 9; j++) grad[j] = (add ? grad[j] : 0) + some[j * g->lanes + i - c];
    }
}

void sl__winograd_backward_weight(const struct sl__conv_args *a, const float *x, const float *dy,
                                  float *grad, float *scratch, bool add, int most_lanes) {
  float *begin = (float *)(((uintptr_t)scratch + 63) / 64 * 64);
  int lanes = sl__lanes(most_lanes);
  struct width w = width_of(lanes);
  struct shape g = shape_of(a, lanes);
  struct layout at = layout_of(&g);
  int32_t filled = 0;
  place_operand(&g.in, a->width, &at, 0, begin);
  place_operand(&g.out, a->width, &at, 1, begin);
  g.sums = begin + at.sums;
  memset(g.sums, 0, (size_t)(g.places * g.place) * sizeof *g.sums);
  for (int64_t n = 0; n < a->images; n++) {
    w.frame(&g.in, x + n * sl__conv_x_size(a));
    w.frame(&g.out, dy + n * sl__conv_y_size(a));
    for (int32_t i = 0; i < g.down; i++) {
      transform(&g, &w, i, filled++);
      if (filled < g.rows && (n + 1 < a->images || i + 1 < g.down)) continue;
      multiply(&g, &w, (int64_t)filled * g.across);
      filled = 0;
    }
  }
  write_gradient(&g, &w, grad, add);
}
