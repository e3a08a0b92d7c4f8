/* Augmentation of images [C, H, W], whatever the kind of their dataset. */
#ifndef SL_DATA_AUGMENT_H
#define SL_DATA_AUGMENT_H

#include <starling/data.h>

/* How an image is shown: mirrored, then shifted by (dy, dx) pixels. */
struct sl__view {
  int64_t top, left; /* of the window, where the image is cropped */
  int dy, dx;
  bool mirror;
};

/* Copies the view's window, of this shape, out of an image of the shape `whole`. */
void sl__crop(const struct sl_shape *whole, const struct sl__view *view,
              const struct sl_shape *window, const float *image, float *values);

/* Mirrors and shifts a normalised image of this shape in place. Pixels outside the image are 0
 * before normalisation. plane: scratch memory for one channel. */
void sl__augment(const struct sl_dataset_info *info, const struct sl_shape *shape,
                 const struct sl__view *view, float *plane, float *image);

#endif
