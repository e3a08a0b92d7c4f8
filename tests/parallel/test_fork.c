/* A process that was forked after sl_open has no workers: its calls fail with a message instead of
 * waiting for ever. One that was forked before, or after the last sl_close, can open a context. */
#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/common/small_model.h"

/* Runs the function in a child; true if it returned 0 within some seconds. */
static bool passes_in_child(int (*function)(void)) {
  int status = -1;
  pid_t child = fork();
  assert_true(child >= 0);
  if (!child) {
    alarm(20);
    _exit(function());
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  print_error("the child ended with status %d\n", status);
  return false;
}

#define REFUSED(call) ((call) == SL_UNSUPPORTED && strstr(sl_error(), "forked after"))

static int opens(void) {
  struct sl_context *own;
  if (sl_open(NULL, &own) != SL_OK) return 1;
  sl_close(own);
  return 0;
}

static void a_child_opens_a_context_of_its_own(void **state) {
  (void)state;
  assert_true(passes_in_child(opens));
  OK(sl_open(NULL, &context));
  sl_close(context);
  assert_true(passes_in_child(opens));
}

static struct sl_model *model, *fresh;
static struct sl_trainer *trainer;
static struct sl_loader *loader;
static struct sl_predictor *predictor;
static float pixels[784], answer[10];

static int use_all(void) {
  struct sl_context *second;
  struct sl_predictor *other;
  struct sl_trainer *another;
  struct sl_fit_result result;
  const struct sl_optimizer sgd = {.lr = 0.1f};
  struct sl_batch batch;
  if (!REFUSED(sl_open(NULL, &second)) || second) return 1;
  if (!REFUSED(sl_fit(trainer, loader, &(struct sl_fit_options){.steps = 10}, &result))) return 2;
  if (!REFUSED(sl_predict(predictor, pixels, 1, answer))) return 3;
  if (!REFUSED(sl_predictor_open(model, NULL, &other)) || other) return 4;
  if (!REFUSED(sl_trainer_new(model, &sgd, NULL, NULL, &another)) || another) return 5;
  if (!REFUSED(sl_model_get(model, "fc1.weight", (float[7840]){0}))) return 6;
  if (!REFUSED(sl_model_build(fresh))) return 7;
  if (!REFUSED(sl_wait(context))) return 8;
  if (!REFUSED(sl_loader_next(loader, &batch))) return 9;
  return 0;
}

static int free_all(void) {
  sl_predictor_free(predictor);
  sl_trainer_free(trainer);
  sl_model_free(model);
  sl_model_free(fresh);
  sl_loader_free(loader);
  sl_close(context);
  return 0;
}

/* The parent goes on as if nothing had been. */
static void a_child_without_workers_is_told(void **state) {
  (void)state;
  struct sl_dataset *set;
  struct sl_fit_result result;
  OK(sl_open(NULL, &context));
  OK(sl_digits_new(64, 1, true, &set));
  OK(sl_loader_new(set, &(struct sl_loader_options){.batch = 8, .slots = 4}, &loader));
  model = new_model(SL_SHAPE(1, 28, 28));
  add_dense(model, "fc1", 10, SL_INIT_DEFAULT);
  fresh = new_model(SL_SHAPE(1, 28, 28));
  add_dense(fresh, "fc1", 10, SL_INIT_DEFAULT);
  OK(sl_trainer_new(model, &(struct sl_optimizer){.lr = 0.1f}, NULL, NULL, &trainer));
  OK(sl_predictor_open(model, NULL, &predictor));
  OK(sl_fit(trainer, loader, &(struct sl_fit_options){.steps = 5}, &result));
  OK(sl_predict(predictor, pixels, 1, answer));
  assert_true(passes_in_child(use_all));
  assert_true(passes_in_child(free_all));
  OK(sl_fit(trainer, loader, &(struct sl_fit_options){.steps = 10}, &result));
  OK(sl_predict(predictor, pixels, 1, answer));
  free_all();
  sl_dataset_free(set);
}

static enum sl_status refuse_second(void *user, const struct sl_report *report, double rate) {
  (void)user, (void)rate;
  return report->step == 1 ? SL_IO : SL_OK;
}

/* A training that fails while steps are pending: by its loss, or by a callback of sl_fit. */
static int leave_failed(bool by_callback) {
  static float x[64 * 400], y[64 * 10];
  const struct sl_dataset_options waves = {
      .name = "waves", .sample = SL_SHAPE(400), .target = SL_SHAPE(10), .count = 64};
  const struct sl_trainer_options options = {.loss.kind = SL_LOSS_MSE, .in_flight = 4};
  const struct sl_optimizer sgd = {.lr = by_callback ? 1e-6f : 1e8f};
  const struct sl_fit_options run = {.steps = 30, .on_step = refuse_second};
  static const char *const names[] = {"fc1", "fc2", "fc3", "fc4"};
  struct sl_dataset *set;
  struct sl_report report;
  bool reported;
  enum sl_status status = SL_OK;
  for (int i = 0; i < 64 * 400; i++) x[i] = (float)sin(i);
  for (int i = 0; i < 64 * 10; i++) y[i] = 1e3f * (float)cos(i);
  OK(sl_open(NULL, &context));
  OK(sl_dataset_floats(&waves, x, y, NULL, true, &set));
  OK(sl_loader_new(set, &(struct sl_loader_options){.batch = 64, .slots = 8}, &loader));
  model = new_model(SL_SHAPE(400));
  for (int i = 0; i < 4; i++) add_dense(model, names[i], i < 3 ? 768 : 10, SL_INIT_DEFAULT);
  OK(sl_trainer_new(model, &sgd, NULL, &options, &trainer));
  if (by_callback) return sl_fit(trainer, loader, &run, NULL) == SL_IO ? 7 : 1;
  while (status == SL_OK) status = sl_trainer_step(trainer, loader, &report, &reported);
  return status == SL_NOT_FINITE && strstr(sl_error(), "loss is") ? 7 : 1;
}

/* It ended by SIGSEGV: exit freed code of oneDNN that workers were in. */
static void a_program_may_exit_behind_a_failure(void **state) {
  (void)state;
  for (int i = 0; i < 16; i++) {
    int status = -1;
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
      alarm(20);
      exit(leave_failed(i % 2));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) fail_msg("child %d: status %d", i, status);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_child_opens_a_context_of_its_own),
                                     cmocka_unit_test(a_child_without_workers_is_told),
                                     cmocka_unit_test(a_program_may_exit_behind_a_failure)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
