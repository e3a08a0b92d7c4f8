/* Statistics of a step: loss and correct samples, summed over all slices and, in a distributed
 * training, over all workers. Every rank gets the same sums. */
#ifndef SL_PARALLEL_TRAIN_STEP_STATS_H
#define SL_PARALLEL_TRAIN_STEP_STATS_H

#include "parallel/params/exchange.h"

struct sl__step_stats;

/* size: of the statistics, 4 values for each part of the loss. */
enum sl_status sl__step_stats_new(struct sl_context *context, const struct sl__ranks *ranks,
                                  int size, struct sl__step_stats **step_stats);
void sl__step_stats_free(struct sl__step_stats *step_stats);

/* Things that a rank asks all ranks to do after the same step. */
enum { SL__ASK_STOP, SL__ASK_SAVE, SL__ASKS = 4 };

/* stats [size], flags [SL__ASKS]: f32 in main memory, one pair for each pending step. stats (see
 * sl__softmax_xent): the sum of terms[count], slice by slice, rank by rank; count is 0 on a rank
 * that has no loss. flags: the number of ranks that ask for each thing. */
enum sl_status sl__step_stats_submit(struct sl__step_stats *step_stats,
                                     const struct sl__launch *launch, int count,
                                     struct sl__tensor *const *terms, const float asks[SL__ASKS],
                                     struct sl__tensor *stats, struct sl__tensor *flags);

#endif
