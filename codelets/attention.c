/* Causal attention in tiles of queries and blocks of keys, with an online softmax (Dao,
 * "FlashAttention-2", arXiv 2307.08691): no matrix of all queries and keys. The heads that share a
 * key take turns as rows of a tile. Blocks begin at multiples of their size of the whole sequence's
 * steps, and each sum is one chain, so the bits do not depend on how a sequence is cut into chunks.
 */
#include <math.h>

#include "codelets/attention.h"

#include <string.h>

#include "codelets/activation.h"
#include "codelets/dropout.h"
#include "codelets/kernels/bf16_adapter.h"
#include "codelets/kernels/cache_prefetch.h"
#include "codelets/kernels/sum.h"
#include "codelets/kernels/tiles.h"
#include "core/base/error.h"

enum { TILE = 64, BLOCK = 64, PARTS = SL__SUM_PARTS }; /* rows of a tile, keys of a block */
enum { MOST_REQUESTED = 32 * 1024 };                   /* floats of a sequence */

/* ---- products ------------------------------------------------------------------------------ */

/* The part of a product that is left out because no query reads a later key: query m of a tile
 * reads at most the first (first + m) / group + 1 keys of a block. */
enum stairs {
  WHOLE,
  STAIRS_TO, /* sums of queries (rows) and keys (columns) */
  STAIRS_A,  /* a: of queries (rows) and keys */
  STAIRS_A_T /* a: of keys (rows) and queries, the last one first */
};

/* to[r][c] (+)= the sum over k of a[r a_row + k a_step] b[k b_step + c] */
struct product {
  int64_t count, a_row, a_step, b_step, to_pitch;
  bool add;
  enum stairs stairs;
  int64_t first, group;
};
typedef void run_tile(const struct product *p, const float *a, const float *b, float *to);

#define SL__TILE_FILE "codelets/kernels/attention_tile.h"
#include "codelets/kernels/simd_variants.h"

static int64_t at_most(int64_t count, int64_t most) {
  return count < 0 ? 0 : count < most ? count : most;
}

/* Terms of the sums of rows [r, end), from column c on; 0: no sum reads them. */
static int64_t terms_of(const struct product *p, int64_t r, int64_t end, int64_t c) {
  int64_t last = p->first + end - 1, keys = last < 0 ? 0 : last / p->group + 1; /* of row end - 1 */
  switch (p->stairs) {
    case WHOLE: return p->count;
    case STAIRS_TO: return c < keys ? p->count : 0;
    case STAIRS_A: return at_most(keys, p->count);
    case STAIRS_A_T: return p->count - at_most(r * p->group - p->first, p->count);
  }
  return p->count;
}

/* The columns are a multiple of 16. */
static void product(const struct product *p, int64_t rows, int64_t columns, const float *a,
                    const float *b, float *to) {
  int lanes = sl__lanes(0);
  int64_t vectors = lanes == 16 ? 4 : 2, times;
  for (int64_t c = 0, next; c < columns; c = next) {
    while (c + vectors * lanes > columns) vectors /= 2;
    run_tile *const *tiles = SL__TILES_OF(lanes)[vectors];
    int most = SL__TILE_ROWS;
    while (!tiles[most]) most--;
    times = (rows + most - 1) / most;
    for (int64_t i = 0; i < times; i++) {
      int64_t r = rows * i / times, end = rows * (i + 1) / times;
      struct product part = *p;
      part.count = terms_of(p, r, end, c);
      if (part.count) tiles[end - r](&part, a + r * p->a_row, b + c, to + r * p->to_pitch + c);
    }
    next = c + vectors * lanes;
  }
}

/* ---- a task's memory ----------------------------------------------------------------------- */

/* A head's values, padded to whole vectors of any width. */
static int64_t width_of(const struct sl__attention_args *a) { return sl__whole_lines(a->dims); }

static int64_t blocks_of(const struct sl__attention_args *a) {
  return (a->o.position + a->steps + BLOCK - 1) / BLOCK;
}

/* Query heads that share a key. */
static int64_t group_of(const struct sl__attention_args *a) { return a->heads / a->kv_heads; }

/* One row's head of keys and values, and a tile of its queries. Blocks of keys_t and values_t are
 * [dims, BLOCK], of the others [BLOCK, width]. */
struct work {
  const struct sl__attention_args *a;
  const float *x, *dy;
  float *y, *lse, *dx, *state, *dstate;
  bool add;
  int64_t row, kv, width;
  float *turns; /* [steps, 2, rope_dims / 2]: cosines, then sines */
  float *keys, *keys_t, *values, *values_t, *dkeys, *dvalues;
  float *q, *o, *dq;           /* [TILE, width] */
  float *p, *dp;               /* [TILE, BLOCK] */
  float most[TILE], sum[TILE]; /* of a row's softmax; backward: its lse and <o, do> */
};

/* Gives out `floats` of the memory; NULL if there is none yet. */
static float *take(float *memory, int64_t *used, int64_t floats) {
  float *from = memory ? memory + *used : NULL;
  *used += sl__whole_lines(floats);
  return from;
}

/* Returns the floats that it gives out. */
static int64_t lay_out(struct work *w, float *memory, bool backward) {
  const struct sl__attention_args *a = w->a;
  int64_t width = width_of(a), rows = blocks_of(a) * BLOCK;
  int64_t used = 0;
  w->width = width;
  w->turns = take(memory, &used, a->steps * a->o.rope_dims);
  w->keys = take(memory, &used, (backward ? rows : BLOCK) * width);
  w->values = take(memory, &used, (backward ? BLOCK : rows) * width);
  w->keys_t = take(memory, &used, rows * a->dims);
  w->q = take(memory, &used, TILE * width);
  w->o = take(memory, &used, TILE * width);
  w->p = take(memory, &used, TILE * BLOCK);
  if (!backward) return used;
  w->values_t = take(memory, &used, rows * a->dims);
  w->dkeys = take(memory, &used, rows * width);
  w->dvalues = take(memory, &used, rows * width);
  w->dq = take(memory, &used, TILE * width);
  w->dp = take(memory, &used, TILE * BLOCK);
  return used;
}

/* ---- rows ---------------------------------------------------------------------------------- */

/* A head's row, and zeros up to the width; PARTS values at a time, because calls of memcpy and
 * memset cost more than so short a row. */
SL__INLINE void copy_row(const float *restrict from, int64_t dims, int64_t width,
                         float *restrict to) {
  int64_t whole = dims / PARTS * PARTS;
  for (int64_t d = 0; d < whole; d += PARTS) memcpy(to + d, from + d, PARTS * sizeof *to);
  for (int64_t d = whole; d < width; d++) to[d] = d < dims ? from[d] : 0;
}

SL__INLINE void add_row(const float *restrict from, int64_t dims, float *restrict to) {
  for (int64_t d = 0; d < dims; d++) to[d] += from[d];
}

/* ---- rotary position embedding ------------------------------------------------------------- */

SL__SIMD static void find_turns(const struct sl__attention_args *a, float *turns) {
  int64_t half = a->o.rope_dims / 2;
  double each[SL__ATTENTION_MOST_DIMS / 2];
  for (int64_t i = 0; i < half; i++) each[i] = sl__rope_turns(&a->o, i);
  for (int64_t t = 0; t < a->steps; t++, turns += 2 * half)
    for (int64_t i = 0; i < half; i++) {
      struct sl__turn turn = sl__turn_of((double)(a->o.position + t) * each[i]);
      turns[i] = turn.cos;
      turns[half + i] = turn.sin;
    }
}

/* to (+)= factor times x, turned; direction -1: back. */
SL__INLINE void turn_row(const struct sl__attention_args *a, const float *turns,
                         const float *restrict x, float direction, float factor, float *restrict to,
                         bool add) {
  int64_t half = a->o.rope_dims / 2;
#pragma GCC ivdep
  for (int64_t i = 0; i < half; i++) {
    float c = turns[i] * factor, s = direction * turns[half + i] * factor;
    float first = x[i] * c - x[half + i] * s, second = x[half + i] * c + x[i] * s;
    to[i] = add ? to[i] + first : first;
    to[half + i] = add ? to[half + i] + second : second;
  }
  for (int64_t i = 2 * half; i < a->dims; i++) to[i] = (add ? to[i] : 0) + factor * x[i];
}

/* ---- blocks of keys and values ------------------------------------------------------------- */

static float *turns_of(const struct work *w, int64_t t) { return w->turns + t * w->a->o.rope_dims; }

/* x's keys or values of time step t; which: 0 or 1. */
static int64_t place_in_x(const struct work *w, int64_t t, int which) {
  const struct sl__attention_args *a = w->a;
  return (w->row * a->steps + t) * sl__attention_in(a) +
         (a->heads + which * a->kv_heads + w->kv) * a->dims;
}

static int64_t place_in_state(const struct work *w, int64_t position, int which) {
  const struct sl__attention_args *a = w->a;
  return (w->row * a->context + position) * sl__attention_state(a) +
         (which * a->kv_heads + w->kv) * a->dims;
}

/* A block's keys (which: 0) or values (1); zeros beyond the sequence's end. keep: forward writes
 * those of x into the state. */
SL__SIMD static void load_block(const struct work *w, int64_t block, int which, bool keep,
                                float *to) {
  const struct sl__attention_args *a = w->a;
  for (int64_t k = 0; k < BLOCK; k++, to += w->width) {
    int64_t position = block * BLOCK + k, t = position - a->o.position;
    if (t >= a->steps) {
      memset(to, 0, (size_t)w->width * sizeof *to);
      continue;
    }
    copy_row(t < 0 ? w->state + place_in_state(w, position, which) : w->x + place_in_x(w, t, which),
             a->dims, w->width, to);
    if (t < 0) continue;
    if (!which && a->o.rope_dims)
      turn_row(a, turns_of(w, t), w->x + place_in_x(w, t, which), 1, 1, to, false);
    if (keep)
      memcpy(w->state + place_in_state(w, position, which), to, (size_t)a->dims * sizeof *to);
  }
}

#if defined(__clang__) || __GNUC__ >= 12
typedef float four __attribute__((vector_size(4 * sizeof(float))));

/* Four rows of four values. */
SL__INLINE void transpose_square(const float *from, int64_t pitch, float *to) {
  four row[4], half[4];
  for (int i = 0; i < 4; i++) memcpy(&row[i], from + i * pitch, sizeof row[i]);
  half[0] = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
  half[1] = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
  half[2] = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
  half[3] = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
  for (int i = 0; i < 4; i += 2) {
    row[i] = __builtin_shufflevector(half[i], half[i + 1], 0, 1, 4, 5);
    row[i + 1] = __builtin_shufflevector(half[i], half[i + 1], 2, 3, 6, 7);
  }
  for (int i = 0; i < 4; i++) memcpy(to + i * BLOCK, &row[i], sizeof row[i]);
}
#else
SL__INLINE void transpose_square(const float *from, int64_t pitch, float *to) {
  for (int i = 0; i < 4; i++)
    for (int k = 0; k < 4; k++) to[i * BLOCK + k] = from[k * pitch + i];
}
#endif

/* [BLOCK, width] as [dims, BLOCK] */
SL__SIMD static void transpose(const struct work *w, const float *from, float *to) {
  int64_t whole = w->a->dims / 4 * 4;
  for (int64_t k = 0; k < BLOCK; k += 4)
    for (int64_t d = 0; d < whole; d += 4)
      transpose_square(from + k * w->width + d, w->width, to + d * BLOCK + k);
  for (int64_t d = whole; d < w->a->dims; d++)
    for (int64_t k = 0; k < BLOCK; k++) to[d * BLOCK + k] = from[k * w->width + d];
}

/* ---- a tile of queries --------------------------------------------------------------------- */

/* Row m of a tile's rows: time step m / group, head m % group of the group. */
static int64_t place_in_y(const struct work *w, int64_t m) {
  const struct sl__attention_args *a = w->a;
  int64_t group = group_of(a);
  return (w->row * a->steps + m / group) * sl__attention_out(a) +
         (w->kv * group + m % group) * a->dims;
}

static int64_t place_of_query(const struct work *w, int64_t m) {
  const struct sl__attention_args *a = w->a;
  int64_t group = group_of(a);
  return (w->row * a->steps + m / group) * sl__attention_in(a) +
         (w->kv * group + m % group) * a->dims;
}

static int64_t place_in_lse(const struct work *w, int64_t m) {
  const struct sl__attention_args *a = w->a;
  int64_t group = group_of(a);
  return (w->row * a->steps + m / group) * a->heads + w->kv * group + m % group;
}

static int64_t position_of(const struct work *w, int64_t m) {
  return w->a->o.position + m / group_of(w->a);
}

SL__SIMD static void load_queries(const struct work *w, int64_t first, int64_t rows) {
  for (int64_t r = 0; r < rows; r++) {
    float *to = w->q + r * w->width;
    turn_row(w->a, turns_of(w, (first + r) / group_of(w->a)), w->x + place_of_query(w, first + r),
             1, w->a->scale, to, false);
    for (int64_t d = w->a->dims; d < w->width; d++) to[d] = 0;
  }
}

/* factor[k]: of the block's key k, by dropout */
SL__INLINE void draw_factors(const struct work *w, int64_t m, int64_t block, float *factor) {
  const struct sl__dropout *d = &w->a->o.dropout;
  int64_t group = group_of(w->a);
  uint64_t index =
      sl__attention_draw(w->a, w->row, w->kv * group + m % group, position_of(w, m)) / 4 +
      (uint64_t)block * (BLOCK / 4);
  uint32_t bits[BLOCK];
  float kept = 1.0f / (1.0f - d->rate);
  for (int g = 0; g < BLOCK / 4; g++) {
    struct sl__random4 r = sl__philox(d->seed, d->stream, index + (uint64_t)g);
    for (int k = 0; k < 4; k++) bits[4 * g + k] = r.v[k];
  }
  for (int k = 0; k < BLOCK; k++) factor[k] = sl__dropout_value(bits[k], d->rate, kept, 1);
}

/* The block's keys that row m may read, from key 0 on. */
static int64_t keys_for(const struct work *w, int64_t m, int64_t block) {
  int64_t keys = position_of(w, m) + 1 - block * BLOCK;
  return keys < 0 ? 0 : keys < BLOCK ? keys : BLOCK;
}

/* A row's scores of that many keys become e^(score - most so far), those of masked keys 0; the sums
 * so far are rescaled. */
SL__INLINE void softmax_row(float *s, int32_t keys, float *most, float *sum, float *o,
                            int64_t width) {
  float part[PARTS], top = *most;
  int32_t end = (keys + PARTS - 1) / PARTS * PARTS;
  for (int32_t c = keys; c < end; c++) s[c] = -INFINITY;
  for (int k = 0; k < PARTS; k++) part[k] = s[k];
  for (int32_t c = PARTS; c < end; c += PARTS)
    for (int k = 0; k < PARTS; k++) part[k] = s[c + k] > part[k] ? s[c + k] : part[k];
  top = sl__most_part(part, top);
  for (int32_t c = 0; c < end; c++) s[c] = sl__exp_bounded(s[c] - top);
  for (int32_t c = end; c < BLOCK; c++) s[c] = 0;
  for (int k = 0; k < PARTS; k++) part[k] = s[k];
  for (int32_t c = PARTS; c < end; c += PARTS)
    for (int k = 0; k < PARTS; k++) part[k] += s[c + k];
  float rest = sl__exp_bounded(*most - top);
  *sum = *sum * rest + sl__sum_parts(part);
  *most = top;
  if (rest == 1) return;
  for (int64_t i = 0; i < width; i++) o[i] *= rest;
}

SL__SIMD static void softmax_tile(struct work *w, int64_t first, int64_t rows, int64_t block) {
  for (int64_t r = 0; r < rows; r++) {
    float *s = w->p + r * BLOCK, factor[BLOCK];
    int64_t keys = keys_for(w, first + r, block);
    if (!keys) {
      memset(s, 0, BLOCK * sizeof *s);
      continue;
    }
    softmax_row(s, (int32_t)keys, &w->most[r], &w->sum[r], w->o + r * w->width, w->width);
    if (!(w->a->o.dropout.rate > 0)) continue;
    draw_factors(w, first + r, block, factor);
    for (int k = 0; k < BLOCK; k++) s[k] *= factor[k];
  }
}

SL__SIMD static void write_tile(const struct work *w, int64_t first, int64_t rows) {
  for (int64_t r = 0; r < rows; r++) {
    float *restrict y = w->y + place_in_y(w, first + r), scale = 1.0f / w->sum[r];
    const float *o = w->o + r * w->width;
    for (int64_t d = 0; d < w->a->dims; d++) y[d] = o[d] * scale;
    w->lse[place_in_lse(w, first + r)] = w->most[r] + logf(w->sum[r]);
  }
}

static int64_t last_block(const struct work *w, int64_t first, int64_t rows) {
  return position_of(w, first + rows - 1) / BLOCK;
}

/* A product of a tile of queries, which begins at row `first`, and block j of keys. */
static struct product product_of(const struct work *w, int64_t first, int64_t j,
                                 enum stairs stairs) {
  int64_t group = group_of(w->a), begin = first + (w->a->o.position - j * BLOCK) * group;
  struct product p = {.stairs = stairs, .first = begin, .group = group};
  if (begin / group + 1 >= BLOCK) p.stairs = WHOLE;
  return p;
}

/* Of a tile and a block in panels by keys: scores, and the products of values and dy. */
static void score(const struct work *w, int64_t first, int64_t rows, int64_t j, const float *a,
                  const float *b, float *to) {
  struct product p = product_of(w, first, j, STAIRS_TO);
  p.count = w->a->dims;
  p.a_row = w->width;
  p.a_step = 1;
  p.b_step = p.to_pitch = BLOCK;
  product(&p, rows, BLOCK, a, b, to);
}

/* to [rows, width] += p b, with p of a tile and a block, b of that block */
static void add_keys(const struct work *w, int64_t first, int64_t rows, int64_t j, const float *p,
                     const float *b, float *to) {
  struct product sum = product_of(w, first, j, STAIRS_A);
  sum.count = keys_for(w, first + rows - 1, j);
  sum.a_row = BLOCK;
  sum.a_step = 1;
  sum.b_step = sum.to_pitch = w->width;
  sum.add = true;
  product(&sum, rows, w->width, p, b, to);
}

static void forward_tile(struct work *w, int64_t first, int64_t rows) {
  load_queries(w, first, rows);
  memset(w->o, 0, (size_t)(rows * w->width) * sizeof *w->o);
  for (int64_t r = 0; r < rows; r++) w->most[r] = -INFINITY, w->sum[r] = 0;
  for (int64_t j = 0; j <= last_block(w, first, rows); j++) {
    score(w, first, rows, j, w->q, w->keys_t + j * BLOCK * w->a->dims, w->p);
    softmax_tile(w, first, rows, j);
    add_keys(w, first, rows, j, w->p, w->values + j * BLOCK * w->width, w->o);
  }
  write_tile(w, first, rows);
}

static void forward_head(struct work *w) {
  int64_t all = w->a->steps * group_of(w->a);
  bool keep = w->state != NULL;
  for (int64_t j = 0; j < blocks_of(w->a); j++) {
    load_block(w, j, 0, keep, w->keys);
    transpose(w, w->keys, w->keys_t + j * BLOCK * w->a->dims);
    load_block(w, j, 1, keep, w->values + j * BLOCK * w->width);
  }
  for (int64_t m = 0; m < all; m += TILE) forward_tile(w, m, all - m < TILE ? all - m : TILE);
}

/* A head's values lie far apart in a sequence, which no processor foresees. So a sequence that fits
 * into a core's own cache is requested in the order of memory. */
static void request_sequence(const struct work *w) {
  const struct sl__attention_args *a = w->a;
  int64_t in = sl__attention_in(a), out = sl__attention_out(a);
  if (a->steps * in > MOST_REQUESTED) return;
  for (int64_t t = w->row * a->steps; t < (w->row + 1) * a->steps; t++) {
    sl__prefetch_cache_lines(w->x + t * in, in);
    if (!w->dx) continue;
    sl__prefetch_cache_lines(w->y + t * out, out);
    sl__prefetch_cache_lines(w->dy + t * out, out);
    sl__prefetch_for_write(w->dx + t * in, in);
  }
}

/* The work of rows x heads of keys. */
static void each_head(struct work *w, const void *cl_arg, float *scratch, bool backward,
                      void (*head)(struct work *w)) {
  struct sl__work_range range = sl__work_range(cl_arg, w->a->rows * w->a->kv_heads);
  lay_out(w, sl__line_begin(scratch), backward);
  find_turns(w->a, w->turns);
  for (int64_t i = range.first; i < range.end; i++) {
    w->row = i / w->a->kv_heads;
    w->kv = i % w->a->kv_heads;
    if (!w->kv || i == range.first) request_sequence(w);
    head(w);
  }
}

SL__KERNEL void sl__attention_forward_cpu(void *buffers[], void *cl_arg) {
  struct work w = {.a = sl__args(cl_arg),
                   .x = sl__buffer(buffers, 0),
                   .y = sl__buffer(buffers, 1),
                   .lse = sl__buffer(buffers, 2)};
  if (w.a->context) w.state = sl__buffer(buffers, 4);
  each_head(&w, cl_arg, sl__buffer(buffers, 3), false, forward_head);
}

/* ---- backward ------------------------------------------------------------------------------ */

/* The gradient of the block's keys and values by later queries. */
static void load_gradients(const struct work *w, int64_t block) {
  const struct sl__attention_args *a = w->a;
  float *to[2] = {w->dkeys + block * BLOCK * w->width, w->dvalues + block * BLOCK * w->width};
  for (int which = 0; which < 2; which++) {
    memset(to[which], 0, (size_t)(BLOCK * w->width) * sizeof **to);
    for (int64_t k = 0; k < BLOCK && w->dstate; k++) {
      int64_t position = block * BLOCK + k;
      if (position < a->o.position + a->steps)
        memcpy(to[which] + k * w->width, w->dstate + place_in_state(w, position, which),
               (size_t)a->dims * sizeof **to);
    }
  }
}

/* Gradients of earlier steps go to dstate, those of x's steps into dx. */
SL__SIMD static void write_gradients(const struct work *w) {
  const struct sl__attention_args *a = w->a;
  for (int which = 0; which < 2; which++) {
    const float *from = which ? w->dvalues : w->dkeys;
    for (int64_t s = 0; s < a->o.position; s++)
      memcpy(w->dstate + place_in_state(w, s, which), from + s * w->width,
             (size_t)a->dims * sizeof *from);
    for (int64_t t = 0; t < a->steps; t++) {
      const float *row = from + (a->o.position + t) * w->width;
      float *to = w->dx + place_in_x(w, t, which);
      if (!which && a->o.rope_dims)
        turn_row(a, turns_of(w, t), row, -1, 1, to, w->add);
      else if (w->add)
        add_row(row, a->dims, to);
      else
        copy_row(row, a->dims, a->dims, to);
    }
  }
}

/* dy and what the softmax of each row needs. */
SL__SIMD static void load_slopes(struct work *w, int64_t first, int64_t rows) {
  int64_t dims = w->a->dims;
  for (int64_t r = 0; r < rows; r++) {
    const float *y = w->y + place_in_y(w, first + r), *dy = w->dy + place_in_y(w, first + r);
    float part[PARTS] = {0};
    int64_t d = 0;
    copy_row(dy, dims, w->width, w->o + r * w->width);
    for (; d + PARTS <= dims; d += PARTS)
      for (int k = 0; k < PARTS; k++) part[k] += y[d + k] * dy[d + k];
    for (int k = 0; d + k < dims; k++) part[k] += y[d + k] * dy[d + k];
    w->sum[r] = sl__sum_parts(part);
    w->most[r] = w->lse[place_in_lse(w, first + r)];
  }
}

/* p: the scores become the probabilities that multiply the values; dp: the values' products with dy
 * become the scores' gradient. */
SL__SIMD static void slopes_tile(struct work *w, int64_t first, int64_t rows, int64_t block) {
  float factor[BLOCK];
  for (int k = 0; k < BLOCK; k++) factor[k] = 1;
  for (int64_t r = 0; r < rows; r++) {
    float *p = w->p + r * BLOCK, *dp = w->dp + r * BLOCK, lse = w->most[r], sum = w->sum[r];
    int32_t keys = (int32_t)keys_for(w, first + r, block);
    if (w->a->o.dropout.rate > 0) draw_factors(w, first + r, block, factor);
    int32_t end = (keys + PARTS - 1) / PARTS * PARTS;
    for (int32_t k = 0; k < end; k++) {
      float v = sl__exp(p[k] - lse), slope = v * (factor[k] * dp[k] - sum);
      p[k] = k < keys ? v * factor[k] : 0;
      dp[k] = k < keys ? slope : 0;
    }
    for (int32_t k = end; k < BLOCK; k++) p[k] = dp[k] = 0;
  }
}

SL__SIMD static void write_queries(const struct work *w, int64_t first, int64_t rows) {
  for (int64_t r = 0; r < rows; r++)
    turn_row(w->a, turns_of(w, (first + r) / group_of(w->a)), w->dq + r * w->width, -1, w->a->scale,
             w->dx + place_of_query(w, first + r), w->add);
}

/* to [keys, width] += p^T b, with p of a tile and a block, b of that tile. The last query comes
 * first: a later chunk's queries have had their turn already. */
static void add_queries(const struct work *w, int64_t first, int64_t rows, int64_t j,
                        const float *p, const float *b, float *to) {
  struct product sum = product_of(w, first, j, STAIRS_A_T);
  sum.count = rows;
  sum.a_row = 1;
  sum.a_step = -BLOCK;
  sum.b_step = -w->width;
  sum.to_pitch = w->width;
  sum.add = true;
  product(&sum, keys_for(w, first + rows - 1, j), w->width, p + (rows - 1) * BLOCK,
          b + (rows - 1) * w->width, to);
}

static void backward_block(struct work *w, int64_t first, int64_t rows, int64_t j) {
  int64_t at = j * BLOCK * w->width, at_t = j * BLOCK * w->a->dims;
  score(w, first, rows, j, w->q, w->keys_t + at_t, w->p);
  score(w, first, rows, j, w->o, w->values_t + at_t, w->dp);
  slopes_tile(w, first, rows, j);
  add_keys(w, first, rows, j, w->dp, w->keys + at, w->dq);
  add_queries(w, first, rows, j, w->p, w->o, w->dvalues + at);
  add_queries(w, first, rows, j, w->dp, w->q, w->dkeys + at);
}

static void backward_tile(struct work *w, int64_t first, int64_t rows) {
  load_queries(w, first, rows);
  load_slopes(w, first, rows);
  memset(w->dq, 0, (size_t)(rows * w->width) * sizeof *w->dq);
  for (int64_t j = 0; j <= last_block(w, first, rows); j++) backward_block(w, first, rows, j);
  write_queries(w, first, rows);
}

static void backward_head(struct work *w) {
  for (int64_t j = 0; j < blocks_of(w->a); j++) {
    load_block(w, j, 0, false, w->keys + j * BLOCK * w->width);
    transpose(w, w->keys + j * BLOCK * w->width, w->keys_t + j * BLOCK * w->a->dims);
    load_block(w, j, 1, false, w->values);
    transpose(w, w->values, w->values_t + j * BLOCK * w->a->dims);
    load_gradients(w, j);
  }
  for (int64_t m = w->a->steps * group_of(w->a), first; m > 0; m = first) {
    first = m > TILE ? m - TILE : 0;
    backward_tile(w, first, m - first);
  }
  write_gradients(w);
}

SL__KERNEL void sl__attention_backward_cpu(void *buffers[], void *cl_arg) {
  struct work w = {.a = sl__args(cl_arg),
                   .x = sl__buffer(buffers, 0),
                   .y = sl__buffer(buffers, 1),
                   .lse = sl__buffer(buffers, 2),
                   .dy = sl__buffer(buffers, 3),
                   .dx = sl__buffer(buffers, 4),
                   .add = sl__accumulate(cl_arg)};
  if (w.a->context) w.state = sl__buffer(buffers, 6), w.dstate = sl__buffer(buffers, 7);
  each_head(&w, cl_arg, sl__buffer(buffers, 5), true, backward_head);
}

/* ---- rows of bf16 -------------------------------------------------------------------------- */

static struct sl__rowwise rows_of(struct sl__attention_args *a, int scratch) {
  return (struct sl__rowwise){
      .rows = &a->rows, .buffers = ~(1u << scratch), .first = &a->o.dropout.first, .step = 1};
}

struct sl__rowwise sl__attention_forward_rows(void *args) {
  return rows_of(args, 3);
}

struct sl__rowwise sl__attention_backward_rows(void *args) {
  return rows_of(args, 5);
}

/* ---- submission ---------------------------------------------------------------------------- */

static void renew(void *args, const struct sl__step_record *step) {
  struct sl__dropout *d = &((struct sl__attention_args *)args)->o.dropout;
  d->stream ^= d->step ^ (uint64_t)step->number;
  d->step = (uint64_t)step->number;
}

static enum sl_status check_shapes(const char *name, const struct sl__tensor *x,
                                   const struct sl__tensor *y, const struct sl__tensor *lse,
                                   const struct sl__tensor *state, const struct sl__attention *o,
                                   struct sl__attention_args *a) {
  const int64_t *in = x->shape.dim, *out = y->shape.dim, *sums = lse->shape.dim;
  char xt[96], yt[96];
  *a = (struct sl__attention_args){.rows = in[0],
                                   .steps = in[1],
                                   .context = state ? state->shape.dim[1] : 0,
                                   .heads = o->heads,
                                   .kv_heads = o->kv_heads,
                                   .o = *o};
  int64_t heads = o->heads + 2 * (int64_t)o->kv_heads;
  if (o->heads > 0 && o->kv_heads > 0 && o->heads % o->kv_heads == 0 && x->shape.ndim == 3 &&
      in[2] % heads == 0 && in[2] / heads <= SL__ATTENTION_MOST_DIMS) {
    a->dims = (int32_t)(in[2] / heads);
    a->scale = (float)(1 / sqrt((double)a->dims));
    if (y->shape.ndim == 3 && out[0] == in[0] && out[1] == in[1] &&
        out[2] == sl__attention_out(a) && lse->shape.ndim == 3 && sums[0] == in[0] &&
        sums[1] == in[1] && sums[2] == o->heads)
      return SL_OK;
  }
  return sl__fail(SL_BAD_SHAPE, "%s: x %s and y %s do not fit %d heads, %d of keys", name,
                  sl_shape_text(&x->shape, xt, sizeof xt), sl_shape_text(&y->shape, yt, sizeof yt),
                  o->heads, o->kv_heads);
}

static enum sl_status check(const char *name, const struct sl__tensor *x,
                            const struct sl__tensor *y, const struct sl__tensor *lse,
                            const struct sl__tensor *state, const struct sl__attention *o,
                            struct sl__attention_args *a) {
  enum sl_status status = check_shapes(name, x, y, lse, state, o, a);
  int64_t end = o->position + x->shape.dim[1];
  char text[96];
  if (status != SL_OK) return status;
  if (o->rope_dims < 0 || o->rope_dims % 2 || o->rope_dims > a->dims ||
      !(o->dropout.rate >= 0 && o->dropout.rate < 1))
    return sl__fail(SL_BAD_ARGUMENT, "%s: %d turned values of %d, dropout %g", name, o->rope_dims,
                    a->dims, (double)o->dropout.rate);
  if (o->position < 0 || end > o->context || (o->position && !state))
    return sl__fail(SL_BAD_SHAPE, "%s: steps %lld to %lld of a sequence of at most %lld", name,
                    (long long)o->position, (long long)end, (long long)o->context);
  if (state && (state->shape.ndim != 3 || state->shape.dim[0] != a->rows || end > a->context ||
                state->shape.dim[2] != sl__attention_state(a)))
    return sl__fail(SL_BAD_SHAPE, "%s: a state %s for %lld rows to step %lld", name,
                    sl_shape_text(&state->shape, text, sizeof text), (long long)a->rows,
                    (long long)end);
  a->o.dropout.stream ^= a->o.dropout.step;
  return SL_OK;
}

/* CPU: see lay_out. GPU: the turns; copies; <o, do>. */
static size_t scratch_bytes(const struct sl__attention_args *a, bool backward) {
  struct work w = {.a = a};
  int64_t cpu = lay_out(&w, NULL, backward) + 16;
  int64_t gpu = sl__whole_lines(a->steps * a->o.rope_dims) +
                sl__whole_lines(sl__attention_copies(a)) + a->rows * a->steps * a->heads;
  return sizeof(float) * (size_t)(cpu > gpu ? cpu : gpu);
}

/* Multiplications and additions of that many products of each query with the keys before it. */
static double flops_of(const struct sl__attention_args *a, int products) {
  double keys = (double)a->o.position + 0.5 * (double)(a->steps + 1);
  return 2.0 * products * (double)a->rows * (double)a->steps * keys * (double)a->heads *
         (double)a->dims;
}

static uint32_t footprint(const struct sl__attention_args *a) {
  const int64_t key[] = {a->o.position, a->heads, a->kv_heads, a->o.dropout.rate > 0};
  return starpu_hash_crc32c_be_n(key, sizeof key, 0);
}

static struct sl__launch launch_of(const struct sl__launch *l, const struct sl__attention_args *a,
                                   const struct sl__tensor *x) {
  struct sl__launch launch = *l;
  if (x->type == SL_F32) launch.cut = (struct sl__cut){.units = a->rows * a->kv_heads};
  launch.renew = renew;
  return launch;
}

enum sl_status sl__attention_forward(struct sl_context *context, const struct sl__launch *l,
                                     struct sl__tensor *x, struct sl__tensor *y,
                                     struct sl__tensor *lse, struct sl__tensor *state,
                                     const struct sl__attention *options) {
  struct sl__attention_args a;
  struct sl__tensor *scratch;
  enum sl_status status;
  SL__TRY(check("attention_forward", x, y, lse, state, options, &a));
  SL__TRY(sl__scratch(context, scratch_bytes(&a, false), &scratch));
  const struct sl__launch launch = launch_of(l, &a, x);
  status = sl__submit(context, &sl__op_attention_forward, &launch, state ? 5 : 4,
                      (struct sl__tensor *[]){x, y, lse, scratch, state}, &a, sizeof a,
                      flops_of(&a, 2), footprint(&a));
out:
  return status;
}

enum sl_status sl__attention_backward(struct sl_context *context, const struct sl__launch *l,
                                      struct sl__tensor *x, struct sl__tensor *y,
                                      struct sl__tensor *lse, struct sl__tensor *dy,
                                      struct sl__tensor *dx, struct sl__tensor *state,
                                      struct sl__tensor *dstate,
                                      const struct sl__attention *options) {
  struct sl__attention_args a;
  struct sl__tensor *scratch;
  enum sl_status status;
  SL__TRY(check("attention_backward", x, y, lse, state, options, &a));
  if (!state != !dstate || (state && !sl_shape_equal(&state->shape, &dstate->shape)) ||
      !sl_shape_equal(&y->shape, &dy->shape) || !sl_shape_equal(&x->shape, &dx->shape))
    return sl__fail(SL_BAD_SHAPE,
                    "attention_backward: dx, dy and dstate must have the shapes of x, y and state");
  SL__TRY(sl__scratch(context, scratch_bytes(&a, true), &scratch));
  const struct sl__launch launch = launch_of(l, &a, x);
  status = sl__submit(context, &sl__op_attention_backward, &launch, state ? 8 : 6,
                      (struct sl__tensor *[]){x, y, lse, dy, dx, scratch, state, dstate}, &a,
                      sizeof a, flops_of(&a, 5), footprint(&a));
out:
  return status;
}
