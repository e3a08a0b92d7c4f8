#include "tools/train/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/train/failure.h"
#include "parallel/fit/interruption.h"
#include "tools/train/messages.h"
#include "tools/train/open.h"
#include "tools/train/options.h"
#include "tools/train/ranks.h"

/* ---- the start ---- */

static int check_outputs(struct session *session) {
  const struct cli *cli = &session->cli;
  int error = cli->log ? output_error(session->own_log, false) : 0;
  if (error) return session_fail_file(session, session->own_log, error);
  if (cli->save && sl_model_check_path(cli->save) != SL_OK)
    return session_fail_library(session, SL_BAD_ARGUMENT);
  error = cli->save && !session->rank ? output_error(cli->save, true) : 0;
  if (error) return session_fail_file(session, cli->save, error);
  return EXIT_DONE;
}

static int check_folder(struct session *session) {
  const char *folder = session->cli.checkpoint;
  char owner[200];
  int error = checkpoints_open(&session->checkpoint.folder, owner, sizeof owner);
  if (error == EBUSY)
    return session_fail(session, EXIT_USAGE,
                        "--checkpoint %s: another run has this folder (%s); name another folder, "
                        "or end that run first",
                        folder, owner);
  bool exist = false;
  if (!error) error = checkpoints_exist(&session->checkpoint.folder, &exist);
  if (error) return session_fail_file(session, folder, error);
  if (session->cli.resume || !exist) return EXIT_DONE;
  return session_fail(
      session, EXIT_USAGE,
      "--checkpoint %s: has a run's checkpoints; add --resume to go on, or name another", folder);
}

/* With another number of ranks the data continue at the same place, with a step of another size. */
static int resume(struct session *session) {
  struct sl_position *begun = &session->begun;
  enum sl_status status =
      checkpoints_resume(&session->checkpoint.folder, session->name, session->context,
                         session->trainer, session->train_loader);
  if (status != SL_OK) return session_fail_library(session, status);
  session->checkpoint.changes =
      options_changes(sl_trainer_loaded_options(session->trainer), session->checkpoint.options);
  if (!session->checkpoint.changes)
    return session_fail(session, EXIT_FAILED, "no memory for the options");
  *begun = sl_trainer_position(session->trainer);
  session->begun_at = begun->epoch * session->epoch_steps + begun->index;
  if (session->begun_at == begun->step || ranks_wanted(&session->cli)) return EXIT_DONE;
  return session_fail(session, EXIT_USAGE,
                      "%s: step %lld is elsewhere in the data; was --batch another then?",
                      session->checkpoint.folder.newest, (long long)begun->step);
}

const char *session_unit(const struct session *session) {
  const struct program *program = session->program;
  if (program->unit) return program->unit(program->cli.input);
  return sl_dataset_info(session->train_set)->sample.ndim == 3 ? "images" : "samples";
}

static struct description describe(const struct session *session) {
  return (struct description){.program = session->name,
                              .cli = &session->cli,
                              .context = session->context,
                              .model = session->model,
                              .trainer = session->trainer,
                              .train_set = session->train_set,
                              .test_set = session->test_set,
                              .unit = session_unit(session),
                              .split = session->split,
                              .epochs = session->epochs,
                              .steps = session->steps,
                              .from = session->begun.step};
}

/* Prepares the settings that checkpoints note, and loads the newest checkpoint with --resume. */
static int open_checkpoints(struct session *session) {
  if (!session->cli.checkpoint) return EXIT_DONE;
  const struct description description = describe(session);
  session->checkpoint.options = options_text(&description);
  if (!session->checkpoint.options)
    return session_fail(session, EXIT_FAILED, "no memory for the options");
  return session->cli.resume ? resume(session) : EXIT_DONE;
}

/* The part that needs no other rank: files, data, the model. */
static int start_alone(struct session *session) {
  int code = check_outputs(session);
  if (code == EXIT_DONE && session->cli.checkpoint && !session->rank) code = check_folder(session);
  if (code == EXIT_DONE) code = session_open_data(session);
  if (code == EXIT_DONE) code = session_check_data(session);
  if (code != EXIT_DONE) return code;
  enum sl_status status = session_open_model(session);
  if (status == SL_OK) status = session_open_loaders(session);
  if (status != SL_OK) return session_fail_library(session, status);
  session_plan_steps(session);
  return EXIT_DONE;
}

static int plan_trace(struct session *session) {
  /* the same command again, after a crash: the steps are recorded already */
  if (session->begun_at && session->cli.trace_last &&
      session->cli.trace_last <= session->begun_at) {
    *session->trace.folder = '\0';
    if (!session->cli.quiet)
      progress_print(&session->progress,
                     "Trace          steps %lld-%lld were done before: none is recorded",
                     (long long)session->cli.trace_first, (long long)session->cli.trace_last);
    return EXIT_DONE;
  }
  if (trace_plan(&session->trace, &session->cli, session->begun_at, session->steps))
    return EXIT_DONE;
  session->common = ranks_wanted(&session->cli);
  return session_fail(session, EXIT_USAGE,
                      "--trace-steps %lld-%lld: this run has steps %lld to %lld",
                      (long long)session->cli.trace_first, (long long)session->cli.trace_last,
                      (long long)session->begun_at + 1, (long long)session->steps);
}

/* Comes first: which part of the data is read depends on the rank. */
static int join(struct session *session) {
  enum sl_status status = session_open_context(session);
  if (status != SL_OK) {
    sl_launched(&session->rank);
    session->apart = true;
    return session_fail_library(session, status);
  }
  session->rank = sl_rank(session->context);
  session->works = session->rank < sl_rank_count(session->context) - session->cli.servers;
  if (session->cli.servers < sl_rank_count(session->context)) return EXIT_DONE;
  session->common = true;
  return session_fail(
      session, EXIT_USAGE,
      "--servers %d of %d ranks: at least one rank must be a worker; start more ranks "
      "(mpirun -np %d) or take fewer servers",
      session->cli.servers, sl_rank_count(session->context), session->cli.servers + 1);
}

static int agree(struct session *session) {
  enum sl_status status = ranks_agree(session->context, &session->cli, session->train_set);
  if (status == SL_OK) return EXIT_DONE;
  session->common = status != SL_LOST;
  return session_fail_library(session, status);
}

static int open_log(struct session *session) {
  const struct description description = describe(session);
  session->log_opened = seconds_now();
  int error = log_open(session->own_log, session->begun.step, &session->log);
  if (!error && session->own_log) error = log_line(session->log, describe_run(&description));
  if (!error && session->begun.step)
    error = log_resumed(session->log, session->checkpoint.folder.newest, session->begun.step,
                        session->checkpoint.changes);
  return error ? session_fail_file(session, session->own_log, error) : EXIT_DONE;
}

int session_open(struct session *session) {
  bool distributed = ranks_wanted(&session->cli);
  int code = distributed ? join(session) : EXIT_DONE;
  if (code != EXIT_DONE) return code;
  session->cli.quiet |= session->rank > 0;
  session->own_log = session->cli.log ? ranks_path(session->cli.log, session->rank) : NULL;
  code = session->cli.log && !session->own_log
             ? session_fail(session, EXIT_FAILED, "no memory for the name of the log")
             : start_alone(session);
  if (distributed) code = session_share(session, code);
  if (distributed && code == EXIT_DONE) code = agree(session);
  if (code != EXIT_DONE) return code;
  enum sl_status status = session_open_trainer(session);
  session->common = distributed && status != SL_OK && status != SL_LOST;
  if (status == SL_OK && session->cli.summary && !session->rank) status = messages_summary(session);
  if (status != SL_OK) return session_fail_library(session, status);
  code = open_checkpoints(session);
  if (code == EXIT_DONE && session->begun_at < session->steps) code = plan_trace(session);
  return code == EXIT_DONE ? open_log(session) : code;
}

/* ---- the end ---- */

/* The log's last line. errno's value, or 0. */
static int end_log(struct session *session, int code) {
  const struct progress *progress = &session->progress;
  bool failed = code != EXIT_DONE, stopped = session->stopped && progress->done < session->steps;
  const char *message = failed ? session->message : stopped ? interruption_name() : NULL;
  if (!session->log) return 0;
  return log_end(session->log,
                 failed    ? "failed"
                 : stopped ? "interrupted"
                           : "done",
                 seconds_now() - session->log_opened,
                 !failed && progress->busy > 0 ? (double)session->samples / progress->busy : -1,
                 message);
}

/* After sl_close, which writes StarPU's files. */
static int draw_trace(struct session *session, int code) {
  const struct trace *trace = &session->trace;
  if (code != EXIT_DONE || !*trace->folder) return code;
  if (!trace->begun) {
    fprintf(stderr, "%s: --trace: the run ended before step %lld, nothing was recorded\n",
            session->name, (long long)trace->first);
    return code;
  }
  int error = trace_write_window(trace, &session->cli);
  if (error) {
    code = session_fail_file(session, trace->folder, error);
    session_print_failure(session);
    return code;
  }
  return trace_draw(trace, session->cli.quiet) ? code : EXIT_FAILED;
}

/* Closes in the opposite order of opening. */
int session_close(struct session *session, int code) {
  int error = end_log(session, code);
  int closing = log_close(session->log);
  if (!error) error = closing;
  if (error && code == EXIT_DONE) code = session_fail_file(session, session->own_log, error);
  if (code != EXIT_DONE) session_print_failure(session);
  if (code != EXIT_DONE && !session->common) sl_leave(session->context, session->message);
  if (code == EXIT_DONE) trace_measure_peak(&session->trace);
  free(session->automatic);
  free(session->split);
  free(session->split_table);
  free(session->loaded);
  free(session->own_log);
  sl_trainer_free(session->trainer); /* waits for a checkpoint, which needs the rest */
  checkpoints_close(&session->checkpoint.folder);
  free(session->checkpoint.options);
  free(session->checkpoint.changes);
  free(session->command);
  sl_model_free(session->model);
  session->failure_report.context = NULL;
  sl_close(session->context);
  sl_loader_free(session->test_loader);
  sl_loader_free(session->train_loader);
  sl_dataset_free(session->test_set);
  sl_dataset_free(session->train_set);
  return draw_trace(session, code);
}
