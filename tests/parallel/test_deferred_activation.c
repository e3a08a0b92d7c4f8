/* A max pooling applies the gradient of the activation before it (parallel/step/plan.c): the same
 * bits as with the activation in a layer of its own. */
#include "codelets/codelets.h"
#include "core/runtime/hooks.h"
#include "tests/common/training.h"
#include <math.h>

enum { SAMPLES = 48, BATCH = 12, STEPS = 5, SIDE = 28, VALUES = 4096 };

/* conv1, pool1, conv2, pool2, fc: where the gradient of each convolution's activation is applied.
 */
static const struct shape {
  const char *say;
  enum sl_activation activation;
  struct sl_pool2d_options pool;
  bool second_reader; /* of conv2's output */
  const char *first, *second;
} shapes[] = {
    {"relu", SL_ACTIVATION_RELU, {.kernel_h = 2}, false, "pool1", "pool2"},
    {"tanh", SL_ACTIVATION_TANH, {.kernel_h = 2}, false, "pool1", "pool2"},
    {"sigmoid", SL_ACTIVATION_SIGMOID, {.kernel_h = 2}, false, "pool1", "pool2"},
    {"windows apart", SL_ACTIVATION_RELU, {.kernel_h = 2, .stride_h = 3}, false, "pool1", "pool2"},
    {"padding", SL_ACTIVATION_RELU, {.kernel_h = 3, .pad_h = 1}, false, "pool1", "pool2"},
    {"windows overlap",
     SL_ACTIVATION_TANH,
     {.kernel_h = 3, .stride_h = 2},
     false,
     "conv1",
     "conv2"},
    {"overlap in width",
     SL_ACTIVATION_TANH,
     {.kernel_h = 2, .kernel_w = 3, .stride_h = 2, .stride_w = 2},
     false,
     "conv1",
     "conv2"},
    {"two readers", SL_ACTIVATION_RELU, {.kernel_h = 2}, true, "pool1", "conv2"},
};

/* Applied to the output of the layer before: by the layer itself, or by one more. */
static void convolution(struct sl_model *m, const char *name, const struct shape *shape,
                        bool apart) {
  struct sl_conv2d_options conv = {.channels = 4, .kernel_h = 3, .pad_h = 1};
  const struct sl_activation_options own = {.activation = shape->activation};
  char after[16];
  snprintf(after, sizeof after, "%s_act", name);
  if (!apart) conv.activation = shape->activation;
  OK(sl_conv2d(m, name, &conv));
  if (apart) OK(sl_activate(m, after, &own));
}

static void build(struct sl_model *m, const struct shape *shape, bool apart) {
  convolution(m, "conv1", shape, apart);
  OK(sl_maxpool2d(m, "pool1", &shape->pool));
  convolution(m, "conv2", shape, apart);
  OK(sl_maxpool2d(m, "pool2", &shape->pool));
  if (shape->second_reader) {
    const char *conv2 = apart ? "conv2_act" : "conv2";
    OK(sl_maxpool2d(m, "pool3", &(struct sl_pool2d_options){.layer.inputs = conv2, .kernel_h = 2}));
    OK(sl_add(m, "add", &(struct sl_add_options){.layer.inputs = "pool2,pool3"}));
  }
  OK(sl_dense(m, "fc", &(struct sl_dense_options){.features = 10}));
}

/* How often each layer's name stood at the gradient of an activation within an output. */
struct applied {
  const char *name[2];
  int times[2], others;
};

static enum sl_status count(void *data, const struct sl__call *call, struct starpu_task *task) {
  struct applied *applied = data;
  (void)task;
  if (call->op != &sl__op_activation_backward_inplace) return SL_OK;
  bool first = !strcmp(call->launch->name, applied->name[0]);
  bool second = !strcmp(call->launch->name, applied->name[1]);
  applied->times[0] += first;
  applied->times[1] += second;
  applied->others += !first && !second;
  return SL_OK;
}

struct way {
  const char *placement; /* of the layers, or NULL */
  int replicas, microbatches;
  enum sl_math math;
  bool eager, apart;
};

struct trained {
  float weights[VALUES];
  int64_t size;
  double loss;
};

static void train(const struct shape *shape, const struct way *way, struct applied *applied,
                  struct trained *to) {
  const struct sl_optimizer sgd = {.lr = 0.1f, .momentum = 0.9f};
  const struct sl_trainer_options options = {.replicas = way->replicas,
                                             .microbatches = way->microbatches,
                                             .math = way->math,
                                             .eager = way->eager};
  const struct sl__submit_hook hook = {.before = count, .data = applied};
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_model *m;
  struct sl_trainer *t;
  memset(to, 0, sizeof *to);
  OK(sl_digits_new(SAMPLES, 3, true, &data));
  OK(sl_model_new(context, &SL_SHAPE(1, SIDE, SIDE), &m));
  build(m, shape, way->apart);
  if (way->placement) OK(sl_place(m, way->placement));
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = BATCH, .slots = 6}, &loader));
  OK(sl_trainer_new(m, &sgd, NULL, &options, &t));
  OK(sl__submit_hook_add(context, &hook));
  to->loss = take_steps(t, loader, STEPS, NULL).loss;
  sl__submit_hook_remove(context, applied);
  to->size = read_weights(m, to->weights, VALUES);
  sl_trainer_free(t);
  sl_loader_free(loader);
  sl_model_free(m);
  sl_dataset_free(data);
}

static void check(const struct shape *shape, struct way way) {
  static struct trained joined, apart;
  struct applied by = {.name = {shape->first, shape->second}}, none = {.name = {"", ""}};
  int slices = STEPS * way.replicas * way.microbatches;
  print_message("%s, %s, %d replicas, %d microbatches, %s\n", shape->say,
                way.placement ? way.placement : "no placement", way.replicas, way.microbatches,
                way.eager ? "eager" : "captured");
  train(shape, &way, &by, &joined);
  way.apart = true;
  way.placement = NULL;
  train(shape, &way, &none, &apart);
  if (way.eager) {
    assert_int_equal(by.times[0], slices);
    assert_int_equal(by.times[1], slices);
    assert_int_equal(by.others, 0);
    assert_int_equal(none.others, 0);
  }
  assert_true(joined.loss == apart.loss && isfinite(joined.loss));
  assert_int_equal(joined.size, apart.size);
  assert_memory_equal(joined.weights, apart.weights, (size_t)joined.size * sizeof *joined.weights);
}

static void the_pooling_applies_the_gradient(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    check(&shapes[i], (struct way){.replicas = 1, .microbatches = 1, .eager = true});
    check(&shapes[i], (struct way){.replicas = 2, .microbatches = 2, .eager = true});
    check(&shapes[i], (struct way){.replicas = 2, .microbatches = 1});
  }
}

static void in_bf16_and_across_stages(void **state) {
  (void)state;
  const struct way halves = {.replicas = 1, .microbatches = 1, .eager = true, .math = SL_MATH_BF16};
  check(&shapes[0], halves);
  /* the convolution in one stage, the pooling in the next */
  check(&shapes[0], (struct way){.placement = "conv1=cpu:0;pool1,conv2=cpu:1;pool2,fc=cpu:0",
                                 .replicas = 1,
                                 .microbatches = 2,
                                 .eager = true});
}

int main(void) {
  setenv("STARPU_NCPU", "2", 0);
  setenv("STARPU_NCUDA", "0", 1); /* its kernels add up in another order */
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_pooling_applies_the_gradient),
                                     cmocka_unit_test(in_bf16_and_across_stages)};
  return cmocka_run_group_tests_name("deferred_activation", tests, open_context, close_context);
}
