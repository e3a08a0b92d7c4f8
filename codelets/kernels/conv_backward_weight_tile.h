/* The inner loops of codelets/kernels/conv_backward_weight.c for vectors of LANES floats:
 * tiles_LANES has a function for each number of output channels (rows of a tile) and taps (its
 * columns). See codelets/kernels/tiles.h. */

/* The sum of a vector's values, fours first. */
SL__INLINE float SL__JOIN(total_, LANES)(const VEC *sum) {
  const sl__loose4 *part = (const sl__loose4 *)sum;
  sl__vec4 four = part[0];
  for (int i = 1; i < LANES / 4; i++) four += part[i];
  return (four[0] + four[2]) + (four[1] + four[3]);
}

#define BEGIN(k, t) VEC sum##k##t = {0};
#define FROM(t) const float *from##t = t < taps ? image + offset[t] : NULL;
#define READ(t)                                                                                    \
  VEC pixel##t = {0};                                                                              \
  if (t < taps) pixel##t = *(const LOOSE *)(from##t + at->offset);
#define READ_KEPT(t)                                                                               \
  READ(t)                                                                                          \
  if (t < taps) pixel##t = (VEC)((BITS)pixel##t & keep);
#define MULTIPLY(k, t)                                                                             \
  if (k < channels && t < taps) sum##k##t += slope * pixel##t;
/* The slopes of one channel at a time: more would need more registers. */
#define MULTIPLY_ROW(k)                                                                            \
  if (k < channels) {                                                                              \
    VEC slope = *(const LOOSE *)(dy + k * g->to_plane + at->to);                                   \
    SL__IN_REGISTER(slope);                                                                        \
    SL__TILE_ROW(MULTIPLY, k)                                                                      \
  }
#define MULTIPLY_KEPT(k)                                                                           \
  if (k < channels) {                                                                              \
    VEC slope = *(const LOOSE *)(dy + k * g->to_plane + at->to);                                   \
    slope = (VEC)((BITS)slope & keep);                                                             \
    SL__TILE_ROW(MULTIPLY, k)                                                                      \
  }
#define WRITE(k, t)                                                                                \
  if (k < channels && t < taps) to[k * g->taps + t] += SL__JOIN(total_, LANES)(&sum##k##t);

/* Adds the sums of `channels` channels by `taps` taps over some images to `to`; the two numbers are
 * constants in each call. */
SL__INLINE void SL__JOIN(tile_, LANES)(const struct group *group, const int channels,
                                       const int taps, const float *image, const int32_t *offset,
                                       const float *dy, float *to) {
  const struct sl__conv_frame *g = group->frame;
  SL__TILE_ALL(BEGIN)
  for (int32_t n = 0; n < group->images; n++, image += group->image, dy += group->slopes) {
    SL__TILE_EACH_COLUMN(FROM)
    const struct sl__frame_start *at = g->start, *end = g->start + g->starts - !!group->keep;
    for (; at < end; at++) {
      SL__TILE_EACH_COLUMN(READ)
      SL__TILE_EACH_ROW(MULTIPLY_ROW)
    }
    if (group->keep) {
      BITS keep;
      memcpy(&keep, group->keep, sizeof keep);
      SL__TILE_EACH_COLUMN(READ_KEPT)
      SL__TILE_EACH_ROW(MULTIPLY_KEPT)
    }
  }
  SL__TILE_ALL(WRITE)
}

#define NAMED(k, t) SL__JOIN(SL__JOIN(SL__JOIN(tile_, LANES), _##k), _##t)
#define DEFINE(k, t)                                                                               \
  static SL__JOIN(SL__TARGET_, LANES) __attribute__((noinline)) void NAMED(k, t)(                  \
      const struct group *group, const float *image, const int32_t *offset, const float *dy,       \
      float *to) {                                                                                 \
    SL__JOIN(tile_, LANES)(group, k, t, image, offset, dy, to);                                    \
  }
SL__JOIN(SL__TILES_, LANES)
(DEFINE)
#define ENTRY(k, t) [t][k] = NAMED(k, t),
    static run_tile *const SL__JOIN(tiles_, LANES)[SL__TILE_COLUMNS + 1][SL__TILE_ROWS + 1] = {
        SL__JOIN(SL__TILES_, LANES)(ENTRY)};

#undef ENTRY
#undef DEFINE
#undef NAMED
#undef WRITE
#undef MULTIPLY_KEPT
#undef MULTIPLY_ROW
#undef MULTIPLY
#undef READ_KEPT
#undef READ
#undef FROM
#undef BEGIN
