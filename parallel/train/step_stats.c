#include "parallel/train/step_stats.h"

#include <stdlib.h>

#include "core/base/error.h"
#include "parallel/step/plan.h"

enum { KINDS = 2 }; /* stats and flags */

struct sl__step_stats {
  struct sl_context *context;
  struct sl__ranks ranks;            /* size 0: not distributed */
  struct sl__tensor *own[KINDS];     /* of this rank */
  struct sl__tensor **theirs[KINDS]; /* [ranks], on rank 0; [0] is its own */
  struct sl__tensor *result[KINDS];  /* one for all steps: so steps cannot overtake each other */
  struct sl__tensor **list;
  int tag; /* of the values to rank 0; the sums have the next one */
};

enum sl_status sl__step_stats_new(struct sl_context *context, const struct sl__ranks *ranks,
                                  int tag, int64_t stats, int64_t flags,
                                  struct sl__step_stats **out) {
  const struct sl_shape shape[KINDS] = {SL_SHAPE(stats), SL_SHAPE(flags)};
  enum sl_status status = SL_NO_MEMORY;
  *out = NULL;
  struct sl__step_stats *t = sl__alloc(1, sizeof *t, "a step's statistics");
  if (!t) return status;
  t->context = context;
  t->ranks = *ranks;
  t->tag = tag;
  size_t size = (size_t)ranks->size + 1;
  t->list = sl__alloc(KINDS * size, sizeof *t->list, "a step's statistics");
  if (!t->list) goto out;
  for (int k = 0; k < KINDS; k++) {
    t->theirs[k] = sl__alloc(size, sizeof **t->theirs, "a step's statistics");
    status = t->theirs[k] ? SL_OK : SL_NO_MEMORY;
    if (!t->theirs[k]) goto out;
    SL__TRY(sl__tensor_temporary(context, &shape[k], SL_F32, &t->own[k]));
    SL__TRY(sl__tensor_temporary(context, &shape[k], SL_F32, &t->result[k]));
    t->theirs[k][0] = t->own[k];
    for (int r = 1; r < ranks->size && ranks->rank == 0; r++)
      SL__TRY(sl__tensor_temporary(context, &shape[k], SL_F32, &t->theirs[k][r]));
  }
  *out = t;
  t = NULL;
out:
  sl__step_stats_free(t);
  return status;
}

void sl__step_stats_free(struct sl__step_stats *t) {
  if (!t) return;
  for (int k = 0; k < KINDS; k++) {
    for (int r = 1; t->theirs[k] && r < t->ranks.size; r++) sl__tensor_free(t->theirs[k][r]);
    free(t->theirs[k]);
    sl__tensor_free(t->own[k]);
    sl__tensor_free(t->result[k]);
  }
  free(t->list);
  free(t);
}

/* Rank 0 adds up the ranks' values in their order, and sends the sums to all. */
static enum sl_status submit_first(struct sl__step_stats *t, const struct sl__launch *launch) {
  struct sl__peers others = {.first = 1, .count = t->ranks.size - 1, .skip = -1};
  enum sl_status status;
  int n = 0;
  for (int r = 1; r < t->ranks.size; r++)
    for (int k = 0; k < KINDS; k++) t->list[n++] = t->theirs[k][r];
  SL__TRY(sl__receive(t->context, launch, t->tag, &others, n, t->list));
  for (int k = 0; k < KINDS; k++)
    SL__TRY(sl__reduce(t->context, launch, t->result[k], t->ranks.size, t->theirs[k]));
  status = sl__send(t->context, launch, t->tag + 1, &others, KINDS, t->result);
out:
  return status;
}

/* own of all ranks into the sums. */
static enum sl_status exchange(struct sl__step_stats *t, const struct sl__launch *message,
                               struct sl__tensor *const sums[KINDS]) {
  struct sl__peers first = sl__peer(0);
  enum sl_status status = SL_OK;
  if (!t->ranks.rank) {
    SL__TRY(submit_first(t, message));
  } else {
    SL__TRY(sl__send(t->context, message, t->tag, &first, KINDS, t->own));
    SL__TRY(sl__receive(t->context, message, t->tag + 1, &first, KINDS, t->result));
  }
  for (int k = 0; k < KINDS; k++)
    SL__TRY(sl__reduce(t->context, message, sums[k], 1, &t->result[k]));
out:
  return status;
}

enum sl_status sl__step_stats_submit(struct sl__step_stats *t, const struct sl__launch *launch,
                                     int count, struct sl__tensor *const *terms,
                                     const float asks[SL__ASKS], struct sl__tensor *stats,
                                     struct sl__tensor *flags) {
  struct sl__launch message = {.name = "the step's loss", .priority = SL__PRIORITY_LOSS};
  enum sl_status status = SL_OK;
  if (!t->ranks.size) return sl__reduce(t->context, launch, stats, count, terms);
  /* a rank that is no worker has no loss, but its program, too, may ask to stop */
  SL__TRY(count ? sl__reduce(t->context, launch, t->own[0], count, terms)
                : sl__fill(t->context, &message, t->own[0], 0));
  SL__TRY(sl__set_asks(t->context, &message, t->own[1], asks));
  status = exchange(t, &message, (struct sl__tensor *[]){stats, flags});
out:
  return status;
}

enum sl_status sl__step_stats_sum(struct sl__step_stats *t, const struct sl__launch *launch,
                                  struct sl__tensor *const terms[KINDS],
                                  struct sl__tensor *const sums[KINDS]) {
  enum sl_status status = SL_OK;
  struct sl__tensor *const *into = t->ranks.size ? t->own : sums;
  for (int k = 0; k < KINDS; k++) {
    if (terms[k]) SL__TRY(sl__reduce(t->context, launch, into[k], 1, &terms[k]));
    if (!terms[k] && t->ranks.size) SL__TRY(sl__fill(t->context, launch, into[k], 0));
  }
  if (t->ranks.size) status = exchange(t, launch, sums);
out:
  return status;
}
