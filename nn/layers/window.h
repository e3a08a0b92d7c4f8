/* What convolution and pooling share: the shape of a window's output. */
#ifndef SL_NN_LAYERS_WINDOW_H
#define SL_NN_LAYERS_WINDOW_H

#include "nn/layer.h"

struct sl__window {
  int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
};

/* Output height and width of a window over layer->in[0] [C, H, W]. SL_BAD_SHAPE where there is
 * none; the sizes must be positive, the padding not negative. */
enum sl_status sl__window_output(const struct sl__layer *layer, const struct sl__window *window,
                                 int64_t *height, int64_t *width);

#endif
