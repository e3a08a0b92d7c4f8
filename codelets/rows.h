/* Collecting rows of a table, each once, with sums; see rows.c. */
#ifndef SL_CODELETS_ROWS_H
#define SL_CODELETS_ROWS_H

#include <math.h>
#include <string.h>

#include "codelets/kernels/update.h"

struct sl__rows_args {
  int64_t capacity, width, table; /* capacity in rows, values a row, rows of the table */
};

/* Arguments of rows_sgd. */
struct sl__rows_sgd_args {
  struct sl__rows_args rows;
  int64_t first, count; /* the shard's elements of the table */
  struct sl__update_args update;
};

#ifndef __cplusplus /* the CUDA files have functions of their own */
struct sl__rows {
  const struct sl__rows_args *args;
  int32_t *rows;
  float *values;
  int32_t *place; /* [table]: index of each row in `values`; -1: not collected yet */
  int32_t count;
};

SL__INLINE struct sl__rows sl__rows_begin(const struct sl__rows_args *args, int32_t *rows,
                                          float *values, int32_t *place, bool go_on) {
  struct sl__rows r = {args, rows, values, place, go_on ? rows[0] : 0};
  memset(place, 0xff, (size_t)args->table * sizeof *place);
  for (int32_t k = 0; k < r.count; k++) place[rows[1 + k]] = k;
  return r;
}

/* Rows beyond the capacity would be lost silently: NaN makes the loss or the norm report it. */
SL__INLINE void sl__rows_add(struct sl__rows *r, int32_t row, const float *values) {
  int64_t width = r->args->width;
  int32_t at = r->place[row];
  if (at < 0 && r->count == r->args->capacity) {
    r->values[0] = NAN;
    return;
  }
  if (at < 0) {
    r->place[row] = r->count;
    r->rows[1 + r->count] = row;
    memcpy(r->values + r->count++ * width, values, (size_t)width * sizeof *values);
    return;
  }
  float *sum = r->values + at * width;
  for (int64_t d = 0; d < width; d++) sum[d] += values[d];
}

SL__INLINE void sl__rows_end(struct sl__rows *r) { r->rows[0] = r->count; }

/* The sizes of a pair of tensors, or SL_BAD_SHAPE. */
enum sl_status sl__rows_check(const char *name, const struct sl__tensor *rows,
                              const struct sl__tensor *values, int64_t table,
                              struct sl__rows_args *args);
#endif

#endif
