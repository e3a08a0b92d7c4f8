/* The output shape of a window, for convolution and pooling. */
#ifndef SL_NN_LAYERS_WINDOW_H
#define SL_NN_LAYERS_WINDOW_H

#include "nn/layer.h"

struct sl__window {
  int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
};

/* The padding of the width, from a layer's options. */
int sl__window_pad_w(int pad_h, int pad_w, bool pad_h_only);

/* Output height and width of a window over layer->in[0] [C, H, W]. Returns SL_BAD_SHAPE if the
 * output would be empty; sizes must be positive, padding not negative; pad_h_only, the option,
 * excludes a padding of the width. */
enum sl_status sl__window_output(const struct sl__layer *layer, const struct sl__window *window,
                                 bool pad_h_only, int64_t *height, int64_t *width);

#endif
