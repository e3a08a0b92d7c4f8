/* The inner loops of codelets/kernels/winograd_backward_weight.c for vectors of LANES floats. See
 * codelets/kernels/tiles.h. */
#define EACH(use) SL__JOIN(SL__LANES_, LANES)(0, use)
#define AT(from) (*(const LOOSE *)(from))

/* ---- one dimension: the adjoints of codelets/kernels/winograd.c's transforms ---- */

#include "codelets/kernels/winograd_window.h"

/* B' d; the values of t are `step` apart, here and below. */
SL__INLINE void SL__JOIN(window_, LANES)(const int side, const VEC *d, VEC *t, const int step) {
  if (side == 2) {
    t[0] = d[0] - d[2];
    t[step] = d[1] + d[2];
    t[2 * step] = d[2] - d[1];
    t[3 * step] = d[1] - d[3];
    return;
  }
  SL__JOIN(window4_, LANES)(d, t, step);
}

/* A y */
SL__INLINE void SL__JOIN(slope_, LANES)(const int side, const VEC *y, VEC *t, const int step) {
  if (side == 2) {
    t[0] = y[0];
    t[step] = y[0] + y[1];
    t[2 * step] = y[0] - y[1];
    t[3 * step] = -y[1];
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
SL__INLINE void SL__JOIN(weight_, LANES)(const int side, const VEC *u, VEC *t, const int step) {
  if (side == 2) {
    VEC half = 0.5f * (u[1] + u[2]);
    t[0] = u[0] + half;
    t[step] = 0.5f * (u[1] - u[2]);
    t[2 * step] = half + u[3];
    return;
  }
  const float none = 1 / (P * P * Q * Q);
  const float by_p = 1 / (2 * P * P * (P * P - Q * Q)), by_q = 1 / (2 * Q * Q * (Q * Q - P * P));
  VEC even_p = by_p * (u[1] + u[2]), even_q = by_q * (u[3] + u[4]);
  t[0] = none * u[0] + even_p + even_q;
  t[step] = by_p * P * (u[1] - u[2]) + by_q * Q * (u[3] - u[4]);
  t[2 * step] = P * P * even_p + Q * Q * even_q + u[5];
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
SL__INLINE void SL__JOIN(transform_, LANES)(const struct operand *o, const int side,
                                            const int reads, int32_t across, const float *row,
                                            float *to) {
  const int n = side + 2;
  const int64_t below = o->columns * o->pitch;
  for (int32_t tile = 0; tile < across; tile++, row += side * o->pitch, to += o->pitch)
    for (int64_t c = 0; c < o->pitch; c += LANES) {
      VEC t[36], d[6], u[6];
      _Pragma("GCC unroll 6") for (int s = 0; s < reads; s++) {
        _Pragma("GCC unroll 6") for (int r = 0; r < reads; r++) d[r] =
            *(const VEC *)(row + r * below + s * o->pitch + c);
        if (reads == n)
          SL__JOIN(window_, LANES)(side, d, t + s, n);
        else
          SL__JOIN(slope_, LANES)(side, d, t + s, n);
      }
      _Pragma("GCC unroll 6") for (int r = 0; r < n; r++) {
        if (reads == n)
          SL__JOIN(window_, LANES)(side, t + n * r, u, 1);
        else
          SL__JOIN(slope_, LANES)(side, t + n * r, u, 1);
        _Pragma("GCC unroll 6") for (int s = 0; s < n; s++) *
            (VEC *)(to + (n * r + s) * o->place + c) = u[s];
      }
    }
}

#define TRANSFORM(name, side, reads)                                                               \
  static SL__JOIN(SL__TARGET_, LANES) __attribute__((noinline)) void SL__JOIN(name, LANES)(        \
      const struct operand *o, int32_t across, const float *row, float *to) {                      \
    SL__JOIN(transform_, LANES)(o, side, reads, across, row, to);                                  \
  }
TRANSFORM(windows2_, 2, 4)
TRANSFORM(windows4_, 4, 6)
TRANSFORM(slopes2_, 2, 2)
TRANSFORM(slopes4_, 4, 4)

/* ---- products ---- */

#define BEGIN(k, v) VEC sum##k##v = {0};
#define READ(v)                                                                                    \
  VEC window##v = {0};                                                                             \
  if (v < vectors) window##v = *(const VEC *)(window + v * LANES);
#define MULTIPLY(k, v)                                                                             \
  if (k < rows && v < vectors) sum##k##v += slope[k] * window##v;
#define WRITE(k, v)                                                                                \
  if (k < rows && v < vectors) *(VEC *)(to + k * in->pitch + v * LANES) += sum##k##v;

SL__INLINE void SL__JOIN(tile_, LANES)(const struct operand *in, const struct operand *out,
                                       const int rows, const int vectors, int64_t tiles,
                                       const float *window, const float *slope, float *to) {
  SL__TILE_ALL(BEGIN)
  for (int64_t t = 0; t < tiles; t++, window += in->pitch, slope += out->pitch) {
    SL__TILE_EACH_COLUMN(READ)
    SL__TILE_ALL(MULTIPLY)
  }
  SL__TILE_ALL(WRITE)
}

#define NAMED(k, v) SL__JOIN(SL__JOIN(SL__JOIN(tile_, LANES), _##k), _##v)
#define DEFINE(k, v)                                                                               \
  static SL__JOIN(SL__TARGET_, LANES) __attribute__((noinline)) void NAMED(k, v)(                  \
      const struct operand *in, const struct operand *out, int64_t tiles, const float *window,     \
      const float *slope, float *to) {                                                             \
    SL__JOIN(tile_, LANES)(in, out, k, v, tiles, window, slope, to);                               \
  }
SL__JOIN(SL__TILES_OF_TWO_, LANES)
(DEFINE)
#define ENTRY(k, v) [v][k] = NAMED(k, v),
    static run_tile *const
    SL__JOIN(tiles_, LANES)[][SL__TILE_ROWS + 1] = {SL__JOIN(SL__TILES_OF_TWO_, LANES)(ENTRY)};

/* ---- the weights' gradient ---- */

/* Of one output channel and as many input channels as floats of a vector; to: 9 vectors. */
SL__INLINE void SL__JOIN(gradient_, LANES)(const int side, const float *sums, int64_t place,
                                           float *to) {
  const int n = side + 2;
  VEC t[18], u[6], row[3];
  _Pragma("GCC unroll 6") for (int s = 0; s < n; s++) {
    _Pragma("GCC unroll 6") for (int r = 0; r < n; r++) u[r] =
        *(const VEC *)(sums + (n * r + s) * place);
    SL__JOIN(weight_, LANES)(side, u, t + s, n);
  }
  _Pragma("GCC unroll 3") for (int r = 0; r < 3; r++) {
    SL__JOIN(weight_, LANES)(side, t + n * r, row, 1);
    _Pragma("GCC unroll 3") for (int s = 0; s < 3; s++) * (VEC *)(to + (3 * r + s) * LANES) =
        row[s];
  }
}

#define GRADIENT(name, side)                                                                       \
  static SL__JOIN(SL__TARGET_, LANES) __attribute__((noinline)) void SL__JOIN(name, LANES)(        \
      const float *sums, int64_t place, float *to) {                                               \
    SL__JOIN(gradient_, LANES)(side, sums, place, to);                                             \
  }
GRADIENT(gradient2_, 2)
GRADIENT(gradient4_, 4)

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
