/* The matrix product of a GPU: what cuBLASLt reaches by itself, its best algorithm of those that it
 * proposes, and what the operation dense_forward reaches as a task of StarPU. C = A B^T with N
 * rows, columns and terms (4096 where --size does not say), random values in [-1, 1): a GPU's clock
 * depends on them.
 *
 *     gpu_peak [--size N] [--seconds X]
 *
 * Prints a JSON line for each of the two and each math: tflops; of_cublas is dense_forward's share.
 * Exit status 77: no GPU. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <argp.h>
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "codelets/codelets.h"
#include "core/base/half.h"

enum { WORKSPACE = 64 << 20, ALGORITHMS = 8, WARM = 3 };

static const struct math {
  const char *name;
  enum sl_type type;
  cudaDataType_t cuda_type;
  cublasComputeType_t compute;
  bool tf32;
} maths[] = {{"f32", SL_F32, CUDA_R_32F, CUBLAS_COMPUTE_32F, false},
             {"tf32", SL_F32, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, true},
             {"bf16", SL_BF16, CUDA_R_16BF, CUBLAS_COMPUTE_32F, false}};

struct options {
  int64_t size;
  double seconds;
};

static double tflops(int64_t size, double seconds) {
  double n = (double)size;
  return 2e-12 * n * n * n / seconds;
}

/* size^2 values; NULL where there is no memory. */
static void *values(const struct math *m, int64_t size, uint64_t stream) {
  int64_t n = size * size;
  void *v = malloc((size_t)n * (m->type == SL_BF16 ? 2 : 4));
  for (int64_t i = 0; v && i < n; i++) {
    float x = 2 * sl__uniform(1, stream, (uint64_t)i) - 1;
    if (m->type == SL_BF16)
      ((uint16_t *)v)[i] = sl__bf16_code(x);
    else
      ((float *)v)[i] = x;
  }
  return v;
}

/* ---- cuBLASLt alone -------------------------------------------------------------------------- */

struct product {
  cublasLtHandle_t lt;
  cublasLtMatmulDesc_t matmul;
  cublasLtMatrixLayout_t layout; /* of all three */
  cublasLtMatmulPreference_t preference;
  cudaEvent_t begin, end;
  void *memory[4]; /* A, B, C, workspace */
};

static const char *failure; /* the first one */

static bool fine_cuda(cudaError_t result) {
  if (result != cudaSuccess && !failure) failure = cudaGetErrorString(result);
  return result == cudaSuccess;
}

static bool fine_lt(cublasStatus_t result) {
  if (result != CUBLAS_STATUS_SUCCESS && !failure) failure = cublasLtGetStatusString(result);
  return result == CUBLAS_STATUS_SUCCESS;
}

static bool fill(struct product *p, const struct math *m, int64_t size) {
  size_t bytes = (size_t)(size * size) * (m->type == SL_BF16 ? 2 : 4);
  for (int i = 0; i < 4; i++)
    if (!fine_cuda(cudaMalloc(&p->memory[i], i < 3 ? bytes : WORKSPACE))) return false;
  for (int i = 0; i < 2; i++) {
    void *v = values(m, size, (uint64_t)i);
    bool copied = v && fine_cuda(cudaMemcpy(p->memory[i], v, bytes, cudaMemcpyHostToDevice));
    free(v);
    if (!copied) return false;
  }
  return true;
}

/* Columns first: C^T = B A^T, A transposed, which is what dense_forward asks for. */
static bool describe(struct product *p, const struct math *m, int64_t size) {
  cublasOperation_t transposed = CUBLAS_OP_T;
  size_t workspace = WORKSPACE;
  uint64_t n = (uint64_t)size;
  return fine_lt(cublasLtCreate(&p->lt)) &&
         fine_lt(cublasLtMatmulDescCreate(&p->matmul, m->compute, CUDA_R_32F)) &&
         fine_lt(cublasLtMatmulDescSetAttribute(p->matmul, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                                sizeof transposed)) &&
         fine_lt(cublasLtMatrixLayoutCreate(&p->layout, m->cuda_type, n, n, size)) &&
         fine_lt(cublasLtMatmulPreferenceCreate(&p->preference)) &&
         fine_lt(cublasLtMatmulPreferenceSetAttribute(p->preference,
                                                      CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                      &workspace, sizeof workspace)) &&
         fine_cuda(cudaEventCreate(&p->begin)) && fine_cuda(cudaEventCreate(&p->end));
}

static bool multiply(struct product *p, const cublasLtMatmulAlgo_t *algorithm, int times) {
  const float one = 1, zero = 0;
  for (int i = 0; i < times; i++)
    if (!fine_lt(cublasLtMatmul(p->lt, p->matmul, &one, p->memory[0], p->layout, p->memory[1],
                                p->layout, &zero, p->memory[2], p->layout, p->memory[2], p->layout,
                                algorithm, p->memory[3], WORKSPACE, 0)))
      return false;
  return true;
}

/* Seconds of one product, by the GPU's clock; 0 where it failed. */
static double clock_products(struct product *p, const cublasLtMatmulAlgo_t *algorithm, int times) {
  float ms = 0;
  bool fine = multiply(p, algorithm, WARM) && fine_cuda(cudaEventRecord(p->begin, 0)) &&
              multiply(p, algorithm, times) && fine_cuda(cudaEventRecord(p->end, 0)) &&
              fine_cuda(cudaEventSynchronize(p->end)) &&
              fine_cuda(cudaEventElapsedTime(&ms, p->begin, p->end));
  return fine ? 1e-3 * (double)ms / times : 0;
}

static double best_of(struct product *p, double seconds) {
  cublasLtMatmulHeuristicResult_t found[ALGORITHMS];
  int count = 0;
  double best = 0;
  if (!fine_lt(cublasLtMatmulAlgoGetHeuristic(p->lt, p->matmul, p->layout, p->layout, p->layout,
                                              p->layout, p->preference, ALGORITHMS, found, &count)))
    return 0;
  for (int i = 0; i < count && !failure; i++) {
    double once = clock_products(p, &found[i].algo, 1);
    int times = once > 0 ? (int)(seconds / ALGORITHMS / once) + 1 : 1;
    double s = clock_products(p, &found[i].algo, times);
    if (s > 0 && (best <= 0 || s < best)) best = s;
  }
  return best;
}

static void drop(struct product *p) {
  if (p->begin) cudaEventDestroy(p->begin);
  if (p->end) cudaEventDestroy(p->end);
  if (p->preference) cublasLtMatmulPreferenceDestroy(p->preference);
  if (p->layout) cublasLtMatrixLayoutDestroy(p->layout);
  if (p->matmul) cublasLtMatmulDescDestroy(p->matmul);
  if (p->lt) cublasLtDestroy(p->lt);
  for (int i = 0; i < 4; i++) cudaFree(p->memory[i]);
}

static double cublas_alone(const struct math *m, const struct options *o) {
  struct product p = {0};
  double seconds = fill(&p, m, o->size) && describe(&p, m, o->size) ? best_of(&p, o->seconds) : 0;
  drop(&p);
  if (seconds <= 0)
    fprintf(stderr, "gpu_peak: cuBLASLt, %s: %s\n", m->name,
            failure ? failure : "no algorithm for this product");
  return seconds;
}

/* ---- dense_forward -----------------------------------------------------------------------------
 */

struct layer {
  struct sl__tensor *x, *param, *y;
};

static enum sl_status open_layer(struct sl_context *context, const struct math *m, int64_t size,
                                 struct layer *layer) {
  struct sl_shape square = SL_SHAPE(size, size), flat = SL_SHAPE(size * size);
  void *a = values(m, size, 0), *b = values(m, size, 1);
  enum sl_status status = a && b ? SL_OK : SL_NO_MEMORY;
  if (status == SL_OK) status = sl__tensor_host(context, &square, m->type, NULL, &layer->x);
  if (status == SL_OK) status = sl__tensor_host(context, &flat, m->type, NULL, &layer->param);
  if (status == SL_OK) status = sl__tensor_temporary(context, &square, m->type, &layer->y);
  if (status == SL_OK) status = sl__tensor_write(layer->x, a);
  if (status == SL_OK) status = sl__tensor_write(layer->param, b);
  free(a);
  free(b);
  return status;
}

static enum sl_status submit(struct sl_context *context, const struct math *m,
                             const struct layer *layer, int times) {
  const struct sl__launch launch = {
      .name = "product", .place = context->devices[0].place, .tf32 = m->tf32};
  enum sl_status status = SL_OK;
  for (int i = 0; i < times && status == SL_OK; i++)
    status = sl__dense_forward(context, &launch, layer->x, layer->param, layer->y, false,
                               SL_ACTIVATION_NONE);
  return status == SL_OK ? sl_wait(context) : status;
}

/* Seconds of one task where many follow each other. */
static enum sl_status clock_layer(struct sl_context *context, const struct math *m,
                                  const struct options *o, double *seconds) {
  struct layer layer = {0};
  double begin = 0, once = 1;
  int times = 1;
  enum sl_status status = open_layer(context, m, o->size, &layer);
  if (status == SL_OK) status = submit(context, m, &layer, WARM);
  begin = bench_now();
  if (status == SL_OK) status = submit(context, m, &layer, WARM);
  once = (bench_now() - begin) / WARM;
  times = (int)(o->seconds / once) + 1;
  begin = bench_now();
  if (status == SL_OK) status = submit(context, m, &layer, times);
  *seconds = (bench_now() - begin) / times;
  sl__tensor_free(layer.x);
  sl__tensor_free(layer.param);
  sl__tensor_free(layer.y);
  return status;
}

/* ---- the program -------------------------------------------------------------------------------
 */

static int measure(struct sl_context *context, const struct math *m, const struct options *o) {
  double alone = cublas_alone(m, o), ours = 0;
  if (alone <= 0) return 1;
  int code = bench_print(json_pack("{s:s, s:s, s:I, s:s, s:f}", "peer", "cublasLt", "bench",
                                   "product", "size", (json_int_t)o->size, "math", m->name,
                                   "tflops", tflops(o->size, alone)));
  if (clock_layer(context, m, o, &ours) != SL_OK) {
    fprintf(stderr, "gpu_peak: %s\n", sl_error());
    return 1;
  }
  return code | bench_print(json_pack("{s:s, s:s, s:I, s:s, s:f, s:f}", "peer", "starling", "bench",
                                      "product", "size", (json_int_t)o->size, "math", m->name,
                                      "tflops", tflops(o->size, ours), "of_cublas", alone / ours));
}

static const struct argp_option argp_options[] = {
    {"size", 'n', "N", 0, "Rows, columns and terms (default 4096)", 0},
    {"seconds", 's', "X", 0, "Seconds to measure each product (default 1)", 0},
    {0}};

static error_t parse_option(int key, char *text, struct argp_state *state) {
  struct options *o = state->input;
  char *end = NULL;
  if (key != 'n' && key != 's') return ARGP_ERR_UNKNOWN;
  double value = strtod(text, &end);
  if (!*text || *end || !(value > 0 && value <= 32768))
    argp_failure(state, 2, 0, "'%s': must be above 0, at most 32768", text);
  if (key == 'n') o->size = (int64_t)value;
  if (key == 's') o->seconds = value;
  return 0;
}

int main(int argc, char **argv) {
  static const struct argp argp = {
      argp_options, parse_option, NULL, "Measure a GPU's matrix product.", NULL, NULL, NULL};
  struct options o = {.size = 4096, .seconds = 1};
  const struct sl_context_options options = {.devices = "cuda:0", .seed = 1};
  struct sl_context *context = NULL;
  int code = 0;
  argp_err_exit_status = 2;
  argp_parse(&argp, argc, argv, 0, NULL, &o);
  enum sl_status status = sl_open(&options, &context);
  if (status != SL_OK) {
    fprintf(stderr, "gpu_peak: %s\n", sl_error());
    return status == SL_NO_DEVICE ? 77 : 1;
  }
  for (size_t i = 0; i < sizeof maths / sizeof *maths && !code; i++)
    code = measure(context, &maths[i], &o);
  sl_close(context);
  return code;
}
