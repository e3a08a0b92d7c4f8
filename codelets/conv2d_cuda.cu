/* Convolution on a GPU: cuDNN's, planned once a shape. Only algorithms are used that give the same
 * bits in every run, sum the products directly (Winograd's and Fourier's transforms lose more
 * digits than a tolerance from the sum's length covers) and fit into the workspace; if none fits,
 * half as many images are taken at a time, and so on.
 *
 * The weights' gradient is in floats. From bf16 cuDNN would compute it in bf16: sums over all
 * images, rounded to 8 bits. So x and dy are converted to floats, some images at a time, and
 * convolved with TensorFloat-32 allowed: it has more bits than bf16, so the products are exact. */
#include "codelets/kernels/conv.h"

#include "codelets/kernels/gemm_cuda.h"
#include "codelets/kernels/plan_cache.h"

namespace {

enum way { FORWARD, DATA, WEIGHT };

struct key {
  sl__conv_args a; /* fields that the plan does not depend on are 0 */
  int32_t way, half, tf32;
};

struct plan {
  cudnnTensorDescriptor_t x = nullptr, y = nullptr;
  cudnnFilterDescriptor_t weight = nullptr;
  cudnnConvolutionDescriptor_t convolution = nullptr;
  int algorithm = 0; /* in the direction's own enumeration */
  size_t workspace = 0;
  int32_t images = 0; /* images at a time; 0: there is no algorithm */

  ~plan() {
    if (convolution) sl::cudnn.DestroyConvolutionDescriptor(convolution);
    if (weight) sl::cudnn.DestroyFilterDescriptor(weight);
    if (y) sl::cudnn.DestroyTensorDescriptor(y);
    if (x) sl::cudnn.DestroyTensorDescriptor(x);
  }
};

/* ---- the three directions, each with types and functions of its own ------------------------ */

template <enum way W>
struct library;

template <>
struct library<FORWARD> {
  using choice = cudnnConvolutionFwdAlgoPerf_t;
  using algorithm = cudnnConvolutionFwdAlgo_t;
  static bool is_plain_sum(algorithm i) {
    return i == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM ||
           i == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM ||
           i == CUDNN_CONVOLUTION_FWD_ALGO_GEMM || i == CUDNN_CONVOLUTION_FWD_ALGO_DIRECT;
  }
  static cudnnStatus_t choices(cudnnHandle_t h, const plan *p, int most, int *count, choice *list) {
    return sl::cudnn.GetConvolutionForwardAlgorithm_v7(h, p->x, p->weight, p->convolution, p->y,
                                                       most, count, list);
  }
  static cudnnStatus_t size(cudnnHandle_t h, const plan *p, algorithm i, size_t *bytes) {
    return sl::cudnn.GetConvolutionForwardWorkspaceSize(h, p->x, p->weight, p->convolution, p->y, i,
                                                        bytes);
  }
};

template <>
struct library<DATA> {
  using choice = cudnnConvolutionBwdDataAlgoPerf_t;
  using algorithm = cudnnConvolutionBwdDataAlgo_t;
  static bool is_plain_sum(algorithm i) { return i == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1; }
  static cudnnStatus_t choices(cudnnHandle_t h, const plan *p, int most, int *count, choice *list) {
    return sl::cudnn.GetConvolutionBackwardDataAlgorithm_v7(h, p->weight, p->y, p->convolution,
                                                            p->x, most, count, list);
  }
  static cudnnStatus_t size(cudnnHandle_t h, const plan *p, algorithm i, size_t *bytes) {
    return sl::cudnn.GetConvolutionBackwardDataWorkspaceSize(h, p->weight, p->y, p->convolution,
                                                             p->x, i, bytes);
  }
};

template <>
struct library<WEIGHT> {
  using choice = cudnnConvolutionBwdFilterAlgoPerf_t;
  using algorithm = cudnnConvolutionBwdFilterAlgo_t;
  static bool is_plain_sum(algorithm i) { return i == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1; }
  static cudnnStatus_t choices(cudnnHandle_t h, const plan *p, int most, int *count, choice *list) {
    return sl::cudnn.GetConvolutionBackwardFilterAlgorithm_v7(h, p->x, p->y, p->convolution,
                                                              p->weight, most, count, list);
  }
  static cudnnStatus_t size(cudnnHandle_t h, const plan *p, algorithm i, size_t *bytes) {
    return sl::cudnn.GetConvolutionBackwardFilterWorkspaceSize(h, p->x, p->y, p->convolution,
                                                               p->weight, i, bytes);
  }
};

/* ---- plans ------------------------------------------------------------------------------- */

cudnnMathType_t math(const key &q) {
  if (q.half) return CUDNN_TENSOR_OP_MATH;
  return q.tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH; /* the default has TensorFloat-32 */
}

bool create(const key &q, plan *p) {
  const sl__conv_args &a = q.a;
  cudnnDataType_t type = q.half ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
  return sl::succeeded(sl::cudnn.CreateTensorDescriptor(&p->x)) &&
         sl::succeeded(sl::cudnn.CreateTensorDescriptor(&p->y)) &&
         sl::succeeded(sl::cudnn.CreateFilterDescriptor(&p->weight)) &&
         sl::succeeded(sl::cudnn.CreateConvolutionDescriptor(&p->convolution)) &&
         sl::succeeded(sl::cudnn.SetFilter4dDescriptor(p->weight, type, CUDNN_TENSOR_NCHW,
                                                       a.out_channels, a.channels, a.kernel_h,
                                                       a.kernel_w)) &&
         sl::succeeded(sl::cudnn.SetConvolution2dDescriptor(
             p->convolution, a.pad_h, a.pad_w, a.stride_h, a.stride_w, 1, 1,
             CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
}

/* Returns false for more than the library takes. */
bool set_images(const key &q, plan *p, int32_t images) {
  const sl__conv_args &a = q.a;
  cudnnDataType_t type = q.half ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
  return sl::cudnn.SetTensor4dDescriptor(p->x, CUDNN_TENSOR_NCHW, type, images, a.channels,
                                         a.height, a.width) == CUDNN_STATUS_SUCCESS &&
         sl::cudnn.SetTensor4dDescriptor(p->y, CUDNN_TENSOR_NCHW, type, images, a.out_channels,
                                         a.out_height, a.out_width) == CUDNN_STATUS_SUCCESS &&
         sl::cudnn.SetConvolutionMathType(p->convolution, math(q)) == CUDNN_STATUS_SUCCESS;
}

/* cuDNN also offers choices for other math types than the requested one. If tensor cores are
 * allowed, the offered math type is used; plain floats stay plain, and the workspace's size shows
 * whether the algorithm supports them. */
bool agree_on_math(const key &q, cudnnMathType_t offered, plan *p) {
  if (math(q) == CUDNN_FMA_MATH) return true;
  if (offered == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION) return false; /* floats as binary16 */
  return sl::cudnn.SetConvolutionMathType(p->convolution, offered) == CUDNN_STATUS_SUCCESS;
}

/* Returns the first suitable choice; the library lists them by expected time. */
template <enum way W>
bool choose(struct sl__cuda *cuda, const key &q, plan *p) {
  typename library<W>::choice list[16];
  int count = 0;
  if (library<W>::choices(cuda->dnn, p, 16, &count, list) != CUDNN_STATUS_SUCCESS) return false;
  for (int i = 0; i < count; i++)
    if (list[i].status == CUDNN_STATUS_SUCCESS && list[i].determinism == CUDNN_DETERMINISTIC &&
        library<W>::is_plain_sum(list[i].algo) && agree_on_math(q, list[i].mathType, p) &&
        library<W>::size(cuda->dnn, p, list[i].algo, &p->workspace) == CUDNN_STATUS_SUCCESS &&
        p->workspace <= SL__CUDA_WORKSPACE) {
      p->algorithm = list[i].algo;
      return true;
    }
  return false;
}

template <enum way W>
void make(struct sl__cuda *cuda, const key &q, plan *p) {
  if (!create(q, p)) return;
  for (int32_t images = q.a.images;; images = (images + 1) / 2) {
    if (set_images(q, p, images) && choose<W>(cuda, q, p)) p->images = images;
    if (p->images || images == 1) return;
  }
}

/* Returns the plan for `images` images; NULL: the task has failed. */
template <enum way W>
const plan *find(struct sl__cuda *cuda, const sl__conv_args &a, bool half, bool tf32,
                 int32_t images) {
  key q;
  bool made;
  memset(&q, 0, sizeof q);
  q.a = a;
  q.a.images = images;
  q.a.has_bias = q.a.activation = q.a.implementation = 0;
  q.way = W;
  q.half = half;
  q.tf32 = tf32 && !half;
  sl::plan_cache<key, plan> *plans = sl::plan_cache<key, plan>::of(cuda, SL__CUDA_CONVOLUTIONS);
  plan *p = plans ? plans->find(q, &made) : nullptr;
  if (p && made) make<W>(cuda, q, p);
  if (p && p->images) return p;
  if (p)
    sl__task_failed(SL_UNSUPPORTED,
                    "cuDNN has no algorithm whose bits repeat, within %zu MiB, for %s "
                    "[%d, %d, %d, %d] and %d channels of %dx%d, stride %dx%d, padding %dx%d",
                    SL__CUDA_WORKSPACE >> 20, half ? "bf16" : "floats", images, a.channels,
                    a.height, a.width, a.out_channels, a.kernel_h, a.kernel_w, a.stride_h,
                    a.stride_w, a.pad_h, a.pad_w);
  return nullptr;
}

/* Calls step(plan, first image) for all images, as many at a time as a plan takes; returns false if
 * it failed. */
template <enum way W, class F>
bool each_part(struct sl__cuda *cuda, const sl__conv_args &a, bool half, bool tf32, int32_t images,
               F step) {
  for (int32_t n = 0; n < images;) {
    const plan *p = find<W>(cuda, a, half, tf32, images - n);
    if (!p) return false;
    for (; n + p->images <= images; n += p->images)
      if (!sl::succeeded(step(p, n))) return false;
  }
  return true;
}

/* ---- forward and data -------------------------------------------------------------------- */

template <class T>
void forward_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__conv_args *a = sl::args<sl__conv_args>(cl_arg);
  const T *x = sl::in<T>(buffers, 0), *weight = sl::in<T>(buffers, 1);
  T *y = sl::out<T>(buffers, 2);
  const T *bias = a->has_bias ? weight + a->out_channels * sl__conv_taps(a) : nullptr;
  const float one = 1, zero = 0;
  bool fine = each_part<FORWARD>(
      cuda, *a, sizeof(T) == 2, sl__tf32(cl_arg), a->images, [&](const plan *p, int32_t n) {
        return sl::cudnn.ConvolutionForward(
            cuda->dnn, &one, p->x, x + n * sl__conv_x_size(a), p->weight, weight, p->convolution,
            static_cast<cudnnConvolutionFwdAlgo_t>(p->algorithm), cuda->workspace, p->workspace,
            &zero, p->y, y + n * sl__conv_y_size(a));
      });
  if (fine && (bias || a->activation != SL_ACTIVATION_NONE))
    sl::add_bias(cuda, y, static_cast<int64_t>(a->images) * a->out_channels, sl__conv_pixels(a),
                 sl__conv_pixels(a), bias, a->out_channels,
                 static_cast<enum sl_activation>(a->activation));
}

template <class T>
void data_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__conv_args *a = sl::args<sl__conv_args>(cl_arg);
  const T *dy = sl::in<T>(buffers, 0), *weight = sl::in<T>(buffers, 1);
  T *dx = sl::out<T>(buffers, 2);
  const float one = 1, beta = sl__accumulate(cl_arg) ? 1.0f : 0.0f;
  each_part<DATA>(cuda, *a, sizeof(T) == 2, sl__tf32(cl_arg), a->images,
                  [&](const plan *p, int32_t n) {
                    return sl::cudnn.ConvolutionBackwardData(
                        cuda->dnn, &one, p->weight, weight, p->y, dy + n * sl__conv_y_size(a),
                        p->convolution, static_cast<cudnnConvolutionBwdDataAlgo_t>(p->algorithm),
                        cuda->workspace, p->workspace, &beta, p->x, dx + n * sl__conv_x_size(a));
                  });
}

/* ---- weights and bias -------------------------------------------------------------------- */

/* The gradient of some images, (+)= */
bool weight_gradient(struct sl__cuda *cuda, const sl__conv_args *a, bool tf32, int32_t images,
                     const float *x, const float *dy, float *grad, bool add) {
  const float one = 1, zero = 0;
  return each_part<WEIGHT>(cuda, *a, false, tf32, images, [&](const plan *p, int32_t n) {
    return sl::cudnn.ConvolutionBackwardFilter(
        cuda->dnn, &one, p->x, x + n * sl__conv_x_size(a), p->y, dy + n * sl__conv_y_size(a),
        p->convolution, static_cast<cudnnConvolutionBwdFilterAlgo_t>(p->algorithm), cuda->workspace,
        p->workspace, add || n ? &one : &zero, p->weight, grad);
  });
}

struct widened {
  __device__ float operator()(int64_t, float x) const { return x; }
};

bool weight_gradient(struct sl__cuda *cuda, const sl__conv_args *a, const sl::bf16 *x,
                     const sl::bf16 *dy, float *grad, float *scratch, bool add) {
  int64_t at_a_time = sl__conv_bf16_adapted(a), xs = sl__conv_x_size(a), ys = sl__conv_y_size(a);
  for (int64_t n = 0; n < a->images; n += at_a_time) {
    int64_t images = a->images - n < at_a_time ? a->images - n : at_a_time;
    float *wide_x = scratch, *wide_dy = scratch + at_a_time * xs;
    sl::map(cuda, images * xs, widened(), wide_x, x + n * xs);
    sl::map(cuda, images * ys, widened(), wide_dy, dy + n * ys);
    if (!weight_gradient(cuda, a, true, static_cast<int32_t>(images), wide_x, wide_dy, grad,
                         add || n))
      return false;
  }
  return true;
}

/* Block (k, c): the part of channel k's values (all images' planes as one row) from c * chunk on.
 */
template <class T>
__global__ void sum_planes(const T *dy, int64_t values, int64_t channels, int64_t plane,
                           int64_t chunk, float *out, bool add) {
  int64_t channel = blockIdx.x, first = blockIdx.y * chunk;
  int64_t end = first + chunk < values ? first + chunk : values;
  int64_t i = first + threadIdx.x, image = i / plane, pixel = i % plane;
  int64_t images_a_step = blockDim.x / plane, pixels_a_step = blockDim.x % plane;
  float sum = 0;
#pragma unroll 4
  for (; i < end; i += blockDim.x) {
    sum += sl::value(dy[(image * channels + channel) * plane + pixel]);
    image += images_a_step;
    pixel += pixels_a_step;
    if (pixel >= plane) {
      pixel -= plane;
      image++;
    }
  }
  sum = sl::block_sum(sum);
  out += blockIdx.y * channels + channel;
  if (threadIdx.x == 0) *out = add ? *out + sum : sum;
}

/* grad [K] (+)= the sums of dy [N, K, pixels]: parts of at least 4096 values, at most 64, then over
 * the parts. */
template <class T>
void bias_gradient(struct sl__cuda *cuda, const sl__conv_args *a, const T *dy, float *grad,
                   bool add) {
  int64_t channels = a->out_channels, plane = sl__conv_pixels(a), values = a->images * plane;
  if (plane == 1) {
    sl::column_sums(cuda, dy, a->images, channels, channels, grad, add);
    return;
  }
  int64_t room = static_cast<int64_t>(SL__CUDA_WORKSPACE / sizeof(float)) / channels;
  int64_t most = room < 64 ? room : 64, parts = values / 4096 < most ? values / 4096 : most;
  if (parts < 1) parts = 1;
  int64_t chunk = (values + parts - 1) / parts;
  parts = (values + chunk - 1) / chunk;
  float *partial = static_cast<float *>(cuda->workspace);
  dim3 grid(static_cast<unsigned>(channels), static_cast<unsigned>(parts));
  SL__LAUNCH((sum_planes<T>), grid, sl::THREADS, 0, cuda->stream, dy, values, channels, plane,
             chunk, parts == 1 ? grad : partial, parts == 1 && add);
  if (parts > 1)
    sl::column_sums(cuda, (const float *)partial, parts, channels, channels, grad, add);
}

template <class T>
void weight_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__conv_args *a = sl::args<sl__conv_args>(cl_arg);
  const T *x = sl::in<T>(buffers, 0), *dy = sl::in<T>(buffers, 1);
  float *grad = sl::out<float>(buffers, 2);
  bool fine, add = sl__accumulate(cl_arg);
  if constexpr (sizeof(T) == 2)
    fine = weight_gradient(cuda, a, x, dy, grad, sl::out<float>(buffers, 3), add);
  else
    fine = weight_gradient(cuda, a, sl__tf32(cl_arg), a->images, x, dy, grad, add);
  if (fine && a->has_bias)
    bias_gradient(cuda, a, dy, grad + a->out_channels * sl__conv_taps(a), add);
}

}  // namespace

SL__CUDA(conv2d_forward) { SL__BY_TYPE(cl_arg, 0, T, forward_task<T>(buffers, cl_arg, cuda)); }

SL__CUDA(conv2d_backward_data) { SL__BY_TYPE(cl_arg, 0, T, data_task<T>(buffers, cl_arg, cuda)); }

SL__CUDA(conv2d_backward_weight) {
  SL__BY_TYPE(cl_arg, 0, T, weight_task<T>(buffers, cl_arg, cuda));
}
