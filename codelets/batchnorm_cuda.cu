/* Batch normalisation: partial sums of each channel, the channel's results from them, then value by
 * value. cuDNN's functions do not fit: its backward function computes both gradients in one call,
 * ours are two tasks, and it does not promise an order of summation.
 *
 * The sums are in double precision (backward, the values of one load of 16 bytes are first added as
 * floats), each block's part a tree, the parts again a tree: a fixed order that depends on the
 * shape only. Mean and variance come from one pass over values minus the channel's first value, so
 * that a large mean costs no digits.
 *
 * Forward, x is read twice and y written once. Backward, the sums read x and dy, which serves both
 * gradients; then dx reads x and dy and is written. The relu behind a normalisation adds no pass:
 * its gradient follows from x. Launches: forward 3, sums 2, or one fewer where a channel's
 * values are one block's work; backward data 1, or 2 where 8 values may be of two planes. */
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

/* Of the forward pass; those of the backward pass are in `slopes`. */
struct values {
  template <class T>
  struct channel {
    double centre;
    __device__ channel(const values &, const T *x, int64_t c, int64_t plane)
        : centre(static_cast<double>(sl::value(x[c * plane]))) {}
    template <int N>
    __device__ void add(sums &sum, const sl::pack<T, N> &x, const sl::pack<T, N> &) const {
#pragma unroll
      for (int k = 0; k < N; k++) {
        double d = static_cast<double>(sl::value(x.v[k])) - centre;
        sum.a += d;
        sum.b += d * d;
      }
    }
  };
};

struct line {
  float mean, scale, shift;
  __device__ line(const float *param, const float *saved, int64_t channels, int64_t c)
      : mean(saved[c]),
        scale(static_cast<float>(static_cast<double>(param[c]) * saved[channels + c])),
        shift(param[channels + c]) {}
};

struct slopes {
  int64_t channels;
  bool has_relu;
  const float *param, *saved;

  template <class T>
  struct channel {
    line l;
    bool has_relu;
    __device__ channel(const slopes &s, const T *, int64_t c, int64_t)
        : l(s.param, s.saved, s.channels, c), has_relu(s.has_relu) {}
    /* A pack's sums are floats: a double for each value takes longer than its memory. */
    template <int N>
    __device__ void add(sums &sum, const sl::pack<T, N> &x, const sl::pack<T, N> &dy) const {
      float a = 0, b = 0;
#pragma unroll
      for (int k = 0; k < N; k++) {
        float v = sl::value(x.v[k]), g = sl::value(dy.v[k]);
        if (has_relu) g = sl__norm_before_relu(v, g, l.mean, l.scale, l.shift);
        a += g;
        b += g * (v - l.mean);
      }
      sum.a += static_cast<double>(a);
      sum.b += static_cast<double>(b);
    }
  };
};

/* Block (c, part) goes over channel c's packs, row by row. If there is one part, f(c, sums) follows
 * at once. LOADED, which depends on the alignment, changes nothing in the sums. */
template <int N, int LOADED, class W, class T, class F>
__global__ void sum_planes(W what, F f, sl::divider packs, int64_t count, int64_t channels,
                           const T *x, const T *dy, sums *part) {
  int64_t c = blockIdx.x, step = static_cast<int64_t>(gridDim.y) * blockDim.x;
  typename W::template channel<T> channel(what, x, c, packs.by * N);
  sums sum = {0, 0};
#pragma unroll 4
  for (int64_t j = static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x; j < count;
       j += step) {
    int64_t n = packs(j), at = (n * channels + c) * packs.by + (j - n * packs.by);
    sl::pack<T, N> vx = sl::load_pack<N, LOADED>(x + at * N), vdy = vx;
    if (dy) vdy = sl::load_pack<N, LOADED>(dy + at * N);
    channel.add(sum, vx, vdy);
  }
  sum.a = sl::block_sum(sum.a);
  sum.b = sl::block_sum(sum.b);
  if (threadIdx.x) return;
  if (gridDim.y == 1)
    f(c, sum);
  else
    part[blockIdx.y * channels + c] = sum;
}

/* Small planes: a lane has a column of x [rows, channels * plane], a warp every eighth row of its
 * part. */
constexpr int WARPS = sl::THREADS / 32;

template <class W, class T>
__global__ void sum_columns(W what, int64_t rows, int64_t columns, int32_t plane, const T *x,
                            const T *dy, sums *part) {
  __shared__ double a[WARPS][32], b[WARPS][32];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int64_t column = static_cast<int64_t>(blockIdx.x) * 32 + lane;
  sums sum = {0, 0};
  if (column < columns) {
    typename W::template channel<T> channel(what, x, column / plane, plane);
    int64_t step = static_cast<int64_t>(gridDim.y) * WARPS;
#pragma unroll 4
    for (int64_t n = static_cast<int64_t>(blockIdx.y) * WARPS + warp; n < rows; n += step) {
      int64_t at = n * columns + column;
      channel.add(sum, sl::pack<T, 1>{{x[at]}}, sl::pack<T, 1>{{dy ? dy[at] : x[at]}});
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
static_assert(MOST_CHANNELS * 2 * sizeof(float4) <= SL__CUDA_WORKSPACE); /* backward data's */

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

template <int N, int LOADED, class W, class T, class F>
void sum_by_planes(struct sl__cuda *cuda, const sl__norm_args *a, W what, const T *x, const T *dy,
                   F f) {
  sums *part = static_cast<sums *>(cuda->workspace);
  int64_t count = int64_t{a->rows} * (a->plane / N);
  unsigned parts = parts_of(a->channels, count / sl::THREADS, 8);
  dim3 grid(static_cast<unsigned>(a->channels), parts);
  SL__LAUNCH((sum_planes<N, LOADED, W, T, F>), grid, sl::THREADS, 0, cuda->stream, what, f,
             sl::divider(a->plane / N), count, a->channels, x, dy, part);
  if (parts == 1) return;
  SL__LAUNCH((finish<F>), sl::blocks(int64_t{32} * a->channels), sl::THREADS, 0, cuda->stream, f,
             a->channels, static_cast<int32_t>(parts), 1, part);
}

template <class W, class T, class F>
void sum_by_columns(struct sl__cuda *cuda, const sl__norm_args *a, W what, const T *x, const T *dy,
                    F f) {
  sums *part = static_cast<sums *>(cuda->workspace);
  int64_t columns = int64_t{a->channels} * a->plane;
  dim3 grid(sl::blocks(columns, 32), 1);
  grid.y = parts_of(grid.x, a->rows / WARPS, 8);
  SL__LAUNCH((sum_columns<W, T>), grid, sl::THREADS, 0, cuda->stream, what, a->rows, columns,
             a->plane, x, dy, part);
  SL__LAUNCH((finish<F>), sl::blocks(int64_t{32} * a->channels), sl::THREADS, 0, cuda->stream, f,
             a->channels, static_cast<int32_t>(grid.y), a->plane, part);
}

/* f(c, sums) once for each channel; dy may be NULL. */
template <class W, class T, class F>
void sum(struct sl__cuda *cuda, const sl__norm_args *a, W what, const T *x, const T *dy, F f) {
  constexpr int N = 16 / sizeof(T);
  if (a->plane < 16 && int64_t{a->channels} * a->plane <= MOST_CHANNELS)
    sum_by_columns(cuda, a, what, x, dy, f);
  else if (a->plane % N)
    sum_by_planes<1, 1>(cuda, a, what, x, dy, f);
  else if (sl::is_aligned(x) && sl::is_aligned(dy))
    sum_by_planes<N, N>(cuda, a, what, x, dy, f);
  else
    sum_by_planes<N, 1>(cuda, a, what, x, dy, f);
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
    saved[2 * args.channels + c] = saved[3 * args.channels + c] = 0;
    out[c] = make_float4(static_cast<float>(mean), static_cast<float>(param[c] * inverse),
                         param[args.channels + c], 0);
  }
};

struct keep_sums {
  int64_t channels;
  float *saved;

  __device__ void operator()(int64_t c, sums sum) const {
    saved[2 * channels + c] = static_cast<float>(sum.a);
    saved[3 * channels + c] = static_cast<float>(sum.b);
  }
};

/* A channel's coefficients for the slopes of its values. */
struct coefficients_of_slope {
  float4 relu, slope; /* the line's mean, scale and shift; k, b and s */
};

/* part: 1 / the number of a channel's values. */
__device__ inline coefficients_of_slope slope_coefficients(const float *param, const float *saved,
                                                           int64_t channels, int64_t c,
                                                           double part) {
  line l(param, saved, channels, c);
  struct sl__norm_slopes v =
      sl__norm_slopes_of(param[c], saved[channels + c], saved[2 * channels + c] * part,
                         saved[3 * channels + c] * part, 1);
  return {make_float4(l.mean, l.scale, l.shift, 0), make_float4(v.k, v.b, v.s, 0)};
}

__global__ void use_sums(const float *param, const float *saved, int64_t channels, double part,
                         coefficients_of_slope *out) {
  int64_t c = sl::thread_index();
  if (c < channels) out[c] = slope_coefficients(param, saved, channels, c, part);
}

__global__ void write_weight_slopes(sl__norm_args a, const float *saved, float *grad, bool add) {
  int64_t c = sl::thread_index();
  if (c < a.channels) sl__norm_weight_slopes(&a, saved, grad, c, add);
}

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

__global__ void take_running(sl__norm_args a, const float *running, float *saved) {
  int64_t c = sl::thread_index();
  if (c < a.channels) sl__norm_take_running(&a, running, saved, c);
}

/* ---- value by value ---- */

/* The channel of value i. */
struct channel_of {
  sl::divider plane, channels;
  explicit channel_of(const sl__norm_args *a) : plane(a->plane), channels(a->channels) {}
  __device__ int64_t operator()(int64_t i) const {
    int64_t planes = plane(i);
    return planes - channels(planes) * channels.by;
  }
};

struct value_in {
  float4 c;
  bool has_relu;
  __device__ float operator()(int64_t, float x) const {
    float v = sl__norm_value(x, c.x, c.y, c.z);
    return has_relu ? sl__activation_value(SL_ACTIVATION_RELU, v) : v;
  }
};

struct slope_in {
  coefficients_of_slope c;
  bool has_relu;
  __device__ float operator()(int64_t, float x, float dy) const {
    if (has_relu) dy = sl__norm_before_relu(x, dy, c.relu.x, c.relu.y, c.relu.z);
    return sl__norm_slope(x, dy, c.relu.x, {c.slope.x, c.slope.y, c.slope.z});
  }
  __device__ float operator()(int64_t i, float x, float dy, float dx) const {
    return dx + (*this)(i, x, dy);
  }
};

/* In's functor of a value's channel, from its coefficients of type C. */
template <class In, class C>
struct by_channel {
  channel_of channel;
  const C *coefficients;
  bool has_relu;
  __device__ In of(int64_t i) const { return {coefficients[channel(i)], has_relu}; }
};
using value_of = by_channel<value_in, float4>;
using slope_of = by_channel<slope_in, coefficients_of_slope>;

/* Makes the coefficients itself, which saves a launch. */
struct slope_from_sums {
  channel_of channel;
  const float *param, *saved;
  double part;
  bool has_relu;
  __device__ slope_in of(int64_t i) const {
    return {slope_coefficients(param, saved, channel.channels.by, channel(i), part), has_relu};
  }
};

/* Finds the channel of each value. */
template <class F>
struct each_value {
  F f;
  template <class... X>
  __device__ float operator()(int64_t i, X... x) const {
    return f.of(i)(i, x...);
  }
};

/* Finds it once for a pack, which no plane's end divides. */
template <class F>
struct each_pack {
  F f;
  __device__ auto of_pack(int64_t i) const { return f.of(i); }
};

/* Is each of sl::map's packs, of 8 values at most, in one plane? */
bool packs_fit(const sl__norm_args *a) { return a->plane % 8 == 0; }

int64_t count_of(const sl__norm_args *a) { return int64_t{a->rows} * a->channels * a->plane; }

template <class T>
void map_values(struct sl__cuda *cuda, const sl__norm_args *a, const float4 *coefficients,
                const T *x, T *y) {
  value_of f = {channel_of(a), coefficients, a->has_relu != 0};
  if (packs_fit(a))
    sl::map(cuda, count_of(a), each_pack<value_of>{f}, y, x);
  else
    sl::map(cuda, count_of(a), each_value<value_of>{f}, y, x);
}

template <class T, class... X>
void map_slopes(struct sl__cuda *cuda, const sl__norm_args *a, const float *param,
                const float *saved, T *dx, const X *...x) {
  double part = 1 / (static_cast<double>(a->rows) * a->plane);
  if (packs_fit(a)) {
    slope_from_sums f = {channel_of(a), param, saved, part, a->has_relu != 0};
    sl::map(cuda, count_of(a), each_pack<slope_from_sums>{f}, dx, x...);
    return;
  }
  auto *channel = static_cast<coefficients_of_slope *>(cuda->workspace);
  SL__LAUNCH(use_sums, sl::blocks(a->channels), sl::THREADS, 0, cuda->stream, param, saved,
             a->channels, part, channel);
  slope_of f = {channel_of(a), channel, a->has_relu != 0};
  sl::map(cuda, count_of(a), each_value<slope_of>{f}, dx, x...);
}

template <class T>
void forward_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__norm_args *a = sl::args<sl__norm_args>(cl_arg);
  const T *x = sl::in<T>(buffers, 0);
  if (!fits(a)) return;
  float4 *channel = coefficients(cuda);
  statistics<T> f = {*a, x, sl::in<float>(buffers, 1), sl::out<float>(buffers, 3), channel};
  sum(cuda, a, values(), x, static_cast<const T *>(nullptr), f);
  map_values(cuda, a, channel, x, sl::out<T>(buffers, 2));
}

template <class T>
void inference_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__norm_args *a = sl::args<sl__norm_args>(cl_arg);
  if (!fits(a)) return;
  float4 *channel = coefficients(cuda);
  SL__LAUNCH(use_running, sl::blocks(a->channels), sl::THREADS, 0, cuda->stream, *a,
             sl::in<float>(buffers, 1), sl::in<float>(buffers, 2), channel);
  map_values(cuda, a, channel, sl::in<T>(buffers, 0), sl::out<T>(buffers, 3));
}

template <class T>
void backward_sums_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__norm_args *a = sl::args<sl__norm_args>(cl_arg);
  float *saved = sl::out<float>(buffers, 2);
  if (!fits(a)) return;
  slopes what = {a->channels, a->has_relu != 0, sl::in<float>(buffers, 1), saved};
  sum(cuda, a, what, sl::in<T>(buffers, 0), sl::in<T>(buffers, 3), keep_sums{a->channels, saved});
}

template <class T>
void backward_data_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__norm_args *a = sl::args<sl__norm_args>(cl_arg);
  const T *x = sl::in<T>(buffers, 0), *dy = sl::in<T>(buffers, 3);
  T *dx = sl::out<T>(buffers, 4);
  if (!fits(a)) return;
  const float *param = sl::in<float>(buffers, 1), *saved = sl::in<float>(buffers, 2);
  if (sl__accumulate(cl_arg))
    map_slopes(cuda, a, param, saved, dx, x, dy, static_cast<const T *>(dx));
  else
    map_slopes(cuda, a, param, saved, dx, x, dy);
}

}  // namespace

SL__CUDA(batchnorm_forward) { SL__BY_TYPE(cl_arg, 0, T, forward_task<T>(buffers, cl_arg, cuda)); }

SL__CUDA(batchnorm_inference) {
  SL__BY_TYPE(cl_arg, 0, T, inference_task<T>(buffers, cl_arg, cuda));
}

SL__CUDA(batchnorm_backward_data) {
  SL__BY_TYPE(cl_arg, 0, T, backward_data_task<T>(buffers, cl_arg, cuda));
}

SL__CUDA(batchnorm_backward_sums) {
  SL__BY_TYPE(cl_arg, 0, T, backward_sums_task<T>(buffers, cl_arg, cuda));
}

SL__CUDA(batchnorm_backward_weight) {
  const sl__norm_args *a = sl::args<sl__norm_args>(cl_arg);
  SL__LAUNCH(write_weight_slopes, sl::blocks(a->channels), sl::THREADS, 0, cuda->stream, *a,
             sl::in<float>(buffers, 0), sl::out<float>(buffers, 1), sl__accumulate(cl_arg));
}

SL__CUDA(batchnorm_running) {
  const sl__norm_args *a = sl::args<sl__norm_args>(cl_arg);
  SL__LAUNCH(run, sl::blocks(a->channels), sl::THREADS, 0, cuda->stream, *a,
             sl::in<float>(buffers, 0), sl::out<float>(buffers, 1));
}

SL__CUDA(batchnorm_take_running) {
  const sl__norm_args *a = sl::args<sl__norm_args>(cl_arg);
  SL__LAUNCH(take_running, sl::blocks(a->channels), sl::THREADS, 0, cuda->stream, *a,
             sl::in<float>(buffers, 0), sl::out<float>(buffers, 1));
}
