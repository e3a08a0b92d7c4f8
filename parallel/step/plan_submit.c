/* The tasks of a step: forward passes, losses and backward passes of all slices. */
#include "parallel/step/plan_tasks.h"
#include "parallel/step/precision.h"

/* An output that no backward pass reads, or that it computes again, is of no use after its last
 * reader. */
static void drop_inputs(struct sl__plan *plan, const struct sl__slice *slice, int c, int i) {
  const struct sl__layer *layer = &plan->model->layers[i];
  int chunk = c * plan->model->count;
  for (int k = 0; k < layer->input_count; k++) {
    int input = layer->input[k];
    if (input == SL__INPUT || sl__is_repeated(layer, k)) continue;
    if (plan->keeps_output[input] && !slice->y_again[chunk + input]) continue;
    if (plan->last_use[input] == i) sl__tensor_invalidate(slice->y[chunk + input]);
  }
  if (slice->saved[chunk + i] && (!sl__plan_keeps_saved(plan, i) || slice->saved_again[chunk + i]))
    sl__tensor_invalidate(slice->saved[chunk + i]);
}

struct sl__tensor *sl__plan_stats(const struct sl__plan *plan, const struct sl__step *step, int s,
                                  int c) {
  return step->stats ? step->stats : plan->slices[s].stats[c / plan->span];
}

/* The loss of a span whose first chunk is c. */
static enum sl_status submit_loss(struct sl__plan *plan, const struct sl__step *step, int s,
                                  int c) {
  const struct sl__slice *slice = &plan->slices[s];
  struct sl_model *model = plan->model;
  int last = model->count - 1, at = c * model->count + last;
  int64_t first = 0, steps;
  enum sl_status status = SL_OK;
  struct sl__launch launch = {.name = "loss",
                              .place = sl__grid_device(plan->grid, last, slice->replica)->place,
                              .priority = SL__PRIORITY_LOSS,
                              .mark = sl__slice_mark_of(plan, slice, c, last)};
  struct sl__loss_task task = {.logits = slice->y[at],
                               .targets = sl__part(step->labels, s),
                               .stats = sl__plan_stats(plan, step, s, c),
                               .dlogits = step->training ? slice->dy[at] : NULL,
                               .scale = step->scale[0]};
  if (plan->span > 1) {
    launch.mark.chunk = 0;
    SL__TRY(sl__plan_gather_output(plan, s, &launch, last, false, &task.logits));
    if (step->training) task.dlogits = slice->span_dy[last];
  } else if (plan->chunks > 1) {
    sl__chunk_steps(plan, c, &first, &steps);
    task.from = first;
  }
  SL__TRY(step->loss->part_count
              ? sl__plan_submit_parts(plan, step, s, &launch)
              : step->loss->row->submit(model->context, &launch, step->loss, &task));
  if (plan->span > 1) {
    sl__tensor_invalidate(task.logits);
    if (step->training) SL__TRY(sl__plan_scatter_gradient(plan, s, &launch, last));
  }
  for (int k = c; k < c + plan->span && !step->training && !step->keep_outputs; k++)
    sl__tensor_invalidate(slice->y[k * model->count + last]);
out:
  return status;
}

/* The copies that bf16 passes of layer i read: of the input, and of parameters that were written
 * since the last copy. */
static enum sl_status submit_bf16_copies(struct sl__plan *plan, const struct sl__step *step, int s,
                                         int i) {
  const struct sl__slice *slice = &plan->slices[s];
  enum sl_status status = SL_OK;
  if (plan->grid->math != SL_MATH_BF16) return SL_OK;
  /* all replicas read one copy; it is made where the first replica computes, which begins first */
  const struct sl__place *place = &sl__grid_device(plan->grid, i, 0)->place;
  SL__TRY(sl__bf16_copy_refresh(plan->model, i, place)); /* a tied layer comes after its weight's */
  if (!slice->x || i != plan->input_reader) return SL_OK;
  const struct sl__launch launch = {.name = plan->model->layers[i].name,
                                    .place = sl__grid_device(plan->grid, i, slice->replica)->place,
                                    .priority = SL__PRIORITY_FORWARD + i,
                                    .mark = sl__slice_mark_of(plan, slice, 0, i)};
  status = sl__axpy(plan->model->context, &launch, 1.0f, sl__part(step->x, s), slice->x);
out:
  return status;
}

/* The last layer with the loss and, in training, the gradients of both, of a span whose first chunk
 * is c. The loss of an earlier span or microbatch has written to the parameters' gradient before.
 */
static enum sl_status submit_head(struct sl__plan *plan, const struct sl__step *step, int s,
                                  int c) {
  const struct sl__slice *slice = &plan->slices[s];
  int last = plan->model->count - 1, input = plan->model->layers[last].input[0];
  const struct sl__layer *layer = &plan->model->layers[last];
  struct sl__pass pass = sl__plan_pass(plan, step, s, c, last, false);
  enum sl_status status = SL_OK;
  pass.launch.priority = SL__PRIORITY_LOSS;
  SL__TRY(submit_bf16_copies(plan, step, s, last));
  SL__TRY(sl__plan_span_forward(plan, step, s, last, &pass));
  const struct sl__loss_task task = {.targets = sl__part(step->labels, s),
                                     .stats = sl__plan_stats(plan, step, s, c),
                                     .scale = step->scale[0],
                                     .from = pass.first_step};
  if (step->training) {
    pass.dx[0] = plan->span > 1 ? slice->span_dy[input] : slice->dy[c * plan->model->count + input];
    pass.grad = step->grads[slice->replica][last];
    pass.add_grad = slice->microbatch > 0 || c > 0;
    if (pass.shared) pass.shared_grad = step->grads[slice->replica][layer->tied_to];
  }
  SL__TRY(layer->kind->forward_loss(layer, &pass, step->loss, &task));
  if (plan->span > 1) {
    sl__tensor_invalidate(slice->span_y[input]);
    if (step->training) SL__TRY(sl__plan_scatter_gradient(plan, s, &pass.launch, input));
  }
  for (int k = c; k < c + plan->span; k++) drop_inputs(plan, slice, k, last);
out:
  return status;
}

static enum sl_status forward_layer(struct sl__plan *plan, const struct sl__step *step, int s,
                                    int c, int i) {
  struct sl_model *model = plan->model;
  struct sl__pass pass = sl__plan_pass(plan, step, s, c, i, false);
  enum sl_status status = SL_OK;
  pass.launch.priority = SL__PRIORITY_FORWARD + i;
  SL__TRY(submit_bf16_copies(plan, step, s, i));
  if (pass.state && c == 0 && !(step->carry && plan->has_state))
    SL__TRY(sl__fill(model->context, &pass.launch, pass.state, 0));
  SL__TRY(model->layers[i].kind->forward(&model->layers[i], &pass));
  drop_inputs(plan, &plan->slices[s], c, i);
  bool is_read_back =
      model->layers[i].state_is_cache && sl__plan_keeps_saved(plan, i) && step->training;
  if (pass.state && c == plan->chunks - 1 && !step->keep && !is_read_back)
    sl__tensor_invalidate(pass.state);
out:
  return status;
}

static enum sl_status submit_forward(struct sl__plan *plan, const struct sl__step *step, int s,
                                     int c) {
  const struct sl_model *model = plan->model;
  enum sl_status status = SL_OK;
  for (int i = 0; i < model->count; i++) {
    bool here = sl__grid_is_here(plan->grid, i);
    if (here && !sl__plan_is_applied(plan, i) && !sl__plan_joins_loss(plan, step, i))
      SL__TRY(forward_layer(plan, step, s, c, i));
    SL__TRY(sl__plan_carry_outputs(plan, s, c, i));
    if (here && plan->last_use[i] == i && !plan->keeps_output[i])
      sl__tensor_invalidate(plan->slices[s].y[c * model->count + i]);
  }
  if (plan->slices[s].x && !step->training) sl__tensor_invalidate(plan->slices[s].x);
  bool ends_span = c % plan->span == plan->span - 1;
  if (ends_span && step->labels && sl__grid_is_here(plan->grid, model->count - 1))
    SL__TRY((sl__plan_joins_head(plan, step) ? submit_head : submit_loss)(plan, step, s,
                                                                          c + 1 - plan->span));
out:
  return status;
}

enum sl_status sl__plan_submit(struct sl__plan *plan, const struct sl__step *step) {
  const struct sl__grid *grid = plan->grid;
  enum sl_status status = SL_OK;
  for (int m = 0; m < grid->microbatches; m++) {
    for (int c = 0; c < plan->chunks; c++)
      for (int r = 0; r < grid->replicas; r++)
        SL__TRY(submit_forward(plan, step, r * grid->microbatches + m, c));
    for (int c = plan->chunks - plan->span; step->training && c >= 0; c -= plan->span)
      for (int r = 0; r < grid->replicas; r++)
        SL__TRY(sl__plan_submit_backward(plan, step, r * grid->microbatches + m, c));
  }
  plan->has_state = true;
out:
  return status;
}
