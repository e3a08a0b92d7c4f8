#include "tools/train/options.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"

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

char *options_text(const struct description *run) {
  struct cli settings = describe_settings(run);
  settings.epochs = run->cli->epochs; /* as given: 0 is not */
  settings.steps = run->cli->steps;
  json_t *o = describe_options(&settings, OPTION_LOGGED | OPTION_NOTED);
  sl__json_set(&o, "devices", devices_json(run->context));
  sl__json_set(&o, "workers", json_integer(sl_worker_count(run->context)));
  sl__json_set(&o, "ranks", json_integer(sl_rank_count(run->context)));
  char *text = sl__json_text(o, JSON_COMPACT | JSON_REAL_PRECISION(7));
  json_decref(o);
  return text;
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

char *options_changes(const char *before, const char *now) {
  char *changes = NULL;
  size_t size;
  const char *key;
  json_t *value;
  json_t *old = before ? sl__json_load(before, strlen(before), 0, NULL) : NULL;
  json_t *new = sl__json_load(now, strlen(now), 0, NULL);
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
