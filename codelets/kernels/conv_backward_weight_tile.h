/* The inner loops of codelets/kernels/conv_backward_weight.c for vectors of LANES floats:
 * tiles_LANES has a function for each number of output channels (rows of a tile) and taps (its
 * columns). See codelets/kernels/tiles.h. */

/* FOLD adds halves of blocks of `b` floats: each block of x, then that of y, becomes half as long.
 */
#define EACH(b, use) SL__JOIN(SL__LANES_, LANES)(b, use)
#define LOW(i, b) ((i) / (b) * (b) + (i) % ((b) / 2) + ((i) % (b) >= (b) / 2) * LANES)
#define HIGH(i, b) (LOW(i, b) + (b) / 2)
#define FOLD(x, y, b)                                                                              \
  (__builtin_shufflevector(x, y, EACH(b, LOW)) + __builtin_shufflevector(x, y, EACH(b, HIGH)))

/* Adds the sum of each vector's values to `to`: 8 vectors of 16 floats, 4 of fewer. */
SL__INLINE void SL__JOIN(add_totals_, LANES)(const VEC *s, float *to) {
#if LANES == 16
  VEC p0 = FOLD(s[0], s[4], 16), p1 = FOLD(s[1], s[5], 16);
  VEC p2 = FOLD(s[2], s[6], 16), p3 = FOLD(s[3], s[7], 16);
  VEC q0 = FOLD(p0, p2, 8), q1 = FOLD(p1, p3, 8), r = FOLD(q0, q1, 4);
  sl__vec8 even = __builtin_shufflevector(r, r, 0, 2, 4, 6, 8, 10, 12, 14);
  sl__vec8 odd = __builtin_shufflevector(r, r, 1, 3, 5, 7, 9, 11, 13, 15);
  *(sl__loose8 *)to += even + odd;
#else
  VEC p0 = FOLD(s[0], s[2], LANES), p1 = FOLD(s[1], s[3], LANES), r = FOLD(p0, p1, LANES / 2);
#if LANES == 8
  sl__vec4 even = __builtin_shufflevector(r, r, 0, 2, 4, 6);
  sl__vec4 odd = __builtin_shufflevector(r, r, 1, 3, 5, 7);
  *(sl__loose4 *)to += even + odd;
#else
  *(sl__loose4 *)to += r;
#endif
#endif
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
#define WRITE(t)                                                                                   \
  if (t < taps) {                                                                                  \
    const VEC sums[] = {sum0##t, sum1##t, sum2##t, sum3##t, sum4##t, sum5##t, sum6##t, sum7##t};   \
    SL__JOIN(add_totals_, LANES)(sums, to + t * group->pitch);                                     \
  }

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
  SL__TILE_EACH_COLUMN(WRITE)
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
#undef FOLD
#undef HIGH
#undef LOW
#undef EACH
