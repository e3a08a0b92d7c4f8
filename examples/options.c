#include "options.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *text_or_none(const char *text) { return json_string(text ? text : "none"); }

/* "cpu:0,cpu:1", or "any" */
static json_t *devices_json(const struct sl_context *context) {
  char *list = NULL;
  size_t size;
  FILE *out = open_memstream(&list, &size);
  if (!out) return NULL;
  for (int i = 0; i < sl_device_count(context); i++)
    fprintf(out, "%s%s", i ? "," : "", sl_device_name(context, i));
  fclose(out);
  json_t *text = json_string(list);
  free(list);
  return text;
}

/* Floats as they were written: 0.1, not 0.100000001. */
static json_t *real_json(float value) {
  char text[32];
  snprintf(text, sizeof text, "%.7g", (double)value);
  return json_real(strtod(text, NULL));
}

static void add_training(json_t *o, const struct cli *cli) {
  const struct sl_optimizer *optimizer = &cli->optimizer;
  json_object_set_new(o, "data", json_string(cli->data));
  json_object_set_new(o, "batch", json_integer(cli->batch));
  json_object_set_new(o, "shuffle", json_boolean(cli->shuffle));
  json_object_set_new(o, "augment", json_boolean(cli->augment));
  json_object_set_new(o, "epochs", json_integer(cli->epochs));
  json_object_set_new(o, "steps", json_integer(cli->steps));
  json_object_set_new(o, "seed", json_integer((json_int_t)cli->seed));
  json_object_set_new(o, "optimizer", json_string(cli->optimizer_name));
  json_object_set_new(o, "lr", real_json(optimizer->lr));
  json_object_set_new(o, "momentum", real_json(optimizer->momentum));
  json_object_set_new(o, "weight-decay", real_json(optimizer->weight_decay));
  json_object_set_new(o, "clip", real_json(optimizer->clip));
  json_object_set_new(o, "lr-schedule", json_string(cli->lr_schedule));
}

static void add_devices(json_t *o, const struct cli *cli, const struct sl_context *context,
                        const struct sl_trainer *trainer, const char *split) {
  json_object_set_new(o, "devices", devices_json(context));
  json_object_set_new(o, "workers", json_integer(sl_worker_count(context)));
  json_object_set_new(o, "ranks", json_integer(sl_rank_count(context)));
  json_object_set_new(o, "servers", json_integer(cli->servers));
  json_object_set_new(o, "replicas", json_integer(sl_trainer_replicas(trainer)));
  json_object_set_new(o, "microbatches", json_integer(cli->microbatches ? cli->microbatches : 1));
  json_object_set_new(o, "split", json_string(split ? split : "even"));
  json_object_set_new(o, "stages", json_integer(cli->stages ? cli->stages : 1));
  json_object_set_new(o, "placement",
                      text_or_none(cli->placement ? cli->placement : cli->placement_file));
  json_object_set_new(o, "kvstore", json_string(sl_kvstore_name(cli->kvstore)));
  json_object_set_new(o, "bigarray-bound", json_integer(cli->bigarray_bound));
  json_object_set_new(o, "compress", text_or_none(cli->compress));
  json_object_set_new(o, "max-staleness", json_integer(cli->max_staleness));
  json_object_set_new(o, "math", json_string(sl_math_name(cli->math)));
}

static void add_own(json_t *o, const struct cli *cli) {
  const struct argp_option *option = cli->own;
  for (int i = 0; option && i < CLI_MOST_OWN && (option[i].name || option[i].doc); i++)
    if (option[i].name)
      json_object_set_new(o, option[i].name,
                          json_string(cli->own_text[i] ? cli->own_text[i] : "default"));
}

char *options_text(const struct cli *cli, const struct sl_context *context,
                   const struct sl_trainer *trainer, const char *split) {
  json_t *o = json_object();
  if (!o) return NULL;
  add_training(o, cli);
  add_devices(o, cli, context, trainer, split);
  add_own(o, cli);
  char *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(7));
  json_decref(o);
  return text;
}

/* The value without quotes; "none" where there is none. */
static void print_value(FILE *out, const json_t *value) {
  char *text =
      json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(7));
  fputs(text ? text : value ? json_string_value(value) : "none", out);
  free(text);
}

char *options_changes(const char *before, const char *now) {
  char *changes = NULL;
  size_t size;
  const char *key;
  json_t *value;
  json_t *old = before ? json_loads(before, 0, NULL) : NULL, *new = json_loads(now, 0, NULL);
  FILE *out = open_memstream(&changes, &size);
  json_object_foreach(new, key, value) {
    const json_t *was = json_object_get(old, key);
    if (!out || !old || json_equal(was, value)) continue;
    fprintf(out, "%s%s ", ftell(out) > 0 ? ", " : "", key);
    print_value(out, was);
    fputs(" -> ", out);
    print_value(out, value);
  }
  if (out) fclose(out);
  json_decref(old);
  json_decref(new);
  return changes;
}
