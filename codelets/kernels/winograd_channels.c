#include "codelets/kernels/winograd_channels.h"

#include "codelets/kernels/tiles.h"
#include "codelets/kernels/winograd.h"
#include "codelets/kernels/winograd_operand.h"
#include "codelets/kernels/winograd_product.h"

/* The outputs of an image in a frame without a border, their channels side by side. */
struct outputs {
  int64_t pitch; /* floats from pixel to pixel, and from tile to tile of the sums: whole vectors */
  int64_t place; /* floats from matrix to matrix of the sums */
  int64_t pixels;
  int32_t columns; /* of the frame */
  int32_t *at;     /* [pixels]: offsets in the frame */
  float *frame, *sums;
};

typedef void make_outputs(const struct outputs *o, int32_t across, const float *sums, float *to);
/* As many planes of y as floats of a vector, of which those of [first, end) are written. */
typedef void write_planes(const struct outputs *o, const float *frame, const float *bias,
                          int64_t first, int64_t end, float *y);

#define SL__TILE_FILE "codelets/kernels/winograd_channels_tile.h"
#include "codelets/kernels/simd_variants.h"

struct width {
  frame_image *frame;
  transform_row *windows[KINDS];
  run_tile *const (*products)[SL__TILE_ROWS + 1];
  make_outputs *outputs[KINDS];
  write_planes *write;
};

static struct width width_of(int lanes) {
#define WIDTH(l)                                                                                   \
  {                                                                                                \
    frame_##l, {windows2_##l, windows4_##l, windows5_##l}, tiles_##l,                              \
        {outputs2_##l, outputs4_##l, outputs5_##l}, write_##l                                      \
  }
  static const struct width widths[] = {WIDTH(4),
#ifdef SL__WIDTHS
                                        WIDTH(8), WIDTH(16)
#endif
  };
  return widths[lanes / 8];
}

/* ---- sizes and memory ---- */

enum {
  FILTERS = SL__WINOGRAD_FILTERS,
  TILES = 64 /* that are multiplied at a time, or one image's */
};

struct shape {
  int lanes, side, places;
  enum kind kind;
  int32_t down, across; /* rows and columns of tiles */
  int32_t images;       /* at a time */
  struct operand in;
  struct outputs out;
};

static int64_t whole_runs(int64_t channels) { return (channels + FILTERS - 1) / FILTERS * FILTERS; }

/* padding: the matrices must not all map to one set of a cache */
int64_t sl__winograd_channels_place(int64_t rows, int64_t channels) {
  return whole_runs(rows) * channels + 16;
}

enum kind sl__winograd_channels_kind(const struct sl__conv_args *a) { return cached_kind_of(a, 1); }

int64_t sl__winograd_channels_products(const struct sl__conv_args *a) {
  enum kind kind = sl__winograd_channels_kind(a);
  if (a->channels % FILTERS || (int64_t)a->height * a->width < FILTERS ||
      sl__conv_pixels(a) < FILTERS)
    return 0;
  return places_of(kind) * tiles_of(a, kind) * (whole_runs(a->out_channels) / FILTERS);
}

int64_t sl__winograd_channels_weights(const struct sl__conv_args *a) {
  return places_of(sl__winograd_channels_kind(a)) *
         sl__winograd_channels_place(a->out_channels, a->channels);
}

static struct shape shape_of(const struct sl__conv_args *a, int lanes) {
  enum kind kind = sl__winograd_channels_kind(a);
  int side = side_of(kind), border = taps_of(kind) - 1;
  struct shape g = {.lanes = lanes,
                    .side = side,
                    .places = places_of(kind),
                    .kind = kind,
                    .down = sl__ceil_div(a->out_height, side),
                    .across = sl__ceil_div(a->out_width, side)};
  int64_t tiles = (int64_t)g.down * g.across;
  g.images = (int32_t)(tiles < TILES ? TILES / tiles : 1);
  if (g.images > a->images) g.images = a->images;
  g.in = (struct operand){.channels = a->channels,
                          .pixels = (int64_t)a->height * a->width,
                          .width = a->width,
                          .pitch = a->channels,
                          .top = a->pad_h,
                          .left = a->pad_w,
                          .rows = side * g.down + border,
                          .columns = side * g.across + border};
  g.out = (struct outputs){.pitch = whole_runs(a->out_channels),
                           .pixels = sl__conv_pixels(a),
                           .columns = side * g.across};
  g.in.place = tiles * g.images * g.in.pitch + 16;
  g.out.place = tiles * g.images * g.out.pitch + 16;
  return g;
}

/* Offsets of the arrays in the scratch memory, behind the alignment. */
struct layout {
  int64_t in_at, out_at, in_frame, out_frame, tiles, sums, own; /* own weights: at the end */
};

static struct layout layout_of(const struct shape *g) {
  struct layout l = {0};
  l.out_at = l.in_at + sl__whole_lines(g->in.pixels);
  l.in_frame = l.out_at + sl__whole_lines(g->out.pixels);
  l.out_frame = l.in_frame + frame_floats(&g->in);
  l.tiles = l.out_frame + (int64_t)g->side * g->down * g->out.columns * g->out.pitch;
  l.sums = l.tiles + g->places * g->in.place;
  l.own = l.sums + g->places * g->out.place;
  return l;
}

/* The sizes do not depend on the vectors' width. */
int64_t sl__winograd_channels_scratch(const struct sl__conv_args *a, bool is_transformed) {
  struct shape g = shape_of(a, FILTERS);
  return layout_of(&g).own + (is_transformed ? 0 : sl__winograd_channels_weights(a)) + 16;
}

/* ---- blocks ---- */

struct work {
  const struct sl__conv_args *args;
  struct width width;
  struct shape shape;
  const float *weight;           /* transformed, of the channels from first_weight on */
  int64_t first_weight, weights; /* distance between the matrices of weights */
  const float *bias, *x;
  float *y, *own; /* own: memory for weights that this call transforms */
  const struct sl__conv_epilogue *epilogue;
};

static struct work work_of(const struct sl__conv_args *a, float *scratch, int most_lanes) {
  float *begin = sl__line_begin(scratch);
  int lanes = sl__lanes(most_lanes);
  struct work w = {.args = a, .width = width_of(lanes), .shape = shape_of(a, lanes)};
  struct shape *g = &w.shape;
  struct layout at = layout_of(g);
  g->in.at = (int32_t *)(begin + at.in_at);
  g->out.at = (int32_t *)(begin + at.out_at);
  g->in.frame = begin + at.in_frame;
  g->out.frame = begin + at.out_frame;
  g->in.tiles = begin + at.tiles;
  g->out.sums = begin + at.sums;
  w.own = begin + at.own;
  clear_frame(&g->in);
  find_pixels(g->out.pixels, a->out_width, 0, g->out.columns, g->out.pitch, g->out.at);
  return w;
}

static void transform_windows(const struct work *w, int64_t image, int64_t images) {
  const struct shape *g = &w->shape;
  float *to = g->in.tiles;
  for (int64_t n = image; n < image + images; n++) {
    w->width.frame(&g->in, w->x + n * sl__conv_x_size(w->args));
    for (int32_t i = 0; i < g->down; i++, to += g->across * g->in.pitch)
      w->width.windows[g->kind](
          &g->in, g->across, g->in.frame + (int64_t)g->side * i * g->in.columns * g->in.pitch, to);
  }
}

/* Output channels [from, to) of the weights' own, in whole vectors. What is a row of weights and
 * what is a window to the products is the other way round here: rows are tiles. */
static void multiply_windows(const struct work *w, int64_t images, int64_t from, int64_t to) {
  const struct shape *g = &w->shape;
  struct product p = {.places = g->places,
                      .lanes = g->lanes,
                      .rows = images * g->down * g->across,
                      .channels = g->in.channels,
                      .vectors = (to - from + g->lanes - 1) / g->lanes,
                      .weights = g->in.place,
                      .windows = w->weights,
                      .sums = g->out.place,
                      .sums_row = g->out.pitch,
                      .run = FILTERS};
  multiply(&p, w->width.products, g->in.tiles, w->weight + from * g->in.channels,
           g->out.sums + from);
}

/* One image's outputs of the channels [from, to) of the weights' own; sums: of its tiles. */
static void write_image(const struct work *w, int64_t image, int64_t from, int64_t to,
                        struct sl__work_range channels, const float *sums) {
  const struct sl__conv_args *a = w->args;
  const struct shape *g = &w->shape;
  float *y = w->y + image * sl__conv_y_size(a);
  struct sl__conv_epilogue epilogue = *w->epilogue;
  for (int64_t v = from; v < to; v += g->lanes) {
    int64_t k = w->first_weight + v, first = k < channels.first ? channels.first - k : 0;
    int64_t end = channels.end - k < g->lanes ? channels.end - k : g->lanes;
    for (int32_t i = 0; i < g->down; i++)
      w->width.outputs[g->kind](
          &g->out, g->across, sums + i * g->across * g->out.pitch + v,
          g->out.frame + (int64_t)g->side * i * g->out.columns * g->out.pitch + v);
    w->width.write(&g->out, g->out.frame + v, w->bias ? w->bias + k : NULL, first, end,
                   y + k * g->out.pixels);
  }
  if (epilogue.residual) epilogue.residual += image * sl__conv_y_size(a);
  struct sl__runs out = sl__runs_of(a, &epilogue, y, channels.first, channels.end);
  sl__conv_epilogue_apply(&out, (enum sl_activation)a->activation, 0, g->out.pixels);
}

static void run_part(const struct work *w, const struct sl__winograd_part *part) {
  const struct shape *g = &w->shape;
  struct sl__work_range channels = part->channels;
  int64_t from = (channels.first - w->first_weight) / FILTERS * FILTERS;
  int64_t to = channels.end - w->first_weight, tiles = (int64_t)g->down * g->across;
  for (int64_t n = part->first, images; n < part->last; n += images) {
    images = part->last - n < g->images ? part->last - n : g->images;
    transform_windows(w, n, images);
    multiply_windows(w, images, from, to);
    for (int64_t i = 0; i < images; i++)
      write_image(w, n + i, from, to, channels, g->out.sums + i * tiles * g->out.pitch);
  }
}

void sl__winograd_channels_forward(const struct sl__conv_args *a, const float *x,
                                   const float *weight, bool is_transformed, const float *bias,
                                   const struct sl__conv_epilogue *epilogue, float *y,
                                   float *scratch, struct sl__work_range range, int most_lanes) {
  struct sl__winograd_part parts[3];
  int count = sl__winograd_parts(a->out_channels, range, parts);
  struct sl__work_range own = {0, a->out_channels};
  struct work w = work_of(a, scratch, most_lanes);
  if (!is_transformed && count == 1) own = parts[0].channels;
  w.x = x;
  w.y = y;
  w.bias = bias;
  w.epilogue = epilogue;
  w.weight = is_transformed ? weight : w.own;
  w.first_weight = own.first;
  w.weights = sl__winograd_channels_place(own.end - own.first, a->channels);
  if (!is_transformed) sl__winograd_transform(a, weight, own.first, own.end, w.own);
  for (int i = 0; i < count; i++) run_part(&w, &parts[i]);
}
