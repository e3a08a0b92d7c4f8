/* Common parts of the CUDA kernels' files; included by *_cuda.cu only. An operation's kernel:
 *
 *     SL__CUDA(add) {
 *       int64_t n = *sl::args<int64_t>(cl_arg);
 *       SL__BY_TYPE(cl_arg, 2, T,
 *                  sl::map(cuda, n, sl::sum(), sl::out<T>(buffers, 2), sl::in<T>(buffers, 0),
 *                          sl::in<T>(buffers, 1)));
 *     }
 *
 * All work goes to cuda->stream; no function waits. All sums have a fixed order: no atomics. */
#ifndef SL_CODELETS_KERNELS_CUDA_H
#define SL_CODELETS_KERNELS_CUDA_H

#define SL__CUDA_SOURCE
#include "core/runtime/cuda.h"
extern "C" {
#include "core/runtime/submit.h"
}
#include "core/runtime/failure.h"
#include "core/base/half.h"

/* Defines the function that StarPU calls. It runs the body in braces with buffers, cl_arg and cuda
 * (the worker's state), then checks for failed launches. */
#define SL__CUDA(name)                                                                             \
  static void name##_body(void *buffers[], void *cl_arg, struct sl__cuda *cuda);                   \
  extern "C" void sl__##name##_cuda(void *buffers[], void *cl_arg);                                \
  extern "C" void sl__##name##_cuda(void *buffers[], void *cl_arg) {                               \
    sl__task_launched();                                                                           \
    sl::forget_settled();                                                                          \
    name##_body(buffers, cl_arg, sl__cuda_here());                                                 \
    sl::succeeded(cudaGetLastError());                                                             \
  }                                                                                                \
  static void name##_body([[maybe_unused]] void *buffers[], [[maybe_unused]] void *cl_arg,         \
                          [[maybe_unused]] struct sl__cuda *cuda)

/* The same for an operation that takes several calls at once (`cuda_many` in struct sl__op): the
 * body gets their number, buffers[i] and cl_args[i] of call i, and cuda. The function for one call
 * calls it, too, so that both launch the same kernel and give the same bits. */
#define SL__CUDA_MANY(name)                                                                        \
  static void name##_body(int count, void **const buffers[], void *const cl_args[],                \
                          struct sl__cuda *cuda);                                                  \
  extern "C" void sl__##name##_cuda_many(int count, void **const buffers[],                        \
                                         void *const cl_args[]);                                   \
  extern "C" void sl__##name##_cuda_many(int count, void **const buffers[],                        \
                                         void *const cl_args[]) {                                  \
    sl__task_launched();                                                                           \
    sl::forget_settled();                                                                          \
    name##_body(count, buffers, cl_args, sl__cuda_here());                                         \
    sl::succeeded(cudaGetLastError());                                                             \
  }                                                                                                \
  extern "C" void sl__##name##_cuda(void *buffers[], void *cl_arg);                                \
  extern "C" void sl__##name##_cuda(void *buffers[], void *cl_arg) {                               \
    sl__##name##_cuda_many(1, &buffers, &cl_arg);                                                  \
  }                                                                                                \
  static void name##_body(int count, void **const buffers[], void *const cl_args[],                \
                          struct sl__cuda *cuda)

/* The expression with T as the type of the task's i-th buffer, float or sl::bf16. */
#define SL__BY_TYPE(cl_arg, i, T, ...)                                                             \
  do {                                                                                             \
    if (sl__is_bf16(cl_arg, i)) {                                                                  \
      using T = sl::bf16;                                                                          \
      __VA_ARGS__;                                                                                 \
    } else {                                                                                       \
      using T = float;                                                                             \
      __VA_ARGS__;                                                                                 \
    }                                                                                              \
  } while (0)

/* Dynamic shared memory; the stand-in has its own. */
#ifndef SL__SHARED
#define SL__SHARED(type, name) extern __shared__ type name[]
#endif

namespace sl {

/* ---- types ------------------------------------------------------------------------------- */

struct bf16 {
  uint16_t code;
};

__host__ __device__ inline float value(float x) { return x; }
__host__ __device__ inline float value(bf16 x) { return sl__bf16_value(x.code); }

template <class T>
__host__ __device__ inline T narrow(float x);
template <>
__host__ __device__ inline float narrow<float>(float x) {
  return x;
}
template <>
__host__ __device__ inline bf16 narrow<bf16>(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800 && !defined(SL_CUDA_STANDIN)
  /* The same rounding in one instruction instead of seven; every NaN becomes 0x7fff. */
  bf16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.code) : "f"(x));
  return y;
#else
  return bf16{sl__bf16_code(x)};
#endif
}

template <class A>
const A *args(const void *cl_arg) {
  return static_cast<const A *>(sl__args(cl_arg));
}
template <class T>
const T *in(void *buffers[], int i) {
  return static_cast<const T *>(sl__buffer(buffers, i));
}
template <class T>
T *out(void *buffers[], int i) {
  return static_cast<T *>(sl__buffer(buffers, i));
}

/* ---- failures: the task's, see core/runtime/failure.h
 * --------------------------------------------- */

inline bool succeeded(cudaError_t result) {
  if (result == cudaSuccess) return true;
  if (is_late(result))
    sl__device_failed(SL_STARPU, cudaGetErrorString(result));
  else
    sl__task_failed(result == cudaErrorMemoryAllocation ? SL_NO_MEMORY : SL_STARPU, "CUDA: %s",
                    cudaGetErrorString(result));
  return false;
}

/* Clears the thread's last CUDA error. StarPU uses this thread, too, and may have left an error
 * that it has handled (memory was short until it evicted tensors). The next task has not failed
 * because of it. */
inline void forget_settled() {
  cudaError_t result = cudaGetLastError();
  if (is_late(result)) succeeded(result);
}

inline bool succeeded(cublasStatus_t result) {
  if (result == CUBLAS_STATUS_SUCCESS) return true;
  sl__task_failed(SL_STARPU, "cuBLAS: %s", sl::cublaslt.GetStatusString(result));
  return false;
}
inline bool succeeded(cudnnStatus_t result) {
  if (result == CUDNN_STATUS_SUCCESS) return true;
  sl__task_failed(SL_STARPU, "cuDNN: %s", sl::cudnn.GetErrorString(result));
  return false;
}

/* ---- launches ---------------------------------------------------------------------------- */

constexpr int THREADS = 256; /* default number of threads of a block */

inline unsigned blocks(int64_t threads, int a_block = THREADS) {
  return static_cast<unsigned>((threads + a_block - 1) / a_block);
}

__device__ inline int64_t thread_index() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

/* Of the parts of a launch, in the sequence of their first blocks (member `block`): the index of
 * the one that this block belongs to. */
template <class P>
__device__ inline int part_of_block(const P *part, int count) {
  int first = 0, end = count;
  while (end - first > 1) {
    int middle = (first + end) / 2;
    if (part[middle].block <= blockIdx.x)
      first = middle;
    else
      end = middle;
  }
  return first;
}

/* ---- elementwise: y[i] = f(i, x0[i], x1[i], ...), 16 bytes at a time where they are aligned ----
 */

template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) pack {
  T v[N];
};

/* N values that lie side by side, LOADED of them at a time: what their alignment allows. */
template <int N, int LOADED, class T>
__device__ inline pack<T, N> load_pack(const T *from) {
  pack<T, N> all;
#pragma unroll
  for (int k = 0; k < N; k += LOADED) {
    auto some = *reinterpret_cast<const pack<T, LOADED> *>(from + k);
#pragma unroll
    for (int j = 0; j < LOADED; j++) all.v[k + j] = some.v[j];
  }
  return all;
}

/* f for the N values from i on: f itself, or the functor that it makes for a pack as a whole. */
template <class F>
__device__ inline auto for_pack(const F &f, [[maybe_unused]] int64_t i) {
  if constexpr (requires { f.of_pack(i); })
    return f.of_pack(i);
  else
    return f;
}

template <int N, class F, class Y, class... X>
__device__ inline void map_pack(const F &f, int64_t i, pack<Y, N> *y, pack<X, N>... x) {
  auto g = for_pack(f, i);
  pack<Y, N> result;
#pragma unroll
  for (int k = 0; k < N; k++) result.v[k] = narrow<Y>(g(i + k, value(x.v[k])...));
  *y = result;
}

/* The packs p and q, if there is one below `packs`. Both are loaded before one is written: the
 * compiler could not know that y is none of the other's x. */
template <int N, class F, class Y, class... X>
__device__ inline void map_two(const F &f, int64_t p, int64_t q, int64_t packs, pack<Y, N> *y,
                               const pack<X, N> *...x) {
  if (p >= packs) return;
  bool has_second = q < packs;
  auto with = [&](pack<X, N>... first) {
    auto finish = [&](pack<X, N>... second) {
      map_pack<N>(f, p * N, y + p, first...);
      if (has_second) map_pack<N>(f, q * N, y + q, second...);
    };
    finish((has_second ? x[q] : pack<X, N>{})...);
  };
  with(x[p]...);
}

/* Are two packs a thread's, where there are many? Three x are enough to load at a time. */
template <class... X>
constexpr bool MAPS_TWO = sizeof...(X) <= 2;

/* One thread a pack or two; the last thread also takes the values that are no pack. */
template <int N, class F, class Y, class... X>
__global__ void map_packs(F f, int64_t n, Y *y, const X *...x) {
  int64_t packs = n / N, p = thread_index(), threads = static_cast<int64_t>(gridDim.x) * blockDim.x;
  map_two<N>(f, p, MAPS_TWO<X...> ? p + threads : packs, packs, reinterpret_cast<pack<Y, N> *>(y),
             reinterpret_cast<const pack<X, N> *>(x)...);
  if (N > 1 && p == threads - 1)
    for (int64_t i = packs * N; i < n; i++)
      map_pack<1>(f, i, reinterpret_cast<pack<Y, 1> *>(y) + i,
                  reinterpret_cast<const pack<X, 1> *>(x)[i]...);
}

/* The threads of a large GPU. With the stand-in few, so that threads have two packs in small tests,
 * too. */
#ifdef SL_CUDA_STANDIN
constexpr int64_t MANY_THREADS = 128;
#else
constexpr int64_t MANY_THREADS = 132 * 2048;
#endif

/* Two packs a thread where all of a large GPU's threads have some. */
template <class... X>
unsigned map_blocks(int64_t packs) {
  int64_t threads = MAPS_TWO<X...> && packs >= 2 * MANY_THREADS ? (packs + 1) / 2 : packs;
  return threads ? blocks(threads) : 1;
}

inline bool is_aligned(const void *p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

/* y may alias one of the x, for in-place operations. f: a functor whose operator() is __device__,
 * (int64_t i, float x0, float x1, ...) -> float. */
template <class F, class Y, class... X>
void map(struct sl__cuda *cuda, int64_t n, F f, Y *y, const X *...x) {
  constexpr int N = (sizeof(Y) == 2 && (... && (sizeof(X) == 2))) ? 8 : 4;
  if (is_aligned(y) && (... && is_aligned(x)))
    SL__LAUNCH((map_packs<N, F, Y, X...>), map_blocks<X...>(n / N), THREADS, 0, cuda->stream, f, n,
               y, x...);
  else
    SL__LAUNCH((map_packs<1, F, Y, X...>), map_blocks<X...>(n), THREADS, 0, cuda->stream, f, n, y,
               x...);
}

/* ---- sums in a fixed order ---------------------------------------------------------------- */

template <class T>
__device__ inline T warp_sum(T v) {
  for (int offset = 16; offset; offset /= 2) v += __shfl_xor_sync(0xffffffffu, v, offset);
  return v;
}

/* Returns to all threads the sum of v over the block, which consists of whole warps. */
template <class T>
__device__ inline T block_sum(T v) {
  __shared__ T part[32];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  v = warp_sum(v);
  __syncthreads(); /* an earlier call may still read part */
  if (lane == 0) part[warp] = v;
  __syncthreads();
  return warp_sum(lane < warps ? part[lane] : T(0));
}

}  // namespace sl

#endif
