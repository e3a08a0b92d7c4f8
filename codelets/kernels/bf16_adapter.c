#include "codelets/kernels/bf16_adapter.h"

#include <stdlib.h>

#include "core/runtime/failure.h"
#include "core/base/half.h"
#include "core/runtime/submit.h"

/* A task's buffer in the form that the kernel gets. */
struct widened {
  struct starpu_vector_interface as_seen;
  float *values;
  uint16_t *codes;
  int64_t count;
  char mode;
};

SL__SIMD static void widen(const uint16_t *codes, float *values, int64_t n) {
  for (int64_t i = 0; i < n; i++) values[i] = sl__bf16_value(codes[i]);
}

SL__SIMD static void narrow(const float *values, uint16_t *codes, int64_t n) {
  for (int64_t i = 0; i < n; i++) codes[i] = sl__bf16_code(values[i]);
}

static bool is_read(char mode, void *cl_arg) {
  return mode == 'r' || mode == 'm' || (mode == 'a' && sl__accumulate(cl_arg));
}

static bool begin(struct widened *w, void *buffer, char mode, void *cl_arg) {
  w->as_seen = *(struct starpu_vector_interface *)buffer;
  w->mode = mode;
  w->codes = (uint16_t *)STARPU_VECTOR_GET_PTR(buffer);
  w->count = (int64_t)(STARPU_VECTOR_GET_NX(buffer) * STARPU_VECTOR_GET_ELEMSIZE(buffer) / 2);
  w->values = malloc((size_t)w->count * sizeof *w->values);
  if (!w->values) {
    sl__task_failed(SL_NO_MEMORY, "no memory for %lld bf16 values as floats", (long long)w->count);
    return false;
  }
  if (is_read(mode, cl_arg)) widen(w->codes, w->values, w->count);
  w->as_seen.ptr = (uintptr_t)w->values;
  w->as_seen.elemsize *= 2;
  return true;
}

void sl__run_with_bf16_adapter(sl__kernel *kernel, const char *modes, void *buffers[],
                               void *cl_arg) {
  uint32_t bf16_mask = sl__bf16_mask(cl_arg);
  int count = sl__buffer_count(cl_arg);
  if (!bf16_mask) {
    kernel(buffers, cl_arg);
    return;
  }
  struct widened wide[SL__BF16_MASK_BITS] = {0};
  void **seen = malloc((size_t)count * sizeof *seen);
  bool ready = seen != NULL;
  if (!ready) sl__task_failed(SL_NO_MEMORY, "no memory for a task's %d buffers", count);
  for (int i = 0; ready && i < count; i++) {
    bool half = i < SL__BF16_MASK_BITS && bf16_mask >> i & 1;
    if (half) ready = begin(&wide[i], buffers[i], sl__access(*modes), cl_arg);
    seen[i] = half ? &wide[i].as_seen : buffers[i];
    if (modes[1] != '*' && modes[1]) modes++;
  }
  if (ready) kernel(seen, cl_arg);
  for (int i = 0; i < SL__BF16_MASK_BITS; i++) {
    if (ready && wide[i].values && wide[i].mode != 'r')
      narrow(wide[i].values, wide[i].codes, wide[i].count);
    free(wide[i].values);
  }
  free(seen);
}
