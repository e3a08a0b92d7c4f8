/* Text from a language model, one token at a time: each pass is a batch of one sequence of one time
 * step, and the recurrent state is carried from one pass to the next. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/half.h"
#include "core/base/random.h"
#include "parallel/step/plan.h"

struct generator {
  struct sl_context *context;
  struct sl__grid grid;
  struct sl__plan *plan;
  struct sl__tensor *token;
  float *logits;
  int64_t classes, words, steps; /* words: classes that may be drawn */
};

static enum sl_status check(const struct sl_model *model, const struct sl_generate_options *o,
                            int64_t count, int64_t classes) {
  enum sl_status status = sl__model_check_steps(model, SL_BAD_ARGUMENT, "sl_generate");
  int64_t words = sl__model_words(model);
  if (status != SL_OK) return status;
  if (count < 0 || o->prompt_count < 1)
    return sl__fail(SL_BAD_ARGUMENT,
                    "%lld tokens after a prompt of %lld; a prompt needs at least one token",
                    (long long)count, (long long)o->prompt_count);
  if (!o->prompt)
    return sl__fail(SL_BAD_ARGUMENT, "a prompt of %lld tokens, but prompt is NULL",
                    (long long)o->prompt_count);
  if (!(o->temperature >= 0) || !isfinite(o->temperature))
    return sl__fail(SL_BAD_ARGUMENT, "temperature %g: must be 0 or more", (double)o->temperature);
  if (o->words < 0 || o->words > classes)
    return sl__fail(SL_BAD_ARGUMENT, "%lld words to draw from: must be 0 to %lld, the model's",
                    (long long)o->words, (long long)classes);
  for (int i = 0; i < model->count; i++)
    if (model->layers[i].context && count - 1 > model->layers[i].context - o->prompt_count)
      return sl__fail(
          SL_BAD_ARGUMENT,
          "%lld tokens after a prompt of %lld: layer %s (%s) takes sequences of at most "
          "%lld steps; generate fewer, or set its context",
          (long long)count, (long long)o->prompt_count, model->layers[i].name,
          model->layers[i].kind->name, (long long)model->layers[i].context);
  for (int64_t i = 0; i < o->prompt_count; i++)
    if (o->prompt[i] < 0 || o->prompt[i] >= words)
      return sl__fail(SL_BAD_ARGUMENT,
                      "token %lld of the prompt is %d, but the model has 0 to %lld", (long long)i,
                      o->prompt[i], (long long)words - 1);
  if (classes > words)
    return sl__fail(
        SL_BAD_ARGUMENT,
        "the model's output has %lld words, but its embedding only %lld; a word that is "
        "drawn must be an input, too",
        (long long)classes, (long long)words);
  return SL_OK;
}

/* The last layer's output as floats. */
static enum sl_status read_logits(struct generator *g) {
  struct sl__tensor *y = g->plan->slices[0].y[g->plan->model->count - 1];
  const char *codes = (const char *)g->logits;
  enum sl_status status = sl__tensor_read(y, g->logits);
  if (status != SL_OK || y->type != SL_BF16) return status;
  for (int64_t c = g->classes - 1; c >= 0; c--) { /* in place, from the end */
    uint16_t code;
    memcpy(&code, codes + (size_t)c * sizeof code, sizeof code);
    g->logits[c] = sl__bf16_value(code);
  }
  return SL_OK;
}

/* The model reads one token; logits gets its output if `answer`. */
static enum sl_status feed(struct generator *g, int32_t token, bool answer) {
  enum sl_status status;
  const struct sl__step step = {
      .carry = g->steps > 0, .keep = true, .position = g->steps++, .x = g->token};
  SL__TRY(sl__tensor_write(g->token, &token));
  /* a predictor's threads may submit meanwhile, and both may need the same scratch memory */
  starpu_pthread_mutex_lock(&g->context->submit_mutex);
  status = sl__plan_submit(g->plan, &step);
  starpu_pthread_mutex_unlock(&g->context->submit_mutex);
  if (status == SL_OK && answer) status = read_logits(g);
out:
  return status;
}

/* A token drawn from softmax(logits / temperature); at temperature 0 the likeliest one, of equal
 * ones the first. */
static enum sl_status draw(const struct generator *g, float temperature, float uniform,
                           int32_t *token) {
  double sum = 0, at = 0;
  int32_t best = 0, last = (int32_t)g->words - 1;
  for (int32_t c = 0; c <= last; c++) {
    if (!isfinite(g->logits[c]))
      return sl__fail(SL_NOT_FINITE, "the model's output is not finite; are its weights trained?");
    if (g->logits[c] > g->logits[best]) best = c;
  }
  *token = best;
  if (temperature <= 0) return SL_OK;
  double most = (double)g->logits[best], scale = 1 / (double)temperature;
  for (int32_t c = 0; c <= last; c++) sum += exp(((double)g->logits[c] - most) * scale);
  for (int32_t c = 0; c <= last; c++) {
    at += exp(((double)g->logits[c] - most) * scale);
    if (at <= (double)uniform * sum) continue;
    *token = c;
    break;
  }
  return SL_OK;
}

static enum sl_status open_generator(struct sl_model *model, enum sl_math math,
                                     struct generator *g) {
  const struct sl_trainer_options options = {.replicas = 1, .math = math};
  enum sl_status status;
  SL__TRY(sl__grid_new(model, &options, &g->grid));
  g->context = model->context;
  starpu_pthread_mutex_lock(&g->context->submit_mutex);
  status = sl__plan_new(model, &g->grid, 1, 1, false, &g->plan);
  starpu_pthread_mutex_unlock(&g->context->submit_mutex);
  if (status != SL_OK) return status;
  SL__TRY(sl__tensor_host(model->context, &SL_SHAPE(1, 1), SL_I32, NULL, &g->token));
  g->logits = sl__alloc((size_t)g->classes, sizeof *g->logits, "a model's output");
  if (!g->logits) status = SL_NO_MEMORY;
out:
  return status;
}

enum sl_status sl_generate(struct sl_model *model, const struct sl_generate_options *options,
                           int64_t count, int32_t *tokens) {
  SL__NEEDS(model, options, tokens);
  struct generator g = {0};
  enum sl_status status;
  SL__TRY(sl_model_build(model));
  const struct sl_shape *out = sl_model_output(model);
  g.classes = out->dim[out->ndim - 1];
  SL__TRY(check(model, options, count, g.classes));
  g.words = options->words ? options->words : g.classes;
  SL__TRY(open_generator(model, options->math, &g));
  for (int64_t i = 0; i < options->prompt_count && count; i++)
    SL__TRY(feed(&g, options->prompt[i], i == options->prompt_count - 1));
  for (int64_t i = 0; i < count; i++) {
    float uniform = sl__uniform(options->seed, sl__stream(SL__STREAM_SAMPLE, 0), (uint64_t)i);
    SL__TRY(draw(&g, options->temperature, uniform, &tokens[i]));
    if (i + 1 < count) SL__TRY(feed(&g, tokens[i], true));
  }
out:
  sl__plan_free(g.plan);
  sl__tensor_free(g.token);
  sl__grid_clear(&g.grid);
  free(g.logits);
  return status;
}
