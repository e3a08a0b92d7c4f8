/* Matrix products, all through one function, on the calling thread alone. */
#ifndef SL_CODELETS_KERNELS_GEMM_H
#define SL_CODELETS_KERNELS_GEMM_H

#include <stdbool.h>
#include <stdint.h>

/* Who multiplies. The number travels in a task's arguments, so it is part of no build. */
enum sl__gemm { SL__GEMM_OPENBLAS, SL__GEMM_ONEDNN };

/* C [m, n] = alpha op(A) op(B) + beta C, row-major; op(A) is [m, k], op(B) [k, n]; ld: elements
 * between rows. */
void sl__gemm(enum sl__gemm who, bool transpose_a, bool transpose_b, int64_t m, int64_t n,
              int64_t k, float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
              float beta, float *c, int64_t ldc);

/* The fixed preference: oneDNN where it is built in, twice as fast here as OpenBLAS as it comes. */
enum sl__gemm sl__gemm_preferred(void);
bool sl__gemm_available(enum sl__gemm who);

/* "oneDNN 2.6.3", or "OpenBLAS 0.3.21 (Haswell)". */
const char *sl__gemm_text(void);

/* Products and primitives called from this thread use no other. */
void sl__one_thread(void);

/* NULL, or what to do about an OpenBLAS that is in use and runs below the processor's vector width.
 */
const char *sl__gemm_warning(void);

#endif
