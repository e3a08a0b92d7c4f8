/* Lists of a sample's axes among a layer's options. */
#ifndef SL_NN_LAYERS_AXES_H
#define SL_NN_LAYERS_AXES_H

#include "nn/layer.h"

/* A mask with bit d for axis d of the layer's input. SL_BAD_ARGUMENT for an axis that the input
 * does not have, or one that is there twice. */
enum sl_status sl__axes_mask(const struct sl__layer *layer, const struct sl_shape *axes,
                             uint32_t *mask);

#endif
