#include "parallel/fit/describe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "core/base/json.h"
#include "core/base/numbers.h"
#include "core/base/text.h"

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "(unconfigured)"
#endif

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

const char *sl__fit_unit(const struct sl__fit *fit) {
  const struct sl_dataset_info *info = sl_dataset_info(sl_loader_dataset(fit->train));
  if (fit->options.unit) return fit->options.unit;
  return info->tokens ? "tokens" : info->sample.ndim == 3 ? "images" : "samples";
}

static json_t *describe_data(const struct sl__fit *fit) {
  const struct sl_loader *validation = fit->options.validation;
  const struct sl_dataset_info *train = sl_dataset_info(sl_loader_dataset(fit->train));
  int64_t tests = validation ? sl_dataset_info(sl_loader_dataset(validation))->count : 0;
  return json_pack("{s:o, s:I, s:I, s:i, s:b, s:o}", "name", sl__json_string(train->name),
                   "train_samples", (json_int_t)train->count, "test_samples", (json_int_t)tests,
                   "classes", train->classes, "tokens", train->tokens, "unit",
                   sl__json_string(sl__fit_unit(fit)));
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

static json_t *describe_layer(const struct sl__fit *fit, int number) {
  struct sl_layer_info layer;
  struct sl_layer_place place;
  char shape[128];
  if (sl_model_layer(fit->trainer->model, number, &layer) != SL_OK ||
      sl_trainer_place(fit->trainer, number, &place) != SL_OK)
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

static json_t *describe_model(const struct sl__fit *fit) {
  const struct sl_model *model = fit->trainer->model;
  json_t *layers = json_array();
  for (int i = 0; layers && i < sl_model_layer_count(model); i++)
    sl__json_append(&layers, describe_layer(fit, i));
  return json_pack("{s:I, s:o}", "parameters", (json_int_t)sl_model_parameters(model), "layers",
                   layers);
}

/* ---- the options ---- */

static json_t *load_object(const char *text) { return sl__json_load(text, strlen(text), 0, NULL); }

enum sl_status sl__fit_check_object(const char *member, const char *text) {
  json_error_t error = {.text = ""};
  json_t *object = text ? sl__json_load(text, strlen(text), 0, &error) : NULL;
  bool good = !text || json_is_object(object), is_other = object != NULL;
  bool no_memory = !object && json_error_code(&error) == json_error_out_of_memory;
  json_decref(object);
  if (good) return SL_OK;
  if (no_memory) return sl__fail(SL_NO_MEMORY, "no memory for the %s", member);
  return sl__fail(SL_BAD_ARGUMENT, "%s: must be the text of one JSON object: %s", member,
                  is_other ? "it is another value; write {\"name\": value}" : error.text);
}

/* Without a text of the program's: those of this call. */
static json_t *own_options(const struct sl__fit *fit) {
  return json_pack("{s:I, s:I, s:I, s:I, s:i}", "epochs", (json_int_t)fit->epochs, "steps",
                   (json_int_t)fit->steps, "batch", (json_int_t)sl_loader_batch(fit->train),
                   "patience", (json_int_t)fit->options.patience, "replicas",
                   sl_trainer_replicas(fit->trainer));
}

static json_t *options_of(const struct sl__fit *fit, const char *text) {
  return text ? load_object(text) : own_options(fit);
}

static const char *program_name(const struct sl__fit *fit) {
  return fit->options.program ? fit->options.program : program_invocation_short_name;
}

json_t *sl__fit_describe(const struct sl__fit *fit) {
  const struct sl_context *context = fit->context;
  char text[64];
  struct tm utc;
  struct utsname system;
  time_t now = time(NULL);
  if (!gmtime_r(&now, &utc) || !strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc))
    text[0] = '\0';
  if (uname(&system) != 0) system.nodename[0] = '\0';
  json_t *line = json_pack(
      "{s:s, s:i, s:s, s:o, s:s, s:o, s:i, s:o, s:I, s:i, s:i, s:I}", "format", SL__RUN_LOG_FORMAT,
      "version", SL__RUN_LOG_VERSION, "producer", "Starling " PACKAGE_VERSION, "program",
      sl__json_string(program_name(fit)), "time", text, "host", sl__json_string(system.nodename),
      "process", (int)getpid(), "processor", describe_processor(), "cores",
      (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "rank", sl_rank(context), "ranks",
      sl_rank_count(context), "from", (json_int_t)fit->begun.step);
  json_t *rest = json_pack(
      "{s:o, s:o, s:s, s:s, s:o, s:o}", "options", options_of(fit, fit->options.options), "devices",
      describe_devices(context), "scheduler", sl_scheduler(context), "starpu",
      sl_starpu_version(context), "data", describe_data(fit), "model", describe_model(fit));
  return sl__json_join(line, rest);
}

/* ---- what checkpoints note ---- */

/* A number in full, which JSON of 7 digits would not keep; null: not measured. */
static json_t *exact(double value) {
  char text[40];
  if (isnan(value)) return json_null();
  locale_t before = sl__locale_begin();
  snprintf(text, sizeof text, "%.17g", value);
  sl__locale_end(before);
  return json_string(text);
}

/* A program with decimal commas wrote them before 2026-11-30. false: not a number. */
static bool read_exact(const json_t *state, const char *key, double *value) {
  const char *text = json_string_value(json_object_get(state, key));
  char number[40], *end;
  *value = NAN;
  if (!text) return true;
  if (!*text || strlen(text) >= sizeof number) return false;
  char *comma = strchr(strcpy(number, text), ',');
  if (comma) *comma = '.';
  *value = sl__strtod(number, &end);
  return !*end;
}

/* Checkpoints from before 2026-11-27 have no "deciding", and metrics of all outputs alone. */
static bool read_best(const json_t *state, const char *metric, struct sl__best *best) {
  struct sl_fit_evaluation *e = &best->evaluation;
  *best = (struct sl__best){.since = json_integer_value(json_object_get(state, "since"))};
  e->epoch = json_integer_value(json_object_get(state, "epoch"));
  bool is_good = read_exact(state, "reference", &best->reference);
#define SL__FIT_METRIC(key, title, larger, share) is_good &= read_exact(state, #key, &e->key);
#include "parallel/fit/metrics.def"
#undef SL__FIT_METRIC
  if (json_object_get(state, "deciding"))
    is_good &= read_exact(state, "deciding", &e->deciding);
  else
    e->deciding = sl__fit_metric(e, metric);
  return is_good;
}

static json_t *describe_best(const struct sl__fit *fit) {
  const struct sl__best *best = &fit->best;
  const struct sl_fit_evaluation *e = &best->evaluation;
  json_t *all = json_pack("{s:s, s:o, s:I, s:o, s:I}", "metric", fit->options.metric, "deciding",
                          exact(e->deciding), "since", (json_int_t)best->since, "reference",
                          exact(best->reference), "epoch", (json_int_t)e->epoch);
#define SL__FIT_METRIC(key, title, larger, share) sl__json_set(&all, #key, exact(e->key));
#include "parallel/fit/metrics.def"
#undef SL__FIT_METRIC
  return all;
}

char *sl__fit_noted(const struct sl__fit *fit) {
  json_t *noted = options_of(fit, fit->options.noted);
  if (fit->best.evaluation.epoch || fit->best.since)
    sl__json_set(&noted, "fit", describe_best(fit));
  char *text = sl__json_text(noted, JSON_COMPACT | JSON_REAL_PRECISION(7));
  json_decref(noted);
  return text;
}

enum sl_status sl__fit_take_noted(struct sl__fit *fit, const char *before) {
  json_error_t error = {.text = ""};
  json_t *noted = before ? sl__json_load(before, strlen(before), 0, &error) : NULL;
  if (before && !noted && json_error_code(&error) == json_error_out_of_memory)
    return sl__fail(SL_NO_MEMORY, "no memory for what the checkpoint notes");
  const json_t *state = json_object_get(noted, "fit");
  const char *metric = json_string_value(json_object_get(state, "metric"));
  enum sl_status status = SL_OK;
  if (metric && strcmp(metric, fit->options.metric) == 0 && !read_best(state, metric, &fit->best))
    status = sl__fail(SL_BAD_FILE,
                      "%s: damaged: the best evaluation that it notes is no number; remove this "
                      "checkpoint, and the run goes on from the one before",
                      fit->saving.folder.newest);
  json_decref(noted);
  return status;
}

/* The value without quotes; "none" where there is none. */
static void print_value(FILE *out, const json_t *value) {
  if (json_is_null(value)) value = NULL;
  char *text = json_is_string(value) || !value
                   ? NULL
                   : sl__json_text(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(7));
  const char *shown = text ? text : json_string_value(value);
  fputs(shown ? shown : "none", out);
  free(text);
}

char *sl__fit_changes(const char *before, const char *now) {
  char *changes;
  struct sl__text text;
  const char *key;
  json_t *value;
  json_t *old = before ? load_object(before) : NULL;
  json_t *new = load_object(now);
  FILE *out = sl__text_begin(&text);
  json_object_foreach(new, key, value) {
    const json_t *was = json_object_get(old, key);
    if (!out || !old || json_equal(was, value) || !strcmp(key, "fit")) continue;
    fprintf(out, "%s%s ", ftell(out) > 0 ? ", " : "", key);
    print_value(out, was);
    fputs(" -> ", out);
    print_value(out, value);
  }
  sl__text_end(&text, "the changes of options", &changes);
  json_decref(old);
  json_decref(new);
  return changes;
}
