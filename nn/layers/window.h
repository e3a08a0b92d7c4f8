/* The output shape of a window, for convolution and pooling. */
#ifndef SL_NN_LAYERS_WINDOW_H
#define SL_NN_LAYERS_WINDOW_H

#include "nn/layer.h"

struct sl__window {
  int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
  bool is_1d; /* the input is [C, L], a plane of one row */
};

/* The padding of the width, from a layer's options. */
int sl__window_pad_w(int pad_h, int pad_w, bool pad_h_only);

/* Output height and width of a window over layer->in[0] [C, H, W], or [C, L]. Returns SL_BAD_SHAPE
 * if the output would be empty; sizes must be positive, padding not negative; pad_h_only, the
 * option, excludes a padding of the width. */
enum sl_status sl__window_output(const struct sl__layer *layer, const struct sl__window *window,
                                 bool pad_h_only, int64_t *height, int64_t *width);
/* A sample of these channels: [C, H, W], or [C, L]. */
struct sl_shape sl__window_shape(const struct sl__window *window, int64_t channels, int64_t height,
                                 int64_t width);

#endif
