/* The points P and Q of Winograd's transforms with windows of 6x6 values (tiles of 4x4 outputs by
 * 3x3 taps, and of 2x2 by 5x5), and transforms in one dimension for vectors of LANES floats. The
 * kernels' files include this one once a width, and undefine P and Q. */
#include "codelets/kernels/winograd_kind.h"

#define P 0.625f
#define Q 1.5f

/* B' d; the values of t are `step` apart. */
SL__INLINE void SL__JOIN(window4_, LANES)(const VEC *d, VEC *t, const int step) {
  VEC even_p = d[4] - Q * Q * d[2], odd_p = P * (d[3] - Q * Q * d[1]);
  VEC even_q = d[4] - P * P * d[2], odd_q = Q * (d[3] - P * P * d[1]);
  t[0] = P * P * Q * Q * d[0] - (P * P + Q * Q) * d[2] + d[4];
  t[step] = even_p + odd_p;
  t[2 * step] = even_p - odd_p;
  t[3 * step] = even_q + odd_q;
  t[4 * step] = even_q - odd_q;
  t[5 * step] = P * P * Q * Q * d[1] - (P * P + Q * Q) * d[3] + d[5];
}

/* A y of tiles of 2x2 outputs by 5x5 taps. */
SL__INLINE void SL__JOIN(slope5_, LANES)(const VEC *y, VEC *t, const int step) {
  VEC by_p = P * y[1], by_q = Q * y[1];
  t[0] = y[0];
  t[step] = y[0] + by_p;
  t[2 * step] = y[0] - by_p;
  t[3 * step] = y[0] + by_q;
  t[4 * step] = y[0] - by_q;
  t[5 * step] = y[1];
}

/* A' m; the values of t are `step` apart. */
SL__INLINE void SL__JOIN(after_, LANES)(const enum kind kind, const VEC *m, VEC *t,
                                        const int step) {
  if (kind == TWO_BY_THREE) {
    t[0] = m[0] + m[1] + m[2];
    t[step] = m[1] - m[2] - m[3];
    return;
  }
  VEC even_p = m[1] + m[2], odd_p = P * (m[1] - m[2]);
  VEC even_q = m[3] + m[4], odd_q = Q * (m[3] - m[4]);
  t[0] = m[0] + even_p + even_q;
  t[step] = odd_p + odd_q;
  if (kind == TWO_BY_FIVE) {
    t[step] += m[5];
    return;
  }
  t[2 * step] = P * P * even_p + Q * Q * even_q;
  t[3 * step] = P * P * odd_p + Q * Q * odd_q + m[5];
}
