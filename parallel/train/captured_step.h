/* Captured steps: the tasks of a step of a training or an evaluation, recorded once for each plan
 * and then submitted as captured graphs (core/graph/graph.h). The bits are those of tasks that are
 * submitted one by one. */
#ifndef SL_PARALLEL_TRAIN_CAPTURED_STEP_H
#define SL_PARALLEL_TRAIN_CAPTURED_STEP_H

#include "core/graph/graph.h"
#include "parallel/train/trainer.h"

/* Not where StarPU's slaves take part: a captured call may have addresses of this process. */
bool sl__may_capture_steps(void);

/* A graph whose calls are joined as those of a trainer's step. */
enum sl_status sl__step_graph_new(struct sl_context *context, struct sl__graph **graph);

/* Submits a step: captures it if it is the first of its kind, then runs the graph. */
enum sl_status sl__captured_step_submit(struct sl_trainer *trainer, struct sl__plan *plan,
                                        const struct sl__step *step, struct sl__pending_step *p);

/* After all tasks have ended. */
void sl__captured_steps_free(struct sl_trainer *trainer);

#endif
