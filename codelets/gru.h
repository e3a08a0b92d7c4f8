/* GRU: what CPU and CUDA compute per element of a time step. */
#ifndef SL_CODELETS_GRU_H
#define SL_CODELETS_GRU_H

#include "codelets/activation.h"
#include "codelets/kernels/recurrent.h"

/* saved [N, T, 5H], a row: the gates r, z, n and the state's part q of n (after the backward pass:
 * their gradients before the activation), then h of the step before. */

/* One row's step. row: [0, 2H) both products of r and z, then the input's product of n, the state's
 * product of n; the function updates h. */
SL__HOST_DEVICE SL__INLINE void sl__gru_forward_cell(int64_t j, int64_t hidden, float *row,
                                                     const float *b_ih, const float *b_hh,
                                                     float *h) {
  float r = sl__sigmoid(row[j] + b_ih[j] + b_hh[j]);
  float z = sl__sigmoid(row[hidden + j] + b_ih[hidden + j] + b_hh[hidden + j]);
  float q = row[3 * hidden + j] + b_hh[2 * hidden + j];
  float n = sl__tanh(row[2 * hidden + j] + b_ih[2 * hidden + j] + r * q);
  row[j] = r;
  row[hidden + j] = z;
  row[2 * hidden + j] = n;
  row[3 * hidden + j] = q;
  row[4 * hidden + j] = h[j];
  h[j] = (1 - z) * n + z * h[j];
}

/* dh: gradient of this step's h; becomes the part of the step before's that passes through no
 * matrix. */
SL__HOST_DEVICE SL__INLINE void sl__gru_backward_cell(int64_t j, int64_t hidden, float *row,
                                                      float *dh) {
  float r = row[j], z = row[hidden + j], n = row[2 * hidden + j], q = row[3 * hidden + j];
  float before = row[4 * hidden + j], d = dh[j], dn = d * (1 - z) * (1 - n * n);
  row[j] = dn * q * r * (1 - r);
  row[hidden + j] = d * (before - n) * z * (1 - z);
  row[2 * hidden + j] = dn;
  row[3 * hidden + j] = dn * r;
  dh[j] = d * z;
}

#endif
