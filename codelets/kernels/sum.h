/* A sum of neighbours in memory, in an order that does not depend on the width of vectors. */
#ifndef SL_CODELETS_KERNELS_SUM_H
#define SL_CODELETS_KERNELS_SUM_H

#include <stdint.h>

#include "core/base/simd.h"

enum {
  SL__SUM_PARTS = 16, /* partial sums */
  SL__SUM_RUN = 256   /* values after which they are added to those in double precision */
};

/* Of the partial sums. Without loops over the halves, so that all of it stays in registers. */
SL__INLINE float sl__sum_parts(const float *part) {
  float half[8], quarter[4];
  for (int k = 0; k < 8; k++) half[k] = part[k] + part[k + 8];
  for (int k = 0; k < 4; k++) quarter[k] = half[k] + half[k + 4];
  return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
}

/* The greatest of them and of least. */
SL__INLINE float sl__most_part(const float *part, float least) {
  float half[8], quarter[4], pair[2];
  for (int k = 0; k < 8; k++) half[k] = part[k + 8] > part[k] ? part[k + 8] : part[k];
  for (int k = 0; k < 4; k++) quarter[k] = half[k + 4] > half[k] ? half[k + 4] : half[k];
  for (int k = 0; k < 2; k++) pair[k] = quarter[k + 2] > quarter[k] ? quarter[k + 2] : quarter[k];
  float most = pair[1] > pair[0] ? pair[1] : pair[0];
  return most > least ? most : least;
}

/* Sums in floats alone would lose three digits of the mean of a picture with a plain background. So
 * the values are cut into runs, and the partial sums of a run are added to others in double
 * precision. */

/* The end of the run that begins at i. */
SL__INLINE int64_t sl__sum_end(int64_t i, int64_t n) {
  return n - i < SL__SUM_RUN ? n : i + SL__SUM_RUN;
}

SL__INLINE void sl__sum_close(const float *part, double *sum) {
  for (int k = 0; k < SL__SUM_PARTS; k++) sum[k] += (double)part[k];
}

SL__INLINE float sl__sum_total(const double *sum) {
  double half[8], quarter[4];
  for (int k = 0; k < 8; k++) half[k] = sum[k] + sum[k + 8];
  for (int k = 0; k < 4; k++) quarter[k] = half[k] + half[k + 4];
  return (float)((quarter[0] + quarter[2]) + (quarter[1] + quarter[3]));
}

__attribute__((unused)) SL__SIMD static float sl__sum_run(const float *x, int64_t n) {
  double sum[SL__SUM_PARTS] = {0};
  for (int64_t i = 0, end; i < n; i = end) {
    float part[SL__SUM_PARTS] = {0};
    end = sl__sum_end(i, n);
    for (; i + SL__SUM_PARTS <= end; i += SL__SUM_PARTS)
      for (int k = 0; k < SL__SUM_PARTS; k++) part[k] += x[i + k];
    for (int k = 0; i + k < end; k++) part[k] += x[i + k];
    sl__sum_close(part, sum);
  }
  return sl__sum_total(sum);
}

#endif
