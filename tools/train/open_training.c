/* The devices, the model and the trainer of a session. */
#include <stdlib.h>
#include <string.h>

#include "tools/common/abort_message.h"
#include "tools/train/failure.h"
#include "tools/train/open.h"
#include "tools/train/ranks.h"

enum sl_status session_open_context(struct session *session) {
  const struct cli *cli = &session->cli;
  struct sl_context_options options = {
      .devices = cli->devices,
      .seed = cli->seed,
      .tune = cli->tune,
      .distributed = ranks_wanted(cli),
      .exchange = cli->exchange,
      .trace = *session->trace.folder ? session->trace.folder : NULL,
      .memory_limit = cli->memory_limit,
      .swap = cli->swap,
      .stall_timeout = cli->stall_timeout,
      .log = failure_report_log,
      .log_user = &session->failure_report,
      .timeout = cli->timeout > 0 ? cli->timeout : -1,
      .net_interface = cli->net_interface,
      .net_ports = cli->net_ports};
  enum sl_status status = sl_open(&options, &session->context);
  sl_signals_catch(); /* after StarPU has installed its own handlers */
  if (status != SL_OK) return status;
  aborted_catch(session->name, sl_rank(session->context));
  failure_report_watch(&session->failure_report, session->context);
  session->cli.kvstore = sl_kvstore_choose(session->context, cli->kvstore);
  return status;
}

/* --load-part FILE[:MAP]; a file's name may have colons, if a MAP (which may be empty) follows. */
static enum sl_status load_part(struct session *session) {
  const char *text = session->cli.load_part, *colon = strrchr(text, ':');
  if (!colon) return sl_model_load_part(session->model, text, NULL, &session->loaded);
  const struct sl_load_part_options options = {.map = colon + 1};
  char *path = strndup(text, (size_t)(colon - text));
  if (!path) return SL_NO_MEMORY;
  enum sl_status status = sl_model_load_part(session->model, path, &options, &session->loaded);
  free(path);
  return status;
}

static enum sl_status load(struct session *session) {
  const struct program *program = session->program;
  if (program->load) return program->load(session->model, session->cli.load, program->cli.input);
  return sl_model_load(session->model, session->cli.load);
}

/* The rules of an option whose name the library does not know: a message begins with it. */
static enum sl_status set_rules(struct session *session, const char *option,
                                enum sl_status (*set)(struct sl_model *, const char *),
                                const char *rules) {
  enum sl_status status = set(session->model, rules);
  session->option = status == SL_OK ? NULL : option;
  return status;
}

/* Weights and settings of the layers. */
static enum sl_status set_layers(struct session *session) {
  const struct cli *cli = &session->cli;
  struct sl_model *model = session->model;
  enum sl_status status = SL_OK;
  if (cli->load) status = load(session);
  if (cli->load_part) status = load_part(session);
  if (status == SL_OK) status = sl_freeze(model, cli->freeze);
  if (status == SL_OK) status = set_rules(session, "lr-of", sl_group_rate, cli->lr_of);
  if (status == SL_OK) status = set_rules(session, "decay-of", sl_group_decay, cli->decay_of);
  if (status == SL_OK) status = sl_decay_weights_only(model, cli->decay_weights_only);
  return status;
}

/* The shape of the model's inputs. */
static struct sl_shape seen_sample(const struct session *session) {
  const struct cli *cli = &session->cli;
  const struct sl_shape *sample = &sl_dataset_info(session->train_set)->sample;
  return cli->crop_h ? SL_SHAPE(sample->dim[0], cli->crop_h, cli->crop_w) : *sample;
}

enum sl_status session_open_model(struct session *session) {
  const struct program *program = session->program;
  const struct sl_dataset_info *info = sl_dataset_info(session->train_set);
  const struct sl_shape sample = seen_sample(session);
  enum sl_status status = session->context ? SL_OK : session_open_context(session);
  if (status != SL_OK) return status;
  if (program->open_model)
    return program->open_model(session->context, session->cli.init, program->cli.input,
                               &session->model);
  status = info->input_count ? sl_model_new_fields(session->context, info->inputs,
                                                   info->input_count, &session->model)
                             : sl_model_new(session->context, &sample, &session->model);
  if (status != SL_OK) return status;
  return program->build(session->model, info, session->cli.init, program->cli.input);
}

/* Only a model that the program has not made for these data can fail to fit them. */
int session_check_model(struct session *session) {
  const struct sl_dataset_info *info = sl_dataset_info(session->train_set);
  const struct sl_shape sample = seen_sample(session), *input = sl_model_input(session->model),
                        *output = sl_model_output(session->model);
  char model[96], data[96];
  if (!sl_shape_equal(input, &sample))
    return session_fail(session, EXIT_FAILED, "the model takes samples %s, but %s has samples %s",
                        sl_shape_text(input, model, sizeof model), info->name,
                        sl_shape_text(&sample, data, sizeof data));
  if (info->target_count) return EXIT_DONE; /* the loss's parts are checked one by one */
  sl_shape_text(output, model, sizeof model);
  if (info->target.ndim && !sl_shape_equal(output, &info->target))
    return session_fail(session, EXIT_FAILED, "the model's output is %s, but %s has targets %s",
                        model, info->name, sl_shape_text(&info->target, data, sizeof data));
  if (!info->target.ndim && output->dim[output->ndim - 1] != info->classes)
    return session_fail(session, EXIT_FAILED, "the model's output is %s, but %s has %d classes",
                        model, info->name, info->classes);
  return EXIT_DONE;
}

enum sl_status session_set_model(struct session *session) {
  enum sl_status status = sl_model_build(session->model);
  if (status == SL_OK)
    status = sl_model_note_data(session->model, session->train_set, &session->loss);
  if (status == SL_OK && session->cli.placement && !cli_is_automatic(&session->cli))
    status = sl_place(session->model, session->cli.placement);
  if (status == SL_OK && session->cli.placement_file)
    status = sl_place_file(session->model, session->cli.placement_file);
  return status == SL_OK ? set_layers(session) : status;
}

/* --placement auto and --split auto: decided by measurements. */
static enum sl_status measure(struct session *session, struct sl_trainer_options *options) {
  const struct cli *cli = &session->cli;
  enum sl_status status = SL_OK;
  if (cli_is_automatic(cli)) {
    status = sl_place_auto(session->model, &cli->optimizer, options, cli->batch,
                           &session->predicted_ms, &session->automatic);
    options->stages = 0; /* the placement has its own, at most that number */
  }
  if (status == SL_OK && cli_splits_itself(cli))
    status = sl_split_auto(session->model, &cli->optimizer, options, cli->batch, &session->split,
                           &session->split_table);
  return status;
}

/* A text's batches follow each other; only a recurrent layer has a state to go on with. */
static bool has_recurrent_layer(const struct sl_model *model) {
  struct sl_layer_info info;
  bool found = false;
  for (int i = 0; i < sl_model_layer_count(model); i++)
    found |= sl_model_layer(model, i, &info) == SL_OK &&
             (!strcmp(info.kind, "lstm") || !strcmp(info.kind, "gru"));
  return found;
}

/* Without --replicas there is one a worker, as the library chooses, but not more than a batch has
 * samples for. 0: the library's choice, and that of what says where layers run. */
static int choose_replicas(const struct session *session) {
  const struct cli *cli = &session->cli;
  int devices = sl_device_count(session->context), workers = 0;
  int64_t slices = cli->batch / (cli->microbatches ? cli->microbatches : 1);
  if (!slices) slices = 1;
  if (cli->replicas || cli->placement || cli->placement_file || cli->stages || cli->split)
    return cli->replicas;
  for (int w = 0; w < sl_worker_count(session->context); w++) {
    struct sl_worker_info info;
    workers += sl_worker(session->context, w, &info) == SL_OK && info.listed;
  }
  return slices < (devices > 1 ? devices : workers) ? (int)slices : 0;
}

enum sl_status session_open_trainer(struct session *session) {
  const struct cli *cli = &session->cli;
  struct sl_schedule schedule;
  struct sl_trainer_options options = {
      .replicas = choose_replicas(session),
      .microbatches = cli->microbatches,
      .recompute = cli->recompute,
      .kvstore = cli->kvstore,
      .math = cli->math,
      .eager = cli->eager,
      .log_gradients = cli->log_gradients,
      .loss = session->loss,
      .stages = cli->stages,
      .servers = cli->servers,
      .bigarray_bound = cli->bigarray_bound,
      .compress = cli->compress,
      .max_staleness = cli->max_staleness,
      .split = cli_splits_itself(cli) ? NULL : cli->split,
      .carry_state = session_is_one_text(session, sl_dataset_info(session->train_set)) &&
                     has_recurrent_layer(session->model)};
  enum sl_status status = sl_schedule_parse(cli->lr_schedule, session->steps, &schedule);
  if (status != SL_OK) return status;
  if (session->program->chunk) options.chunk = *session->program->chunk;
  if (session->program->half_life && *session->program->half_life)
    schedule = (struct sl_schedule){.kind = SL_STEP,
                                    .warmup = schedule.warmup,
                                    .period = *session->program->half_life * session->epoch_steps,
                                    .gamma = 0.5f};
  status = measure(session, &options);
  /* each rank measures its own devices, and one may fail alone */
  if (ranks_wanted(cli)) status = sl_share(session->context, status, sl_error());
  if (status != SL_OK) return status;
  return sl_trainer_new(session->model, &cli->optimizer, &schedule, &options, &session->trainer);
}
