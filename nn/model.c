#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/layer.h"

enum sl_status sl__layer_fail(const struct sl__layer *layer, enum sl_status status,
                              const char *format, ...) {
  char text[512];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  return sl__fail(status, "layer %s (%s): %s", layer->name, layer->kind->name, text);
}

/* NumPy's rule: the last axes of both meet. */
static bool broadcasts_to(const struct sl_shape *from, const struct sl_shape *to) {
  int missing = to->ndim - from->ndim;
  bool fits = missing >= 0;
  for (int d = 0; fits && d < from->ndim; d++)
    fits = from->dim[d] == 1 || from->dim[d] == to->dim[d + missing];
  return fits;
}

enum sl_status sl__inputs_broadcast(struct sl__layer *layer) {
  char first[96], other[96];
  if (layer->input_count < 2)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                          "takes two inputs or more, not %d; name them, as in \"bn2,shortcut\"",
                          layer->input_count);
  for (int i = 1; i < layer->input_count; i++) {
    layer->broadcasts |= sl__is_broadcast(layer, i);
    if (!broadcasts_to(&layer->in[i], &layer->in[0]))
      return sl__layer_fail(layer, SL_BAD_SHAPE,
                            "its inputs have different shapes, %s and %s, and the latter does not "
                            "broadcast to the former; name the larger one first",
                            sl_shape_text(&layer->in[0], first, sizeof first),
                            sl_shape_text(&layer->in[i], other, sizeof other));
  }
  return SL_OK;
}

enum sl_status sl__input_alone(const struct sl__layer *layer) {
  if (layer->input_count == 1) return SL_OK;
  return sl__layer_fail(layer, SL_BAD_ARGUMENT, "takes one input, not %d", layer->input_count);
}

enum sl_status sl_model_new(struct sl_context *context, const struct sl_shape *sample,
                            struct sl_model **model) {
  SL__NEEDS(context, sample, model);
  char text[96];
  *model = NULL;
  bool fits = sample->ndim >= 1 && sample->ndim < SL_MAX_DIMS;
  for (int i = 0; fits && i < sample->ndim; i++) fits = sample->dim[i] >= 1;
  if (!fits || sl_shape_count(sample) > SL__MOST_VALUES)
    return sl__fail(SL_BAD_SHAPE,
                    "a model's sample cannot have shape %s: 1 to %d dimensions, each at least 1, "
                    "and 2^40 values",
                    sl_shape_text(sample, text, sizeof text), SL_MAX_DIMS - 1);
  struct sl_model *m = sl__alloc(1, sizeof *m, "a model");
  if (!m) return SL_NO_MEMORY;
  m->context = context;
  m->sample = *sample;
  *model = m;
  return SL_OK;
}

struct sl__param *sl__block_add(struct sl__block *block, const char *suffix,
                                const struct sl_shape *shape) {
  struct sl__param *part = &block->part[block->count++];
  *part = (struct sl__param){.shape = *shape, .offset = block->total};
  snprintf(part->suffix, sizeof part->suffix, "%s", suffix);
  if (__builtin_add_overflow(block->total, sl_shape_count(shape), &block->total))
    block->total = INT64_MAX; /* check_size() refuses it later */
  return part;
}

/* Layer numbers by name; the model's input is "input". */
static enum sl_status find_input(const struct sl_model *model, const struct sl__layer *layer,
                                 const char *name, int *number) {
  if (!strcmp(name, "input")) {
    if (model->input_count)
      return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                            "its input 'input' has fields; name one of them, such as '%s'",
                            model->layers[0].name);
    *number = SL__INPUT;
    return SL_OK;
  }
  for (int i = 0; i < model->count; i++)
    if (!strcmp(model->layers[i].name, name)) {
      *number = i;
      return SL_OK;
    }
  return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                        "its input '%s' is no layer appended before; is the name right?", name);
}

static enum sl_status resolve_inputs(const struct sl_model *model, struct sl__layer *layer,
                                     const char *names) {
  int count = 1;
  for (const char *c = names; c && *c && count <= SL__MOST_INPUTS; c++) count += *c == ',';
  if (count > SL__MOST_INPUTS)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                          "names more than %d inputs; join some of them in a layer before it",
                          SL__MOST_INPUTS);
  layer->input = sl__alloc((size_t)count, sizeof *layer->input, "a layer's inputs");
  layer->in = sl__alloc((size_t)count, sizeof *layer->in, "a layer's inputs");
  if (!layer->input || !layer->in) return SL_NO_MEMORY;
  if (!names) {
    layer->input_count = 1;
    layer->input[0] = model->count - 1; /* the layer before, or SL__INPUT */
    return SL_OK;
  }
  enum sl_status status = SL_OK;
  char *copy = sl__strdup(names), *rest = copy;
  if (!copy) return SL_NO_MEMORY;
  for (char *name = strsep(&rest, ","); name && status == SL_OK; name = strsep(&rest, ","))
    status = find_input(model, layer, name, &layer->input[layer->input_count++]);
  free(copy);
  return status;
}

/* Finds the layer whose weight this layer shares: an earlier one, whose weight no other layer
 * shares. */
static enum sl_status resolve_shared(struct sl_model *model, struct sl__layer *layer,
                                     const char *name) {
  int from = SL__INPUT;
  layer->tied_to = -1;
  if (!name) return SL_OK;
  if (!layer->kind->may_share)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                          "cannot share the weight of '%s': only dense layers can", name);
  enum sl_status status = find_input(model, layer, name, &from);
  if (status != SL_OK) return status;
  if (from == SL__INPUT || !model->layers[from].params.count ||
      strcmp(model->layers[from].params.part[0].suffix, "weight") ||
      model->layers[from].params.count > 1 || model->layers[from].is_tied)
    return sl__layer_fail(
        layer, SL_BAD_ARGUMENT,
        "the weight of '%s' cannot be shared: name a layer whose only parameter is a "
        "weight (an embedding), and which no other layer shares",
        name);
  layer->tied_to = from;
  layer->shared_shape = model->layers[from].params.part[0].shape;
  return SL_OK;
}

/* Names become file entries ("conv1.weight"), log fields and option values. */
static enum sl_status check_name(const struct sl_model *model, const char *name) {
  bool fits = *name && strlen(name) < 64 && strcmp(name, "input");
  for (const char *c = name; fits && *c; c++)
    fits = isalnum((unsigned char)*c) || strchr("_.-", *c);
  if (!fits)
    return sl__fail(SL_BAD_ARGUMENT,
                    "'%s' cannot name a layer: use letters, digits, _ . - (and not \"input\")",
                    name);
  for (int i = 0; i < model->count; i++)
    if (!strcmp(model->layers[i].name, name))
      return sl__fail(SL_BAD_ARGUMENT, "there is a layer '%s' already; layers need different names",
                      name);
  return SL_OK;
}

static enum sl_status grow(struct sl_model *model) {
  if (model->count < model->capacity) return SL_OK;
  int capacity = model->capacity ? 2 * model->capacity : 8;
  struct sl__layer *layers =
      sl__realloc(model->layers, (size_t)capacity, sizeof *layers, "a model's layers");
  if (!layers) return SL_NO_MEMORY;
  model->layers = layers;
  model->capacity = capacity;
  return SL_OK;
}

static void layer_clear(struct sl__layer *layer) {
  sl__tensor_free(layer->params.half);
  sl__tensor_free(layer->params.tensor);
  sl__tensor_free(layer->buffers.tensor);
  free(layer->options);
  free(layer->name);
  free(layer->group);
  free(layer->input);
  free(layer->in);
  free(layer->custom);
}

static void name_parts(const struct sl__layer *layer, struct sl__block *block) {
  for (int i = 0; i < block->count; i++) {
    struct sl__param *part = &block->part[i];
    char suffix[sizeof part->suffix]; /* snprintf may not read its own target */
    memcpy(suffix, part->suffix, sizeof suffix);
    snprintf(part->name, sizeof part->name, "%s.%s", layer->name, suffix);
  }
}

/* A block is a tensor of one dimension. */
static enum sl_status check_size(const struct sl__layer *layer) {
  char text[96];
  if (sl_shape_count(&layer->out) > SL__MOST_VALUES)
    return sl__layer_fail(layer, SL_BAD_SHAPE, "its output of %s has more than 2^40 values",
                          sl_shape_text(&layer->out, text, sizeof text));
  if (layer->params.total > SL__MOST_ROWS || layer->buffers.total > SL__MOST_ROWS)
    return sl__layer_fail(layer, SL_BAD_SHAPE, "it has more than 2^32 - 1 parameters");
  return SL_OK;
}

static bool is_embedding(const struct sl__layer *layer) {
  return !strcmp(layer->kind->name, "embedding");
}

/* Does the layer take tokens, and only an embedding does? */
static enum sl_status check_tokens(const struct sl_model *model, const struct sl__layer *layer) {
  for (int i = 0; i < layer->input_count; i++) {
    int from = layer->input[i];
    if (is_embedding(layer) && from != SL__INPUT && from >= model->input_count)
      return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                            "takes the model's own input or a field of it, whole numbers, not "
                            "another layer's output");
  }
  return SL_OK;
}

/* A program's infer may trust the options. The library's kinds say better what is wrong with them,
 * so that the general check comes second. */
static enum sl_status check_and_infer(struct sl__layer *layer) {
  enum sl_status status = sl__layer_check_lists(layer);
  if (status == SL_OK && layer->kind->custom) status = sl__layer_check_options(layer);
  if (status == SL_OK) status = layer->kind->infer(layer);
  return status == SL_OK && !layer->kind->custom ? sl__layer_check_options(layer) : status;
}

enum sl_status sl__layer_append(struct sl_model *model, const char *name,
                                const struct sl__layer_kind *kind, const void *options) {
  enum sl_status status = SL_OK;
  struct sl__layer layer = {.kind = kind, .lr_factor = 1, .decay_factor = 1};
  if (!model || !name || !options)
    return sl__fail(SL_BAD_ARGUMENT, "layer %s: the argument '%s' is NULL", name ? name : "?",
                    !model  ? "model"
                    : !name ? "name"
                            : "options");
  if (model->built)
    return sl__fail(SL_BAD_ARGUMENT, "layer %s: the model is built; append before sl_model_build",
                    name);
  if (model->output_count)
    return sl__fail(SL_BAD_ARGUMENT,
                    "layer %s: the model's outputs are named; append before "
                    "sl_outputs",
                    name);
  SL__TRY(check_name(model, name));
  SL__TRY(grow(model));
  layer.name = sl__strdup(name);
  layer.options = sl__alloc(1, kind->options_size, "a layer's options");
  if (!layer.name || !layer.options) {
    status = SL_NO_MEMORY;
    goto out;
  }
  memcpy(layer.options, options, kind->options_size);
  /* the caller may free its texts */
  ((struct sl_layer_options *)layer.options)->inputs = NULL;
  ((struct sl_layer_options *)layer.options)->group = NULL;
  ((struct sl_layer_options *)layer.options)->shares = NULL;
  /* every options struct begins with the options of all layers */
  layer.init = ((const struct sl_layer_options *)options)->init;
  layer.deviation = ((const struct sl_layer_options *)options)->deviation;
  SL__TRY(sl__layer_check_init(&layer));
  const char *group = ((const struct sl_layer_options *)options)->group;
  if (group && !(layer.group = sl__strdup(group))) {
    status = SL_NO_MEMORY;
    goto out;
  }
  SL__TRY(resolve_inputs(model, &layer, ((const struct sl_layer_options *)options)->inputs));
  for (int i = 0; i < layer.input_count; i++)
    layer.in[i] = layer.input[i] == SL__INPUT ? model->sample : model->layers[layer.input[i]].out;
  SL__TRY(resolve_shared(model, &layer, ((const struct sl_layer_options *)options)->shares));
  SL__TRY(check_and_infer(&layer));
  SL__TRY(check_tokens(model, &layer));
  SL__TRY(check_size(&layer));
  name_parts(&layer, &layer.params);
  name_parts(&layer, &layer.buffers);
  for (int i = 0; i < layer.input_count; i++)
    if (layer.input[i] != SL__INPUT) {
      model->layers[layer.input[i]].consumers++;
      model->layers[layer.input[i]].gives_tokens |= is_embedding(&layer);
    }
  if (layer.tied_to >= 0) model->layers[layer.tied_to].is_tied = true;
  model->layers[model->count++] = layer;
  return SL_OK;
out:
  layer_clear(&layer);
  return status;
}

void sl__layer_drop(struct sl_model *model) {
  struct sl__layer *layer = &model->layers[--model->count];
  for (int i = 0; i < layer->input_count; i++)
    if (layer->input[i] != SL__INPUT) model->layers[layer->input[i]].consumers--;
  layer_clear(layer);
}

static enum sl_status build_block(struct sl_context *context, struct sl__block *block) {
  if (!block->total) return SL_OK;
  struct sl_shape shape = SL_SHAPE(block->total);
  return sl__tensor_kept(context, &shape, SL_F32, &block->tensor);
}

/* A layer whose output no layer takes would train nothing: most likely a name is wrong. */
static enum sl_status check_graph(const struct sl_model *model) {
  if (!model->count) return sl__fail(SL_BAD_ARGUMENT, "a model needs at least one layer");
  for (int i = 0; i < model->count - 1; i++)
    if (!model->layers[i].consumers)
      return sl__layer_fail(
          &model->layers[i], SL_BAD_ARGUMENT,
          "no layer takes its output; name it in another's inputs or leave it out");
  for (int i = 0; i < model->count; i++)
    for (int k = 0; k < model->layers[i].input_count; k++) {
      const struct sl__layer *layer = &model->layers[i];
      int from = layer->input[k];
      if (is_embedding(layer)) continue;
      if (model->takes_tokens && from == SL__INPUT)
        return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                              "it takes the model's input, which an embedding takes as tokens");
      if (from != SL__INPUT && model->layers[from].gives_tokens)
        return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                              "it takes '%s', which an embedding takes as tokens",
                              model->layers[from].name);
    }
  return SL_OK;
}

enum sl_status sl_model_build(struct sl_model *model) {
  SL__NEEDS(model);
  enum sl_status status;
  if (model->built) return SL_OK;
  for (int i = 0; i < model->count; i++)
    model->takes_tokens |=
        is_embedding(&model->layers[i]) && model->layers[i].input[0] == SL__INPUT;
  SL__TRY(check_graph(model));
  for (int i = 0; i < model->count; i++) {
    struct sl__layer *layer = &model->layers[i];
    SL__TRY(build_block(model->context, &layer->params));
    SL__TRY(build_block(model->context, &layer->buffers));
    SL__TRY(sl__layer_initialise(layer, model->context->seed));
  }
  sl__model_find_gradients(model);
  model->built = true;
  return SL_OK;
out:
  for (int i = 0; i < model->count; i++) {
    sl__tensor_free(model->layers[i].params.tensor);
    sl__tensor_free(model->layers[i].buffers.tensor);
    model->layers[i].params.tensor = model->layers[i].buffers.tensor = NULL;
  }
  return status;
}

void sl_model_free(struct sl_model *model) {
  if (!model || model->context->abandoned) return;
  for (int i = 0; i < model->count; i++) layer_clear(&model->layers[i]);
  free(model->layers);
  free(model->placement);
  free(model->frozen);
  sl__metadata_free(model);
  free(model);
}

const struct sl__layer *sl__model_whole_layer(const struct sl_model *model) {
  for (int i = 0; i < model->count; i++)
    if (!model->layers[i].over_time || !model->takes_tokens) return &model->layers[i];
  return NULL;
}

enum sl_status sl__model_check_steps(const struct sl_model *model, enum sl_status status,
                                     const char *what) {
  const struct sl__layer *whole = sl__model_whole_layer(model);
  if (!whole) return SL_OK;
  if (!model->takes_tokens)
    return sl__fail(status,
                    "%s: only models of tokens, whose input an embedding reads, work step by step; "
                    "this model's input is numbers",
                    what);
  return sl__fail(status,
                  "%s: layer %s (%s) needs a whole sample at once; only models whose layers all "
                  "work step by step can be cut in time",
                  what, whole->name, whole->kind->name);
}

enum sl_status sl__model_check_trains(const struct sl_model *model) {
  bool below = model->frozen != NULL; /* the first layer that trains */
  for (int i = 0; i < model->count; i++) {
    const struct sl__layer *layer = &model->layers[i];
    const struct sl_layer_kind *kind = layer->kind->custom;
    below = below && !layer->needs_gradient;
    const char *lacks = !kind || below                                      ? NULL
                        : !kind->backward_data                              ? "backward_data"
                        : sl__layer_trains(layer) && !kind->backward_weight ? "backward_weight"
                                                                            : NULL;
    if (lacks)
      return sl__layer_fail(layer, SL_UNSUPPORTED,
                            "is for inference only: its kind was registered without %s, and "
                            "cannot be trained",
                            lacks);
  }
  if (below)
    return sl__fail(SL_BAD_ARGUMENT,
                    "all layers with parameters are frozen (%s); leave one of them to be trained",
                    model->frozen);
  return SL_OK;
}

int64_t sl__model_words(const struct sl_model *model) {
  int64_t words = INT32_MAX;
  for (int i = 0; i < model->count; i++)
    if (model->layers[i].touches_rows && model->layers[i].params.part[0].shape.dim[0] < words)
      words = model->layers[i].params.part[0].shape.dim[0];
  return words;
}

int64_t sl__field_words(const struct sl_model *model, int field) {
  int64_t words = SL_MAX_CLASSES;
  if (!model->layers[field].gives_tokens) return 0;
  for (int i = 0; i < model->count; i++) {
    const struct sl__layer *layer = &model->layers[i];
    if (is_embedding(layer) && layer->input[0] == field &&
        layer->params.part[0].shape.dim[0] < words)
      words = layer->params.part[0].shape.dim[0];
  }
  return words;
}

int64_t sl_model_parameters(const struct sl_model *model) {
  SL__NEEDS_OR(0, model);
  int64_t total = 0;
  for (int i = 0; i < model->count; i++) total += model->layers[i].params.total;
  return total;
}

const struct sl_shape *sl_model_input(const struct sl_model *model) {
  SL__NEEDS_OR(NULL, model);
  return &model->sample;
}

const struct sl_shape *sl_model_output(const struct sl_model *model) {
  SL__NEEDS_OR(NULL, model);
  return model->count ? &model->layers[model->count - 1].out : &model->sample;
}
