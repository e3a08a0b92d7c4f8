#include "codelets/kernels/recurrent.h"

#include "core/base/simd.h"

/* In tiles that stay in the first-level cache. */
SL__SIMD void sl__transpose(const float *from, int64_t rows, int64_t columns, float *to) {
  enum { TILE = 16 };
  for (int64_t r = 0; r < rows; r += TILE)
    for (int64_t c = 0; c < columns; c += TILE) {
      int64_t r1 = r + TILE < rows ? r + TILE : rows, c1 = c + TILE < columns ? c + TILE : columns;
      for (int64_t k = c; k < c1; k++)
        for (int64_t i = r; i < r1; i++) to[k * rows + i] = from[i * columns + k];
    }
}

SL__SIMD void sl__column_sums(const float *from, int64_t rows, int64_t width, int64_t columns,
                              float *sum, bool add) {
  enum { BLOCK = 64 };
  for (int64_t at = 0; at < columns; at += BLOCK) {
    float part[BLOCK] = {0};
    int64_t count = columns - at < BLOCK ? columns - at : BLOCK;
    for (int64_t n = 0; n < rows; n++)
      for (int64_t j = 0; j < count; j++) part[j] += from[n * width + at + j];
    for (int64_t j = 0; j < count; j++) sum[at + j] = (add ? sum[at + j] : 0) + part[j];
  }
}
