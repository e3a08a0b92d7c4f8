#include "codelets/kernels/conv_backward_data.h"

#include <string.h>

#include "codelets/kernels/choice.h"
#include "codelets/kernels/conv_forward.h"
#include "codelets/kernels/conv_frame.h"
#include "codelets/kernels/conv_scatter.h"
#include "codelets/kernels/tiles.h"
#include "codelets/kernels/winograd.h"
#include "codelets/kernels/winograd_backward_data.h"
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

/* Pixel i of the remainder is output (pixel + pad - first) / stride + i, by its first tap. gap: 0,
 * or the stride is 1. */
static int32_t pad_of(int32_t pixel, struct taps taps, int32_t stride, int32_t pad, int32_t gap) {
  return (taps.count - 1) * (gap + 1) - (pixel + pad - taps.first) / stride;
}

static int32_t pixels_of(int32_t size, int32_t pixel, int32_t stride) {
  return size > pixel ? (size - pixel - 1) / stride + 1 : 0;
}

static struct part part_of(const struct sl__conv_args *a, int32_t row, int32_t column) {
  struct part p = {.row = row,
                   .column = column,
                   .down = taps_of(row, a->kernel_h, a->stride_h, a->pad_h),
                   .across = taps_of(column, a->kernel_w, a->stride_w, a->pad_w)};
  p.conv =
      (struct sl__conv_args){.images = a->images,
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
                             .pad_h = pad_of(row, p.down, a->stride_h, a->pad_h, a->gap_h),
                             .pad_w = pad_of(column, p.across, a->stride_w, a->pad_w, a->gap_w),
                             .implementation = a->implementation,
                             .gap_h = a->gap_h,
                             .gap_w = a->gap_w};
  return p;
}

static bool has_taps(const struct part *p) { return p->down.count && p->across.count; }

/* Floats of a part's filters, and of its outputs of some images. */
static int64_t filter_floats(const struct part *p) {
  return p->conv.out_channels * sl__conv_taps(&p->conv);
}
static int64_t output_floats(const struct part *p, int32_t images) {
  return (int64_t)images * p->conv.out_channels * sl__conv_pixels(&p->conv);
}

/* The remainders of rows, and of columns, that have a pixel. */
static int32_t remainders(int32_t stride, int32_t size) { return stride < size ? stride : size; }

bool sl__conv_backward_data_pays(const struct sl__conv_args *a) {
  bool strides = a->stride_h > 1 || a->stride_w > 1;
  if (a->kernel_h == 1 && a->kernel_w == 1 && !a->pad_h && !a->pad_w)
    return strides && a->out_channels < 64;
  if (sl__conv_pixels(a) == 1 || sl__conv_waits_for_weights(a, 16)) return false;
  bool is_dilated = a->gap_h || a->gap_w; /* conv_scatter.h does not serve those */
  if (is_dilated && (double)a->height * a->width > 2 * (double)sl__conv_pixels(a)) return false;
  return !strides || (a->channels >= 8 && (sl__conv_pixels(a) > 16 || a->out_channels < 256));
}

bool sl__conv_backward_data_fits(const struct sl__conv_args *a) {
  if ((a->gap_h && a->stride_h > 1) || (a->gap_w && a->stride_w > 1)) return false;
  for (int32_t row = 0; row < remainders(a->stride_h, a->height); row++)
    for (int32_t column = 0; column < remainders(a->stride_w, a->width); column++) {
      struct part p = part_of(a, row, column);
      if (has_taps(&p) && !sl__conv_frame_fits(&p.conv)) return false;
    }
  return true;
}

bool sl__conv_backward_data_winograd_serves(const struct sl__conv_args *a) {
  if (a->stride_h != 1 || a->stride_w != 1) return false;
  struct part p = part_of(a, 0, 0);
  return sl__winograd_backward_data_serves(a) ||
         (sl__winograd_serves(&p.conv) && !sl__conv_scatter_pays(a));
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

static bool goes_by_taps(const struct sl__conv_args *a) {
  return a->implementation == SL__OWN && sl__conv_scatter_pays(a);
}

static bool goes_by_tiles(const struct sl__conv_args *a) {
  return a->implementation == SL__WINOGRAD && sl__winograd_backward_data_serves(a);
}

int64_t sl__conv_backward_data_scratch(const struct sl__conv_args *a) {
  int64_t most = 0;
  if (goes_by_taps(a)) return sl__conv_scatter_scratch(a);
  if (goes_by_tiles(a)) return sl__winograd_backward_data_scratch(a);
  for (int32_t row = 0; row < remainders(a->stride_h, a->height); row++)
    for (int32_t column = 0; column < remainders(a->stride_w, a->width); column++) {
      struct part p = part_of(a, row, column);
      if (!has_taps(&p)) continue;
      int64_t floats = sl__conv_forward_scratch(&p.conv);
      if (floats > most) most = floats;
    }
  return layout_of(a).own + most;
}

/* ---- the parts ---- */

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

/* Outputs of some images, from the buffer to their places in dx. */
struct place {
  const struct sl__conv_args *args;
  int32_t images, row, column, rows, columns; /* the remainders; pixels */
  float *dx;
  bool add;
};

SL__INLINE void put_row(float *restrict to, const float *restrict from, int32_t count,
                        int32_t stride, const bool add) {
  for (int32_t i = 0; i < count; i++)
    to[(int64_t)i * stride] = add ? to[(int64_t)i * stride] + from[i] : from[i];
}

/* The columns of both remainders of a stride of 2. */
SL__INLINE void put_pairs(float *restrict to, const float *restrict even, const float *restrict odd,
                          int32_t width, const bool add) {
  int32_t pairs = width / 2;
  for (int32_t i = 0; i < pairs; i++) {
    to[2 * i] = add ? to[2 * i] + even[i] : even[i];
    to[2 * i + 1] = add ? to[2 * i + 1] + odd[i] : odd[i];
  }
  if (width % 2) to[width - 1] = add ? to[width - 1] + even[pairs] : even[pairs];
}

/* odd: the outputs of the other columns, if the stride is 2; or NULL. */
SL__INLINE void put_rows(const struct place *p, const float *from, const float *odd,
                         const int32_t stride_w, const bool add) {
  const struct sl__conv_args *a = p->args;
  int64_t plane = (int64_t)a->height * a->width, below = (int64_t)a->stride_h * a->width;
  float *dx = p->dx + (int64_t)p->row * a->width + p->column;
  for (int64_t i = 0; i < (int64_t)p->images * a->channels; i++, dx += plane) {
    float *to = dx;
    for (int32_t r = 0; r < p->rows; r++, from += p->columns, to += below) {
      if (odd)
        put_pairs(to, from, odd, a->width, add);
      else
        put_row(to, from, p->columns, stride_w, add);
      if (odd) odd += a->width - p->columns;
    }
  }
}

SL__SIMD static void put(const struct place *p, const float *from, const float *odd) {
  int32_t stride = p->args->stride_w;
  if (odd && p->add)
    put_rows(p, from, odd, 2, true);
  else if (odd)
    put_rows(p, from, odd, 2, false);
  else if (stride == 1 && p->add)
    put_rows(p, from, NULL, 1, true);
  else
    put_rows(p, from, NULL, stride, p->add);
}

/* The filters of all parts, one after the other. */
static void rotate_all(const struct sl__conv_args *a, const float *weight, float *to) {
  for (int32_t row = 0; row < remainders(a->stride_h, a->height); row++)
    for (int32_t column = 0; column < remainders(a->stride_w, a->width); column++) {
      struct part p = part_of(a, row, column);
      if (!has_taps(&p)) continue;
      rotate(a, &p, weight, to);
      to += filter_floats(&p);
    }
}

/* The memory of a call: filters, outputs, and the kernels' own. */
struct memory {
  float *filters, *buffer, *own;
};

/* All pixels of some images in rows of one remainder. Returns the next one's filters. */
static const float *run_rows(const struct sl__conv_args *a, struct place *place, const float *dy,
                             const float *filters, const struct memory *m, int most_lanes) {
  bool has_pairs = a->stride_w == 2 && a->width > 1, is_empty = true;
  float *to = m->buffer;
  for (int32_t column = 0; column < remainders(a->stride_w, a->width); column++) {
    struct part p = part_of(a, place->row, column);
    p.conv.images = place->images;
    if (has_taps(&p)) {
      sl__conv_forward(&p.conv, dy, filters, NULL, to, m->own, most_lanes);
      filters += filter_floats(&p);
      is_empty = false;
    } else {
      memset(to, 0, (size_t)output_floats(&p, place->images) * sizeof *to);
    }
    place->rows = p.conv.out_height;
    if (has_pairs) {
      if (column == 0) place->columns = p.conv.out_width;
      to += output_floats(&p, place->images);
    } else if (has_taps(&p) || !place->add) {
      place->column = column;
      place->columns = p.conv.out_width;
      put(place, to, NULL);
    }
  }
  place->column = 0;
  if (has_pairs && !(is_empty && place->add))
    put(place, m->buffer,
        m->buffer + (int64_t)place->images * a->channels * place->rows * place->columns);
  return filters;
}

static void run_images(const struct sl__conv_args *a, int32_t images, const float *dy, float *dx,
                       const struct memory *m, bool add, int most_lanes) {
  const float *filters = m->filters;
  struct place place = {.args = a, .images = images, .dx = dx, .add = add};
  for (; place.row < remainders(a->stride_h, a->height); place.row++)
    filters = run_rows(a, &place, dy, filters, m, most_lanes);
}

void sl__conv_backward_data(const struct sl__conv_args *a, const float *dy, const float *weight,
                            float *dx, float *scratch, bool add, int most_lanes) {
  if (goes_by_taps(a)) {
    sl__conv_scatter(a, dy, weight, dx, scratch, add, most_lanes);
    return;
  }
  if (goes_by_tiles(a)) {
    sl__winograd_backward_data(a, dy, weight, dx, scratch, add, most_lanes);
    return;
  }
  struct layout at = layout_of(a);
  struct memory m = {scratch, scratch + at.buffer, scratch + at.own};
  struct part whole = part_of(a, 0, 0);
  int32_t most = buffered_images(a);
  rotate_all(a, weight, m.filters);
  if (writes_dx(a, add)) {
    sl__conv_forward(&whole.conv, dy, m.filters, NULL, dx, m.own, most_lanes);
    return;
  }
  for (int32_t n = 0; n < a->images; n += most)
    run_images(a, a->images - n < most ? a->images - n : most, dy + n * sl__conv_y_size(a),
               dx + n * sl__conv_x_size(a), &m, add, most_lanes);
}
