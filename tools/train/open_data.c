/* The data of a session: the datasets, this rank's part of them, the number of steps. */
#include <stdio.h>
#include <string.h>

#include "tools/train/augmentation.h"
#include "tools/train/class_weights.h"
#include "tools/train/failure.h"
#include "tools/train/open.h"
#include "tools/train/ranks.h"

bool session_is_one_text(const struct session *session, const struct sl_dataset_info *info) {
  return info->tokens && !info->bucket_count && !session->program->windows;
}

static enum sl_status open_loader(const struct session *session, const struct sl_dataset *set,
                                  bool train, struct sl_loader **loader) {
  const struct cli *cli = &session->cli;
  const struct sl_dataset_info *info = sl_dataset_info(set);
  struct sl_loader_options options = {.batch = cli->batch,
                                      .seed = cli->seed,
                                      .readers = cli->readers,
                                      .crop_h = cli->crop_h,
                                      .crop_w = cli->crop_w};
  /* out of step, rank 0 evaluates alone */
  if (session->context && (train || !ranks_are_async(cli)))
    ranks_part(session->context, cli, session->model, &options);
  options.contiguous = session_is_one_text(session, info);
  if (train && !options.contiguous) {
    options.shuffle = cli->shuffle;
    augmentation_set(cli, info, &options);
  }
  return sl_loader_new(set, &options, loader);
}

/* Classes or values, where the data could be either. */
static enum sl_target_kind target_kind(const struct cli *cli) {
  if (!cli->task) return SL_TARGET_AUTO;
  return !strcmp(cli->task, "regression") ? SL_TARGET_VALUES : SL_TARGET_CLASSES;
}

/* Losses of probabilities and of directions take the targets as they are. */
static bool takes_raw(const struct sl_loss *loss) {
  return loss->kind == SL_LOSS_BCE || loss->kind == SL_LOSS_COSINE;
}

static bool wants_raw_targets(const struct cli *cli) {
  struct sl_loss_part parts[SL_MAX_FIELDS];
  struct sl_loss loss;
  if (cli->raw) return true;
  return cli->loss && sl_loss_parse_parts(cli->loss, parts, &loss) == SL_OK && takes_raw(&loss);
}

/* The same of a loss of parts: "mask,edge". Returns names. */
static const char *raw_fields(const struct cli *cli, char *names, size_t size) {
  struct sl_loss_part parts[SL_MAX_FIELDS];
  struct sl_loss loss;
  size_t used = 0;
  *names = '\0';
  if (!cli->loss || sl_loss_parse_parts(cli->loss, parts, &loss) != SL_OK) return names;
  for (int i = 0; i < loss.part_count && used < size; i++)
    if (takes_raw(&parts[i].loss))
      used += (size_t)snprintf(names + used, size - used, "%s%s", used ? "," : "",
                               *parts[i].target ? parts[i].target : parts[i].output);
  return names;
}

enum sl_status program_read_data(const struct cli *cli, struct sl_dataset **train,
                                 struct sl_dataset **test) {
  char raw[SL_MAX_FIELDS * sizeof((struct sl_loss_part *)0)->output];
  char fold[48];
  if (cli->fold) snprintf(fold, sizeof fold, "fold:%s", cli->fold);
  const struct sl_reader_options options = {.seed = cli->seed,
                                            .inputs = cli->inputs,
                                            .target = cli->target,
                                            .tokens = cli->tokens,
                                            .ignore = cli->ignore,
                                            .targets = target_kind(cli),
                                            .missing = cli->missing,
                                            .validation = cli->fold ? fold : cli->validation,
                                            .height = cli->height,
                                            .width = cli->width,
                                            .skip_bad = cli->skip_bad,
                                            .raw = cli->raw,
                                            .raw_targets = wants_raw_targets(cli),
                                            .raw_fields = raw_fields(cli, raw, sizeof raw)};
  enum sl_status status = sl_dataset_read(cli->data, &options, true, train);
  return status == SL_OK ? sl_dataset_read(cli->data, &options, false, test) : status;
}

/* The first option of tables, arrays and pictures that was given; NULL: none was. */
static const char *data_option(const struct cli *cli) {
  const struct {
    bool given;
    const char *name;
  } options[] = {
      {cli->target, "target"},     {cli->inputs, "inputs"},   {cli->tokens, "tokens"},
      {cli->ignore, "ignore"},     {cli->missing, "missing"}, {cli->validation, "validation"},
      {cli->fold, "fold"},         {cli->height, "size"},     {cli->crop_h, "crop"},
      {cli->skip_bad, "skip-bad"}, {cli->raw, "no-normalize"}};
  for (size_t i = 0; i < sizeof options / sizeof *options; i++)
    if (options[i].given) return options[i].name;
  return NULL;
}

static bool names_arrays(const char *path) {
  static const char *const ends[] = {".npz", ".npy", ".h5", ".hdf5"};
  const char *dot = strrchr(path, '.');
  for (size_t i = 0; dot && i < sizeof ends / sizeof *ends; i++)
    if (!strcmp(dot, ends[i])) return true;
  return false;
}

/* Before the text is read: of another file the reader would say that it is damaged. */
static int check_text(struct session *session) {
  const struct cli *cli = &session->cli;
  const struct program *program = session->program;
  const char *option = data_option(cli);
  if (!program->takes_text || !program->takes_text(program->cli.input)) return EXIT_DONE;
  if (cli->tokens || names_arrays(cli->data))
    return session_fail(session, EXIT_USAGE,
                        "%s %s: this model takes a text; arrays of tokens need one with "
                        "\"inputs\", see doc/data.md",
                        cli->tokens ? "--tokens" : "--data", cli->tokens ? cli->tokens : cli->data);
  if (cli->augment)
    return session_fail(session, EXIT_USAGE, "--augment: a text cannot be shifted; leave it out");
  if (option)
    return session_fail(session, EXIT_USAGE, "--%s: a text has no such thing; leave it out",
                        option);
  return EXIT_DONE;
}

static int check_batch(struct session *session) {
  const struct cli *cli = &session->cli;
  const struct sl_dataset_info *info = sl_dataset_info(session->train_set);
  if (cli->batch > info->count && cli->batch == session->program->batch)
    return session_fail(session, EXIT_USAGE,
                        "a batch has %lld samples by default, but %s has only %lld; give a "
                        "smaller --batch",
                        (long long)cli->batch, info->name, (long long)info->count);
  if (cli->batch > info->count)
    return session_fail(session, EXIT_USAGE, "--batch %lld: %s has only %lld samples",
                        (long long)cli->batch, info->name, (long long)info->count);
  if ((int64_t)cli->replicas * cli->microbatches > cli->batch)
    return session_fail(
        session, EXIT_USAGE,
        "--replicas %d x --microbatches %d: more slices than a batch has samples (%lld)",
        cli->replicas, cli->microbatches, (long long)cli->batch);
  return EXIT_DONE;
}

int session_open_data(struct session *session) {
  const struct cli *cli = &session->cli;
  enum sl_status status;
  int code = check_text(session);
  if (code != EXIT_DONE) return code;
  if (session->program->open_data) {
    status = session->program->open_data(cli, session->program->cli.input, &session->train_set,
                                         &session->test_set);
  } else {
    status = program_read_data(cli, &session->train_set, &session->test_set);
  }
  if (status != SL_OK) return session_fail_library(session, status);
  return check_batch(session);
}

/* Such a batch would have rows that count nowhere. The number of parts depends on the model's
 * placement. */
int session_check_share(struct session *session) {
  const struct cli *cli = &session->cli;
  const struct sl_dataset_info *info = sl_dataset_info(session->train_set);
  struct sl_loader_options options = {0};
  if (!session->context || session_is_one_text(session, info)) return EXIT_DONE; /* the loader's */
  ranks_part(session->context, cli, session->model, &options);
  if (cli->batch <= info->count / options.num_parts) return EXIT_DONE;
  return session_fail(session, EXIT_USAGE,
                      "--batch %lld: each of %lld ranks has only %lld samples of %s",
                      (long long)cli->batch, (long long)options.num_parts,
                      (long long)(info->count / options.num_parts), info->name);
}

enum sl_status session_open_loaders(struct session *session) {
  enum sl_status status = open_loader(session, session->train_set, true, &session->train_loader);
  return status == SL_OK ? open_loader(session, session->test_set, false, &session->test_loader)
                         : status;
}

/* The usual loss of each target: a part of the same weight. */
static void usual_parts(const struct sl_dataset_info *info, struct session *session) {
  session->loss = (struct sl_loss){.parts = session->parts, .part_count = info->target_count};
  for (int i = 0; i < info->target_count; i++) {
    session->parts[i] = (struct sl_loss_part){
        .loss.kind = info->targets[i].classes ? SL_LOSS_CROSS_ENTROPY : SL_LOSS_MSE};
    snprintf(session->parts[i].output, sizeof session->parts[i].output, "%s",
             info->targets[i].name);
  }
}

/* Data with several targets, or a loss of parts: one belongs to the other. */
static int choose_parts(struct session *session) {
  const struct cli *cli = &session->cli;
  const struct sl_dataset_info *info = sl_dataset_info(session->train_set);
  if (!cli->loss) usual_parts(info, session);
  if (!info->target_count)
    return session_fail(session, EXIT_USAGE,
                        "--loss %s: has parts, but %s has one target; name several by --target",
                        cli->loss, info->name);
  if (!session->loss.part_count)
    return session_fail(session, EXIT_USAGE,
                        "--loss %s: %s has %d targets; give each a loss, such as %s=%s", cli->loss,
                        info->name, info->target_count, info->targets[0].name, cli->loss);
  if (cli->task)
    return session_fail(session, EXIT_USAGE, "--task %s: %s has several targets; leave it out",
                        cli->task, info->name);
  return EXIT_DONE;
}

/* The loss of --loss, or the usual one for such data. */
static int choose_loss(struct session *session) {
  const struct cli *cli = &session->cli;
  const struct sl_dataset_info *info = sl_dataset_info(session->train_set);
  bool has_targets = info->target.ndim > 0;
  session->loss = (struct sl_loss){.kind = has_targets ? SL_LOSS_MSE : SL_LOSS_CROSS_ENTROPY};
  if (cli->loss && sl_loss_parse_parts(cli->loss, session->parts, &session->loss) != SL_OK)
    return session_fail_library(session, SL_BAD_ARGUMENT);
  if (session->loss.part_count || info->target_count) return choose_parts(session);
  if (sl_loss_takes_labels(&session->loss) == has_targets)
    return session_fail(session, EXIT_USAGE, "--loss %s: %s has %s; use %s", cli->loss, info->name,
                        has_targets ? "targets" : "class labels",
                        has_targets ? "mse or another loss of targets" : "cross-entropy");
  if (cli->task && !strcmp(cli->task, "regression") && !has_targets)
    return session_fail(session, EXIT_USAGE, "--task %s: %s has class labels", cli->task,
                        info->name);
  if (cli->task && strcmp(cli->task, "regression") != 0 && has_targets &&
      session->loss.kind != SL_LOSS_BCE)
    return session_fail(session, EXIT_USAGE, "--task %s: %s has targets", cli->task, info->name);
  return EXIT_DONE;
}

static int check_crop(struct session *session) {
  const struct cli *cli = &session->cli;
  const struct sl_dataset_info *info = sl_dataset_info(session->train_set);
  const int64_t *dim = info->sample.dim;
  char have[96];
  if (!cli->crop_h || (info->sample.ndim == 3 && cli->crop_h <= dim[1] && cli->crop_w <= dim[2]))
    return EXIT_DONE;
  return session_fail(session, EXIT_USAGE,
                      "--crop %lldx%lld: %s has samples %s; windows are at most as large as "
                      "pictures [C, H, W]",
                      (long long)cli->crop_h, (long long)cli->crop_w, info->name,
                      sl_shape_text(&info->sample, have, sizeof have));
}

/* Options that do not suit the kind of data or the program's schedule are refused, not ignored. */
int session_check_data(struct session *session) {
  const struct cli *cli = &session->cli;
  const struct program *program = session->program;
  if (program->half_life && *program->half_life && strncmp(cli->lr_schedule, "constant", 8) != 0)
    return session_fail(session, EXIT_USAGE,
                        "--half-life and --lr-schedule %s: give one of the two", cli->lr_schedule);
  int code = check_crop(session);
  if (code == EXIT_DONE) code = choose_loss(session);
  return code == EXIT_DONE ? class_weights_open(session) : code;
}

/* How long: --steps, --epochs, the shorter of both, or the program's default. */
void session_plan_steps(struct session *session) {
  const struct cli *cli = &session->cli;
  int64_t epochs = cli->epochs ? cli->epochs : cli->steps ? INT64_MAX : cli->usual_epochs;
  session->epoch_steps = sl_loader_length(session->train_loader);
  session->steps =
      epochs > INT64_MAX / session->epoch_steps ? INT64_MAX : epochs * session->epoch_steps;
  if (cli->steps && cli->steps < session->steps) session->steps = cli->steps;
  session->epochs = (session->steps + session->epoch_steps - 1) / session->epoch_steps;
}
