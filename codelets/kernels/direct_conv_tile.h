/* The inner loops of codelets/kernels/direct_conv.c for vectors of LANES floats: tiles_LANES has a
 * function for each number of channels (rows of a tile) and vectors (its columns). See
 * codelets/kernels/tiles.h. */

#define BEGIN(k, v) VEC sum##k##v = (k < channels && bias ? bias[k] : 0) - (VEC){0};
#define FROM(v) const float *from##v = v < vectors ? image + at[v].offset : NULL;
#define READ(v)                                                                                    \
  VEC pixel##v = {0};                                                                              \
  if (v < vectors) pixel##v = *(const LOOSE *)(from##v + g->offset[t]);
#define MULTIPLY(k, v)                                                                             \
  if (k < channels && v < vectors) sum##k##v += weight[k * g->taps + t] * pixel##v;
#define WRITE(k, v)                                                                                \
  if (k < channels && v < vectors) *(LOOSE *)(y + k * g->to_plane + at[v].to) = sum##k##v;

/* Outputs of `channels` channels at `vectors` vectors; both are constants in each call. */
SL__INLINE void SL__JOIN(tile_, LANES)(const struct sl__conv_frame *g, const int channels,
                                       const int vectors, const float *image,
                                       const struct sl__frame_start *at, const float *weight,
                                       const float *bias, float *y) {
  SL__TILE_ALL(BEGIN)
  SL__TILE_EACH_COLUMN(FROM)
  for (int64_t t = 0; t < g->taps; t++) {
    SL__TILE_EACH_COLUMN(READ)
    SL__TILE_ALL(MULTIPLY)
  }
  SL__TILE_ALL(WRITE)
}

#define NAMED(k, v) SL__JOIN(SL__JOIN(SL__JOIN(tile_, LANES), _##k), _##v)
#define DEFINE(k, v)                                                                               \
  static SL__JOIN(SL__TARGET_, LANES) __attribute__((noinline)) void NAMED(k, v)(                  \
      const struct sl__conv_frame *g, const float *image, const struct sl__frame_start *at,        \
      const float *weight, const float *bias, float *y) {                                          \
    SL__JOIN(tile_, LANES)(g, k, v, image, at, weight, bias, y);                                   \
  }
SL__JOIN(SL__TILES_, LANES)
(DEFINE)
#define ENTRY(k, v) [v][k] = NAMED(k, v),
    static run_tile *const SL__JOIN(tiles_, LANES)[SL__TILE_COLUMNS + 1][SL__TILE_ROWS + 1] = {
        SL__JOIN(SL__TILES_, LANES)(ENTRY)};

#undef ENTRY
#undef DEFINE
#undef NAMED
#undef WRITE
#undef MULTIPLY
#undef READ
#undef FROM
#undef BEGIN
