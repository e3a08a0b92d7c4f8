/* Time of a placement's step: the dataflow of parallel/step/plan_submit.c played through with given
 * times, so that bubbles, barriers and steps in flight are in the answer. */
#ifndef SL_PARALLEL_PLANNING_STEP_SIMULATOR_H
#define SL_PARALLEL_PLANNING_STEP_SIMULATOR_H

#include <starling/base.h>

struct sl__step_model {
  int layers, stages, microbatches, chunks, in_flight; /* each at least 1 */
  const int *stage; /* [layers], each stage on a device of its own */
  /* [layers] ms; all but the update's of one chunk of one microbatch. The last layer's forward has
   * the loss in it. */
  const double *forward, *backward_data, *backward_weight, *update;
  const double *cut_ms; /* [stages] of one chunk's way from the stage before; [0] is not read */
  bool barrier;         /* updates wait for all gradients: their norm is clipped */
};

/* Time from one step's end to the next one's, once they follow each other evenly. */
enum sl_status sl__simulate_step_period(const struct sl__step_model *pipeline, double *ms);

#endif
