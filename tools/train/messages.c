#include "tools/train/messages.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/metric_names.h"
#include "tools/train/command_text.h"
#include "tools/train/ranks.h"

void messages_print(const struct session *session, const char *format, ...) {
  if (session->cli.quiet) return;
  va_list list;
  va_start(list, format);
  vprintf(format, list);
  putchar('\n');
  fflush(stdout);
  va_end(list);
}

enum sl_status messages_summary(struct session *session) {
  char *layers = NULL, *placement = NULL;
  enum sl_status status = sl_model_summary(session->model, &layers);
  if (status == SL_OK) status = sl_trainer_summary(session->trainer, &placement);
  if (status == SL_OK) printf("%s\n%s\n", layers, placement);
  free(placement);
  free(layers);
  return status;
}

/* "5 buckets 8 16 24 32 60, padding 8.1 %, 12 longer sentences split or dropped" */
static void print_buckets(struct session *session, const struct sl_dataset_info *info) {
  char lengths[512] = "";
  size_t used = 0;
  int64_t places = 0;
  for (int b = 0; b < info->bucket_count; b++) {
    if (used < sizeof lengths)
      used += (size_t)snprintf(lengths + used, sizeof lengths - used, " %lld",
                               (long long)info->buckets[b]);
    places += info->buckets[b] * info->bucket_samples[b];
  }
  messages_print(session,
                 "%d buckets:%s tokens; padding %.1f %%; %lld longer sentences split or dropped",
                 info->bucket_count, lengths, 100.0 * (double)info->padding / (double)places,
                 (long long)info->longer);
}

/* text ends with a line end, or is NULL. */
static void print_lines(struct session *session, char *text) {
  char *rest = text;
  for (char *line = strsep(&rest, "\n"); line && *line; line = strsep(&rest, "\n"))
    messages_print(session, "%s", line);
}

void messages_plan(struct session *session, const struct sl_fit_begin *begin) {
  const struct sl_dataset_info *info = sl_dataset_info(session->train_set);
  messages_print(session, "%s", sl_context_text(session->context));
  messages_print(
      session, "%s: %lld samples; %lld parameters; %d replicas, batch %lld; %s, lr %g%s%s",
      info->name, (long long)info->count, (long long)sl_model_parameters(session->model),
      sl_trainer_replicas(session->trainer), (long long)session->cli.batch,
      session->cli.optimizer_name, session->cli.optimizer.lr, session->cli.math ? ", math " : "",
      session->cli.math ? sl_math_name(session->cli.math) : "");
  if (ranks_wanted(&session->cli)) {
    int ranks = sl_rank_count(session->context), servers = session->cli.servers;
    messages_print(
        session, "%d ranks, KVStore %s: %d workers, each with such a batch; %d own the parameters",
        ranks, sl_kvstore_name(session->cli.kvstore),
        ranks_workers(session->context, &session->cli, session->model), servers ? servers : ranks);
  }
  if (info->bucket_count) print_buckets(session, info);
  if (begin->resumed)
    messages_print(session, "Going on from %s, after step %lld of %lld%s%s", begin->resumed,
                   (long long)begin->index, (long long)begin->steps,
                   *begin->changes ? "; changed: " : "", begin->changes);
  else if (session->cli.resume)
    messages_print(session, "No whole checkpoint in %s: from the beginning",
                   session->cli.checkpoint);
  print_lines(session, session->loaded);
  print_lines(session, session->automatic);
  print_lines(session, session->split_table);
}

/* Uncompressed, each gradient goes to its owner, and the weights come back: the least that a rank
 * sends. Ranks that share one model also send its activations. */
static void print_sent(struct session *session) {
  if (session->result.step == session->begun_at) return; /* nothing was left to train */
  int ranks = sl_rank_count(session->context), workers = ranks - session->cli.servers;
  double share = session->cli.servers ? (double)workers / ranks : (ranks - 1.0) / ranks;
  double whole = 8e-6 * share * (double)sl_model_parameters(session->model);
  double sent = 1e-6 * session->bytes_sent / (double)(session->result.step - session->begun_at);
  if (sl_placement_ranks(session->model) > 1)
    messages_print(session, "Sent           %.3f MB a rank and step", sent);
  else
    messages_print(session, "Sent           %.3f MB a rank and step (uncompressed %.3f MB)", sent,
                   whole);
}

/* The last line is for people and for scripts: the text behind "with: " can be pasted. */
static void print_way_on(struct session *session) {
  int ranks = sl_rank_count(session->context);
  char over[40] = "";
  if (*session->result.checkpoint)
    messages_print(session, "Checkpoint     %s", session->result.checkpoint);
  if (ranks > 1) snprintf(over, sizeof over, ", over %d ranks,", ranks);
  messages_print(session, "Stopped by %s after step %lld of %lld; go on%s with: %s%s",
                 session->result.cause, (long long)session->result.step, (long long)session->steps,
                 over, session->command, session->cli.resume ? "" : " --resume");
}

/* To be pasted into a shell, whatever the log's name. */
static void print_curve(const struct session *session) {
  if (session->cli.quiet) return;
  const char *log = session->cli.log;
  fputs("Curve          starling-plot -o curve.svg ", stdout);
  if (*log == '-') fputs("./", stdout); /* no option */
  command_print_word(stdout, log);
  putchar('\n');
  fflush(stdout);
}

/* --memory-limit: the peak, and the bytes swapped. */
static void print_memory(struct session *session) {
  struct sl_memory_use use;
  sl_memory_use(session->context, &use);
  if (!use.limit) return;
  messages_print(session, "Memory         at most %.1f of %.1f MB; %.1f MB swapped out, %.1f MB in",
                 (double)use.peak / 1e6, (double)use.limit / 1e6, (double)use.swap_out / 1e6,
                 (double)use.swap_in / 1e6);
}

static const char *deciding(const struct cli *cli) { return cli->metric ? cli->metric : "loss"; }

/* The value that decided about --best and --patience, unless the line above has it. */
static void print_deciding(struct session *session, const char *printed) {
  const struct cli *cli = &session->cli;
  const char *metric = deciding(cli);
  char name[80], title[96], value[48];
  if (strstr(printed, metric) || !(cli->metric || cli->best || cli->patience)) return;
  snprintf(title, sizeof title, "Test %s", metric_name(metric, name, sizeof name));
  messages_print(session, "%-14s %s", title,
                 metric_value(metric, session->result.last.deciding, value, sizeof value));
}

/* Returns the metrics that the line has. */
static const char *print_test(struct session *session) {
  const struct sl_fit_evaluation *test = &session->result.last;
  if (sl_dataset_info(session->test_set)->tokens) {
    messages_print(session, "Perplexity     %.3f (validation)", exp(test->loss));
    return "loss";
  }
  if (!isnan(test->rmse)) {
    messages_print(session, "Test RMSE      %.5g (R2 %.4f)", test->rmse, test->r2);
    return "rmse r2";
  }
  if (!isnan(test->accuracy)) {
    messages_print(session, "Test accuracy  %.2f %%", 100 * test->accuracy);
    return "accuracy";
  }
  char text[64];
  messages_print(session, "Test loss      %s", metric_value("loss", test->loss, text, sizeof text));
  return "loss";
}

static void print_best(struct session *session) {
  const struct sl_fit_evaluation *best = &session->result.best;
  const char *metric = deciding(&session->cli);
  char name[80], value[48];
  if (session->cli.best && best->epoch)
    messages_print(session, "Best weights   %s: test %s %s, of epoch %lld", session->cli.best,
                   metric_name(metric, name, sizeof name),
                   metric_value(metric, best->deciding, value, sizeof value),
                   (long long)best->epoch);
}

void messages_result(struct session *session) {
  const struct cli *cli = &session->cli;
  bool stopped = session->result.end == SL_FIT_INTERRUPTED;
  if (stopped)
    messages_print(session, "Stopped        by %s after step %lld of %lld", session->result.cause,
                   (long long)session->result.step, (long long)session->steps);
  else
    print_deciding(session, print_test(session));
  if (session->program->tell) {
    char line[256];
    session->program->tell(session->program->cli.input, line, sizeof line);
    messages_print(session, "%s", line);
  }
  if (session->automatic && session->result.step_seconds > 0 && !isnan(session->predicted_ms))
    messages_print(session, "Step           %.2f ms, predicted %.2f ms",
                   1e3 * session->result.step_seconds, session->predicted_ms);
  if (sl_rank_count(session->context) > 1) print_sent(session);
  print_memory(session);
  messages_print(session, "Devices        %s", sl_context_text(session->context));
  if (cli->log) messages_print(session, "Log            %s", cli->log);
  if (cli->save) messages_print(session, "Weights        %s", cli->save);
  print_best(session);
  if (cli->log) print_curve(session);
  if (stopped && cli->checkpoint) print_way_on(session);
}
