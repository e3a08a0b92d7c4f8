#include "tools/train/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/train/failure.h"
#include "tools/train/messages.h"
#include "tools/train/open.h"
#include "tools/train/ranks.h"

/* ---- the start ---- */

/* Before the data are read, which may take minutes: sl_fit checks it again. */
static int check_files(struct session *session) {
  const struct cli *cli = &session->cli;
  bool writes = session->program->write != NULL;
  const struct sl_fit_options options = {.log = cli->log,
                                         .save = cli->save,
                                         .best = cli->best,
                                         .write = writes ? session_write_model : NULL,
                                         .checkpoint = cli->checkpoint,
                                         .resume = cli->resume,
                                         .metric = cli->metric};
  if (cli->save && sl_model_check_path(cli->save) != SL_OK)
    return session_fail_library(session, SL_BAD_ARGUMENT);
  if (cli->best && sl_model_check_path(cli->best) != SL_OK)
    return session_fail_library(session, SL_BAD_ARGUMENT);
  enum sl_status status = sl_fit_check(session->context, &options);
  if (status == SL_BAD_ARGUMENT) return session_fail(session, EXIT_USAGE, "--%s", sl_error());
  return status == SL_OK ? EXIT_DONE : session_fail_library(session, status);
}

const char *session_unit(const struct session *session) {
  const struct program *program = session->program;
  if (program->unit) return program->unit(program->cli.input);
  int axes = sl_dataset_info(session->train_set)->sample.ndim;
  return axes == 3 ? "images" : axes == 1 ? "rows" : "samples";
}

/* The part that needs no other rank: files, data, the model. */
static int start_alone(struct session *session) {
  int code = check_files(session);
  if (code == EXIT_DONE) code = session_open_data(session);
  if (code == EXIT_DONE) code = session_check_data(session);
  if (code != EXIT_DONE) return code;
  enum sl_status status = session_open_model(session);
  if (status == SL_OK) code = session_check_model(session);
  if (code != EXIT_DONE) return code;
  if (status == SL_OK) status = session_set_model(session);
  if (status == SL_OK) code = session_check_share(session);
  if (code != EXIT_DONE) return code;
  if (status == SL_OK) status = session_open_loaders(session);
  if (status != SL_OK) return session_fail_library(session, status);
  session_plan_steps(session);
  return EXIT_DONE;
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
  if (session->cli.servers < sl_rank_count(session->context)) return EXIT_DONE;
  session->common = true;
  return session_fail(
      session, EXIT_USAGE,
      "--servers %d of %d ranks: at least one rank must be a worker; start more ranks "
      "(mpirun -np %d) or take fewer servers",
      session->cli.servers, sl_rank_count(session->context), session->cli.servers + 1);
}

static int agree(struct session *session) {
  enum sl_status status =
      ranks_agree(session->context, &session->cli, session->train_set, session->test_set);
  if (status == SL_OK) return EXIT_DONE;
  session->common = status != SL_LOST;
  return session_fail_library(session, status);
}

int session_open(struct session *session) {
  bool distributed = ranks_wanted(&session->cli);
  int code = distributed ? join(session) : EXIT_DONE;
  if (code != EXIT_DONE) return code;
  session->cli.quiet |= session->rank > 0;
  code = start_alone(session);
  if (distributed) code = session_share(session, code);
  if (distributed && code == EXIT_DONE) code = agree(session);
  if (code != EXIT_DONE) return code;
  enum sl_status status = session_open_trainer(session);
  session->common = distributed && status != SL_OK && status != SL_LOST;
  if (status == SL_OK && session->cli.summary && !session->rank) status = messages_summary(session);
  return status == SL_OK ? EXIT_DONE : session_fail_library(session, status);
}

/* ---- the end ---- */

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
  if (code != EXIT_DONE) session_print_failure(session);
  if (code != EXIT_DONE && !session->common) sl_leave(session->context, session->message);
  if (code == EXIT_DONE) trace_measure_peak(&session->trace);
  free(session->automatic);
  free(session->split);
  free(session->split_table);
  free(session->loaded);
  free(session->class_weights);
  sl_trainer_free(session->trainer);
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
