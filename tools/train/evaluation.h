/* Loss and accuracy, errors or perplexity on the test set. */
#ifndef SL_TOOLS_TRAIN_EVALUATION_H
#define SL_TOOLS_TRAIN_EVALUATION_H

#include "tools/train/session.h"

/* After an epoch: prints and logs them. */
int evaluation_run(struct session *session, int64_t epoch);

/* For a checkpoint of a finished run: evaluates and saves the weights, without a step. */
int evaluation_again(struct session *session);

#endif
