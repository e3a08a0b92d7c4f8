/* The inner loops of codelets/kernels/conv_scatter.c for vectors of LANES floats:
 * tiles_LANES has a function for each number of taps (rows of a tile) and vectors of pixels (its
 * columns). See codelets/kernels/tiles.h. */

#define BEGIN(t, v) VEC sum##t##v = {0};
#define READ(v)                                                                                    \
  VEC slope##v = {0};                                                                              \
  if (v < vectors) slope##v = *(const LOOSE *)(dy + at[v]);
#define MULTIPLY(t, v)                                                                             \
  if (t < rows && v < vectors) sum##t##v += weight[t * below] * slope##v;
#define WRITE(t, v)                                                                                \
  if (t < rows && v < vectors) *(LOOSE *)(to + t * plane + at[v]) = sum##t##v;

/* to [rows, plane] at some vectors: the sums over channels of weight [channels, taps] times dy
 * [channels, pixels]. rows and vectors are constants in each call. */
SL__INLINE void SL__JOIN(tile_, LANES)(const int rows, const int vectors,
                                       const struct tile_shape *s, const int64_t *at,
                                       const float *weight, const float *dy, float *to) {
  int64_t pixels = s->pixels, taps = s->taps, below = s->below, plane = s->plane;
  SL__TILE_ALL(BEGIN)
  for (int64_t k = 0; k < s->channels; k++, weight += taps, dy += pixels) {
    SL__TILE_EACH_COLUMN(READ)
    SL__TILE_ALL(MULTIPLY)
  }
  SL__TILE_ALL(WRITE)
}

#define NAMED(t, v) SL__JOIN(SL__JOIN(SL__JOIN(tile_, LANES), _##t), _##v)
#define DEFINE(t, v)                                                                               \
  static SL__JOIN(SL__TARGET_, LANES) __attribute__((noinline)) void NAMED(t, v)(                  \
      const struct tile_shape *s, const int64_t *at, const float *weight, const float *dy,         \
      float *to) {                                                                                 \
    SL__JOIN(tile_, LANES)(t, v, s, at, weight, dy, to);                                           \
  }
SL__JOIN(SL__TILES_, LANES)
(DEFINE)
#define ENTRY(t, v) [v][t] = NAMED(t, v),
    static run_tile *const SL__JOIN(tiles_, LANES)[SL__TILE_COLUMNS + 1][SL__TILE_ROWS + 1] = {
        SL__JOIN(SL__TILES_, LANES)(ENTRY)};

#undef ENTRY
#undef DEFINE
#undef NAMED
#undef WRITE
#undef MULTIPLY
#undef READ
#undef BEGIN
