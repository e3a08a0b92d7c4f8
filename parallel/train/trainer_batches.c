/* Which plan and which tensors a batch takes. Both are made when the first batch of a kind comes.
 */
#include <stdlib.h>
#include <string.h>

#include "data/batches.h"
#include "parallel/params/memory_needs.h"
#include "parallel/train/ranks.h"
#include "parallel/train/trainer.h"

/* SL_BAD_ARGUMENT: names the first token of the field that the model does not read. */
static enum sl_status find_token(const struct sl_dataset *set, const struct sl_row_field *field,
                                 int words) {
  const struct sl_dataset_info *info = sl_dataset_info(set);
  int32_t label;
  enum sl_status status = SL_OK;
  float *row = sl__alloc((size_t)sl_shape_count(&info->sample), sizeof *row, "a row");
  float *targets = sl__alloc((size_t)sl_shape_count(&info->target) + 1, sizeof *targets, "a row");
  if (!row || !targets) status = SL_NO_MEMORY;
  for (int64_t i = 0; i < info->count && status == SL_OK; i++) {
    status = info->target.ndim ? sl_dataset_get_targets(set, i, row, targets)
                               : sl_dataset_get(set, i, row, &label);
    for (int64_t k = 0; k < sl_shape_count(&field->shape) && status == SL_OK; k++)
      if (row[field->first + k] >= (float)words)
        status = sl__fail(SL_BAD_ARGUMENT,
                          "%s: sample %lld: token %.0f of '%s', but the model's embedding has 0 to "
                          "%d; give it a larger vocabulary",
                          info->name, (long long)i, (double)row[field->first + k], field->name,
                          words - 1);
  }
  free(row);
  free(targets);
  return status;
}

/* Are a field's values numbers, or tokens, as the model's are? */
static enum sl_status check_tokens(const struct sl_dataset *set, const struct sl_row_field *have,
                                   const struct sl_row_field *want) {
  if (!have->classes != !want->classes)
    return sl__fail(
        SL_BAD_ARGUMENT, "%s: '%s' has %s, but the model takes %s there%s",
        sl_dataset_info(set)->name, want->name, have->classes ? "tokens" : "numbers",
        want->classes ? "tokens" : "numbers",
        want->classes ? "; name the inputs that are tokens where the data are read" : "");
  return have->classes > want->classes ? find_token(set, have, want->classes) : SL_OK;
}

/* Has the data the model's inputs? A row without names has the right size, which is all that can be
 * known. */
static enum sl_status check_inputs(const struct sl_trainer *t, const struct sl_dataset *set) {
  const struct sl_dataset_info *info = sl_dataset_info(set);
  static const struct sl_row_field numbers = {0};
  struct sl_row_field field;
  char have[96], want[96];
  enum sl_status status = SL_OK;
  for (int i = 0; !t->model->input_count && i < info->input_count && status == SL_OK; i++)
    status =
        check_tokens(set, &info->inputs[i], &(struct sl_row_field){.name = info->inputs[i].name});
  for (int i = 0; !info->input_count && sl_model_input_field(t->model, i, &field); i++)
    if (status == SL_OK) status = check_tokens(set, &numbers, &field);
  if (!info->input_count || !t->model->input_count) return status;
  if (info->input_count != t->model->input_count)
    return sl__fail(SL_BAD_SHAPE, "%s has %d inputs, but the model takes %d", info->name,
                    info->input_count, t->model->input_count);
  for (int i = 0; sl_model_input_field(t->model, i, &field); i++) {
    if (strcmp(field.name, info->inputs[i].name) != 0 ||
        !sl_shape_equal(&field.shape, &info->inputs[i].shape))
      return sl__fail(SL_BAD_SHAPE, "%s has as input %d '%s' %s, but the model takes '%s' %s",
                      info->name, i, info->inputs[i].name,
                      sl_shape_text(&info->inputs[i].shape, have, sizeof have), field.name,
                      sl_shape_text(&field.shape, want, sizeof want));
    status = check_tokens(set, &info->inputs[i], &field);
    if (status != SL_OK) return status;
  }
  return SL_OK;
}

/* Does the loss take what the data have? */
static enum sl_status check_loss(struct sl_trainer *t, const struct sl_dataset_info *info) {
  const struct sl_shape *out = sl_model_output(t->model);
  const char *name = t->loss.row->name;
  char have[96], want[96];
  if (info->target.ndim && sl__loss_takes_labels(&t->loss))
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s has targets, but the loss %s takes class labels; choose another one, such "
                    "as mse",
                    info->name, name);
  if (!info->target.ndim && !sl__loss_takes_labels(&t->loss))
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s has class labels, but the loss %s takes targets; choose cross-entropy",
                    info->name, name);
  enum sl_status status = sl__loss_fit(&t->loss, info);
  if (status != SL_OK) return status;
  if (info->target.ndim && !t->loss.part_count && !sl_shape_equal(&info->target, out))
    return sl__fail(SL_BAD_SHAPE, "%s has targets %s, but the model's output is %s", info->name,
                    sl_shape_text(&info->target, have, sizeof have),
                    sl_shape_text(out, want, sizeof want));
  return SL_OK;
}

static enum sl_status check_sample(struct sl_trainer *t, const struct sl_loader *loader) {
  const struct sl_dataset_info *info = sl_dataset_info(sl_loader_dataset(loader));
  char have[96], want[96];
  if (!sl_shape_equal(sl_loader_sample(loader), &t->model->sample))
    return sl__fail(SL_BAD_SHAPE, "%s has samples %s, but the model takes %s", info->name,
                    sl_shape_text(sl_loader_sample(loader), have, sizeof have),
                    sl_shape_text(&t->model->sample, want, sizeof want));
  if (info->tokens != t->model->takes_tokens)
    return sl__fail(SL_BAD_ARGUMENT, "%s has %s, but the model's first layer takes %s", info->name,
                    info->tokens ? "tokens" : "numbers", info->tokens ? "numbers" : "tokens");
  enum sl_status status = check_inputs(t, sl_loader_dataset(loader));
  if (status == SL_OK) status = check_loss(t, info);
  if (status != SL_OK) return status;
  const struct sl__layer *whole = sl__model_whole_layer(t->model);
  if (info->bucket_count && whole)
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s has sentences of several lengths, but layer %s (%s) needs a whole sample; "
                    "only models whose layers all work step by step take them",
                    info->name, whole->name, whole->kind->name);
  if (info->bucket_count && t->carry_state)
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s has sentences, and each begins with a new state; leave carry_state out",
                    info->name);
  const struct sl_shape *out = sl_model_output(t->model);
  if (!sl__loss_takes_labels(&t->loss)) return SL_OK;
  if (info->classes > out->dim[out->ndim - 1])
    return sl__fail(SL_BAD_SHAPE, "%s has %d classes, but the model's last layer only %lld outputs",
                    info->name, info->classes, (long long)out->dim[out->ndim - 1]);
  return SL_OK;
}

static bool is_pending(const struct sl_trainer *t, const struct sl__batch_tensors *inputs) {
  for (int64_t i = t->finished; i < t->submitted; i++)
    if (t->pending[i % t->in_flight].inputs == inputs) return true;
  return false;
}

/* A program may have a loader for each part of its data, one after the other. */
static void drop_freed(struct sl_trainer *t) {
  int kept = 0;
  if (t->model->context->abandoned) return; /* tasks that never end may use them */
  for (int i = 0; i < t->input_count; i++) {
    struct sl__batch_tensors *inputs = t->inputs[i];
    if (sl__loader_is_freed(inputs->loader) && !is_pending(t, inputs))
      sl__batch_tensors_close(inputs);
    else
      t->inputs[kept++] = inputs;
  }
  t->input_count = kept;
}

void sl__trainer_move_to(struct sl_trainer *t, const struct sl__data_position *next) {
  struct sl_loader *before = t->next_batch.loader;
  if (next->loader) sl__loader_hold(next->loader);
  t->next_batch = *next;
  sl__loader_release(before);
}

static struct sl__batch_tensors *inputs_of(const struct sl_trainer *t,
                                           const struct sl_loader *loader) {
  for (int i = 0; i < t->input_count; i++)
    if (t->inputs[i]->loader == loader) return t->inputs[i];
  return NULL;
}

enum sl_status sl__trainer_check_loader(struct sl_trainer *t, const struct sl_loader *loader) {
  bool is_worker = !t->ranks.size || sl__is_worker(&t->ranks);
  if (!is_worker || inputs_of(t, loader)) return SL_OK;
  enum sl_status status = check_sample(t, loader);
  return status == SL_OK ? sl__grid_check_batch(&t->grid, sl_loader_batch(loader)) : status;
}

enum sl_status sl__trainer_inputs(struct sl_trainer *t, struct sl_loader *loader,
                                  struct sl__batch_tensors **inputs) {
  drop_freed(t);
  *inputs = inputs_of(t, loader);
  if (*inputs) return SL_OK;
  struct sl__batch_tensors **all =
      sl__realloc(t->inputs, (size_t)t->input_count + 1, sizeof *all, "a trainer's inputs");
  if (!all) return SL_NO_MEMORY;
  t->inputs = all;
  enum sl_status status = sl__batch_tensors_open(t->model->context, loader, &t->grid, inputs);
  if (status == SL_OK) t->inputs[t->input_count++] = *inputs;
  return status;
}

/* All ranks of a group make plans in the same order, so the numbers agree. */
static enum sl_status number_messages(struct sl_trainer *t, struct sl__plan *plan) {
  plan->tag = t->next_tag;
  t->next_tag += sl__plan_tags(plan);
  if (t->next_tag <= SL__TAG_STORES) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT,
                  "the placement over ranks needs %d messages a step and more with each length of "
                  "sequence, but there are only %d numbers for them; take fewer microbatches, "
                  "replicas or chunks",
                  sl__plan_tags(plan), SL__TAG_STORES - SL__TAG_BORDERS);
}

enum sl_status sl__trainer_plan(struct sl_trainer *t, const struct sl_batch *batch, bool training,
                                struct sl__plan **plan) {
  for (int i = 0; i < t->plan_count; i++)
    /* an evaluation may use a training's plan, unless that holds a state to be carried on */
    if (t->plans[i]->batch == batch->batch && sl__plan_takes(t->plans[i], batch->steps) &&
        (t->stateful ? t->plans[i]->training == training : t->plans[i]->training >= training)) {
      *plan = t->plans[i];
      return SL_OK;
    }
  struct sl__plan **plans =
      sl__realloc(t->plans, (size_t)t->plan_count + 1, sizeof *plans, "a trainer's plans");
  if (!plans) return SL_NO_MEMORY;
  t->plans = plans;
  enum sl_status status =
      training ? sl__placement_check_memory(t->model, &t->optimizer, &t->loss.settings, &t->grid,
                                            batch->batch)
               : SL_OK;
  if (status != SL_OK) return status;
  status = sl__plan_new(t->model, &t->grid, batch->batch, batch->steps, training, plan);
  if (status == SL_OK) {
    t->plans[t->plan_count++] = *plan;
    status = sl__plan_take_loss(*plan, &t->loss);
  }
  if (status == SL_OK) status = number_messages(t, *plan);
  if (status == SL_OK && training)
    status = sl__model_shards_reserve(t->shards, sl__plan_positions(*plan));
  return status;
}
