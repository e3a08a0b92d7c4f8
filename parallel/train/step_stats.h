/* Statistics of a step: loss and correct samples, summed over all slices and, in a distributed
 * training, over all workers. Every rank gets the same sums. */
#ifndef SL_PARALLEL_TRAIN_STEP_STATS_H
#define SL_PARALLEL_TRAIN_STEP_STATS_H

#include "parallel/params/exchange.h"

struct sl__step_stats;

/* tag: of two messages. stats, flags: values of the two tensors: 4 for each part of the loss, and
 * SL__ASKS for sl__step_stats_submit. */
enum sl_status sl__step_stats_new(struct sl_context *context, const struct sl__ranks *ranks,
                                  int tag, int64_t stats, int64_t flags,
                                  struct sl__step_stats **step_stats);
void sl__step_stats_free(struct sl__step_stats *step_stats);

/* stats [size], flags [SL__ASKS]: f32 in main memory, one pair for each pending step. stats (see
 * sl__softmax_xent): the sum of terms[count], slice by slice, rank by rank; count is 0 on a rank
 * that has no loss. flags: the number of ranks that ask for each thing. */
enum sl_status sl__step_stats_submit(struct sl__step_stats *step_stats,
                                     const struct sl__launch *launch, int count,
                                     struct sl__tensor *const *terms, const float asks[SL__ASKS],
                                     struct sl__tensor *stats, struct sl__tensor *flags);

/* The same of two tensors [width], which a rank may lack (NULL: it adds nothing). Without other
 * ranks the sum of nothing is left as it is. */
enum sl_status sl__step_stats_sum(struct sl__step_stats *step_stats,
                                  const struct sl__launch *launch,
                                  struct sl__tensor *const terms[2],
                                  struct sl__tensor *const sums[2]);

#endif
