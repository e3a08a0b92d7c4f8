/* What a step tells of itself: the loss and the right ones of all slices and, distributed, of all
 * workers, the same on every rank. */
#ifndef SL_PARALLEL_TRAIN_STEP_STATS_H
#define SL_PARALLEL_TRAIN_STEP_STATS_H

#include "parallel/params/exchange.h"

struct sl__tally;

enum sl_status sl__tally_new(struct sl_context *context, const struct sl__ranks *ranks,
                             struct sl__tally **tally);
void sl__tally_free(struct sl__tally *tally);

/* What a rank may want all to do after the same step. */
enum { SL__WANT_STOP, SL__WANT_SAVE, SL__WANTS = 4 };

/* stats, flags: f32 [4] at home in main memory, one pair a step under way. stats (see
 * sl__softmax_xent): the sum of terms[count], slice by slice, rank by rank; count 0 on a rank that
 * has no loss. flags: of each wish, how many ranks have it. */
enum sl_status sl__tally_submit(struct sl__tally *tally, const struct sl__launch *launch, int count,
                                struct sl_tensor *const *terms, const float wants[SL__WANTS],
                                struct sl_tensor *stats, struct sl_tensor *flags);

#endif
