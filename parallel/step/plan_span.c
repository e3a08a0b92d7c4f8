/* Spans of chunks in time. What sums over the time steps of a slice (gradients of weights, a loss)
 * takes a span at once: the chunks' tensors are put together before, so that the sums have the
 * order of a sequence that is not cut. In models with a recurrent state a span is one chunk: a
 * later chunk is of no use to an earlier one's loss there, and the state's own weights add up chunk
 * by chunk. */
#include <stdlib.h>

#include "parallel/step/plan_tasks.h"
#include "parallel/step/precision.h"

/* ---- tensors ---- */

static enum sl_status whole_tensor(const struct sl__plan *plan, const struct sl__tensor *part,
                                   int64_t most, struct sl__tensor **tensor) {
  if (!part) return SL_OK;
  struct sl_shape shape = part->shape, largest = shape;
  shape.dim[1] = plan->steps;
  largest.dim[1] = most;
  return sl__tensor_temporary_in(plan->model->context, &shape, &largest, part->type, tensor);
}

enum sl_status sl__plan_spans_new(const struct sl__plan *plan, struct sl__slice *slice) {
  const struct sl_model *model = plan->model;
  size_t layers = (size_t)model->count;
  int64_t most = model->sample.dim[0];
  enum sl_status status = SL_OK;
  if (plan->span == 1) return SL_OK;
  slice->span_y = sl__alloc(layers, sizeof *slice->span_y, "a slice");
  slice->span_dy = sl__alloc(layers, sizeof *slice->span_dy, "a slice");
  slice->span_saved = sl__alloc(layers, sizeof *slice->span_saved, "a slice");
  if (!slice->span_y || !slice->span_dy || !slice->span_saved) return SL_NO_MEMORY;
  for (int i = 0; i < model->count; i++) {
    SL__TRY(whole_tensor(plan, slice->y[i], most, &slice->span_y[i]));
    SL__TRY(whole_tensor(plan, slice->dy[i], most, &slice->span_dy[i]));
    if (model->layers[i].saved_per_row)
      SL__TRY(whole_tensor(plan, slice->saved[i], most, &slice->span_saved[i]));
  }
out:
  return status;
}

/* ---- tasks ---- */

/* Which tensors of the chunks: of layer i, as a forward or a backward pass sees them. */
typedef struct sl__tensor *chunk_tensor(const struct sl__slice *slice, int at, bool backward);

static struct sl__tensor *gradient_at(const struct sl__slice *slice, int at, bool backward) {
  (void)backward;
  return slice->dy[at];
}

static enum sl_status gather(const struct sl__plan *plan, const struct sl__slice *slice,
                             const struct sl__launch *launch, chunk_tensor *of, int i,
                             bool backward, struct sl__tensor *whole) {
  struct sl__launch copy = *launch;
  copy.accumulate = false;
  for (int c = 0; c < plan->chunks; c++)
    plan->parts[c] = of(slice, c * plan->model->count + i, backward);
  return sl__concatenate(plan->model->context, &copy, plan->chunks, plan->parts, whole, 1);
}

enum sl_status sl__plan_gather_output(const struct sl__plan *plan, int s,
                                      const struct sl__launch *launch, int i, bool backward,
                                      struct sl__tensor **whole) {
  const struct sl__slice *slice = &plan->slices[s];
  *whole = slice->span_y[i];
  return gather(plan, slice, launch, sl__plan_value, i, backward, *whole);
}

enum sl_status sl__plan_scatter_gradient(const struct sl__plan *plan, int s,
                                         const struct sl__launch *launch, int i) {
  const struct sl__slice *slice = &plan->slices[s];
  struct sl__launch copy = *launch;
  enum sl_status status = SL_OK;
  int64_t first, steps;
  copy.accumulate = false;
  for (int c = 0; c < plan->chunks; c++) {
    sl__chunk_steps(plan, c, &first, &steps);
    SL__TRY(sl__slice(plan->model->context, &copy, slice->span_dy[i],
                      slice->dy[c * plan->model->count + i], 1, first));
  }
  sl__tensor_invalidate(slice->span_dy[i]);
out:
  return status;
}

/* The tokens of the model's input are never cut. */
static enum sl_status gather_inputs(const struct sl__plan *plan, int s, int i, bool backward,
                                    struct sl__pass *pass) {
  const struct sl__layer *layer = &plan->model->layers[i];
  enum sl_status status = SL_OK;
  for (int k = 0; k < layer->input_count && status == SL_OK; k++) {
    int input = layer->input[k];
    if (input == SL__INPUT) continue;
    pass->x[k] = plan->slices[s].span_y[input];
    if (sl__is_repeated(layer, k)) continue;
    status = sl__plan_gather_output(plan, s, &pass->launch, input, backward, &pass->x[k]);
  }
  return status;
}

static void of_all_steps(const struct sl__plan *plan, const struct sl__step *step,
                         struct sl__pass *pass) {
  pass->first_step = 0;
  pass->steps = plan->steps < plan->model->sample.dim[0] ? plan->steps : 0;
  pass->position = step->position;
  pass->launch.mark.chunk = 0;
}

enum sl_status sl__plan_span_forward(const struct sl__plan *plan, const struct sl__step *step,
                                     int s, int i, struct sl__pass *pass) {
  if (plan->span == 1) return SL_OK;
  of_all_steps(plan, step, pass);
  return gather_inputs(plan, s, i, false, pass);
}

enum sl_status sl__plan_span_backward(const struct sl__plan *plan, const struct sl__step *step,
                                      int s, int i, struct sl__pass *pass) {
  const struct sl__slice *slice = &plan->slices[s];
  const struct sl__layer *layer = &plan->model->layers[i];
  int out = sl__plan_output(plan, i);
  enum sl_status status = SL_OK;
  if (plan->span == 1) return SL_OK;
  of_all_steps(plan, step, pass);
  SL__TRY(gather_inputs(plan, s, i, true, pass));
  pass->dy = slice->span_dy[out];
  SL__TRY(gather(plan, slice, &pass->launch, gradient_at, out, true, pass->dy));
  if (layer->kind->weight_reads_output)
    SL__TRY(sl__plan_gather_output(plan, s, &pass->launch, out, true, &pass->y));
  if (!layer->saved.ndim || !layer->saved_per_row) return SL_OK;
  pass->saved = slice->span_saved[i];
  SL__TRY(gather(plan, slice, &pass->launch, sl__plan_saved, i, true, pass->saved));
out:
  return status;
}

void sl__plan_drop_span(const struct sl__plan *plan, int s, int i) {
  const struct sl__slice *slice = &plan->slices[s];
  const struct sl__layer *layer = &plan->model->layers[i];
  int out = sl__plan_output(plan, i);
  if (plan->span == 1) return;
  for (int k = 0; k < layer->input_count; k++)
    if (layer->input[k] != SL__INPUT && !sl__is_repeated(layer, k))
      sl__tensor_invalidate(slice->span_y[layer->input[k]]);
  if (layer->kind->weight_reads_output) sl__tensor_invalidate(slice->span_y[out]);
  if (slice->span_dy[out]) sl__tensor_invalidate(slice->span_dy[out]);
  if (slice->span_saved[i]) sl__tensor_invalidate(slice->span_saved[i]);
}
