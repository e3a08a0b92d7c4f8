#include "codelets/kernels/conv_matrix.h"

#include "codelets/kernels/conv.h"

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

SL__SIMD static void gather(const struct sl__conv_windows *w, const float *image, float *matrix) {
  for (int32_t c = 0; c < w->channels; c++)
    for (int32_t r = 0; r < w->kernel_h; r++)
      for (int32_t s = 0; s < w->kernel_w; s++, matrix += sl__conv_matrix_columns(w))
        gather_row(w, image + (int64_t)c * w->height * w->width, r, s, matrix);
}

const float *sl__conv_matrix(const struct sl__conv_windows *w, const float *image, float *room) {
  if (sl__conv_matrix_is_image(w)) return image;
  gather(w, image, room);
  return room;
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

SL__SIMD static void scatter(const struct sl__conv_windows *w, const float *matrix, float *image) {
  for (int32_t c = 0; c < w->channels; c++)
    for (int32_t r = 0; r < w->kernel_h; r++)
      for (int32_t s = 0; s < w->kernel_w; s++, matrix += sl__conv_matrix_columns(w))
        scatter_row(w, image + (int64_t)c * w->height * w->width, r, s, matrix);
}

void sl__conv_matrix_add(const struct sl__conv_windows *w, const float *matrix, float *image) {
  scatter(w, matrix, image);
}
