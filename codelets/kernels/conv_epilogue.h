/* The convolution epilogue: batch normalisation, residual sum and activation of a convolution's
 * outputs while they are in the first-level cache. */
#ifndef SL_CODELETS_KERNELS_CONV_EPILOGUE_H
#define SL_CODELETS_KERNELS_CONV_EPILOGUE_H

#include "codelets/activation.h"
#include "codelets/kernels/conv.h"

/* For a whole batch. Normalises if scale is not NULL (mean, scale, shift: [K] each), adds residual
 * if it is not NULL (shape of y), then applies the activation of the arguments. */
struct sl__conv_epilogue {
  const float *mean, *scale, *shift, *residual;
};

/* The same run of values in each of several channels, whose planes are `plane` floats apart. The
 * pointers belong to the first channel and value. */
struct sl__runs {
  int64_t channels, plane, count;
  float *y;
  struct sl__conv_epilogue epilogue;
};

/* Whole planes of the channels [first, end) of an image; y and epilogue belong to that image. */
struct sl__runs sl__runs_of(const struct sl__conv_args *a, const struct sl__conv_epilogue *epilogue,
                            float *y, int64_t first, int64_t end);

/* Applies the epilogue to the values [from, end) of each plane in r. */
void sl__conv_epilogue_apply(const struct sl__runs *r, enum sl_activation activation, int64_t from,
                             int64_t end);

#endif
