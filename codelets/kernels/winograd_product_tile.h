/* The inner loops of codelets/kernels/winograd_product.h for vectors of LANES floats: tiles_LANES,
 * by numbers of vectors and rows. */

#define BEGIN(k, v) VEC sum##k##v = {0};
#define READ(v)                                                                                    \
  VEC window##v = {0};                                                                             \
  if (v < vectors) window##v = *(const LOOSE *)(window + v * p->next + c * p->run);
#define MULTIPLY(k, v)                                                                             \
  if (k < rows && v < vectors) sum##k##v += weight[k * p->channels + c] * window##v;
#define WRITE(k, v)                                                                                \
  if (k < rows && v < vectors) *(VEC *)(to + k * p->sums_row + v * LANES) = sum##k##v;

SL__INLINE void SL__JOIN(tile_, LANES)(const struct product *p, const int rows, const int vectors,
                                       const float *weight, const float *window, float *to) {
  SL__TILE_ALL(BEGIN)
  for (int64_t c = 0; c < p->channels; c++) {
    SL__TILE_EACH_COLUMN(READ)
    SL__TILE_ALL(MULTIPLY)
  }
  SL__TILE_ALL(WRITE)
}

#define NAMED(k, v) SL__JOIN(SL__JOIN(SL__JOIN(tile_, LANES), _##k), _##v)
#define DEFINE(k, v)                                                                               \
  static SL__JOIN(SL__TARGET_, LANES) __attribute__((noinline)) void NAMED(k, v)(                  \
      const struct product *p, const float *weight, const float *window, float *to) {              \
    SL__JOIN(tile_, LANES)(p, k, v, weight, window, to);                                           \
  }
SL__JOIN(SL__TILES_OF_TWO_, LANES)
(DEFINE)
#define ENTRY(k, v) [v][k] = NAMED(k, v),
    static run_tile *const
    SL__JOIN(tiles_, LANES)[][SL__TILE_ROWS + 1] = {SL__JOIN(SL__TILES_OF_TWO_, LANES)(ENTRY)};

#undef ENTRY
#undef DEFINE
#undef NAMED
#undef WRITE
#undef MULTIPLY
#undef READ
#undef BEGIN
