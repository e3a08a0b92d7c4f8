#include "tools/train/describe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "core/base/json.h"
#include "parallel/fit/log.h"
#include "tools/train/ranks.h"

/* ---- options ---- */

static int stages_of(const struct description *run) {
  struct sl_layer_place place;
  int last = sl_model_layer_count(run->model) - 1;
  if (sl_trainer_place(run->trainer, last, &place) != SL_OK) return 1;
  free(place.devices);
  free(place.owners);
  return place.stage + 1;
}

struct cli describe_settings(const struct description *run) {
  const int64_t usual_bound = 1000000;
  struct cli cli = *run->cli;
  cli.epochs = run->epochs;
  cli.steps = run->steps;
  cli.replicas = sl_trainer_replicas(run->trainer);
  cli.microbatches = cli.microbatches ? cli.microbatches : 1;
  cli.split = run->split ? run->split : cli.split ? cli.split : "even";
  cli.stages = stages_of(run);
  cli.placement = sl_placement(run->model);
  cli.bigarray_bound = cli.bigarray_bound ? cli.bigarray_bound : usual_bound;
  return cli;
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

json_t *describe_options(const struct cli *settings, unsigned flags) {
  const struct option_set shared = cli_set(settings);
  return joined(option_json(&settings->own, flags), option_json(&shared, flags));
}

/* ---- the machine, the data, the model ---- */

static json_t *describe_devices(const struct sl_context *context) {
  struct sl_worker_info info;
  json_t *devices = json_array();
  for (int w = 0; devices && w < sl_worker_count(context); w++)
    if (sl_worker(context, w, &info) == SL_OK)
      sl__json_append(&devices,
                      json_pack("{s:s, s:o, s:b}", "name", info.name, "description",
                                sl__json_string(info.description), "listed", info.listed));
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
  return sl__json_string(name);
}

static json_t *describe_data(const struct description *run) {
  const struct sl_dataset_info *train = sl_dataset_info(run->train_set);
  return json_pack("{s:o, s:I, s:I, s:i, s:b, s:s}", "name", sl__json_string(train->name),
                   "train_samples", (json_int_t)train->count, "test_samples",
                   (json_int_t)sl_dataset_info(run->test_set)->count, "classes", train->classes,
                   "tokens", train->tokens, "unit", run->unit);
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
  json_t *line = json_pack(
      "{s:o, s:s, s:s, s:I, s:i, s:o, s:o}", "name", sl__json_string(layer.name), "kind",
      layer.kind, "output", shape_text(&layer.output, shape, sizeof shape), "parameters",
      (json_int_t)layer.parameters, "stage", place.stage, "devices", sl__json_string(place.devices),
      "owner", sl__json_string(*place.owners ? place.owners : NULL));
  free(place.devices);
  free(place.owners);
  return line;
}

static json_t *describe_model(const struct description *run) {
  json_t *layers = json_array();
  for (int i = 0; layers && i < sl_model_layer_count(run->model); i++)
    sl__json_append(&layers, describe_layer(run, i));
  return json_pack("{s:I, s:o}", "parameters", (json_int_t)sl_model_parameters(run->model),
                   "layers", layers);
}

json_t *describe_run(const struct description *run) {
  const struct cli settings = describe_settings(run);
  char text[64];
  struct tm utc;
  struct utsname system;
  time_t now = time(NULL);
  if (!gmtime_r(&now, &utc) || !strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc))
    text[0] = '\0';
  if (uname(&system) != 0) system.nodename[0] = '\0';
  json_t *line = json_pack(
      "{s:s, s:i, s:s, s:o, s:s, s:o, s:o, s:I, s:i, s:i, s:I}", "format", LOG_FORMAT, "version",
      LOG_VERSION, "producer", program_version(), "program", sl__json_string(run->program), "time",
      text, "host", sl__json_string(system.nodename), "processor", describe_processor(), "cores",
      (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "rank", sl_rank(run->context), "ranks",
      sl_rank_count(run->context), "from", (json_int_t)run->from);
  json_t *rest = json_pack(
      "{s:o, s:o, s:s, s:s, s:o, s:o}", "options", describe_options(&settings, OPTION_LOGGED),
      "devices", describe_devices(run->context), "scheduler", sl_scheduler(run->context), "starpu",
      sl_starpu_version(run->context), "data", describe_data(run), "model", describe_model(run));
  return joined(line, rest);
}
