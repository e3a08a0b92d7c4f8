#include "tools/train/options.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/json.h"
#include "tools/common/memory_text.h"

static int stages_of(const struct session *session) {
  struct sl_layer_place place;
  int last = sl_model_layer_count(session->model) - 1;
  if (sl_trainer_place(session->trainer, last, &place) != SL_OK) return 1;
  free(place.devices);
  free(place.owners);
  return place.stage + 1;
}

/* What holds where an option was not given, or was decided by measurements. */
static struct cli settings_of(const struct session *session) {
  const int64_t usual_bound = 1000000;
  struct cli cli = session->cli;
  cli.replicas = sl_trainer_replicas(session->trainer);
  cli.microbatches = cli.microbatches ? cli.microbatches : 1;
  cli.split = session->split ? session->split : cli.split ? cli.split : "even";
  cli.stages = stages_of(session);
  cli.placement = sl_placement(session->model);
  cli.bigarray_bound = cli.bigarray_bound ? cli.bigarray_bound : usual_bound;
  return cli;
}

/* The options that have all of the flags, by their names without the dashes; null: not given, or
 * the program's own default. NULL: no memory. */
static json_t *options_json(const struct cli *settings, unsigned flags) {
  const struct option_set shared = cli_set(settings);
  return sl__json_join(option_json(&settings->own, flags), option_json(&shared, flags));
}

char *options_logged(const struct session *session) {
  struct cli settings = settings_of(session);
  settings.epochs = session->epochs;
  settings.steps = session->steps;
  json_t *o = options_json(&settings, OPTION_LOGGED);
  char *text = sl__json_text(o, JSON_COMPACT | JSON_REAL_PRECISION(9));
  json_decref(o);
  return text;
}

/* "cpu:0,cpu:1", or "any" */
static json_t *devices_json(const struct sl_context *context) {
  struct memory_text stream;
  FILE *out = memory_text_begin(&stream);
  for (int i = 0; out && i < sl_device_count(context); i++)
    fprintf(out, "%s%s", i ? "," : "", sl_device_name(context, i));
  char *list = memory_text_end(&stream, NULL);
  json_t *text = json_string(list);
  free(list);
  return text;
}

/* Epochs and steps as given: 0 is not. */
char *options_noted(const struct session *session) {
  struct cli settings = settings_of(session);
  json_t *o = options_json(&settings, OPTION_LOGGED | OPTION_NOTED);
  sl__json_set(&o, "devices", devices_json(session->context));
  sl__json_set(&o, "workers", json_integer(sl_worker_count(session->context)));
  sl__json_set(&o, "ranks", json_integer(sl_rank_count(session->context)));
  char *text = sl__json_text(o, JSON_COMPACT | JSON_REAL_PRECISION(7));
  json_decref(o);
  return text;
}
