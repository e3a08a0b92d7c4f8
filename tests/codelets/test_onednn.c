/* That oneDNN's primitives do serve where they are built in: the tests of the operations compare
 * their results with the reference, but would not notice if our own code stepped in every time. And
 * that a tuned choice is remembered. */
#include <unistd.h>

#include "tests/common/check.h"
#include "codelets/kernels/onednn.h"
#include "codelets/kernels/tuning.h"

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
  c.preferred = SL__DIRECT_CONV; /* not there */
  const double slow[SL__IMPLEMENTATIONS] = {0.96, 1e9, 0.97, 1e9, 1};
  assert_int_equal(sl__choice_quickest(&c, slow), SL__OWN_OPENBLAS);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(primitives_serve),
                                     cmocka_unit_test(plans_give_way),
                                     cmocka_unit_test(a_small_gain_does_not_count),
                                     cmocka_unit_test(choices_are_measured_and_remembered)};
  return cmocka_run_group_tests_name("oneDNN and choice", tests, open_operations, close_context);
}
