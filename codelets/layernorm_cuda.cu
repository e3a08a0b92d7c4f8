/* Layer, group, instance and RMS normalisation: a block a row. The parameters' gradient is summed
 * over parts of the rows, then over the parts: a fixed order. */
#include "codelets/layernorm.h"

#include "codelets/kernels/cuda.h"
#include "codelets/kernels/gemm_cuda.h"

namespace {

/* Threads for a row: whole warps. */
int threads_for(int64_t size) {
  int64_t warps = (size + 31) / 32;
  return 32 * static_cast<int>(warps < 8 ? warps : 8);
}

/* All threads of the block get the row's statistics. */
template <class T>
__device__ sl__row_stats stats_of(const sl__layernorm_args &a, const T *x) {
  float sum = 0, squares = 0;
  if (!a.is_rms)
    for (int64_t i = threadIdx.x; i < a.size; i += blockDim.x) sum += sl::value(x[i]);
  sl__row_stats s = {a.is_rms ? 0 : sl::block_sum(sum) / static_cast<float>(a.size), 0};
  for (int64_t i = threadIdx.x; i < a.size; i += blockDim.x) {
    float d = sl::value(x[i]) - s.mean;
    squares += d * d;
  }
  s.inverse = sl__row_inverse(&a, sl::block_sum(squares));
  return s;
}

__device__ const float *gamma_of(const sl__layernorm_args &a, const float *param, int64_t r) {
  return a.is_plain ? nullptr : param + r % a.groups * a.channels;
}

template <class T>
__global__ void forward(sl__layernorm_args a, const T *x, const float *param, T *y) {
  int64_t r = blockIdx.x;
  const float *gamma = gamma_of(a, param, r);
  const float *beta = gamma && !a.is_rms ? gamma + a.groups * a.channels : nullptr;
  x += r * a.size;
  y += r * a.size;
  sl__row_stats s = stats_of(a, x);
  for (int64_t i = threadIdx.x; i < a.size; i += blockDim.x) {
    int64_t c = i / a.plane;
    float v = (sl::value(x[i]) - s.mean) * s.inverse;
    if (gamma) v *= gamma[c];
    y[i] = sl::narrow<T>(beta ? v + beta[c] : v);
  }
}

template <class T>
__global__ void backward_data(sl__layernorm_args a, const T *x, const float *param, const T *dy,
                              T *dx, bool add) {
  int64_t r = blockIdx.x;
  const float *gamma = gamma_of(a, param, r);
  float sum = 0, product = 0;
  x += r * a.size;
  dy += r * a.size;
  dx += r * a.size;
  sl__row_stats s = stats_of(a, x);
  for (int64_t i = threadIdx.x; i < a.size; i += blockDim.x) {
    float g = sl::value(dy[i]) * (gamma ? gamma[i / a.plane] : 1);
    sum += g;
    product += g * (sl::value(x[i]) - s.mean);
  }
  sum = sl::block_sum(sum);
  product = sl::block_sum(product);
  sl__row_slopes v = sl__row_slopes_of(&a, s, sum, product);
  for (int64_t i = threadIdx.x; i < a.size; i += blockDim.x) {
    float g = sl::value(dy[i]) * (gamma ? gamma[i / a.plane] : 1);
    float slope = v.r * g + (v.b * (sl::value(x[i]) - s.mean) + v.s);
    dx[i] = sl::narrow<T>(add ? sl::value(dx[i]) + slope : slope);
  }
}

/* ---- the parameters' gradient -------------------------------------------------------------- */

constexpr int64_t MOST_ROWS = 1 << 16; /* rows whose statistics are kept at a time */
constexpr int MOST_PARTS = 32;

template <class T>
__global__ void keep_stats(sl__layernorm_args a, const T *x, sl__row_stats *stats) {
  sl__row_stats s = stats_of(a, x + blockIdx.x * a.size);
  if (threadIdx.x == 0) stats[blockIdx.x] = s;
}

/* A thread a parameter of a layer normalisation; block (., p): the part p of the rows. */
template <class T>
__global__ void weight_each(sl__layernorm_args a, int64_t rows, int64_t a_part, const T *x,
                            const T *dy, const sl__row_stats *stats, float *out, bool add) {
  int64_t j = sl::thread_index(), first = blockIdx.y * a_part;
  int64_t end = first + a_part < rows ? first + a_part : rows;
  float gamma = 0, beta = 0;
  if (j >= a.size) return;
  for (int64_t r = first; r < end; r++) {
    float d = sl::value(dy[r * a.size + j]);
    gamma += d * ((sl::value(x[r * a.size + j]) - stats[r].mean) * stats[r].inverse);
    beta += d;
  }
  out += blockIdx.y * (a.is_rms ? 1 : 2) * a.size + j;
  *out = add ? *out + gamma : gamma;
  out += a.size;
  if (!a.is_rms) *out = add ? *out + beta : beta;
}

/* A block a channel of a group normalisation. */
template <class T>
__global__ void weight_channel(sl__layernorm_args a, int64_t rows, const T *x, const T *dy,
                               const sl__row_stats *stats, float *grad, bool add) {
  int64_t group = blockIdx.x / a.channels, channel = blockIdx.x % a.channels;
  int64_t values = rows / a.groups * a.plane;
  float gamma = 0, beta = 0;
  for (int64_t i = threadIdx.x; i < values; i += blockDim.x) {
    int64_t r = i / a.plane * a.groups + group, at = r * a.size + channel * a.plane + i % a.plane;
    float d = sl::value(dy[at]);
    gamma += d * ((sl::value(x[at]) - stats[r].mean) * stats[r].inverse);
    beta += d;
  }
  gamma = sl::block_sum(gamma);
  beta = sl::block_sum(beta);
  if (threadIdx.x) return;
  float *to = grad + blockIdx.x;
  *to = add ? *to + gamma : gamma;
  to += a.groups * a.channels;
  if (!a.is_rms) *to = add ? *to + beta : beta;
}

template <class T>
void weight_rows(struct sl__cuda *cuda, const sl__layernorm_args &a, int64_t rows, const T *x,
                 const T *dy, float *grad, bool add) {
  sl__row_stats *stats = static_cast<sl__row_stats *>(cuda->workspace);
  float *partial = reinterpret_cast<float *>(stats + MOST_ROWS);
  int64_t width = (a.is_rms ? 1 : 2) * a.size;
  SL__LAUNCH((keep_stats<T>), static_cast<unsigned>(rows), threads_for(a.size), 0, cuda->stream, a,
             x, stats);
  if (a.plane > 1 || a.groups > 1) {
    SL__LAUNCH((weight_channel<T>), static_cast<unsigned>(a.groups * a.channels), sl::THREADS, 0,
               cuda->stream, a, rows, x, dy, static_cast<const sl__row_stats *>(stats), grad, add);
    return;
  }
  int64_t room = (static_cast<int64_t>(SL__CUDA_WORKSPACE / sizeof(float)) - 2 * MOST_ROWS) / width;
  int64_t most = room < MOST_PARTS ? room : MOST_PARTS, parts = rows / 8 < most ? rows / 8 : most;
  if (parts < 1) parts = 1;
  int64_t a_part = (rows + parts - 1) / parts;
  parts = (rows + a_part - 1) / a_part;
  dim3 grid(sl::blocks(a.size), static_cast<unsigned>(parts));
  SL__LAUNCH((weight_each<T>), grid, sl::THREADS, 0, cuda->stream, a, rows, a_part, x, dy,
             static_cast<const sl__row_stats *>(stats), parts == 1 ? grad : partial,
             parts == 1 && add);
  if (parts == 1) return;
  sl::column_sums(cuda, static_cast<const float *>(partial), parts, width, width, grad, add);
}

template <class T>
void weight_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__layernorm_args *a = sl::args<sl__layernorm_args>(cl_arg);
  const T *x = sl::in<T>(buffers, 0), *dy = sl::in<T>(buffers, 1);
  bool add = sl__accumulate(cl_arg);
  int64_t most = MOST_ROWS / a->groups * a->groups;
  for (int64_t r = 0; r < a->rows; r += most) {
    int64_t rows = a->rows - r < most ? a->rows - r : most;
    weight_rows(cuda, *a, rows, x + r * a->size, dy + r * a->size, sl::out<float>(buffers, 2),
                add || r);
  }
}

template <class T>
void forward_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__layernorm_args *a = sl::args<sl__layernorm_args>(cl_arg);
  SL__LAUNCH((forward<T>), static_cast<unsigned>(a->rows), threads_for(a->size), 0, cuda->stream,
             *a, sl::in<T>(buffers, 0), sl::in<float>(buffers, 1), sl::out<T>(buffers, 2));
}

template <class T>
void data_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__layernorm_args *a = sl::args<sl__layernorm_args>(cl_arg);
  SL__LAUNCH((backward_data<T>), static_cast<unsigned>(a->rows), threads_for(a->size), 0,
             cuda->stream, *a, sl::in<T>(buffers, 0), sl::in<float>(buffers, 1),
             sl::in<T>(buffers, 2), sl::out<T>(buffers, 3), sl__accumulate(cl_arg));
}

}  // namespace

SL__CUDA(layernorm_forward) { SL__BY_TYPE(cl_arg, 0, T, forward_task<T>(buffers, cl_arg, cuda)); }

SL__CUDA(layernorm_backward_data) {
  SL__BY_TYPE(cl_arg, 0, T, data_task<T>(buffers, cl_arg, cuda));
}

SL__CUDA(layernorm_backward_weight) {
  SL__BY_TYPE(cl_arg, 0, T, weight_task<T>(buffers, cl_arg, cuda));
}
