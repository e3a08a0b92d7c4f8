/* Fine-tuning a network that PyTorch trained (tools/make_fixture.py finetune): its backbone under
 * another head, with frozen layers, the head at twice the rate, and decay for weights alone. The
 * losses are those of PyTorch in double precision within 1e-4 for 20 steps. */
#include <math.h>

#include "core/base/safetensors.h"
#include "tests/common/files.h"
#include "tests/common/small_model.h"

enum { SAMPLES = 160, PIXELS = 64, BATCH = 8, STEPS = 20, HEAD = 4 * 96 };

static struct sl__safetensors *fixture;
static struct sl_dataset *images;

static const char *fixture_path(const char *name) {
  static char path[4096];
  snprintf(path, sizeof path, "%s/tests/fixtures/%s", source_folder(), name);
  return path;
}

static int open_fixture(void **state) {
  static float values[SAMPLES * PIXELS], classes[SAMPLES];
  static uint8_t bytes[SAMPLES * PIXELS];
  static int32_t labels[SAMPLES];
  if (open_context(state)) return 1;
  OK(sl__safetensors_open(fixture_path("torch_finetune.safetensors"), &fixture));
  OK(sl__safetensors_floats(fixture, "images", &SL_SHAPE(SAMPLES, 1, 8, 8), values));
  OK(sl__safetensors_floats(fixture, "labels", &SL_SHAPE(SAMPLES), classes));
  for (int i = 0; i < SAMPLES * PIXELS; i++) bytes[i] = (uint8_t)values[i];
  for (int i = 0; i < SAMPLES; i++) labels[i] = (int32_t)classes[i];
  OK(sl_dataset_new("images", &SL_SHAPE(1, 8, 8), SAMPLES, 4, bytes, labels, NULL, NULL, &images));
  return 0;
}

static int close_fixture(void **state) {
  sl__safetensors_close(fixture);
  sl_dataset_free(images);
  return close_context(state);
}

static struct sl_model *classifier(void) {
  struct sl_model *m = new_model(SL_SHAPE(1, 8, 8));
  const struct sl_batchnorm_options norm = {.momentum = 0.1f};
  const struct sl_activation_options relu = {.activation = SL_ACTIVATION_RELU};
  OK(sl_conv2d(m, "conv1", &(struct sl_conv2d_options){.channels = 4, .kernel_h = 3, .pad_h = 1}));
  OK(sl_batchnorm(m, "bn1", &norm));
  OK(sl_activate(m, "relu1", &relu));
  OK(sl_conv2d(m, "conv2", &(struct sl_conv2d_options){.channels = 6, .kernel_h = 3, .pad_h = 1}));
  OK(sl_batchnorm(m, "bn2", &norm));
  OK(sl_activate(m, "relu2", &relu));
  OK(sl_maxpool2d(m, "pool", &(struct sl_pool2d_options){.kernel_h = 2}));
  add_dense(m, "head", 4, SL_INIT_DEFAULT);
  return m;
}

static void load_weights(struct sl_model *m) {
  float weight[HEAD], bias[4];
  char *report;
  OK(sl_model_load_part(m, fixture_path("torch_backbone.safetensors"),
                        &(struct sl_load_part_options){.map = "backbone.="}, &report));
  assert_non_null(strstr(report, "head.weight"));
  assert_non_null(strstr(report, "12 of the model's 14 tensors loaded"));
  free(report);
  OK(sl__safetensors_floats(fixture, "head.weight", &SL_SHAPE(4, 96), weight));
  OK(sl__safetensors_floats(fixture, "head.bias", &SL_SHAPE(4), bias));
  OK(sl_model_set(m, "head.weight", weight));
  OK(sl_model_set(m, "head.bias", bias));
}

static void check_curve(const char *frozen, const char *losses, bool eager) {
  const struct sl_optimizer optimizer = {.lr = 0.02f, .momentum = 0.9f, .weight_decay = 0.01f};
  const struct sl_trainer_options options = {.replicas = 1, .eager = eager};
  float want[STEPS];
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_report report;
  struct sl_model *m = classifier();
  load_weights(m);
  OK(sl_freeze(m, frozen));
  OK(sl_group_rate(m, "head=2"));
  OK(sl_decay_weights_only(m, true));
  OK(sl__safetensors_floats(fixture, losses, &SL_SHAPE(STEPS), want));
  OK(sl_loader_new(images, &(struct sl_loader_options){.batch = BATCH}, &loader));
  OK(sl_trainer_new(m, &optimizer, NULL, &options, &trainer));
  bool reported = true;
  for (int step = 0; reported; step++) {
    if (step < STEPS)
      OK(sl_trainer_step(trainer, loader, &report, &reported));
    else
      OK(sl_trainer_drain(trainer, &report, &reported));
    if (reported && fabs(report.loss - (double)want[report.step]) > 1e-4)
      fail_msg("%s, step %lld: loss %.7f, PyTorch's %.7f", losses, (long long)report.step,
               report.loss, (double)want[report.step]);
    reported |= step < STEPS;
  }
  sl_trainer_free(trainer);
  sl_loader_free(loader);
  sl_model_free(m);
}

/* Below the head nothing trains. */
static void the_head_alone_follows_pytorch(void **state) {
  (void)state;
  for (int eager = 0; eager < 2; eager++)
    check_curve("conv1-2,bn*,relu*", "losses.head", eager != 0);
}

/* conv2's gradient passes frozen batch normalisation. */
static void layers_below_frozen_norms_follow_pytorch(void **state) {
  (void)state;
  for (int eager = 0; eager < 2; eager++) check_curve("conv1,bn1-2", "losses.conv2", eager != 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_head_alone_follows_pytorch),
                                     cmocka_unit_test(layers_below_frozen_norms_follow_pytorch)};
  return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}
