/* LSTM: what CPU and CUDA compute per element of a time step. */
#ifndef SL_CODELETS_LSTM_H
#define SL_CODELETS_LSTM_H

#include "codelets/activation.h"
#include "codelets/kernels/recurrent.h"

/* saved [N, T, 6H], a row: the gates i, f, g, o (after the backward pass: their gradients before
 * the activation), then c and h of the step before. */

/* One row's step: gates before their activation in row[0..4H). The function updates c and writes
 * this step's h to `h`. The h of the step before is already in its place. */
SL__HOST_DEVICE SL__INLINE void sl__lstm_forward_unit(int64_t j, int64_t hidden, float *row,
                                                      const float *b_ih, const float *b_hh,
                                                      float *h, float *c) {
  float i = sl__sigmoid(row[j] + b_ih[j] + b_hh[j]);
  float f = sl__sigmoid(row[hidden + j] + b_ih[hidden + j] + b_hh[hidden + j]);
  float g = sl__tanh(row[2 * hidden + j] + b_ih[2 * hidden + j] + b_hh[2 * hidden + j]);
  float o = sl__sigmoid(row[3 * hidden + j] + b_ih[3 * hidden + j] + b_hh[3 * hidden + j]);
  float before = c[j], after = f * before + i * g;
  row[j] = i;
  row[hidden + j] = f;
  row[2 * hidden + j] = g;
  row[3 * hidden + j] = o;
  row[4 * hidden + j] = before;
  c[j] = after;
  h[j] = o * sl__tanh(after);
}

/* The same where the state's h, then c, are both updated. */
SL__HOST_DEVICE SL__INLINE void sl__lstm_forward_cell(int64_t j, int64_t hidden, float *row,
                                                      const float *b_ih, const float *b_hh,
                                                      float *h, float *c) {
  row[5 * hidden + j] = h[j];
  sl__lstm_forward_unit(j, hidden, row, b_ih, b_hh, h, c);
}

/* row: as saved; its gates become their gradients before the activation. dh, dc: gradients of this
 * step's h (its y's gradient included) and c; dc becomes that of the step before. */
SL__HOST_DEVICE SL__INLINE void sl__lstm_backward_cell(int64_t j, int64_t hidden, float *row,
                                                       const float *dh, float *dc) {
  float i = row[j], f = row[hidden + j], g = row[2 * hidden + j], o = row[3 * hidden + j];
  float before = row[4 * hidden + j], t = sl__tanh(f * before + i * g);
  float d = dc[j] + dh[j] * o * (1 - t * t);
  row[j] = d * g * i * (1 - i);
  row[hidden + j] = d * before * f * (1 - f);
  row[2 * hidden + j] = d * i * (1 - g * g);
  row[3 * hidden + j] = dh[j] * t * o * (1 - o);
  dc[j] = d * f;
}

#endif
