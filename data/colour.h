/* Random colours of pictures [C, H, W], whatever the kind of their dataset: brightness, contrast,
 * saturation and hue, by the formulas of torchvision's ColorJitter (torchvision 0.20,
 * transforms/v2/functional/_color.py). */
#ifndef SL_DATA_COLOUR_H
#define SL_DATA_COLOUR_H

#include <starling/data.h>

enum { SL__COLOUR_CHANGES = 4 };

/* How a picture's colours change. */
struct sl__colour {
  float brightness, contrast, saturation; /* factors; 1: as it is */
  float hue;                              /* turn of the hue's circle, -0.5 to 0.5; 0: as it is */
  int order[SL__COLOUR_CHANGES]; /* which comes first, ...: 0 brightness, ... 3 hue, a permutation
                                  */
};

/* Do the options change colours at all? */
bool sl__colour_wanted(const struct sl_loader_options *options);

/* SL_BAD_ARGUMENT for strengths that are none, and for samples that are no pictures. */
enum sl_status sl__colour_check(const struct sl_dataset_info *info,
                                const struct sl_loader_options *options);

/* Draws the changes of sample i in an epoch. */
struct sl__colour sl__colour_draw(const struct sl_loader_options *options, int64_t epoch,
                                  int64_t i);

/* Changes a normalised picture of this shape, 1 or 3 channels, in place. \return false, with
 * *value, if one of its values is not from 0 to 1 before normalisation. */
bool sl__colour_change(const struct sl_dataset_info *info, const struct sl_shape *shape,
                       const struct sl__colour *colour, float *picture, float *value);

#endif
