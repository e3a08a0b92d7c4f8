/* A run's options as one JSON object, which its checkpoints keep, and what has changed since. */
#ifndef SL_TOOLS_TRAIN_OPTIONS_H
#define SL_TOOLS_TRAIN_OPTIONS_H

#include "tools/train/describe.h"

/* All that has a say in the training or in where it runs, defaults filled in; what a measurement
 * has decided is there as decided. To be freed; NULL without memory. */
char *options_text(const struct description *run);

/* "replicas 2 -> 4, stages none -> 2", or "" where nothing has changed; before may be NULL: not
 * known. To be freed; NULL without memory. */
char *options_changes(const char *before, const char *now);

#endif
