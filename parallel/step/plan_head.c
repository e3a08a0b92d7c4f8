/* When the last layer and the loss are one operation, so that the logits never exist whole. */
#include "parallel/step/plan_tasks.h"

bool sl__head_takes_loss(const struct sl_model *model, const struct sl_loss *loss, bool training,
                         int64_t logits) {
  const struct sl__layer *head = &model->layers[model->count - 1];
  if (!head->kind->takes_loss || !head->kind->takes_loss(head)) return false;
  if (loss->kind != SL_LOSS_CROSS_ENTROPY || loss->part_count) return false;
  if (logits <= sl__linear_xent_limit()) return false;
  return !training || (!head->is_frozen && head->input[0] != SL__INPUT &&
                       model->layers[head->input[0]].needs_gradient);
}

/* Of the largest slice, all chunks of it: in training they are in memory together. All slices of a
 * plan go the same way. */
static int64_t largest_logits(const struct sl__plan *plan) {
  const struct sl__layer *head = &plan->model->layers[plan->model->count - 1];
  int64_t rows = 0;
  struct sl_shape shape;
  for (int s = 0; s < plan->count; s++)
    if (plan->slices[s].rows > rows) rows = plan->slices[s].rows;
  shape = sl__with_rows(rows, &head->out);
  if (plan->steps) shape.dim[1] = plan->steps;
  return sl_shape_count(&shape);
}

bool sl__plan_joins_head(const struct sl__plan *plan, const struct sl__step *step) {
  return step->labels && !step->keep_outputs &&
         sl__head_takes_loss(plan->model, &step->loss->settings, step->training,
                             largest_logits(plan));
}
