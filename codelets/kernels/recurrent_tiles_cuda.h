/* A time step of LSTM or GRU as one launch, on tensor cores (mma_cuda.h); included by
 * recurrent_cuda.h only. A block owns a tile of rows and hidden units: it computes the product that
 * these need, of h and the state's weights, then their elements of the step. Going back, it first
 * multiplies the gates' gradients of the step behind by the weights. The sums of its warps are
 * added in a fixed order.
 *
 * A step takes a few microseconds, most of which its loads take. So a task first packs the weights
 * in the sequence of the lanes' registers, a load of 16 bytes each, zeros where there are no
 * values; and a step leaves the factors of the next one packed, in one of two places by turns,
 * since other blocks still read those of its own. Both lie in the second half of the worker's
 * workspace.
 *
 * Packed rows (A): for each DEPTH terms and each 16 rows a fragment, 16 bytes a lane. Packed
 * weights (B): for each group of COLUMNS times 8 results that a block has, for each pair of DEPTH
 * terms, for each 8 columns two fragments, 16 bytes a lane. */
#ifndef SL_CODELETS_KERNELS_RECURRENT_TILES_CUDA_H
#define SL_CODELETS_KERNELS_RECURRENT_TILES_CUDA_H

#include "codelets/kernels/mma_cuda.h"
#include "codelets/kernels/recurrent_cell_cuda.h"

namespace sl {

/* What kind of numbers factors of type T are. HALVES: in a register. */
template <class T>
struct step_core;
template <>
struct step_core<bf16> : bf16_core {
  static constexpr int HALVES = 2;
  __device__ static uint16_t factor(float x) { return sl__bf16_code(x); }
};
template <>
struct step_core<float> : tf32_core {
  static constexpr int HALVES = 1;
  __device__ static uint32_t factor(float x) { return rounded_to_tf32(x); }
};

/* ---- a block's tile ------------------------------------------------------------------------ */

/* ROWS of the batch, UNITS hidden units, for which the block's product has COLUMNS times 8 results.
 * A block's warps share the product's terms; in large tiles two have the same terms and each half
 * of the rows, so that there are fewer sums to add. PAIRS: of DEPTH terms that a warp loads before
 * it multiplies; more would not fit registers. */
template <class T, int TILES_, int COLUMNS_, int UNITS_>
struct step_tiling {
  using core = step_core<T>;
  using packing = step_tiling<T, 1, COLUMNS_, UNITS_>; /* weights lie in the same way for all */
  static constexpr int TILES = TILES_, COLUMNS = COLUMNS_, UNITS = UNITS_, ROWS = 16 * TILES;
  static constexpr int ROW_WARPS = TILES > 2 ? 2 : 1, TERM_WARPS = 8 / ROW_WARPS;
  static constexpr int THREADS = 32 * ROW_WARPS * TERM_WARPS;
  static constexpr int OWN_TILES = TILES / ROW_WARPS; /* a warp's */
  static constexpr int PAIRS = 24 / (2 * OWN_TILES + COLUMNS);
  static constexpr int EACH = (ROWS * UNITS + THREADS - 1) / THREADS; /* elements of a thread */
  static constexpr int DEPTH = core::DEPTH, HALVES = core::HALVES;
};

/* Sizes of a task's packed factors. rows: tiles of 16, whole blocks; groups: of weights. */
struct step_sizes {
  int64_t rows, hidden, terms;
  int tiles, groups, pairs;

  __host__ __device__ int64_t row_packs() const { return int64_t{64} * pairs * tiles; }
  __host__ __device__ int64_t weight_packs(int columns) const {
    return int64_t{32} * pairs * groups * columns;
  }
};

template <class S>
step_sizes step_tiles_of(int64_t rows, int64_t hidden, int64_t terms) {
  return {rows,
          hidden,
          terms,
          static_cast<int>((rows + S::ROWS - 1) / S::ROWS * S::TILES),
          static_cast<int>((hidden + S::UNITS - 1) / S::UNITS),
          static_cast<int>((terms + 2 * S::DEPTH - 1) / (2 * S::DEPTH))};
}

/* The block's first tile of rows, and its group of weights. */
template <class S>
struct step_place {
  int tile, group;
  __device__ explicit step_place(const step_sizes &w) {
    int blocks = w.tiles / S::TILES, block = static_cast<int>(blockIdx.x);
    tile = block % blocks * S::TILES;
    group = block / blocks;
  }
};

/* The i-th element of the thread, of row n and unit j; where its sum is among the block's. */
template <class S>
struct step_element {
  int row, unit;
  int64_t n, j;
  __device__ step_element(const step_place<S> &at, int i) {
    int e = i * S::THREADS + static_cast<int>(threadIdx.x);
    row = e / S::UNITS;
    unit = e % S::UNITS;
    n = at.tile * 16 + row;
    j = at.group * S::UNITS + unit;
  }
  __device__ bool exists(const step_sizes &w) const {
    return row < S::ROWS && n < w.rows && j < w.hidden;
  }
};

/* ---- packed factors ------------------------------------------------------------------------- */

/* A pack of four registers; f(r, half) is the factor in a half of register r. */
template <class Core, class F>
__device__ void store_pack(uint4 *to, F f) {
  pack<typename Core::stored, 4 * Core::HALVES> result;
#pragma unroll
  for (int r = 0; r < 4; r++)
#pragma unroll
    for (int half = 0; half < Core::HALVES; half++)
      result.v[r * Core::HALVES + half] = Core::factor(f(r, half));
  *reinterpret_cast<pack<typename Core::stored, 4 * Core::HALVES> *>(to) = result;
}

/* Pack i of the rows: f(n, k) is row n's term k. */
template <class Core, class F>
__device__ void pack_rows(const step_sizes &w, int64_t i, uint4 *to, F f) {
  int64_t lane = i % 32, tile = i / 32 % w.tiles, step = i / 32 / w.tiles;
  int64_t n = tile * 16 + lane / 4, k = step * Core::DEPTH + lane % 4 * Core::HALVES;
  store_pack<Core>(to + i, [&](int r, int half) {
    int64_t row = n + r % 2 * 8, term = k + r / 2 * (Core::DEPTH / 2) + half;
    return row < w.rows && term < w.terms ? f(row, term) : 0;
  });
}

/* Pack i of the weights: f(c, j, k) is term k of unit j's c-th result of several (UNITS 8), or of
 * its only one. */
template <class S, class F>
__device__ void pack_weights(const step_sizes &w, int64_t i, uint4 *to, F f) {
  int64_t lane = i % 32, column = i / 32 % S::COLUMNS, pair = i / 32 / S::COLUMNS % w.pairs;
  int64_t j = i / 32 / S::COLUMNS / w.pairs * S::UNITS + lane / 4;
  int64_t k = pair * 2 * S::DEPTH + lane % 4 * S::HALVES;
  if (S::UNITS > 8) j += column * 8;
  store_pack<typename S::core>(to + i, [&](int r, int half) {
    int64_t term = k + r * (S::DEPTH / 2) + half;
    return j < w.hidden && term < w.terms ? f(column, j, term) : 0;
  });
}

/* Puts row n's term k among packed rows. */
template <class Core>
__device__ void put_factor(const step_sizes &w, uint4 *rows, int64_t n, int64_t k, float x) {
  constexpr int DEPTH = Core::DEPTH, HALVES = Core::HALVES;
  int64_t rest = k % DEPTH, lane = n % 8 * 4 + rest % (DEPTH / 2) / HALVES;
  int64_t at = ((k / DEPTH * w.tiles + n / 16) * 32 + lane) * 4;
  at += rest / (DEPTH / 2) * 2 + n % 16 / 8;
  reinterpret_cast<typename Core::stored *>(rows)[at * HALVES + rest % HALVES] = Core::factor(x);
}

/* A thread a pack, of the weights and of the rows' two places. h before the first step is in
 * `saved`, too. */
template <class S, class Cell, class T>
__global__ void pack_forward(step_sizes w, strides by, const T *weight, const float *state,
                             T *saved, uint4 *weights, uint4 *rows) {
  int64_t i = thread_index(), hidden = w.hidden;
  if (i < w.weight_packs(S::COLUMNS)) {
    pack_weights<S>(w, i, weights, [&](int64_t g, int64_t j, int64_t k) {
      return value(weight[(g * hidden + j) * hidden + k]);
    });
    return;
  }
  i -= w.weight_packs(S::COLUMNS);
  if (i < w.row_packs())
    pack_rows<typename S::core>(w, i, rows, [&](int64_t n, int64_t k) {
      T h = narrow<T>(state[n * by.state + k]);
      saved[n * by.saved + (Cell::SAVED - 1) * hidden + k] = h;
      return value(h);
    });
  else if (i < 2 * w.row_packs())
    rows[i] = {0, 0, 0, 0};
}

/* The same going back: a term is a gate's gradient, of which there are none yet. */
template <class S, class T>
__global__ void pack_backward(step_sizes w, const T *weight, uint4 *weights, uint4 *rows) {
  int64_t i = thread_index();
  if (i < w.weight_packs(S::COLUMNS))
    pack_weights<S>(w, i, weights,
                    [&](int64_t, int64_t j, int64_t k) { return value(weight[k * w.hidden + j]); });
  else if (i - w.weight_packs(S::COLUMNS) < 2 * w.row_packs())
    rows[i - w.weight_packs(S::COLUMNS)] = {0, 0, 0, 0};
}

/* ---- products -------------------------------------------------------------------------------- */

__device__ inline fragment_a a_of(const uint4 &v) { return {{v.x, v.y, v.z, v.w}}; }

/* Factors of PAIRS pairs of terms, the first of which is `first`. */
template <class S>
struct step_factors {
  uint4 a[S::PAIRS][2][S::OWN_TILES], b[S::PAIRS][S::COLUMNS];

  __device__ void load_weights(const step_sizes &w, int first, const uint4 *weights) {
#pragma unroll
    for (int p = 0; p < S::PAIRS; p++) {
      int pair = first + p * S::TERM_WARPS;
      if (pair >= w.pairs) break;
#pragma unroll
      for (int c = 0; c < S::COLUMNS; c++) b[p][c] = weights[(pair * S::COLUMNS + c) * 32];
    }
  }
  __device__ void load_rows(const step_sizes &w, int first, const uint4 *rows) {
#pragma unroll
    for (int p = 0; p < S::PAIRS; p++) {
      int pair = first + p * S::TERM_WARPS;
      if (pair >= w.pairs) break;
#pragma unroll
      for (int half = 0; half < 2; half++)
#pragma unroll
        for (int t = 0; t < S::OWN_TILES; t++)
          a[p][half][t] = rows[((2 * pair + half) * w.tiles + t) * 32];
    }
  }
  __device__ void multiply(const step_sizes &w, int first,
                           fragment_c (&sum)[S::OWN_TILES][S::COLUMNS]) const {
#pragma unroll
    for (int p = 0; p < S::PAIRS; p++) {
      if (first + p * S::TERM_WARPS >= w.pairs) break;
#pragma unroll
      for (int t = 0; t < S::OWN_TILES; t++)
#pragma unroll
        for (int c = 0; c < S::COLUMNS; c++) {
          const uint4 &two = b[p][c];
          S::core::add_product(sum[t][c], a_of(a[p][0][t]), {{two.x, two.y}});
          S::core::add_product(sum[t][c], a_of(a[p][1][t]), {{two.z, two.w}});
        }
    }
  }
};

/* The part of the block's sums that its i-th warp over the terms has; rows and weights begin at the
 * warp's first tile and at the block's group. Before wait() nothing is read that the launch in
 * front writes. */
template <class S, class F>
__device__ void multiply_packed(const step_sizes &w, int i, const uint4 *rows, const uint4 *weights,
                                fragment_c (&sum)[S::OWN_TILES][S::COLUMNS], F wait) {
  step_factors<S> factors;
  factors.load_weights(w, i, weights);
  wait();
#pragma unroll 1
  for (int first = i; first < w.pairs;) {
    factors.load_rows(w, first, rows);
    factors.multiply(w, first, sum);
    first += S::TERM_WARPS * S::PAIRS;
    factors.load_weights(w, first, weights);
  }
}

/* The block's sums, a part of each warp over the terms. */
template <class S>
struct step_sums {
  float4 part[S::TERM_WARPS][S::TILES][S::COLUMNS][32];

  /* Of a row of the block and a result in a column of 8. */
  __device__ float operator()(int row, int column, int result) const {
    int lane = row % 8 * 4 + result / 2, v = row % 16 / 8 * 2 + result % 2;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < S::TERM_WARPS; i++)
      sum += reinterpret_cast<const float *>(&part[i][row / 16][column][lane])[v];
    return sum;
  }
};

/* The product of the block's rows and weights, by all of its threads. */
template <class S, class F>
__device__ void multiply_step(const step_sizes &w, const step_place<S> &at, const uint4 *rows,
                              const uint4 *weights, step_sums<S> &sums, F wait) {
  int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int i = warp / S::ROW_WARPS, tile = warp % S::ROW_WARPS * S::OWN_TILES;
  fragment_c sum[S::OWN_TILES][S::COLUMNS] = {};
  weights += int64_t{32} * at.group * w.pairs * S::COLUMNS;
  multiply_packed<S>(w, i, rows + (at.tile + tile) * 32 + lane, weights + lane, sum, wait);
#pragma unroll
  for (int t = 0; t < S::OWN_TILES; t++)
#pragma unroll
    for (int c = 0; c < S::COLUMNS; c++) {
      const fragment_c &own = sum[t][c];
      sums.part[i][tile + t][c][lane] = {own.v[0], own.v[1], own.v[2], own.v[3]};
    }
  __syncthreads();
}

/* ---- the start of a launch ------------------------------------------------------------------ */

/* From architecture 9.0 on a launch may begin when all blocks of the one in front have called
 * let_next_begin(); then its start and its loads of weights take no time of their own. A step calls
 * it when the launch in front has ended, so all values that it reads before were written two
 * launches ago or earlier. */
__device__ inline void end_of_launch_in_front() {
#if !defined(SL_CUDA_STANDIN) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ inline void let_next_begin() {
#if !defined(SL_CUDA_STANDIN) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* ---- a step ------------------------------------------------------------------------------------
 */

/* by_x: products of the input; it may point into saved's row. before, behind: packed h of the step
 * before, and of this one. */
template <class S, class Cell, class T>
__global__ void __launch_bounds__(S::THREADS)
    step_forward_tiles(step_sizes w, strides by, bool is_last, const uint4 *weights,
                       const uint4 *before, const float *by_x, const T *bias, float *state, T *y,
                       T *saved, uint4 *behind) {
  __shared__ step_sums<S> sums;
  const step_place<S> at(w);
  forward_element<Cell> elements[S::EACH] = {};
#pragma unroll
  for (int i = 0; i < S::EACH; i++) {
    const step_element<S> e(at, i);
    if (e.exists(w)) elements[i].load(w.hidden, by, e.n, e.j, by_x, bias);
  }
  multiply_step<S>(w, at, before, weights, sums, [&] {
    end_of_launch_in_front();
    let_next_begin();
#pragma unroll
    for (int i = 0; i < S::EACH; i++) {
      const step_element<S> e(at, i);
      if (e.exists(w)) elements[i].load_state(w.hidden, by, e.n, e.j, state);
    }
  });
#pragma unroll
  for (int i = 0; i < S::EACH; i++) {
    const step_element<S> e(at, i);
    if (!e.exists(w)) continue;
    float from_h[Cell::GATES];
#pragma unroll
    for (int g = 0; g < Cell::GATES; g++) from_h[g] = sums(e.row, g, e.unit);
    T h = elements[i].finish(w.hidden, by, e.n, e.j, is_last, from_h, state, y, saved);
    if (!is_last) put_factor<typename S::core>(w, behind, e.n, e.j, value(h));
  }
}

/* after: packed gradients of the gates of the step behind; NULL if there is none in this task.
 * saved: NULL behind the last step, where only the product is left to be done. now: packed
 * gradients of this step's gates. */
template <class S, class Cell, class T>
__global__ void __launch_bounds__(S::THREADS)
    step_backward_tiles(step_sizes w, strides by, const uint4 *weights, const uint4 *after,
                        const T *dy, float *dstate, T *saved, uint4 *now) {
  __shared__ step_sums<S> sums;
  const step_place<S> at(w);
  backward_element<Cell> elements[S::EACH] = {};
#pragma unroll
  for (int i = 0; i < S::EACH; i++) {
    const step_element<S> e(at, i);
    if (saved && e.exists(w)) elements[i].load(w.hidden, by, e.n, e.j, dy, saved);
  }
  auto wait = [&] {
    end_of_launch_in_front();
    let_next_begin();
#pragma unroll
    for (int i = 0; i < S::EACH; i++) {
      const step_element<S> e(at, i);
      if (saved && e.exists(w))
        elements[i].load_state(w.hidden, by, e.n, e.j, !after || Cell::PASSES_BY, dstate);
    }
  };
  if (after)
    multiply_step<S>(w, at, after, weights, sums, wait);
  else
    wait();
#pragma unroll
  for (int i = 0; i < S::EACH; i++) {
    const step_element<S> e(at, i);
    if (!e.exists(w)) continue;
    float from_h = after ? sums(e.row, e.unit / 8, e.unit % 8) : 0;
    if (!saved) {
      float &dh = dstate[e.n * by.state + e.j];
      dh = Cell::PASSES_BY ? dh + from_h : from_h;
      continue;
    }
    elements[i].finish(w.hidden, by, e.n, e.j, from_h, dstate, saved);
#pragma unroll
    for (int g = 0; g < Cell::GATES; g++)
      put_factor<typename S::core>(w, now, e.n, g * w.hidden + e.j, elements[i].of_state(g));
  }
}

/* ---- tasks -------------------------------------------------------------------------------------
 */

/* Where a direction's packed factors lie. */
struct step_memory {
  uint4 *weights, *rows;
  int64_t packs; /* a place of rows */

  uint4 *place(int64_t step) const { return rows + step % 2 * packs; }
};

template <class S>
step_memory step_memory_of(struct sl__cuda *cuda, const step_sizes &w) {
  uint4 *at = reinterpret_cast<uint4 *>(static_cast<char *>(cuda->workspace) + GEMM_WORKSPACE);
  return {at, at + w.weight_packs(S::COLUMNS), w.row_packs()};
}

/* Threads of a launch that packs all of it. */
template <class S>
int64_t step_packs(const step_sizes &w) {
  return w.weight_packs(S::COLUMNS) + 2 * w.row_packs();
}

template <class S>
unsigned step_blocks(const step_sizes &w) {
  return static_cast<unsigned>(w.tiles / S::TILES * w.groups);
}

/* early: the launch in front is a step of the same task, before whose end this one may begin. */
template <class S, class... P, class... A>
void launch_step(struct sl__cuda *cuda, const step_sizes &w, [[maybe_unused]] bool early,
                 void (*kernel)(P...), A... arguments) {
#ifndef SL_CUDA_STANDIN
  if (early && cuda->architecture >= 900) {
    cudaLaunchAttribute attribute{};
    cudaLaunchConfig_t config{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = step_blocks<S>(w);
    config.blockDim = S::THREADS;
    config.stream = cuda->stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    succeeded(cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...));
    return;
  }
#endif
  SL__LAUNCH(kernel, step_blocks<S>(w), S::THREADS, 0, cuda->stream, arguments...);
}

/* Tiles are smallest if multiprocessors would be idle otherwise: a block's time is that of its
 * loads, which is less for a smaller tile, but all blocks together load more. */
constexpr int64_t FEW_BLOCKS = 132;

inline bool step_fits(int64_t rows, int64_t hidden, int64_t tile_rows, int64_t units) {
  return (rows + tile_rows - 1) / tile_rows * ((hidden + units - 1) / units) <= FEW_BLOCKS;
}

/* Does a task take these kernels? Beyond these sizes a library's product, whose tiles are larger,
 * is faster than blocks that each read their factors anew. */
template <class T, class Cell>
bool takes_tiles(const recurrent<Cell> &r) {
  return r.cuda->architecture >= 800 && (sizeof(T) == 2 || r.tf32) && r.hidden <= 1024 &&
         step_fits(r.rows, r.hidden, 64, 8);
}

}  // namespace sl

#endif
