/* The CUDA halves of gpu_cases.c's own layer kind and losses. */
#ifndef SL_TESTS_GPU_GPU_CUSTOM_H
#define SL_TESTS_GPU_GPU_CUSTOM_H

#include <starling/layer.h>

void gpu_custom_kernels(struct sl_layer_kind *kind);
void gpu_custom_loss(struct sl_own_loss *loss);

#endif
