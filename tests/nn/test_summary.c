/* The summary, against a table worked out by hand: LeNet (a chain) and a residual block (named
 * inputs, statistics). */
#include "tests/common/small_model.h"

static void assert_line(const char *text, const char *line) {
  if (!strstr(text, line)) fail_msg("no line \"%s\" in\n%s", line, text);
}

/* Every line of the table is equally long, so that its columns stand under each other. */
static void assert_aligned(const char *text) {
  size_t width = strcspn(text, "\n");
  while (strncmp(text, "MFLOP", 5) != 0) {
    assert_int_equal(strcspn(text, "\n"), width);
    text += width + 1;
  }
}

static void lenet_is_a_chain(void **state) {
  (void)state;
  struct sl_model *model = new_model(SL_SHAPE(1, 28, 28));
  const struct sl_pool2d_options pool = {.kernel_h = 2};
  OK(sl_conv2d(model, "conv1",
               &(struct sl_conv2d_options){
                   .channels = 20, .kernel_h = 5, .activation = SL_ACTIVATION_TANH}));
  OK(sl_maxpool2d(model, "pool1", &pool));
  OK(sl_conv2d(model, "conv2",
               &(struct sl_conv2d_options){
                   .channels = 50, .kernel_h = 5, .activation = SL_ACTIVATION_TANH}));
  OK(sl_maxpool2d(model, "pool2", &pool));
  add_dense(model, "fc1", 500, SL_INIT_DEFAULT);
  add_dense(model, "fc2", 10, SL_INIT_DEFAULT);
  char *text;
  OK(sl_model_summary(model, &text));
  assert_aligned(text);
  assert_line(text, "\ninput                     [1, 28, 28]                           3.1 KB\n");
  assert_line(text, "\nconv1  conv2d             [20, 24, 24]         520  0.576      45.0 KB\n");
  assert_line(text, "\npool1  maxpool2d          [20, 12, 12]           0  0.012      22.5 KB\n");
  assert_line(text, "\nfc1    dense              [500]            400,500  0.800       2.0 KB\n");
  /* 520 + 25,050 + 400,500 + 5,010 weights; 4 (784 + 11,520 + 2 x 2,880 + 3,200 + 2 x 800 + 500 +
   * 10) bytes */
  assert_line(text, "\ntotal                                      431,080  4.601      91.3 KB\n");
  assert_line(text, "\nParameters: 1.64 MB");
  free(text);
  sl_model_free(model);
}

static void a_residual_block_names_its_inputs(void **state) {
  (void)state;
  struct sl_model *model = new_model(SL_SHAPE(4, 8, 8));
  OK(sl_conv2d(model, "conv",
               &(struct sl_conv2d_options){.channels = 4, .kernel_h = 3, .pad_h = 1}));
  OK(sl_batchnorm(model, "bn", &(struct sl_batchnorm_options){0}));
  OK(sl_add(model, "sum", &(struct sl_add_options){.layer.inputs = "bn,input"}));
  char *text;
  OK(sl_model_summary(model, &text));
  assert_aligned(text);
  assert_line(text, "\nsum    add        bn,input  [4, 8, 8]           0");
  assert_line(text, "; running statistics: 0.00 MB.");
  free(text);
  sl_model_free(model);
}

static void a_model_without_layers_has_one_too(void **state) {
  (void)state;
  struct sl_model *model = new_model(SL_SHAPE(3));
  char *text;
  OK(sl_model_summary(model, &text));
  assert_aligned(text);
  free(text);
  sl_model_free(model);
}

/* ---- the same for programs ---- */

static void layers_tell_their_kind_and_size(void **state) {
  (void)state;
  struct sl_model *model = new_model(SL_SHAPE(2, 8, 8));
  struct sl_layer_info info;
  OK(sl_conv2d(model, "conv", &(struct sl_conv2d_options){.channels = 3, .kernel_h = 3}));
  add_dense(model, "out", 5, SL_INIT_DEFAULT);
  assert_int_equal(sl_model_layer_count(model), 2);
  OK(sl_model_layer(model, 0, &info));
  assert_string_equal(info.name, "conv");
  assert_string_equal(info.kind, "conv2d");
  assert_true(sl_shape_equal(&info.output, &SL_SHAPE(3, 6, 6)));
  assert_int_equal(info.parameters, 3 * 2 * 9 + 3);
  FAILS(sl_model_layer(model, 2, &info), SL_BAD_ARGUMENT, "has 2");
  FAILS(sl_model_layer(model, -1, &info), SL_BAD_ARGUMENT, "layer -1");
  sl_model_free(model);
}

/* Two stages of two replicas each: 4 stage cells on whatever workers there are. */
static void a_trainer_tells_where_layers_are(void **state) {
  (void)state;
  struct sl_model *model = new_model(SL_SHAPE(6));
  struct sl_trainer *trainer;
  struct sl_layer_place place;
  add_dense(model, "a", 4, SL_INIT_DEFAULT);
  OK(sl_activate(model, "relu", &(struct sl_activation_options){.activation = SL_ACTIVATION_RELU}));
  add_dense(model, "b", 3, SL_INIT_DEFAULT);
  OK(sl_place(model, "a,relu=cpu:0;b=cpu:0,cpu"));
  OK(sl_trainer_new(model, &(struct sl_optimizer){.lr = 0.1f}, NULL,
                    &(struct sl_trainer_options){.replicas = 2}, &trainer));
  const char *const devices[] = {"cpu:0,cpu:0", "cpu:0,cpu:0", "cpu:0,cpu"};
  const char *const owners[] = {"cpu", "", "cpu"};
  for (int i = 0; i < 3; i++) {
    OK(sl_trainer_place(trainer, i, &place));
    assert_int_equal(place.stage, i / 2);
    assert_string_equal(place.devices, devices[i]);
    assert_string_equal(place.owners, owners[i]);
    free(place.devices);
    free(place.owners);
  }
  FAILS(sl_trainer_place(trainer, 3, &place), SL_BAD_ARGUMENT, "has 3");
  sl_trainer_free(trainer);
  sl_model_free(model);
}

static void owners_are_named_once(void **state) {
  (void)state;
  struct sl_model *model = new_model(SL_SHAPE(64));
  struct sl_trainer *trainer;
  struct sl_layer_place place;
  add_dense(model, "wide", 64, SL_INIT_DEFAULT);
  OK(sl_trainer_new(model, &(struct sl_optimizer){.lr = 0.1f}, NULL,
                    &(struct sl_trainer_options){.replicas = 1, .big_shard = 100}, &trainer));
  OK(sl_trainer_place(trainer, 0, &place));
  assert_string_equal(place.owners, "cpu"); /* of 42 shards */
  free(place.devices);
  free(place.owners);
  sl_trainer_free(trainer);
  sl_model_free(model);
}

static void workers_have_names(void **state) {
  (void)state;
  struct sl_worker_info info;
  OK(sl_worker(context, 0, &info));
  assert_string_equal(info.name, "cpu:0");
  assert_string_equal(info.description, "CPU 0");
  assert_true(info.listed);
  FAILS(sl_worker(context, sl_worker_count(context), &info), SL_BAD_ARGUMENT, "from 0");
  assert_non_null(strstr(sl_context_text(context), sl_scheduler(context)));
  assert_non_null(strstr(sl_context_text(context), sl_starpu_version(context)));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(lenet_is_a_chain),
                                     cmocka_unit_test(a_residual_block_names_its_inputs),
                                     cmocka_unit_test(a_model_without_layers_has_one_too),
                                     cmocka_unit_test(layers_tell_their_kind_and_size),
                                     cmocka_unit_test(a_trainer_tells_where_layers_are),
                                     cmocka_unit_test(owners_are_named_once),
                                     cmocka_unit_test(workers_have_names)};
  return cmocka_run_group_tests(tests, open_context, close_context);
}
