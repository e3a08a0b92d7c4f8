/* Attention against loops in double precision over all pairs of steps, whose gradient is checked by
 * finite differences; chunks, rows and heads of a sequence give the bits of the whole, but for the
 * gradients of keys and values by chunks on a GPU. */
#include "codelets/attention.h"
#include "codelets/dropout.h"

#include "tests/common/check.h"

struct trial {
  int64_t rows, steps;
  int heads, kv_heads;
  int64_t dims;
  int rope_dims;
  float rate;
};

static int64_t in_of(const struct trial *c) { return (c->heads + 2 * c->kv_heads) * c->dims; }
static int64_t out_of(const struct trial *c) { return c->heads * c->dims; }
static int64_t x_count(const struct trial *c) { return c->rows * c->steps * in_of(c); }
static int64_t y_count(const struct trial *c) { return c->rows * c->steps * out_of(c); }

static struct sl__attention options_of(const struct trial *c) {
  return (struct sl__attention){
      .heads = c->heads,
      .kv_heads = c->kv_heads,
      .rope_dims = c->rope_dims,
      .rope_base = 100,
      .context = c->steps + 3,
      .dropout = {.rate = c->rate, .seed = 5, .stream = 6, .step = 9, .first = 11}};
}

/* ---- the reference ---- */

/* A head of x (queries, then keys, then values) at step t, turned by t; direction -1: back. */
static void turned(const struct trial *c, const double *x, int64_t t, double direction,
                   double *to) {
  int64_t half = c->rope_dims / 2;
  for (int64_t d = 0; d < c->dims; d++) to[d] = x[d];
  for (int64_t i = 0; i < half; i++) {
    double angle = (double)t * pow(100, -2.0 * (double)i / (double)c->rope_dims);
    double s = direction * sin(angle);
    to[i] = x[i] * cos(angle) - x[half + i] * s;
    to[half + i] = x[half + i] * cos(angle) + x[i] * s;
  }
}

static const double *head_of(const struct trial *c, const double *x, int64_t n, int64_t t,
                             int64_t head) {
  return x + (n * c->steps + t) * in_of(c) + head * c->dims;
}

static double factor_of(const struct trial *c, int64_t n, int64_t h, int64_t q, int64_t k) {
  uint64_t context = (uint64_t)(c->steps + 3), pitch = (context + 3) / 4 * 4;
  uint64_t line = ((uint64_t)(11 + n) * (uint64_t)c->heads + (uint64_t)h) * context + (uint64_t)q;
  return c->rate > 0 ? (double)sl__dropout_factor(c->rate, 5, 6 ^ 9, line * pitch + (uint64_t)k)
                     : 1;
}

/* p[k]: probabilities of the keys up to step q; returns the logarithm of their sum. */
static double probabilities(const struct trial *c, const double *x, int64_t n, int64_t h, int64_t q,
                            double *p) {
  double a[SL__ATTENTION_MOST_DIMS], b[SL__ATTENTION_MOST_DIMS], most = -HUGE_VAL, sum = 0;
  int64_t kv = c->heads + h / (c->heads / c->kv_heads);
  turned(c, head_of(c, x, n, q, h), q, 1, a);
  for (int64_t k = 0; k <= q; k++) {
    turned(c, head_of(c, x, n, k, kv), k, 1, b);
    p[k] = dot(a, b, c->dims) / sqrt((double)c->dims);
    most = fmax(most, p[k]);
  }
  for (int64_t k = 0; k <= q; k++) sum += p[k] = exp(p[k] - most);
  for (int64_t k = 0; k <= q; k++) p[k] /= sum;
  return most + log(sum);
}

static void reference(const struct trial *c, const double *x, double *y, double *lse) {
  double *p = zeros(c->steps);
  for (int64_t n = 0; n < c->rows; n++)
    for (int64_t q = 0; q < c->steps; q++)
      for (int64_t h = 0; h < c->heads; h++) {
        double *to = y + (n * c->steps + q) * out_of(c) + h * c->dims;
        int64_t kv = c->heads + c->kv_heads + h / (c->heads / c->kv_heads);
        lse[(n * c->steps + q) * c->heads + h] = probabilities(c, x, n, h, q, p);
        for (int64_t d = 0; d < c->dims; d++) to[d] = 0;
        for (int64_t k = 0; k <= q; k++)
          for (int64_t d = 0; d < c->dims; d++)
            to[d] += p[k] * factor_of(c, n, h, q, k) * head_of(c, x, n, k, kv)[d];
      }
  free(p);
}

static void add_turned(const struct trial *c, const double *from, int64_t t, double *to) {
  double back[SL__ATTENTION_MOST_DIMS];
  turned(c, from, t, -1, back);
  for (int64_t d = 0; d < c->dims; d++) to[d] += back[d];
}

/* One query's part of dx. */
static void reference_query(const struct trial *c, const double *x, const double *dy, int64_t n,
                            int64_t h, int64_t q, double *p, double *dx) {
  int64_t kv = c->heads + h / (c->heads / c->kv_heads), D = c->dims;
  const double *slope = dy + (n * c->steps + q) * out_of(c) + h * D;
  double a[SL__ATTENTION_MOST_DIMS], b[SL__ATTENTION_MOST_DIMS],
      da[SL__ATTENTION_MOST_DIMS] = {0}, db[SL__ATTENTION_MOST_DIMS], sum = 0,
      scale = 1 / sqrt((double)D);
  probabilities(c, x, n, h, q, p);
  turned(c, head_of(c, x, n, q, h), q, 1, a);
  for (int64_t k = 0; k <= q; k++)
    sum += p[k] * factor_of(c, n, h, q, k) * dot(slope, head_of(c, x, n, k, kv + c->kv_heads), D);
  for (int64_t k = 0; k <= q; k++) {
    double f = factor_of(c, n, h, q, k);
    const double *value = head_of(c, x, n, k, kv + c->kv_heads);
    double ds = p[k] * (f * dot(slope, value, D) - sum) * scale;
    double *dvalue = dx + (value - x), *dkey = dx + (head_of(c, x, n, k, kv) - x);
    turned(c, head_of(c, x, n, k, kv), k, 1, b);
    for (int64_t d = 0; d < D; d++) {
      dvalue[d] += p[k] * f * slope[d];
      da[d] += ds * b[d];
      db[d] = ds * a[d];
    }
    add_turned(c, db, k, dkey);
  }
  add_turned(c, da, q, dx + (head_of(c, x, n, q, h) - x));
}

static double *reference_gradient(const struct trial *c, const double *x, const double *dy) {
  double *dx = zeros(x_count(c)), *p = zeros(c->steps);
  for (int64_t n = 0; n < c->rows; n++)
    for (int64_t q = 0; q < c->steps; q++)
      for (int64_t h = 0; h < c->heads; h++) reference_query(c, x, dy, n, h, q, p, dx);
  free(p);
  return dx;
}

struct scalar {
  const struct trial *c;
  const double *dy;
};

static double scalar_of(const double *x, void *data) {
  const struct scalar *s = data;
  double *y = zeros(y_count(s->c)), *lse = zeros(s->c->rows * s->c->steps * s->c->heads);
  reference(s->c, x, y, lse);
  double value = dot(y, s->dy, y_count(s->c));
  free(y), free(lse);
  return value;
}

static void the_reference_has_its_own_slopes(void **state) {
  (void)state;
  const struct trial trials[] = {{1, 5, 2, 1, 4, 2, 0.3f}, {2, 3, 2, 2, 6, 6, 0}};
  for (int i = 0; i < 2; i++) {
    const struct trial *c = &trials[i];
    double *x = random_values(x_count(c), 1), *dy = random_values(y_count(c), 2);
    double *dx = reference_gradient(c, x, dy);
    assert_slope("reference", scalar_of, &(struct scalar){c, dy}, x, dx, x_count(c));
    free(x), free(dy), free(dx);
  }
}

/* ---- the operations ---- */

static struct sl_shape x_shape(const struct trial *c) {
  return SL_SHAPE(c->rows, c->steps, in_of(c));
}
static struct sl_shape y_shape(const struct trial *c) {
  return SL_SHAPE(c->rows, c->steps, out_of(c));
}

/* Forward and backward, with dx added to `old`. */
static void check(const struct trial *c, bool bf16) {
  int64_t nx = x_count(c), ny = y_count(c), sums = c->rows * c->steps * c->heads;
  double *x = round_bf16(random_values(nx, 1), nx), *dy = round_bf16(random_values(ny, 2), ny),
         *old = round_bf16(random_values(nx, 3), nx), *want = zeros(ny), *want_lse = zeros(sums);
  for (int64_t i = 0; i < nx; i++) x[i] *= 2; /* not all probabilities alike */
  struct sl__tensor *(*make)(struct sl_shape, const double *) = bf16 ? bf16_tensor : tensor;
  struct sl__tensor *tx = make(x_shape(c), x), *ty = make(y_shape(c), NULL),
                    *tdy = make(y_shape(c), dy), *tdx = make(x_shape(c), NULL),
                    *sum = make(x_shape(c), old),
                    *lse = tensor(SL_SHAPE(c->rows, c->steps, c->heads), NULL);
  const struct sl__attention o = options_of(c);
  OK(sl__attention_forward(context, &plain, tx, ty, lse, NULL, &o));
  OK(sl__attention_backward(context, &plain, tx, ty, lse, tdy, tdx, NULL, NULL, &o));
  OK(sl__attention_backward(context, &adding, tx, ty, lse, tdy, sum, NULL, NULL, &o));
  reference(c, x, want, want_lse);
  double *dx = reference_gradient(c, x, dy), most = 1;
  for (int64_t i = 0; i < nx; i++) most = fmax(most, fabs(dx[i]));
  double terms = 100 + (bf16 ? 30000 : 0);      /* <y, dy> is of y as it was stored */
  double rounded = bf16 && on_gpu() ? 1e5 : 60; /* turned factors and weights, as bf16 */
  (bf16 ? assert_near_bf16 : assert_near)("y", take(ty), want, ny, rounded, 3);
  assert_near("lse", take(lse), want_lse, sums, rounded, 12);
  (bf16 ? assert_near_bf16 : assert_near)("dx", take(tdx), dx, nx, terms, 2 * most);
  for (int64_t i = 0; i < nx; i++) dx[i] += old[i];
  (bf16 ? assert_near_bf16 : assert_near)("old + dx", take(sum), dx, nx, terms, 2 * most + 1);
  sl__tensor_free(tx), sl__tensor_free(tdy);
  free(x), free(dy), free(old), free(want), free(want_lse), free(dx);
}

static const struct trial trials[] = {{1, 1, 1, 1, 8, 0, 0},    {2, 7, 4, 2, 20, 12, 0},
                                      {1, 65, 2, 2, 20, 20, 0}, {1, 130, 3, 1, 8, 0, 0.3f},
                                      {1, 70, 2, 1, 64, 64, 0}, {2, 5, 3, 3, 3, 2, 0.5f},
                                      {1, 4, 1, 1, 256, 4, 0}};

static void values_match_the_reference(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof trials / sizeof *trials; i++)
    for (int bf16 = 0; bf16 < 2; bf16++) check(&trials[i], bf16);
}

/* e^score of one key alone, each in turn, would be infinite: the softmax subtracts the greatest. */
static void large_scores_stay_finite(void **state) {
  (void)state;
  const struct trial c = {1, 40, 1, 1, 8, 0, 0};
  const struct sl__attention o = options_of(&c);
  for (int64_t key = 0; key < c.steps; key++) {
    double *x = zeros(x_count(&c)), want = (double)(key + 1);
    for (int64_t t = 0; t < c.steps; t++)
      for (int64_t d = 0; d < c.dims; d++) {
        double *at = x + t * in_of(&c) + d;
        at[0] = 16, at[c.dims] = t == key ? 16 : 0, at[2 * c.dims] = (double)(t + 1);
      }
    struct sl__tensor *tx = tensor(x_shape(&c), x), *ty = tensor(y_shape(&c), NULL),
                      *lse = tensor(SL_SHAPE(1, c.steps, 1), NULL);
    OK(sl__attention_forward(context, &plain, tx, ty, lse, NULL, &o));
    double *y = take(ty);
    for (int64_t t = key; t < c.steps; t++)
      for (int64_t d = 0; d < c.dims; d++)
        assert_true(fabs(y[t * out_of(&c) + d] - want) <= 1e-5 * want);
    sl__tensor_free(tx), sl__tensor_free(lse);
    free(x), free(y);
  }
}

/* ---- the same bits ---- */

struct values {
  double *y, *lse, *dx;
};

/* Rows [first, first + c->rows) of more, in chunks of a given number of steps; 0: at once, without
 * a state.
 */
static struct values run(const struct trial *c, int64_t first, const double *x, const double *dy,
                         int64_t chunk) {
  struct sl__attention o = options_of(c);
  struct sl__tensor *state = NULL, *dstate = NULL, *part[130][5];
  int64_t width = 2 * c->kv_heads * c->dims, each = chunk ? chunk : c->steps;
  int count = (int)((c->steps + each - 1) / each);
  struct values v = {zeros(y_count(c)), zeros(c->rows * c->steps * c->heads), zeros(x_count(c))};
  int64_t pitch[5] = {in_of(c), out_of(c), c->heads, out_of(c), in_of(c)};
  const double *from[5] = {x + first * c->steps * pitch[0], NULL, NULL,
                           dy + first * c->steps * pitch[1], NULL};
  double *to[5] = {NULL, v.y, v.lse, NULL, v.dx};
  assert_true(count <= 130);
  o.dropout.first += (uint64_t)first;
  if (chunk) state = tensor(SL_SHAPE(c->rows, o.context, width), NULL);
  if (chunk) dstate = tensor(SL_SHAPE(c->rows, o.context, width), NULL);
  for (int i = 0; i < count; i++) {
    int64_t begin = i * each, steps = c->steps - begin < each ? c->steps - begin : each;
    for (int k = 0; k < 5; k++) {
      double *values = zeros(c->rows * steps * pitch[k]);
      for (int64_t n = 0; n < c->rows && from[k]; n++)
        memcpy(values + n * steps * pitch[k], from[k] + (n * c->steps + begin) * pitch[k],
               (size_t)(steps * pitch[k]) * sizeof *values);
      part[i][k] = tensor(SL_SHAPE(c->rows, steps, pitch[k]), values);
      free(values);
    }
    o.position = begin;
    OK(sl__attention_forward(context, &plain, part[i][0], part[i][1], part[i][2], state, &o));
  }
  for (int i = count - 1; i >= 0; i--) {
    o.position = i * each;
    OK(sl__attention_backward(context, &plain, part[i][0], part[i][1], part[i][2], part[i][3],
                              part[i][4], state, dstate, &o));
  }
  for (int i = 0; i < count; i++)
    for (int k = 0; k < 5; k++) {
      int64_t steps = part[i][k]->shape.dim[1];
      double *values = take(part[i][k]);
      for (int64_t n = 0; n < c->rows && to[k]; n++)
        memcpy(to[k] + (n * c->steps + i * each) * pitch[k], values + n * steps * pitch[k],
               (size_t)(steps * pitch[k]) * sizeof *values);
      free(values);
    }
  if (chunk) sl__tensor_free(state), sl__tensor_free(dstate);
  return v;
}

static void assert_near_doubles(const double *got, const double *want, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    if (!(fabs(got[i] - want[i]) <= 2e-5 + 2e-5 * fabs(want[i])))
      fail_msg("dx: element %lld is %.9g, of the whole %.9g", (long long)i, got[i], want[i]);
}

/* chunks: the rows came in chunks. A GPU's sums over the queries are cut where chunks end. */
static void assert_rows(const struct trial *c, const struct values *got, const struct values *whole,
                        int64_t first, bool chunks) {
  int64_t rows = first * c->steps;
  assert_memory_equal(got->y, whole->y + rows * out_of(c), (size_t)y_count(c) * sizeof(double));
  assert_memory_equal(got->lse, whole->lse + rows * c->heads,
                      (size_t)(c->rows * c->steps * c->heads) * sizeof(double));
  for (int64_t r = 0; r < c->rows * c->steps; r++) {
    const double *mine = got->dx + r * in_of(c), *theirs = whole->dx + (rows + r) * in_of(c);
    int64_t queries = chunks && on_gpu() ? out_of(c) : in_of(c);
    assert_memory_equal(mine, theirs, (size_t)queries * sizeof(double));
    assert_near_doubles(mine + queries, theirs + queries, in_of(c) - queries);
  }
  free(got->y), free(got->lse), free(got->dx);
}

static void chunks_have_the_bits_of_the_whole(void **state) {
  (void)state;
  const struct trial c[] = {{2, 130, 2, 1, 8, 8, 0.3f}, {1, 67, 2, 2, 20, 0, 0}};
  static const int64_t chunks[] = {130, 65, 64, 33, 7};
  for (int k = 0; k < 2; k++) {
    double *x = random_values(x_count(&c[k]), 1), *dy = random_values(y_count(&c[k]), 2);
    struct values whole = run(&c[k], 0, x, dy, 0);
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
      struct values got = run(&c[k], 0, x, dy, chunks[i]);
      assert_rows(&c[k], &got, &whole, 0, true);
    }
    struct values steps = run(&c[k], 0, x, dy, k ? 1 : 5);
    assert_rows(&c[k], &steps, &whole, 0, true);
    free(x), free(dy), free(whole.y), free(whole.lse), free(whole.dx);
  }
}

static void rows_have_the_bits_of_the_batch(void **state) {
  (void)state;
  const struct trial all = {5, 70, 2, 1, 12, 4, 0.4f};
  double *x = random_values(x_count(&all), 1), *dy = random_values(y_count(&all), 2);
  struct values whole = run(&all, 0, x, dy, 0);
  for (int64_t first = 0; first < 5; first += 2) {
    struct trial part = all;
    part.rows = first == 4 ? 1 : 2;
    struct values got = run(&part, first, x, dy, first ? 0 : 30);
    assert_rows(&part, &got, &whole, first, !first);
  }
  free(x), free(dy), free(whole.y), free(whole.lse), free(whole.dx);
}

static void arguments_are_checked(void **state) {
  (void)state;
  const struct trial c = {2, 3, 4, 2, 6, 4, 0};
  const struct sl__attention good = options_of(&c);
  struct sl__attention bad[6] = {good, good, good, good, good, good};
  const enum sl_status status[6] = {SL_BAD_SHAPE,    SL_BAD_SHAPE,    SL_BAD_ARGUMENT,
                                    SL_BAD_ARGUMENT, SL_BAD_ARGUMENT, SL_BAD_SHAPE};
  struct sl__tensor *x = tensor(x_shape(&c), NULL), *y = tensor(y_shape(&c), NULL),
                    *lse = tensor(SL_SHAPE(2, 3, 4), NULL);
  bad[0].heads = 3;
  bad[1].context = 2;
  bad[2].rope_dims = 3;
  bad[3].rope_dims = 8;
  bad[4].dropout.rate = 1;
  bad[5].position = 1; /* without a state */
  for (int i = 0; i < 6; i++) {
    assert_int_equal(sl__attention_forward(context, &plain, x, y, lse, NULL, &bad[i]), status[i]);
    assert_int_equal(sl__attention_backward(context, &plain, x, y, lse, y, x, NULL, NULL, &bad[i]),
                     status[i]);
  }
  assert_int_equal(sl__attention_forward(context, &plain, x, y, lse, lse, &good), SL_BAD_SHAPE);
  assert_int_equal(sl__attention_backward(context, &plain, x, y, lse, x, x, NULL, NULL, &good),
                   SL_BAD_SHAPE);
  sl__tensor_free(x), sl__tensor_free(y), sl__tensor_free(lse);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_reference_has_its_own_slopes),
                                     cmocka_unit_test(values_match_the_reference),
                                     cmocka_unit_test(large_scores_stay_finite),
                                     cmocka_unit_test(chunks_have_the_bits_of_the_whole),
                                     cmocka_unit_test(rows_have_the_bits_of_the_batch),
                                     cmocka_unit_test(arguments_are_checked)};
  return cmocka_run_group_tests_name("attention", tests, open_operations, close_context);
}
