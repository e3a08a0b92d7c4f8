/* ResNets for images of about 32 x 32 pixels: examples/resnet.c trains them, bench/networks.c
 * measures them. */
#ifndef SL_EXAMPLES_RESNET_MODEL_H
#define SL_EXAMPLES_RESNET_MODEL_H

#include <stdbool.h>
#include <starling.h>

/* Number of layers with weights, without the shortcuts': 6 n + 2 for n from 1: 8, 14, 20, ... */
enum { RESNET_LEAST_DEPTH = 8, RESNET_MOST_DEPTH = 1202 };
bool resnet_has_depth(int64_t depth);

/* Appends the layers; the last one gives the classes' logits. Names are those of torchvision's
 * state dicts, "layer1.0.conv1.weight". The layers of a block are a group, "layer1.0", which is
 * placed together. */
enum sl_status resnet_build(struct sl_model *model, int depth, int64_t classes, enum sl_init init);

#endif
