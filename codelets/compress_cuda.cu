/* Gradient compression: the packed forms of compress.c. A thread has N values; the threads of a
 * word combine their bits by shuffles. */
#include "codelets/compress.h"

#include "codelets/codelets.h"
#include "codelets/kernels/cuda.h"

namespace sl {

struct fp16 {
  uint16_t code;
};
__host__ __device__ inline float value(fp16 x) { return sl__fp16_value(x.code); }
template <>
__host__ __device__ inline fp16 narrow<fp16>(float x) {
  return fp16{sl__fp16_code(x)};
}

/* Ranks on CPUs send the same code for a NaN, which a GPU's own instruction does not give. */
struct sent_bf16 {
  uint16_t code;
};
__host__ __device__ inline float value(sent_bf16 x) { return sl__bf16_value(x.code); }
template <>
__host__ __device__ inline sent_bf16 narrow<sent_bf16>(float x) {
  return sent_bf16{sl__bf16_code(x)};
}

}  // namespace sl

namespace {

/* ---- words: f(k, r) returns value k's bits of a word and updates the residual r ---- */

/* The combined bits of all threads of a word, in each of them. */
template <int THREADS_A_WORD>
__device__ uint32_t unite(uint32_t bits) {
  for (int apart = 1; apart < THREADS_A_WORD; apart *= 2)
    bits |= __shfl_xor_sync(0xffffffffu, bits, apart);
  return bits;
}

/* r: the residual before; plus the gradient g if there is one. */
template <int WORD, int N, class F>
__global__ void pack_words(F f, int64_t count, const float *g, float *r, uint32_t *packed) {
  int64_t i = sl::thread_index() * N;
  int first = static_cast<int>(i % WORD);
  uint32_t bits = 0;
  f.begin();
  if (i + N <= count) {
    using values = sl::pack<float, N>;
    values sum = *reinterpret_cast<const values *>(r + i);
    if (g) {
      values more = *reinterpret_cast<const values *>(g + i);
#pragma unroll
      for (int k = 0; k < N; k++) sum.v[k] += more.v[k];
    }
#pragma unroll
    for (int k = 0; k < N; k++) bits |= f(first + k, sum.v[k]);
    *reinterpret_cast<values *>(r + i) = sum;
  } else {
    for (int k = 0; i + k < count; k++) {
      float sum = g ? r[i + k] + g[i + k] : r[i + k];
      bits |= f(first + k, sum);
      r[i + k] = sum;
    }
  }
  bits = unite<WORD / N>(bits);
  if (first == 0 && i < count) packed[i / WORD] = bits;
}

template <int WORD, class F>
void pack(struct sl__cuda *cuda, F f, int64_t count, const float *g, float *r, uint32_t *packed) {
  bool aligned = sl::is_aligned(g) && sl::is_aligned(r);
  int n = aligned ? 4 : 1;
  SL__LAUNCH((aligned ? pack_words<WORD, 4, F> : pack_words<WORD, 1, F>),
             sl::blocks((count + n - 1) / n), sl::THREADS, 0, cuda->stream, f, count, g, r, packed);
}

/* ---- 2bit ---- */

struct two_bits {
  float t;
  __device__ void begin() {}
  __device__ uint32_t operator()(int k, float &r) const {
    uint32_t code = sl__2bit_code(r, t, SL__2BIT_LOW(k));
    r = sl__2bit_rest(r, t);
    return code;
  }
};

struct of_two_bits {
  const uint32_t *packed;
  float t;
  __device__ float operator()(int64_t i) const {
    return sl__2bit_value(packed[i / SL__2BIT_VALUES], t, SL__2BIT_LOW(i % SL__2BIT_VALUES));
  }
  __device__ float operator()(int64_t i, float y) const { return y + (*this)(i); }
};

/* ---- 1bit: r += g with partial sums, the means, the signs ---- */

struct signed_sums {
  double above, below;
  int64_t count; /* of values >= 0 */
};

constexpr int PARTS = 1024;

__global__ void add_gradient(int64_t n, const float *g, float *r, signed_sums *part) {
  double above = 0, below = 0;
  int64_t count = 0, step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = sl::thread_index(); i < n; i += 4 * step) {
    float x[4]; /* all loads before the first store: the compiler cannot prove that they do not
                   alias */
#pragma unroll
    for (int k = 0; k < 4; k++) {
      int64_t at = i + k * step;
      x[k] = at < n ? r[at] + g[at] : 0;
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
      if (i + k * step >= n) break;
      r[i + k * step] = x[k];
      bool up = x[k] >= 0;
      above += static_cast<double>(up ? x[k] : 0);
      below += static_cast<double>(up ? 0 : x[k]); /* NaN, too */
      count += up;
    }
  }
  above = sl::block_sum(above);
  below = sl::block_sum(below);
  count = sl::block_sum(count);
  if (threadIdx.x == 0) part[blockIdx.x] = {above, below, count};
}

__global__ void find_means(int64_t n, int parts, const signed_sums *part, uint32_t *packed) {
  double above = 0, below = 0;
  int64_t count = 0;
  for (int k = threadIdx.x; k < parts; k += blockDim.x) {
    signed_sums p = part[k];
    above += p.above;
    below += p.below;
    count += p.count;
  }
  above = sl::block_sum(above);
  below = sl::block_sum(below);
  count = sl::block_sum(count);
  struct sl__1bit_means m = sl__1bit_means(above, below, count, n);
  if (threadIdx.x == 0) packed[0] = sl__float_bits(m.upper), packed[1] = sl__float_bits(m.lower);
}

__device__ struct sl__1bit_means means_of(const uint32_t *packed) {
  return {sl__bits_float(packed[0]), sl__bits_float(packed[1])};
}

struct one_bit {
  const uint32_t *packed;
  struct sl__1bit_means means;
  __device__ void begin() { means = means_of(packed); }
  __device__ uint32_t operator()(int k, float &r) const {
    uint32_t up = sl__mask(r >= 0);
    r -= sl__1bit_value(up, means);
    return up & SL__1BIT_PLACE(k);
  }
};

struct of_one_bit {
  const uint32_t *packed;
  __device__ float operator()(int64_t i) const {
    uint32_t word = packed[SL__1BIT_FRONT + i / SL__1BIT_VALUES];
    return sl__1bit_value(sl__mask(word & SL__1BIT_PLACE(i % SL__1BIT_VALUES)), means_of(packed));
  }
  __device__ float operator()(int64_t i, float y) const { return y + (*this)(i); }
};

void compress_1bit(struct sl__cuda *cuda, int64_t n, const float *g, float *r, uint32_t *packed) {
  signed_sums *part = static_cast<signed_sums *>(cuda->workspace);
  unsigned parts = sl::blocks(n, 8 * sl::THREADS);
  if (parts > PARTS) parts = PARTS;
  SL__LAUNCH(add_gradient, parts, sl::THREADS, 0, cuda->stream, n, g, r, part);
  SL__LAUNCH(find_means, 1, sl::THREADS, 0, cuda->stream, n, static_cast<int>(parts), part, packed);
  pack<SL__1BIT_VALUES>(cuda, one_bit{packed, {}}, n, nullptr, r, packed + SL__1BIT_FRONT);
}

/* ---- fp16, bf16 ---- */

struct same {
  __device__ float operator()(int64_t, float x) const { return x; }
  __device__ float operator()(int64_t, float x, float y) const { return y + x; }
};

template <class T>
void compress_half(struct sl__cuda *cuda, int64_t n, const float *g, void *packed) {
  T *halves = static_cast<T *>(packed);
  sl::map(cuda, n, same(), halves, g);
  if (n % 2) /* the same gradient must give the same bits */
    sl::succeeded(cudaMemsetAsync(halves + n, 0, sizeof(T), cuda->stream));
}

/* y (+)= f of its index or, for fp16 and bf16, of x. */
template <class F, class... X>
void unpack(struct sl__cuda *cuda, int64_t n, bool add, F f, float *y, const X *...x) {
  if (add)
    sl::map(cuda, n, f, y, x..., static_cast<const float *>(y));
  else
    sl::map(cuda, n, f, y, x...);
}

}  // namespace

SL__CUDA(compress_residual) {
  const sl__compress_args *a = sl::args<sl__compress_args>(cl_arg);
  const float *g = sl::in<float>(buffers, 0);
  float *r = sl::out<float>(buffers, 1);
  uint32_t *packed = sl::out<uint32_t>(buffers, 2);
  if (a->method == SL__COMPRESS_2BIT)
    pack<SL__2BIT_VALUES>(cuda, two_bits{a->threshold}, a->count, g, r, packed);
  else
    compress_1bit(cuda, a->count, g, r, packed);
}

SL__CUDA(compress_half) {
  const sl__compress_args *a = sl::args<sl__compress_args>(cl_arg);
  const float *g = sl::in<float>(buffers, 0);
  void *packed = sl::out<uint16_t>(buffers, 1);
  if (a->method == SL__COMPRESS_FP16)
    compress_half<sl::fp16>(cuda, a->count, g, packed);
  else
    compress_half<sl::sent_bf16>(cuda, a->count, g, packed);
}

SL__CUDA(decompress) {
  const sl__compress_args *a = sl::args<sl__compress_args>(cl_arg);
  const uint32_t *packed = sl::in<uint32_t>(buffers, 0);
  float *y = sl::out<float>(buffers, 1);
  bool add = sl__accumulate(cl_arg);
  switch (a->method) {
    case SL__COMPRESS_2BIT:
      unpack(cuda, a->count, add, of_two_bits{packed, a->threshold}, y);
      break;
    case SL__COMPRESS_1BIT: unpack(cuda, a->count, add, of_one_bit{packed}, y); break;
    case SL__COMPRESS_FP16:
      unpack(cuda, a->count, add, same(), y, sl::in<sl::fp16>(buffers, 0));
      break;
    default: unpack(cuda, a->count, add, same(), y, sl::in<sl::sent_bf16>(buffers, 0)); break;
  }
}
