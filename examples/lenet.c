/* LeNet (LeCun et al. 1998) in the shape that MXNet made known: two convolutions, two dense layers.
 */
#include "tools/train/run.h"

struct lenet {
  enum sl_activation activation;
};

static enum sl_status convolve(struct sl_model *model, const char *name, const char *after_name,
                               const struct sl_conv2d_options *options) {
  /* a convolution keeps its output only, and these need the values before them */
  const struct sl_activation_options after = {.activation = options->activation};
  bool apart = after.activation == SL_ACTIVATION_GELU ||
               after.activation == SL_ACTIVATION_GELU_TANH ||
               after.activation == SL_ACTIVATION_SILU;
  struct sl_conv2d_options conv = *options;
  if (apart) conv.activation = SL_ACTIVATION_NONE;
  enum sl_status status = sl_conv2d(model, name, &conv);
  return status == SL_OK && apart ? sl_activate(model, after_name, &after) : status;
}

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
  const struct sl_dense_options fc2 = {.layer = layer, .features = program_outputs(data)};

  enum sl_status status = convolve(model, "conv1", "act1", &conv1);
  if (status == SL_OK) status = sl_maxpool2d(model, "pool1", &pool);
  if (status == SL_OK) status = convolve(model, "conv2", "act2", &conv2);
  if (status == SL_OK) status = sl_maxpool2d(model, "pool2", &pool);
  if (status == SL_OK) status = sl_dense(model, "fc1", &fc1);
  if (status == SL_OK) status = sl_dense(model, "fc2", &fc2);
  return status;
}

/* ---- the program's own option ---- */

static const char *activation_name(int i) {
  return i <= SL_ACTIVATION_SILU ? sl_activation_name((enum sl_activation)i) : NULL;
}

static const char *activation_help(void) {
  static char text[100];
  return option_list(activation_name, ", ", ", ", text, sizeof text);
}

static const struct option_row rows[] = {
    {"activation", "NAME", NULL, OPTION_FIELD(struct lenet, activation), .name_of = activation_name,
     .help_of = activation_help, .flags = OPTION_OWN}};

int main(int argc, char **argv) {
  struct lenet lenet = {.activation = SL_ACTIVATION_TANH};
  const struct program program = {
      .cli = {.about = "Train LeNet on MNIST, CIFAR-10 or generated digits.",
              .description =
                  "LeNet has two convolutions with max pooling and two dense layers. The devices "
                  "share a batch: each computes a slice of it, and the KVStore adds the gradients "
                  "in a fixed order. With the same seed and number of replicas the weights are the "
                  "same to the bit, whatever the scheduler and the number of workers.",
              .examples = "  lenet --epochs 2\n"
                          "  lenet --data mnist --save lenet.json --log run.jsonl\n"
                          "  lenet --optimizer adam --lr-schedule cosine,warmup:100\n",
              .rows = rows,
              .row_count = sizeof rows / sizeof *rows,
              .input = &lenet},
      .epochs = 5,
      .batch = 64,
      .lr = 0.1f,
      .build = build};
  return run_program(&program, argc, argv);
}
