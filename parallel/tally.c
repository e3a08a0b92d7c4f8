#include "parallel/tally.h"

#include <stdlib.h>

#include "core/error.h"
#include "parallel/plan.h"

enum { FACTS = 2 }; /* stats and flags */

struct sl__tally {
  struct sl_context *context;
  struct sl__ranks ranks;           /* size 0: not distributed */
  struct sl_tensor *own[FACTS];     /* of this worker */
  struct sl_tensor **theirs[FACTS]; /* [tellers], on rank 0; [0] is its own */
  struct sl_tensor **list;
};

/* The workers' ranks, the first ones. */
static int tellers(const struct sl__ranks *ranks) { return ranks->workers * sl__members(ranks); }

enum sl_status sl__tally_new(struct sl_context *context, const struct sl__ranks *ranks,
                             struct sl__tally **out) {
  enum sl_status status = SL_NO_MEMORY;
  *out = NULL;
  struct sl__tally *t = sl__alloc(1, sizeof *t, "a tally");
  if (!t) return status;
  t->context = context;
  t->ranks = *ranks;
  size_t most = (size_t)tellers(ranks) + 1;
  t->list = sl__alloc(FACTS * most, sizeof *t->list, "a tally");
  if (!t->list) goto out;
  for (int k = 0; k < FACTS; k++) {
    t->theirs[k] = sl__alloc(most, sizeof **t->theirs, "a tally");
    if (!t->theirs[k]) goto out;
    SL_TRY(sl__tensor_temporary(context, &SL_SHAPE(4), SL_F32, &t->own[k]));
    t->theirs[k][0] = t->own[k];
    for (int w = 1; w < tellers(ranks) && ranks->rank == 0; w++)
      SL_TRY(sl__tensor_temporary(context, &SL_SHAPE(4), SL_F32, &t->theirs[k][w]));
  }
  status = SL_OK;
  *out = t;
  t = NULL;
out:
  sl__tally_free(t);
  return status;
}

void sl__tally_free(struct sl__tally *t) {
  if (!t) return;
  for (int k = 0; k < FACTS; k++) {
    for (int w = 1; t->theirs[k] && w < tellers(&t->ranks); w++) sl__tensor_free(t->theirs[k][w]);
    free(t->theirs[k]);
    sl__tensor_free(t->own[k]);
  }
  free(t->list);
  free(t);
}

/* Rank 0 adds up, worker by worker, and tells all. */
static enum sl_status submit_first(struct sl__tally *t, const struct sl__launch *launch,
                                   struct sl_tensor *const *sums) {
  struct sl__peers workers = {.first = 1, .count = tellers(&t->ranks) - 1, .skip = -1};
  struct sl__peers all = {.first = 1, .count = t->ranks.size - 1, .skip = -1};
  enum sl_status status;
  int n = 0;
  for (int w = 1; w < tellers(&t->ranks); w++)
    for (int k = 0; k < FACTS; k++) t->list[n++] = t->theirs[k][w];
  SL_TRY(sl__receive(t->context, launch, SL_TAG_STATS, &workers, n, t->list));
  for (int k = 0; k < FACTS; k++)
    SL_TRY(sl__reduce(t->context, launch, sums[k], tellers(&t->ranks), t->theirs[k]));
  status = sl__send(t->context, launch, SL_TAG_STATS + 1, &all, FACTS, sums);
out:
  return status;
}

enum sl_status sl__tally_submit(struct sl__tally *t, const struct sl__launch *launch, int count,
                                struct sl_tensor *const *terms, bool stop, struct sl_tensor *stats,
                                struct sl_tensor *flags) {
  struct sl_tensor *sums[FACTS] = {stats, flags};
  struct sl__peers first = {.first = 0, .count = 1, .skip = -1};
  bool tells = sl__is_worker(&t->ranks);
  struct sl__launch message = {.name = "the step's loss", .priority = SL_PRIORITY_LOSS};
  enum sl_status status = SL_OK;
  if (!t->ranks.size) return sl__reduce(t->context, launch, stats, count, terms);
  if (tells) { /* a stage without a loss: 0, which changes no sum */
    SL_TRY(count ? sl__reduce(t->context, launch, t->own[0], count, terms)
                 : sl__fill(t->context, &message, t->own[0], 0));
    SL_TRY(sl__fill(t->context, &message, t->own[1], stop ? 1 : 0));
  }
  if (!t->ranks.rank) return submit_first(t, &message, sums);
  if (tells) SL_TRY(sl__send(t->context, &message, SL_TAG_STATS, &first, FACTS, t->own));
  status = sl__receive(t->context, &message, SL_TAG_STATS + 1, &first, FACTS, sums);
out:
  return status;
}
