/* Tensors, tasks and products of matrices without StarPU and BLAS, for a processor that has
 * neither (tests/codelets/test_arm.sh): a task runs when it is submitted. */
/* cmocka.h needs the first three */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
/* clang-format on */
#include <stdlib.h>
#include <string.h>

#include "codelets/codelets.h"
#include "codelets/kernels/choice.h"
#include "codelets/kernels/gemm.h"
#include "core/base/error.h"
#include "core/base/float_mode.h"
#include "core/runtime/failure.h"

/* ---- the context ---- */

enum sl_status sl_open(const struct sl_context_options *options, struct sl_context **context) {
  *context = sl__alloc(1, sizeof **context, "a context");
  if (!*context) return SL_NO_MEMORY;
  (*context)->seed = options->seed;
  sl__flush_subnormals(); /* as workers do */
  return SL_OK;
}

void sl_close(struct sl_context *context) {
  for (int i = 0; i < 48; i++)
    if (context->scratch[i]) sl__tensor_free(context->scratch[i]);
  free(context);
}

/* ---- tensors, which are always in main memory ---- */

size_t sl__type_size(enum sl_type type) { return type == SL_BF16 ? 2 : 4; }

enum sl_status sl__tensor_host(struct sl_context *context, const struct sl_shape *shape,
                               enum sl_type type, void *host, struct sl__tensor **tensor) {
  struct sl__tensor *t = sl__alloc(1, sizeof *t, "a tensor");
  if (!t) return SL_NO_MEMORY;
  *t = (struct sl__tensor){.context = context,
                           .shape = *shape,
                           .type = type,
                           .bytes = (size_t)sl_shape_count(shape) * sl__type_size(type),
                           .host = host,
                           .owns_host = !host};
  if (!host) t->host = aligned_alloc(64, (t->bytes + 63) / 64 * 64);
  if (!host && t->host) memset(t->host, 0, t->bytes);
  *tensor = t;
  return t->host ? SL_OK : SL_NO_MEMORY;
}

enum sl_status sl__tensor_temporary(struct sl_context *context, const struct sl_shape *shape,
                                    enum sl_type type, struct sl__tensor **tensor) {
  return sl__tensor_host(context, shape, type, NULL, tensor);
}

enum sl_status sl__tensor_read(struct sl__tensor *tensor, void *values) {
  memcpy(values, tensor->host, tensor->bytes);
  return SL_OK;
}

enum sl_status sl__tensor_write(struct sl__tensor *tensor, const void *values) {
  memcpy(tensor->host, values, tensor->bytes);
  return SL_OK;
}

void sl__tensor_invalidate(struct sl__tensor *tensor) { (void)tensor; }

void sl__tensor_free(struct sl__tensor *tensor) {
  if (!tensor) return;
  if (tensor->owns_host) free(tensor->host);
  free(tensor);
}

enum sl_status sl__scratch(struct sl_context *context, size_t bytes, struct sl__tensor **scratch) {
  int power = 12;
  while ((size_t)1 << power < bytes) power++;
  struct sl_shape shape = SL_SHAPE((int64_t)1 << (power - 12), 1024);
  enum sl_status status = SL_OK;
  if (!context->scratch[power])
    status = sl__tensor_temporary(context, &shape, SL_F32, &context->scratch[power]);
  *scratch = context->scratch[power];
  return status;
}

/* A tensor of a test's own (tests/common/displaced.h): its handle is its memory. */
uintptr_t starpu_malloc_on_node(unsigned node, size_t size) {
  (void)node;
  return (uintptr_t)aligned_alloc(64, (size + 63) / 64 * 64);
}

void starpu_free_on_node(unsigned node, uintptr_t memory, size_t size) {
  (void)node, (void)size;
  free((void *)memory);
}

void starpu_vector_data_register(starpu_data_handle_t *handle, int home, uintptr_t memory,
                                 uint32_t count, size_t size) {
  (void)home, (void)count, (void)size;
  *handle = (starpu_data_handle_t)memory;
}

void starpu_data_unregister_no_coherency(starpu_data_handle_t handle) { (void)handle; }

static uintptr_t memory_of(const struct sl__tensor *t) {
  return t->host ? (uintptr_t)t->host : (uintptr_t)t->handle;
}

/* ---- tasks ---- */

enum sl_status sl__submit(struct sl_context *context, struct sl__op *op,
                          const struct sl__launch *launch, int count,
                          struct sl__tensor *const *tensors, const void *args, size_t args_size,
                          double flops, uint32_t footprint) {
  struct starpu_vector_interface view[count];
  void *buffers[count];
  _Alignas(16) char copy[sizeof(struct sl__args_header) + args_size];
  struct sl__args_header *header = (struct sl__args_header *)copy;
  *header = (struct sl__args_header){.footprint = footprint,
                                     .accumulate = launch->accumulate,
                                     .count = (uint32_t)count,
                                     .args_size = (uint32_t)args_size};
  (void)context, (void)flops;
  for (int i = 0; i < count; i++) {
    const struct sl__tensor *t = tensors[i];
    size_t rows = (size_t)t->shape.dim[0];
    if (t->type == SL_BF16) header->bf16_mask |= 1u << sl__mask_bit(i);
    view[i] = (struct starpu_vector_interface){.id = STARPU_VECTOR_INTERFACE_ID,
                                               .ptr = memory_of(t),
                                               .nx = (uint32_t)rows,
                                               .elemsize = t->bytes / rows,
                                               .allocsize = t->bytes};
    buffers[i] = &view[i];
  }
  if (args_size) memcpy(header + 1, args, args_size);
  op->codelet.cpu_funcs[0](buffers, copy);
  return SL_OK;
}

void sl__task_failed(enum sl_status status, const char *format, ...) {
  (void)status;
  fail_msg("a kernel fails: %s", format);
}

/* Footprints are for StarPU's performance models. */
uint32_t starpu_hash_crc32c_be_n(const void *input, size_t size, uint32_t hash) {
  (void)input, (void)size;
  return hash;
}

/* ---- which implementation ---- */

void sl__choice_force(struct sl_context *context, int implementation) {
  context->forced_implementation = implementation + 1;
}

bool sl__reads_bf16(const struct sl_context *context, const struct sl__tensor *tensor) {
  (void)context, (void)tensor;
  return false;
}

uint32_t sl__choice_products(void) { return 1u << SL__OWN_OPENBLAS; }

enum sl__implementation sl__product_choice(const struct sl_context *context) {
  (void)context;
  return SL__OWN_OPENBLAS;
}

enum sl__implementation sl__choose(struct sl_context *context, const struct sl__candidates *c,
                                   const void *args) {
  int forced = context->forced_implementation - 1;
  (void)args;
  return forced >= 0 && c->mask >> forced & 1 ? (enum sl__implementation)forced : c->preferred;
}

/* ---- products of matrices ---- */

bool sl__gemm_available(enum sl__gemm who) { return who == SL__GEMM_OPENBLAS; }

void sl__gemm(enum sl__gemm who, bool transpose_a, bool transpose_b, int64_t m, int64_t n,
              int64_t k, float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
              float beta, float *c, int64_t ldc) {
  (void)who;
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      float sum = 0, *to = &c[i * ldc + j];
      for (int64_t l = 0; l < k; l++)
        sum +=
            a[transpose_a ? l * lda + i : i * lda + l] * b[transpose_b ? j * ldb + l : l * ldb + j];
      *to = alpha * sum + (beta != 0 ? beta * *to : 0);
    }
}
