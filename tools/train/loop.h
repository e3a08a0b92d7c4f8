/* Epochs and steps. */
#ifndef SL_TOOLS_TRAIN_LOOP_H
#define SL_TOOLS_TRAIN_LOOP_H

#include "tools/train/session.h"

/* Trains until the last step, or until a signal on any rank. */
int loop_run(struct session *session);

#endif
