#include "data/augment.h"

#include <string.h>

/* One row of width values. source NULL: the whole row lies outside the image. */
static void view_row(const float *source, int64_t width, const struct sl__view *view, float outside,
                     float *values) {
  for (int64_t x = 0; x < width; x++) {
    int64_t from = x - view->dx;
    bool inside = source && from >= 0 && from < width;
    if (view->mirror) from = width - 1 - from;
    values[x] = inside ? source[from] : outside;
  }
}

void sl__crop(const struct sl_shape *whole, const struct sl__view *view,
              const struct sl_shape *window, const float *image, float *values) {
  const int64_t *from = whole->dim, *to = window->dim;
  for (int64_t c = 0; c < to[0]; c++)
    for (int64_t y = 0; y < to[1]; y++, values += to[2])
      memcpy(values, image + (c * from[1] + view->top + y) * from[2] + view->left,
             (size_t)to[2] * sizeof *values);
}

void sl__augment(const struct sl_dataset_info *info, const struct sl_shape *shape,
                 const struct sl__view *view, float *plane, float *image) {
  const int64_t *dim = shape->dim;
  size_t size = (size_t)(dim[1] * dim[2]);
  if (!view->dy && !view->dx && !view->mirror) return;
  for (int64_t c = 0; c < dim[0]; c++, image += size) {
    int64_t channel = info->channels > 1 ? c : 0;
    float outside = (0.0f - info->mean[channel]) / info->deviation[channel];
    memcpy(plane, image, size * sizeof *image);
    for (int64_t y = 0; y < dim[1]; y++) {
      int64_t from = y - view->dy;
      view_row(from >= 0 && from < dim[1] ? plane + from * dim[2] : NULL, dim[2], view, outside,
               image + y * dim[2]);
    }
  }
}
