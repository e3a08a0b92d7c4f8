#include "tools/architecture/architecture.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"

/* Sets the init of all layers that have none. A layer without weights does not mind. Returns false
 * without memory. */
static bool set_init(json_t *object, enum sl_init init) {
  json_t *layers = json_object_get(object, "layers");
  for (size_t i = 0; i < json_array_size(layers); i++) {
    json_t *layer = json_array_get(layers, i);
    if (json_is_object(layer) && !json_object_get(layer, "init"))
      if (json_object_set_new(layer, "init", json_string(sl_init_name(init))) != 0) return false;
  }
  return true;
}

/* The description at path if it is JSON and names no weights; else NULL: the library says what is
 * wrong with it, or reads it as it is. */
static json_t *read_description(const char *path) {
  json_error_t error;
  json_t *object = sl__json_load_file(path, JSON_REJECT_DUPLICATES, &error);
  if (json_is_object(object) && !json_object_get(object, "weights")) return object;
  json_decref(object);
  return NULL;
}

struct architecture_tokens architecture_read_tokens(const char *path) {
  struct architecture_tokens tokens = {0};
  json_error_t error;
  json_t *object = sl__json_load_file(path, 0, &error), *input = json_object_get(object, "input");
  json_t *layer = json_array_get(json_object_get(object, "layers"), 0);
  const char *kind = json_string_value(json_object_get(layer, "kind"));
  if (kind && !strcmp(kind, "embedding") && json_array_size(input) == 1) {
    tokens.steps = json_integer_value(json_array_get(input, 0));
    tokens.words = json_integer_value(json_object_get(layer, "vocabulary"));
    tokens.trained = json_object_get(object, "weights");
  }
  json_decref(object);
  return tokens;
}

enum sl_status architecture_open(struct sl_context *context, const char *path, enum sl_init init,
                                 struct sl_model **model) {
  json_t *object = read_description(path);
  if (!object) return sl_model_open(context, path, model);
  bool set = init == SL_INIT_DEFAULT || set_init(object, init);
  char *text = set ? sl__json_text(object, JSON_REAL_PRECISION(9)) : NULL;
  json_decref(object);
  if (!text) return SL_NO_MEMORY;
  enum sl_status status = sl_model_parse(context, path, text, strlen(text), model);
  free(text);
  return status;
}
