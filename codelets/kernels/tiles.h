/* Tiles: sums of a small matrix of constant size that stay in registers while they grow. A kernel
 * with tiles is written once for vectors of LANES floats in a file NAME_tile.h, which
 * codelets/kernels/simd_variants.h includes once a width. Sums have names, not indices, because the
 * compiler would keep an array in memory. Each size is a function of its own, because one function
 * of all sizes has too much for the compiler's register allocation. */
#ifndef SL_CODELETS_KERNELS_TILES_H
#define SL_CODELETS_KERNELS_TILES_H

#include <stdint.h>

#include "core/base/simd.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12 &&           \
    !defined(SL_SANITIZE)
#define SL__WIDTHS 1 /* 8 and 16 floats, besides 4 */
#define SL__TARGET_4
#define SL__TARGET_8 __attribute__((target("arch=x86-64-v3")))
#define SL__TARGET_16 __attribute__((target("arch=x86-64-v4")))
#else
#define SL__TARGET_4
#endif

/* The first multiple of 64 bytes in memory: the beginning of a cache line. */
static inline float *sl__line_begin(void *memory) {
  return (float *)(((uintptr_t)memory + 63) & ~(uintptr_t)63);
}

enum { SL__TILE_ROWS = 8, SL__TILE_COLUMNS = 5 }; /* maximum */

/* The sizes (rows, columns) whose sums, factors and one more factor fit into 16 registers, and into
 * 32; and those of up to two columns. */
#define SL__TILES_OF_TWO_4(use)                                                                    \
  use(1, 1) use(2, 1) use(3, 1) use(4, 1) use(5, 1) use(6, 1) use(7, 1) use(8, 1) use(1, 2)        \
      use(2, 2) use(3, 2) use(4, 2) use(5, 2) use(6, 2)
#define SL__TILES_OF_TWO_8 SL__TILES_OF_TWO_4
#define SL__TILES_OF_TWO_16(use) SL__TILES_OF_TWO_4(use) use(7, 2) use(8, 2)
#define SL__TILES_4(use)                                                                           \
  SL__TILES_OF_TWO_4(use)                                                                          \
  use(1, 3) use(2, 3) use(3, 3) use(4, 3) use(1, 4) use(2, 4) use(3, 4) use(1, 5) use(2, 5)
#define SL__TILES_8 SL__TILES_4
#define SL__TILES_16(use)                                                                          \
  SL__TILES_4(use)                                                                                 \
  use(7, 2) use(8, 2) use(5, 3) use(6, 3) use(7, 3) use(8, 3) use(4, 4) use(5, 4) use(6, 4)        \
      use(3, 5) use(4, 5) use(5, 5)

/* use(lane, s) of all lanes, as a list. */
#define SL__LANES_4(s, use) use(0, s), use(1, s), use(2, s), use(3, s)
#define SL__LANES_8(s, use) SL__LANES_4(s, use), use(4, s), use(5, s), use(6, s), use(7, s)
#define SL__LANES_16(s, use)                                                                       \
  SL__LANES_8(s, use), use(8, s), use(9, s), use(10, s), use(11, s), use(12, s), use(13, s),       \
      use(14, s), use(15, s)

/* use(row, column) of all sums, use(column), use(row): comparisons with constants drop those beyond
 * a tile's size. */
#define SL__TILE_ROW(use, k) use(k, 0) use(k, 1) use(k, 2) use(k, 3) use(k, 4)
#define SL__TILE_COLUMN(use, v)                                                                    \
  use(0, v) use(1, v) use(2, v) use(3, v) use(4, v) use(5, v) use(6, v) use(7, v)
#define SL__TILE_ALL(use)                                                                          \
  SL__TILE_ROW(use, 0)                                                                             \
  SL__TILE_ROW(use, 1)                                                                             \
  SL__TILE_ROW(use, 2)                                                                             \
  SL__TILE_ROW(use, 3)                                                                             \
  SL__TILE_ROW(use, 4) SL__TILE_ROW(use, 5) SL__TILE_ROW(use, 6) SL__TILE_ROW(use, 7)
#define SL__TILE_EACH_COLUMN(use) use(0) use(1) use(2) use(3) use(4)
#define SL__TILE_EACH_ROW(use) SL__TILE_EACH_COLUMN(use) use(5) use(6) use(7)

#define SL__JOIN_(a, b) a##b
#define SL__JOIN(a, b) SL__JOIN_(a, b)

/* Vectors of floats: aligned, at any address, and of the floats' bits. */
#define SL__VECTORS(lanes)                                                                         \
  typedef float sl__vec##lanes __attribute__((vector_size(lanes * 4)));                            \
  typedef float sl__loose##lanes __attribute__((vector_size(lanes * 4), aligned(4), may_alias));   \
  typedef int32_t sl__bits##lanes __attribute__((vector_size(lanes * 4)));
SL__VECTORS(4)
SL__VECTORS(8)
SL__VECTORS(16)

/* The tables tiles_LANES that a file NAME_tile.h defines, for this width. */
#ifdef SL__WIDTHS
#define SL__TILES_OF(lanes) ((lanes) == 16 ? tiles_16 : (lanes) == 8 ? tiles_8 : tiles_4)
#else
#define SL__TILES_OF(lanes) ((void)(lanes), tiles_4)
#endif

/* Floats of whole cache lines. */
static inline int64_t sl__whole_lines(int64_t floats) { return (floats + 15) / 16 * 16; }

/* Keeps the compiler from reading a vector from memory again for each of its uses. */
#ifdef SL__WIDTHS
#define SL__IN_REGISTER(vector) __asm__("" : "+v"(vector))
#else
#define SL__IN_REGISTER(vector) (void)(vector)
#endif

/* Returns the floats of this processor's widest vector, at most `most` (0 for any; tests try all).
 */
static inline int sl__lanes(int most) {
#ifdef SL__WIDTHS
  if (!most || most > SL__MOST_LANES) most = SL__MOST_LANES;
  if (most >= 16 && __builtin_cpu_supports("x86-64-v4")) return 16;
  if (most >= 8 && __builtin_cpu_supports("x86-64-v3")) return 8;
#endif
  (void)most;
  return 4;
}

/* The floats of the narrowest vector that holds `values` values, or of the widest. */
static inline int sl__lanes_for(int64_t values, int widest) {
  while (widest > 4 && values <= widest / 2) widest /= 2;
  return widest;
}

/* As sl__lanes, of a vector that at least 4 values fill. */
static inline int sl__lanes_of(int64_t values, int most) {
  int lanes = sl__lanes(most);
  while (lanes > values) lanes /= 2;
  return lanes;
}

#endif
