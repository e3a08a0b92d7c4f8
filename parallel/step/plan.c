#include "parallel/step/plan.h"

#include <stdlib.h>

#include "core/net/net.h"
#include "parallel/step/precision.h"
#include "parallel/step/split.h"

void sl__slice_rows(const struct sl__grid *grid, int64_t batch, int64_t *rows) {
  int replicas = grid->replicas, microbatches = grid->microbatches;
  int64_t count = (int64_t)replicas * microbatches;
  for (int64_t i = 0; i < count && !grid->share; i++) rows[i] = batch / count + (i < batch % count);
  if (!grid->share) return;
  sl__split_rows(grid->share, replicas, batch, microbatches, rows);
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
  int64_t most = 0, rows = 0;
  if (!plan->model->takes_tokens) return 0;
  for (int s = 0; s < plan->count; s++) {
    rows = plan->slices[s].microbatch ? rows + plan->slices[s].rows : plan->slices[s].rows;
    if (rows > most) most = rows;
  }
  return most * sl_shape_count(&plan->model->sample);
}

struct sl__tensor *sl__part(struct sl__tensor *tensor, int i) {
  return tensor->view_count ? &tensor->views[i] : tensor;
}

struct sl_shape sl__with_rows(int64_t rows, const struct sl_shape *sample) {
  struct sl_shape shape = {.ndim = sample->ndim + 1, .dim = {rows}};
  for (int i = 0; i < sample->ndim; i++) shape.dim[i + 1] = sample->dim[i];
  return shape;
}

/* For the rows of a slice and, of sequences, a chunk's steps: in a block for the longest chunk of
 * any plan. */
static enum sl_status chunk_tensor(const struct sl__plan *plan, int64_t rows, int chunk,
                                   const struct sl_shape *sample, enum sl_type type,
                                   struct sl__tensor **tensor) {
  struct sl_shape shape = sl__with_rows(rows, sample), largest = shape;
  int64_t first;
  if (plan->steps) sl__chunk_steps(plan, chunk, &first, &shape.dim[1]);
  if (plan->grid->chunk && plan->grid->chunk < largest.dim[1]) largest.dim[1] = plan->grid->chunk;
  return sl__tensor_temporary_in(plan->model->context, &shape, &largest, type, tensor);
}

/* A recurrent layer's state and, in training, its gradient. */
static enum sl_status state_new(const struct sl__plan *plan, struct sl__slice *slice, int i) {
  const struct sl__layer *layer = &plan->model->layers[i];
  if (!layer->state.ndim || !sl__grid_is_here(plan->grid, i)) return SL_OK;
  struct sl_shape shape = sl__with_rows(slice->rows, &layer->state);
  enum sl_status status =
      sl__tensor_temporary(plan->model->context, &shape, SL_F32, &slice->state[i]);
  if (status == SL_OK && plan->training)
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

/* What layer i makes of one chunk of a slice. */
static enum sl_status layer_new(const struct sl__plan *plan, struct sl__slice *slice, int chunk,
                                int i) {
  const struct sl__layer *layer = &plan->model->layers[i];
  int at = chunk * plan->model->count + i;
  bool here = sl__grid_is_here(plan->grid, i);
  if (!here && !is_read_here(plan, i)) return SL_OK;
  enum sl_type type = sl__value_type(plan->grid->math);
  enum sl_type saved_type = sl__saved_type(layer, plan->grid->math);
  enum sl_status status = chunk_tensor(plan, slice->rows, chunk, &layer->out, type, &slice->y[at]);
  if (status == SL_OK && plan->training && plan->needs_gradient[i])
    status = chunk_tensor(plan, slice->rows, chunk, &layer->out, type, &slice->dy[at]);
  if (status != SL_OK || !layer->saved.ndim || !here) return status;
  if (layer->saved_per_row)
    return chunk_tensor(plan, slice->rows, chunk, &layer->saved, saved_type, &slice->saved[at]);
  return sl__tensor_temporary(plan->model->context, &layer->saved, saved_type, &slice->saved[at]);
}

/* Numbers come as f32; tokens are what they are. */
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
  slice->state = sl__alloc(layers, sizeof *slice->state, "a slice");
  slice->dstate = sl__alloc(layers, sizeof *slice->dstate, "a slice");
  slice->stats = sl__alloc(chunks, sizeof *slice->stats, "a slice");
  if (!slice->y || !slice->dy || !slice->saved || !slice->state || !slice->dstate || !slice->stats)
    return SL_NO_MEMORY;
  status = input_new(plan, slice);
  for (int i = 0; i < model->count && status == SL_OK; i++) status = state_new(plan, slice, i);
  for (int c = 0; c < plan->chunks && status == SL_OK; c++) {
    for (int i = 0; i < model->count && status == SL_OK; i++) status = layer_new(plan, slice, c, i);
    if (status == SL_OK && sl__grid_is_here(plan->grid, model->count - 1))
      status = sl__tensor_temporary(model->context, &SL_SHAPE(4), SL_F32, &slice->stats[c]);
  }
  return status;
}

/* Does this rank have nothing to do with layer i's output once it is made, but to send it? */
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

/* Which layers need a gradient, which layer reads an output last, which outputs travel. */
static enum sl_status study_graph(struct sl__plan *plan) {
  const struct sl_model *model = plan->model;
  size_t layers = (size_t)model->count;
  plan->needs_gradient = sl__alloc(layers, sizeof *plan->needs_gradient, "a plan");
  plan->last_use = sl__alloc(layers, sizeof *plan->last_use, "a plan");
  plan->border = sl__alloc(layers, sizeof *plan->border, "a plan");
  if (!plan->needs_gradient || !plan->last_use || !plan->border) return SL_NO_MEMORY;
  find_borders(plan);
  plan->input_reader = find_input_reader(plan);
  for (int i = 0; i < model->count; i++) {
    const struct sl__layer *layer = &model->layers[i];
    plan->needs_gradient[i] = layer->params.total > 0 || layer->shares >= 0;
    plan->last_use[i] = is_only_sent(plan, i) ? i : model->count;
    for (int k = 0; k < layer->input_count; k++) {
      int input = layer->input[k];
      if (input == SL__INPUT) continue;
      plan->needs_gradient[i] |= plan->needs_gradient[input];
      if (sl__grid_is_here(plan->grid, i)) plan->last_use[input] = i;
    }
  }
  return SL_OK;
}

static enum sl_status check_size(const struct sl_model *model, const struct sl__grid *grid,
                                 int64_t batch, int64_t steps) {
  const struct sl__layer *whole = sl__model_whole_layer(model);
  enum sl_status status = sl__grid_check_batch(grid, batch);
  if (status != SL_OK) return status;
  if (!steps || (steps == model->sample.dim[0])) return SL_OK;
  if (steps < 0 || steps > model->sample.dim[0])
    return sl__fail(SL_BAD_SHAPE, "sequences of %lld steps: the model takes at most %lld",
                    (long long)steps, (long long)model->sample.dim[0]);
  if (!whole) return SL_OK;
  return sl__fail(SL_BAD_SHAPE,
                  "sequences of %lld steps: layer %s (%s) needs all %lld of a sample; only models "
                  "whose layers all work step by step take shorter ones",
                  (long long)steps, whole->name, whole->kind->name,
                  (long long)model->sample.dim[0]);
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
      .model = model, .grid = grid, .batch = batch, .training = training, .chunks = 1};
  if (!sl__model_whole_layer(model)) plan->steps = steps ? steps : model->sample.dim[0];
  if (grid->chunk) plan->chunks = (int)((plan->steps + grid->chunk - 1) / grid->chunk);
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
    free_tensors(slice->state, plan->model->count);
    free_tensors(slice->dstate, plan->model->count);
    free_tensors(slice->stats, plan->chunks);
    sl__tensor_free(slice->x);
  }
  free(plan->slices);
  free(plan->needs_gradient);
  free(plan->last_use);
  free(plan->border);
  free(plan);
}

/* What a trace tells of a slice's tasks; what there is only one of it leaves out. */
static struct sl__slice_mark mark_of(const struct sl__plan *plan, const struct sl__slice *slice,
                                     int c, int layer) {
  const struct sl__grid *grid = plan->grid;
  return (struct sl__slice_mark){.stage = grid->stages > 1 ? 1 + grid->stage[layer] : 0,
                                 .replica = grid->replicas > 1 ? 1 + slice->replica : 0,
                                 .microbatch = grid->microbatches > 1 ? 1 + slice->microbatch : 0,
                                 .chunk = plan->chunks > 1 ? 1 + c : 0};
}

/* The pass of layer i on a chunk of a slice; dx and grad are for the backward half. */
static struct sl__pass layer_pass(struct sl__plan *plan, const struct sl__step *step, int s, int c,
                                  int i) {
  const struct sl__slice *slice = &plan->slices[s];
  const struct sl__layer *layer = &plan->model->layers[i];
  int chunk = c * plan->model->count;
  struct sl__pass pass = {.context = plan->model->context,
                          .launch = {.name = layer->name,
                                     .place = sl__grid_device(plan->grid, i, slice->replica)->place,
                                     .tf32 = plan->grid->math == SL_MATH_TF32,
                                     .mark = mark_of(plan, slice, c, i)},
                          .param = sl__param_of(plan->model, i, plan->grid->math),
                          .y = slice->y[chunk + i],
                          .saved = slice->saved[chunk + i],
                          .dy = slice->dy[chunk + i],
                          .state = slice->state[i],
                          .dstate = slice->dstate[i],
                          .training = step->training,
                          .step = step->number,
                          .first_row = step->first_row + slice->first_row,
                          .slices = plan->count};
  /* what is not cut has the whole sample, whatever its axes mean */
  if (plan->chunks > 1 || (plan->steps && plan->steps < plan->model->sample.dim[0]))
    sl__chunk_steps(plan, c, &pass.first_step, &pass.steps);
  if (layer->shares >= 0) pass.shared = sl__param_of(plan->model, layer->shares, plan->grid->math);
  for (int k = 0; k < layer->input_count; k++)
    pass.x[k] = layer->input[k] != SL__INPUT ? slice->y[chunk + layer->input[k]]
                : slice->x                   ? slice->x
                                             : sl__part(step->x, s);
  return pass;
}

/* ---- over the ranks of a group ---- */

int sl__plan_tags(const struct sl__plan *plan) {
  return 2 * plan->borders * plan->count * plan->chunks;
}

/* One way of one border, of a slice's chunk: its messages follow the tensor, so that they keep
 * their order from step to step. */
static int border_tag(const struct sl__plan *plan, int s, int c, int layer, bool is_gradient) {
  int cell = (s * plan->chunks + c) * plan->borders + plan->border[layer];
  return plan->tag + 2 * cell + is_gradient;
}

/* A member of this rank's own group, as a peer. */
static struct sl__peers peer_of(const struct sl__plan *plan, int member) {
  int own = sl__net_rank(plan->model->context->net);
  return sl__peer(own - plan->grid->member + member);
}

/* A message waits for its tensor, and others wait for the message. By the worker of a layer here:
 * where that is pinned, it would see other workers' tasks too late. */
static struct sl__launch border_launch(const struct sl__plan *plan, const struct sl__slice *slice,
                                       int layer) {
  return (struct sl__launch){.name = plan->model->layers[layer].name,
                             .place = sl__grid_device(plan->grid, layer, slice->replica)->place,
                             .priority = SL__PRIORITY_LOSS,
                             .mark = mark_of(plan, slice, 0, layer)};
}

/* Is layer i the first one on its rank to read the output of `from`? */
static bool is_first_reader(const struct sl__plan *plan, int from, int i) {
  int member = sl__grid_member(plan->grid, i);
  for (int to = from + 1; to < i; to++)
    for (int k = 0; k < plan->model->layers[to].input_count; k++)
      if (plan->model->layers[to].input[k] == from && sl__grid_member(plan->grid, to) == member)
        return false;
  return true;
}

/* A tensor goes from the rank of layer `from` to that of layer `to`, where these are two. */
static enum sl_status carry(const struct sl__plan *plan, int s, int tag, struct sl__tensor **tensor,
                            int from, int to) {
  const struct sl__slice *slice = &plan->slices[s];
  struct sl_context *context = plan->model->context;
  int sender = sl__grid_member(plan->grid, from), receiver = sl__grid_member(plan->grid, to);
  bool sends = sender == plan->grid->member, receives = receiver == plan->grid->member;
  if (sends == receives) return SL_OK; /* both here, or neither */
  struct sl__launch launch = border_launch(plan, slice, sends ? from : to);
  struct sl__peers peer = peer_of(plan, sends ? receiver : sender);
  return (sends ? sl__send : sl__receive)(context, &launch, tag, &peer, 1, tensor);
}

/* The output of `from` goes to the rank of layer `to`, once. */
static enum sl_status carry_output(const struct sl__plan *plan, int s, int c, int from, int to) {
  struct sl__tensor **y = &plan->slices[s].y[c * plan->model->count + from];
  if (!is_first_reader(plan, from, to)) return SL_OK;
  return carry(plan, s, border_tag(plan, s, c, from, false), y, from, to);
}

/* The gradient of layer i's output visits those that read it in the order that one process has, the
 * last one first, so that each adds to the same sum; in the end it is with layer i. It goes from
 * the rank of layer `from` to that of layer `to`. */
static enum sl_status carry_gradient(const struct sl__plan *plan, int s, int c, int i, int from,
                                     int to) {
  struct sl__tensor **dy = &plan->slices[s].dy[c * plan->model->count + i];
  return carry(plan, s, border_tag(plan, s, c, i, true), dy, from, to);
}

/* ---- forward ---- */

/* In inference an output is of no use after its last reader. */
static void forget_inputs(struct sl__plan *plan, const struct sl__slice *slice, int c, int i) {
  const struct sl__layer *layer = &plan->model->layers[i];
  int chunk = c * plan->model->count;
  for (int k = 0; k < layer->input_count; k++) {
    int input = layer->input[k];
    bool again = k && layer->input[0] == input;
    if (input != SL__INPUT && !again && plan->last_use[input] == i)
      sl__tensor_invalidate(slice->y[chunk + input]);
  }
  if (slice->saved[chunk + i]) sl__tensor_invalidate(slice->saved[chunk + i]);
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
                              .mark = mark_of(plan, slice, c, last)};
  if (plan->chunks > 1) sl__chunk_steps(plan, c, &first, &steps);
  enum sl_status status =
      sl__softmax_xent(model->context, &launch, slice->y[at], sl__part(step->labels, s),
                       slice->stats[c], step->training ? slice->dy[at] : NULL, step->scale, first);
  if (!step->training) sl__tensor_invalidate(slice->y[at]);
  return status;
}

/* Its inputs come where they are from elsewhere; its output goes. */
static enum sl_status carry_outputs(const struct sl__plan *plan, int s, int c, int i) {
  enum sl_status status = SL_OK;
  for (int to = i + 1; to < plan->model->count && plan->border[i] >= 0; to++) {
    const struct sl__layer *reader = &plan->model->layers[to];
    for (int k = 0; k < reader->input_count; k++) {
      if (reader->input[k] != i) continue;
      SL__TRY(carry_output(plan, s, c, i, to));
      break; /* it may take the same input twice */
    }
  }
out:
  return status;
}

/* What bf16 passes of layer i read instead of f32: the input's copy, parameters' where these were
 * written since. */
static enum sl_status submit_halves(struct sl__plan *plan, const struct sl__step *step, int s,
                                    int i) {
  const struct sl__slice *slice = &plan->slices[s];
  const struct sl__layer *layer = &plan->model->layers[i];
  enum sl_status status = SL_OK;
  if (plan->grid->math != SL_MATH_BF16) return SL_OK;
  /* one copy is for all replicas; where the first one computes, it is soonest */
  const struct sl__place *place = &sl__grid_device(plan->grid, i, 0)->place;
  SL__TRY(sl__bf16_copy_refresh(plan->model, i, place));
  if (layer->shares >= 0) SL__TRY(sl__bf16_copy_refresh(plan->model, layer->shares, place));
  if (!slice->x || i != plan->input_reader) return SL_OK;
  const struct sl__launch launch = {.name = layer->name,
                                    .place = sl__grid_device(plan->grid, i, slice->replica)->place,
                                    .priority = SL__PRIORITY_FORWARD + i,
                                    .mark = mark_of(plan, slice, 0, i)};
  status = sl__axpy(plan->model->context, &launch, 1.0f, sl__part(step->x, s), slice->x);
out:
  return status;
}

static enum sl_status forward_layer(struct sl__plan *plan, const struct sl__step *step, int s,
                                    int c, int i) {
  struct sl_model *model = plan->model;
  struct sl__pass pass = layer_pass(plan, step, s, c, i);
  enum sl_status status = SL_OK;
  pass.launch.priority = SL__PRIORITY_FORWARD + i;
  SL__TRY(submit_halves(plan, step, s, i));
  if (pass.state && c == 0 && !(step->carry && plan->has_state))
    SL__TRY(sl__fill(model->context, &pass.launch, pass.state, 0));
  SL__TRY(model->layers[i].kind->forward(&model->layers[i], &pass));
  if (!step->training) forget_inputs(plan, &plan->slices[s], c, i);
  if (pass.state && c == plan->chunks - 1 && !step->keep) sl__tensor_invalidate(pass.state);
out:
  return status;
}

static enum sl_status submit_forward(struct sl__plan *plan, const struct sl__step *step, int s,
                                     int c) {
  struct sl_model *model = plan->model;
  enum sl_status status = SL_OK;
  for (int i = 0; i < model->count; i++) {
    bool here = sl__grid_is_here(plan->grid, i);
    if (here) SL__TRY(forward_layer(plan, step, s, c, i));
    SL__TRY(carry_outputs(plan, s, c, i));
    if (here && !step->training && plan->last_use[i] == i)
      sl__tensor_invalidate(plan->slices[s].y[c * model->count + i]);
  }
  if (plan->slices[s].x && !step->training) sl__tensor_invalidate(plan->slices[s].x);
  if (step->labels && sl__grid_is_here(plan->grid, model->count - 1))
    SL__TRY(submit_loss(plan, step, s, c));
out:
  return status;
}

/* ---- backward ---- */

/* The gradients that layer i hands down: written by its first consumer, added to by the others.
 * writer: the layer that wrote last; -1: none yet. */
static bool wants_dx(struct sl__plan *plan, const struct sl__slice *slice, int c, int i,
                     const int *writer, struct sl__pass *pass) {
  const struct sl__layer *layer = &plan->model->layers[i];
  bool any = false;
  for (int k = 0; k < layer->input_count; k++) {
    int input = layer->input[k];
    if (input == SL__INPUT || !plan->needs_gradient[input]) continue;
    pass->dx[k] = slice->dy[c * plan->model->count + input];
    pass->add_dx[k] = writer[input] >= 0 || (k && layer->input[0] == input);
    any = true;
  }
  return any;
}

/* What layer i adds its part to comes to it. */
static enum sl_status carry_gradients(const struct sl__plan *plan, int s, int c, int i,
                                      const int *writer) {
  const struct sl__layer *layer = &plan->model->layers[i];
  enum sl_status status = SL_OK;
  for (int k = 0; k < layer->input_count; k++) {
    int input = layer->input[k];
    if (input == SL__INPUT || writer[input] < 0 || (k && layer->input[0] == input)) continue;
    SL__TRY(carry_gradient(plan, s, c, input, writer[input], i));
  }
out:
  return status;
}

static void note_writer(const struct sl__plan *plan, int i, int *writer) {
  const struct sl__layer *layer = &plan->model->layers[i];
  for (int k = 0; k < layer->input_count; k++)
    if (layer->input[k] != SL__INPUT && plan->needs_gradient[layer->input[k]])
      writer[layer->input[k]] = i;
}

static enum sl_status backward_layer(struct sl__plan *plan, const struct sl__step *step, int s,
                                     int c, int i, const int *writer) {
  const struct sl__slice *slice = &plan->slices[s];
  const struct sl__layer *layer = &plan->model->layers[i];
  struct sl__pass pass = layer_pass(plan, step, s, c, i);
  enum sl_status status = SL_OK;
  bool last_chunk = c == plan->chunks - 1;
  /* towards the first layer, so that the stage before gets what it waits for */
  pass.launch.priority = SL__PRIORITY_BACKWARD_DATA + plan->model->count - 1 - i;
  /* what comes after the last step is not learned from: truncated back-propagation */
  if (pass.dstate && last_chunk) SL__TRY(sl__fill(pass.context, &pass.launch, pass.dstate, 0));
  if (layer->kind->backward_begin) SL__TRY(layer->kind->backward_begin(layer, &pass));
  if (wants_dx(plan, slice, c, i, writer, &pass)) SL__TRY(layer->kind->backward_data(layer, &pass));
  if (layer->params.total || pass.shared) {
    bool again = slice->microbatch > 0 || !last_chunk;
    pass.grad = step->grads[slice->replica][i];
    pass.grad_rows = step->rows[slice->replica][i];
    pass.add_grad = again || layer->is_shared; /* the layer that shares it was there before */
    pass.add_shared = again;
    if (pass.shared) pass.shared_grad = step->grads[slice->replica][layer->shares];
    pass.launch.priority = SL__PRIORITY_BACKWARD_WEIGHT + i;
    SL__TRY(layer->kind->backward_weight(layer, &pass));
  }
out:
  return status;
}

static void forget_layer(const struct sl__plan *plan, const struct sl__slice *slice, int c, int i) {
  int at = c * plan->model->count + i;
  if (slice->y[at]) sl__tensor_invalidate(slice->y[at]);
  if (slice->dy[at]) sl__tensor_invalidate(slice->dy[at]);
  if (slice->saved[at]) sl__tensor_invalidate(slice->saved[at]);
  if (slice->dstate[i] && c == 0) sl__tensor_invalidate(slice->dstate[i]);
  if (slice->x && i == plan->input_reader) sl__tensor_invalidate(slice->x);
}

static enum sl_status submit_backward(struct sl__plan *plan, const struct sl__step *step, int s,
                                      int c) {
  int layers = plan->model->count;
  int *writer = sl__alloc((size_t)layers, sizeof *writer, "a backward pass");
  enum sl_status status = writer ? SL_OK : SL_NO_MEMORY;
  if (!writer) return status;
  for (int i = 0; i < layers; i++) writer[i] = -1;
  for (int i = layers - 1; i >= 0; i--) {
    if (plan->needs_gradient[i]) {
      if (writer[i] >= 0) SL__TRY(carry_gradient(plan, s, c, i, writer[i], i));
      SL__TRY(carry_gradients(plan, s, c, i, writer));
      if (sl__grid_is_here(plan->grid, i)) SL__TRY(backward_layer(plan, step, s, c, i, writer));
      note_writer(plan, i, writer);
    }
    forget_layer(plan, &plan->slices[s], c, i);
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
