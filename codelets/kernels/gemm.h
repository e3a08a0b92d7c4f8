/* Matrix products, all through one function, on the calling thread only. */
#ifndef SL_CODELETS_KERNELS_GEMM_H
#define SL_CODELETS_KERNELS_GEMM_H

#include <stdbool.h>
#include <stdint.h>

/* The library that multiplies. The number travels in a task's arguments, so it does not depend on
 * the build. OpenBLAS also serves the products for which oneDNN would meet colliding strides. */
enum sl__gemm { SL__GEMM_OPENBLAS, SL__GEMM_ONEDNN };

/* C [m, n] = alpha op(A) op(B) + beta C, row-major; op(A) is [m, k], op(B) [k, n]; ld: elements
 * between rows. */
void sl__gemm(enum sl__gemm who, bool transpose_a, bool transpose_b, int64_t m, int64_t n,
              int64_t k, float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
              float beta, float *c, int64_t ldc);

/* The fixed preference: oneDNN if it is built in. It is twice as fast here as OpenBLAS with its
 * defaults. */
enum sl__gemm sl__gemm_preferred(void);
bool sl__gemm_available(enum sl__gemm who);

/* "oneDNN 2.6.3", or "OpenBLAS 0.3.21 (Haswell)"; "" for a library that is not built in. */
const char *sl__gemm_text(enum sl__gemm who);

/* Makes products and primitives that this thread calls use this thread only. For OpenBLAS that
 * holds for the whole process, up to the last sl__gemm_close. */
void sl__one_thread(void);

/* A context opens; it closes: its workers have no more tasks. The last one gives OpenBLAS its
 * threads back, unless the program has set their number meanwhile. */
void sl__gemm_open(void);
void sl__gemm_close(void);

/* Returns NULL, or advice about an OpenBLAS in use that does not use the processor's full vector
 * width. */
const char *sl__gemm_warning(void);

#endif
