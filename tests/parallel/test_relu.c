/* A normalisation or a sum applies the relu behind it (parallel/step/plan.c): the same bits as with
 * the relu in a stage of its own, where both have their tasks. */
#include "codelets/codelets.h"
#include "core/runtime/hooks.h"
#include "tests/common/training.h"
#include <math.h>

enum { SAMPLES = 48, BATCH = 12, STEPS = 6, SIDE = 28 };

/* Every relu apart from the layers before and behind it. */
static const char *const apart =
    "conv1,bn1=cpu:0;relu1=cpu:1;conv2,bn2=cpu:0;add=cpu:1;relu2=cpu:0;add2,pool,fc=cpu:1";

/* Residual networks, and the tasks of relus for a slice where they are not apart. */
static const struct shape {
  const char *add, *add2; /* inputs */
  int relus, joined;
} shapes[] = {
    {"bn2,relu1", "relu2,relu2", 0, 1},
    {"bn2,bn1", "relu2,relu2", 2, 1},   /* bn1 has two readers: its relu is a task */
    {"bn2,relu1", "relu2,relu1", 2, 0}, /* add writes one gradient and adds to the other */
};

static void build(struct sl_model *m, const struct shape *shape) {
  const struct sl_conv2d_options conv = {
      .channels = 4, .kernel_h = 3, .stride_h = 2, .pad_h = 1, .no_bias = true};
  const struct sl_conv2d_options same = {.channels = 4, .kernel_h = 3, .pad_h = 1, .no_bias = true};
  const struct sl_activation_options relu = {.activation = SL_ACTIVATION_RELU};
  OK(sl_conv2d(m, "conv1", &conv));
  OK(sl_batchnorm(m, "bn1", &(struct sl_batchnorm_options){0}));
  OK(sl_activate(m, "relu1", &relu));
  OK(sl_conv2d(m, "conv2", &same));
  OK(sl_batchnorm(m, "bn2", &(struct sl_batchnorm_options){0}));
  OK(sl_add(m, "add", &(struct sl_add_options){.layer.inputs = shape->add}));
  OK(sl_activate(m, "relu2", &relu));
  OK(sl_add(m, "add2", &(struct sl_add_options){.layer.inputs = shape->add2}));
  OK(sl_avgpool2d(m, "pool", &(struct sl_pool2d_options){.kernel_h = 7}));
  OK(sl_dense(m, "fc", &(struct sl_dense_options){.features = 10}));
}

struct tasks {
  int relus, joined;
};

static enum sl_status count(void *data, const struct sl__call *call, struct starpu_task *task) {
  struct tasks *tasks = data;
  (void)task;
  tasks->relus += call->op == &sl__op_activation_forward || call->op == &sl__op_activation_backward;
  tasks->joined += call->op == &sl__op_add_relu_backward;
  return SL_OK;
}

struct trained {
  float weights[4096];
  int64_t size;
  double loss, evaluated; /* the losses of the last batch, and of all by the final weights */
  struct tasks tasks;
};

static void train(const struct shape *shape, const char *placement, int microbatches,
                  enum sl_math math, struct trained *to) {
  const struct sl_optimizer sgd = {.lr = 0.1f, .momentum = 0.9f};
  const struct sl_trainer_options options = {
      .replicas = 1, .microbatches = microbatches, .math = math, .eager = true};
  const struct sl__submit_hook hook = {.before = count, .data = &to->tasks};
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_model *m;
  struct sl_trainer *t;
  double accuracy;
  memset(to, 0, sizeof *to);
  OK(sl_digits_new(SAMPLES, 3, true, &data));
  OK(sl_model_new(context, &SL_SHAPE(1, SIDE, SIDE), &m));
  build(m, shape);
  if (placement) OK(sl_place(m, placement));
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = BATCH, .slots = 6}, &loader));
  OK(sl_trainer_new(m, &sgd, NULL, &options, &t));
  OK(sl__submit_hook_add(context, &hook));
  to->loss = take_steps(t, loader, STEPS, NULL).loss;
  sl__submit_hook_remove(context, &to->tasks);
  OK(sl_trainer_evaluate(t, loader, &to->evaluated, &accuracy));
  to->size = read_weights(m, to->weights, 4096);
  sl_trainer_free(t);
  sl_loader_free(loader);
  sl_model_free(m);
  sl_dataset_free(data);
}

static void check(const struct shape *shape, int microbatches, enum sl_math math) {
  static struct trained one, several;
  int slices = STEPS * microbatches;
  train(shape, NULL, microbatches, math, &one);
  train(shape, apart, microbatches, math, &several);
  assert_int_equal(one.tasks.relus, shape->relus * slices);
  assert_int_equal(one.tasks.joined, shape->joined * slices);
  assert_int_equal(several.tasks.relus, 4 * slices);
  assert_int_equal(several.tasks.joined, 0);
  assert_true(one.loss == several.loss && isfinite(one.loss));
  assert_true(one.evaluated == several.evaluated && isfinite(one.evaluated));
  assert_int_equal(one.size, several.size);
  assert_memory_equal(one.weights, several.weights, (size_t)one.size * sizeof *one.weights);
}

static void a_relu_is_part_of_the_layer_before(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (int microbatches = 1; microbatches <= 2; microbatches++) {
      check(&shapes[i], microbatches, SL_MATH_F32);
      check(&shapes[i], microbatches, SL_MATH_BF16);
    }
}

int main(void) {
  setenv("STARPU_NCPU", "2", 0);
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_relu_is_part_of_the_layer_before)};
  return cmocka_run_group_tests_name("relu", tests, open_context, close_context);
}
