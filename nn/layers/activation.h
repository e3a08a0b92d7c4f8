/* What layers with a fused activation share when they are written as ONNX. */
#ifndef SL_NN_LAYERS_ACTIVATION_H
#define SL_NN_LAYERS_ACTIVATION_H

#include "nn/onnx_graph.h"

/* A fused activation of x, or x where it is none. */
const char *sl__onnx_activated(struct sl__onnx_writer *writer, enum sl_activation activation,
                               const char *x);

#endif
