/* Tensors in device memory that are not aligned to 16 bytes, as a shard in the middle of a block.
 */
#ifndef SL_TESTS_COMMON_DISPLACED_H
#define SL_TESTS_COMMON_DISPLACED_H

#include "tests/common/check.h"

struct displaced {
  struct sl__tensor tensor;
  unsigned node;
  uintptr_t memory;
};

static inline struct displaced displaced(struct sl_shape shape, const double *values,
                                         enum sl_type type) {
  bool gpu = plain.place.where == STARPU_CUDA;
  int64_t n = sl_shape_count(&shape);
  size_t size = type == SL_BF16 ? 2 : 4;
  struct sl__tensor *from = (type == SL_BF16 ? bf16_tensor : tensor)(shape, values);
  struct displaced d = {.tensor = {.context = context, .shape = shape, .type = type},
                        .node = gpu ? context->devices[0].node : STARPU_MAIN_RAM};
  d.tensor.bytes = (size_t)n * size;
  d.memory = starpu_malloc_on_node(d.node, d.tensor.bytes + 4);
  assert_true(d.memory != 0 && d.memory % 16 == 0);
  starpu_vector_data_register(&d.tensor.handle, (int)d.node, d.memory + 4, (uint32_t)n, size);
  OK(sl__axpy(context, &plain, 1, from, &d.tensor));
  sl__tensor_free(from);
  return d;
}

static inline void put_back(struct displaced *d) {
  starpu_data_unregister_no_coherency(d->tensor.handle);
  starpu_free_on_node(d->node, d->memory, d->tensor.bytes + 4);
}

#endif
