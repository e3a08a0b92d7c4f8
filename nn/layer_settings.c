/* Settings of a training by layer: which layers are frozen, factors of the learning rate and of the
 * weight decay. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/numbers.h"
#include "core/base/text.h"
#include "nn/layer_names.h"

/* A trainer's shards and plans follow the settings that it found. */
enum sl_status sl__model_check_unused(const struct sl_model *model, const char *subject) {
  if (!model->users) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT, "%s: a trainer uses the model; free it first", subject);
}

void sl__model_find_gradients(struct sl_model *model) {
  for (int i = 0; i < model->count; i++) {
    struct sl__layer *layer = &model->layers[i];
    layer->needs_gradient = (layer->params.total > 0 || layer->tied_to >= 0) && !layer->is_frozen;
    for (int k = 0; k < layer->input_count; k++)
      if (layer->input[k] != SL__INPUT)
        layer->needs_gradient |= model->layers[layer->input[k]].needs_gradient;
  }
}

/* ---- frozen layers ---- */

static enum sl_status mark(void *user, int layer) {
  bool *marked = user;
  marked[layer] = true;
  return SL_OK;
}

/* The one weight of two layers is frozen with either. */
static void mark_shared(const struct sl_model *model, bool *marked) {
  for (int i = 0; i < model->count; i++) {
    int other = model->layers[i].tied_to;
    if (other >= 0) marked[i] = marked[other] = marked[i] || marked[other];
  }
}

/* NULL for an empty list. */
static enum sl_status print_marked(const struct sl_model *model, const bool *marked, char **text) {
  struct sl__text list;
  FILE *out = sl__text_begin(&list);
  bool any = false;
  for (int i = 0, end; out && i < model->count; i = end + 1) {
    for (end = i; end < model->count && marked[end];) end++;
    if (end == i) continue;
    if (any) fputc(',', out);
    sl__print_layers(out, model, i, end);
    any = true;
  }
  enum sl_status status = sl__text_end(&list, "a list of layers", text);
  if (status == SL_OK && !any) {
    free(*text);
    *text = NULL;
  }
  return status;
}

enum sl_status sl_freeze(struct sl_model *model, const char *layers) {
  SL__NEEDS(model);
  enum sl_status status;
  char *names = NULL, *text = NULL;
  bool *marked = sl__alloc((size_t)model->count + 1, sizeof *marked, "frozen layers");
  if (!marked) return SL_NO_MEMORY;
  SL__TRY(sl__model_check_unused(model, "freeze"));
  if (layers && *layers) {
    const struct sl__layer_list list = {"freeze", mark, marked};
    names = sl__strdup(layers);
    status = names ? sl__layer_list_walk(&list, model, names) : SL_NO_MEMORY;
    SL__TRY(status);
  }
  mark_shared(model, marked);
  SL__TRY(print_marked(model, marked, &text));
  for (int i = 0; i < model->count; i++) model->layers[i].is_frozen = marked[i];
  sl__model_find_gradients(model);
  free(model->frozen);
  model->frozen = text;
out:
  free(names);
  free(marked);
  return status;
}

const char *sl_frozen(const struct sl_model *model) {
  SL__NEEDS_OR(NULL, model);
  return model->frozen;
}

/* ---- factors ---- */

/* A rule LAYERS=FACTOR while its layers are read; factors that are not set are below 0. */
struct rule {
  const struct sl_model *model;
  const char *subject;
  float factor;
  float *factors;
};

static enum sl_status set_factor(void *user, int layer) {
  const struct rule *rule = user;
  if (rule->factors[layer] >= 0)
    return sl__fail(SL_BAD_ARGUMENT, "%s: layer %s has two factors; name it in one rule only",
                    rule->subject, rule->model->layers[layer].name);
  rule->factors[layer] = rule->factor;
  return SL_OK;
}

/* "fc*=10" or "conv1,conv2=0.1"; *text goes on to the next rule. */
static enum sl_status read_rule(struct rule *rule, double least, char **text) {
  const struct sl__layer_list list = {rule->subject, set_factor, rule};
  const double most = 1e6;
  double factor;
  char *names = *text, *equals = strchr(names, '=');
  if (!equals)
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s: '%s' has no factor; write LAYERS=FACTOR, such as fc*=10,conv1-3=0.1",
                    rule->subject, names);
  char *number = equals + 1, *end = number + strcspn(number, ",;\n");
  *text = *end ? end + 1 : end;
  *equals = *end = 0;
  number = sl__trim(number);
  if (!sl__parse_real(number, least, most, &factor))
    return sl__fail(SL_BAD_ARGUMENT, "%s: the factor '%s' of '%s' must be a number from %g to %g",
                    rule->subject, number, names, least, most);
  rule->factor = (float)factor;
  return sl__layer_list_walk(&list, rule->model, names);
}

/* Layers that no rule names have factor 1. */
static enum sl_status read_factors(const struct sl_model *model, const char *subject,
                                   const char *text, double least, float *factors) {
  struct rule rule = {.model = model, .subject = subject, .factors = factors};
  enum sl_status status = SL_OK;
  char *copy = sl__strdup(text ? text : ""), *rest = copy;
  if (!copy) return SL_NO_MEMORY;
  for (int i = 0; i < model->count; i++) factors[i] = -1;
  while (status == SL_OK && *(rest = sl__trim(rest))) status = read_rule(&rule, least, &rest);
  for (int i = 0; i < model->count; i++)
    if (factors[i] < 0) factors[i] = 1;
  free(copy);
  return status;
}

static enum sl_status set_factors(struct sl_model *model, const char *subject, const char *text,
                                  double least, size_t member) {
  float *factors = sl__alloc((size_t)model->count + 1, sizeof *factors, "factors of layers");
  enum sl_status status = factors ? sl__model_check_unused(model, subject) : SL_NO_MEMORY;
  if (status == SL_OK) status = read_factors(model, subject, text, least, factors);
  for (int i = 0; i < model->count && status == SL_OK; i++)
    *(float *)((char *)&model->layers[i] + member) = factors[i];
  free(factors);
  return status;
}

enum sl_status sl_group_rate(struct sl_model *model, const char *rules) {
  SL__NEEDS(model);
  const double least = 1e-6; /* without a rate a layer is frozen: sl_freeze */
  return set_factors(model, "rate", rules, least, offsetof(struct sl__layer, lr_factor));
}

enum sl_status sl_group_decay(struct sl_model *model, const char *rules) {
  SL__NEEDS(model);
  return set_factors(model, "decay", rules, 0, offsetof(struct sl__layer, decay_factor));
}

enum sl_status sl_decay_weights_only(struct sl_model *model, bool weights_only) {
  SL__NEEDS(model);
  enum sl_status status = sl__model_check_unused(model, "sl_decay_weights_only");
  if (status == SL_OK) model->decays_weights_only = weights_only;
  return status;
}
