/* The cosine loss: 1 - cos(z, t) of each row. */
#include "codelets/cosine_loss.h"

#include "codelets/kernels/team_cuda.h"

namespace {
/* A team has a row. dlogits may be NULL. The sums: losses, rows counted, the same, 0. */
template <class T, class TEAM>
__global__ void __launch_bounds__(1024, 1)
    cosine(sl__cosine_args a, const T *logits, const float *targets, T *dlogits, sl::sums<4> sums) {
  double loss = 0;
  int32_t counted = 0; /* of this thread's rows: registers are few */
  for (int64_t n = TEAM::first(); n < a.rows; n += TEAM::count()) {
    const T *z = logits + n * a.size;
    const float *t = targets + sl__cosine_target(&a, n);
    double zt = 0, zz = 0, tt = 0;
    for (int64_t i = TEAM::rank(); i < a.size; i += TEAM::size()) {
      double zi = static_cast<double>(sl::value(z[i])), ti = static_cast<double>(t[i]);
      zt += zi * ti;
      zz += zi * zi;
      tt += ti * ti;
    }
    sl__cosine s = {TEAM::sum(zt), TEAM::sum(zz), TEAM::sum(tt), true};
    s.valid = s.tt == s.tt;
    double by_z, by_t, value = sl__cosine_loss_of(&s, &by_z, &by_t);
    if (TEAM::rank() == 0 && s.valid) {
      loss += value;
      counted++;
    }
#pragma unroll 1 /* else registers spill */
    for (int64_t i = TEAM::rank(); dlogits && i < a.size; i += TEAM::size()) {
      double slope = by_z * static_cast<double>(sl::value(z[i])) + by_t * static_cast<double>(t[i]);
      dlogits[n * a.size + i] =
          sl::narrow<T>(s.valid ? static_cast<float>(static_cast<double>(a.scale) * slope) : 0.0f);
    }
  }
  double rows = counted, v[4] = {loss, rows, rows, 0};
  sums.leave(v);
}

template <class T, class TEAM>
void launch(const sl__cosine_args &a, void *buffers[], T *dlogits, struct sl__cuda *cuda) {
  sl::sums<4> sums = sl::sums_into<4>(cuda, sl::out<float>(buffers, 2));
  unsigned grid = sl::team_grid<TEAM>(a.rows, sl::THREADS);
  SL__LAUNCH((cosine<T, TEAM>), grid, sl::THREADS, 0, cuda->stream, a, sl::in<T>(buffers, 0),
             sl::in<float>(buffers, 1), dlogits, sums);
  sl::finish(cuda, sums, grid);
}

template <class T>
void task(void *buffers[], void *cl_arg, T *dlogits, struct sl__cuda *cuda) {
  const sl__cosine_args *a = sl::args<sl__cosine_args>(cl_arg);
  if (a->size <= sl::SHORT_ROW)
    launch<T, sl::warp_team>(*a, buffers, dlogits, cuda);
  else
    launch<T, sl::block_team>(*a, buffers, dlogits, cuda);
}
}  // namespace

SL__CUDA(cosine_loss) { SL__BY_TYPE(cl_arg, 0, T, task<T>(buffers, cl_arg, nullptr, cuda)); }

SL__CUDA(cosine_loss_gradient) {
  SL__BY_TYPE(cl_arg, 0, T, task<T>(buffers, cl_arg, sl::out<T>(buffers, 3), cuda));
}
