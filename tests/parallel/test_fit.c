/* sl_fit against a plain loop of sl_trainer_step: the same weights, the same log, the same end,
 * whatever interrupts it; early stopping against the sequence of evaluations of that loop. */
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

#include "parallel/fit/describe.h"
#include "tests/common/comma_locale.h"
#include "tests/common/small_model.h"
#include "tests/common/training.h"

enum { COUNT = 60, TESTS = 40, IN = 5, CLASSES = 3, BATCH = 15, PER_EPOCH = 4, EPOCHS = 12 };

static float inputs[COUNT + TESTS][IN];
static int32_t labels[COUNT + TESTS];
static float values[COUNT + TESTS][1];

/* A training and its data. */
struct run {
  struct sl_dataset *sets[2];
  struct sl_loader *loaders[2]; /* of the training, of the validation */
  struct sl_model *model;
  struct sl_trainer *trainer;
};

/* Few samples with noisy labels, and a high rate: the validation soon gets worse, and better, and
 * worse. */
static void make_data(void) {
  uint32_t state = 7;
  for (int i = 0; i < COUNT + TESTS; i++) {
    for (int k = 0; k < IN; k++) {
      state = state * 1664525 + 1013904223;
      inputs[i][k] = (float)(state >> 8) / 8388608.0f - 1;
    }
    state = state * 1664525 + 1013904223;
    int noise = (state >> 16) % 4 == 0;
    labels[i] = (int32_t)((inputs[i][0] > 0) + (inputs[i][1] > 0 && inputs[i][2] > 0) + noise) % 3;
    values[i][0] = inputs[i][0] - 2 * inputs[i][1] * inputs[i][2];
  }
}

static void open_set(struct run *run, bool has_labels, bool train) {
  int first = train ? 0 : COUNT;
  const struct sl_dataset_options about = {
      .name = train ? "training" : "validation",
      .sample = SL_SHAPE(IN),
      .target = has_labels ? (struct sl_shape){0} : SL_SHAPE(1),
      .classes = has_labels ? CLASSES : 0,
      .count = train ? COUNT : TESTS};
  const struct sl_loader_options how = {.batch = BATCH, .shuffle = train, .seed = 3};
  OK(sl_dataset_floats(&about, inputs[first], has_labels ? NULL : values[first],
                       has_labels ? labels + first : NULL, false, &run->sets[!train]));
  OK(sl_loader_new(run->sets[!train], &how, &run->loaders[!train]));
}

static void open_run(struct run *run, bool has_labels) {
  const struct sl_optimizer optimizer = {.lr = 0.5f, .momentum = 0.9f};
  const struct sl_trainer_options how = {
      .replicas = 2, .loss.kind = has_labels ? SL_LOSS_CROSS_ENTROPY : SL_LOSS_MSE};
  struct sl_optimizer slow = optimizer;
  if (!has_labels) slow.lr = 0.01f;
  make_data();
  open_set(run, has_labels, true);
  open_set(run, has_labels, false);
  run->model = new_model(SL_SHAPE(IN));
  OK(sl_dense(run->model, "fc1",
              &(struct sl_dense_options){.features = 16, .activation = SL_ACTIVATION_RELU}));
  OK(sl_dense(run->model, "fc2", &(struct sl_dense_options){.features = has_labels ? CLASSES : 1}));
  OK(sl_trainer_new(run->model, &slow, NULL, &how, &run->trainer));
}

static void close_run(struct run *run) {
  sl_trainer_free(run->trainer);
  sl_model_free(run->model);
  for (int i = 0; i < 2; i++) {
    sl_loader_free(run->loaders[i]);
    sl_dataset_free(run->sets[i]);
  }
}

/* ---- the plain loop ---- */

static struct {
  double train_loss[EPOCHS * PER_EPOCH], loss[EPOCHS], accuracy[EPOCHS];
  float *weights[EPOCHS + 1]; /* fc1.weight after so many epochs */
} plain;

static int group_setup(void **state) {
  struct run run;
  if (open_context(state) != 0 || folder_setup(state) != 0) return -1;
  open_run(&run, true);
  for (int e = 0; e < EPOCHS; e++) {
    take_steps(run.trainer, run.loaders[0], PER_EPOCH, plain.train_loss);
    OK(sl_trainer_evaluate(run.trainer, run.loaders[1], &plain.loss[e], &plain.accuracy[e]));
    plain.weights[e + 1] = get_values(run.model, "fc1.weight");
  }
  close_run(&run);
  return 0;
}

static int group_teardown(void **state) {
  for (int e = 0; e <= EPOCHS; e++) free(plain.weights[e]);
  folder_teardown(state);
  return close_context(state);
}

static void assert_weights(struct sl_model *model, int epochs) {
  float *now = get_values(model, "fc1.weight");
  assert_memory_equal(now, plain.weights[epochs], 16 * IN * sizeof *now);
  free(now);
}

/* Loads a file of weights into a model of its own. */
static void assert_saved(const char *path, int epochs) {
  struct run run;
  open_run(&run, true);
  OK(sl_model_load(run.model, path));
  assert_weights(run.model, epochs);
  close_run(&run);
}

/* Where early stopping ends by the plain loop's evaluations, and which one is the best; written
 * anew from the definition. */
static int end_by(const double *values_of, double sign, int patience, double delta, int *best) {
  double reference = INFINITY, least = INFINITY;
  int since = 0;
  for (int e = 0; e < EPOCHS; e++) {
    double value = sign * values_of[e];
    if (value < least) *best = e + 1, least = value;
    since++;
    if (value < reference - delta) reference = value, since = 0;
    if (patience && since == patience) return e + 1;
  }
  return EPOCHS;
}

/* ---- files ---- */

static char *read_text(const char *path) {
  static char text[1 << 16];
  FILE *file = fopen(path, "r");
  if (!file) fail_msg("%s cannot be opened", path);
  text[fread(text, 1, sizeof text - 1, file)] = '\0';
  fclose(file);
  return text;
}

static int lines_with(const char *path, const char *word) {
  int count = 0;
  for (char *at = read_text(path); (at = strstr(at, word)); at++) count++;
  return count;
}

static bool is_there(const char *path) { return access(path, F_OK) == 0; }

static bool has_checkpoint(const char *folder, int step) {
  char path[4096 + 64];
  snprintf(path, sizeof path, "%s/checkpoint-%09d.safetensors", folder, step);
  return is_there(path);
}

/* The losses of the log's steps, in their order: those of the plain loop from `first` on. */
static void assert_log(const char *path, int first, int steps) {
  int step = first;
  for (char *line = strtok(read_text(path), "\n"); line; line = strtok(NULL, "\n")) {
    const char *loss = strstr(line, "\"loss\": ");
    if (!strstr(line, "\"samples_per_s\"") || !loss) continue;
    assert_true(step < steps);
    double got = strtod(loss + strlen("\"loss\": "), NULL);
    if (fabs(got - plain.train_loss[step]) > 1e-8 * fabs(got))
      fail_msg("step %d: logged %.9g, the plain loop has %.9g", step, got, plain.train_loss[step]);
    step++;
  }
  assert_int_equal(step, steps);
}

/* ---- callbacks ---- */

struct watcher {
  struct run *run;
  int steps, evaluations, saves, checkpoints, warnings, begins;
  int stop_at_step, stop_at_evaluation, fail_at_step; /* 0: never */
  int raise_at_step, signal;
  bool bests[EPOCHS + 1];
  char resumed[4096], changes[200], warning[600], folder[4096], aside[4096];
};

static enum sl_status on_begin(void *user, const struct sl_fit_begin *begin) {
  struct watcher *w = user;
  w->begins++;
  snprintf(w->resumed, sizeof w->resumed, "%s", begin->resumed ? begin->resumed : "");
  snprintf(w->changes, sizeof w->changes, "%s", begin->changes);
  return SL_OK;
}

static enum sl_status on_step(void *user, const struct sl_report *report, double samples_per_s) {
  struct watcher *w = user;
  int step = (int)report->step + 1;
  w->steps++;
  assert_true(samples_per_s >= 0);
  if (step == w->stop_at_step) sl_trainer_stop(w->run->trainer);
  if (step == w->raise_at_step) raise(w->signal);
  return step == w->fail_at_step ? SL_NO_DEVICE : SL_OK;
}

static enum sl_status on_evaluation(void *user, const struct sl_fit_evaluation *evaluation,
                                    bool is_best) {
  struct watcher *w = user;
  w->evaluations++;
  assert_true(evaluation->epoch <= EPOCHS);
  w->bests[evaluation->epoch] = is_best;
  if (evaluation->epoch == w->stop_at_evaluation) sl_trainer_stop(w->run->trainer);
  return SL_OK;
}

static enum sl_status on_save(void *user, const char *path) {
  struct watcher *w = user;
  assert_true(is_there(path));
  w->saves++;
  return SL_OK;
}

/* With `aside`: the folder goes away after the checkpoint of step 4. */
static enum sl_status on_checkpoint(void *user, const char *path, const struct sl_saved *saved) {
  struct watcher *w = user;
  assert_true(is_there(path));
  w->checkpoints++;
  if (*w->aside && saved->position.step == 4) assert_int_equal(rename(w->folder, w->aside), 0);
  return SL_OK;
}

static void on_warning(void *user, const char *line) {
  struct watcher *w = user;
  w->warnings++;
  snprintf(w->warning, sizeof w->warning, "%s", line);
  if (*w->aside && !is_there(w->folder)) rename(w->aside, w->folder);
}

static struct sl_fit_options watched(struct watcher *w, struct run *run) {
  *w = (struct watcher){.run = run};
  return (struct sl_fit_options){.epochs = EPOCHS,
                                 .validation = run->loaders[1],
                                 .user = w,
                                 .on_begin = on_begin,
                                 .on_step = on_step,
                                 .on_evaluation = on_evaluation,
                                 .on_save = on_save,
                                 .on_checkpoint = on_checkpoint,
                                 .on_warning = on_warning};
}

static enum sl_status fit(struct run *run, const struct sl_fit_options *options,
                          struct sl_fit_result *result) {
  return sl_fit(run->trainer, run->loaders[0], options, result);
}

/* ---- the tests ---- */

static void fit_is_the_plain_loop(void **state) {
  struct run run;
  struct watcher w;
  struct sl_fit_result result;
  const char *log = in_folder("plain.jsonl"), *saved = in_folder("plain.safetensors");
  (void)state;
  open_run(&run, true);
  struct sl_fit_options options = watched(&w, &run);
  options.log = log;
  options.save = saved;
  OK(fit(&run, &options, &result));
  assert_weights(run.model, EPOCHS);
  assert_saved(saved, EPOCHS);
  assert_int_equal(result.end, SL_FIT_DONE);
  assert_null(result.cause);
  assert_int_equal(result.step, EPOCHS * PER_EPOCH);
  assert_int_equal(result.epoch, EPOCHS);
  assert_int_equal(result.samples, EPOCHS * COUNT);
  assert_true(result.seconds > 0);
  assert_int_equal(result.last.epoch, EPOCHS);
  assert_true(result.last.loss == plain.loss[EPOCHS - 1]);
  assert_true(result.last.accuracy == plain.accuracy[EPOCHS - 1]);
  assert_true(isnan(result.last.rmse) && isnan(result.last.auc));
  assert_int_equal(w.begins, 1);
  assert_int_equal(w.steps, EPOCHS * PER_EPOCH);
  assert_int_equal(w.evaluations, EPOCHS);
  assert_int_equal(w.saves, EPOCHS);
  assert_log(log, 0, EPOCHS * PER_EPOCH);
  assert_int_equal(lines_with(log, "\"test_loss\""), EPOCHS);
  assert_int_equal(lines_with(log, "\"end\": \"done\""), 1);
  assert_int_equal(lines_with(log, "\"format\": \"starling log\""), 1);
  close_run(&run);
}

/* Steps count from the trainer's first one: the second call goes on where the first ended. */
static void a_second_call_goes_on(void **state) {
  struct run run;
  struct watcher w;
  struct sl_fit_result result;
  (void)state;
  open_run(&run, true);
  struct sl_fit_options options = watched(&w, &run);
  options.epochs = 5;
  OK(fit(&run, &options, &result));
  options.epochs = EPOCHS;
  OK(fit(&run, &options, &result));
  assert_int_equal(w.steps, EPOCHS * PER_EPOCH);
  assert_weights(run.model, EPOCHS);
  options.steps = 10; /* made long ago */
  OK(fit(&run, &options, &result));
  assert_int_equal(result.end, SL_FIT_DONE);
  assert_weights(run.model, EPOCHS);
  close_run(&run);
}

/* The program's own steps, of which some are pending: they are steps of the training, but not of
 * the run. */
static void pending_steps_count_once(void **state) {
  struct run run;
  struct watcher w;
  struct sl_fit_result result;
  struct sl_report report;
  bool reported;
  (void)state;
  for (int own = 2; own <= PER_EPOCH; own += 2) {
    open_run(&run, true);
    struct sl_fit_options options = watched(&w, &run);
    options.epochs = 1;
    for (int i = 0; i < own; i++)
      OK(sl_trainer_step(run.trainer, run.loaders[0], &report, &reported));
    OK(fit(&run, &options, &result));
    assert_int_equal(result.step, PER_EPOCH);
    assert_int_equal(w.steps, PER_EPOCH - own);
    assert_weights(run.model, 1);
    OK(fit(&run, &options, &result));
    assert_int_equal(result.step, PER_EPOCH);
    close_run(&run);
  }
}

/* sl_fit to `steps` in all makes those that are missing. */
static void assert_goes_on(struct run *run, int loader, int64_t steps) {
  struct watcher w;
  struct sl_fit_result result;
  struct sl_fit_options options = watched(&w, run);
  int64_t made = sl_trainer_position(run->trainer).step;
  options.validation = NULL;
  options.epochs = 0;
  options.steps = steps;
  OK(sl_fit(run->trainer, run->loaders[loader], &options, &result));
  assert_int_equal(result.end, SL_FIT_DONE);
  assert_int_equal(result.step, steps);
  assert_int_equal(w.steps, steps - made);
  assert_int_equal(sl_trainer_position(run->trainer).step, steps);
}

/* No run could go on from a checkpoint whose place in the data is not that of its step. */
static void assert_no_checkpoints(struct run *run, int loader, const char *message) {
  const struct sl_fit_options options = {.steps = 100, .checkpoint = in_folder("mixed")};
  FAILS(sl_fit(run->trainer, run->loaders[loader], &options, NULL), SL_BAD_ARGUMENT, message);
}

/* Steps count on with another loader, which has other epochs, and in a second call, too. */
static void another_loader_goes_on(void **state) {
  struct run run;
  (void)state;
  open_run(&run, true);
  assert_goes_on(&run, 0, 2 * PER_EPOCH);
  assert_goes_on(&run, 1, 2 * PER_EPOCH + 5);
  assert_no_checkpoints(&run, 0, "made 13 steps, and the loader is at batch 0 of epoch 2");
  assert_no_checkpoints(&run, 1, "made 13 steps, and the loader is at batch 2 of epoch 1");
  assert_goes_on(&run, 1, 2 * PER_EPOCH + 6);
  assert_goes_on(&run, 0, 2 * PER_EPOCH + 7);
  close_run(&run);
  open_run(&run, true);
  take_steps(run.trainer, run.loaders[0], PER_EPOCH + 1, NULL);
  take_steps(run.trainer, run.loaders[1], 2, NULL);
  assert_goes_on(&run, 1, PER_EPOCH + 5);
  close_run(&run);
}

/* A loader that something else moves has another place than the steps. */
static void a_moved_loader_goes_on(void **state) {
  struct run run;
  double loss, accuracy;
  (void)state;
  open_run(&run, true);
  take_steps(run.trainer, run.loaders[0], PER_EPOCH - 1, NULL);
  OK(sl_loader_seek(run.loaders[0], 0));
  take_steps(run.trainer, run.loaders[0], 2, NULL);
  assert_goes_on(&run, 0, PER_EPOCH + 2);
  assert_no_checkpoints(&run, 0, "seek it to batch 2 of epoch 1");
  close_run(&run);
  open_run(&run, true);
  assert_goes_on(&run, 0, PER_EPOCH);
  OK(sl_trainer_evaluate(run.trainer, run.loaders[0], &loss, &accuracy));
  assert_no_checkpoints(&run, 0, "seek it to batch 0 of epoch 1");
  assert_goes_on(&run, 0, PER_EPOCH + 1);
  assert_goes_on(&run, 0, PER_EPOCH + 2);
  close_run(&run);
}

static void open_with_batch(struct run *run, int batch) {
  const struct sl_loader_options how = {.batch = batch, .shuffle = true, .seed = 3};
  open_run(run, true);
  sl_loader_free(run->loaders[0]);
  OK(sl_loader_new(run->sets[0], &how, &run->loaders[0]));
}

/* Epochs to `epochs` in all take `made` steps. */
static void assert_epochs(struct run *run, int epochs, int64_t made) {
  struct sl_fit_result result;
  int64_t before = sl_trainer_position(run->trainer).step;
  OK(fit(run, &(struct sl_fit_options){.epochs = epochs}, &result));
  struct sl_position after = sl_trainer_position(run->trainer);
  assert_int_equal(after.step - before, made);
  assert_int_equal(after.epoch, epochs);
  assert_int_equal(after.index, 0);
  assert_int_equal(result.epoch, epochs);
}

/* A checkpoint that the program loads with another batch: epochs count on from the loader's place,
 * and steps with another loader from the trainer's step. */
static void another_batch_goes_on(void **state) {
  struct run run;
  const char *saved = in_folder("batch.safetensors");
  const struct sl_fit_options kept = {.epochs = 2, .checkpoint = in_folder("batch")};
  (void)state;
  for (int factor = 1; factor <= 2; factor++) {
    int batch[] = {BATCH * factor, BATCH * (3 - factor)}, steps[] = {COUNT / batch[0], 0};
    steps[1] = COUNT / batch[1];
    open_with_batch(&run, batch[0]);
    assert_epochs(&run, 1, steps[0]);
    OK(sl_trainer_save(run.trainer, saved));
    close_run(&run);
    open_with_batch(&run, batch[1]);
    OK(sl_trainer_load(run.trainer, run.loaders[0], saved));
    FAILS(fit(&run, &kept, NULL), SL_BAD_ARGUMENT, "loaded from a checkpoint of another batch");
    assert_null(strstr(sl_error(), "seek"));
    assert_epochs(&run, 2, steps[1]);
    assert_goes_on(&run, 1, steps[0] + steps[1] + 3);
    OK(sl_loader_seek(run.loaders[0], 2));
    take_steps(run.trainer, run.loaders[0], 1, NULL);
    OK(sl_trainer_load(run.trainer, run.loaders[0], saved));
    assert_epochs(&run, 3, 2 * steps[1]);
    close_run(&run);
  }
}

/* An evaluation of the training data by a callback: checkpoints would note another place. */
static enum sl_status evaluates_training(void *user, const struct sl_fit_evaluation *evaluation,
                                         bool is_best) {
  struct run *run = user;
  double loss, accuracy;
  (void)evaluation, (void)is_best;
  return sl_trainer_evaluate(run->trainer, run->loaders[0], &loss, &accuracy);
}

static void callbacks_leave_the_place(void **state) {
  struct run run;
  struct sl_fit_result result;
  (void)state;
  open_run(&run, true);
  struct sl_fit_options options = {.epochs = 2,
                                   .validation = run.loaders[1],
                                   .user = &run,
                                   .on_evaluation = evaluates_training,
                                   .checkpoint = in_folder("moved")};
  FAILS(fit(&run, &options, &result), SL_BAD_ARGUMENT, "on_evaluation");
  assert_int_equal(result.step, PER_EPOCH);
  assert_false(has_checkpoint(options.checkpoint, PER_EPOCH));
  options.checkpoint = NULL;
  OK(fit(&run, &options, &result));
  close_run(&run);
}

/* An evaluation before the run moves the loader on; sought back, its checkpoints can be used. */
static void checkpoints_need_the_place(void **state) {
  struct run run;
  double loss, accuracy;
  struct sl_fit_options options = {
      .steps = 6, .checkpoint = in_folder("sought"), .checkpoint_every = 3, .resume = true};
  (void)state;
  open_run(&run, true);
  OK(sl_trainer_evaluate(run.trainer, run.loaders[0], &loss, &accuracy));
  FAILS(fit(&run, &options, NULL), SL_BAD_ARGUMENT,
        "made 0 steps, and the loader is at batch 0 of epoch 1");
  OK(sl_loader_seek(run.loaders[0], 0));
  OK(fit(&run, &options, NULL));
  close_run(&run);
  open_run(&run, true);
  options.steps = PER_EPOCH * 2;
  OK(fit(&run, &options, NULL));
  assert_weights(run.model, 2);
  options.validation = run.loaders[0];
  FAILS(fit(&run, &options, NULL), SL_BAD_ARGUMENT, "validation: is the loader that trains");
  close_run(&run);
}

static void checkpoints_rotate(void **state) {
  struct run run;
  struct watcher w;
  struct sl_fit_result result;
  const char *folder = in_folder("rotation");
  (void)state;
  open_run(&run, true);
  struct sl_fit_options options = watched(&w, &run);
  options.checkpoint = folder;
  options.checkpoint_every = 5;
  options.keep = 2;
  options.steps = 18;
  OK(fit(&run, &options, &result));
  assert_int_equal(w.checkpoints, 4); /* 5, 10, 15, 18 */
  assert_false(has_checkpoint(folder, 10));
  assert_true(has_checkpoint(folder, 15));
  assert_true(has_checkpoint(folder, 18));
  assert_non_null(strstr(result.checkpoint, "checkpoint-000000018.safetensors"));
  assert_false(is_there(in_folder("rotation/lock")));
  /* the folder is this run's: no other one begins there */
  FAILS(fit(&run, &options, &result), SL_BAD_ARGUMENT, "has a run's checkpoints");
  assert_int_equal(result.end, SL_FIT_FAILED);
  close_run(&run);
}

/* A run that is stopped after `step` steps, and then resumed in another trainer. */
static void resume_after(int step, int best_of, struct sl_fit_options extra) {
  struct run run;
  struct watcher w;
  struct sl_fit_result result;
  char folder[64], log[64], best[64];
  snprintf(folder, sizeof folder, "resume%d-%d", step, best_of);
  snprintf(log, sizeof log, "resume%d-%d.jsonl", step, best_of);
  snprintf(best, sizeof best, "resume%d-%d.safetensors", step, best_of);
  for (int turn = 0; turn < 2; turn++) {
    open_run(&run, true);
    struct sl_fit_options options = watched(&w, &run);
    options.checkpoint = in_folder(folder);
    options.log = in_folder(log);
    options.resume = true;
    options.best = in_folder(best);
    options.patience = extra.patience;
    options.min_delta = extra.min_delta;
    options.metric = extra.metric;
    options.noted = turn ? "{\"lr\": 0.5, \"name\": \"b\"}" : "{\"lr\": 0.5, \"name\": \"a\"}";
    if (!turn) w.stop_at_step = step;
    OK(fit(&run, &options, &result));
    if (!turn) {
      assert_int_equal(result.end, SL_FIT_INTERRUPTED);
      assert_string_equal(result.cause, "the program");
      assert_string_equal(w.resumed, "");
      close_run(&run);
    }
  }
  int ends = end_by(plain.loss, 1, (int)extra.patience, extra.min_delta, &best_of);
  assert_non_null(strstr(w.resumed, "checkpoint-"));
  assert_string_equal(w.changes, "name a -> b");
  assert_int_equal(result.step, ends * PER_EPOCH);
  assert_int_equal(result.end, ends < EPOCHS ? SL_FIT_EARLY : SL_FIT_DONE);
  assert_int_equal(result.best.epoch, best_of);
  assert_true(result.best.loss == plain.loss[best_of - 1]);
  assert_weights(run.model, ends);
  assert_saved(in_folder(best), best_of);
  assert_log(in_folder(log), 0, ends * PER_EPOCH);
  assert_int_equal(lines_with(in_folder(log), "\"end\": \"interrupted\""), 1);
  assert_int_equal(lines_with(in_folder(log), "\"message\": \"the program\""), 1);
  assert_int_equal(lines_with(in_folder(log), "\"changed\": \"name a -> b\""), 1);
  assert_int_equal(lines_with(in_folder(log), "\"test_loss\""), ends);
  close_run(&run);
}

static void resumes_to_the_bit(void **state) {
  (void)state;
  resume_after(1, 1, (struct sl_fit_options){0});
  resume_after(6, 2, (struct sl_fit_options){0});
}

/* A stop that comes while the last step of an epoch is on its way: the epoch is evaluated, which
 * the resumed run does not do again. In the run's last step it interrupts nothing. */
static void a_stop_at_an_epochs_end(void **state) {
  static const int stops[] = {PER_EPOCH - 1, EPOCHS * PER_EPOCH - 1};
  struct run run;
  struct watcher w;
  struct sl_fit_result result;
  (void)state;
  for (int turn = 0; turn < 2; turn++) {
    open_run(&run, true);
    struct sl_fit_options options = watched(&w, &run);
    options.checkpoint = in_folder("at_end");
    options.log = in_folder("at_end.jsonl");
    options.resume = true;
    w.stop_at_step = stops[turn];
    OK(fit(&run, &options, &result));
    assert_int_equal(result.step, stops[turn] + 1);
    assert_int_equal(result.end, turn ? SL_FIT_DONE : SL_FIT_INTERRUPTED);
    assert_int_equal(w.evaluations, turn ? EPOCHS - 1 : 1);
    close_run(&run);
  }
  assert_int_equal(lines_with(in_folder("at_end.jsonl"), "\"test_loss\""), EPOCHS);
}

/* A run of a step within an epoch, asked to stop while its last step is on its way: it is done, and
 * ends as such. */
static void a_stop_in_the_last_step(void **state) {
  enum { STEPS = PER_EPOCH + 2 };
  struct run run;
  struct watcher w;
  struct sl_fit_result result;
  (void)state;
  open_run(&run, true);
  struct sl_fit_options options = watched(&w, &run);
  options.steps = STEPS;
  options.log = in_folder("last_step.jsonl");
  options.confusion = true;
  w.stop_at_step = STEPS - 1;
  OK(fit(&run, &options, &result));
  assert_int_equal(result.step, STEPS);
  assert_int_equal(result.end, SL_FIT_DONE);
  assert_int_equal(w.evaluations, 2);
  assert_int_equal(lines_with(options.log, "\"confusion\": ["), 1);
  close_run(&run);
}

/* The best value and the count go with the checkpoint: an interruption anywhere, the end of an
 * epoch included, changes nothing. */
static void early_stopping_survives(void **state) {
  int best;
  (void)state;
  int ends = end_by(plain.loss, 1, 2, 0.01, &best);
  assert_true(ends > 2 && ends < EPOCHS);
  for (int step = 1; step <= (ends - 1) * PER_EPOCH; step += 3)
    resume_after(step, 10, (struct sl_fit_options){.patience = 2, .min_delta = 0.01});
}

/* The best evaluation is noted in full: in a checkpoint of a program with decimal commas, too. */
static void early_stopping_survives_a_locale(void **state) {
  int best;
  (void)state;
  int ends = end_by(plain.loss, 1, 2, 0.01, &best);
  if (!set_comma_locale()) skip();
  for (int turn = 0; turn < 2; turn++) {
    struct run run;
    struct watcher w;
    struct sl_fit_result result;
    open_run(&run, true);
    struct sl_fit_options options = watched(&w, &run);
    options.checkpoint = in_folder("locale");
    options.resume = true;
    options.patience = 2;
    options.min_delta = 0.01;
    if (!turn) options.steps = (ends - 1) * PER_EPOCH;
    OK(fit(&run, &options, &result));
    assert_true(result.best.loss == plain.loss[best - 1]);
    assert_int_equal(result.step, (turn ? ends : ends - 1) * PER_EPOCH);
    close_run(&run);
    setlocale(LC_ALL, "C");
  }
}

/* As a program with decimal commas noted it; and no number at all. */
static void a_noted_comma_is_a_point(void **state) {
  (void)state;
  static const char *const damaged[] = {"", "0,5,3", "0.5x", "x"};
  struct sl__fit fit = {.options.metric = "loss"};
  OK(sl__fit_take_noted(&fit,
                        "{\"fit\":{\"metric\":\"loss\",\"deciding\":\"0,53\",\"since\":2,"
                        "\"reference\":\"inf\",\"epoch\":3,\"loss\":\"5,3e-1\"}}"));
  assert_true(fit.best.evaluation.deciding == 0.53 && fit.best.evaluation.loss == 0.53);
  assert_true(isinf(fit.best.reference) && isnan(fit.best.evaluation.accuracy));
  assert_true(fit.best.evaluation.epoch == 3 && fit.best.since == 2);
  for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
    char text[120];
    snprintf(text, sizeof text, "{\"fit\":{\"metric\":\"loss\",\"loss\":\"%s\"}}", damaged[i]);
    FAILS(sl__fit_take_noted(&fit, text), SL_BAD_FILE, "damaged: the best evaluation");
  }
}

/* A run that --steps ends within an epoch is evaluated there, which is no epoch's evaluation. */
static void a_limit_of_steps_is_no_epoch(void **state) {
  int best;
  (void)state;
  int ends = end_by(plain.loss, 1, 2, 0.01, &best);
  for (int step = 1; step < ends * PER_EPOCH; step += 3) {
    struct run run;
    struct watcher w;
    struct sl_fit_result result;
    char folder[64];
    snprintf(folder, sizeof folder, "limit%d", step);
    for (int turn = 0; turn < 2; turn++) {
      open_run(&run, true);
      struct sl_fit_options options = watched(&w, &run);
      options.checkpoint = in_folder(folder);
      options.resume = true;
      options.patience = 2;
      options.min_delta = 0.01;
      if (!turn) options.steps = step;
      OK(fit(&run, &options, &result));
      assert_int_equal(result.step, turn ? ends * PER_EPOCH : step);
      if (turn) assert_weights(run.model, ends);
      close_run(&run);
    }
  }
}

static void ends_early(const char *metric, const double *by, double sign, int patience,
                       double delta) {
  struct run run;
  struct watcher w;
  struct sl_fit_result result;
  int best = 0, ends = end_by(by, sign, patience, delta, &best);
  const char *path = in_folder("best.safetensors"), *log = in_folder("early.jsonl");
  remove(path);
  open_run(&run, true);
  struct sl_fit_options options = watched(&w, &run);
  options.metric = metric;
  options.patience = patience;
  options.min_delta = delta;
  options.best = path;
  options.log = log;
  OK(fit(&run, &options, &result));
  if (result.epoch != ends || result.best.epoch != best)
    fail_msg("%s, patience %d: ended after epoch %d, best %d; expected %d and %d",
             metric ? metric : "loss", patience, (int)result.epoch, (int)result.best.epoch, ends,
             best);
  assert_int_equal(result.end, ends < EPOCHS ? SL_FIT_EARLY : SL_FIT_DONE);
  assert_int_equal(w.evaluations, ends);
  assert_true(w.bests[best]);
  assert_weights(run.model, ends);
  assert_saved(path, best);
  assert_int_equal(lines_with(log, "\"message\": \"no better"), ends < EPOCHS);
  close_run(&run);
}

static void early_stopping(void **state) {
  (void)state;
  int best, earliest = EPOCHS;
  for (int patience = 1; patience < 5; patience++) {
    ends_early(NULL, plain.loss, 1, patience, 0);
    ends_early("accuracy", plain.accuracy, -1, patience, 0);
    int ends = end_by(plain.loss, 1, patience, 0, &best);
    if (ends < earliest) earliest = ends;
  }
  ends_early("loss", plain.loss, 1, 2, 0.02);
  ends_early("loss", plain.loss, 1, 3, 100); /* nothing is that much better than the first */
  ends_early("accuracy", plain.accuracy, -1, 0, 0);
  assert_true(earliest < EPOCHS); /* the data are such that it matters */
}

/* Nothing is left to do for a run that ended early; with more patience there is. */
static void an_early_end_stays(void **state) {
  struct run run;
  struct watcher w;
  struct sl_fit_result result;
  int best, ends = end_by(plain.loss, 1, 1, 0, &best);
  (void)state;
  for (int turn = 0; turn < 3; turn++) {
    open_run(&run, true);
    struct sl_fit_options options = watched(&w, &run);
    options.checkpoint = in_folder("early");
    options.resume = true;
    options.patience = turn < 2 ? 1 : EPOCHS;
    OK(fit(&run, &options, &result));
    assert_int_equal(result.end, turn < 2 ? SL_FIT_EARLY : SL_FIT_DONE);
    assert_int_equal(result.epoch, turn < 2 ? ends : EPOCHS);
    assert_int_equal(w.steps, turn == 1 ? 0 : (turn ? EPOCHS - ends : ends) * PER_EPOCH);
    close_run(&run);
  }
}

static void callbacks_end_it(void **state) {
  struct run run;
  struct watcher w;
  struct sl_fit_result result;
  (void)state;
  open_run(&run, true);
  struct sl_fit_options options = watched(&w, &run);
  w.stop_at_evaluation = 3;
  OK(fit(&run, &options, &result));
  assert_int_equal(result.end, SL_FIT_INTERRUPTED);
  assert_int_equal(result.step, 3 * PER_EPOCH); /* at once */
  assert_weights(run.model, 3);
  w.stop_at_evaluation = 0; /* and then on */
  OK(fit(&run, &options, &result));
  assert_int_equal(result.end, SL_FIT_DONE);
  assert_weights(run.model, EPOCHS);
  close_run(&run);
  open_run(&run, true);
  options = watched(&w, &run);
  w.fail_at_step = 7;
  options.log = in_folder("fails.jsonl");
  options.checkpoint = in_folder("fails");
  options.checkpoint_every = 3;
  FAILS(fit(&run, &options, &result), SL_NO_DEVICE,
        "on_step: the program's function ended the run");
  assert_int_equal(result.end, SL_FIT_FAILED);
  assert_int_equal(w.steps, 7);
  assert_int_equal(lines_with(in_folder("fails.jsonl"), "\"end\": \"failed\""), 1);
  assert_int_equal(lines_with(in_folder("fails.jsonl"), "on_step: the program's function"), 1);
  assert_true(has_checkpoint(in_folder("fails"), 6)); /* what was written stays */
  close_run(&run);
}

static enum sl_status stop_before(void *user, const struct sl_fit_begin *begin) {
  struct watcher *w = user;
  (void)begin;
  sl_trainer_stop(w->run->trainer);
  return SL_OK;
}

static void a_stop_before_the_first_step(void **state) {
  struct run run;
  struct watcher w;
  struct sl_fit_result result;
  (void)state;
  open_run(&run, true);
  struct sl_fit_options options = watched(&w, &run);
  options.on_begin = stop_before;
  options.save = in_folder("before.json");
  options.checkpoint = in_folder("before");
  OK(fit(&run, &options, &result));
  assert_int_equal(result.end, SL_FIT_INTERRUPTED);
  assert_string_equal(result.cause, "the program");
  assert_int_equal(result.step, 0);
  assert_int_equal(w.steps + w.evaluations + w.saves + w.checkpoints, 0);
  options.on_begin = on_begin;
  OK(fit(&run, &options, &result));
  assert_weights(run.model, EPOCHS);
  close_run(&run);
}

/* ---- steps within a callback ---- */

static const char inside[] = "a callback of sl_fit cannot make or drain steps";

static void assert_no_steps(struct run *run) {
  struct sl_fit_result result = {.end = SL_FIT_DONE};
  struct sl_report report;
  bool reported;
  FAILS(fit(run, &(struct sl_fit_options){.steps = 8}, &result), SL_BAD_ARGUMENT, inside);
  assert_int_equal(result.end, SL_FIT_FAILED);
  FAILS(sl_trainer_step(run->trainer, run->loaders[0], &report, &reported), SL_BAD_ARGUMENT,
        inside);
}

static enum sl_status no_steps_at_begin(void *user, const struct sl_fit_begin *begin) {
  struct watcher *w = user;
  (void)begin;
  assert_no_steps(w->run);
  return SL_OK;
}

static enum sl_status no_steps_in_step(void *user, const struct sl_report *report, double rate) {
  struct watcher *w = user;
  struct sl_report other;
  bool reported;
  assert_no_steps(w->run);
  if (report->step == 1) /* more are pending */
    FAILS(sl_trainer_drain(w->run->trainer, &other, &reported), SL_BAD_ARGUMENT, inside);
  return on_step(user, report, rate);
}

static enum sl_status no_steps_at_evaluation(void *user, const struct sl_fit_evaluation *evaluation,
                                             bool is_best) {
  struct watcher *w = user;
  struct sl_report report;
  bool reported;
  assert_no_steps(w->run);
  OK(sl_trainer_drain(w->run->trainer, &report, &reported));
  return on_evaluation(user, evaluation, is_best);
}

/* Another trainer's steps are its own. */
static enum sl_status train_another(void *user, const char *path) {
  struct watcher *w = user;
  struct run other;
  assert_no_steps(w->run);
  open_run(&other, true);
  OK(fit(&other, &(struct sl_fit_options){.steps = 2}, NULL));
  close_run(&other);
  return on_save(user, path);
}

static void callbacks_make_no_steps(void **state) {
  struct run run;
  struct watcher w;
  struct sl_fit_result result;
  (void)state;
  open_run(&run, true);
  struct sl_fit_options options = watched(&w, &run);
  options.on_begin = no_steps_at_begin;
  options.on_step = no_steps_in_step;
  options.on_evaluation = no_steps_at_evaluation;
  options.on_save = train_another;
  options.save = in_folder("inside.json");
  OK(fit(&run, &options, &result));
  assert_int_equal(result.step, EPOCHS * PER_EPOCH);
  assert_int_equal(w.steps, EPOCHS * PER_EPOCH);
  assert_weights(run.model, EPOCHS);
  close_run(&run);
}

static void signals_end_it(void **state) {
  static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
  static const char *const names[] = {"Ctrl-C (SIGINT)", "SIGTERM", "SIGHUP", "SIGUSR1"};
  (void)state;
  for (int i = 0; i < 4; i++) {
    struct run run;
    struct watcher w;
    struct sl_fit_result result;
    struct sigaction before, after;
    sigaction(numbers[i], NULL, &before);
    open_run(&run, true);
    struct sl_fit_options options = watched(&w, &run);
    options.signals = true;
    w.raise_at_step = 6;
    w.signal = numbers[i];
    OK(fit(&run, &options, &result));
    assert_int_equal(result.end, SL_FIT_INTERRUPTED);
    assert_string_equal(result.cause, names[i]);
    assert_true(result.step >= 6 && result.step < 16); /* up to eight were submitted */
    assert_int_equal(sl_signals_caught(), numbers[i]);
    sigaction(numbers[i], NULL, &after);
    assert_true(before.sa_handler == after.sa_handler);
    close_run(&run);
  }
  sl_signals_catch(), sl_signals_catch();
  assert_int_equal(sl_signals_caught(), 0);
  sl_signals_release();
  raise(SIGTERM); /* still caught */
  assert_int_equal(sl_signals_caught(), SIGTERM);
  sl_signals_release();
}

static void bad_options(void **state) {
  static const struct {
    struct sl_fit_options options;
    const char *message;
  } cases[] = {
      {{.epochs = -1}, "epochs -1"},
      {{.steps = -1}, "steps -1"},
      {{.patience = -2}, "patience -2"},
      {{.min_delta = -1}, "min_delta -1"},
      {{.min_delta = NAN}, "min_delta"},
      {{.min_delta = 0.1}, "min_delta 0.1: it belongs to patience"},
      {{.metric = "acc"}, "metric acc: unknown"},
      {{.metric = "rmse"}, "metric rmse: an evaluation with this loss"},
      {{.metric = "top5"}, "does not have it; a top-N accuracy is of class labels, of more than N"},
      {{.confusion = true}, "confusion: the matrix is"},
      {{.keep = 3}, "belong to checkpoint"},
      {{.checkpoint_every = 3}, "belong to checkpoint"},
      {{.resume = true}, "belong to checkpoint"},
      {{.checkpoint = "x", .checkpoint_every = 3, .checkpoint_minutes = 1}, "give one of the two"},
      {{.checkpoint = "x", .checkpoint_minutes = INFINITY}, "checkpoint_minutes inf"},
      {{.trace_first = 3, .trace_last = 4}, "belong to trace"},
      {{.trace = true, .trace_first = 5, .trace_last = 4}, "no such range"},
      {{.save = "x.pt"}, "x.pt: other programs"},
      {{.save = "x.json", .best = "x.json"}, "one would overwrite the other"},
      {{.save = "x.json", .best = "x.safetensors"},
       "save x.safetensors: best writes this file, too"},
      {{.save = "x.safetensors", .best = "./x.json"}, "one would overwrite the other"},
      {{.log = "x", .save = ".//x"}, "save .//x: log writes this file, too"},
      {{.save = ""}, "save: the path is empty; name a file"},
      {{.best = ""}, "best: the path is empty"},
      {{.log = ""}, "log: the path is empty"},
      {{.checkpoint = ""}, "checkpoint: the path is empty; name a folder"},
      {{.options = "[1]"}, "options: must be the text of one JSON object: it is another value"},
      {{.noted = "{\"a\":"}, "noted: must be the text of one JSON object"},
  };
  struct run run;
  struct sl_fit_result result;
  (void)state;
  open_run(&run, true);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct sl_fit_options options = cases[i].options;
    options.validation = run.loaders[1];
    FAILS(fit(&run, &options, &result), SL_BAD_ARGUMENT, cases[i].message);
    assert_int_equal(result.end, SL_FIT_FAILED);
  }
  FAILS(fit(&run, &(struct sl_fit_options){.patience = 1}, NULL), SL_BAD_ARGUMENT,
        "patience: needs evaluations");
  FAILS(fit(&run, &(struct sl_fit_options){.best = in_folder("b.json")}, NULL), SL_BAD_ARGUMENT,
        "best: needs evaluations");
  FAILS(fit(&run, &(struct sl_fit_options){.metric = "accuracy"}, NULL), SL_BAD_ARGUMENT,
        "metric: needs evaluations");
  assert_int_equal(sl_trainer_position(run.trainer).step, 0); /* nothing has begun */
  assert_false(is_there("x"));
  OK(fit(&run, &(struct sl_fit_options){.steps = 2}, NULL)); /* the trainer is as good as before */
  close_run(&run);
}

static enum sl_status write_nothing(void *user, struct sl_model *model, const char *path) {
  (void)user, (void)model, (void)path;
  return SL_OK;
}

/* A folder that the program's function writes has the weights in it. */
static void outputs_in_folders(void **state) {
  char folder[200], weights[220], model[220];
  (void)state;
  snprintf(folder, sizeof folder, "%s", in_folder("folder"));
  snprintf(weights, sizeof weights, "%s//model.safetensors", folder);
  snprintf(model, sizeof model, "%s/model.json", folder);
  OK(sl_folder_make(folder));
  FAILS(sl__fit_check_outputs(
            &(struct sl_fit_options){.save = folder, .best = weights, .write = write_nothing}, 0),
        SL_BAD_ARGUMENT, "/model.safetensors: best writes this file, too");
  FAILS(sl__fit_check_outputs(
            &(struct sl_fit_options){.save = model, .best = folder, .write = write_nothing}, 0),
        SL_BAD_ARGUMENT, "/model.safetensors: save writes this file, too");
  OK(sl__fit_check_outputs(
      &(struct sl_fit_options){.save = folder, .log = model, .write = write_nothing}, 0));
}

/* The log of several ranks is several files. */
static void outputs_of_ranks(void **state) {
  const struct sl_fit_options model = {.log = "w.json", .save = "w.rank1.json"},
                              weights = {.log = "w.safetensors", .best = "w.rank2.json"};
  (void)state;
  OK(sl__fit_check_outputs(&model, 0));
  FAILS(sl__fit_check_outputs(&model, 1), SL_BAD_ARGUMENT, "w.rank1.json");
  OK(sl__fit_check_outputs(&model, 2));
  FAILS(sl__fit_check_outputs(&weights, 2), SL_BAD_ARGUMENT, "w.rank2.safetensors");
  assert_false(is_there("w.json"));
}

/* A log is written in place, a model takes the place of one name. */
static void outputs_by_hard_links(void **state) {
  const struct sl_fit_options log = {.log = "log.json", .save = "linked.json"},
                              both = {.save = "log.json", .best = "linked.json"};
  (void)state;
  FILE *file = fopen("log.json", "w");
  assert_non_null(file);
  assert_int_equal(fclose(file), 0);
  assert_int_equal(link("log.json", "linked.json"), 0);
  FAILS(sl__fit_check_outputs(&log, 0), SL_BAD_ARGUMENT, "linked.json");
  OK(sl__fit_check_outputs(&both, 0));
  assert_int_equal(unlink("log.json"), 0);
  assert_int_equal(unlink("linked.json"), 0);
}

static void files_that_fail(void **state) {
  struct run run;
  struct sl_fit_result result;
  (void)state;
  put("a-file", "x", 1);
  open_run(&run, true);
  FAILS(fit(&run, &(struct sl_fit_options){.log = in_folder("no/x.jsonl")}, NULL), SL_IO,
        "no/x.jsonl: cannot be written: No such file");
  FAILS(fit(&run, &(struct sl_fit_options){.save = in_folder("no/x.json")}, NULL), SL_IO,
        "cannot be written");
  FAILS(fit(&run,
            &(struct sl_fit_options){.best = in_folder("no/x.json"), .validation = run.loaders[1]},
            NULL),
        SL_IO, "cannot be written");
  FAILS(fit(&run, &(struct sl_fit_options){.checkpoint = in_folder("a-file/x")}, NULL), SL_IO,
        "cannot be written");
  assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
  FAILS(fit(&run, &(struct sl_fit_options){.save = in_folder("pipe")}, NULL), SL_IO,
        "pipe: is not a regular file and will not be replaced");
  assert_int_equal(sl_trainer_position(run.trainer).step, 0);
  FAILS(fit(&run, &(struct sl_fit_options){.log = "/dev/full", .steps = 3}, &result), SL_IO,
        "/dev/full: cannot be written: No space left");
  assert_int_equal(result.end, SL_FIT_FAILED);
  close_run(&run);
}

/* Both loaders must fit the trainer's two replicas. */
static void a_validation_that_cannot_be_cut(void **state) {
  struct run run;
  struct sl_loader *single;
  (void)state;
  open_run(&run, true);
  OK(sl_loader_new(run.sets[1], &(struct sl_loader_options){.batch = 1}, &single));
  FAILS(fit(&run, &(struct sl_fit_options){.validation = single}, NULL), SL_BAD_ARGUMENT,
        "validation: a batch of 1 cannot be cut into 2 replicas x 1 microbatches");
  assert_int_equal(sl_trainer_position(run.trainer).step, 0);
  sl_loader_free(single);
  close_run(&run);
}

/* A folder that is away for a while costs a checkpoint, not the run; away at the end, it does. */
static void checkpoints_that_fail(void **state) {
  struct run run;
  struct watcher w;
  struct sl_fit_result result;
  (void)state;
  open_run(&run, true);
  struct sl_fit_options options = watched(&w, &run);
  options.checkpoint = in_folder("away");
  options.checkpoint_every = 4;
  options.steps = 12;
  snprintf(w.folder, sizeof w.folder, "%s", in_folder("away"));
  snprintf(w.aside, sizeof w.aside, "%s", in_folder("elsewhere"));
  OK(fit(&run, &options, &result));
  assert_int_equal(w.warnings, 1);
  assert_non_null(strstr(w.warning, "no checkpoint after step 8"));
  assert_non_null(strstr(w.warning, "; the training goes on"));
  assert_int_equal(w.checkpoints, 2);
  assert_true(has_checkpoint(w.folder, 4) && has_checkpoint(w.folder, 12));
  close_run(&run);
  open_run(&run, true);
  options = watched(&w, &run);
  options.checkpoint = in_folder("away at the end");
  options.checkpoint_every = 4;
  options.steps = 8;
  snprintf(w.folder, sizeof w.folder, "%s", in_folder("away at the end"));
  snprintf(w.aside, sizeof w.aside, "%s", in_folder("elsewhere"));
  FAILS(fit(&run, &options, &result), SL_IO, "no checkpoint after step 8");
  assert_int_equal(result.end, SL_FIT_DONE); /* the steps were made */
  assert_true(has_checkpoint(w.aside, 4));
  assert_weights(run.model, 2);
  close_run(&run);
}

static const char *other_folder;
static enum sl_status begin_another(void *user, const struct sl_fit_begin *begin) {
  struct run other;
  (void)user, (void)begin;
  open_run(&other, true);
  FAILS(fit(&other,
            &(struct sl_fit_options){.checkpoint = other_folder, .resume = true, .steps = 2}, NULL),
        SL_BAD_ARGUMENT, "another run has this folder (host ");
  assert_int_equal(sl_trainer_position(other.trainer).step, 0);
  close_run(&other);
  return SL_OK;
}

static void one_run_a_folder(void **state) {
  struct run run;
  (void)state;
  open_run(&run, true);
  other_folder = in_folder("shared");
  OK(fit(
      &run,
      &(struct sl_fit_options){.checkpoint = other_folder, .steps = 4, .on_begin = begin_another},
      NULL));
  assert_true(has_checkpoint(other_folder, 4));
  OK(sl_fit_check(context, &(struct sl_fit_options){.checkpoint = other_folder, .resume = true}));
  FAILS(sl_fit_check(NULL, &(struct sl_fit_options){.checkpoint = other_folder}), SL_BAD_ARGUMENT,
        "checkpoint ");
  close_run(&run);
}

static enum sl_status begin_with_same_log(void *user, const struct sl_fit_begin *begin) {
  struct run run;
  char owner[64];
  (void)user, (void)begin;
  snprintf(owner, sizeof owner, "another run writes this file (host ");
  open_run(&run, true);
  FAILS(fit(&run, &(struct sl_fit_options){.log = in_folder("one.jsonl"), .steps = 4}, NULL),
        SL_BAD_ARGUMENT, owner);
  snprintf(owner, sizeof owner, ", process %d, since 20", (int)getpid());
  assert_non_null(strstr(sl_error(), owner));
  close_run(&run);
  return SL_OK;
}

/* Its lines are not cut, and those of the second run are not among them. */
static void one_run_a_log(void **state) {
  struct run run;
  struct sl_fit_options options = {
      .log = in_folder("one.jsonl"), .steps = 4, .on_begin = begin_with_same_log};
  (void)state;
  for (int turn = 0; turn < 2; turn++) {
    open_run(&run, true);
    OK(fit(&run, &options, NULL));
    close_run(&run);
    assert_log(options.log, 0, 4);
    assert_int_equal(lines_with(options.log, "\"format\": \"starling log\""), 1);
    assert_int_equal(lines_with(options.log, "\"end\""), 1);
    options.on_begin = NULL;
  }
}

static enum sl_status fork_a_child(void *user, const struct sl_fit_begin *begin) {
  (void)begin;
  *(pid_t *)user = fork();
  if (*(pid_t *)user) return SL_OK;
  pause();
  _exit(0);
}

static void a_child_does_not_keep_the_log(void **state) {
  struct run run;
  pid_t child = 0;
  struct sl_fit_options options = {
      .log = in_folder("child.jsonl"), .steps = 2, .on_begin = fork_a_child, .user = &child};
  (void)state;
  open_run(&run, true);
  OK(fit(&run, &options, NULL));
  options.on_begin = NULL;
  options.steps = 4;
  OK(fit(&run, &options, NULL));
  assert_true(child > 0);
  kill(child, SIGKILL);
  close_run(&run);
}

/* The disk is full after this many bytes of the log; a limit on the size of files is as good. */
static void a_full_disk_leaves_whole_lines(void **state) {
  struct rlimit before, limit;
  struct stat info;
  struct run run;
  const char *log = in_folder("full.jsonl");
  (void)state;
  open_run(&run, true);
  OK(fit(&run, &(struct sl_fit_options){.log = log, .steps = 4}, NULL));
  close_run(&run);
  assert_int_equal(stat(log, &info), 0);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  limit = before;
  limit.rlim_cur = (rlim_t)info.st_size - 240; /* in one of the last steps */
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  open_run(&run, true);
  enum sl_status status = fit(&run, &(struct sl_fit_options){.log = log, .steps = 4}, NULL);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  assert_int_equal(status, SL_IO);
  assert_non_null(strstr(sl_error(), "full.jsonl: cannot be written: File too large"));
  close_run(&run);
  const char *text = read_text(log);
  assert_true(*text && text[strlen(text) - 1] == '\n');
  assert_true(lines_with(log, "\"loss\"") < 4);
  assert_int_equal(lines_with(log, "{\"step\""), lines_with(log, "\"seconds\""));
}

/* Targets have errors in their unit instead of an accuracy. */
static void metrics_of_targets(void **state) {
  struct run run;
  struct watcher w;
  struct sl_fit_result result;
  struct sl_evaluation *evaluation;
  (void)state;
  open_run(&run, false);
  struct sl_fit_options options = watched(&w, &run);
  options.metric = "r2";
  options.epochs = 4;
  options.log = in_folder("targets.jsonl");
  OK(fit(&run, &options, &result));
  OK(sl_trainer_measure(run.trainer, run.loaders[1], &evaluation));
  assert_true(result.last.loss == evaluation->loss);
  assert_true(result.last.rmse == sl_evaluation_metric(evaluation, "rmse")->value);
  assert_true(result.last.mae == sl_evaluation_metric(evaluation, "mae")->value);
  assert_true(result.last.r2 == sl_evaluation_metric(evaluation, "r2")->value);
  assert_true(isnan(result.last.accuracy));
  assert_true(result.best.r2 >= result.last.r2); /* larger is better */
  assert_int_equal(lines_with(in_folder("targets.jsonl"), "\"test_rmse\""), 4);
  sl_evaluation_free(evaluation);
  FAILS(
      fit(&run, &(struct sl_fit_options){.metric = "accuracy", .validation = run.loaders[1]}, NULL),
      SL_BAD_ARGUMENT, "metric accuracy");
  close_run(&run);
}

/* Steps with gradients of norm 1e21, whose square is infinite as a float: the log has no number
 * then. */
static enum sl_status fit_steep(float clip, const char *log) {
  enum { ROWS = 40 };
  static float x[ROWS][2], y[ROWS];
  const struct sl_dataset_options about = {
      .name = "steep", .sample = SL_SHAPE(2), .target = SL_SHAPE(1), .count = ROWS};
  const struct sl_fit_options options = {.log = log, .epochs = 2};
  struct run run = {0};
  for (int i = 0; i < ROWS; i++) {
    x[i][0] = 1e4f, x[i][1] = -1e3f * (float)(i % 7);
    y[i] = 1e17f;
  }
  OK(sl_dataset_floats(&about, x[0], y, NULL, false, &run.sets[0]));
  OK(sl_loader_new(run.sets[0], &(struct sl_loader_options){.batch = 10}, &run.loaders[0]));
  run.model = new_model(SL_SHAPE(2));
  add_dense(run.model, "fc", 1, SL_INIT_DEFAULT);
  OK(sl_trainer_new(run.model, &(struct sl_optimizer){.lr = 1e-12f, .clip = clip}, NULL,
                    &(struct sl_trainer_options){
                        .replicas = 2, .loss.kind = SL_LOSS_MSE, .log_gradients = log != NULL},
                    &run.trainer));
  enum sl_status status = fit(&run, &options, NULL);
  close_run(&run);
  return status;
}

static void norms_above_all_floats(void **state) {
  (void)state;
  const char *log = in_folder("steep.jsonl");
  OK(fit_steep(0, log));
  assert_int_equal(lines_with(log, "\"loss\""), 8);
  assert_int_equal(lines_with(log, "grad_"), 0);
  assert_int_equal(lines_with(log, "\"end\": \"done\""), 1);
  /* no factor is known that clips them: a run does not go on without learning */
  assert_int_equal(fit_steep(1, NULL), SL_NOT_FINITE);
  assert_non_null(strstr(sl_error(), "the loss is not a number"));
}

/* The loss of a validation set without targets was 0, the best that there can be. */
static void a_validation_without_targets_decides_nothing(void **state) {
  (void)state;
  static float x[8][2], y[8];
  struct sl_fit_options options = {.epochs = 2, .best = in_folder("none.safetensors")};
  struct sl_fit_result result;
  struct run run = {0};
  for (int i = 0; i < 2; i++) {
    const struct sl_dataset_options about = {.name = i ? "unlabelled" : "training",
                                             .sample = SL_SHAPE(2),
                                             .target = SL_SHAPE(1),
                                             .count = 8,
                                             .missing = true};
    for (int n = 0; n < 8; n++) y[n] = i ? NAN : 1;
    OK(sl_dataset_floats(&about, x[0], y, NULL, false, &run.sets[i]));
    OK(sl_loader_new(run.sets[i], &(struct sl_loader_options){.batch = 4}, &run.loaders[i]));
  }
  run.model = new_model(SL_SHAPE(2));
  add_dense(run.model, "fc", 1, SL_INIT_DEFAULT);
  OK(sl_trainer_new(run.model, &(struct sl_optimizer){0}, NULL,
                    &(struct sl_trainer_options){.replicas = 2, .loss.kind = SL_LOSS_MSE},
                    &run.trainer));
  options.validation = run.loaders[1];
  FAILS(sl_fit(run.trainer, run.loaders[0], &options, &result), SL_BAD_ARGUMENT,
        "metric loss: is no number on unlabelled: all its targets or labels are missing");
  options.best = NULL;
  OK(sl_fit(run.trainer, run.loaders[0], &options, &result));
  assert_true(isnan(result.last.loss) && !result.best.epoch);
  close_run(&run);
}

/* As sl_model_note_data; what is noted already stays. */
static void the_model_knows_its_data(void **state) {
  struct run run;
  const float mean[1] = {3}, deviation[1] = {2};
  const struct sl_model_notes own = {.channels = 1, .mean = mean, .deviation = deviation};
  const struct sl_fit_options options = {.steps = 1, .save = in_folder("noted.json")};
  (void)state;
  open_run(&run, false);
  OK(fit(&run, &options, NULL));
  const struct sl_model_notes *notes = sl_model_notes(run.model);
  assert_int_equal(notes->task, SL_TASK_VALUES);
  assert_true(notes->channels == 1 && notes->mean[0] == 0 && notes->deviation[0] == 1);
  assert_true(notes->values && notes->target_channels == 1);
  assert_int_equal(lines_with(in_folder("noted.json"), "\"task\": \"values\""), 1);
  close_run(&run);
  open_run(&run, true);
  OK(sl_model_note(run.model, &own));
  OK(fit(&run, &options, NULL));
  notes = sl_model_notes(run.model);
  assert_true(notes->mean[0] == 3 && notes->task == SL_TASK_UNKNOWN);
  close_run(&run);
}

/* The matrix is sl_trainer_measure's, in a line of its own before the last one. */
static void a_confusion_matrix_is_logged(void **state) {
  struct run run;
  struct sl_evaluation *evaluation;
  char line[1000] = "", text[1000] = "{\"confusion\": [";
  const char *path = in_folder("confusion.jsonl");
  (void)state;
  open_run(&run, true);
  const struct sl_fit_options options = {
      .epochs = 1, .validation = run.loaders[1], .log = path, .confusion = true};
  OK(fit(&run, &options, NULL));
  OK(sl_trainer_measure(run.trainer, run.loaders[1], &evaluation));
  const struct sl_metric *matrix = sl_evaluation_metric(evaluation, "confusion");
  int64_t classes = sl_dataset_info(sl_loader_dataset(run.loaders[1]))->classes;
  assert_int_equal(matrix->count, classes * classes);
  for (int64_t i = 0; i < matrix->count; i++) {
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "%s%.0f%s",
             i % classes ? ", "
             : i         ? ", ["
                         : "[",
             matrix->each[i], i % classes == classes - 1 ? "]" : "");
  }
  strcat(text, "]}\n");
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  while (fgets(line, sizeof line, file))
    if (strstr(line, "\"confusion\": [")) break;
  fclose(file);
  assert_string_equal(line, text);
  assert_int_equal(lines_with(path, "\"confusion\": ["), 1);
  sl_evaluation_free(evaluation);
  close_run(&run);
  open_run(&run, false);
  FAILS(fit(&run,
            &(struct sl_fit_options){
                .validation = run.loaders[1], .log = in_folder("none.jsonl"), .confusion = true},
            NULL),
        SL_BAD_ARGUMENT, "has no matrix");
  close_run(&run);
}

/* Each allocation of the library fails once: the run fails with a message, or it is a checkpoint
 * that fails and the next one is tried. Nothing is left over (sanitizers), and no lock. */
static void without_memory(void **state) {
  struct sl_fit_options options;
  struct watcher w;
  struct run run;
  int good = 0, failed = 0;
  (void)state;
  for (long n = 1; good < 3; n++) { /* as many that no failure was left for */
    open_run(&run, true);
    options = watched(&w, &run);
    options.steps = 2;
    options.checkpoint = in_folder("memory");
    options.checkpoint_every = 1;
    options.resume = true;
    options.log = in_folder("memory.jsonl");
    sl__alloc_fail_after(n);
    enum sl_status status = fit(&run, &options, NULL);
    sl__alloc_fail_after(0);
    if (status != SL_OK) assert_int_equal(status, SL_NO_MEMORY);
    good = status == SL_OK && !w.warnings ? good + 1 : 0;
    failed += status != SL_OK;
    assert_false(is_there(in_folder("memory/lock")));
    close_run(&run);
    remove(in_folder("memory/checkpoint-000000001.safetensors"));
    remove(in_folder("memory/checkpoint-000000002.safetensors"));
    remove(in_folder("memory/manifest.json"));
  }
  assert_true(failed > 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fit_is_the_plain_loop),
      cmocka_unit_test(a_second_call_goes_on),
      cmocka_unit_test(another_loader_goes_on),
      cmocka_unit_test(a_moved_loader_goes_on),
      cmocka_unit_test(another_batch_goes_on),
      cmocka_unit_test(callbacks_leave_the_place),
      cmocka_unit_test(checkpoints_need_the_place),
      cmocka_unit_test(checkpoints_rotate),
      cmocka_unit_test(resumes_to_the_bit),
      cmocka_unit_test(a_stop_at_an_epochs_end),
      cmocka_unit_test(a_stop_in_the_last_step),
      cmocka_unit_test(early_stopping),
      cmocka_unit_test(early_stopping_survives),
      cmocka_unit_test(early_stopping_survives_a_locale),
      cmocka_unit_test(a_noted_comma_is_a_point),
      cmocka_unit_test(a_limit_of_steps_is_no_epoch),
      cmocka_unit_test(an_early_end_stays),
      cmocka_unit_test(callbacks_end_it),
      cmocka_unit_test(a_stop_before_the_first_step),
      cmocka_unit_test(callbacks_make_no_steps),
      cmocka_unit_test(signals_end_it),
      cmocka_unit_test(bad_options),
      cmocka_unit_test(outputs_in_folders),
      cmocka_unit_test(outputs_of_ranks),
      cmocka_unit_test(outputs_by_hard_links),
      cmocka_unit_test(files_that_fail),
      cmocka_unit_test(a_validation_that_cannot_be_cut),
      cmocka_unit_test(checkpoints_that_fail),
      cmocka_unit_test(one_run_a_folder),
      cmocka_unit_test(one_run_a_log),
      cmocka_unit_test(a_child_does_not_keep_the_log),
      cmocka_unit_test(a_full_disk_leaves_whole_lines),
      cmocka_unit_test(metrics_of_targets),
      cmocka_unit_test(norms_above_all_floats),
      cmocka_unit_test(a_validation_without_targets_decides_nothing),
      cmocka_unit_test(without_memory),
      cmocka_unit_test(the_model_knows_its_data),
      cmocka_unit_test(a_confusion_matrix_is_logged),
      cmocka_unit_test(pending_steps_count_once),
  };
  return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
