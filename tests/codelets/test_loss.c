/* Softmax cross-entropy against double precision and finite differences. Hard input:
 * ignored labels, labels outside, logits that overflow a careless exp, one class, ties. */
#include "tests/common/check.h"

struct loss {
  int64_t rows, classes;
  const int32_t *labels;
  double scale;
};

static bool counts(const struct loss *v, int64_t n) {
  return v->labels[n] >= 0 && v->labels[n] < v->classes;
}

static double sum_of_losses(const double *z, const struct loss *v) {
  double sum = 0;
  for (int64_t n = 0; n < v->rows; n++) {
    if (!counts(v, n)) continue;
    const double *row = z + n * v->classes;
    double most = row[0], total = 0;
    for (int64_t c = 1; c < v->classes; c++) most = fmax(most, row[c]);
    for (int64_t c = 0; c < v->classes; c++) total += exp(row[c] - most);
    sum += log(total) + most - row[v->labels[n]];
  }
  return sum;
}

static double scaled_loss(const double *z, void *data) {
  const struct loss *v = data;
  return v->scale * sum_of_losses(z, v);
}

static void gradient_of(const double *z, const struct loss *v, double *gradient) {
  for (int64_t n = 0; n < v->rows; n++) {
    if (!counts(v, n)) continue;
    const double *row = z + n * v->classes;
    double *out = gradient + n * v->classes, total = 0;
    for (int64_t c = 0; c < v->classes; c++) total += exp(row[c]);
    for (int64_t c = 0; c < v->classes; c++) out[c] = v->scale * exp(row[c]) / total;
    out[v->labels[n]] -= v->scale;
  }
}

/* Rows whose largest logit is the label's; of equal ones the first counts. */
static int64_t right(const double *z, const struct loss *v) {
  int64_t sum = 0;
  for (int64_t n = 0; n < v->rows; n++) {
    if (!counts(v, n)) continue;
    const double *row = z + n * v->classes;
    int64_t before = 0;
    for (int64_t c = 0; c < v->classes; c++)
      before += row[c] > row[v->labels[n]] || (row[c] == row[v->labels[n]] && c < v->labels[n]);
    sum += !before;
  }
  return sum;
}

/* bf16: the logits, and their gradient is rounded to it. */
static void check(int64_t rows, int64_t classes, double size, bool odd_labels, bool bf16) {
  struct sl__tensor *(*logits)(struct sl_shape, const double *) = bf16 ? bf16_tensor : tensor;
  int32_t *labels = calloc((size_t)rows, sizeof *labels);
  struct loss v = {rows, classes, labels, 0.125};
  double *z = random_values(rows * classes, 7), outside = 0, counted = 0;
  for (int64_t i = 0; i < rows * classes; i++) z[i] = (double)(float)(z[i] * size);
  if (bf16) round_bf16(z, rows * classes);
  for (int64_t n = 0; n < rows; n++) {
    labels[n] = (int32_t)((n * 7 + 1) % classes);
    if (odd_labels && n % 5 == 1) labels[n] = SL_IGNORE;
    if (odd_labels && n % 5 == 3) labels[n] = n % 2 ? (int32_t)classes : -7;
    outside += !counts(&v, n) && labels[n] != SL_IGNORE;
    counted += counts(&v, n);
  }
  struct sl__tensor *tz = logits(SL_SHAPE(rows, classes), z),
                    *tl = integers(SL_SHAPE(rows), labels);
  struct sl__tensor *stats = tensor(SL_SHAPE(4), NULL), *alone = tensor(SL_SHAPE(4), NULL);
  struct sl__tensor *dz = logits(SL_SHAPE(rows, classes), z);
  OK(sl__softmax_xent(context, &plain,
                      &(struct sl__loss_task){tz, tl, stats, dz, (float)v.scale, 0, 0}, 0, NULL));
  OK(sl__softmax_xent(context, &plain, &(struct sl__loss_task){tz, tl, alone, NULL, 0, 0, 0}, 0,
                      NULL));
  double want[4] = {sum_of_losses(z, &v), (double)right(z, &v), counted, outside};
  assert_near("stats", take(stats), want, 4, 20, 1 + want[0]);
  assert_near("stats without a gradient", take(alone), want, 4, 20, 1 + want[0]);
  double *gradient = take(dz);
  if (bf16) {
    double *exact = zeros(rows * classes);
    gradient_of(z, &v, exact);
    assert_near_bf16("bf16 dlogits", gradient, exact, rows * classes, 20, v.scale);
    free(exact);
  } else {
    assert_slope("dlogits", scaled_loss, &v, z, gradient, rows * classes);
    free(gradient);
  }
  sl__tensor_free(tz);
  sl__tensor_free(tl);
  free(z), free(labels);
}

static void loss_matches(void **state) {
  (void)state;
  check(1, 1, 1, false, false);
  check(1, 10, 3, false, false);
  check(37, 10, 5, true, false);
  check(200, 6, 5, true, false);  /* many right answers, of each class */
  check(256, 10, 5, true, false); /* on a GPU the most rows of a block */
  check(257, 3, 5, true, false);  /* several blocks */
  check(70, 32, 3, true, false);  /* the most classes of a part of a warp */
  check(70, 33, 3, true, false);
  check(8, 1001, 2, true, false);
  check(7, 3001, 2, true, false);   /* on a GPU a block's row */
  check(2, 10500, 2, false, false); /* one that its memory cannot hold */
}

/* Row n has its largest logit at n, and once more behind it. */
static void first_of_equals_counts(void **state) {
  (void)state;
  enum { ROWS = 299 };
  double *z = zeros(ROWS * (ROWS + 1));
  int32_t labels[ROWS];
  for (int turn = 0; turn < 2; turn++) { /* the first of the two, then the second */
    for (int n = 0; n < ROWS; n++) {
      z[n * (ROWS + 1) + n] = z[n * (ROWS + 1) + ROWS] = 3;
      labels[n] = turn ? ROWS : n;
    }
    struct sl__tensor *tz = tensor(SL_SHAPE(ROWS, ROWS + 1), z);
    struct sl__tensor *tl = integers(SL_SHAPE(ROWS), labels), *stats = tensor(SL_SHAPE(4), NULL);
    OK(sl__softmax_xent(context, &plain, &(struct sl__loss_task){tz, tl, stats, NULL, 1, 0, 0}, 0,
                        NULL));
    double *s = take(stats);
    assert_int_equal((int)s[1], turn ? 0 : ROWS);
    free(s);
    sl__tensor_free(tz);
    sl__tensor_free(tl);
  }
  free(z);
}

static void bf16_logits_match(void **state) {
  (void)state;
  check(37, 10, 5, true, true);
  check(257, 31, 2, true, true);
  check(37, 33, 2, true, true);
  check(5, 1001, 2, true, true);
  check(5, 3001, 2, true, true);
}

static void huge_logits_do_not_overflow(void **state) {
  (void)state;
  double z[] = {1e30, -1e30, 0, 3e4, 3e4 - 1, 0}, want[4] = {0 + log(1 + exp(-1)), 2, 2, 0};
  int32_t labels[] = {0, 0};
  struct sl__tensor *tz = tensor(SL_SHAPE(2, 3), z), *tl = integers(SL_SHAPE(2), labels);
  struct sl__tensor *stats = tensor(SL_SHAPE(4), NULL), *dz = tensor(SL_SHAPE(2, 3), NULL);
  OK(sl__softmax_xent(context, &plain, &(struct sl__loss_task){tz, tl, stats, dz, 1, 0, 0}, 0,
                      NULL));
  assert_near("stats", take(stats), want, 4, 4, 1);
  double *g = take(dz);
  for (int i = 0; i < 6; i++) assert_true(isfinite(g[i]));
  free(g);
  sl__tensor_free(tz);
  sl__tensor_free(tl);
}

static void nan_reaches_the_loss(void **state) {
  (void)state;
  double z[] = {0, NAN, 1};
  int32_t label = 0;
  struct sl__tensor *tz = tensor(SL_SHAPE(1, 3), z), *tl = integers(SL_SHAPE(1), &label);
  struct sl__tensor *stats = tensor(SL_SHAPE(4), NULL);
  OK(sl__softmax_xent(context, &plain, &(struct sl__loss_task){tz, tl, stats, NULL, 1, 0, 0}, 0,
                      NULL));
  double *s = take(stats);
  assert_true(isnan(s[0]));
  free(s);
  sl__tensor_free(tz);
  sl__tensor_free(tl);
}

static void shapes_are_checked(void **state) {
  (void)state;
  struct sl__tensor *z = tensor(SL_SHAPE(4, 3), NULL), *l = integers(SL_SHAPE(5), NULL),
                    *l4 = integers(SL_SHAPE(4), NULL);
  struct sl__tensor *stats = tensor(SL_SHAPE(4), NULL), *two = tensor(SL_SHAPE(2), NULL);
  assert_int_equal(sl__softmax_xent(context, &plain,
                                    &(struct sl__loss_task){z, l, stats, NULL, 1, 0, 0}, 0, NULL),
                   SL_BAD_SHAPE);
  assert_int_equal(sl__softmax_xent(context, &plain,
                                    &(struct sl__loss_task){z, l4, two, NULL, 1, 0, 0}, 0, NULL),
                   SL_BAD_SHAPE);
  assert_int_equal(sl__softmax_xent(context, &plain,
                                    &(struct sl__loss_task){z, l4, stats, stats, 1, 0, 0}, 0, NULL),
                   SL_BAD_SHAPE);
  struct sl__tensor *t[] = {z, l, l4, stats, two};
  for (int i = 0; i < 5; i++) sl__tensor_free(t[i]);
}

/* ---- label smoothing and class weights ---- */

struct weighted {
  int64_t rows, classes;
  const int32_t *labels;
  const double *weights; /* NULL: 1 */
  double smoothing, scale;
};

/* torch.nn.CrossEntropyLoss(weight, label_smoothing, reduction="sum"), times scale. */
static double weighted_loss(const double *z, void *data) {
  const struct weighted *v = data;
  double sum = 0;
  for (int64_t n = 0; n < v->rows; n++) {
    const double *row = z + n * v->classes;
    double most = row[0], total = 0;
    if (v->labels[n] < 0) continue;
    for (int64_t c = 1; c < v->classes; c++) most = fmax(most, row[c]);
    for (int64_t c = 0; c < v->classes; c++) total += exp(row[c] - most);
    for (int64_t c = 0; c < v->classes; c++) {
      double target = v->smoothing / (double)v->classes + (c == v->labels[n]) * (1 - v->smoothing);
      sum += (v->weights ? v->weights[c] : 1) * target * (log(total) + most - row[c]);
    }
  }
  return v->scale * sum;
}

static void check_weighted(int64_t rows, int64_t classes, double smoothing, bool weighted,
                           bool bf16) {
  struct sl__tensor *(*logits)(struct sl_shape, const double *) = bf16 ? bf16_tensor : tensor;
  int32_t *labels = calloc((size_t)rows, sizeof *labels);
  double *z = random_values(rows * classes, 17), *w = random_values(classes, 18);
  for (int64_t i = 0; i < rows * classes; i++) z[i] = (double)(float)(4 * z[i]);
  if (bf16) round_bf16(z, rows * classes);
  for (int64_t c = 0; c < classes; c++) w[c] = fabs(w[c]);
  for (int64_t n = 0; n < rows; n++)
    labels[n] = n % 6 == 4 ? SL_IGNORE : (int32_t)(n * 5 % classes);
  struct weighted v = {rows, classes, labels, weighted ? w : NULL, smoothing, 0.25};
  struct sl__tensor *tz = logits(SL_SHAPE(rows, classes), z),
                    *tl = integers(SL_SHAPE(rows), labels);
  struct sl__tensor *tw = tensor(SL_SHAPE(classes), w), *stats = tensor(SL_SHAPE(4), NULL);
  struct sl__tensor *alone = tensor(SL_SHAPE(4), NULL), *dz = logits(SL_SHAPE(rows, classes), z);
  float e = (float)smoothing;
  OK(sl__softmax_xent(context, &plain, &(struct sl__loss_task){tz, tl, stats, dz, 0.25f, 0, 0}, e,
                      weighted ? tw : NULL));
  OK(sl__softmax_xent(context, &plain, &(struct sl__loss_task){tz, tl, alone, NULL, 0, 0, 0}, e,
                      weighted ? tw : NULL));
  double want = weighted_loss(z, &v) / v.scale, *got = take(stats);
  assert_near("weighted loss", got, &want, 1, 20, 1 + want);
  assert_near("weighted loss without a gradient", take(alone), &want, 1, 20, 1 + want);
  double *gradient = take(dz);
  if (bf16) /* the rounding of the gradient aside */
    for (int64_t i = 0; i < rows * classes; i++) assert_true(fabs(gradient[i]) < 1);
  else
    assert_slope("weighted dlogits", weighted_loss, &v, z, gradient, rows * classes);
  free(gradient), free(z), free(w), free(labels);
  sl__tensor_free(tz), sl__tensor_free(tl), sl__tensor_free(tw);
}

static void smoothing_and_weights_match(void **state) {
  (void)state;
  check_weighted(1, 1, 0.1, false, false);
  check_weighted(37, 10, 0.1, false, false);
  check_weighted(37, 10, 0, true, false);
  check_weighted(23, 7, 0.3, true, false);
  check_weighted(23, 7, 1, true, false);
  check_weighted(257, 32, 0.3, true, false);
  check_weighted(37, 33, 0.3, true, false);
  check_weighted(5, 1100, 0.2, true, false); /* on a GPU a block's row */
  check_weighted(9, 33, 0.2, true, true);
  check_weighted(9, 10, 0.2, true, true);
}

static double *masked_loss(double mask, int32_t last_label, double smoothing, double last_weight) {
  double z[] = {0.5, mask, 2, -1, mask, 0.25}, w[] = {1, last_weight, 2};
  int32_t labels[] = {isnan(mask) ? SL_IGNORE : 2, last_label};
  struct sl__tensor *tz = tensor(SL_SHAPE(2, 3), z), *tl = integers(SL_SHAPE(2), labels);
  struct sl__tensor *tw = tensor(SL_SHAPE(3), w), *stats = tensor(SL_SHAPE(4), NULL);
  struct sl__tensor *dz = tensor(SL_SHAPE(2, 3), NULL);
  OK(sl__softmax_xent(context, &plain, &(struct sl__loss_task){tz, tl, stats, dz, 1, 0, 0},
                      (float)smoothing, tw));
  double *s = take(stats), *gradient = take(dz), *all = zeros(7);
  memcpy(all, gradient, 6 * sizeof *all);
  all[6] = s[0];
  free(s), free(gradient);
  sl__tensor_free(tz), sl__tensor_free(tl), sl__tensor_free(tw);
  return all;
}

/* A logit of -infinity masks its class: where its loss has no weight, all is as with a logit that
 * is far below the others. */
static void masked_classes_without_weight_count_nothing(void **state) {
  (void)state;
  const struct {
    int32_t label;
    double smoothing, weight;
  } cases[] = {{0, 0, 1}, {0, 0.25, 0}, {1, 0, 0}, {1, 0.25, 0}, {0, 1, 0}};
  for (int i = 0; i < 5; i++) {
    double *far = masked_loss(-1e4, cases[i].label, cases[i].smoothing, cases[i].weight);
    double *masked = masked_loss(-INFINITY, cases[i].label, cases[i].smoothing, cases[i].weight);
    for (int k = 0; k < 7; k++) assert_true(masked[k] == far[k]);
    free(masked), free(far);
  }
  double *lost = masked_loss(NAN, 1, 0, 0); /* but what is not a number is reported */
  assert_true(isnan(lost[6]));
  free(lost);
}

/* ---- losses of targets ---- */

struct regression {
  int64_t rows, size;
  enum sl_loss_kind kind;
  const double *targets;
  double delta, scale;
};

static double value_of(const struct regression *v, double z, double t) {
  double d = z - t;
  switch (v->kind) {
    case SL_LOSS_MAE: return fabs(d);
    case SL_LOSS_HUBER:
      return fabs(d) <= v->delta ? d * d / 2 : v->delta * (fabs(d) - v->delta / 2);
    case SL_LOSS_BCE: return log1p(exp(-fabs(z))) + fmax(z, 0) - z * t;
    default: return d * d;
  }
}

static double row_cosine(const double *z, const double *t, int64_t size) {
  double zt = dot(z, t, size), norm_z = sqrt(dot(z, z, size)), norm_t = sqrt(dot(t, t, size));
  return zt / (fmax(norm_z, 1e-8) * fmax(norm_t, 1e-8));
}

/* counts: lines with a target, terms. */
static double regression_sum(const double *z, const struct regression *v, double counts[2]) {
  double sum = 0;
  counts[0] = counts[1] = 0;
  for (int64_t n = 0; n < v->rows; n++) {
    const double *row = z + n * v->size, *t = v->targets + n * v->size;
    int64_t valid = 0;
    for (int64_t i = 0; i < v->size; i++) {
      valid += !isnan(t[i]);
      if (v->kind != SL_LOSS_COSINE && !isnan(t[i])) sum += value_of(v, row[i], t[i]);
    }
    bool whole = valid == v->size;
    if (v->kind == SL_LOSS_COSINE && whole) sum += 1 - row_cosine(row, t, v->size);
    counts[0] += v->kind == SL_LOSS_COSINE ? whole : valid > 0;
    counts[1] += v->kind == SL_LOSS_COSINE ? (double)whole : (double)valid;
  }
  return sum;
}

static double scaled_regression(const double *z, void *data) {
  const struct regression *v = data;
  double counts[2];
  return v->scale * regression_sum(z, v, counts);
}

static enum sl_status submit_regression(const struct regression *v, const struct sl__loss_task *t) {
  if (v->kind == SL_LOSS_COSINE) return sl__cosine_loss(context, &plain, t);
  return sl__elementwise_loss(context, &plain, t, v->kind, (float)v->delta);
}

static void check_regression(enum sl_loss_kind kind, int64_t rows, int64_t size, bool missing,
                             bool bf16) {
  struct sl__tensor *(*outputs)(struct sl_shape, const double *) = bf16 ? bf16_tensor : tensor;
  double *z = random_values(rows * size, 27), *t = random_values(rows * size, 28), want[4];
  for (int64_t i = 0; i < rows * size; i++) {
    z[i] = (double)(float)(3 * z[i]);
    if (kind == SL_LOSS_BCE) t[i] = i % 3 == 0 ? fabs(t[i]) : (double)(i % 2);
    if (missing && i % 7 == 3) t[i] = NAN;
  }
  if (bf16) round_bf16(z, rows * size);
  struct regression v = {rows, size, kind, t, 0.75, 0.125};
  const struct sl_shape shape = SL_SHAPE(rows, size);
  struct sl__tensor *tz = outputs(shape, z), *tt = tensor(shape, t), *dz = outputs(shape, z);
  struct sl__tensor *stats = tensor(SL_SHAPE(4), NULL), *alone = tensor(SL_SHAPE(4), NULL);
  OK(submit_regression(&v, &(struct sl__loss_task){tz, tt, stats, dz, 0.125f, 0, 0}));
  OK(submit_regression(&v, &(struct sl__loss_task){tz, tt, alone, NULL, 0, 0, 0}));
  want[0] = regression_sum(z, &v, want + 1);
  want[3] = 0;
  assert_near("stats", take(stats), want, 4, 20, 1 + want[0]);
  assert_near("stats without a gradient", take(alone), want, 4, 20, 1 + want[0]);
  double *gradient = take(dz);
  for (int64_t i = 0; i < rows * size; i++)
    if (isnan(t[i])) assert_true(gradient[i] == 0);
  if (!bf16) assert_slope("gradient", scaled_regression, &v, z, gradient, rows * size);
  free(gradient), free(z), free(t);
  sl__tensor_free(tz), sl__tensor_free(tt);
}

static void losses_of_targets_match(void **state) {
  (void)state;
  static const enum sl_loss_kind kinds[] = {SL_LOSS_MSE, SL_LOSS_MAE, SL_LOSS_HUBER, SL_LOSS_BCE,
                                            SL_LOSS_COSINE};
  for (int k = 0; k < 5; k++)
    for (int missing = 0; missing < 2; missing++) {
      check_regression(kinds[k], 1, 1, false, false);
      check_regression(kinds[k], 37, 1, missing, false);
      check_regression(kinds[k], 9, 35, missing, false);
      check_regression(kinds[k], 3, 1100, missing, false); /* on a GPU a block's row */
      check_regression(kinds[k], 9, 16, missing, true);
    }
}

/* Chunks in time, [2, 2, 3] of [2, 5, 3] from step 3 on, give what the whole gives there. */
static void chunks_of_targets_match(void **state) {
  (void)state;
  double *z = random_values(2 * 2 * 3, 5), *t = random_values(2 * 5 * 3, 6), part[2 * 2 * 3];
  for (int n = 0; n < 2; n++)
    for (int i = 0; i < 6; i++) part[n * 6 + i] = (double)(float)t[n * 15 + 9 + i];
  for (int k = 0; k < 2; k++) {
    struct regression v = {k ? 4 : 2, k ? 3 : 6, k ? SL_LOSS_COSINE : SL_LOSS_MSE, part, 1, 1};
    struct sl__tensor *tz = tensor(SL_SHAPE(2, 2, 3), z), *tt = tensor(SL_SHAPE(2, 5, 3), t);
    struct sl__tensor *stats = tensor(SL_SHAPE(4), NULL), *dz = tensor(SL_SHAPE(2, 2, 3), NULL);
    OK(submit_regression(&v, &(struct sl__loss_task){tz, tt, stats, dz, 1, 3, 0}));
    double counts[2], want = regression_sum(z, &v, counts);
    assert_near("chunk", take(stats), &want, 1, 20, 1 + want);
    double *gradient = take(dz);
    assert_slope("chunk's gradient", scaled_regression, &v, z, gradient, 12);
    free(gradient);
    FAILS(submit_regression(&v, &(struct sl__loss_task){tz, tt, tt, NULL, 1, 4, 0}), SL_BAD_SHAPE,
          "targets");
    sl__tensor_free(tz), sl__tensor_free(tt);
  }
  free(z), free(t);
}

/* Binary cross-entropy counts targets outside 0 .. 1; large logits do not overflow; a NaN output
 * reaches the loss. */
static void hard_targets(void **state) {
  (void)state;
  double z[] = {1e30, -1e30, 3, 0}, t[] = {1, 0, 1.5, -1};
  struct sl__tensor *tz = tensor(SL_SHAPE(2, 2), z), *tt = tensor(SL_SHAPE(2, 2), t);
  struct sl__tensor *stats = tensor(SL_SHAPE(4), NULL), *dz = tensor(SL_SHAPE(2, 2), NULL);
  struct regression v = {.kind = SL_LOSS_BCE};
  OK(submit_regression(&v, &(struct sl__loss_task){tz, tt, stats, dz, 1, 0, 0}));
  double *got = take(stats), *gradient = take(dz);
  assert_true(isfinite(got[0]) && got[3] == 2 && gradient[0] == 0 && gradient[1] == 0);
  free(got), free(gradient);
  sl__tensor_free(tz);
  z[2] = NAN;
  for (int k = SL_LOSS_MSE; k <= SL_LOSS_COSINE; k++) {
    v.kind = (enum sl_loss_kind)k;
    v.delta = 1;
    tz = tensor(SL_SHAPE(2, 2), z);
    stats = tensor(SL_SHAPE(4), NULL);
    OK(submit_regression(&v, &(struct sl__loss_task){tz, tt, stats, NULL, 1, 0, 0}));
    got = take(stats);
    assert_true(isnan(got[0]));
    free(got);
    sl__tensor_free(tz);
  }
  sl__tensor_free(tt);
}

/* Labels among the values of rows of floats. */
static void labels_come_from_floats(void **state) {
  (void)state;
  const float rows[3][4] = {{9, 0, 2, 9}, {9, NAN, 0.5f, 9}, {9, -1, 16777216, 9}};
  const int32_t want[3][2] = {{0, 2}, {SL_IGNORE, -2}, {-2, -2}};
  struct sl__tensor *targets, *labels = integers(SL_SHAPE(3, 2), NULL);
  int32_t have[3][2];
  OK(sl__tensor_host(context, &SL_SHAPE(3, 4), SL_F32, NULL, &targets));
  OK(sl__tensor_write(targets, rows));
  OK(sl__labels(context, &plain, targets, labels, 1));
  OK(sl__tensor_read(labels, have));
  assert_memory_equal(have, want, sizeof have);
  sl__tensor_free(targets);
  sl__tensor_free(labels);
}

/* The cosine of a vector of zeros is 0, whichever of the two it is; a target of zeros pulls the
 * output nowhere. */
static void zeros_have_no_direction(void **state) {
  (void)state;
  double z[] = {3, -4, 0, 0, 1, 1}, t[] = {0, 0, 3, 4, 1, 1};
  struct sl__tensor *tz = tensor(SL_SHAPE(3, 2), z), *tt = tensor(SL_SHAPE(3, 2), t);
  struct sl__tensor *stats = tensor(SL_SHAPE(4), NULL), *dz = tensor(SL_SHAPE(3, 2), NULL);
  struct regression v = {.kind = SL_LOSS_COSINE};
  OK(submit_regression(&v, &(struct sl__loss_task){tz, tt, stats, dz, 1, 0}));
  double *got = take(stats), *gradient = take(dz);
  assert_true(fabs(got[0] - 2) < 1e-6 && got[1] == 3 && got[3] == 0);
  assert_true(gradient[0] == 0 && gradient[1] == 0);
  for (int i = 2; i < 6; i++) assert_true(isfinite(gradient[i]));
  free(got), free(gradient);
  sl__tensor_free(tz), sl__tensor_free(tt);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(loss_matches),
                                     cmocka_unit_test(labels_come_from_floats),
                                     cmocka_unit_test(zeros_have_no_direction),
                                     cmocka_unit_test(bf16_logits_match),
                                     cmocka_unit_test(huge_logits_do_not_overflow),
                                     cmocka_unit_test(nan_reaches_the_loss),
                                     cmocka_unit_test(first_of_equals_counts),
                                     cmocka_unit_test(shapes_are_checked),
                                     cmocka_unit_test(smoothing_and_weights_match),
                                     cmocka_unit_test(masked_classes_without_weight_count_nothing),
                                     cmocka_unit_test(losses_of_targets_match),
                                     cmocka_unit_test(chunks_of_targets_match),
                                     cmocka_unit_test(hard_targets)};
  return cmocka_run_group_tests_name("loss", tests, open_operations, close_context);
}
