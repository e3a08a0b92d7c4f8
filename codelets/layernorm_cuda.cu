/* Layer, group, instance and RMS normalisation. A row that fits into the registers of a warp, or of
 * a block, is read once; a longer one by passes of a block. The parameters' gradient is summed over
 * parts of the rows, then over the parts. All sums have an order that depends on the sizes and the
 * type only. */
#include "codelets/layernorm.h"

#include <type_traits>

#include "codelets/kernels/cuda.h"
#include "codelets/kernels/gemm_cuda.h"
#include "codelets/kernels/index_cuda.h"

namespace {

struct shape {
  sl__layernorm_args a;
  sl::divider plane;
  bool packed;       /* rows begin and end at multiples of 16 bytes */
  bool packed_param; /* and so do their parameters, one a value */

  template <class T, class... P>
  shape(const sl__layernorm_args *args, const float *param, const T *x, const P *...others)
      : a(*args), plane(args->plane) {
    packed = a.size % (16 / sizeof(T)) == 0 && sl::is_aligned(x) && (... && sl::is_aligned(others));
    packed_param = packed && a.plane == 1 && a.channels % 4 == 0 && sl::is_aligned(param);
  }
};

/* A row's parameters; NULL: none. */
struct params {
  const float *gamma, *beta;
  __device__ params(const sl__layernorm_args &a, const float *param, int64_t r) {
    gamma = a.is_plain ? nullptr : param + (a.groups > 1 ? r % a.groups * a.channels : 0);
    beta = gamma && !a.is_rms ? gamma + a.groups * a.channels : nullptr;
  }
};

/* ---- rows in registers: threads (., y) of a block have a row ---- */

constexpr int MOST_PACKS = 3; /* a thread's of a row */
constexpr int ROWS = 4;       /* of a block, if a warp is enough for one */
/* A row's threads. With the stand-in few, so that small tests have longer rows, too. */
#ifdef SL_CUDA_STANDIN /* which knows no __launch_bounds__ */
constexpr int MOST_THREADS = 64;
#else
constexpr int MOST_THREADS = 512;
#endif

__device__ inline float row_sum(float v) {
  return blockDim.x == 32 ? sl::warp_sum(v) : sl::block_sum(v);
}

/* The index in a row of the thread's p-th pack. */
template <int N>
__device__ inline int pack_at(int p) {
  return (p * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * N;
}

/* 16 bytes of a row as words: of values of 2 bytes the compiler would keep each in a register. */
template <class T>
struct words {
  static constexpr int N = 16 / sizeof(T);
  uint32_t w[4];

  __device__ float operator[](int k) const {
    if (sizeof(T) == 4) return sl__bits_float(w[k]);
    return sl__bits_float(k % 2 ? w[k / 2] & 0xffff0000u : w[k / 2] << 16);
  }
  __device__ void set(int k, float v) {
    if constexpr (sizeof(T) == 4)
      w[k] = sl__float_bits(v);
    else
      w[k / 2] = (k % 2 ? w[k / 2] : 0) | static_cast<uint32_t>(sl::narrow<T>(v).code)
                                              << k % 2 * 16;
  }
  /* The values of a row from index i on; those beyond its end are 0. */
  __device__ void load(const shape &s, const T *row, int i) {
    int size = static_cast<int>(s.a.size);
    if (s.packed) {
      sl::pack<uint32_t, 4> all = {};
      if (i < size) all = *reinterpret_cast<const sl::pack<uint32_t, 4> *>(row + i);
#pragma unroll
      for (int k = 0; k < 4; k++) w[k] = all.v[k];
    } else {
#pragma unroll
      for (int k = 0; k < N; k++) set(k, i + k < size ? sl::value(row[i + k]) : 0);
    }
  }
  __device__ void store(const shape &s, T *row, int i) const {
    int size = static_cast<int>(s.a.size);
    if (s.packed) {
      *reinterpret_cast<sl::pack<uint32_t, 4> *>(row + i) = {{w[0], w[1], w[2], w[3]}};
    } else {
#pragma unroll
      for (int k = 0; k < N; k++)
        if (i + k < size) row[i + k] = sl::narrow<T>((*this)[k]);
    }
  }
};

/* A thread's values of a row. */
template <int P, class T>
struct held {
  static constexpr int N = words<T>::N;
  words<T> v[P];

  __device__ void load(const shape &s, const T *row) {
#pragma unroll
    for (int p = 0; p < P; p++) v[p].load(s, row, pack_at<N>(p));
  }

  /* Between two passes: keeps the compiler from holding the values of 2 bytes as floats, too. */
  __device__ void settle() {
    if constexpr (sizeof(T) == 2) {
#pragma unroll
      for (int p = 0; p < P; p++)
#pragma unroll
        for (int k = 0; k < 4; k++) asm volatile("" : "+r"(v[p].w[k]));
    }
  }

  __device__ sl__row_stats stats(const sl__layernorm_args &a) {
    float sum = 0, squares = 0;
    int size = static_cast<int>(a.size);
#pragma unroll
    for (int p = 0; p < P; p++)
#pragma unroll
      for (int k = 0; k < N; k++) sum += v[p][k];
    float mean = a.is_rms ? 0 : row_sum(sum) / static_cast<float>(a.size);
    settle();
#pragma unroll
    for (int p = 0; p < P; p++)
#pragma unroll
      for (int k = 0; k < N; k++) {
        float d = pack_at<N>(p) + k < size ? v[p][k] - mean : 0;
        squares += d * d;
      }
    settle();
    return {mean, sl__row_inverse(&a, row_sum(squares))};
  }
};

/* Brings the thread's values of a row into the cache. */
template <int P, int N, class T>
__device__ void fetch([[maybe_unused]] const shape &s, [[maybe_unused]] const T *row) {
#ifndef SL_CUDA_STANDIN
#pragma unroll
  for (int p = 0; p < P; p++)
    if (pack_at<N>(p) < s.a.size)
      asm volatile("prefetch.global.L2 [%0];"
                   :
                   : "l"(__cvta_generic_to_global(row + pack_at<N>(p))));
#endif
}

/* The parameters of the values i to i + N - 1 of a row; if there are none, `none`. */
template <int N>
__device__ void load_params(const shape &s, const float *from, int i, float none, float (&v)[N]) {
  using four = sl::pack<float, 4>;
  int size = static_cast<int>(s.a.size);
  if (!from) {
#pragma unroll
    for (int k = 0; k < N; k++) v[k] = none;
  } else if (s.packed_param) {
#pragma unroll
    for (int k = 0; k < N; k += 4) {
      four f = *reinterpret_cast<const four *>(from + i + k);
#pragma unroll
      for (int j = 0; j < 4; j++) v[k + j] = f.v[j];
    }
  } else {
#pragma unroll
    for (int k = 0; k < N; k++) v[k] = i + k < size ? from[s.plane(i + k)] : 0;
  }
}

template <int P, class T>
__global__ void __launch_bounds__(MOST_THREADS, 2)
    forward_rows(shape s, const T *x, const float *param, T *y) {
  constexpr int N = held<P, T>::N;
  int64_t r = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (r >= s.a.rows) return; /* the whole warp: a block of several warps a row has one row */
  params of(s.a, param, r);
  held<P, T> row;
  row.load(s, x + r * s.a.size);
  sl__row_stats stats = row.stats(s.a);
#pragma unroll
  for (int p = 0; p < P; p++) {
    int i = pack_at<N>(p);
    if (i >= s.a.size) break;
    float gamma[N], beta[N];
    load_params(s, of.gamma, i, 1, gamma);
    load_params(s, of.beta, i, 0, beta);
    words<T> result;
#pragma unroll
    for (int k = 0; k < N; k++)
      result.set(k, (row.v[p][k] - stats.mean) * stats.inverse * gamma[k] + beta[k]);
    result.store(s, y + r * s.a.size, i);
  }
}

template <int P, class T>
__global__ void __launch_bounds__(MOST_THREADS, 2)
    backward_data_rows(shape s, const T *x, const float *param, const T *dy, T *dx, bool add) {
  constexpr int N = held<P, T>::N;
  int64_t r = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (r >= s.a.rows) return;
  params of(s.a, param, r);
  held<P, T> row, slope;
  words<T> old;
  float gamma[4], sum = 0, product = 0;
  row.load(s, x + r * s.a.size);
  slope.load(s, dy + r * s.a.size);
  if (add) fetch<P, N>(s, dx + r * s.a.size); /* registers have no room for it yet */
  sl__row_stats stats = row.stats(s.a);
#pragma unroll
  for (int p = 0; p < P; p++) {
    int i = pack_at<N>(p);
    if (i >= s.a.size) break;
#pragma unroll
    for (int k = 0; k < N; k++) {
      if (k % 4 == 0) load_params(s, of.gamma, i + k, 1, gamma);
      float g = slope.v[p][k] * gamma[k % 4];
      sum += g;
      product += g * (row.v[p][k] - stats.mean);
    }
  }
  row.settle();
  slope.settle();
  sum = row_sum(sum);
  sl__row_slopes v = sl__row_slopes_of(&s.a, stats, sum, row_sum(product));
#pragma unroll
  for (int p = 0; p < P; p++) {
    int i = pack_at<N>(p);
    if (i >= s.a.size) break;
    words<T> result;
    if (add) old.load(s, dx + r * s.a.size, i);
#pragma unroll
    for (int k = 0; k < N; k++) {
      if (k % 4 == 0) load_params(s, of.gamma, i + k, 1, gamma);
      float g = slope.v[p][k] * gamma[k % 4];
      float to = v.r * g + (v.b * (row.v[p][k] - stats.mean) + v.s);
      result.set(k, add ? old[k] + to : to);
    }
    result.store(s, dx + r * s.a.size, i);
  }
}

template <int P, class T>
__global__ void __launch_bounds__(MOST_THREADS, 2)
    stats_rows(shape s, const T *x, sl__row_stats *stats) {
  int64_t r = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (r >= s.a.rows) return;
  held<P, T> row;
  row.load(s, x + r * s.a.size);
  sl__row_stats result = row.stats(s.a);
  if (threadIdx.x == 0) stats[r] = result;
}

/* How a row of `size` values is held; packs: of a thread, 0: the row is too long. */
template <class T>
struct team {
  int packs = 0;
  dim3 threads;

  explicit team(int64_t size) {
    constexpr int N = 16 / sizeof(T);
    int64_t all = (size + N - 1) / N, warps = (all + 32 * MOST_PACKS - 1) / (32 * MOST_PACKS);
    if (warps > MOST_THREADS / 32) return;
    packs = static_cast<int>((all + 32 * warps - 1) / (32 * warps));
    threads = dim3(static_cast<unsigned>(32 * warps), warps == 1 ? ROWS : 1);
  }
  unsigned blocks(int64_t rows) const { return sl::blocks(rows, static_cast<int>(threads.y)); }
};

/* Calls f with the number of packs as a constant. */
template <class F>
void with_packs(int packs, F f) {
  switch (packs) {
    case 1: f(std::integral_constant<int, 1>()); break;
    case 2: f(std::integral_constant<int, 2>()); break;
    default: f(std::integral_constant<int, MOST_PACKS>()); break;
  }
}

/* ---- long rows: a block a row ---- */

/* Sums are in double precision: a thread's share of a row may be thousands of values that are
 * nearly alike. */

/* All threads of the block get the row's statistics. */
template <class T>
__device__ sl__row_stats stats_of(const sl__layernorm_args &a, const T *x) {
  double sum = 0, squares = 0;
  if (!a.is_rms)
    for (int64_t i = threadIdx.x; i < a.size; i += blockDim.x) sum += sl::value(x[i]);
  sl__row_stats s = {
      a.is_rms ? 0 : static_cast<float>(sl::block_sum(sum)) / static_cast<float>(a.size), 0};
  for (int64_t i = threadIdx.x; i < a.size; i += blockDim.x) {
    float d = sl::value(x[i]) - s.mean;
    squares += d * d;
  }
  s.inverse = sl__row_inverse(&a, static_cast<float>(sl::block_sum(squares)));
  return s;
}

template <class T>
__global__ void forward_long(shape s, const T *x, const float *param, T *y) {
  int64_t r = blockIdx.x;
  params of(s.a, param, r);
  x += r * s.a.size;
  y += r * s.a.size;
  sl__row_stats stats = stats_of(s.a, x);
  for (int64_t i = threadIdx.x; i < s.a.size; i += blockDim.x) {
    int64_t c = s.plane(i);
    float v = (sl::value(x[i]) - stats.mean) * stats.inverse;
    if (of.gamma) v *= of.gamma[c];
    y[i] = sl::narrow<T>(of.beta ? v + of.beta[c] : v);
  }
}

template <class T>
__global__ void backward_data_long(shape s, const T *x, const float *param, const T *dy, T *dx,
                                   bool add) {
  int64_t r = blockIdx.x;
  params of(s.a, param, r);
  double sum = 0, product = 0;
  x += r * s.a.size;
  dy += r * s.a.size;
  dx += r * s.a.size;
  sl__row_stats stats = stats_of(s.a, x);
  for (int64_t i = threadIdx.x; i < s.a.size; i += blockDim.x) {
    float g = sl::value(dy[i]) * (of.gamma ? of.gamma[s.plane(i)] : 1);
    sum += g;
    product += g * (sl::value(x[i]) - stats.mean);
  }
  sum = sl::block_sum(sum);
  product = sl::block_sum(product);
  sl__row_slopes v =
      sl__row_slopes_of(&s.a, stats, static_cast<float>(sum), static_cast<float>(product));
  for (int64_t i = threadIdx.x; i < s.a.size; i += blockDim.x) {
    float g = sl::value(dy[i]) * (of.gamma ? of.gamma[s.plane(i)] : 1);
    float slope = v.r * g + (v.b * (sl::value(x[i]) - stats.mean) + v.s);
    dx[i] = sl::narrow<T>(add ? sl::value(dx[i]) + slope : slope);
  }
}

template <class T>
__global__ void stats_long(shape s, const T *x, sl__row_stats *stats) {
  sl__row_stats result = stats_of(s.a, x + blockIdx.x * s.a.size);
  if (threadIdx.x == 0) stats[blockIdx.x] = result;
}

/* ---- the parameters' gradient -------------------------------------------------------------- */

constexpr int64_t MOST_ROWS = 1 << 16; /* rows whose statistics are kept at a time */
constexpr int LANES = 32, DOWN = 8;    /* a block's threads: along a row, and down the rows */
constexpr int64_t MOST_PARTS = 120;    /* column_sums adds so few in one launch */
constexpr int64_t MOST_BLOCKS = 512;   /* enough for any GPU */
constexpr int64_t COLUMNS = 8 * LANES; /* the most of a block */
static_assert(MOST_ROWS * sizeof(sl__row_stats) + 2 * MOST_BLOCKS * COLUMNS * sizeof(float) <=
              SL__CUDA_WORKSPACE);

/* Adds the sums of 8 rows of threads in their order; lanes hold N columns each. */
template <int N>
__device__ void sum_down(float (&sum)[N]) {
  __shared__ float part[DOWN][N][LANES];
  __syncthreads(); /* an earlier call may still read part */
#pragma unroll
  for (int k = 0; k < N; k++) part[threadIdx.y][k][threadIdx.x] = sum[k];
  __syncthreads();
  if (threadIdx.y) return;
  for (int d = 1; d < DOWN; d++)
#pragma unroll
    for (int k = 0; k < N; k++) sum[k] += part[d][k][threadIdx.x];
}

/* Of a layer normalisation: a lane has N parameters; block (., p) the part p of the rows. */
template <int N, class T>
__global__ void __launch_bounds__(LANES *DOWN, 4)
    weight_columns(sl__layernorm_args a, int64_t a_part, const T *x, const T *dy,
                   const sl__row_stats *stats, float *out, bool add) {
  using values = sl::pack<T, N>;
  int64_t column = (static_cast<int64_t>(blockIdx.x) * LANES + threadIdx.x) * N;
  int64_t first = blockIdx.y * a_part, end = first + a_part < a.rows ? first + a_part : a.rows;
  float gamma[N] = {}, beta[N] = {};
  if (column < a.size) {
#pragma unroll 4
    for (int64_t r = first + threadIdx.y; r < end; r += DOWN) {
      values vx = *reinterpret_cast<const values *>(x + r * a.size + column);
      values vd = *reinterpret_cast<const values *>(dy + r * a.size + column);
      sl__row_stats s = stats[r];
#pragma unroll
      for (int k = 0; k < N; k++) {
        float d = sl::value(vd.v[k]);
        gamma[k] += d * ((sl::value(vx.v[k]) - s.mean) * s.inverse);
        beta[k] += d;
      }
    }
  }
  sum_down(gamma);
  if (!a.is_rms) sum_down(beta);
  if (threadIdx.y || column >= a.size) return;
  out += blockIdx.y * (a.is_rms ? 1 : 2) * a.size + column;
#pragma unroll
  for (int k = 0; k < N; k++) {
    out[k] = add ? out[k] + gamma[k] : gamma[k];
    if (!a.is_rms) out[a.size + k] = add ? out[a.size + k] + beta[k] : beta[k];
  }
}

/* A block a channel of a group normalisation. */
template <class T>
__global__ void weight_channel(shape s, const T *x, const T *dy, const sl__row_stats *stats,
                               float *grad, bool add) {
  const sl__layernorm_args &a = s.a;
  int64_t group = blockIdx.x / a.channels, channel = blockIdx.x % a.channels;
  int64_t values = a.rows / a.groups * a.plane;
  double gamma = 0, beta = 0;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < values; i += blockDim.x) {
    int64_t n = s.plane(i), r = n * a.groups + group;
    int64_t at = r * a.size + channel * a.plane + (i - n * a.plane);
    float d = sl::value(dy[at]);
    gamma += d * ((sl::value(x[at]) - stats[r].mean) * stats[r].inverse);
    beta += d;
  }
  float gammas = static_cast<float>(sl::block_sum(gamma));
  float betas = static_cast<float>(sl::block_sum(beta));
  if (threadIdx.x) return;
  float *to = grad + blockIdx.x;
  *to = add ? *to + gammas : gammas;
  to += a.groups * a.channels;
  if (!a.is_rms) *to = add ? *to + betas : betas;
}

template <class T>
void keep_stats(struct sl__cuda *cuda, const shape &s, const T *x, sl__row_stats *stats) {
  team<T> t(s.a.size);
  if (!t.packs)
    SL__LAUNCH((stats_long<T>), static_cast<unsigned>(s.a.rows), sl::THREADS, 0, cuda->stream, s, x,
               stats);
  else
    with_packs(t.packs, [&](auto p) {
      SL__LAUNCH((stats_rows<p.value, T>), t.blocks(s.a.rows), t.threads, 0, cuda->stream, s, x,
                 stats);
    });
}

/* The parts depend on the size only, not on how the values can be loaded. */
template <class T>
void sum_layer(struct sl__cuda *cuda, const shape &s, const T *x, const T *dy,
               const sl__row_stats *stats, float *partial, float *grad, bool add) {
  constexpr int N = 16 / sizeof(T);
  int64_t rows = s.a.rows, width = (s.a.is_rms ? 1 : 2) * s.a.size;
  int64_t most = MOST_BLOCKS / sl::blocks(s.a.size, LANES * N), parts = rows / DOWN;
  if (most > MOST_PARTS) most = MOST_PARTS;
  if (parts > most) parts = most;
  if (parts < 1) parts = 1;
  int64_t a_part = (rows + parts - 1) / parts;
  parts = (rows + a_part - 1) / a_part;
  dim3 grid(sl::blocks(s.a.size, s.packed ? LANES * N : LANES), static_cast<unsigned>(parts));
  SL__LAUNCH((s.packed ? weight_columns<N, T> : weight_columns<1, T>), grid, dim3(LANES, DOWN), 0,
             cuda->stream, s.a, a_part, x, dy, stats, parts == 1 ? grad : partial,
             parts == 1 && add);
  if (parts == 1) return;
  sl::column_sums(cuda, static_cast<const float *>(partial), parts, width, width, grad, add);
}

template <class T>
void weight_rows(struct sl__cuda *cuda, const sl__layernorm_args &a, const T *x, const T *dy,
                 float *grad, bool add) {
  sl__row_stats *stats = static_cast<sl__row_stats *>(cuda->workspace);
  shape s(&a, nullptr, x, dy);
  keep_stats(cuda, s, x, stats);
  if (a.plane == 1 && a.groups == 1)
    sum_layer(cuda, s, x, dy, stats, reinterpret_cast<float *>(stats + MOST_ROWS), grad, add);
  else
    SL__LAUNCH((weight_channel<T>), static_cast<unsigned>(a.groups * a.channels), sl::THREADS, 0,
               cuda->stream, s, x, dy, stats, grad, add);
}

template <class T>
void weight_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  sl__layernorm_args a = *sl::args<sl__layernorm_args>(cl_arg);
  const T *x = sl::in<T>(buffers, 0), *dy = sl::in<T>(buffers, 1);
  bool add = sl__accumulate(cl_arg);
  int64_t all = a.rows, most = MOST_ROWS / a.groups * a.groups;
  if (!most) {
    sl__task_failed(SL_BAD_SHAPE, "layernorm: %lld groups, a GPU takes %lld",
                    static_cast<long long>(a.groups), static_cast<long long>(MOST_ROWS));
    return;
  }
  for (int64_t r = 0; r < all; r += most) {
    a.rows = all - r < most ? all - r : most;
    weight_rows(cuda, a, x + r * a.size, dy + r * a.size, sl::out<float>(buffers, 2), add || r);
  }
}

template <class T>
void forward_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__layernorm_args *a = sl::args<sl__layernorm_args>(cl_arg);
  const T *x = sl::in<T>(buffers, 0);
  const float *param = sl::in<float>(buffers, 1);
  T *y = sl::out<T>(buffers, 2);
  shape s(a, param, x, y);
  team<T> t(a->size);
  if (!t.packs)
    SL__LAUNCH((forward_long<T>), static_cast<unsigned>(a->rows), sl::THREADS, 0, cuda->stream, s,
               x, param, y);
  else
    with_packs(t.packs, [&](auto p) {
      SL__LAUNCH((forward_rows<p.value, T>), t.blocks(a->rows), t.threads, 0, cuda->stream, s, x,
                 param, y);
    });
}

template <class T>
void data_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__layernorm_args *a = sl::args<sl__layernorm_args>(cl_arg);
  const T *x = sl::in<T>(buffers, 0), *dy = sl::in<T>(buffers, 2);
  const float *param = sl::in<float>(buffers, 1);
  T *dx = sl::out<T>(buffers, 3);
  bool add = sl__accumulate(cl_arg);
  shape s(a, param, x, dy, dx);
  team<T> t(a->size);
  if (!t.packs)
    SL__LAUNCH((backward_data_long<T>), static_cast<unsigned>(a->rows), sl::THREADS, 0,
               cuda->stream, s, x, param, dy, dx, add);
  else
    with_packs(t.packs, [&](auto p) {
      SL__LAUNCH((backward_data_rows<p.value, T>), t.blocks(a->rows), t.threads, 0, cuda->stream, s,
                 x, param, dy, dx, add);
    });
}

}  // namespace

SL__CUDA(layernorm_forward) { SL__BY_TYPE(cl_arg, 0, T, forward_task<T>(buffers, cl_arg, cuda)); }

SL__CUDA(layernorm_backward_data) {
  SL__BY_TYPE(cl_arg, 0, T, data_task<T>(buffers, cl_arg, cuda));
}

SL__CUDA(layernorm_backward_weight) {
  SL__BY_TYPE(cl_arg, 0, T, weight_task<T>(buffers, cl_arg, cuda));
}
