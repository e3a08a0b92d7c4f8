/* ResNets for images of 32 x 32 pixels or so: what examples/resnet.c trains and bench/networks.c
 * measures. */
#ifndef SL_EXAMPLES_RESNET_MODEL_H
#define SL_EXAMPLES_RESNET_MODEL_H

#include <stdbool.h>
#include <starling.h>

/* 6 n + 2 layers with weights beside the shortcuts', n from 1: 8, 14, 20, ... */
enum { RESNET_LEAST_DEPTH = 8, RESNET_MOST_DEPTH = 1202 };
bool resnet_has_depth(int64_t depth);

/* Append the layers; the last one gives the classes' logits. Names are those of torchvision's
 * state dicts, "layer1.0.conv1.weight"; the layers of a block are a group, "layer1.0", to be placed
 * together. */
enum sl_status resnet_build(struct sl_model *model, int depth, int64_t classes, enum sl_init init);

#endif
