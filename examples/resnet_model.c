/* He, Zhang, Ren, Sun, "Deep residual learning for image recognition", arXiv 1512.03385,
 * section 4.2: a 3 x 3 convolution, three stages of n blocks with 16, 32 and 64 channels, the mean
 * of each channel, a dense layer.
 *
 * If a block halves the image, its shortcut is a 1 x 1 convolution of stride 2 with batch
 * normalisation (the paper's option B). The paper's CIFAR networks have option A: every second
 * pixel, padded with channels of zeros. */
#include "examples/resnet_model.h"

#include <stdio.h>

enum { STAGES = 3, CHANNELS = 16, NAME = 48 };

bool resnet_has_depth(int64_t depth) {
  return depth >= RESNET_LEAST_DEPTH && depth <= RESNET_MOST_DEPTH && depth % 6 == 2;
}

struct builder {
  struct sl_model *model;
  struct sl_layer_options layer; /* common settings of all convolutions */
  char x[NAME];                  /* the layer whose output the next layer takes */
  enum sl_status status;         /* the first failure; no layer is appended after it */
};

/* Fills in a layer's common options. inputs NULL: the layer before. */
static struct sl_layer_options layer(const struct builder *b, const char *inputs) {
  struct sl_layer_options options = b->layer;
  options.inputs = inputs;
  return options;
}

/* Appends a convolution that keeps the image's size, or halves it with stride 2, and its
 * normalisation. The bias is the normalisation's. */
static void add_conv(struct builder *b, const char *conv, const char *norm, const char *inputs,
                     int channels, int kernel, int stride) {
  const struct sl_conv2d_options options = {.layer = layer(b, inputs),
                                            .channels = channels,
                                            .kernel_h = kernel,
                                            .stride_h = stride,
                                            .pad_h = kernel / 2,
                                            .no_bias = true};
  if (b->status == SL_OK) b->status = sl_conv2d(b->model, conv, &options);
  if (b->status == SL_OK)
    b->status = sl_batchnorm(b->model, norm, &(struct sl_batchnorm_options){.layer = b->layer});
}

static void add_relu(struct builder *b, const char *name) {
  const struct sl_activation_options relu = {.layer = b->layer, .activation = SL_ACTIVATION_RELU};
  if (b->status == SL_OK) b->status = sl_activate(b->model, name, &relu);
}

/* relu(bn2(conv2(relu(bn1(conv1(x))))) + x), or + downsample(x) where the shape changes. */
static void add_block(struct builder *b, int stage, int block) {
  const int channels = CHANNELS << stage;
  const bool shrinks = stage > 0 && block == 0;
  char group[NAME / 2], ends[2 * NAME];
  char conv1[NAME], bn1[NAME], relu1[NAME], conv2[NAME], bn2[NAME], add[NAME];
  char convx[NAME], bnx[NAME];
  snprintf(group, sizeof group, "layer%d.%d", stage + 1, block);
  snprintf(conv1, sizeof conv1, "%s.conv1", group);
  snprintf(bn1, sizeof bn1, "%s.bn1", group);
  snprintf(relu1, sizeof relu1, "%s.relu1", group);
  snprintf(conv2, sizeof conv2, "%s.conv2", group);
  snprintf(bn2, sizeof bn2, "%s.bn2", group);
  snprintf(convx, sizeof convx, "%s.downsample.0", group);
  snprintf(bnx, sizeof bnx, "%s.downsample.1", group);
  snprintf(add, sizeof add, "%s.add", group);
  snprintf(ends, sizeof ends, "%s,%s", bn2, shrinks ? bnx : b->x);

  b->layer.group = group;
  add_conv(b, conv1, bn1, b->x, channels, 3, shrinks ? 2 : 1);
  add_relu(b, relu1);
  add_conv(b, conv2, bn2, NULL, channels, 3, 1);
  if (shrinks) add_conv(b, convx, bnx, b->x, channels, 1, 2);
  if (b->status == SL_OK)
    b->status = sl_add(b->model, add, &(struct sl_add_options){.layer = layer(b, ends)});
  snprintf(b->x, sizeof b->x, "%s.relu2", group);
  add_relu(b, b->x);
  b->layer.group = NULL;
}

enum sl_status resnet_build(struct sl_model *model, int depth, int64_t classes, enum sl_init init) {
  struct builder b = {.model = model, .layer.init = init, .x = "relu"};
  const struct sl_pool2d_options pool = {.global = true};
  const struct sl_dense_options fc = {.layer.init = init, .features = classes};
  add_conv(&b, "conv1", "bn1", NULL, CHANNELS, 3, 1);
  add_relu(&b, b.x);
  for (int stage = 0; stage < STAGES; stage++)
    for (int block = 0; block < (depth - 2) / 6; block++) add_block(&b, stage, block);
  if (b.status == SL_OK) b.status = sl_avgpool2d(model, "avgpool", &pool);
  return b.status == SL_OK ? sl_dense(model, "fc", &fc) : b.status;
}
