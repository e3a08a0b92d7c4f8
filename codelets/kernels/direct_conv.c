#include "codelets/kernels/direct_conv.h"

#include <string.h>

#include "codelets/kernels/cache_prefetch.h"
#include "codelets/kernels/conv_frame.h"
#include "codelets/kernels/copy.h"
#include "codelets/kernels/tiles.h"

/* Outputs of `channels` channels at `vectors` vectors, at the positions `at`. */
typedef void run_tile(const struct sl__conv_frame *g, const float *image,
                      const struct sl__frame_start *at, const float *weight, const float *bias,
                      float *y);

#define SL__TILE_FILE "codelets/kernels/direct_conv_tile.h"
#include "codelets/kernels/simd_variants.h"

struct width {
  int lanes;
  run_tile *const (*tiles)[SL__TILE_ROWS + 1];
};

static struct width width_of(int lanes) {
#ifdef SL__WIDTHS
  if (lanes == 16) return (struct width){16, tiles_16};
  if (lanes == 8) return (struct width){8, tiles_8};
#endif
  return (struct width){lanes, tiles_4};
}

/* Channels at some vectors, in groups that fit into registers. */
static void run_channels(const struct width *w, const struct sl__conv_frame *g, int channels,
                         int vectors, const float *image, const struct sl__frame_start *at,
                         const float *weight, const float *bias, float *y) {
  run_tile *const *tiles = w->tiles[vectors];
  int most = SL__TILE_ROWS;
  while (!tiles[most]) most--;
  for (int k = 0; k < channels; k += most) {
    int count = channels - k < most ? channels - k : most;
    tiles[count](g, image, at, weight + k * g->taps, bias ? bias + k : NULL, y + k * g->to_plane);
  }
}

static int64_t floats_of(size_t bytes) { return (int64_t)((bytes + 63) / 64 * 16); }

/* Offsets of the arrays in the scratch memory, and its end. */
struct layout {
  int64_t start, image, to, end;
};

static struct layout layout_of(const struct sl__conv_args *a, const struct sl__conv_frame *g) {
  struct layout l;
  l.start = floats_of((size_t)g->taps * sizeof *g->offset);
  l.image = l.start + floats_of((size_t)g->starts * sizeof *g->start);
  l.to = l.image + (a->channels * g->plane + 63) / 16 * 16; /* more than the widest vector */
  l.end = l.to + (g->gathers ? a->out_channels * g->to_plane : 0);
  return l;
}

/* Maximum over all widths: the largest need depends on the shape. */
int64_t sl__direct_conv_scratch(const struct sl__conv_args *a) {
  int64_t most = 0;
  for (int lanes = 4; lanes <= 16; lanes *= 2) {
    struct sl__conv_frame g = sl__conv_frame_of(a, lanes);
    struct layout l = layout_of(a, &g);
    if (l.end > most) most = l.end;
  }
  return most;
}

/* Copies outputs from planes as wide as the frame. */
SL__SIMD static void gather(const struct sl__conv_frame *g, int64_t channels, const float *from,
                            float *y) {
  for (int64_t k = 0; k < channels; k++, from += g->to_plane)
    for (int32_t h = 0; h < g->out_height; h++, y += g->out_width)
      sl__copy_row(y, from + (int64_t)h * g->pitch, g->out_width);
}

/* ---- public functions ---- */

struct work {
  const struct sl__conv_args *args;
  struct width width;
  struct sl__conv_frame shape;
  float *image, *to;
};

/* All vectors of an image's outputs. Three at a time use the registers best; two less than six are
 * more than three. The epilogue processes them while they are in the first-level cache. */
static void run_image(const struct work *w, struct sl__work_range all, const float *weight,
                      const float *bias, const struct sl__runs *out) {
  const struct sl__conv_frame *g = &w->shape;
  for (int64_t v = all.first, vectors; v < all.end; v += vectors) {
    const struct sl__frame_start *at = g->start + v;
    int64_t left = all.end - v;
    vectors = left <= SL__TILE_COLUMNS ? left : 3;
    run_channels(&w->width, g, (int)out->channels, (int)vectors, w->image, at, weight, bias,
                 out->y);
    if (!g->gathers)
      sl__conv_epilogue_apply(out, (enum sl_activation)w->args->activation, at->to,
                              at[vectors - 1].to + w->width.lanes);
  }
}

static struct work work_of(const struct sl__conv_args *a, float *scratch, int most_lanes) {
  struct work w = {.args = a, .width = width_of(sl__lanes(most_lanes))};
  w.shape = sl__conv_frame_of(a, w.width.lanes);
  struct layout at = layout_of(a, &w.shape);
  w.shape.offset = (int32_t *)scratch;
  w.shape.start = (struct sl__frame_start *)(scratch + at.start);
  w.image = scratch + at.image;
  w.to = scratch + at.to;
  return w;
}

/* Channels of the image in the frame; y belongs to that image. */
static void run_range(const struct work *w, struct sl__work_range channels,
                      struct sl__work_range vectors, const float *weight, const float *bias,
                      const struct sl__conv_epilogue *epilogue, float *y) {
  const struct sl__conv_frame *g = &w->shape;
  int64_t first = channels.first;
  struct sl__runs out = sl__runs_of(w->args, epilogue, y, first, channels.end);
  struct sl__runs wide = out;
  if (g->gathers) wide.y = w->to + first * g->to_plane;
  run_image(w, vectors, weight + first * g->taps, bias ? bias + first : NULL, &wide);
  if (!g->gathers) return;
  gather(g, out.channels, wide.y, out.y);
  sl__conv_epilogue_apply(&out, (enum sl_activation)w->args->activation, 0, out.count);
}

/* One image is divided between its pixels: a core then finds most of its inputs in its own caches,
 * because it wrote them itself. */
static bool goes_by_vectors(const struct sl__conv_args *a, const struct sl__conv_frame *g) {
  int64_t weights = g->taps * a->out_channels;
  return a->images == 1 && !g->gathers && weights < sl__conv_x_size(a) + sl__conv_y_size(a);
}

/* The last vector may overlap the one before; the two stay together. */
static int64_t units_of(const struct sl__conv_args *a, const struct sl__conv_frame *g, int lanes) {
  if (!goes_by_vectors(a, g)) return (int64_t)a->images * a->out_channels;
  return g->starts - (g->starts > 1 && g->pixels % lanes != 0);
}

int64_t sl__direct_conv_units(const struct sl__conv_args *a, bool *planes, int most_lanes) {
  int lanes = sl__lanes(most_lanes);
  struct sl__conv_frame g = sl__conv_frame_of(a, lanes);
  *planes = !goes_by_vectors(a, &g);
  return units_of(a, &g, lanes);
}

/* Rows of the frame that the windows of these vectors' outputs cover. */
static struct sl__frame_rows rows_of(const struct work *w, struct sl__work_range vectors) {
  const struct sl__conv_frame *g = &w->shape;
  int64_t last = g->start[vectors.end - 1].to + w->width.lanes - 1;
  return (struct sl__frame_rows){(int32_t)(g->start[vectors.first].to / g->out_width),
                                 (int32_t)(last / g->out_width) + g->height - g->out_height + 1};
}

static void run_vectors(const struct work *w, const float *x, struct sl__work_range vectors,
                        const float *weight, const float *bias,
                        const struct sl__conv_epilogue *epilogue, float *y) {
  if (vectors.end == units_of(w->args, &w->shape, w->width.lanes)) vectors.end = w->shape.starts;
  sl__conv_frame_fill(w->args, &w->shape, rows_of(w, vectors), true, x, w->image);
  run_range(w, (struct sl__work_range){0, w->args->out_channels}, vectors, weight, bias, epilogue,
            y);
}

static void run_planes(const struct work *w, const float *x, struct sl__work_range planes,
                       const float *weight, const float *bias,
                       const struct sl__conv_epilogue *epilogue, float *y) {
  const struct sl__conv_args *a = w->args;
  const struct sl__work_range vectors = {0, w->shape.starts};
  int64_t k = a->out_channels, n = planes.first / k;
  for (bool clear = true; n * k < planes.end; n++, clear = false) {
    struct sl__work_range mine = {n * k < planes.first ? planes.first - n * k : 0,
                                  (n + 1) * k > planes.end ? planes.end - n * k : k};
    struct sl__conv_epilogue of_image = *epilogue;
    if (epilogue->residual) of_image.residual += n * sl__conv_y_size(a);
    bool is_shared = mine.end - mine.first < k;
    if (is_shared) sl__prefetch_cache_lines(x + n * sl__conv_x_size(a), sl__conv_x_size(a));
    sl__conv_frame_fill(a, &w->shape, (struct sl__frame_rows){0, w->shape.height}, clear,
                        x + n * sl__conv_x_size(a), w->image);
    if (is_shared)
      sl__prefetch_for_write(y + n * sl__conv_y_size(a) + mine.first * w->shape.pixels,
                             (mine.end - mine.first) * w->shape.pixels);
    run_range(w, mine, vectors, weight, bias, &of_image, y + n * sl__conv_y_size(a));
  }
}

void sl__direct_conv_forward(const struct sl__conv_args *a, const float *x, const float *weight,
                             const float *bias, const struct sl__conv_epilogue *epilogue, float *y,
                             float *scratch, struct sl__work_range range, int most_lanes) {
  struct work w = work_of(a, scratch, most_lanes);
  if (range.first >= range.end) return;
  sl__conv_frame_tables(a, &w.shape, w.width.lanes);
  (goes_by_vectors(a, &w.shape) ? run_vectors : run_planes)(&w, x, range, weight, bias, epilogue,
                                                            y);
}
