#include "parallel/step/split.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/numbers.h"
#include "core/base/error.h"

static enum sl_status parse_weight(const char *all, const char *text, double *weight) {
  if (!sl__parse_real(text, -INFINITY, INFINITY, weight))
    return sl__fail(SL_BAD_ARGUMENT, "split '%s': '%s' is no number; write a weight a replica: 4,1",
                    all, text);
  if (!(*weight >= 1e-9 && *weight <= 1e9))
    return sl__fail(SL_BAD_ARGUMENT,
                    "split '%s': the weight %s must be above 0 (1e-9 to 1e9); leave out a device "
                    "that shall have no rows",
                    all, text);
  return SL_OK;
}

static bool all_alike(const double *proportion, int count) {
  for (int r = 1; r < count; r++)
    if (proportion[r] != proportion[0]) return false;
  return true;
}

enum sl_status sl__split_parse(const char *text, int replicas, double **proportion) {
  enum sl_status status = SL_OK;
  int count = 0;
  *proportion = NULL;
  if (!text || !strcmp(text, "even")) return SL_OK;
  double *weights = sl__alloc((size_t)replicas, sizeof *weights, "a split");
  char *copy = sl__strdup(text), *rest = copy;
  if (!weights || !copy) {
    status = SL_NO_MEMORY;
    goto out;
  }
  for (char *weight = strsep(&rest, ","); weight; weight = strsep(&rest, ","), count++) {
    double value;
    SL__TRY(parse_weight(text, weight, &value));
    if (count < replicas) weights[count] = value;
  }
  if (count != replicas) {
    status =
        sl__fail(SL_BAD_ARGUMENT,
                 "split '%s': %d weights, but %d replicas; give each replica one (replicas and "
                 "devices say how many there are)",
                 text, count, replicas);
  } else if (!all_alike(weights, replicas)) {
    *proportion = weights;
    weights = NULL;
  }
out:
  free(weights);
  free(copy);
  return status;
}

void sl__split_rows(const double *proportion, int replicas, int64_t batch, int64_t least,
                    int64_t *rows) {
  double total = 0, before = 0;
  int64_t begin = 0;
  if (least > batch / replicas)
    least = batch / replicas; /* sl__grid_check_batch refuses such a batch */
  for (int r = 0; r < replicas; r++) total += proportion[r];
  for (int r = 0; r < replicas; r++) {
    before += proportion[r];
    /* the last replica ends at the end of the batch, however the sum is rounded */
    int64_t end = r == replicas - 1 ? batch : (int64_t)floor((double)batch * before / total + 0.5);
    rows[r] = end - begin;
    begin = end;
  }
  for (int r = 0; r < replicas; r++)
    while (rows[r] < least) {
      int most = 0;
      for (int k = 1; k < replicas; k++)
        if (rows[k] > rows[most]) most = k;
      rows[most]--;
      rows[r]++;
    }
}

double sl__split_balance(int replicas, const double *fixed_ms, const double *row_ms, int64_t batch,
                         int64_t least, int64_t *rows) {
  double slowest = 0;
  for (int r = 0; r < replicas; r++) rows[r] = least;
  /* times grow with the rows, so it is optimal to give each row to the replica that ends first */
  for (int64_t left = batch - least * replicas; left > 0; left--) {
    int best = 0;
    for (int r = 1; r < replicas; r++)
      if (fixed_ms[r] + row_ms[r] * (double)(rows[r] + 1) <
          fixed_ms[best] + row_ms[best] * (double)(rows[best] + 1))
        best = r;
    rows[best]++;
  }
  for (int r = 0; r < replicas; r++)
    slowest = fmax(slowest, fixed_ms[r] + row_ms[r] * (double)rows[r]);
  return slowest;
}

/* Time of a device class by number of rows: a line through two points, or through zero and one. */
struct line {
  int64_t rows;
  double ms, fixed, slope;
};

static enum sl_status draw(struct line *line, int k, int64_t rows, sl__split_measure *measure,
                           void *user) {
  double ms;
  if (line->rows == rows) return SL_OK;
  enum sl_status status = measure(user, k, rows, &ms);
  if (status != SL_OK) return status;
  double slope = line->rows ? (ms - line->ms) / (double)(rows - line->rows) : 0;
  /* times that do not grow are noise */
  if (!(slope > 0)) slope = ms / (double)rows;
  line->slope = slope;
  line->fixed = fmax(0, ms - slope * (double)rows);
  line->rows = rows;
  line->ms = ms;
  return SL_OK;
}

/* Rows of the first replica of each class. */
static int64_t rows_of(int k, int replicas, const int *of, const int64_t *rows) {
  for (int r = 0; r < replicas; r++)
    if (of[r] == k) return rows[r];
  return 0;
}

enum sl_status sl__split_choose(int replicas, const int *of, const int *sharing, int classes,
                                int64_t batch, int64_t least, sl__split_measure *measure,
                                void *user, int64_t *rows, double *ms) {
  enum { ROUNDS = 2 };
  enum sl_status status = SL_NO_MEMORY;
  struct line *lines = sl__alloc((size_t)classes, sizeof *lines, "a split");
  double *fixed = sl__alloc(2 * (size_t)replicas, sizeof *fixed, "a split"), *slope;
  if (!lines || !fixed) goto out;
  slope = fixed + replicas;
  for (int r = 0; r < replicas; r++) rows[r] = batch / replicas;
  for (int round = 0; round < ROUNDS; round++) {
    for (int k = 0; k < classes; k++)
      SL__TRY(draw(&lines[k], k, rows_of(k, replicas, of, rows), measure, user));
    for (int r = 0; r < replicas; r++) {
      fixed[r] = lines[of[r]].fixed * sharing[r];
      slope[r] = lines[of[r]].slope * sharing[r];
    }
    sl__split_balance(replicas, fixed, slope, batch, least, rows);
  }
  for (int r = 0; r < replicas; r++) ms[r] = fixed[r] + slope[r] * (double)rows[r];
  status = SL_OK;
out:
  free(lines);
  free(fixed);
  return status;
}
