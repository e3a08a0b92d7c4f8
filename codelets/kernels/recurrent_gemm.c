#include "codelets/kernels/recurrent_gemm.h"

#include <unistd.h>

#include "codelets/kernels/tiles.h"
#include "core/base/simd.h"

/* Measured (bench/bench_recurrent): with AVX2 from this size of an LSTM's weights on; with AVX-512
 * on cores with at least this second-level cache. Where that cache holds the weights, and with
 * AVX2, a library is as fast for more rows than MOST_ROWS. Fewer steps do not repay the packing. */
enum { LEAST_BYTES = 4 << 20, LEAST_CACHE = 5 << 18, MOST_ROWS = 20, LEAST_STEPS = 8 };

enum { BLOCK = 512 }; /* maximum length of a sum's block */

bool sl__recurrent_gemm_pays(int64_t rows, int64_t steps, int64_t weights) {
  int lanes = sl__lanes(0);
  int64_t bytes = (int64_t)sizeof(float) * weights;
  if (rows > SL__RECURRENT_GEMM_ROWS || steps < LEAST_STEPS) return false;
  if (lanes == 8) return rows <= MOST_ROWS && bytes >= LEAST_BYTES;
  if (lanes != 16) return false;
  long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return cache >= LEAST_CACHE && (rows <= MOST_ROWS || bytes > cache);
}

/* Columns of each gate in a unit. */
static int64_t each_of(const struct sl__recurrent_gemm *g) {
  return SL__SKINNY_GEMM_COLUMNS / g->gates;
}

static int64_t columns_of(const struct sl__recurrent_gemm *g, int64_t unit) {
  int64_t left = g->columns - unit * each_of(g);
  return left < each_of(g) ? left : each_of(g);
}

/* Packed columns: a unit of several gates has all of them. */
static int width_of(const struct sl__recurrent_gemm *g, int64_t unit) {
  return g->gates > 1 ? SL__SKINNY_GEMM_COLUMNS : (int)columns_of(g, unit);
}

static int64_t unit_floats(const struct sl__recurrent_gemm *g) {
  return SL__SKINNY_GEMM_COLUMNS * g->length;
}

/* A long sum is that of several blocks, one after the other. With its rows of x, a block stays in
 * the caches for all rows. */
static int64_t blocks_of(const struct sl__recurrent_gemm *g) {
  return (g->length + BLOCK - 1) / BLOCK;
}
static int64_t block_begin(const struct sl__recurrent_gemm *g, int64_t block) {
  return g->length * block / blocks_of(g);
}
static int64_t block_length(const struct sl__recurrent_gemm *g, int64_t block) {
  return block_begin(g, block + 1) - block_begin(g, block);
}

/* A unit that has fewer columns repeats its last one. */
static void pack_unit(const struct sl__recurrent_gemm *g, const float *weight, int64_t unit,
                      float *to, int most_lanes) {
  const float *column[SL__SKINNY_GEMM_COLUMNS];
  int64_t each = each_of(g), last = unit * each + columns_of(g, unit) - 1;
  for (int64_t b = 0; b < blocks_of(g); b++) {
    for (int64_t i = 0; i < SL__SKINNY_GEMM_COLUMNS; i++) {
      int64_t j = unit * each + i % each;
      column[i] =
          weight + (i / each * g->columns + (j < last ? j : last)) * g->length + block_begin(g, b);
    }
    sl__skinny_gemm_pack(column, width_of(g, unit), block_length(g, b),
                         to + SL__SKINNY_GEMM_COLUMNS * block_begin(g, b), most_lanes);
  }
}

static void pack_unit_plain(const struct sl__recurrent_gemm *g, const float *matrix, int64_t unit,
                            float *to, int most_lanes) {
  matrix += unit * SL__SKINNY_GEMM_COLUMNS;
  for (int64_t b = 0; b < blocks_of(g); b++)
    sl__skinny_gemm_pack_rows(matrix + block_begin(g, b) * g->columns, g->columns,
                              width_of(g, unit), block_length(g, b),
                              to + SL__SKINNY_GEMM_COLUMNS * block_begin(g, b), most_lanes);
}

void sl__recurrent_gemm_pack(const struct sl__recurrent_gemm *g, const float *weight,
                             struct sl__work_range units, float *to, int most_lanes) {
  for (int64_t unit = units.first; unit < units.end; unit++)
    pack_unit(g, weight, unit, to + unit * unit_floats(g), most_lanes);
}

void sl__recurrent_gemm_pack_plain(const struct sl__recurrent_gemm *g, const float *matrix,
                                   struct sl__work_range units, float *to, int most_lanes) {
  for (int64_t unit = units.first; unit < units.end; unit++)
    pack_unit_plain(g, matrix, unit, to + unit * unit_floats(g), most_lanes);
}

/* The unit that the k-th step takes as its i-th. */
static int64_t unit_at(struct sl__work_range units, int64_t k, int64_t i) {
  return k % 2 ? units.end - 1 - i : units.first + i;
}

/* For fewer rows a product of a tile takes so little time that prefetching disturbs it. */
enum { PREFETCH_ROWS = 5 };

/* A step's i-th block of all; NULL behind the last one. */
static const float *block_at(const struct sl__recurrent_gemm *g, const float *packed,
                             struct sl__work_range units, int64_t k, int64_t i) {
  int64_t at = i / blocks_of(g), begin = block_begin(g, i % blocks_of(g));
  if (at >= units.end - units.first) return NULL;
  return packed + unit_at(units, k, at) * unit_floats(g) + SL__SKINNY_GEMM_COLUMNS * begin;
}

SL__SIMD static void store(const struct sl__recurrent_gemm *g, int64_t unit, int64_t rows,
                           const float *sums, bool add, float *y, int64_t y_pitch) {
  int64_t each = each_of(g), count = columns_of(g, unit);
  for (int64_t n = 0; n < rows; n++, sums += SL__SKINNY_GEMM_COLUMNS)
    for (int64_t gate = 0; gate < g->gates; gate++) {
      float *restrict to = y + n * y_pitch + gate * g->columns + unit * each;
      const float *restrict from = sums + gate * each;
      for (int64_t j = 0; j < count; j++) to[j] = (add ? to[j] : 0) + from[j];
    }
}

void sl__recurrent_gemm_step(const struct sl__recurrent_gemm *g, const float *packed,
                             struct sl__work_range units, int64_t k, int64_t rows, const float *x,
                             int64_t x_pitch, bool add, float *y, int64_t y_pitch, int most_lanes) {
  float sums[SL__RECURRENT_GEMM_ROWS * SL__SKINNY_GEMM_COLUMNS];
  int64_t blocks = blocks_of(g), count = units.end - units.first;
  for (int64_t i = 0; i < count * blocks; i++) {
    int64_t b = i % blocks, unit = unit_at(units, k, i / blocks);
    const float *next = rows < PREFETCH_ROWS ? NULL : block_at(g, packed, units, k, i + 1);
    sl__skinny_gemm_add(rows, x + block_begin(g, b), x_pitch, block_length(g, b),
                        block_at(g, packed, units, k, i), width_of(g, unit), sums,
                        b ? SL__SKINNY_GEMM_CONTINUE : SL__SKINNY_GEMM_WRITE, next, most_lanes);
    if (b + 1 == blocks) store(g, unit, rows, sums, add, y, y_pitch);
  }
}
