/* The inner loops of codelets/kernels/winograd_channels.c for vectors of LANES floats. See
 * codelets/kernels/tiles.h. */
#define EACH(use) SL__JOIN(SL__LANES_, LANES)(0, use)
#define AT(from) (*(const LOOSE *)(from))

#include "codelets/kernels/winograd_operand_tile.h"
#include "codelets/kernels/winograd_product_tile.h"

/* ---- outputs ---- */

/* A row of tiles, in as many channels as floats of a vector. */
SL__INLINE void SL__JOIN(make_outputs_, LANES)(const struct outputs *o, const enum kind kind,
                                               int32_t across, const float *sums, float *to) {
  const int side = side_of(kind), n = values_of(kind);
  const int64_t place = o->place, pitch = o->pitch, below = o->columns * pitch;
  for (int32_t tile = 0; tile < across; tile++, sums += pitch, to += side * pitch) {
    VEC t[24], m[6], out[4];
    _Pragma("GCC unroll 6") for (int s = 0; s < n; s++) {
      _Pragma("GCC unroll 6") for (int r = 0; r < n; r++) m[r] =
          *(const VEC *)(sums + (n * r + s) * place);
      SL__JOIN(after_, LANES)(kind, m, t + s, n);
    }
    _Pragma("GCC unroll 4") for (int r = 0; r < side; r++) {
      SL__JOIN(after_, LANES)(kind, t + n * r, out, 1);
      _Pragma("GCC unroll 4") for (int s = 0; s < side; s++) * (VEC *)(to + r * below + s * pitch) =
          out[s];
    }
  }
}

#define OUTPUTS(name, kind)                                                                        \
  static SL__JOIN(SL__TARGET_, LANES) __attribute__((noinline)) void SL__JOIN(name, LANES)(        \
      const struct outputs *o, int32_t across, const float *sums, float *to) {                     \
    SL__JOIN(make_outputs_, LANES)(o, kind, across, sums, to);                                     \
  }
OUTPUTS(outputs2_, TWO_BY_THREE)
OUTPUTS(outputs4_, FOUR_BY_THREE)
OUTPUTS(outputs5_, TWO_BY_FIVE)

/* As many pixels of as many channels: the last vectors are moved back to end with the plane. */
static SL__JOIN(SL__TARGET_, LANES)
    __attribute__((noinline)) void SL__JOIN(write_, LANES)(const struct outputs *o,
                                                           const float *frame, const float *bias,
                                                           int64_t first, int64_t end, float *y) {
  const int64_t pixels = o->pixels;
  for (int64_t p = 0; p < pixels; p += LANES) {
    VEC v[LANES];
    if (p > pixels - LANES) p = pixels - LANES;
    const int32_t *at = o->at + p;
    _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++) v[i] = *(const VEC *)(frame + at[i]);
    SL__JOIN(exchange_all_, LANES)(v);
    _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++) if (i >= first && i < end) *
        (LOOSE *)(y + i * pixels + p) = bias ? v[i] + bias[i] : v[i];
  }
}

#undef OUTPUTS
#undef TRANSFORM
#undef HIGH
#undef LOW
#undef Q
#undef P
#undef AT
#undef EACH
