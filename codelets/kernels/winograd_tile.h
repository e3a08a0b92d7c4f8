/* The inner loops of codelets/kernels/winograd.c for vectors of LANES floats. See
 * codelets/kernels/tiles.h. */

#define AT(from) (*(const LOOSE *)(from))
#define EVEN(l, s) (2 * (l))
#define ODD(l, s) (2 * (l) + 1)
#define EACH(use) SL__JOIN(SL__LANES_, LANES)(0, use)

/* ---- the frame ---- */

SL__INLINE void SL__JOIN(split_two_, LANES)(const float *from, const float *other, float *even,
                                            float *odd) {
  VEC a = AT(from), b = AT(other);
  *(LOOSE *)even = __builtin_shufflevector(a, b, EACH(EVEN));
  *(LOOSE *)odd = __builtin_shufflevector(a, b, EACH(ODD));
}

/* Pairs of columns of a row, the last vector possibly overlapping the one before; narrow rows, and
 * a last column without a neighbour, one by one. */
SL__INLINE void SL__JOIN(split_row_, LANES)(int32_t width, const float *from, float *even,
                                            float *odd) {
  int32_t pairs = width / 2;
  for (int32_t j = 0; j < pairs && pairs >= LANES; j += LANES) {
    if (j + LANES > pairs) j = pairs - LANES;
    const float *some = from + 2 * (int64_t)j;
    SL__JOIN(split_two_, LANES)(some, some + LANES, even + j, odd + j);
  }
  for (int32_t j = 0; j < pairs && pairs < LANES; j++) {
    even[j] = from[2 * j];
    odd[j] = from[2 * j + 1];
  }
  if (width % 2) {
    even[pairs] = from[2 * pairs];
    odd[pairs] = 0;
  }
}

/* The values behind it are written later, or are padding. */
SL__INLINE void SL__JOIN(clear_row_, LANES)(int32_t count, float *even, float *odd) {
  for (int32_t j = 0; j < count; j += LANES) *(LOOSE *)(even + j) = *(LOOSE *)(odd + j) = (VEC){0};
}

/* A channel's rows of tiles, each of an even and an odd row; rows beyond the image are zero. */
static SL__JOIN(SL__TARGET_, LANES)
    __attribute__((noinline)) void SL__JOIN(split_, LANES)(const struct shape *g, const float *x,
                                                           int32_t first, int32_t end, float *to) {
  const bool in_twos = g->width == LANES && g->pitch == g->across;
  const int64_t plane = g->plane, pitch = g->pitch, width = g->width;
  const int32_t whole = end < g->height / 2 ? end : g->height / 2;
  float *even = to + BEFORE + (first + 1) * pitch, *odd = even + 2 * plane;
  int32_t i = first;
  for (; i < 0; i++, even += pitch, odd += pitch) {
    SL__JOIN(clear_row_, LANES)(g->across, even, even + plane);
    SL__JOIN(clear_row_, LANES)(g->across, odd, odd + plane);
  }
  const float *from = x + 2 * i * width;
  for (; in_twos && i + 2 <= whole;
       i += 2, even += 2 * pitch, odd += 2 * pitch, from += 4 * LANES) {
    SL__JOIN(split_two_, LANES)(from, from + 2 * LANES, even, even + plane);
    SL__JOIN(split_two_, LANES)(from + LANES, from + 3 * LANES, odd, odd + plane);
  }
  for (; i < whole; i++, even += pitch, odd += pitch, from += 2 * width) {
    SL__JOIN(split_row_, LANES)((int32_t)width, from, even, even + plane);
    SL__JOIN(split_row_, LANES)((int32_t)width, from + width, odd, odd + plane);
  }
  for (; i < end; i++, even += pitch, odd += pitch, from += 2 * width) {
    if (2 * i < g->height)
      SL__JOIN(split_row_, LANES)((int32_t)width, from, even, even + plane);
    else
      SL__JOIN(clear_row_, LANES)(g->across, even, even + plane);
    SL__JOIN(clear_row_, LANES)(g->across, odd, odd + plane);
  }
}

/* ---- windows ---- */

/* d[0] to d[3]: a row of the windows, from planes of even and odd columns. */
SL__INLINE void SL__JOIN(read_row_, LANES)(const struct shape *g, const float *even,
                                           const BITS *edges, VEC *d) {
  const float *odd = even + g->plane;
  d[0] = (VEC)((BITS)AT(odd - 1) & edges[0]);
  d[1] = AT(even);
  d[2] = AT(odd);
  d[3] = (VEC)((BITS)AT(even + 1) & edges[1]);
}

/* Transforms d; the results are a fixed distance apart. */
SL__INLINE void SL__JOIN(transform_, LANES)(const VEC d[4][4], float *to, int64_t pitch) {
  VEC t[4][4];
  _Pragma("GCC unroll 4") for (int s = 0; s < 4; s++) {
    t[0][s] = d[0][s] - d[2][s];
    t[1][s] = d[1][s] + d[2][s];
    t[2][s] = d[2][s] - d[1][s];
    t[3][s] = d[1][s] - d[3][s];
  }
  _Pragma("GCC unroll 4") for (int r = 0; r < 4; r++, to += 4 * pitch) {
    *(VEC *)to = t[r][0] - t[r][2];
    *(VEC *)(to + pitch) = t[r][1] + t[r][2];
    *(VEC *)(to + 2 * pitch) = t[r][2] - t[r][1];
    *(VEC *)(to + 3 * pitch) = t[r][1] - t[r][3];
  }
}

/* The windows of some vectors of an image's tiles, in one channel. */
static SL__JOIN(SL__TARGET_, LANES)
    __attribute__((noinline)) void SL__JOIN(windows_, LANES)(const struct shape *g,
                                                             const float *frame, int32_t first,
                                                             int32_t end, float *to) {
  const float *even = frame + BEFORE + g->pitch + first * LANES; /* a row of the image */
  int32_t unit = first % g->unit_vectors;
  for (int32_t v = first; v < end; v++, even += LANES, to += g->channels * LANES) {
    const BITS *edges = (const BITS *)g->edges + 2 * unit;
    const float *odd = even + 2 * g->plane; /* the next one */
    VEC d[4][4];
    SL__JOIN(read_row_, LANES)(g, odd - g->pitch, edges, d[0]);
    SL__JOIN(read_row_, LANES)(g, even, edges, d[1]);
    SL__JOIN(read_row_, LANES)(g, odd, edges, d[2]);
    SL__JOIN(read_row_, LANES)(g, even + g->pitch, edges, d[3]);
    SL__JOIN(transform_, LANES)(d, to, g->windows);
    if (++unit == g->unit_vectors) unit = 0;
  }
}

#include "codelets/kernels/winograd_product_tile.h"

/* ---- outputs ---- */

/* Interleaves neighbouring columns; halves of vectors. */
#define LOW(l, s) ((l) / 2 + (l) % 2 * LANES)
#define HIGH(l, s) (LANES / 2 + (l) / 2 + (l) % 2 * LANES)
#define FIRST(l, s) ((l) < LANES / 2 ? (l) : LANES / 2 + (l))
#define SECOND(l, s) ((l) < LANES / 2 ? LANES / 2 + (l) : LANES + (l))

/* Even and odd columns of even and odd rows. */
SL__INLINE void SL__JOIN(write_tiles_, LANES)(const struct shape *g, const VEC out[2][2],
                                              const int32_t *at, float *to) {
  VEC low[2], high[2];
  _Pragma("GCC unroll 2") for (int r = 0; r < 2; r++) {
    low[r] = __builtin_shufflevector(out[r][0], out[r][1], EACH(LOW));
    high[r] = __builtin_shufflevector(out[r][0], out[r][1], EACH(HIGH));
  }
  if (g->halves) { /* two rows' outputs are a vector */
    *(LOOSE *)(to + at[0]) = __builtin_shufflevector(low[0], low[1], EACH(FIRST));
    *(LOOSE *)(to + at[0] + LANES) = __builtin_shufflevector(low[0], low[1], EACH(SECOND));
    *(LOOSE *)(to + at[1]) = __builtin_shufflevector(high[0], high[1], EACH(FIRST));
    *(LOOSE *)(to + at[1] + LANES) = __builtin_shufflevector(high[0], high[1], EACH(SECOND));
    return;
  }
  _Pragma("GCC unroll 2") for (int r = 0; r < 2; r++) {
    *(LOOSE *)(to + at[0] + r * g->below) = low[r];
    *(LOOSE *)(to + at[1] + r * g->below) = high[r];
  }
}

/* The outputs of some vectors of tiles from their sums; at: offsets of their halves. */
static SL__JOIN(SL__TARGET_, LANES)
    __attribute__((noinline)) void SL__JOIN(outputs_, LANES)(const struct shape *g,
                                                             const float *sums, float bias,
                                                             int32_t vectors, const int32_t *at,
                                                             float *to) {
  for (int32_t v = 0; v < vectors; v++, sums += LANES, at += 2) {
    VEC t[4][2], out[2][2];
    _Pragma("GCC unroll 4") for (int r = 0; r < 4; r++) {
      const float *m = sums + 4 * r * g->sums;
      VEC m0 = *(const VEC *)m, m1 = *(const VEC *)(m + g->sums);
      VEC m2 = *(const VEC *)(m + 2 * g->sums), m3 = *(const VEC *)(m + 3 * g->sums);
      t[r][0] = m0 + m1 + m2;
      t[r][1] = m1 - m2 - m3;
    }
    _Pragma("GCC unroll 2") for (int s = 0; s < 2; s++) {
      out[0][s] = t[0][s] + t[1][s] + t[2][s] + bias;
      out[1][s] = t[1][s] - t[2][s] - t[3][s] + bias;
    }
    SL__JOIN(write_tiles_, LANES)(g, out, at, to);
  }
}

#include "codelets/kernels/winograd_window.h"
#include "codelets/kernels/winograd4_tile.h"
#include "codelets/kernels/winograd5_tile.h"

#undef Q
#undef P
#undef SECOND
#undef FIRST
#undef HIGH
#undef LOW
#undef EACH
#undef ODD
#undef EVEN
#undef AT
