#include "codelets/direct.h"

#include <string.h>

#include "codelets/tiles.h"

/* Where a vector of outputs begins. */
struct start {
  int64_t offset; /* of its first window's first tap, in the framed image */
  int64_t to;     /* in a channel's plane of outputs */
};

/* Images are copied into a frame of zeros, a stride's remainders apart from each other: so that the
 * windows of neighbouring outputs lie side by side, and nothing needs to be asked at the edges. */
struct shape {
  int64_t taps, pixels;          /* C R S; H' W' */
  int32_t channels;              /* K */
  int32_t out_height, out_width; /* H', W' */
  int32_t height, pitch;         /* of one remainder's plane: rows, and floats a row */
  int32_t across;                /* remainders side by side: those that a tap of the window has */
  int64_t plane;                 /* floats of a channel, all remainders */
  bool by_rows;                  /* vectors do not reach from row to row */
  int64_t to_plane;              /* floats of a channel's outputs, where tiles write them */
  int32_t starts;
  const int32_t *offset; /* [taps], from the window's first tap */
  struct start *start;   /* [starts] */
};

/* Outputs of so many channels at so many vectors, that begin where `at` says. */
typedef void run_tile(const struct shape *g, const float *image, const struct start *at,
                      const float *weight, const float *bias, float *y);

#define LANES 4
#include "codelets/direct_tile.h"
#undef LANES
#ifdef SL_WIDTHS
#define LANES 8
#include "codelets/direct_tile.h"
#undef LANES
#define LANES 16
#include "codelets/direct_tile.h"
#undef LANES
#endif

struct width {
  int lanes;
  run_tile *const (*tiles)[SL_TILE_ROWS + 1];
};

static struct width width_of(int lanes) {
#ifdef SL_WIDTHS
  if (lanes == 16) return (struct width){16, tiles_16};
  if (lanes == 8) return (struct width){8, tiles_8};
#endif
  return (struct width){lanes, tiles_4};
}

/* All channels at some vectors, as many at a time as registers hold. */
static void run_channels(const struct width *w, const struct shape *g, int vectors,
                         const float *image, const struct start *at, const float *weight,
                         const float *bias, float *y) {
  run_tile *const *tiles = w->tiles[vectors];
  int most = SL_TILE_ROWS, k = 0;
  while (!tiles[most]) most--;
  for (; k < g->channels; k += most) {
    int channels = g->channels - k < most ? g->channels - k : most;
    tiles[channels](g, image, at, weight + k * g->taps, bias ? bias + k : NULL,
                    y + k * g->to_plane);
  }
}

/* Three vectors at a time use the registers best; two less than six are more than three. */
static void run_image(const struct width *w, const struct shape *g, const float *image,
                      const float *weight, const float *bias, float *y) {
  for (int v = 0, vectors; v < g->starts; v += vectors) {
    int left = g->starts - v;
    vectors = left <= SL_TILE_COLUMNS ? left : 3;
    run_channels(w, g, vectors, image, g->start + v, weight, bias, y);
  }
}

/* ---- the frame ---- */

static int32_t ceil_div(int32_t a, int32_t b) { return (a + b - 1) / b; }

static int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }

static struct shape shape_of(const struct sl__conv_args *a) {
  struct shape g = {.taps = sl__conv_taps(a),
                    .pixels = sl__conv_pixels(a),
                    .channels = a->out_channels,
                    .out_height = a->out_height,
                    .out_width = a->out_width};
  g.height = a->out_height + (a->kernel_h - 1) / a->stride_h;
  g.pitch = a->out_width + (a->kernel_w - 1) / a->stride_w;
  g.across = least(a->stride_w, a->kernel_w);
  g.plane = (int64_t)least(a->stride_h, a->kernel_h) * g.across * g.height * g.pitch;
  return g;
}

/* Within the rows, where these are whole vectors; else over all rows, with what is between two of
 * them: then outputs go through a plane as wide as the frame. */
static void cut(struct shape *g, int lanes) {
  int32_t all = (g->out_height - 1) * g->pitch + g->out_width;
  g->by_rows = g->out_width % lanes == 0;
  g->starts = g->by_rows ? (int32_t)(g->pixels / lanes) : ceil_div(all, lanes);
  g->to_plane = (int64_t)g->starts * lanes;
}

static int64_t floats_of(size_t bytes) { return (int64_t)((bytes + 63) / 64 * 16); }

/* Kernels and outputs are 32 bits wide each: products of four of them need not fit into 64. */
bool sl__direct_fits(const struct sl__conv_args *a) {
  int64_t size = a->channels;
  const int64_t factors[] = {least(a->stride_h, a->kernel_h), least(a->stride_w, a->kernel_w),
                             a->out_height + (a->kernel_h - 1) / a->stride_h,
                             a->out_width + (a->kernel_w - 1) / a->stride_w};
  for (int i = 0; i < 4; i++)
    if (__builtin_mul_overflow(size, factors[i], &size)) return false;
  return size < INT32_MAX / 2 && sl__conv_taps(a) < INT32_MAX / 4;
}

/* The tables, the image, and the plane of outputs, for whatever width: the narrowest vectors are
 * not always the most, and the widest read and write furthest behind the end. */
int64_t sl__direct_scratch(const struct sl__conv_args *a) {
  struct shape g = shape_of(a);
  int32_t starts = 0;
  for (int lanes = 4; lanes <= 16; lanes *= 2) {
    cut(&g, lanes);
    if (g.starts > starts) starts = g.starts;
  }
  return floats_of((size_t)g.taps * sizeof *g.offset) +
         floats_of((size_t)starts * sizeof *g.start) + a->channels * g.plane + 64 +
         g.channels * ((int64_t)g.out_height * g.pitch + 16);
}

static void find_offsets(const struct sl__conv_args *a, const struct shape *g, int32_t *offset) {
  for (int32_t c = 0; c < a->channels; c++)
    for (int32_t r = 0; r < a->kernel_h; r++)
      for (int32_t s = 0; s < a->kernel_w; s++) {
        int32_t remainder = r % a->stride_h * g->across + s % a->stride_w;
        *offset++ = (int32_t)(c * g->plane) + (remainder * g->height + r / a->stride_h) * g->pitch +
                    s / a->stride_w;
      }
}

static void find_starts(const struct shape *g, int lanes, struct start *start) {
  for (int32_t i = 0; i < g->starts; i++, start++) {
    int32_t each = g->by_rows ? g->out_width : g->pitch, at = i * lanes;
    *start = (struct start){.offset = (int64_t)(at / each) * g->pitch + at % each, .to = at};
  }
}

/* The part of a row's outputs [*first, *end) that a remainder's row of `width` values has: output i
 * is value i stride + remainder - pad. */
SL_INLINE void inside(int32_t width, int32_t outputs, int32_t stride, int32_t remainder,
                      int32_t pad, int32_t *first, int32_t *end) {
  int32_t before = pad - remainder, last = width - 1 + before;
  *first = before > 0 ? ceil_div(before, stride) : 0;
  *end = last < 0 ? 0 : last / stride + 1;
  if (*end > outputs) *end = outputs;
}

/* Rows are short: whole vectors, the last of which may lie over the one before. */
SL_INLINE void copy_row(float *restrict to, const float *restrict from, int32_t count) {
  int32_t i = 0;
  for (; i + 16 <= count; i += 16) memcpy(to + i, from + i, 16 * sizeof *to);
  if (count < 16 && i + 8 <= count) {
    memcpy(to, from, 8 * sizeof *to);
    i = 8;
  }
  if (i == count) return;
  if (count >= 16) {
    memcpy(to + count - 16, from + count - 16, 16 * sizeof *to);
  } else if (count >= 4) {
    for (; i + 4 <= count; i += 4) memcpy(to + i, from + i, 4 * sizeof *to);
    memcpy(to + count - 4, from + count - 4, 4 * sizeof *to);
  } else {
    for (; i < count; i++) to[i] = from[i];
  }
}

SL_INLINE void spread_row(float *restrict to, const float *restrict from, int32_t count,
                          int32_t stride) {
  for (int32_t i = 0; i < count; i++) to[i] = from[(int64_t)i * stride];
}

/* One remainder of one channel, into a plane that is zero wherever the image is not. */
SL_INLINE void frame_plane(const struct sl__conv_args *a, const struct shape *g, const float *image,
                           int32_t rh, int32_t rw, float *to) {
  int32_t top, bottom, first, end;
  inside(a->height, g->height, a->stride_h, rh, a->pad_h, &top, &bottom);
  inside(a->width, g->pitch, a->stride_w, rw, a->pad_w, &first, &end);
  for (int32_t i = top; i < bottom && first < end; i++) {
    int64_t h = (int64_t)i * a->stride_h + rh - a->pad_h;
    const float *from = image + h * a->width + (int64_t)first * a->stride_w + rw - a->pad_w;
    float *row = to + (int64_t)i * g->pitch + first;
    if (a->stride_w == 1)
      copy_row(row, from, end - first);
    else if (a->stride_w == 2)
      spread_row(row, from, end - first, 2);
    else
      spread_row(row, from, end - first, a->stride_w);
  }
}

/* Remainders that no tap of the window has are left out. */
SL_SIMD static void frame(const struct sl__conv_args *a, const struct shape *g, const float *image,
                          float *to) {
  int64_t each = (int64_t)g->height * g->pitch;
  for (int32_t c = 0; c < a->channels; c++, image += (int64_t)a->height * a->width, to += g->plane)
    for (int32_t rh = 0; rh < a->stride_h && rh < a->kernel_h; rh++)
      for (int32_t rw = 0; rw < a->stride_w && rw < a->kernel_w; rw++)
        frame_plane(a, g, image, rh, rw, to + (rh * g->across + rw) * each);
}

/* Outputs out of planes as wide as the frame. */
SL_SIMD static void gather(const struct shape *g, const float *from, float *y) {
  for (int32_t k = 0; k < g->channels; k++, from += g->to_plane)
    for (int32_t h = 0; h < g->out_height; h++, y += g->out_width)
      copy_row(y, from + (int64_t)h * g->pitch, g->out_width);
}

void sl__direct_forward(const struct sl__conv_args *a, const float *x, const float *weight,
                        const float *bias, float *y, float *scratch, int most_lanes) {
  const struct width w = width_of(sl__lanes(most_lanes));
  struct shape g = shape_of(a);
  cut(&g, w.lanes);
  int32_t *offset = (int32_t *)scratch;
  struct start *start = (struct start *)(scratch + floats_of((size_t)g.taps * sizeof *offset));
  float *image = (float *)start + floats_of((size_t)g.starts * sizeof *start);
  float *to = image + (a->channels * g.plane + 63) / 16 * 16; /* more than the widest vector */
  find_offsets(a, &g, offset);
  find_starts(&g, w.lanes, start);
  g.offset = offset;
  g.start = start;
  memset(image, 0, (size_t)(a->channels * g.plane) * sizeof *image);
  for (int32_t n = 0; n < a->images; n++, y += sl__conv_y_size(a)) {
    frame(a, &g, x + n * sl__conv_x_size(a), image);
    run_image(&w, &g, image, weight, bias, g.by_rows ? y : to);
    if (!g.by_rows) gather(&g, to, y);
  }
}
