/* Trainings with each loss: against a network in double precision that knows of no cut, and bits
 * over captured and eager steps, for several divisions of the work; missing targets, class weights;
 * a regression that reaches its noise floor; data that do not fit a loss; a program's own data. */
#include <math.h>

#include "core/base/random.h"
#include "nn/loss.h"
#include "tests/common/check.h"
#include "tests/common/small_model.h"
#include "tests/gpu/gpu_custom.h"
#include "tests/common/training.h"

enum { COUNT = 50, IN = 3, OUT = 4, BATCH = 12, STEPS = 10, WEIGHTS = OUT * (IN + 1) };

static float inputs[COUNT * IN], targets[COUNT * OUT];
static int32_t labels[COUNT];
static const float class_weights[OUT] = {0.5f, 2, 1, 0.25f};

/* A number from -1 to 1. */
static float draw(uint64_t stream, int64_t i) {
  return 2 * sl__uniform(7, stream, (uint64_t)i) - 1;
}

/* missing: every eighth target is NaN, and one sample has none at all. */
static void make_values(enum sl_loss_kind kind, bool missing) {
  for (int i = 0; i < COUNT * IN; i++) inputs[i] = draw(1, i);
  for (int i = 0; i < COUNT * OUT; i++) {
    targets[i] = kind == SL_LOSS_BCE ? (float)(draw(2, i) > 0) : 2 * draw(2, i);
    if (missing && (i % 8 == 5 || i / OUT == 9)) targets[i] = NAN;
  }
  for (int n = 0; n < COUNT; n++)
    labels[n] = missing && n % 9 == 4 ? SL_IGNORE : (int32_t)((draw(3, n) + 1) / 2 * OUT);
}

static struct sl_dataset *new_set(const struct sl_loss *loss, bool missing) {
  struct sl_dataset *set;
  bool has_labels = sl_loss_takes_labels(loss);
  make_values(loss->kind, missing);
  const struct sl_dataset_options options = {
      .name = "table",
      .sample = SL_SHAPE(IN),
      .target = has_labels ? (struct sl_shape){0} : SL_SHAPE(OUT),
      .count = COUNT,
      .classes = has_labels ? OUT : 0,
      .missing = missing};
  OK(sl_dataset_floats(&options, inputs, has_labels ? NULL : targets, has_labels ? labels : NULL,
                       false, &set));
  return set;
}

/* ---- the reference: y = W x + b, gradient descent, in double precision ---- */

/* Adds the gradient of a sample's losses by y to dy, and returns their sum; *terms: their divisor.
 */
static double sample_loss(const struct sl_loss *loss, int64_t n, const double *y, double *dy,
                          double *terms) {
  const float *t = targets + n * OUT;
  double sum = 0, most = y[0], total = 0, yt = 0, yy = 0, tt = 0;
  if (loss->kind == SL_LOSS_CROSS_ENTROPY) {
    if (labels[n] < 0) return 0;
    for (int c = 0; c < OUT; c++) most = fmax(most, y[c]);
    for (int c = 0; c < OUT; c++) total += exp(y[c] - most);
    for (int k = 0; k < OUT; k++) {
      double e = (double)loss->label_smoothing, w = 1;
      if (loss->class_weights) w = (double)loss->class_weights[k];
      double q = w * (e / OUT + (k == labels[n] ? 1 - e : 0));
      sum += q * (log(total) + most - y[k]);
      for (int c = 0; c < OUT; c++) dy[c] += q * (exp(y[c] - most) / total - (c == k));
    }
    *terms += loss->class_weights ? (double)loss->class_weights[labels[n]] : 1;
    return sum;
  }
  if (loss->kind == SL_LOSS_COSINE) {
    for (int c = 0; c < OUT; c++) {
      yt += y[c] * (double)t[c];
      yy += y[c] * y[c];
      tt += (double)t[c] * (double)t[c];
    }
    if (isnan(tt)) return 0;
    double cosine = yt / sqrt(yy * tt);
    for (int c = 0; c < OUT; c++) dy[c] += cosine * y[c] / yy - (double)t[c] / sqrt(yy * tt);
    *terms += 1;
    return 1 - cosine;
  }
  for (int c = 0; c < OUT; c++) {
    double d = y[c] - (double)t[c], delta = (double)loss->delta;
    if (isnan(d)) continue;
    *terms += 1;
    if (loss->kind == SL_LOSS_MSE) sum += d * d, dy[c] += 2 * d;
    if (loss->kind == SL_LOSS_MAE) sum += fabs(d), dy[c] += d > 0 ? 1 : -1;
    if (loss->kind == SL_LOSS_BCE)
      sum += log1p(exp(y[c])) - y[c] * (double)t[c], dy[c] += 1 / (1 + exp(-y[c])) - (double)t[c];
    if (loss->kind != SL_LOSS_HUBER) continue;
    sum += fabs(d) <= delta ? d * d / 2 : delta * (fabs(d) - delta / 2);
    dy[c] += fmax(-delta, fmin(delta, d));
  }
  return sum;
}

/* Batch `step` of the samples in their order; returns the mean. learn: and a step of rate 0.1. */
static double reference_step(const struct sl_loss *loss, int64_t step, double *w, bool learn) {
  double gradient[WEIGHTS] = {0}, sum = 0, terms = 0;
  int64_t first = step % ((COUNT + BATCH - 1) / BATCH) * BATCH;
  for (int64_t n = first; n < COUNT && n < first + BATCH; n++) {
    double y[OUT], dy[OUT] = {0};
    const float *x = inputs + n * IN;
    for (int c = 0; c < OUT; c++) {
      y[c] = w[OUT * IN + c];
      for (int i = 0; i < IN; i++) y[c] += w[c * IN + i] * (double)x[i];
    }
    sum += sample_loss(loss, n, y, dy, &terms);
    for (int c = 0; c < OUT; c++) {
      gradient[OUT * IN + c] += dy[c];
      for (int i = 0; i < IN; i++) gradient[c * IN + i] += dy[c] * (double)x[i];
    }
  }
  for (int i = 0; i < WEIGHTS && learn; i++) w[i] -= 0.1 * gradient[i] / terms;
  return sum / terms;
}

/* ---- a training ---- */

struct run {
  double loss[STEPS], evaluated;
  double start[WEIGHTS];
  float weights[WEIGHTS];
};

static void read_fc(struct sl_model *model, float *weights) {
  OK(sl_model_get(model, "fc.weight", weights));
  OK(sl_model_get(model, "fc.bias", weights + OUT * IN));
}

static void train(const struct sl_loss *loss, bool missing, struct sl_trainer_options options,
                  struct run *run) {
  struct sl_dataset *set = new_set(loss, missing);
  struct sl_model *model = new_model(SL_SHAPE(IN));
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  double accuracy;
  if (options.stages) add_dense(model, "one", IN, SL_INIT_DEFAULT);
  add_dense(model, "fc", OUT, SL_INIT_DEFAULT);
  options.loss = *loss;
  struct sl_loader_options batches = {.batch = BATCH};
  if (options.in_flight) /* full batches in few slots: a GPU's steps are soon alike */
    batches = (struct sl_loader_options){.batch = COUNT / 5, .slots = options.in_flight + 1};
  OK(sl_loader_new(set, &batches, &loader));
  OK(sl_trainer_new(model, &(struct sl_optimizer){.lr = 0.1f}, NULL, &options, &trainer));
  read_fc(model, run->weights);
  for (int i = 0; i < WEIGHTS; i++) run->start[i] = (double)run->weights[i];
  take_steps(trainer, loader, STEPS, run->loss);
  OK(sl_loader_seek(loader, 0));
  OK(sl_trainer_evaluate(trainer, loader, &run->evaluated, &accuracy));
  read_fc(model, run->weights);
  sl_trainer_free(trainer);
  sl_model_free(model);
  sl_loader_free(loader);
  sl_dataset_free(set);
}

/* Losses, weights and the evaluation's mean over all terms of the epoch. */
static void assert_as_reference(const struct sl_loss *loss, const struct run *run) {
  double w[WEIGHTS], sum = 0, terms = 0;
  memcpy(w, run->start, sizeof w);
  for (int s = 0; s < STEPS; s++) {
    double want = reference_step(loss, s, w, true);
    if (!(fabs(run->loss[s] - want) < 2e-5 * (1 + fabs(want))))
      fail_msg("loss %d: step %d has %.9g, the reference %.9g", loss->kind, s, run->loss[s], want);
  }
  for (int i = 0; i < WEIGHTS; i++) assert_true(fabs((double)run->weights[i] - w[i]) < 2e-5);
  for (int64_t n = 0; n < COUNT; n++) {
    double y[OUT], dy[OUT] = {0};
    for (int c = 0; c < OUT; c++) {
      y[c] = w[OUT * IN + c];
      for (int i = 0; i < IN; i++) y[c] += w[c * IN + i] * (double)inputs[n * IN + i];
    }
    sum += sample_loss(loss, n, y, dy, &terms);
  }
  assert_true(fabs(run->evaluated - sum / terms) < 2e-5 * (1 + fabs(sum / terms)));
}

static void assert_same_bits(const struct run *a, const struct run *b) {
  for (int s = 0; s < STEPS; s++) assert_true(a->loss[s] == b->loss[s]);
  assert_true(a->evaluated == b->evaluated);
  assert_memory_equal(a->weights, b->weights, sizeof a->weights);
}

static const struct sl_loss losses[] = {
    {.kind = SL_LOSS_CROSS_ENTROPY},
    {.kind = SL_LOSS_CROSS_ENTROPY, .label_smoothing = 0.2f},
    {.kind = SL_LOSS_CROSS_ENTROPY, .class_weights = class_weights, .class_count = OUT},
    {.kind = SL_LOSS_CROSS_ENTROPY,
     .label_smoothing = 0.1f,
     .class_weights = class_weights,
     .class_count = OUT},
    {.kind = SL_LOSS_MSE},
    {.kind = SL_LOSS_MAE},
    {.kind = SL_LOSS_HUBER, .delta = 0.5f},
    {.kind = SL_LOSS_BCE},
    {.kind = SL_LOSS_COSINE}};
enum { LOSSES = sizeof losses / sizeof *losses };

static void trainings_match_the_reference(void **state) {
  (void)state;
  static const struct sl_trainer_options divisions[] = {
      {.replicas = 1}, {.replicas = 2, .microbatches = 3}, {.replicas = 3, .split = "2,1,1"}};
  for (int l = 0; l < LOSSES; l++)
    for (int d = 0; d < 3; d++) { /* the first one has all labels and targets */
      struct run captured, eager;
      struct sl_trainer_options options = divisions[d];
      train(&losses[l], d > 0, options, &captured);
      assert_as_reference(&losses[l], &captured);
      if (d != 1) continue;
      options.eager = true;
      train(&losses[l], d > 0, options, &eager);
      assert_same_bits(&captured, &eager);
    }
}

/* The first half of the samples has classes without weight: its batches have no loss, and what
 * smoothing makes of them is a part of the whole mean all the same. */
static void check_without_weight(float smoothing) {
  enum { HALF = 8, ROWS = 2 * HALF };
  static const float weights[OUT] = {0, 0, 1, 3};
  const struct sl_loss loss = {
      .class_weights = weights, .class_count = OUT, .label_smoothing = smoothing};
  const struct sl_dataset_options of_set = {
      .name = "halves", .sample = SL_SHAPE(IN), .count = ROWS, .classes = OUT};
  int32_t classes[ROWS];
  double mean[2], accuracy;
  for (int i = 0; i < ROWS; i++) classes[i] = i % 2 + (i < HALF ? 0 : 2);
  make_values(SL_LOSS_CROSS_ENTROPY, false);
  for (int large = 0; large < 2; large++) { /* two batches, and one */
    struct sl_dataset *set;
    struct sl_loader *loader;
    struct sl_trainer *trainer;
    struct sl_report report;
    struct sl_model *model = new_model(SL_SHAPE(IN));
    add_dense(model, "fc", OUT, SL_INIT_DEFAULT);
    OK(sl_dataset_floats(&of_set, inputs, NULL, classes, false, &set));
    OK(sl_loader_new(set, &(struct sl_loader_options){.batch = large ? ROWS : HALF}, &loader));
    OK(sl_trainer_new(model, &(struct sl_optimizer){.lr = 0.1f}, NULL,
                      &(struct sl_trainer_options){.loss = loss, .replicas = 1 + large}, &trainer));
    OK(sl_trainer_evaluate(trainer, loader, &mean[large], &accuracy));
    OK(sl_loader_seek(loader, 0));
    report = take_steps(trainer, loader, 1, NULL);
    assert_true(report.terms == (large ? HALF / 2 * 4 : 0));
    assert_true(large ? report.loss > 0 : report.loss == 0);
    sl_trainer_free(trainer);
    sl_model_free(model);
    sl_loader_free(loader);
    sl_dataset_free(set);
  }
  assert_true(fabs(mean[0] - mean[1]) < 1e-6 * mean[1]);
}

static void batches_without_weight_count_nothing(void **state) {
  (void)state;
  check_without_weight(0);
  check_without_weight(0.2f);
}

static void stages_have_the_bits_of_one(void **state) {
  (void)state;
  for (int l = 0; l < LOSSES; l += 2) {
    struct run one, two;
    train(&losses[l], true, (struct sl_trainer_options){.replicas = 1, .stages = 1}, &one);
    train(&losses[l], true, (struct sl_trainer_options){.replicas = 1, .stages = 2}, &two);
    assert_same_bits(&one, &two);
  }
}

/* In bf16 the losses are near those in f32. */
static void bf16_is_near(void **state) {
  (void)state;
  for (int l = 0; l < LOSSES; l += 2) {
    struct run full, half;
    train(&losses[l], true, (struct sl_trainer_options){.replicas = 2}, &full);
    train(&losses[l], true, (struct sl_trainer_options){.replicas = 2, .math = SL_MATH_BF16},
          &half);
    for (int s = 0; s < STEPS; s++)
      assert_true(fabs(full.loss[s] - half.loss[s]) < 0.02 * (1 + full.loss[s]));
  }
}

/* ---- a loss of the program's own ---- */

/* The squared error, as SL_LOSS_MSE times OUT: a row's values are added, not averaged. */
static enum sl_status squared_row(struct sl_loss_row *row) {
  for (int64_t i = 0; i < row->size; i++) {
    double d = (double)row->y[i] - (double)row->target[i];
    row->loss += d * d;
    if (row->dy) row->dy[i] = (float)(2 * d);
  }
  return SL_OK;
}

/* -y[label] + log of the sum of e^y. */
static enum sl_status cross_entropy_row(struct sl_loss_row *row) {
  double sum = 0;
  for (int64_t i = 0; i < row->size; i++) sum += exp((double)row->y[i]);
  row->loss = log(sum) - (double)row->y[row->label];
  for (int64_t i = 0; row->dy && i < row->size; i++)
    row->dy[i] = (float)(exp((double)row->y[i]) / sum - (i == row->label));
  return SL_OK;
}

static enum sl_status refusing_row(struct sl_loss_row *row) {
  snprintf(row->message, sizeof row->message, "no loss today");
  return SL_UNSUPPORTED;
}

/* The library's losses, written by the program, in slices, captured steps and stages. */
static void own_losses_train(void **state) {
  (void)state;
  static const struct sl_trainer_options divisions[] = {{.replicas = 1},
                                                        {.replicas = 2, .microbatches = 3},
                                                        {.replicas = 1, .stages = 2},
                                                        {.replicas = 2, .eager = true}};
  const struct sl_loss own[2] = {
      {.kind = SL_LOSS_OWN,
       .own = {.name = "mine", .takes_labels = true, .row = cross_entropy_row}},
      {.kind = SL_LOSS_OWN, .own = {.name = "mine", .row = squared_row}}};
  for (int d = 0; d < 4; d++) {
    struct run mine, theirs;
    train(&own[0], true, divisions[d], &mine);
    train(&losses[0], true, divisions[d], &theirs);
    for (int s = 0; s < STEPS; s++) assert_true(fabs(mine.loss[s] - theirs.loss[s]) < 2e-5);
    assert_true(fabs(mine.evaluated - theirs.evaluated) < 2e-5);
    train(&own[1], false, divisions[d], &mine);
    train(&losses[4], false, divisions[d], &theirs);
    assert_true(fabs(mine.loss[0] / OUT - theirs.loss[0]) < 2e-5);
    assert_true(mine.loss[STEPS - 1] < mine.loss[0]);
  }
}

/* The square of the label's output less 1. */
static enum sl_status label_near_one(struct sl_loss_row *row) {
  float d = row->y[row->label] - 1;
  row->loss = (double)(d * d);
  if (row->dy) row->dy[row->label] = 2 * d;
  return SL_OK;
}

static struct sl_own_loss on_the_gpu;
static int gpu_calls;

static enum sl_status count_call(struct sl_loss_rows *rows, void *stream) {
  __atomic_add_fetch(&gpu_calls, 1, __ATOMIC_SEQ_CST);
  return on_the_gpu.rows_cuda(rows, stream);
}

static enum sl_status refusing_rows(struct sl_loss_rows *rows, void *stream) {
  (void)stream;
  snprintf(rows->message, sizeof rows->message, "no %lld rows today", (long long)rows->count);
  return SL_UNSUPPORTED;
}

/* The calls of the CUDA half in steps of one scale, with few slots, so that a GPU meets each of
 * them several times. */
static int count_calls(const struct sl_loss *loss, bool eager) {
  static struct run run;
  gpu_calls = 0;
  train(loss, false, (struct sl_trainer_options){.replicas = 1, .in_flight = 1, .eager = eager},
        &run);
  return gpu_calls;
}

/* A GPU takes the CUDA half, with the results of the CPU's, and in every step; a CPU does not. */
static void own_losses_have_a_cuda_half(void **state) {
  (void)state;
  static const struct sl_trainer_options divisions[] = {
      {.replicas = 1}, {.replicas = 2, .microbatches = 2, .eager = true}};
  gpu_custom_loss(&on_the_gpu);
  for (int l = 0; l < 2; l++)
    for (int d = 0; d < 2; d++) {
      struct sl_loss loss = {.kind = SL_LOSS_OWN,
                             .own = {.name = "mine", .row = l ? label_near_one : squared_row}};
      struct run cpu, gpu;
      loss.own.takes_labels = l;
      train(&loss, true, divisions[d], &cpu);
      if (on_the_gpu.rows_cuda) loss.own.rows_cuda = count_call;
      train(&loss, true, divisions[d], &gpu);
      assert_int_equal(count_calls(&loss, false), count_calls(&loss, true));
      assert_int_equal(gpu_calls > 0, on_gpu());
      for (int s = 0; s < STEPS; s++) assert_true(fabs(cpu.loss[s] - gpu.loss[s]) < 2e-5);
      assert_true(fabs(cpu.evaluated - gpu.evaluated) < 2e-5);
      assert_true(gpu.loss[STEPS - 1] < gpu.loss[0]);
    }
}

/* ---- a regression ---- */

enum { POINTS = 1000 };

/* y = sin 3a - b^2 + noise of deviation 0.1, given in other units. */
static void make_curve(uint64_t stream, float *x, float *y) {
  for (int i = 0; i < POINTS; i++) {
    float a = draw(stream, 4 * i), b = draw(stream, 4 * i + 1), noise = 0;
    for (int k = 0; k < 12; k++) noise += draw(stream + 10, 12 * i + k); /* variance 4 */
    x[2 * i] = 50 + 20 * a;
    x[2 * i + 1] = 1e-3f * b;
    y[i] = 300 + 40 * (sinf(3 * a) - b * b + 0.05f * noise);
  }
}

static void a_regression_reaches_its_noise(void **state) {
  (void)state;
  static float x[2][2 * POINTS], y[2][POINTS];
  float mean[2], deviation[2], target_mean, target_deviation;
  struct sl_dataset *sets[2];
  struct sl_loader *loaders[2];
  for (int i = 0; i < 2; i++) make_curve(100 + (uint64_t)i, x[i], y[i]);
  OK(sl_measure(x[0], POINTS, &SL_SHAPE(2), 2, mean, deviation));
  OK(sl_measure(y[0], POINTS, &SL_SHAPE(1), 1, &target_mean, &target_deviation));
  for (int i = 0; i < 2; i++) {
    const struct sl_dataset_options options = {.name = i ? "test curve" : "curve",
                                               .sample = SL_SHAPE(2),
                                               .target = SL_SHAPE(1),
                                               .count = POINTS,
                                               .channels = 2,
                                               .mean = mean,
                                               .deviation = deviation,
                                               .target_channels = 1,
                                               .target_mean = &target_mean,
                                               .target_deviation = &target_deviation};
    OK(sl_dataset_floats(&options, x[i], y[i], NULL, true, &sets[i]));
    OK(sl_loader_new(sets[i], &(struct sl_loader_options){.batch = 50, .shuffle = !i, .seed = 1},
                     &loaders[i]));
  }
  struct sl_model *model = new_model(SL_SHAPE(2));
  struct sl_trainer *trainer;
  double loss, accuracy;
  OK(sl_dense(model, "one",
              &(struct sl_dense_options){.features = 32, .activation = SL_ACTIVATION_TANH}));
  OK(sl_dense(model, "two", &(struct sl_dense_options){.features = 1}));
  const struct sl_schedule schedule = {.kind = SL_COSINE, .total = 1500};
  OK(sl_trainer_new(model, &(struct sl_optimizer){.kind = SL_ADAM, .lr = 0.02f}, &schedule,
                    &(struct sl_trainer_options){.replicas = 2, .loss.kind = SL_LOSS_MSE},
                    &trainer));
  take_steps(trainer, loaders[0], 1500, NULL);
  OK(sl_trainer_evaluate(trainer, loaders[1], &loss, &accuracy));
  /* in the targets' unit the noise has deviation 4 */
  double rmse = sqrt(loss) * (double)target_deviation;
  if (!(rmse > 3.6 && rmse < 4.4)) fail_msg("the error is %.3f, the noise 4", rmse);
  sl_trainer_free(trainer);
  sl_model_free(model);
  for (int i = 0; i < 2; i++) {
    sl_loader_free(loaders[i]);
    sl_dataset_free(sets[i]);
  }
}

/* ---- refusals ---- */

static void refuses(const struct sl_loss *loss, const struct sl_loss *of_data, int64_t outputs,
                    enum sl_status expected, const char *text) {
  struct sl_dataset *set = new_set(of_data, false);
  struct sl_model *model = new_model(SL_SHAPE(IN));
  struct sl_trainer *trainer = NULL;
  struct sl_loader *loader;
  struct sl_report report;
  bool reported;
  add_dense(model, "fc", outputs, SL_INIT_DEFAULT);
  OK(sl_loader_new(set, &(struct sl_loader_options){.batch = BATCH}, &loader));
  enum sl_status status = sl_trainer_new(model, &(struct sl_optimizer){0}, NULL,
                                         &(struct sl_trainer_options){.loss = *loss}, &trainer);
  if (status == SL_OK) status = sl_trainer_step(trainer, loader, &report, &reported);
  if (status == SL_OK) status = sl_trainer_drain(trainer, &report, &reported);
  FAILS(status, expected, text);
  sl_trainer_free(trainer);
  sl_model_free(model);
  sl_loader_free(loader);
  sl_dataset_free(set);
}

static void data_must_fit_the_loss(void **state) {
  (void)state;
  const struct sl_loss labels_of = {.kind = SL_LOSS_CROSS_ENTROPY}, mse = {.kind = SL_LOSS_MSE};
  struct sl_loss bad = {.kind = (enum sl_loss_kind)99};
  refuses(&labels_of, &mse, OUT, SL_BAD_ARGUMENT, "has targets, but the loss cross-entropy");
  refuses(&mse, &labels_of, OUT, SL_BAD_ARGUMENT, "has class labels, but the loss mse");
  refuses(&mse, &mse, OUT + 1, SL_BAD_SHAPE, "targets [4], but the model's output is [5]");
  refuses(&labels_of, &labels_of, OUT - 1, SL_BAD_SHAPE, "4 classes");
  refuses(&bad, &mse, OUT, SL_BAD_ARGUMENT, "99 is not a kind of loss; use cross-entropy");
  bad = (struct sl_loss){.kind = SL_LOSS_HUBER, .delta = -1};
  refuses(&bad, &mse, OUT, SL_BAD_ARGUMENT, "delta is -1");
  bad = (struct sl_loss){.kind = SL_LOSS_MSE, .label_smoothing = 0.1f};
  refuses(&bad, &mse, OUT, SL_BAD_ARGUMENT, "label_smoothing is for cross-entropy, not for mse");
  bad = (struct sl_loss){.kind = SL_LOSS_MSE, .delta = 1};
  refuses(&bad, &mse, OUT, SL_BAD_ARGUMENT, "delta is for huber");
  bad = (struct sl_loss){.label_smoothing = NAN};
  refuses(&bad, &labels_of, OUT, SL_BAD_ARGUMENT, "label_smoothing is nan");
  bad = (struct sl_loss){.class_weights = class_weights, .class_count = 3};
  refuses(&bad, &labels_of, OUT, SL_BAD_SHAPE, "3 classes, but the model has 4");
  bad = (struct sl_loss){.class_weights = (float[]){0, 0, 0, 0}, .class_count = OUT};
  refuses(&bad, &labels_of, OUT, SL_BAD_ARGUMENT, "all classes are 0");
  bad.class_weights = (float[]){1, 1, 0, 1e-44f};
  refuses(&bad, &labels_of, OUT, SL_BAD_ARGUMENT, "class 3 is ");
  bad.class_weights = (float[]){1, -1, 1, 1};
  refuses(&bad, &labels_of, OUT, SL_BAD_ARGUMENT, "class 1 is -1");
  bad.kind = SL_LOSS_MAE;
  refuses(&bad, &mse, OUT, SL_BAD_ARGUMENT, "class weights are for cross-entropy");
  bad = (struct sl_loss){.kind = SL_LOSS_OWN};
  refuses(&bad, &mse, OUT, SL_BAD_ARGUMENT, "needs a name and a function `row`");
  bad.own = (struct sl_own_loss){.name = "mine", .row = refusing_row};
  refuses(&bad, &labels_of, OUT, SL_BAD_ARGUMENT, "has class labels, but the loss own");
}

/* ---- targets outside of a loss's domain ---- */

/* A program's own rows, from the arrays above; `calls` counts those that run now. */
struct own_rows {
  int calls, most;
};

static enum sl_status fill_own(struct sl_fill *rows) {
  struct own_rows *own = rows->user;
  int calls = __atomic_add_fetch(&own->calls, 1, __ATOMIC_SEQ_CST);
  if (calls > own->most) own->most = calls;
  for (int64_t r = 0; r < rows->count; r++) {
    memcpy(rows->x + r * IN, inputs + rows->samples[r] * IN, IN * sizeof *inputs);
    memcpy(rows->targets + r * OUT, targets + rows->samples[r] * OUT, OUT * sizeof *targets);
  }
  __atomic_sub_fetch(&own->calls, 1, __ATOMIC_SEQ_CST);
  return SL_OK;
}

/* Two bad targets, of which the one with the least number is named; shuffled, in a step and in an
 * evaluation, whose loader serves on. */
static void names_bad_target(struct sl_dataset *set, bool training, int64_t batch, uint64_t seed,
                             const char *text) {
  struct sl_model *model = new_model(SL_SHAPE(IN));
  struct sl_trainer *trainer;
  struct sl_loader *loader;
  struct sl_report report;
  struct sl_batch after;
  bool reported;
  double loss, accuracy;
  enum sl_status status = SL_OK;
  add_dense(model, "fc", OUT, SL_INIT_DEFAULT);
  OK(sl_loader_new(set, &(struct sl_loader_options){.batch = batch, .seed = seed, .shuffle = true},
                   &loader));
  OK(sl_trainer_new(model, &(struct sl_optimizer){0}, NULL,
                    &(struct sl_trainer_options){.replicas = 2, .loss.kind = SL_LOSS_BCE},
                    &trainer));
  if (!training) status = sl_trainer_evaluate(trainer, loader, &loss, &accuracy);
  for (int s = 0; s < 3 && training && status == SL_OK; s++)
    status = sl_trainer_step(trainer, loader, &report, &reported);
  for (reported = true; reported && training && status == SL_OK;)
    status = sl_trainer_drain(trainer, &report, &reported);
  FAILS(status, SL_BAD_ARGUMENT, text);
  sl_trainer_free(trainer);
  sl_model_free(model);
  OK(sl_loader_next(loader, &after));
  sl_loader_recycle(loader, after.slot);
  sl_loader_free(loader);
}

static void bad_targets_are_named(void **state) {
  (void)state;
  const float mean[] = {0.5f}, deviation[] = {2};
  struct own_rows own = {0};
  struct sl_dataset_options options = {.name = "rows",
                                       .sample = SL_SHAPE(IN),
                                       .target = SL_SHAPE(OUT),
                                       .count = COUNT,
                                       .missing = true,
                                       .user = &own};
  struct sl_dataset *set;
  make_values(SL_LOSS_BCE, true);
  targets[13 * OUT + 2] = 1.5f;
  targets[30 * OUT] = -0.25f;
  OK(sl_dataset_custom(&options, fill_own, &set));
  names_bad_target(set, true, COUNT, 3,
                   "rows: sample 13 (from 0): target [2] is 1.5, but the loss bce "
                   "takes 0 to 1; correct it, make it NaN where it is missing, or "
                   "take another loss (step 0, 2 such in its batch)");
  for (uint64_t seed = 1; seed < 5; seed++) /* orders in which either one is the first */
    names_bad_target(set, false, COUNT, seed, "target [2] is 1.5");
  names_bad_target(set, false, COUNT, 3, "(in an evaluation, 2 such in its batch)");
  names_bad_target(set, true, 7, 3, "such in its batch)"); /* the last batch is not full */
  sl_dataset_free(set);
  if (own.most != 1) fail_msg("%d calls of a program's function at once", own.most);
  /* the values that the loss sees are normalised */
  targets[13 * OUT + 2] = targets[30 * OUT] = 0.5f;
  for (int i = 0; i < COUNT * OUT; i++) targets[i] = targets[i] * 2 + 0.5f;
  targets[21 * OUT + 3] = 3;
  options.target_channels = 1;
  options.target_mean = mean;
  options.target_deviation = deviation;
  OK(sl_dataset_floats(&options, inputs, targets, NULL, false, &set));
  names_bad_target(set, true, COUNT, 3,
                   "sample 21 (from 0): target [3] is 3, normalised 1.25, but");
  sl_dataset_free(set);
}

static void losses_have_names(void **state) {
  (void)state;
  struct sl_loss loss;
  for (int i = 0; sl_loss_name(i); i++) {
    OK(sl_loss_parse(sl_loss_name(i), &loss));
    assert_int_equal(loss.kind, i);
    assert_int_equal(sl_loss_takes_labels(&loss), i == 0);
  }
  OK(sl_loss_parse("huber:0.5", &loss));
  assert_true(loss.kind == SL_LOSS_HUBER && loss.delta == 0.5f);
  OK(sl_loss_parse("cross-entropy:0.1", &loss));
  assert_true(loss.label_smoothing == 0.1f);
  FAILS(sl_loss_parse("huber:0", &loss), SL_BAD_ARGUMENT, "delta is a number above 0");
  FAILS(sl_loss_parse("cross-entropy:2", &loss), SL_BAD_ARGUMENT, "from 0 to 1");
  FAILS(sl_loss_parse("mse:1", &loss), SL_BAD_ARGUMENT, "takes no parameter");
  FAILS(sl_loss_parse("hub", &loss), SL_BAD_ARGUMENT, "huber[:delta], bce or cosine");
  loss = (struct sl_loss){.kind = SL_LOSS_HUBER};
  OK(sl_loss_check(&loss));
  assert_true(loss.delta == 1);
}

/* ---- a program's own data ---- */

static enum sl_status fill(struct sl_fill *rows) {
  for (int64_t row = 0; row < rows->count; row++) {
    int64_t n = rows->samples[row];
    rows->failed = row;
    snprintf(rows->message, sizeof rows->message, "the file has %d samples", *(int *)rows->user);
    if (n >= *(int *)rows->user) return SL_IO;
    for (int i = 0; i < IN; i++) rows->x[row * IN + i] = (float)n;
    for (int i = 0; i < OUT; i++) rows->targets[row * OUT + i] = 1;
  }
  return SL_OK;
}

/* A function that fails ends the step with the sample's number. */
static void own_data_fail_with_their_sample(void **state) {
  (void)state;
  int length = 40;
  struct sl_dataset *set;
  struct sl_model *model = new_model(SL_SHAPE(IN));
  struct sl_trainer *trainer;
  struct sl_loader *loader;
  struct sl_report report;
  bool reported;
  enum sl_status status = SL_OK;
  const struct sl_dataset_options options = {.name = "own",
                                             .sample = SL_SHAPE(IN),
                                             .target = SL_SHAPE(OUT),
                                             .count = COUNT,
                                             .user = &length};
  add_dense(model, "fc", OUT, SL_INIT_ZERO);
  OK(sl_dataset_custom(&options, fill, &set));
  OK(sl_loader_new(set, &(struct sl_loader_options){.batch = BATCH}, &loader));
  OK(sl_trainer_new(model, &(struct sl_optimizer){.lr = 1e-4f}, NULL,
                    &(struct sl_trainer_options){.loss.kind = SL_LOSS_MAE}, &trainer));
  int steps = 0;
  for (; status == SL_OK && steps < 9; steps++)
    status = sl_trainer_step(trainer, loader, &report, &reported);
  FAILS(status, SL_IO, "own: sample 40: the file has 40 samples");
  assert_int_equal(steps, 4);
  FAILS(sl_trainer_step(trainer, loader, &report, &reported), SL_BAD_ARGUMENT, "failed before");
  sl_trainer_free(trainer);
  sl_model_free(model);
  sl_loader_free(loader);
  sl_dataset_free(set);
}

/* Waits of all contexts report a failure, as their tensors may have come from it. */
static void assert_lasting_failure(struct sl_trainer *trainer) {
  const struct sl_context_options options = {.devices = getenv("SL_TEST_DEVICE")};
  struct sl_context *other;
  struct sl_report report;
  bool reported;
  OK(sl_open(&options, &other));
  FAILS(sl_wait(other), SL_UNSUPPORTED, "loss mine: no ");
  sl_close(other);
  FAILS(sl_wait(context), SL_UNSUPPORTED, "loss mine: no ");
  FAILS(sl_trainer_drain(trainer, &report, &reported), SL_UNSUPPORTED, "loss mine: no ");
  FAILS(sl_trainer_drain(trainer, &report, &reported), SL_BAD_ARGUMENT, "close all contexts");
}

/* The failure ends with the context: later cases have another one. */
static void an_own_loss_may_fail(void **state) {
  (void)state;
  const struct sl_loss mse = {.kind = SL_LOSS_MSE},
                       bad = {.kind = SL_LOSS_OWN,
                              .own = {.name = "mine",
                                      .row = refusing_row,
                                      .rows_cuda = on_gpu() ? refusing_rows : NULL}};
  struct sl_model *model = new_model(SL_SHAPE(IN));
  struct sl_trainer *trainer;
  add_dense(model, "fc", OUT, SL_INIT_ZERO);
  OK(sl_trainer_new(model, &(struct sl_optimizer){.lr = 1e-4f}, NULL,
                    &(struct sl_trainer_options){.loss = mse}, &trainer));
  refuses(&bad, &mse, OUT, SL_UNSUPPORTED,
          on_gpu() ? "loss mine: no 12 rows today" : "loss mine: no loss today");
  assert_lasting_failure(trainer);
  sl_trainer_free(trainer);
  sl_model_free(model);
  close_context(state);
  assert_int_equal(open_context(state), 0);
  OK(sl_wait(context));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(trainings_match_the_reference),
                                     cmocka_unit_test(batches_without_weight_count_nothing),
                                     cmocka_unit_test(stages_have_the_bits_of_one),
                                     cmocka_unit_test(bf16_is_near),
                                     cmocka_unit_test(own_losses_train),
                                     cmocka_unit_test(own_losses_have_a_cuda_half),
                                     cmocka_unit_test(a_regression_reaches_its_noise),
                                     cmocka_unit_test(data_must_fit_the_loss),
                                     cmocka_unit_test(bad_targets_are_named),
                                     cmocka_unit_test(losses_have_names),
                                     cmocka_unit_test(own_data_fail_with_their_sample),
                                     cmocka_unit_test(an_own_loss_may_fail)};
  return cmocka_run_group_tests_name("losses", tests, open_context, close_context);
}
