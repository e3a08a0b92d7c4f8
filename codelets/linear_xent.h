/* Arguments of the kernels of linear_xent, on CPUs and GPUs. */
#ifndef SL_CODELETS_LINEAR_XENT_H
#define SL_CODELETS_LINEAR_XENT_H

#include "codelets/softmax_xent.h"

/* Where the biases are. */
enum sl__head_bias { SL__NO_BIAS, SL__BIAS_IN_BLOCK, SL__BIAS_ALONE };

struct sl__linear_xent_args {
  struct sl__xent_args xent; /* of all rows */
  int64_t in, chunk;         /* chunk: rows whose logits exist at the same time */
  int32_t bias;              /* enum sl__head_bias */
  int32_t implementation;    /* of the products on a CPU */
};

/* A task's buffers: x, param, labels, stats; in training dx, grad and, with biases of their own,
 * their gradient; then scratch, biases of their own, class weights. */
enum { SL__HEAD_DX = 4, SL__HEAD_GRAD, SL__HEAD_BIAS_GRAD };

/* gradients: buffers between stats and scratch, 0, 2 or 3. */
SL__INLINE int sl__head_scratch(int gradients) { return SL__HEAD_DX + gradients; }
SL__INLINE int sl__head_bias(int gradients) { return sl__head_scratch(gradients) + 1; }
SL__INLINE int sl__head_weights(const struct sl__linear_xent_args *a, int gradients) {
  return sl__head_bias(gradients) + (a->bias == SL__BIAS_ALONE);
}

#endif
