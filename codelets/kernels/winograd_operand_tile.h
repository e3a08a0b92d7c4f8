/* The inner loops of codelets/kernels/winograd_operand.h for vectors of LANES floats: images with
 * their channels side by side, and the transforms of their tiles. The kernels' files define EACH
 * and AT, include this one once a width, and undefine its names: P, Q, LOW, HIGH and TRANSFORM. */

#include "codelets/kernels/winograd_window.h"

/* ---- one dimension ---- */

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

/* Exchanges rows and columns of LANES vectors. */
SL__INLINE void SL__JOIN(exchange_all_, LANES)(VEC *v) {
  VEC w[LANES];
  SL__JOIN(interleave_, LANES)(v, w);
  SL__JOIN(interleave_, LANES)(w, v);
  if (LANES > 4) SL__JOIN(interleave_, LANES)(v, w);
  if (LANES > 8) SL__JOIN(interleave_, LANES)(w, v);
  _Pragma("GCC unroll 16") for (int i = 0; i < LANES && LANES == 8; i++) v[i] = w[i];
}

/* Planes of as many channels as floats of a vector: as many pixels; at: their offsets. */
SL__INLINE void SL__JOIN(exchange_, LANES)(const float *from, int64_t plane, const int32_t *at,
                                           float *to) {
  VEC v[LANES];
  _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++) v[i] = AT(from + i * plane);
  SL__JOIN(exchange_all_, LANES)(v);
  _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++) * (LOOSE *)(to + at[i]) = v[i];
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
  const int side = side_of(kind), n = values_of(kind);
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
