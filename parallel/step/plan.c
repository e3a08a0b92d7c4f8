#include "parallel/step/plan_tasks.h"

#include <stdio.h>
#include <stdlib.h>

#include "parallel/step/precision.h"
#include "parallel/step/recompute.h"
#include "parallel/step/split.h"

void sl__slice_rows(const struct sl__grid *grid, int64_t batch, int64_t *rows) {
  int replicas = grid->replicas, microbatches = grid->microbatches;
  int64_t count = (int64_t)replicas * microbatches;
  for (int64_t i = 0; i < count && !grid->proportion; i++)
    rows[i] = batch / count + (i < batch % count);
  if (!grid->proportion) return;
  sl__split_rows(grid->proportion, replicas, batch, microbatches, rows);
  for (int r = replicas - 1; r >= 0; r--) { /* in place: a replica's slices are not before it */
    int64_t own = rows[r];
    for (int m = 0; m < microbatches; m++)
      rows[r * microbatches + m] = own / microbatches + (m < own % microbatches);
  }
}

void sl__chunk_steps(const struct sl__plan *plan, int chunk, int64_t *first, int64_t *steps) {
  int64_t all = plan->steps, each = all / plan->chunks, over = all % plan->chunks;
  *first = chunk * each + (chunk < over ? chunk : over);
  *steps = each + (chunk < over);
}

bool sl__plan_takes(const struct sl__plan *plan, int64_t steps) {
  int64_t all = plan->model->sample.dim[0];
  return plan->steps ? plan->steps == steps : !steps || steps == all;
}

int64_t sl__plan_positions(const struct sl__plan *plan) {
  const struct sl_model *model = plan->model;
  int64_t most = 0, rows = 0, each = model->takes_tokens ? sl_shape_count(&model->sample) : 0;
  for (int i = 0; i < model->input_count; i++)
    if (model->layers[i].gives_tokens && sl_shape_count(&model->layers[i].out) > each)
      each = sl_shape_count(&model->layers[i].out);
  for (int s = 0; s < plan->count; s++) {
    rows = plan->slices[s].microbatch ? rows + plan->slices[s].rows : plan->slices[s].rows;
    if (rows > most) most = rows;
  }
  return most * each;
}

struct sl__tensor *sl__part(struct sl__tensor *tensor, int i) {
  return tensor->view_count ? &tensor->views[i] : tensor;
}

struct sl_shape sl__with_rows(int64_t rows, const struct sl_shape *sample) {
  struct sl_shape shape = {.ndim = sample->ndim + 1, .dim = {rows}};
  for (int i = 0; i < sample->ndim; i++) shape.dim[i + 1] = sample->dim[i];
  return shape;
}

static int64_t chunk_of(const struct sl__plan *plan) {
  return plan->training ? plan->grid->training_chunk : plan->grid->chunk;
}

/* A tensor for the rows of a slice and, for sequences, the steps of a chunk. Its memory block has
 * room for the longest chunk of any plan. */
static enum sl_status chunk_tensor(const struct sl__plan *plan, int64_t rows, int chunk,
                                   const struct sl_shape *sample, enum sl_type type,
                                   struct sl__tensor **tensor) {
  struct sl_shape shape = sl__with_rows(rows, sample), largest = shape;
  int64_t first;
  if (plan->steps) sl__chunk_steps(plan, chunk, &first, &shape.dim[1]);
  int64_t most = chunk_of(plan);
  if (most && most < largest.dim[1]) largest.dim[1] = most;
  return sl__tensor_temporary_in(plan->model->context, &shape, &largest, type, tensor);
}

/* A recurrent layer's state and, in training, its gradient. */
static enum sl_status state_new(const struct sl__plan *plan, struct sl__slice *slice, int i) {
  const struct sl__layer *layer = &plan->model->layers[i];
  if (!layer->state.ndim || !sl__grid_is_here(plan->grid, i)) return SL_OK;
  struct sl_shape shape = sl__with_rows(slice->rows, &layer->state);
  enum sl_status status =
      sl__tensor_temporary(plan->model->context, &shape, SL_F32, &slice->state[i]);
  if (status == SL_OK && plan->training && layer->needs_gradient)
    status = sl__tensor_temporary(plan->model->context, &shape, SL_F32, &slice->dstate[i]);
  return status;
}

/* Does a layer here read layer i's output? */
static bool is_read_here(const struct sl__plan *plan, int i) {
  for (int to = i + 1; to < plan->model->count; to++)
    for (int k = 0; k < plan->model->layers[to].input_count; k++)
      if (plan->model->layers[to].input[k] == i && sl__grid_is_here(plan->grid, to)) return true;
  return false;
}

/* Is the output of layer i, which may be a relu that the layer before applies, computed again? */
static bool is_recomputed(const struct sl__plan *plan, int i) {
  int from = plan->model->layers[i].input[0];
  if (!plan->training || plan->border[i] >= 0 || !sl__is_recomputed(plan->model, plan->grid, i))
    return false;
  bool is_applied = from != SL__INPUT && plan->relu[from] == i;
  return !is_applied || plan->grid->run[from] == plan->grid->run[i];
}

static enum sl_status saved_new(const struct sl__plan *plan, const struct sl__slice *slice,
                                int chunk, int i, struct sl__tensor **tensor) {
  const struct sl__layer *layer = &plan->model->layers[i];
  enum sl_type type = sl__saved_type(layer, plan->grid->math);
  if (layer->saved_per_row)
    return chunk_tensor(plan, slice->rows, chunk, &layer->saved, type, tensor);
  return sl__tensor_temporary(plan->model->context, &layer->saved, type, tensor);
}

/* The tensors that the backward pass writes again. */
static enum sl_status again_new(const struct sl__plan *plan, struct sl__slice *slice, int chunk,
                                int i) {
  const struct sl__layer *layer = &plan->model->layers[i];
  int at = chunk * plan->model->count + i, output = plan->relu[i] < 0 ? i : plan->relu[i];
  enum sl_type type = sl__output_type(layer, plan->grid->math);
  enum sl_status status = SL_OK;
  if (!is_recomputed(plan, output)) return SL_OK;
  if (output == i)
    status = chunk_tensor(plan, slice->rows, chunk, &layer->out, type, &slice->y_again[at]);
  if (status != SL_OK || !layer->saved.ndim) return status;
  return saved_new(plan, slice, chunk, i, &slice->saved_again[at]);
}

/* The tensors that layer i makes from one chunk of a slice. */
static enum sl_status layer_new(const struct sl__plan *plan, struct sl__slice *slice, int chunk,
                                int i) {
  const struct sl__layer *layer = &plan->model->layers[i];
  int at = chunk * plan->model->count + i;
  bool here = sl__grid_is_here(plan->grid, i);
  bool has_output = plan->relu[i] < 0;
  if (!here && !is_read_here(plan, i)) return SL_OK;
  enum sl_type type = sl__output_type(layer, plan->grid->math);
  enum sl_status status = SL_OK;
  if (has_output) status = chunk_tensor(plan, slice->rows, chunk, &layer->out, type, &slice->y[at]);
  if (status == SL_OK && has_output && plan->training && layer->needs_gradient)
    status = chunk_tensor(plan, slice->rows, chunk, &layer->out, type, &slice->dy[at]);
  if (status != SL_OK || !here) return status;
  if (layer->saved.ndim) status = saved_new(plan, slice, chunk, i, &slice->saved[at]);
  return status == SL_OK ? again_new(plan, slice, chunk, i) : status;
}

/* The bf16 copy of the input. Datasets give numbers as f32; tokens need no copy. */
static enum sl_status input_new(const struct sl__plan *plan, struct sl__slice *slice) {
  const struct sl_model *model = plan->model;
  enum sl_type type = sl__value_type(plan->grid->math);
  if (type == SL_F32 || model->takes_tokens || plan->input_reader < 0) return SL_OK;
  struct sl_shape shape = sl__with_rows(slice->rows, &model->sample);
  return sl__tensor_temporary(model->context, &shape, type, &slice->x);
}

static enum sl_status slice_tensors(struct sl__plan *plan, struct sl__slice *slice) {
  struct sl_model *model = plan->model;
  enum sl_status status = SL_OK;
  size_t layers = (size_t)model->count, chunks = (size_t)plan->chunks, cells = layers * chunks;
  slice->y = sl__alloc(cells, sizeof *slice->y, "a slice");
  slice->dy = sl__alloc(cells, sizeof *slice->dy, "a slice");
  slice->saved = sl__alloc(cells, sizeof *slice->saved, "a slice");
  slice->y_again = sl__alloc(cells, sizeof *slice->y_again, "a slice");
  slice->saved_again = sl__alloc(cells, sizeof *slice->saved_again, "a slice");
  slice->state = sl__alloc(layers, sizeof *slice->state, "a slice");
  slice->dstate = sl__alloc(layers, sizeof *slice->dstate, "a slice");
  slice->stats = sl__alloc(chunks / (size_t)plan->span, sizeof *slice->stats, "a slice");
  if (!slice->y || !slice->dy || !slice->saved || !slice->state || !slice->dstate ||
      !slice->stats || !slice->y_again || !slice->saved_again)
    return SL_NO_MEMORY;
  status = input_new(plan, slice);
  for (int i = 0; i < model->count && status == SL_OK; i++) status = state_new(plan, slice, i);
  for (int c = 0; c < plan->chunks && status == SL_OK; c++) {
    for (int i = 0; i < model->count && status == SL_OK; i++) status = layer_new(plan, slice, c, i);
    if (status == SL_OK && sl__grid_is_here(plan->grid, model->count - 1) && c % plan->span == 0)
      status =
          sl__tensor_temporary(model->context, &SL_SHAPE(4), SL_F32, &slice->stats[c / plan->span]);
  }
  return status == SL_OK ? sl__plan_spans_new(plan, slice) : status;
}

/* Does this rank only send layer i's output, with no layer here that reads it? */
static bool is_only_sent(const struct sl__plan *plan, int i) {
  return plan->border[i] >= 0 && !is_read_here(plan, i);
}

static void find_borders(struct sl__plan *plan) {
  const struct sl_model *model = plan->model;
  for (int i = 0; i < model->count; i++) plan->border[i] = -1;
  for (int to = 0; to < model->count; to++)
    for (int k = 0; k < model->layers[to].input_count; k++) {
      int from = model->layers[to].input[k];
      if (from == SL__INPUT || plan->border[from] >= 0) continue;
      if (sl__grid_member(plan->grid, from) != sl__grid_member(plan->grid, to))
        plan->border[from] = plan->borders++;
    }
}

static int find_input_reader(const struct sl__plan *plan) {
  const struct sl_model *model = plan->model;
  for (int i = 0; i < model->count; i++)
    for (int k = 0; k < model->layers[i].input_count; k++)
      if (model->layers[i].input[k] == SL__INPUT && sl__grid_is_here(plan->grid, i)) return i;
  return -1;
}

/* Finds the relus that the layers before them apply, too: the only readers of an output on the same
 * devices. Captured answers join calls in a way of their own (core/graph/graph_fuse.c). */
static void find_relus(struct sl__plan *plan) {
  const struct sl_model *model = plan->model;
  for (int i = 0; i < model->count; i++) {
    const struct sl__layer *layer = &model->layers[i];
    int from = layer->input[0];
    plan->relu[i] = -1;
    if (!plan->training || !sl__is_relu(layer) || from == SL__INPUT) continue;
    if (model->layers[from].kind->takes_relu && !model->layers[from].broadcasts &&
        model->layers[from].consumers == 1 && plan->grid->stage[from] == plan->grid->stage[i])
      plan->relu[from] = i;
  }
}

/* Finds the layers whose only reader selects some of their values: it applies the gradient of their
 * activation to those alone. The same bits. */
static void find_deferred_activations(struct sl__plan *plan) {
  const struct sl_model *model = plan->model;
  for (int i = 0; i < model->count; i++) {
    const struct sl__layer *layer = &model->layers[i];
    plan->defers_activation[i] = false;
    if (!layer->kind->selects || !layer->kind->selects(layer) || layer->input[0] == SL__INPUT)
      continue;
    const struct sl__layer *before = &model->layers[layer->input[0]];
    plan->defers_activation[layer->input[0]] = before->kind->activation && before->consumers == 1;
  }
}

static bool make_pass_room(struct sl__plan *plan) {
  size_t most = 1;
  for (int i = 0; i < plan->model->count; i++)
    if ((size_t)plan->model->layers[i].input_count > most)
      most = (size_t)plan->model->layers[i].input_count;
  plan->x = sl__alloc(most, sizeof *plan->x, "a plan");
  plan->dx = sl__alloc(most, sizeof *plan->dx, "a plan");
  plan->add_dx = sl__alloc(most, sizeof *plan->add_dx, "a plan");
  plan->parts = sl__alloc((size_t)plan->chunks, sizeof *plan->parts, "a plan");
  return plan->x && plan->dx && plan->add_dx && plan->parts;
}

/* Finds the outputs that backward passes read, the last reader of each output, and the outputs that
 * cross ranks. */
static enum sl_status study_graph(struct sl__plan *plan) {
  const struct sl_model *model = plan->model;
  size_t layers = (size_t)model->count;
  plan->keeps_output = sl__alloc(layers, sizeof *plan->keeps_output, "a plan");
  plan->last_use = sl__alloc(layers, sizeof *plan->last_use, "a plan");
  plan->border = sl__alloc(layers, sizeof *plan->border, "a plan");
  plan->relu = sl__alloc(layers, sizeof *plan->relu, "a plan");
  plan->defers_activation = sl__alloc(layers, sizeof *plan->defers_activation, "a plan");
  if (!plan->keeps_output || !plan->last_use || !plan->border || !plan->relu ||
      !plan->defers_activation || !make_pass_room(plan))
    return SL_NO_MEMORY;
  find_borders(plan);
  find_relus(plan);
  find_deferred_activations(plan);
  plan->input_reader = find_input_reader(plan);
  for (int i = 0; i < model->count; i++) {
    const struct sl__layer *layer = &model->layers[i];
    plan->keeps_output[i] = plan->training && layer->needs_gradient;
    plan->last_use[i] = is_only_sent(plan, i) ? i : model->count;
    for (int k = 0; k < layer->input_count; k++) {
      int input = layer->input[k];
      if (input == SL__INPUT) continue;
      plan->keeps_output[input] |= plan->training && layer->needs_gradient;
      if (sl__grid_is_here(plan->grid, i)) plan->last_use[input] = i;
    }
  }
  plan->keeps_output[model->count - 1] |= plan->training; /* the loss reads it */
  return SL_OK;
}

static enum sl_status check_size(const struct sl_model *model, const struct sl__grid *grid,
                                 int64_t batch, int64_t steps) {
  char what[64];
  enum sl_status status = sl__grid_check_batch(grid, batch);
  if (status != SL_OK) return status;
  if (!steps || (steps == model->sample.dim[0])) return SL_OK;
  if (steps < 0 || steps > model->sample.dim[0])
    return sl__fail(SL_BAD_SHAPE, "sequences of %lld steps: the model takes at most %lld",
                    (long long)steps, (long long)model->sample.dim[0]);
  snprintf(what, sizeof what, "sequences of %lld of %lld steps", (long long)steps,
           (long long)model->sample.dim[0]);
  return sl__model_check_steps(model, SL_BAD_SHAPE, what);
}

enum sl_status sl__plan_new(struct sl_model *model, const struct sl__grid *grid, int64_t batch,
                            int64_t steps, bool training, struct sl__plan **out) {
  enum sl_status status;
  int count = grid->replicas * grid->microbatches;
  *out = NULL;
  status = check_size(model, grid, batch, steps);
  if (status == SL_OK && training) status = sl__model_check_trains(model);
  if (status != SL_OK) return status;
  struct sl__plan *plan = sl__alloc(1, sizeof *plan, "a plan");
  int64_t *rows = sl__alloc((size_t)count, sizeof *rows, "a plan");
  if (!plan || !rows) {
    status = SL_NO_MEMORY;
    goto out;
  }
  *plan = (struct sl__plan){
      .model = model, .grid = grid, .batch = batch, .training = training, .chunks = 1, .span = 1};
  if (!sl__model_whole_layer(model)) plan->steps = steps ? steps : model->sample.dim[0];
  int64_t chunk = chunk_of(plan);
  if (chunk) plan->chunks = (int)((plan->steps + chunk - 1) / chunk);
  bool is_recurrent = sl__is_recurrent(model);
  plan->span = is_recurrent ? 1 : plan->chunks;
  plan->batch_invariant = grid->chunk && !is_recurrent;
  SL__TRY(study_graph(plan));
  if (grid->math == SL_MATH_BF16)
    for (int i = 0; i < model->count; i++)
      if (sl__grid_is_here(grid, i)) SL__TRY(sl__bf16_copy_make(model, i));
  plan->slices = sl__alloc((size_t)count, sizeof *plan->slices, "a plan");
  if (!plan->slices) {
    status = SL_NO_MEMORY;
    goto out;
  }
  plan->count = count;
  sl__slice_rows(grid, batch, rows);
  int64_t first = 0;
  for (int i = 0; i < count; i++) {
    struct sl__slice *slice = &plan->slices[i];
    slice->replica = i / grid->microbatches;
    slice->microbatch = i % grid->microbatches;
    slice->first_row = first;
    slice->rows = rows[i];
    first += rows[i];
    SL__TRY(slice_tensors(plan, slice));
  }
  *out = plan;
  plan = NULL;
out:
  sl__plan_free(plan);
  free(rows);
  return status;
}

static void free_tensors(struct sl__tensor **tensors, int count) {
  for (int i = 0; tensors && i < count; i++) sl__tensor_free(tensors[i]);
  free(tensors);
}

void sl__plan_free(struct sl__plan *plan) {
  if (!plan) return;
  for (int i = 0; i < plan->count; i++) {
    struct sl__slice *slice = &plan->slices[i];
    int cells = plan->model->count * plan->chunks;
    free_tensors(slice->y, cells);
    free_tensors(slice->dy, cells);
    free_tensors(slice->saved, cells);
    free_tensors(slice->y_again, cells);
    free_tensors(slice->saved_again, cells);
    free_tensors(slice->state, plan->model->count);
    free_tensors(slice->dstate, plan->model->count);
    free_tensors(slice->span_y, plan->model->count);
    free_tensors(slice->span_dy, plan->model->count);
    free_tensors(slice->span_saved, plan->model->count);
    free_tensors(slice->stats, plan->chunks / plan->span);
    sl__plan_free_parts(plan, slice);
    sl__tensor_free(slice->x);
  }
  free(plan->slices);
  free(plan->keeps_output);
  free(plan->last_use);
  free(plan->border);
  free(plan->relu);
  free(plan->defers_activation);
  free(plan->x);
  free(plan->dx);
  free(plan->add_dx);
  free(plan->parts);
  free(plan);
}
