/* The summary, against a table worked out by hand: LeNet (a chain) and a residual block (named
 * inputs, statistics). */
#include "small_model.h"

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
  assert_ok(sl_conv2d(model, "conv1",
                      &(struct sl_conv2d_options){
                          .channels = 20, .kernel_h = 5, .activation = SL_ACTIVATION_TANH}));
  assert_ok(sl_maxpool2d(model, "pool1", &pool));
  assert_ok(sl_conv2d(model, "conv2",
                      &(struct sl_conv2d_options){
                          .channels = 50, .kernel_h = 5, .activation = SL_ACTIVATION_TANH}));
  assert_ok(sl_maxpool2d(model, "pool2", &pool));
  add_dense(model, "fc1", 500, SL_INIT_DEFAULT);
  add_dense(model, "fc2", 10, SL_INIT_DEFAULT);
  char *text;
  assert_ok(sl_model_summary(model, &text));
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
  assert_ok(sl_conv2d(model, "conv",
                      &(struct sl_conv2d_options){.channels = 4, .kernel_h = 3, .pad_h = 1}));
  assert_ok(sl_batchnorm(model, "bn", &(struct sl_batchnorm_options){0}));
  assert_ok(sl_add(model, "sum", &(struct sl_add_options){.layer.inputs = "bn,input"}));
  char *text;
  assert_ok(sl_model_summary(model, &text));
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
  assert_ok(sl_model_summary(model, &text));
  assert_aligned(text);
  free(text);
  sl_model_free(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(lenet_is_a_chain),
                                     cmocka_unit_test(a_residual_block_names_its_inputs),
                                     cmocka_unit_test(a_model_without_layers_has_one_too)};
  return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
