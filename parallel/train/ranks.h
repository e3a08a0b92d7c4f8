/* The ranks of a distributed training: their roles, and the weights that they have in common. */
#ifndef SL_PARALLEL_TRAIN_RANKS_H
#define SL_PARALLEL_TRAIN_RANKS_H

#include "parallel/train/trainer.h"

/* The roles of the ranks. ranks->size is 0 if the training is not distributed. */
enum sl_status sl__trainer_ranks(const struct sl_context *context,
                                 const struct sl_trainer_options *options,
                                 const struct sl__grid *grid, struct sl__ranks *ranks);

/* Collective: checks that all ranks have the same model, optimizer and options, and gives them rank
 * 0's weights. */
enum sl_status sl__trainer_join_ranks(struct sl_trainer *trainer,
                                      const struct sl_trainer_options *options);

/* Collective: all ranks get the buffers (running statistics) of the first worker. */
enum sl_status sl__trainer_share_buffers(struct sl_trainer *trainer);

/* Collective: each of these numbers of the workers becomes their sum, in the order of the workers.
 * Those of other ranks do not count. */
enum sl_status sl__trainer_sum(const struct sl_trainer *trainer, double numbers[SL_MAX_FIELDS]);

/* Collective: rank 0 gets the parameters and buffers of the layers that other members of its group
 * have. */
enum sl_status sl__trainer_fetch_weights(struct sl_trainer *trainer);

#endif
