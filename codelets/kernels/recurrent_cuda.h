/* Common parts of LSTM and GRU on a GPU; included by their *_cuda.cu only. The input's products of
 * all time steps are one matrix product; each step is one more product, of the state, and one
 * kernel for the rest. A Cell describes the differences:
 *
 *     GATES, STATES, SAVED    in units of H: a row of the weights, of the state, of saved (whose
 *                             last H are h of the step before; four others become gradients)
 *     TOGETHER                number of leading gates that add the input's product and the state's;
 *                             the other state products have gradients of their own, H further on
 *     PASSES_BY               whether h reaches the next step by other paths than products, too
 *     forward, backward       one element of one row's step
 *
 * Launches of a time step: the state's product and step_forward, which adds the biases and stores
 * the state where the next product reads it; going back, step_backward and the product for the step
 * before. (bf16 may have one product more a step, of the input.)
 *
 * State and its gradient are f32. As a factor of products h has type T, and so have the gates'
 * gradients; the gates before their activation are f32. */
#ifndef SL_CODELETS_KERNELS_RECURRENT_CUDA_H
#define SL_CODELETS_KERNELS_RECURRENT_CUDA_H

#include <type_traits>

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

/* ---- a step's kernels: a thread an element, neighbours in j --------------------------------- */

constexpr int STEP_THREADS =
    128; /* small blocks: a step is short and should occupy all multiprocessors */

struct step_grid {
  unsigned parts, blocks; /* of a row; in all */
  int threads;
};

inline step_grid grid_of(int64_t rows, int64_t hidden) {
  int threads = hidden < STEP_THREADS ? static_cast<int>((hidden + 31) / 32 * 32) : STEP_THREADS;
  unsigned parts = blocks(hidden, threads);
  return {parts, static_cast<unsigned>(rows) * parts, threads};
}

__device__ inline int64_t step_row(unsigned parts) { return blockIdx.x / parts; }
__device__ inline int64_t step_column(unsigned parts) {
  return static_cast<int64_t>(blockIdx.x % parts) * blockDim.x + threadIdx.x;
}

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

/* h before the first step is in `saved`, too; each step stores h there for the next step. */
template <class Cell, class T>
__global__ void first_state(unsigned parts, int64_t hidden, strides by, const float *state,
                            T *saved) {
  int64_t n = step_row(parts), j = step_column(parts);
  if (j >= hidden) return;
  saved[n * by.saved + (Cell::SAVED - 1) * hidden + j] = narrow<T>(state[n * by.state + j]);
}

/* by_x, by_h: products of the input and of the state; by_x may point into saved's row. y: NULL for
 * a step without an output. */
template <class Cell, class T>
__global__ void step_forward(unsigned parts, int64_t hidden, strides by, bool is_last,
                             const float *by_x, const float *by_h, const T *bias, float *state,
                             T *y, T *saved) {
  constexpr int GATES = Cell::GATES, STATES = Cell::STATES, SAVED = Cell::SAVED;
  int64_t n = step_row(parts), j = step_column(parts);
  if (j >= hidden) return;
  float from_x[GATES], from_h[GATES], b_ih[GATES], b_hh[GATES], row[SAVED], now[STATES];
  by_x += n * by.by_x + j;
  by_h += n * GATES * hidden + j;
  state += n * by.state + j;
  saved += n * by.saved + j;
#pragma unroll
  for (int g = 0; g < GATES; g++) {
    from_x[g] = by_x[g * hidden];
    from_h[g] = by_h[g * hidden];
    b_ih[g] = value(bias[g * hidden + j]);
    b_hh[g] = value(bias[(GATES + g) * hidden + j]);
  }
#pragma unroll
  for (int k = 0; k < STATES; k++) now[k] = state[k * hidden];
  Cell::forward(from_x, from_h, b_ih, b_hh, row, now);
#pragma unroll
  for (int k = 0; k < STATES; k++) state[k * hidden] = now[k];
#pragma unroll
  for (int k = 0; k < SAVED - 1; k++) saved[k * hidden] = narrow<T>(row[k]);
  if (y) y[n * by.y + j] = narrow<T>(now[0]);
  if (!is_last) saved[by.next + (SAVED - 1) * hidden] = narrow<T>(now[0]);
}

/* dy: NULL for a step without an output. dstate: its h part becomes the gradient of the step
 * before's h that passes through no matrix, if there is one. of_state [N, gates H]: the gradients
 * for the state's product, if they are not contiguous in saved. */
template <class Cell, class T>
__global__ void step_backward(unsigned parts, int64_t hidden, strides by, const T *dy,
                              float *dstate, T *saved, T *of_state) {
  constexpr int STATES = Cell::STATES, SAVED = Cell::SAVED;
  int64_t n = step_row(parts), j = step_column(parts);
  if (j >= hidden) return;
  float row[SAVED], now[STATES];
  dstate += n * by.state + j;
  saved += n * by.saved + j;
#pragma unroll
  for (int k = 0; k < SAVED; k++) row[k] = value(saved[k * hidden]);
#pragma unroll
  for (int k = 0; k < STATES; k++) now[k] = dstate[k * hidden];
  if (dy) now[0] += value(dy[n * by.y + j]);
  Cell::backward(row, now);
#pragma unroll
  for (int k = Cell::PASSES_BY ? 0 : 1; k < STATES; k++) dstate[k * hidden] = now[k];
#pragma unroll
  for (int g = 0; g < 4; g++) saved[g * hidden] = narrow<T>(row[g]);
  if (of_state) {
    of_state += n * Cell::GATES * hidden + j;
#pragma unroll
    for (int g = 0; g < Cell::GATES; g++)
      of_state[g * hidden] = narrow<T>(row[g < Cell::TOGETHER ? g : g + 1]);
  }
}

/* ---- tasks ---------------------------------------------------------------------------------- */

/* Location of the input's products of a step: in saved (T is float), in memory for all steps, or
 * computed for this step. */
template <class Cell, class T>
const float *input_products(const recurrent<Cell> &r, bool whole, int64_t t, const T *x,
                            const T *param, float *products) {
  if (std::is_same_v<T, float>) return products + t * r.width;
  if (whole) return products + t * r.gates;
  bool made = r.multiply(false, true, r.rows, r.gates, r.in, x + t * r.in, r.steps * r.in, param,
                         r.in, 0, products, r.gates);
  return made ? products : NULL;
}

template <class Cell, class T>
void recurrent_forward(const recurrent<Cell> &r, void *buffers[]) {
  constexpr bool in_saved = std::is_same_v<T, float>;
  const T *x = in<T>(buffers, 0), *param = in<T>(buffers, 1) + r.param;
  float *state = out<float>(buffers, 2) + r.state, *by_h = out<float>(buffers, 5);
  T *y = out<T>(buffers, 3), *saved = out<T>(buffers, 4) + r.saved;
  float *products = in_saved ? out<float>(buffers, 4) + r.saved
                             : by_h + sl__recurrent_state_floats(r.a, Cell::GATES);
  bool whole = in_saved || sl__recurrent_input_floats(r.a, Cell::GATES);
  int64_t ld = in_saved ? r.width : r.gates, row = r.steps * r.width;
  const strides by = strides_of(r, whole ? r.steps * ld : ld);
  const step_grid g = grid_of(r.rows, r.hidden);
  if (whole && !r.multiply(false, true, r.rows * r.steps, r.gates, r.in, x, r.in, param, r.in, 0,
                           products, ld))
    return;
  SL__LAUNCH((first_state<Cell, T>), g.blocks, g.threads, 0, r.cuda->stream, g.parts, r.hidden, by,
             state, saved + sl__recurrent_step(r.a, r.direction, 0) * r.width);
  for (int64_t k = 0; k < r.steps; k++) {
    int64_t t = sl__recurrent_step(r.a, r.direction, k);
    T *now = saved + t * r.width;
    const float *by_x = input_products(r, whole, t, x, param, products);
    if (!by_x ||
        !r.multiply(false, true, r.rows, r.gates, r.hidden, now + (Cell::SAVED - 1) * r.hidden, row,
                    param + r.w_hh, r.hidden, 0, by_h, r.gates))
      return;
    SL__LAUNCH((step_forward<Cell, T>), g.blocks, g.threads, 0, r.cuda->stream, g.parts, r.hidden,
               by, k == r.steps - 1, by_x, by_h, param + r.bias, state, output_of(r, y, k), now);
  }
}

template <class Cell, class T>
void recurrent_backward_gates(const recurrent<Cell> &r, void *buffers[]) {
  constexpr bool together = Cell::TOGETHER == Cell::GATES;
  const T *param = in<T>(buffers, 0) + r.param, *dy = in<T>(buffers, 2);
  T *saved = out<T>(buffers, 1) + r.saved, *of_state = together ? NULL : out<T>(buffers, 4);
  float *dstate = out<float>(buffers, 3) + r.state;
  int64_t row = r.steps * r.width;
  const strides by = strides_of(r, 0);
  const step_grid g = grid_of(r.rows, r.hidden);
  for (int64_t k = r.steps - 1; k >= 0; k--) {
    T *now = saved + sl__recurrent_step(r.a, r.direction, k) * r.width;
    SL__LAUNCH((step_backward<Cell, T>), g.blocks, g.threads, 0, r.cuda->stream, g.parts, r.hidden,
               by, output_of(r, dy, k), dstate, now, of_state);
    if (!r.multiply(false, false, r.rows, r.hidden, r.gates, together ? now : of_state,
                    together ? row : r.gates, param + r.w_hh, r.hidden, Cell::PASSES_BY, dstate,
                    r.states))
      return;
  }
}

template <class Cell, class T>
void recurrent_backward_data(const recurrent<Cell> &r, void *buffers[], bool add) {
  r.multiply(false, false, r.rows * r.steps, r.in, r.gates, in<T>(buffers, 0) + r.saved, r.width,
             in<T>(buffers, 1) + r.param, r.in, add, out<T>(buffers, 2), r.in);
}

/* Sums by column of saved's four gradients become those of both biases. */
struct spread {
  const float *sums;
  int64_t gates, together, hidden;
  __device__ float operator()(int64_t i) const {
    int64_t j = i < gates ? i : i - gates;
    return sums[i < gates || j < together ? j : j + hidden];
  }
  __device__ float operator()(int64_t i, float before) const { return before + (*this)(i); }
};

template <class Cell, class T>
void recurrent_backward_weight(const recurrent<Cell> &r, void *buffers[], bool accumulate) {
  const T *x = in<T>(buffers, 0), *dgates = in<T>(buffers, 1) + r.saved;
  const T *before = dgates + (Cell::SAVED - 1) * r.hidden;
  float *grad = out<float>(buffers, 2) + r.param, *bias = grad + r.bias;
  float add = accumulate;
  int64_t count = r.rows * r.steps, together = Cell::TOGETHER * r.hidden;
  if (!r.multiply(true, false, r.gates, r.in, count, dgates, r.width, x, r.in, add, grad, r.in) ||
      !r.multiply(true, false, together, r.hidden, count, dgates, r.width, before, r.width, add,
                  grad + r.w_hh, r.hidden))
    return;
  if (together < r.gates &&
      !r.multiply(true, false, r.gates - together, r.hidden, count, dgates + together + r.hidden,
                  r.width, before, r.width, add, grad + r.w_hh + together * r.hidden, r.hidden))
    return;
  float *sums = reinterpret_cast<float *>(static_cast<char *>(r.cuda->workspace) + GEMM_WORKSPACE);
  column_sums<T>(r.cuda, dgates, count, r.width, 4 * r.hidden, sums, false);
  const spread both{sums, r.gates, together, r.hidden};
  if (accumulate)
    map(r.cuda, 2 * r.gates, both, bias, (const float *)bias);
  else
    map(r.cuda, 2 * r.gates, both, bias);
}

/* Calls f for each direction, one after the other. */
template <class Cell, class F>
void each_direction(struct sl__cuda *cuda, const void *cl_arg, F f) {
  for (int d = 0; d < sl__directions(args<sl__recurrent_args>(cl_arg)); d++)
    f(recurrent<Cell>(cuda, cl_arg, d));
}

}  // namespace sl

/* The four operations' CUDA halves. */
#define SL__RECURRENT(name, Cell)                                                                  \
  SL__CUDA(name##_forward) {                                                                       \
    sl::each_direction<Cell>(cuda, cl_arg, [=](const sl::recurrent<Cell> &r) {                     \
      SL__BY_TYPE(cl_arg, 0, T, sl::recurrent_forward<Cell, T>(r, buffers));                       \
    });                                                                                            \
  }                                                                                                \
  SL__CUDA(name##_backward_gates) {                                                                \
    sl::each_direction<Cell>(cuda, cl_arg, [=](const sl::recurrent<Cell> &r) {                     \
      SL__BY_TYPE(cl_arg, 0, T, sl::recurrent_backward_gates<Cell, T>(r, buffers));                \
    });                                                                                            \
  }                                                                                                \
  SL__CUDA(name##_backward_data) {                                                                 \
    bool add = sl__accumulate(cl_arg); /* and the second direction's part to the first one's */    \
    sl::each_direction<Cell>(cuda, cl_arg, [=](const sl::recurrent<Cell> &r) {                     \
      SL__BY_TYPE(cl_arg, 0, T,                                                                    \
                  sl::recurrent_backward_data<Cell, T>(r, buffers, add || r.direction));           \
    });                                                                                            \
  }                                                                                                \
  SL__CUDA(name##_backward_weight) {                                                               \
    bool add = sl__accumulate(cl_arg);                                                             \
    sl::each_direction<Cell>(cuda, cl_arg, [=](const sl::recurrent<Cell> &r) {                     \
      SL__BY_TYPE(cl_arg, 0, T, sl::recurrent_backward_weight<Cell, T>(r, buffers, add));          \
    });                                                                                            \
  }

#endif
