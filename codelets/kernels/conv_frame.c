#include "codelets/kernels/conv_frame.h"

#include <string.h>

#include "codelets/kernels/copy.h"
#include "core/base/simd.h"

/* ---- sizes ---- */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Remainders that a tap of the window may have. */
static int32_t remainders(int32_t stride, int64_t span) { return (int32_t)least(stride, span + 1); }

/* copies: each column of the window has its own; else columns are separated by remainders. Vectors
 * lie within rows if rows are whole vectors, else across rows, including the gaps. If there are no
 * gaps, the last vector is shifted back to end with the outputs; else outputs go through a plane as
 * wide as the frame. */
static struct sl__conv_frame frame_with(const struct sl__conv_args *a, int lanes, bool copies) {
  int64_t down = sl__conv_span_h(a) / a->stride_h, across = sl__conv_span_w(a) / a->stride_w;
  struct sl__conv_frame g = {
      .taps = sl__conv_taps(a),
      .pixels = sl__conv_pixels(a),
      .out_height = a->out_height,
      .out_width = a->out_width,
      .copies = copies,
      .down = remainders(a->stride_h, sl__conv_span_h(a)),
      .across = copies ? a->kernel_w : remainders(a->stride_w, sl__conv_span_w(a)),
      .height = a->out_height + (int32_t)down,
      .pitch = a->out_width + (copies ? 0 : (int32_t)across)};
  bool by_rows = a->out_width % lanes == 0;
  int64_t all = by_rows ? g.pixels : (g.out_height - 1) * (int64_t)g.pitch + g.out_width;
  g.plane = (int64_t)g.down * g.across * g.height * g.pitch;
  g.starts = (int32_t)((all + lanes - 1) / lanes);
  g.gathers = !by_rows && (g.pitch > g.out_width || all < lanes);
  g.to_plane = g.gathers ? (int64_t)g.starts * lanes : g.pixels;
  return g;
}

struct sl__conv_frame sl__conv_frame_gapless(const struct sl__conv_args *a, int lanes) {
  struct sl__conv_frame plain = frame_with(a, lanes, false);
  return plain.gathers ? frame_with(a, lanes, true) : plain;
}

/* A copy for each column of the window pays if it saves more than the copies cost, measured in
 * vector products (two a cycle; a copied row takes ten), and if caches hold it. */
struct sl__conv_frame sl__conv_frame_of(const struct sl__conv_args *a, int lanes) {
  const double row = 20, most = 1 << 18;
  struct sl__conv_frame few = frame_with(a, lanes, false);
  if (!few.gathers) return few;
  struct sl__conv_frame all = frame_with(a, lanes, true);
  double saved = (double)(few.starts - all.starts) * (double)few.taps * a->out_channels;
  if (!all.gathers) saved += row * a->out_channels * a->out_height;
  double cost = row * a->channels * (double)all.down * all.height * (all.across - few.across);
  return saved > cost && (double)all.plane * a->channels <= most ? all : few;
}

/* Kernels and outputs are 32 bits wide each: products of four of them may not fit into 64. */
bool sl__conv_frame_fits(const struct sl__conv_args *a) {
  int64_t size = a->channels;
  int64_t down = sl__conv_span_h(a), across = sl__conv_span_w(a);
  const int64_t factors[] = {least(a->stride_h, down + 1), least(a->stride_w, across + 1),
                             a->out_height + down / a->stride_h,
                             a->out_width + across / a->stride_w};
  for (int i = 0; i < 4; i++)
    if (__builtin_mul_overflow(size, factors[i], &size)) return false;
  return size < INT32_MAX / 2 && sl__conv_taps(a) < INT32_MAX / 4;
}

/* ---- tables ---- */

/* Offset of the first channel's plane; the others follow at equal distances. */
static void find_offsets(const struct sl__conv_args *a, const struct sl__conv_frame *g) {
  int32_t *to = g->offset, window = a->kernel_h * a->kernel_w;
  for (int32_t r = 0; r < a->kernel_h; r++)
    for (int32_t s = 0; s < a->kernel_w; s++) {
      int32_t down = r * (a->gap_h + 1), across = s * (a->gap_w + 1);
      int32_t column = g->copies ? s : across % g->across;
      int32_t right = g->copies ? 0 : across / g->across;
      *to++ =
          ((down % g->down * g->across + column) * g->height + down / g->down) * g->pitch + right;
    }
  for (int32_t c = 1; c < a->channels; c++)
    for (int32_t i = 0; i < window; i++) *to++ = g->offset[i] + (int32_t)(c * g->plane);
}

static void find_starts(const struct sl__conv_frame *g, int lanes) {
  int64_t last = g->gathers ? INT64_MAX : g->pixels - lanes, at = 0, skipped = 0, column = 0;
  int64_t between =
      g->gathers ? 0 : g->pitch - g->out_width; /* otherwise vectors end with the rows */
  for (int32_t i = 0; i < g->starts; i++, at += lanes) {
    if (at > last) at = last;
    g->start[i] = (struct sl__frame_start){.offset = at + skipped, .to = at};
    column += lanes;
    if (column == g->out_width) column = 0, skipped += between;
  }
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

SL__INLINE void copy_rows(float *restrict to, int64_t pitch, const float *restrict from,
                          int64_t width, int32_t rows, int32_t count) {
  for (int32_t i = 0; i < rows; i++) sl__copy_row(to + i * pitch, from + i * width, count);
}

/* One remainder of one channel, into a plane that is zero outside the image. */
SL__INLINE void frame_plane(const struct sl__conv_args *a, const struct sl__conv_frame *g,
                            struct sl__frame_rows rows, const float *image, int32_t stride_h,
                            int32_t stride_w, int32_t rh, int32_t rw, float *to) {
  int32_t top, bottom, first, end;
  sl__conv_inside(a->height, g->height, stride_h, rh, a->pad_h, &top, &bottom);
  if (top < rows.first) top = rows.first;
  if (bottom > rows.end) bottom = rows.end;
  sl__conv_inside(a->width, g->pitch, stride_w, rw, a->pad_w, &first, &end);
  if (top >= bottom || first >= end) return;
  if (stride_h == 1 && stride_w == 1 && g->pitch == a->width) {
    slide_rows(to + (int64_t)top * g->pitch, image + (int64_t)(top + rh - a->pad_h) * a->width,
               bottom - top, a->width, rw - a->pad_w);
    return;
  }
  const float *from = image + ((int64_t)top * stride_h + rh - a->pad_h) * a->width +
                      (int64_t)first * stride_w + rw - a->pad_w;
  int64_t width = (int64_t)stride_h * a->width;
  to += (int64_t)top * g->pitch + first;
  if (stride_w == 1) { /* a constant for rows of one vector, of which LeNet has many */
    if (end - first == 8)
      copy_rows(to, g->pitch, from, width, bottom - top, 8);
    else
      copy_rows(to, g->pitch, from, width, bottom - top, end - first);
    return;
  }
  for (int32_t i = top; i < bottom; i++, from += width, to += g->pitch) {
    if (stride_w == 2)
      spread_row_2(to, from, end - first);
    else
      spread_row(to, from, end - first, stride_w);
  }
}

/* All channels. Remainders beyond the window are left out. */
SL__INLINE void frame_channels(const struct sl__conv_args *a, const struct sl__conv_frame *g,
                               struct sl__frame_rows rows, int32_t stride_h, int32_t stride_w,
                               bool clear, const float *x, float *image) {
  int64_t each = (int64_t)g->height * g->pitch;
  for (int64_t c = 0; c < a->channels; c++) {
    float *to = image + c * g->plane;
    const float *from = x + c * a->height * a->width;
    for (int32_t rh = 0; rh < g->down; rh++)
      for (int32_t rw = 0; rw < g->across; rw++, to += each) {
        float *begin = to + (int64_t)rows.first * g->pitch;
        size_t count = (size_t)(rows.end - rows.first) * (size_t)g->pitch;
        if (clear) memset(begin, 0, count * sizeof *begin);
        frame_plane(a, g, rows, from, stride_h, stride_w, rh, g->copies ? rw * (a->gap_w + 1) : rw,
                    to);
      }
  }
}

/* A division by a stride would take as long as a copy of a small plane: the usual strides are
 * constants. */
SL__SIMD void sl__conv_frame_fill(const struct sl__conv_args *a, const struct sl__conv_frame *g,
                                  struct sl__frame_rows rows, bool clear, const float *x,
                                  float *image) {
  if (a->stride_h == 1 && a->stride_w == 1)
    frame_channels(a, g, rows, 1, 1, clear, x, image);
  else if (a->stride_h == 2 && a->stride_w == 2)
    frame_channels(a, g, rows, 2, 2, clear, x, image);
  else
    frame_channels(a, g, rows, a->stride_h, a->stride_w, clear, x, image);
}

void sl__conv_frame_tables(const struct sl__conv_args *a, const struct sl__conv_frame *g,
                           int lanes) {
  find_offsets(a, g);
  find_starts(g, lanes);
}
