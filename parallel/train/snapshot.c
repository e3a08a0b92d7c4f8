/* Copies of a trainer's state: into a snapshot, and out of it. */
#include "parallel/train/snapshot.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/net/net.h"
#include "parallel/train/ranks.h"

static bool is_carried(const struct sl_trainer *t, const struct sl__snapshot *snapshot, int layer) {
  return snapshot->rows && t->model->layers[layer].state.ndim > 0;
}

static struct sl__item *add_item(struct sl__snapshot *snapshot, const struct sl_shape *shape,
                                 float *values) {
  struct sl__item *item = &snapshot->items[snapshot->count++];
  item->shape = *shape;
  item->values = values;
  return item;
}

static void list_weights(const struct sl_model *model, struct sl__snapshot *snapshot) {
  for (int i = 0; i < sl_model_parameter_count(model); i++) {
    struct sl_shape shape;
    const char *name = sl_model_parameter(model, i, &shape);
    struct sl__item *item =
        add_item(snapshot, &shape, sl__copy_values(&snapshot->weights, model, i));
    snprintf(item->name, sizeof item->name, "%s", name);
  }
}

static enum sl_status list_states(const struct sl_trainer *t, struct sl__snapshot *snapshot,
                                  int layer) {
  const struct sl__block *block = &t->model->layers[layer].params;
  bool trains = sl__layer_trains(&t->model->layers[layer]);
  for (int k = 0; trains && k < SL__STATES; k++) {
    if (!sl__optimizer_state(&t->optimizer, k)) continue;
    float *values = sl__alloc_large((size_t)block->total, sizeof *values, "a checkpoint");
    if (!values) return SL_NO_MEMORY;
    snapshot->states[SL__STATES * layer + k] = values;
    for (int p = 0; p < block->count; p++) {
      struct sl__item *item =
          add_item(snapshot, &block->part[p].shape, values + block->part[p].offset);
      snprintf(item->name, sizeof item->name, "optimizer.%s.%s",
               sl__optimizer_state(&t->optimizer, k), block->part[p].name);
    }
  }
  return SL_OK;
}

static enum sl_status list_carried(const struct sl_trainer *t, struct sl__snapshot *snapshot,
                                   int layer) {
  const struct sl__layer *of = &t->model->layers[layer];
  if (!is_carried(t, snapshot, layer)) return SL_OK;
  struct sl_shape shape = {.ndim = of->state.ndim + 1, .dim = {snapshot->rows}};
  for (int i = 0; i < of->state.ndim; i++) shape.dim[i + 1] = of->state.dim[i];
  snapshot->carried[layer] =
      sl__alloc((size_t)sl_shape_count(&shape), sizeof(float), "a checkpoint");
  if (!snapshot->carried[layer]) return SL_NO_MEMORY;
  struct sl__item *item = add_item(snapshot, &shape, snapshot->carried[layer]);
  snprintf(item->name, sizeof item->name, "state.%s", of->name);
  return SL_OK;
}

static enum sl_status list_residuals(const struct sl_trainer *t, struct sl__snapshot *snapshot,
                                     int layer) {
  const struct sl__block *block = &t->model->layers[layer].params;
  bool trains = sl__layer_trains(&t->model->layers[layer]);
  for (int w = 0; trains && w < snapshot->workers; w++) {
    float *values = sl__alloc_large((size_t)block->total, sizeof *values, "a checkpoint");
    if (!values) return SL_NO_MEMORY;
    snapshot->residuals[layer * snapshot->workers + w] = values;
    struct sl__item *item = add_item(snapshot, &SL_SHAPE(block->total), values);
    snprintf(item->name, sizeof item->name, "residual.%d.%s", w, t->model->layers[layer].name);
  }
  return SL_OK;
}

enum sl_status sl__snapshot_new(const struct sl_trainer *t, int64_t index, int64_t rows,
                                int workers, struct sl__snapshot *snapshot) {
  enum sl_status status = SL_NO_MEMORY;
  int layers = t->model->count;
  /* a parameter may have states of the optimizer, and a layer may carry a state */
  bool has_residuals = sl__model_shards_has_residual(t->shards);
  *snapshot = (struct sl__snapshot){.layers = layers, .workers = has_residuals ? workers : 0};
  size_t residuals = (size_t)layers * (size_t)snapshot->workers;
  size_t most =
      (1 + SL__STATES) * (size_t)sl_model_parameter_count(t->model) + (size_t)layers + residuals;
  if (t->carry_state && t->stateful && index > 0) snapshot->rows = rows;
  snapshot->states =
      sl__alloc(SL__STATES * (size_t)layers, sizeof *snapshot->states, "a checkpoint");
  snapshot->carried = sl__alloc((size_t)layers, sizeof *snapshot->carried, "a checkpoint");
  snapshot->items = sl__alloc(most, sizeof *snapshot->items, "a checkpoint");
  snapshot->residuals = sl__alloc(residuals, sizeof *snapshot->residuals, "a checkpoint");
  if (!snapshot->states || !snapshot->carried || !snapshot->items || !snapshot->residuals) goto out;
  SL__TRY(sl__copy_new(t->model, &snapshot->weights));
  list_weights(t->model, snapshot);
  for (int l = 0; l < layers; l++) SL__TRY(list_states(t, snapshot, l));
  for (int l = 0; l < layers; l++) SL__TRY(list_carried(t, snapshot, l));
  for (int l = 0; l < layers; l++) SL__TRY(list_residuals(t, snapshot, l));
out:
  return status;
}

void sl__snapshot_clear(struct sl__snapshot *snapshot) {
  for (int i = 0; snapshot->states && i < SL__STATES * snapshot->layers; i++)
    free(snapshot->states[i]);
  for (int l = 0; snapshot->carried && l < snapshot->layers; l++) free(snapshot->carried[l]);
  for (int i = 0; snapshot->residuals && i < snapshot->layers * snapshot->workers; i++)
    free(snapshot->residuals[i]);
  free(snapshot->residuals);
  free(snapshot->states);
  free(snapshot->carried);
  free(snapshot->items);
  sl__copy_free(&snapshot->weights);
}

/* ---- between snapshot and trainer ---- */

/* Rows of the carried state are in the order of the samples, of all workers: so a checkpoint fits
 * any number of slices and workers. */
static enum sl_status move_carried(const struct sl_trainer *t, const struct sl__plan *plan,
                                   int layer, float *values, bool into_plan) {
  int64_t width = sl_shape_count(&plan->model->layers[layer].state);
  int64_t first = sl__worker(&t->ranks) * plan->batch;
  enum sl_status status = SL_OK;
  for (int s = 0; s < plan->count; s++) {
    const struct sl__slice *slice = &plan->slices[s];
    float *rows = values + (first + slice->first_row) * width;
    if (into_plan)
      SL__TRY(sl__tensor_write(slice->state[layer], rows));
    else
      SL__TRY(sl__tensor_read(slice->state[layer], rows));
  }
out:
  return status;
}

/* Rank 0 gets the rows of the other workers. */
static enum sl_status gather_carried(struct sl_trainer *t, const struct sl__snapshot *snapshot,
                                     int layer) {
  struct sl__net *net = t->model->context->net;
  enum sl_status status = SL_OK;
  int members = sl__members(&t->ranks);
  int member = sl__grid_member(&t->grid, layer), worker = sl__worker(&t->ranks);
  if (t->ranks.size < 2 || !sl__is_worker(&t->ranks)) return SL_OK;
  int64_t width = sl_shape_count(&t->model->layers[layer].state);
  int64_t own = snapshot->rows / t->ranks.workers * width;
  float *values = snapshot->carried[layer];
  size_t bytes = (size_t)own * sizeof *values;
  if (t->ranks.rank)
    return sl__grid_is_here(&t->grid, layer) ? sl__net_send(net, 0, values + worker * own, bytes)
                                             : SL_OK;
  for (int w = member ? 0 : 1; w < t->ranks.workers; w++)
    SL__TRY(sl__net_receive(net, w * members + member, values + w * own, bytes));
out:
  return status;
}

static enum sl_status read_residuals(struct sl_trainer *t, const struct sl__snapshot *snapshot) {
  enum sl_status status = SL_OK;
  for (int i = 0; i < snapshot->layers * snapshot->workers; i++)
    if (snapshot->residuals[i])
      SL__TRY(sl__model_shards_read_residual(t->shards, i / snapshot->workers,
                                             i % snapshot->workers, snapshot->residuals[i]));
out:
  return status;
}

/* Each worker gets its own back. If the number of workers has changed, the first one gets the sum
 * of all, so that no part of a gradient is lost. */
static enum sl_status write_residuals(struct sl_trainer *t, const struct sl__snapshot *snapshot) {
  enum sl_status status = SL_OK;
  bool same = snapshot->workers == sl__trainer_workers(t);
  int worker = sl__worker(&t->ranks);
  for (int l = 0; l < snapshot->layers && snapshot->workers; l++) {
    float **of = &snapshot->residuals[l * snapshot->workers];
    int64_t total = sl__layer_trains(&t->model->layers[l]) ? t->model->layers[l].params.total : 0;
    for (int w = 1; w < snapshot->workers && total && !same; w++)
      for (int64_t i = 0; i < total; i++) of[0][i] += of[w][i];
    for (int64_t i = 0; i < total && !same && worker; i++) of[0][i] = 0;
    if (!total || !sl__is_worker(&t->ranks)) continue;
    SL__TRY(sl__model_shards_write_residual(t->shards, l, of[same ? worker : 0]));
  }
out:
  return status;
}

enum sl_status sl__carried_state_plan(struct sl_trainer *t, const struct sl__snapshot *snapshot,
                                      struct sl__plan **plan) {
  struct sl_batch batch = {.batch = snapshot->rows / sl__trainer_workers(t)};
  if (t->model->takes_tokens) batch.steps = t->model->sample.dim[0];
  *plan = NULL;
  if (!snapshot->rows || (t->ranks.size && !sl__is_worker(&t->ranks))) return SL_OK;
  return sl__trainer_plan(t, &batch, true, plan);
}

enum sl_status sl__snapshot_from_trainer(struct sl_trainer *t, const char *path,
                                         struct sl__snapshot *snapshot) {
  enum sl_status status;
  struct sl__plan *plan;
  SL__TRY(sl__carried_state_plan(t, snapshot, &plan));
  SL__TRY(sl__trainer_fetch_weights(t));
  SL__TRY(sl__copy_read(t->model, &snapshot->weights));
  SL__TRY(sl__copy_check(&snapshot->weights, t->model, path));
  for (int i = 0; i < SL__STATES * snapshot->layers; i++)
    if (snapshot->states[i])
      SL__TRY(sl__model_shards_read_state(t->shards, i / SL__STATES, i % SL__STATES,
                                          snapshot->states[i]));
  for (int l = 0; l < snapshot->layers; l++)
    if (snapshot->carried[l]) {
      if (plan && sl__grid_is_here(&t->grid, l))
        SL__TRY(move_carried(t, plan, l, snapshot->carried[l], false));
      SL__TRY(gather_carried(t, snapshot, l));
    }
  SL__TRY(read_residuals(t, snapshot));
out:
  return status;
}

enum sl_status sl__snapshot_share(const struct sl_trainer *t, struct sl__snapshot *snapshot) {
  enum sl_status status = SL_OK;
  for (int i = 0; i < snapshot->count && t->ranks.size > 1; i++)
    SL__TRY(sl_broadcast(t->model->context, snapshot->items[i].values,
                         (size_t)sl_shape_count(&snapshot->items[i].shape) * sizeof(float)));
out:
  return status;
}

enum sl_status sl__snapshot_to_trainer(struct sl_trainer *t, struct sl__plan *plan,
                                       const struct sl__snapshot *snapshot) {
  enum sl_status status;
  SL__TRY(sl__copy_write(t->model, &snapshot->weights));
  for (int i = 0; i < SL__STATES * snapshot->layers; i++)
    if (snapshot->states[i])
      SL__TRY(sl__model_shards_write_state(t->shards, i / SL__STATES, i % SL__STATES,
                                           snapshot->states[i]));
  for (int l = 0; l < snapshot->layers; l++)
    if (snapshot->carried[l] && plan && sl__grid_is_here(&t->grid, l))
      SL__TRY(move_carried(t, plan, l, snapshot->carried[l], true));
  if (plan) plan->has_state = true;
  SL__TRY(write_residuals(t, snapshot));
out:
  return status;
}
