/* Includes SL_TILE_FILE once for each width of vectors that this build has, as LANES (see
 * codelets/tiles.h). No guard: each kernel with such a file includes it. */
#define LANES 4
#include SL_TILE_FILE
#undef LANES
#ifdef SL_WIDTHS
#define LANES 8
#include SL_TILE_FILE
#undef LANES
#define LANES 16
#include SL_TILE_FILE
#undef LANES
#endif
#undef SL_TILE_FILE
