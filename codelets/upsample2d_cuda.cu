/* Upsampling, a thread an output. The gradient is gathered: each input adds the contributions of
 * the outputs that read it, in their order. */
#include "codelets/upsample2d.h"

#include "codelets/kernels/cuda.h"
#include "codelets/kernels/index_cuda.h"

namespace {

template <class T>
__global__ void forward(sl__upsample_args a, sl::planes outputs, int64_t count, const T *x, T *y) {
  int64_t i = sl::thread_index();
  if (i >= count) return;
  sl::place o = outputs(i);
  struct sl__upsample_taps r = sl__upsample_taps(o.h, a.scale_h, a.height, a.bilinear);
  struct sl__upsample_taps c = sl__upsample_taps(o.w, a.scale_w, a.width, a.bilinear);
  x += o.plane * a.height * a.width;
  const T *top = x + static_cast<int64_t>(r.first) * a.width;
  const T *bottom = x + static_cast<int64_t>(r.second) * a.width;
  float left = (1 - r.weight) * sl::value(top[c.first]) + r.weight * sl::value(bottom[c.first]);
  float right = (1 - r.weight) * sl::value(top[c.second]) + r.weight * sl::value(bottom[c.second]);
  y[i] = sl::narrow<T>((1 - c.weight) * left + c.weight * right);
}

/* Outputs from one scale before an input's own to one after them may read it. */
template <class T>
__global__ void backward(sl__upsample_args a, sl::planes inputs, int64_t count, const T *dy, T *dx,
                         bool add) {
  int64_t i = sl::thread_index();
  if (i >= count) return;
  sl::place p = inputs(i);
  int32_t height = a.height * a.scale_h, width = a.width * a.scale_w, reach = a.bilinear ? 1 : 0;
  int32_t h0 = (p.h - reach) * a.scale_h, h1 = (p.h + 1 + reach) * a.scale_h;
  int32_t w0 = (p.w - reach) * a.scale_w, w1 = (p.w + 1 + reach) * a.scale_w;
  float sum = add ? sl::value(dx[i]) : 0;
  dy += p.plane * height * width;
  for (int32_t oh = h0 < 0 ? 0 : h0; oh < h1 && oh < height; oh++) {
    float row = sl__upsample_weight(sl__upsample_taps(oh, a.scale_h, a.height, a.bilinear), p.h);
    for (int32_t ow = w0 < 0 ? 0 : w0; ow < w1 && ow < width; ow++) {
      float weight =
          row * sl__upsample_weight(sl__upsample_taps(ow, a.scale_w, a.width, a.bilinear), p.w);
      if (weight > 0) sum += weight * sl::value(dy[static_cast<int64_t>(oh) * width + ow]);
    }
  }
  dx[i] = sl::narrow<T>(sum);
}

template <class T>
void forward_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__upsample_args *a = sl::args<sl__upsample_args>(cl_arg);
  int32_t height = a->height * a->scale_h, width = a->width * a->scale_w;
  int64_t count = int64_t{a->planes} * height * width;
  SL__LAUNCH((forward<T>), sl::blocks(count), sl::THREADS, 0, cuda->stream, *a,
             sl::planes(height, width), count, sl::in<T>(buffers, 0), sl::out<T>(buffers, 1));
}

template <class T>
void backward_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__upsample_args *a = sl::args<sl__upsample_args>(cl_arg);
  int64_t count = int64_t{a->planes} * a->height * a->width;
  SL__LAUNCH((backward<T>), sl::blocks(count), sl::THREADS, 0, cuda->stream, *a,
             sl::planes(a->height, a->width), count, sl::in<T>(buffers, 0), sl::out<T>(buffers, 1),
             sl__accumulate(cl_arg));
}

}  // namespace

SL__CUDA(upsample2d_forward) { SL__BY_TYPE(cl_arg, 0, T, forward_task<T>(buffers, cl_arg, cuda)); }

SL__CUDA(upsample2d_backward) {
  SL__BY_TYPE(cl_arg, 0, T, backward_task<T>(buffers, cl_arg, cuda));
}
