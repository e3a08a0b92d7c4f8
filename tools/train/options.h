/* A run's options as one JSON object, which its checkpoints keep, and what has changed since. */
#ifndef SL_TOOLS_TRAIN_OPTIONS_H
#define SL_TOOLS_TRAIN_OPTIONS_H

#include "tools/train/describe.h"

/* The options with OPTION_NOTED, the devices and the numbers of workers and ranks, defaults filled
 * in and decisions of measurements included. To be freed; NULL without memory. */
char *options_text(const struct description *run);

/* "replicas 2 -> 4, stages none -> 2", or "" where nothing has changed; before may be NULL: not
 * known. To be freed; NULL without memory. */
char *options_changes(const char *before, const char *now);

#endif
