/* The inner loops of codelets/kernels/skinny_gemm.c for vectors of LANES floats: tiles_LANES has a
 * function for each number of rows and vectors (a tile's columns). See codelets/kernels/tiles.h. */

/* ---- a panel: columns of a matrix, transposed into rows ---- */

#define EACH(s, use) SL__JOIN(SL__LANES_, LANES)(s, use)
#define LOW(l, s) ((l) & (s) ? LANES + (l) - (s) : (l))
#define HIGH(l, s) ((l) & (s) ? LANES + (l) : (l) + (s))

/* Swaps rows with lanes whose numbers differ in bit s. */
#define EXCHANGE(s)                                                                                \
  _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++) if (!(i & s)) {                         \
    VEC a = v[i], b = v[i | s];                                                                    \
    v[i] = __builtin_shufflevector(a, b, EACH(s, LOW));                                            \
    v[i | s] = __builtin_shufflevector(a, b, EACH(s, HIGH));                                       \
  }

SL__INLINE void SL__JOIN(square_, LANES)(const float *const *row, int64_t k, float *to,
                                         int64_t pitch) {
  VEC v[LANES];
  _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++) v[i] = *(const LOOSE *)(row[i] + k);
  EXCHANGE(1)
  EXCHANGE(2)
#if LANES > 4
  EXCHANGE(4)
#endif
#if LANES > 8
  EXCHANGE(8)
#endif
  _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++) * (LOOSE *)(to + (k + i) * pitch) = v[i];
}

/* to[k][c] = row[c][k], for `vectors` vectors of rows; to's rows are `pitch` apart. The last square
 * may overlap the one before. */
static SL__JOIN(SL__TARGET_, LANES)
    __attribute__((noinline)) void SL__JOIN(pack_, LANES)(const float *const *row, int vectors,
                                                          int64_t count, float *to,
                                                          int64_t pitch) {
  for (int v = 0; v < vectors; v++, row += LANES, to += LANES) {
    for (int64_t k = 0; k + LANES <= count; k += LANES) SL__JOIN(square_, LANES)(row, k, to, pitch);
    if (count % LANES && count > LANES) SL__JOIN(square_, LANES)(row, count - LANES, to, pitch);
    for (int64_t k = 0; k < count && count < LANES; k++)
      for (int i = 0; i < LANES; i++) to[k * pitch + i] = row[i][k];
  }
}

/* ---- sums of rows by a panel ---- */

#define BEGIN(r, v)                                                                                \
  VEC sum##r##v = {0};                                                                             \
  if (r < rows && v < vectors && begin.from)                                                       \
    sum##r##v = *(const LOOSE *)(begin.from + r * begin.pitch + v * LANES);
#define ROW(r)                                                                                     \
  VEC x##r = {0};                                                                                  \
  if (r < rows) x##r = x[r * x_pitch + k] - (VEC){0};                                              \
  if (r < rows && rows < vectors) SL__IN_REGISTER(x##r);
#define READ(v)                                                                                    \
  VEC w##v = {0};                                                                                  \
  if (v < vectors) w##v = *(const LOOSE *)(panel + (k * vectors + v) * LANES);                     \
  if (v < vectors && rows > 1) SL__IN_REGISTER(w##v);
#define MULTIPLY(r, v)                                                                             \
  if (r < rows && v < vectors) sum##r##v += x##r * w##v;
#define ADD_OLD(r, v)                                                                              \
  if (r < rows && v < vectors) sum##r##v += *(const LOOSE *)(to + r * pitch + v * LANES);
#define WRITE(r, v)                                                                                \
  if (r < rows && v < vectors) *(LOOSE *)(to + r * pitch + v * LANES) = sum##r##v;

/* A product more for each sum. The factors of the shorter side stay in registers, the others come
 * one at a time: 3 x 4 sums and all of their factors would need one register more than AVX2 has. */
#define ROW_LAST(r) ROW(r) SL__TILE_ROW(MULTIPLY, r)
#define COLUMN_LAST(v) READ(v) SL__TILE_COLUMN(MULTIPLY, v)
#define MULTIPLY_ALL                                                                               \
  if (rows < vectors) {                                                                            \
    SL__TILE_EACH_ROW(ROW)                                                                         \
    SL__TILE_EACH_COLUMN(COLUMN_LAST)                                                              \
  } else {                                                                                         \
    SL__TILE_EACH_COLUMN(READ)                                                                     \
    SL__TILE_EACH_ROW(ROW_LAST)                                                                    \
  }

/* to[r] = what `begin` says + x[r] panel, each sum one chain over k; rows and vectors are constants
 * in each call. */
SL__INLINE void SL__JOIN(tile_, LANES)(const int rows, const int vectors, const float *x,
                                       int64_t x_pitch, const float *panel, int64_t count,
                                       float *to, int64_t pitch, struct begin begin,
                                       const float *ahead, int64_t step) {
  SL__TILE_ALL(BEGIN)
  for (int64_t k = 0; k < count; k++) {
    __builtin_prefetch(ahead + k * step, 0, 2);
    if (step > SL__LINE) __builtin_prefetch(ahead + k * step + step / 2, 0, 2);
    MULTIPLY_ALL
  }
  if (begin.adds) {
    SL__TILE_ALL(ADD_OLD)
  }
  SL__TILE_ALL(WRITE)
}

#define NAMED(r, v) SL__JOIN(SL__JOIN(SL__JOIN(tile_, LANES), _##r), _##v)
#define DEFINE(r, v)                                                                               \
  static SL__JOIN(SL__TARGET_, LANES) __attribute__((noinline)) void NAMED(r, v)(                  \
      const float *x, int64_t x_pitch, const float *panel, int64_t count, float *to,               \
      int64_t pitch, struct begin begin, const float *ahead, int64_t step) {                       \
    SL__JOIN(tile_, LANES)(r, v, x, x_pitch, panel, count, to, pitch, begin, ahead, step);         \
  }
SL__JOIN(SL__TILES_, LANES)
(DEFINE)
#define ENTRY(r, v) [v][r] = NAMED(r, v),
    static run_tile *const SL__JOIN(tiles_, LANES)[SL__TILE_COLUMNS + 1][SL__TILE_ROWS + 1] = {
        SL__JOIN(SL__TILES_, LANES)(ENTRY)};

/* ---- one row by the rows of a matrix in its own layout ---- */

#define FROM(i) const float *row##i = row[i < count ? i : 0];
#define ZERO(i) VEC dot##i = {0};
#define ADD(i)                                                                                     \
  if (i < count) dot##i += *(const LOOSE *)(row##i + k) * xk;
#define LAST(i)                                                                                    \
  if (i < count) dot##i += (VEC)((BITS) * (const LOOSE *)(row##i + length - LANES) & rest) * xk;
#define SUM(i)                                                                                     \
  if (i < count) to[i] += SL__JOIN(total_, LANES)(&dot##i);

/* In pairs: the same order for any number of rows at a time. */
SL__INLINE float SL__JOIN(total_, LANES)(const VEC *v) {
  float part[LANES];
  memcpy(part, v, sizeof part);
  for (int half = LANES / 2; half; half /= 2)
    for (int i = 0; i < half; i++) part[i] += part[i + half];
  return part[0];
}

/* to[i] += row[i] x; `count` is a constant in each call. */
SL__INLINE void SL__JOIN(dots_, LANES)(const int count, const float *const *row, const float *x,
                                       int64_t length, float *to) {
  SL__SKINNY_GEMM_EACH(FROM)
  SL__SKINNY_GEMM_EACH(ZERO)
  for (int64_t k = 0; k + LANES <= length; k += LANES) {
    VEC xk = *(const LOOSE *)(x + k);
    SL__SKINNY_GEMM_EACH(ADD)
  }
  if (length >= LANES &&
      length % LANES) { /* the last vector again, without the part that was added */
    BITS rest;
    for (int i = 0; i < LANES; i++) rest[i] = i < LANES - length % LANES ? 0 : -1;
    VEC xk = (VEC)((BITS) * (const LOOSE *)(x + length - LANES) & rest);
    SL__SKINNY_GEMM_EACH(LAST)
  }
  SL__SKINNY_GEMM_EACH(SUM)
  for (int i = 0; i < count && length < LANES; i++)
    for (int64_t k = 0; k < length; k++) to[i] += row[i][k] * x[k];
}

static SL__JOIN(SL__TARGET_, LANES)
    __attribute__((noinline)) void SL__JOIN(dots_many_, LANES)(const float *const *row,
                                                               const float *x, int64_t length,
                                                               float *to) {
  SL__JOIN(dots_, LANES)(SL__SKINNY_GEMM_DOTS, row, x, length, to);
}
static SL__JOIN(SL__TARGET_, LANES)
    __attribute__((noinline)) void SL__JOIN(dots_one_, LANES)(const float *const *row,
                                                              const float *x, int64_t length,
                                                              float *to) {
  SL__JOIN(dots_, LANES)(1, row, x, length, to);
}

#undef SUM
#undef LAST
#undef ADD
#undef ZERO
#undef FROM
#undef ENTRY
#undef DEFINE
#undef NAMED
#undef WRITE
#undef ADD_OLD
#undef MULTIPLY_ALL
#undef COLUMN_LAST
#undef ROW_LAST
#undef MULTIPLY
#undef READ
#undef ROW
#undef BEGIN
#undef EXCHANGE
#undef HIGH
#undef LOW
#undef EACH
