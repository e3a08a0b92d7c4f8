/* A run: its start, its steps, its end. */
#include "parallel/fit/fit.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/runtime/log.h"
#include "parallel/fit/describe.h"
#include "parallel/train/signals.h"

/* ---- failures ---- */

enum sl_status sl__fit_share(struct sl__fit *fit, enum sl_status mine) {
  if (!fit->distributed) return mine;
  enum sl_status status = sl_share(fit->context, mine, sl_error());
  fit->common = status != SL_OK && status != SL_LOST;
  return status;
}

void sl__fit_callback_begin(const struct sl__fit *fit) {
  fit->trainer->in_callback = true;
  sl__fail(SL_OK, "%s", "");
}

enum sl_status sl__fit_callback_end(const struct sl__fit *fit, const char *name,
                                    enum sl_status status) {
  fit->trainer->in_callback = false;
  if (status == SL_OK || *sl_error()) return status;
  return sl__fail(status, "%s: the program's function ended the run (%s)", name,
                  sl_status_name(status));
}

void sl__fit_warn(void *user, const char *line) {
  struct sl__fit *fit = user;
  sl__progress_clear(&fit->progress);
  if (!fit->options.on_warning) {
    sl__log(fit->context, SL_LOG_WARNING, "%s", line);
    return;
  }
  fit->trainer->in_callback = true;
  fit->options.on_warning(fit->options.user, line);
  fit->trainer->in_callback = false;
}

/* ---- the start ---- */

/* How long: steps, epochs, the shorter of both. */
static void plan_steps(struct sl__fit *fit) {
  const struct sl_fit_options *o = &fit->options;
  int64_t epochs = o->epochs ? o->epochs : o->steps ? INT64_MAX : 10;
  fit->epoch_steps = sl_loader_length(fit->train);
  fit->steps = epochs > INT64_MAX / fit->epoch_steps ? INT64_MAX : epochs * fit->epoch_steps;
  if (o->steps && o->steps < fit->steps) fit->steps = o->steps;
  fit->epochs = fit->steps / fit->epoch_steps + (fit->steps % fit->epoch_steps > 0);
}

/* Before an epoch is trained: the evaluation behind it shall not fail by its loader. A server reads
 * no batches. */
static enum sl_status check_loaders(const struct sl__fit *fit) {
  const struct sl_loader *validation = fit->options.validation;
  bool evaluates = validation && !(fit->distributed && !fit->in_step && fit->rank);
  if (!fit->works) return SL_OK;
  enum sl_status status = sl__trainer_check_loader(fit->trainer, fit->train);
  if (status != SL_OK || !evaluates) return status;
  status = sl__trainer_check_loader(fit->trainer, validation);
  return status == SL_OK ? SL_OK : sl__fail(status, "validation: %s", sl_error());
}

/* What needs no other rank. */
static enum sl_status start_alone(struct sl__fit *fit) {
  const struct sl_fit_options *o = &fit->options;
  enum sl_status status = sl__fit_check_options(o);
  if (status == SL_OK) status = sl__fit_check_outputs(o, fit->rank);
  if (status == SL_OK) status = check_loaders(fit);
  if (status == SL_OK) status = sl__fit_check_metric(fit);
  if (status != SL_OK) return status;
  bool judges = o->patience || o->best || strcmp(o->metric, "loss") != 0;
  if (!o->validation && judges)
    return sl__fail(SL_BAD_ARGUMENT, "%s: needs evaluations; give a loader for validation",
                    o->patience ? "patience"
                    : o->best   ? "best"
                                : "metric");
  if (o->checkpoint && o->validation == fit->train)
    return sl__fail(
        SL_BAD_ARGUMENT,
        "validation: is the loader that trains, which evaluations move on, so a run might "
        "not go on from a checkpoint to the bit; give a loader of its own");
  if (o->checkpoint_minutes > 0 && fit->distributed && !fit->in_step)
    return sl__fail(SL_BAD_ARGUMENT,
                    "checkpoint_minutes %g: ranks out of step (dist_async) meet after a number of "
                    "steps; name one",
                    o->checkpoint_minutes);
  status = sl__fit_note_data(fit);
  if (status != SL_OK) return status;
  if (o->log) fit->own_log = sl__fit_own_path(o->log, fit->rank);
  if (o->log && !fit->own_log) return SL_NO_MEMORY;
  return o->checkpoint && !fit->rank ? sl__fit_take_folder(&fit->saving.folder, o->resume) : SL_OK;
}

static const char *given(bool option) { return option ? "given" : "(not given)"; }

/* Ranks with other options would wait for calls that the others never make. Paths may differ: they
 * are of rank 0's files. */
static enum sl_status agree(struct sl__fit *fit) {
  const struct sl_fit_options *o = &fit->options;
  char *lines = NULL;
  if (!fit->distributed) return SL_OK;
  int length =
      asprintf(&lines,
               "epochs %lld\nsteps %lld\nvalidation %s\nmetric %s\nconfusion %s\n"
               "patience %lld\nmin_delta %.9g\nsave %s\nbest %s\ncheckpoint %s\n"
               "checkpoint_every %lld\ncheckpoint_minutes %.9g\nresume %s\n",
               (long long)o->epochs, (long long)o->steps, given(o->validation != NULL), o->metric,
               given(o->confusion), (long long)o->patience, o->min_delta, given(o->save != NULL),
               given(o->best != NULL), given(o->checkpoint != NULL), (long long)o->checkpoint_every,
               o->checkpoint_minutes, given(o->resume));
  if (length < 0) lines = NULL;
  enum sl_status status =
      length < 0 ? sl__fail(SL_NO_MEMORY, "no memory to compare the options") : SL_OK;
  status = sl__fit_share(fit, status);
  if (status == SL_OK) status = sl_agree(fit->context, lines);
  fit->common = status != SL_OK && status != SL_LOST;
  free(lines);
  return status;
}

/* A checkpoint notes the loader's place, and a run goes on from one only if that is the place of as
 * many steps. Steps of another loader, evaluations and seeks leave it elsewhere. A server reads no
 * batches. */
static enum sl_status check_place(const struct sl__fit *fit) {
  int64_t epoch, index, length = fit->epoch_steps;
  if (!fit->options.checkpoint || !fit->works) return SL_OK;
  sl_loader_tell(fit->train, &epoch, &index);
  if (epoch == fit->begun_at / length && index == fit->begun_at % length) return SL_OK;
  return sl__fail(
      SL_BAD_ARGUMENT,
      "checkpoint: the trainer has made %lld steps, and the loader is at batch %lld of epoch %lld "
      "(after an evaluation, a seek, or steps of another trainer or with another loader?), so no "
      "run could go on from a checkpoint; seek it to batch %lld of epoch %lld, or leave "
      "checkpoints out",
      (long long)fit->begun.step, (long long)index, (long long)epoch,
      (long long)(fit->begun_at % length), (long long)(fit->begun_at / length));
}

/* Only runs over ranks go on with steps of another size. */
static enum sl_status check_shift(const struct sl__fit *fit, int64_t shift) {
  const char *resumed = fit->saving.folder.newest;
  if (!shift || fit->distributed || !fit->options.checkpoint) return SL_OK;
  if (*resumed)
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s: step %lld is elsewhere in the data; was the batch another then?", resumed,
                    (long long)fit->begun.step);
  return sl__fail(
      SL_BAD_ARGUMENT,
      "checkpoint: the trainer was loaded from a checkpoint of another batch, so no run "
      "could go on from one of this run; load it with that batch, or leave checkpoints "
      "out");
}

/* The steps that were made before. After a checkpoint of steps of another size, as of another
 * number of ranks, the loader goes on at the same place in the data; of a resumed run so does the
 * schedule of rates. */
static enum sl_status find_position(struct sl__fit *fit) {
  struct sl_trainer *t = fit->trainer;
  int64_t shift = t->shifted == fit->train ? t->place_shift : 0;
  fit->begun = sl_trainer_position(t);
  enum sl_status status = check_shift(fit, shift);
  if (status != SL_OK) return status;
  if (*fit->saving.folder.newest) t->schedule_shift = shift;
  fit->begun_at = fit->begun.step + shift;
  return check_place(fit);
}

/* Rank 0 has what the checkpoint notes. */
static enum sl_status resume(struct sl__fit *fit) {
  enum sl_status status =
      sl__checkpoints_resume(&fit->saving.folder, fit->context, fit->trainer, fit->train);
  if (status != SL_OK) return status;
  const char *before = sl_trainer_loaded_options(fit->trainer);
  char *now = sl__fit_noted(fit);
  if (now) fit->saving.changes = sl__fit_changes(before, now);
  free(now);
  status = sl__fit_take_noted(fit, before);
  if (!fit->saving.changes) status = sl__fail(SL_NO_MEMORY, "no memory for the options");
  if (!fit->distributed) return status;
  status = sl__fit_share(fit, status);
  return status == SL_OK ? sl_broadcast(fit->context, &fit->best, sizeof fit->best) : status;
}

/* Which steps are recorded. The same command again, after a crash: they may be recorded already. */
static enum sl_status plan_trace(struct sl__fit *fit) {
  enum { FIRST = 11, COUNT = 10 }; /* the first ones fill caches and pools */
  const struct sl_fit_options *o = &fit->options;
  int64_t begun = fit->begun_at, steps = fit->steps;
  if (!o->trace || begun >= steps) return SL_OK;
  if (begun && o->trace_last && o->trace_last <= begun) return SL_OK;
  int64_t first = o->trace_first ? o->trace_first : begun + FIRST;
  int64_t last = o->trace_first ? o->trace_last : first + COUNT - 1;
  if (!o->trace_first && last > steps) { /* a short run: its last steps */
    first = steps - begun > COUNT ? steps - COUNT + 1 : begun + 1;
    last = steps;
  }
  if (first <= begun) first = begun + 1;
  if (last > steps) last = steps;
  fit->trace.first = first;
  fit->trace.last = last;
  if (first <= last) return SL_OK;
  fit->common = fit->distributed;
  return sl__fail(SL_BAD_ARGUMENT, "trace-steps %lld-%lld: this run has steps %lld to %lld",
                  (long long)o->trace_first, (long long)o->trace_last, (long long)begun + 1,
                  (long long)steps);
}

static enum sl_status open_log(struct sl__fit *fit) {
  char owner[200];
  fit->log_opened = sl__seconds();
  int error = sl__run_log_open(fit->own_log, fit->begun.step, &fit->log, owner, sizeof owner);
  if (error == EBUSY)
    return sl__fail(SL_BAD_ARGUMENT,
                    "log %s: another run writes this file (%s); name another file, or end that "
                    "run first",
                    fit->own_log, owner);
  if (!error && fit->own_log) error = sl__run_log_line(fit->log, sl__fit_describe(fit));
  if (!error && *fit->saving.folder.newest)
    error = sl__run_log_resumed(fit->log, fit->saving.folder.newest, fit->begun.step,
                                fit->saving.changes);
  return error ? sl__fit_fail_file(fit->own_log ? fit->own_log : "a log", error) : SL_OK;
}

/* Opens what can fail: folder, checkpoint, log. The log comes last: a bad start leaves an older one
 * alone. */
static enum sl_status open_run(struct sl__fit *fit) {
  const struct sl_fit_options *o = &fit->options;
  enum sl_status status = sl__fit_share(fit, start_alone(fit));
  if (status == SL_OK) status = agree(fit);
  if (status == SL_OK) plan_steps(fit);
  if (status == SL_OK && o->checkpoint && o->resume) status = resume(fit);
  if (status == SL_OK) status = sl__fit_share(fit, find_position(fit));
  if (status == SL_OK) status = plan_trace(fit);
  return status == SL_OK ? open_log(fit) : status;
}

/* A program may have a line of its own. */
static void print_resumed(struct sl__fit *fit, const struct sl_fit_begin *begin) {
  if (fit->options.on_begin || !begin->resumed) return;
  sl__progress_print(&fit->progress, "Going on from %s, after step %lld of %lld%s%s",
                     begin->resumed, (long long)begin->index, (long long)begin->steps,
                     *begin->changes ? "; changed: " : "", begin->changes);
}

static enum sl_status tell_begin(struct sl__fit *fit) {
  const struct sl_fit_options *o = &fit->options;
  const char *resumed = *fit->saving.folder.newest ? fit->saving.folder.newest : NULL;
  const struct sl_fit_begin begin = {.step = fit->begun.step,
                                     .index = fit->begun_at,
                                     .steps = fit->steps,
                                     .epochs = fit->epochs,
                                     .resumed = resumed,
                                     .changes = fit->saving.changes ? fit->saving.changes : ""};
  sl__progress_start(&fit->progress, sl__fit_unit(fit), !o->progress || fit->rank, fit->begun_at,
                     fit->steps, fit->epochs);
  print_resumed(fit, &begin);
  if (!o->on_begin) return SL_OK;
  sl__fit_callback_begin(fit);
  return sl__fit_callback_end(fit, "on_begin", o->on_begin(o->user, &begin));
}

/* ---- the end ---- */

/* Out of step rank 0 alone knows that it gave up. */
static enum sl_status share_end(struct sl__fit *fit) {
  if (!fit->distributed || fit->in_step || !fit->options.patience) return SL_OK;
  return sl_broadcast(fit->context, &fit->gave_up, sizeof fit->gave_up);
}

static const char *cause_of(const struct sl__fit *fit) {
  const char *text = fit->options.signals ? sl__signal_text(sl_signals_caught()) : NULL;
  return text ? text : fit->trainer->stop ? "the program" : "another rank";
}

static void fill_result(struct sl__fit *fit, enum sl_status status) {
  struct sl_fit_result *r = &fit->result;
  r->end = status != SL_OK                                   ? SL_FIT_FAILED
           : fit->gave_up                                    ? SL_FIT_EARLY
           : fit->stopped && fit->progress.done < fit->steps ? SL_FIT_INTERRUPTED
                                                             : SL_FIT_DONE;
  r->cause = r->end == SL_FIT_INTERRUPTED ? cause_of(fit) : NULL;
  r->step = fit->progress.done;
  r->steps = fit->steps;
  r->epochs = fit->epochs;
  r->epoch = fit->epoch_steps ? r->step / fit->epoch_steps : 0;
  r->best = fit->best.evaluation;
  r->seconds = fit->progress.busy;
  r->step_seconds = fit->clock.steps ? fit->clock.seconds / (double)fit->clock.steps : 0;
  r->samples = fit->samples;
  r->trace_first = fit->trace.first;
  r->trace_seconds = fit->trace.seconds;
  snprintf(r->checkpoint, sizeof r->checkpoint, "%s", fit->saving.folder.newest);
}

/* "no better loss in 3 evaluations; the best was 0.2508, of epoch 4" */
static const char *early_text(const struct sl__fit *fit, char *text, size_t size) {
  const struct sl_fit_options *o = &fit->options;
  const struct sl_fit_evaluation *best = &fit->best.evaluation;
  int used = snprintf(text, size, "no better %s in %lld evaluations", o->metric,
                      (long long)fit->best.since);
  char number[32];
  if (best->epoch)
    snprintf(text + used, size - (size_t)used, "; the best was %s, of epoch %lld",
             sl__progress_loss(best->deciding, number, sizeof number), (long long)best->epoch);
  return text;
}

/* The log's last line. errno's value, or 0. */
static int end_log(struct sl__fit *fit, enum sl_status status, const char *message) {
  const struct sl__progress *progress = &fit->progress;
  char early[200];
  bool failed = status != SL_OK;
  bool stopped = fit->stopped && !fit->gave_up && progress->done < fit->steps;
  bool knows = fit->result.end == SL_FIT_EARLY && fit->best.since > 0;
  if (!fit->log) return 0;
  int error =
      sl__run_log_end(fit->log,
                      failed    ? "failed"
                      : stopped ? "interrupted"
                                : "done",
                      sl__seconds() - fit->log_opened,
                      !failed && progress->busy > 0 ? (double)fit->samples / progress->busy : -1,
                      failed    ? message
                      : stopped ? fit->result.cause
                      : knows   ? early_text(fit, early, sizeof early)
                                : NULL);
  int closing = sl__run_log_close(fit->log);
  fit->log = NULL;
  return error ? error : closing;
}

/* The thread that writes a checkpoint uses the folder. Not collective: others may have failed. */
static void close_all(struct sl__fit *fit) {
  struct sl_trainer *t = fit->trainer;
  if (fit->trace.since > 0) sl_trace_stop(fit->context);
  if (fit->options.checkpoint && t->saving) {
    t->saving_free(t->saving);
    t->saving = NULL;
  }
  sl__checkpoints_close(&fit->saving.folder);
  free(fit->saving.changes);
  free(fit->own_log);
}

/* Returns the run's status, with its message. */
static enum sl_status end(struct sl__fit *fit, enum sl_status status) {
  char message[1200] = "", early[200];
  if (status == SL_OK) status = share_end(fit);
  fill_result(fit, status);
  if (status == SL_OK && fit->saving.failed != SL_OK) { /* the last one, which is of all ranks */
    status = sl__fail(fit->saving.failed, "%s", fit->saving.why);
    fit->common = true;
  }
  fit->common |= status == SL_NOT_FINITE && !(fit->distributed && !fit->in_step);
  if (status != SL_OK) snprintf(message, sizeof message, "%s", sl_error());
  int error = end_log(fit, status, message);
  if (error && status == SL_OK) {
    status = sl__fit_fail_file(fit->own_log ? fit->own_log : "a log", error);
    snprintf(message, sizeof message, "%s", sl_error());
    fit->result.end = SL_FIT_FAILED;
  }
  sl__progress_clear(&fit->progress);
  if (fit->result.end == SL_FIT_EARLY && !fit->rank)
    sl__progress_print(&fit->progress, "Ended early    %s", early_text(fit, early, sizeof early));
  if (status != SL_OK && fit->distributed && !fit->common) sl_leave(fit->context, message);
  if (status != SL_OK) sl__trainer_rest(fit->trainer);
  close_all(fit);
  fit->result.common = status != SL_OK && fit->common;
  return status == SL_OK ? SL_OK : sl__fail(status, "%s", message);
}

static const struct sl_fit_evaluation nothing = {
    .deciding = NAN,
#define SL__FIT_METRIC(key, title, larger, share) .key = NAN,
#include "parallel/fit/metrics.def"
#undef SL__FIT_METRIC
};

static void begin(struct sl__fit *fit) {
  struct sl_trainer *t = fit->trainer;
  struct sl_fit_options *o = &fit->options;
  fit->context = t->model->context;
  fit->distributed = t->ranks.size > 0;
  fit->in_step = fit->distributed && !t->is_async;
  fit->rank = fit->distributed ? t->ranks.rank : 0;
  fit->works = !fit->distributed || sl__is_worker(&t->ranks);
  fit->saving.folder = (struct sl__checkpoints){
      .folder = o->checkpoint, .keep = o->keep ? o->keep : 3, .warn = sl__fit_warn, .user = fit};
  fit->best = (struct sl__best){.evaluation = nothing, .reference = NAN};
  fit->result.last = fit->result.best = nothing;
  fit->progress.quiet = true;
  t->stop = t->shards->stop = false; /* of a run before */
  if (!o->metric) o->metric = "loss";
}

/* The program's own steps before this run, which has their reports to itself. */
static enum sl_status end_pending(struct sl_trainer *trainer) {
  struct sl_report report;
  bool reported = true;
  enum sl_status status = SL_OK;
  while (reported && status == SL_OK) status = sl_trainer_drain(trainer, &report, &reported);
  return status;
}

enum sl_status sl_fit(struct sl_trainer *trainer, struct sl_loader *train,
                      const struct sl_fit_options *options, struct sl_fit_result *result) {
  SL__NEEDS(trainer, train);
  struct sl__fit fit = {.trainer = trainer, .train = train};
  if (result) *result = fit.result;
  enum sl_status status = sl__trainer_check_outside(trainer);
  if (status != SL_OK) return status;
  if (options) fit.options = *options;
  begin(&fit);
  if (fit.options.signals) sl_signals_catch();
  status = end_pending(trainer);
  if (status == SL_OK) status = open_run(&fit);
  if (status == SL_OK) status = tell_begin(&fit);
  if (status == SL_OK) status = sl__fit_loop(&fit);
  if (status == SL_OK) status = sl__fit_log_confusion(&fit);
  status = end(&fit, status);
  if (fit.options.signals) sl_signals_release();
  if (result) *result = fit.result;
  return status;
}
