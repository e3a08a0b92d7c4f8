#include "codelets/kernels/conv_matrix.h"

#include <string.h>

#include "codelets/kernels/conv.h"
#include "codelets/kernels/copy.h"

/* Is the matrix the image itself? So it is with windows of one pixel. */
static bool is_image(const struct sl__conv_windows *w) {
  return w->kernel_h == 1 && w->kernel_w == 1 && w->stride_h == 1 && w->stride_w == 1 &&
         !w->pad_h && !w->pad_w && w->out_height == w->height && w->out_width == w->width;
}

static int64_t columns_of(const struct sl__conv_windows *w) {
  return (int64_t)w->out_height * w->out_width;
}

/* ---- the matrix ---------------------------------------------------------------------------- */

/* The output columns whose tap s falls inside the image: [*first, *end). */
SL__INLINE void inside(const struct sl__conv_windows *w, int32_t s, int32_t *first, int32_t *end) {
  sl__conv_inside(w->width, w->out_width, w->stride_w, s * w->dilation_w, w->pad_w, first, end);
  if (*first > *end) *first = *end;
}

/* The row of the image that tap r of output row oh meets. */
SL__INLINE int32_t row_of(const struct sl__conv_windows *w, int32_t oh, int32_t r) {
  return oh * w->stride_h - w->pad_h + r * w->dilation_h;
}

/* One row of the matrix: tap (c, r, s) of every window. */
SL__INLINE void gather_row(const struct sl__conv_windows *w, const float *plane, int32_t r,
                           int32_t s, float *row) {
  int32_t first, end;
  inside(w, s, &first, &end);
  for (int32_t oh = 0; oh < w->out_height; oh++, row += w->out_width) {
    int32_t h = row_of(w, oh, r);
    if (h < 0 || h >= w->height) {
      for (int32_t ow = 0; ow < w->out_width; ow++) row[ow] = 0;
      continue;
    }
    const float *from = plane + (int64_t)h * w->width;
    int64_t at = (int64_t)s * w->dilation_w - w->pad_w;
    for (int32_t ow = 0; ow < first; ow++) row[ow] = 0;
    if (w->stride_w == 1)
      for (int32_t ow = first; ow < end; ow++) row[ow] = from[ow + at];
    else
      for (int32_t ow = first; ow < end; ow++) row[ow] = from[(int64_t)ow * w->stride_w + at];
    for (int32_t ow = end; ow < w->out_width; ow++) row[ow] = 0;
  }
}

/* The matrix of an image. pitch: floats from one row to the next. */
SL__SIMD static void gather(const struct sl__conv_windows *w, const float *image, float *matrix,
                            int64_t pitch) {
  for (int32_t c = 0; c < w->channels; c++)
    for (int32_t r = 0; r < w->kernel_h; r++)
      for (int32_t s = 0; s < w->kernel_w; s++, matrix += pitch)
        gather_row(w, image + (int64_t)c * w->height * w->width, r, s, matrix);
}

SL__INLINE void scatter_row(const struct sl__conv_windows *w, float *plane, int32_t r, int32_t s,
                            const float *row) {
  int32_t first, end;
  inside(w, s, &first, &end);
  for (int32_t oh = 0; oh < w->out_height; oh++, row += w->out_width) {
    int32_t h = row_of(w, oh, r);
    if (h < 0 || h >= w->height) continue;
    float *to = plane + (int64_t)h * w->width;
    int64_t at = (int64_t)s * w->dilation_w - w->pad_w;
    if (w->stride_w == 1)
      for (int32_t ow = first; ow < end; ow++) to[ow + at] += row[ow];
    else
      for (int32_t ow = first; ow < end; ow++) to[(int64_t)ow * w->stride_w + at] += row[ow];
  }
}

/* Adds the matrix back into the image (col2im), tap after tap: a fixed order. */
SL__SIMD static void scatter(const struct sl__conv_windows *w, const float *matrix, int64_t pitch,
                             float *image) {
  for (int32_t c = 0; c < w->channels; c++)
    for (int32_t r = 0; r < w->kernel_h; r++)
      for (int32_t s = 0; s < w->kernel_w; s++, matrix += pitch)
        scatter_row(w, image + (int64_t)c * w->height * w->width, r, s, matrix);
}

/* ---- strips -------------------------------------------------------------------------------- */

/* Rows of outputs of a strip: as many as stay in a core's cache, at least one. */
static int32_t strip_rows(const struct sl__conv_windows *w) {
  const int64_t most = 1 << 18;
  int64_t rows = most / (sl__conv_matrix_rows(w) * w->out_width);
  if (rows >= w->out_height || is_image(w)) return w->out_height;
  return rows > 1 ? (int32_t)rows : 1;
}

struct strip {
  struct sl__conv_windows windows;
  int64_t at, columns; /* the first output's place in its plane; outputs */
};

/* The strip from row `first` on. */
static struct strip strip_from(const struct sl__conv_windows *w, int32_t first) {
  struct strip s = {*w, (int64_t)first * w->out_width, 0};
  int32_t rows = strip_rows(w), left = w->out_height - first;
  s.windows.out_height = rows < left ? rows : left;
  s.windows.pad_h -= first * w->stride_h;
  s.columns = columns_of(&s.windows);
  return s;
}

static const float *matrix_of(const struct strip *s, const float *image, float *scratch) {
  if (is_image(&s->windows)) return image;
  gather(&s->windows, image, scratch, s->columns);
  return scratch;
}

/* ---- several images ------------------------------------------------------------------------ */

/* Images that share a matrix: enough columns for a fast product. */
static int64_t images_of(const struct sl__conv_windows *w, int64_t images) {
  const int64_t columns = 256, floats = 1 << 21;
  int64_t most = columns / columns_of(w), fit = floats / (sl__conv_matrix_rows(w) * columns_of(w));
  if (most > fit) most = fit;
  if (most > images) most = images;
  return most > 1 ? most : 1;
}

/* Their part of the images, and the memory of their matrix and of their planes of y side by side.
 */
struct share {
  int64_t count, columns;
  float *matrix, *planes;
};

static struct share share_from(const struct sl__conv_windows *w, int64_t images, int64_t first,
                               float *scratch) {
  int64_t most = images_of(w, images), left = images - first;
  struct share s = {most < left ? most : left, 0, scratch, NULL};
  s.columns = s.count * columns_of(w);
  s.planes = scratch + sl__conv_matrix_rows(w) * s.columns;
  return s;
}

int64_t sl__conv_matrix_scratch(const struct sl__conv_windows *w, int64_t outputs, int64_t images) {
  int64_t together = images_of(w, images);
  if (together > 1) return (sl__conv_matrix_rows(w) + outputs) * columns_of(w) * together;
  return is_image(w) ? 1 : sl__conv_matrix_rows(w) * w->out_width * strip_rows(w);
}

static void gather_images(const struct sl__conv_windows *w, const struct share *s, const float *x,
                          int64_t each) {
  for (int64_t n = 0; n < s->count; n++)
    gather(w, x + n * each, s->matrix + n * columns_of(w), s->columns);
}

/* Planes of y, side by side in a row for each output, and back. */
static void gather_planes(const struct share *s, int64_t outputs, int64_t plane, const float *y,
                          int64_t each) {
  for (int64_t k = 0; k < outputs; k++)
    for (int64_t n = 0; n < s->count; n++)
      sl__copy_row(s->planes + k * s->columns + n * plane, y + n * each + k * plane,
                   (int32_t)plane);
}

SL__SIMD static void scatter_planes(const struct share *s, int64_t outputs, int64_t plane, float *y,
                                    int64_t each, bool add) {
  for (int64_t k = 0; k < outputs; k++)
    for (int64_t n = 0; n < s->count; n++) {
      const float *from = s->planes + k * s->columns + n * plane;
      float *to = y + n * each + k * plane;
      for (int64_t i = 0; i < plane; i++) to[i] = add ? to[i] + from[i] : from[i];
    }
}

/* ---- products ------------------------------------------------------------------------------ */

static void forward_image(enum sl__gemm who, const struct sl__conv_windows *w, int64_t outputs,
                          const float *x, const float *weight, float *y, float *scratch, bool add) {
  int64_t taps = sl__conv_matrix_rows(w);
  for (int32_t row = 0; row < w->out_height; row += strip_rows(w)) {
    struct strip s = strip_from(w, row);
    sl__gemm(who, false, false, outputs, s.columns, taps, 1, weight, taps,
             matrix_of(&s, x, scratch), s.columns, add, y + s.at, columns_of(w));
  }
}

void sl__conv_matrix_forward(enum sl__gemm who, const struct sl__conv_windows *w, int64_t outputs,
                             const struct sl__conv_images *images, const float *x,
                             const float *weight, float *y, float *scratch, bool add) {
  int64_t taps = sl__conv_matrix_rows(w), plane = columns_of(w);
  for (int64_t n = 0; n < images->count;) {
    struct share s = share_from(w, images->count, n, scratch);
    if (s.count == 1) {
      forward_image(who, w, outputs, x + n * images->x, weight, y + n * images->y, scratch, add);
    } else {
      gather_images(w, &s, x + n * images->x, images->x);
      sl__gemm(who, false, false, outputs, s.columns, taps, 1, weight, taps, s.matrix, s.columns, 0,
               s.planes, s.columns);
      scatter_planes(&s, outputs, plane, y + n * images->y, images->y, add);
    }
    n += s.count;
  }
}

static void backward_data_of_image(enum sl__gemm who, const struct sl__conv_windows *w,
                                   int64_t outputs, const float *dy, const float *weight, float *dx,
                                   float *scratch, bool add) {
  int64_t taps = sl__conv_matrix_rows(w);
  bool direct = is_image(w);
  for (int32_t row = 0; row < w->out_height; row += strip_rows(w)) {
    struct strip s = strip_from(w, row);
    sl__gemm(who, true, false, taps, s.columns, outputs, 1, weight, taps, dy + s.at, columns_of(w),
             direct && add, direct ? dx : scratch, s.columns);
    if (!direct) scatter(&s.windows, scratch, s.columns, dx);
  }
}

void sl__conv_matrix_backward_data(enum sl__gemm who, const struct sl__conv_windows *w,
                                   int64_t outputs, const struct sl__conv_images *images,
                                   const float *dy, const float *weight, float *dx, float *scratch,
                                   bool add) {
  int64_t taps = sl__conv_matrix_rows(w), size = (int64_t)w->channels * w->height * w->width;
  bool overwrites = is_image(w) && images_of(w, images->count) == 1;
  for (int64_t n = 0; n < images->count && !add && !overwrites; n++)
    memset(dx + n * images->x, 0, (size_t)size * sizeof *dx);
  for (int64_t n = 0; n < images->count;) {
    struct share s = share_from(w, images->count, n, scratch);
    if (s.count == 1) {
      backward_data_of_image(who, w, outputs, dy + n * images->y, weight, dx + n * images->x,
                             scratch, add || !overwrites);
    } else {
      gather_planes(&s, outputs, columns_of(w), dy + n * images->y, images->y);
      sl__gemm(who, true, false, taps, s.columns, outputs, 1, weight, taps, s.planes, s.columns, 0,
               s.matrix, s.columns);
      for (int64_t i = 0; i < s.count; i++)
        scatter(w, s.matrix + i * columns_of(w), s.columns, dx + (n + i) * images->x);
    }
    n += s.count;
  }
}

static void backward_weight_of_image(enum sl__gemm who, const struct sl__conv_windows *w,
                                     int64_t outputs, const float *x, const float *dy, float *grad,
                                     float *scratch, bool add) {
  int64_t taps = sl__conv_matrix_rows(w);
  for (int32_t row = 0; row < w->out_height; row += strip_rows(w)) {
    struct strip s = strip_from(w, row);
    sl__gemm(who, false, true, outputs, taps, s.columns, 1, dy + s.at, columns_of(w),
             matrix_of(&s, x, scratch), s.columns, add || row, grad, taps);
  }
}

void sl__conv_matrix_backward_weight(enum sl__gemm who, const struct sl__conv_windows *w,
                                     int64_t outputs, const struct sl__conv_images *images,
                                     const float *x, const float *dy, float *grad, float *scratch,
                                     bool add) {
  int64_t taps = sl__conv_matrix_rows(w);
  for (int64_t n = 0; n < images->count;) {
    struct share s = share_from(w, images->count, n, scratch);
    if (s.count == 1) {
      backward_weight_of_image(who, w, outputs, x + n * images->x, dy + n * images->y, grad,
                               scratch, add || n);
    } else {
      gather_images(w, &s, x + n * images->x, images->x);
      gather_planes(&s, outputs, columns_of(w), dy + n * images->y, images->y);
      sl__gemm(who, false, true, outputs, taps, s.columns, 1, s.planes, s.columns, s.matrix,
               s.columns, add || n, grad, taps);
    }
    n += s.count;
  }
}
