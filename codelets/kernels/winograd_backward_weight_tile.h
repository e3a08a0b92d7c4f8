/* The inner loops of codelets/kernels/winograd_backward_weight.c for vectors of LANES floats. See
 * codelets/kernels/tiles.h. */
#define EACH(use) SL__JOIN(SL__LANES_, LANES)(0, use)
#define AT(from) (*(const LOOSE *)(from))

/* ---- tiles: the adjoints of codelets/kernels/winograd.c's transforms ---- */

#include "codelets/kernels/winograd_operand_tile.h"

TRANSFORM(slopes2_, TWO_BY_THREE, 2)
TRANSFORM(slopes4_, FOUR_BY_THREE, 4)
TRANSFORM(slopes5_, TWO_BY_FIVE, 2)

/* ---- products ---- */

#define BEGIN(k, v) VEC sum##k##v = {0};
#define READ(v)                                                                                    \
  VEC value##v = {0};                                                                              \
  if (v < vectors) value##v = *(const VEC *)(vector + v * LANES);
#define MULTIPLY(k, v)                                                                             \
  if (k < rows && v < vectors) sum##k##v += scalar[k] * value##v;
#define WRITE(k, v)                                                                                \
  if (k < rows && v < vectors) *(VEC *)(to + k * wide->pitch + v * LANES) += sum##k##v;

SL__INLINE void SL__JOIN(tile_, LANES)(const struct operand *wide, const struct operand *narrow,
                                       const int rows, const int vectors, int64_t tiles,
                                       const float *vector, const float *scalar, float *to) {
  SL__TILE_ALL(BEGIN)
  for (int64_t t = 0; t < tiles; t++, vector += wide->pitch, scalar += narrow->pitch) {
    SL__TILE_EACH_COLUMN(READ)
    SL__TILE_ALL(MULTIPLY)
  }
  SL__TILE_ALL(WRITE)
}

#define NAMED(k, v) SL__JOIN(SL__JOIN(SL__JOIN(tile_, LANES), _##k), _##v)
#define DEFINE(k, v)                                                                               \
  static SL__JOIN(SL__TARGET_, LANES) __attribute__((noinline)) void NAMED(k, v)(                  \
      const struct operand *wide, const struct operand *narrow, int64_t tiles,                     \
      const float *vector, const float *scalar, float *to) {                                       \
    SL__JOIN(tile_, LANES)(wide, narrow, k, v, tiles, vector, scalar, to);                         \
  }
SL__JOIN(SL__TILES_OF_TWO_, LANES)
(DEFINE)
#define ENTRY(k, v) [v][k] = NAMED(k, v),
    static run_tile *const
    SL__JOIN(tiles_, LANES)[][SL__TILE_ROWS + 1] = {SL__JOIN(SL__TILES_OF_TWO_, LANES)(ENTRY)};

/* ---- the weights' gradient ---- */

/* G' u */
SL__INLINE void SL__JOIN(weight_, LANES)(const enum kind kind, const VEC *u, VEC *t,
                                         const int step) {
  if (kind == TWO_BY_THREE) {
    VEC half = 0.5f * (u[1] + u[2]);
    t[0] = u[0] + half;
    t[step] = 0.5f * (u[1] - u[2]);
    t[2 * step] = half + u[3];
    return;
  }
  const float none = 1 / (P * P * Q * Q);
  const float by_p = 1 / (2 * P * P * (P * P - Q * Q)), by_q = 1 / (2 * Q * Q * (Q * Q - P * P));
  VEC even_p = by_p * (u[1] + u[2]), even_q = by_q * (u[3] + u[4]);
  VEC odd_p = by_p * P * (u[1] - u[2]), odd_q = by_q * Q * (u[3] - u[4]);
  t[0] = none * u[0] + even_p + even_q;
  t[step] = odd_p + odd_q;
  t[2 * step] = P * P * even_p + Q * Q * even_q;
  if (kind == FOUR_BY_THREE) {
    t[2 * step] += u[5];
    return;
  }
  t[3 * step] = P * P * odd_p + Q * Q * odd_q;
  t[4 * step] = P * P * P * P * even_p + Q * Q * Q * Q * even_q + u[5];
}

/* Of one channel and as many of the other side as floats of a vector; to: a vector a tap. */
SL__INLINE void SL__JOIN(gradient_, LANES)(const enum kind kind, const float *sums, int64_t place,
                                           float *to) {
  const int taps = taps_of(kind), n = values_of(kind);
  VEC t[30], u[6], row[5];
  _Pragma("GCC unroll 6") for (int s = 0; s < n; s++) {
    _Pragma("GCC unroll 6") for (int r = 0; r < n; r++) u[r] =
        *(const VEC *)(sums + (n * r + s) * place);
    SL__JOIN(weight_, LANES)(kind, u, t + s, n);
  }
  _Pragma("GCC unroll 5") for (int r = 0; r < taps; r++) {
    SL__JOIN(weight_, LANES)(kind, t + n * r, row, 1);
    _Pragma("GCC unroll 5") for (int s = 0; s < taps; s++) * (VEC *)(to + (taps * r + s) * LANES) =
        row[s];
  }
}

#define GRADIENT(name, kind)                                                                       \
  static SL__JOIN(SL__TARGET_, LANES) __attribute__((noinline)) void SL__JOIN(name, LANES)(        \
      const float *sums, int64_t place, float *to) {                                               \
    SL__JOIN(gradient_, LANES)(kind, sums, place, to);                                             \
  }
GRADIENT(gradient2_, TWO_BY_THREE)
GRADIENT(gradient4_, FOUR_BY_THREE)
GRADIENT(gradient5_, TWO_BY_FIVE)

#undef GRADIENT
#undef ENTRY
#undef DEFINE
#undef NAMED
#undef WRITE
#undef MULTIPLY
#undef READ
#undef BEGIN
#undef TRANSFORM
#undef HIGH
#undef LOW
#undef Q
#undef P
#undef AT
#undef EACH
