/* The points P and Q of Winograd's transforms for tiles of 4x4 outputs, and the transform of windows
 * in one dimension for vectors of LANES floats. codelets/kernels/winograd4_tile.h and
 * winograd_backward_weight_tile.h include this file once a width, and undefine P and Q. */
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
