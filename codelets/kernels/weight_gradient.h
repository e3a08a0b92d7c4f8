/* The gradient dy^T x of a dense layer's weight W [out, in] for up to 1,024 samples. It is computed
 * in tiles that stay in a core's cache: the caller's function stores a tile, or does an optimizer's
 * step with it, so that no gradient is stored at all. Each value is one chain of sums over the
 * samples of a term; the terms are added in their order. So the bits are the same for all tiles,
 * rows and uses. */
#ifndef SL_CODELETS_KERNELS_WEIGHT_GRADIENT_H
#define SL_CODELETS_KERNELS_WEIGHT_GRADIENT_H

#include <stdbool.h>
#include <stdint.h>

enum { SL__WEIGHT_GRADIENT_TERMS = 4 }; /* maximum */

/* x [samples, in], dy [samples, out]: those of one replica. */
struct sl__gradient_term {
  const float *x, *dy;
};

struct sl__weight_gradient {
  int64_t samples, in, out; /* samples of each term */
  int terms;
  struct sl__gradient_term term[SL__WEIGHT_GRADIENT_TERMS];
};

/* Rows [row, row + rows) of W and columns [column, column + columns); rows of values are
 * SL__SKINNY_GEMM_COLUMNS apart. */
struct sl__gradient_tile {
  int64_t row, column;
  int rows, columns;
  const float *values;
};
typedef void sl__use_gradient_tile(const struct sl__gradient_tile *tile, void *data);

/* Is there room for these terms on the stack? */
bool sl__weight_gradient_fits(int64_t samples, int terms);

/* Returns the number of rows of W for which dy is rearranged at a time. */
int64_t sl__weight_gradient_rows(int64_t samples, int terms);

/* Calls `use` with all tiles of the rows [first, end) of W. most_lanes: maximum number of floats of
 * a vector; 0 for any (tests try all). */
void sl__weight_gradient(const struct sl__weight_gradient *gradient, int64_t first, int64_t end,
                         sl__use_gradient_tile *use, void *data, int most_lanes);

/* y [rows, count], its rows `pitch` apart, += bias [count] */
void sl__add_bias(float *y, const float *bias, int64_t rows, int64_t count, int64_t pitch);

/* to [columns] (+)= the sums of the columns of dy [rows, columns], its rows `pitch` apart: the
 * gradient of a bias. A sum is completed before it is added to the old value, so biases with the
 * same gradient stay equal to the bit. */
void sl__bias_gradient(int64_t rows, int64_t columns, const float *dy, int64_t pitch, bool add,
                       float *to);

/* The same of rows of bf16 behind each other. */
void sl__bias_gradient_bf16(int64_t rows, int64_t columns, const uint16_t *dy, bool add, float *to);

#endif
