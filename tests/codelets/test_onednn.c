/* That oneDNN's primitives do serve where they are built in: the tests of the operations compare
 * their results with the reference, but would not notice if our own code stepped in every time. And
 * that a tuned choice is remembered. */
#include <unistd.h>

#include "tests/common/check.h"
#include "codelets/kernels/onednn.h"
#include "codelets/kernels/tuning.h"
#include "core/base/half.h"

static const struct sl__onednn_window conv = {2, 3, 9, 9, 4, 7, 7, 3, 3, 1, 1, 0, 0};

static void primitives_serve(void **state) {
  (void)state;
  bool there = sl__onednn_available();
  float x[2 * 3 * 81] = {0}, w[4 * 28] = {0}, y[2 * 4 * 49], dx[2 * 3 * 81], dw[4 * 28];
  if (!there) puts("# built without oneDNN: every function must refuse");
  assert_int_equal(sl__onednn_conv2d_forward(&conv, x, w, w + 108, y), there);
  assert_int_equal(sl__onednn_conv2d_backward_data(&conv, y, w, dx), there);
  assert_int_equal(sl__onednn_conv2d_backward_weight(&conv, x, y, dw, dw + 108), there);
}

/* More shapes than a thread keeps plans for: the oldest give way, the results stay right. */
static void plans_give_way(void **state) {
  (void)state;
  if (!sl__onednn_available()) skip();
  for (int round = 0; round < 2; round++)
    for (int size = 2; size < 90; size++) {
      struct sl__onednn_window w = {1, 1, size, 2, 1, size, 2, 1, 1, 1, 1, 0, 0};
      float x[180], y[180], weight = 3;
      for (int i = 0; i < 2 * size; i++) x[i] = (float)i;
      assert_true(sl__onednn_conv2d_forward(&w, x, &weight, NULL, y));
      for (int i = 0; i < 2 * size; i++) assert_true(y[i] == 3 * x[i]);
    }
}

/* y[i][j] in double precision, of codes as they lie. */
static double product_at(const struct sl__onednn_product *p, const uint16_t *a, const uint16_t *b,
                         int64_t i, int64_t j) {
  double sum = 0;
  for (int64_t k = 0; k < p->k; k++)
    sum += (double)sl__bf16_value(a[p->transpose_a ? k * p->m + i : i * p->k + k]) *
           (double)sl__bf16_value(b[p->transpose_b ? j * p->k + k : k * p->n + j]);
  return sum;
}

static void fill_codes(uint16_t *codes, int64_t count, uint64_t stream) {
  double *values = random_values(count, stream);
  for (int64_t i = 0; i < count; i++) codes[i] = sl__bf16_code((float)values[i]);
  free(values);
}

/* y begins as 0.5. A sum of k products of values below 1 is off by k roundings of a float at most,
 * and by one of bf16. */
static void check_product(const struct sl__onednn_product *p, const uint16_t *bias) {
  static uint16_t a[140 * 140], b[140 * 140], half[140 * 140];
  static float wide[140 * 140];
  fill_codes(a, p->m * p->k, 1);
  fill_codes(b, p->k * p->n, 2);
  for (int64_t i = 0; i < p->m * p->n; i++) wide[i] = 0.5f, half[i] = sl__bf16_code(0.5f);
  assert_true(sl__onednn_product(p, a, b, bias, p->wide ? (void *)wide : (void *)half));
  for (int64_t i = 0; i < p->m * p->n; i++) {
    double want = product_at(p, a, b, i / p->n, i % p->n) + (p->add ? 0.5 : 0) +
                  (bias ? (double)sl__bf16_value(bias[i % p->n]) : 0);
    double got = (double)(p->wide ? wide[i] : sl__bf16_value(half[i]));
    double error =
        (double)p->k * 6e-8 * fmax(1, sqrt((double)p->k)) + (p->wide ? 0 : fabs(want) * 0x1p-8);
    if (!(fabs(got - want) <= error))
      fail_msg("%d x %d x %d: %g instead of %g", (int)p->m, (int)p->n, (int)p->k, got, want);
  }
}

static void products_of_bf16(void **state) {
  static const int64_t sizes[][3] = {{1, 1, 1},    {5, 7, 3},     {1, 40, 33},
                                     {64, 96, 32}, {33, 65, 130}, {16, 129, 2}};
  uint16_t bias[140];
  (void)state;
  if (!sl__onednn_has_bf16()) {
    puts("# no products of bf16 on this processor, or no oneDNN");
    skip();
  }
  fill_codes(bias, 140, 3);
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
    for (int way = 0; way < 32; way++)
      check_product(&(struct sl__onednn_product){.m = sizes[s][0],
                                                 .n = sizes[s][1],
                                                 .k = sizes[s][2],
                                                 .transpose_a = way & 1,
                                                 .transpose_b = way & 2,
                                                 .wide = way & 4,
                                                 .add = way & 8},
                    way & 16 ? bias : NULL);
}

static enum sl__implementation ran[64];
static int runs;

/* Implementation 1 is slow, 0 and 2 are quick. */
static void pretend(enum sl__implementation i, const void *args, float *const *memory) {
  (void)args;
  memory[0][0] = 1;
  if (runs < 64) ran[runs++] = i;
  usleep(i == SL__OWN_ONEDNN ? 3000 : i == SL__ONEDNN ? 10 : 1500);
}

static enum sl__implementation choose_tuned(struct sl_context *c, int32_t size) {
  struct sl__candidates candidates = {.operation = "pretended",
                                      .mask = 7,
                                      .preferred = SL__OWN_ONEDNN,
                                      .sizes = &size,
                                      .size_count = 1,
                                      .run = pretend,
                                      .elements = {4}};
  return sl__choose(c, &candidates, NULL);
}

static struct sl_context *tuned_context(void) {
  struct sl_context *c;
  OK(sl_open(&(struct sl_context_options){.tune = true}, &c));
  return c;
}

static void choices_are_measured_and_remembered(void **state) {
  (void)state;
  char folder[] = "/tmp/sl-tuning-XXXXXX", host[64] = "", path[256];
  const char *before = getenv("STARPU_PERF_MODEL_DIR");
  char *kept = before ? strdup(before) : NULL;
  assert_non_null(mkdtemp(folder));
  setenv("STARPU_PERF_MODEL_DIR", folder, 1);
  gethostname(host, sizeof host - 1);
  snprintf(path, sizeof path, "%s/starling-tuning.%s.json", folder, host);

  assert_int_equal(choose_tuned(context, 5), SL__OWN_ONEDNN); /* untuned: preferred, nothing runs */
  assert_int_equal(runs, 0);
  struct sl_context *c = tuned_context();
  assert_int_equal(choose_tuned(c, 5), SL__ONEDNN);
  assert_true(runs > 3);
  runs = 0;
  assert_int_equal(choose_tuned(c, 5), SL__ONEDNN);
  assert_int_equal(runs, 0);
  sl_close(c);
  assert_int_equal(access(path, R_OK), 0);

  c = tuned_context();
  assert_int_equal(choose_tuned(c, 5), SL__ONEDNN); /* from the file */
  assert_int_equal(runs, 0);
  choose_tuned(c, 6); /* another size is another question */
  assert_true(runs > 3);
  sl_close(c);

  FILE *f = fopen(path, "w"); /* a damaged file is measured anew, and replaced */
  fputs("{\"machine\": \"", f);
  fclose(f);
  runs = 0;
  c = tuned_context();
  assert_int_equal(choose_tuned(c, 5), SL__ONEDNN);
  assert_true(runs > 3);
  sl_close(c);

  f = fopen(path, "w"); /* so is another machine's */
  fputs("{\"machine\": \"abacus\", \"choices\": {\"pretended 5\": 1}}", f);
  fclose(f);
  c = tuned_context();
  assert_int_equal(choose_tuned(c, 5), SL__ONEDNN);
  sl_close(c);
  unlink(path);
  rmdir(folder);
  if (kept)
    setenv("STARPU_PERF_MODEL_DIR", kept, 1);
  else
    unsetenv("STARPU_PERF_MODEL_DIR");
  free(kept);
}

/* Noise does not make another implementation the chosen one. */
static void a_small_gain_does_not_count(void **state) {
  (void)state;
  struct sl__candidates c = {.mask = 1u << SL__OWN_OPENBLAS | 1u << SL__ONEDNN | 1u << SL__WINOGRAD,
                             .preferred = SL__WINOGRAD};
  const double close[SL__IMPLEMENTATIONS] = {0.96, 0.1, 0.97, 0.1, 1};
  const double faster[SL__IMPLEMENTATIONS] = {0.94, 0.1, 0.93, 0.1, 1};
  assert_int_equal(sl__choice_quickest(&c, close), SL__WINOGRAD);
  assert_int_equal(sl__choice_quickest(&c, faster), SL__ONEDNN);
  c.preferred = SL__OWN; /* not there */
  const double slow[SL__IMPLEMENTATIONS] = {0.96, 1e9, 0.97, 1e9, 1};
  assert_int_equal(sl__choice_quickest(&c, slow), SL__OWN_OPENBLAS);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(primitives_serve), cmocka_unit_test(plans_give_way),
      cmocka_unit_test(products_of_bf16), cmocka_unit_test(a_small_gain_does_not_count),
      cmocka_unit_test(choices_are_measured_and_remembered)};
  return cmocka_run_group_tests_name("oneDNN and choice", tests, open_operations, close_context);
}
