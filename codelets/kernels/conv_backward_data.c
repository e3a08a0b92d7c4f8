#include "codelets/kernels/conv_backward_data.h"

#include "codelets/kernels/choice.h"
#include "codelets/kernels/conv_frame.h"
#include "codelets/kernels/direct_conv.h"
#include "codelets/kernels/tiles.h"
#include "codelets/kernels/winograd.h"
#include "core/base/simd.h"

/* Along one axis, the taps that meet the pixels of one remainder: first, first + stride, ... */
struct taps {
  int32_t first, count;
};

/* A convolution that makes the pixels of dx of one remainder. */
struct part {
  int32_t row, column; /* the remainder: the first of its pixels */
  struct taps down, across;
  struct sl__conv_args conv;
};

static struct taps taps_of(int32_t pixel, int32_t kernel, int32_t stride, int32_t pad) {
  int32_t first = (pixel + pad) % stride;
  return (struct taps){first, first < kernel ? (kernel - 1 - first) / stride + 1 : 0};
}

/* Pixel i of the remainder is output (pixel + pad - first) / stride + i, by its first tap. */
static int32_t pad_of(int32_t pixel, struct taps taps, int32_t stride, int32_t pad) {
  return taps.count - 1 - (pixel + pad - taps.first) / stride;
}

static int32_t pixels_of(int32_t size, int32_t pixel, int32_t stride) {
  return size > pixel ? (size - pixel - 1) / stride + 1 : 0;
}

static struct part part_of(const struct sl__conv_args *a, int32_t row, int32_t column) {
  struct part p = {.row = row,
                   .column = column,
                   .down = taps_of(row, a->kernel_h, a->stride_h, a->pad_h),
                   .across = taps_of(column, a->kernel_w, a->stride_w, a->pad_w)};
  p.conv = (struct sl__conv_args){.images = a->images,
                                  .channels = a->out_channels,
                                  .height = a->out_height,
                                  .width = a->out_width,
                                  .out_channels = a->channels,
                                  .out_height = pixels_of(a->height, row, a->stride_h),
                                  .out_width = pixels_of(a->width, column, a->stride_w),
                                  .kernel_h = p.down.count,
                                  .kernel_w = p.across.count,
                                  .stride_h = 1,
                                  .stride_w = 1,
                                  .pad_h = pad_of(row, p.down, a->stride_h, a->pad_h),
                                  .pad_w = pad_of(column, p.across, a->stride_w, a->pad_w),
                                  .implementation = a->implementation};
  return p;
}

static bool has_taps(const struct part *p) { return p->down.count && p->across.count; }
static bool has_pixels(const struct part *p) { return sl__conv_pixels(&p->conv) > 0; }

bool sl__conv_backward_data_fits(const struct sl__conv_args *a) {
  for (int32_t row = 0; row < a->stride_h; row++)
    for (int32_t column = 0; column < a->stride_w; column++) {
      struct part p = part_of(a, row, column);
      if (has_taps(&p) && has_pixels(&p) && !sl__conv_frame_fits(&p.conv)) return false;
    }
  return true;
}

bool sl__conv_backward_data_winograd_serves(const struct sl__conv_args *a) {
  if (a->stride_h != 1 || a->stride_w != 1) return false;
  struct part p = part_of(a, 0, 0);
  return sl__winograd_serves(&p.conv);
}

/* ---- memory ---- */

/* The kernels overwrite their outputs and know no gaps between them: other outputs go through a
 * buffer. */
static bool writes_dx(const struct sl__conv_args *a, bool add) {
  return a->stride_h == 1 && a->stride_w == 1 && !add;
}

/* Images whose outputs the buffer holds: as many as stay in a core's second cache. */
static int32_t buffered_images(const struct sl__conv_args *a) {
  const int64_t floats = 1 << 15;
  int64_t most = floats / sl__conv_x_size(a);
  return (int32_t)(most < 1 ? 1 : most < a->images ? most : a->images);
}

/* Offsets in the scratch memory; the kernel's own follows. */
struct layout {
  int64_t buffer, own;
};

static struct layout layout_of(const struct sl__conv_args *a) {
  struct layout l;
  l.buffer = sl__whole_lines(a->out_channels * sl__conv_taps(a));
  l.own = l.buffer + sl__whole_lines(buffered_images(a) * sl__conv_x_size(a));
  return l;
}

int64_t sl__conv_backward_data_scratch(const struct sl__conv_args *a) {
  int64_t most = 0;
  for (int32_t row = 0; row < a->stride_h; row++)
    for (int32_t column = 0; column < a->stride_w; column++) {
      struct part p = part_of(a, row, column);
      if (!has_taps(&p) || !has_pixels(&p)) continue;
      int64_t floats = a->implementation == SL__WINOGRAD ? sl__winograd_scratch(&p.conv, false)
                                                         : sl__direct_conv_scratch(&p.conv);
      if (floats > most) most = floats;
    }
  return layout_of(a).own + most;
}

/* ---- one part ---- */

/* to [C, K, taps down, taps across] from weight [K, C, R, S]. */
static void rotate(const struct sl__conv_args *a, const struct part *p, const float *weight,
                   float *to) {
  int64_t taps = (int64_t)p->down.count * p->across.count;
  int32_t bottom = p->down.first + (p->down.count - 1) * a->stride_h;
  int32_t right = p->across.first + (p->across.count - 1) * a->stride_w;
  for (int64_t k = 0; k < a->out_channels; k++)
    for (int64_t c = 0; c < a->channels; c++, weight += a->kernel_h * a->kernel_w) {
      float *filter = to + (c * a->out_channels + k) * taps;
      for (int32_t r = bottom; r >= 0; r -= a->stride_h)
        for (int32_t s = right; s >= 0; s -= a->stride_w) *filter++ = weight[r * a->kernel_w + s];
    }
}

/* A row of a part's outputs. */
SL__INLINE void put_row(float *restrict to, const float *restrict from, int32_t count,
                        int32_t stride, bool add) {
  if (stride == 1 && add)
    for (int32_t i = 0; i < count; i++) to[i] += from[i];
  else if (stride == 1)
    for (int32_t i = 0; i < count; i++) to[i] = from[i];
  else if (add)
    for (int32_t i = 0; i < count; i++) to[(int64_t)i * stride] += from[i];
  else
    for (int32_t i = 0; i < count; i++) to[(int64_t)i * stride] = from[i];
}

/* The outputs of some images, from the buffer to their places in dx. */
SL__SIMD static void put(const struct sl__conv_args *a, const struct part *p, int32_t images,
                         const float *from, float *dx, bool add) {
  int32_t rows = p->conv.out_height, columns = p->conv.out_width;
  int64_t plane = (int64_t)a->height * a->width;
  dx += (int64_t)p->row * a->width + p->column;
  for (int64_t i = 0; i < (int64_t)images * a->channels; i++, dx += plane) {
    float *to = dx;
    for (int32_t r = 0; r < rows; r++, from += columns, to += (int64_t)a->stride_h * a->width)
      put_row(to, from, columns, a->stride_w, add);
  }
}

static void clear(const struct sl__conv_args *a, const struct part *p, float *dx) {
  int64_t rows = (int64_t)a->images * a->channels * a->height, height = a->height;
  for (int64_t row = 0; row < rows; row++)
    for (int32_t w = p->column; w < a->width && row % height % a->stride_h == p->row;
         w += a->stride_w)
      dx[row * a->width + w] = 0;
}

static void convolve(const struct sl__conv_args *conv, const float *dy, const float *weight,
                     float *to, float *scratch, int most_lanes) {
  static const struct sl__conv_epilogue nothing;
  bool planes;
  if (conv->implementation == SL__WINOGRAD) {
    struct sl__work_range all = {0, sl__winograd_units(conv, &planes, most_lanes)};
    sl__winograd_forward(conv, dy, weight, false, NULL, &nothing, to, scratch, all, most_lanes);
  } else {
    struct sl__work_range all = {0, sl__direct_conv_units(conv, &planes, most_lanes)};
    sl__direct_conv_forward(conv, dy, weight, NULL, &nothing, to, scratch, all, most_lanes);
  }
}

static void run_part(const struct sl__conv_args *a, struct part *p, const float *dy,
                     const float *weight, float *dx, float *scratch, bool add, int most_lanes) {
  struct layout at = layout_of(a);
  float *buffer = scratch + at.buffer;
  bool direct = writes_dx(a, add);
  int32_t most = direct ? a->images : buffered_images(a);
  rotate(a, p, weight, scratch);
  for (int32_t n = 0; n < a->images; n += p->conv.images) {
    float *of_images = dx + n * sl__conv_x_size(a);
    p->conv.images = a->images - n < most ? a->images - n : most;
    convolve(&p->conv, dy + n * sl__conv_y_size(a), scratch, direct ? of_images : buffer,
             scratch + at.own, most_lanes);
    if (!direct) put(a, p, p->conv.images, buffer, of_images, add);
  }
}

void sl__conv_backward_data(const struct sl__conv_args *a, const float *dy, const float *weight,
                            float *dx, float *scratch, bool add, int most_lanes) {
  for (int32_t row = 0; row < a->stride_h; row++)
    for (int32_t column = 0; column < a->stride_w; column++) {
      struct part p = part_of(a, row, column);
      if (!has_pixels(&p)) continue;
      if (has_taps(&p))
        run_part(a, &p, dy, weight, dx, scratch, add, most_lanes);
      else if (!add)
        clear(a, &p, dx);
    }
}
