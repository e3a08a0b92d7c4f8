/* Steps: submitted ahead of time, reported in their order when they are finished. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/net/net.h"
#include "core/runtime/failure.h"
#include "core/runtime/wait.h"
#include "data/batches.h"
#include "parallel/train/bad_target.h"
#include "parallel/train/captured_step.h"
#include "parallel/train/ranks.h"
#include "parallel/train/trainer.h"

void sl__trainer_asks(const struct sl_trainer *t, float asks[SL__ASKS]) {
  for (int i = 0; i < SL__ASKS; i++) asks[i] = 0;
  asks[SL__ASK_STOP] = t->stop;
  asks[SL__ASK_SAVE] = t->save_asked;
}

/* Where the loss of the only slice writes; NULL: there are several, or other ranks. */
static struct sl__tensor *direct_stats(const struct sl_trainer *t, const struct sl__plan *plan,
                                       const struct sl__pending_step *p) {
  return plan->count * (plan->chunks / plan->span) == 1 && !t->ranks.size ? p->stats : NULL;
}

/* Adds up the statistics of the slices, in their order, into the pending step's tensor, unless the
 * loss has written there. */
static enum sl_status submit_stats(struct sl_trainer *t, struct sl__plan *plan,
                                   const struct sl__step *step, struct sl__pending_step *p) {
  bool here = sl__grid_is_here(&t->grid, t->model->count - 1);
  const struct sl__place *last = &sl__grid_device(&t->grid, t->model->count - 1, 0)->place;
  struct sl__launch launch = {.name = "stats", .priority = SL__PRIORITY_LOSS};
  int spans = plan->chunks / plan->span, count = here ? plan->count * spans : 0;
  if (step->stats) return SL_OK;
  struct sl__tensor **terms = sl__alloc((size_t)count, sizeof *terms, "a step's statistics");
  if (!terms) return SL_NO_MEMORY;
  /* A worker takes the scheduler's tasks only when it has no pinned task. So if the loss is pinned,
   * its sum is, too: else the report would come only when a stage has nothing to do. */
  if (last->where & STARPU_CPU || last->worker) launch.place = *last;
  for (int i = 0; i < count; i++) terms[i] = plan->slices[i / spans].stats[i % spans];
  float asks[SL__ASKS];
  sl__trainer_asks(t, asks);
  enum sl_status status =
      sl__step_stats_submit(t->step_stats, &launch, count, terms, asks, p->stats, p->flags);
  for (int i = 0; i < count; i++) sl__tensor_invalidate(terms[i]);
  free(terms);
  return status;
}

static double rate_of(const struct sl_trainer *t) {
  const struct sl__rate_ramp *ramp = t->ramp;
  if (ramp) return ramp->low * pow(ramp->factor, (double)(t->step - ramp->from));
  return t->optimizer.lr * sl_schedule_factor(&t->schedule, t->step + t->schedule_shift);
}

static struct sl_report begin_report(const struct sl_trainer *t) {
  return (struct sl_report){.step = t->step,
                            .staleness = -1,
                            .grad_norm = -1,
                            .grad_variance = -1,
                            .grad_noise = -1,
                            .lr = rate_of(t)};
}

/* ---- norms of gradients ---- */

/* Of the owners, who all know the gradient's norm, one tells it. */
static enum sl_status submit_squares(struct sl_trainer *t, struct sl__pending_step *p) {
  const struct sl__launch launch = {.name = "norm", .priority = SL__PRIORITY_LOSS};
  bool tells = !t->ranks.size || t->ranks.rank == sl__first_owner(&t->ranks);
  struct sl__tensor *own[] = {tells ? t->shards->norm : NULL, t->shards->replica_squares};
  if (!t->gradient_stats) return SL_OK;
  return sl__step_stats_sum(t->gradient_stats, &launch, own, p->squares);
}

/* The parts of the batch that the replicas have. */
static void note_parts(const struct sl_trainer *t, const struct sl__plan *plan,
                       const struct sl_batch *batch, struct sl__pending_step *p) {
  const struct sl_dataset_info *info = sl_dataset_info(sl_loader_dataset(p->inputs->loader));
  int64_t workers = sl__trainer_workers(t), per_row = batch->steps ? batch->steps : 1;
  bool has_labels = sl__loss_takes_labels(&t->loss);
  int64_t full = workers * batch->batch * (has_labels ? per_row : sl_shape_count(&info->target));
  p->batch = (double)(workers * batch->batch * (has_labels ? per_row : 1));
  p->share = 0;
  for (int r = 0; r < t->grid.replicas && batch->valid_all == full; r++) {
    double rows = 0;
    for (int m = 0; m < t->grid.microbatches; m++)
      rows += (double)plan->slices[r * t->grid.microbatches + m].rows;
    p->share += rows * rows / (double)(batch->batch * batch->batch) / (double)workers;
  }
}

/* Replica r's gradient, of b_r of B samples, is a term of the whole one: its square is on average
 * (b_r / B)^2 |G|^2 + b_r / B^2 tr Cov. With all terms' sum and the whole gradient's square that
 * gives both (appendix A.1 of arXiv 1812.06162 has parts of one size). */
static enum sl_status report_gradients(const struct sl__pending_step *p, struct sl_report *report) {
  float square, parts;
  enum sl_status status;
  SL__TRY(sl__tensor_read(p->squares[0], &square));
  report->grad_norm = sqrt((double)square);
  if (p->share <= 0 || p->share >= 1) return SL_OK;
  SL__TRY(sl__tensor_read(p->squares[1], &parts));
  double variance = p->batch * ((double)parts - p->share * (double)square) / (1 - p->share);
  double signal = (double)square - variance / p->batch;
  if (!isfinite(variance)) return SL_OK; /* a square is above all floats */
  report->grad_variance = variance;
  if (signal > 0) report->grad_noise = variance / signal;
out:
  return status;
}

/* Do the samples' classes or missing targets decide about the divisor of a mean? Over ranks with
 * common steps it is the sum of all then, which no rank knows alone. */
static bool counts_together(const struct sl_trainer *t, const struct sl_dataset_info *info) {
  bool differs = info->missing;
  for (int i = 0; i < sl__loss_terms(&t->loss); i++)
    differs |= sl__loss_of_part(&t->loss, i)->weights != NULL;
  return differs && t->ranks.size > 1 && !t->is_async;
}

/* The divisors of the loss's means, and what its gradients are multiplied by. batch NULL: this rank
 * is no worker. */
static enum sl_status scale_loss(const struct sl_trainer *t, const struct sl_batch *batch,
                                 const struct sl_dataset_info *info, struct sl__pending_step *p,
                                 float scale[SL_MAX_FIELDS]) {
  double terms[SL_MAX_FIELDS] = {0};
  bool together = counts_together(t, info);
  if (batch) sl__loss_divisors(&t->loss, batch, info, !t->is_async && !together, terms);
  enum sl_status status = together ? sl__trainer_sum(t, terms) : SL_OK;
  for (int i = 0; i < sl__loss_terms(&t->loss); i++) {
    float weight = t->loss.part_count ? t->loss.parts[i].weight : 1.0f;
    p->divisor[i] = sl__loss_of_part(&t->loss, i)->weights ? terms[i] : 0;
    scale[i] = terms[i] > 0 ? weight / (float)terms[i] : 0; /* no valid samples change nothing */
  }
  return status;
}

/* A rank that is no worker has no loss, but may ask for something. */
static enum sl_status submit_server_stats(struct sl_trainer *t, struct sl__pending_step *p) {
  const struct sl__launch anywhere = {0};
  float asks[SL__ASKS];
  if (t->is_async) return SL_OK;
  sl__trainer_asks(t, asks);
  return sl__step_stats_submit(t->step_stats, &anywhere, 0, NULL, asks, p->stats, p->flags);
}

/* It reads no batch, but counts it. Its messages have the order of the workers'. */
static enum sl_status submit_server(struct sl_trainer *t, struct sl_loader *loader,
                                    struct sl__pending_step *p, bool training) {
  const struct sl_dataset_info *info = sl_dataset_info(sl_loader_dataset(loader));
  int64_t length = sl_loader_length(loader);
  float scale[SL_MAX_FIELDS];
  p->inputs = NULL;
  p->loader = loader;
  p->index = training ? t->next_batch.index : -1;
  p->share = 0; /* the other ranks know it */
  p->report = begin_report(t);
  p->report.epoch = t->next_batch.epoch;
  p->report.last = t->next_batch.index + 1 == length;
  enum sl_status status = sl__loss_fit(&t->loss, info);
  if (status == SL_OK) status = scale_loss(t, NULL, info, p, scale);
  if (status == SL_OK && training)
    status = sl__model_shards_update(t->shards, t->step, (float)p->report.lr);
  if (status == SL_OK && training) status = submit_squares(t, p);
  if (status == SL_OK) status = submit_server_stats(t, p);
  if (status != SL_OK || !training) return status;
  t->step++;
  int64_t batches = t->next_batch.epoch * length + t->next_batch.index + 1;
  sl__trainer_move_to(t,
                      &(struct sl__data_position){
                          .loader = loader, .epoch = batches / length, .index = batches % length});
  return status;
}

/* The updates come first: over ranks a sum of gradients would else join the sum of the statistics,
 * which waits for other ranks. */
enum sl_status sl__trainer_end_step(struct sl_trainer *t, struct sl__plan *plan,
                                    const struct sl__step *step, struct sl__pending_step *p) {
  enum sl_status status = SL_OK;
  if (step->training)
    SL__TRY(sl__model_shards_update(t->shards, (int64_t)step->number, (float)p->report.lr));
  if (step->training) SL__TRY(submit_squares(t, p));
  status = submit_stats(t, plan, step, p);
out:
  return status;
}

enum sl_status sl__trainer_submit_step(struct sl_trainer *t, struct sl__plan *plan,
                                       const struct sl__step *step, struct sl__pending_step *p) {
  enum sl_status status = sl__plan_submit(plan, step);
  return status == SL_OK ? sl__trainer_end_step(t, plan, step, p) : status;
}

/* The step's results may be reported later. */
static enum sl_status hand_back(struct sl__pending_step *p) {
  struct sl__batch_tensors *inputs = p->inputs;
  p->inputs = NULL;
  return inputs ? sl__batch_tensors_recycle(inputs, p->slot) : SL_OK;
}

/* Each call reports one step. After a loader with many slots, pending steps may have all batches of
 * one with few. */
static enum sl_status get_slot(struct sl_trainer *t, const struct sl_loader *loader) {
  struct sl__pending_step *oldest = NULL;
  int out = 0;
  for (int64_t i = t->submitted - 1; i >= t->finished; i--) {
    struct sl__pending_step *p = &t->pending[i % t->in_flight];
    if (!p->inputs || p->loader != loader) continue;
    oldest = p;
    out++;
  }
  return oldest && out >= sl_loader_slots(loader) - 1 ? hand_back(oldest) : SL_OK;
}

static enum sl_status submit_worker(struct sl_trainer *t, struct sl_loader *loader,
                                    struct sl__pending_step *p, bool training) {
  struct sl__plan *plan;
  struct sl_batch batch;
  enum sl_status status;
  SL__TRY(sl__trainer_inputs(t, loader, &p->inputs));
  SL__TRY(get_slot(t, loader));
  SL__TRY(sl_loader_next(loader, &batch));
  status = sl__trainer_plan(t, &batch, training, &plan);
  if (status != SL_OK) { /* no task reads the batch yet */
    sl_loader_recycle(loader, batch.slot);
    return status;
  }
  p->slot = batch.slot;
  p->loader = loader;
  p->index = batch.index;
  p->report = begin_report(t);
  p->report.epoch = batch.epoch;
  p->report.last = batch.last;
  if (t->gradient_stats) note_parts(t, plan, &batch, p);
  const struct sl_dataset_info *info = sl_dataset_info(sl_loader_dataset(loader));
  struct sl__step step = {.number = (uint64_t)t->step,
                          .training = training,
                          .carry = t->carry_state && batch.index > 0,
                          .keep = t->carry_state,
                          .keep_outputs = t->predictions != NULL,
                          .loss = &t->loss,
                          .first_row = sl__worker(&t->ranks) * batch.batch,
                          .x = p->inputs->x[batch.slot],
                          .labels = p->inputs->labels[batch.slot],
                          .grads = t->shards->grads,
                          .rows = t->shards->rows,
                          .stats = direct_stats(t, plan, p)};
  SL__TRY(scale_loss(t, &batch, info, p, step.scale));
  sl__batch_tensors_prefetch(p->inputs, batch.slot, &t->grid, plan->input_reader);
  bool captures = t->captures && !t->predictions;
  SL__TRY((captures ? sl__captured_step_submit : sl__trainer_submit_step)(t, plan, &step, p));
  if (t->predictions) SL__TRY(sl__predictions_append(t->predictions, plan, &batch));
  if (training) {
    t->step++;
    sl__trainer_move_to(t, &(struct sl__data_position){.loader = loader,
                                                       .epoch = batch.epoch + batch.last,
                                                       .index = batch.last ? 0 : batch.index + 1});
  }
out:
  return status;
}

/* The caller has made room for a pending step. */
static enum sl_status submit(struct sl_trainer *t, struct sl_loader *loader, bool training) {
  struct sl__pending_step *p = &t->pending[t->submitted % t->in_flight];
  bool is_worker = !t->ranks.size || sl__is_worker(&t->ranks);
  if (t->is_async && !is_worker && !training) return SL_OK; /* workers evaluate alone */
  if (t->model->context->trace) starpu_iteration_push((unsigned long)t->step + 1);
  p->training = training;
  enum sl_status status = (is_worker ? submit_worker : submit_server)(t, loader, p, training);
  if (t->model->context->trace) starpu_iteration_pop();
  if (status != SL_OK) return status;
  sl__loader_hold(loader);
  t->submitted++;
  return SL_OK;
}

/* By its bits: GCC may compare by an instruction that traps on NaN in the program's thread, which
 * has a floating-point mode of its own (core/base/float_mode.h). */
static bool is_finite(float value) {
  const uint32_t infinite = 0x7f800000;
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (bits & infinite) != infinite;
}

/* i: the loss's part. */
static enum sl_status check_stats(const struct sl_trainer *t, const struct sl__pending_step *p,
                                  int i, const float *stats) {
  char of[96] = "";
  long long step = (long long)p->report.step; /* of an evaluation: the next one's number */
  if (t->loss.part_count) snprintf(of, sizeof of, ", output '%s'", t->loss.parts[i].field.name);
  if (stats[3] > 0) return sl__fail_bad_target(t, p, i, (double)stats[3]);
  if (!is_finite(stats[0])) {
    const char *what = isnan(stats[0]) ? "not a number" : "infinite";
    if (p->training)
      return sl__fail(SL_NOT_FINITE,
                      "step %lld%s: the loss is %s; lower the learning rate or clip the gradient",
                      step, of, what);
    return sl__fail(SL_NOT_FINITE,
                    "evaluation after %lld steps%s: the loss is %s; lower the learning rate, or "
                    "look at the data and the weights",
                    step, of, what);
  }
  return SL_OK;
}

/* The divisor of the mean of part i. With class weights it may be 0: all labels of the batch have
 * classes without weight. */
static double terms_of(const struct sl_trainer *t, const struct sl__pending_step *p, int i,
                       const float *stats) {
  return sl__loss_of_part(&t->loss, i)->weights ? p->divisor[i] : (double)stats[2];
}

/* The loss of the sums, and what goes with it. */
static void report_loss(const struct sl_trainer *t, const struct sl__pending_step *p,
                        const float *stats, struct sl_report *report) {
  bool has_labels = sl__loss_takes_labels(&t->loss);
  report->samples = (int64_t)stats[has_labels ? 2 : 1];
  report->terms = terms_of(t, p, 0, stats);
  if (stats[2] > 0) {
    report->loss = report->terms > 0 ? (double)stats[0] / report->terms : 0;
    report->accuracy = has_labels ? (double)stats[1] / (double)stats[2] : 0;
  }
}

/* The same of a loss of parts. Its samples are those of the part that counts most. */
static void report_parts(const struct sl_trainer *t, const struct sl__pending_step *p,
                         const float *stats, struct sl_report *report) {
  report->part_count = t->loss.part_count;
  for (int i = 0; i < t->loss.part_count; i++, stats += 4) {
    const struct sl__loss_part *part = &t->loss.parts[i];
    /* labels and rows are counted one by one, values by samples */
    bool one_by_one = part->loss.row->terms != SL__TERMS_VALUES;
    int64_t samples =
        one_by_one ? ((int64_t)stats[2] + part->rows - 1) / part->rows : (int64_t)stats[1];
    double terms = terms_of(t, p, i, stats);
    report->part_terms[i] = terms;
    report->part_loss[i] = terms > 0 ? (double)stats[0] / terms : 0;
    report->loss += (double)part->weight * report->part_loss[i];
    if (samples > report->samples) report->samples = samples;
  }
  report->terms = (double)report->samples;
}

/* The other ranks shall not wait for a rank that has failed. */
static enum sl_status announce(struct sl_trainer *t, enum sl_status status) {
  struct sl_context *context = t->model->context;
  if (status != SL_OK && t->ranks.size) sl__net_announce(context->net, sl_error());
  return status;
}

void sl__trainer_rest(struct sl_trainer *t) {
  char message[1200];
  if (t->ranks.size) return;
  snprintf(message, sizeof message, "%s", sl_error());
  enum sl_status status = sl__wait_for_all(t->model->context);
  if (status != SL_OK) sl__fail(status, "%s", message);
}

static void note_end(struct sl_trainer *t, enum sl_status status) {
  t->failed = status != SL_OK;
  if (t->failed) sl__trainer_rest(t);
}

/* A refusal, which all ranks see alike, leaves the trainer as it was. Without a common step the
 * other ranks would not know of it: there it is a failure. */
static enum sl_status take_loader(struct sl_trainer *t, const struct sl_loader *loader) {
  enum sl_status status = sl__trainer_check_loader(t, loader);
  if (!t->is_async) return sl__trainer_share(t, status);
  t->failed = status != SL_OK;
  return announce(t, status);
}

static void report_staleness(struct sl_trainer *t, struct sl_report *report) {
  struct sl__staleness met;
  sl__parameter_server_staleness(t->shards->exchange, &met);
  report->stop |= met.stop;
  report->staleness = met.count ? (double)met.sum / (double)met.count : 0;
  report->most_staleness = met.most;
}

/* A GPU has a CUDA graph for each way in which slots and pending steps meet, so there are few. */
static int most_pending(const struct sl_trainer *t, const struct sl_loader *loader) {
  int most = sl_loader_slots(loader) / 2;
  if (!t->adapts || most >= t->in_flight) return t->in_flight;
  return most < 2 ? 1 : most;
}

/* Did the steps since the last call take less than 2 ms each? */
static bool are_short(struct sl_trainer *t) {
  double now = sl__seconds(), all = now - t->timed_s;
  int64_t steps = t->finished - t->timed;
  t->timed = t->finished;
  t->timed_s = now;
  return steps > 0 && all < 2e-3 * (double)steps;
}

/* Sleeping and waking take longer than a short step: one wait for half of the pending steps. Long
 * steps are reported one by one. A failure is reported with the step that it concerns. */
static void await_half(struct sl_trainer *t, int most) {
  float stats[4 * SL_MAX_FIELDS];
  if (most < 4 || t->finished < t->awaited || !are_short(t)) return;
  t->awaited = t->finished + most / 2;
  (void)!sl__tensor_read(t->pending[(t->awaited - 1) % t->in_flight].stats, stats);
}

/* Waits for the oldest pending step, gives its batch back to the loader, completes its report. */
static enum sl_status finish(struct sl_trainer *t, struct sl_report *report) {
  struct sl__pending_step *p = &t->pending[t->finished % t->in_flight];
  float stats[4 * SL_MAX_FIELDS], flags[SL__ASKS] = {0};
  enum sl_status status;
  t->finished++;
  status = sl__tensor_read(p->stats, stats);
  /* of a kernel that failed here: its results may be on their way to the other ranks */
  SL__TRY(status == SL_LOST ? status : announce(t, status));
  bool in_step = t->ranks.size && !t->is_async;
  if (in_step) SL__TRY(sl__tensor_read(p->flags, flags));
  SL__TRY(hand_back(p));
  if (t->ranks.size) SL__TRY(sl__net_check(t->model->context->net));
  for (int i = 0; i < sl__loss_terms(&t->loss) && status == SL_OK; i++)
    status = check_stats(t, p, i, stats + 4 * i);
  SL__TRY(t->is_async ? announce(t, status) : status); /* with a common step all ranks see it */
  *report = p->report;
  for (int i = 0; i < sl__loss_terms(&t->loss); i++) t->loss_sums[i] = (double)stats[4 * i];
  if (t->loss.part_count)
    report_parts(t, p, stats, report);
  else
    report_loss(t, p, stats, report);
  report->stop = in_step ? flags[SL__ASK_STOP] > 0 : t->stop;
  report->save = in_step ? flags[SL__ASK_SAVE] > 0 : t->save_asked;
  if (t->is_async) report_staleness(t, report);
  if (t->gradient_stats && p->training) SL__TRY(report_gradients(p, report));
out:
  sl__loader_release(p->loader);
  return status;
}

enum sl_status sl_trainer_step(struct sl_trainer *trainer, struct sl_loader *loader,
                               struct sl_report *report, bool *reported) {
  SL__NEEDS(trainer, loader, report, reported);
  enum sl_status status;
  *reported = false;
  SL__TRY(sl__trainer_check_alive(trainer));
  SL__TRY(sl__trainer_check_outside(trainer));
  SL__TRY(sl__trainer_check_raw(trainer));
  /* the loader of the step before has passed, and a look across the ranks costs time */
  if (loader != trainer->next_batch.loader) SL__TRY(take_loader(trainer, loader));
  int most = most_pending(trainer, loader);
  if (trainer->submitted - trainer->finished >= most) {
    await_half(trainer, most);
    status = finish(trainer, report);
    *reported = status == SL_OK;
  }
  if (status == SL_OK) status = announce(trainer, submit(trainer, loader, true));
  note_end(trainer, status);
out:
  return status;
}

/* The last step's updates may end after its report, and fail: then their results must not be
 * saved. Without a common step (is_async) tasks of other ranks' updates never end. */
static enum sl_status end_updates(struct sl_trainer *t) {
  struct sl_context *context = t->model->context;
  enum sl_status status = t->is_async ? sl__task_failure() : sl__wait_for_all(context);
  return status == SL_LOST ? status : announce(t, status);
}

enum sl_status sl_trainer_drain(struct sl_trainer *trainer, struct sl_report *report,
                                bool *reported) {
  SL__NEEDS(trainer, report, reported);
  enum sl_status status;
  *reported = false;
  SL__TRY(sl__trainer_check_alive(trainer));
  if (trainer->submitted > trainer->finished) SL__TRY(sl__trainer_check_outside(trainer));
  if (trainer->submitted == trainer->finished) {
    status = end_updates(trainer);
  } else {
    status = finish(trainer, report);
    *reported = status == SL_OK;
  }
  note_end(trainer, status);
out:
  return status;
}

/* The sums of an evaluation's reports, of each part of the loss. */
struct sums {
  double loss[SL_MAX_FIELDS], terms[SL_MAX_FIELDS], right, samples;
};

static void add_report(const struct sl_trainer *t, const struct sl_report *r, struct sums *s) {
  for (int i = 0; i < sl__loss_terms(&t->loss); i++) {
    s->loss[i] += t->loss_sums[i];
    s->terms[i] += r->part_count ? r->part_terms[i] : r->terms;
  }
  s->right += r->accuracy * (double)r->samples;
  s->samples += (double)r->samples;
}

/* Each part's mean, and the loss of all. NaN where nothing counts: 0 would be the best of all. */
static double mean_loss(const struct sl_trainer *t, const struct sums *s,
                        double parts[SL_MAX_FIELDS]) {
  double loss = NAN;
  for (int i = 0; i < sl__loss_terms(&t->loss); i++) {
    parts[i] = s->terms[i] > 0 ? s->loss[i] / s->terms[i] : NAN;
    if (isnan(parts[i])) continue;
    loss = isnan(loss) ? 0 : loss;
    loss += (t->loss.part_count ? (double)t->loss.parts[i].weight : 1) * parts[i];
  }
  return loss;
}

static enum sl_status evaluate(struct sl_trainer *trainer, struct sl_loader *loader, double *loss,
                               double parts[SL_MAX_FIELDS], double *accuracy) {
  struct sums s = {0};
  enum sl_status status = SL_OK;
  if (trainer->ranks.size && !trainer->is_async) SL__TRY(sl__trainer_share_buffers(trainer));
  int64_t left = sl_loader_length(loader);
  while (status == SL_OK && (left || trainer->submitted > trainer->finished)) {
    if (left && trainer->submitted - trainer->finished < most_pending(trainer, loader)) {
      status = announce(trainer, submit(trainer, loader, false));
      left--;
      continue;
    }
    struct sl_report r;
    status = finish(trainer, &r);
    if (status == SL_OK) add_report(trainer, &r, &s);
  }
  note_end(trainer, status);
  *loss = mean_loss(trainer, &s, parts);
  *accuracy = s.samples > 0 ? s.right / s.samples : NAN;
out:
  return status;
}

/* Else the ranks with more batches would wait for those that have ended. */
static enum sl_status agree_on_length(const struct sl_trainer *t, const struct sl_loader *loader) {
  char line[80];
  if (t->is_async || t->ranks.size < 2) return SL_OK;
  snprintf(line, sizeof line, "an evaluation of %lld batches", (long long)sl_loader_length(loader));
  return sl__net_agree(t->model->context->net, line);
}

enum sl_status sl__trainer_evaluate(struct sl_trainer *trainer, struct sl_loader *loader,
                                    double *loss, double parts[SL_MAX_FIELDS], double *accuracy) {
  enum sl_status status;
  bool swaps = trainer->optimizer.average > 0 && trainer->step && !trainer->averaged;
  SL__TRY(sl__trainer_drained(trainer));
  SL__TRY(take_loader(trainer, loader));
  SL__TRY(agree_on_length(trainer, loader));
  if (swaps) SL__TRY(sl_trainer_swap_average(trainer));
  SL__TRY(evaluate(trainer, loader, loss, parts, accuracy));
  if (swaps) status = sl_trainer_swap_average(trainer);
out:
  return status;
}

enum sl_status sl_trainer_evaluate(struct sl_trainer *trainer, struct sl_loader *loader,
                                   double *loss, double *accuracy) {
  SL__NEEDS(trainer, loader, loss, accuracy);
  double parts[SL_MAX_FIELDS];
  return sl__trainer_evaluate(trainer, loader, loss, parts, accuracy);
}
