/* Initial weights. A value depends on (seed, "layer.suffix", index) only: a layer that is added or
 * moved changes no other layer's weights. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/random.h"
#include "core/base/hash.h"
#include "nn/layer.h"

static const char *const names[] = {
    [SL_INIT_DEFAULT] = "default", [SL_INIT_XAVIER] = "xavier", [SL_INIT_HE] = "he",
    [SL_INIT_UNIFORM] = "uniform", [SL_INIT_ZERO] = "zero",     [SL_INIT_NORMAL] = "normal"};

const char *sl_init_name(enum sl_init init) {
  return (size_t)init < sizeof names / sizeof *names ? names[init] : "?";
}

enum sl_status sl_init_parse(const char *name, enum sl_init *init) {
  SL__NEEDS(name, init);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(name, names[i])) {
      *init = (enum sl_init)i;
      return SL_OK;
    }
  return sl__fail(SL_BAD_ARGUMENT,
                  "'%s': unknown; there are default, xavier, he, uniform, zero and normal", name);
}

static void fill(float *values, int64_t count, float value) {
  for (int64_t i = 0; i < count; i++) values[i] = value;
}

/* U(-bound, bound): the numbers of sl__uniform, four from each block. */
static void fill_uniform(float *values, int64_t count, uint64_t seed, uint64_t stream,
                         double bound) {
  struct sl__random4 block = {{0}};
  for (int64_t i = 0; i < count; i++) {
    if (i % 4 == 0) block = sl__philox(seed, stream, (uint64_t)i / 4);
    values[i] = (float)(bound * (2.0 * sl__unit(block.v[i % 4]) - 1.0));
  }
}

static void fill_normal(float *values, int64_t count, uint64_t seed, uint64_t stream,
                        double deviation) {
  for (int64_t i = 0; i < count; i++)
    values[i] = (float)(deviation * sl__normal(seed, stream, (uint64_t)i));
}

/* nn.Embedding, which a table of positions is in PyTorch, too, draws from N(0, 1); every other
 * default comes from the weight's fan_in. */
static void fill_default(const struct sl__layer *layer, const struct sl__param *part, float *values,
                         int64_t count, uint64_t seed, uint64_t stream) {
  if (layer->kind == &sl__embedding_kind || layer->kind == &sl__position_kind)
    fill_normal(values, count, seed, stream, 1.0);
  else
    fill_uniform(values, count, seed, stream, 1.0 / sqrt((double)part->fan_in));
}

static void fill_drawn(const struct sl__layer *layer, const struct sl__param *part, float *values,
                       uint64_t seed) {
  int64_t count = sl_shape_count(&part->shape);
  double fan_in = (double)part->fan_in, fan_out = (double)part->fan_out;
  uint64_t stream = sl__stream(SL__STREAM_INIT, sl__hash_name(part->name));
  switch (layer->init) {
    case SL_INIT_DEFAULT: fill_default(layer, part, values, count, seed, stream); break;
    case SL_INIT_XAVIER:
      fill_uniform(values, count, seed, stream, sqrt(6.0 / (fan_in + fan_out)));
      break;
    case SL_INIT_HE: fill_normal(values, count, seed, stream, sqrt(2.0 / fan_in)); break;
    case SL_INIT_UNIFORM: fill_uniform(values, count, seed, stream, 0.07); break;
    case SL_INIT_ZERO: fill(values, count, 0.0f); break;
    case SL_INIT_NORMAL: fill_normal(values, count, seed, stream, (double)layer->deviation); break;
  }
}

/* With SL_INIT_ZERO the weight of a batch normalisation is zero, too: its residual branch adds
 * nothing at first (Goyal et al., arXiv 1706.02677, section 5.1). */
static void fill_parameter(const struct sl__layer *layer, const struct sl__param *part,
                           float *values, uint64_t seed) {
  int64_t count = sl_shape_count(&part->shape);
  if (layer->init == SL_INIT_ZERO || (part->is_bias && layer->init != SL_INIT_DEFAULT))
    fill(values, count, 0.0f);
  else if (part->is_filled)
    fill(values, count, part->fill);
  else
    fill_drawn(layer, part, values, seed);
}

enum sl_status sl__layer_check_init(const struct sl__layer *layer) {
  double deviation = (double)layer->deviation;
  if ((unsigned)layer->init > SL_INIT_NORMAL)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT, "%d is no kind of initial weights (SL_INIT_*)",
                          (int)layer->init);
  if (layer->init == SL_INIT_NORMAL && !(deviation > 0 && isfinite(deviation)))
    return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                          "deviation is %g; init normal needs one above 0 and finite, such as 0.02",
                          deviation);
  if (layer->init != SL_INIT_NORMAL && deviation != 0)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                          "deviation is %g, but init is %s; a deviation belongs to init normal",
                          deviation, sl_init_name(layer->init));
  return SL_OK;
}

enum sl_status sl__layer_initialise(const struct sl__layer *layer, uint64_t seed) {
  enum sl_status status = SL_OK;
  const struct sl__block *params = &layer->params, *buffers = &layer->buffers;
  int64_t most = params->total > buffers->total ? params->total : buffers->total;
  if (most == 0) return SL_OK;
  float *values = sl__alloc((size_t)most, sizeof *values, "initial weights");
  if (!values) return SL_NO_MEMORY;
  for (int i = 0; i < params->count; i++)
    fill_parameter(layer, &params->part[i], values + params->part[i].offset, seed);
  if (params->total) SL__TRY(sl__tensor_write(params->tensor, values));
  for (int i = 0; i < buffers->count; i++) {
    const struct sl__param *part = &buffers->part[i];
    fill(values + part->offset, sl_shape_count(&part->shape), part->fill);
  }
  if (buffers->total) SL__TRY(sl__tensor_write(buffers->tensor, values));
out:
  free(values);
  return status;
}
