#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tools/train/describe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "tools/train/log.h"
#include "tools/train/ranks.h"

/* ---- options ---- */

/* JSON's whole numbers end at 2^63 - 1. */
static json_t *seed_value(uint64_t seed) {
  char text[32];
  if (seed <= INT64_MAX) return json_integer((json_int_t)seed);
  snprintf(text, sizeof text, "%llu", (unsigned long long)seed);
  return json_string(text);
}

static json_t *training_options(const struct description *run) {
  const struct cli *cli = run->cli;
  const struct sl_optimizer *optimizer = &cli->optimizer;
  return json_pack("{s:o, s:I, s:b, s:b, s:I, s:I, s:o, s:s, s:s, s:f, s:f, s:f, s:s, s:f}", "data",
                   log_text(cli->data), "batch", (json_int_t)cli->batch, "shuffle", cli->shuffle,
                   "augment", cli->augment, "epochs", (json_int_t)run->epochs, "steps",
                   (json_int_t)run->steps, "seed", seed_value(cli->seed), "init",
                   sl_init_name(cli->init), "optimizer", cli->optimizer_name, "lr",
                   log_number(optimizer->lr), "momentum", log_number(optimizer->momentum),
                   "weight-decay", log_number(optimizer->weight_decay), "lr-schedule",
                   cli->lr_schedule, "clip", log_number(optimizer->clip));
}

static int stages_of(const struct description *run) {
  struct sl_layer_place place;
  int last = sl_model_layer_count(run->model) - 1;
  if (sl_trainer_place(run->trainer, last, &place) != SL_OK) return 1;
  free(place.devices);
  free(place.owners);
  return place.stage + 1;
}

static json_t *device_options(const struct description *run) {
  const struct cli *cli = run->cli;
  const char *split = run->split ? run->split : cli->split ? cli->split : "even";
  return json_pack("{s:o, s:i, s:i, s:s, s:i, s:o, s:s, s:s, s:b, s:o, s:o, s:f}", "devices",
                   log_text(cli->devices), "replicas", sl_trainer_replicas(run->trainer),
                   "microbatches", cli->microbatches ? cli->microbatches : 1, "split", split,
                   "stages", stages_of(run), "placement", log_text(sl_placement(run->model)),
                   "kvstore", sl_kvstore_name(cli->kvstore), "math", sl_math_name(cli->math),
                   "tune", cli->tune, "memory-limit", log_text(cli->memory_limit), "swap",
                   log_text(cli->swap), "stall-timeout", cli->stall_timeout);
}

/* Without other ranks they say nothing. */
static json_t *rank_options(const struct cli *cli) {
  if (!ranks_wanted(cli)) return json_object();
  return json_pack("{s:i, s:I, s:o, s:i, s:s, s:f}", "servers", cli->servers, "bigarray-bound",
                   (json_int_t)(cli->bigarray_bound ? cli->bigarray_bound : 1000000), "compress",
                   log_text(cli->compress), "max-staleness", cli->max_staleness, "exchange",
                   sl_exchange_name(cli->exchange), "timeout", cli->timeout);
}

static json_t *checkpoint_interval(const struct cli *cli) {
  char text[32];
  if (!(cli->checkpoint_minutes > 0)) return json_integer(cli->checkpoint_every);
  snprintf(text, sizeof text, "%gmin", cli->checkpoint_minutes);
  return json_string(text);
}

static json_t *file_options(const struct cli *cli) {
  json_t *options =
      json_pack("{s:o, s:o, s:o, s:o}", "load", log_text(cli->load), "save", log_text(cli->save),
                "log", log_text(cli->log), "trace", log_text(cli->trace));
  if (!options || !cli->checkpoint) return options;
  json_object_set_new(options, "checkpoint", log_text(cli->checkpoint));
  json_object_set_new(options, "checkpoint-every", checkpoint_interval(cli));
  json_object_set_new(options, "keep", json_integer(cli->keep));
  json_object_set_new(options, "resume", json_boolean(cli->resume));
  return options;
}

static json_t *own_options(const struct cli *cli) {
  const struct argp_option *option = cli->own;
  json_t *options = json_object();
  for (int i = 0; options && option && i < CLI_MOST_OWN && (option[i].name || option[i].doc); i++)
    if (option[i].name) json_object_set_new(options, option[i].name, log_text(cli->own_text[i]));
  return options;
}

/* Takes more; NULL stays NULL. */
static json_t *joined(json_t *all, json_t *more) {
  if (all && (!more || json_object_update(all, more) != 0)) {
    json_decref(all);
    all = NULL;
  }
  json_decref(more);
  return all;
}

json_t *describe_options(const struct description *run) {
  json_t *options = joined(own_options(run->cli), training_options(run));
  options = joined(options, device_options(run));
  options = joined(options, rank_options(run->cli));
  return joined(options, file_options(run->cli));
}

/* ---- the machine, the data, the model ---- */

static json_t *describe_devices(const struct sl_context *context) {
  struct sl_worker_info info;
  json_t *devices = json_array();
  for (int w = 0; devices && w < sl_worker_count(context); w++)
    if (sl_worker(context, w, &info) == SL_OK)
      json_array_append_new(devices, json_pack("{s:s, s:o, s:b}", "name", info.name, "description",
                                               log_text(info.description), "listed", info.listed));
  return devices;
}

/* The processor's name, where Linux tells it. */
static json_t *describe_processor(void) {
  char line[256], *name = NULL;
  FILE *file = fopen("/proc/cpuinfo", "re");
  while (file && !name && fgets(line, sizeof line, file))
    if (strncmp(line, "model name", 10) == 0) name = strchr(line, ':');
  if (file) fclose(file);
  if (!name) return json_null();
  name += strspn(name, ": \t");
  name[strcspn(name, "\n")] = '\0';
  return log_text(name);
}

static json_t *describe_data(const struct description *run) {
  const struct sl_dataset_info *train = sl_dataset_info(run->train_set);
  return json_pack("{s:o, s:I, s:I, s:i, s:b}", "name", log_text(train->name), "train_samples",
                   (json_int_t)train->count, "test_samples",
                   (json_int_t)sl_dataset_info(run->test_set)->count, "classes", train->classes,
                   "tokens", train->tokens);
}

/* "20x24x24" */
static const char *shape_text(const struct sl_shape *shape, char *text, size_t size) {
  size_t used = 0;
  text[0] = '\0';
  for (int d = 0; d < shape->ndim && used < size; d++)
    used += (size_t)snprintf(text + used, size - used, "%s%lld", d ? "x" : "",
                             (long long)shape->dim[d]);
  return text;
}

static json_t *describe_layer(const struct description *run, int number) {
  struct sl_layer_info layer;
  struct sl_layer_place place;
  char shape[128];
  if (sl_model_layer(run->model, number, &layer) != SL_OK ||
      sl_trainer_place(run->trainer, number, &place) != SL_OK)
    return NULL;
  json_t *line =
      json_pack("{s:o, s:s, s:s, s:I, s:i, s:o, s:o}", "name", log_text(layer.name), "kind",
                layer.kind, "output", shape_text(&layer.output, shape, sizeof shape), "parameters",
                (json_int_t)layer.parameters, "stage", place.stage, "devices",
                log_text(place.devices), "owner", log_text(*place.owners ? place.owners : NULL));
  free(place.devices);
  free(place.owners);
  return line;
}

static json_t *describe_model(const struct description *run) {
  json_t *layers = json_array();
  for (int i = 0; layers && i < sl_model_layer_count(run->model); i++)
    if (json_array_append_new(layers, describe_layer(run, i)) != 0) {
      json_decref(layers);
      return NULL;
    }
  return json_pack("{s:I, s:o}", "parameters", (json_int_t)sl_model_parameters(run->model),
                   "layers", layers);
}

json_t *describe_run(const struct description *run) {
  char text[64];
  struct tm utc;
  struct utsname system;
  time_t now = time(NULL);
  if (!gmtime_r(&now, &utc) || !strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc))
    text[0] = '\0';
  if (uname(&system) != 0) system.nodename[0] = '\0';
  json_t *line = json_pack("{s:s, s:i, s:s, s:o, s:s, s:o, s:o, s:I, s:i, s:i, s:I}", "format",
                           LOG_FORMAT, "version", LOG_VERSION, "producer", argp_program_version,
                           "program", log_text(run->program), "time", text, "host",
                           log_text(system.nodename), "processor", describe_processor(), "cores",
                           (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "rank", sl_rank(run->context),
                           "ranks", sl_rank_count(run->context), "from", (json_int_t)run->from);
  json_t *rest = json_pack("{s:o, s:o, s:s, s:s, s:o, s:o}", "options", describe_options(run),
                           "devices", describe_devices(run->context), "scheduler",
                           sl_scheduler(run->context), "starpu", sl_starpu_version(run->context),
                           "data", describe_data(run), "model", describe_model(run));
  return joined(line, rest);
}
