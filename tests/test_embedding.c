/* Embedding: rows by token, gradients of repeated tokens added, tokens outside the vocabulary. */
#include "check.h"

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
    struct sl_tensor *tt = integers(SL_SHAPE(3, 3), tokens), *tp = tensor(SL_SHAPE(V * D), table);
    struct sl_tensor *ty = tensor(SL_SHAPE(3, 3, D), NULL), *tdy = tensor(SL_SHAPE(3, 3, D), dy);
    struct sl_tensor *tg = tensor(SL_SHAPE(V * D), old);
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
  struct sl_tensor *tt = integers(SL_SHAPE(3), bad), *tp = tensor(SL_SHAPE(V * D), table);
  struct sl_tensor *ty = tensor(SL_SHAPE(3, D), NULL), *tdy = tensor(SL_SHAPE(3, D), dy);
  struct sl_tensor *tg = tensor(SL_SHAPE(V * D), NULL);
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

static void shapes_are_checked(void **state) {
  (void)state;
  struct sl_tensor *t = integers(SL_SHAPE(3), NULL), *floats = tensor(SL_SHAPE(3), NULL);
  struct sl_tensor *p = tensor(SL_SHAPE(V * D), NULL), *y = tensor(SL_SHAPE(3, D), NULL),
                   *y2 = tensor(SL_SHAPE(3, D + 1), NULL);
  assert_int_equal(sl__embedding_forward(context, &plain, t, p, y2, V, 0), SL_BAD_SHAPE);
  assert_int_equal(sl__embedding_forward(context, &plain, t, p, y, V + 1, 0), SL_BAD_SHAPE);
  assert_int_equal(sl__embedding_forward(context, &plain, t, p, y, 0, 0), SL_BAD_SHAPE);
  assert_int_equal(sl__embedding_forward(context, &plain, floats, p, y, V, 0), SL_BAD_SHAPE);
  assert_int_equal(sl__embedding_backward_weight(context, &plain, t, y2, p, V, 0), SL_BAD_SHAPE);
  struct sl_tensor *all[] = {t, floats, p, y, y2};
  for (int i = 0; i < 5; i++) sl__tensor_free(all[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rows_are_picked_and_gradients_added),
                                     cmocka_unit_test(tokens_outside_give_nan),
                                     cmocka_unit_test(shapes_are_checked)};
  return cmocka_run_group_tests_name("embedding", tests, open_context, close_context);
}
