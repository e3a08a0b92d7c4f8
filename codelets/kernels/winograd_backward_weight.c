#include "codelets/kernels/winograd_backward_weight.h"

#include "codelets/kernels/tiles.h"
#include "codelets/kernels/winograd.h"
#include "codelets/kernels/winograd_operand.h"

struct shape {
  int lanes, side, taps, places;
  enum kind kind;
  int32_t down, across; /* rows and columns of tiles */
  int32_t rows;         /* rows of tiles, also of several images, that are multiplied at a time */
  struct operand in, out;
  bool by_out;   /* vectors of the sums hold output channels: [C, out.pitch], not [K, in.pitch] */
  int64_t place; /* floats from matrix to matrix of the sums */
  float *sums;
};

/* Sums over tiles of some channels of `narrow` times vectors of those of `wide`. */
typedef void run_tile(const struct operand *wide, const struct operand *narrow, int64_t tiles,
                      const float *vectors, const float *scalars, float *to);
typedef void make_gradient(const float *sums, int64_t place, float *to);

#define SL__TILE_FILE "codelets/kernels/winograd_backward_weight_tile.h"
#include "codelets/kernels/simd_variants.h"

struct width {
  frame_image *frame;
  transform_row *windows[KINDS], *slopes[KINDS];
  run_tile *const (*tiles)[SL__TILE_ROWS + 1];
  make_gradient *gradient[KINDS];
};

static struct width width_of(int lanes) {
#define WIDTH(l)                                                                                   \
  (struct width) {                                                                                 \
    frame_##l, {windows2_##l, windows4_##l, windows5_##l},                                         \
        {slopes2_##l, slopes4_##l, slopes5_##l}, tiles_##l, {                                      \
      gradient2_##l, gradient4_##l, gradient5_##l                                                  \
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

/* border: rows and columns of the frame that tiles share with their neighbours. */
static void finish_operand(const struct shape *g, int32_t border, struct operand *o) {
  o->pitch = (o->channels + g->lanes - 1) / g->lanes * g->lanes;
  o->rows = g->side * g->down + border;
  o->columns = g->side * g->across + border;
  /* padding: the matrices must not all map to one set of a cache */
  o->place = (int64_t)g->rows * g->across * o->pitch + 16;
}

static struct shape shape_of(const struct sl__conv_args *a, int lanes) {
  const int32_t most_tiles = 64;
  enum kind kind = kind_of(a, 1);
  int side = side_of(kind);
  struct shape g = {.lanes = lanes,
                    .side = side,
                    .taps = taps_of(kind),
                    .places = places_of(kind),
                    .kind = kind,
                    .down = sl__ceil_div(a->out_height, side),
                    .across = sl__ceil_div(a->out_width, side)};
  int64_t rows = (int64_t)g.down * a->images;
  g.rows = g.across < most_tiles ? most_tiles / g.across : 1;
  if (g.rows > rows) g.rows = (int32_t)rows;
  g.in = (struct operand){.channels = a->channels,
                          .pixels = (int64_t)a->height * a->width,
                          .width = a->width,
                          .top = a->pad_h,
                          .left = a->pad_w};
  g.out = (struct operand){
      .channels = a->out_channels, .pixels = sl__conv_pixels(a), .width = a->out_width};
  finish_operand(&g, g.taps - 1, &g.in);
  finish_operand(&g, 0, &g.out);
  g.by_out = g.out.pitch * a->channels < g.in.pitch * a->out_channels;
  g.place = (g.by_out ? a->channels * g.out.pitch : a->out_channels * g.in.pitch) + 16;
  return g;
}

/* Offsets of the arrays in the scratch memory, behind the alignment. */
struct layout {
  int64_t at[2], frame[2], tiles[2], sums, end;
};

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
  if (!sl__winograd_taps(a) || a->channels < least || a->out_channels < least ||
      sl__conv_pixels(a) < 16 || (int64_t)a->height * a->width < 16 ||
      (int64_t)a->channels * a->out_channels > most_weights || sl__conv_x_size(a) > most_scratch ||
      sl__conv_y_size(a) > most_scratch)
    return false;
  return sl__winograd_backward_weight_scratch(a) <= most_scratch;
}

static void place_operand(struct operand *o, const struct layout *l, int i, float *begin) {
  o->at = (int32_t *)(begin + l->at[i]);
  o->frame = begin + l->frame[i];
  o->tiles = begin + l->tiles[i];
  clear_frame(o);
}

/* ---- the sums ---- */

static void multiply(const struct shape *g, const struct width *w, int64_t tiles) {
  const struct operand *wide = g->by_out ? &g->out : &g->in, *narrow = g->by_out ? &g->in : &g->out;
  for (int place = 0; place < g->places; place++) {
    const float *vector = wide->tiles + place * wide->place;
    const float *scalar = narrow->tiles + place * narrow->place;
    float *sums = g->sums + place * g->place;
    for (int64_t v = 0, vectors; v < wide->pitch; v += vectors * g->lanes) {
      vectors = v + g->lanes < wide->pitch ? 2 : 1;
      run_tile *const *run = w->tiles[vectors];
      int64_t most = SL__TILE_ROWS, i = 0;
      while (!run[most]) most--;
      for (; i < narrow->channels; i += most)
        run[narrow->channels - i < most ? narrow->channels - i : most](
            wide, narrow, tiles, vector + v, scalar + i, sums + i * wide->pitch + v);
    }
  }
}

/* Row i of an image's tiles, behind `before` rows. */
static void transform(const struct shape *g, const struct width *w, int32_t i, int32_t before) {
  const struct operand *in = &g->in, *out = &g->out;
  int64_t row = (int64_t)g->side * i, tiles = (int64_t)before * g->across;
  w->windows[g->kind](in, g->across, in->frame + row * in->columns * in->pitch,
                      in->tiles + tiles * in->pitch);
  w->slopes[g->kind](out, g->across, out->frame + row * out->columns * out->pitch,
                     out->tiles + tiles * out->pitch);
}

static void write_gradient(const struct shape *g, const struct width *w, float *grad, bool add) {
  const struct operand *wide = g->by_out ? &g->out : &g->in, *narrow = g->by_out ? &g->in : &g->out;
  int window = g->taps * g->taps;
  int64_t along = window * (g->by_out ? g->in.channels : 1); /* from vector's value to value */
  int64_t below = window * (g->by_out ? 1 : g->in.channels); /* from row to row */
  float some[25 * 16] __attribute__((aligned(64)));
  for (int64_t r = 0; r < narrow->channels; r++)
    for (int64_t v = 0; v < wide->channels; v += g->lanes) {
      int64_t last = wide->channels - v < g->lanes ? wide->channels - v : g->lanes;
      float *to = grad + r * below + v * along;
      w->gradient[g->kind](g->sums + r * wide->pitch + v, g->place, some);
      for (int64_t i = 0; i < last; i++, to += along)
        for (int j = 0; j < window; j++) to[j] = (add ? to[j] : 0) + some[j * g->lanes + i];
    }
}

void sl__winograd_backward_weight(const struct sl__conv_args *a, const float *x, const float *dy,
                                  float *grad, float *scratch, bool add, int most_lanes) {
  float *begin = sl__line_begin(scratch);
  int lanes = sl__lanes(most_lanes);
  struct width w = width_of(lanes);
  struct shape g = shape_of(a, lanes);
  struct layout at = layout_of(&g);
  int32_t filled = 0;
  place_operand(&g.in, &at, 0, begin);
  place_operand(&g.out, &at, 1, begin);
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
