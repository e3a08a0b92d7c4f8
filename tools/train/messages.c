#include "tools/train/messages.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parallel/fit/interruption.h"
#include "tools/train/ranks.h"

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
  progress_print(&session->progress,
                 "%d buckets:%s tokens; padding %.1f %%; %lld longer sentences split or dropped",
                 info->bucket_count, lengths, 100.0 * (double)info->padding / (double)places,
                 (long long)info->longer);
}

/* text ends with a line end, or is NULL. */
static void print_lines(struct session *session, char *text) {
  char *rest = text;
  for (char *line = strsep(&rest, "\n"); line && *line; line = strsep(&rest, "\n"))
    progress_print(&session->progress, "%s", line);
}

void messages_plan(struct session *session) {
  const struct sl_dataset_info *info = sl_dataset_info(session->train_set);
  progress_print(&session->progress, "%s", sl_context_text(session->context));
  progress_print(&session->progress,
                 "%s: %lld samples; %lld parameters; %d replicas, batch %lld; %s, lr %g%s%s",
                 info->name, (long long)info->count, (long long)sl_model_parameters(session->model),
                 sl_trainer_replicas(session->trainer), (long long)session->cli.batch,
                 session->cli.optimizer_name, session->cli.optimizer.lr,
                 session->cli.math ? ", math " : "",
                 session->cli.math ? sl_math_name(session->cli.math) : "");
  if (ranks_wanted(&session->cli)) {
    int ranks = sl_rank_count(session->context), servers = session->cli.servers;
    progress_print(
        &session->progress,
        "%d ranks, KVStore %s: %d workers, each with such a batch; %d own the parameters", ranks,
        sl_kvstore_name(session->cli.kvstore),
        ranks_workers(session->context, &session->cli, session->model), servers ? servers : ranks);
  }
  if (info->bucket_count) print_buckets(session, info);
  if (session->begun.step)
    progress_print(&session->progress, "Going on from %s, after step %lld of %lld%s%s",
                   session->checkpoint.folder.newest, (long long)session->begun.step,
                   (long long)session->steps, *session->checkpoint.changes ? "; changed: " : "",
                   session->checkpoint.changes);
  else if (session->cli.resume)
    progress_print(&session->progress, "No whole checkpoint in %s: from the beginning",
                   session->cli.checkpoint);
  print_lines(session, session->loaded);
  print_lines(session, session->automatic);
  print_lines(session, session->split_table);
}

/* Uncompressed, each gradient goes to its owner, and the weights come back: the least that a rank
 * sends. Ranks that share one model also send its activations. */
static void print_sent(struct session *session) {
  int ranks = sl_rank_count(session->context), workers = ranks - session->cli.servers;
  double share = session->cli.servers ? (double)workers / ranks : (ranks - 1.0) / ranks;
  double whole = 8e-6 * share * (double)sl_model_parameters(session->model);
  double sent = 1e-6 * session->bytes_sent / (double)(session->progress.done - session->begun_at);
  if (sl_placement_ranks(session->model) > 1)
    progress_print(&session->progress, "Sent           %.3f MB a rank and step", sent);
  else
    progress_print(&session->progress,
                   "Sent           %.3f MB a rank and step (uncompressed %.3f MB)", sent, whole);
}

/* The last line is for people and for scripts: the text behind "with: " can be pasted. */
static void print_way_on(struct session *session) {
  int ranks = sl_rank_count(session->context);
  char over[40] = "";
  if (*session->checkpoint.folder.newest)
    progress_print(&session->progress, "Checkpoint     %s", session->checkpoint.folder.newest);
  if (ranks > 1) snprintf(over, sizeof over, ", over %d ranks,", ranks);
  progress_print(&session->progress, "Stopped by %s after step %lld of %lld; go on%s with: %s%s",
                 interruption_name(), (long long)session->progress.done, (long long)session->steps,
                 over, session->command, session->cli.resume ? "" : " --resume");
}

/* --memory-limit: the peak, and the bytes swapped. */
static void print_memory(struct session *session) {
  struct sl_memory_use use;
  sl_memory_use(session->context, &use);
  if (!use.limit) return;
  progress_print(&session->progress,
                 "Memory         at most %.1f of %.1f MB; %.1f MB swapped out, %.1f MB in",
                 (double)use.peak / 1e6, (double)use.limit / 1e6, (double)use.swap_out / 1e6,
                 (double)use.swap_in / 1e6);
}

void messages_result(struct session *session) {
  struct progress *progress = &session->progress;
  const struct cli *cli = &session->cli;
  progress_clear(progress);
  if (session->stopped)
    progress_print(progress, "Stopped        by %s after step %lld of %lld", interruption_name(),
                   (long long)progress->done, (long long)session->steps);
  else if (sl_dataset_info(session->test_set)->tokens)
    progress_print(progress, "Perplexity     %.3f (validation)", exp(session->test.loss));
  else if (!isnan(session->test.rmse))
    progress_print(progress, "Test RMSE      %.5g (R2 %.4f)", session->test.rmse, session->test.r2);
  else if (!isnan(session->test.accuracy))
    progress_print(progress, "Test accuracy  %.2f %%", 100 * session->test.accuracy);
  else
    progress_print(progress, "Test loss      %.4f", session->test.loss);
  if (session->program->tell) {
    char line[256];
    session->program->tell(session->program->cli.input, line, sizeof line);
    progress_print(progress, "%s", line);
  }
  if (session->automatic && session->clock.steps)
    progress_print(progress, "Step           %.2f ms, predicted %.2f ms",
                   1e3 * session->clock.seconds / (double)session->clock.steps,
                   session->predicted_ms);
  if (sl_rank_count(session->context) > 1) print_sent(session);
  print_memory(session);
  progress_print(progress, "Devices        %s", sl_context_text(session->context));
  if (cli->log) progress_print(progress, "Log            %s", cli->log);
  if (cli->save) progress_print(progress, "Weights        %s", cli->save);
  if (cli->log) progress_print(progress, "Curve          starling-plot -o curve.svg %s", cli->log);
  if (session->stopped && cli->checkpoint) print_way_on(session);
}
