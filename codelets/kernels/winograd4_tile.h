/* The inner loops of codelets/kernels/winograd.c for tiles of 4x4 outputs, for vectors of LANES
 * floats. Points of the transforms: 0, +-P, +-Q and infinity. codelets/kernels/winograd_tile.h
 * includes it and defines its names. */

/* ---- the frame ---- */

/* Splits four consecutive vectors of columns: the columns of each phase go to a plane of their own.
 */
SL__INLINE void SL__JOIN(split_four_, LANES)(const VEC v[4], float *to, int64_t plane) {
  VEC even[2], odd[2];
  _Pragma("GCC unroll 2") for (int i = 0; i < 2; i++) {
    even[i] = __builtin_shufflevector(v[2 * i], v[2 * i + 1], EACH(EVEN));
    odd[i] = __builtin_shufflevector(v[2 * i], v[2 * i + 1], EACH(ODD));
  }
  *(LOOSE *)to = __builtin_shufflevector(even[0], even[1], EACH(EVEN));
  *(LOOSE *)(to + plane) = __builtin_shufflevector(odd[0], odd[1], EACH(EVEN));
  *(LOOSE *)(to + 2 * plane) = __builtin_shufflevector(even[0], even[1], EACH(ODD));
  *(LOOSE *)(to + 3 * plane) = __builtin_shufflevector(odd[0], odd[1], EACH(ODD));
}

#if LANES == 4
/* A row of the image, of any width; NULL for a row of zeros. */
SL__INLINE void split_row_by_four(const struct shape *g, const float *from, float *to) {
  int32_t tile = 0, whole = from ? g->width / 4 : 0;
  for (; tile + LANES <= whole; tile += LANES) {
    const float *some = from + 4 * (int64_t)tile;
    const VEC v[4] = {AT(some), AT(some + 4), AT(some + 8), AT(some + 12)};
    split_four_4(v, to + tile, g->plane);
  }
  for (; tile < g->across; tile++)
    for (int s = 0; s < 4; s++) {
      int32_t column = 4 * tile + s;
      to[s * g->plane + tile] = from && column < g->width ? from[column] : 0;
    }
}
#endif

/* As many rows of tiles as make their rows of one phase, four apart in the image, whole vectors in
 * fours. */
SL__INLINE void SL__JOIN(split_rows_, LANES)(const struct shape *g, const float *from, float *to) {
  for (int32_t j = 0; j < g->group * g->width; j += 4 * LANES) {
    VEC v[4];
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++) v[i] = AT(from + j + g->fours[i]);
    SL__JOIN(split_four_, LANES)(v, to + j / 4, g->plane);
  }
}

/* A channel's rows of tiles; of the first and the last row only the part that other rows read. */
static SL__JOIN(SL__TARGET_, LANES)
    __attribute__((noinline)) void SL__JOIN(split4_, LANES)(const struct shape *g, const float *x,
                                                            int32_t first, int32_t end, float *to) {
  for (int r = 0; r < 4; r++) {
    int32_t last = r > 0 ? end - 1 : end;
    for (int32_t t = r < 3 ? first + 1 : first; t < last;) {
      const bool inside = t >= 0 && 4 * t + r < g->height;
      const float *from = inside ? x + (4 * (int64_t)t + r) * g->width : NULL;
      float *at = to + 4 * r * g->plane + BEFORE + (t + 1) * (int64_t)g->pitch;
      if (g->group && inside && 4 * (t + g->group - 1) + r < g->height) {
        SL__JOIN(split_rows_, LANES)(g, from, at);
        t += g->group;
      } else {
        split_row_by_four(g, from, at);
        t++;
      }
    }
  }
}

/* ---- windows ---- */

/* A column of the windows; edge: mask of the windows that have it, NULL for all. */
SL__INLINE void SL__JOIN(read_column_, LANES)(const struct shape *g, const float *top,
                                              const BITS *edge, VEC d[6]) {
  const int64_t row = 4 * g->plane;
  d[0] = AT(top + 3 * row - g->pitch);
  _Pragma("GCC unroll 4") for (int r = 0; r < 4; r++) d[1 + r] = AT(top + r * row);
  d[5] = AT(top + g->pitch);
  _Pragma("GCC unroll 6") for (int r = 0; r < 6 && edge; r++) d[r] = (VEC)((BITS)d[r] & *edge);
}

/* The windows of some vectors of an image's tiles, in one channel. */
static SL__JOIN(SL__TARGET_, LANES)
    __attribute__((noinline)) void SL__JOIN(windows4_, LANES)(const struct shape *g,
                                                              const float *frame, int32_t first,
                                                              int32_t end, float *to) {
  const float *at = frame + BEFORE + g->pitch + first * LANES;
  int32_t unit = first % g->unit_vectors;
  for (int32_t v = first; v < end; v++, at += LANES, to += g->channels * LANES) {
    const BITS *edges = (const BITS *)g->edges + 2 * unit;
    VEC t[36], d[6], row[6];
    SL__JOIN(read_column_, LANES)(g, at + 3 * g->plane - 1, edges, d);
    SL__JOIN(window4_, LANES)(d, t, 6);
    _Pragma("GCC unroll 4") for (int s = 0; s < 4; s++) {
      SL__JOIN(read_column_, LANES)(g, at + s * g->plane, NULL, d);
      SL__JOIN(window4_, LANES)(d, t + 1 + s, 6);
    }
    SL__JOIN(read_column_, LANES)(g, at + 1, edges + 1, d);
    SL__JOIN(window4_, LANES)(d, t + 5, 6);
    _Pragma("GCC unroll 6") for (int r = 0; r < 6; r++) {
      SL__JOIN(window4_, LANES)(t + 6 * r, row, 1);
      _Pragma("GCC unroll 6") for (int s = 0; s < 6; s++) * (VEC *)(to + (6 * r + s) * g->windows) =
          row[s];
    }
    if (++unit == g->unit_vectors) unit = 0;
  }
}

/* ---- outputs ---- */

/* A row of the tiles' outputs, from its columns. */
SL__INLINE void SL__JOIN(write_fours_, LANES)(const VEC out[4], const int32_t *at, float *to) {
  VEC low[2], high[2];
  _Pragma("GCC unroll 2") for (int s = 0; s < 2; s++) {
    low[s] = __builtin_shufflevector(out[s], out[2 + s], EACH(LOW));
    high[s] = __builtin_shufflevector(out[s], out[2 + s], EACH(HIGH));
  }
  *(LOOSE *)(to + at[0]) = __builtin_shufflevector(low[0], low[1], EACH(LOW));
  *(LOOSE *)(to + at[1]) = __builtin_shufflevector(low[0], low[1], EACH(HIGH));
  *(LOOSE *)(to + at[2]) = __builtin_shufflevector(high[0], high[1], EACH(LOW));
  *(LOOSE *)(to + at[3]) = __builtin_shufflevector(high[0], high[1], EACH(HIGH));
}

/* The outputs of some vectors of tiles from their sums; at: offsets of their quarters. */
static SL__JOIN(SL__TARGET_, LANES)
    __attribute__((noinline)) void SL__JOIN(outputs4_, LANES)(const struct shape *g,
                                                              const float *sums, float bias,
                                                              int32_t vectors, const int32_t *at,
                                                              float *to) {
  for (int32_t v = 0; v < vectors; v++, sums += LANES, at += 4) {
    VEC t[24], m[6], out[4];
    _Pragma("GCC unroll 6") for (int s = 0; s < 6; s++) {
      _Pragma("GCC unroll 6") for (int r = 0; r < 6; r++) m[r] =
          *(const VEC *)(sums + (6 * r + s) * g->sums);
      SL__JOIN(after_, LANES)(FOUR_BY_THREE, m, t + s, 6);
    }
    _Pragma("GCC unroll 4") for (int r = 0; r < 4; r++) {
      SL__JOIN(after_, LANES)(FOUR_BY_THREE, t + 6 * r, out, 1);
      _Pragma("GCC unroll 4") for (int s = 0; s < 4; s++) out[s] += bias;
      SL__JOIN(write_fours_, LANES)(out, at, to + r * g->below);
    }
  }
}
