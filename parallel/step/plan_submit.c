/* The tasks of a step: forward passes, losses and backward passes of all slices. */
#include <stdlib.h>

#include "parallel/step/plan_tasks.h"
#include "parallel/step/precision.h"

struct sl__slice_mark sl__slice_mark_of(const struct sl__plan *plan, const struct sl__slice *slice,
                                        int c, int layer) {
  const struct sl__grid *grid = plan->grid;
  return (struct sl__slice_mark){.stage = grid->stages > 1 ? 1 + grid->stage[layer] : 0,
                                 .replica = grid->replicas > 1 ? 1 + slice->replica : 0,
                                 .microbatch = grid->microbatches > 1 ? 1 + slice->microbatch : 0,
                                 .chunk = plan->chunks > 1 ? 1 + c : 0};
}

/* The layer whose output layer i writes: its own, or that of a relu behind it. */
static int output_of(const struct sl__plan *plan, int i) {
  return plan->relu[i] >= 0 ? plan->relu[i] : i;
}

/* Does the layer before apply layer i? */
static bool is_applied(const struct sl__plan *plan, int i) {
  int from = plan->model->layers[i].input[0];
  return from != SL__INPUT && plan->relu[from] == i;
}

/* The output at `at` (chunk and layer) as a forward or a backward pass sees it. */
static struct sl__tensor *value_at(const struct sl__slice *slice, int at, bool backward) {
  return backward && slice->y_again[at] ? slice->y_again[at] : slice->y[at];
}
static struct sl__tensor *saved_at(const struct sl__slice *slice, int at, bool backward) {
  return backward && slice->saved_again[at] ? slice->saved_again[at] : slice->saved[at];
}

/* A cache of the sequence so far is of no use where a pass has the whole sequence. */
static bool uses_state(const struct sl__plan *plan, const struct sl__step *step, int i) {
  return !plan->model->layers[i].state_is_cache || plan->chunks > 1 || step->carry || step->keep;
}

/* The pass of layer i on a chunk of a slice; dx and grad are for the backward half. backward: with
 * what is computed again in place of the forward pass's. Valid until the next call. */
static struct sl__pass layer_pass(struct sl__plan *plan, const struct sl__step *step, int s, int c,
                                  int i, bool backward) {
  const struct sl__slice *slice = &plan->slices[s];
  const struct sl__layer *layers = plan->model->layers, *layer = &layers[i];
  int chunk = c * plan->model->count, out = chunk + output_of(plan, i);
  struct sl__pass pass = {.context = plan->model->context,
                          .launch = {.name = layer->name,
                                     .place = sl__grid_device(plan->grid, i, slice->replica)->place,
                                     .tf32 = plan->grid->math == SL_MATH_TF32,
                                     .mark = sl__slice_mark_of(plan, slice, c, i)},
                          .param = sl__param_of(plan->model, i, plan->grid->math),
                          .x = plan->x,
                          .dx = plan->dx,
                          .add_dx = plan->add_dx,
                          .y = value_at(slice, out, backward),
                          .saved = saved_at(slice, chunk + i, backward),
                          .dy = slice->dy[out],
                          .has_relu = plan->relu[i] >= 0,
                          .defers_activation = plan->defers_activation[i],
                          .training = step->training,
                          .step = step->number,
                          .first_row = step->first_row + slice->first_row,
                          .slices = plan->count};
  /* a sample that is not cut in time has all its steps, whatever its axes mean */
  if (plan->chunks > 1 || (plan->steps && plan->steps < plan->model->sample.dim[0]))
    sl__chunk_steps(plan, c, &pass.first_step, &pass.steps);
  pass.position = step->position + pass.first_step;
  if (uses_state(plan, step, i)) {
    pass.state = slice->state[i];
    pass.dstate = slice->dstate[i];
  }
  if (layer->input[0] != SL__INPUT && plan->defers_activation[layer->input[0]])
    pass.input_activation = layers[layer->input[0]].kind->activation(&layers[layer->input[0]]);
  if (layer->tied_to >= 0)
    pass.shared = sl__param_of(plan->model, layer->tied_to, plan->grid->math);
  for (int k = 0; k < layer->input_count; k++) {
    pass.dx[k] = NULL;
    pass.add_dx[k] = false;
    pass.x[k] = layer->input[k] != SL__INPUT ? value_at(slice, chunk + layer->input[k], backward)
                : slice->x && !layer->gives_tokens ? slice->x
                                                   : sl__part(step->x, s);
  }
  return pass;
}

/* Does a backward pass of layer i read what its forward pass saved? */
static bool keeps_saved(const struct sl__plan *plan, int i) {
  return plan->training && plan->model->layers[i].needs_gradient;
}

/* ---- forward ---- */

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
  if (slice->saved[chunk + i] && (!keeps_saved(plan, i) || slice->saved_again[chunk + i]))
    sl__tensor_invalidate(slice->saved[chunk + i]);
}

static enum sl_status submit_loss(struct sl__plan *plan, const struct sl__step *step, int s,
                                  int c) {
  const struct sl__slice *slice = &plan->slices[s];
  struct sl_model *model = plan->model;
  int last = model->count - 1, at = c * model->count + last;
  int64_t first = 0, steps;
  struct sl__launch launch = {.name = "loss",
                              .place = sl__grid_device(plan->grid, last, slice->replica)->place,
                              .priority = SL__PRIORITY_LOSS,
                              .mark = sl__slice_mark_of(plan, slice, c, last)};
  if (plan->chunks > 1) sl__chunk_steps(plan, c, &first, &steps);
  const struct sl__loss_task task = {.logits = slice->y[at],
                                     .targets = sl__part(step->labels, s),
                                     .stats = slice->stats[c],
                                     .dlogits = step->training ? slice->dy[at] : NULL,
                                     .scale = step->scale[0],
                                     .from = first};
  enum sl_status status = step->loss->part_count
                              ? sl__plan_submit_parts(plan, step, s, &launch)
                              : step->loss->row->submit(model->context, &launch, step->loss, &task);
  if (!step->training && !step->keep_outputs) sl__tensor_invalidate(slice->y[at]);
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

/* Is layer i the last one, and its task that of the loss, too? */
static bool joins_loss(const struct sl__plan *plan, const struct sl__step *step, int i) {
  return i == plan->model->count - 1 && sl__plan_joins_head(plan, step);
}

/* The last layer with the loss and, in training, the gradients of both. The loss of an earlier
 * chunk or microbatch has written to the parameters' gradient before. */
static enum sl_status submit_head(struct sl__plan *plan, const struct sl__step *step, int s, int c,
                                  struct sl__pass *pass) {
  const struct sl__slice *slice = &plan->slices[s];
  int last = plan->model->count - 1, input = plan->model->layers[last].input[0];
  const struct sl__layer *layer = &plan->model->layers[last];
  int64_t first = 0, steps;
  if (plan->chunks > 1) sl__chunk_steps(plan, c, &first, &steps);
  const struct sl__loss_task task = {.targets = sl__part(step->labels, s),
                                     .stats = slice->stats[c],
                                     .scale = step->scale[0],
                                     .from = first};
  pass->launch.priority = SL__PRIORITY_LOSS;
  if (step->training) {
    pass->dx[0] = slice->dy[c * plan->model->count + input];
    pass->grad = step->grads[slice->replica][last];
    pass->add_grad = slice->microbatch > 0 || c > 0;
    if (pass->shared) pass->shared_grad = step->grads[slice->replica][layer->tied_to];
  }
  return layer->kind->forward_loss(layer, pass, step->loss, &task);
}

static enum sl_status forward_layer(struct sl__plan *plan, const struct sl__step *step, int s,
                                    int c, int i) {
  struct sl_model *model = plan->model;
  struct sl__pass pass = layer_pass(plan, step, s, c, i, false);
  enum sl_status status = SL_OK;
  pass.launch.priority = SL__PRIORITY_FORWARD + i;
  SL__TRY(submit_bf16_copies(plan, step, s, i));
  if (pass.state && c == 0 && !(step->carry && plan->has_state))
    SL__TRY(sl__fill(model->context, &pass.launch, pass.state, 0));
  if (joins_loss(plan, step, i))
    SL__TRY(submit_head(plan, step, s, c, &pass));
  else
    SL__TRY(model->layers[i].kind->forward(&model->layers[i], &pass));
  drop_inputs(plan, &plan->slices[s], c, i);
  bool is_read_back = model->layers[i].state_is_cache && keeps_saved(plan, i) && step->training;
  if (pass.state && c == plan->chunks - 1 && !step->keep && !is_read_back)
    sl__tensor_invalidate(pass.state);
out:
  return status;
}

static enum sl_status submit_forward(struct sl__plan *plan, const struct sl__step *step, int s,
                                     int c) {
  struct sl_model *model = plan->model;
  enum sl_status status = SL_OK;
  for (int i = 0; i < model->count; i++) {
    bool here = sl__grid_is_here(plan->grid, i);
    if (here && !is_applied(plan, i)) SL__TRY(forward_layer(plan, step, s, c, i));
    SL__TRY(sl__plan_carry_outputs(plan, s, c, i));
    if (here && plan->last_use[i] == i && !plan->keeps_output[i])
      sl__tensor_invalidate(plan->slices[s].y[c * model->count + i]);
  }
  if (plan->slices[s].x && !step->training) sl__tensor_invalidate(plan->slices[s].x);
  if (step->labels && sl__grid_is_here(plan->grid, model->count - 1) &&
      !sl__plan_joins_head(plan, step))
    SL__TRY(submit_loss(plan, step, s, c));
out:
  return status;
}

/* ---- backward ---- */

/* The gradients of layer i's inputs: the first reader of an input writes its gradient, the others
 * add to it. writer: the layer that wrote last; -1: none. */
static bool wants_dx(struct sl__plan *plan, const struct sl__slice *slice, int c, int i,
                     const int *writer, struct sl__pass *pass) {
  const struct sl__layer *layer = &plan->model->layers[i];
  bool any = false;
  for (int k = 0; k < layer->input_count; k++) {
    int input = layer->input[k];
    if (input == SL__INPUT || !plan->model->layers[input].needs_gradient) continue;
    pass->dx[k] = slice->dy[c * plan->model->count + input];
    pass->add_dx[k] = writer[input] >= 0 || sl__is_repeated(layer, k);
    any = true;
  }
  return any;
}

static void record_writer(const struct sl__plan *plan, int i, int *writer) {
  const struct sl__layer *layer = &plan->model->layers[i];
  for (int k = 0; k < layer->input_count; k++)
    if (layer->input[k] != SL__INPUT && plan->model->layers[layer->input[k]].needs_gradient)
      writer[layer->input[k]] = i;
}

static enum sl_status backward_layer(struct sl__plan *plan, const struct sl__step *step, int s,
                                     int c, int i, const int *writer) {
  const struct sl__slice *slice = &plan->slices[s];
  const struct sl__layer *layer = &plan->model->layers[i];
  struct sl__pass pass = layer_pass(plan, step, s, c, i, true);
  enum sl_status status = SL_OK;
  bool last_chunk = c == plan->chunks - 1;
  /* layers nearer to the input come first: the stage before waits for their gradients */
  pass.launch.priority = SL__PRIORITY_BACKWARD_DATA + plan->model->count - 1 - i;
  /* truncated back-propagation: no gradient comes from beyond the last step */
  if (pass.dstate && last_chunk) SL__TRY(sl__fill(pass.context, &pass.launch, pass.dstate, 0));
  if (layer->kind->backward_begin) SL__TRY(layer->kind->backward_begin(layer, &pass));
  if (wants_dx(plan, slice, c, i, writer, &pass)) SL__TRY(layer->kind->backward_data(layer, &pass));
  if (!layer->is_frozen && (layer->params.total || pass.shared)) {
    bool again = slice->microbatch > 0 || !last_chunk;
    pass.grad = step->grads[slice->replica][i];
    pass.grad_rows = step->rows[slice->replica][i];
    pass.add_grad = again || layer->is_tied; /* the layer tied to it wrote its part before */
    pass.add_shared = again;
    if (pass.shared) pass.shared_grad = step->grads[slice->replica][layer->tied_to];
    pass.launch.priority = SL__PRIORITY_BACKWARD_WEIGHT + i;
    pass.launch.mark.aside = true;
    SL__TRY(layer->kind->backward_weight(layer, &pass));
  }
out:
  return status;
}

static void drop_state(const struct sl__plan *plan, const struct sl__slice *slice, int i) {
  bool is_cache = plan->model->layers[i].state_is_cache;
  if (is_cache && plan->chunks == 1) return;
  sl__tensor_invalidate(slice->dstate[i]);
  if (is_cache) sl__tensor_invalidate(slice->state[i]);
}

static void drop_layer(const struct sl__plan *plan, const struct sl__slice *slice, int c, int i) {
  int chunk = c * plan->model->count, output = output_of(plan, i);
  int at = chunk + i, out = chunk + output;
  if (is_applied(plan, i)) return; /* the layer before reads it yet */
  if (slice->y[out] && plan->keeps_output[output])
    sl__tensor_invalidate(value_at(slice, out, true));
  if (slice->dy[out]) sl__tensor_invalidate(slice->dy[out]);
  if (slice->saved[at] && keeps_saved(plan, i)) sl__tensor_invalidate(saved_at(slice, at, true));
  if (slice->dstate[i] && c == 0) drop_state(plan, slice, i);
  if (slice->x && i == plan->input_reader) sl__tensor_invalidate(slice->x);
}

/* The first layer of the run that ends with layer `last`. */
static int first_of_run(const struct sl__plan *plan, int last) {
  const int *run = plan->grid->run;
  while (last > 0 && run[last - 1] == run[last]) last--;
  return last;
}

/* The gradients of the run behind layer `last`, the backward pass of which came before: with them,
 * that run's outputs are of no use. Returns their number. */
static int gradients_behind(const struct sl__plan *plan, const struct sl__step *step, int replica,
                            int last, struct sl__tensor **grads) {
  const struct sl_model *model = plan->model;
  int count = 0, i = last + 1;
  while (i < model->count && plan->grid->run[i] < 0) i++;
  for (int end = i < model->count ? plan->grid->run[i] : -1; i <= end; i++) {
    struct sl__tensor *grad = step->grads[replica][i];
    if (grad && sl__layer_trains(&model->layers[i]) && sl__grid_is_here(plan->grid, i))
      grads[count++] = grad;
  }
  return count;
}

/* Layer i of the run that ends with layer `last` waits for the backward pass, if it reads nothing
 * of its run: all that it needs is there long before, and so the memory of all runs would be taken
 * at once. */
static enum sl_status wait_for_backward(struct sl__plan *plan, const struct sl__step *step, int s,
                                        int c, int i, int last, const struct sl__pass *pass) {
  const struct sl__slice *slice = &plan->slices[s];
  const struct sl__layer *layer = &plan->model->layers[i];
  int chunk = c * plan->model->count, count = 0, first = first_of_run(plan, last);
  struct sl__tensor *tensors[plan->model->count + 2];
  for (int k = 0; k < layer->input_count; k++)
    if (layer->input[k] != SL__INPUT && layer->input[k] >= first) return SL_OK;
  tensors[count++] = pass->y;
  if (!joins_loss(plan, step, last)) tensors[count++] = slice->dy[chunk + output_of(plan, last)];
  count += gradients_behind(plan, step, slice->replica, last, tensors + count);
  return sl__wait_for(plan->model->context, &pass->launch, count, tensors);
}

/* The forward passes of the run that ends with layer `last`, as far as their outputs were not kept.
 */
static enum sl_status compute_again(struct sl__plan *plan, const struct sl__step *step, int s,
                                    int c, int last) {
  const struct sl__slice *slice = &plan->slices[s];
  enum sl_status status = SL_OK;
  for (int i = first_of_run(plan, last); i <= last; i++) {
    if (!slice->y_again[c * plan->model->count + output_of(plan, i)] || is_applied(plan, i))
      continue;
    struct sl__pass pass = layer_pass(plan, step, s, c, i, true);
    pass.launch.priority = SL__PRIORITY_BACKWARD_DATA + plan->model->count - 1 - last;
    SL__TRY(wait_for_backward(plan, step, s, c, i, last, &pass));
    SL__TRY(plan->model->layers[i].kind->forward(&plan->model->layers[i], &pass));
  }
out:
  return status;
}

static enum sl_status submit_backward(struct sl__plan *plan, const struct sl__step *step, int s,
                                      int c) {
  int layers = plan->model->count;
  int *writer = sl__alloc((size_t)layers, sizeof *writer, "a backward pass");
  enum sl_status status = writer ? SL_OK : SL_NO_MEMORY;
  if (!writer) return status;
  for (int i = 0; i < layers; i++) writer[i] = -1;
  for (int i = layers - 1; i >= 0; i--) {
    bool here = sl__grid_is_here(plan->grid, i);
    if (plan->model->layers[i].needs_gradient) {
      if (writer[i] >= 0) SL__TRY(sl__plan_carry_gradient(plan, s, c, i, writer[i], i));
      SL__TRY(sl__plan_carry_gradients(plan, s, c, i, writer));
      if (plan->grid->run && plan->grid->run[i] == i && here)
        SL__TRY(compute_again(plan, step, s, c, i));
      if (here && !is_applied(plan, i) && !joins_loss(plan, step, i))
        SL__TRY(backward_layer(plan, step, s, c, i, writer));
      record_writer(plan, i, writer);
    }
    if (!joins_loss(plan, step, i)) drop_layer(plan, &plan->slices[s], c, i);
  }
out:
  free(writer);
  return status;
}

enum sl_status sl__plan_submit(struct sl__plan *plan, const struct sl__step *step) {
  const struct sl__grid *grid = plan->grid;
  enum sl_status status = SL_OK;
  for (int m = 0; m < grid->microbatches; m++) {
    for (int c = 0; c < plan->chunks; c++)
      for (int r = 0; r < grid->replicas; r++)
        SL__TRY(submit_forward(plan, step, r * grid->microbatches + m, c));
    for (int c = plan->chunks - 1; step->training && c >= 0; c--)
      for (int r = 0; r < grid->replicas; r++)
        SL__TRY(submit_backward(plan, step, r * grid->microbatches + m, c));
  }
  plan->has_state = true;
out:
  return status;
}
