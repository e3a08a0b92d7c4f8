/* The optimizers' steps against PyTorch's own values after ten steps (tools/make_fixture.py
 * finetune). */
#include "core/base/safetensors.h"
#include "tests/common/check.h"
#include "tests/common/files.h"

enum { FIXED = 40, FIXED_STEPS = 10 };

static void read_fixture(const struct sl__safetensors *file, const char *name,
                         struct sl_shape shape, double *values) {
  float f[FIXED * FIXED_STEPS];
  OK(sl__safetensors_floats(file, name, &shape, f));
  for (int64_t i = 0; i < sl_shape_count(&shape); i++) values[i] = (double)f[i];
}

static void check_pytorch(const struct sl__safetensors *file, const char *name, struct sl__op *op,
                          struct sl__update u) {
  double start[FIXED], want[FIXED], g[FIXED * FIXED_STEPS];
  read_fixture(file, "start", SL_SHAPE(FIXED), start);
  read_fixture(file, name, SL_SHAPE(FIXED), want);
  read_fixture(file, "gradients", SL_SHAPE(FIXED_STEPS, FIXED), g);
  struct sl__tensor *p = tensor(SL_SHAPE(FIXED), start), *state[2];
  for (int k = 0; k < 2; k++) state[k] = tensor(SL_SHAPE(FIXED), NULL);
  for (u.step = 1; u.step <= FIXED_STEPS; u.step++) {
    struct sl__tensor *gradient = tensor(SL_SHAPE(FIXED), g + (u.step - 1) * FIXED);
    OK(sl__update(context, op, &plain, p, state, 1, &gradient, NULL, &u));
    sl__tensor_free(gradient);
  }
  assert_near(name, take(p), want, FIXED, 60, 2);
  for (int k = 0; k < 2; k++) sl__tensor_free(state[k]);
}

/* LAMB's two parameters are the front and the back of the tensor. */
static void lamb_is_that_of_the_fixture(void **state) {
  (void)state;
  struct sl__safetensors *file;
  const struct sl__update_parts parts = {2, {25, FIXED}, {true, true}};
  struct sl__update u = {
      .lr = 0.01f, .weight_decay = 0.1f, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-6f};
  double start[FIXED], want[FIXED], g[FIXED * FIXED_STEPS];
  char path[4096];
  snprintf(path, sizeof path, "%s/tests/fixtures/torch_optimizers.safetensors", source_folder());
  OK(sl__safetensors_open(path, &file));
  read_fixture(file, "start", SL_SHAPE(FIXED), start);
  read_fixture(file, "lamb", SL_SHAPE(FIXED), want);
  read_fixture(file, "gradients", SL_SHAPE(FIXED_STEPS, FIXED), g);
  struct sl__tensor *p = tensor(SL_SHAPE(FIXED), start), *means[2],
                    *squares = tensor(SL_SHAPE(4), NULL);
  for (int k = 0; k < 2; k++) means[k] = tensor(SL_SHAPE(FIXED), NULL);
  for (u.step = 1; u.step <= FIXED_STEPS; u.step++) {
    struct sl__tensor *gradient = tensor(SL_SHAPE(FIXED), g + (u.step - 1) * FIXED);
    OK(sl__lamb_moments(context, &plain, p, means, 1, &gradient, NULL, &u, &parts, squares));
    OK(sl__lamb(context, &plain, p, means, squares, &u, &parts));
    sl__tensor_free(gradient);
  }
  assert_near("lamb", take(p), want, FIXED, 60, 2);
  for (int k = 0; k < 2; k++) sl__tensor_free(means[k]);
  sl__tensor_free(squares);
  sl__safetensors_close(file);
}

static void ten_steps_are_pytorchs(void **state) {
  (void)state;
  struct sl__safetensors *file;
  char path[4096];
  snprintf(path, sizeof path, "%s/tests/fixtures/torch_optimizers.safetensors", source_folder());
  OK(sl__safetensors_open(path, &file));
  check_pytorch(
      file, "rmsprop", &sl__op_rmsprop,
      (struct sl__update){.lr = 0.01f, .weight_decay = 0.1f, .beta2 = 0.99f, .epsilon = 1e-8f});
  check_pytorch(file, "adagrad", &sl__op_adagrad,
                (struct sl__update){.lr = 0.01f, .weight_decay = 0.1f, .epsilon = 1e-10f});
  check_pytorch(file, "adamw", &sl__op_adam,
                (struct sl__update){.lr = 0.01f,
                                    .weight_decay = 0.1f,
                                    .beta1 = 0.9f,
                                    .beta2 = 0.999f,
                                    .epsilon = 1e-8f,
                                    .decoupled = 1});
  sl__safetensors_close(file);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(ten_steps_are_pytorchs),
                                     cmocka_unit_test(lamb_is_that_of_the_fixture)};
  return cmocka_run_group_tests_name("optimizers of PyTorch", tests, open_operations,
                                     close_context);
}
