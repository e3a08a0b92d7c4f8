/* Weights and checkpoints during a training. */
#ifndef SL_TOOLS_TRAIN_SAVING_H
#define SL_TOOLS_TRAIN_SAVING_H

#include "tools/train/session.h"

/* Writes the weights of --save, by rank 0. */
int saving_weights(struct session *session);

/* Is a checkpoint due after this step? */
bool saving_is_due(const struct session *session, int64_t done);

/* --checkpoint-every Nmin: rank 0's clock holds for all ranks; they learn it with a step's loss. */
void saving_watch_clock(struct session *session);

/* Begins a checkpoint, after the one before has ended. last: no step follows. */
int saving_begin(struct session *session, bool last);

/* Has the checkpoint being written ended? */
int saving_poll(struct session *session);

/* Waits for it, on all ranks together. */
int saving_end(struct session *session, bool last);

#endif
