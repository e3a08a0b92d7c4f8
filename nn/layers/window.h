/* The output shape of a window, for convolution and pooling. */
#ifndef SL_NN_LAYERS_WINDOW_H
#define SL_NN_LAYERS_WINDOW_H

#include "nn/layer.h"

struct sl__window {
  int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
};

/* Output height and width of a window over layer->in[0] [C, H, W]. Returns SL_BAD_SHAPE if the
 * output would be empty; sizes must be positive, padding not negative. */
enum sl_status sl__window_output(const struct sl__layer *layer, const struct sl__window *window,
                                 int64_t *height, int64_t *width);

#endif
