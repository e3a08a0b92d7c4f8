/* The tasks of a loss of parts: each part's columns of output and targets, its loss, and the
 * gradient of all outputs behind each other. The kernels are those of a loss of one part. */
#include <stdlib.h>

#include "parallel/step/plan_tasks.h"
#include "parallel/step/precision.h"

/* ---- tensors ---- */

static enum sl_status rows_tensor(const struct sl__plan *plan, const struct sl__slice *slice,
                                  const struct sl_shape *sample, enum sl_type type,
                                  struct sl__tensor **tensor) {
  struct sl_shape shape = sl__with_rows(slice->rows, sample);
  return sl__tensor_temporary(plan->model->context, &shape, type, tensor);
}

static enum sl_status part_new(const struct sl__plan *plan, const struct sl__slice *slice,
                               const struct sl__loss_part *part, struct sl__part_tensors *tensors) {
  bool labels = sl__loss_takes_labels(&part->loss);
  enum sl_type type = sl__value_type(plan->grid->math);
  enum sl_status status;
  SL__TRY(rows_tensor(plan, slice, &part->field.shape, type, &tensors->z));
  SL__TRY(rows_tensor(plan, slice, &part->target, labels ? SL_I32 : SL_F32, &tensors->targets));
  status = sl__tensor_temporary(plan->model->context, &SL_SHAPE(4), SL_F32, &tensors->stats);
out:
  return status;
}

static enum sl_status slice_take_loss(struct sl__plan *plan, const struct sl__loss *loss,
                                      struct sl__slice *slice) {
  struct sl_context *context = plan->model->context;
  size_t parts = (size_t)loss->part_count, outputs = (size_t)plan->model->output_count;
  enum sl_status status = SL_NO_MEMORY;
  struct sl_row_field field;
  slice->parts = sl__alloc(parts, sizeof *slice->parts, "a slice");
  slice->doutput = sl__alloc(outputs, sizeof *slice->doutput, "a slice");
  if (!slice->parts || !slice->doutput) goto out;
  sl__tensor_free(slice->stats[0]);
  slice->stats[0] = NULL;
  SL__TRY(sl__tensor_temporary(context, &SL_SHAPE(4 * loss->part_count), SL_F32, &slice->stats[0]));
  for (int p = 0; p < loss->part_count; p++)
    SL__TRY(part_new(plan, slice, &loss->parts[p], &slice->parts[p]));
  for (int i = 0; plan->training && sl_model_output_field(plan->model, i, &field); i++)
    SL__TRY(rows_tensor(plan, slice, &field.shape, sl__value_type(plan->grid->math),
                        &slice->doutput[i]));
out:
  return status;
}

enum sl_status sl__plan_take_loss(struct sl__plan *plan, const struct sl__loss *loss) {
  enum sl_status status = SL_OK;
  if (!loss->part_count || !sl__grid_is_here(plan->grid, plan->model->count - 1)) return SL_OK;
  plan->part_count = loss->part_count;
  for (int s = 0; s < plan->count && status == SL_OK; s++)
    status = slice_take_loss(plan, loss, &plan->slices[s]);
  return status;
}

void sl__plan_free_parts(const struct sl__plan *plan, struct sl__slice *slice) {
  for (int p = 0; slice->parts && p < plan->part_count; p++) {
    sl__tensor_free(slice->parts[p].z);
    sl__tensor_free(slice->parts[p].targets);
    sl__tensor_free(slice->parts[p].stats);
  }
  for (int i = 0; slice->doutput && i < plan->model->output_count; i++)
    sl__tensor_free(slice->doutput[i]);
  free(slice->parts);
  free(slice->doutput);
}

/* ---- tasks ---- */

static enum sl_status submit_part(struct sl__plan *plan, const struct sl__step *step, int s, int p,
                                  const struct sl__launch *launch) {
  struct sl_context *context = plan->model->context;
  const struct sl__slice *slice = &plan->slices[s];
  const struct sl__loss_part *part = &step->loss->parts[p];
  const struct sl__part_tensors *t = &slice->parts[p];
  struct sl__tensor *y = slice->y[plan->model->count - 1], *targets = sl__part(step->labels, s);
  const struct sl__loss_task task = {
      .logits = t->z,
      .targets = t->targets,
      .stats = t->stats,
      .dlogits = step->training ? slice->doutput[part->output] : NULL,
      .scale = step->scale[p],
      .part = p};
  enum sl_status status;
  SL__TRY(sl__columns(context, launch, y, t->z, part->field.first));
  SL__TRY((t->targets->type == SL_I32 ? sl__labels : sl__columns)(context, launch, targets,
                                                                  t->targets, part->target_first));
  SL__TRY(part->loss.row->submit(context, launch, &part->loss, &task));
  sl__tensor_invalidate(t->z);
  sl__tensor_invalidate(t->targets);
out:
  return status;
}

/* An output without a part has no gradient. */
static enum sl_status fill_others(struct sl__plan *plan, const struct sl__step *step,
                                  const struct sl__slice *slice, const struct sl__launch *launch) {
  enum sl_status status = SL_OK;
  for (int i = 0, p = 0; i < plan->model->output_count && status == SL_OK; i++) {
    if (p < step->loss->part_count && step->loss->parts[p].output == i)
      p++;
    else
      status = sl__fill(plan->model->context, launch, slice->doutput[i], 0);
  }
  return status;
}

enum sl_status sl__plan_submit_parts(struct sl__plan *plan, const struct sl__step *step, int s,
                                     const struct sl__launch *launch) {
  struct sl_context *context = plan->model->context;
  const struct sl__slice *slice = &plan->slices[s];
  int last = plan->model->count - 1, parts = step->loss->part_count;
  struct sl__tensor *stats[SL_MAX_FIELDS] = {NULL};
  enum sl_status status;
  for (int p = 0; p < parts; p++) {
    SL__TRY(submit_part(plan, step, s, p, launch));
    stats[p] = slice->parts[p].stats;
  }
  SL__TRY(sl__concatenate(context, launch, parts, stats, sl__plan_stats(plan, step, s, 0), 0));
  for (int p = 0; p < parts; p++) sl__tensor_invalidate(stats[p]);
  if (!step->training) return SL_OK;
  SL__TRY(fill_others(plan, step, slice, launch));
  SL__TRY(sl__columns_join(context, launch, plan->model->output_count, slice->doutput,
                           slice->dy[last]));
  for (int i = 0; i < plan->model->output_count; i++) sl__tensor_invalidate(slice->doutput[i]);
out:
  return status;
}
