/* Augmentation of images [C, H, W], whatever the kind of their dataset. */
#ifndef SL_DATA_AUGMENT_H
#define SL_DATA_AUGMENT_H

#include <starling/data.h>

/* How an image is shown: mirrored, then shifted by (dy, dx) pixels. */
struct sl__view {
  int dy, dx;
  bool mirror;
};

/* Changes a normalised image in place. Pixels outside the image are 0 before normalisation. plane:
 * scratch memory for one channel. */
void sl__augment(const struct sl_dataset_info *info, const struct sl__view *view, float *plane,
                 float *image);

#endif
