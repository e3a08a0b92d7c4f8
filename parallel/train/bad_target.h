/* A target or label that the loss does not take: which one it is. */
#ifndef SL_PARALLEL_TRAIN_BAD_TARGET_H
#define SL_PARALLEL_TRAIN_BAD_TARGET_H

#include "parallel/train/trainer.h"

/* The kernels count such targets, `count` in the batch of this step. This function reads the batch
 * again and fails with SL_BAD_ARGUMENT and a message that names the first of them: set, sample,
 * place in it, value. i: the loss's part. */
enum sl_status sl__fail_bad_target(const struct sl_trainer *trainer,
                                   const struct sl__pending_step *step, int i, double count);

#endif
