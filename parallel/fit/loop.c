/* The steps of a run, and what happens between them. */
#include "core/base/clock.h"
#include "parallel/fit/fit.h"
#include "parallel/train/ranks.h"

/* The first steps of an epoch fill the pipeline. */
static void clock_step(struct sl__step_clock *clock) {
  enum { FILLING = 4 };
  double now = sl__seconds();
  if (++clock->in_epoch > FILLING) {
    clock->seconds += now - clock->last;
    clock->steps++;
  }
  clock->last = now;
}

static enum sl_status note_step(struct sl__fit *fit, const struct sl_report *report) {
  const struct sl_fit_options *o = &fit->options;
  fit->stopped |= report->stop;
  fit->saving.due |= report->save;
  if (fit->distributed && !fit->in_step && !fit->works) return SL_OK; /* a server has no loss */
  double rate = sl__meter_add(&fit->meter, report->samples);
  clock_step(&fit->clock);
  fit->epoch_loss += report->part_count ? report->loss * report->terms : fit->trainer->loss_sums[0];
  fit->epoch_terms += report->terms;
  fit->samples += report->samples;
  sl__progress_step(&fit->progress, report, rate);
  int error = sl__run_log_step(fit->log, report, fit->trainer, rate);
  if (error) return sl__fit_fail_file(fit->own_log, error);
  if (!o->on_step) return SL_OK;
  sl__fit_callback_begin(fit);
  return sl__fit_callback_end(fit, "on_step", o->on_step(o->user, report, rate));
}

/* Notes all steps that are submitted and not yet reported. */
static enum sl_status drain(struct sl__fit *fit) {
  struct sl_report report;
  bool reported = true;
  while (reported) {
    enum sl_status status = sl_trainer_drain(fit->trainer, &report, &reported);
    if (status == SL_OK && reported) status = note_step(fit, &report);
    if (status != SL_OK) return status;
  }
  return SL_OK;
}

/* A run that was asked to stop within an epoch makes haste. After its last step it is done all the
 * same, and at an epoch's end the run that goes on from here does not come back to it. */
static bool evaluates(const struct sl__fit *fit, int64_t done) {
  if (fit->distributed && !fit->in_step && fit->rank) return false; /* rank 0 evaluates alone */
  return !fit->stopped || done == fit->steps || done % fit->epoch_steps == 0;
}

/* In common steps all ranks know it; out of step the others learn it with a later step of this one,
 * as of a signal. */
static void end_early(struct sl__fit *fit) {
  if (sl__fit_is_patient(fit)) return;
  fit->gave_up = true;
  if (fit->distributed && !fit->in_step)
    sl_trainer_stop(fit->trainer);
  else
    fit->early = true;
}

/* The end of an epoch, or of a run that ends within one. */
static enum sl_status end_epoch(struct sl__fit *fit, int64_t done) {
  bool is_best = false;
  enum sl_status status = SL_OK;
  if (evaluates(fit, done)) status = sl__fit_evaluate(fit, done, &is_best);
  if (status == SL_OK) {
    status = sl__fit_save_weights(fit, fit->options.save);
    if (status == SL_OK && is_best) status = sl__fit_save_weights(fit, fit->options.best);
    /* by rank 0; a failure must reach the other ranks where all come here together */
    if (fit->in_step) status = sl__fit_share(fit, status);
  }
  end_early(fit);
  fit->epoch_loss = 0;
  fit->epoch_terms = 0;
  return status;
}

static enum sl_status settle(struct sl__fit *fit) {
  bool stop;
  enum sl_status status = sl_trainer_settle(fit->trainer, &stop);
  fit->stopped |= stop;
  return status;
}

/* Before the first step no report says whether on_begin asked to stop, on any rank. */
static enum sl_status begin_stopped(struct sl__fit *fit) {
  fit->stopped = fit->trainer->stop;
  return fit->distributed ? sl__net_any(fit->context->net, &fit->stopped) : SL_OK;
}

/* A callback may have asked to stop; over ranks a later step says so to all. */
static void look_for_stop(struct sl__fit *fit) {
  if (!fit->distributed) fit->stopped |= fit->trainer->stop;
}

/* Do the ranks settle before an epoch's end? Rank 0 of a model over several ranks has its own
 * layers only, until sl_trainer_settle. Ranks out of step also do for a checkpoint: where one halts
 * for it, another one may halt because it was asked to stop, and all must make the same calls to
 * each other. */
static bool gathers(const struct sl__fit *fit, int64_t done, bool ends, bool last) {
  const struct sl_fit_options *o = &fit->options;
  bool apart = fit->distributed && !fit->in_step;
  return last || (apart && sl__fit_saving_is_due(fit, done)) ||
         (ends && (o->save || o->best) && sl_placement_ranks(fit->trainer->model) > 1);
}

/* All submitted steps end before. The checkpoint comes last: a run that resumes from it has
 * evaluated and saved the epoch already. */
static enum sl_status halt(struct sl__fit *fit, int64_t done) {
  enum sl_status status = drain(fit);
  bool last = fit->stopped || done == fit->steps;
  bool ends = last || done % fit->epoch_steps == 0;
  bool have_settled = gathers(fit, done, ends, last);
  sl__progress_pause(&fit->progress);
  if (status == SL_OK && have_settled) status = settle(fit);
  ends |= fit->stopped;
  if (status == SL_OK && ends) status = end_epoch(fit, done);
  look_for_stop(fit);
  last |= fit->stopped || fit->early;
  if (status == SL_OK && last && !have_settled) status = settle(fit);
  if (status == SL_OK && sl__fit_saving_is_due(fit, done)) {
    status = sl__fit_save_begin(fit, last);
    if (status == SL_OK) status = settle(fit); /* all ranks are here: has one got a signal? */
  }
  sl__progress_resume(&fit->progress);
  sl__meter_restart(&fit->meter);
  fit->clock.in_epoch = 0;
  return status;
}

/* ---- the trace ---- */

static bool is_recorded(const struct sl__fit *fit, int64_t step) {
  return fit->trace.first && step >= fit->trace.first && step <= fit->trace.last;
}

/* Recording starts and stops while no task runs, so that the recorded steps are whole. */
static enum sl_status stop_trace(struct sl__fit *fit, int64_t done) {
  if (!(fit->trace.since > 0)) return SL_OK;
  enum sl_status drained = drain(fit);
  enum sl_status status = drained == SL_OK ? sl_wait(fit->context) : drained;
  fit->trace.seconds += sl__seconds() - fit->trace.since;
  fit->trace.since = 0;
  fit->result.trace_last = done;
  sl_trace_stop(fit->context);
  return status;
}

static enum sl_status start_trace(struct sl__fit *fit, int64_t step) {
  if (!is_recorded(fit, step) || fit->trace.since > 0) return SL_OK;
  enum sl_status status = drain(fit);
  if (status != SL_OK || fit->stopped) return status;
  status = sl_wait(fit->context);
  if (status == SL_OK) status = sl_trace_start(fit->context);
  if (status != SL_OK) return status;
  fit->trace.since = sl__seconds();
  return SL_OK;
}

/* ---- the steps ---- */

/* done: including this one. */
static enum sl_status make_step(struct sl__fit *fit, int64_t done) {
  struct sl_report report;
  bool reported;
  if (fit->options.signals && sl_signals_caught())
    sl_trainer_stop(fit->trainer); /* seen by all ranks after the same step */
  sl__fit_watch_clock(fit);
  enum sl_status status = start_trace(fit, done);
  if (status == SL_OK) status = sl_trainer_step(fit->trainer, fit->train, &report, &reported);
  if (status == SL_OK && reported) status = note_step(fit, &report);
  return status == SL_OK ? sl__fit_save_poll(fit) : status;
}

enum sl_status sl__fit_loop(struct sl__fit *fit) {
  enum sl_status begun = begin_stopped(fit);
  if (begun != SL_OK || fit->stopped) return begun;
  if (fit->begun_at >= fit->steps || !sl__fit_is_patient(fit)) {
    fit->early = fit->gave_up = fit->begun_at < fit->steps;
    return sl__fit_evaluate_again(fit);
  }
  sl__meter_restart(&fit->meter);
  fit->saving.begun = sl__seconds();
  for (int64_t done = fit->begun_at + 1; done <= fit->steps && !fit->stopped && !fit->early;
       done++) {
    enum sl_status status = make_step(fit, done);
    bool halts = fit->stopped || done % fit->epoch_steps == 0 || sl__fit_saving_is_due(fit, done);
    if (status == SL_OK && (halts || !is_recorded(fit, done + 1)))
      status = stop_trace(fit, done); /* evaluation and saving are no part of a step */
    /* the reports of the last steps may have changed either */
    halts |= fit->stopped || sl__fit_saving_is_due(fit, done);
    if (status == SL_OK && (halts || done == fit->steps)) status = halt(fit, done);
    if (status != SL_OK) return status;
  }
  return fit->options.checkpoint ? sl__fit_save_end(fit, true) : SL_OK;
}
