#include "codelets/kernels/direct_conv.h"

#include <string.h>

#include "codelets/kernels/copy.h"
#include "codelets/kernels/cache_prefetch.h"
#include "codelets/kernels/tiles.h"

/* The position of a vector of outputs. */
struct start {
  int64_t offset; /* offset of its first window's first tap in the framed image */
  int64_t to;     /* offset in a channel's plane of outputs */
};

/* Images are copied into a frame of zeros, separated by the remainders of the stride. So the
 * windows of neighbouring outputs are adjacent, and edges need no tests. If rows are not whole
 * vectors, each column of the window may have a copy of its own, of the values that the outputs
 * meet there: rows of the copy then follow each other as outputs do. */
struct shape {
  int64_t taps, pixels;          /* C R S; H' W' */
  int32_t out_height, out_width; /* H', W' */
  int32_t down, across; /* number of remainders of rows and columns that a tap of the window has, or
                           columns of the window */
  int32_t height, pitch; /* one remainder's plane: rows, and floats of a row */
  int64_t plane;         /* floats of a channel, all remainders */
  bool gathers;          /* tiles also write the gaps between rows, or behind them */
  int64_t to_plane;      /* floats of a channel's outputs where tiles write */
  int32_t starts;
  int32_t *offset;     /* [taps], from the window's first tap */
  struct start *start; /* [starts] */
};

/* Outputs of `channels` channels at `vectors` vectors, at the positions `at`. */
typedef void run_tile(const struct shape *g, const float *image, const struct start *at,
                      const float *weight, const float *bias, float *y);

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
static void run_channels(const struct width *w, const struct shape *g, int channels, int vectors,
                         const float *image, const struct start *at, const float *weight,
                         const float *bias, float *y) {
  run_tile *const *tiles = w->tiles[vectors];
  int most = SL__TILE_ROWS;
  while (!tiles[most]) most--;
  for (int k = 0; k < channels; k += most) {
    int count = channels - k < most ? channels - k : most;
    tiles[count](g, image, at, weight + k * g->taps, bias ? bias + k : NULL, y + k * g->to_plane);
  }
}

/* ---- the frame ---- */

static int32_t ceil_div(int32_t a, int32_t b) { return a / b + (a % b != 0); }

static int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }

/* With `planes` planes side by side. Vectors lie within rows if rows are whole vectors, else across
 * rows, including the gaps. If there are no gaps, the last vector is shifted back to end with the
 * outputs; else outputs go through a plane as wide as the frame. */
static struct shape shape_with(const struct sl__conv_args *a, int lanes, int32_t across) {
  struct shape g = {.taps = sl__conv_taps(a),
                    .pixels = sl__conv_pixels(a),
                    .out_height = a->out_height,
                    .out_width = a->out_width,
                    .down = least(a->stride_h, a->kernel_h),
                    .across = across,
                    .height = a->out_height + (a->kernel_h - 1) / a->stride_h,
                    .pitch = a->out_width + (a->kernel_w - 1) / across};
  bool by_rows = a->out_width % lanes == 0;
  int64_t all = by_rows ? g.pixels : (g.out_height - 1) * (int64_t)g.pitch + g.out_width;
  g.plane = (int64_t)g.down * across * g.height * g.pitch;
  g.starts = (int32_t)((all + lanes - 1) / lanes);
  g.gathers = !by_rows && (g.pitch > g.out_width || all < lanes);
  g.to_plane = g.gathers ? (int64_t)g.starts * lanes : g.pixels;
  return g;
}

/* A copy for each column of the window pays if it saves more than the copies cost, measured in
 * vector products (two a cycle; a copied row takes ten), and if caches hold it. */
static struct shape shape_of(const struct sl__conv_args *a, int lanes) {
  const double row = 20, most = 1 << 18;
  struct shape few = shape_with(a, lanes, least(a->stride_w, a->kernel_w));
  if (!few.gathers) return few;
  struct shape all = shape_with(a, lanes, a->kernel_w);
  double saved = (double)(few.starts - all.starts) * (double)few.taps * a->out_channels;
  if (!all.gathers) saved += row * a->out_channels * a->out_height;
  double cost = row * a->channels * (double)all.down * all.height * (all.across - few.across);
  return saved > cost && (double)all.plane * a->channels <= most ? all : few;
}

static int64_t floats_of(size_t bytes) { return (int64_t)((bytes + 63) / 64 * 16); }

/* Kernels and outputs are 32 bits wide each: products of four of them may not fit into 64. */
bool sl__direct_conv_fits(const struct sl__conv_args *a) {
  int64_t size = a->channels;
  const int64_t factors[] = {least(a->stride_h, a->kernel_h), least(a->stride_w, a->kernel_w),
                             a->out_height + (a->kernel_h - 1) / a->stride_h,
                             a->out_width + (a->kernel_w - 1) / a->stride_w};
  for (int i = 0; i < 4; i++)
    if (__builtin_mul_overflow(size, factors[i], &size)) return false;
  return size < INT32_MAX / 2 && sl__conv_taps(a) < INT32_MAX / 4;
}

/* Offsets of the arrays in the scratch memory, and its end. */
struct layout {
  int64_t start, image, to, end;
};

static struct layout layout_of(const struct sl__conv_args *a, const struct shape *g) {
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
    struct shape g = shape_of(a, lanes);
    struct layout l = layout_of(a, &g);
    if (l.end > most) most = l.end;
  }
  return most;
}

/* Offset of the first channel's plane; the others follow at equal distances. */
static void find_offsets(const struct sl__conv_args *a, const struct shape *g) {
  int32_t *to = g->offset, window = a->kernel_h * a->kernel_w;
  for (int32_t r = 0; r < a->kernel_h; r++)
    for (int32_t s = 0; s < a->kernel_w; s++) {
      int32_t remainder = r % g->down * g->across + s % g->across;
      *to++ = (remainder * g->height + r / g->down) * g->pitch + s / g->across;
    }
  for (int32_t c = 1; c < a->channels; c++)
    for (int32_t i = 0; i < window; i++) *to++ = g->offset[i] + (int32_t)(c * g->plane);
}

static void find_starts(const struct shape *g, int lanes) {
  int64_t last = g->gathers ? INT64_MAX : g->pixels - lanes, at = 0, skipped = 0, column = 0;
  int64_t between =
      g->gathers ? 0 : g->pitch - g->out_width; /* otherwise vectors end with the rows */
  for (int32_t i = 0; i < g->starts; i++, at += lanes) {
    if (at > last) at = last;
    g->start[i] = (struct start){.offset = at + skipped, .to = at};
    column += lanes;
    if (column == g->out_width) column = 0, skipped += between;
  }
}

/* The outputs [*first, *end) of a row that a remainder's row of `width` values covers: output i is
 * value i stride + remainder - pad. */
SL__INLINE void inside(int32_t width, int32_t outputs, int32_t stride, int32_t remainder,
                       int32_t pad, int32_t *first, int32_t *end) {
  int32_t before = pad - remainder, last = width - 1 + before;
  *first = before > 0 ? ceil_div(before, stride) : 0;
  *end = last < 0 ? 0 : last / stride + 1;
  if (*end > outputs) *end = outputs;
}

SL__INLINE void spread_row(float *restrict to, const float *restrict from, int32_t count,
                           int32_t stride) {
  for (int32_t i = 0; i < count; i++) to[i] = from[(int64_t)i * stride];
}

#if defined(__clang__) || __GNUC__ >= 12
typedef float four __attribute__((vector_size(16)));
typedef float eight __attribute__((vector_size(32)));

/* Reads nothing behind the last requested value. */
SL__INLINE void spread_four(float *restrict to, const float *restrict from) {
  four low, high;
  memcpy(&low, from, sizeof low);
  memcpy(&high, from + 3, sizeof high);
  low = __builtin_shufflevector(low, high, 0, 2, 5, 7);
  memcpy(to, &low, sizeof low);
}
SL__INLINE void spread_eight(float *restrict to, const float *restrict from) {
  eight low, high;
  memcpy(&low, from, sizeof low);
  memcpy(&high, from + 7, sizeof high);
  low = __builtin_shufflevector(low, high, 0, 2, 4, 6, 9, 11, 13, 15);
  memcpy(to, &low, sizeof low);
}

/* As sl__copy_row. */
SL__INLINE void spread_row_2(float *restrict to, const float *restrict from, int32_t count) {
  int32_t i = 0;
  if (count >= 8) {
    for (; i + 8 <= count; i += 8) spread_eight(to + i, from + 2 * (int64_t)i);
    if (i < count) spread_eight(to + count - 8, from + 2 * (int64_t)(count - 8));
  } else if (count >= 4) {
    spread_four(to, from);
    spread_four(to + count - 4, from + 2 * (int64_t)(count - 4));
  } else {
    spread_row(to, from, count, 2);
  }
}
#else
SL__INLINE void spread_row_2(float *restrict to, const float *restrict from, int32_t count) {
  spread_row(to, from, count, 2);
}
#endif

SL__INLINE void clear_column(float *column, int32_t rows, int32_t pitch) {
  for (int64_t i = 0; i < rows; i++) column[i * pitch] = 0;
}

/* Rows as long as the image's, shifted left by `by` columns: a single copy, then the values that
 * came from the neighbouring rows are cleared. */
SL__INLINE void slide_rows(float *restrict to, const float *restrict from, int32_t rows,
                           int32_t width, int32_t by) {
  int32_t right = by < 0 ? -by : 0, left = by > 0 ? by : 0;
  sl__copy_row(to + right, from + left, rows * width - right - left);
  for (int32_t j = 0; j < right; j++) clear_column(to + j, rows, width);
  for (int32_t j = width - left; j < width; j++) clear_column(to + j, rows, width);
}

/* Of each plane of the frame. */
struct rows {
  int32_t first, end;
};

/* One remainder of one channel, into a plane that is zero outside the image. */
SL__INLINE void frame_plane(const struct sl__conv_args *a, const struct shape *g, struct rows rows,
                            const float *image, int32_t stride_h, int32_t stride_w, int32_t rh,
                            int32_t rw, float *to) {
  int32_t top, bottom, first, end;
  inside(a->height, g->height, stride_h, rh, a->pad_h, &top, &bottom);
  if (top < rows.first) top = rows.first;
  if (bottom > rows.end) bottom = rows.end;
  inside(a->width, g->pitch, stride_w, rw, a->pad_w, &first, &end);
  if (top >= bottom || first >= end) return;
  if (stride_h == 1 && stride_w == 1 && g->pitch == a->width) {
    slide_rows(to + (int64_t)top * g->pitch, image + (int64_t)(top + rh - a->pad_h) * a->width,
               bottom - top, a->width, rw - a->pad_w);
    return;
  }
  const float *from = image + ((int64_t)top * stride_h + rh - a->pad_h) * a->width +
                      (int64_t)first * stride_w + rw - a->pad_w;
  to += (int64_t)top * g->pitch + first;
  for (int32_t i = top; i < bottom; i++) {
    if (stride_w == 1)
      sl__copy_row(to, from, end - first);
    else if (stride_w == 2)
      spread_row_2(to, from, end - first);
    else
      spread_row(to, from, end - first, stride_w);
    from += (int64_t)stride_h * a->width;
    to += g->pitch;
  }
}

/* All channels. Remainders without a tap in the window are left out. */
SL__INLINE void frame_channels(const struct sl__conv_args *a, const struct shape *g,
                               struct rows rows, int32_t stride_h, int32_t stride_w, bool clear,
                               const float *x, float *image) {
  int64_t each = (int64_t)g->height * g->pitch;
  for (int64_t c = 0; c < a->channels; c++) {
    float *to = image + c * g->plane;
    const float *from = x + c * a->height * a->width;
    for (int32_t rh = 0; rh < g->down; rh++)
      for (int32_t rw = 0; rw < g->across; rw++, to += each) {
        float *begin = to + (int64_t)rows.first * g->pitch;
        size_t count = (size_t)(rows.end - rows.first) * (size_t)g->pitch;
        if (clear) memset(begin, 0, count * sizeof *begin);
        frame_plane(a, g, rows, from, stride_h, stride_w, rh, rw, to);
      }
  }
}

/* A division by a stride would take as long as a copy of a small plane: the usual strides are
 * constants. */
SL__SIMD static void frame(const struct sl__conv_args *a, const struct shape *g, struct rows rows,
                           bool clear, const float *x, float *image) {
  if (a->stride_h == 1 && a->stride_w == 1)
    frame_channels(a, g, rows, 1, 1, clear, x, image);
  else if (a->stride_h == 2 && a->stride_w == 2)
    frame_channels(a, g, rows, 2, 2, clear, x, image);
  else
    frame_channels(a, g, rows, a->stride_h, a->stride_w, clear, x, image);
}

/* Copies outputs from planes as wide as the frame. */
SL__SIMD static void gather(const struct shape *g, int64_t channels, const float *from, float *y) {
  for (int64_t k = 0; k < channels; k++, from += g->to_plane)
    for (int32_t h = 0; h < g->out_height; h++, y += g->out_width)
      sl__copy_row(y, from + (int64_t)h * g->pitch, g->out_width);
}

/* ---- public functions ---- */

struct work {
  const struct sl__conv_args *args;
  struct width width;
  struct shape shape;
  float *image, *to;
};

/* All vectors of an image's outputs. Three at a time use the registers best; two less than six are
 * more than three. The epilogue processes them while they are in the first-level cache. */
static void run_image(const struct work *w, struct sl__work_range all, const float *weight,
                      const float *bias, const struct sl__runs *out) {
  const struct shape *g = &w->shape;
  for (int64_t v = all.first, vectors; v < all.end; v += vectors) {
    const struct start *at = g->start + v;
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
  w.shape = shape_of(a, w.width.lanes);
  struct layout at = layout_of(a, &w.shape);
  w.shape.offset = (int32_t *)scratch;
  w.shape.start = (struct start *)(scratch + at.start);
  w.image = scratch + at.image;
  w.to = scratch + at.to;
  return w;
}

static void find_tables(const struct work *w) {
  find_offsets(w->args, &w->shape);
  find_starts(&w->shape, w->width.lanes);
}

/* Channels of the image in the frame; y belongs to that image. */
static void run_range(const struct work *w, struct sl__work_range channels,
                      struct sl__work_range vectors, const float *weight, const float *bias,
                      const struct sl__conv_epilogue *epilogue, float *y) {
  const struct shape *g = &w->shape;
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
static bool goes_by_vectors(const struct sl__conv_args *a, const struct shape *g) {
  int64_t weights = g->taps * a->out_channels;
  return a->images == 1 && !g->gathers && weights < sl__conv_x_size(a) + sl__conv_y_size(a);
}

/* The last vector may overlap the one before; the two stay together. */
static int64_t units_of(const struct sl__conv_args *a, const struct shape *g, int lanes) {
  if (!goes_by_vectors(a, g)) return (int64_t)a->images * a->out_channels;
  return g->starts - (g->starts > 1 && g->pixels % lanes != 0);
}

int64_t sl__direct_conv_units(const struct sl__conv_args *a, bool *planes, int most_lanes) {
  int lanes = sl__lanes(most_lanes);
  struct shape g = shape_of(a, lanes);
  *planes = !goes_by_vectors(a, &g);
  return units_of(a, &g, lanes);
}

/* Rows of the frame that the windows of these vectors' outputs cover. */
static struct rows rows_of(const struct work *w, struct sl__work_range vectors) {
  const struct shape *g = &w->shape;
  int64_t last = g->start[vectors.end - 1].to + w->width.lanes - 1;
  return (struct rows){(int32_t)(g->start[vectors.first].to / g->out_width),
                       (int32_t)(last / g->out_width) + g->height - g->out_height + 1};
}

static void run_vectors(const struct work *w, const float *x, struct sl__work_range vectors,
                        const float *weight, const float *bias,
                        const struct sl__conv_epilogue *epilogue, float *y) {
  if (vectors.end == units_of(w->args, &w->shape, w->width.lanes)) vectors.end = w->shape.starts;
  frame(w->args, &w->shape, rows_of(w, vectors), true, x, w->image);
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
    frame(a, &w->shape, (struct rows){0, w->shape.height}, clear, x + n * sl__conv_x_size(a),
          w->image);
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
  find_tables(&w);
  (goes_by_vectors(a, &w.shape) ? run_vectors : run_planes)(&w, x, range, weight, bias, epilogue,
                                                            y);
}
