/* LSTM's and GRU's sizes on a GPU, and a thread's work on one element of a time step: for
 * recurrent_cuda.h, which describes a Cell, and recurrent_tiles_cuda.h. */
#ifndef SL_CODELETS_KERNELS_RECURRENT_CELL_CUDA_H
#define SL_CODELETS_KERNELS_RECURRENT_CELL_CUDA_H

#include "codelets/kernels/cuda.h"
#include "codelets/kernels/gemm_cuda.h"
#include "codelets/kernels/recurrent.h"

namespace sl {

/* A task's sizes, and for one direction the offsets of its parameters, or their gradient, and of
 * its parts of a row of the state and of saved. states and width are whole rows, of all directions.
 */
template <class Cell>
struct recurrent {
  struct sl__cuda *cuda;
  const struct sl__recurrent_args *a;
  int direction;
  int64_t rows, steps, in, hidden, gates, width, states, param, w_hh, bias, state, saved;
  bool tf32;

  recurrent(struct sl__cuda *on, const void *cl_arg, int way)
      : cuda(on), a(args<sl__recurrent_args>(cl_arg)), direction(way), tf32(sl__tf32(cl_arg)) {
    rows = a->rows;
    steps = a->steps;
    in = a->in;
    hidden = a->hidden;
    gates = Cell::GATES * hidden;
    width = sl__directions(a) * Cell::SAVED * hidden;
    states = sl__directions(a) * Cell::STATES * hidden;
    param = direction * sl__recurrent_params(a, Cell::GATES);
    state = direction * Cell::STATES * hidden;
    saved = direction * Cell::SAVED * hidden;
    w_hh = gates * in;
    bias = w_hh + gates * hidden; /* b_ih, then b_hh */
  }

  /* C = op(A) op(B) + beta C, as codelets/kernels/gemm_cuda.h */
  template <class T, class C>
  bool multiply(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const T *a, int64_t lda,
                const T *b, int64_t ldb, float beta, C *c, int64_t ldc) const {
    product p{};
    p.ta = ta;
    p.tb = tb;
    p.m = m;
    p.n = n;
    p.k = k;
    p.alpha = 1;
    p.lda = lda;
    p.ldb = ldb;
    p.beta = beta;
    p.ldc = ldc;
    p.tf32 = tf32;
    return gemm<T, C>(cuda, p, a, b, c);
  }
};

/* Row pitches in elements; next: from a step's part of saved to that of the step behind it. */
struct strides {
  int64_t by_x, y, saved, state, next;
};

template <class Cell>
strides strides_of(const recurrent<Cell> &r, int64_t by_x) {
  int64_t outputs = r.a->time & SL__TIME_LAST ? 1 : r.steps;
  bool back = sl__recurrent_step(r.a, r.direction, 0) > 0;
  return {by_x, outputs * sl__directions(r.a) * r.hidden, r.steps * r.width, r.states,
          back ? -r.width : r.width};
}

/* Location of the k-th step's output, or its gradient; NULL if there is none. */
template <class Cell, class T>
T *output_of(const recurrent<Cell> &r, T *y, int64_t k) {
  return sl__has_output(r.a, k) ? y + sl__recurrent_output(r.a, r.direction, 0, k) : NULL;
}

/* One element of a step. load(): what is known before the step in front of it ends; load_state():
 * what is known then; finish(): the step, when the state's product is known, too. */

template <class Cell>
struct forward_element {
  float from_x[Cell::GATES], b_ih[Cell::GATES], b_hh[Cell::GATES], now[Cell::STATES];

  template <class T>
  __device__ void load(int64_t hidden, const strides &by, int64_t n, int64_t j, const float *by_x,
                       const T *bias) {
#pragma unroll
    for (int g = 0; g < Cell::GATES; g++) {
      from_x[g] = by_x[n * by.by_x + g * hidden + j];
      b_ih[g] = value(bias[g * hidden + j]);
      b_hh[g] = value(bias[(Cell::GATES + g) * hidden + j]);
    }
  }
  __device__ void load_state(int64_t hidden, const strides &by, int64_t n, int64_t j,
                             const float *state) {
#pragma unroll
    for (int k = 0; k < Cell::STATES; k++) now[k] = state[n * by.state + k * hidden + j];
  }
  /* y: NULL for a step without an output. Returns h, which each step stores for the next one. */
  template <class T>
  __device__ T finish(int64_t hidden, const strides &by, int64_t n, int64_t j, bool is_last,
                      const float *from_h, float *state, T *y, T *saved) {
    float row[Cell::SAVED];
    Cell::forward(from_x, from_h, b_ih, b_hh, row, now);
    T h = narrow<T>(now[0]);
    state += n * by.state + j;
    saved += n * by.saved + j;
#pragma unroll
    for (int k = 0; k < Cell::STATES; k++) state[k * hidden] = now[k];
#pragma unroll
    for (int k = 0; k < Cell::SAVED - 1; k++) saved[k * hidden] = narrow<T>(row[k]);
    if (y) y[n * by.y + j] = h;
    if (!is_last) saved[by.next + (Cell::SAVED - 1) * hidden] = h;
    return h;
  }
};

/* now: the gradient of the state; [0], of h, lacks what finish() is given. */
template <class Cell>
struct backward_element {
  float row[Cell::SAVED], now[Cell::STATES];

  /* dy: NULL for a step without an output. */
  template <class T>
  __device__ void load(int64_t hidden, const strides &by, int64_t n, int64_t j, const T *dy,
                       const T *saved) {
#pragma unroll
    for (int k = 0; k < Cell::SAVED; k++) row[k] = value(saved[n * by.saved + k * hidden + j]);
    now[0] = dy ? value(dy[n * by.y + j]) : 0;
  }
  __device__ void load_state(int64_t hidden, const strides &by, int64_t n, int64_t j, bool has_h,
                             const float *dstate) {
    dstate += n * by.state + j;
    if (has_h) now[0] += dstate[0];
#pragma unroll
    for (int k = 1; k < Cell::STATES; k++) now[k] = dstate[k * hidden];
  }
  /* dstate's h part becomes the gradient of the step before's h that passes through no matrix, if
   * there is one. */
  template <class T>
  __device__ void finish(int64_t hidden, const strides &by, int64_t n, int64_t j, float from_h,
                         float *dstate, T *saved) {
    now[0] += from_h;
    Cell::backward(row, now);
    dstate += n * by.state + j;
    saved += n * by.saved + j;
#pragma unroll
    for (int k = Cell::PASSES_BY ? 0 : 1; k < Cell::STATES; k++) dstate[k * hidden] = now[k];
#pragma unroll
    for (int g = 0; g < 4; g++) saved[g * hidden] = narrow<T>(row[g]);
  }
  /* A gate's gradient for the state's product. */
  __device__ float of_state(int g) const { return row[g < Cell::TOGETHER ? g : g + 1]; }
};

}  // namespace sl

#endif
