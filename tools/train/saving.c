#include "tools/train/saving.h"

#include <stdio.h>

#include "tools/train/failure.h"

int saving_weights(struct session *session) {
  if (!session->cli.save || session->rank) return EXIT_DONE;
  enum sl_status status = sl_model_save(session->model, session->cli.save);
  if (status == SL_OK && session->program->save)
    status = session->program->save(session->cli.save, session->program->cli.input);
  return status == SL_OK ? EXIT_DONE : session_fail_library(session, status);
}

/* Every N steps or minutes, and always at the end of the run and when it is stopped. */
bool saving_is_due(const struct session *session, int64_t done) {
  const struct cli *cli = &session->cli;
  int64_t every = cli->checkpoint_every ? cli->checkpoint_every : session->epoch_steps;
  bool by_steps = cli->checkpoint_minutes == 0 && done % every == 0;
  return cli->checkpoint &&
         (session->stopped || done == session->steps || by_steps || session->checkpoint.due);
}

void saving_watch_clock(struct session *session) {
  double period = 60 * session->cli.checkpoint_minutes;
  if (period > 0 && !session->rank && seconds_now() - session->checkpoint.begun >= period)
    sl_trainer_ask_save(session->trainer);
}

/* Errors that may pass, such as a full disk: the next checkpoint tries again. */
static bool is_passing(enum sl_status status) { return status == SL_IO || status == SL_NO_MEMORY; }

/* last: no step follows, so that the failure is the run's and session_close prints it. */
static int miss_checkpoint(struct session *session, enum sl_status status, int64_t step,
                           const char *why, bool last) {
  session->checkpoint.failed = true;
  session_fail(session, EXIT_FAILED, "no checkpoint after step %lld: %s", (long long)step, why);
  if (!is_passing(status)) return EXIT_FAILED;
  if (session->rank || last) return EXIT_DONE;
  progress_clear(&session->progress);
  fprintf(stderr, "%s: %s; the training goes on\n", session->name, session->message);
  return EXIT_DONE;
}

static int note_checkpoint(struct session *session, const struct sl_saved *saved) {
  if (!saved->position.step) return EXIT_DONE; /* no checkpoint, or one that is logged already */
  session->checkpoint.failed = false;
  int error = log_checkpoint(session->log, session->checkpoint.folder.newest,
                             session->checkpoint.stopped_s, saved);
  return error ? session_fail_file(session, session->own_log, error) : EXIT_DONE;
}

int saving_poll(struct session *session) {
  struct sl_saved saved;
  if (!sl_trainer_save_ended(session->trainer, &saved)) return EXIT_DONE;
  if (saved.status == SL_OK) return note_checkpoint(session, &saved);
  return miss_checkpoint(session, saved.status, saved.position.step, saved.message, false);
}

int saving_end(struct session *session, bool last) {
  struct sl_saved saved;
  enum sl_status status = sl_trainer_save_wait(session->trainer, &saved);
  if (status == SL_OK) return note_checkpoint(session, &saved);
  return miss_checkpoint(session, status, saved.position.step, sl_error(), last);
}

int saving_begin(struct session *session, bool last) {
  double begun = seconds_now();
  int code = saving_end(session, false);
  if (code != EXIT_DONE) return code;
  enum sl_status status =
      checkpoints_begin(&session->checkpoint.folder, session->trainer, session->checkpoint.options);
  if (status != SL_OK)
    code = miss_checkpoint(session, status, sl_trainer_position(session->trainer).step, sl_error(),
                           last);
  else
    session->checkpoint.failed = false; /* all ranks will learn whether this one fails */
  session->checkpoint.due = false;
  session->checkpoint.begun = seconds_now();
  session->checkpoint.stopped_s = session->checkpoint.begun - begun;
  return code;
}
