/* The inner loops of codelets/kernels/direct_conv.c for vectors of LANES floats: tiles_LANES has a function for
 * each number of channels (rows of a tile) and vectors (its columns). See codelets/kernels/tiles.h. */

#define BEGIN(k, v) VEC sum##k##v = (k < channels && bias ? bias[k] : 0) - (VEC){0};
#define FROM(v) const float *from##v = v < vectors ? image + at[v].offset : NULL;
#define READ(v)                                                                                    \
  VEC pixel##v = {0};                                                                              \
  if (v < vectors) pixel##v = *(const LOOSE *)(from##v + g->offset[t]);
#define MULTIPLY(k, v)                                                                             \
  if (k < channels && v < vectors) sum##k##v += weight[k * g->taps + t] * pixel##v;
#define WRITE(k, v)                                                                                \
  if (k < channels && v < vectors) *(LOOSE *)(y + k * g->to_plane + at[v].to) = sum##k##v;

/* Outputs of `channels` channels at `vectors` vectors: constants wherever it is called. */
SL_INLINE void SL_JOIN(tile_, LANES)(const struct shape *g, const int channels, const int vectors,
                                     const float *image, const struct start *at,
                                     const float *weight, const float *bias, float *y) {
  SL_TILE_ALL(BEGIN)
  SL_TILE_EACH_COLUMN(FROM)
  for (int64_t t = 0; t < g->taps; t++) {
    SL_TILE_EACH_COLUMN(READ)
    SL_TILE_ALL(MULTIPLY)
  }
  SL_TILE_ALL(WRITE)
}

#define NAMED(k, v) SL_JOIN(SL_JOIN(SL_JOIN(tile_, LANES), _##k), _##v)
#define DEFINE(k, v)                                                                               \
  static SL_JOIN(SL_TARGET_, LANES) __attribute__((noinline)) void NAMED(k, v)(                    \
      const struct shape *g, const float *image, const struct start *at, const float *weight,      \
      const float *bias, float *y) {                                                               \
    SL_JOIN(tile_, LANES)(g, k, v, image, at, weight, bias, y);                                    \
  }
SL_JOIN(SL_TILES_, LANES)(DEFINE)
#define ENTRY(k, v) [v][k] = NAMED(k, v),
static run_tile *const SL_JOIN(tiles_, LANES)[SL_TILE_COLUMNS + 1][SL_TILE_ROWS + 1] = {
    SL_JOIN(SL_TILES_, LANES)(ENTRY)};

#undef ENTRY
#undef DEFINE
#undef NAMED
#undef WRITE
#undef MULTIPLY
#undef READ
#undef FROM
#undef BEGIN
