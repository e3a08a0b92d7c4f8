/* The model, and predictors of it. The layers of a language model work step by step, so that the
 * same weights in a model of longer samples read longer lines. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "tools/common/abort_message.h"
#include "tools/predict/engine.h"
#include "tools/predict/failure.h"

enum { SHORTEST = 8 };

static enum sl_status read_model(struct engine *e) {
  enum sl_status status = sl_model_open(e->context, e->options->model, &e->model);
  struct sl_layer_info layer;
  struct sl_row_field field;
  for (int i = 0; status == SL_OK && i < sl_model_layer_count(e->model); i++) {
    status = sl_model_layer(e->model, i, &layer);
    e->tokens |= status == SL_OK && !strcmp(layer.kind, "embedding");
  }
  if (status == SL_OK && sl_model_input_field(e->model, 0, &field))
    e->tokens = false; /* those of fields stand in rows of numbers */
  if (status != SL_OK) return status;
  e->input = *sl_model_input(e->model);
  e->outputs = sl_shape_count(sl_model_output(e->model));
  return e->options->placement ? sl_place(e->model, e->options->placement) : SL_OK;
}

/* Rows of its table. */
static int64_t count_words(const struct engine *e) {
  int64_t words = INT32_MAX;
  struct sl_layer_info layer;
  struct sl_shape shape;
  for (int l = 0; l < sl_model_layer_count(e->model); l++) {
    if (sl_model_layer(e->model, l, &layer) != SL_OK || strcmp(layer.kind, "embedding") != 0)
      continue;
    size_t length = strlen(layer.name);
    for (int i = 0; i < sl_model_parameter_count(e->model); i++) {
      const char *name = sl_model_parameter(e->model, i, &shape);
      if (name && !strncmp(name, layer.name, length) && !strcmp(name + length, ".weight") &&
          shape.dim[0] < words)
        words = shape.dim[0];
    }
  }
  return words;
}

/* The model's description, to be given back by json_decref; NULL without memory. */
static json_t *describe(struct engine *e) {
  char *text = NULL;
  if (sl_model_architecture(e->model, NULL, &text) != SL_OK) return NULL;
  json_t *object = sl__json_load(text, strlen(text), 0, NULL);
  free(text);
  return object;
}

/* The steps that a layer takes; 0: any. A table of positions has the sample's if it names none. */
static int64_t steps_of(const struct engine *e, const json_t *layer) {
  const char *kind = json_string_value(json_object_get(layer, "kind"));
  if (kind && !strcmp(kind, "attention"))
    return json_integer_value(json_object_get(layer, "context"));
  if (!kind || strcmp(kind, "position") != 0) return 0;
  int64_t length = json_integer_value(json_object_get(layer, "length"));
  return length ? length : e->input.dim[0];
}

static int find_longest(struct engine *e) {
  size_t i;
  const json_t *layer;
  json_t *object = describe(e);
  if (!object) return fail_memory();
  json_array_foreach(json_object_get(object, "layers"), i, layer) {
    int64_t steps = steps_of(e, layer);
    if (steps && (!e->longest || steps < e->longest)) e->longest = steps;
  }
  json_decref(object);
  return EXIT_DONE;
}

int engine_open(struct engine *e, const struct engine_options *options) {
  e->options = options;
  const struct sl_context_options context = {.devices = options->devices, .seed = options->seed};
  enum sl_status status = sl_open(&context, &e->context);
  if (status == SL_OK) aborted_catch("starling-predict", 0);
  if (status == SL_OK) status = read_model(e);
  if (status != SL_OK) return fail_library(status);
  if (!e->tokens) return EXIT_DONE;
  e->words = count_words(e);
  return find_longest(e);
}

int engine_predictor(struct engine *e) {
  enum sl_status status = sl_predictor_open(e->model, &e->options->predictor, &e->predictor);
  return status == SL_OK ? EXIT_DONE : fail_library(status);
}

/* ---- the same model for longer samples ---- */

static enum sl_status copy_weights(struct sl_model *from, struct sl_model *to) {
  enum sl_status status = SL_OK;
  struct sl_shape shape;
  for (int i = 0; i < sl_model_parameter_count(from) && status == SL_OK; i++) {
    const char *name = sl_model_parameter(from, i, &shape);
    float *values = calloc((size_t)sl_shape_count(&shape), sizeof *values);
    if (!values) return SL_NO_MEMORY;
    status = sl_model_get(from, name, values);
    if (status == SL_OK) status = sl_model_set(to, name, values);
    free(values);
  }
  return status;
}

/* The model's description with another input length. */
static char *text_for(struct engine *e, int64_t steps) {
  json_t *object = describe(e);
  sl__json_set(&object, "input", json_pack("[I]", (json_int_t)steps));
  char *text = sl__json_text(object, JSON_REAL_PRECISION(9));
  json_decref(object);
  return text;
}

static int open_length(struct engine *e, int64_t steps, struct length *length) {
  const int64_t budget = 1 << 23,
                most = 1 << 28; /* logits of a batch: the default limit, and 1 GiB */
  struct sl_predictor_options options = e->options->predictor;
  int64_t fits = budget / (steps * e->words);
  if (!options.max_batch) options.max_batch = fits < 1 ? 1 : fits < 64 ? fits : 64;
  if (options.max_batch > most / (steps * e->words))
    return fail(EXIT_FAILED,
                "a batch of %lld lines of up to %lld tokens, of %lld words each, has logits of "
                "more than 1 GiB; give shorter lines%s",
                (long long)options.max_batch, (long long)steps, (long long)e->words,
                options.max_batch > 1 ? ", or a smaller --max-batch" : "");
  char *text = text_for(e, steps);
  if (!text) return fail_memory();
  enum sl_status status =
      sl_model_parse(e->context, e->options->model, text, strlen(text), &length->model);
  if (status == SL_OK) status = sl_model_build(length->model);
  if (status == SL_OK) status = copy_weights(e->model, length->model);
  if (status == SL_OK && e->options->placement)
    status = sl_place(length->model, e->options->placement);
  if (status == SL_OK) status = sl_predictor_open(length->model, &options, &length->predictor);
  free(text);
  return status == SL_OK ? EXIT_DONE : fail_library(status);
}

struct sl_predictor *engine_for(struct engine *e, int64_t *steps) {
  int64_t length = SHORTEST;
  int i = 0;
  for (; length < *steps; length *= 2) i++;
  if (e->longest && length > e->longest) length = e->longest;
  *steps = length;
  if (!e->lengths[i].predictor && open_length(e, length, &e->lengths[i]) != EXIT_DONE) return NULL;
  return e->lengths[i].predictor;
}

void engine_close(struct engine *e) {
  sl_predictor_free(e->predictor);
  for (size_t i = 0; i < sizeof e->lengths / sizeof *e->lengths; i++) {
    sl_predictor_free(e->lengths[i].predictor);
    sl_model_free(e->lengths[i].model);
  }
  sl_model_free(e->model);
  sl_close(e->context);
}
