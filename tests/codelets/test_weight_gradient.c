/* A dense layer's weight gradient in tiles (codelets/kernels/weight_gradient.c) against sums in
 * double precision, for each width of vectors that this processor has: shapes at which tiles,
 * groups of samples and vectors begin or end somewhere else, one term and several. Every element
 * comes once, and has the same bits whatever rows are asked for and whatever terms lie beside it.
 */
#include "tests/common/check.h"
#include "codelets/kernels/skinny_gemm.h"
#include "codelets/kernels/tiles.h"
#include "codelets/kernels/weight_gradient.h"

struct collected {
  float *grad;
  int *times; /* that an element came */
  int64_t in;
};

static void collect(const struct sl__gradient_tile *tile, void *data) {
  const struct collected *c = data;
  for (int r = 0; r < tile->rows; r++)
    for (int i = 0; i < tile->columns; i++) {
      int64_t at = (tile->row + r) * c->in + tile->column + i;
      c->grad[at] = tile->values[r * SL__SKINNY_GEMM_COLUMNS + i];
      c->times[at]++;
    }
}

static struct collected run(const struct sl__weight_gradient *g, int64_t first, int64_t end,
                            int lanes) {
  size_t size = (size_t)(g->in * g->out);
  struct collected c = {calloc(size, sizeof *c.grad), calloc(size, sizeof *c.times), g->in};
  sl__weight_gradient(g, first, end, collect, &c, lanes);
  for (int64_t i = 0; i < g->in * g->out; i++)
    assert_int_equal(c.times[i], i >= first * g->in && i < end * g->in);
  return c;
}

static void drop(struct collected *c) { free(c->grad), free(c->times); }

static void compare(const struct sl__weight_gradient *g, const float *grad) {
  for (int64_t o = 0; o < g->out; o++)
    for (int64_t i = 0; i < g->in; i++) {
      double want = 0;
      for (int t = 0; t < g->terms; t++)
        for (int64_t n = 0; n < g->samples; n++)
          want += (double)g->term[t].dy[n * g->out + o] * (double)g->term[t].x[n * g->in + i];
      double error = fabs((double)grad[o * g->in + i] - want);
      if (!(error <= 1.2e-7 * (double)(g->samples * g->terms + 4)))
        fail_msg("%lld samples, %lld -> %lld: row %lld column %lld: error %g",
                 (long long)g->samples, (long long)g->in, (long long)g->out, (long long)o,
                 (long long)i, error);
    }
}

/* Rows that are asked for alone have the bits of all rows. */
static void compare_rows(const struct sl__weight_gradient *g, const float *grad, int lanes) {
  int64_t first = g->out / 3, end = first + (g->out + 1) / 2;
  struct collected some = run(g, first, end, lanes);
  assert_memory_equal(some.grad + first * g->in, grad + first * g->in,
                      (size_t)((end - first) * g->in) * sizeof *grad);
  drop(&some);
}

/* The terms' gradients, each alone, add up to the bits of all together. */
static void compare_terms(const struct sl__weight_gradient *g, const float *grad, int lanes) {
  float *sum = calloc((size_t)(g->in * g->out), sizeof *sum);
  for (int t = 0; t < g->terms; t++) {
    struct sl__weight_gradient one = *g;
    one.terms = 1;
    one.term[0] = g->term[t];
    struct collected c = run(&one, 0, g->out, lanes);
    for (int64_t i = 0; i < g->in * g->out; i++) sum[i] = t ? sum[i] + c.grad[i] : c.grad[i];
    drop(&c);
  }
  assert_memory_equal(sum, grad, (size_t)(g->in * g->out) * sizeof *grad);
  free(sum);
}

static void check(int64_t samples, int64_t in, int64_t out, int terms) {
  struct sl__weight_gradient g = {samples, in, out, terms, {{0}}};
  float *x = random_floats(samples * in * terms, 1), *dy = random_floats(samples * out * terms, 2);
  assert_true(sl__weight_gradient_fits(samples, terms));
  for (int t = 0; t < terms; t++)
    g.term[t] = (struct sl__gradient_term){x + t * samples * in, dy + t * samples * out};
  for (int lanes = 4; lanes <= 16; lanes *= 2) {
    if (sl__lanes(lanes) != lanes) continue;
    struct collected c = run(&g, 0, out, lanes);
    compare(&g, c.grad);
    compare_rows(&g, c.grad, lanes);
    compare_terms(&g, c.grad, lanes);
    drop(&c);
  }
  free(x), free(dy);
}

static void tiles_are_the_sums(void **state) {
  static const int64_t sizes[] = {1, 3, 15, 16, 17, 47, 48, 49, 64, 65, 100};
  enum { COUNT = sizeof sizes / sizeof *sizes };
  (void)state;
  for (int i = 0; i < COUNT; i++)
    for (int o = 0; o < COUNT; o++) check(sizes[(i + o) % COUNT], sizes[i], sizes[o], 1);
  for (int n = 0; n < COUNT; n++) check(sizes[n] < 64 ? sizes[n] : 64, 70, 51, 1 + n % 4);
  check(256, 33, 50, 1);
  check(128, 129, 97, 2);
  check(200, 130, 7, 1);
  check(1024, 66, 100, 1); /* more rows than are transposed at a time */
  check(350, 65, 150, 2);
}

static void room_is_limited(void **state) {
  (void)state;
  assert_false(sl__weight_gradient_fits(0, 1));
  assert_false(sl__weight_gradient_fits(1025, 1));
  assert_false(sl__weight_gradient_fits(513, 2));
  assert_false(sl__weight_gradient_fits(321, 3));
  assert_false(sl__weight_gradient_fits(1, 5));
}

static void biases_are_the_sums(void **state) {
  enum { ROWS = 9, OUT = 77, FIRST = 5, COUNT = 40 };
  float *dy = random_floats(ROWS * OUT, 3), sums[COUNT], more[COUNT];
  (void)state;
  sl__bias_gradient(ROWS, COUNT, dy + FIRST, OUT, false, sums);
  memcpy(more, sums, sizeof more);
  sl__bias_gradient(ROWS, COUNT, dy + FIRST, OUT, true, more);
  for (int o = 0; o < COUNT; o++) {
    double want = 0;
    for (int n = 0; n < ROWS; n++) want += (double)dy[n * OUT + FIRST + o];
    assert_true(fabs((double)sums[o] - want) < 2e-6);
    assert_true(fabs((double)more[o] - 2 * want) < 4e-6);
  }
  free(dy);
}

/* A chain of floats would lose three digits. */
static void biases_of_many_rows_keep_their_digits(void **state) {
  enum { ROWS = 60000, OUT = 3 };
  float *dy = random_floats(ROWS * OUT, 3), sums[OUT];
  double want = (double)0.7f * ROWS;
  (void)state;
  for (int i = 0; i < ROWS * OUT; i++) dy[i] = 0.7f;
  sl__bias_gradient(ROWS, OUT, dy, OUT, false, sums);
  for (int o = 0; o < OUT; o++) assert_true(fabs((double)sums[o] - want) < 4e-6 * want);
  free(dy);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(tiles_are_the_sums),
                                     cmocka_unit_test(room_is_limited),
                                     cmocka_unit_test(biases_are_the_sums),
                                     cmocka_unit_test(biases_of_many_rows_keep_their_digits)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
