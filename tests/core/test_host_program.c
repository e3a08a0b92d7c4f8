/* The library inside a program with settings of its own: traps of floating-point numbers, another
 * rounding, a number of threads for OpenBLAS. The library's threads do not get them, and the
 * program keeps them. */
#include <cblas.h>
#include <fenv.h>
#include <math.h>
#include <starling/predict.h>

#include "codelets/kernels/gemm.h"
#include "tests/common/small_model.h"
#include "tests/common/training.h"

#if defined(__GLIBC__) && defined(__x86_64__)
#define HAS_TRAPS 1
#endif

enum { SAMPLES = 200, IN = 3, STEPS = 12, WEIGHTS = 600 };

struct outcome {
  double loss[STEPS];
  float weights[WEIGHTS], answers[SAMPLES];
};

static float inputs[SAMPLES * IN], targets[SAMPLES];

/* exp() of some of their sums overflows. */
static int make_values(void **state) {
  (void)state;
  for (int i = 0; i < SAMPLES * IN; i++) inputs[i] = 1e4f * sinf((float)i);
  for (int i = 0; i < SAMPLES; i++) targets[i] = cosf((float)i);
  return 0;
}

/* Threads that begin here begin with this rounding. */
static void open_data(int rounding, struct sl_dataset **set, struct sl_loader **loader) {
  const struct sl_dataset_options options = {.name = "sines",
                                             .sample = SL_SHAPE(IN),
                                             .target = SL_SHAPE(1),
                                             .count = SAMPLES,
                                             .channels = 1,
                                             .mean = (float[]){0.1f},
                                             .deviation = (float[]){0.3f}};
  OK(sl_dataset_floats(&options, inputs, targets, NULL, false, set));
  fesetround(rounding);
  OK(sl_loader_new(*set, &(struct sl_loader_options){.batch = 40, .shuffle = true, .seed = 3},
                   loader));
  fesetround(FE_TONEAREST);
}

static struct sl_model *new_network(void) {
  struct sl_model *m = new_model(SL_SHAPE(IN));
  OK(sl_dense(m, "a",
              &(struct sl_dense_options){.features = 64, .activation = SL_ACTIVATION_SIGMOID}));
  OK(sl_dense(m, "b", &(struct sl_dense_options){.features = 4, .activation = SL_ACTIVATION_SILU}));
  OK(sl_dense(m, "c", &(struct sl_dense_options){.features = 1}));
  return m;
}

/* A context from its opening, with this rounding, to its end. Its threads begin with the rounding;
 * the calls round to nearest. */
static void train(int rounding, struct outcome *o) {
  struct sl_dataset *set;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_predictor *predictor;
  assert_int_equal(fesetround(rounding), 0);
  OK(sl_open(&(struct sl_context_options){.seed = 1, .devices = "cpu", .stall_timeout = 60},
             &context));
  assert_int_equal(fegetround(), rounding);
  fesetround(FE_TONEAREST);
  struct sl_model *m = new_network();
  open_data(rounding, &set, &loader);
  const struct sl_trainer_options options = {.replicas = 2, .loss.kind = SL_LOSS_MSE};
  OK(sl_trainer_new(m, &(struct sl_optimizer){.kind = SL_ADAM}, NULL, &options, &trainer));
  take_steps(trainer, loader, STEPS, o->loss);
  sl_trainer_free(trainer);
  read_weights(m, o->weights, WEIGHTS);
  OK(sl_predictor_open(m, NULL, &predictor));
  OK(sl_predict(predictor, inputs, SAMPLES, o->answers));
  sl_predictor_free(predictor);
  sl_model_free(m);
  sl_loader_free(loader);
  sl_dataset_free(set);
  sl_close(context);
}

static void assert_same(const struct outcome *a, const struct outcome *b) {
  for (int s = 0; s < STEPS; s++)
    if (a->loss[s] != b->loss[s])
      fail_msg("step %d: loss %.9g, not %.9g", s, b->loss[s], a->loss[s]);
  assert_memory_equal(a->weights, b->weights, sizeof a->weights);
  assert_memory_equal(a->answers, b->answers, sizeof a->answers);
}

static void traps_stay_with_the_program(void **state) {
  (void)state;
#ifdef HAS_TRAPS
  const int traps = FE_OVERFLOW | FE_DIVBYZERO | FE_INVALID;
  static struct outcome plain, trapping;
  train(FE_TONEAREST, &plain);
  feenableexcept(traps);
  train(FE_TONEAREST, &trapping);
  int kept = fegetexcept();
  fedisableexcept(traps);
  assert_int_equal(kept, traps);
  assert_same(&plain, &trapping);
#else
  print_message("traps of floating-point numbers need glibc on x86-64\n");
  skip();
#endif
}

static enum sl_status no_number(struct sl_loss_row *row) {
  float zero = row->y[0] - row->y[0];
  row->loss = zero / zero;
  return SL_OK;
}

static void a_loss_that_is_no_number_is_told(void **state) {
  (void)state;
#ifdef HAS_TRAPS
  struct sl_dataset *set;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_report report;
  bool reported;
  const struct sl_trainer_options options = {
      .replicas = 1, .loss = {.kind = SL_LOSS_OWN, .own = {.name = "no_number", .row = no_number}}};
  feenableexcept(FE_INVALID);
  OK(sl_open(&(struct sl_context_options){.seed = 1, .devices = "cpu"}, &context));
  struct sl_model *m = new_network();
  open_data(FE_TONEAREST, &set, &loader);
  OK(sl_trainer_new(m, &(struct sl_optimizer){0}, NULL, &options, &trainer));
  OK(sl_trainer_step(trainer, loader, &report, &reported));
  FAILS(sl_trainer_drain(trainer, &report, &reported), SL_NOT_FINITE, "not a number");
  sl_trainer_free(trainer);
  sl_model_free(m);
  sl_loader_free(loader);
  sl_dataset_free(set);
  sl_close(context);
  fedisableexcept(FE_INVALID);
#else
  print_message("traps of floating-point numbers need glibc on x86-64\n");
  skip();
#endif
}

static void rounding_stays_with_the_program(void **state) {
  (void)state;
  static struct outcome plain, upward;
  train(FE_TONEAREST, &plain);
  train(FE_UPWARD, &upward);
  assert_same(&plain, &upward);
}

static int threads_in_a_product(void) {
  float a = 2, b = 3, c;
  sl__gemm(SL__GEMM_OPENBLAS, false, false, 1, 1, 1, 1, &a, 1, &b, 1, 0, &c, 1);
  assert_true(c == 6);
  return openblas_get_num_threads();
}

static void openblas_gets_its_threads_back(void **state) {
  (void)state;
  struct sl_context *second;
  const int own = 3, before = openblas_get_num_threads();
  openblas_set_num_threads(own);
  if (openblas_get_num_threads() != own) skip(); /* OpenBLAS without threads */
  for (int round = 0; round < 2; round++) {
    OK(sl_open(NULL, &context));
    OK(sl_open(NULL, &second));
    assert_int_equal(threads_in_a_product(), 1);
    sl_close(context);
    assert_int_equal(threads_in_a_product(), 1);
    sl_close(second);
    assert_int_equal(openblas_get_num_threads(), own);
  }
  OK(sl_open(NULL, &context));
  assert_int_equal(threads_in_a_product(), 1);
  openblas_set_num_threads(2); /* by the program: that stays */
  sl_close(context);
  assert_int_equal(openblas_get_num_threads(), 2);
  openblas_set_num_threads(before);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rounding_stays_with_the_program),
                                     cmocka_unit_test(traps_stay_with_the_program),
                                     cmocka_unit_test(a_loss_that_is_no_number_is_told),
                                     cmocka_unit_test(openblas_gets_its_threads_back)};
  return cmocka_run_group_tests_name("host program", tests, make_values, NULL);
}
