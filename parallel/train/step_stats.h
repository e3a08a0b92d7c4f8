/* What a step tells of itself: the loss and the right ones of all slices and, distributed, of all
 * workers, the same on every rank. */
#ifndef SL_PARALLEL_TRAIN_STEP_STATS_H
#define SL_PARALLEL_TRAIN_STEP_STATS_H

#include "parallel/params/exchange.h"

struct sl__step_stats;

enum sl_status sl__step_stats_new(struct sl_context *context, const struct sl__ranks *ranks,
                                  struct sl__step_stats **tally);
void sl__step_stats_free(struct sl__step_stats *tally);

/* What a rank may want all to do after the same step. */
enum { SL__WANT_STOP, SL__WANT_SAVE, SL__WANTS = 4 };

/* stats, flags: f32 [4] at home in main memory, one pair a step under way. stats (see
 * sl__softmax_xent): the sum of terms[count], slice by slice, rank by rank; count 0 on a rank that
 * has no loss. flags: of each wish, how many ranks have it. */
enum sl_status sl__step_stats_submit(struct sl__step_stats *tally, const struct sl__launch *launch,
                                     int count, struct sl__tensor *const *terms,
                                     const float wants[SL__WANTS], struct sl__tensor *stats,
                                     struct sl__tensor *flags);

#endif
