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

/* After so many steps or minutes; at the run's end and when it is stopped, in any case. */
bool saving_is_due(const struct session *session, int64_t done) {
  const struct cli *cli = &session->cli;
  int64_t every = cli->checkpoint_every ? cli->checkpoint_every : session->epoch_steps;
  bool by_steps = cli->checkpoint_minutes == 0 && done % every == 0;
  return cli->checkpoint &&
         (session->stopped || done == session->steps || by_steps || session->checkpoint.due);
}

/* Rank 0's clock holds for all; they learn it with a step's loss. */
void saving_watch_clock(struct session *session) {
  double period = 60 * session->cli.checkpoint_minutes;
  if (period > 0 && !session->rank && seconds_now() - session->checkpoint.begun >= period)
    sl_trainer_ask_save(session->trainer);
}

/* A full disk and the like: told, and tried again at the next one. */
static bool is_passing(enum sl_status status) { return status == SL_IO || status == SL_NO_MEMORY; }

/* last: no step follows, and the failure is the run's; session_close() says it. */
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
  if (!saved->position.step) return EXIT_DONE; /* there was none, or it is noted */
  session->checkpoint.failed = false;
  int error = log_checkpoint(session->log, session->checkpoint.folder.newest,
                             session->checkpoint.stopped_s, saved);
  return error ? session_fail_file(session, session->own_log, error) : EXIT_DONE;
}

/* Has the one being written come to its end? */
int saving_poll(struct session *session) {
  struct sl_saved saved;
  if (!sl_trainer_save_ended(session->trainer, &saved)) return EXIT_DONE;
  if (saved.status == SL_OK) return note_checkpoint(session, &saved);
  return miss_checkpoint(session, saved.status, saved.position.step, saved.message, false);
}

/* The same of all ranks together, waiting for it. */
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
    session->checkpoint.failed = false; /* what becomes of this one is all ranks' to know */
  session->checkpoint.due = false;
  session->checkpoint.begun = seconds_now();
  session->checkpoint.stopped_s = session->checkpoint.begun - begun;
  return code;
}
