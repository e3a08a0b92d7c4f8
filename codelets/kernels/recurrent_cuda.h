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
 * before. Where tensor cores may be used and a step is small, one launch has both
 * (recurrent_tiles_cuda.h). (bf16 may have one product more a step, of the input.)
 *
 * State and its gradient are f32. As a factor of products h has type T, and so have the gates'
 * gradients; the gates before their activation are f32. */
#ifndef SL_CODELETS_KERNELS_RECURRENT_CUDA_H
#define SL_CODELETS_KERNELS_RECURRENT_CUDA_H

#include <type_traits>

#include "codelets/kernels/recurrent_cell_cuda.h"
#include "codelets/kernels/recurrent_tiles_cuda.h"

namespace sl {

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

/* h before the first step is in `saved`, too; each step stores h there for the next step. */
template <class Cell, class T>
__global__ void first_state(unsigned parts, int64_t hidden, strides by, const float *state,
                            T *saved) {
  int64_t n = step_row(parts), j = step_column(parts);
  if (j >= hidden) return;
  saved[n * by.saved + (Cell::SAVED - 1) * hidden + j] = narrow<T>(state[n * by.state + j]);
}

/* by_x, by_h: products of the input and of the state; by_x may point into saved's row. */
template <class Cell, class T>
__global__ void step_forward(unsigned parts, int64_t hidden, strides by, bool is_last,
                             const float *by_x, const float *by_h, const T *bias, float *state,
                             T *y, T *saved) {
  int64_t n = step_row(parts), j = step_column(parts);
  if (j >= hidden) return;
  float from_h[Cell::GATES];
  forward_element<Cell> element;
#pragma unroll
  for (int g = 0; g < Cell::GATES; g++) from_h[g] = by_h[(n * Cell::GATES + g) * hidden + j];
  element.load(hidden, by, n, j, by_x, bias, state);
  element.finish(hidden, by, n, j, is_last, from_h, state, y, saved);
}

/* of_state [N, gates H]: the gradients for the state's product, if they are not contiguous in
 * saved. */
template <class Cell, class T>
__global__ void step_backward(unsigned parts, int64_t hidden, strides by, const T *dy,
                              float *dstate, T *saved, T *of_state) {
  int64_t n = step_row(parts), j = step_column(parts);
  if (j >= hidden) return;
  backward_element<Cell> element;
  element.load(hidden, by, n, j, true, dy, dstate, saved);
  element.finish(hidden, by, n, j, 0, dstate, saved);
  if (!of_state) return;
#pragma unroll
  for (int g = 0; g < Cell::GATES; g++)
    of_state[(n * Cell::GATES + g) * hidden + j] = narrow<T>(element.of_state(g));
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

/* A forward task's memory, of one direction. */
template <class T>
struct forward_run {
  const T *x, *param;
  float *state, *by_h, *products;
  T *y, *saved;
  bool whole; /* products has all steps' */
};

template <class Cell, class T>
void forward_by_products(const recurrent<Cell> &r, const forward_run<T> &run, const strides &by) {
  const step_grid g = grid_of(r.rows, r.hidden);
  SL__LAUNCH((first_state<Cell, T>), g.blocks, g.threads, 0, r.cuda->stream, g.parts, r.hidden, by,
             run.state, run.saved + sl__recurrent_step(r.a, r.direction, 0) * r.width);
  for (int64_t k = 0; k < r.steps; k++) {
    int64_t t = sl__recurrent_step(r.a, r.direction, k);
    T *now = run.saved + t * r.width;
    const float *by_x = input_products(r, run.whole, t, run.x, run.param, run.products);
    if (!by_x ||
        !r.multiply(false, true, r.rows, r.gates, r.hidden, now + (Cell::SAVED - 1) * r.hidden,
                    r.steps * r.width, run.param + r.w_hh, r.hidden, 0, run.by_h, r.gates))
      return;
    SL__LAUNCH((step_forward<Cell, T>), g.blocks, g.threads, 0, r.cuda->stream, g.parts, r.hidden,
               by, k == r.steps - 1, by_x, run.by_h, run.param + r.bias, run.state,
               output_of(r, run.y, k), now);
  }
}

template <int TILES, class Cell, class T>
void forward_by_tiles(const recurrent<Cell> &r, const forward_run<T> &run, const strides &by) {
  using S = step_tiling<T, TILES, Cell::GATES, 8>;
  const step_sizes w = step_tiles_of<S>(r.rows, r.hidden, r.hidden);
  const step_memory m = step_memory_of<S>(r.cuda, w);
  SL__LAUNCH((pack_forward<typename S::packing, Cell, T>), blocks(step_packs<S>(w)), THREADS, 0,
             r.cuda->stream, w, by, run.param + r.w_hh, run.state,
             run.saved + sl__recurrent_step(r.a, r.direction, 0) * r.width, m.weights, m.rows);
  for (int64_t k = 0; k < r.steps; k++) {
    int64_t t = sl__recurrent_step(r.a, r.direction, k);
    const float *by_x = input_products(r, run.whole, t, run.x, run.param, run.products);
    if (!by_x) return;
    SL__LAUNCH((step_forward_tiles<S, Cell, T>), step_blocks<S>(w), S::THREADS, 0, r.cuda->stream,
               w, by, k == r.steps - 1, m.weights, m.place(k), by_x, run.param + r.bias, run.state,
               output_of(r, run.y, k), run.saved + t * r.width, m.place(k + 1));
  }
}

template <class Cell, class T>
void recurrent_forward(const recurrent<Cell> &r, void *buffers[]) {
  constexpr bool in_saved = std::is_same_v<T, float>;
  forward_run<T> run{};
  run.x = in<T>(buffers, 0);
  run.param = in<T>(buffers, 1) + r.param;
  run.state = out<float>(buffers, 2) + r.state;
  run.y = out<T>(buffers, 3);
  run.saved = out<T>(buffers, 4) + r.saved;
  run.by_h = out<float>(buffers, 5);
  run.products = in_saved ? out<float>(buffers, 4) + r.saved
                          : run.by_h + sl__recurrent_state_floats(r.a, Cell::GATES);
  run.whole = in_saved || sl__recurrent_input_floats(r.a, Cell::GATES);
  int64_t ld = in_saved ? r.width : r.gates;
  const strides by = strides_of(r, run.whole ? r.steps * ld : ld);
  if (run.whole && !r.multiply(false, true, r.rows * r.steps, r.gates, r.in, run.x, r.in, run.param,
                               r.in, 0, run.products, ld))
    return;
  if (!takes_tiles<T>(r))
    forward_by_products(r, run, by);
  else if (step_fits(r.rows, r.hidden, 16, 8))
    forward_by_tiles<1>(r, run, by);
  else if (step_fits(r.rows, r.hidden, 32, 8))
    forward_by_tiles<2>(r, run, by);
  else
    forward_by_tiles<4>(r, run, by);
}

template <class Cell, class T>
void backward_by_products(const recurrent<Cell> &r, void *buffers[]) {
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

/* The last launch has only a product, for the gradient of the state before the first step. */
template <int TILES, int COLUMNS, class T, class Cell>
void backward_by_tiles(const recurrent<Cell> &r, void *buffers[]) {
  using S = step_tiling<T, TILES, COLUMNS, 8 * COLUMNS>;
  const T *param = in<T>(buffers, 0) + r.param, *dy = in<T>(buffers, 2);
  T *saved = out<T>(buffers, 1) + r.saved;
  float *dstate = out<float>(buffers, 3) + r.state;
  const strides by = strides_of(r, 0);
  const step_sizes w = step_tiles_of<S>(r.rows, r.hidden, r.gates);
  const step_memory m = step_memory_of<S>(r.cuda, w);
  SL__LAUNCH((pack_backward<typename S::packing, T>), blocks(step_packs<S>(w)), THREADS, 0,
             r.cuda->stream, w, param + r.w_hh, m.weights, m.rows);
  for (int64_t k = r.steps - 1; k >= -1; k--) {
    T *now = k < 0 ? NULL : saved + sl__recurrent_step(r.a, r.direction, k) * r.width;
    SL__LAUNCH((step_backward_tiles<S, Cell, T>), step_blocks<S>(w), S::THREADS, 0, r.cuda->stream,
               w, by, m.weights, k == r.steps - 1 ? NULL : m.place(k + 1),
               k < 0 ? NULL : output_of(r, dy, k), dstate, now, k < 0 ? NULL : m.place(k));
  }
}

template <class Cell, class T>
void recurrent_backward_gates(const recurrent<Cell> &r, void *buffers[]) {
  if (!takes_tiles<T>(r))
    backward_by_products<Cell, T>(r, buffers);
  else if (step_fits(r.rows, r.hidden, 16, 8))
    backward_by_tiles<1, 1, T>(r, buffers);
  else
    backward_by_tiles<2, 2, T>(r, buffers);
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
