/* Lets a host compiler take a .cu file and run its kernels on the CPU: for tests on machines
 * without a GPU. It is never installed. It checks indexing, access modes, streams, handles and
 * memory limits, not speed and not the device's arithmetic. The build includes it in front of each
 * .cu file by -include; README.md here says its limits.
 *
 * The threads of a block are fibers of one OS thread. One fiber runs thread after thread as long as
 * none waits, so a kernel without barriers needs no switches; at a barrier or shuffle the fiber
 * switches to the next one. */
#ifndef SL_TESTS_STANDIN_CUDA_HOST_H
#define SL_TESTS_STANDIN_CUDA_HOST_H

#define __DEVICE_LAUNCH_PARAMETERS_H__ /* threadIdx and its like are ours */
#include <cuda_runtime.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <functional>
#include <tuple>
#include <type_traits>
#include <vector>

#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __shared__
#undef __launch_bounds__
#undef __forceinline__
#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ static thread_local /* a block never leaves its OS thread */
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))

#define SL_STANDIN_API __attribute__((visibility("default")))

/* Variables, not macros: the toolkit's headers have parameters of these names. */
extern SL_STANDIN_API __thread uint3 threadIdx, blockIdx, blockDim, gridDim;
constexpr int warpSize = 32;

namespace sl_standin {

extern SL_STANDIN_API __thread void *shared; /* the block's dynamic shared memory */

enum class Wait : unsigned char { none, barrier, warp, shuffle, ballot };

/* Waits for the block, or for the warp's lanes in mask. line: of the call; a barrier is a place in
 * the code, not a number of arrivals. shuffle: returns the value of lane source. ballot: the lanes
 * whose value is not 0. barrier: the number of such threads. */
SL_STANDIN_API uint64_t wait(Wait kind, unsigned mask, uint64_t value, int source, int line);

struct Launch {
  const char *name;
  const void *function;
  dim3 grid, block;
  size_t shared;
  std::function<void()> thread;       /* runs the kernel for the thread that threadIdx says */
  std::vector<const void *> pointers; /* among the arguments: checked before the kernel runs */
};
SL_STANDIN_API void launch(cudaStream_t stream, Launch launch);

/* Runs all blocks at once; for libcudart. Returns false, with a line on stderr, if threads diverge
 * at a barrier. */
SL_STANDIN_API bool run_blocks(const Launch &launch, bool reverse);

/* Other work of a library on a stream: counted and checked like a kernel. */
struct Range {
  const void *pointer;
  size_t bytes;
};
SL_STANDIN_API cudaError_t work(cudaStream_t stream, const char *name, std::vector<Range> ranges,
                                std::function<void()> run);

/* What __CUDA_ARCH__ is in the code of a device. */
SL_STANDIN_API int architecture();

/* A combination that a library was asked for (library_keys.cu). */
SL_STANDIN_API void note_library_key(const char *key);

/* The status that SL_STANDIN_STATUS wants from this call of a library's function; 0: none. */
SL_STANDIN_API int planted_status(const char *function);

template <class... P, class... A>
void launch_kernel(const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                   cudaStream_t stream, A &&...args) {
  static_assert(sizeof...(P) == sizeof...(A), "the kernel has another number of arguments");
  std::tuple<P...> copied{
      std::forward<A>(args)...}; /* as the device: values at the time of the launch */
  Launch result{name, (const void *)kernel, grid, block, shared, {}, {}};
  std::apply(
      [&](const auto &...arg) {
        [[maybe_unused]] auto note = [&](const auto &value) {
          if constexpr (std::is_pointer_v<std::decay_t<decltype(value)>>)
            result.pointers.push_back((const void *)value);
        };
        (note(arg), ...);
      },
      copied);
  result.thread = [kernel, copied] { std::apply(kernel, copied); };
  launch(stream, std::move(result));
}

template <class T>
uint64_t to_bits(T value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T>
T from_bits(uint64_t bits) {
  T value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
template <class To, class From>
To same_bits(From value) {
  static_assert(sizeof(To) == sizeof(From));
  return from_bits<To>(to_bits(value));
}

inline int lane() {
  return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) & 31;
}
/* Lanes [first, first + width) exchange; source relative to first. Out of range: the lane's own
 * value. */
template <class T>
T shuffle(unsigned mask, T value, int source, int line) {
  return from_bits<T>(wait(Wait::shuffle, mask, to_bits(value), source, line));
}

} /* namespace sl_standin */

/* ---- the language of device code
 * ------------------------------------------------------------------ */
/* Dynamic shared memory; under nvcc: extern __shared__ type name[]. */
#define SL__SHARED(type, name) type *name = (type *)sl_standin::shared
/* Under nvcc: kernel<<<grid, block, shared_bytes, stream>>>(...). A template instance goes in
 * parentheses. */
#define SL__LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                 \
  sl_standin::launch_kernel(#kernel, kernel, grid, block, shared_bytes,                            \
                            stream __VA_OPT__(, ) __VA_ARGS__)

/* The toolkit has these for nvcc only. */
template <class T>
cudaError_t cudaFuncSetAttribute(T *kernel, cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute((const void *)kernel, attribute, value);
}
template <class T>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, T *kernel) {
  return cudaFuncGetAttributes(attributes, (const void *)kernel);
}

#define SL__LINE int line = __builtin_LINE()
inline void __syncthreads(SL__LINE) { sl_standin::wait(sl_standin::Wait::barrier, 0, 0, 0, line); }
inline int __syncthreads_count(int value, SL__LINE) {
  return (int)sl_standin::wait(sl_standin::Wait::barrier, 0, value != 0, 0, line);
}
inline int __syncthreads_or(int value, SL__LINE) { return __syncthreads_count(value, line) > 0; }
inline int __syncthreads_and(int value, SL__LINE) { return __syncthreads_count(!value, line) == 0; }
inline void __syncwarp(unsigned mask = 0xffffffffu, SL__LINE) {
  sl_standin::wait(sl_standin::Wait::warp, mask, 0, 0, line);
}
inline unsigned __ballot_sync(unsigned mask, int value, SL__LINE) {
  return (unsigned)sl_standin::wait(sl_standin::Wait::ballot, mask, value != 0, 0, line);
}
inline int __any_sync(unsigned mask, int value, SL__LINE) {
  return __ballot_sync(mask, value, line) != 0;
}
inline int __all_sync(unsigned mask, int value, SL__LINE) {
  return __ballot_sync(mask, !value, line) == 0;
}

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, SL__LINE) {
  int lane = sl_standin::lane();
  return sl_standin::shuffle(mask, value, (lane & -width) + (source & (width - 1)), line);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, SL__LINE) {
  int lane = sl_standin::lane(), source = lane - (int)delta;
  return sl_standin::shuffle(mask, value, source < (lane & -width) ? lane : source, line);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, SL__LINE) {
  int lane = sl_standin::lane(), source = lane + (int)delta;
  return sl_standin::shuffle(mask, value, source >= (lane & -width) + width ? lane : source, line);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, SL__LINE) {
  int lane = sl_standin::lane(), source = lane ^ bits;
  return sl_standin::shuffle(mask, value, source >= (lane & -width) + width ? lane : source, line);
}

inline void __threadfence() {}
inline void __threadfence_block() {}
inline unsigned __activemask() = delete; /* no document promises its value */
template <class T>
T __ldg(const T *p) {
  return *p;
}
template <class T>
T __ldcs(const T *p) {
  return *p;
}
template <class T>
void __stcs(T *p, T value) {
  *p = value;
}

/* One OS thread runs a kernel, so plain operations are atomic. The race checker (race.cu) gets one
 * access for each of them. */
#ifdef SL_STANDIN_RACES
namespace sl_standin {
SL_STANDIN_API void atomic_access(const void *pointer, size_t size, const void *place);
}
#define SL_ATOMIC_ACCESS(p) sl_standin::atomic_access(p, sizeof *(p), __builtin_return_address(0))
#define SL_ATOMIC_FUNCTION __attribute__((noinline, no_sanitize("thread")))
/* A function whose memory is the stand-in's own: nothing checks it. */
#define SL_UNSEEN __attribute__((noinline, no_sanitize("thread", "address", "undefined")))
#else
#define SL_ATOMIC_ACCESS(p) (void)0
#define SL_ATOMIC_FUNCTION
#define SL_UNSEEN __attribute__((noinline, no_sanitize("address", "undefined")))
#endif
template <class T>
SL_ATOMIC_FUNCTION T sl_standin_swap(T *p, T value) {
  T old = *p;
  *p = value;
  return old;
}
#define SL_ATOMIC(name, result)                                                                    \
  template <class T>                                                                               \
  SL_ATOMIC_FUNCTION T name(T *p, std::type_identity_t<T> value) {                                 \
    SL_ATOMIC_ACCESS(p);                                                                           \
    return sl_standin_swap<T>(p, result);                                                          \
  }
SL_ATOMIC(atomicAdd, *p + value)
SL_ATOMIC(atomicSub, *p - value)
SL_ATOMIC(atomicMin, *p < value ? *p : value)
SL_ATOMIC(atomicMax, *p > value ? *p : value)
SL_ATOMIC(atomicOr, *p | value)
SL_ATOMIC(atomicAnd, *p &value)
SL_ATOMIC(atomicXor, *p ^ value)
SL_ATOMIC(atomicExch, value)
template <class T>
SL_ATOMIC_FUNCTION T atomicCAS(T *p, std::type_identity_t<T> compare,
                               std::type_identity_t<T> value) {
  SL_ATOMIC_ACCESS(p);
  return sl_standin_swap<T>(p, *p == compare ? value : *p);
}

template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>)
    return fmin((T)a, (T)b); /* a number wins over NaN */
  else
    return (T)b < (T)a ? (T)b : (T)a;
}
template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>)
    return fmax((T)a, (T)b);
  else
    return (T)a < (T)b ? (T)b : (T)a;
}

inline int __float_as_int(float x) { return sl_standin::same_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return sl_standin::same_bits<unsigned>(x); }
inline float __int_as_float(int x) { return sl_standin::same_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return sl_standin::same_bits<float>(x); }
inline long long __double_as_longlong(double x) { return sl_standin::same_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return sl_standin::same_bits<double>(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((uint64_t)a * b) >> 32); }
inline int __mulhi(int a, int b) { return (int)(((int64_t)a * b) >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __saturatef(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }
inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return powf(10.0f, x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline void __sincosf(float x, float *sine, float *cosine) { *sine = sinf(x), *cosine = cosf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __frsqrt_rn(float x) { return rsqrtf(x); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline int __float2int_rn(float x) { return (int)rintf(x); }
inline int __float2int_rz(float x) { return (int)x; }
inline int __float2int_rd(float x) { return (int)floorf(x); }
inline int __float2int_ru(float x) { return (int)ceilf(x); }
inline unsigned __float2uint_rn(float x) { return (unsigned)rintf(x); }
inline float __int2float_rn(int x) { return (float)x; }
inline float __uint2float_rn(unsigned x) { return (float)x; }

/* The compiler tells the race checker of all accesses but those in calls of these. */
#ifdef SL_STANDIN_RACES
extern "C" {
SL_STANDIN_API void *sl_standin_memcpy(void *to, const void *from, size_t bytes);
SL_STANDIN_API void *sl_standin_memmove(void *to, const void *from, size_t bytes);
SL_STANDIN_API void *sl_standin_memset(void *to, int value, size_t bytes);
}
#define memcpy(to, from, bytes) sl_standin_memcpy(to, from, bytes)
#define memmove(to, from, bytes) sl_standin_memmove(to, from, bytes)
#define memset(to, value, bytes) sl_standin_memset(to, value, bytes)
#endif

#endif
