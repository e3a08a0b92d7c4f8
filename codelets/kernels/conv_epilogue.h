/* What outputs of a convolution go through while they are in the cache. */
#ifndef SL_CODELETS_KERNELS_CONV_EPILOGUE_H
#define SL_CODELETS_KERNELS_CONV_EPILOGUE_H

#include "codelets/activation.h"
#include "codelets/kernels/conv.h"

/* Of a whole batch: normalisation, where there is a scale, [K] each; a sum, where there is a
 * residual, as y; the activation of the arguments. */
struct sl__conv_epilogue {
  const float *mean, *scale, *shift, *residual;
};

/* Of some channels the same run of values each, `plane` apart. The pointers are those of the first
 * channel and value. */
struct sl__runs {
  int64_t channels, plane, count;
  float *y;
  struct sl__conv_epilogue after;
};

/* Channels [first, end) of an image's planes, whole; y and after: that image's. */
struct sl__runs sl__runs_of(const struct sl__conv_args *a, const struct sl__conv_epilogue *after,
                            float *y, int64_t first, int64_t end);

/* These of r's values, counted in each plane. */
void sl__conv_epilogue_apply(const struct sl__runs *r, enum sl_activation activation, int64_t from,
                             int64_t end);

#endif
