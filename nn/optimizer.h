/* The type of an optimizer: a row of nn/optimizers.def. */
#ifndef SL_NN_OPTIMIZER_H
#define SL_NN_OPTIMIZER_H

#include "codelets/codelets.h"

/* The state tensors of a parameter: at most two of the optimizer, and its average. */
enum { SL__OPTIMIZER_STATES = 2, SL__AVERAGE = SL__OPTIMIZER_STATES, SL__STATES };

/* Settings that only some optimizers take; lr, weight_decay and clip are for all. */
enum sl__optimizer_takes {
  SL__TAKES_MOMENTUM = 1,
  SL__TAKES_BETA1 = 2,
  SL__TAKES_BETA2 = 4,
  SL__TAKES_EPSILON = 8
};

struct sl__optimizer {
  const char *name;     /* for --optimizer and sl_optimizer_parse */
  const char *saved_as; /* name in a checkpoint; NULL: `name` */
  enum sl_optimizer_kind kind;
  struct sl_optimizer start;    /* settings that the name stands for, besides the kind */
  struct sl_optimizer defaults; /* for settings that are 0 */
  unsigned takes;               /* SL__TAKES_... */
  bool decoupled;               /* weight decay shrinks parameters directly */
  struct sl__op *update;
  bool trusts; /* the step depends on the norm of each parameter: sl__lamb_moments, sl__lamb */
  /* Updates single rows of a table; NULL if the state changes rows without a gradient, too. Not
   * used with weight decay, which changes all rows. */
  enum sl_status (*update_rows)(struct sl_context *context, const struct sl__launch *launch,
                                struct sl__tensor *param, int64_t first, struct sl__tensor *rows,
                                struct sl__tensor *values, struct sl__tensor *norm,
                                const struct sl__update *update);
  const char *state[SL__OPTIMIZER_STATES]; /* names in a checkpoint: PyTorch's */
};

/* The row for checked settings. */
const struct sl__optimizer *sl__optimizer_of(const struct sl_optimizer *settings);

/* Number of state tensors, each of the parameter's size: 0 to SL__STATES. */
int sl__optimizer_states(const struct sl_optimizer *settings);

/* The name of state k (of SL__STATES) in a checkpoint; NULL: it is not kept. */
const char *sl__optimizer_state(const struct sl_optimizer *settings, int k);

/* Does a row of a table stay the same if it has no gradient? */
bool sl__optimizer_skips_rows(const struct sl_optimizer *settings);

/* All settings as text; ranks compare their texts. Returns text. */
#define SL__OPTIMIZER_TEXT 320
const char *sl__optimizer_text(const struct sl_optimizer *settings, char text[SL__OPTIMIZER_TEXT]);

/* The update operation's arguments. step: from 0; lr: the rate of this step */
struct sl__update sl__update_of(const struct sl_optimizer *settings, int64_t step, float lr);

/* SL_BAD_ARGUMENT, naming the member, for a schedule that sl_schedule_parse would not give. */
enum sl_status sl__schedule_check(const struct sl_schedule *schedule);

/* What counts of a checked schedule, as text; ranks compare their texts. Returns text. */
#define SL__SCHEDULE_TEXT 256
const char *sl__schedule_text(const struct sl_schedule *schedule, char text[SL__SCHEDULE_TEXT]);

#endif
