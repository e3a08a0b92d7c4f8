/* Dropout. A call of the generator gives numbers for four neighbours, so a thread has four values.
 */
#include "codelets/dropout.h"

#include "codelets/kernels/cuda.h"

namespace {
/* The index-th number belongs to the run's value index - first. A run's first and last group may be
 * partial. */
template <class T, bool ADD>
struct group {
  const sl__dropout_args *a;
  const T *x; /* of the run */
  T *y;
  float plan_cache;

  __device__ void one(uint32_t bits, int64_t i) const {
    float v = sl__dropout_value(bits, a->d.rate, plan_cache, sl::value(x[i]));
    y[i] = sl::narrow<T>(ADD ? sl::value(y[i]) + v : v);
  }

  __device__ void four(const sl__random4 &r, int64_t i) const {
    using pack = sl::pack<T, 4>;
    pack from = *reinterpret_cast<const pack *>(x + i), to = {};
    if (ADD) to = *reinterpret_cast<const pack *>(y + i);
#pragma unroll
    for (int k = 0; k < 4; k++) {
      float v = sl__dropout_value(r.v[k], a->d.rate, plan_cache, sl::value(from.v[k]));
      to.v[k] = sl::narrow<T>(ADD ? sl::value(to.v[k]) + v : v);
    }
    *reinterpret_cast<pack *>(y + i) = to;
  }
};

template <class T>
__device__ bool is_pack(const T *p) {
  return reinterpret_cast<uintptr_t>(p) % sizeof(sl::pack<T, 4>) == 0;
}

/* groups: maximum number of a run's. */
template <class T, bool ADD>
__global__ void drop(sl__dropout_args a, int64_t run, int64_t groups, const T *x, T *y) {
  int64_t thread = sl::thread_index(), line = run == a.count ? 0 : thread / groups;
  if (line * run >= a.count || thread - line * groups >= groups) return;
  uint64_t first = a.d.first + static_cast<uint64_t>(line) * static_cast<uint64_t>(a.d.stride);
  uint64_t index = (first >> 2) + static_cast<uint64_t>(thread - line * groups);
  int64_t i = static_cast<int64_t>((index << 2) - first); /* -3 at least */
  if (i >= run) return;
  group<T, ADD> g = {&a, x + line * run, y + line * run, 1.0f / (1.0f - a.d.rate)};
  sl__random4 r = sl__philox(a.d.seed, a.d.stream, index);
  if (i >= 0 && i + 4 <= run && is_pack(g.x + i) && is_pack(g.y + i))
    g.four(r, i);
  else
#pragma unroll
    for (int k = 0; k < 4; k++)
      if (i + k >= 0 && i + k < run) g.one(r.v[k], i + k);
}

template <class T, bool ADD>
void launch(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__dropout_args *a = sl::args<sl__dropout_args>(cl_arg);
  int64_t run = a->d.run ? a->d.run : a->count, groups = (run + 6) / 4;
  SL__LAUNCH((drop<T, ADD>), sl::blocks(a->count / run * groups), sl::THREADS, 0, cuda->stream, *a,
             run, groups, sl::in<T>(buffers, 0), sl::out<T>(buffers, 1));
}
}  // namespace

SL__CUDA(dropout_forward) { SL__BY_TYPE(cl_arg, 0, T, launch<T, false>(buffers, cl_arg, cuda)); }

SL__CUDA(dropout_backward) {
  if (sl__accumulate(cl_arg))
    SL__BY_TYPE(cl_arg, 0, T, launch<T, true>(buffers, cl_arg, cuda));
  else
    SL__BY_TYPE(cl_arg, 0, T, launch<T, false>(buffers, cl_arg, cuda));
}
