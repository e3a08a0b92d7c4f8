/* Products of few rows by a matrix [columns, length] as layers have it, transposed: y = x W^T. What
 * a library spends on few rows goes into turning W round; here that is done once a block of
 * columns, which then stays in the first cache. Every sum has an order of its own, whatever else
 * is computed with it (one chain; of a single row as many as a vector has floats): so blocks may be
 * cut between cores, and the bits stay. */
#ifndef SL_CODELETS_KERNELS_SKINNY_GEMM_H
#define SL_CODELETS_KERNELS_SKINNY_GEMM_H

#include <stdbool.h>
#include <stdint.h>

enum { SL__SKINNY_GEMM_COLUMNS = 64 }; /* of a block, the last one may have less */

static inline int64_t sl__skinny_gemm_blocks(int64_t columns) {
  return (columns + SL__SKINNY_GEMM_COLUMNS - 1) / SL__SKINNY_GEMM_COLUMNS;
}

/* most_lanes: floats of a vector at the most, 0: any (tests try all). */

/* y [rows, columns], rows y_pitch apart: bias (or NULL: 0) + x W^T, of the blocks [first, end).
 * is_turned: weight is all of W as sl__skinny_gemm_transpose left it. */
void sl__skinny_gemm_product(int64_t rows, int64_t columns, int64_t length, const float *x,
                             const float *weight, bool is_turned, const float *bias, float *y,
                             int64_t y_pitch, int64_t first, int64_t end, int most_lanes);

/* W turned round, for many products: to [sl__skinny_gemm_transposed_size]. */
static inline int64_t sl__skinny_gemm_transposed_size(int64_t columns, int64_t length) {
  return (columns + 15) / 16 * 16 * length;
}
void sl__skinny_gemm_transpose(int64_t columns, int64_t length, const float *weight, float *to,
                               int most_lanes);

/* Of one row, which has bits of its own, of the columns [first, end): W is read once, as it lies.
 */
void sl__skinny_gemm_dots(int64_t length, const float *x, const float *weight, const float *bias,
                          float *y, int64_t first, int64_t end, int most_lanes);

/* A block that is used often: to [length SL__SKINNY_GEMM_COLUMNS] from those columns. */
void sl__skinny_gemm_pack(const float *const column[SL__SKINNY_GEMM_COLUMNS], int64_t length,
                          float *to, int most_lanes);
/* y [rows, SL__SKINNY_GEMM_COLUMNS] += x packed, where rows of x are x_pitch apart. */
void sl__skinny_gemm_add(int64_t rows, const float *x, int64_t x_pitch, int64_t length,
                         const float *packed, float *y, int most_lanes);

#endif
