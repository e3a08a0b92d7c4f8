/* The inner loops of codelets/kernels/winograd_backward_weight.c for vectors of LANES floats. See
 * codelets/kernels/tiles.h. */
#define EACH(use) SL__JOIN(SL__LANES_, LANES)(0, use)
#define AT(from) (*(const LOOSE *)(from))

/* ---- one dimension: the adjoints of codelets/kernels/winograd.c's transforms ---- */

#include "codelets/kernels/winograd_window.h"

/* B' d; the values of t are `step` apart, here and below. */
SL__INLINE void SL__JOIN(window_, LANES)(const enum kind kind, const VEC *d, VEC *t,
                                         const int step) {
  if (kind == TWO_BY_THREE) {
    t[0] = d[0] - d[2];
    t[step] = d[1] + d[2];
    t[2 * step] = d[2] - d[1];
    t[3 * step] = d[1] - d[3];
    return;
  }
  SL__JOIN(window4_, LANES)(d, t, step);
}

/* A y */
SL__INLINE void SL__JOIN(slope_, LANES)(const enum kind kind, const VEC *y, VEC *t,
                                        const int step) {
  if (kind == TWO_BY_THREE) {
    t[0] = y[0];
    t[step] = y[0] + y[1];
    t[2 * step] = y[0] - y[1];
    t[3 * step] = -y[1];
    return;
  }
  if (kind == TWO_BY_FIVE) {
    SL__JOIN(slope5_, LANES)(y, t, step);
    return;
  }
  VEC even_p = y[0] + P * P * y[2], odd_p = P * (y[1] + P * P * y[3]);
  VEC even_q = y[0] + Q * Q * y[2], odd_q = Q * (y[1] + Q * Q * y[3]);
  t[0] = y[0];
  t[step] = even_p + odd_p;
  t[2 * step] = even_p - odd_p;
  t[3 * step] = even_q + odd_q;
  t[4 * step] = even_q - odd_q;
  t[5 * step] = y[3];
}

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

#undef Q
#undef P

/* ---- channels side by side ---- */

#define LOW(l, s) ((l) / 2 + (l) % 2 * LANES)
#define HIGH(l, s) (LANES / 2 + (l) / 2 + (l) % 2 * LANES)

/* Interleaves the first half of the vectors with the second: as often as 2 is a factor of LANES,
 * this exchanges rows and columns. */
SL__INLINE void SL__JOIN(interleave_, LANES)(const VEC *v, VEC *to) {
  _Pragma("GCC unroll 8") for (int i = 0; i < LANES / 2; i++) {
    to[2 * i] = __builtin_shufflevector(v[i], v[i + LANES / 2], EACH(LOW));
    to[2 * i + 1] = __builtin_shufflevector(v[i], v[i + LANES / 2], EACH(HIGH));
  }
}

/* Planes of as many channels as floats of a vector: as many pixels; at: their offsets. */
SL__INLINE void SL__JOIN(exchange_, LANES)(const float *from, int64_t plane, const int32_t *at,
                                           float *to) {
  VEC v[LANES], w[LANES];
  _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++) v[i] = AT(from + i * plane);
  SL__JOIN(interleave_, LANES)(v, w);
  SL__JOIN(interleave_, LANES)(w, v);
  if (LANES > 4) SL__JOIN(interleave_, LANES)(v, w);
  if (LANES > 8) SL__JOIN(interleave_, LANES)(w, v);
  _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++) * (LOOSE *)(to + at[i]) =
      LANES == 8 ? w[i] : v[i];
}

/* An image [channels, pixels] into its frame. The last vectors are moved back to end with the
 * image. */
static SL__JOIN(SL__TARGET_, LANES)
    __attribute__((noinline)) void SL__JOIN(frame_, LANES)(const struct operand *o,
                                                           const float *image) {
  const int64_t pixels = o->pixels;
  for (int64_t p = 0; p < pixels; p += LANES) {
    if (p > pixels - LANES) p = pixels - LANES;
    for (int64_t c = 0; c < o->channels; c += LANES) {
      if (c > o->channels - LANES) c = o->channels - LANES;
      SL__JOIN(exchange_, LANES)(image + c * pixels + p, pixels, o->at + p, o->frame + c);
    }
  }
}

/* ---- tiles ---- */

/* A row of tiles, of windows or of gradients: `reads` by `reads` pixels a tile. */
SL__INLINE void SL__JOIN(transform_, LANES)(const struct operand *o, const enum kind kind,
                                            const int reads, int32_t across, const float *row,
                                            float *to) {
  const int side = sides[kind], n = side + taps[kind] - 1;
  const int64_t below = o->columns * o->pitch;
  for (int32_t tile = 0; tile < across; tile++, row += side * o->pitch, to += o->pitch)
    for (int64_t c = 0; c < o->pitch; c += LANES) {
      VEC t[36], d[6], u[6];
      _Pragma("GCC unroll 6") for (int s = 0; s < reads; s++) {
        _Pragma("GCC unroll 6") for (int r = 0; r < reads; r++) d[r] =
            *(const VEC *)(row + r * below + s * o->pitch + c);
        if (reads == n)
          SL__JOIN(window_, LANES)(kind, d, t + s, n);
        else
          SL__JOIN(slope_, LANES)(kind, d, t + s, n);
      }
      _Pragma("GCC unroll 6") for (int r = 0; r < n; r++) {
        if (reads == n)
          SL__JOIN(window_, LANES)(kind, t + n * r, u, 1);
        else
          SL__JOIN(slope_, LANES)(kind, t + n * r, u, 1);
        _Pragma("GCC unroll 6") for (int s = 0; s < n; s++) *
            (VEC *)(to + (n * r + s) * o->place + c) = u[s];
      }
    }
}

#define TRANSFORM(name, kind, reads)                                                               \
  static SL__JOIN(SL__TARGET_, LANES) __attribute__((noinline)) void SL__JOIN(name, LANES)(        \
      const struct operand *o, int32_t across, const float *row, float *to) {                      \
    SL__JOIN(transform_, LANES)(o, kind, reads, across, row, to);                                  \
  }
TRANSFORM(windows2_, TWO_BY_THREE, 4)
TRANSFORM(windows4_, FOUR_BY_THREE, 6)
TRANSFORM(windows5_, TWO_BY_FIVE, 6)
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

/* Of one channel and as many of the other side as floats of a vector; to: a vector a tap. */
SL__INLINE void SL__JOIN(gradient_, LANES)(const enum kind kind, const float *sums, int64_t place,
                                           float *to) {
  const int window = taps[kind], n = sides[kind] + window - 1;
  VEC t[30], u[6], row[5];
  _Pragma("GCC unroll 6") for (int s = 0; s < n; s++) {
    _Pragma("GCC unroll 6") for (int r = 0; r < n; r++) u[r] =
        *(const VEC *)(sums + (n * r + s) * place);
    SL__JOIN(weight_, LANES)(kind, u, t + s, n);
  }
  _Pragma("GCC unroll 5") for (int r = 0; r < window; r++) {
    SL__JOIN(weight_, LANES)(kind, t + n * r, row, 1);
    _Pragma("GCC unroll 5") for (int s = 0; s < window; s++) *
        (VEC *)(to + (window * r + s) * LANES) = row[s];
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
#undef AT
#undef EACH
