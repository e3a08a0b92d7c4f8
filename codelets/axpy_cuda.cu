/* y (+)= alpha x; a change of type where x and y have different ones. Calls that follow each other,
 * as for the bf16 copies of all parameters, are one launch. */
#include "codelets/kernels/cuda.h"
#include "codelets/kernels/elementwise.h"

namespace {

struct scale {
  float alpha;
  __device__ float operator()(int64_t, float x) const { return alpha * x; }
};

struct scale_add {
  float alpha;
  __device__ float operator()(int64_t, float x, float y) const { return y + alpha * x; }
};

/* Calls of one launch; block: the first of a call's. */
template <class X, class Y>
struct call {
  const X *x;
  Y *y;
  int64_t count;
  float alpha;
  unsigned block;
  bool is_packed;
};
template <class X, class Y>
struct calls {
  static constexpr int MOST = 64, PACK = sizeof(X) == 2 && sizeof(Y) == 2 ? 8 : 4;
  int count;
  call<X, Y> each[MOST];
};

template <int N, bool ADD, class X, class Y>
__device__ void take_pack(const call<X, Y> &c, int64_t p) {
  auto *y = reinterpret_cast<sl::pack<Y, N> *>(c.y) + p;
  const auto x = reinterpret_cast<const sl::pack<X, N> *>(c.x)[p];
  if constexpr (ADD)
    sl::map_pack<N>(scale_add{c.alpha}, p * N, y, x, *y);
  else
    sl::map_pack<N>(scale{c.alpha}, p * N, y, x);
}

/* One thread a pack; the thread after a call's last pack takes the remaining values. */
template <bool ADD, class X, class Y>
__global__ void take_calls(calls<X, Y> all) {
  constexpr int N = calls<X, Y>::PACK;
  const call<X, Y> c = all.each[sl::part_of_block(all.each, all.count)];
  int64_t p = static_cast<int64_t>(blockIdx.x - c.block) * blockDim.x + threadIdx.x;
  int64_t packs = c.is_packed ? c.count / N : 0;
  if (p < packs)
    take_pack<N, ADD>(c, p);
  else if (!c.is_packed && p < c.count)
    take_pack<1, ADD>(c, p);
  else if (c.is_packed && p == packs)
    for (int64_t i = packs * N; i < c.count; i++) take_pack<1, ADD>(c, i);
}

template <bool ADD, class X, class Y>
void launch(struct sl__cuda *cuda, calls<X, Y> *c, unsigned *grid) {
  if (c->count) SL__LAUNCH((take_calls<ADD, X, Y>), *grid, sl::THREADS, 0, cuda->stream, *c);
  c->count = 0;
  *grid = 0;
}

/* The calls first to end - 1, which have the same types and are all to be added, or none is. */
template <bool ADD, class X, class Y>
void run(int first, int end, void **const buffers[], void *const cl_args[], struct sl__cuda *cuda) {
  constexpr int N = calls<X, Y>::PACK;
  calls<X, Y> c;
  unsigned grid = 0;
  c.count = 0;
  for (int i = first; i < end; i++) {
    const struct sl__scalar_args *a = sl::args<sl__scalar_args>(cl_args[i]);
    const X *x = sl::in<X>(buffers[i], 0);
    Y *y = sl::out<Y>(buffers[i], 1);
    bool is_packed = sl::is_aligned(x) && sl::is_aligned(y);
    if (c.count == calls<X, Y>::MOST) launch<ADD>(cuda, &c, &grid);
    c.each[c.count++] = {x, y, a->count, a->scalar, grid, is_packed};
    grid += sl::blocks(is_packed ? a->count / N + 1 : a->count);
  }
  launch<ADD>(cuda, &c, &grid);
}

bool are_alike(const void *a, const void *b) {
  return sl__is_bf16(a, 0) == sl__is_bf16(b, 0) && sl__is_bf16(a, 1) == sl__is_bf16(b, 1) &&
         sl__accumulate(a) == sl__accumulate(b);
}

}  // namespace

SL__CUDA_MANY(axpy) {
  for (int first = 0, end; first < count; first = end) {
    const void *one = cl_args[first];
    for (end = first + 1; end < count && are_alike(one, cl_args[end]);) end++;
    SL__BY_TYPE(one, 0, X, SL__BY_TYPE(one, 1, Y, {
                  if (sl__accumulate(one))
                    run<true, X, Y>(first, end, buffers, cl_args, cuda);
                  else
                    run<false, X, Y>(first, end, buffers, cl_args, cuda);
                }));
  }
}
