/* In a build without CUDA. */
#include "tests/gpu/gpu_custom.h"

void gpu_custom_kernels(struct sl_layer_kind *kind) { (void)kind; }
