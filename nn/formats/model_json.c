/* A model's architecture as JSON text, and back (doc/models.md describes the text). The fields of a
 * kind describe its options: this file treats all kinds alike. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/json.h"
#include "nn/formats/model_json.h"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "(unconfigured)"
#endif

#define FORMAT_NAME "starling model"
#define FORMAT_VERSION 2 /* 1 without named inputs and outputs */
#define JSON_SUFFIX ".json"
#define WEIGHTS_SUFFIX ".safetensors"
#define MOST_BYTES (64u << 20)
enum { MOST_LAYERS = 100000 };

#define COUNT(table) ((int)(sizeof(table) / sizeof *(table)))

/* ---- writing ---- */

static json_t *list(const struct sl_shape *shape) {
  json_t *numbers = json_array();
  for (int i = 0; i < shape->ndim; i++)
    sl__json_append(&numbers, json_integer((json_int_t)shape->dim[i]));
  return numbers;
}

static json_t *real(float value) { return json_real(sl__short_real(value)); }

/* Defaults, which are 0, are left out. */
static void add_field(json_t **object, const struct sl_field *field, const void *options) {
  const void *at = (const char *)options + field->offset;
  enum sl_activation activation;
  int64_t whole = 0;
  switch (field->type) {
    case SL_FIELD_BOOL:
      if (*(const bool *)at) sl__json_set(object, field->name, json_true());
      return;
    case SL_FIELD_FLOAT:
      if (*(const float *)at != 0) sl__json_set(object, field->name, real(*(const float *)at));
      return;
    case SL_FIELD_ACTIVATION:
      activation = *(const enum sl_activation *)at;
      if (activation)
        sl__json_set(object, field->name, json_string(sl_activation_name(activation)));
      return;
    case SL_FIELD_SHAPE:
      if (((const struct sl_shape *)at)->ndim) sl__json_set(object, field->name, list(at));
      return;
    case SL_FIELD_INT: whole = *(const int *)at; break;
    case SL_FIELD_INT64: whole = *(const int64_t *)at; break;
  }
  if (whole) sl__json_set(object, field->name, json_integer((json_int_t)whole));
}

static json_t *input_names(const struct sl_model *model, const struct sl__layer *layer) {
  json_t *names = json_array();
  for (int i = 0; i < layer->input_count; i++) {
    int from = layer->input[i];
    sl__json_append(&names, json_string(from == SL__INPUT ? "input" : model->layers[from].name));
  }
  return names;
}

static json_t *layer_object(const struct sl_model *model, const struct sl__layer *layer) {
  json_t *object = json_pack("{s:s, s:s, s:o}", "name", layer->name, "kind", layer->kind->name,
                             "inputs", input_names(model, layer));
  if (layer->init) sl__json_set(&object, "init", json_string(sl_init_name(layer->init)));
  if (layer->init == SL_INIT_NORMAL)
    sl__json_set(&object, "deviation", json_real(sl__short_real(layer->deviation)));
  if (layer->group) sl__json_set(&object, "group", json_string(layer->group));
  if (layer->tied_to >= 0)
    sl__json_set(&object, "shares", json_string(model->layers[layer->tied_to].name));
  for (const struct sl_field *field = layer->kind->fields; field && field->name; field++)
    add_field(&object, field, layer->options);
  return object;
}

static void add_inputs(const struct sl_model *model, json_t **object) {
  json_t *fields = json_array();
  struct sl_row_field field;
  for (int i = 0; sl_model_input_field(model, i, &field); i++)
    sl__json_append(&fields,
                    json_pack("{s:s, s:o}", "name", field.name, "shape", list(&field.shape)));
  sl__json_set(object, "inputs", fields);
}

static void add_outputs(const struct sl_model *model, json_t **object) {
  json_t *names = json_array();
  struct sl_row_field field;
  for (int i = 0; sl_model_output_field(model, i, &field); i++)
    sl__json_append(&names, json_string(field.name));
  sl__json_set(object, "outputs", names);
}

/* The layers that sl_model_new_fields and sl_outputs append are left out. */
static json_t *model_object(const struct sl_model *model, const char *weights) {
  bool named = model->input_count || model->output_count;
  int end = model->count - (model->output_count > 0);
  json_t *layers = json_array();
  for (int l = model->input_count; l < end; l++)
    sl__json_append(&layers, layer_object(model, &model->layers[l]));
  json_t *object = json_pack("{s:s, s:i, s:s}", "format", FORMAT_NAME, "version",
                             named ? FORMAT_VERSION : 1, "producer", "Starling " PACKAGE_VERSION);
  if (weights) sl__json_set(&object, "weights", json_string(weights));
  if (model->input_count)
    add_inputs(model, &object);
  else
    sl__json_set(&object, "input", list(&model->sample));
  if (model->output_count) add_outputs(model, &object);
  sl__metadata_write(model, &object);
  sl__json_set(&object, "layers", layers);
  return object;
}

/* One layer a line. */
static char *text_of(const json_t *object) {
  const size_t flags = JSON_REAL_PRECISION(9);
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  const char *key, *between = "{";
  json_t *value;
  int failed = 0;
  if (!out) return NULL;
  json_object_foreach((json_t *)object, key, value) {
    fprintf(out, "%s\n  \"%s\": ", between, key);
    between = ",";
    if (strcmp(key, "layers") != 0) {
      failed |= json_dumpf(value, out, flags | JSON_ENCODE_ANY);
      continue;
    }
    for (size_t i = 0; i < json_array_size(value); i++) {
      fputs(i ? ",\n    " : "[\n    ", out);
      failed |= json_dumpf(json_array_get(value, i), out, flags);
    }
    fputs("\n  ]", out);
  }
  fputs("\n}\n", out);
  failed |= ferror(out);
  if (fclose(out) == 0 && !failed) return text;
  free(text);
  return NULL;
}

enum sl_status sl_model_architecture(const struct sl_model *model, const char *weights,
                                     char **text) {
  SL__NEEDS(model, text);
  *text = NULL;
  if (weights && !sl__is_utf8(weights))
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s: a model's description cannot hold this name of its weights, which is no "
                    "UTF-8; take another name",
                    weights);
  json_t *object = model_object(model, weights);
  *text = object ? text_of(object) : NULL;
  json_decref(object);
  return *text ? SL_OK : sl__fail(SL_NO_MEMORY, "no memory for a model's description");
}

/* ---- reading: every text, valid or not, becomes a model or an error message ---- */

struct reader {
  const char *path;  /* for messages */
  const char *layer; /* the layer that is being read; "" before the first */
  /* of the layer that is being read, before its name is known; number 0: none is */
  size_t number, count;
  const char *kind; /* NULL: not known either */
};

/* "layer fc1: ", "layer 3 of 5 (dense): ", or nothing. */
static const char *layer_text(const struct reader *r, char *text, size_t size) {
  *text = '\0';
  if (*r->layer)
    snprintf(text, size, "layer %.64s: ", r->layer);
  else if (r->number)
    snprintf(text, size, "layer %zu of %zu%s%.64s%s: ", r->number, r->count, r->kind ? " (" : "",
             r->kind ? r->kind : "", r->kind ? ")" : "");
  return text;
}

static enum sl_status bad(const struct reader *r, const char *key, const char *what) {
  char layer[160];
  return sl__fail(SL_BAD_FILE, "%s: %s\"%.64s\" %s", r->path, layer_text(r, layer, sizeof layer),
                  key, what);
}

static enum sl_status read_text(const struct reader *r, const json_t *object, const char *key,
                                const char **text) {
  *text = json_string_value(json_object_get(object, key));
  return *text ? SL_OK : bad(r, key, "must be there, and a text");
}

static enum sl_status read_whole(const struct reader *r, const char *key, const json_t *value,
                                 int64_t most, int64_t *whole) {
  *whole = (int64_t)json_integer_value(value);
  if (json_is_integer(value) && *whole >= 0 && *whole <= most) return SL_OK;
  char what[64];
  snprintf(what, sizeof what, "must be a whole number from 0 to %lld", (long long)most);
  return bad(r, key, what);
}

/* A list of 1 to SL_MAX_DIMS numbers. */
static enum sl_status read_list(const struct reader *r, const char *key, const json_t *array,
                                struct sl_shape *list) {
  size_t count = json_array_size(array);
  enum sl_status status = SL_OK;
  if (count < 1 || count > SL_MAX_DIMS) return bad(r, key, "must be a list of 1 to 5 numbers");
  list->ndim = (int)count;
  for (size_t i = 0; i < count; i++)
    SL__TRY(read_whole(r, key, json_array_get(array, i), SL__MOST_VALUES, &list->dim[i]));
out:
  return status;
}

/* Puts the file's name before the last error's message. */
static enum sl_status of_file(const struct reader *r, enum sl_status status) {
  char text[512];
  if (status == SL_OK || status == SL_NO_MEMORY) return status;
  snprintf(text, sizeof text, "%s", sl_error());
  return sl__fail(SL_BAD_FILE, "%s: %s", r->path, text);
}

static enum sl_status read_field(const struct reader *r, const struct sl_field *field,
                                 const json_t *value, void *options) {
  void *at = (char *)options + field->offset;
  enum sl_status status = SL_OK;
  int64_t whole;
  switch (field->type) {
    case SL_FIELD_BOOL:
      if (!json_is_boolean(value)) return bad(r, field->name, "must be true or false");
      *(bool *)at = json_is_true(value);
      break;
    case SL_FIELD_FLOAT:
      if (!json_is_number(value) || !isfinite((float)json_number_value(value)))
        return bad(r, field->name, "must be a number that fits 32 bits");
      *(float *)at = (float)json_number_value(value);
      break;
    case SL_FIELD_ACTIVATION:
      if (!json_is_string(value)) return bad(r, field->name, "must be a name");
      status = of_file(r, sl_activation_parse(json_string_value(value), at));
      break;
    case SL_FIELD_INT:
      status = read_whole(r, field->name, value, sl__field_most(field), &whole);
      if (status == SL_OK) *(int *)at = (int)whole;
      break;
    case SL_FIELD_INT64:
      status = read_whole(r, field->name, value, sl__field_most(field), at);
      break;
    case SL_FIELD_SHAPE: status = read_list(r, field->name, value, at); break;
  }
  return status;
}

static const struct sl_field *find_field(const struct sl__layer_kind *kind, const char *name) {
  for (const struct sl_field *field = kind->fields; field && field->name; field++)
    if (!strcmp(field->name, name)) return field;
  return NULL;
}

/* "a,b" from ["a", "b"]; the caller frees it. */
static enum sl_status read_names(const struct reader *r, const char *key, size_t most,
                                 const json_t *array, char **names) {
  size_t count = json_array_size(array), size = 1;
  char what[64];
  snprintf(what, sizeof what, "must be a list of 1 to %zu names", most);
  if (count < 1 || count > most) return bad(r, key, what);
  for (size_t i = 0; i < count; i++) {
    const char *name = json_string_value(json_array_get(array, i));
    if (!name || !*name || strchr(name, ',')) return bad(r, key, "must be a list of names");
    size += strlen(name) + 1;
  }
  *names = sl__alloc(size, 1, "a list of names");
  if (!*names) return SL_NO_MEMORY;
  char *end = *names;
  for (size_t i = 0; i < count; i++) {
    if (i) end = stpcpy(end, ",");
    end = stpcpy(end, json_string_value(json_array_get(array, i)));
  }
  return SL_OK;
}

/* Reads a text that may be absent. */
static enum sl_status read_optional(const struct reader *r, const json_t *object, const char *key,
                                    const char **text) {
  const json_t *value = json_object_get(object, key);
  *text = json_string_value(value);
  return *text || !value ? SL_OK : bad(r, key, "must be a text");
}

static enum sl_status read_options(const struct reader *r, json_t *object,
                                   const struct sl__layer_kind *kind, char **names, void *options) {
  struct sl_layer_options *layer = options; /* the first member of every options struct */
  const json_t *init = json_object_get(object, "init");
  const json_t *deviation = json_object_get(object, "deviation");
  const json_t *inputs = json_object_get(object, "inputs");
  const struct sl_field real = SL_FIELD(sl_layer_options, FLOAT, deviation);
  enum sl_status status = SL_OK;
  const char *key;
  json_t *value;
  if (inputs) /* else the layer before */
    SL__TRY(read_names(r, "inputs", SL__MOST_INPUTS, inputs, names));
  layer->inputs = *names;
  if (init && !json_is_string(init)) return bad(r, "init", "must be a name");
  if (init) SL__TRY(of_file(r, sl_init_parse(json_string_value(init), &layer->init)));
  if (deviation) SL__TRY(read_field(r, &real, deviation, layer));
  SL__TRY(read_optional(r, object, "group", &layer->group));
  SL__TRY(read_optional(r, object, "shares", &layer->shares));
  json_object_foreach(object, key, value) {
    const struct sl_field *field = find_field(kind, key);
    if (!field && !sl__is_common_key(key)) return bad(r, key, "is no option of this kind of layer");
    if (field) SL__TRY(read_field(r, field, value, options));
  }
out:
  return status;
}

static enum sl_status find_kind(const struct reader *r, const struct sl_context *context,
                                const json_t *object, const struct sl__layer_kind **kind) {
  const char *name;
  enum sl_status status = read_text(r, object, "kind", &name);
  if (status != SL_OK) return status;
  *kind = sl__kind_find(context, name);
  if (*kind) return SL_OK;
  return sl__fail(
      SL_UNSUPPORTED,
      "%s: layer %.64s is of kind \"%.64s\", which this version of the library does not "
      "have: register it first if it is a program's own (sl_layer_register), or is "
      "there a newer library?",
      r->path, r->layer, name);
}

/* Before its name is known. */
static enum sl_status begin_layer(struct reader *r, const json_t *object, size_t number,
                                  size_t count) {
  r->layer = "";
  r->number = number;
  r->count = count;
  r->kind = json_string_value(json_object_get(object, "kind"));
  if (json_is_object(object)) return SL_OK;
  return sl__fail(SL_BAD_FILE, "%s: layer %zu of %zu: \"layers\" must be a list of objects",
                  r->path, number, count);
}

static enum sl_status read_layer(struct reader *r, struct sl_model *model, json_t *object) {
  const struct sl__layer_kind *kind = NULL;
  enum sl_status status;
  void *options = NULL;
  char *names = NULL;
  const char *name;
  SL__TRY(read_text(r, object, "name", &name));
  r->layer = name;
  SL__TRY(find_kind(r, model->context, object, &kind));
  options = sl__alloc(1, kind->options_size, "a layer's options");
  if (!options) return SL_NO_MEMORY;
  SL__TRY(read_options(r, object, kind, &names, options));
  status = of_file(r, sl__layer_append(model, r->layer, kind, options));
out:
  free(names);
  free(options);
  return status;
}

static enum sl_status read_input(const struct reader *r, const json_t *object,
                                 struct sl_shape *shape) {
  const json_t *array = json_object_get(object, "input");
  if (!json_array_size(array))
    return bad(r, "input", "must be there, a sample's shape such as [1, 28, 28]");
  return read_list(r, "input", array, shape);
}

/* [{"name": "state", "shape": [4]}, ...] */
static enum sl_status read_inputs_of_model(const struct reader *r, struct sl_context *context,
                                           const json_t *array, struct sl_model **model) {
  struct sl_row_field fields[SL_MAX_FIELDS] = {{0}};
  size_t count = json_array_size(array);
  enum sl_status status;
  if (count < 1 || count > SL_MAX_FIELDS)
    return bad(r, "inputs", "must be a list of 1 to 15 objects with a name and a shape");
  for (size_t i = 0; i < count; i++) {
    const json_t *object = json_array_get(array, i), *shape = json_object_get(object, "shape");
    fields[i].name = json_string_value(json_object_get(object, "name"));
    if (!fields[i].name || !json_array_size(shape))
      return bad(r, "inputs", "must be a list of objects with a name and a shape");
    SL__TRY(read_list(r, "shape", shape, &fields[i].shape));
  }
  status = of_file(r, sl_model_new_fields(context, fields, (int)count, model));
out:
  return status;
}

static enum sl_status make_model(const struct reader *r, struct sl_context *context,
                                 const json_t *object, struct sl_model **model) {
  const json_t *inputs = json_object_get(object, "inputs");
  struct sl_shape sample = {0};
  if (inputs && json_object_get(object, "input"))
    return bad(r, "input", "and \"inputs\" are both there; leave one out");
  if (inputs) return read_inputs_of_model(r, context, inputs, model);
  enum sl_status status = read_input(r, object, &sample);
  return status == SL_OK ? of_file(r, sl_model_new(context, &sample, model)) : status;
}

static enum sl_status read_outputs(const struct reader *r, const json_t *array,
                                   struct sl_model *model) {
  char *names = NULL;
  enum sl_status status;
  if (!array) return SL_OK;
  SL__TRY(read_names(r, "outputs", SL_MAX_FIELDS, array, &names));
  status = of_file(r, sl_outputs(model, names));
out:
  free(names);
  return status;
}

static enum sl_status check_head(const struct reader *r, const json_t *object) {
  const char *format = json_string_value(json_object_get(object, "format"));
  const json_t *version = json_object_get(object, "version");
  if (!format || strcmp(format, FORMAT_NAME) != 0)
    return sl__fail(SL_BAD_FILE, "%s: is no model: it has no \"format\": \"" FORMAT_NAME "\"",
                    r->path);
  if (!json_is_integer(version) || json_integer_value(version) < 1)
    return bad(r, "version", "must be there, a whole number");
  if (json_integer_value(version) > FORMAT_VERSION)
    return sl__fail(SL_UNSUPPORTED,
                    "%s: is of version %lld, this library reads %d; take a newer one", r->path,
                    (long long)json_integer_value(version), FORMAT_VERSION);
  return SL_OK;
}

static enum sl_status read_model(struct reader *r, struct sl_context *context, const json_t *object,
                                 struct sl_model **model) {
  const json_t *layers = json_object_get(object, "layers");
  enum sl_status status;
  SL__TRY(check_head(r, object));
  SL__TRY(make_model(r, context, object, model));
  size_t count = json_array_size(layers);
  if (count < 1 || count > MOST_LAYERS) return bad(r, "layers", "must be there, a list of layers");
  for (size_t i = 0; i < count; i++) {
    json_t *layer = json_array_get(layers, i);
    SL__TRY(begin_layer(r, layer, i + 1, count));
    SL__TRY(read_layer(r, *model, layer));
  }
  r->layer = "";
  r->number = 0;
  SL__TRY(read_outputs(r, json_object_get(object, "outputs"), *model));
  SL__TRY(sl__metadata_read(*model, r->path, object));
out:
  return status;
}

static enum sl_status parse(const char *path, const char *text, size_t size, json_t **object) {
  json_error_t error;
  *object = sl__json_load(text, size, JSON_REJECT_DUPLICATES, &error);
  if (json_is_object(*object)) return SL_OK;
  if (*object) return sl__fail(SL_BAD_FILE, "%s: is no model: a JSON object is needed", path);
  return sl__fail(SL_BAD_FILE, "%s: line %d: damaged: %.100s", path, error.line, error.text);
}

enum sl_status sl_model_parse(struct sl_context *context, const char *path, const char *text,
                              size_t size, struct sl_model **model) {
  SL__NEEDS(context, path, text, model);
  struct reader r = {.path = path, .layer = ""};
  json_t *object = NULL;
  enum sl_status status;
  *model = NULL;
  SL__TRY(parse(path, text, size, &object));
  SL__TRY(read_model(&r, context, object, model));
out:
  json_decref(object);
  if (status == SL_OK) return SL_OK;
  sl_model_free(*model);
  *model = NULL;
  return status;
}

/* ---- files ---- */

bool sl__is_model_json(const char *path) {
  size_t length = strlen(path), suffix = strlen(JSON_SUFFIX);
  return length > suffix && !strcmp(path + length - suffix, JSON_SUFFIX);
}

char *sl__model_json_weights(const char *path) {
  size_t stem = strlen(path) - strlen(JSON_SUFFIX);
  char *beside = sl__alloc(stem + sizeof WEIGHTS_SUFFIX, 1, "a file's name");
  if (beside)
    snprintf(beside, stem + sizeof WEIGHTS_SUFFIX, "%.*s" WEIGHTS_SUFFIX, (int)stem, path);
  return beside;
}

/* The text, written aside. */
static enum sl_status write_aside(const char *path, const char *text, struct sl__file **file) {
  enum sl_status status = sl__file_create(path, file);
  if (status != SL_OK) return status;
  sl__file_write(*file, text, strlen(text));
  return sl__file_flush(*file);
}

/* Both files change, or none: the description waits aside until the weights are in place, and only
 * its renaming is left then. An architecture always names an existing file. */
enum sl_status sl__model_json_save(struct sl_model *model, const char *path) {
  enum sl_status status = SL_NO_MEMORY;
  char *weights = sl__model_json_weights(path), *text = NULL;
  struct sl__file *file = NULL;
  if (!weights) return SL_NO_MEMORY;
  const char *slash = strrchr(weights, '/');
  SL__TRY(sl_model_architecture(model, slash ? slash + 1 : weights, &text));
  SL__TRY(write_aside(path, text, &file));
  SL__TRY(sl__weights_save(model, weights));
  status = sl__file_commit(file, NULL);
  file = NULL;
out:
  sl__file_abandon(file);
  free(text);
  free(weights);
  return status;
}

/* The weights' file must be in the folder of the architecture: a name with a '/' from an unknown
 * file is refused. */
static enum sl_status find_weights(const char *path, const char *text, size_t size,
                                   char **weights) {
  json_t *object = NULL;
  enum sl_status status = parse(path, text, size, &object);
  const char *name = json_string_value(json_object_get(object, "weights"));
  const char *slash = strrchr(path, '/');
  int folder = slash ? (int)(slash - path) + 1 : 0;
  if (status == SL_OK && (!name || !*name || strchr(name, '/') || sl__is_model_json(name)))
    status = sl__fail(
        SL_BAD_FILE,
        "%s: \"weights\" must be there, the name of a safetensors file in the same folder", path);
  if (status == SL_OK) {
    size_t room = (size_t)folder + strlen(name) + 1;
    *weights = sl__alloc(room, 1, "a file's name");
    if (*weights) snprintf(*weights, room, "%.*s%s", folder, path, name);
    if (!*weights) status = SL_NO_MEMORY;
  }
  json_decref(object);
  return status;
}

/* The path of the weights that the file at `path` names. */
static enum sl_status read_weights_name(const char *path, char **weights) {
  uint8_t *bytes = NULL;
  size_t size;
  enum sl_status status = sl__file_read_plain(path, MOST_BYTES, &bytes, &size);
  if (status == SL_OK) status = find_weights(path, (const char *)bytes, size, weights);
  free(bytes);
  return status;
}

enum sl_status sl__model_json_load(struct sl_model *model, const char *path) {
  char *weights = NULL;
  enum sl_status status = read_weights_name(path, &weights);
  if (status == SL_OK) status = sl__weights_load(model, weights);
  free(weights);
  return status;
}

enum sl_status sl__model_json_load_part(struct sl_model *model, const char *path, const char *map,
                                        char **report) {
  char *weights = NULL;
  enum sl_status status = read_weights_name(path, &weights);
  if (status == SL_OK) status = sl__weights_load_part(model, weights, map, report);
  free(weights);
  return status;
}

/* A safetensors file begins with the length of its header, which is JSON. */
static bool is_safetensors(const uint8_t *bytes, size_t size) {
  return size > 8 && bytes[0] != '{' && bytes[8] == '{';
}

enum sl_status sl__model_json_open(struct sl_context *context, const char *path,
                                   struct sl_model **model) {
  enum sl_status status;
  uint8_t *bytes = NULL;
  size_t size;
  *model = NULL;
  SL__TRY(sl__file_read_plain(path, MOST_BYTES, &bytes, &size));
  if (is_safetensors(bytes, size))
    SL__TRY(
        sl__fail(SL_BAD_FILE,
                 "%s: holds weights alone, which name no layers; give the .json or .onnx of the "
                 "model, or load the weights into a model that the program makes",
                 path));
  SL__TRY(sl_model_parse(context, path, (const char *)bytes, size, model));
  status = sl__model_json_load(*model, path);
out:
  free(bytes);
  if (status == SL_OK) return SL_OK;
  sl_model_free(*model);
  *model = NULL;
  return status;
}
