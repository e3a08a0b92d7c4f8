/* Skinny GEMM: products y = x W^T, mostly of few rows, by a matrix W [columns, length] in a layer's
 * layout. For few rows a library spends most of its time transposing W. These kernels transpose W
 * once a block of columns, which then stays in a core's cache. The order of each sum is fixed,
 * whatever else is computed with it (one chain; for a single row as many chains as a vector has
 * floats). So blocks may be divided between cores without a change of the bits. */
#ifndef SL_CODELETS_KERNELS_SKINNY_GEMM_H
#define SL_CODELETS_KERNELS_SKINNY_GEMM_H

#include <stdbool.h>
#include <stdint.h>

enum { SL__SKINNY_GEMM_COLUMNS = 64 }; /* columns of a block; the last block may have fewer */

static inline int64_t sl__skinny_gemm_blocks(int64_t columns) {
  return (columns + SL__SKINNY_GEMM_COLUMNS - 1) / SL__SKINNY_GEMM_COLUMNS;
}

/* most_lanes: maximum number of floats of a vector; 0 for any (tests try all). */

/* y [rows, columns], rows y_pitch apart: bias (or NULL: 0) + x W^T, for the blocks [first, end).
 * is_transposed: weight is all of W as sl__skinny_gemm_transpose wrote it. */
void sl__skinny_gemm_product(int64_t rows, int64_t columns, int64_t length, const float *x,
                             const float *weight, bool is_transposed, const float *bias, float *y,
                             int64_t y_pitch, int64_t first, int64_t end, int most_lanes);

/* The same of a matrix [length, columns] in place of W^T, and of all blocks. x's rows are x_pitch
 * apart, y's lie behind each other. add: the sums begin with y's old values. */
void sl__skinny_gemm_plain(int64_t rows, int64_t columns, int64_t length, const float *x,
                           int64_t x_pitch, const float *matrix, bool add, float *y,
                           int most_lanes);

/* Are sl__skinny_gemm_product for many rows, and sl__skinny_gemm_plain, at least as fast as a
 * library? It transposes W at each call, and is slow where a matrix's rows are no whole vectors.
 * The answers depend on the processor, so submit functions ask. */
bool sl__skinny_gemm_pays(int64_t length);
bool sl__skinny_gemm_plain_pays(int64_t rows, int64_t columns);

/* Transposes W once for many products, into sl__skinny_gemm_transposed_size floats. */
static inline int64_t sl__skinny_gemm_transposed_size(int64_t columns, int64_t length) {
  return (columns + 15) / 16 * 16 * length;
}
void sl__skinny_gemm_transpose(int64_t columns, int64_t length, const float *weight, float *to,
                               int most_lanes);

/* A single row, whose bits differ from those of several rows, for the columns [first, end). Reads W
 * once, in its own layout. */
void sl__skinny_gemm_dots(int64_t length, const float *x, const float *weight, const float *bias,
                          float *y, int64_t first, int64_t end, int most_lanes);

/* Packs a block that is used often, of at most SL__SKINNY_GEMM_COLUMNS columns, or as many columns
 * of a matrix [length, ...] whose rows are `pitch` apart. Pointers are given for whole vectors; the
 * values of those behind the columns are not used. */
void sl__skinny_gemm_pack(const float *const column[SL__SKINNY_GEMM_COLUMNS], int columns,
                          int64_t length, float *to, int most_lanes);
void sl__skinny_gemm_pack_rows(const float *matrix, int64_t pitch, int columns, int64_t length,
                               float *to, int most_lanes);

/* to [length, SL__SKINNY_GEMM_COLUMNS], its rows `pitch` apart = those columns, as rows. */
void sl__skinny_gemm_transpose_block(const float *const column[SL__SKINNY_GEMM_COLUMNS],
                                     int64_t length, float *to, int64_t pitch, int most_lanes);

/* How a product meets the old values of y: its sums begin with them; or with 0, and replace them,
 * or are added to them. */
enum sl__skinny_gemm_start { SL__SKINNY_GEMM_CONTINUE, SL__SKINNY_GEMM_WRITE, SL__SKINNY_GEMM_ADD };

/* x packed into y [rows, columns], rows SL__SKINNY_GEMM_COLUMNS apart; rows of x are x_pitch apart.
 * The last of the columns' vectors is written whole. packed has panels of 4 vectors of columns, the
 * last one of as many as there are. next: a block as large that is used next; it is prefetched
 * into the second-level cache, up to two lines for each product of a tile. Or NULL. */
void sl__skinny_gemm_add(int64_t rows, const float *x, int64_t x_pitch, int64_t length,
                         const float *packed, int columns, float *y,
                         enum sl__skinny_gemm_start start, const float *next, int most_lanes);

#endif
