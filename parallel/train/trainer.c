#include "parallel/train/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codelets/kernels/gemm.h"
#include "core/runtime/failure.h"
#include "core/runtime/log.h"
#include "core/net/net.h"
#include "core/runtime/wait.h"
#include "parallel/params/memory_needs.h"

enum sl_status sl__trainer_check(const struct sl_trainer_options *o) {
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

/* What a rank can find wrong before it has met the others. */
static enum sl_status prepare(struct sl_trainer *t, const struct sl_trainer_options *options) {
  struct sl_model *model = t->model;
  enum sl_status status;
  SL__TRY(sl__trainer_check(options));
  SL__TRY(sl_optimizer_check(&t->optimizer));
  SL__TRY(sl_model_build(model));
  SL__TRY(sl__model_check_trains(model));
  if (sl_model_output(model)->ndim != (model->takes_tokens ? 2 : 1))
    return sl__fail(SL_BAD_SHAPE, "the model's output must be %s: end with a dense layer%s",
                    model->takes_tokens ? "[T, classes]" : "[classes]",
                    model->takes_tokens ? " over positions" : "");
  t->carry_state = options->carry_state;
  for (int i = 0; i < model->count; i++) t->stateful |= model->layers[i].state.ndim > 0;
  if (sl__gemm_warning()) sl__log(model->context, SL_LOG_WARNING, "%s", sl__gemm_warning());
  SL__TRY(sl__grid_new(model, options, &t->grid));
  status = sl__trainer_ranks(model->context, options, &t->grid, &t->ranks);
out:
  return status;
}

static enum sl_status furnish(struct sl_trainer *t, const struct sl_trainer_options *options) {
  struct sl_context *context = t->model->context;
  enum sl_status status;
  SL__TRY(sl__model_shards_new(
      t->model, &t->optimizer,
      &(struct sl__model_shards_options){.kind = options->kvstore,
                                         .big_shard = shard_bound(t, options),
                                         .ranks = t->ranks,
                                         .compress = options->compress,
                                         .max_staleness = options->max_staleness},
      &t->grid, &t->kvstore));
  const struct sl__ranks alone = {0};
  SL__TRY(sl__step_stats_new(context, t->is_async ? &alone : &t->ranks, &t->tally));
  for (int i = 0; i < t->in_flight; i++) {
    SL__TRY(sl__tensor_host(context, &SL_SHAPE(4), SL_F32, NULL, &t->flights[i].stats));
    SL__TRY(sl__tensor_host(context, &SL_SHAPE(4), SL_F32, NULL, &t->flights[i].flags));
  }
out:
  return status;
}

enum sl_status sl_trainer_new(struct sl_model *model, const struct sl_optimizer *optimizer,
                              const struct sl_schedule *schedule,
                              const struct sl_trainer_options *options,
                              struct sl_trainer **trainer) {
  static const struct sl_trainer_options defaults;
  enum sl_status status;
  *trainer = NULL;
  if (!options) options = &defaults;
  struct sl_trainer *t = sl__alloc(1, sizeof *t, "a trainer");
  if (!t) return SL_NO_MEMORY;
  t->model = model;
  t->optimizer = *optimizer;
  if (schedule) t->schedule = *schedule;
  t->in_flight = options->in_flight ? options->in_flight : 2;
  t->next_tag = SL__TAG_BORDERS;
  bool distributed = sl__kvstore_is_distributed(options->kvstore);
  status = prepare(t, options);
  t->is_async = sl__kvstore_is_async(options->kvstore) && t->ranks.size > 1; /* else with whom? */
  if (distributed) status = sl_share(model->context, status, sl_error());
  if (distributed && status == SL_OK) status = sl__trainer_meet(t, options);
  SL__TRY(status);
  status = furnish(t, options);
  if (distributed) status = sl_share(model->context, status, sl_error());
  SL__TRY(status);
  *trainer = t;
  t = NULL;
out:
  sl_trainer_free(t);
  return status;
}

void sl_trainer_free(struct sl_trainer *t) {
  if (!t) return;
  sl__saving_end(t);
  free(t->loaded_options);
  if (t->kvstore)
    sl__model_shards_settle(t->kvstore); /* else there is always something under way */
  sl__wait_for_all(t->model->context);
  if (t->model->context->abandoned) return; /* what never ends may look at any of it */
  for (int i = 0; i < t->feed_count; i++) sl__batch_tensors_close(t->feeds[i]);
  for (int i = 0; i < t->plan_count; i++) sl__plan_free(t->plans[i]);
  for (int i = 0; i < SL__MAX_IN_FLIGHT; i++) {
    sl__tensor_free(t->flights[i].stats);
    sl__tensor_free(t->flights[i].flags);
  }
  sl__step_stats_free(t->tally);
  sl__model_shards_free(t->kvstore);
  free(t->feeds);
  free(t->plans);
  sl__grid_clear(&t->grid);
  free(t);
}

int sl_trainer_replicas(const struct sl_trainer *t) { return t->grid.replicas; }

struct sl_position sl_trainer_position(const struct sl_trainer *t) {
  return (struct sl_position){.step = t->step, .epoch = t->at.epoch, .index = t->at.index};
}

static enum sl_status check_sample(const struct sl_trainer *t, const struct sl_loader *loader) {
  const struct sl_dataset_info *info = sl_dataset_info(sl_loader_dataset(loader));
  char have[96], want[96];
  if (!sl_shape_equal(&info->sample, &t->model->sample))
    return sl__fail(SL_BAD_SHAPE, "%s has samples %s, but the model takes %s", info->name,
                    sl_shape_text(&info->sample, have, sizeof have),
                    sl_shape_text(&t->model->sample, want, sizeof want));
  if (info->tokens != t->model->takes_tokens)
    return sl__fail(SL_BAD_ARGUMENT, "%s has %s, but the model's first layer takes %s", info->name,
                    info->tokens ? "tokens" : "numbers", info->tokens ? "numbers" : "tokens");
  const struct sl__layer *whole = sl__model_whole_layer(t->model);
  if (info->bucket_count && whole)
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s has sentences of several lengths, but layer %s (%s) needs a whole sample; "
                    "only models whose layers all work step by step take them",
                    info->name, whole->name, whole->kind->name);
  if (info->bucket_count && t->carry_state)
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s has sentences, of which each begins anew; leave carry_state out",
                    info->name);
  const struct sl_shape *out = sl_model_output(t->model);
  if (info->classes > out->dim[out->ndim - 1])
    return sl__fail(SL_BAD_SHAPE, "%s has %d classes, but the model's last layer only %lld outputs",
                    info->name, info->classes, (long long)out->dim[out->ndim - 1]);
  return SL_OK;
}

static enum sl_status find_feed(struct sl_trainer *t, struct sl_loader *loader,
                                struct sl__batch_tensors **feed) {
  for (int i = 0; i < t->feed_count; i++)
    if (t->feeds[i]->loader == loader) {
      *feed = t->feeds[i];
      return SL_OK;
    }
  enum sl_status status = check_sample(t, loader);
  if (status == SL_OK) status = sl__grid_check_batch(&t->grid, sl_loader_batch(loader));
  if (status != SL_OK) return status;
  struct sl__batch_tensors **feeds =
      sl__realloc(t->feeds, (size_t)t->feed_count + 1, sizeof *feeds, "a trainer's feeds");
  if (!feeds) return SL_NO_MEMORY;
  t->feeds = feeds;
  status = sl__batch_tensors_open(t->model->context, loader, &t->grid, feed);
  if (status == SL_OK) t->feeds[t->feed_count++] = *feed;
  return status;
}

/* Plans are made in the same order on all ranks of a group. */
static enum sl_status number_messages(struct sl_trainer *t, struct sl__plan *plan) {
  plan->tag = t->next_tag;
  t->next_tag += sl__plan_tags(plan);
  if (t->next_tag <= SL__TAG_STORES) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT,
                  "the placement over ranks needs %d messages a step and more with each length of "
                  "sequence, %d can be told apart; take fewer microbatches, replicas or chunks",
                  sl__plan_tags(plan), SL__TAG_STORES - SL__TAG_BORDERS);
}

enum sl_status sl__trainer_plan(struct sl_trainer *t, const struct sl_batch *batch, bool training,
                                struct sl__plan **plan) {
  for (int i = 0; i < t->plan_count; i++)
    /* an evaluation takes the training's plan, unless that holds a state to be carried on */
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
      training ? sl__placement_check_memory(t->model, &t->optimizer, &t->grid, batch->batch)
               : SL_OK;
  if (status != SL_OK) return status;
  status = sl__plan_new(t->model, &t->grid, batch->batch, batch->steps, training, plan);
  if (status == SL_OK) {
    t->plans[t->plan_count++] = *plan;
    status = number_messages(t, *plan);
  }
  if (status == SL_OK && training)
    status = sl__model_shards_reserve(t->kvstore, sl__plan_positions(*plan));
  return status;
}

static const float *wants(const struct sl_trainer *t, float flags[SL__WANTS]) {
  for (int i = 0; i < SL__WANTS; i++) flags[i] = 0;
  flags[SL__WANT_STOP] = t->stop;
  flags[SL__WANT_SAVE] = t->save_asked;
  return flags;
}

/* The slices' sums, in their order, into the flight's own tensor. */
static enum sl_status submit_stats(struct sl_trainer *t, struct sl__plan *plan,
                                   struct sl__flight *f) {
  bool here = sl__grid_is_here(&t->grid, t->model->count - 1);
  const struct sl__place *last = &sl__grid_device(&t->grid, t->model->count - 1, 0)->place;
  struct sl__launch launch = {.name = "stats", .priority = SL__PRIORITY_LOSS};
  int count = here ? plan->count * plan->chunks : 0;
  struct sl__tensor **terms = sl__alloc((size_t)count, sizeof *terms, "a step's statistics");
  if (!terms) return SL_NO_MEMORY;
  /* A worker looks at the scheduler's tasks only when it has none of its own left. Where the loss
   * is pinned, its sum must be as well, or the report waits until a stage runs dry. */
  if (last->where & STARPU_CPU) launch.place = *last;
  for (int i = 0; i < count; i++) terms[i] = plan->slices[i / plan->chunks].stats[i % plan->chunks];
  float flags[SL__WANTS];
  enum sl_status status =
      sl__step_stats_submit(t->tally, &launch, count, terms, wants(t, flags), f->stats, f->flags);
  for (int i = 0; i < count; i++) sl__tensor_invalidate(terms[i]);
  free(terms);
  return status;
}

static struct sl_report begin_report(const struct sl_trainer *t) {
  return (struct sl_report){.step = t->step,
                            .staleness = -1,
                            .lr = t->optimizer.lr * sl_schedule_factor(&t->schedule, t->step)};
}

/* A rank that is no worker takes no batch. */
static enum sl_status submit_server(struct sl_trainer *t, struct sl_loader *loader,
                                    struct sl__flight *f, bool training) {
  int64_t length = sl_loader_length(loader);
  f->feed = NULL;
  f->report = begin_report(t);
  f->report.epoch = t->at.epoch;
  f->report.last = t->at.index + 1 == length;
  enum sl_status status = SL_OK;
  float flags[SL__WANTS];
  if (!t->is_async)
    status = sl__step_stats_submit(t->tally, &(struct sl__launch){0}, 0, NULL, wants(t, flags),
                                   f->stats, f->flags);
  if (status != SL_OK || !training) return status;
  status = sl__model_shards_update(t->kvstore, t->step++, (float)f->report.lr);
  int64_t batches = t->at.epoch * length + t->at.index + 1;
  t->at =
      (struct sl__reached){.loader = loader, .epoch = batches / length, .index = batches % length};
  return status;
}

static enum sl_status submit_worker(struct sl_trainer *t, struct sl_loader *loader,
                                    struct sl__flight *f, bool training) {
  struct sl__plan *plan;
  struct sl_batch batch;
  enum sl_status status;
  SL__TRY(find_feed(t, loader, &f->feed));
  SL__TRY(sl_loader_next(loader, &batch));
  status = sl__trainer_plan(t, &batch, training, &plan);
  if (status != SL_OK) { /* nothing reads it yet */
    sl_loader_recycle(loader, batch.slot);
    return status;
  }
  f->slot = batch.slot;
  f->report = begin_report(t);
  f->report.epoch = batch.epoch;
  f->report.last = batch.last;
  int64_t learn_from = t->is_async ? batch.valid : batch.valid_all;
  struct sl__step step = {.number = (uint64_t)t->step,
                          .training = training,
                          .carry = t->carry_state && batch.index > 0,
                          .keep = t->carry_state,
                          /* parts that have all run out of samples learn nothing */
                          .scale = learn_from ? 1.0f / (float)learn_from : 0,
                          .first_row = sl__worker(&t->ranks) * batch.batch,
                          .x = f->feed->x[batch.slot],
                          .labels = f->feed->labels[batch.slot],
                          .grads = t->kvstore->grads,
                          .rows = t->kvstore->rows};
  sl__batch_tensors_prefetch(f->feed, batch.slot, &t->grid, plan->input_reader);
  SL__TRY(sl__plan_submit(plan, &step));
  SL__TRY(submit_stats(t, plan, f));
  if (training) {
    SL__TRY(sl__model_shards_update(t->kvstore, t->step++, (float)f->report.lr));
    t->at = (struct sl__reached){.loader = loader,
                                 .epoch = batch.epoch + batch.last,
                                 .index = batch.last ? 0 : batch.index + 1};
  }
out:
  return status;
}

/* Submit one flight; the caller made room. */
static enum sl_status submit(struct sl_trainer *t, struct sl_loader *loader, bool training) {
  struct sl__flight *f = &t->flights[t->submitted % t->in_flight];
  bool is_worker = !t->ranks.size || sl__is_worker(&t->ranks);
  if (t->is_async && !is_worker && !training) return SL_OK; /* each evaluates for itself */
  if (t->model->context->trace) starpu_iteration_push((unsigned long)t->step + 1);
  enum sl_status status = (is_worker ? submit_worker : submit_server)(t, loader, f, training);
  if (t->model->context->trace) starpu_iteration_pop();
  if (status == SL_OK) t->submitted++;
  return status;
}

static enum sl_status check_stats(const struct sl_report *r, const float *stats) {
  if (stats[3] > 0)
    return sl__fail(SL_BAD_ARGUMENT,
                    "step %lld: %.0f labels are outside the model's classes; is the last "
                    "layer as wide as the data has classes?",
                    (long long)r->step, (double)stats[3]);
  if (!isfinite(stats[0]))
    return sl__fail(SL_NOT_FINITE,
                    "step %lld: the loss is %s; lower the learning rate (--lr) or clip the "
                    "gradient (--clip)",
                    (long long)r->step, isnan(stats[0]) ? "not a number" : "infinite");
  return SL_OK;
}

/* What one rank cannot do, the others need not wait for. */
static enum sl_status tell(struct sl_trainer *t, enum sl_status status) {
  struct sl_context *context = t->model->context;
  if (status != SL_OK && t->ranks.size) sl__net_announce(context->net, sl_error());
  return status;
}

static void note_staleness(struct sl_trainer *t, struct sl_report *report) {
  struct sl__staleness met;
  sl__parameter_server_staleness(t->kvstore->exchange, &met);
  report->stop |= met.stop;
  report->staleness = met.count ? (double)met.sum / (double)met.count : 0;
  report->most_staleness = met.most;
}

/* Wait for the oldest flight, hand its batch back, fill in its report. */
static enum sl_status finish(struct sl_trainer *t, struct sl_report *report) {
  struct sl__flight *f = &t->flights[t->finished % t->in_flight];
  float stats[4], flags[SL__WANTS] = {0};
  enum sl_status status;
  t->finished++;
  status = sl__tensor_read(f->stats, stats);
  /* a kernel that failed here: what it made is on its way to the others */
  SL__TRY(status == SL_LOST ? status : tell(t, status));
  bool in_step = t->ranks.size && !t->is_async;
  if (in_step) SL__TRY(sl__tensor_read(f->flags, flags));
  if (f->feed) SL__TRY(sl__batch_tensors_recycle(f->feed, f->slot));
  if (t->ranks.size) SL__TRY(sl__net_check(t->model->context->net));
  status = check_stats(&f->report, stats);
  SL__TRY(t->is_async ? tell(t, status) : status); /* in step all ranks see it */
  *report = f->report;
  report->samples = (int64_t)stats[2];
  report->stop = in_step ? flags[SL__WANT_STOP] > 0 : t->stop;
  report->save = in_step ? flags[SL__WANT_SAVE] > 0 : t->save_asked;
  if (t->is_async) note_staleness(t, report);
  if (stats[2] > 0) {
    report->loss = (double)stats[0] / (double)stats[2];
    report->accuracy = (double)stats[1] / (double)stats[2];
  }
out:
  return status;
}

static enum sl_status alive(const struct sl_trainer *t) {
  if (!t->failed) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT, "the trainer failed before; free it and make a new one");
}

enum sl_status sl__trainer_drained(const struct sl_trainer *t) {
  enum sl_status status = alive(t);
  if (status != SL_OK || t->submitted == t->finished) return status;
  return sl__fail(SL_BAD_ARGUMENT,
                  "steps are under way; call sl_trainer_drain until none is reported");
}

enum sl_status sl_trainer_step(struct sl_trainer *t, struct sl_loader *loader,
                               struct sl_report *report, bool *reported) {
  enum sl_status status;
  *reported = false;
  SL__TRY(alive(t));
  if (t->submitted - t->finished == t->in_flight) {
    status = finish(t, report);
    *reported = status == SL_OK;
  }
  if (status == SL_OK) status = tell(t, submit(t, loader, true));
  t->failed = status != SL_OK;
out:
  return status;
}

void sl_trainer_stop(struct sl_trainer *t) { t->stop = t->kvstore->stop = true; }

void sl_trainer_ask_save(struct sl_trainer *t) { t->save_asked = true; }

enum sl_status sl_trainer_settle(struct sl_trainer *t, bool *stop) {
  struct sl__staleness met = {0};
  enum sl_status status = sl__trainer_drained(t);
  if (status == SL_OK) status = sl__model_shards_settle(t->kvstore);
  if (status == SL_OK) status = sl__trainer_fetch_weights(t);
  if (t->is_async) sl__parameter_server_staleness(t->kvstore->exchange, &met);
  if (stop) *stop = met.stop;
  return status;
}

/* The last step's updates come after its report, and may fail: nobody shall save what they left.
 * Out of step there is always something under way. */
static enum sl_status end_updates(struct sl_trainer *t) {
  struct sl_context *context = t->model->context;
  enum sl_status status = t->is_async ? sl__task_failure() : sl__wait_for_all(context);
  return status == SL_LOST ? status : tell(t, status);
}

enum sl_status sl_trainer_drain(struct sl_trainer *t, struct sl_report *report, bool *reported) {
  enum sl_status status;
  *reported = false;
  SL__TRY(alive(t));
  if (t->submitted == t->finished) {
    status = end_updates(t);
  } else {
    status = finish(t, report);
    *reported = status == SL_OK;
  }
  t->failed = status != SL_OK;
out:
  return status;
}

enum sl_status sl_trainer_evaluate(struct sl_trainer *t, struct sl_loader *loader, double *loss,
                                   double *accuracy) {
  enum sl_status status;
  double losses = 0, right = 0, samples = 0;
  SL__TRY(sl__trainer_drained(t));
  if (t->ranks.size && !t->is_async) SL__TRY(sl__trainer_share_buffers(t));
  int64_t left = sl_loader_length(loader);
  while (status == SL_OK && (left || t->submitted > t->finished)) {
    if (left && t->submitted - t->finished < t->in_flight) {
      status = tell(t, submit(t, loader, false));
      left--;
      continue;
    }
    struct sl_report r;
    status = finish(t, &r);
    if (status != SL_OK) break;
    losses += r.loss * (double)r.samples;
    right += r.accuracy * (double)r.samples;
    samples += (double)r.samples;
  }
  t->failed = status != SL_OK;
  *loss = samples > 0 ? losses / samples : 0;
  *accuracy = samples > 0 ? right / samples : 0;
out:
  return status;
}
