#include "nn/layers/axes.h"

enum sl_status sl__axes_mask(const struct sl__layer *layer, const struct sl_shape *axes,
                             uint32_t *mask) {
  char text[96];
  *mask = 0;
  for (int i = 0; i < axes->ndim; i++) {
    if (axes->dim[i] < 0 || axes->dim[i] >= layer->in[0].ndim || *mask >> axes->dim[i] & 1)
      return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                            "axes are %s; name axes of its input, 0 to %d, each once",
                            sl_shape_text(axes, text, sizeof text), layer->in[0].ndim - 1);
    *mask |= 1u << axes->dim[i];
  }
  return SL_OK;
}
