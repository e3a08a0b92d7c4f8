/* Includes SL__TILE_FILE once for each vector width of this build: LANES, and the types VEC, LOOSE
 * and BITS of that width (see codelets/kernels/tiles.h). No include guard: each kernel with such a
 * file includes this one. */
#define VEC SL__JOIN(sl__vec, LANES)
#define LOOSE SL__JOIN(sl__loose, LANES)
#define BITS SL__JOIN(sl__bits, LANES)
#define LANES 4
#include SL__TILE_FILE
#undef LANES
#ifdef SL__WIDTHS
#define LANES 8
#include SL__TILE_FILE
#undef LANES
#define LANES 16
#include SL__TILE_FILE
#undef LANES
#endif
#undef BITS
#undef LOOSE
#undef VEC
#undef SL__TILE_FILE
