/* The run of a session: the library makes it (sl_fit), with the command line's options. */
#include <stdio.h>
#include <stdlib.h>

#include "tools/train/failure.h"
#include "tools/train/messages.h"
#include "tools/train/options.h"

static enum sl_status on_begin(void *user, const struct sl_fit_begin *begin) {
  struct session *session = user;
  const struct cli *cli = &session->cli;
  session->begun_at = begin->index;
  /* the same command again, after a crash: the steps are recorded already */
  if (begin->index && cli->trace_last && cli->trace_last <= begin->index) {
    if (*session->trace.folder && begin->index < begin->steps)
      messages_print(session, "Trace          steps %lld-%lld were done before: none is recorded",
                     (long long)cli->trace_first, (long long)cli->trace_last);
    if (begin->index < begin->steps) *session->trace.folder = '\0';
  }
  messages_plan(session, begin);
  return SL_OK;
}

static enum sl_status on_step(void *user, const struct sl_report *report, double samples_per_s) {
  struct session *session = user;
  (void)samples_per_s;
  failure_report_step(&session->failure_report, report);
  return SL_OK;
}

enum sl_status session_write_model(void *user, struct sl_model *model, const char *path) {
  const struct program *program = ((const struct session *)user)->program;
  return program->write(model, path, program->cli.input);
}

static enum sl_status on_save(void *user, const char *path) {
  struct session *session = user;
  const struct program *program = session->program;
  return program->save ? program->save(path, program->cli.input) : SL_OK;
}

static void on_warning(void *user, const char *line) {
  const struct session *session = user;
  fprintf(stderr, "%s: %s\n", session->name, line);
}

int session_fit(struct session *session) {
  const struct cli *cli = &session->cli;
  bool writes = session->program->write != NULL;
  char *logged = options_logged(session), *noted = options_noted(session);
  const struct sl_fit_options options = {.epochs = session->epochs,
                                         .steps = session->steps,
                                         .validation = session->test_loader,
                                         .metric = cli->metric,
                                         .confusion = cli->confusion,
                                         .patience = cli->patience,
                                         .save = cli->save,
                                         .best = cli->best,
                                         .write = writes ? session_write_model : NULL,
                                         .checkpoint = cli->checkpoint,
                                         .checkpoint_every = cli->checkpoint_every,
                                         .checkpoint_minutes = cli->checkpoint_minutes,
                                         .keep = cli->checkpoint ? cli->keep : 0,
                                         .resume = cli->resume,
                                         .log = cli->log,
                                         .signals = true,
                                         .progress = !cli->quiet,
                                         .trace = *session->trace.folder != '\0',
                                         .trace_first = cli->trace_first,
                                         .trace_last = cli->trace_last,
                                         .program = session->name,
                                         .unit = session_unit(session),
                                         .options = logged,
                                         .noted = noted,
                                         .user = session,
                                         .on_begin = on_begin,
                                         .on_step = on_step,
                                         .on_save = on_save,
                                         .on_warning = on_warning};
  int code = EXIT_DONE;
  if (!logged || !noted) code = session_fail(session, EXIT_FAILED, "no memory for the options");
  if (code == EXIT_DONE) {
    enum sl_status status =
        sl_fit(session->trainer, session->train_loader, &options, &session->result);
    session->common = session->result.common;
    if (status != SL_OK) code = session_fail_library(session, status);
  }
  free(logged);
  free(noted);
  trace_note(&session->trace, &session->result);
  return code;
}
