/* The inner loops of codelets/kernels/winograd_backward_data.c for vectors of LANES floats. See
 * codelets/kernels/tiles.h. */
#define EACH(use) SL__JOIN(SL__LANES_, LANES)(0, use)
#define AT(from) (*(const LOOSE *)(from))
#define EVEN(l, s) (2 * (l))
#define ODD(l, s) (2 * (l) + 1)
#define LOW(l, s) ((l) / 2 + (l) % 2 * LANES)
#define HIGH(l, s) (LANES / 2 + (l) / 2 + (l) % 2 * LANES)

#include "codelets/kernels/winograd_product_tile.h"
#include "codelets/kernels/winograd_window.h"

/* ---- dy ---- */

/* Even and odd columns of even and odd rows. A last vector that is longer than a row is overwritten
 * by the next row; behind the last one are zeros, as behind a row of the frame. */
static SL__JOIN(SL__TARGET_, LANES)
    __attribute__((noinline)) void SL__JOIN(split_, LANES)(const struct shape *g,
                                                           const float *frame, float *planes) {
  const int32_t across = g->across;
  const int64_t plane = g->y_plane, row = g->y_row;
  for (int32_t i = 0; i < 2 * g->down; i++, frame += row) {
    float *to = planes + i % 2 * 2 * plane + i / 2 * (int64_t)across;
    for (int32_t j = 0; j < across; j += LANES) {
      VEC a = AT(frame + 2 * j), b = AT(frame + 2 * j + LANES);
      *(LOOSE *)(to + j) = __builtin_shufflevector(a, b, EACH(EVEN));
      *(LOOSE *)(to + plane + j) = __builtin_shufflevector(a, b, EACH(ODD));
    }
  }
}

/* A y A' of all tiles of an image, in one channel. */
static SL__JOIN(SL__TARGET_, LANES)
    __attribute__((noinline)) void SL__JOIN(make_, LANES)(const struct shape *g,
                                                          const float *planes, float *to) {
  const int64_t plane = g->y_plane, place = g->tiles, next = g->out * LANES;
  for (int32_t v = 0; v < g->vectors; v++, planes += LANES, to += next) {
    VEC t[12], d[6];
    _Pragma("GCC unroll 2") for (int s = 0; s < 2; s++) {
      const VEC y[2] = {AT(planes + s * plane), AT(planes + (2 + s) * plane)};
      SL__JOIN(slope5_, LANES)(y, t + s, 2);
    }
    _Pragma("GCC unroll 6") for (int r = 0; r < 6; r++) {
      SL__JOIN(slope5_, LANES)(t + 2 * r, d, 1);
      _Pragma("GCC unroll 6") for (int s = 0; s < 6; s++) * (VEC *)(to + (6 * r + s) * place) =
          d[s];
    }
  }
}

/* ---- dx ---- */

/* B m; the values of d are `step` apart. */
SL__INLINE void SL__JOIN(pixels_, LANES)(const VEC *m, VEC *d, const int step) {
  VEC even_p = m[1] + m[2], odd_p = P * (m[1] - m[2]);
  VEC even_q = m[3] + m[4], odd_q = Q * (m[3] - m[4]);
  d[0] = P * P * Q * Q * m[0];
  d[step] = P * P * Q * Q * m[5] - Q * Q * odd_p - P * P * odd_q;
  d[2 * step] = -(P * P + Q * Q) * m[0] - Q * Q * even_p - P * P * even_q;
  d[3 * step] = odd_p + odd_q - (P * P + Q * Q) * m[5];
  d[4 * step] = m[0] + even_p + even_q;
  d[5 * step] = m[5];
}

/* Adds the windows of all tiles to the planes of their columns. */
static SL__JOIN(SL__TARGET_, LANES)
    __attribute__((noinline)) void SL__JOIN(scatter_, LANES)(const struct shape *g,
                                                             const float *sums, float *planes) {
  const int64_t place = g->sums, plane = g->x_plane, across = g->across;
  float *to = planes + BEFORE;
  for (int32_t v = 0; v < g->vectors; v++, sums += LANES, to += LANES) {
    VEC t[36], m[6], d[6];
    _Pragma("GCC unroll 6") for (int s = 0; s < 6; s++) {
      _Pragma("GCC unroll 6") for (int r = 0; r < 6; r++) m[r] =
          *(const VEC *)(sums + (6 * r + s) * place);
      SL__JOIN(pixels_, LANES)(m, t + s, 6);
    }
    _Pragma("GCC unroll 6") for (int r = 0; r < 6; r++) {
      SL__JOIN(pixels_, LANES)(t + 6 * r, d, 1);
      _Pragma("GCC unroll 6") for (int s = 0; s < 6; s++) {
        float *at = to + (r % 2 * 6 + s) * plane + r / 2 * across;
        *(LOOSE *)at = AT(at) + d[s];
      }
    }
  }
}

/* Every second pixel of a row: the sum of three columns of the windows. */
SL__INLINE void SL__JOIN(join_columns_, LANES)(const float *from, const int64_t plane,
                                               const int32_t *inside, const int64_t row, VEC *sum) {
  *sum = (VEC){0};
  _Pragma("GCC unroll 3") for (int i = 0; i < SHIFTS; i++) *sum +=
      (VEC)((BITS)AT(from + 2 * i * plane - i) & *(const BITS *)(inside + i * row));
}

/* The image in its frame, from the planes. */
static SL__JOIN(SL__TARGET_, LANES)
    __attribute__((noinline)) void SL__JOIN(join_, LANES)(const struct shape *g,
                                                          const float *planes, float *frame) {
  const int32_t rows = 2 * (g->down + 2), across = g->across, *inside = g->inside;
  const int64_t plane = g->x_plane, row = g->x_row, masks = g->inside_row;
  for (int32_t i = 0; i < rows; i++, frame += row) {
    const float *from = planes + BEFORE + i % 2 * 6 * plane + i / 2 * (int64_t)across;
    for (int32_t j = 0; j < across + 2; j += LANES) {
      VEC even, odd;
      SL__JOIN(join_columns_, LANES)(from + j, plane, inside + j, masks, &even);
      SL__JOIN(join_columns_, LANES)(from + plane + j, plane, inside + j, masks, &odd);
      *(LOOSE *)(frame + 2 * j) = __builtin_shufflevector(even, odd, EACH(LOW));
      *(LOOSE *)(frame + 2 * j + LANES) = __builtin_shufflevector(even, odd, EACH(HIGH));
    }
  }
}

#undef Q
#undef P
#undef HIGH
#undef LOW
#undef ODD
#undef EVEN
#undef AT
#undef EACH
