/* Row-sparse gradients, as in rows.c: the same rows in the same order. Only the device knows the
 * number of rows; grids cover the capacity, or are smaller and loop. */
#include "codelets/rows.h"

#include "codelets/kernels/sums_cuda.h"

namespace {
/* State that the launches of one reduction share, in the workspace. */
struct progress {
  int32_t before; /* rows of the sum before the current term */
  int32_t full;   /* a row exceeded the capacity */
};

constexpr int BOOKKEEPERS = 1024;

/* Gives the term's new rows an index, in their order; no row occurs in the term twice. One block.
 */
__global__ void __launch_bounds__(BOOKKEEPERS)
    find_places(const int32_t *term, int32_t *rows, int32_t *place, int64_t capacity,
                progress *state) {
  int32_t count = rows[0], terms = term[0];
  bool full = false;
  if (threadIdx.x == 0) state->before = count;
  for (int32_t base = 0; base < terms; base += BOOKKEEPERS) {
    int32_t k = base + static_cast<int32_t>(threadIdx.x), row = k < terms ? term[1 + k] : 0;
    bool is_new = k < terms && place[row] < 0;
    int32_t total, at = count + sl::sum_before(is_new, &total);
    if (is_new && at < capacity) {
      place[row] = at;
      rows[1 + at] = row;
    }
    count += total;
    if (count > capacity) {
      count = static_cast<int32_t>(capacity);
      full = true;
    }
  }
  __syncthreads(); /* all threads have read the count */
  if (threadIdx.x) return;
  rows[0] = count;
  if (full) state->full = 1;
}

/* One warp a row: y = x, or y += x. */
template <int N>
__device__ void put_row(const float *x, float *y, int64_t width, bool add) {
  using pack = sl::pack<float, N>;
#pragma unroll 4
  for (int64_t p = threadIdx.x % 32; p < width / N; p += 32) {
    pack v = reinterpret_cast<const pack *>(x)[p];
    if (add) {
      pack old = reinterpret_cast<const pack *>(y)[p];
      for (int j = 0; j < N; j++) v.v[j] = old.v[j] + v.v[j];
    }
    reinterpret_cast<pack *>(y)[p] = v;
  }
}

/* place NULL: row r goes to y's row r (rows_dense). */
template <int N>
__global__ void put_rows(const int32_t *term, const float *x, const int32_t *place,
                         const progress *state, float *y, int64_t width) {
  int64_t warps = static_cast<int64_t>(gridDim.x) * blockDim.x / 32;
  for (int64_t k = sl::thread_index() / 32; k < term[0]; k += warps) {
    int32_t at = place ? place[term[1 + k]] : term[1 + k];
    bool add = place && at < state->before;
    if (at >= 0) put_row<N>(x + k * width, y + at * width, width, add);
  }
}

/* Exceeding the capacity is not silent. */
__global__ void tell_full(const progress *state, float *values) {
  if (state->full) values[0] = NAN;
}

/* The grid in which each of at most `rows` rows has a warp, or warps loop over rows. */
unsigned warps_grid(int64_t rows) {
  unsigned grid = sl::blocks(rows * 32);
  return grid < 4096 ? grid : 4096;
}

int64_t room(void *rows) { return static_cast<int64_t>(STARPU_VECTOR_GET_NX(rows)) - 1; }

void put(struct sl__cuda *cuda, void *rows, const float *x, const int32_t *place,
         const progress *state, float *y, int64_t width) {
  const int32_t *term = reinterpret_cast<const int32_t *>(STARPU_VECTOR_GET_PTR(rows));
  unsigned grid = warps_grid(room(rows));
  if (width % 4 == 0 && sl::is_aligned(x) && sl::is_aligned(y))
    SL__LAUNCH((put_rows<4>), grid, sl::THREADS, 0, cuda->stream, term, x, place, state, y, width);
  else
    SL__LAUNCH((put_rows<1>), grid, sl::THREADS, 0, cuda->stream, term, x, place, state, y, width);
}
}  // namespace

SL__CUDA(rows_reduce) {
  const sl__rows_args *a = sl::args<sl__rows_args>(cl_arg);
  int32_t *rows = sl::out<int32_t>(buffers, 0), *place = sl::out<int32_t>(buffers, 2);
  float *values = sl::out<float>(buffers, 1);
  progress *state = static_cast<progress *>(cuda->workspace);
  size_t places = static_cast<size_t>(a->table) * sizeof *place;
  if (!sl::succeeded(cudaMemsetAsync(place, 0xff, places, cuda->stream)) ||
      !sl::succeeded(cudaMemsetAsync(rows, 0, sizeof *rows, cuda->stream)) ||
      !sl::succeeded(cudaMemsetAsync(state, 0, sizeof *state, cuda->stream)))
    return;
  for (int t = 3; t + 1 < sl__buffer_count(cl_arg); t += 2) {
    SL__LAUNCH(find_places, 1, BOOKKEEPERS, 0, cuda->stream, sl::in<int32_t>(buffers, t), rows,
               place, a->capacity, state);
    put(cuda, buffers[t], sl::in<float>(buffers, t + 1), place, state, values, a->width);
  }
  SL__LAUNCH(tell_full, 1, 1, 0, cuda->stream, static_cast<const progress *>(state), values);
}

SL__CUDA(rows_square) {
  const sl__rows_args *a = sl::args<sl__rows_args>(cl_arg);
  sl::square_sum(cuda, sl::in<float>(buffers, 1), sl::in<int32_t>(buffers, 0), a->width,
                 a->capacity * a->width, sl::out<float>(buffers, 2));
}

SL__CUDA(rows_dense) {
  const sl__rows_args *a = sl::args<sl__rows_args>(cl_arg);
  float *dense = sl::out<float>(buffers, 2);
  size_t bytes = static_cast<size_t>(a->table * a->width) * sizeof *dense;
  if (!sl::succeeded(cudaMemsetAsync(dense, 0, bytes, cuda->stream))) return;
  put(cuda, buffers[0], sl::in<float>(buffers, 1), nullptr, nullptr, dense, a->width);
}

/* One warp a row: the part of it that lies in the shard. */
static __global__ void descend(sl__rows_sgd_args a, float *p, const int32_t *rows,
                               const float *values, const float *norm) {
  int64_t warps = static_cast<int64_t>(gridDim.x) * blockDim.x / 32, width = a.rows.width;
  float rate = a.update.u.lr * sl__clip_factor(a.update.u.max_norm, norm);
  for (int64_t k = sl::thread_index() / 32; k < rows[0]; k += warps) {
    int64_t begin = rows[1 + k] * width - a.first; /* in the shard */
    int64_t skip = begin < 0 ? -begin : 0;
    int64_t end = begin + width < a.count ? width : a.count - begin;
#pragma unroll 4
    for (int64_t d = skip + threadIdx.x % 32; d < end; d += 32)
      p[begin + d] -= rate * values[k * width + d];
  }
}

SL__CUDA(rows_sgd) {
  const sl__rows_sgd_args *a = sl::args<sl__rows_sgd_args>(cl_arg);
  SL__LAUNCH(descend, warps_grid(a->rows.capacity), sl::THREADS, 0, cuda->stream, *a,
             sl::out<float>(buffers, 0) + a->update.param_first, sl::in<int32_t>(buffers, 1),
             sl::in<float>(buffers, 2), a->update.has_norm ? sl::in<float>(buffers, 3) : nullptr);
}
