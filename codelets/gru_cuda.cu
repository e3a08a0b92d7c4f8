/* GRU on a GPU: gru.h has a cell's arithmetic, recurrent_cuda.h the rest. */
#include "codelets/gru.h"

#include "codelets/kernels/recurrent_cuda.h"

namespace {
struct gru {
  static constexpr int GATES = 3, STATES = 1, SAVED = 5, TOGETHER = 2;
  static constexpr bool PASSES_BY = true; /* z h */

  __device__ static void forward(const float *by_x, const float *by_h, const float *b_ih,
                                 const float *b_hh, float *row, float *state) {
    for (int g = 0; g < 2; g++) row[g] = by_x[g] + by_h[g];
    row[2] = by_x[2];
    row[3] = by_h[2];
    sl__gru_forward_cell(0, 1, row, b_ih, b_hh, state);
  }
  __device__ static void backward(float *row, float *dstate) {
    sl__gru_backward_cell(0, 1, row, dstate);
  }
};
}  // namespace

SL__RECURRENT(gru, gru)
