/* The inner loops of codelets/direct.c for vectors of LANES floats: tiles_LANES has a function for
 * each number of vectors and channels, of which TILES are those whose sums fit into the registers
 * of TARGET. Included once a width. */
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define VEC JOIN(sl__vec, LANES)
#define LOOSE JOIN(sl__loose, LANES)

typedef float VEC __attribute__((vector_size(LANES * 4)));
typedef float LOOSE __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

/* Sums have names, not numbers, lest the compiler keep them in memory. */
#define ROW(use, k) use(k, 0) use(k, 1) use(k, 2) use(k, 3) use(k, 4)
#define ALL(use)                                                                                   \
  ROW(use, 0) ROW(use, 1) ROW(use, 2) ROW(use, 3) ROW(use, 4) ROW(use, 5) ROW(use, 6) ROW(use, 7)
#define ONCE(use) use(0) use(1) use(2) use(3) use(4)
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
SL_INLINE void JOIN(tile_, LANES)(const struct shape *g, const int channels, const int vectors,
                                  const float *image, const struct start *at, const float *weight,
                                  const float *bias, float *y) {
  ALL(BEGIN)
  ONCE(FROM)
  for (int64_t t = 0; t < g->taps; t++) {
    ONCE(READ)
    ALL(MULTIPLY)
  }
  ALL(WRITE)
}

#undef WRITE
#undef MULTIPLY
#undef READ
#undef FROM
#undef BEGIN
#undef ONCE
#undef ALL
#undef ROW

/* A function each: one of all of them is too much for the compiler's registers. */
#define NAMED(k, v) JOIN(JOIN(JOIN(tile_, LANES), _##k), _##v)
#define DEFINE(k, v)                                                                               \
  static TARGET __attribute__((noinline)) void NAMED(k, v)(                                        \
      const struct shape *g, const float *image, const struct start *at, const float *weight,      \
      const float *bias, float *y) {                                                               \
    JOIN(tile_, LANES)(g, k, v, image, at, weight, bias, y);                                       \
  }
TILES(DEFINE)
#define ENTRY(k, v) [v][k] = NAMED(k, v),
static run_tile *const JOIN(tiles_, LANES)[VECTORS + 1][CHANNELS + 1] = {TILES(ENTRY)};

#undef ENTRY
#undef DEFINE
#undef NAMED
#undef LOOSE
#undef VEC
#undef JOIN
#undef JOIN_
