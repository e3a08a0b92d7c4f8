/* --augment=LIST: how the training's pictures are changed at random. */
#ifndef SL_TOOLS_TRAIN_AUGMENTATION_H
#define SL_TOOLS_TRAIN_AUGMENTATION_H

#include "tools/train/cli.h"

/* Reads "shift[=N],flip,colour[=X],brightness=X,..."; NULL: the usual. Returns NULL, or the
 * message. */
const char *augmentation_parse(const char *text, struct augmentation *augmentation);

/* The loader's options for a training on such samples. */
void augmentation_set(const struct cli *cli, const struct sl_dataset_info *info,
                      struct sl_loader_options *options);

#endif
