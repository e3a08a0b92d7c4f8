/* The inner loops of codelets/kernels/winograd.c for tiles of 2x2 outputs and windows of 5x5 taps,
 * for vectors of LANES floats. codelets/kernels/winograd_tile.h includes it and defines its names.
 */

/* ---- the frame ---- */

/* The row of each of the windows' columns: every second value, from a row of the framed image. A
 * last vector that is longer than the row is overwritten by the next row. */
SL__INLINE void SL__JOIN(split_columns_, LANES)(const float *from, int32_t count, float *to,
                                                const int64_t plane) {
  for (int32_t j = 0; j < count; j += LANES, from += 2 * LANES)
    _Pragma("GCC unroll 6") for (int s = 0; s < 6; s++) * (LOOSE *)(to + s * plane + j) =
        __builtin_shufflevector(AT(from + s), AT(from + s + LANES), EACH(EVEN));
}

/* A channel's rows of tiles (first, end), and the two rows of each plane behind them. All rows are
 * copied before the first one is read: vectors that begin between two of the copies' would wait for
 * both. */
static SL__JOIN(SL__TARGET_, LANES)
    __attribute__((noinline)) void SL__JOIN(split5_, LANES)(const struct shape *g, const float *x,
                                                            int32_t first, int32_t end, float *to) {
  const int64_t plane = g->plane, image_row = g->image_row;
  const int32_t pitch = g->pitch, width = g->x_width, top = 2 * (first + 1), bottom = 2 * (end + 1);
  const int32_t below = bottom < g->x_height + g->pad_h ? bottom : g->x_height + g->pad_h;
  float *image = to + 12 * plane;
  for (int32_t i = top > g->pad_h ? top : g->pad_h; i < below; i++)
    sl__copy_row(image + i * image_row + g->pad_w, x + (i - g->pad_h) * (int64_t)width, width);
  for (int32_t i = top; i < bottom; i += 2) {
    float *at = to + i / 2 * (int64_t)pitch;
    SL__JOIN(split_columns_, LANES)(image + i * image_row, pitch, at, plane);
    SL__JOIN(split_columns_, LANES)(image + (i + 1) * image_row, pitch, at + 6 * plane, plane);
  }
}

/* ---- windows ---- */

/* The windows of some vectors of an image's tiles, in one channel. */
static SL__JOIN(SL__TARGET_, LANES)
    __attribute__((noinline)) void SL__JOIN(windows5_, LANES)(const struct shape *g,
                                                              const float *frame, int32_t first,
                                                              int32_t end, float *to) {
  const float *at = frame + first * LANES;
  for (int32_t v = first; v < end; v++, at += LANES, to += g->channels * LANES) {
    VEC t[36], d[6];
    _Pragma("GCC unroll 6") for (int s = 0; s < 6; s++) {
      _Pragma("GCC unroll 6") for (int r = 0; r < 6; r++) d[r] =
          AT(at + (r % 2 * 6 + s) * g->plane + r / 2 * (int64_t)g->pitch);
      SL__JOIN(window4_, LANES)(d, t + s, 6);
    }
    _Pragma("GCC unroll 6") for (int r = 0; r < 6; r++) {
      SL__JOIN(window4_, LANES)(t + 6 * r, d, 1);
      _Pragma("GCC unroll 6") for (int s = 0; s < 6; s++) * (VEC *)(to + (6 * r + s) * g->windows) =
          d[s];
    }
  }
}

/* ---- outputs ---- */

/* The outputs of some vectors of tiles from their sums; at: offsets of their halves. */
static SL__JOIN(SL__TARGET_, LANES)
    __attribute__((noinline)) void SL__JOIN(outputs5_, LANES)(const struct shape *g,
                                                              const float *sums, float bias,
                                                              int32_t vectors, const int32_t *at,
                                                              float *to) {
  for (int32_t v = 0; v < vectors; v++, sums += LANES, at += 2) {
    VEC t[12], m[6], out[2][2];
    _Pragma("GCC unroll 6") for (int s = 0; s < 6; s++) {
      _Pragma("GCC unroll 6") for (int r = 0; r < 6; r++) m[r] =
          *(const VEC *)(sums + (6 * r + s) * g->sums);
      SL__JOIN(after_, LANES)(TWO_BY_FIVE, m, t + s, 6);
    }
    _Pragma("GCC unroll 2") for (int r = 0; r < 2; r++) {
      SL__JOIN(after_, LANES)(TWO_BY_FIVE, t + 6 * r, out[r], 1);
      _Pragma("GCC unroll 2") for (int s = 0; s < 2; s++) out[r][s] += bias;
    }
    SL__JOIN(write_tiles_, LANES)(g, out, at, to);
  }
}
