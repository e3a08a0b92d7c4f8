/* In a build without CUDA. */
#include "tests/gpu/gpu_custom.h"

void gpu_custom_kernels(struct sl_layer_kind *kind) { (void)kind; }
void gpu_custom_loss(struct sl_own_loss *loss) { (void)loss; }
