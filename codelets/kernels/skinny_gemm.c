#include "codelets/kernels/skinny_gemm.h"

#include <string.h>

#include "codelets/kernels/cache_prefetch.h"
#include "codelets/kernels/tiles.h"

/* The values with which a tile's sums begin, rows `pitch` apart (0: all rows begin with the same
 * ones), or NULL: with 0. adds: the old values are added to the sums in the end. */
struct begin {
  const float *from;
  int64_t pitch;
  bool adds;
};

/* to [rows of a tile, its columns] = what `begin` says + x panel */
typedef void run_tile(const float *x, int64_t x_pitch, const float *panel, int64_t count, float *to,
                      int64_t pitch, struct begin begin, const float *ahead, int64_t step);
typedef void pack_panel(const float *const *row, int vectors, int64_t count, float *to,
                        int64_t pitch);
typedef void run_dots(const float *const *row, const float *x, int64_t length, float *to);

enum {
  VECTORS = 4,             /* rows of a panel: a block has one panel or more */
  LENGTH = 1024,           /* maximum rows of a panel, see panel_length */
  ROWS = 384,              /* of x by which a panel is multiplied, maximum */
  MOST_AHEAD = 32,         /* floats that a product of a tile prefetches, at most: two lines */
  SL__SKINNY_GEMM_DOTS = 8 /* columns at a time */
};
#define SL__SKINNY_GEMM_EACH(use) use(0) use(1) use(2) use(3) use(4) use(5) use(6) use(7)

#define SL__TILE_FILE "codelets/kernels/skinny_gemm_tile.h"
#include "codelets/kernels/simd_variants.h"

struct width {
  int lanes;
  run_tile *const (*tiles)[SL__TILE_ROWS + 1];
  pack_panel *pack;
  run_dots *dots_many, *dots_one;
};

/* With its rows of x a panel stays in the first-level cache; panels of AVX-512 come from the second
 * one as fast, and fewer of them read and write y less often, measured. */
static int64_t panel_length(int lanes) { return lanes == 16 ? LENGTH : 112; }

static struct width width_of(int lanes) {
#ifdef SL__WIDTHS
  if (lanes == 16) return (struct width){16, tiles_16, pack_16, dots_many_16, dots_one_16};
  if (lanes == 8) return (struct width){8, tiles_8, pack_8, dots_many_8, dots_one_8};
#endif
  return (struct width){lanes, tiles_4, pack_4, dots_many_4, dots_one_4};
}

/* The memory that the next panel needs, prefetched during the last panel: W from `weight` on,
 * `step` floats a product of a tile, and as many columns of y. */
struct ahead {
  const float *weight;
  int64_t step;
  float *y;
};

static int most_rows(run_tile *const *tiles) {
  int most = SL__TILE_ROWS;
  while (!tiles[most]) most--;
  return most;
}

/* The next `more` columns: their floats are prefetched in equal steps of at most a cache line. */
static struct ahead next_panel(run_tile *const *tiles, int64_t rows, int columns, int64_t length,
                               const float *weight, int64_t more, float *y) {
  int most = most_rows(tiles);
  int64_t step = more / ((rows + most - 1) / most);
  return (struct ahead){weight + columns * length, step < 16 ? step : 16, y + columns};
}

/* All rows by a panel, in groups of nearly equal size that fit into registers. */
static void run_rows(run_tile *const *tiles, int64_t rows, const float *x, int64_t x_pitch,
                     const float *panel, int64_t count, float *to, int64_t pitch,
                     struct begin begin, struct ahead *ahead) {
  int most = most_rows(tiles);
  int64_t times = (rows + most - 1) / most;
  for (int64_t i = 0; i < times; i++) {
    int64_t r = rows * i / times, next = rows * (i + 1) / times;
    if (ahead->y)
      for (int64_t n = r; n < next; n++)
        sl__prefetch_for_write(ahead->y + n * pitch, SL__SKINNY_GEMM_COLUMNS);
    tiles[next - r](x + r * x_pitch, x_pitch, panel, count, to + r * pitch, pitch, begin,
                    ahead->weight, ahead->step);
    ahead->weight += ahead->step * count;
    if (begin.from) begin.from += (next - r) * begin.pitch;
  }
}

/* The last vector has columns beyond y: it goes through a tile of its own. */
static void run_rows_apart(run_tile *const *tiles, int64_t rows, const float *x, int64_t x_pitch,
                           const float *panel, int64_t count, float *to, int64_t pitch,
                           struct begin begin, int columns) {
  float apart[SL__TILE_ROWS][SL__SKINNY_GEMM_COLUMNS] = {{0}};
  const struct begin own = {begin.from ? apart[0] : NULL, SL__SKINNY_GEMM_COLUMNS, false};
  int most = most_rows(tiles);
  for (int64_t r = 0; r < rows; r += most) {
    int64_t now = rows - r < most ? rows - r : most;
    for (int64_t i = 0; i < now && begin.from; i++)
      memcpy(apart[i], begin.from + (r + i) * begin.pitch, (size_t)columns * sizeof *to);
    tiles[now](x + r * x_pitch, x_pitch, panel, count, apart[0], SL__SKINNY_GEMM_COLUMNS, own,
               panel, 0);
    for (int64_t i = 0; i < now; i++)
      memcpy(to + (r + i) * pitch, apart[i], (size_t)columns * sizeof *to);
  }
}

/* W's values [k, k + count) of `columns` columns; the last vector has fewer. */
static void turn(const struct width *w, int columns, int64_t length, const float *weight, int64_t k,
                 int64_t count, float *panel) {
  const float *row[SL__SKINNY_GEMM_COLUMNS];
  int vectors = (columns + w->lanes - 1) / w->lanes;
  for (int c = 0; c < vectors * w->lanes; c++)
    row[c] = weight + (c < columns ? c : columns - 1) * length + k;
  w->pack(row, vectors, count, panel, (int64_t)vectors * w->lanes);
}

/* Rows of a matrix, `pitch` apart; the last vector has fewer columns. */
SL__SIMD static void copy_rows(int lanes, int columns, int64_t pitch, const float *from,
                               int64_t count, float *panel) {
  int width = (columns + lanes - 1) / lanes * lanes;
  for (int64_t i = 0; i < count; i++, from += pitch, panel += width) {
    if (columns == SL__SKINNY_GEMM_COLUMNS) { /* the compiler unrolls it */
      for (int j = 0; j < SL__SKINNY_GEMM_COLUMNS; j++) panel[j] = from[j];
      continue;
    }
    for (int j = 0; j < columns; j++) panel[j] = from[j];
    for (int j = columns; j < width; j++) panel[j] = 0;
  }
}

/* All rows by a panel of at most a panel's columns. */
static void run_columns(const struct width *w, int64_t rows, const float *x, int64_t x_pitch,
                        const float *panel, int64_t count, float *y, int64_t y_pitch,
                        struct begin begin, int columns, struct ahead *ahead) {
  run_tile *const *tiles = w->tiles[(columns + w->lanes - 1) / w->lanes];
  if (columns % w->lanes)
    run_rows_apart(tiles, rows, x, x_pitch, panel, count, y, y_pitch, begin, columns);
  else
    run_rows(tiles, rows, x, x_pitch, panel, count, y, y_pitch, begin, ahead);
}

/* Some columns of W^T, at most a panel's width, into y. is_transposed: as
 * sl__skinny_gemm_transpose wrote them. */
static void run_panel(const struct width *w, int64_t rows, int columns, int64_t length,
                      const float *x, const float *weight, bool is_transposed, int64_t more,
                      const float *bias, float *y, int64_t y_pitch) {
  _Alignas(64) float own[LENGTH * SL__SKINNY_GEMM_COLUMNS];
  int vectors = (columns + w->lanes - 1) / w->lanes;
  int64_t most = panel_length(w->lanes), times = (length + most - 1) / most;
  struct begin begin = {bias, 0, false};
  struct ahead ahead = {.weight = weight};
  if (more) ahead = next_panel(w->tiles[vectors], rows, columns, length, weight, more, y);
  for (int64_t i = 0; i < times; i++) {
    int64_t k = length * i / times, count = length * (i + 1) / times - k;
    if (!is_transposed) turn(w, columns, length, weight, k, count, own);
    run_columns(w, rows, x + k, length, is_transposed ? weight + k * vectors * w->lanes : own,
                count, y, y_pitch, begin, columns, &ahead);
    begin = (struct begin){y, y_pitch, false};
  }
}

/* The columns [first, last) of some rows. */
static void run_panels(const struct width *w, int64_t rows, int64_t length, const float *x,
                       const float *weight, bool is_transposed, const float *bias, float *y,
                       int64_t y_pitch, int64_t first, int64_t last) {
  for (int64_t c = first, now; c < last; c += now) {
    now = last - c < VECTORS * w->lanes ? last - c : VECTORS * w->lanes;
    run_panel(w, rows, (int)now, length, x, weight + c * length, is_transposed,
              last - c - now < now ? last - c - now : now, bias ? bias + c : NULL, y + c, y_pitch);
  }
}

/* y^T = bias + W x^T, x^T being one panel: x and y are transposed, not W, which is read where it
 * lies. Faster if the rows fill whole vectors of the panel and sums are long, measured; the next
 * rows of W must be prefetched. The sums, thus the bits, are those of run_panels. */
static bool transposing_x_pays(const struct width *w, int64_t rows, int64_t length) {
  const int64_t least = 400;
  return rows % w->lanes == 0 && rows <= VECTORS * w->lanes && length >= least && length <= LENGTH;
}

/* Whole blocks of columns, from `first` on. */
static void run_transposed(const struct width *w, int64_t rows, int64_t length, const float *x,
                           const float *weight, const float *bias, float *y, int64_t y_pitch,
                           int64_t first, int64_t last) {
  enum { BLOCK = SL__SKINNY_GEMM_COLUMNS };
  _Alignas(64) float panel[LENGTH * BLOCK], sum[BLOCK * BLOCK];
  run_tile *const *tiles = w->tiles[rows / w->lanes];
  const struct begin begin = {bias ? sum : NULL, BLOCK, false};
  const float *row[BLOCK];
  int most = most_rows(tiles);
  turn(w, (int)rows, length, x, 0, length, panel);
  for (int i = 0; i < BLOCK; i++) row[i] = sum + i * BLOCK;
  for (int64_t c = first; c < last; c += BLOCK) {
    bool is_last = c + BLOCK == last;
    struct ahead ahead = {weight + (c + most) * length, is_last ? 0 : most, NULL};
    for (int i = 0; i < BLOCK * BLOCK && bias; i++) sum[i] = bias[c + i / BLOCK];
    run_rows(tiles, BLOCK, weight + c * length, length, panel, length, sum, BLOCK, begin, &ahead);
    w->pack(row, BLOCK / w->lanes, rows, y + c, y_pitch);
  }
}

/* Many rows in blocks of equal size: x's rows of a block stay in the second-level cache. */
void sl__skinny_gemm_product(int64_t rows, int64_t columns, int64_t length, const float *x,
                             const float *weight, bool is_transposed, const float *bias, float *y,
                             int64_t y_pitch, int64_t first, int64_t end, int most_lanes) {
  const struct width w = width_of(sl__lanes(most_lanes));
  int64_t last = end * SL__SKINNY_GEMM_COLUMNS < columns ? end * SL__SKINNY_GEMM_COLUMNS : columns;
  int64_t begin = first * SL__SKINNY_GEMM_COLUMNS, blocks = (rows + ROWS - 1) / ROWS;
  int64_t whole = last / SL__SKINNY_GEMM_COLUMNS * SL__SKINNY_GEMM_COLUMNS;
  if (!is_transposed && whole > begin && transposing_x_pays(&w, rows, length)) {
    run_transposed(&w, rows, length, x, weight, bias, y, y_pitch, begin, whole);
    begin = whole;
  }
  for (int64_t i = 0; i < blocks && begin < last; i++) {
    int64_t r = rows * i / blocks, next = rows * (i + 1) / blocks;
    run_panels(&w, next - r, length, x + r * length, weight, is_transposed, bias, y + r * y_pitch,
               y_pitch, begin, last);
  }
}

bool sl__skinny_gemm_plain_pays(int64_t rows, int64_t columns) {
  const int64_t least = 128, lanes = 16; /* measured, with vectors of 16 floats */
  return rows >= least && columns % lanes && sl__lanes(0) == lanes;
}

bool sl__skinny_gemm_pays(int64_t length) {
  const int64_t least = 200; /* measured, with vectors of 16 floats */
  return length >= least && sl__lanes(0) == 16;
}

/* A block of the matrix's rows by all columns, then the next block: x's factors of a block stay in
 * the second-level cache for all columns. */
void sl__skinny_gemm_plain(int64_t rows, int64_t columns, int64_t length, const float *x,
                           int64_t x_pitch, const float *matrix, bool add, float *y,
                           int most_lanes) {
  const struct width w = width_of(sl__lanes(most_lanes));
  _Alignas(64) float panel[LENGTH * SL__SKINNY_GEMM_COLUMNS];
  int64_t most = panel_length(w.lanes), blocks = (length + most - 1) / most;
  for (int64_t i = 0; i < blocks; i++) {
    int64_t k = length * i / blocks, count = length * (i + 1) / blocks - k;
    for (int64_t c = 0, now; c < columns; c += now) {
      now = columns - c < VECTORS * w.lanes ? columns - c : VECTORS * w.lanes;
      bool is_last = c + now == columns;
      struct ahead ahead = {panel, 0, is_last ? NULL : y + c + now};
      copy_rows(w.lanes, (int)now, columns, matrix + k * columns + c, count, panel);
      run_columns(&w, rows, x + k, x_pitch, panel, count, y + c, columns,
                  (struct begin){add || i ? y + c : NULL, columns, false}, (int)now, &ahead);
    }
  }
}

void sl__skinny_gemm_transpose(int64_t columns, int64_t length, const float *weight, float *to,
                               int most_lanes) {
  const struct width w = width_of(sl__lanes(most_lanes));
  int64_t panel = VECTORS * w.lanes;
  for (int64_t c = 0; c < columns; c += panel) {
    int64_t now = columns - c < panel ? columns - c : panel;
    turn(&w, (int)now, length, weight + c * length, 0, length, to + c * length);
  }
}

void sl__skinny_gemm_dots(int64_t length, const float *x, const float *weight, const float *bias,
                          float *y, int64_t first, int64_t end, int most_lanes) {
  const struct width w = width_of(sl__lanes(most_lanes));
  const float *row[SL__SKINNY_GEMM_DOTS];
  for (int64_t c = first, now; c < end; c += now) {
    now = end - c < SL__SKINNY_GEMM_DOTS ? 1 : SL__SKINNY_GEMM_DOTS;
    for (int64_t i = 0; i < now; i++) {
      row[i] = weight + (c + i) * length;
      y[c + i] = bias ? bias[c + i] : 0;
    }
    (now == 1 ? w.dots_one : w.dots_many)(row, x, length, y + c);
  }
}

/* Vectors of the panel that begins with column c. */
static int vectors_at(const struct width *w, int c, int columns) {
  int vectors = (columns - c + w->lanes - 1) / w->lanes;
  return vectors < VECTORS ? vectors : VECTORS;
}

void sl__skinny_gemm_pack(const float *const column[SL__SKINNY_GEMM_COLUMNS], int columns,
                          int64_t length, float *to, int most_lanes) {
  const struct width w = width_of(sl__lanes(most_lanes));
  for (int c = 0; c < columns; c += VECTORS * w.lanes) {
    int vectors = vectors_at(&w, c, columns);
    w.pack(column + c, vectors, length, to + c * length, (int64_t)vectors * w.lanes);
  }
}

void sl__skinny_gemm_transpose_block(const float *const column[SL__SKINNY_GEMM_COLUMNS],
                                     int64_t length, float *to, int64_t pitch, int most_lanes) {
  const struct width w = width_of(sl__lanes(most_lanes));
  w.pack(column, SL__SKINNY_GEMM_COLUMNS / w.lanes, length, to, pitch);
}

void sl__skinny_gemm_pack_rows(const float *matrix, int64_t pitch, int columns, int64_t length,
                               float *to, int most_lanes) {
  const struct width w = width_of(sl__lanes(most_lanes));
  int panel = VECTORS * w.lanes;
  for (int c = 0; c < columns; c += panel)
    copy_rows(w.lanes, columns - c < panel ? columns - c : panel, pitch, matrix + c, length,
              to + c * length);
}

void sl__skinny_gemm_add(int64_t rows, const float *x, int64_t x_pitch, int64_t length,
                         const float *packed, int columns, float *y,
                         enum sl__skinny_gemm_start start, const float *next, int most_lanes) {
  const struct width w = width_of(sl__lanes(most_lanes));
  int most = most_rows(w.tiles[VECTORS]);
  int64_t groups = (rows + most - 1) / most, panel = VECTORS * w.lanes;
  struct ahead ahead = {.weight = next ? next : packed, .step = next ? panel / groups : 0};
  if (ahead.step > MOST_AHEAD) ahead.step = MOST_AHEAD;
  for (int c = 0; c < columns; c += (int)panel) {
    const struct begin begin = {start == SL__SKINNY_GEMM_CONTINUE ? y + c : NULL,
                                SL__SKINNY_GEMM_COLUMNS, start == SL__SKINNY_GEMM_ADD};
    run_rows(w.tiles[vectors_at(&w, c, columns)], rows, x, x_pitch, packed + c * length, length,
             y + c, SL__SKINNY_GEMM_COLUMNS, begin, &ahead);
  }
}
