/* The inside of a plan's submission: plan_submit.c, plan_borders.c and plan_loss.c. */
#ifndef SL_PARALLEL_STEP_PLAN_TASKS_H
#define SL_PARALLEL_STEP_PLAN_TASKS_H

#include "parallel/step/plan.h"

/* The numbers by which a trace tells a slice's tasks apart. A number is 0 if there is only one
 * stage, replica, microbatch or chunk. */
struct sl__slice_mark sl__slice_mark_of(const struct sl__plan *plan, const struct sl__slice *slice,
                                        int c, int layer);

/* Submit: layer i's output of slice s, chunk c goes to the ranks of the layers that read it. */
enum sl_status sl__plan_carry_outputs(const struct sl__plan *plan, int s, int c, int i);

/* Submit: the gradient of layer i's output goes from the rank of layer `from` to the rank of layer
 * `to`. It visits its readers in the order of one process, the last reader first, so that each adds
 * to the same sum; at the end it is at layer i. */
enum sl_status sl__plan_carry_gradient(const struct sl__plan *plan, int s, int c, int i, int from,
                                       int to);

/* Submit: the gradients that layer i adds to come to its rank. */
enum sl_status sl__plan_carry_gradients(const struct sl__plan *plan, int s, int c, int i,
                                        const int *writer);

/* Are the last layer and the loss one task (plan_head.c)? Not where the step keeps the outputs. */
bool sl__plan_joins_head(const struct sl__plan *plan, const struct sl__step *step);

/* The loss of a slice where it has parts, and what is theirs among the slice's tensors
 * (plan_loss.c). */
enum sl_status sl__plan_submit_parts(struct sl__plan *plan, const struct sl__step *step, int s,
                                     const struct sl__launch *launch);
void sl__plan_free_parts(const struct sl__plan *plan, struct sl__slice *slice);

#endif
