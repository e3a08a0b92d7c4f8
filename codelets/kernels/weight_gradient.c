#include "codelets/kernels/weight_gradient.h"

#include <string.h>

#include "codelets/kernels/skinny_gemm.h"
#include "codelets/kernels/tiles.h"
#include "core/base/half.h"

enum {
  COLUMNS = SL__SKINNY_GEMM_COLUMNS,
  GROUP = SL__SKINNY_GEMM_COLUMNS, /* samples that are packed together */
  SAMPLES = 1024,                  /* maximum of all terms, in whole groups */
  ROWS = 48,                       /* of a tile, whose sums stay in the first-level cache */
  PACKED = 160 << 10,              /* floats of x and dy that are packed at a time */
  BIASES = 256,                    /* whose gradients are summed together */
  FEW = 64                         /* rows whose sum is a float */
};

/* Samples of a term where they are packed: in whole groups. */
static int64_t padded(int64_t samples) { return (samples + GROUP - 1) / GROUP * GROUP; }

/* Floats from a row of the transposed dy to the next one: rows that are a multiple of 1 KB apart
 * would meet in a few sets of the first-level cache. */
static int64_t pitch_of(int64_t samples) {
  int64_t pitch = padded(samples);
  return pitch % (4 * GROUP) ? pitch : pitch + GROUP / 4;
}

bool sl__weight_gradient_fits(int64_t samples, int terms) {
  return samples > 0 && terms <= SL__WEIGHT_GRADIENT_TERMS && padded(samples) * terms <= SAMPLES;
}

/* dy's columns [row, row + rows) as rows. A group that is not full repeats its last sample, which
 * no product reads. */
static void transpose_dy(const struct sl__weight_gradient *g, const float *dy, int64_t row,
                         int64_t rows, int lanes, float *to) {
  for (int64_t k = 0; k < g->samples; k += GROUP) {
    const float *sample[GROUP];
    for (int64_t i = 0; i < GROUP; i++)
      sample[i] = dy + (k + i < g->samples ? k + i : g->samples - 1) * g->out + row;
    sl__skinny_gemm_transpose_block(sample, rows, to + k, pitch_of(g->samples), lanes);
  }
}

/* A tile of all terms: one chain of sums for each, added in their order. dy, x: a term's values lie
 * dy_each and x_each after those of the one before. */
static void run_tile(const struct sl__weight_gradient *g, const float *dy, int64_t dy_each,
                     const float *x, int64_t x_each, int lanes,
                     const struct sl__gradient_tile *tile, float *sum) {
  for (int t = 0; t < g->terms; t++)
    sl__skinny_gemm_add(tile->rows, dy + t * dy_each, pitch_of(g->samples), g->samples,
                        x + t * x_each, tile->columns, sum,
                        t ? SL__SKINNY_GEMM_ADD : SL__SKINNY_GEMM_WRITE, NULL, lanes);
}

/* Rows whose dy is transposed once for all columns of x; these are packed once for the rows, in
 * front of dy, which has the rest of `packed`. */
static void run_rows(const struct sl__weight_gradient *g, int64_t first, int64_t rows, int lanes,
                     sl__use_gradient_tile *use, void *data) {
  _Alignas(64) float packed[PACKED], sum[ROWS * COLUMNS];
  int64_t pitch = pitch_of(g->samples), dy_each = pitch * rows,
          x_each = padded(g->samples) * COLUMNS;
  float *x = packed, *dy = packed + g->terms * x_each;
  for (int t = 0; t < g->terms; t++)
    transpose_dy(g, g->term[t].dy, first, rows, lanes, dy + t * dy_each);
  for (int64_t column = 0; column < g->in; column += COLUMNS) {
    int columns = g->in - column < COLUMNS ? (int)(g->in - column) : COLUMNS;
    for (int t = 0; t < g->terms; t++)
      sl__skinny_gemm_pack_rows(g->term[t].x + column, g->in, columns, g->samples, x + t * x_each,
                                lanes);
    for (int64_t row = 0; row < rows; row += ROWS) {
      int now = rows - row < ROWS ? (int)(rows - row) : ROWS;
      const struct sl__gradient_tile tile = {first + row, column, now, columns, sum};
      run_tile(g, dy + row * pitch, dy_each, x, x_each, lanes, &tile, sum);
      use(&tile, data);
    }
  }
}

int64_t sl__weight_gradient_rows(int64_t samples, int terms) {
  int64_t columns = padded(samples) * terms * COLUMNS;
  return (PACKED - columns) / (pitch_of(samples) * terms) / ROWS * ROWS;
}

void sl__weight_gradient(const struct sl__weight_gradient *g, int64_t first, int64_t end,
                         sl__use_gradient_tile *use, void *data, int most_lanes) {
  int64_t most = sl__weight_gradient_rows(g->samples, g->terms);
  for (int64_t row = first; row < end; row += most)
    run_rows(g, row, end - row < most ? end - row : most, sl__lanes(most_lanes), use, data);
}

SL__SIMD void sl__add_bias(float *y, const float *bias, int64_t rows, int64_t count,
                           int64_t pitch) {
  for (int64_t n = 0; n < rows; n++)
    for (int64_t o = 0; o < count; o++) y[n * pitch + o] += bias[o];
}

/* Adds rows to the partial sums of at most BIASES columns. */
SL__INLINE void add_rows(int64_t rows, int64_t columns, const float *dy, int64_t pitch,
                         float *part) {
  for (int64_t n = 0; n < rows; n++)
    for (int64_t j = 0; j < columns; j++) part[j] += dy[n * pitch + j];
}

SL__INLINE void add_rows_bf16(int64_t rows, int64_t columns, const uint16_t *dy, int64_t pitch,
                              float *part) {
  for (int64_t n = 0; n < rows; n++)
    for (int64_t j = 0; j < columns; j++) part[j] += sl__bf16_value(dy[n * pitch + j]);
}

/* Partial sums of a few rows are added up in double precision: see codelets/kernels/sum.h. dy:
 * floats or bf16. */
SL__INLINE void bias_gradient(int64_t rows, int64_t columns, const void *dy, bool is_bf16,
                              int64_t pitch, bool more, float *to) {
  const float *floats = dy;
  const uint16_t *codes = dy;
  for (int64_t at = 0; at < columns; at += BIASES) {
    double sum[BIASES] = {0};
    int64_t count = columns - at < BIASES ? columns - at : BIASES;
    for (int64_t n = 0; n < rows; n += FEW) {
      float part[BIASES] = {0};
      int64_t now = rows - n < FEW ? rows - n : FEW;
      if (is_bf16)
        add_rows_bf16(now, count, codes + n * pitch + at, pitch, part);
      else
        add_rows(now, count, floats + n * pitch + at, pitch, part);
      for (int64_t j = 0; j < count; j++) sum[j] += (double)part[j];
    }
    for (int64_t j = 0; j < count; j++) to[at + j] = (more ? to[at + j] : 0) + (float)sum[j];
  }
}

SL__SIMD void sl__bias_gradient(int64_t rows, int64_t columns, const float *dy, int64_t pitch,
                                bool more, float *to) {
  bias_gradient(rows, columns, dy, false, pitch, more, to);
}

SL__SIMD void sl__bias_gradient_bf16(int64_t rows, int64_t columns, const uint16_t *dy, bool more,
                                     float *to) {
  bias_gradient(rows, columns, dy, true, columns, more, to);
}
