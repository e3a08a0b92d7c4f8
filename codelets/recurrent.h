/* What the recurrent layers' CPU kernels share. */
#ifndef SL_CODELETS_RECURRENT_H
#define SL_CODELETS_RECURRENT_H

#include <stdbool.h>
#include <stdint.h>

/* to [columns, rows] = from [rows, columns] transposed. Few rows at a time multiply by a matrix
 * twice as fast where it need not be transposed: so a task turns the state's weights round once. */
void sl__transpose(const float *from, int64_t rows, int64_t columns, float *to);

/* sum[j] (+)= from[0][j] + from[1][j] + ..., rows `width` apart. The sum is made apart from what
 * was there, so that two biases with the same gradient stay the same to the bit. */
void sl__column_sums(const float *from, int64_t rows, int64_t width, int64_t columns, float *sum,
                     bool add);

#endif
