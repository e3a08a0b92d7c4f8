/* A trainer: its parts, and the calls between its steps. */
#include "parallel/train/trainer.h"

#include <stdlib.h>

#include "codelets/kernels/gemm.h"
#include "core/net/net.h"
#include "core/runtime/failure.h"
#include "core/runtime/forked.h"
#include "core/runtime/log.h"
#include "core/runtime/wait.h"
#include "data/batches.h"
#include "nn/optimizer.h"
#include "parallel/train/captured_step.h"
#include "parallel/train/ranks.h"

enum sl_status sl__trainer_check(const struct sl_trainer_options *o) {
  if ((unsigned)o->kvstore > SL_KVSTORE_DIST_ASYNC_DEVICE)
    return sl__fail(SL_BAD_ARGUMENT, "%d is not a kind of KVStore (SL_KVSTORE_*)", (int)o->kvstore);
  if (o->in_flight < 0 || o->in_flight >= SL__MAX_IN_FLIGHT)
    return sl__fail(SL_BAD_ARGUMENT, "%d steps in flight: must be from 1 to %d", o->in_flight,
                    SL__MAX_IN_FLIGHT - 1);
  if (o->big_shard < 0)
    return sl__fail(SL_BAD_ARGUMENT, "big_shard is %lld; it must be at least 1",
                    (long long)o->big_shard);
  if (o->max_staleness < 0 || (o->max_staleness && !sl__kvstore_is_async(o->kvstore)))
    return sl__fail(SL_BAD_ARGUMENT, "max_staleness %d: at least 1, and of dist_async only",
                    o->max_staleness);
  if (o->bigarray_bound < 0)
    return sl__fail(SL_BAD_ARGUMENT, "bigarray_bound is %lld; it must be at least 1",
                    (long long)o->bigarray_bound);
  return SL_OK;
}

static int64_t shard_bound(const struct sl_trainer *t, const struct sl_trainer_options *o) {
  if (sl__model_shards_exchanges(&t->ranks, o->compress))
    return o->bigarray_bound ? o->bigarray_bound : 1000000;
  return o->big_shard ? o->big_shard : 250000;
}

/* Can the model begin a batch with the state that the batch before has left? */
static enum sl_status check_carry(const struct sl_model *model) {
  for (int i = 0; i < model->count; i++) {
    const struct sl__layer *layer = &model->layers[i];
    if (layer->state_is_cache)
      return sl__fail(SL_BAD_ARGUMENT,
                      "carry_state: layer %s (%s) reads a whole sequence, which ends with its "
                      "batch; leave carry_state out",
                      layer->name, layer->kind->name);
    if (layer->state.ndim && !layer->over_time)
      return sl__fail(SL_BAD_ARGUMENT,
                      "carry_state: layer %s (%s) goes backward or gives its last state, so it "
                      "takes samples one by one; leave carry_state out",
                      layer->name, layer->kind->name);
  }
  if (sl__is_recurrent(model)) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT,
                  "carry_state: the model has no recurrent layer, whose state would be carried on; "
                  "leave carry_state out");
}

/* The checks and choices that need no other rank. */
static enum sl_status choose_grid(struct sl_trainer *t, const struct sl_trainer_options *options) {
  struct sl_model *model = t->model;
  enum sl_status status;
  SL__TRY(sl__fork_check(model->context));
  SL__TRY(sl__trainer_check(options));
  SL__TRY(sl_optimizer_check(&t->optimizer));
  SL__TRY(sl__schedule_check(&t->schedule));
  SL__TRY(sl_model_build(model));
  SL__TRY(sl__model_check_trains(model));
  SL__TRY(sl__loss_begin(model, &options->loss, &t->loss));
  if (sl__loss_takes_labels(&t->loss) &&
      sl_model_output(model)->ndim != (model->takes_tokens ? 2 : 1))
    return sl__fail(SL_BAD_SHAPE, "the model's output must be %s: end with a dense layer%s",
                    model->takes_tokens ? "[T, classes]" : "[classes]",
                    model->takes_tokens ? " over positions" : "");
  if (options->carry_state) SL__TRY(check_carry(model));
  t->carry_state = options->carry_state;
  t->stateful = sl__is_recurrent(model);
  if (sl__gemm_warning()) sl__log(model->context, SL_LOG_WARNING, "%s", sl__gemm_warning());
  SL__TRY(sl__grid_new(model, options, &t->grid));
  status = sl__trainer_ranks(model->context, options, &t->grid, &t->ranks);
out:
  return status;
}

static enum sl_status open_parts(struct sl_trainer *t, const struct sl_trainer_options *options) {
  struct sl_context *context = t->model->context;
  enum sl_status status;
  SL__TRY(sl__model_shards_new(
      t->model, &t->optimizer,
      &(struct sl__model_shards_options){.kind = options->kvstore,
                                         .big_shard = shard_bound(t, options),
                                         .ranks = t->ranks,
                                         .compress = options->compress,
                                         .max_staleness = options->max_staleness,
                                         .log_gradients = options->log_gradients},
      &t->grid, &t->shards));
  const struct sl__ranks alone = {0}; /* without a common step, each rank has its own */
  int size = 4 * sl__loss_terms(&t->loss);
  SL__TRY(sl__step_stats_new(context, t->is_async ? &alone : &t->ranks, SL__TAG_STATS, size,
                             SL__ASKS, &t->step_stats));
  if (options->log_gradients)
    SL__TRY(sl__step_stats_new(context, &t->ranks, SL__TAG_GRADIENTS, 1, 1, &t->gradient_stats));
  for (int i = 0; i < t->in_flight; i++) {
    SL__TRY(sl__tensor_host(context, &SL_SHAPE(size), SL_F32, NULL, &t->pending[i].stats));
    SL__TRY(sl__tensor_host(context, &SL_SHAPE(SL__ASKS), SL_F32, NULL, &t->pending[i].flags));
    for (int k = 0; k < 2 && options->log_gradients; k++)
      SL__TRY(sl__tensor_host(context, &SL_SHAPE(1), SL_F32, NULL, &t->pending[i].squares[k]));
  }
out:
  return status;
}

enum sl_status sl_trainer_new(struct sl_model *model, const struct sl_optimizer *optimizer,
                              const struct sl_schedule *schedule,
                              const struct sl_trainer_options *options,
                              struct sl_trainer **trainer) {
  SL__NEEDS(model, optimizer, trainer);
  struct sl_trainer_options chosen = {0};
  enum sl_status status;
  *trainer = NULL;
  if (options) chosen = *options;
  chosen.kvstore = sl_kvstore_choose(model->context, chosen.kvstore);
  options = &chosen;
  struct sl_trainer *t = sl__alloc(1, sizeof *t, "a trainer");
  if (!t) return SL_NO_MEMORY;
  t->model = model;
  t->optimizer = *optimizer;
  if (schedule) t->schedule = *schedule;
  t->adapts = !options->in_flight && !sl__kvstore_is_distributed(options->kvstore) &&
              starpu_cpu_worker_get_count() == starpu_worker_get_count();
  t->in_flight = options->in_flight ? options->in_flight : t->adapts ? 8 : 2;
  t->next_tag = SL__TAG_BORDERS;
  bool distributed = sl__kvstore_is_distributed(options->kvstore);
  status = choose_grid(t, options);
  t->is_async = sl__kvstore_is_async(options->kvstore) && t->ranks.size > 1;
  if (distributed) status = sl_share(model->context, status, sl_error());
  if (distributed && status == SL_OK) status = sl__trainer_join_ranks(t, options);
  SL__TRY(status);
  status = open_parts(t, options);
  if (distributed) status = sl_share(model->context, status, sl_error());
  SL__TRY(status);
  t->captures = !options->eager && sl__may_capture_steps();
  *trainer = t;
  t = NULL;
out:
  sl_trainer_free(t);
  return status;
}

void sl_trainer_free(struct sl_trainer *trainer) {
  if (!trainer || trainer->model->context->forked) return;
  if (trainer->saving) trainer->saving_free(trainer->saving);
  free(trainer->loaded_options);
  if (trainer->shards)
    sl__model_shards_synchronize(trainer->shards); /* until then an owner's tasks never end */
  sl__wait_for_all(trainer->model->context);
  if (trainer->model->context->abandoned) return; /* tasks that never end may use all of it */
  for (int i = 0; i < trainer->input_count; i++) sl__batch_tensors_close(trainer->inputs[i]);
  for (int64_t i = trainer->finished; i < trainer->submitted; i++)
    sl__loader_release(trainer->pending[i % trainer->in_flight].loader);
  sl__loader_release(trainer->next_batch.loader);
  sl__loader_release(trainer->shifted);
  sl__captured_steps_free(trainer);
  for (int i = 0; i < trainer->plan_count; i++) sl__plan_free(trainer->plans[i]);
  for (int i = 0; i < SL__MAX_IN_FLIGHT; i++) {
    sl__tensor_free(trainer->pending[i].stats);
    sl__tensor_free(trainer->pending[i].flags);
    for (int k = 0; k < 2; k++) sl__tensor_free(trainer->pending[i].squares[k]);
  }
  sl__step_stats_free(trainer->step_stats);
  sl__step_stats_free(trainer->gradient_stats);
  sl__model_shards_free(trainer->shards);
  free(trainer->inputs);
  free(trainer->plans);
  sl__loss_end(&trainer->loss);
  sl__grid_clear(&trainer->grid);
  free(trainer);
}

enum sl_status sl__trainer_share(const struct sl_trainer *t, enum sl_status status) {
  return t->ranks.size ? sl_share(t->model->context, status, sl_error()) : status;
}

int sl__trainer_workers(const struct sl_trainer *t) { return t->ranks.size ? t->ranks.workers : 1; }

int sl_trainer_replicas(const struct sl_trainer *trainer) {
  SL__NEEDS_OR(0, trainer);
  return trainer->grid.replicas;
}

const char *sl_trainer_part(const struct sl_trainer *trainer, int i) {
  SL__NEEDS_OR(NULL, trainer);
  return i >= 0 && i < trainer->loss.part_count ? trainer->loss.parts[i].field.name : NULL;
}

struct sl_position sl_trainer_position(const struct sl_trainer *trainer) {
  SL__NEEDS_OR((struct sl_position){0}, trainer);
  return (struct sl_position){.step = trainer->step,
                              .epoch = trainer->next_batch.epoch,
                              .index = trainer->next_batch.index};
}

enum sl_status sl__trainer_check_alive(const struct sl_trainer *t) {
  if (!t->failed) return sl__fork_check(t->model->context);
  if (sl__task_failure() == SL_OK)
    return sl__fail(SL_BAD_ARGUMENT, "the trainer failed before; free it and make a new one");
  return sl__fail(SL_BAD_ARGUMENT,
                  "the trainer failed before, as a task did, and no later result is valid; close "
                  "all contexts of the process, open one and make a new trainer there");
}

enum sl_status sl__trainer_drained(const struct sl_trainer *t) {
  enum sl_status status = sl__trainer_check_alive(t);
  if (status != SL_OK || t->submitted == t->finished) return status;
  return sl__fail(SL_BAD_ARGUMENT,
                  "steps are pending; call sl_trainer_drain until it reports none");
}

enum sl_status sl__trainer_check_raw(const struct sl_trainer *t) {
  if (!t->averaged) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT,
                  "the model has the averages of its parameters; call "
                  "sl_trainer_swap_average once more before");
}

enum sl_status sl__trainer_check_outside(const struct sl_trainer *t) {
  if (!t->in_callback || t->ramp) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT,
                  "a callback of sl_fit cannot make or drain steps of the run's trainer, nor call "
                  "sl_fit with it; do so after sl_fit has returned, or with another trainer");
}

enum sl_status sl_trainer_swap_average(struct sl_trainer *trainer) {
  SL__NEEDS(trainer);
  enum sl_status status = sl__trainer_drained(trainer);
  if (status == SL_OK && (trainer->optimizer.average <= 0 || !trainer->step))
    status = sl__fail(SL_BAD_ARGUMENT, "there are no averages of the parameters: %s",
                      trainer->step ? "the optimizer's average is 0" : "no step was made yet");
  if (status == SL_OK) status = sl__model_shards_swap_average(trainer->shards);
  if (status == SL_OK) trainer->averaged = !trainer->averaged;
  return status;
}

void sl_trainer_stop(struct sl_trainer *trainer) {
  SL__NEEDS_OR(, trainer);
  trainer->stop = trainer->shards->stop = true;
}

void sl_trainer_ask_save(struct sl_trainer *trainer) {
  SL__NEEDS_OR(, trainer);
  trainer->save_asked = true;
}

enum sl_status sl_trainer_settle(struct sl_trainer *trainer, bool *stop) {
  SL__NEEDS(trainer);
  struct sl__staleness met = {0};
  enum sl_status status = sl__trainer_drained(trainer);
  if (status == SL_OK) status = sl__model_shards_synchronize(trainer->shards);
  if (status == SL_OK) status = sl__trainer_fetch_weights(trainer);
  if (trainer->is_async) sl__parameter_server_staleness(trainer->shards->exchange, &met);
  if (stop) *stop = met.stop;
  return status;
}
