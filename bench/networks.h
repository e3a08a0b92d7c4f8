/* The networks that are measured: those of torch_train.py and mxnet_train.py. */
#ifndef SL_BENCH_NETWORKS_H
#define SL_BENCH_NETWORKS_H

#include <starling.h>

struct network {
  const char *name;
  int64_t batch;
  bool large; /* for GPUs: measured where it is named */
  struct sl_optimizer optimizer;
  enum sl_status (*build)(const struct network *network, struct sl_model *model);
  /* Of images, the multiply-adds of a sample, forward: of the first layer, which needs no gradient
   * of its input, and of the rest. */
  double first, rest;
  int channels, side; /* of the images; 0: digits */
  int columns;        /* of a table with a target, whose loss is MSE; 0: labels */
  /* Of language models; seq is 0 for images. hidden: of multilayer perceptrons, too. */
  int64_t seq, layers, hidden, embed;
  int64_t heads; /* of transformers, as GPT-2 but for a head of their own; hidden: their width */
  float dropout;
};

#define NETWORK_NAMES                                                                              \
  "mlp, mlp4096, tabular, lenet64, lenet256, lenet512, resnet20, resnet20_128, lstm2x200, "        \
  "lstm2x650, lstm2x650_64, lstm8x200, lstm8x1024_64, lstm_mxnet, gpt, gpt2"

/* The network at an index or of a name; NULL where there is none. */
const struct network *network_at(int i);
const struct network *network_find(const char *name);

/* A small one of the same layers. */
void network_shrink(struct network *network);

/* What differs from the trainer's defaults: the state that is carried, the loss. */
void network_trainer(const struct network *network, struct sl_trainer_options *options);

/* The unit of a rate (samples or words), and the number of them in a step. */
const char *network_unit(const struct network *network);
double network_units(const struct network *network);

/* Of products and convolutions in a step: forward, gradients of weights and inputs. */
double network_gflop(const struct network *network);

/* Ten batches, as a stand-in for data in memory, and the loader of them. */
enum sl_status network_data(const struct network *network, struct sl_dataset **data,
                            struct sl_loader **loader);

#endif
