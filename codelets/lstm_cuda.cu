/* LSTM on a GPU: lstm.h has a cell's arithmetic, recurrent_cuda.h the rest. */
#include "codelets/lstm.h"

#include "codelets/kernels/recurrent_cuda.h"

namespace {
struct lstm {
  static constexpr int GATES = 4, STATES = 2, SAVED = 6, TOGETHER = 4;
  static constexpr bool PASSES_BY = false;

  __device__ static void forward(const float *by_x, const float *by_h, const float *b_ih,
                                 const float *b_hh, float *row, float *state) {
    for (int g = 0; g < 4; g++) row[g] = by_x[g] + by_h[g];
    sl__lstm_forward_cell(0, 1, row, b_ih, b_hh, state, state + 1);
  }
  __device__ static void backward(float *row, float *dstate) {
    sl__lstm_backward_cell(0, 1, row, dstate, dstate + 1);
  }
};
}  // namespace

SL__RECURRENT(lstm, lstm)
