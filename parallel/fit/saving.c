/* Weights and checkpoints during a run. */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "parallel/fit/describe.h"
#include "parallel/fit/fit.h"

static bool has_notes(const struct sl_model *model) {
  const struct sl_model_notes *notes = sl_model_notes(model);
  bool has = notes->channels || notes->target_channels || notes->class_count || notes->task ||
             notes->column_count || notes->target_name_count;
  for (int i = 0; i < SL_MAX_FIELDS; i++) has |= sl_model_output_task(model, i) != SL_TASK_UNKNOWN;
  return has;
}

enum sl_status sl__fit_note_data(struct sl__fit *fit) {
  struct sl_model *model = fit->trainer->model;
  const struct sl__loss *own = &fit->trainer->loss;
  struct sl_loss_part parts[SL_MAX_FIELDS] = {0};
  struct sl_loss loss = own->settings;
  if (has_notes(model)) return SL_OK;
  for (int i = 0; i < own->part_count; i++) {
    const struct sl__loss_part *part = &own->parts[i];
    parts[i].loss = part->loss.settings;
    snprintf(parts[i].output, sizeof parts[i].output, "%s", part->field.name);
    snprintf(parts[i].target, sizeof parts[i].target, "%s", part->target_name);
  }
  loss.parts = parts;
  loss.part_count = own->part_count;
  enum sl_status status = sl_model_note_data(model, sl_loader_dataset(fit->train), &loss);
  /* data that the notes cannot describe can be trained on all the same */
  return status == SL_NO_MEMORY ? status : SL_OK;
}

/* The model's weights and their averages change places; of a model over several ranks rank 0 gets
 * all. Collective. */
static enum sl_status swap_average(const struct sl__fit *fit) {
  enum sl_status status = sl_trainer_swap_average(fit->trainer);
  if (status == SL_OK && sl_placement_ranks(fit->trainer->model) > 1)
    status = sl_trainer_settle(fit->trainer, NULL);
  return status;
}

static enum sl_status write_model(const struct sl__fit *fit, const char *path) {
  const struct sl_fit_options *o = &fit->options;
  if (!o->write) return sl_model_save(fit->trainer->model, path);
  sl__fit_callback_begin(fit);
  return sl__fit_callback_end(fit, "write", o->write(o->user, fit->trainer->model, path));
}

static enum sl_status write_weights(const struct sl__fit *fit, const char *path) {
  const struct sl_fit_options *o = &fit->options;
  enum sl_status status = write_model(fit, path);
  if (status != SL_OK || !o->on_save) return status;
  sl__fit_callback_begin(fit);
  return sl__fit_callback_end(fit, "on_save", o->on_save(o->user, path));
}

enum sl_status sl__fit_save_weights(struct sl__fit *fit, const char *path) {
  bool averages = fit->trainer->optimizer.average > 0 && sl_trainer_position(fit->trainer).step > 0;
  enum sl_status status = SL_OK, swapped = SL_OK;
  if (!path) return SL_OK;
  if (averages) SL__TRY(swap_average(fit));
  if (!fit->rank) status = write_weights(fit, path);
  if (averages) swapped = swap_average(fit); /* after a failed write, too */
out:
  return status == SL_OK ? swapped : status;
}

/* Every N steps or minutes, and always at the end of the run and when it is stopped. */
bool sl__fit_saving_is_due(const struct sl__fit *fit, int64_t done) {
  const struct sl_fit_options *o = &fit->options;
  int64_t every = o->checkpoint_every ? o->checkpoint_every : fit->epoch_steps;
  bool by_steps = !(o->checkpoint_minutes > 0) && done % every == 0;
  return o->checkpoint &&
         (fit->stopped || fit->early || done == fit->steps || by_steps || fit->saving.due);
}

void sl__fit_watch_clock(struct sl__fit *fit) {
  double period = 60 * fit->options.checkpoint_minutes;
  if (period > 0 && !fit->rank && sl__seconds() - fit->saving.begun >= period)
    sl_trainer_ask_save(fit->trainer);
}

/* Errors that may pass, such as a full disk: the next checkpoint tries again. */
static bool is_passing(enum sl_status status) { return status == SL_IO || status == SL_NO_MEMORY; }

/* last: no step follows, so that the failure is the run's. */
static enum sl_status miss_checkpoint(struct sl__fit *fit, enum sl_status status, int64_t step,
                                      const char *why, bool last) {
  char line[sizeof fit->saving.why + 40];
  fit->saving.failed = status;
  snprintf(fit->saving.why, sizeof fit->saving.why, "no checkpoint after step %lld: %s",
           (long long)step, why);
  if (!is_passing(status)) return sl__fail(status, "%s", fit->saving.why);
  fit->common = false; /* it is not the run's */
  if (fit->rank || last) return SL_OK;
  snprintf(line, sizeof line, "%s; the training goes on", fit->saving.why);
  sl__fit_warn(fit, line);
  return SL_OK;
}

static enum sl_status note_checkpoint(struct sl__fit *fit, const struct sl_saved *saved) {
  const struct sl_fit_options *o = &fit->options;
  if (!saved->position.step) return SL_OK; /* no checkpoint, or one that is logged already */
  fit->saving.failed = SL_OK;
  const char *path = fit->saving.folder.newest;
  int error = sl__run_log_checkpoint(fit->log, path, fit->saving.stopped_s, saved);
  if (error) return sl__fit_fail_file(fit->own_log, error);
  if (!o->on_checkpoint) return SL_OK;
  sl__fit_callback_begin(fit);
  return sl__fit_callback_end(fit, "on_checkpoint", o->on_checkpoint(o->user, path, saved));
}

enum sl_status sl__fit_save_poll(struct sl__fit *fit) {
  struct sl_saved saved;
  if (!sl_trainer_save_ended(fit->trainer, &saved)) return SL_OK;
  if (saved.status == SL_OK) return note_checkpoint(fit, &saved);
  return miss_checkpoint(fit, saved.status, saved.position.step, saved.message, false);
}

enum sl_status sl__fit_save_end(struct sl__fit *fit, bool last) {
  struct sl_saved saved;
  enum sl_status status = sl_trainer_save_wait(fit->trainer, &saved);
  if (status == SL_OK) return note_checkpoint(fit, &saved);
  return miss_checkpoint(fit, status, saved.position.step, sl_error(), last);
}

/* Is the training loader where the last step left it? No run could go on from a place that a
 * callback moved it to. A server reads no batches. */
static enum sl_status check_place(const struct sl__fit *fit) {
  const struct sl__data_position *next = &fit->trainer->next_batch;
  int64_t epoch, index;
  if (!fit->works) return SL_OK;
  sl_loader_tell(fit->train, &epoch, &index);
  if (next->loader == fit->train && epoch == next->epoch && index == next->index) return SL_OK;
  return sl__fail(
      SL_BAD_ARGUMENT,
      "the loader that trains is at batch %lld of epoch %lld, where the run's steps did "
      "not leave it; a callback (on_evaluation, on_step) must use a loader of its own",
      (long long)index, (long long)epoch);
}

/* Rank 0 notes the options; a failure there is that of the checkpoint, on all ranks. */
static enum sl_status begin(struct sl__fit *fit) {
  char *noted = fit->rank ? NULL : sl__fit_noted(fit);
  enum sl_status status = check_place(fit);
  if (!noted && !fit->rank) status = sl__fail(SL_NO_MEMORY, "no memory for a checkpoint's options");
  status = sl__fit_share(fit, status);
  if (status == SL_OK) status = sl__checkpoints_begin(&fit->saving.folder, fit->trainer, noted);
  free(noted);
  return status;
}

enum sl_status sl__fit_save_begin(struct sl__fit *fit, bool last) {
  double begun = sl__seconds();
  enum sl_status status = sl__fit_save_end(fit, false);
  if (status != SL_OK) return status;
  enum sl_status saved = begin(fit);
  if (saved != SL_OK)
    status = miss_checkpoint(fit, saved, sl_trainer_position(fit->trainer).step, sl_error(), last);
  else
    fit->saving.failed = SL_OK; /* all ranks will learn whether this one fails */
  fit->saving.due = false;
  fit->saving.begun = sl__seconds();
  fit->saving.stopped_s = fit->saving.begun - begun;
  return status;
}
