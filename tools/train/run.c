#include "tools/train/run.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/replace.h"
#include "tools/common/abort_message.h"
#include "tools/common/output_bytes.h"
#include "tools/train/command_text.h"
#include "tools/train/failure.h"
#include "tools/train/find_rate.h"
#include "tools/train/messages.h"
#include "tools/train/ranks.h"
#include "tools/train/session.h"

int64_t program_outputs(const struct sl_dataset_info *data) {
  return data->target.ndim ? sl_shape_count(&data->target) : data->classes;
}

static int count_bytes(struct session *session) {
  enum sl_status status = sl_bytes_sent(session->context, &session->bytes_sent);
  return status == SL_OK ? EXIT_DONE : session_fail_library(session, status);
}

/* What needs the devices, but neither data nor a trainer. */
static int run_instead(struct session *session) {
  const struct cli *cli = &session->cli;
  struct sl_context_options options = {
      .devices = cli->devices, .seed = cli->seed, .tune = cli->tune};
  if (cli_is_automatic(cli))
    return session_fail(session, EXIT_USAGE, "--placement auto is for training; name the devices");
  if (!cli->load) return session_fail(session, EXIT_USAGE, "name the trained weights: --load FILE");
  enum sl_status status = sl_open(&options, &session->context);
  if (status == SL_OK) aborted_catch(session->name, 0);
  if (status == SL_OK)
    status = session->program->instead(session->context, cli, session->program->cli.input);
  int code = status == SL_OK ? EXIT_DONE : session_fail_library(session, status);
  sl_close(session->context);
  return code;
}

static int refuse_stray(struct session *session) {
  session->apart = true;
  int count = sl_launched(&session->rank);
  return session_fail(
      session, EXIT_USAGE,
      "started as one of %d ranks, but --kvstore %s does not talk to the others: take "
      "--kvstore dist_sync",
      count, sl_kvstore_name(session->cli.kvstore));
}

/* The program's defaults, below the command line. */
static void set_defaults(struct cli *cli, const struct program *program) {
  cli_default(cli);
  cli->batch = program->batch;
  cli->usual_epochs = program->epochs;
  if (program->data) cli->data = program->data;
  if (program->lr_schedule) cli->lr_schedule = program->lr_schedule;
  cli->init = program->init;
  cli->augment = program->augment;
  cli->decay_weights_only = program->decay_weights_only;
  if (program->optimizer) cli->optimizer_name = program->optimizer;
  cli->optimizer = (struct sl_optimizer){0};
  cli->own_optimizer = cli->optimizer_name;
  cli->own_schedule = cli->lr_schedule;
  sl_optimizer_parse(cli->optimizer_name, &cli->optimizer); /* of the library's names */
  cli->optimizer.lr = program->lr;
  cli->optimizer.momentum = program->momentum;
  cli->optimizer.weight_decay = program->weight_decay;
  cli->optimizer.beta2 = program->beta2;
  if (program->clip > 0) cli->clip = (double)program->clip;
}

static int prepare_trace(struct session *session, const char *path) {
  if (trace_prepare(&session->trace, path, &session->cli)) return EXIT_DONE;
  int error = errno;
  session->apart = sl_launched(&session->rank) > 1;
  return session_fail_file(session, session->cli.trace, error);
}

static int train(struct session *session, const char *path) {
  int code = ranks_strayed(&session->cli) ? refuse_stray(session) : EXIT_DONE;
  if (code == EXIT_DONE) code = prepare_trace(session, path);
  if (code == EXIT_DONE) code = session_open(session);
  if (code == EXIT_DONE && session->cli.find_rate)
    return session_close(session, find_rate(session));
  if (code == EXIT_DONE) code = session_fit(session);
  /* also of a run that made all its steps, and could not write its last checkpoint */
  if (session->result.end != SL_FIT_FAILED) {
    int counted = count_bytes(session);
    if (counted == EXIT_DONE)
      messages_result(session);
    else
      code = counted;
  }
  return session_close(session, code);
}

/* Lines on the standard output are for information: what the run has to keep is in its files, so
 * that a full disk or a closed pipe behind the output does not make it fail. */
static void report_lost_output(const struct session *session) {
  const char *why = output_lost();
  if (why)
    fprintf(stderr, "%s: lines of the standard output are lost%s%s; the run itself is complete\n",
            session->name, *why ? ": " : "", why);
}

/* "net.safetensors" of "net.json", as the library writes them; NULL: none, or no memory. */
static char *weights_beside(const char *path) {
  static const char end[] = ".json";
  char *weights = NULL;
  size_t length = path ? strlen(path) : 0, tail = strlen(end);
  if (length <= tail || strcmp(path + length - tail, end) != 0) return NULL;
  if (asprintf(&weights, "%.*s.safetensors", (int)(length - tail), path) < 0) return NULL;
  return weights;
}

/* The option that writes to the report's place, too; NULL: none. */
static const char *find_same(const struct session *session, const char *path) {
  const struct cli *cli = &session->cli;
  int rank = ranks_wanted(cli) ? session->rank : 0;
  const struct {
    const char *option;
    char *path;
  } others[] = {{"log", cli->log ? ranks_path(cli->log, rank) : NULL},
                {"save", cli->save ? strdup(cli->save) : NULL},
                {"save", weights_beside(cli->save)},
                {"best", cli->best ? strdup(cli->best) : NULL},
                {"best", weights_beside(cli->best)},
                {"checkpoint", cli->checkpoint ? strdup(cli->checkpoint) : NULL},
                {"trace", cli->trace ? strdup(cli->trace) : NULL}};
  const char *found = NULL;
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    const char *other = others[i].path;
    if (other && (sl__file_is_same(other, path) || sl__is_same_inode(other, path)))
      found = others[i].option;
    free(others[i].path);
  }
  return found;
}

/* First of all: every later failure writes the report. */
static int check_report(struct session *session) {
  const char *path = session->failure_report.path;
  if (!path) return EXIT_DONE;
  int count = sl_launched(&session->rank), code = EXIT_DONE;
  const char *other = find_same(session, path);
  int error = other ? 0 : output_check(path);
  if (other)
    code = session_fail(session, EXIT_USAGE,
                        "--report-failure %s: %s writes this file, too, and one would overwrite "
                        "the other; name another file",
                        path, other);
  else if (error)
    code = session_fail_file(session, path, error);
  if (code == EXIT_DONE) return code;
  session->apart = count > 1;
  failure_report_end(&session->failure_report);
  return code;
}

int run_program(const struct program *program, int argc, char **argv) {
  struct session session = {.program = program, .name = program_name(argv[0])};
  struct cli *cli = &session.cli;
  session.command = command_text(argc, argv); /* the options' parser reorders them */
  set_defaults(cli, program);
  cli_parse(cli, &program->cli, argc, argv);
  failure_report_begin(&session.failure_report, session.name, cli);
  int code = check_report(&session);
  bool instead = program->asks_instead && *program->asks_instead;
  if (code != EXIT_DONE || instead) {
    if (code == EXIT_DONE) code = run_instead(&session);
    if (code != EXIT_DONE) session_print_failure(&session);
    free(session.command);
    failure_report_end(&session.failure_report);
    return finish_output(session.name, code);
  }
  code = train(&session, argv[0]);
  failure_report_end(&session.failure_report);
  if (cli->find_rate)
    code = finish_output(session.name, code);
  else if (code == EXIT_DONE)
    report_lost_output(&session);
  /* so that a shell's loop ends, too; a launcher would take it for a crash, and so would a batch
   * system that is to go on from the checkpoint */
  int caught = sl_signals_caught();
  if (code == EXIT_DONE && caught && !ranks_wanted(cli) && !cli->checkpoint) {
    signal(caught, SIG_DFL);
    raise(caught);
  }
  return code;
}
