/* cublasLtMatmul without a GPU: products by OpenBLAS, with the strictest checks of arguments that
 * the documents allow. Part of the stand-in for a GPU, which only tests use. It refuses whatever
 * the real library supports only in some cases (CUBLAS_STATUS_NOT_SUPPORTED). */
#include <cblas.h>
#include <cublasLt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>

namespace {

cublasStatus_t refuse(cublasStatus_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
cublasStatus_t refuse(cublasStatus_t status, const char *format, ...) {
  char text[300];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  fprintf(stderr, "stand-in: cublasLt: %s\n", text);
  return status;
}
#define INVALID(...) return refuse(CUBLAS_STATUS_INVALID_VALUE, __VA_ARGS__)
#define UNSUPPORTED(...) return refuse(CUBLAS_STATUS_NOT_SUPPORTED, __VA_ARGS__)

const uint32_t magic = 0x4c745374;

struct Handle {
  uint32_t magic;
  int device;
};
struct Layout {
  int32_t type, order;
  uint64_t rows, cols;
  int64_t ld, stride;
  int32_t batch;
  uint32_t magic;
};
struct Desc {
  uint32_t magic;
  int32_t compute, scale, pointer_mode, bias_type;
  int32_t transa, transb, transc;
  uint32_t epilogue;
  const void *bias;
  int64_t bias_stride;
};
struct Preference {
  uint32_t magic, search, reduction;
  uint32_t alignment[4]; /* of A, B, C, D */
  uint64_t workspace;
};
struct Algo {
  uint32_t magic, number;
  uint64_t workspace;
  uint32_t alignment[4];
};
static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t) &&
              sizeof(Desc) <= sizeof(cublasLtMatmulDescOpaque_t) &&
              sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t) &&
              sizeof(Algo) <= sizeof(cublasLtMatmulAlgo_t));

/* Reads an attribute as its documented type; another size is the caller's mistake. */
template <class T, class Field>
cublasStatus_t assign(Field *field, const void *value, size_t bytes) {
  if (!value || bytes != sizeof(T)) INVALID("an attribute of %zu bytes has %zu", sizeof(T), bytes);
  T typed;
  memcpy(&typed, value, sizeof typed);
  *field = (Field)typed;
  return CUBLAS_STATUS_SUCCESS;
}

size_t element(int type) { return type == CUDA_R_32F ? 4 : 2; }

bool transposed(int operation) { return operation != CUBLAS_OP_N; }

struct Product {
  Desc desc;
  Layout a, b, c, d;
  uint64_t m, n, k;
};

cublasStatus_t check_layout(const Layout &l, const char *name) {
  if (l.magic != magic) INVALID("%s: no layout", name);
  if (l.type != CUDA_R_32F && l.type != CUDA_R_16BF)
    UNSUPPORTED("%s: type %d (f32 and bf16 are here)", name, l.type);
  if (l.order != CUBLASLT_ORDER_COL && l.order != CUBLASLT_ORDER_ROW)
    UNSUPPORTED("%s: order %d", name, l.order);
  if (!l.rows || !l.cols)
    INVALID("%s: %llu x %llu", name, (unsigned long long)l.rows, (unsigned long long)l.cols);
  if (l.ld < (int64_t)(l.order == CUBLASLT_ORDER_COL ? l.rows : l.cols))
    INVALID("%s: %llu x %llu with a leading dimension of %lld", name, (unsigned long long)l.rows,
            (unsigned long long)l.cols, (long long)l.ld);
  if (l.batch < 1) INVALID("%s: a batch of %d", name, l.batch);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_product(Product *p, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                             cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                             cublasLtMatrixLayout_t d) {
  if (!desc || !a || !b || !c || !d) INVALID("a descriptor is NULL");
  p->desc = *(Desc *)desc, p->a = *(Layout *)a, p->b = *(Layout *)b, p->c = *(Layout *)c,
  p->d = *(Layout *)d;
  if (p->desc.magic != magic) INVALID("no matmul descriptor");
  const Layout *layouts[] = {&p->a, &p->b, &p->c, &p->d};
  for (int i = 0; i < 4; i++) {
    cublasStatus_t status = check_layout(*layouts[i], &"A\0B\0C\0D"[2 * i]);
    if (status) return status;
    if (layouts[i]->batch != p->d.batch)
      INVALID("batches of %d and %d", layouts[i]->batch, p->d.batch);
  }
  bool ta = transposed(p->desc.transa), tb = transposed(p->desc.transb);
  p->m = ta ? p->a.cols : p->a.rows;
  p->k = ta ? p->a.rows : p->a.cols;
  p->n = tb ? p->b.rows : p->b.cols;
  if ((tb ? p->b.cols : p->b.rows) != p->k || p->d.rows != p->m || p->d.cols != p->n ||
      p->c.rows != p->m || p->c.cols != p->n)
    INVALID("op(A) %llux%llu, op(B) %llux%llu, C %llux%llu, D %llux%llu do not fit",
            (unsigned long long)p->m, (unsigned long long)p->k,
            (unsigned long long)(tb ? p->b.cols : p->b.rows), (unsigned long long)p->n,
            (unsigned long long)p->c.rows, (unsigned long long)p->c.cols,
            (unsigned long long)p->d.rows, (unsigned long long)p->d.cols);
  if (p->a.type != p->b.type || p->c.type != p->d.type ||
      (p->a.type == CUDA_R_32F && p->d.type != CUDA_R_32F))
    UNSUPPORTED("types A %d, B %d, C %d, D %d", p->a.type, p->b.type, p->c.type, p->d.type);
  if (p->c.order != p->d.order) UNSUPPORTED("C and D of different orders");
  bool fast = p->desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ||
              p->desc.compute == CUBLAS_COMPUTE_32F_FAST_16BF;
  if (p->desc.compute != CUBLAS_COMPUTE_32F && p->desc.compute != CUBLAS_COMPUTE_32F_PEDANTIC &&
      !fast)
    UNSUPPORTED("compute type %d", p->desc.compute);
  if (fast && p->a.type != CUDA_R_32F) UNSUPPORTED("fast compute types are for f32 inputs");
  if (p->desc.scale != CUDA_R_32F) UNSUPPORTED("scale type %d", p->desc.scale);
  if (p->desc.pointer_mode != CUBLASLT_POINTER_MODE_HOST)
    UNSUPPORTED("alpha and beta are on the host here");
  if (p->desc.transc != CUBLAS_OP_N) UNSUPPORTED("C transposed");
  switch (p->desc.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_RELU: return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS: break;
    default: UNSUPPORTED("epilogue %u", p->desc.epilogue);
  }
  if (p->desc.bias_type != -1 && p->desc.bias_type != p->d.type)
    UNSUPPORTED("a bias of type %d with D of type %d", p->desc.bias_type, p->d.type);
  return CUBLAS_STATUS_SUCCESS;
}

/* ---- the work -----------------------------------------------------------------------------------
 */
float from_bf16(uint16_t bits) { return sl_standin::from_bits<float>((uint64_t)bits << 16); }
uint16_t to_bf16(float x) {
  uint32_t bits = __float_as_uint(x);
  if (x != x) return 0x7fff;
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
/* A float as the tensor cores read it: 10 bits of mantissa, rounded to nearest. */
float to_tf32(float x) {
  if (!isfinite(x)) return x;
  uint32_t bits = __float_as_uint(x);
  return __uint_as_float((bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu);
}

float read(const void *matrix, int type, int64_t i) {
  return type == CUDA_R_32F ? ((const float *)matrix)[i] : from_bf16(((const uint16_t *)matrix)[i]);
}
int64_t place(const Layout &l, uint64_t row, uint64_t col) {
  return l.order == CUBLASLT_ORDER_COL ? (int64_t)row + (int64_t)col * l.ld
                                       : (int64_t)col + (int64_t)row * l.ld;
}

/* op(matrix), row after row, rounded as the compute type does. */
std::vector<float> dense(const void *matrix, const Layout &l, bool transpose, int compute,
                         int64_t offset) {
  std::vector<float> result(l.rows * l.cols);
  for (uint64_t row = 0; row < l.rows; row++)
    for (uint64_t col = 0; col < l.cols; col++) {
      float x = read(matrix, l.type, offset + place(l, row, col));
      if (compute == CUBLAS_COMPUTE_32F_FAST_TF32) x = to_tf32(x);
      if (compute == CUBLAS_COMPUTE_32F_FAST_16BF) x = from_bf16(to_bf16(x));
      result[transpose ? col * l.rows + row : row * l.cols + col] = x;
    }
  return result;
}

void multiply(const Product &p, float alpha, const void *a, const void *b, float beta,
              const void *c, void *d) {
  bool bias = p.desc.epilogue & CUBLASLT_EPILOGUE_BIAS,
       relu = p.desc.epilogue & CUBLASLT_EPILOGUE_RELU;
  std::vector<float> result(p.m * p.n);
  for (int i = 0; i < p.d.batch; i++) {
    auto left = dense(a, p.a, transposed(p.desc.transa), p.desc.compute, i * p.a.stride);
    auto right = dense(b, p.b, transposed(p.desc.transb), p.desc.compute, i * p.b.stride);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)p.m, (int)p.n, (int)p.k, alpha,
                left.data(), (int)p.k, right.data(), (int)p.n, 0, result.data(), (int)p.n);
    for (uint64_t row = 0; row < p.m; row++)
      for (uint64_t col = 0; col < p.n; col++) {
        float y = result[row * p.n + col];
        if (beta != 0) y += beta * read(c, p.c.type, i * p.c.stride + place(p.c, row, col));
        if (bias) y += read(p.desc.bias, p.d.type, i * p.desc.bias_stride + (int64_t)row);
        if (relu && !(y > 0)) y = y != y ? y : 0;
        int64_t at = i * p.d.stride + place(p.d, row, col);
        if (p.d.type == CUDA_R_32F)
          ((float *)d)[at] = y;
        else
          ((uint16_t *)d)[at] = to_bf16(y);
      }
  }
}

sl_standin::Range range(const void *matrix, const Layout &l) {
  uint64_t last = (uint64_t)place(l, l.rows - 1, l.cols - 1) +
                  (uint64_t)((l.batch - 1) * std::max<int64_t>(l.stride, 0));
  return {matrix, (last + 1) * element(l.type)};
}

/* ---- the log of combinations -------------------------------------------------------------------
 */
const char *type_name(int type) { return type == CUDA_R_32F ? "f32" : "bf16"; }
const char *compute_name(int compute) {
  switch (compute) {
    case CUBLAS_COMPUTE_32F: return "32F";
    case CUBLAS_COMPUTE_32F_PEDANTIC: return "32F_PEDANTIC";
    case CUBLAS_COMPUTE_32F_FAST_TF32: return "32F_FAST_TF32";
    default: return "32F_FAST_16BF";
  }
}
const char *epilogue_name(uint32_t epilogue) {
  switch (epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT: return "DEFAULT";
    case CUBLASLT_EPILOGUE_RELU: return "RELU";
    case CUBLASLT_EPILOGUE_BIAS: return "BIAS";
    default: return "RELU_BIAS";
  }
}
/* Of addresses and leading dimensions, in bytes: the largest power of two up to 16 in them all. */
unsigned common_alignment(uintptr_t bits) {
  bits |= 16;
  return (unsigned)(bits & -bits);
}
void note_key(const Product &p, const void *a, const void *b, const void *c, const void *d,
              float beta, const void *workspace) {
  char key[300];
  uintptr_t pointers = (uintptr_t)a | (uintptr_t)b | (uintptr_t)d | (beta != 0 ? (uintptr_t)c : 0);
  uintptr_t lds = p.a.ld * element(p.a.type) | p.b.ld * element(p.b.type) |
                  p.c.ld * element(p.c.type) | p.d.ld * element(p.d.type);
  bool bias = p.desc.epilogue & CUBLASLT_EPILOGUE_BIAS;
  snprintf(
      key, sizeof key,
      "cublasLtMatmul A=%s B=%s C=%s D=%s bias=%s compute=%s scale=f32 op=%c%c order=%s "
      "epilogue=%s batch=%s beta=%s in_place=%s pointers=%u ld=%u bias_pointer=%u workspace=%s",
      type_name(p.a.type), type_name(p.b.type), type_name(p.c.type), type_name(p.d.type),
      bias ? type_name(p.desc.bias_type == -1 ? p.d.type : p.desc.bias_type) : "none",
      compute_name(p.desc.compute), transposed(p.desc.transa) ? 'T' : 'N',
      transposed(p.desc.transb) ? 'T' : 'N',
      p.a.order == CUBLASLT_ORDER_COL && p.b.order == p.a.order && p.d.order == p.a.order ? "col"
                                                                                          : "other",
      epilogue_name(p.desc.epilogue), p.d.batch == 1 ? "1" : "more", beta != 0 ? "1" : "0",
      c == d ? "yes" : "no", common_alignment(pointers), common_alignment(lds),
      bias ? common_alignment((uintptr_t)p.desc.bias) : 16, workspace ? "yes" : "no");
  sl_standin::note_library_key(key);
}

Algo algo_of(uint32_t number, const Preference &p) {
  Algo algo{magic, number, number ? 65536u : 0u, {}};
  memcpy(algo.alignment, p.alignment, sizeof algo.alignment);
  return algo;
}

} /* namespace */

#define OF(Type, opaque) ((Type *)(opaque))

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
  int device;
  if (!handle) INVALID("cublasLtCreate: NULL");
  if (cudaGetDevice(&device)) return CUBLAS_STATUS_NOT_INITIALIZED;
  openblas_set_num_threads(1); /* as our own products do it */
  *handle = (cublasLtHandle_t) new Handle{magic, device};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  if (!handle || OF(Handle, handle)->magic != magic) INVALID("cublasLtDestroy: no handle");
  delete OF(Handle, handle);
  return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion() { return CUBLAS_VERSION; }
size_t cublasLtGetCudartVersion() { return CUDART_VERSION; }
const char *cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
#define NAME(name)                                                                                 \
  case name: return #name;
    NAME(CUBLAS_STATUS_SUCCESS)
    NAME(CUBLAS_STATUS_NOT_INITIALIZED)
    NAME(CUBLAS_STATUS_ALLOC_FAILED)
    NAME(CUBLAS_STATUS_INVALID_VALUE)
    NAME(CUBLAS_STATUS_ARCH_MISMATCH)
    NAME(CUBLAS_STATUS_MAPPING_ERROR)
    NAME(CUBLAS_STATUS_EXECUTION_FAILED)
    NAME(CUBLAS_STATUS_INTERNAL_ERROR)
    NAME(CUBLAS_STATUS_NOT_SUPPORTED)
    NAME(CUBLAS_STATUS_LICENSE_ERROR)
#undef NAME
  }
  return "unknown status";
}
const char *cublasLtGetStatusString(cublasStatus_t status) { return cublasLtGetStatusName(status); }

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t desc, size_t size,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  if (!desc || size < sizeof(Desc)) INVALID("matmul descriptor of %zu bytes", size);
  *OF(Desc, desc) = Desc{magic,
                         compute,
                         scale,
                         CUBLASLT_POINTER_MODE_HOST,
                         -1,
                         CUBLAS_OP_N,
                         CUBLAS_OP_N,
                         CUBLAS_OP_N,
                         CUBLASLT_EPILOGUE_DEFAULT,
                         nullptr,
                         0};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *desc = new cublasLtMatmulDescOpaque_t();
  return cublasLtMatmulDescInit_internal(*desc, sizeof **desc, compute, scale);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  return delete desc, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes) {
  Desc *d = OF(Desc, desc);
  if (!d || d->magic != magic) INVALID("no matmul descriptor");
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE: return assign<int32_t>(&d->compute, value, bytes);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE: return assign<int32_t>(&d->scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE: return assign<int32_t>(&d->pointer_mode, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSA: return assign<int32_t>(&d->transa, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return assign<int32_t>(&d->transb, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSC: return assign<int32_t>(&d->transc, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return assign<uint32_t>(&d->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return assign<const void *>(&d->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
      return assign<int64_t>(&d->bias_stride, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return assign<int32_t>(&d->bias_type, value, bytes);
    default: UNSUPPORTED("matmul attribute %d", attribute);
  }
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t size,
                                                 cudaDataType type, uint64_t rows, uint64_t cols,
                                                 int64_t ld) {
  if (!layout || size < sizeof(Layout)) INVALID("layout of %zu bytes", size);
  *OF(Layout, layout) = Layout{type, CUBLASLT_ORDER_COL, rows, cols, ld, 0, 1, magic};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
  *layout = new cublasLtMatrixLayoutOpaque_t();
  return cublasLtMatrixLayoutInit_internal(*layout, sizeof **layout, type, rows, cols, ld);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return delete layout, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t bytes) {
  Layout *l = OF(Layout, layout);
  if (!l || l->magic != magic) INVALID("no layout");
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE: return assign<uint32_t>(&l->type, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ORDER: return assign<int32_t>(&l->order, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS: return assign<uint64_t>(&l->rows, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS: return assign<uint64_t>(&l->cols, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD: return assign<int64_t>(&l->ld, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return assign<int32_t>(&l->batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return assign<int64_t>(&l->stride, value, bytes);
    default: UNSUPPORTED("layout attribute %d", attribute);
  }
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference,
                                                     size_t size) {
  if (!preference || size < sizeof(Preference)) INVALID("preference of %zu bytes", size);
  *OF(Preference, preference) = Preference{magic, 0, ~0u, {256, 256, 256, 256}, 0};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t();
  return cublasLtMatmulPreferenceInit_internal(*preference, sizeof **preference);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  return delete p, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes) {
  Preference *p = OF(Preference, preference);
  if (!p || p->magic != magic) INVALID("no preference");
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE: return assign<uint32_t>(&p->search, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return assign<uint32_t>(&p->reduction, value, bytes);
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return assign<uint64_t>(&p->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return assign<uint32_t>(&p->alignment[0], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return assign<uint32_t>(&p->alignment[1], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return assign<uint32_t>(&p->alignment[2], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return assign<uint32_t>(&p->alignment[3], value, bytes);
    default: UNSUPPORTED("preference attribute %d", attribute);
  }
}

/* The first algorithm needs a workspace, if the caller allows one; the second does not. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int *returned) {
  Product p;
  const Preference *wish = OF(Preference, preference);
  if (int planted = sl_standin::planted_status(__func__)) return (cublasStatus_t)planted;
  if (!handle || OF(Handle, handle)->magic != magic || !wish || wish->magic != magic ||
      requested < 1 || !results || !returned)
    INVALID("cublasLtMatmulAlgoGetHeuristic: an argument is missing");
  *returned = 0;
  cublasStatus_t status = check_product(&p, desc, a, b, c, d);
  if (status) return status;
  for (int number = wish->workspace >= 65536; number >= 0 && *returned < requested; number--) {
    cublasLtMatmulHeuristicResult_t *result = &results[(*returned)++];
    memset((void *)result, 0, sizeof *result);
    Algo algo = algo_of(number, *wish);
    memcpy(&result->algo, &algo, sizeof algo);
    result->workspaceSize = algo.workspace;
    result->state = CUBLAS_STATUS_SUCCESS;
    result->wavesCount = 1;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_size, cudaStream_t stream) {
  Product p;
  int device;
  if (!handle || OF(Handle, handle)->magic != magic) INVALID("cublasLtMatmul: no handle");
  if (cudaGetDevice(&device) || device != OF(Handle, handle)->device)
    INVALID("cublasLtMatmul: the handle is another device's");
  cublasStatus_t status = check_product(&p, desc, a_layout, b_layout, c_layout, d_layout);
  if (status) return status;
  if (!alpha || !beta || !a || !b || !d) INVALID("cublasLtMatmul: a pointer is NULL");
  float factor = *(const float *)alpha, add = *(const float *)beta;
  if (add != 0 && !c) INVALID("cublasLtMatmul: C is NULL, beta is not 0");
  if (c == d && memcmp(&p.c, &p.d, sizeof p.c))
    INVALID("cublasLtMatmul: C is D, their layouts differ");
  if ((p.desc.epilogue & CUBLASLT_EPILOGUE_BIAS) && !p.desc.bias)
    INVALID("cublasLtMatmul: the bias is NULL");
  uint64_t needs = 0;
  if (algo) {
    Algo chosen;
    memcpy(&chosen, algo, sizeof chosen);
    if (chosen.magic != magic) INVALID("cublasLtMatmul: no heuristic returned the algorithm");
    needs = chosen.workspace;
    const void *pointers[] = {a, b, c, d};
    for (int i = 0; i < 4; i++)
      if (chosen.alignment[i] && (uintptr_t)pointers[i] % chosen.alignment[i])
        INVALID("cublasLtMatmul: %c is at %p, its algorithm was asked for with an alignment of %u",
                "ABCD"[i], pointers[i], chosen.alignment[i]);
  }
  if (workspace_size < needs || (needs && !workspace))
    INVALID("cublasLtMatmul: a workspace of %zu bytes, %llu are needed", workspace_size,
            (unsigned long long)needs);
  if ((uintptr_t)workspace % 16)
    INVALID("cublasLtMatmul: the workspace %p is not aligned", workspace);
  std::vector<sl_standin::Range> ranges = {
      range(a, p.a), range(b, p.b), range(d, p.d), {workspace, needs}};
  if (add != 0) ranges.push_back(range(c, p.c));
  if (p.desc.epilogue & CUBLASLT_EPILOGUE_BIAS)
    ranges.push_back({p.desc.bias, p.m * element(p.d.type)});
  note_key(p, a, b, c, d, add, workspace);
  cudaError_t error = sl_standin::work(stream, "cublasLtMatmul", std::move(ranges), [=] {
    multiply(p, factor, a, b, add, c, d);
    if (needs) memset(workspace, 0xff, needs); /* no other work may use it at this time */
  });
  return error ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}

} /* extern "C" */
