/* --find-rate: a search for a learning rate instead of a training. */
#ifndef SL_TOOLS_TRAIN_FIND_RATE_H
#define SL_TOOLS_TRAIN_FIND_RATE_H

#include "tools/train/session.h"

/* Searches, and prints a table of rates and losses; rank 0 speaks. */
int find_rate(struct session *session);

#endif
