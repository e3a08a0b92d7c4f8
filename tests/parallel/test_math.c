/* Training in bf16 and TF32. The reference is f32's training of the same network; bounds come from
 * bf16's 8 bits of fraction, 2^-9 a rounding. */
#include "tests/common/check.h"
#include "tests/common/files.h"

#include "codelets/kernels/bf16_adapter.h"
#include "parallel/planning/cost.h"
#include "parallel/step/precision.h"
#include "parallel/train/trainer.h"
#include "tests/common/training.h"

enum { WORDS = 11, STEPS = 30, MOST_VALUES = 1 << 16, TEXT = 2000, LENGTH = 12 };

enum network { IMAGES, LANGUAGE, TRANSFORMER, NETWORKS };

struct run {
  enum network network;
  enum sl_math math;
  const char *devices, *scheduler, *placement; /* NULL: any, the default, none */
  struct sl_trainer_options options;
  struct sl_optimizer optimizer;
  int steps;
  double loss[STEPS], test_loss;
  int64_t count;
  float weights[MOST_VALUES];
};

/* Dense, convolution, both poolings, normalisation, dropout, a residual edge, fused activations and
 * one of its own. */
static void build_images(struct sl_model *m) {
  OK(sl_conv2d(
      m, "conv1",
      &(struct sl_conv2d_options){.channels = 6, .kernel_h = 5, .activation = SL_ACTIVATION_RELU}));
  OK(sl_maxpool2d(m, "pool1", &(struct sl_pool2d_options){.kernel_h = 2}));
  OK(sl_conv2d(m, "conv2", &(struct sl_conv2d_options){.channels = 6, .kernel_h = 3, .pad_h = 1}));
  OK(sl_batchnorm(m, "bn2", &(struct sl_batchnorm_options){0}));
  OK(sl_add(m, "sum", &(struct sl_add_options){.layer.inputs = "pool1,bn2"}));
  OK(sl_activate(m, "act", &(struct sl_activation_options){.activation = SL_ACTIVATION_GELU}));
  OK(sl_avgpool2d(m, "pool2", &(struct sl_pool2d_options){.kernel_h = 2}));
  OK(sl_dense(m, "fc1",
              &(struct sl_dense_options){.features = 32, .activation = SL_ACTIVATION_TANH}));
  OK(sl_dropout(m, "drop", &(struct sl_dropout_options){.rate = 0.2f}));
  OK(sl_dense(m, "fc2", &(struct sl_dense_options){.features = 10}));
}

/* A weight that two layers share, both recurrent kinds. */
static void build_language(struct sl_model *m) {
  OK(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = WORDS, .features = 24}));
  OK(sl_lstm(m, "lstm", &(struct sl_lstm_options){.features = 24}));
  OK(sl_gru(m, "gru", &(struct sl_gru_options){.features = 24}));
  OK(sl_dense(
      m, "decoder",
      &(struct sl_dense_options){.features = WORDS, .positions = true, .layer.shares = "embed"}));
}

/* What transformers have, of both styles; the head is the embedding's weight with biases of its
 * own. */
static void build_transformer(struct sl_model *m) {
  const struct sl_dense_options wide = {
      .features = 48, .positions = true, .activation = SL_ACTIVATION_GELU_TANH};
  OK(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = WORDS, .features = 24}));
  OK(sl_position(m, "place", &(struct sl_position_options){.length = LENGTH}));
  OK(sl_layernorm(m, "norm1", &(struct sl_layernorm_options){0}));
  OK(sl_dense(m, "qkv", &(struct sl_dense_options){.features = 48, .positions = true}));
  OK(sl_attention(m, "attend",
                  &(struct sl_attention_options){
                      .heads = 4, .kv_heads = 2, .rope_base = 10000, .dropout = 0.1f}));
  OK(sl_dense(m, "out", &(struct sl_dense_options){.features = 24, .positions = true}));
  OK(sl_dropout(m, "drop", &(struct sl_dropout_options){.rate = 0.1f}));
  OK(sl_add(m, "sum1", &(struct sl_add_options){.layer.inputs = "place,drop"}));
  OK(sl_layernorm(m, "norm2", &(struct sl_layernorm_options){.rms = true}));
  OK(sl_dense(m, "up", &wide));
  OK(sl_swiglu(m, "gate", &(struct sl_swiglu_options){0}));
  OK(sl_add(m, "sum2", &(struct sl_add_options){.layer.inputs = "sum1,gate"}));
  OK(sl_dense(
      m, "decoder",
      &(struct sl_dense_options){.features = WORDS, .positions = true, .layer.shares = "embed"}));
}

static int32_t text[TEXT];

static void open_data(enum network network, struct sl_dataset **data, struct sl_loader **loader) {
  if (network == IMAGES)
    OK(sl_digits_new(300, 3, true, data));
  else
    OK(sl_tokens_new("text", text, TEXT, LENGTH, WORDS, data));
  OK(sl_loader_new(*data,
                   &(struct sl_loader_options){.batch = 26,
                                               .seed = 5,
                                               .shuffle = network != LANGUAGE,
                                               .contiguous = network == LANGUAGE},
                   loader));
}

static struct sl_model *new_model(struct sl_context *c, enum network network) {
  struct sl_model *m;
  OK(sl_model_new(c, network == IMAGES ? &SL_SHAPE(1, 28, 28) : &SL_SHAPE(LENGTH), &m));
  (network == IMAGES ? build_images : network == LANGUAGE ? build_language : build_transformer)(m);
  OK(sl_model_build(m));
  return m;
}

static struct sl_trainer *new_trainer(struct sl_model *m, const struct run *run) {
  struct sl_trainer *trainer;
  struct sl_trainer_options options = run->options;
  options.math = run->math;
  options.carry_state = run->network == LANGUAGE;
  if (!options.replicas && !run->placement) options.replicas = 1;
  OK(sl_trainer_new(m, &run->optimizer, NULL, &options, &trainer));
  return trainer;
}

static struct sl_context *open_for(const struct run *run) {
  struct sl_context *c;
  if (run->scheduler) setenv("STARPU_SCHED", run->scheduler, 1);
  OK(sl_open(&(struct sl_context_options){.seed = 7, .devices = run->devices}, &c));
  if (run->scheduler) unsetenv("STARPU_SCHED");
  return c;
}

/* In a context of its own. */
static void train(struct run *run) {
  struct sl_dataset *data;
  struct sl_loader *loader;
  double accuracy;
  struct sl_context *c = open_for(run);
  if (!run->steps) run->steps = STEPS;
  if (!run->optimizer.lr) run->optimizer = (struct sl_optimizer){.lr = 0.05f, .momentum = 0.9f};
  open_data(run->network, &data, &loader);
  struct sl_model *m = new_model(c, run->network);
  if (run->placement) OK(sl_place(m, run->placement));
  struct sl_trainer *trainer = new_trainer(m, run);
  take_steps(trainer, loader, run->steps, run->loss);
  run->count = read_weights(m, run->weights, MOST_VALUES);
  if (run->network == IMAGES) OK(sl_trainer_evaluate(trainer, loader, &run->test_loss, &accuracy));
  sl_trainer_free(trainer);
  sl_model_free(m);
  sl_loader_free(loader);
  sl_dataset_free(data);
  sl_close(c);
}

static void assert_same_bits(const char *what, const struct run *a, const struct run *b) {
  if (a->count != b->count || memcmp(a->weights, b->weights, (size_t)a->count * sizeof(float)) ||
      memcmp(a->loss, b->loss, (size_t)a->steps * sizeof(double)) ||
      memcmp(&a->test_loss, &b->test_loss, sizeof a->test_loss))
    fail_msg("%s: other weights or losses", what);
}

/* ---- the loss curve ---- */

/* Each step's loss within so much of f32's: ten layers there and back, a rounding of up to 2^-9
 * each, in the worst case all the same way, are 4e-2; mostly they go both ways. A forgotten copy or
 * factor is off by 1e-1 and more within a few steps. */
static void bf16_follows_f32(void **state) {
  (void)state;
  static struct run f32, bf16;
  for (int network = IMAGES; network < NETWORKS; network++) {
    double largest = 0;
    f32 = (struct run){.network = (enum network)network};
    bf16 = (struct run){.network = (enum network)network, .math = SL_MATH_BF16};
    train(&f32);
    train(&bf16);
    for (int s = 0; s < STEPS; s++) {
      double error = fabs(bf16.loss[s] - f32.loss[s]) / f32.loss[s];
      if (!(error < 3e-2))
        fail_msg("network %d, step %d: loss %.9g, f32 %.9g", network, s, bf16.loss[s], f32.loss[s]);
      largest = fmax(largest, error);
    }
    printf("# network %d: losses within %.1e of f32's\n", network, largest);
    assert_true(largest > 1e-7); /* it is another arithmetic */
    assert_true(bf16.loss[STEPS - 1] < 0.8 * bf16.loss[0]);
    if (network == IMAGES) assert_true(fabs(bf16.test_loss / f32.test_loss - 1) < 3e-2);
  }
}

static void tf32_is_f32_on_a_cpu(void **state) {
  (void)state;
  static struct run f32, tf32;
  for (int network = IMAGES; network <= LANGUAGE; network++) {
    f32 = (struct run){.network = (enum network)network, .devices = "cpu"};
    tf32 = f32;
    tf32.math = SL_MATH_TF32;
    train(&f32);
    train(&tf32);
    assert_same_bits("tf32", &tf32, &f32);
  }
}

/* ---- what stays f32 ---- */

/* Steps so small that hardly a weight's bf16 changes in all of them, and none in one: parameters
 * kept in bf16 would stay where they are. f32's go somewhere, and so do these. */
static void small_updates_add_up(void **state) {
  (void)state;
  static struct run start, f32, bf16;
  static const struct sl_optimizer slow = {.lr = 2e-6f};
  start = (struct run){.optimizer = {.lr = 1e-30f}, .steps = 1};
  f32 = (struct run){.optimizer = slow};
  bf16 = (struct run){.optimizer = slow, .math = SL_MATH_BF16};
  train(&start);
  train(&f32);
  train(&bf16);
  double way = 0, apart = 0;
  int64_t moved = 0, rounded_moved = 0, fine = 0;
  for (int64_t i = 0; i < start.count; i++) {
    double want = (double)f32.weights[i] - (double)start.weights[i];
    double got = (double)bf16.weights[i] - (double)start.weights[i];
    uint16_t code = sl__bf16_code(bf16.weights[i]);
    /* running statistics move by other means */
    if (fabs(want) > 1e-3) continue;
    way += want * want;
    apart += (got - want) * (got - want);
    moved += bf16.weights[i] != start.weights[i];
    rounded_moved += code != sl__bf16_code(start.weights[i]);
    fine += sl__bf16_value(code) != bf16.weights[i];
  }
  printf("# %lld of %lld values moved, as bf16 %lld; off f32's way by %.1e of it\n",
         (long long)moved, (long long)start.count, (long long)rounded_moved, sqrt(apart / way));
  assert_true(moved > start.count / 2);
  assert_true(rounded_moved < moved / 20);
  assert_true(fine > start.count / 2);
  assert_true(sqrt(apart / way) < 5e-2);
}

/* A sample's gradient has the same bits whatever the cut (no normalisation here), so one step with
 * many microbatches differs from one with one by the order of f32 sums: 1e-6 of the largest. Sums
 * in bf16 would be off by 2^-9. */
static void gradients_add_up_in_f32(void **state) {
  (void)state;
  enum { INPUTS = 784, OUTPUTS = 10 };
  static float before[INPUTS * OUTPUTS], after[2][INPUTS * OUTPUTS];
  struct sl_dataset *data;
  struct sl_loader *loader;
  double loss[1], largest = 0, apart = 0;
  for (int i = 0; i < 2; i++) {
    struct run run = {
        .math = SL_MATH_BF16, .optimizer = {.lr = 1}, .options = {.microbatches = i ? 26 : 1}};
    struct sl_model *m;
    open_data(IMAGES, &data, &loader);
    OK(sl_model_new(context, &SL_SHAPE(1, 28, 28), &m));
    OK(sl_dense(m, "fc", &(struct sl_dense_options){.features = OUTPUTS}));
    OK(sl_model_build(m));
    OK(sl_model_get(m, "fc.weight", before));
    struct sl_trainer *trainer = new_trainer(m, &run);
    take_steps(trainer, loader, 1, loss);
    OK(sl_model_get(m, "fc.weight", after[i]));
    sl_trainer_free(trainer);
    sl_model_free(m);
    sl_loader_free(loader);
    sl_dataset_free(data);
  }
  for (int k = 0; k < INPUTS * OUTPUTS; k++) {
    largest = fmax(largest, fabs((double)after[0][k] - (double)before[k]));
    apart = fmax(apart, fabs((double)after[0][k] - (double)after[1][k]));
  }
  assert_true(largest > 0 && apart < 1e-6 * fmax(largest, 1));
}

/* ---- the same bits ---- */

static void train_and_compare(const char *what, struct run *other, const struct run *first) {
  train(other);
  assert_same_bits(what, other, first);
}

static const char *const placements[NETWORKS] = {
    "conv1,pool1,conv2,bn2=cpu:0;sum,act,pool2,fc1,drop,fc2=cpu:1",
    "embed,decoder=cpu:1;lstm,gru=cpu:0",
    "embed,place,norm1,qkv,attend,out=cpu:1;drop,sum1,norm2,up,gate,sum2,decoder=cpu:0"};

static void the_same_bits_wherever_it_runs(void **state) {
  (void)state;
  static struct run first, other;
  for (int network = IMAGES; network < NETWORKS; network++) {
    const struct run plain = {.network = (enum network)network,
                              .math = SL_MATH_BF16,
                              .options = {.replicas = 2, .microbatches = 2}};
    first = plain;
    train(&first);
    other = plain;
    train_and_compare("a second time", &other, &first);
    for (int i = 0; i < 3; i++) {
      other = plain;
      other.scheduler = ((const char *[]){"eager", "random", "prio"})[i];
      train_and_compare(other.scheduler, &other, &first);
    }
    other = plain;
    other.devices = "cpu:0,cpu:1";
    train_and_compare("replicas pinned", &other, &first);
    other = plain;
    other.placement = placements[network];
    train_and_compare("layers pinned", &other, &first);
    other = plain;
    other.options.kvstore = SL_KVSTORE_DEVICE;
    other.options.big_shard = 100;
    train_and_compare("shards", &other, &first);
    other = plain;
    other.options.in_flight = 1;
    train_and_compare("a step at a time", &other, &first);
  }
}

/* A strip of any number of rows, one at a time at the least. */
static void strips_give_the_same_bits(void **state) {
  static const int64_t floats[] = {1, 3000};
  static struct run whole, cut;
  (void)state;
  for (int network = IMAGES; network < NETWORKS; network++)
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
      whole = (struct run){.network = (enum network)network, .math = SL_MATH_BF16, .steps = 5};
      cut = whole;
      sl__bf16_strip_force(1 << 30);
      train(&whole);
      sl__bf16_strip_force(floats[i]);
      train_and_compare("strips", &cut, &whole);
      sl__bf16_strip_force(0);
    }
}

/* A chunk's state goes on as f32, so that only sums' order differs, and values that were at the
 * border between two of bf16's. */
static void chunks_follow_the_whole(void **state) {
  (void)state;
  static struct run whole, cut;
  whole = (struct run){.network = LANGUAGE, .math = SL_MATH_BF16};
  cut = whole;
  cut.options.chunk = 5;
  train(&whole);
  train(&cut);
  for (int s = 0; s < STEPS; s++)
    if (!(fabs(cut.loss[s] / whole.loss[s] - 1) < 1e-2))
      fail_msg("step %d: loss %.9g, in one piece %.9g", s, cut.loss[s], whole.loss[s]);
}

/* ---- copies are never out of date ---- */

static struct run images_in_bf16 = {.math = SL_MATH_BF16, .optimizer = {.lr = 0.05f}};

struct training {
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_model *model;
  struct sl_trainer *trainer;
};

static struct training begin(void) {
  struct training t;
  open_data(IMAGES, &t.data, &t.loader);
  t.model = new_model(context, IMAGES);
  t.trainer = new_trainer(t.model, &images_in_bf16);
  return t;
}

static void end(struct training *t) {
  sl_trainer_free(t->trainer);
  sl_model_free(t->model);
  sl_loader_free(t->loader);
  sl_dataset_free(t->data);
}

/* By a loader of its own, so that it is of the same batches each time. */
static double evaluate(const struct training *t) {
  struct sl_loader *loader;
  double loss, accuracy;
  OK(sl_loader_new(t->data, &(struct sl_loader_options){.batch = 26}, &loader));
  struct sl_trainer *trainer = new_trainer(t->model, &images_in_bf16);
  OK(sl_trainer_evaluate(trainer, loader, &loss, &accuracy));
  sl_trainer_free(trainer);
  sl_loader_free(loader);
  return loss;
}

/* The loss that a new trainer computes for the model. */
static double evaluate_anew(const struct training *t) {
  const char *path = in_folder("weights");
  struct training fresh = begin();
  OK(sl_model_save(t->model, path));
  OK(sl_model_load(fresh.model, path));
  double loss = evaluate(&fresh);
  end(&fresh);
  return loss;
}

static void steps(struct training *t, int count) {
  double loss[4 * STEPS];
  take_steps(t->trainer, t->loader, count, loss);
}

static void assert_up_to_date(const char *what, const struct training *t, double before) {
  double loss = evaluate(t), anew = evaluate_anew(t);
  if (loss != anew || loss == before)
    fail_msg("%s: loss %.17g, with fresh copies %.17g, before %.17g", what, loss, anew, before);
}

static void whoever_writes_parameters_is_noticed(void **state) {
  (void)state;
  struct training t = begin(), other = begin();
  static float weight[10 * 32];
  const char *weights = in_folder("first"), *checkpoint = in_folder("checkpoint");
  double before = evaluate(&t);
  steps(&t, 5);
  assert_up_to_date("updates", &t, before);
  OK(sl_model_save(t.model, weights));
  OK(sl_trainer_save(t.trainer, checkpoint));
  before = evaluate(&t);
  OK(sl_model_get(t.model, "fc2.weight", weight));
  for (int i = 0; i < 10 * 32; i++) weight[i] *= -1;
  OK(sl_model_set(t.model, "fc2.weight", weight));
  assert_up_to_date("sl_model_set", &t, before);
  before = evaluate(&t);
  OK(sl_model_load(t.model, weights));
  assert_up_to_date("sl_model_load", &t, before);
  steps(&other, 2);
  before = evaluate(&other);
  OK(sl_trainer_load(other.trainer, other.loader, checkpoint));
  assert_up_to_date("a checkpoint", &other, before);
  assert_true(evaluate(&other) == evaluate(&t));
  /* another trainer's update, of another math */
  struct sl_trainer *f32;
  double loss[64];
  before = evaluate(&t);
  OK(sl_trainer_new(t.model, &images_in_bf16.optimizer, NULL,
                    &(struct sl_trainer_options){.replicas = 1}, &f32));
  take_steps(f32, t.loader, 3, loss);
  sl_trainer_free(f32);
  assert_up_to_date("another trainer", &t, before);
  end(&other);
  end(&t);
}

/* An unchanged tensor is not copied again: a second evaluation has one task less a layer. The
 * simulator cannot know that; the count of writes can. */
static void nothing_is_copied_twice(void **state) {
  (void)state;
  struct training t = begin();
  evaluate(&t);
  const struct sl__block *block = &t.model->layers[0].params;
  assert_non_null(block->half);
  uint64_t copies = sl__tensor_writes(block->half);
  assert_int_equal(copies, 1);
  evaluate(&t);
  assert_int_equal(sl__tensor_writes(block->half), copies);
  steps(&t, 7);
  evaluate(&t); /* eager steps copy before they read, captured ones after the update */
  assert_int_equal(sl__tensor_writes(block->half), copies + 7);
  assert_null(t.model->layers[3].params.half); /* the normalisation's */
  end(&t);
}

/* ---- types, memory ---- */

static double bytes_of_types(const struct sl__plan *plan, bool values) {
  double bytes = 0;
  for (int i = 0; i < plan->model->count; i++) {
    const struct sl__slice *slice = &plan->slices[0];
    struct sl__tensor *all[] = {slice->y[i], slice->dy[i], slice->saved[i]};
    for (int k = 0; k < 3; k++) {
      if (!all[k]) continue;
      bool is_value = k < 2 || plan->model->layers[i].state.ndim;
      if (is_value == values) bytes += (double)all[k]->bytes;
    }
  }
  return bytes;
}

static void activations_take_half(void **state) {
  (void)state;
  for (int network = IMAGES; network <= LANGUAGE; network++) {
    struct sl_model *m = new_model(context, (enum network)network);
    double values[2], rest[2], estimate[2] = {0}, halves = 0;
    const struct sl_optimizer optimizer = {.lr = 1, .momentum = 0.5f};
    for (int math = 0; math < 2; math++) {
      struct sl__grid grid;
      struct sl__plan *plan;
      const struct sl_trainer_options options = {.replicas = 1,
                                                 .math = math ? SL_MATH_BF16 : SL_MATH_F32};
      OK(sl__grid_new(m, &options, &grid));
      OK(sl__plan_new(m, &grid, 8, 0, true, &plan));
      values[math] = bytes_of_types(plan, true);
      rest[math] = bytes_of_types(plan, false);
      const struct sl__cost_case c = {.model = m,
                                      .optimizer = &optimizer,
                                      .rows = 8,
                                      .replicas = 1,
                                      .microbatches = 1,
                                      .math = options.math};
      for (int i = 0; i < m->count; i++) estimate[math] += sl__cost_bytes(&c, i, 1);
      for (int i = 0; math && i < m->count; i++) {
        const struct sl__layer *layer = &m->layers[i];
        if (layer->params.half) halves += (double)layer->params.half->bytes;
        if (layer->state.ndim) assert_int_equal(plan->slices[0].state[i]->type, SL_F32);
        estimate[0] -= (double)plan->slices[0].y[i]->bytes; /* becomes what bf16 should have */
        if (layer->state.ndim) estimate[0] -= (double)plan->slices[0].saved[i]->bytes;
      }
      if (math && plan->slices[0].x) halves += (double)plan->slices[0].x->bytes;
      sl__plan_free(plan);
      sl__grid_clear(&grid);
    }
    assert_true(values[0] > 0 && values[1] == values[0] / 2);
    assert_true(rest[1] == rest[0]);
    assert_true(fabs(estimate[1] - (estimate[0] + halves)) < 0.5);
    sl_model_free(m);
  }
}

/* ---- generated text, checkpoints, refusals ---- */

static void text_is_generated_in_bf16(void **state) {
  (void)state;
  struct sl_model *m = new_model(context, LANGUAGE);
  static const int32_t prompt[] = {1, 2, 3};
  int32_t f32[20], bf16[20], again[20];
  struct sl_generate_options how = {.prompt = prompt, .prompt_count = 3, .temperature = 1};
  OK(sl_generate(m, &how, 20, f32));
  how.math = SL_MATH_BF16;
  OK(sl_generate(m, &how, 20, bf16));
  OK(sl_generate(m, &how, 20, again));
  assert_memory_equal(bf16, again, sizeof bf16);
  int same = 0; /* of nearly equal answers the same number draws nearly always the same word */
  while (same < 20 && f32[same] == bf16[same]) same++;
  assert_true(same >= 5);
  for (int i = 0; i < 20; i++) assert_true(bf16[i] >= 0 && bf16[i] < WORDS);
  sl_model_free(m);
}

static char told[512];

static void note_line(void *user, enum sl_level level, const char *line) {
  (void)user;
  if (level == SL_LOG_WARNING) snprintf(told, sizeof told, "%s", line);
}

/* Goes on to the same bits with the same math; says so where it is another. */
static void checkpoints_know_their_math(void **state) {
  (void)state;
  static struct run whole, rest;
  const char *path = in_folder("middle");
  struct sl_context *c;
  whole = (struct run){.math = SL_MATH_BF16, .steps = 14};
  train(&whole);
  OK(sl_open(&(struct sl_context_options){.seed = 7, .log = note_line}, &c));
  for (int math = SL_MATH_F32; math <= SL_MATH_BF16; math++) {
    struct sl_dataset *data;
    struct sl_loader *loader;
    rest = whole;
    open_data(IMAGES, &data, &loader);
    if (math == SL_MATH_F32) {
      struct sl_model *m = new_model(c, IMAGES);
      struct sl_trainer *first = new_trainer(m, &whole);
      take_steps(first, loader, 8, rest.loss);
      OK(sl_trainer_save(first, path));
      sl_trainer_free(first);
      sl_model_free(m);
      sl_loader_free(loader);
      sl_dataset_free(data);
      open_data(IMAGES, &data, &loader);
    }
    rest.math = (enum sl_math)math;
    struct sl_model *m = new_model(c, IMAGES);
    struct sl_trainer *trainer = new_trainer(m, &rest);
    told[0] = 0;
    OK(sl_trainer_load(trainer, loader, path));
    assert_true(math == SL_MATH_BF16 ? !told[0] : strstr(told, "math bf16") != NULL);
    take_steps(trainer, loader, 6, rest.loss);
    rest.count = read_weights(m, rest.weights, MOST_VALUES);
    bool same = !memcmp(rest.weights, whole.weights, (size_t)whole.count * sizeof(float));
    assert_int_equal(same, math == SL_MATH_BF16);
    assert_true(fabs(rest.loss[13] / whole.loss[13] - 1) < 3e-2);
    sl_trainer_free(trainer);
    sl_model_free(m);
    sl_loader_free(loader);
    sl_dataset_free(data);
  }
  sl_close(c);
}

static void names_and_refusals(void **state) {
  (void)state;
  enum sl_math math = SL_MATH_F32;
  struct sl_trainer *trainer;
  char *summary;
  for (int m = SL_MATH_F32; m <= SL_MATH_BF16; m++) {
    OK(sl_math_parse(sl_math_name((enum sl_math)m), &math));
    assert_int_equal(math, m);
  }
  FAILS(sl_math_parse("fp16", &math), SL_BAD_ARGUMENT, "fp16");
  FAILS(sl_math_parse("", &math), SL_BAD_ARGUMENT, "use f32, tf32 or bf16");
  struct training t = begin();
  FAILS(sl_trainer_new(t.model, &images_in_bf16.optimizer, NULL,
                       &(struct sl_trainer_options){.math = (enum sl_math)9}, &trainer),
        SL_BAD_ARGUMENT, "9");
  OK(sl_trainer_summary(t.trainer, &summary));
  assert_non_null(strstr(summary, "math bf16"));
  free(summary);
  end(&t);
}

/* ---- no memory ---- */

static enum sl_status a_step_in_bf16(void) {
  struct sl_model *m = NULL;
  struct sl_trainer *trainer = NULL;
  struct sl_dataset *data = NULL;
  struct sl_loader *loader = NULL;
  struct sl_report report;
  bool reported;
  enum sl_status status;
  SL__TRY(sl_digits_new(8, 3, true, &data));
  SL__TRY(sl_loader_new(data, &(struct sl_loader_options){.batch = 4}, &loader));
  SL__TRY(sl_model_new(context, &SL_SHAPE(1, 28, 28), &m));
  SL__TRY(sl_dense(m, "fc1", &(struct sl_dense_options){.features = 4}));
  SL__TRY(sl_dense(m, "fc2", &(struct sl_dense_options){.features = 10}));
  SL__TRY(sl_trainer_new(m, &(struct sl_optimizer){.lr = 0.1f}, NULL,
                         &(struct sl_trainer_options){.replicas = 2, .math = SL_MATH_BF16},
                         &trainer));
  SL__TRY(sl_trainer_step(trainer, loader, &report, &reported));
  SL__TRY(sl_trainer_drain(trainer, &report, &reported));
out:
  sl_trainer_free(trainer);
  sl_model_free(m);
  sl_loader_free(loader);
  sl_dataset_free(data);
  return status;
}

static void any_allocation_may_fail(void **state) {
  (void)state;
  check_allocations(a_step_in_bf16);
}

static int set_up(void **state) {
  setenv("STARPU_NCPU", "2", 0);
  for (int i = 0; i < TEXT; i++) text[i] = i ? (text[i - 1] * 5 + (i % 7 == 0) + 3) % WORDS : 1;
  return folder_setup(state);
}

#define WITH_CONTEXT(test) cmocka_unit_test_setup_teardown(test, open_operations, close_context)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bf16_follows_f32),
      cmocka_unit_test(tf32_is_f32_on_a_cpu),
      cmocka_unit_test(small_updates_add_up),
      WITH_CONTEXT(gradients_add_up_in_f32),
      cmocka_unit_test(the_same_bits_wherever_it_runs),
      cmocka_unit_test(strips_give_the_same_bits),
      cmocka_unit_test(chunks_follow_the_whole),
      WITH_CONTEXT(whoever_writes_parameters_is_noticed),
      WITH_CONTEXT(nothing_is_copied_twice),
      WITH_CONTEXT(activations_take_half),
      WITH_CONTEXT(text_is_generated_in_bf16),
      cmocka_unit_test(checkpoints_know_their_math),
      WITH_CONTEXT(names_and_refusals),
      WITH_CONTEXT(any_allocation_may_fail),
  };
  return cmocka_run_group_tests_name("math", tests, set_up, folder_teardown);
}
