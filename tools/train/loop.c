#include "tools/train/loop.h"

#include "tools/train/evaluation.h"
#include "tools/train/failure.h"
#include "parallel/fit/interruption.h"
#include "tools/train/messages.h"
#include "tools/train/ranks.h"
#include "tools/train/saving.h"

/* The first steps of an epoch fill the pipeline. */
static void clock_step(struct step_clock *clock) {
  enum { FILLING = 4 };
  double now = seconds_now();
  if (++clock->in_epoch > FILLING) {
    clock->seconds += now - clock->last;
    clock->steps++;
  }
  clock->last = now;
}

static int note_step(struct session *session, const struct sl_report *report) {
  session->stopped |= report->stop;
  session->checkpoint.due |= report->save;
  if (ranks_are_async(&session->cli) && !session->works)
    return EXIT_DONE; /* a server has no loss */
  double rate = meter_add(&session->meter, report->samples);
  clock_step(&session->clock);
  session->epoch_loss += report->loss * report->terms;
  session->epoch_terms += report->terms;
  session->samples += report->samples;
  progress_step(&session->progress, report, rate);
  failure_report_step(&session->failure_report, report);
  int error = log_step(session->log, report, rate);
  return error ? session_fail_file(session, session->own_log, error) : EXIT_DONE;
}

/* Notes all steps that are submitted and not yet reported. */
static int drain(struct session *session) {
  struct sl_report report;
  bool reported = true;
  while (reported) {
    enum sl_status status = sl_trainer_drain(session->trainer, &report, &reported);
    if (status != SL_OK) return session_fail_library(session, status);
    int code = reported ? note_step(session, &report) : EXIT_DONE;
    if (code != EXIT_DONE) return code;
  }
  return EXIT_DONE;
}

/* The end of an epoch, or of a run that ends within one. */
static int end_epoch(struct session *session, int64_t epoch) {
  bool alone = ranks_are_async(&session->cli);
  int code =
      session->stopped || (alone && session->rank) ? EXIT_DONE : evaluation_run(session, epoch);
  if (code == EXIT_DONE) {
    code = saving_weights(
        session); /* by rank 0; a failure must reach the other ranks where all come here together */
    if (ranks_wanted(&session->cli) && !alone) code = session_share(session, code);
  }
  session->epoch_loss = 0;
  session->epoch_terms = 0;
  return code;
}

static int settle(struct session *session) {
  bool stop;
  enum sl_status status = sl_trainer_settle(session->trainer, &stop);
  session->stopped |= stop;
  return status == SL_OK ? EXIT_DONE : session_fail_library(session, status);
}

/* All submitted steps end before. The checkpoint comes last: a run that resumes from it has
 * evaluated and saved the epoch already. */
static int halt(struct session *session, int64_t done) {
  int code = drain(session);
  bool last = session->stopped || done == session->steps;
  bool ends = last || done % session->epoch_steps == 0;
  progress_pause(&session->progress);
  /* rank 0 of a model over several ranks has its own layers only, until sl_trainer_settle */
  bool gathers = last || (ends && session->cli.save && sl_placement_ranks(session->model) > 1);
  if (code == EXIT_DONE && gathers) code = settle(session);
  if (code == EXIT_DONE && ends) code = end_epoch(session, (done - 1) / session->epoch_steps + 1);
  if (code == EXIT_DONE && saving_is_due(session, done)) {
    code = saving_begin(session, last);
    if (code == EXIT_DONE) code = settle(session); /* all ranks are here: has one got a signal? */
  }
  progress_resume(&session->progress);
  meter_restart(&session->meter);
  session->clock.in_epoch = 0;
  return code;
}

/* Recording starts and stops while no task runs, so that the recorded steps are whole. */
static int stop_trace(struct session *session, int64_t done) {
  if (!(session->trace.since > 0)) return EXIT_DONE;
  int code = drain(session);
  enum sl_status status = code == EXIT_DONE ? sl_wait(session->context) : SL_OK;
  trace_stop(&session->trace, session->context, done);
  return status == SL_OK ? code : session_fail_library(session, status);
}

static int start_trace(struct session *session, int64_t step) {
  if (!trace_takes(&session->trace, step) || session->trace.since > 0) return EXIT_DONE;
  int code = drain(session);
  if (code != EXIT_DONE || session->stopped) return code;
  enum sl_status status = sl_wait(session->context);
  if (status == SL_OK) status = trace_start(&session->trace, session->context, step);
  return status == SL_OK ? EXIT_DONE : session_fail_library(session, status);
}

int loop_run(struct session *session) {
  struct sl_report report;
  bool reported;
  progress_start(&session->progress, session_unit(session), session->cli.quiet, session->begun_at,
                 session->steps, session->epochs);
  if (!session->cli.quiet) messages_plan(session);
  if (session->begun_at >= session->steps) return evaluation_again(session);
  meter_restart(&session->meter);
  session->checkpoint.begun = seconds_now();
  for (int64_t done = session->begun_at + 1; done <= session->steps && !session->stopped; done++) {
    if (interruption_came())
      sl_trainer_stop(session->trainer); /* seen by all ranks after the same step */
    saving_watch_clock(session);
    int code = start_trace(session, done);
    if (code != EXIT_DONE) return code;
    enum sl_status status =
        sl_trainer_step(session->trainer, session->train_loader, &report, &reported);
    if (status != SL_OK) return session_fail_library(session, status);
    code = reported ? note_step(session, &report) : EXIT_DONE;
    if (code == EXIT_DONE) code = saving_poll(session);
    bool halts =
        session->stopped || done % session->epoch_steps == 0 || saving_is_due(session, done);
    if (code == EXIT_DONE && (halts || !trace_takes(&session->trace, done + 1)))
      code = stop_trace(session, done); /* evaluation and saving are no part of a step */
    halts |=
        session->stopped ||
        saving_is_due(session, done); /* the reports of the last steps may have changed either */
    if (code == EXIT_DONE && (halts || done == session->steps)) code = halt(session, done);
    if (code != EXIT_DONE) return code;
  }
  return session->cli.checkpoint ? saving_end(session, true) : EXIT_DONE;
}
