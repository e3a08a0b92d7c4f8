/* LAMB's step, in two operations (lamb.h). */
#include "codelets/lamb.h"

#include "codelets/kernels/sums_cuda.h"
#include "codelets/kernels/update_cuda.h"

namespace {
struct move_means {
  sl__lamb_rates rates;
  float max_norm;
  const float *norm; /* squared, on the device; NULL: gradients are not clipped */
  __device__ float factor() const { return sl__clip_factor(max_norm, norm); }
  __device__ void operator()(float g, float *own) const {
    sl__lamb_move_means(&rates, g, own, own + 1);
  }
};

__global__ void direction_squares(sl__lamb_rates rates, float decay, const float *p,
                                  const float *mean, const float *square, int64_t n,
                                  sl::sums<2> s) {
  int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  double sum[2] = {0, 0};
  for (int64_t i = sl::thread_index(); i < n; i += step) {
    double d = sl__lamb_direction(&rates, decay, p[i], mean[i], square[i]);
    sum[0] += static_cast<double>(p[i]) * static_cast<double>(p[i]);
    sum[1] += d * d;
  }
  s.leave(sum);
}

__global__ void move_params(sl__lamb_args a, sl__lamb_rates rates, float *p, const float *mean,
                            const float *square, const float *squares) {
  int64_t i = sl::thread_index();
  if (i >= a.count) return;
  int k = 0;
  while (i >= a.end[k]) k++;
  p[i] -= a.u.lr * sl__lamb_trust(squares + 2 * k) *
          sl__lamb_direction(&rates, a.decay[k], p[i], mean[i], square[i]);
}
}  // namespace

SL__CUDA(lamb_moments) {
  const sl__lamb_args *a = sl::args<sl__lamb_args>(cl_arg);
  const sl__lamb_rates rates = sl__lamb_begin(&a->u);
  constexpr int64_t ROOM = SL__CUDA_WORKSPACE / sizeof(float);
  int end = sl__buffer_count(cl_arg) - a->has_norm;
  float *mean = sl::out<float>(buffers, 0), *square = sl::out<float>(buffers, 1);
  const float *param = sl::in<float>(buffers, 2) + a->param_first;
  sl::step_launch<2, move_means> steps(
      cuda, move_means{rates, a->u.max_norm, a->has_norm ? sl::in<float>(buffers, end) : nullptr});
  int64_t part = end - 4 > sl::TERMS ? ROOM : a->count;
  for (int64_t at = 0; at < a->count; at += part)
    sl::step<2>(&steps, at, a->gradient_first, a->count - at < part ? a->count - at : part, nullptr,
                buffers, 4, end, sl::owned<2>{{mean, square}},
                static_cast<float *>(cuda->workspace));
  steps.launch();
  for (int k = 0; k < a->parts; k++) {
    int64_t at = k ? a->end[k - 1] : 0, n = a->end[k] - at;
    if (!n) at = 0; /* an empty part at the end has no address of its own */
    int64_t wanted = sl::blocks(n + 1, 16 * sl::THREADS);
    unsigned grid = static_cast<unsigned>(wanted < 1024 ? wanted : 1024);
    sl::sums<2> s = sl::sums_into<2>(cuda, sl::out<float>(buffers, 3) + 2 * k);
    SL__LAUNCH((direction_squares), grid, sl::THREADS, 0, cuda->stream, rates, a->decay[k],
               param + at, static_cast<const float *>(mean + at),
               static_cast<const float *>(square + at), n, s);
    sl::finish(cuda, s, grid);
  }
}

SL__CUDA(lamb) {
  const sl__lamb_args *a = sl::args<sl__lamb_args>(cl_arg);
  SL__LAUNCH((move_params), sl::blocks(a->count), sl::THREADS, 0, cuda->stream, *a,
             sl__lamb_begin(&a->u), sl::out<float>(buffers, 0) + a->param_first,
             sl::in<float>(buffers, 1), sl::in<float>(buffers, 2), sl::in<float>(buffers, 3));
}
