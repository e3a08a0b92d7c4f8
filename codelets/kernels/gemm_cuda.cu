/* Products by cuBLASLt. It is column-major, and reads our C as its transpose: C^T = op(B)^T
 * op(A)^T, with B and A in place. A bias, one value a column of C, is one a row there, as the
 * library's epilogue wants it.
 *
 * The heuristics are asked once a shape. For the same bits in every run:
 * - Alignments are the pointers' up to 16 bytes, beyond which no kernel depends on them: otherwise
 * the choice would depend on where memory happens to be.
 * - Only those split-K schemes are allowed that write all parts in the compute type (float) to the
 * workspace and add them in a separate pass. Not in place: parts would be added in the output's
 * type, in turns. Not in the output's type: bf16 would be rounded part by part. */
#include "codelets/kernels/gemm_cuda.h"

#include "codelets/activation.h"
#include "codelets/kernels/plan_cache.h"

namespace {

struct key {
  int64_t m, n, k, lda, ldb, ldc;
  int32_t ta, tb, half_in, half_out, tf32, adds, bias;
  int32_t align_a, align_b, align_c;
};

struct plan {
  cublasLtMatmulDesc_t matmul = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm;
  bool found = false; /* the library has an algorithm */

  ~plan() {
    if (c) sl::cublaslt.MatrixLayoutDestroy(c);
    if (b) sl::cublaslt.MatrixLayoutDestroy(b);
    if (a) sl::cublaslt.MatrixLayoutDestroy(a);
    if (matmul) sl::cublaslt.MatmulDescDestroy(matmul);
  }
};

template <class V>
cublasStatus_t set(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t name, V value) {
  return sl::cublaslt.MatmulDescSetAttribute(d, name, &value, sizeof value);
}
template <class V>
cublasStatus_t set(cublasLtMatmulPreference_t d, cublasLtMatmulPreferenceAttributes_t name,
                   V value) {
  return sl::cublaslt.MatmulPreferenceSetAttribute(d, name, &value, sizeof value);
}

/* Power of two, at most 16. */
int32_t alignment(const void *p) {
  uintptr_t address = reinterpret_cast<uintptr_t>(p) | 16;
  return static_cast<int32_t>(address & -address);
}

cudaDataType_t type(int32_t half) { return half ? CUDA_R_16BF : CUDA_R_32F; }

bool describe(const key &q, plan *p) {
  /* the library's first factor is our B */
  cublasOperation_t first = q.tb ? CUBLAS_OP_T : CUBLAS_OP_N;
  cublasOperation_t second = q.ta ? CUBLAS_OP_T : CUBLAS_OP_N;
  cublasComputeType_t compute = q.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  uint64_t b_rows = static_cast<uint64_t>(q.tb ? q.k : q.n);
  uint64_t b_columns = static_cast<uint64_t>(q.tb ? q.n : q.k);
  uint64_t a_rows = static_cast<uint64_t>(q.ta ? q.m : q.k);
  uint64_t a_columns = static_cast<uint64_t>(q.ta ? q.k : q.m);
  if (!sl::succeeded(sl::cublaslt.MatmulDescCreate(&p->matmul, compute, CUDA_R_32F)) ||
      !sl::succeeded(set(p->matmul, CUBLASLT_MATMUL_DESC_TRANSA, first)) ||
      !sl::succeeded(set(p->matmul, CUBLASLT_MATMUL_DESC_TRANSB, second)))
    return false;
  /* the heuristics look at the bias's address for its alignment only */
  if (q.bias &&
      (!sl::succeeded(set(p->matmul, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS)) ||
       !sl::succeeded(set(p->matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, uintptr_t(16)))))
    return false;
  return sl::succeeded(
             sl::cublaslt.MatrixLayoutCreate(&p->b, type(q.half_in), b_rows, b_columns, q.ldb)) &&
         sl::succeeded(
             sl::cublaslt.MatrixLayoutCreate(&p->a, type(q.half_in), a_rows, a_columns, q.lda)) &&
         sl::succeeded(sl::cublaslt.MatrixLayoutCreate(&p->c, type(q.half_out),
                                                       static_cast<uint64_t>(q.n),
                                                       static_cast<uint64_t>(q.m), q.ldc));
}

bool prefer(const key &q, cublasLtMatmulPreference_t preference) {
  uint32_t sums = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  uint32_t a = static_cast<uint32_t>(q.align_a), b = static_cast<uint32_t>(q.align_b),
           c = static_cast<uint32_t>(q.align_c);
  return sl::succeeded(set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                           static_cast<uint64_t>(sl::GEMM_WORKSPACE))) &&
         sl::succeeded(set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, sums)) &&
         sl::succeeded(set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, b)) &&
         sl::succeeded(set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, a)) &&
         sl::succeeded(set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c)) &&
         sl::succeeded(set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, c));
}

/* Returns false if the task has failed. A library that has no algorithm is no failure. */
bool ask(struct sl__cuda *cuda, plan *p, cublasLtMatmulPreference_t preference) {
  cublasLtMatmulHeuristicResult_t result;
  int count = 0;
  cublasStatus_t status = sl::cublaslt.MatmulAlgoGetHeuristic(cuda->lt, p->matmul, p->b, p->a, p->c,
                                                              p->c, preference, 1, &result, &count);
  if (status == CUBLAS_STATUS_SUCCESS && count) status = result.state;
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return true;
  if (!sl::succeeded(status)) return false;
  p->found = count > 0;
  if (p->found) p->algorithm = result.algo;
  return true;
}

/* Returns false if the task has failed. */
bool choose(struct sl__cuda *cuda, const key &q, plan *p) {
  cublasLtMatmulPreference_t preference;
  if (!describe(q, p) || !sl::succeeded(sl::cublaslt.MatmulPreferenceCreate(&preference)))
    return false;
  bool fine = prefer(q, preference) && ask(cuda, p, preference);
  sl::cublaslt.MatmulPreferenceDestroy(preference);
  return fine;
}

key key_of(const sl::product &p, bool half_in, bool half_out, const void *a, const void *b,
           const void *c) {
  key q;
  memset(&q, 0, sizeof q);
  q.m = p.m;
  q.n = p.n;
  q.k = p.k;
  q.lda = p.lda;
  q.ldb = p.ldb;
  q.ldc = p.ldc;
  q.ta = p.ta;
  q.tb = p.tb;
  q.half_in = half_in;
  q.half_out = half_out;
  q.tf32 = p.tf32 && !half_in;
  q.adds = p.beta != 0;
  q.align_a = alignment(a);
  q.align_b = alignment(b);
  q.align_c = alignment(c);
  return q;
}

/* Returns the plan; NULL: the task has failed. */
plan *find(struct sl__cuda *cuda, const key &q) {
  sl::plan_cache<key, plan> *plans = sl::plan_cache<key, plan>::of(cuda, SL__CUDA_MATMULS);
  return plans ? plans->find(q, [&](plan *p) { return choose(cuda, q, p); }) : nullptr;
}

/* *biased: the product adds the bias itself. */
bool multiply(struct sl__cuda *cuda, const sl::product &p, key q, const void *a, const void *b,
              void *c, bool *biased) {
  *biased = p.epilogue == sl::EPILOGUE_BIAS && q.half_in == q.half_out && alignment(p.bias) == 16;
  q.bias = *biased;
  plan *chosen = find(cuda, q);
  if (chosen && !chosen->found && *biased) {
    q.bias = *biased = false;
    chosen = find(cuda, q);
  }
  if (!chosen) return false;
  if (!chosen->found) {
    sl__task_failed(SL_UNSUPPORTED,
                    "cuBLAS has no algorithm for a product of %s, [%lld, %lld] by [%lld, %lld]",
                    q.half_in ? "bf16" : "floats", (long long)p.m, (long long)p.k, (long long)p.k,
                    (long long)p.n);
    return false;
  }
  if (*biased && !sl::succeeded(set(chosen->matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias)))
    return false;
  return sl::succeeded(sl::cublaslt.Matmul(
      cuda->lt, chosen->matmul, &p.alpha, b, chosen->b, a, chosen->a, &p.beta, c, chosen->c, c,
      chosen->c, &chosen->algorithm, cuda->workspace, sl::GEMM_WORKSPACE, cuda->stream));
}

}  // namespace

namespace sl {

template <class T, class C>
bool gemm(struct sl__cuda *cuda, const product &p, const T *a, const T *b, C *c) {
  bool biased;
  key q = key_of(p, sizeof(T) == 2, sizeof(C) == 2, a, b, c);
  if (!multiply(cuda, p, q, a, b, c, &biased)) return false;
  const T *bias = p.epilogue == EPILOGUE_BIAS && !biased ? static_cast<const T *>(p.bias) : nullptr;
  if (bias || p.activation != SL_ACTIVATION_NONE)
    add_bias(cuda, c, p.m, p.ldc, p.n, bias, 0, p.activation);
  return true;
}

template bool gemm(struct sl__cuda *, const product &, const float *, const float *, float *);
template bool gemm(struct sl__cuda *, const product &, const bf16 *, const bf16 *, bf16 *);
template bool gemm(struct sl__cuda *, const product &, const bf16 *, const bf16 *, float *);

}  // namespace sl

/* ---- bias and activation ----------------------------------------------------------------- */

namespace {

struct grid2d {
  dim3 blocks, threads;
};

/* Threads along a row first, then down the rows, which a thread takes in steps of the grid. */
grid2d over(int64_t rows, int64_t packs) {
  unsigned along = 1;
  while (along < packs && along < sl::THREADS) along *= 2;
  unsigned down = sl::THREADS / along;
  int64_t tall = (rows + 4 * down - 1) / (4 * down); /* about four rows a thread */
  return {dim3(sl::blocks(packs, static_cast<int>(along)),
               static_cast<unsigned>(tall < 65535 ? tall : 65535)),
          dim3(along, down)};
}

template <enum sl_activation A, int N, class Y, class B>
__global__ void add_bias_kernel(Y *y, int64_t rows, int64_t ld, int64_t packs, const B *bias,
                                int64_t cycle) {
  int64_t pack = sl::thread_index();
  int64_t row = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
  int64_t step = static_cast<int64_t>(gridDim.y) * blockDim.y;
  int64_t phase = cycle ? row % cycle : 0, hop = cycle ? step % cycle : 0;
  float add[N] = {};
  if (pack >= packs) return;
  if (bias && !cycle)
#pragma unroll
    for (int i = 0; i < N; i++) add[i] = sl::value(bias[pack * N + i]);
  for (; row < rows; row += step) {
    sl::pack<Y, N> *at = reinterpret_cast<sl::pack<Y, N> *>(y + row * ld) + pack, v = *at;
    float whole = bias && cycle ? sl::value(bias[phase]) : 0;
#pragma unroll
    for (int i = 0; i < N; i++)
      v.v[i] = sl::narrow<Y>(sl__activation_value(A, sl::value(v.v[i]) + (cycle ? whole : add[i])));
    *at = v;
    phase += hop;
    if (phase >= cycle) phase -= cycle;
  }
}

template <enum sl_activation A, class Y, class B>
void launch_add_bias(struct sl__cuda *cuda, Y *y, int64_t rows, int64_t ld, int64_t columns,
                     const B *bias, int64_t cycle) {
  constexpr int N = 16 / sizeof(Y);
  bool packed = sl::is_aligned(y) && ld % N == 0 && columns % N == 0;
  int64_t packs = packed ? columns / N : columns;
  grid2d g = over(rows, packs);
  if (packed)
    SL__LAUNCH((add_bias_kernel<A, N, Y, B>), g.blocks, g.threads, 0, cuda->stream, y, rows, ld,
               packs, bias, cycle);
  else
    SL__LAUNCH((add_bias_kernel<A, 1, Y, B>), g.blocks, g.threads, 0, cuda->stream, y, rows, ld,
               packs, bias, cycle);
}

}  // namespace

namespace sl {

template <class Y, class B>
void add_bias(struct sl__cuda *cuda, Y *y, int64_t rows, int64_t ld, int64_t columns, const B *bias,
              int64_t cycle, enum sl_activation activation) {
  switch (activation) {
#define CASE(A)                                                                                    \
  case A: launch_add_bias<A>(cuda, y, rows, ld, columns, bias, cycle); break
    CASE(SL_ACTIVATION_RELU);
    CASE(SL_ACTIVATION_TANH);
    CASE(SL_ACTIVATION_SIGMOID);
    CASE(SL_ACTIVATION_GELU);
    CASE(SL_ACTIVATION_GELU_TANH);
    CASE(SL_ACTIVATION_SILU);
    CASE(SL_ACTIVATION_NONE);
#undef CASE
  }
}

template void add_bias(struct sl__cuda *, float *, int64_t, int64_t, int64_t, const float *,
                       int64_t, enum sl_activation);
template void add_bias(struct sl__cuda *, float *, int64_t, int64_t, int64_t, const bf16 *, int64_t,
                       enum sl_activation);
template void add_bias(struct sl__cuda *, bf16 *, int64_t, int64_t, int64_t, const bf16 *, int64_t,
                       enum sl_activation);

}  // namespace sl

/* ---- sums over rows ---------------------------------------------------------------------- */

namespace {

constexpr int LANES = 8; /* a block's threads along a row: 128 bytes of it, a pack of 16 each */

/* The lane's i-th column of the LANES * N that a block sums. Values that are loaded one by one are
 * LANES apart, so that neighbours load neighbours. */
template <bool PACKED, int N>
__device__ inline int column_of(int lane, int i) {
  return PACKED ? lane * N + i : i * LANES + lane;
}

/* The lane's columns of a row, which has `columns` in this block. Those behind the end are others'
 * again: no condition delays a load, and their sums are not used. */
template <bool PACKED, int N, class T>
__device__ inline sl::pack<T, N> load_columns(const T *row, int lane, int columns) {
  sl::pack<T, N> v;
  if constexpr (PACKED) {
    v = *reinterpret_cast<const sl::pack<T, N> *>(row + (lane * N < columns ? lane * N : 0));
  } else {
#pragma unroll
    for (int i = 0; i < N; i++) {
      int column = column_of<false, N>(lane, i);
      v.v[i] = row[column < columns ? column : 0];
    }
  }
  return v;
}

/* Adds `count` rows, `step` apart, in their order. The loads of a batch do not wait for each other:
 * where fewer rows are left, the last one is loaded again, and zeros are added. */
template <bool PACKED, int N, class T>
__device__ inline void sum_rows(const T *row, int count, int64_t step, int lane, int columns,
                                float (&sum)[N]) {
  constexpr int BATCH = PACKED ? 8 : 16 / N; /* as many as registers allow */
  for (int k = 0; k < count; k += BATCH) {
    sl::pack<T, N> v[BATCH];
#pragma unroll
    for (int b = 0; b < BATCH; b++) {
      v[b] = load_columns<PACKED, N>(row, lane, columns);
      row += k + b + 1 < count ? step : 0;
    }
#pragma unroll
    for (int b = 0; b < BATCH; b++)
#pragma unroll
      for (int i = 0; i < N; i++) sum[i] += k + b < count ? sl::value(v[b].v[i]) : 0;
  }
}

/* Block (., c) sums the rows from c * chunk on; its sums go to out + c * columns. PACKED only says
 * how values are loaded: a column's values are added in an order that depends on DOWN alone. The
 * launch bounds give each of 1024 threads 64 registers: without them the compiler saves registers
 * and loads a batch pack after pack. */
template <bool PACKED, int DOWN, class T>
__global__ void __launch_bounds__(LANES *DOWN, 1024 / (LANES * DOWN))
    sum_columns(const T *x, int64_t rows, int64_t ld, int64_t columns, int64_t chunk, float *out,
                bool add) {
  constexpr int N = 16 / sizeof(T), WIDTH = LANES * N, WARPS = LANES * DOWN / 32;
  __shared__ float part[WARPS][WIDTH];
  int thread = static_cast<int>(threadIdx.x), lane = thread % LANES, down = thread / LANES;
  int64_t left = static_cast<int64_t>(blockIdx.x) * WIDTH, first = blockIdx.y * chunk;
  int64_t end = first + chunk < rows ? first + chunk : rows;
  int width = static_cast<int>(columns - left < WIDTH ? columns - left : WIDTH);
  int count = static_cast<int>((end - first - down + DOWN - 1) / DOWN); /* 0 or less: none */
  float sum[N] = {};
  sum_rows<PACKED>(x + (first + down) * ld + left, count, DOWN * ld, lane, width, sum);
#pragma unroll
  for (int i = 0; i < N; i++)
    for (int offset = LANES; offset < 32; offset *= 2)
      sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], offset);
#pragma unroll
  for (int i = 0; i < N; i++)
    if (thread % 32 < LANES) part[thread / 32][column_of<PACKED, N>(lane, i)] = sum[i];
  __syncthreads();
  if (thread >= width) return;
  float total = 0;
#pragma unroll
  for (int w = 0; w < WARPS; w++) total += part[w][thread];
  out += blockIdx.y * columns + left + thread;
  *out = add ? *out + total : total;
}

template <int DOWN, class T>
void launch_sum_columns(struct sl__cuda *cuda, const T *x, int64_t rows, int64_t ld,
                        int64_t columns, int64_t chunk, float *out, bool add) {
  constexpr int N = 16 / sizeof(T);
  dim3 grid(sl::blocks(columns, LANES * N), static_cast<unsigned>((rows + chunk - 1) / chunk));
  bool packed = sl::is_aligned(x) && ld % N == 0 && columns % N == 0;
  SL__LAUNCH((packed ? sum_columns<true, DOWN, T> : sum_columns<false, DOWN, T>), grid,
             LANES * DOWN, 0, cuda->stream, x, rows, ld, columns, chunk, out, add);
}

/* A block of 32 threads down the rows loads as many at once as each thread loads in a batch. */
constexpr int64_t FEW_ROWS = 256;
/* A block of 1024 threads sums as many (128 KiB) in about the time of a second launch. */
constexpr int64_t SUMMED_AT_ONCE = 1024;

}  // namespace

namespace sl {

/* In one launch for few rows; else in parts of at least FEW_ROWS rows, at most 256 parts that fit
 * into the workspace, then over the parts. */
template <class T>
void column_sums(struct sl__cuda *cuda, const T *x, int64_t rows, int64_t ld, int64_t columns,
                 float *out, bool add) {
  int64_t room = static_cast<int64_t>(GEMM_WORKSPACE / sizeof(float)) / columns;
  int64_t parts = (rows + FEW_ROWS - 1) / FEW_ROWS, most = room < 256 ? room : 256;
  if (rows <= FEW_ROWS) {
    launch_sum_columns<32>(cuda, x, rows, ld, columns, rows, out, add);
    return;
  }
  if (rows <= SUMMED_AT_ONCE || most <= 1) {
    launch_sum_columns<128>(cuda, x, rows, ld, columns, rows, out, add);
    return;
  }
  float *partial = static_cast<float *>(cuda->workspace);
  int64_t chunk = parts <= most ? FEW_ROWS : (rows + most - 1) / most;
  parts = (rows + chunk - 1) / chunk;
  launch_sum_columns<32>(cuda, x, rows, ld, columns, chunk, partial, false);
  launch_sum_columns<32>(cuda, (const float *)partial, parts, columns, columns, parts, out, add);
}

template void column_sums(struct sl__cuda *, const float *, int64_t, int64_t, int64_t, float *,
                          bool);
template void column_sums(struct sl__cuda *, const bf16 *, int64_t, int64_t, int64_t, float *,
                          bool);

}  // namespace sl
