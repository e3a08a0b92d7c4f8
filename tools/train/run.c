/* The life of a training run: open everything that can fail first, train, evaluate after each
 * epoch, save, tell. */
#include "tools/train/run.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/common/abort_message.h"
#include "tools/train/checkpoints.h"
#include "tools/train/describe.h"
#include "tools/train/log.h"
#include "tools/train/options.h"
#include "tools/train/progress.h"
#include "tools/train/ranks.h"
#include "tools/train/tracing.h"

struct run {
  const struct program *program;
  const char *name;
  char message[1200]; /* why it failed; "": it did not */
  struct cli cli;
  int rank;
  bool works;    /* it is a worker, not only a server */
  bool stopped;  /* all ranks end here, because one was asked to */
  bool common;   /* all ranks fail alike */
  bool apart;    /* before they knew of each other */
  char *own_log; /* this rank's */
  struct sl_dataset *train_set, *test_set;
  struct sl_loader *train_loader, *test_loader;
  struct sl_context *context;
  struct sl_model *model;
  struct sl_trainer *trainer;
  struct log *log;
  double log_opened; /* when */
  struct progress progress;
  struct meter meter;
  double bytes_sent;                  /* a rank */
  int64_t epoch_steps, steps, epochs; /* steps an epoch; steps and epochs in all */
  int64_t begun_at;                   /* steps of this run's size that the data are on */
  struct sl_position begun;           /* where this process took over; zero: it is the first */
  struct {
    struct checkpoints folder;
    char *options, *changes; /* the run's, as JSON; what has changed since the one resumed from */
    double stopped_s, begun; /* for the one being written or the last one; when that began */
    bool due;                /* by the clock, on all ranks */
    bool failed;             /* the last one tried */
  } checkpoint;
  char *command;                  /* that was typed, to be pasted */
  double epoch_loss;              /* sum over the epoch's samples */
  int64_t epoch_samples, samples; /* of this epoch, and of this process in all */
  double test_loss, test_accuracy;
  /* of --placement auto: what it says, and the time that steps really take */
  char *automatic;
  double predicted_ms;
  char *split, *split_table; /* of --split auto */
  struct trace trace;
  struct step_clock {
    double last, seconds; /* of the last report; between reports, without an epoch's first ones */
    int64_t in_epoch, steps;
  } clock;
};

/* ---- interruption ---- */

static volatile sig_atomic_t interrupted;

/* The first signal ends the run orderly, a later one at once. What comes in the same second is the
 * first one again: timeout(1) and batch systems signal a process and its group. */
static void on_signal(int number) {
  static struct timespec first;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (!interrupted) {
    interrupted = number;
    first = now;
  } else if (now.tv_sec - first.tv_sec > 1) {
    signal(number, SIG_DFL);
    raise(number);
  }
}

static void catch_signals(void) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  sigfillset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGUSR1, &action, NULL); /* mpirun passes this one on; at others it kills the ranks */
  signal(SIGXFSZ, SIG_IGN);          /* a file that may not grow is a write that fails */
}

/* ---- failures ---- */

/* What goes to the error stream at the end, and what to exit with. */
static int fail(struct run *run, int code, const char *format, ...) SL_PRINTF(3, 4);
static int fail(struct run *run, int code, const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(run->message, sizeof run->message, format, list);
  va_end(list);
  return code;
}

/* One line. What all ranks know, the first one says. */
static void print_failure(struct run *run) {
  progress_clear(&run->progress);
  if (run->rank && run->common) return;
  if (run->apart && !cli_let_first_speak()) return;
  aborted_told();
  if (run->rank)
    fprintf(stderr, "%s: rank %d: %s\n", run->name, run->rank, run->message);
  else
    fprintf(stderr, "%s: %s\n", run->name, run->message);
}

/* The library's message; arguments that it refuses are the user's. */
static int fail_library(struct run *run, enum sl_status status) {
  run->common |= status == SL_NOT_FINITE && !ranks_are_async(&run->cli);
  return fail(run, status == SL_BAD_ARGUMENT ? EXIT_USAGE : EXIT_FAILED, "%s", sl_error());
}

static int fail_file(struct run *run, const char *path, int error) {
  return fail(run, EXIT_FAILED, "%s: cannot be written: %s%s", path, strerror(error),
              error == ENOENT ? "; does its folder exist?" : "");
}

/* ---- the start ---- */

static int check_outputs(struct run *run) {
  const struct cli *cli = &run->cli;
  int error = cli->log ? output_error(run->own_log, false) : 0;
  if (error) return fail_file(run, run->own_log, error);
  error = cli->save && !run->rank ? output_error(cli->save, true) : 0;
  if (error) return fail_file(run, cli->save, error);
  return EXIT_DONE;
}

/* Else images, or sentences. */
static bool is_one_text(const struct sl_dataset_info *info) {
  return info->tokens && !info->bucket_count;
}

static enum sl_status open_loader(const struct run *run, const struct sl_dataset *set, bool train,
                                  struct sl_loader **loader) {
  const struct cli *cli = &run->cli;
  const struct sl_dataset_info *info = sl_dataset_info(set);
  bool colour = info->sample.dim[0] == 3;
  struct sl_loader_options options = {.batch = cli->batch, .seed = cli->seed};
  /* out of step each rank that evaluates does so alone */
  if (run->context && (train || !ranks_are_async(cli)))
    ranks_part(run->context, cli, run->model, &options);
  options.contiguous = is_one_text(info);
  if (train && !options.contiguous) {
    options.shuffle = cli->shuffle;
    options.shift = !cli->augment ? 0 : colour ? 4 : 2;
    options.flip = cli->augment && colour; /* a mirrored digit is none */
  }
  return sl_loader_new(set, &options, loader);
}

static int open_data(struct run *run) {
  const struct cli *cli = &run->cli;
  enum sl_status status;
  if (run->program->open_data) {
    status = run->program->open_data(cli, run->program->cli.input, &run->train_set, &run->test_set);
  } else {
    status = sl_dataset_open(cli->data, cli->seed, true, &run->train_set);
    if (status == SL_OK) status = sl_dataset_open(cli->data, cli->seed, false, &run->test_set);
  }
  if (status != SL_OK) return fail_library(run, status);
  const struct sl_dataset_info *info = sl_dataset_info(run->train_set);
  if (cli->batch > info->count)
    return fail(run, EXIT_USAGE, "--batch %lld: %s has only %lld samples", (long long)cli->batch,
                info->name, (long long)info->count);
  if ((int64_t)cli->replicas * cli->microbatches > cli->batch)
    return fail(run, EXIT_USAGE,
                "--replicas %d x --microbatches %d: more slices than a batch has samples (%lld)",
                cli->replicas, cli->microbatches, (long long)cli->batch);
  return EXIT_DONE;
}

/* Which part of the data is this rank's depends on the model's placement. */
static enum sl_status open_loaders(struct run *run) {
  enum sl_status status = open_loader(run, run->train_set, true, &run->train_loader);
  return status == SL_OK ? open_loader(run, run->test_set, false, &run->test_loader) : status;
}

/* What a program of its own kind of data or schedule cannot do is refused, not passed over. */
static int check_own(struct run *run) {
  const struct cli *cli = &run->cli;
  const struct program *program = run->program;
  if (cli->augment && sl_dataset_info(run->train_set)->tokens)
    return fail(run, EXIT_USAGE, "--augment: a text cannot be shifted; leave it out");
  if (program->half_life && *program->half_life && strncmp(cli->lr_schedule, "constant", 8) != 0)
    return fail(run, EXIT_USAGE, "--half-life and --lr-schedule %s: give one of the two",
                cli->lr_schedule);
  return EXIT_DONE;
}

/* How long: --steps, --epochs, the shorter of both, or the program's default. */
static void plan_steps(struct run *run) {
  const struct cli *cli = &run->cli;
  int64_t epochs = cli->epochs ? cli->epochs : cli->steps ? INT64_MAX : run->program->epochs;
  run->epoch_steps = sl_loader_length(run->train_loader);
  run->steps = epochs > INT64_MAX / run->epoch_steps ? INT64_MAX : epochs * run->epoch_steps;
  if (cli->steps && cli->steps < run->steps) run->steps = cli->steps;
  run->epochs = (run->steps + run->epoch_steps - 1) / run->epoch_steps;
}

/* Updates on the CPU would bring all gradients there and all weights back. */
static bool has_gpus_alone(const struct sl_context *context) {
  for (int d = 0; d < sl_device_count(context); d++)
    if (strncmp(sl_device_name(context, d), "cuda", 4) != 0) return false;
  return true;
}

static enum sl_status open_context(struct run *run) {
  const struct cli *cli = &run->cli;
  struct sl_context_options options = {.devices = cli->devices,
                                       .seed = cli->seed,
                                       .tune = cli->tune,
                                       .distributed = ranks_wanted(cli),
                                       .exchange = cli->exchange,
                                       .trace = *run->trace.folder ? run->trace.folder : NULL,
                                       .memory_limit = cli->memory_limit,
                                       .swap = cli->swap,
                                       .stall_timeout = cli->stall_timeout,
                                       .timeout = cli->timeout > 0 ? cli->timeout : -1};
  enum sl_status status = sl_open(&options, &run->context);
  catch_signals(); /* after StarPU has installed its own handlers */
  if (status != SL_OK) return status;
  aborted_catch(run->name, sl_rank(run->context));
  if (!cli->has_kvstore && has_gpus_alone(run->context)) run->cli.kvstore = SL_KVSTORE_DEVICE;
  return status;
}

/* What a saved model is to say of its inputs and outputs. */
static enum sl_status note_data(struct sl_model *model, const struct sl_dataset_info *info) {
  const struct sl_model_notes notes = {.channels = info->channels,
                                       .mean = info->mean,
                                       .deviation = info->deviation,
                                       .class_count = info->class_names ? info->classes : 0,
                                       .class_names = info->class_names};
  return sl_model_note(model, &notes);
}

static enum sl_status open_model(struct run *run) {
  const struct program *program = run->program;
  const struct sl_dataset_info *info = sl_dataset_info(run->train_set);
  enum sl_status status = run->context ? SL_OK : open_context(run);
  if (status == SL_OK) status = sl_model_new(run->context, &info->sample, &run->model);
  if (status == SL_OK) status = program->build(run->model, info, run->cli.init, program->cli.input);
  if (status == SL_OK) status = sl_model_build(run->model);
  if (status == SL_OK) status = note_data(run->model, info);
  if (status == SL_OK && run->cli.placement && !cli_is_automatic(&run->cli))
    status = sl_place(run->model, run->cli.placement);
  if (status == SL_OK && run->cli.placement_file)
    status = sl_place_file(run->model, run->cli.placement_file);
  if (status == SL_OK && run->cli.load) status = sl_model_load(run->model, run->cli.load);
  return status;
}

/* What the options leave to measurements. */
static enum sl_status measure(struct run *run, struct sl_trainer_options *options) {
  const struct cli *cli = &run->cli;
  enum sl_status status = SL_OK;
  if (cli_is_automatic(cli)) {
    status = sl_place_auto(run->model, &cli->optimizer, options, cli->batch, &run->predicted_ms,
                           &run->automatic);
    options->stages = 0; /* the placement has its own, at most so many */
  }
  if (status == SL_OK && cli_splits_itself(cli))
    status = sl_split_auto(run->model, &cli->optimizer, options, cli->batch, &run->split,
                           &run->split_table);
  return status;
}

static enum sl_status open_trainer(struct run *run) {
  const struct cli *cli = &run->cli;
  struct sl_schedule schedule;
  struct sl_trainer_options options = {.replicas = cli->replicas,
                                       .microbatches = cli->microbatches,
                                       .kvstore = cli->kvstore,
                                       .math = cli->math,
                                       .stages = cli->stages,
                                       .servers = cli->servers,
                                       .bigarray_bound = cli->bigarray_bound,
                                       .compress = cli->compress,
                                       .max_staleness = cli->max_staleness,
                                       .split = cli_splits_itself(cli) ? NULL : cli->split,
                                       .carry_state = is_one_text(sl_dataset_info(run->train_set))};
  enum sl_status status = sl_schedule_parse(cli->lr_schedule, run->steps, &schedule);
  if (status != SL_OK) return status;
  if (run->program->chunk) options.chunk = *run->program->chunk;
  if (run->program->half_life && *run->program->half_life)
    schedule = (struct sl_schedule){.kind = SL_STEP,
                                    .warmup = schedule.warmup,
                                    .period = *run->program->half_life * run->epoch_steps,
                                    .gamma = 0.5f};
  status = measure(run, &options);
  /* they measure their own devices, and one may fail alone */
  if (ranks_wanted(cli)) status = sl_share(run->context, status, sl_error());
  if (status != SL_OK) return status;
  return sl_trainer_new(run->model, &cli->optimizer, &schedule, &options, &run->trainer);
}

static enum sl_status print_summary(struct run *run) {
  char *layers = NULL, *placement = NULL;
  enum sl_status status = sl_model_summary(run->model, &layers);
  if (status == SL_OK) status = sl_trainer_summary(run->trainer, &placement);
  if (status == SL_OK) printf("%s\n%s\n", layers, placement);
  free(placement);
  free(layers);
  return status;
}

/* "5 buckets 8 16 24 32 60, padding 8.1 %, 12 longer sentences split or dropped" */
static void print_buckets(struct run *run, const struct sl_dataset_info *info) {
  char lengths[512] = "";
  size_t used = 0;
  int64_t places = 0;
  for (int b = 0; b < info->bucket_count; b++) {
    if (used < sizeof lengths)
      used += (size_t)snprintf(lengths + used, sizeof lengths - used, " %lld",
                               (long long)info->buckets[b]);
    places += info->buckets[b] * info->bucket_samples[b];
  }
  progress_print(&run->progress,
                 "%d buckets:%s tokens; padding %.1f %%; %lld longer sentences split or dropped",
                 info->bucket_count, lengths, 100.0 * (double)info->padding / (double)places,
                 (long long)info->longer);
}

/* One by one; the last one's end is there already. text may be NULL. */
static void print_lines(struct run *run, char *text) {
  char *rest = text;
  for (char *line = strsep(&rest, "\n"); line && *line; line = strsep(&rest, "\n"))
    progress_print(&run->progress, "%s", line);
}

static void print_plan(struct run *run) {
  const struct sl_dataset_info *info = sl_dataset_info(run->train_set);
  progress_print(&run->progress, "%s", sl_context_text(run->context));
  progress_print(&run->progress,
                 "%s: %lld samples; %lld parameters; %d replicas, batch %lld; %s, lr %g%s%s",
                 info->name, (long long)info->count, (long long)sl_model_parameters(run->model),
                 sl_trainer_replicas(run->trainer), (long long)run->cli.batch,
                 run->cli.optimizer_name, run->cli.optimizer.lr, run->cli.math ? ", math " : "",
                 run->cli.math ? sl_math_name(run->cli.math) : "");
  if (ranks_wanted(&run->cli)) {
    int ranks = sl_rank_count(run->context), servers = run->cli.servers;
    progress_print(
        &run->progress,
        "%d ranks, KVStore %s: %d workers, each with such a batch; %d own the parameters", ranks,
        sl_kvstore_name(run->cli.kvstore), ranks_workers(run->context, &run->cli, run->model),
        servers ? servers : ranks);
  }
  if (info->bucket_count) print_buckets(run, info);
  if (run->begun.step)
    progress_print(&run->progress, "Going on from %s, after step %lld of %lld%s%s",
                   run->checkpoint.folder.newest, (long long)run->begun.step, (long long)run->steps,
                   *run->checkpoint.changes ? "; changed: " : "", run->checkpoint.changes);
  else if (run->cli.resume)
    progress_print(&run->progress, "No whole checkpoint in %s: from the beginning",
                   run->cli.checkpoint);
  print_lines(run, run->automatic);
  print_lines(run, run->split_table);
}

static int check_folder(struct run *run) {
  const char *folder = run->cli.checkpoint;
  int error = checkpoints_open(&run->checkpoint.folder);
  if (error) return fail_file(run, folder, error);
  if (run->cli.resume || !checkpoints_exist(&run->checkpoint.folder)) return EXIT_DONE;
  return fail(run, EXIT_USAGE,
              "--checkpoint %s: has a run's checkpoints; add --resume to go on, or name another",
              folder);
}

/* Over another number of ranks the data go on where they were, in batches of another size. */
static int resume(struct run *run) {
  struct sl_position *begun = &run->begun;
  enum sl_status status = checkpoints_resume(&run->checkpoint.folder, run->name, run->context,
                                             run->trainer, run->train_loader);
  if (status != SL_OK) return fail_library(run, status);
  run->checkpoint.changes =
      options_changes(sl_trainer_loaded_options(run->trainer), run->checkpoint.options);
  if (!run->checkpoint.changes) return fail(run, EXIT_FAILED, "no memory for the options");
  *begun = sl_trainer_position(run->trainer);
  run->begun_at = begun->epoch * run->epoch_steps + begun->index;
  if (run->begun_at == begun->step || ranks_wanted(&run->cli)) return EXIT_DONE;
  return fail(run, EXIT_USAGE, "%s: step %lld is elsewhere in the data; was --batch another then?",
              run->checkpoint.folder.newest, (long long)begun->step);
}

static struct description describe(const struct run *run) {
  return (struct description){.program = run->name,
                              .cli = &run->cli,
                              .context = run->context,
                              .model = run->model,
                              .trainer = run->trainer,
                              .train_set = run->train_set,
                              .test_set = run->test_set,
                              .split = run->split,
                              .epochs = run->epochs,
                              .steps = run->steps,
                              .from = run->begun.step};
}

/* What checkpoints say of the run, and the newest of them where it goes on from one. */
static int open_checkpoints(struct run *run) {
  if (!run->cli.checkpoint) return EXIT_DONE;
  const struct description description = describe(run);
  run->checkpoint.options = options_text(&description);
  if (!run->checkpoint.options) return fail(run, EXIT_FAILED, "no memory for the options");
  return run->cli.resume ? resume(run) : EXIT_DONE;
}

/* What each rank does by itself: files, data, the model. */
static int start_alone(struct run *run) {
  int code = check_outputs(run);
  if (code == EXIT_DONE && run->cli.checkpoint && !run->rank) code = check_folder(run);
  if (code == EXIT_DONE) code = open_data(run);
  if (code == EXIT_DONE) code = check_own(run);
  if (code != EXIT_DONE) return code;
  enum sl_status status = open_model(run);
  if (status == SL_OK) status = open_loaders(run);
  if (status != SL_OK) return fail_library(run, status);
  plan_steps(run);
  return EXIT_DONE;
}

static int plan_trace(struct run *run) {
  /* the same command once more, after a crash: they are recorded already */
  if (run->begun_at && run->cli.trace_last && run->cli.trace_last <= run->begun_at) {
    *run->trace.folder = '\0';
    if (!run->cli.quiet)
      progress_print(&run->progress,
                     "Trace          steps %lld-%lld were done before: none is recorded",
                     (long long)run->cli.trace_first, (long long)run->cli.trace_last);
    return EXIT_DONE;
  }
  if (trace_plan(&run->trace, &run->cli, run->begun_at, run->steps)) return EXIT_DONE;
  run->common = ranks_wanted(&run->cli);
  return fail(run, EXIT_USAGE, "--trace-steps %lld-%lld: this run has steps %lld to %lld",
              (long long)run->cli.trace_first, (long long)run->cli.trace_last,
              (long long)run->begun_at + 1, (long long)run->steps);
}

/* A rank's failure is that of all. */
static int share(struct run *run, int code) {
  enum sl_status mine = code == EXIT_DONE ? SL_OK : code == EXIT_USAGE ? SL_BAD_ARGUMENT : SL_IO;
  enum sl_status status = sl_share(run->context, mine, run->message);
  if (status == SL_OK) return EXIT_DONE;
  run->common = status != SL_LOST;
  return status == mine ? code : fail_library(run, status);
}

/* Before anything else: which part of the data is read depends on the rank. */
static int join(struct run *run) {
  enum sl_status status = open_context(run);
  if (status != SL_OK) {
    sl_launched(&run->rank);
    run->apart = true;
    return fail_library(run, status);
  }
  run->rank = sl_rank(run->context);
  run->works = run->rank < sl_rank_count(run->context) - run->cli.servers;
  if (run->cli.servers < sl_rank_count(run->context)) return EXIT_DONE;
  run->common = true;
  return fail(run, EXIT_USAGE,
              "--servers %d of %d ranks: at least one rank must be a worker; start more ranks "
              "(mpirun -np %d) or take fewer servers",
              run->cli.servers, sl_rank_count(run->context), run->cli.servers + 1);
}

static int agree(struct run *run) {
  enum sl_status status = ranks_agree(run->context, &run->cli, run->train_set);
  if (status == SL_OK) return EXIT_DONE;
  run->common = status != SL_LOST;
  return fail_library(run, status);
}

/* The last thing of all: a bad start leaves an older log alone. */
static int open_log(struct run *run) {
  const struct description description = describe(run);
  run->log_opened = seconds_now();
  int error = log_open(run->own_log, run->begun.step, &run->log);
  if (!error && run->own_log) error = log_line(run->log, describe_run(&description));
  if (!error && run->begun.step)
    error = log_resumed(run->log, run->checkpoint.folder.newest, run->begun.step,
                        run->checkpoint.changes);
  return error ? fail_file(run, run->own_log, error) : EXIT_DONE;
}

static int start(struct run *run) {
  bool distributed = ranks_wanted(&run->cli);
  int code = distributed ? join(run) : EXIT_DONE;
  if (code != EXIT_DONE) return code;
  run->cli.quiet |= run->rank > 0;
  run->own_log = run->cli.log ? ranks_path(run->cli.log, run->rank) : NULL;
  code = start_alone(run);
  if (distributed) code = share(run, code);
  if (distributed && code == EXIT_DONE) code = agree(run);
  if (code != EXIT_DONE) return code;
  enum sl_status status = open_trainer(run);
  run->common = distributed && status != SL_OK && status != SL_LOST;
  if (status == SL_OK && run->cli.summary && !run->rank) status = print_summary(run);
  if (status != SL_OK) return fail_library(run, status);
  code = open_checkpoints(run);
  if (code == EXIT_DONE && run->begun_at < run->steps) code = plan_trace(run);
  return code == EXIT_DONE ? open_log(run) : code;
}

/* ---- training ---- */

/* The first steps of an epoch fill the pipeline. */
static void clock_step(struct step_clock *clock) {
  enum { FILLING = 4 };
  double now = seconds_now();
  if (++clock->in_epoch > FILLING) {
    clock->seconds += now - clock->last;
    clock->steps++;
  }
  clock->last = now;
}

static int note_step(struct run *run, const struct sl_report *report) {
  run->stopped |= report->stop;
  run->checkpoint.due |= report->save;
  if (ranks_are_async(&run->cli) && !run->works) return EXIT_DONE; /* it has nothing to tell */
  double rate = meter_add(&run->meter, report->samples);
  clock_step(&run->clock);
  run->epoch_loss += report->loss * (double)report->samples;
  run->epoch_samples += report->samples;
  run->samples += report->samples;
  progress_step(&run->progress, report, rate);
  int error = log_step(run->log, report, rate);
  return error ? fail_file(run, run->own_log, error) : EXIT_DONE;
}

/* Report all that is still under way. */
static int drain(struct run *run) {
  struct sl_report report;
  bool reported = true;
  while (reported) {
    enum sl_status status = sl_trainer_drain(run->trainer, &report, &reported);
    if (status != SL_OK) return fail_library(run, status);
    int code = reported ? note_step(run, &report) : EXIT_DONE;
    if (code != EXIT_DONE) return code;
  }
  return EXIT_DONE;
}

static int evaluate(struct run *run, int64_t epoch) {
  enum sl_status status =
      sl_trainer_evaluate(run->trainer, run->test_loader, &run->test_loss, &run->test_accuracy);
  if (status != SL_OK) return fail_library(run, status);
  if (sl_dataset_info(run->test_set)->tokens)
    progress_print(&run->progress,
                   "epoch %lld/%lld  train perplexity %.3f  validation perplexity %.3f",
                   (long long)epoch, (long long)run->epochs,
                   exp(run->epoch_loss / (double)run->epoch_samples), exp(run->test_loss));
  else
    progress_print(
        &run->progress, "epoch %lld/%lld  train loss %.4f  test loss %.4f  test accuracy %.2f %%",
        (long long)epoch, (long long)run->epochs, run->epoch_loss / (double)run->epoch_samples,
        run->test_loss, 100 * run->test_accuracy);
  int error = log_evaluation(run->log, epoch, run->test_loss, run->test_accuracy);
  return error ? fail_file(run, run->own_log, error) : EXIT_DONE;
}

static int save(struct run *run) {
  if (!run->cli.save || run->rank) return EXIT_DONE;
  enum sl_status status = sl_model_save(run->model, run->cli.save);
  if (status == SL_OK && run->program->save)
    status = run->program->save(run->cli.save, run->program->cli.input);
  return status == SL_OK ? EXIT_DONE : fail_library(run, status);
}

/* ---- checkpoints ---- */

/* After so many steps or minutes; at the run's end and when it is stopped, in any case. */
static bool is_due(const struct run *run, int64_t done) {
  const struct cli *cli = &run->cli;
  int64_t every = cli->checkpoint_every ? cli->checkpoint_every : run->epoch_steps;
  bool by_steps = cli->checkpoint_minutes == 0 && done % every == 0;
  return cli->checkpoint && (run->stopped || done == run->steps || by_steps || run->checkpoint.due);
}

/* Rank 0's clock holds for all; they learn it with a step's loss. */
static void watch_clock(struct run *run) {
  double period = 60 * run->cli.checkpoint_minutes;
  if (period > 0 && !run->rank && seconds_now() - run->checkpoint.begun >= period)
    sl_trainer_ask_save(run->trainer);
}

/* A full disk and the like: told, and tried again at the next one. */
static bool is_passing(enum sl_status status) { return status == SL_IO || status == SL_NO_MEMORY; }

/* last: no step follows, and the failure is the run's; finish() says it. */
static int miss_checkpoint(struct run *run, enum sl_status status, int64_t step, const char *why,
                           bool last) {
  run->checkpoint.failed = true;
  fail(run, EXIT_FAILED, "no checkpoint after step %lld: %s", (long long)step, why);
  if (!is_passing(status)) return EXIT_FAILED;
  if (run->rank || last) return EXIT_DONE;
  progress_clear(&run->progress);
  fprintf(stderr, "%s: %s; the training goes on\n", run->name, run->message);
  return EXIT_DONE;
}

static int note_checkpoint(struct run *run, const struct sl_saved *saved) {
  if (!saved->position.step) return EXIT_DONE; /* there was none, or it is noted */
  run->checkpoint.failed = false;
  int error =
      log_checkpoint(run->log, run->checkpoint.folder.newest, run->checkpoint.stopped_s, saved);
  return error ? fail_file(run, run->own_log, error) : EXIT_DONE;
}

/* Has the one being written come to its end? */
static int poll_checkpoint(struct run *run) {
  struct sl_saved saved;
  if (!sl_trainer_save_ended(run->trainer, &saved)) return EXIT_DONE;
  if (saved.status == SL_OK) return note_checkpoint(run, &saved);
  return miss_checkpoint(run, saved.status, saved.position.step, saved.message, false);
}

/* The same of all ranks together, waiting for it. */
static int end_checkpoint(struct run *run, bool last) {
  struct sl_saved saved;
  enum sl_status status = sl_trainer_save_wait(run->trainer, &saved);
  if (status == SL_OK) return note_checkpoint(run, &saved);
  return miss_checkpoint(run, status, saved.position.step, sl_error(), last);
}

static int begin_checkpoint(struct run *run, bool last) {
  double begun = seconds_now();
  int code = end_checkpoint(run, false);
  if (code != EXIT_DONE) return code;
  enum sl_status status =
      checkpoints_begin(&run->checkpoint.folder, run->trainer, run->checkpoint.options);
  if (status != SL_OK)
    code = miss_checkpoint(run, status, sl_trainer_position(run->trainer).step, sl_error(), last);
  else
    run->checkpoint.failed = false; /* what becomes of this one is all ranks' to know */
  run->checkpoint.due = false;
  run->checkpoint.begun = seconds_now();
  run->checkpoint.stopped_s = run->checkpoint.begun - begun;
  return code;
}

/* ---- epochs and pauses ---- */

/* The end of an epoch, or of the run in the midst of one. */
static int end_epoch(struct run *run, int64_t epoch) {
  bool alone = ranks_are_async(&run->cli);
  int code = run->stopped || (alone && run->rank) ? EXIT_DONE : evaluate(run, epoch);
  if (code == EXIT_DONE) {
    code =
        save(run); /* by one rank; where all come here together none shall think that all is well */
    if (ranks_wanted(&run->cli) && !alone) code = share(run, code);
  }
  run->epoch_loss = 0;
  run->epoch_samples = 0;
  return code;
}

static int settle(struct run *run) {
  bool stop;
  enum sl_status status = sl_trainer_settle(run->trainer, &stop);
  run->stopped |= stop;
  return status == SL_OK ? EXIT_DONE : fail_library(run, status);
}

/* No step is under way meanwhile. The checkpoint comes last: a run that goes on from it has all
 * that came before. */
static int halt(struct run *run, int64_t done) {
  int code = drain(run);
  bool last = run->stopped || done == run->steps;
  bool ends = last || done % run->epoch_steps == 0;
  progress_pause(&run->progress);
  /* of a model over several ranks the first has its own layers only, until all have met */
  bool gathers = last || (ends && run->cli.save && sl_placement_ranks(run->model) > 1);
  if (code == EXIT_DONE && gathers) code = settle(run);
  if (code == EXIT_DONE && ends) code = end_epoch(run, (done - 1) / run->epoch_steps + 1);
  if (code == EXIT_DONE && is_due(run, done)) {
    code = begin_checkpoint(run, last);
    if (code == EXIT_DONE) code = settle(run); /* they are all here: did one ask for an end? */
  }
  progress_resume(&run->progress);
  meter_restart(&run->meter);
  run->clock.in_epoch = 0;
  return code;
}

/* A checkpoint of a finished run. */
static int tell_again(struct run *run) {
  progress_print(&run->progress, "Nothing is left to train");
  enum sl_status status =
      sl_trainer_evaluate(run->trainer, run->test_loader, &run->test_loss, &run->test_accuracy);
  return status == SL_OK ? save(run) : fail_library(run, status);
}

/* Recorded steps begin and end with nothing under way, so that they are whole. */
static int stop_trace(struct run *run, int64_t done) {
  if (!(run->trace.since > 0)) return EXIT_DONE;
  int code = drain(run);
  enum sl_status status = code == EXIT_DONE ? sl_wait(run->context) : SL_OK;
  trace_stop(&run->trace, run->context, done);
  return status == SL_OK ? code : fail_library(run, status);
}

static int start_trace(struct run *run, int64_t step) {
  if (!trace_takes(&run->trace, step) || run->trace.since > 0) return EXIT_DONE;
  int code = drain(run);
  if (code != EXIT_DONE || run->stopped) return code;
  enum sl_status status = sl_wait(run->context);
  if (status == SL_OK) status = trace_start(&run->trace, run->context, step);
  return status == SL_OK ? EXIT_DONE : fail_library(run, status);
}

static int train(struct run *run) {
  struct sl_report report;
  bool reported;
  progress_start(&run->progress, run->cli.quiet, run->begun_at, run->steps, run->epochs);
  if (!run->cli.quiet) print_plan(run);
  if (run->begun_at >= run->steps) return tell_again(run);
  meter_restart(&run->meter);
  run->checkpoint.begun = seconds_now();
  for (int64_t done = run->begun_at + 1; done <= run->steps && !run->stopped; done++) {
    if (interrupted) sl_trainer_stop(run->trainer); /* seen by all ranks after the same step */
    watch_clock(run);
    int code = start_trace(run, done);
    if (code != EXIT_DONE) return code;
    enum sl_status status = sl_trainer_step(run->trainer, run->train_loader, &report, &reported);
    if (status != SL_OK) return fail_library(run, status);
    code = reported ? note_step(run, &report) : EXIT_DONE;
    if (code == EXIT_DONE) code = poll_checkpoint(run);
    bool halts = run->stopped || done % run->epoch_steps == 0 || is_due(run, done);
    if (code == EXIT_DONE && (halts || !trace_takes(&run->trace, done + 1)))
      code = stop_trace(run, done);             /* what a halt does is none of a step's work */
    halts |= run->stopped || is_due(run, done); /* the last steps may have told of it */
    if (code == EXIT_DONE && (halts || done == run->steps)) code = halt(run, done);
    if (code != EXIT_DONE) return code;
  }
  return run->cli.checkpoint ? end_checkpoint(run, true) : EXIT_DONE;
}

/* ---- the end ---- */

/* Uncompressed, a gradient goes to its owner and weights come from it: what N ranks send, each, at
 * least. Ranks that have a model between them send what flows through it, too. */
static void print_sent(struct run *run) {
  int ranks = sl_rank_count(run->context), workers = ranks - run->cli.servers;
  double share = run->cli.servers ? (double)workers / ranks : (ranks - 1.0) / ranks;
  double whole = 8e-6 * share * (double)sl_model_parameters(run->model);
  double sent = 1e-6 * run->bytes_sent / (double)(run->progress.done - run->begun_at);
  if (sl_placement_ranks(run->model) > 1)
    progress_print(&run->progress, "Sent           %.3f MB a rank and step", sent);
  else
    progress_print(&run->progress, "Sent           %.3f MB a rank and step (uncompressed %.3f MB)",
                   sent, whole);
}

static int count_bytes(struct run *run) {
  enum sl_status status = sl_bytes_sent(run->context, &run->bytes_sent);
  return status == SL_OK ? EXIT_DONE : fail_library(run, status);
}

/* What ended an orderly run early. */
static const char *stopper(void) {
  return interrupted == SIGINT    ? "Ctrl-C (SIGINT)"
         : interrupted == SIGTERM ? "SIGTERM"
         : interrupted == SIGUSR1 ? "SIGUSR1"
                                  : "another rank";
}

/* The last line is for people and for scripts: all that is behind "with: " can be pasted. */
static void print_way_on(struct run *run) {
  int ranks = sl_rank_count(run->context);
  char over[40] = "";
  if (*run->checkpoint.folder.newest)
    progress_print(&run->progress, "Checkpoint     %s", run->checkpoint.folder.newest);
  if (ranks > 1) snprintf(over, sizeof over, ", over %d ranks,", ranks);
  progress_print(&run->progress, "Stopped by %s after step %lld of %lld; go on%s with: %s%s",
                 stopper(), (long long)run->progress.done, (long long)run->steps, over,
                 run->command, run->cli.resume ? "" : " --resume");
}

/* What a limit costs. */
static void print_memory(struct run *run) {
  struct sl_memory_use use;
  sl_memory_use(run->context, &use);
  if (!use.limit) return;
  progress_print(&run->progress,
                 "Memory         at most %.1f of %.1f MB; %.1f MB swapped out, %.1f MB in",
                 (double)use.peak / 1e6, (double)use.limit / 1e6, (double)use.swap_out / 1e6,
                 (double)use.swap_in / 1e6);
}

static void print_result(struct run *run) {
  struct progress *progress = &run->progress;
  const struct cli *cli = &run->cli;
  progress_clear(progress);
  if (run->stopped)
    progress_print(progress, "Stopped        by %s after step %lld of %lld", stopper(),
                   (long long)progress->done, (long long)run->steps);
  else if (sl_dataset_info(run->test_set)->tokens)
    progress_print(progress, "Perplexity     %.3f (validation)", exp(run->test_loss));
  else
    progress_print(progress, "Test accuracy  %.2f %%", 100 * run->test_accuracy);
  if (run->program->tell) {
    char line[256];
    run->program->tell(run->program->cli.input, line, sizeof line);
    progress_print(progress, "%s", line);
  }
  if (run->automatic && run->clock.steps)
    progress_print(progress, "Step           %.2f ms, predicted %.2f ms",
                   1e3 * run->clock.seconds / (double)run->clock.steps, run->predicted_ms);
  if (sl_rank_count(run->context) > 1) print_sent(run);
  print_memory(run);
  progress_print(progress, "Devices        %s", sl_context_text(run->context));
  if (cli->log) progress_print(progress, "Log            %s", cli->log);
  if (cli->save) progress_print(progress, "Weights        %s", cli->save);
  if (cli->log) progress_print(progress, "Curve          starling-plot -o curve.svg %s", cli->log);
  if (run->stopped && cli->checkpoint) print_way_on(run);
}

/* The log's last line. errno's value, or 0. */
static int end_log(struct run *run, int code) {
  const struct progress *progress = &run->progress;
  bool failed = code != EXIT_DONE, stopped = run->stopped && progress->done < run->steps;
  const char *message = failed ? run->message : stopped ? stopper() : NULL;
  if (!run->log) return 0;
  return log_end(run->log,
                 failed    ? "failed"
                 : stopped ? "interrupted"
                           : "done",
                 seconds_now() - run->log_opened,
                 !failed && progress->busy > 0 ? (double)run->samples / progress->busy : -1,
                 message);
}

/* StarPU's files are there once it has ended. */
static int draw_trace(struct run *run, int code) {
  const struct trace *trace = &run->trace;
  if (code != EXIT_DONE || !*trace->folder) return code;
  if (!trace->begun) {
    fprintf(stderr, "%s: --trace: the run ended before step %lld, nothing was recorded\n",
            run->name, (long long)trace->first);
    return code;
  }
  int error = trace_write_window(trace, &run->cli);
  if (error) {
    code = fail_file(run, trace->folder, error);
    print_failure(run);
    return code;
  }
  return trace_draw(trace, run->cli.quiet) ? code : EXIT_FAILED;
}

/* Backwards, as it was opened. */
static int finish(struct run *run, int code) {
  int error = end_log(run, code);
  int closing = log_close(run->log);
  if (!error) error = closing;
  if (error && code == EXIT_DONE) code = fail_file(run, run->own_log, error);
  if (code != EXIT_DONE) print_failure(run);
  if (code != EXIT_DONE && !run->common) sl_leave(run->context, run->message);
  if (code == EXIT_DONE) trace_measure_peak(&run->trace);
  free(run->automatic);
  free(run->split);
  free(run->split_table);
  free(run->own_log);
  sl_trainer_free(run->trainer); /* a checkpoint being written needs what follows */
  checkpoints_close(&run->checkpoint.folder);
  free(run->checkpoint.options);
  free(run->checkpoint.changes);
  free(run->command);
  sl_model_free(run->model);
  sl_close(run->context);
  sl_loader_free(run->test_loader);
  sl_loader_free(run->train_loader);
  sl_dataset_free(run->test_set);
  sl_dataset_free(run->train_set);
  return draw_trace(run, code);
}

/* What needs the devices, but neither data nor a trainer. */
static int run_instead(struct run *run) {
  const struct cli *cli = &run->cli;
  struct sl_context_options options = {
      .devices = cli->devices, .seed = cli->seed, .tune = cli->tune};
  if (cli_is_automatic(cli))
    return fail(run, EXIT_USAGE, "--placement auto is for training; name the devices");
  if (!cli->load) return fail(run, EXIT_USAGE, "name the trained weights: --load FILE");
  enum sl_status status = sl_open(&options, &run->context);
  if (status == SL_OK) aborted_catch(run->name, 0);
  if (status == SL_OK) status = run->program->instead(run->context, cli, run->program->cli.input);
  int code = status == SL_OK ? EXIT_DONE : fail_library(run, status);
  sl_close(run->context);
  return code;
}

/* A word as a shell wants it. */
static void print_word(FILE *out, const char *word) {
  static const char plain[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+./:=,@%";
  if (*word && strspn(word, plain) == strlen(word)) {
    fputs(word, out);
    return;
  }
  fputc('\'', out);
  for (; *word; word++) fputs(*word == '\'' ? "'\\''" : (char[]){*word, '\0'}, out);
  fputc('\'', out);
}

/* The command line, to be pasted; in a build folder by libtool's wrapper. "" without memory. */
static char *command_text(int argc, char **argv) {
  static const char hidden[] = ".libs/";
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  if (!out) return strdup("");
  const char *folder = strstr(argv[0], hidden);
  if (folder)
    fprintf(out, "%.*s%s", (int)(folder - argv[0]), argv[0], program_name(argv[0]));
  else
    print_word(out, argv[0]);
  for (int i = 1; i < argc; i++) {
    fputc(' ', out);
    print_word(out, argv[i]);
  }
  fclose(out);
  return text;
}

static int refuse_stray(struct run *run) {
  run->apart = true;
  int count = sl_launched(&run->rank);
  return fail(run, EXIT_USAGE,
              "started as one of %d ranks, but --kvstore %s does not talk to the others: take "
              "--kvstore dist_sync",
              count, sl_kvstore_name(run->cli.kvstore));
}

int run_program(const struct program *program, int argc, char **argv) {
  struct run run = {.program = program, .name = program_name(argv[0])};
  run.command = command_text(argc, argv); /* the options' parser reorders them */
  cli_default(&run.cli);
  run.cli.batch = program->batch;
  if (program->data) run.cli.data = program->data;
  if (program->lr_schedule) run.cli.lr_schedule = program->lr_schedule;
  run.cli.init = program->init;
  run.cli.augment = program->augment;
  run.cli.optimizer = (struct sl_optimizer){
      .lr = program->lr, .momentum = program->momentum, .weight_decay = program->weight_decay};
  if (program->clip > 0) run.cli.clip = (double)program->clip;
  cli_parse(&run.cli, &program->cli, argc, argv);
  run.checkpoint.folder = (struct checkpoints){.folder = run.cli.checkpoint, .keep = run.cli.keep};
  if (program->asks_instead && *program->asks_instead) {
    int code = run_instead(&run);
    if (code != EXIT_DONE) print_failure(&run);
    free(run.command);
    return code;
  }
  int code = ranks_strayed(&run.cli) ? refuse_stray(&run) : EXIT_DONE;
  if (code == EXIT_DONE && !trace_prepare(&run.trace, argv[0], &run.cli)) {
    int error = errno;
    run.apart = sl_launched(&run.rank) > 1;
    code = fail_file(&run, run.cli.trace, error);
  }
  if (code == EXIT_DONE) code = start(&run);
  if (code == EXIT_DONE) code = train(&run);
  if (code == EXIT_DONE) code = count_bytes(&run);
  if (code == EXIT_DONE) print_result(&run);
  if (code == EXIT_DONE && run.checkpoint.failed) {
    run.common = true; /* the last one is of all ranks */
    code = EXIT_FAILED;
  }
  code = finish(&run, code);
  /* so that a shell's loop ends, too; a launcher would take it for a crash, and so would a batch
   * system that is to go on from the checkpoint */
  if (code == EXIT_DONE && interrupted && !ranks_wanted(&run.cli) && !run.cli.checkpoint) {
    signal(interrupted, SIG_DFL);
    raise(interrupted);
  }
  return code;
}
