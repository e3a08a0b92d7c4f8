/* Convolution on a GPU. Those of few channels in bf16 or TensorFloat-32 have kernels of our own
 * (conv_tiles_cuda.h): cuDNN's read images whose channels come last, so it converts ours before and
 * after. The others are as convolutions of one group without dilation (convolve_cuda.h).
 *
 * The weights' gradient is in floats. From bf16 cuDNN would compute it in bf16: sums over all
 * images, rounded to 8 bits. So for cuDNN x and dy are converted to floats, some images at a time,
 * and convolved with TensorFloat-32 allowed: it has more bits than bf16, so the products are
 * exact. */
#include "codelets/kernels/conv_tiles_cuda.h"
#include "codelets/kernels/convolve_cuda.h"

namespace {

using namespace sl::convolution;

/* As one group without dilation. */
sl__groupconv_args plain(const sl__conv_args &a, int32_t images) {
  sl__groupconv_args g;
  memset(&g, 0, sizeof g);
  g.images = images;
  g.channels = a.channels;
  g.height = a.height;
  g.width = a.width;
  g.out_channels = a.out_channels;
  g.out_height = a.out_height;
  g.out_width = a.out_width;
  g.kernel_h = a.kernel_h;
  g.kernel_w = a.kernel_w;
  g.stride_h = a.stride_h;
  g.stride_w = a.stride_w;
  g.pad_h = a.pad_h;
  g.pad_w = a.pad_w;
  g.dilation_h = g.dilation_w = g.groups = 1;
  return g;
}

/* Do tensor cores take the numbers? Plain floats they do not. */
template <class T>
bool takes_tiles(const struct sl__cuda *cuda, bool tf32) {
  return cuda->architecture >= 800 && (sizeof(T) == 2 || tf32);
}

/* ---- forward and data -------------------------------------------------------------------- */

/* Activations that take more than a comparison have a launch of their own. */
template <class T>
void convolve_in_tiles(struct sl__cuda *cuda, const sl__groupconv_args &g, const T *x,
                       const T *weight, const T *bias, T *y) {
  bool whole = g.activation == SL_ACTIVATION_NONE || g.activation == SL_ACTIVATION_RELU;
  tiles::convolve(cuda, g, x, weight, whole ? bias : nullptr, y);
  if (!whole) finish(cuda, g, y, g.out_channels, int64_t{g.out_height} * g.out_width, bias);
}

template <class T>
void forward_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__conv_args *a = sl::args<sl__conv_args>(cl_arg);
  const T *weight = sl::in<T>(buffers, 1);
  const T *bias = a->has_bias ? weight + a->out_channels * sl__conv_taps(a) : nullptr;
  sl__groupconv_args g = plain(*a, a->images);
  g.activation = a->activation;
  const T *x = sl::in<T>(buffers, 0);
  T *y = sl::out<T>(buffers, 2);
  bool tf32 = sl__tf32(cl_arg);
  if (takes_tiles<T>(cuda, tf32) && tiles::takes_forward<T>(g))
    convolve_in_tiles(cuda, g, x, weight, bias, y);
  else
    convolve(cuda, g, tf32, x, weight, bias, y, false);
}

template <class T>
void data_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__conv_args *a = sl::args<sl__conv_args>(cl_arg);
  const T *none = nullptr, *dy = sl::in<T>(buffers, 0), *weight = sl::in<T>(buffers, 1);
  const sl__groupconv_args g = plain(*a, a->images);
  T *dx = sl::out<T>(buffers, 2);
  bool tf32 = sl__tf32(cl_arg), add = sl__accumulate(cl_arg);
  if (takes_tiles<T>(cuda, tf32) && tiles::takes_data<T>(g))
    tiles::convolve_back(cuda, g, dy, weight, dx, add);
  else
    convolve_back(cuda, g, tf32, dy, weight, none, dx, add);
}

/* ---- weights and bias -------------------------------------------------------------------- */

struct widened {
  __device__ float operator()(int64_t, float x) const { return x; }
};

bool widened_gradient(struct sl__cuda *cuda, const sl__conv_args *a, const sl::bf16 *x,
                      const sl::bf16 *dy, float *grad, float *scratch, bool add) {
  int64_t at_a_time = sl__conv_bf16_adapted(a), xs = sl__conv_x_size(a), ys = sl__conv_y_size(a);
  for (int64_t n = 0; n < a->images; n += at_a_time) {
    int64_t images = a->images - n < at_a_time ? a->images - n : at_a_time;
    float *wide_x = scratch, *wide_dy = scratch + at_a_time * xs;
    sl::map(cuda, images * xs, widened(), wide_x, x + n * xs);
    sl::map(cuda, images * ys, widened(), wide_dy, dy + n * ys);
    if (!weight_gradient(cuda, plain(*a, static_cast<int32_t>(images)), true, wide_x, wide_dy, grad,
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
  const sl__groupconv_args g = plain(*a, a->images);
  bool fine = true, add = sl__accumulate(cl_arg), tf32 = sl__tf32(cl_arg);
  if (takes_tiles<T>(cuda, tf32) && tiles::takes_filter<T>(g))
    tiles::weight_gradient(cuda, g, x, dy, grad, add);
  else if constexpr (sizeof(T) == 2)
    fine = widened_gradient(cuda, a, x, dy, grad, sl::out<float>(buffers, 3), add);
  else
    fine = weight_gradient(cuda, g, tf32, x, dy, grad, add);
  if (fine && a->has_bias)
    bias_gradient(cuda, a, dy, grad + a->out_channels * sl__conv_taps(a), add);
}

}  // namespace

SL__CUDA(conv2d_forward) { SL__BY_TYPE(cl_arg, 0, T, forward_task<T>(buffers, cl_arg, cuda)); }

SL__CUDA(conv2d_backward_data) { SL__BY_TYPE(cl_arg, 0, T, data_task<T>(buffers, cl_arg, cuda)); }

SL__CUDA(conv2d_backward_weight) {
  SL__BY_TYPE(cl_arg, 0, T, weight_task<T>(buffers, cl_arg, cuda));
}
