#include "nn/layers/window.h"

int sl__window_pad_w(int pad_h, int pad_w, bool pad_h_only) {
  return pad_w || pad_h_only ? pad_w : pad_h;
}

enum sl_status sl__window_output(const struct sl__layer *layer, const struct sl__window *w,
                                 bool pad_h_only, int64_t *height, int64_t *width) {
  char text[96];
  const struct sl_shape *in = &layer->in[0];
  enum sl_status status = sl__input_alone(layer);
  if (status != SL_OK) return status;
  if (in->ndim != (w->is_1d ? 2 : 3))
    return sl__layer_fail(layer, SL_BAD_SHAPE, "takes %s, not %s",
                          w->is_1d ? "[C, L]" : "[C, H, W]", sl_shape_text(in, text, sizeof text));
  if (w->kernel_h < 1 || w->kernel_w < 1 || w->stride_h < 1 || w->stride_w < 1)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                          "kernel %dx%d and stride %dx%d must be at least 1", w->kernel_h,
                          w->kernel_w, w->stride_h, w->stride_w);
  if (pad_h_only && w->pad_w)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT, "pad_h_only is set, and pad_w is %d; use one",
                          w->pad_w);
  if (w->pad_h < 0 || w->pad_w < 0 || w->pad_h >= w->kernel_h || w->pad_w >= w->kernel_w)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                          "padding %dx%d must be from 0 to below the kernel's %dx%d", w->pad_h,
                          w->pad_w, w->kernel_h, w->kernel_w);
  int64_t rows = (w->is_1d ? 1 : in->dim[1]) + 2 * (int64_t)w->pad_h,
          columns = in->dim[in->ndim - 1] + 2 * (int64_t)w->pad_w;
  int64_t h = rows - w->kernel_h, v = columns - w->kernel_w;
  if (h < 0 || v < 0)
    return sl__layer_fail(layer, SL_BAD_SHAPE,
                          "a %dx%d window does not fit into %s with padding %dx%d", w->kernel_h,
                          w->kernel_w, sl_shape_text(in, text, sizeof text), w->pad_h, w->pad_w);
  if (rows > INT32_MAX / columns) /* the operations count in 32 bits inside a plane */
    return sl__layer_fail(
        layer, SL_BAD_SHAPE,
        "a plane with its padding is %lldx%lld, more than 2147483647 values; take "
        "a smaller input or padding",
        (long long)rows, (long long)columns);
  *height = h / w->stride_h + 1;
  *width = v / w->stride_w + 1;
  return SL_OK;
}

struct sl_shape sl__window_shape(const struct sl__window *w, int64_t channels, int64_t height,
                                 int64_t width) {
  return w->is_1d ? SL_SHAPE(channels, width) : SL_SHAPE(channels, height, width);
}
