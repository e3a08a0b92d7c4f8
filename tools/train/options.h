/* A run's options as JSON objects, for its log and its checkpoints. */
#ifndef SL_TOOLS_TRAIN_OPTIONS_H
#define SL_TOOLS_TRAIN_OPTIONS_H

#include "tools/train/session.h"

/* The options with the values in force, defaults and what measurements decided filled in, for the
 * log. To be freed; NULL without memory. */
char *options_logged(const struct session *session);

/* Those with OPTION_NOTED, the devices and the numbers of workers and ranks, for checkpoints. To be
 * freed; NULL without memory. */
char *options_noted(const struct session *session);

#endif
