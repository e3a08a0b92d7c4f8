/* LeNet (LeCun et al. 1998) in the shape that MXNet made known: two convolutions, two dense layers.
 */
#include "tools/train/run.h"

struct lenet {
  enum sl_activation activation;
};

static enum sl_status build(struct sl_model *model, const struct sl_dataset_info *data,
                            enum sl_init init, const void *input) {
  const struct lenet *lenet = input;
  const struct sl_layer_options layer = {.init = init};
  const enum sl_activation activation = lenet->activation;
  const struct sl_conv2d_options conv1 = {
      .layer = layer, .channels = 20, .kernel_h = 5, .activation = activation};
  const struct sl_conv2d_options conv2 = {
      .layer = layer, .channels = 50, .kernel_h = 5, .activation = activation};
  const struct sl_pool2d_options pool = {.kernel_h = 2};
  const struct sl_dense_options fc1 = {.layer = layer, .features = 500, .activation = activation};
  const struct sl_dense_options fc2 = {.layer = layer, .features = data->classes};

  enum sl_status status = sl_conv2d(model, "conv1", &conv1);
  if (status == SL_OK) status = sl_maxpool2d(model, "pool1", &pool);
  if (status == SL_OK) status = sl_conv2d(model, "conv2", &conv2);
  if (status == SL_OK) status = sl_maxpool2d(model, "pool2", &pool);
  if (status == SL_OK) status = sl_dense(model, "fc1", &fc1);
  if (status == SL_OK) status = sl_dense(model, "fc2", &fc2);
  return status;
}

/* ---- its own option ---- */

enum { KEY_ACTIVATION = 1000 };

static const struct argp_option options[] = {
    {"activation", KEY_ACTIVATION, "NAME", 0, "tanh (default), relu, sigmoid, gelu", 0}, {0}};

static error_t parse_option(int key, char *text, struct argp_state *state) {
  struct lenet *lenet = state->input;
  if (key != KEY_ACTIVATION) return ARGP_ERR_UNKNOWN;
  if (sl_activation_parse(text, &lenet->activation) != SL_OK)
    cli_refuse(state, "--activation: %s", sl_error());
  return 0;
}

int main(int argc, char **argv) {
  static const struct argp own = {options, parse_option, NULL, NULL, NULL, NULL, NULL};
  struct lenet lenet = {.activation = SL_ACTIVATION_TANH};
  const struct program program = {.about = "Train LeNet on MNIST, CIFAR-10 or generated digits.",
                                  .epochs = 5,
                                  .batch = 64,
                                  .lr = 0.1f,
                                  .options = &own,
                                  .input = &lenet,
                                  .build = build};
  return run_program(&program, argc, argv);
}
