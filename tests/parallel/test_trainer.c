/* The data-parallel step. References: one replica without microbatches (the serial run) for every
 * way to cut the batch, and finite differences of the evaluated loss for the whole gradient of a
 * small residual network. */
#include <math.h>
#include <unistd.h>

#include "codelets/codelets.h"
#include "parallel/train/trainer.h"
#include "tests/common/harness.h"

static int open_seeded(void **state) {
  (void)state;
  return open_context_with(&(struct sl_context_options){.seed = 7});
}

/* A small LeNet: every layer kind of the real one, fewer channels. */
static struct sl_model *small_lenet(void) {
  struct sl_model *m;
  OK(sl_model_new(context, &SL_SHAPE(1, 28, 28), &m));
  OK(sl_conv2d(
      m, "conv1",
      &(struct sl_conv2d_options){.channels = 6, .kernel_h = 5, .activation = SL_ACTIVATION_TANH}));
  OK(sl_maxpool2d(m, "pool1", &(struct sl_pool2d_options){.kernel_h = 2}));
  OK(sl_conv2d(
      m, "conv2",
      &(struct sl_conv2d_options){.channels = 8, .kernel_h = 5, .activation = SL_ACTIVATION_TANH}));
  OK(sl_maxpool2d(m, "pool2", &(struct sl_pool2d_options){.kernel_h = 2}));
  OK(sl_dense(m, "fc1",
              &(struct sl_dense_options){.features = 32, .activation = SL_ACTIVATION_TANH}));
  OK(sl_dense(m, "fc2", &(struct sl_dense_options){.features = 10}));
  OK(sl_model_build(m));
  return m;
}

struct run {
  int replicas, microbatches, steps;
  enum sl_kvstore_kind kvstore;
  int64_t big_shard, batch;
  struct sl_optimizer optimizer;
  bool dropout, eager;
  double loss[256];
  float *weights;
  int64_t weight_count;
};

/* All parameters, in the model's order; to be freed. */
static float *all_weights(struct sl_model *m, int64_t *count) {
  struct sl_shape shape;
  *count = 0;
  for (int i = 0; i < sl_model_parameter_count(m); i++) {
    sl_model_parameter(m, i, &shape);
    *count += sl_shape_count(&shape);
  }
  float *w = calloc((size_t)*count, sizeof *w), *at = w;
  for (int i = 0; i < sl_model_parameter_count(m); i++) {
    const char *name = sl_model_parameter(m, i, &shape);
    OK(sl_model_get(m, name, at));
    at += sl_shape_count(&shape);
  }
  return w;
}

static void train(struct run *run, struct sl_model *m) {
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_report report;
  bool reported;
  OK(sl_digits_new(600, 3, true, &data));
  OK(sl_loader_new(data,
                   &(struct sl_loader_options){
                       .batch = run->batch ? run->batch : 37, .seed = 5, .shuffle = true},
                   &loader));
  OK(sl_trainer_new(m, &run->optimizer, NULL,
                    &(struct sl_trainer_options){.replicas = run->replicas,
                                                 .microbatches = run->microbatches,
                                                 .kvstore = run->kvstore,
                                                 .big_shard = run->big_shard,
                                                 .eager = run->eager},
                    &trainer));
  for (int s = 0; s < run->steps; s++) {
    OK(sl_trainer_step(trainer, loader, &report, &reported));
    if (reported) run->loss[report.step] = report.loss;
  }
  for (;;) {
    OK(sl_trainer_drain(trainer, &report, &reported));
    if (!reported) break;
    run->loss[report.step] = report.loss;
  }
  run->weights = all_weights(m, &run->weight_count);
  sl_trainer_free(trainer);
  sl_loader_free(loader);
  sl_dataset_free(data);
  sl_model_free(m);
}

static const struct sl_optimizer sgd = {.lr = 0.05f, .momentum = 0.9f, .weight_decay = 1e-4f};

/* 50 steps; the last batch of each epoch (600 = 16 x 37 + 8) is short. */
static void any_cut_gives_the_serial_curve(void **state) {
  (void)state;
  struct run serial = {.replicas = 1, .microbatches = 1, .steps = 50, .optimizer = sgd};
  train(&serial, small_lenet());
  assert_true(serial.loss[49] < 0.8 * serial.loss[0]);
  for (int replicas = 1; replicas <= 4; replicas++)
    for (int microbatches = 1; microbatches <= 3; microbatches++) {
      struct run run = {
          .replicas = replicas, .microbatches = microbatches, .steps = 50, .optimizer = sgd};
      train(&run, small_lenet());
      for (int s = 0; s < 50; s++) {
        double error = fabs(run.loss[s] - serial.loss[s]) / serial.loss[s];
        if (error > 1e-5)
          fail_msg("%d replicas x %d: step %d: loss %.9g, serial %.9g", replicas, microbatches, s,
                   run.loss[s], serial.loss[s]);
      }
      free(run.weights);
    }
  free(serial.weights);
}

static void assert_same_bits(const struct run *a, const struct run *b) {
  assert_int_equal(a->weight_count, b->weight_count);
  assert_memory_equal(a->weights, b->weights, (size_t)a->weight_count * sizeof(float));
}

static void twice_gives_the_same_bits(void **state) {
  (void)state;
  struct run a = {.replicas = 3, .microbatches = 2, .steps = 30, .optimizer = sgd}, b = a;
  train(&a, small_lenet());
  train(&b, small_lenet());
  assert_same_bits(&a, &b);
  free(a.weights);
  free(b.weights);
}

/* Sharding decides where sums are computed, not their values. The bound cuts fc1 into several
 * shards (local's bound leaves it whole). */
static void kvstores_give_the_same_bits(void **state) {
  (void)state;
  static const struct sl_optimizer optimizers[] = {
      {.lr = 0.05f, .momentum = 0.9f},
      {.lr = 0.05f, .momentum = 0.9f, .nesterov = true, .weight_decay = 1e-3f},
      {.kind = SL_ADAM},
      {.kind = SL_ADAMW, .weight_decay = 0.01f}};
  for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
    struct run local = {.replicas = 2, .steps = 20, .optimizer = optimizers[i]};
    struct run device = local;
    device.kvstore = SL_KVSTORE_DEVICE;
    device.big_shard = 1000;
    train(&local, small_lenet());
    train(&device, small_lenet());
    assert_same_bits(&local, &device);
    free(local.weights);
    free(device.weights);
  }
}

/* A bound that is never reached changes nothing; a small one keeps every step's weights near the
 * start. */
static void clipping_bounds_the_step(void **state) {
  (void)state;
  struct run free_run = {.replicas = 2, .steps = 1, .optimizer = {.lr = 1}};
  struct run loose = free_run, tight = free_run, start = free_run;
  loose.optimizer.clip = 1e6f;
  tight.optimizer.clip = 0.01f;
  start.steps = 0;
  train(&free_run, small_lenet());
  train(&loose, small_lenet());
  train(&tight, small_lenet());
  train(&start, small_lenet());
  double length = 0, difference = 0;
  for (int64_t i = 0; i < start.weight_count; i++) {
    length += pow((double)tight.weights[i] - (double)start.weights[i], 2);
    difference = fmax(difference, fabs((double)loose.weights[i] - (double)free_run.weights[i]));
  }
  assert_true(difference < 1e-6);
  assert_true(fabs(sqrt(length) - 0.01) < 1e-4);
  free(free_run.weights);
  free(loose.weights);
  free(tight.weights);
  free(start.weights);
}

static int tasks_of(const struct sl__op *op) {
  int tasks = 0;
  for (int w = 0; w < (int)starpu_worker_get_count(); w++)
    tasks += (int)op->codelet.per_worker_stats[w];
  return tasks;
}

/* Of four layers: one replica's gradients are not copied, and one task adds up all squares. */
static void clipping_takes_few_tasks(void **state) {
  (void)state;
  const int steps = 3, layers = 4;
  for (int replicas = 1; replicas <= 2; replicas++) {
    struct run run = {
        .replicas = replicas, .steps = steps, .optimizer = {.lr = 0.1f, .clip = 1}, .eager = true};
    int squares = tasks_of(&sl__op_square_sum), sums = tasks_of(&sl__op_reduce);
    train(&run, small_lenet());
    assert_int_equal(tasks_of(&sl__op_square_sum) - squares, steps * layers);
    assert_int_equal(tasks_of(&sl__op_reduce) - sums,
                     steps * (1 + (replicas > 1 ? 1 + layers : 0))); /* norm; loss, gradients */
    free(run.weights);
  }
}

/* Two convolutions around a residual edge, batch normalisation, dropout 0, average pooling,
 * separate gelu. */
static struct sl_model *residual_network(bool dropout) {
  struct sl_model *m;
  OK(sl_model_new(context, &SL_SHAPE(1, 28, 28), &m));
  OK(sl_conv2d(m, "conv0",
               &(struct sl_conv2d_options){.channels = 4, .kernel_h = 3, .stride_h = 3}));
  OK(sl_batchnorm(m, "bn0", &(struct sl_batchnorm_options){.epsilon = 0}));
  OK(sl_activate(m, "act0", &(struct sl_activation_options){.activation = SL_ACTIVATION_GELU}));
  OK(sl_conv2d(m, "conv1",
               &(struct sl_conv2d_options){
                   .channels = 4, .kernel_h = 3, .pad_h = 1, .activation = SL_ACTIVATION_TANH}));
  OK(sl_add(m, "sum", &(struct sl_add_options){.layer.inputs = "act0,conv1"}));
  if (dropout) OK(sl_dropout(m, "drop", &(struct sl_dropout_options){.rate = 0.4f}));
  OK(sl_avgpool2d(m, "pool", &(struct sl_pool2d_options){.kernel_h = 3}));
  OK(sl_activate(m, "act1", &(struct sl_activation_options){.activation = SL_ACTIVATION_SIGMOID}));
  OK(sl_dense(m, "fc", &(struct sl_dense_options){.features = 10}));
  OK(sl_model_build(m));
  return m;
}

/* Loss of the training pass at given weights, by one step whose update is undone. */
static double loss_at(struct sl_model *m, struct sl_dataset *data, float *after, const char *name) {
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_report report;
  bool reported;
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = 24}, &loader));
  OK(sl_trainer_new(m, &(struct sl_optimizer){.lr = 1}, NULL,
                    &(struct sl_trainer_options){.replicas = 1}, &trainer));
  OK(sl_trainer_step(trainer, loader, &report, &reported));
  OK(sl_trainer_drain(trainer, &report, &reported));
  assert_true(reported);
  if (after) OK(sl_model_get(m, name, after));
  sl_trainer_free(trainer);
  sl_loader_free(loader);
  return report.loss;
}

static void restore(struct sl_model *m, float **saved) {
  for (int i = 0; i < sl_model_parameter_count(m); i++)
    OK(sl_model_set(m, sl_model_parameter(m, i, NULL), saved[i]));
}

/* A step of plain SGD at rate 1 moves each weight by its gradient; the loss at weights moved along
 * and against that direction tells the slope independently. */
static void gradients_match_finite_differences(void **state) {
  (void)state;
  struct sl_model *m = residual_network(false);
  struct sl_dataset *data;
  struct sl_shape shape;
  OK(sl_digits_new(24, 9, true, &data));
  int count = sl_model_parameter_count(m);
  float **saved = calloc((size_t)count, sizeof *saved);
  for (int i = 0; i < count; i++) {
    const char *name = sl_model_parameter(m, i, &shape);
    saved[i] = calloc((size_t)sl_shape_count(&shape), sizeof **saved);
    OK(sl_model_get(m, name, saved[i]));
  }
  for (int i = 0; i < count; i++) {
    const char *name = sl_model_parameter(m, i, &shape);
    int64_t n = sl_shape_count(&shape);
    if (strstr(name, "running")) continue;
    float *moved = calloc((size_t)n, sizeof *moved);
    loss_at(m, data, moved, name);
    double square = 0, loss[2];
    for (int64_t k = 0; k < n; k++) square += pow((double)saved[i][k] - (double)moved[k], 2);
    double step = 0.01 / sqrt(square + 1e-12);
    for (int side = 0; side < 2; side++) {
      restore(m, saved);
      float *w = calloc((size_t)n, sizeof *w);
      for (int64_t k = 0; k < n; k++)
        w[k] = saved[i][k] +
               (float)((side ? 1 : -1) * step * ((double)saved[i][k] - (double)moved[k]));
      OK(sl_model_set(m, name, w));
      loss[side] = loss_at(m, data, NULL, NULL);
      free(w);
    }
    restore(m, saved);
    double slope = (loss[1] - loss[0]) / (2 * step);
    /* conv0's bias is cancelled by the normalisation after it: both are zero up to rounding */
    if (fabs(slope - square) > 0.02 * square + 1e-6)
      fail_msg("%s: squared gradient %.6g, by differences %.6g", name, square, slope);
    free(moved);
  }
  for (int i = 0; i < count; i++) free(saved[i]);
  free(saved);
  sl_dataset_free(data);
  sl_model_free(m);
}

/* Dropout's numbers belong to the batch's rows: any cut drops the same values (no normalisation in
 * this network). */
static struct sl_model *dropout_network(void) {
  struct sl_model *m;
  OK(sl_model_new(context, &SL_SHAPE(1, 28, 28), &m));
  OK(sl_dense(m, "fc1",
              &(struct sl_dense_options){.features = 40, .activation = SL_ACTIVATION_RELU}));
  OK(sl_dropout(m, "drop", &(struct sl_dropout_options){.rate = 0.5f}));
  OK(sl_dense(m, "fc2", &(struct sl_dense_options){.features = 10}));
  OK(sl_model_build(m));
  return m;
}

static void dropout_does_not_depend_on_the_cut(void **state) {
  (void)state;
  struct run one = {.replicas = 1, .steps = 20, .optimizer = {.lr = 0.05f}}, five = one;
  five.replicas = 5;
  train(&one, dropout_network());
  train(&five, dropout_network());
  for (int s = 0; s < 20; s++) assert_true(fabs(one.loss[s] - five.loss[s]) < 1e-5 * one.loss[s]);
  free(one.weights);
  free(five.weights);
}

static void residual_network_learns_with_replicas(void **state) {
  (void)state;
  struct run run = {.replicas = 2,
                    .microbatches = 2,
                    .steps = 200,
                    .batch = 64,
                    .optimizer = {.kind = SL_ADAM, .lr = 0.02f}};
  train(&run, residual_network(true));
  if (run.loss[199] > 0.6 * run.loss[0]) fail_msg("loss %g, then %g", run.loss[0], run.loss[199]);
  free(run.weights);
}

static void evaluation_counts_every_sample_once(void **state) {
  (void)state;
  struct sl_model *m = small_lenet();
  struct sl_dataset *data;
  struct sl_trainer *trainer;
  OK(sl_digits_new(101, 4, false, &data));
  OK(sl_trainer_new(m, &sgd, NULL, &(struct sl_trainer_options){.replicas = 2}, &trainer));
  double loss[3], accuracy[3];
  static const int64_t batches[] = {101, 10, 32};
  struct sl_loader *loaders[3];
  for (int i = 0; i < 3; i++) {
    OK(sl_loader_new(data, &(struct sl_loader_options){.batch = batches[i]}, &loaders[i]));
    OK(sl_trainer_evaluate(trainer, loaders[i], &loss[i], &accuracy[i]));
    assert_true(fabs(loss[i] - loss[0]) < 1e-5 * loss[0]);
    assert_true(fabs(accuracy[i] - accuracy[0]) < 1e-9);
  }
  sl_trainer_free(trainer);
  for (int i = 0; i < 3; i++) sl_loader_free(loaders[i]);
  sl_dataset_free(data);
  sl_model_free(m);
}

/* The loss of the first step, or of an evaluation before it, must be refused, in these words. */
static void check_loss(const float *bias, bool evaluates, const char *words) {
  struct sl_model *m = small_lenet();
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_report report;
  bool reported;
  OK(sl_model_set(m, "fc2.bias", bias));
  OK(sl_digits_new(64, 4, true, &data));
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = 32}, &loader));
  OK(sl_trainer_new(m, &sgd, NULL, NULL, &trainer));
  enum sl_status status = SL_OK;
  double loss, accuracy;
  if (evaluates) status = sl_trainer_evaluate(trainer, loader, &loss, &accuracy);
  for (int s = 0; s < 12 && status == SL_OK; s++)
    status = sl_trainer_step(trainer, loader, &report, &reported);
  FAILS(status, SL_NOT_FINITE, words);
  assert_int_equal(sl_trainer_step(trainer, loader, &report, &reported), SL_BAD_ARGUMENT);
  sl_trainer_free(trainer);
  sl_loader_free(loader);
  sl_dataset_free(data);
  sl_model_free(m);
}

/* NaN; and an infinite loss, whose gradients are finite: only the loss itself shows it. */
static void a_loss_that_is_not_finite_is_an_error(void **state) {
  (void)state;
  float bias[10] = {[3] = NAN};
  check_loss(bias, false, "step 0: the loss is not a number");
  check_loss(bias, true, "evaluation after 0 steps: the loss is not a number");
  for (int c = 0; c < 10; c++) bias[c] = c == 3 ? 3e38f : -3e38f;
  check_loss(bias, false, "step 0: the loss is infinite");
}

static void what_does_not_fit_is_refused(void **state) {
  (void)state;
  struct sl_model *m = small_lenet(), *narrow;
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_report report;
  bool reported;
  OK(sl_digits_new(64, 4, true, &data));
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = 4}, &loader));
  assert_int_equal(
      sl_trainer_new(m, &sgd, NULL, &(struct sl_trainer_options){.replicas = -1}, &trainer),
      SL_BAD_ARGUMENT);
  assert_null(trainer);
  assert_int_equal(
      sl_trainer_new(m, &sgd, &(struct sl_schedule){.kind = SL_COSINE}, NULL, &trainer),
      SL_BAD_ARGUMENT);
  assert_null(trainer);
  FAILS(sl_trainer_new(m, &sgd, NULL, &(struct sl_trainer_options){.math = (enum sl_math)9},
                       &trainer),
        SL_BAD_ARGUMENT, "9 is no kind of math (SL_MATH_*)");
  FAILS(sl_trainer_new(m, &sgd, NULL,
                       &(struct sl_trainer_options){.kvstore = (enum sl_kvstore_kind)99}, &trainer),
        SL_BAD_ARGUMENT, "99 is not a kind of KVStore");
  OK(sl_trainer_new(m, &sgd, NULL, &(struct sl_trainer_options){.replicas = 5}, &trainer));
  assert_int_equal(sl_trainer_step(trainer, loader, &report, &reported), SL_BAD_ARGUMENT);
  sl_trainer_free(trainer);
  OK(sl_model_new(context, &SL_SHAPE(1, 28, 28), &narrow));
  OK(sl_dense(narrow, "fc", &(struct sl_dense_options){.features = 9}));
  OK(sl_trainer_new(narrow, &sgd, NULL, &(struct sl_trainer_options){.replicas = 1}, &trainer));
  assert_int_equal(sl_trainer_step(trainer, loader, &report, &reported), SL_BAD_SHAPE);
  sl_trainer_free(trainer);
  sl_loader_free(loader);
  sl_dataset_free(data);
  sl_model_free(narrow);
  sl_model_free(m);
}

/* Nothing was computed, so the trainer goes on as if it had not been asked. */
static void a_refused_loader_changes_nothing(void **state) {
  (void)state;
  const struct sl_trainer_options options = {.replicas = 2, .microbatches = 2};
  const struct sl_rate_search_options search = {.steps = 10};
  struct sl_model *m = small_lenet();
  struct sl_dataset *digits, *colours;
  struct sl_loader *good, *small, *other;
  struct sl_trainer *trainer;
  struct sl_evaluation *evaluation;
  struct sl_rate_search *found;
  struct sl_report report;
  double loss, accuracy;
  bool reported;
  OK(sl_digits_new(64, 4, true, &digits));
  OK(sl_shapes_new(64, 4, true, &colours));
  OK(sl_loader_new(digits, &(struct sl_loader_options){.batch = 16}, &good));
  OK(sl_loader_new(digits, &(struct sl_loader_options){.batch = 3}, &small));
  OK(sl_loader_new(colours, &(struct sl_loader_options){.batch = 16}, &other));
  OK(sl_trainer_new(m, &(struct sl_optimizer){.lr = 0.01f, .average = 0.9f}, NULL, &options,
                    &trainer));
  FAILS(sl_trainer_step(trainer, small, &report, &reported), SL_BAD_ARGUMENT, "cannot be cut");
  OK(sl_trainer_step(trainer, good, &report, &reported));
  FAILS(sl_trainer_step(trainer, other, &report, &reported), SL_BAD_SHAPE, "has samples");
  for (reported = true; reported;) OK(sl_trainer_drain(trainer, &report, &reported));
  FAILS(sl_trainer_evaluate(trainer, small, &loss, &accuracy), SL_BAD_ARGUMENT, "cannot be cut");
  FAILS(sl_trainer_evaluate(trainer, other, &loss, &accuracy), SL_BAD_SHAPE, "has samples");
  FAILS(sl_trainer_measure(trainer, small, &evaluation), SL_BAD_ARGUMENT, "cannot be cut");
  FAILS(sl_find_rate(trainer, small, &search, &found), SL_BAD_ARGUMENT, "cannot be cut");
  FAILS(sl_trainer_load(trainer, small, "missing"), SL_IO, "missing");
  OK(sl_trainer_save(trainer, "refused.safetensors"));
  FAILS(sl_trainer_load(trainer, small, "refused.safetensors"), SL_BAD_ARGUMENT, "cannot be cut");
  OK(sl_trainer_load(trainer, good, "refused.safetensors"));
  OK(sl_trainer_evaluate(trainer, good, &loss, &accuracy));
  OK(sl_trainer_step(trainer, good, &report, &reported)); /* averages are not in the model */
  unlink("refused.safetensors");
  sl_trainer_free(trainer);
  sl_loader_free(good);
  sl_loader_free(small);
  sl_loader_free(other);
  sl_dataset_free(digits);
  sl_dataset_free(colours);
  sl_model_free(m);
}

static long resident_pages(void) {
  long size = 0, resident = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  if (!f || fscanf(f, "%ld %ld", &size, &resident) != 2) resident = 0;
  if (f) fclose(f);
  return resident;
}

/* Calls of sl_trainer_step before one has a report. */
static int unreported(struct sl_model *m, int64_t batch, int slots, int in_flight) {
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_report report;
  bool reported = false;
  int count = -1;
  OK(sl_digits_new(4000, 3, true, &data));
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = batch, .slots = slots}, &loader));
  OK(sl_trainer_new(m, &(struct sl_optimizer){.lr = 0.01f}, NULL,
                    &(struct sl_trainer_options){.replicas = 1, .in_flight = in_flight}, &trainer));
  for (; !reported; count++) OK(sl_trainer_step(trainer, loader, &report, &reported));
  assert_int_equal(report.step, 0);
  for (int64_t next = 1; reported; next++) {
    OK(sl_trainer_drain(trainer, &report, &reported));
    if (reported) assert_int_equal(report.step, next);
  }
  sl_trainer_free(trainer);
  sl_loader_free(loader);
  sl_dataset_free(data);
  return count;
}

/* Small batches: half of the loader's slots. */
static void short_steps_are_further_ahead(void **state) {
  (void)state;
  struct sl_model *m = small_lenet();
  assert_int_equal(unreported(m, 4, 0, 0), 8);
  assert_int_equal(unreported(m, 128, 0, 0), 4);
  assert_int_equal(unreported(m, 1000, 0, 0), 2);
  assert_int_equal(unreported(m, 4, 9, 0), 4);
  assert_int_equal(unreported(m, 4, 2, 0), 1);
  assert_int_equal(unreported(m, 4, 9, 3), 3);
  sl_model_free(m);
}

/* 2,000 steps: what the first 300 took must do for all. */
static void memory_stays_flat(void **state) {
  (void)state;
#ifdef SL_SANITIZE
  puts("# skipped: the sanitizer keeps freed memory, so that its size says nothing");
  skip();
#endif
  struct sl_model *m = small_lenet();
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_report report;
  bool reported;
  long early = 0;
  OK(sl_digits_new(256, 4, true, &data));
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = 16, .shuffle = true}, &loader));
  OK(sl_trainer_new(m, &sgd, NULL, &(struct sl_trainer_options){.replicas = 2, .microbatches = 2},
                    &trainer));
  for (int s = 0; s < 2000; s++) {
    OK(sl_trainer_step(trainer, loader, &report, &reported));
    if (s == 300) early = resident_pages();
  }
  long grown = resident_pages() - early;
  sl_trainer_free(trainer);
  sl_loader_free(loader);
  sl_dataset_free(data);
  sl_model_free(m);
  long limit = (4L << 20) / sysconf(_SC_PAGESIZE);
  if (grown > limit) fail_msg("%ld pages more after 1,700 steps", grown);
}

enum { CHUNKS = 12, CHUNK_STEPS = 9 };

/* How a program gives a trainer data that arrive piece by piece. */
struct chunks {
  bool frees, drains_first, evaluates, eager;
  int replicas;
  double loss[CHUNKS * CHUNK_STEPS], evaluation[CHUNKS];
  int reports;
};

static void note_report(struct chunks *c, const struct sl_report *report) {
  assert_int_equal(report->step, c->reports);
  c->loss[c->reports++] = report->loss;
}

static void drain_chunk(struct chunks *c, struct sl_trainer *trainer) {
  struct sl_report report;
  for (bool reported = true; reported;) {
    OK(sl_trainer_drain(trainer, &report, &reported));
    if (reported) note_report(c, &report);
  }
}

/* Chunk k has samples, batch and slots of its own, so that memory which is freed serves other
 * purposes afterwards. */
static struct sl_loader *chunk_loader(int k, struct sl_dataset **data) {
  enum { COUNT = 96 };
  static float values[CHUNKS][3 * COUNT], targets[CHUNKS][COUNT]; /* the sets read them */
  float *x = values[k], *y = targets[k];
  struct sl_loader *loader;
  for (int i = 0; i < 3 * COUNT; i++) x[i] = (float)((7 * i + 3 * k) % 11) / 11;
  for (int i = 0; i < COUNT; i++) y[i] = (float)k;
  const struct sl_dataset_options options = {
      .name = "chunk", .sample = SL_SHAPE(3), .target = SL_SHAPE(1), .count = COUNT};
  OK(sl_dataset_floats(&options, x, y, NULL, true, data));
  const struct sl_loader_options batches[] = {
      {.batch = 16, .slots = 4}, {.batch = 16, .slots = 4}, {.batch = 8, .slots = 12}};
  OK(sl_loader_new(*data, &batches[k % 3], &loader));
  return loader;
}

static void train_on_chunks(struct chunks *c) {
  struct sl_model *m;
  struct sl_trainer *trainer;
  struct sl_dataset *data[CHUNKS];
  struct sl_loader *loader[CHUNKS];
  struct sl_report report;
  bool reported;
  double accuracy;
  OK(sl_model_new(context, &SL_SHAPE(3), &m));
  OK(sl_dense(m, "a", &(struct sl_dense_options){.features = 5}));
  OK(sl_dense(m, "b", &(struct sl_dense_options){.features = 1}));
  OK(sl_trainer_new(m, &(struct sl_optimizer){.lr = 1e-3f}, NULL,
                    &(struct sl_trainer_options){
                        .loss.kind = SL_LOSS_MSE, .replicas = c->replicas, .eager = c->eager},
                    &trainer));
  for (int k = 0; k < CHUNKS; k++) {
    loader[k] = chunk_loader(k, &data[k]);
    for (int i = 0; i < CHUNK_STEPS; i++) {
      OK(sl_trainer_step(trainer, loader[k], &report, &reported));
      if (reported) note_report(c, &report);
    }
    if (c->drains_first) drain_chunk(c, trainer);
    if (c->evaluates) OK(sl_trainer_evaluate(trainer, loader[k], &c->evaluation[k], &accuracy));
    if (!c->frees) continue;
    sl_loader_free(loader[k]);
    sl_dataset_free(data[k]);
    if (c->drains_first) assert_true(trainer->input_count <= 1);
  }
  drain_chunk(c, trainer);
  assert_int_equal(c->reports, CHUNKS * CHUNK_STEPS);
  sl_trainer_free(trainer);
  for (int k = 0; k < CHUNKS && !c->frees; k++) {
    sl_loader_free(loader[k]);
    sl_dataset_free(data[k]);
  }
  sl_model_free(m);
}

/* A trainer that knew a loader by its address read the batches of a freed one. */
static void loaders_may_be_freed_between_steps(void **state) {
  (void)state;
  for (int i = 0; i < 4; i++) {
    struct chunks kept = {.drains_first = true, .evaluates = true, .eager = i & 1};
    kept.replicas = i & 2 ? 2 : 1;
    struct chunks freed = kept;
    freed.frees = true;
    train_on_chunks(&kept);
    train_on_chunks(&freed);
    assert_memory_equal(kept.loss, freed.loss, sizeof kept.loss);
    assert_memory_equal(kept.evaluation, freed.evaluation, sizeof kept.evaluation);
  }
}

static void loaders_may_be_freed_with_pending_steps(void **state) {
  (void)state;
  struct chunks kept = {.replicas = 2}, freed = {.replicas = 2, .frees = true};
  train_on_chunks(&kept);
  train_on_chunks(&freed);
  assert_memory_equal(kept.loss, freed.loss, sizeof kept.loss);
}

/* Messages and checkpoints would describe the data, which may be gone. */
static void freed_data_are_not_described(void **state) {
  (void)state;
  struct sl_model *m;
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_report report;
  bool reported;
  const float x[] = {0, 1, 2, 3}, y[] = {0, 1, 0, 7};
  const struct sl_dataset_options options = {
      .name = "four", .sample = SL_SHAPE(1), .target = SL_SHAPE(1), .count = 4};
  OK(sl_model_new(context, &SL_SHAPE(1), &m));
  OK(sl_dense(m, "a", &(struct sl_dense_options){.features = 1}));
  OK(sl_trainer_new(m, &sgd, NULL, &(struct sl_trainer_options){.loss.kind = SL_LOSS_BCE},
                    &trainer));
  OK(sl_dataset_floats(&options, x, y, NULL, true, &data));
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = 2, .slots = 9}, &loader));
  OK(sl_trainer_step(trainer, loader, &report, &reported));
  OK(sl_trainer_drain(trainer, &report, &reported));
  OK(sl_trainer_step(trainer, loader, &report, &reported));
  assert_false(reported);
  sl_loader_free(loader);
  sl_dataset_free(data);
  assert_int_equal(sl_trainer_drain(trainer, &report, &reported), SL_BAD_ARGUMENT);
  assert_non_null(strstr(sl_error(), "the loss bce does not take 1 labels or targets"));
  assert_non_null(strstr(sl_error(), "(step 1)"));
  sl_trainer_free(trainer);
  OK(sl_trainer_new(m, &sgd, NULL, &(struct sl_trainer_options){.loss.kind = SL_LOSS_MSE},
                    &trainer));
  loader = chunk_loader(0, &data);
  sl_loader_free(loader);
  sl_dataset_free(data);
  OK(sl_dataset_floats(&options, x, y, NULL, true, &data));
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = 2}, &loader));
  OK(sl_trainer_step(trainer, loader, &report, &reported));
  for (reported = true; reported;) OK(sl_trainer_drain(trainer, &report, &reported));
  sl_loader_free(loader);
  sl_dataset_free(data);
  assert_int_equal(sl_trainer_save(trainer, "never"), SL_BAD_ARGUMENT);
  assert_non_null(strstr(sl_error(), "save before sl_loader_free"));
  sl_trainer_free(trainer);
  sl_model_free(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(any_cut_gives_the_serial_curve),
      cmocka_unit_test(twice_gives_the_same_bits),
      cmocka_unit_test(kvstores_give_the_same_bits),
      cmocka_unit_test(clipping_bounds_the_step),
      cmocka_unit_test(clipping_takes_few_tasks),
      cmocka_unit_test(gradients_match_finite_differences),
      cmocka_unit_test(dropout_does_not_depend_on_the_cut),
      cmocka_unit_test(residual_network_learns_with_replicas),
      cmocka_unit_test(evaluation_counts_every_sample_once),
      cmocka_unit_test(a_loss_that_is_not_finite_is_an_error),
      cmocka_unit_test(what_does_not_fit_is_refused),
      cmocka_unit_test(a_refused_loader_changes_nothing),
      cmocka_unit_test(short_steps_are_further_ahead),
      cmocka_unit_test(memory_stays_flat),
      cmocka_unit_test(loaders_may_be_freed_between_steps),
      cmocka_unit_test(loaders_may_be_freed_with_pending_steps),
      cmocka_unit_test(freed_data_are_not_described),
  };
  return cmocka_run_group_tests_name("trainer", tests, open_seeded, close_context);
}
