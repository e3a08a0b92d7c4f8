/* Embedding. For the gradient the positions are sorted by token: those of one token become
 * adjacent, in the order of the batch, and the same threads add them in that order. The sums are
 * the CPU's, without atomics. A block sorts a run of RUN positions in shared memory; runs follow
 * each other. */
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

constexpr int RUN = 4096, SORTERS = 1024, EACH = RUN / SORTERS;

/* A token's positions are order[first] to order[next segment's first - 1]. row: the row that their
 * values are added to, -1 for none. */
struct segment {
  int32_t token, first, row;
  bool fresh; /* the row is still empty: the first position's values are the sum so far */
};

struct run {
  int32_t order[RUN]; /* positions, from the run's first one */
  segment segments[RUN + 1];
  int32_t count; /* of segments */
};

constexpr int64_t RUNS = SL__CUDA_WORKSPACE / sizeof(run); /* sorted at a time */

constexpr uint64_t NONE = ~uint64_t{0}; /* no position, or a token that is not in the table */

__device__ int32_t token_of(uint64_t key) { return static_cast<int32_t>(key >> 32); }

/* Batcher's bitonic sort of the first `length`, a power of two. */
__device__ void sort(uint64_t *keys, int length) {
  for (int size = 2; size <= length; size *= 2)
    for (int apart = size / 2; apart; apart /= 2) {
      __syncthreads();
      for (int k = threadIdx.x; k < length / 2; k += SORTERS) {
        int low = 2 * k - (k & (apart - 1)), high = low + apart;
        bool falling = low & size;
        uint64_t a = keys[low], b = keys[high];
        if ((a > b) != falling) keys[low] = b, keys[high] = a;
      }
    }
  __syncthreads();
}

__global__ void __launch_bounds__(SORTERS)
    sort_runs(sl__embedding_args a, const void *tokens, int64_t first, int length, run *runs) {
  __shared__ uint64_t keys[RUN];
  run *out = runs + blockIdx.x;
  int64_t begin = first + static_cast<int64_t>(blockIdx.x) * RUN, end = a.rows * a.steps;
  for (int p = threadIdx.x; p < RUN; p += SORTERS) {
    int32_t token = begin + p < end ? sl__embedding_token(&a, tokens, begin + p) : -1;
    keys[p] = sl__embedding_has(&a, token) ? static_cast<uint64_t>(token) << 32 | p : NONE;
  }
  sort(keys, length);
  bool starts[EACH];
  int32_t own = 0, used = 0, count, total;
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    int k = threadIdx.x * EACH + e;
    bool is_used = keys[k] != NONE;
    starts[e] = is_used && (k == 0 || token_of(keys[k]) != token_of(keys[k - 1]));
    own += starts[e];
    used += is_used;
    out->order[k] = static_cast<int32_t>(keys[k]);
  }
  int32_t at = sl::sum_before(own, &count);
  sl::sum_before(used, &total);
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    int k = threadIdx.x * EACH + e;
    if (starts[e]) out->segments[at++] = {token_of(keys[k]), k, token_of(keys[k]), false};
  }
  if (threadIdx.x == 0) out->count = count, out->segments[count].first = total;
}

/* ---- adding: threadIdx.y a segment ---- */

template <int N, class T>
__global__ void add_segments(const run *runs, int64_t width, const T *dy, float *values) {
  using term = sl::pack<T, N>;
  using wide = sl::pack<float, N>;
  int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (at >= runs->count) return;
  segment s = runs->segments[at];
  int32_t end = runs->segments[at + 1].first;
  if (s.row < 0) return;
  const term *from = reinterpret_cast<const term *>(dy);
  wide *to = reinterpret_cast<wide *>(values) + s.row * width;
  for (int64_t d = threadIdx.x; d < width; d += blockDim.x) {
    wide sum;
    int32_t k = s.first;
    if (s.fresh) {
      term t = from[runs->order[k++] * width + d];
#pragma unroll
      for (int j = 0; j < N; j++) sum.v[j] = sl::value(t.v[j]);
    } else {
      sum = to[d];
    }
#pragma unroll 4
    for (; k < end; k++) {
      term t = from[runs->order[k] * width + d];
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
  SL__LAUNCH((packs ? add_segments<4, T> : add_segments<1, T>),
             sl::blocks(positions, static_cast<int>(block.y)), block, 0, cuda->stream, sorted,
             width, dy, values);
}

/* Calls each(sorted run, its first position, number of positions) in the positions' order. */
template <class F>
void each_run(struct sl__cuda *cuda, const sl__embedding_args *a, const void *tokens, F each) {
  run *sorted = static_cast<run *>(cuda->workspace);
  int64_t count = a->rows * a->steps;
  for (int64_t first = 0; first < count; first += RUNS * RUN) {
    int64_t runs = (count - first + RUN - 1) / RUN;
    if (runs > RUNS) runs = RUNS;
    int length = 1;
    while (length < RUN && length < count) length *= 2;
    SL__LAUNCH(sort_runs, static_cast<unsigned>(runs), SORTERS, 0, cuda->stream, *a, tokens, first,
               length, sorted);
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

/* New rows get the next indices in the order of first touch, up to the capacity. One block. */
__global__ void __launch_bounds__(SORTERS)
    assign_places(sl__rows_args a, run *sorted, int32_t *rows, int32_t *place, int32_t *overflow) {
  __shared__ int32_t touched_at[RUN]; /* by position: 1 + the segment that begins there, or 0 */
  int32_t before = rows[0], segments = sorted->count, own = 0, total;
  for (int p = threadIdx.x; p < RUN; p += SORTERS) touched_at[p] = 0;
  __syncthreads();
  for (int s = threadIdx.x; s < segments; s += SORTERS) {
    segment *g = sorted->segments + s;
    g->row = place[g->token];
    if (g->row < 0) touched_at[sorted->order[g->first]] = 1 + s;
  }
  __syncthreads();
  for (int e = 0; e < EACH; e++) own += touched_at[threadIdx.x * EACH + e] != 0;
  int64_t at = before + sl::sum_before(own, &total);
  for (int e = 0; e < EACH; e++) {
    int32_t s = touched_at[threadIdx.x * EACH + e] - 1;
    if (s < 0) continue;
    segment *g = sorted->segments + s;
    if (at < a.capacity) {
      g->row = place[g->token] = static_cast<int32_t>(at);
      g->fresh = true;
      rows[1 + at] = g->token;
    }
    at++;
  }
  if (threadIdx.x) return;
  if (before + total > a.capacity) *overflow = 1;
  rows[0] = before + total < a.capacity ? before + total : static_cast<int32_t>(a.capacity);
}

/* Rows beyond the capacity would be lost silently: NaN reports them. */
__global__ void tell_overflow(const int32_t *overflow, float *values) {
  if (*overflow) values[0] = NAN;
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
  size_t bytes = static_cast<size_t>(a->rows.table) * sizeof *place;
  if (!sl::succeeded(cudaMemsetAsync(place, 0xff, bytes, cuda->stream)) ||
      !sl::succeeded(cudaMemsetAsync(overflow, 0, sizeof *overflow, cuda->stream)))
    return;
  if (sl__accumulate(cl_arg))
    SL__LAUNCH(note_places, sl::blocks(a->rows.capacity), sl::THREADS, 0, cuda->stream, rows,
               place);
  else if (!sl::succeeded(cudaMemsetAsync(rows, 0, sizeof *rows, cuda->stream)))
    return;
  each_run(cuda, &a->tokens, sl::in<int32_t>(buffers, 0),
           [&](run *sorted, int64_t first, int64_t count) {
             SL__LAUNCH(assign_places, 1, SORTERS, 0, cuda->stream, a->rows, sorted, rows, place,
                        overflow);
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
