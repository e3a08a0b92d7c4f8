#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt_model.h"
#include "examples/resnet_model.h"
#include "bench/networks.h"

enum { BATCHES = 10, VOCABULARY = 10000 };

static enum sl_status build_mlp(const struct network *network, struct sl_model *model) {
  const struct sl_dense_options hidden = {.features = network->hidden,
                                          .activation = SL_ACTIVATION_RELU};
  const struct sl_dense_options last = {.features = 10};
  enum sl_status status = sl_dense(model, "fc1", &hidden);
  if (status == SL_OK) status = sl_dense(model, "fc2", &hidden);
  if (status == SL_OK) status = sl_dense(model, "fc3", &last);
  return status;
}

static enum sl_status build_tabular(const struct network *network, struct sl_model *model) {
  const struct sl_dense_options hidden = {.features = network->hidden,
                                          .activation = SL_ACTIVATION_RELU};
  const struct sl_dense_options last = {.features = 1};
  enum sl_status status = sl_dense(model, "fc1", &hidden);
  if (status == SL_OK) status = sl_dense(model, "fc2", &hidden);
  if (status == SL_OK) status = sl_dense(model, "fc3", &hidden);
  if (status == SL_OK) status = sl_dense(model, "fc4", &last);
  return status;
}

static enum sl_status build_lenet(const struct network *network, struct sl_model *model) {
  (void)network;
  const enum sl_activation relu = SL_ACTIVATION_RELU;
  const struct sl_conv2d_options conv1 = {.channels = 20, .kernel_h = 5, .activation = relu};
  const struct sl_conv2d_options conv2 = {.channels = 50, .kernel_h = 5, .activation = relu};
  const struct sl_pool2d_options pool = {.kernel_h = 2};
  const struct sl_dense_options fc1 = {.features = 500, .activation = relu};
  const struct sl_dense_options fc2 = {.features = 10};
  enum sl_status status = sl_conv2d(model, "conv1", &conv1);
  if (status == SL_OK) status = sl_maxpool2d(model, "pool1", &pool);
  if (status == SL_OK) status = sl_conv2d(model, "conv2", &conv2);
  if (status == SL_OK) status = sl_maxpool2d(model, "pool2", &pool);
  if (status == SL_OK) status = sl_dense(model, "fc1", &fc1);
  if (status == SL_OK) status = sl_dense(model, "fc2", &fc2);
  return status;
}

static enum sl_status build_resnet(const struct network *network, struct sl_model *model) {
  (void)network;
  return resnet_build(model, 20, 10, SL_INIT_DEFAULT);
}

/* Dropout after every LSTM layer, but not after the embedding: so it is in MXNet's example. */
static enum sl_status build_lstm(const struct network *network, struct sl_model *model) {
  const struct sl_embedding_options embedding = {.vocabulary = VOCABULARY,
                                                 .features = network->embed};
  const struct sl_lstm_options lstm = {.features = network->hidden};
  const struct sl_dropout_options dropout = {.rate = network->dropout};
  const struct sl_dense_options decoder = {.features = VOCABULARY, .positions = true};
  char name[32];
  enum sl_status status = sl_embedding(model, "embed", &embedding);
  for (int64_t i = 0; i < network->layers && status == SL_OK; i++) {
    snprintf(name, sizeof name, "lstm%lld", (long long)i);
    status = sl_lstm(model, name, &lstm);
    snprintf(name, sizeof name, "drop%lld", (long long)i);
    if (status == SL_OK && network->dropout > 0) status = sl_dropout(model, name, &dropout);
  }
  return status == SL_OK ? sl_dense(model, "decoder", &decoder) : status;
}

static enum sl_status build_gpt(const struct network *network, struct sl_model *model) {
  const struct gpt_options options = {.layers = network->layers,
                                      .heads = network->heads,
                                      .width = network->hidden,
                                      .context = network->seq,
                                      .vocabulary = VOCABULARY,
                                      .own_head = true};
  return gpt_build(model, &options, SL_INIT_DEFAULT);
}

#define IMAGES .optimizer = {.lr = 0.01f, .momentum = 0.9f}
#define LSTM .optimizer = {.lr = 0.1f, .momentum = 0.9f}, .build = build_lstm
#define LENET                                                                                      \
  IMAGES, .build = build_lenet, .first = 24.0 * 24 * 20 * 25,                                      \
          .rest = 8.0 * 8 * 50 * 500 + 800.0 * 500 + 500.0 * 10
/* Nine blocks of 16, 32 and 64 channels; two of them have a projection. */
#define RESNET                                                                                     \
  IMAGES, .build = build_resnet, .channels = 3, .side = 32, .first = 1024.0 * 16 * 27,             \
          .rest = 1024.0 * 6 * 16 * 144 + 256 * (32 * 144 + 5 * 32 * 288 + 32 * 16.0) +            \
                  64 * (64 * 288 + 5 * 64 * 576 + 64 * 32.0) + 640

/* The last one is MXNet's example of model parallelism at its longest sentences. */
static const struct network networks[] = {
    {"mlp", 128, false, IMAGES, .build = build_mlp, .hidden = 512},
    {"mlp4096", 1024, true, IMAGES, .build = build_mlp, .hidden = 4096},
    {"tabular", 256, false, IMAGES, .build = build_tabular, .hidden = 64, .columns = 8},
    {"lenet64", 64, false, LENET},
    {"lenet256", 256, false, LENET},
    {"lenet512", 512, true, LENET},
    {"resnet20_128", 128, false, RESNET},
    {"resnet20", 512, true, RESNET},
    {"lstm2x200", 20, false, LSTM, .seq = 35, .layers = 2, .hidden = 200, .embed = 200},
    {"lstm2x650", 20, false, LSTM, .seq = 35, .layers = 2, .hidden = 650, .embed = 650},
    {"lstm8x200", 20, false, LSTM, .seq = 35, .layers = 8, .hidden = 200, .embed = 200},
    {"lstm2x650_64", 64, true, LSTM, .seq = 35, .layers = 2, .hidden = 650, .embed = 650},
    {"lstm8x1024_64", 64, true, LSTM, .seq = 35, .layers = 8, .hidden = 1024, .embed = 1024},
    {"lstm_mxnet", 20, false, LSTM, .seq = 60, .layers = 8, .hidden = 400, .embed = 200,
     .dropout = 0.5f},
    {"gpt", 8, false, IMAGES, .build = build_gpt, .seq = 128, .layers = 4, .hidden = 256,
     .heads = 4},
    {"gpt2", 8, true, IMAGES, .build = build_gpt, .seq = 1024, .layers = 12, .hidden = 768,
     .heads = 12},
};
enum { NETWORKS = sizeof networks / sizeof *networks };

const struct network *network_at(int i) { return i < NETWORKS ? &networks[i] : NULL; }

const struct network *network_find(const char *name) {
  for (int i = 0; i < NETWORKS; i++)
    if (strcmp(name, networks[i].name) == 0) return &networks[i];
  return NULL;
}

const char *network_unit(const struct network *network) {
  return network->seq ? "words/s" : "samples/s";
}

double network_units(const struct network *network) {
  return (double)network->batch * (double)(network->seq ? network->seq : 1);
}

/* The same layers with few samples, features and steps: to see that all works. */
void network_shrink(struct network *network) {
  network->batch = 4;
  if (network->hidden) network->hidden = 16;
  if (network->embed) network->embed = 16;
  if (network->seq) network->seq = 5;
  if (network->heads) network->heads = 4;
}

void network_trainer(const struct network *network, struct sl_trainer_options *options) {
  options->carry_state = network->seq > 0 && !network->heads;
  if (network->columns) options->loss.kind = SL_LOSS_MSE;
}

double network_gflop(const struct network *network) {
  double h = (double)network->hidden, e = (double)network->embed;
  if (network->build == build_mlp)
    return 2e-9 * network_units(network) * (2 * 784 * h + 3 * (h * h + h * 10));
  if (network->columns)
    return 2e-9 * network_units(network) * (2 * network->columns * h + 3 * (2 * h * h + h));
  if (network->heads) {
    double layers = (double)network->layers, context = (double)network->seq;
    return 6e-9 * network_units(network) * (layers * (12 * h * h + context * h) + h * VOCABULARY);
  }
  double lstm = 4 * h * (e + h) + (double)(network->layers - 1) * 4 * h * 2 * h + h * VOCABULARY;
  double sample = network->seq ? 3 * lstm : 2 * network->first + 3 * network->rest;
  return 2e-9 * network_units(network) * sample;
}

/* ---- data ---- */

/* Words at random, always the same ones: Knuth's linear congruential generator. */
static enum sl_status random_words(const struct network *network, struct sl_dataset **data) {
  int64_t count = BATCHES * network->batch * network->seq + 1;
  int32_t *tokens = malloc((size_t)count * sizeof *tokens);
  if (!tokens) return SL_NO_MEMORY;
  uint64_t state = 1;
  for (int64_t i = 0; i < count; i++) {
    state = state * 6364136223846793005 + 1442695040888963407;
    tokens[i] = (int32_t)((state >> 33) % VOCABULARY);
  }
  enum sl_status status =
      sl_tokens_new("random words", tokens, count, network->seq, VOCABULARY, data);
  free(tokens);
  return status;
}

/* Bytes at random, for what digits do not look like. */
static enum sl_status random_images(const struct network *network, struct sl_dataset **data) {
  const struct sl_shape sample = SL_SHAPE(network->channels, network->side, network->side);
  int64_t count = BATCHES * network->batch, bytes = count * sl_shape_count(&sample);
  uint8_t *pixels = malloc((size_t)bytes);
  int32_t *labels = malloc((size_t)count * sizeof *labels);
  enum sl_status status = pixels && labels ? SL_OK : SL_NO_MEMORY;
  uint64_t state = 1;
  for (int64_t i = 0; status == SL_OK && i < bytes + count; i++) {
    state = state * 6364136223846793005 + 1442695040888963407;
    if (i < bytes)
      pixels[i] = (uint8_t)(state >> 56);
    else
      labels[i - bytes] = (int32_t)((state >> 33) % 10);
  }
  if (status == SL_OK)
    status = sl_dataset_new("random images", &sample, count, 10, pixels, labels, NULL, NULL, data);
  free(pixels);
  free(labels);
  return status;
}

static enum sl_status random_table(const struct network *network, struct sl_dataset **data) {
  const struct sl_dataset_options options = {.name = "random table",
                                             .sample = SL_SHAPE(network->columns),
                                             .target = SL_SHAPE(1),
                                             .count = BATCHES * network->batch};
  int64_t rows = options.count, numbers = rows * (network->columns + 1);
  float *values = malloc((size_t)numbers * sizeof *values);
  if (!values) return SL_NO_MEMORY;
  uint64_t state = 1;
  for (int64_t i = 0; i < numbers; i++) {
    state = state * 6364136223846793005 + 1442695040888963407;
    values[i] = (float)(state >> 40) / (1 << 24);
  }
  enum sl_status status =
      sl_dataset_floats(&options, values, values + rows * network->columns, NULL, false, data);
  free(values);
  return status;
}

enum sl_status network_data(const struct network *network, struct sl_dataset **data,
                            struct sl_loader **loader) {
  const struct sl_loader_options options = {
      .batch = network->batch, .seed = 1, .contiguous = network->seq > 0 && !network->heads};
  enum sl_status status = network->seq    ? random_words(network, data)
                          : network->side ? random_images(network, data)
                          : network->columns
                              ? random_table(network, data)
                              : sl_digits_new(BATCHES * network->batch, 1, true, data);
  return status == SL_OK ? sl_loader_new(*data, &options, loader) : status;
}
