/* ONNX nodes of a fused activation, for all layers that have one. */
#ifndef SL_NN_LAYERS_ACTIVATION_H
#define SL_NN_LAYERS_ACTIVATION_H

#include "nn/onnx_graph.h"

/* Appends the nodes of the activation to x and returns their output; x if there is no activation.
 */
const char *sl__onnx_activated(struct sl__onnx_writer *writer, enum sl_activation activation,
                               const char *x);

#endif
