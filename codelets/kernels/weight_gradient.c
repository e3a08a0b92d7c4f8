#include "codelets/kernels/weight_gradient.h"

#include <string.h>

#include "codelets/kernels/skinny_gemm.h"
#include "codelets/kernels/tiles.h"
#include "core/base/half.h"

enum {
  COLUMNS = SL__SKINNY_GEMM_COLUMNS,
  GROUP = SL__SKINNY_GEMM_COLUMNS, /* samples that are packed together */
  GROUPS = 4,                      /* maximum of all terms */
  ROWS = 48,                       /* of a tile */
  PACKED = 24 << 10                /* floats of dy that are packed for all columns */
};

static int64_t groups_of(int64_t samples) { return (samples + GROUP - 1) / GROUP; }

bool sl__weight_gradient_fits(int64_t samples, int terms) {
  return samples > 0 && terms <= SL__WEIGHT_GRADIENT_TERMS && groups_of(samples) * terms <= GROUPS;
}

/* dy's columns [row, row + rows) as rows. Samples are in segments of `segment` each: the pitch of
 * the rows. A group that is not full repeats its last sample, which no product reads. */
static void pack_dy(const struct sl__weight_gradient *g, const float *dy, int64_t row, int rows,
                    int lanes, float *to) {
  for (int64_t k = 0; k < g->samples; k += GROUP) {
    const float *sample[GROUP];
    for (int64_t i = 0; i < GROUP; i++)
      sample[i] = dy + (k + i < g->samples ? k + i : g->samples - 1) * g->out + row;
    sl__skinny_gemm_pack(sample, GROUP, rows, to + k * rows, lanes);
  }
}

SL__SIMD static void add(const float *x, float *y, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] += x[i];
}

/* The columns of x that a tile needs, in panels of a segment of samples. */
static void pack_columns(const struct sl__weight_gradient *g, const float *x, int columns,
                         int lanes, float *to) {
  int segment = 4 * lanes, whole = (columns + lanes - 1) / lanes * lanes;
  for (int64_t k = 0; k < g->samples; k += segment, to += segment * whole) {
    int64_t count = g->samples - k < segment ? g->samples - k : segment;
    sl__skinny_gemm_pack_rows(x + k * g->in, g->in, columns, count, to, lanes);
  }
}

/* to [rows, COLUMNS] (+)= a term's tile; with `more` samples are those of one segment. */
static void run_term(int64_t samples, const float *x, const float *dy, int64_t pitch, int rows,
                     int columns, int lanes, bool more, float *to) {
  int segment = 4 * lanes, whole = (columns + lanes - 1) / lanes * lanes;
  for (int64_t k = 0; k < samples; k += segment, x += segment * whole) {
    int64_t count = samples - k < segment ? samples - k : segment;
    enum sl__skinny_gemm_start start = more ? SL__SKINNY_GEMM_ADD
                                       : k  ? SL__SKINNY_GEMM_CONTINUE
                                            : SL__SKINNY_GEMM_WRITE;
    sl__skinny_gemm_add(rows, dy + k * pitch, segment, count, x, columns, to, start, NULL, lanes);
  }
}

static void run_tile(const struct sl__weight_gradient *g, const float *x, const float *dy,
                     int64_t packed_rows, int lanes, const struct sl__gradient_tile *tile,
                     float *sum) {
  _Alignas(64) float next[ROWS * COLUMNS];
  int64_t x_each = groups_of(g->samples) * GROUP * COLUMNS,
          dy_each = groups_of(g->samples) * GROUP * packed_rows;
  bool is_one = g->samples <= 4 * lanes;
  for (int t = 0; t < g->terms; t++) {
    run_term(g->samples, x + t * x_each, dy + t * dy_each, packed_rows, tile->rows, tile->columns,
             lanes, t && is_one, t && !is_one ? next : sum);
    if (t && !is_one) add(next, sum, tile->rows * COLUMNS);
  }
}

/* Rows whose dy is packed: the columns of x are packed once for all of them. */
static void run_rows(const struct sl__weight_gradient *g, int64_t first, int64_t rows, int lanes,
                     sl__use_gradient_tile *use, void *data) {
  _Alignas(64) float dy[PACKED], x[GROUPS * GROUP * COLUMNS], sum[ROWS * COLUMNS];
  int64_t samples = groups_of(g->samples) * GROUP;
  for (int t = 0; t < g->terms; t++)
    pack_dy(g, g->term[t].dy, first, (int)rows, lanes, dy + t * samples * rows);
  for (int64_t column = 0; column < g->in; column += COLUMNS) {
    int columns = g->in - column < COLUMNS ? (int)(g->in - column) : COLUMNS;
    for (int t = 0; t < g->terms; t++)
      pack_columns(g, g->term[t].x + column, columns, lanes, x + t * samples * COLUMNS);
    for (int64_t row = 0; row < rows; row += ROWS) {
      int now = rows - row < ROWS ? (int)(rows - row) : ROWS;
      const struct sl__gradient_tile tile = {first + row, column, now, columns, sum};
      run_tile(g, x, dy + row * 4 * lanes, rows, lanes, &tile, sum);
      use(&tile, data);
    }
  }
}

void sl__weight_gradient(const struct sl__weight_gradient *g, int64_t first, int64_t end,
                         sl__use_gradient_tile *use, void *data, int most_lanes) {
  int64_t most = PACKED / (groups_of(g->samples) * GROUP * g->terms) / ROWS * ROWS;
  for (int64_t row = first; row < end; row += most)
    run_rows(g, row, end - row < most ? end - row : most, sl__lanes(most_lanes), use, data);
}

SL__SIMD void sl__add_bias(float *y, const float *bias, int64_t rows, int64_t count,
                           int64_t pitch) {
  for (int64_t n = 0; n < rows; n++)
    for (int64_t o = 0; o < count; o++) y[n * pitch + o] += bias[o];
}

SL__SIMD void sl__bias_gradient(int64_t rows, int64_t out, const float *dy, int64_t first,
                                int64_t count, bool more, float *to) {
  for (int64_t o = 0; o < count && !more; o++) to[o] = 0;
  for (int64_t n = 0; n < rows; n++)
    for (int64_t o = 0; o < count; o++) to[o] += dy[n * out + first + o];
}

SL__SIMD void sl__bias_gradient_bf16(int64_t rows, int64_t out, const uint16_t *dy, bool more,
                                     float *to) {
  for (int64_t o = 0; o < out && !more; o++) to[o] = 0;
  for (int64_t n = 0; n < rows; n++)
    for (int64_t o = 0; o < out; o++) to[o] += sl__bf16_value(dy[n * out + o]);
}
