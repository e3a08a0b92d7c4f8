/* Batch normalisation, in three launches: partial sums of each channel, the channel's results from
 * them, then value by value. cuDNN's functions do not fit: its backward function computes both
 * gradients in one call, ours are two tasks, and it does not promise an order of summation.
 *
 * The sums are in double precision, each block's part a tree, the parts again a tree: a fixed order
 * that depends on the shape only. Mean and variance come from one pass over values minus the
 * channel's first value, so that a large mean costs no digits. */
#include "codelets/batchnorm.h"

#include "codelets/kernels/cuda.h"
#include "codelets/kernels/index_cuda.h"

namespace {

/* ---- sums of a channel: forward of x - centre and its square, backward of dy and dy (x - mean)
 * ---
 */

struct sums {
  double a, b;
};

template <bool BACKWARD, class T>
__device__ void add(sums &sum, T x, T dy, double centre) {
  double d = static_cast<double>(sl::value(x)) - centre;
  double g = BACKWARD ? static_cast<double>(sl::value(dy)) : d;
  sum.a += g;
  sum.b += g * d;
}

template <bool BACKWARD, class T>
__device__ double centre_of(const T *x, const float *mean, int64_t c, int64_t plane) {
  return static_cast<double>(BACKWARD ? mean[c] : sl::value(x[c * plane]));
}

/* Block (c, part) goes over channel c's packs, row by row. */
template <bool BACKWARD, int N, class T>
__global__ void sum_planes(sl::divider packs, int64_t count, int64_t channels, const T *x,
                           const T *dy, const float *mean, sums *part) {
  using values = sl::pack<T, N>;
  int64_t c = blockIdx.x, step = static_cast<int64_t>(gridDim.y) * blockDim.x;
  double centre = centre_of<BACKWARD>(x, mean, c, packs.by * N);
  sums sum = {0, 0};
#pragma unroll 4
  for (int64_t j = static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x; j < count;
       j += step) {
    int64_t n = packs(j), at = (n * channels + c) * packs.by + (j - n * packs.by);
    values vx = reinterpret_cast<const values *>(x)[at], vdy = vx;
    if constexpr (BACKWARD) vdy = reinterpret_cast<const values *>(dy)[at];
#pragma unroll
    for (int k = 0; k < N; k++) add<BACKWARD>(sum, vx.v[k], vdy.v[k], centre);
  }
  sum.a = sl::block_sum(sum.a);
  sum.b = sl::block_sum(sum.b);
  if (threadIdx.x == 0) part[blockIdx.y * channels + c] = sum;
}

/* Small planes: a lane has a column of x [rows, channels * plane], a warp every eighth row of its
 * part. */
constexpr int WARPS = sl::THREADS / 32;

template <bool BACKWARD, class T>
__global__ void sum_columns(int64_t rows, int64_t columns, int32_t plane, const T *x, const T *dy,
                            const float *mean, sums *part) {
  __shared__ double a[WARPS][32], b[WARPS][32];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int64_t column = static_cast<int64_t>(blockIdx.x) * 32 + lane;
  sums sum = {0, 0};
  if (column < columns) {
    double centre = centre_of<BACKWARD>(x, mean, column / plane, plane);
    int64_t step = static_cast<int64_t>(gridDim.y) * WARPS;
#pragma unroll 4
    for (int64_t n = static_cast<int64_t>(blockIdx.y) * WARPS + warp; n < rows; n += step) {
      int64_t at = n * columns + column;
      add<BACKWARD>(sum, x[at], BACKWARD ? dy[at] : x[at], centre);
    }
  }
  a[warp][lane] = sum.a;
  b[warp][lane] = sum.b;
  __syncthreads();
  if (warp || column >= columns) return;
  for (int w = 1; w < WARPS; w++) sum.a += a[w][lane], sum.b += b[w][lane];
  part[blockIdx.y * columns + column] = sum;
}

/* One warp a channel: `each` adjacent partial sums of each part, then f(c, sums). */
template <class F>
__global__ void finish(F f, int64_t channels, int32_t parts, int32_t each, const sums *part) {
  int64_t c = sl::thread_index() / 32;
  if (c >= channels) return; /* the whole warp */
  sums sum = {0, 0};
  for (int32_t k = threadIdx.x % 32; k < parts * each; k += 32) {
    sums p = part[(k / each * channels + c) * each + k % each];
    sum.a += p.a;
    sum.b += p.b;
  }
  sum.a = sl::warp_sum(sum.a);
  sum.b = sl::warp_sum(sum.b);
  if (threadIdx.x % 32 == 0) f(c, sum);
}

/* ---- layout of the workspace: the partial sums, then a float4 a channel ---- */

constexpr int64_t MOST_CHANNELS = int64_t{1} << 20, BLOCKS = 2048;
constexpr size_t HALF = SL__CUDA_WORKSPACE / 2;
static_assert(MOST_CHANNELS * sizeof(sums) <= HALF && MOST_CHANNELS * sizeof(float4) <= HALF);

bool fits(const sl__norm_args *a) {
  if (a->channels <= MOST_CHANNELS) return true;
  sl__task_failed(SL_UNSUPPORTED, "%d channels; a GPU's workspace has room for %lld", a->channels,
                  static_cast<long long>(MOST_CHANNELS));
  return false;
}

float4 *coefficients(struct sl__cuda *cuda) {
  return reinterpret_cast<float4 *>(static_cast<char *>(cuda->workspace) + HALF);
}

/* As many parts as fill a GPU, each with at least `least` values a thread. */
unsigned parts_of(int64_t blocks, int64_t values_a_thread, int64_t least) {
  int64_t parts = values_a_thread / least, most = BLOCKS / blocks;
  if (parts > most) parts = most;
  return parts < 1 ? 1 : static_cast<unsigned>(parts);
}

template <bool BACKWARD, int N, class T, class F>
void sum_by_planes(struct sl__cuda *cuda, const sl__norm_args *a, const T *x, const T *dy,
                   const float *mean, F f) {
  sums *part = static_cast<sums *>(cuda->workspace);
  int64_t count = int64_t{a->rows} * (a->plane / N);
  unsigned parts = parts_of(a->channels, count / sl::THREADS, 8);
  dim3 grid(static_cast<unsigned>(a->channels), parts);
  SL__LAUNCH((sum_planes<BACKWARD, N, T>), grid, sl::THREADS, 0, cuda->stream,
             sl::divider(a->plane / N), count, a->channels, x, dy, mean, part);
  SL__LAUNCH((finish<F>), sl::blocks(int64_t{32} * a->channels), sl::THREADS, 0, cuda->stream, f,
             a->channels, static_cast<int32_t>(parts), 1, part);
}

template <bool BACKWARD, class T, class F>
void sum_by_columns(struct sl__cuda *cuda, const sl__norm_args *a, const T *x, const T *dy,
                    const float *mean, F f) {
  sums *part = static_cast<sums *>(cuda->workspace);
  int64_t columns = int64_t{a->channels} * a->plane;
  dim3 grid(sl::blocks(columns, 32), 1);
  grid.y = parts_of(grid.x, a->rows / WARPS, 8);
  SL__LAUNCH((sum_columns<BACKWARD, T>), grid, sl::THREADS, 0, cuda->stream, a->rows, columns,
             a->plane, x, dy, mean, part);
  SL__LAUNCH((finish<F>), sl::blocks(int64_t{32} * a->channels), sl::THREADS, 0, cuda->stream, f,
             a->channels, static_cast<int32_t>(grid.y), a->plane, part);
}

/* f(c, sums) once for each channel. */
template <bool BACKWARD, class T, class F>
void sum(struct sl__cuda *cuda, const sl__norm_args *a, const T *x, const T *dy, const float *mean,
         F f) {
  constexpr int N = 16 / sizeof(T);
  if (a->plane < 16 && int64_t{a->channels} * a->plane <= MOST_CHANNELS)
    sum_by_columns<BACKWARD>(cuda, a, x, dy, mean, f);
  else if (a->plane % N == 0 && sl::is_aligned(x) && sl::is_aligned(dy))
    sum_by_planes<BACKWARD, N>(cuda, a, x, dy, mean, f);
  else
    sum_by_planes<BACKWARD, 1>(cuda, a, x, dy, mean, f);
}

/* ---- a channel's results ---- */

template <class T>
struct statistics {
  sl__norm_args args;
  const T *x;
  const float *param;
  float *saved;
  float4 *out;

  __device__ void operator()(int64_t c, sums sum) const {
    double count = static_cast<double>(args.rows) * args.plane, moved = sum.a / count;
    double variance = sum.b / count - moved * moved;
    variance = variance < 0 ? 0 : variance; /* NaN stays */
    double mean = static_cast<double>(sl::value(x[c * args.plane])) + moved;
    double inverse = sl__norm_inverse(variance, args.epsilon);
    saved[c] = static_cast<float>(mean);
    saved[args.channels + c] = static_cast<float>(inverse);
    out[c] = make_float4(static_cast<float>(mean), static_cast<float>(param[c] * inverse),
                         param[args.channels + c], 0);
  }
};

struct data_slopes {
  sl__norm_args args;
  const float *param, *saved;
  float4 *out;

  __device__ void operator()(int64_t c, sums sum) const {
    double count = static_cast<double>(args.rows) * args.plane;
    struct sl__norm_slopes v =
        sl__norm_slopes_of(param[c], saved[args.channels + c], sum.a, sum.b, count);
    out[c] = make_float4(saved[c], v.k, v.b, v.s);
  }
};

struct weight_slopes {
  int64_t channels;
  const float *saved;
  float *grad;
  bool add;

  __device__ void operator()(int64_t c, sums sum) const {
    float gamma = static_cast<float>(sum.b * saved[channels + c]);
    float beta = static_cast<float>(sum.a);
    grad[c] = add ? grad[c] + gamma : gamma;
    grad[channels + c] = add ? grad[channels + c] + beta : beta;
  }
};

__global__ void use_running(sl__norm_args a, const float *param, const float *running,
                            float4 *out) {
  int64_t c = sl::thread_index();
  if (c >= a.channels) return;
  double inverse = sl__norm_inverse(running[a.channels + c], a.epsilon);
  out[c] =
      make_float4(running[c], static_cast<float>(param[c] * inverse), param[a.channels + c], 0);
}

__global__ void run(sl__norm_args a, const float *saved, float *running) {
  int64_t c = sl::thread_index();
  if (c < a.channels) sl__norm_run(&a, saved, running, c);
}

/* ---- value by value ---- */

struct by_channel {
  sl::divider plane, channels;
  const float4 *coefficients;

  by_channel(const sl__norm_args *a, const float4 *from)
      : plane(a->plane), channels(a->channels), coefficients(from) {}
  __device__ float4 operator()(int64_t i) const {
    int64_t planes = plane(i);
    return coefficients[planes - channels(planes) * channels.by];
  }
};

struct value_of {
  by_channel at;
  __device__ float operator()(int64_t i, float x) const {
    float4 c = at(i);
    return sl__norm_value(x, c.x, c.y, c.z);
  }
};

struct slope_of {
  by_channel at;
  __device__ float operator()(int64_t i, float x, float dy) const {
    float4 c = at(i);
    return sl__norm_slope(x, dy, c.x, {c.y, c.z, c.w});
  }
  __device__ float operator()(int64_t i, float x, float dy, float dx) const {
    return dx + (*this)(i, x, dy);
  }
};

int64_t count_of(const sl__norm_args *a) { return int64_t{a->rows} * a->channels * a->plane; }

template <class T>
void forward_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__norm_args *a = sl::args<sl__norm_args>(cl_arg);
  const T *x = sl::in<T>(buffers, 0);
  if (!fits(a)) return;
  float4 *channel = coefficients(cuda);
  statistics<T> f = {*a, x, sl::in<float>(buffers, 1), sl::out<float>(buffers, 3), channel};
  sum<false>(cuda, a, x, x, nullptr, f);
  sl::map(cuda, count_of(a), value_of{by_channel(a, channel)}, sl::out<T>(buffers, 2), x);
}

template <class T>
void inference_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__norm_args *a = sl::args<sl__norm_args>(cl_arg);
  if (!fits(a)) return;
  float4 *channel = coefficients(cuda);
  SL__LAUNCH(use_running, sl::blocks(a->channels), sl::THREADS, 0, cuda->stream, *a,
             sl::in<float>(buffers, 1), sl::in<float>(buffers, 2), channel);
  sl::map(cuda, count_of(a), value_of{by_channel(a, channel)}, sl::out<T>(buffers, 3),
          sl::in<T>(buffers, 0));
}

template <class T>
void backward_data_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__norm_args *a = sl::args<sl__norm_args>(cl_arg);
  const T *x = sl::in<T>(buffers, 0), *dy = sl::in<T>(buffers, 3);
  const float *saved = sl::in<float>(buffers, 2);
  T *dx = sl::out<T>(buffers, 4);
  if (!fits(a)) return;
  float4 *channel = coefficients(cuda);
  sum<true>(cuda, a, x, dy, saved, data_slopes{*a, sl::in<float>(buffers, 1), saved, channel});
  slope_of slope = {by_channel(a, channel)};
  if (sl__accumulate(cl_arg))
    sl::map(cuda, count_of(a), slope, dx, x, dy, (const T *)dx);
  else
    sl::map(cuda, count_of(a), slope, dx, x, dy);
}

template <class T>
void backward_weight_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__norm_args *a = sl::args<sl__norm_args>(cl_arg);
  const float *saved = sl::in<float>(buffers, 1);
  if (!fits(a)) return;
  sum<true>(cuda, a, sl::in<T>(buffers, 0), sl::in<T>(buffers, 2), saved,
            weight_slopes{a->channels, saved, sl::out<float>(buffers, 3), sl__accumulate(cl_arg)});
}

}  // namespace

SL__CUDA(batchnorm_forward) { SL__BY_TYPE(cl_arg, 0, T, forward_task<T>(buffers, cl_arg, cuda)); }

SL__CUDA(batchnorm_inference) {
  SL__BY_TYPE(cl_arg, 0, T, inference_task<T>(buffers, cl_arg, cuda));
}

SL__CUDA(batchnorm_backward_data) {
  SL__BY_TYPE(cl_arg, 0, T, backward_data_task<T>(buffers, cl_arg, cuda));
}

SL__CUDA(batchnorm_backward_weight) {
  SL__BY_TYPE(cl_arg, 0, T, backward_weight_task<T>(buffers, cl_arg, cuda));
}

SL__CUDA(batchnorm_running) {
  const sl__norm_args *a = sl::args<sl__norm_args>(cl_arg);
  SL__LAUNCH(run, sl::blocks(a->channels), sl::THREADS, 0, cuda->stream, *a,
             sl::in<float>(buffers, 0), sl::out<float>(buffers, 1));
}
