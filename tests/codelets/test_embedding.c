/* Embedding: rows by token, gradients of repeated tokens added, tokens outside the vocabulary; long
 * batches to the bit, in f32 and bf16. */
#include "tests/common/check.h"

enum { V = 7, D = 5, T = 9 };
static const int32_t tokens[T] = {3, 0, 6, 3, 3, 1, 0, 6, 2};

static void rows_are_picked_and_gradients_added(void **state) {
  (void)state;
  double *table = random_values(V * D, 1), *dy = random_values(T * D, 2),
         *old = random_values(V * D, 3), y[T * D];
  for (int n = 0; n < T; n++)
    for (int d = 0; d < D; d++) y[n * D + d] = table[tokens[n] * D + d];
  for (int add = 0; add < 2; add++) {
    double grad[V * D] = {0};
    if (add) memcpy(grad, old, sizeof grad);
    for (int n = 0; n < T; n++)
      for (int d = 0; d < D; d++) grad[tokens[n] * D + d] += dy[n * D + d];
    struct sl__tensor *tt = integers(SL_SHAPE(3, 3), tokens), *tp = tensor(SL_SHAPE(V * D), table);
    struct sl__tensor *ty = tensor(SL_SHAPE(3, 3, D), NULL), *tdy = tensor(SL_SHAPE(3, 3, D), dy);
    struct sl__tensor *tg = tensor(SL_SHAPE(V * D), old);
    OK(sl__embedding_forward(context, &plain, tt, tp, ty, V, 0));
    OK(sl__embedding_backward_weight(context, add ? &adding : &plain, tt, tdy, tg, V, 0));
    assert_near("rows", take(ty), y, T * D, 0, 0);
    assert_near("gradient", take(tg), grad, V * D, 3, 3);
    sl__tensor_free(tt);
    sl__tensor_free(tp);
    sl__tensor_free(tdy);
  }
  free(table), free(dy), free(old);
}

static void tokens_outside_give_nan(void **state) {
  (void)state;
  int32_t bad[3] = {V, -1, 2};
  double *table = random_values(V * D, 1), dy[3 * D] = {0};
  for (int i = 0; i < 3 * D; i++) dy[i] = 1;
  struct sl__tensor *tt = integers(SL_SHAPE(3), bad), *tp = tensor(SL_SHAPE(V * D), table);
  struct sl__tensor *ty = tensor(SL_SHAPE(3, D), NULL), *tdy = tensor(SL_SHAPE(3, D), dy);
  struct sl__tensor *tg = tensor(SL_SHAPE(V * D), NULL);
  OK(sl__embedding_forward(context, &plain, tt, tp, ty, V, 0));
  OK(sl__embedding_backward_weight(context, &plain, tt, tdy, tg, V, 0));
  double *y = take(ty), *g = take(tg), sum = 0;
  for (int i = 0; i < 2 * D; i++) assert_true(isnan(y[i]));
  for (int i = 0; i < D; i++) assert_true(y[2 * D + i] == table[2 * D + i]);
  for (int i = 0; i < V * D; i++) sum += g[i];
  assert_true(sum == D);
  sl__tensor_free(tt);
  sl__tensor_free(tp);
  sl__tensor_free(tdy);
  free(y), free(g), free(table);
}

/* ---- row-sparse gradients ------------------------------------------------------------------- */

/* The dense gradient that a pair stands for; each row must be there once only. Freed. */
static double *spread(struct sl__tensor *rows, struct sl__tensor *values, int expected) {
  int32_t numbers[2 * T + 1];
  double *dense = zeros(V * D), *v;
  OK(sl__tensor_read(rows, numbers));
  v = take(values);
  assert_int_equal(numbers[0], expected);
  bool seen[V] = {false};
  for (int k = 0; k < numbers[0]; k++) {
    assert_in_range(numbers[1 + k], 0, V - 1);
    assert_false(seen[numbers[1 + k]]);
    seen[numbers[1 + k]] = true;
    for (int d = 0; d < D; d++) dense[numbers[1 + k] * D + d] = v[k * D + d];
  }
  sl__tensor_free(rows);
  free(v);
  return dense;
}

/* Columns 1 and 2, then column 0 added: together the dense gradient of all. */
static void touched_rows_are_collected(void **state) {
  (void)state;
  double *dy = random_values(T * D, 2), late[6 * D], early[3 * D], want[V * D] = {0};
  for (int n = 0; n < T; n++)
    for (int d = 0; d < D; d++) {
      want[tokens[n] * D + d] += dy[n * D + d];
      if (n % 3)
        late[(n / 3 * 2 + n % 3 - 1) * D + d] = dy[n * D + d];
      else
        early[n / 3 * D + d] = dy[n * D + d];
    }
  struct sl__tensor *tt = integers(SL_SHAPE(3, 3), tokens);
  struct sl__tensor *tl = tensor(SL_SHAPE(3, 2, D), late), *te = tensor(SL_SHAPE(3, 1, D), early);
  struct sl__tensor *rows = integers(SL_SHAPE(V + 1), NULL);
  struct sl__tensor *values = tensor(SL_SHAPE(V, D), NULL);
  OK(sl__embedding_backward_rows(context, &plain, tt, tl, rows, values, V, 1));
  OK(sl__embedding_backward_rows(context, &adding, tt, te, rows, values, V, 0));
  double *got = spread(rows, values, 5); /* 0, 1, 2, 3, 6 */
  assert_near("rows", got, want, V * D, 3, 3);
  sl__tensor_free(tt);
  sl__tensor_free(tl);
  sl__tensor_free(te);
  free(dy);
}

/* Two pairs, added up, made dense, squared, descended along; the table cut within a row. */
static void rows_stand_for_the_dense_gradient(void **state) {
  (void)state;
  static const int32_t first[4] = {3, 6, 0, 2}, second[6] = {5, 2, 3, 1, 5, 4};
  double *a = random_values(3 * D, 1), *b = random_values(5 * D, 2),
         *table = random_values(V * D, 3);
  double want[V * D] = {0}, square = 0;
  for (int k = 0; k < 3; k++)
    for (int d = 0; d < D; d++) want[first[1 + k] * D + d] += a[k * D + d];
  for (int k = 0; k < 4; k++) /* one of five is not in use */
    for (int d = 0; d < D; d++) want[second[1 + k] * D + d] += b[k * D + d];
  for (int i = 0; i < V * D; i++) square += want[i] * want[i];
  struct sl__tensor *rows[] = {integers(SL_SHAPE(4), first), integers(SL_SHAPE(6), second)};
  struct sl__tensor *values[] = {tensor(SL_SHAPE(3, D), a), tensor(SL_SHAPE(5, D), b)};
  int32_t four[6] = {4, 2, 3, 1, 5, 0};
  OK(sl__tensor_write(rows[1], four));
  struct sl__tensor *sum_rows = integers(SL_SHAPE(V + 1), NULL);
  struct sl__tensor *sum = tensor(SL_SHAPE(V, D), NULL), *dense = tensor(SL_SHAPE(V * D), table);
  struct sl__tensor *norm = tensor(SL_SHAPE(1), NULL);
  OK(sl__rows_reduce(context, &plain, sum_rows, sum, 2, rows, values, V));
  OK(sl__rows_dense(context, &plain, sum_rows, sum, dense));
  OK(sl__rows_square(context, &plain, sum_rows, sum, norm));
  const struct sl__update update = {.lr = 0.5f, .max_norm = 1};
  int64_t cut = 2 * D + 2; /* within row 2 */
  for (int clip = 0; clip < 2; clip++) {
    struct sl__tensor *low = tensor(SL_SHAPE(cut), table);
    struct sl__tensor *high = tensor(SL_SHAPE(V * D - cut), table + cut);
    double factor = clip ? 0.5 / sqrt(square) : 0.5, *moved = zeros(V * D);
    for (int i = 0; i < V * D; i++) moved[i] = table[i] - factor * want[i];
    OK(sl__rows_sgd(context, &plain, low, 0, sum_rows, sum, clip ? norm : NULL, &update));
    OK(sl__rows_sgd(context, &plain, high, cut, sum_rows, sum, clip ? norm : NULL, &update));
    assert_near("low", take(low), moved, cut, 4, 3);
    assert_near("high", take(high), moved + cut, V * D - cut, 4, 3);
    free(moved);
  }
  assert_near("dense", take(dense), want, V * D, 2, 2);
  assert_near("square", take(norm), &square, 1, V * D, square);
  free(spread(sum_rows, sum, 6)); /* 0, 1, 2, 3, 5, 6 */
  for (int i = 0; i < 2; i++) {
    sl__tensor_free(rows[i]);
    sl__tensor_free(values[i]);
  }
  free(a), free(b), free(table);
}

/* Many rows of several terms: each in the place of its first touch, the sums in the terms' order to
 * the bit; with too little room NaN, and the rows that were there first. */
static void rows_are_in_the_order_of_first_touch(void **state) {
  (void)state;
  enum { TABLE = 6007, WIDTH = 12, TERMS = 3 };
  static const int counts[TERMS] = {1500, 2600, 1}, steps[TERMS] = {7, 1000, 3};
  static float sum[TABLE * WIDTH];
  static int32_t order[TABLE + 1], place[TABLE];
  for (int width = WIDTH; width > WIDTH - 2; width--)
    for (int full = 0; full < 2; full++) {
      int room = full ? 2000 : 4101, used = 0;
      struct sl__tensor *rows[TERMS], *values[TERMS];
      memset(place, 0xff, sizeof place);
      memset(order, 0, sizeof order);
      for (int t = 0; t < TERMS; t++) {
        int32_t *numbers = calloc((size_t)counts[t] + 1, sizeof *numbers);
        double *v = random_values((int64_t)counts[t] * width, (uint64_t)t);
        numbers[0] = counts[t];
        for (int k = 0; k < counts[t]; k++) {
          int32_t row = (int32_t)((int64_t)k * steps[t] % TABLE); /* TABLE is prime: each once */
          numbers[1 + k] = row;
          bool is_new = place[row] < 0;
          if (is_new && used == room) continue;
          if (is_new) order[1 + used] = row, place[row] = used++;
          for (int d = 0; d < width; d++) {
            float x = (float)v[k * width + d], *s = &sum[place[row] * width + d];
            *s = is_new ? x : *s + x;
          }
        }
        rows[t] = integers(SL_SHAPE(counts[t] + 1), numbers);
        values[t] = tensor(SL_SHAPE(counts[t], width), v);
        free(numbers), free(v);
      }
      order[0] = used;
      struct sl__tensor *sum_rows = integers(SL_SHAPE(room + 1), NULL),
                        *sums = tensor(SL_SHAPE(room, width), NULL);
      OK(sl__rows_reduce(context, &plain, sum_rows, sums, TERMS, rows, values, TABLE));
      int32_t *got = calloc((size_t)room + 1, sizeof *got);
      OK(sl__tensor_read(sum_rows, got));
      assert_memory_equal(got, order, (size_t)(used + 1) * sizeof *got);
      double *v = take(sums);
      assert_int_equal(isnan(v[0]), full);
      for (int i = full; i < used * width; i++) assert_true(v[i] == (double)sum[i]);
      for (int t = 0; t < TERMS; t++) sl__tensor_free(rows[t]), sl__tensor_free(values[t]);
      sl__tensor_free(sum_rows);
      free(got), free(v);
    }
}

/* Too little room is not passed over in silence. */
static void rows_without_room_give_nan(void **state) {
  (void)state;
  struct sl__tensor *tt = integers(SL_SHAPE(3, 3), tokens), *tdy = tensor(SL_SHAPE(3, 3, D), NULL);
  struct sl__tensor *rows = integers(SL_SHAPE(3), NULL), *values = tensor(SL_SHAPE(2, D), NULL);
  OK(sl__embedding_backward_rows(context, &plain, tt, tdy, rows, values, V, 0));
  double *v = take(values);
  assert_true(isnan(v[0]));
  free(v);
  sl__tensor_free(tt);
  sl__tensor_free(tdy);
  sl__tensor_free(rows);
}

/* ---- batches that are too long for a GPU to sort at once ---- */

enum { ROWS = 90, COLUMNS = 103, FROM = 2, STEPS = 101, POSITIONS = ROWS * STEPS, WORDS = 700 };

/* A third of all are one word, some are outside the table. */
static int32_t *long_batch(void) {
  int32_t *t = calloc(ROWS * COLUMNS, sizeof *t);
  double *v = random_values(ROWS * COLUMNS, 11);
  for (int i = 0; i < ROWS * COLUMNS; i++) {
    t[i] = i % 3 ? (int32_t)((v[i] * v[i]) * WORDS) : 5;
    if (i % 97 == 0) t[i] = i % 2 ? -1 : WORDS;
  }
  free(v);
  return t;
}

static int32_t position(const int32_t *t, int n) {
  int32_t token = t[n / STEPS * COLUMNS + FROM + n % STEPS];
  return token >= 0 && token < WORDS ? token : -1;
}

/* Adds position by position, in floats; rows: in the order of first touch. Where there is no room
 * the first value becomes NaN. \return the number of rows. */
static int collect(const int32_t *t, const double *dy, int features, int room, int32_t *rows,
                   double *sums) {
  int count = 0, lost = 0;
  for (int n = 0; n < POSITIONS; n++) {
    int32_t token = position(t, n);
    int k = 0;
    while (k < count && rows[k] != token) k++;
    if (token < 0) continue;
    if (k == count && count == room) {
      lost++;
      continue;
    }
    if (k == count) rows[count++] = token;
    for (int d = 0; d < features; d++)
      sums[k * features + d] =
          (double)((float)sums[k * features + d] + (float)dy[n * features + d]);
  }
  if (lost) sums[0] = NAN;
  return count;
}

static void assert_same(const char *what, double *got, const double *want, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (got[i] != want[i] && !(isnan(got[i]) && isnan(want[i])))
      fail_msg("%s: element %lld is %.9g, the reference %.9g", what, (long long)i, got[i], want[i]);
  free(got);
}

static void check_long_batch(int features, bool half) {
  int32_t *t = long_batch();
  int64_t in = (int64_t)POSITIONS * features, all = (int64_t)WORDS * features;
  struct sl__tensor *(*make)(struct sl_shape, const double *) = half ? bf16_tensor : tensor;
  double *table = random_values(all, 1), *dy = random_values(in, 2), *y = zeros(in),
         *grad = zeros(all);
  if (half) round_bf16(table, all), round_bf16(dy, in);
  for (int64_t i = 0; i < in; i++) {
    int32_t token = position(t, (int)(i / features));
    y[i] = token < 0 ? (double)NAN : table[token * features + i % features];
  }
  struct sl__tensor *tt = integers(SL_SHAPE(ROWS, COLUMNS), t);
  struct sl__tensor *tp = make(SL_SHAPE(all), table), *tg = tensor(SL_SHAPE(all), table);
  struct sl__tensor *ty = make(SL_SHAPE(ROWS, STEPS, features), NULL);
  struct sl__tensor *tdy = make(SL_SHAPE(ROWS, STEPS, features), dy);
  OK(sl__embedding_forward(context, &plain, tt, tp, ty, WORDS, FROM));
  assert_same("y", take(ty), y, in);
  OK(sl__embedding_backward_weight(context, &plain, tt, tdy, tg, WORDS, FROM));
  OK(sl__embedding_backward_weight(context, &adding, tt, tdy, tg, WORDS, FROM));
  for (int twice = 0; twice < 2; twice++)
    for (int n = 0; n < POSITIONS; n++)
      for (int d = 0; position(t, n) >= 0 && d < features; d++) {
        double *sum = &grad[position(t, n) * features + d];
        *sum = (double)((float)*sum + (float)dy[n * features + d]);
      }
  assert_same("gradient", take(tg), grad, all);
  for (int room = 50; room <= WORDS; room += WORDS - 50) {
    int32_t want[WORDS], got[WORDS + 1];
    double *sums = zeros(all);
    int count = 0;
    struct sl__tensor *rows = integers(SL_SHAPE(room + 1), NULL);
    struct sl__tensor *values = tensor(SL_SHAPE(room, features), NULL);
    OK(sl__embedding_backward_rows(context, &plain, tt, tdy, rows, values, WORDS, FROM));
    OK(sl__embedding_backward_rows(context, &adding, tt, tdy, rows, values, WORDS, FROM));
    count = collect(t, dy, features, room, want, sums);
    for (int n = 0; n < POSITIONS; n++) { /* once more, the rows being there */
      int k = 0;
      while (k < count && want[k] != position(t, n)) k++;
      for (int d = 0; k < count && d < features; d++)
        sums[k * features + d] =
            (double)((float)sums[k * features + d] + (float)dy[n * features + d]);
    }
    OK(sl__tensor_read(rows, got));
    assert_int_equal(got[0], count);
    assert_memory_equal(got + 1, want, (size_t)count * sizeof *want);
    assert_same("values", take(values), sums, (int64_t)count * features);
    sl__tensor_free(rows);
    free(sums);
  }
  struct sl__tensor *rest[] = {tt, tp, tdy};
  for (int i = 0; i < 3; i++) sl__tensor_free(rest[i]);
  free(t), free(table), free(dy), free(y), free(grad);
}

static void long_batches_are_added_in_order(void **state) {
  (void)state;
  for (int half = 0; half < 2; half++) {
    check_long_batch(5, half);
    check_long_batch(12, half);
    check_long_batch(16, half);
  }
}

/* Whole f32 numbers are tokens; others, those outside and NaN are none. */
static void numbers_are_tokens(void **state) {
  (void)state;
  const double given[6] = {2, 6, V, -1, NAN, 0}, dy[6 * D] = {1, 2, 3};
  const bool known[6] = {true, true, false, false, false, true};
  double *table = random_values(V * D, 1);
  struct sl__tensor *tt = tensor(SL_SHAPE(2, 3), given), *tp = tensor(SL_SHAPE(V * D), table),
                    *ty = tensor(SL_SHAPE(2, 3, D), NULL), *tdy = tensor(SL_SHAPE(2, 3, D), dy),
                    *tg = tensor(SL_SHAPE(V * D), NULL);
  OK(sl__embedding_forward(context, &plain, tt, tp, ty, V, 0));
  OK(sl__embedding_backward_weight(context, &plain, tt, tdy, tg, V, 0));
  double *y = take(ty), *grad = take(tg);
  for (int n = 0; n < 6; n++)
    for (int d = 0; d < D; d++)
      assert_true(known[n] ? y[n * D + d] == table[(int)given[n] * D + d] : isnan(y[n * D + d]));
  for (int i = 0; i < V * D; i++) assert_true(grad[i] == (i / D == 2 && i % D < 3 ? i % D + 1 : 0));
  free(y), free(grad), free(table);
  sl__tensor_free(tt), sl__tensor_free(tp), sl__tensor_free(tdy);
}

static void shapes_are_checked(void **state) {
  (void)state;
  struct sl__tensor *t = integers(SL_SHAPE(3), NULL), *halves = bf16_tensor(SL_SHAPE(3), NULL);
  struct sl__tensor *p = tensor(SL_SHAPE(V * D), NULL), *y = tensor(SL_SHAPE(3, D), NULL),
                    *y2 = tensor(SL_SHAPE(3, D + 1), NULL);
  assert_int_equal(sl__embedding_forward(context, &plain, t, p, y2, V, 0), SL_BAD_SHAPE);
  assert_int_equal(sl__embedding_forward(context, &plain, t, p, y, V + 1, 0), SL_BAD_SHAPE);
  assert_int_equal(sl__embedding_forward(context, &plain, t, p, y, 0, 0), SL_BAD_SHAPE);
  assert_int_equal(sl__embedding_forward(context, &plain, halves, p, y, V, 0), SL_BAD_SHAPE);
  assert_int_equal(sl__embedding_backward_weight(context, &plain, t, y2, p, V, 0), SL_BAD_SHAPE);
  const struct sl__update heavy = {.momentum = 0.9f};
  struct sl__tensor *rows = integers(SL_SHAPE(4), NULL), *values = tensor(SL_SHAPE(3, D), NULL);
  assert_int_equal(sl__embedding_backward_rows(context, &plain, t, y2, rows, values, V, 0),
                   SL_BAD_SHAPE);
  assert_int_equal(sl__rows_square(context, &plain, t, values, p), SL_BAD_SHAPE);
  assert_int_equal(sl__rows_dense(context, &plain, rows, values, y2), SL_BAD_SHAPE);
  assert_int_equal(sl__rows_sgd(context, &plain, p, 0, rows, values, NULL, &heavy), SL_UNSUPPORTED);
  sl__tensor_free(rows);
  sl__tensor_free(values);
  struct sl__tensor *all[] = {t, halves, p, y, y2};
  for (int i = 0; i < 5; i++) sl__tensor_free(all[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rows_are_picked_and_gradients_added),
                                     cmocka_unit_test(tokens_outside_give_nan),
                                     cmocka_unit_test(touched_rows_are_collected),
                                     cmocka_unit_test(rows_stand_for_the_dense_gradient),
                                     cmocka_unit_test(rows_are_in_the_order_of_first_touch),
                                     cmocka_unit_test(rows_without_room_give_nan),
                                     cmocka_unit_test(long_batches_are_added_in_order),
                                     cmocka_unit_test(numbers_are_tokens),
                                     cmocka_unit_test(shapes_are_checked)};
  return cmocka_run_group_tests_name("embedding", tests, open_operations, close_context);
}
