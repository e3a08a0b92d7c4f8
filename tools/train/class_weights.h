/* --class-weights: weights of the classes in the loss. */
#ifndef SL_TOOLS_TRAIN_CLASS_WEIGHTS_H
#define SL_TOOLS_TRAIN_CLASS_WEIGHTS_H

#include "tools/train/session.h"

/* Reads or measures the weights, if there are to be some, for session->loss. Returns the exit
 * code. */
int class_weights_open(struct session *session);

#endif
