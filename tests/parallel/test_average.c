/* Averages of the parameters: what they are of, where evaluations take them from, and that the
 * training does not notice them. test_exact.c has their values, test_exact_ranks.sh those of ranks,
 * test_checkpoint.c the checkpoints. */
#include "tests/common/files.h"
#include "tests/common/small_model.h"
#include "tests/common/training.h"

enum { SAMPLES = 90, BATCH = 20, STEPS = 7, WEIGHTS = 16 * 784 };

struct training {
  struct sl_model *model;
  struct sl_loader *loader, *test;
  struct sl_trainer *trainer;
};

static struct sl_dataset *data;

static struct training begin(float average, const struct sl_trainer_options *options) {
  struct training t = {.model = new_model(SL_SHAPE(1, 28, 28))};
  add_dense(t.model, "fc1", 16, SL_INIT_DEFAULT);
  OK(sl_batchnorm(t.model, "bn", &(struct sl_batchnorm_options){0}));
  OK(sl_activate(t.model, "relu",
                 &(struct sl_activation_options){.activation = SL_ACTIVATION_RELU}));
  add_dense(t.model, "fc2", 10, SL_INIT_DEFAULT);
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = BATCH, .shuffle = true}, &t.loader));
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = BATCH}, &t.test));
  const struct sl_optimizer optimizer = {.lr = 0.1f, .momentum = 0.9f, .average = average};
  OK(sl_trainer_new(t.model, &optimizer, NULL, options, &t.trainer));
  return t;
}

static void end(struct training *t) {
  sl_trainer_free(t->trainer);
  sl_loader_free(t->loader);
  sl_loader_free(t->test);
  sl_model_free(t->model);
}

static void train(struct training *t, int steps) { take_steps(t->trainer, t->loader, steps, NULL); }

static double loss_of(struct training *t) {
  double loss, accuracy;
  OK(sl_loader_seek_batch(t->test, 0, 0));
  OK(sl_trainer_evaluate(t->trainer, t->test, &loss, &accuracy));
  return loss;
}

static void assert_same(struct sl_model *a, struct sl_model *b, const char *name, bool same) {
  float *x = get_values(a, name), *y = get_values(b, name);
  bool are = !memcmp(x, y, (size_t)value_count(a, name) * sizeof *x);
  if (are != same) fail_msg("%s: %s", name, same ? "differs" : "is the same");
  free(x);
  free(y);
}

static void trainings_do_not_notice_averages(void **state) {
  (void)state;
  static const struct sl_trainer_options cuts[] = {
      {.replicas = 1},
      {.replicas = 2, .eager = true},
      {.replicas = 2, .big_shard = 1000, .kvstore = SL_KVSTORE_DEVICE}};
  for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
    struct training plain = begin(0, &cuts[c]), averaged = begin(0.8f, &cuts[c]);
    train(&plain, STEPS);
    train(&averaged, 3);
    loss_of(&averaged);
    OK(sl_trainer_swap_average(averaged.trainer));
    assert_same(plain.model, averaged.model, "fc1.weight", false);
    OK(sl_trainer_swap_average(averaged.trainer));
    train(&averaged, STEPS - 3);
    const char *const all[] = {"fc1.weight",      "fc1.bias",   "bn.weight",
                               "bn.running_mean", "fc2.weight", "bn.running_var"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
      assert_same(plain.model, averaged.model, all[i], true);
    end(&plain);
    end(&averaged);
  }
}

/* An evaluation is that of a model which has the saved averages as its weights. */
static void evaluations_take_the_averages(void **state) {
  (void)state;
  struct training t = begin(0.8f, NULL), saved = begin(0, NULL);
  double raw = loss_of(&t); /* before the first step there are none */
  assert_true(raw == loss_of(&saved));
  train(&t, STEPS);
  double loss = loss_of(&t);
  OK(sl_model_save(t.model, in_folder("raw")));
  OK(sl_trainer_swap_average(t.trainer));
  assert_true(loss == loss_of(&t)); /* they are there already */
  OK(sl_model_save(t.model, in_folder("averages")));
  OK(sl_trainer_swap_average(t.trainer));
  OK(sl_model_load(saved.model, in_folder("averages")));
  assert_true(loss == loss_of(&saved));
  assert_same(saved.model, t.model, "bn.running_mean", true);
  OK(sl_model_load(saved.model, in_folder("raw")));
  assert_true(loss != loss_of(&saved));
  assert_same(saved.model, t.model, "fc1.weight", true);
  end(&t);
  end(&saved);
}

static void the_first_step_is_copied(void **state) {
  (void)state;
  struct training t = begin(0.9f, NULL), one = begin(0, NULL);
  train(&t, 1);
  train(&one, 1);
  OK(sl_trainer_swap_average(t.trainer));
  assert_same(one.model, t.model, "fc1.weight", true);
  end(&t);
  end(&one);
}

static void averages_in_the_model_are_no_training(void **state) {
  (void)state;
  struct training t = begin(0.8f, NULL), plain = begin(0, NULL);
  struct sl_report report;
  bool reported;
  FAILS(sl_trainer_swap_average(t.trainer), SL_BAD_ARGUMENT, "no step");
  train(&t, 2);
  train(&plain, 1);
  FAILS(sl_trainer_swap_average(plain.trainer), SL_BAD_ARGUMENT, "average is 0");
  OK(sl_trainer_save(t.trainer, in_folder("checkpoint")));
  OK(sl_trainer_swap_average(t.trainer));
  FAILS(sl_trainer_step(t.trainer, t.loader, &report, &reported), SL_BAD_ARGUMENT, "swap_average");
  FAILS(sl_trainer_save(t.trainer, in_folder("other")), SL_BAD_ARGUMENT, "swap_average");
  FAILS(sl_trainer_load(t.trainer, t.loader, in_folder("checkpoint")), SL_BAD_ARGUMENT,
        "swap_average");
  OK(sl_trainer_swap_average(t.trainer));
  train(&t, 1); /* the refused step did no harm */
  FAILS(sl_trainer_load(plain.trainer, plain.loader, in_folder("checkpoint")), SL_BAD_ARGUMENT,
        "was trained with averages of the parameters, this trainer's optimizer keeps none");
  OK(sl_trainer_save(plain.trainer, in_folder("plain")));
  FAILS(sl_trainer_load(t.trainer, t.loader, in_folder("plain")), SL_BAD_ARGUMENT,
        "was trained without averages of the parameters, this trainer's optimizer keeps some");
  end(&t);
  end(&plain);
}

static int open_all(void **state) {
  if (open_context_with(&(struct sl_context_options){.seed = 5}) || folder_setup(state)) return 1;
  return sl_digits_new(SAMPLES, 3, true, &data) != SL_OK;
}

static int close_all(void **state) {
  sl_dataset_free(data);
  return folder_teardown(state) || close_context(state);
}

int main(void) {
  setenv("STARPU_NCPU", "3", 0);
  const struct CMUnitTest tests[] = {cmocka_unit_test(trainings_do_not_notice_averages),
                                     cmocka_unit_test(evaluations_take_the_averages),
                                     cmocka_unit_test(the_first_step_is_copied),
                                     cmocka_unit_test(averages_in_the_model_are_no_training)};
  return cmocka_run_group_tests_name("averages", tests, open_all, close_all);
}
