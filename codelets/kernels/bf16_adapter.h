/* bf16 on a CPU. Kernels compute in floats. For a task with bf16 tensors the adapter gives the
 * kernel float copies, and rounds its outputs back to bf16. So each kernel serves both types, and
 * CPU and GPU workers can run the same graph. ROWS operations (codelets/ops.def) get a few rows at
 * a time, whose floats stay in a core's cache; kernels of NATIVE operations read bf16 as it is. */
#ifndef SL_CODELETS_KERNELS_BF16_ADAPTER_H
#define SL_CODELETS_KERNELS_BF16_ADAPTER_H

#include <stdbool.h>
#include <stdint.h>

typedef void sl__kernel(void *buffers[], void *cl_arg);

/* A call whose rows do not need each other: where its arguments have what differs from strip to
 * strip. */
struct sl__rowwise {
  int64_t *rows;    /* their number */
  int64_t group;    /* rows that stay together; 0: 1 */
  uint32_t buffers; /* those that are divided into that number of rows (sl__mask_bit); others belong
                       to all */
  bool sums;        /* the output is a sum over rows: each strip adds to it, in their order */
  uint64_t *first;  /* moves on by `step` with each group; or NULL */
  uint64_t step;
};
typedef struct sl__rowwise sl__rows_of(void *args);

/* All buffers are divided into rows, such as their values. */
static inline struct sl__rowwise sl__all_by_rows(int64_t *rows) {
  return (struct sl__rowwise){.rows = rows, .buffers = UINT32_MAX};
}

/* Runs the kernel on the task's buffers; modes as in struct sl__op. rows_of: NULL for a call that
 * is done at once. */
void sl__run_with_bf16_adapter(sl__kernel *kernel, const char *modes, sl__rows_of *rows_of,
                               void *buffers[], void *cl_arg);

void sl__bf16_widen(const uint16_t *codes, float *values, int64_t n);
void sl__bf16_narrow(const float *values, uint16_t *codes, int64_t n);

/* Room for floats that lasts until the thread's next call of this or of the adapter; NULL, with a
 * failed task, if there is none. */
float *sl__bf16_room(int64_t floats);

/* Floats of a strip of rows, at most: they stay in a core's second cache. */
int64_t sl__bf16_strip(void);

/* For tests: the floats of a strip; 0: as many as a core's second cache holds. */
void sl__bf16_strip_force(int64_t floats);

#endif
