/* The tasks of a slice's backward pass. */
#include <stdlib.h>

#include "parallel/step/plan_tasks.h"

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

static enum sl_status backward_chunk(struct sl__plan *plan, const struct sl__step *step, int s,
                                     int c, int i, const int *writer) {
  const struct sl__layer *layer = &plan->model->layers[i];
  struct sl__pass pass = sl__plan_pass(plan, step, s, c, i, true);
  enum sl_status status = SL_OK;
  /* layers nearer to the input come first: the stage before waits for their gradients */
  pass.launch.priority = SL__PRIORITY_BACKWARD_DATA + plan->model->count - 1 - i;
  /* truncated back-propagation: no gradient comes from beyond the last step */
  if (pass.dstate && c == plan->chunks - 1)
    SL__TRY(sl__fill(pass.context, &pass.launch, pass.dstate, 0));
  if (layer->kind->backward_begin) SL__TRY(layer->kind->backward_begin(layer, &pass));
  if (wants_dx(plan, &plan->slices[s], c, i, writer, &pass))
    SL__TRY(layer->kind->backward_data(layer, &pass));
out:
  return status;
}

/* The gradients of the layer's parameters, of a span whose first chunk is c. */
static enum sl_status backward_weight(struct sl__plan *plan, const struct sl__step *step, int s,
                                      int c, int i) {
  const struct sl__slice *slice = &plan->slices[s];
  const struct sl__layer *layer = &plan->model->layers[i];
  struct sl__pass pass = sl__plan_pass(plan, step, s, c, i, true);
  bool again = slice->microbatch > 0 || c + plan->span < plan->chunks;
  enum sl_status status = SL_OK;
  if (layer->is_frozen || (!layer->params.total && !pass.shared)) return SL_OK;
  pass.grad = step->grads[slice->replica][i];
  pass.grad_rows = step->rows[slice->replica][i];
  pass.add_grad = again || layer->is_tied; /* the layer tied to it wrote its part before */
  pass.add_shared = again;
  if (pass.shared) pass.shared_grad = step->grads[slice->replica][layer->tied_to];
  pass.launch.priority = SL__PRIORITY_BACKWARD_WEIGHT + i;
  pass.launch.mark.aside = true;
  SL__TRY(sl__plan_span_backward(plan, step, s, i, &pass));
  SL__TRY(layer->kind->backward_weight(layer, &pass));
  sl__plan_drop_span(plan, s, i);
out:
  return status;
}

static enum sl_status backward_layer(struct sl__plan *plan, const struct sl__step *step, int s,
                                     int c, int i, const int *writer) {
  enum sl_status status = SL_OK;
  for (int k = c + plan->span - 1; k >= c; k--)
    SL__TRY(backward_chunk(plan, step, s, k, i, writer));
  SL__TRY(backward_weight(plan, step, s, c, i));
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
  int chunk = c * plan->model->count, output = sl__plan_output(plan, i);
  int at = chunk + i, out = chunk + output;
  if (sl__plan_is_applied(plan, i)) return; /* the layer before reads it yet */
  if (slice->y[out] && plan->keeps_output[output])
    sl__tensor_invalidate(sl__plan_value(slice, out, true));
  if (slice->dy[out]) sl__tensor_invalidate(slice->dy[out]);
  if (slice->saved[at] && sl__plan_keeps_saved(plan, i))
    sl__tensor_invalidate(sl__plan_saved(slice, at, true));
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
  if (!sl__plan_joins_loss(plan, step, last))
    tensors[count++] = slice->dy[chunk + sl__plan_output(plan, last)];
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
    if (!slice->y_again[c * plan->model->count + sl__plan_output(plan, i)] ||
        sl__plan_is_applied(plan, i))
      continue;
    struct sl__pass pass = sl__plan_pass(plan, step, s, c, i, true);
    pass.launch.priority = SL__PRIORITY_BACKWARD_DATA + plan->model->count - 1 - last;
    SL__TRY(wait_for_backward(plan, step, s, c, i, last, &pass));
    SL__TRY(plan->model->layers[i].kind->forward(&plan->model->layers[i], &pass));
  }
out:
  return status;
}

/* The messages with the gradients of layer i's output and of its inputs, to its rank. */
static enum sl_status carry_gradients(const struct sl__plan *plan, int s, int c, int i,
                                      const int *writer) {
  enum sl_status status = SL_OK;
  if (writer[i] >= 0) SL__TRY(sl__plan_carry_gradient(plan, s, c, i, writer[i], i));
  SL__TRY(sl__plan_carry_gradients(plan, s, c, i, writer));
out:
  return status;
}

enum sl_status sl__plan_submit_backward(struct sl__plan *plan, const struct sl__step *step, int s,
                                        int c) {
  int layers = plan->model->count, end = c + plan->span;
  int *writer = sl__alloc((size_t)layers, sizeof *writer, "a backward pass");
  enum sl_status status = writer ? SL_OK : SL_NO_MEMORY;
  if (!writer) return status;
  for (int i = 0; i < layers; i++) writer[i] = -1;
  for (int i = layers - 1; i >= 0; i--) {
    bool here = sl__grid_is_here(plan->grid, i), needed = plan->model->layers[i].needs_gradient;
    bool again = plan->grid->run && plan->grid->run[i] == i && here && needed;
    bool joins = sl__plan_joins_loss(plan, step, i);
    for (int k = end - 1; k >= c && needed; k--) SL__TRY(carry_gradients(plan, s, k, i, writer));
    for (int k = c; k < end && again; k++) SL__TRY(compute_again(plan, step, s, k, i));
    if (here && needed && !sl__plan_is_applied(plan, i) && !joins)
      SL__TRY(backward_layer(plan, step, s, c, i, writer));
    if (needed) record_writer(plan, i, writer);
    for (int k = c; k < end && !joins; k++) drop_layer(plan, &plan->slices[s], k, i);
  }
out:
  free(writer);
  return status;
}
