/* Captured steps (parallel/train/captured_step.c): the bits of tasks that are submitted one by one,
 * for many kinds of layers, optimizers and divisions of the work, over evaluations and checkpoints.
 */
#include "core/base/random.h"
#include "parallel/train/trainer.h"
#include "tests/common/training.h"
#include "tests/common/task_count.h"

enum { STEPS = 12, WORDS = 11, TOKENS = 900, MOST = 8000 };

static int32_t text[TOKENS];

/* ---- a kind of layer that a program registers: y = w x, a weight for each channel ---- */

static enum sl_status scale_infer(struct sl_layer_plan *plan) {
  plan->out = plan->in[0];
  plan->parameter[plan->parameter_count++] = (struct sl_layer_parameter){
      .suffix = "weight", .shape = {1, {plan->in[0].dim[0]}}, .filled = true, .fill = 1.5f};
  return SL_OK;
}

static enum sl_status scale_forward(struct sl_layer_task *t) {
  int64_t channels = t->out.dim[0], plane = sl_shape_count(&t->out) / channels;
  for (int64_t i = 0; i < t->rows * channels * plane; i++)
    t->y[i] = t->param[0][i / plane % channels] * t->x[0][i];
  return SL_OK;
}

static enum sl_status scale_backward_data(struct sl_layer_task *t) {
  int64_t channels = t->out.dim[0], plane = sl_shape_count(&t->out) / channels;
  for (int64_t i = 0; i < t->rows * channels * plane; i++)
    t->dx[i] += t->param[0][i / plane % channels] * t->dy[i];
  return SL_OK;
}

static enum sl_status scale_backward_weight(struct sl_layer_task *t) {
  int64_t channels = t->out.dim[0], plane = sl_shape_count(&t->out) / channels;
  for (int64_t i = 0; i < t->rows * channels * plane; i++)
    t->grad[0][i / plane % channels] += t->x[0][i] * t->dy[i];
  return SL_OK;
}

static const struct sl_layer_kind scale = {.version = SL_LAYER_VERSION,
                                           .name = "scale",
                                           .options_size = sizeof(struct sl_layer_options),
                                           .infer = scale_infer,
                                           .forward = scale_forward,
                                           .backward_data = scale_backward_data,
                                           .backward_weight = scale_backward_weight};

static int open_with_text(void **state) {
  (void)state;
  for (int i = 1; i < TOKENS; i++) {
    struct sl__random4 r = sl__philox(4, 4, (uint64_t)i);
    text[i] = r.v[0] % 4 ? (text[i - 1] * 3 + 1) % WORDS : (int32_t)(r.v[1] % WORDS);
  }
  const struct sl_context_options options = {.seed = 7, .devices = getenv("SL_TEST_DEVICE")};
  if (open_context_with(&options)) return 1;
  return sl_layer_register(context, &scale) != SL_OK;
}

/* ---- models and their data ---- */

/* A residual network with every kind of layer that images take, and one of the program's own. */
static void build_images(struct sl_model *m) {
  const struct sl_conv2d_options conv = {.channels = 4, .kernel_h = 3, .pad_h = 1};
  const struct sl_conv2d_options first = {
      .channels = 4, .kernel_h = 5, .activation = SL_ACTIVATION_RELU};
  OK(sl_conv2d(m, "conv1", &first));
  OK(sl_maxpool2d(m, "max", &(struct sl_pool2d_options){.kernel_h = 2}));
  OK(sl_batchnorm(m, "bn1", &(struct sl_batchnorm_options){0}));
  OK(sl_activate(m, "relu1", &(struct sl_activation_options){.activation = SL_ACTIVATION_RELU}));
  OK(sl_conv2d(m, "conv2", &conv));
  OK(sl_batchnorm(m, "bn2", &(struct sl_batchnorm_options){0}));
  OK(sl_add(m, "add", &(struct sl_add_options){.layer.inputs = "bn2,relu1"}));
  OK(sl_activate(m, "relu2", &(struct sl_activation_options){.activation = SL_ACTIVATION_RELU}));
  OK(sl_layer(m, "scale", "scale", &(struct sl_layer_options){0}));
  OK(sl_avgpool2d(m, "mean", &(struct sl_pool2d_options){.kernel_h = 4}));
  OK(sl_dense(m, "fc1",
              &(struct sl_dense_options){.features = 12, .activation = SL_ACTIVATION_TANH}));
  OK(sl_dropout(m, "drop", &(struct sl_dropout_options){.rate = 0.3f}));
  OK(sl_dense(m, "fc2", &(struct sl_dense_options){.features = 10}));
}

/* Branches that are cut, multiplied, joined and added; normalisations of samples. */
static void build_branches(struct sl_model *m) {
  const struct sl_conv2d_options conv = {.channels = 8, .kernel_h = 5, .stride_h = 2};
  OK(sl_conv2d(m, "conv", &conv));
  OK(sl_groupnorm(m, "groups", &(struct sl_groupnorm_options){.groups = 2}));
  OK(sl_activate(m, "relu", &(struct sl_activation_options){.activation = SL_ACTIVATION_RELU}));
  OK(sl_conv2d(m, "depthwise",
               &(struct sl_conv2d_options){.channels = 8, .kernel_h = 3, .pad_h = 1, .groups = 8}));
  OK(sl_slice(m, "low", &(struct sl_slice_options){.count = 4}));
  OK(sl_slice(m, "high", &(struct sl_slice_options){.first = 4, .layer.inputs = "depthwise"}));
  OK(sl_multiply(m, "gate", &(struct sl_multiply_options){.layer.inputs = "low,high"}));
  OK(sl_avgpool2d(m, "pool", &(struct sl_pool2d_options){.kernel_h = 2}));
  OK(sl_upsample2d(m, "up", &(struct sl_upsample2d_options){.scale_h = 2, .bilinear = true}));
  OK(sl_conv_transpose2d(m, "grow",
                         &(struct sl_conv_transpose2d_options){
                             .channels = 4, .kernel_h = 2, .stride_h = 2, .layer.inputs = "pool"}));
  OK(sl_add(m, "sum", &(struct sl_add_options){.layer.inputs = "up,gate,grow,low"}));
  OK(sl_concatenate(m, "join", &(struct sl_concatenate_options){.layer.inputs = "sum,relu"}));
  OK(sl_permute(m, "turn", &(struct sl_permute_options){.axes = SL_SHAPE(1, 2, 0)}));
  OK(sl_layernorm(m, "norm", &(struct sl_layernorm_options){0}));
  OK(sl_mean(m, "mean", &(struct sl_mean_options){.axes = SL_SHAPE(1)}));
  OK(sl_reshape(m, "flat", &(struct sl_reshape_options){0}));
  OK(sl_dense(m, "fc", &(struct sl_dense_options){.features = 10}));
}

/* Products and sums that add their gradients to others': such a call writes no output anew. */
static void build_products(struct sl_model *m) {
  const struct sl_dense_options ten = {.features = 10};
  struct sl_dense_options other = ten;
  other.layer.inputs = "pool";
  OK(sl_avgpool2d(m, "pool", &(struct sl_pool2d_options){.kernel_h = 4}));
  OK(sl_dense(m, "a", &ten));
  OK(sl_dense(m, "b", &other));
  OK(sl_multiply(m, "product", &(struct sl_multiply_options){.layer.inputs = "a,b"}));
  OK(sl_add(m, "sum", &(struct sl_add_options){.layer.inputs = "a,b,product"}));
  OK(sl_multiply(m, "cube", &(struct sl_multiply_options){.layer.inputs = "sum,sum,sum"}));
  OK(sl_dense(m, "fc", &ten));
}

static void build_words(struct sl_model *m, bool tied) {
  OK(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = WORDS, .features = 8}));
  OK(sl_lstm(m, "lstm", &(struct sl_lstm_options){.features = 9}));
  OK(sl_dropout(m, "drop", &(struct sl_dropout_options){.rate = 0.2f}));
  OK(sl_gru(m, "gru", &(struct sl_gru_options){.features = 8}));
  OK(sl_dense(m, "decoder",
              &(struct sl_dense_options){
                  .features = WORDS, .positions = true, .layer.shares = tied ? "embed" : NULL}));
}

enum task { IMAGES, BRANCHES, PRODUCTS, WORDS_ROWS, WORDS_TIED, SENTENCES };

struct run {
  const char *name;
  enum task task;
  struct sl_optimizer optimizer;
  struct sl_schedule schedule;
  struct sl_trainer_options options;
  bool on_standin; /* the others take too long there */
  double loss[STEPS], evaluated[2];
  float weights[MOST];
  int64_t count;
  int tasks; /* in the last step */
};

static void open_data(const struct run *run, struct sl_dataset **data, struct sl_loader **loader) {
  struct sl_loader_options options = {.batch = 26, .shuffle = true};
  if (run->task <= PRODUCTS) {
    OK(sl_digits_new(90, 3, true, data)); /* the fourth batch is not full */
  } else if (run->task == SENTENCES) {
    const int64_t buckets[] = {4, 8, 12};
    const struct sl_sentences_options lines = {
        .end = 1, .buckets = buckets, .bucket_count = 3, .longer = SL_LONG_SPLIT};
    OK(sl_sentences_new("lines", text, TOKENS, WORDS, &lines, data));
    options.batch = 8;
  } else {
    options = (struct sl_loader_options){.batch = 8, .contiguous = true};
    OK(sl_tokens_new("text", text, TOKENS, 12, WORDS, data));
  }
  OK(sl_loader_new(*data, &options, loader));
}

/* Trains, if `evaluates` with an evaluation in the middle, whose steps must not disturb the
 * captured ones. */
static void steps(struct run *run, bool evaluates, struct sl_trainer *trainer,
                  struct sl_loader *loader) {
  struct sl_report report;
  bool reported;
  double accuracy;
  for (int s = 0; s < STEPS; s++) {
    if (s == STEPS - 1) run->tasks = 0;
    OK(sl_trainer_step(trainer, loader, &report, &reported));
    if (reported) run->loss[report.step % STEPS] = report.loss;
    if (s != STEPS / 2 && s != STEPS - 1) continue;
    for (reported = true; reported;) {
      OK(sl_trainer_drain(trainer, &report, &reported));
      if (reported) run->loss[report.step % STEPS] = report.loss;
    }
    if (!evaluates) continue;
    OK(sl_trainer_evaluate(trainer, loader, &run->evaluated[s == STEPS - 1], &accuracy));
  }
}

static void train(struct run *run) {
  bool is_image = run->task <= PRODUCTS;
  struct sl_shape sample = is_image ? SL_SHAPE(1, 28, 28) : SL_SHAPE(12);
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_model *m;
  OK(sl_model_new(context, &sample, &m));
  if (run->task == IMAGES)
    build_images(m);
  else if (run->task == BRANCHES)
    build_branches(m);
  else if (run->task == PRODUCTS)
    build_products(m);
  else
    build_words(m, run->task == WORDS_TIED);
  open_data(run, &data, &loader);
  OK(sl_trainer_new(m, &run->optimizer, &run->schedule, &run->options, &trainer));
  assert_true(trainer->captures == !run->options.eager);
  OK(task_count_begin(context, &run->tasks));
  steps(run, !run->options.carry_state, trainer, loader);
  task_count_end(context, &run->tasks);
  assert_true(trainer->captures == !run->options.eager);
  sl_trainer_free(trainer);
  run->count = read_weights(m, run->weights, MOST);
  sl_model_free(m);
  sl_loader_free(loader);
  sl_dataset_free(data);
}

static void assert_same(const struct run *eager, const struct run *captured) {
  for (int s = 0; s < STEPS; s++)
    if (eager->loss[s] != captured->loss[s])
      fail_msg("%s: step %d has loss %.9g, %.9g if it is captured", eager->name, s, eager->loss[s],
               captured->loss[s]);
  for (int i = 0; i < 2; i++)
    if (eager->evaluated[i] != captured->evaluated[i]) fail_msg("%s: evaluations", eager->name);
  assert_int_equal(eager->count, captured->count);
  if (memcmp(eager->weights, captured->weights, (size_t)eager->count * sizeof *eager->weights))
    fail_msg("%s: the weights differ", eager->name);
  if (captured->tasks >= eager->tasks)
    fail_msg("%s: %d tasks in the last step, %d if it is captured", eager->name, eager->tasks,
             captured->tasks);
}

/* ---- the cases ---- */

#define MOMENTUM                                                                                   \
  { .lr = 0.05f, .momentum = 0.9f, .weight_decay = 1e-4f }
#define DECAY                                                                                      \
  { .kind = SL_STEP, .warmup = 2, .period = 3, .gamma = 0.7f }
static const struct run cases[] = {
    {"images", IMAGES, MOMENTUM, DECAY, {0}, true},
    {"one replica", IMAGES, {.lr = 0.1f}, {0}, {.replicas = 1}, true},
    {"clipped", IMAGES, {.lr = 0.1f, .clip = 0.5f}, DECAY, {.replicas = 3, .in_flight = 3}},
    {"adam", IMAGES, {.kind = SL_ADAM, .lr = 0.01f}, DECAY, {.replicas = 2}, true},
    {"adam in cut layers",
     IMAGES,
     {.kind = SL_ADAM, .lr = 0.01f},
     {0},
     {.replicas = 2, .big_shard = 100, .kvstore = SL_KVSTORE_DEVICE}},
    {"lamb in cut layers",
     IMAGES,
     {.kind = SL_LAMB, .lr = 0.01f, .weight_decay = 0.01f},
     DECAY,
     {.replicas = 2, .big_shard = 100, .kvstore = SL_KVSTORE_DEVICE}},
    {"averaged", IMAGES, {.lr = 0.1f, .average = 0.8f}, DECAY, {.replicas = 2}, true},
    {"averaged words", WORDS_ROWS, {.lr = 2, .average = 0.5f}, {0}, {.replicas = 2}},
    {"averages in bf16",
     IMAGES,
     {.kind = SL_LAMB, .lr = 0.01f, .average = 0.5f},
     {0},
     {.replicas = 2, .big_shard = 100, .math = SL_MATH_BF16}},
    {"lamb, clipped", IMAGES, {.kind = SL_LAMB, .lr = 0.01f, .clip = 1}, DECAY, {0}, true},
    {"words by lamb", WORDS_ROWS, {.kind = SL_LAMB, .lr = 0.02f}, {0}, {.carry_state = true}},
    {"microbatches", IMAGES, MOMENTUM, {0}, {.replicas = 2, .microbatches = 3}},
    {"stages", IMAGES, MOMENTUM, DECAY, {.stages = 2, .microbatches = 3}, true},
    {"uneven replicas", IMAGES, MOMENTUM, {0}, {.replicas = 2, .split = "3,1"}},
    {"bf16", IMAGES, MOMENTUM, {0}, {.replicas = 2, .math = SL_MATH_BF16}},
    {"branches", BRANCHES, MOMENTUM, DECAY, {.replicas = 2, .microbatches = 2}},
    {"branches over stages", BRANCHES, MOMENTUM, {0}, {.stages = 2, .microbatches = 3}},
    {"branches in bf16", BRANCHES, MOMENTUM, {0}, {.math = SL_MATH_BF16}},
    {"products", PRODUCTS, {.lr = 0.01f}, {0}, {.replicas = 2}},
    {"products in turns", PRODUCTS, {.lr = 0.01f}, {0}, {.replicas = 1, .microbatches = 2}},
    {"words", WORDS_ROWS, {.lr = 2}, {0}, {.replicas = 2, .carry_state = true}},
    {"words, clipped", WORDS_ROWS, {.lr = 2, .clip = 1}, DECAY, {.replicas = 1}, true},
    {"words by adam", WORDS_ROWS, {.kind = SL_ADAM, .lr = 0.02f}, {0}, {.carry_state = true}},
    {"tied words", WORDS_TIED, {.lr = 1, .momentum = 0.5f}, {0}, {.carry_state = true}},
    {"chunks",
     WORDS_TIED,
     {.lr = 1},
     DECAY,
     {.chunk = 5, .replicas = 2, .carry_state = true},
     true},
    {"words in bf16",
     WORDS_ROWS,
     {.lr = 1},
     {0},
     {.math = SL_MATH_BF16, .carry_state = true},
     true},
    {"sentences", SENTENCES, {.lr = 1}, {0}, {.replicas = 2}}};

static void captured_steps_have_the_bits_of_eager_ones(void **state) {
  (void)state;
  static struct run eager, captured;
  bool on_standin = getenv("SL_STANDIN") && getenv("SL_TEST_DEVICE");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (on_standin && !cases[i].on_standin) continue;
    eager = captured = cases[i];
    eager.options.eager = true;
    train(&eager);
    train(&captured);
    assert_same(&eager, &captured);
  }
}

/* A trainer that goes on from a checkpoint captures anew. */
static void a_checkpoint_goes_on(void **state) {
  (void)state;
  static struct run whole, halves;
  char path[] = "captured-checkpoint-XXXXXX";
  int file = mkstemp(path);
  assert_true(file >= 0);
  close(file);
  for (int part = 0; part < 2; part++) {
    struct run *run = part ? &halves : &whole;
    *run = cases[3];
    struct sl_model *m;
    struct sl_dataset *data;
    struct sl_loader *loader;
    struct sl_trainer *trainer;
    OK(sl_model_new(context, &SL_SHAPE(1, 28, 28), &m));
    build_images(m);
    open_data(run, &data, &loader);
    OK(sl_trainer_new(m, &run->optimizer, &run->schedule, &run->options, &trainer));
    if (part) OK(sl_trainer_load(trainer, loader, path));
    steps(run, false, trainer, loader);
    if (!part) OK(sl_trainer_save(trainer, path));
    if (!part) steps(run, false, trainer, loader);
    sl_trainer_free(trainer);
    run->count = read_weights(m, run->weights, MOST);
    sl_model_free(m);
    sl_loader_free(loader);
    sl_dataset_free(data);
  }
  assert_memory_equal(whole.weights, halves.weights, (size_t)whole.count * sizeof *whole.weights);
  unlink(path);
}

/* Allocations of the capture fail in turn: the step fails with a message, and nothing hangs. */
static void capture_without_memory(void **state) {
  (void)state;
  static struct run run;
  enum sl_status status = SL_NO_MEMORY;
  for (long n = 1; status != SL_OK; n += n < 400 ? 7 : 61) {
    struct sl_model *m;
    struct sl_dataset *data;
    struct sl_loader *loader;
    struct sl_trainer *trainer;
    struct sl_report report;
    bool reported;
    assert_true(n < 40000);
    run = cases[0];
    OK(sl_model_new(context, &SL_SHAPE(1, 28, 28), &m));
    build_images(m);
    open_data(&run, &data, &loader);
    OK(sl_trainer_new(m, &run.optimizer, &run.schedule, &run.options, &trainer));
    sl__alloc_fail_after(n);
    status = sl_trainer_step(trainer, loader, &report, &reported);
    sl__alloc_fail_after(0);
    if (status != SL_OK) assert_int_equal(status, SL_NO_MEMORY);
    sl_trainer_free(trainer);
    sl_model_free(m);
    sl_loader_free(loader);
    sl_dataset_free(data);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(captured_steps_have_the_bits_of_eager_ones),
                                     cmocka_unit_test(a_checkpoint_goes_on),
                                     cmocka_unit_test(capture_without_memory)};
  return cmocka_run_group_tests_name("captured steps", tests, open_with_text, close_context);
}
