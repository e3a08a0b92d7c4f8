/* The inner loops of codelets/attention.c's products for vectors of LANES floats: tiles_LANES has a
 * function for each number of vectors (a tile's columns) and rows. See codelets/kernels/tiles.h. */

#define BEGIN(r, v)                                                                                \
  VEC sum##r##v = {0};                                                                             \
  if (r < rows && v < vectors && p.add)                                                            \
    sum##r##v = *(const LOOSE *)(to + r * p.to_pitch + v * LANES);
#define READ(v)                                                                                    \
  VEC b##v = {0};                                                                                  \
  if (v < vectors) b##v = *(const LOOSE *)(b + v * LANES);                                         \
  if (v < vectors && rows > 1) SL__IN_REGISTER(b##v);
#define MULTIPLY(r, v)                                                                             \
  if (r < rows && v < vectors) sum##r##v += a[r * p.a_row] * b##v;
#define WRITE(r, v)                                                                                \
  if (r < rows && v < vectors) *(LOOSE *)(to + r * p.to_pitch + v * LANES) = sum##r##v;

/* Each sum is one chain over k; rows and vectors are constants in each call. */
SL__INLINE void SL__JOIN(tile_, LANES)(const int rows, const int vectors, struct product p,
                                       const float *a, const float *b, float *to) {
  SL__TILE_ALL(BEGIN)
  for (int64_t k = 0; k < p.count; k++, a += p.a_step, b += p.b_step) {
    SL__TILE_EACH_COLUMN(READ)
    SL__TILE_ALL(MULTIPLY)
  }
  SL__TILE_ALL(WRITE)
}

#define NAMED(r, v) SL__JOIN(SL__JOIN(SL__JOIN(tile_, LANES), _##r), _##v)
#define DEFINE(r, v)                                                                               \
  static SL__JOIN(SL__TARGET_, LANES) __attribute__((noinline)) void NAMED(r, v)(                  \
      const struct product *p, const float *a, const float *b, float *to) {                        \
    SL__JOIN(tile_, LANES)(r, v, *p, a, b, to);                                                    \
  }
SL__JOIN(SL__TILES_, LANES)
(DEFINE)
#define ENTRY(r, v) [v][r] = NAMED(r, v),
    static run_tile *const SL__JOIN(tiles_, LANES)[SL__TILE_COLUMNS + 1][SL__TILE_ROWS + 1] = {
        SL__JOIN(SL__TILES_, LANES)(ENTRY)};

#undef ENTRY
#undef DEFINE
#undef NAMED
#undef WRITE
#undef MULTIPLY
#undef READ
#undef BEGIN
