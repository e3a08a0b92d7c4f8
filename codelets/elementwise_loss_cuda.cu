/* Losses that are means over single values; the arithmetic is loss.h's. */
#include "codelets/loss.h"

#include "codelets/kernels/team_cuda.h"

namespace {
/* A team has a line. dlogits may be NULL. The sums: losses, lines with a target, targets, targets
 * outside. */
template <class T, class TEAM, enum sl_loss_kind KIND>
__global__ void __launch_bounds__(1024, 1)
    loss(sl__loss_args a, const T *logits, const float *targets, T *dlogits, sl::sums<4> sums) {
  double v[4] = {0, 0, 0, 0};
  for (int64_t n = TEAM::first(); n < a.lines; n += TEAM::count()) {
    const T *z = logits + n * a.size;
    const float *target = targets + n * a.stride + a.first;
    int counted = 0;
    for (int64_t i = TEAM::rank(); i < a.size; i += TEAM::size()) {
      float zi = sl::value(z[i]), t = target[i];
      bool valid = t == t;
      v[0] += valid ? static_cast<double>(sl__loss_value(KIND, a.delta, zi, t)) : 0;
      v[3] += valid && sl__loss_outside(KIND, t);
      counted += valid;
      if (dlogits)
        dlogits[n * a.size + i] =
            sl::narrow<T>(valid ? a.scale * sl__loss_slope(KIND, a.delta, zi, t) : 0.0f);
    }
    v[2] += counted;
    counted = TEAM::sum(counted);
    v[1] += TEAM::rank() == 0 && counted > 0 && a.first == 0;
  }
  sums.leave(v);
}

template <class T, class TEAM, enum sl_loss_kind KIND>
void launch(const sl__loss_args &a, void *buffers[], T *dlogits, struct sl__cuda *cuda) {
  sl::sums<4> sums = sl::sums_into<4>(cuda, sl::out<float>(buffers, 2));
  unsigned grid = sl::team_grid<TEAM>(a.lines, sl::THREADS);
  SL__LAUNCH((loss<T, TEAM, KIND>), grid, sl::THREADS, 0, cuda->stream, a, sl::in<T>(buffers, 0),
             sl::in<float>(buffers, 1), dlogits, sums);
  sl::finish(cuda, sums, grid);
}

template <class T, enum sl_loss_kind KIND>
void by_size(const sl__loss_args &a, void *buffers[], T *dlogits, struct sl__cuda *cuda) {
  if (a.size <= sl::SHORT_ROW)
    launch<T, sl::warp_team, KIND>(a, buffers, dlogits, cuda);
  else
    launch<T, sl::block_team, KIND>(a, buffers, dlogits, cuda);
}

/* The kind as a constant of the kernel. */
template <class T>
void task(void *buffers[], void *cl_arg, T *dlogits, struct sl__cuda *cuda) {
  const sl__loss_args *a = sl::args<sl__loss_args>(cl_arg);
  switch (a->kind) {
    case SL_LOSS_MAE: by_size<T, SL_LOSS_MAE>(*a, buffers, dlogits, cuda); break;
    case SL_LOSS_HUBER: by_size<T, SL_LOSS_HUBER>(*a, buffers, dlogits, cuda); break;
    case SL_LOSS_BCE: by_size<T, SL_LOSS_BCE>(*a, buffers, dlogits, cuda); break;
    default: by_size<T, SL_LOSS_MSE>(*a, buffers, dlogits, cuda); break;
  }
}
}  // namespace

SL__CUDA(elementwise_loss) { SL__BY_TYPE(cl_arg, 0, T, task<T>(buffers, cl_arg, nullptr, cuda)); }

SL__CUDA(elementwise_loss_gradient) {
  SL__BY_TYPE(cl_arg, 0, T, task<T>(buffers, cl_arg, sl::out<T>(buffers, 3), cuda));
}
