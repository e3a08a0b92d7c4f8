/* Embedding. For the gradient the positions are sorted by token: those of one token become
 * adjacent, in the order of the batch, and the same threads add them in that order. The sums are
 * the CPU's, without atomics. Positions are sorted in runs of RUN, whose values are added one run
 * after the other. */
#include "codelets/embedding.h"

#include "codelets/kernels/index_cuda.h"
#include "codelets/kernels/sums_cuda.h"

namespace {

/* ---- forward: a row of the table for each position ---- */

template <int N, class T>
__global__ void forward(sl__embedding_args a, const void *tokens, const T *table, T *y) {
  using values = sl::pack<T, N>;
  int64_t n = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y, width = a.features / N;
  if (n >= a.rows * a.steps) return;
  int32_t token = sl__embedding_token(&a, tokens, n);
  bool known = sl__embedding_has(&a, token);
  values missing;
#pragma unroll
  for (int k = 0; k < N; k++) missing.v[k] = sl::narrow<T>(NAN); /* the loss check reports it */
  const values *row = reinterpret_cast<const values *>(table) + (known ? token * width : 0);
  values *out = reinterpret_cast<values *>(y) + n * width;
  for (int64_t d = threadIdx.x; d < width; d += blockDim.x) out[d] = known ? row[d] : missing;
}

/* ---- sorting ---- */

constexpr int RUN = 4096;

/* By position, from the run's first one. A token's positions are order[first] to order[end - 1]
 * with first and end of the position where it occurs first; row, there: the row that their values
 * are added to, elsewhere and without one -1. */
struct run {
  int32_t order[RUN], first[RUN], end[RUN], row[RUN];
  bool fresh[RUN]; /* the row is still empty: the first position's values are the sum so far */
};

constexpr int64_t RUNS = SL__CUDA_WORKSPACE / sizeof(run); /* sorted at a time */

constexpr int RANKED = 32, SLICES = 8; /* a block's positions; its threads of each */
constexpr uint32_t NONE = ~0u;         /* no position, or a token that is not in the table */

/* Of the tokens that a position is compared with. */
struct counts {
  int32_t less, same, before; /* before: the same tokens at earlier positions */
};

/* The slice's fours of tokens[begin to end - 1]. */
__device__ inline void count_slice(const uint32_t *tokens, int begin, int end, uint32_t own,
                                   int32_t &less, int32_t &same) {
  using four = sl::pack<uint32_t, 4>;
#pragma unroll 4
  for (int q = begin + 4 * static_cast<int>(threadIdx.y); q < end; q += 4 * SLICES) {
    four t = *reinterpret_cast<const four *>(tokens + q);
#pragma unroll
    for (int k = 0; k < 4; k++) {
      less += t.v[k] < own;
      same += t.v[k] == own;
    }
  }
}

/* Adds the slices' counts; those of slice 0 are returned. */
__device__ inline counts over_slices(counts c) {
  __shared__ counts part[SLICES][RANKED];
  part[threadIdx.y][threadIdx.x] = c;
  __syncthreads();
  if (threadIdx.y) return c;
  for (int y = 1; y < SLICES; y++) {
    counts other = part[y][threadIdx.x];
    c.less += other.less;
    c.same += other.same;
    c.before += other.before;
  }
  return c;
}

/* A position's place is the number of positions that come before it. To count them takes more
 * comparisons than to sort, but all at once, without a barrier between. Block (b, r) has positions
 * 32 b to 32 b + 31 of run r. */
__global__ void __launch_bounds__(RANKED *SLICES)
    rank_runs(sl__embedding_args a, sl::divider steps, const void *tokens, int64_t first,
              int64_t count, run *runs) {
  alignas(16) __shared__ uint32_t all[RUN];
  run *out = runs + blockIdx.y;
  int64_t begin = first + static_cast<int64_t>(blockIdx.y) * RUN;
  int length = static_cast<int>(count - begin < RUN ? count - begin : RUN);
  int base = static_cast<int>(blockIdx.x) * RANKED,
      padded = (length + RANKED - 1) / RANKED * RANKED;
  if (base >= length) return; /* the whole block: the last run is shorter */
  for (int p = static_cast<int>(threadIdx.y * RANKED + threadIdx.x); p < padded;
       p += RANKED * SLICES) {
    int64_t row = steps(begin + p), at = row * a.columns + a.from + (begin + p - row * a.steps);
    int32_t token = p < length ? sl__embedding_token_at(&a, tokens, at) : -1;
    all[p] = sl__embedding_has(&a, token) ? static_cast<uint32_t>(token) : NONE;
  }
  __syncthreads();
  int p = base + static_cast<int>(threadIdx.x);
  uint32_t own = all[p];
  counts c = {0, 0, 0};
  count_slice(all, 0, base, own, c.less, c.before);
  count_slice(all, base + RANKED, padded, own, c.less, c.same);
  for (int q = base + static_cast<int>(threadIdx.y); q < base + RANKED; q += SLICES) {
    c.less += all[q] < own;
    c.before += all[q] == own && q < p;
    c.same += all[q] == own && q >= p;
  }
  c = over_slices(c);
  if (threadIdx.y) return;
  bool is_first = own != NONE && c.before == 0;
  if (own != NONE) out->order[c.less + c.before] = p;
  out->row[p] = is_first ? static_cast<int32_t>(own) : -1;
  out->first[p] = c.less;
  out->end[p] = c.less + c.same;
  out->fresh[p] = false;
}

/* ---- adding: threadIdx.y a position ---- */

template <int N, class T>
__global__ void add_positions(const run *sorted, int64_t positions, int64_t width, const T *dy,
                              float *values) {
  using term = sl::pack<T, N>;
  using wide = sl::pack<float, N>;
  int64_t p = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  int32_t row = p < positions ? sorted->row[p] : -1;
  if (row < 0) return;
  int32_t first = sorted->first[p], end = sorted->end[p];
  bool fresh = sorted->fresh[p];
  const term *from = reinterpret_cast<const term *>(dy);
  wide *to = reinterpret_cast<wide *>(values) + row * width;
  for (int64_t d = threadIdx.x; d < width; d += blockDim.x) {
    wide sum;
    int32_t k = first;
    if (fresh) {
      term t = from[p * width + d];
      k++;
#pragma unroll
      for (int j = 0; j < N; j++) sum.v[j] = sl::value(t.v[j]);
    } else {
      sum = to[d];
    }
#pragma unroll 8
    for (; k < end; k++) {
      term t = from[sorted->order[k] * width + d];
#pragma unroll
      for (int j = 0; j < N; j++) sum.v[j] += sl::value(t.v[j]);
    }
    to[d] = sum;
  }
}

template <class T>
void add_run(struct sl__cuda *cuda, const run *sorted, int64_t positions, int64_t features,
             const T *dy, float *values) {
  bool packs = features % 4 == 0 && sl::is_aligned(dy) && sl::is_aligned(values);
  int64_t width = packs ? features / 4 : features;
  dim3 block = sl::row_block(width);
  SL__LAUNCH((packs ? add_positions<4, T> : add_positions<1, T>),
             sl::blocks(positions, static_cast<int>(block.y)), block, 0, cuda->stream, sorted,
             positions, width, dy, values);
}

/* Calls each(sorted run, its first position, number of positions) in the positions' order. */
template <class F>
void each_run(struct sl__cuda *cuda, const sl__embedding_args *a, const void *tokens, F each) {
  run *sorted = static_cast<run *>(cuda->workspace);
  int64_t count = a->rows * a->steps;
  for (int64_t first = 0; first < count; first += RUNS * RUN) {
    int64_t runs = (count - first + RUN - 1) / RUN;
    if (runs > RUNS) runs = RUNS;
    dim3 grid(sl::blocks(count - first < RUN ? count - first : RUN, RANKED),
              static_cast<unsigned>(runs));
    SL__LAUNCH(rank_runs, grid, dim3(RANKED, SLICES), 0, cuda->stream, *a, sl::divider(a->steps),
               tokens, first, count, sorted);
    for (int64_t r = 0; r < runs; r++) {
      int64_t begin = first + r * RUN;
      each(sorted + r, begin, count - begin < RUN ? count - begin : RUN);
    }
  }
}

/* ---- row-sparse gradients: as rows.h collects them ---- */

/* Finds the rows that are already collected. */
__global__ void note_places(const int32_t *rows, int32_t *place) {
  int64_t k = sl::thread_index();
  if (k < rows[0]) place[rows[1 + k]] = static_cast<int32_t>(k);
}

constexpr int ASSIGNERS = 1024, EACH = RUN / ASSIGNERS;

/* New rows get the next indices in the order of first touch, up to the capacity. One block. */
__global__ void __launch_bounds__(ASSIGNERS, 1)
    assign_places(sl__rows_args a, run *sorted, int32_t positions, int32_t *rows, int32_t *place,
                  int32_t *overflow) {
  int32_t before = rows[0], token[EACH], row[EACH], own = 0, total;
  int first = static_cast<int>(threadIdx.x) * EACH;
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    token[e] = first + e < positions ? sorted->row[first + e] : -1;
    row[e] = token[e] < 0 ? -1 : place[token[e]];
    own += token[e] >= 0 && row[e] < 0;
  }
  int64_t at = before + sl::sum_before(own, &total);
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    if (token[e] < 0) continue;
    bool fresh = row[e] < 0 && at < a.capacity;
    if (fresh) {
      place[token[e]] = static_cast<int32_t>(at);
      rows[1 + at] = token[e];
    }
    sorted->row[first + e] = fresh ? static_cast<int32_t>(at) : row[e];
    sorted->fresh[first + e] = fresh;
    at += row[e] < 0;
  }
  if (threadIdx.x) return;
  if (before + total > a.capacity) *overflow = 1;
  rows[0] = before + total < a.capacity ? before + total : static_cast<int32_t>(a.capacity);
}

/* Rows beyond the capacity would be lost silently: NaN reports them. */
__global__ void tell_overflow(const int32_t *overflow, float *values) {
  if (*overflow > 0) values[0] = NAN;
}

template <class T>
void forward_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__embedding_args *a = sl::args<sl__embedding_args>(cl_arg);
  const T *table = sl::in<T>(buffers, 1);
  T *y = sl::out<T>(buffers, 2);
  constexpr int N = 16 / sizeof(T);
  bool packs = a->features % N == 0 && sl::is_aligned(table) && sl::is_aligned(y);
  dim3 block = sl::row_block(packs ? a->features / N : a->features);
  SL__LAUNCH((packs ? forward<N, T> : forward<1, T>),
             sl::blocks(a->rows * a->steps, static_cast<int>(block.y)), block, 0, cuda->stream, *a,
             sl::in<int32_t>(buffers, 0), table, y);
}

template <class T>
void backward_weight_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__embedding_args *a = sl::args<sl__embedding_args>(cl_arg);
  const T *dy = sl::in<T>(buffers, 1);
  float *grad = sl::out<float>(buffers, 2);
  size_t bytes = static_cast<size_t>(a->vocabulary * a->features) * sizeof *grad;
  if (!sl__accumulate(cl_arg) && !sl::succeeded(cudaMemsetAsync(grad, 0, bytes, cuda->stream)))
    return;
  each_run(cuda, a, sl::in<int32_t>(buffers, 0),
           [&](const run *sorted, int64_t first, int64_t count) {
             add_run(cuda, sorted, count, a->features, dy + first * a->features, grad);
           });
}

template <class T>
void backward_rows_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__embedding_rows_args *a = sl::args<sl__embedding_rows_args>(cl_arg);
  const T *dy = sl::in<T>(buffers, 1);
  int32_t *rows = sl::out<int32_t>(buffers, 2);
  float *values = sl::out<float>(buffers, 3);
  int32_t *place = sl::out<int32_t>(buffers, 4), *overflow = place + a->rows.table;
  size_t bytes = static_cast<size_t>(a->rows.table + 1) * sizeof *place;
  if (!sl::succeeded(cudaMemsetAsync(place, 0xff, bytes, cuda->stream))) return; /* all -1 */
  if (sl__accumulate(cl_arg))
    SL__LAUNCH(note_places, sl::blocks(a->rows.capacity), sl::THREADS, 0, cuda->stream, rows,
               place);
  else if (!sl::succeeded(cudaMemsetAsync(rows, 0, sizeof *rows, cuda->stream)))
    return;
  each_run(cuda, &a->tokens, sl::in<int32_t>(buffers, 0),
           [&](run *sorted, int64_t first, int64_t count) {
             SL__LAUNCH(assign_places, 1, ASSIGNERS, 0, cuda->stream, a->rows, sorted,
                        static_cast<int32_t>(count), rows, place, overflow);
             add_run(cuda, sorted, count, a->rows.width, dy + first * a->rows.width, values);
           });
  SL__LAUNCH(tell_overflow, 1, 1, 0, cuda->stream, overflow, values);
}

}  // namespace

SL__CUDA(embedding_forward) { SL__BY_TYPE(cl_arg, 1, T, forward_task<T>(buffers, cl_arg, cuda)); }

SL__CUDA(embedding_backward_weight) {
  SL__BY_TYPE(cl_arg, 1, T, backward_weight_task<T>(buffers, cl_arg, cuda));
}

SL__CUDA(embedding_backward_rows) {
  SL__BY_TYPE(cl_arg, 1, T, backward_rows_task<T>(buffers, cl_arg, cuda));
}
