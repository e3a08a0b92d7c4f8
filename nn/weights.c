/* Parameters and buffers by PyTorch's names ("conv1.weight", "bn1.running_mean"), one by one and as
 * safetensors files. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/safetensors.h"
#include "nn/layer.h"

/* ---- walking through a model's state dict ---- */

/* A tensor of the state dict: a part of a layer's block. */
struct state {
  const struct sl__layer *layer;
  const struct sl__block *block;
  const struct sl__param *part;
};

static bool state_at(const struct sl_model *model, int i, struct state *state) {
  for (int l = 0; l < model->count && i >= 0; l++) {
    const struct sl__layer *layer = &model->layers[l];
    const struct sl__block *block = &layer->params;
    if (i >= block->count) {
      i -= block->count;
      block = &layer->buffers;
    }
    if (i < block->count) {
      *state = (struct state){layer, block, &block->part[i]};
      return true;
    }
    i -= block->count;
  }
  return false;
}

static bool find_state(const struct sl_model *model, const char *wanted, struct state *state) {
  for (int i = 0; state_at(model, i, state); i++)
    if (!strcmp(state->part->name, wanted)) return true;
  return false;
}

int sl_model_parameter_count(const struct sl_model *model) {
  SL__NEEDS_OR(0, model);
  int count = 0;
  for (int l = 0; l < model->count; l++)
    count += model->layers[l].params.count + model->layers[l].buffers.count;
  return count;
}

const char *sl_model_parameter(const struct sl_model *model, int i, struct sl_shape *shape) {
  SL__NEEDS_OR(NULL, model);
  struct state state;
  if (!state_at(model, i, &state)) {
    sl__fail(SL_BAD_ARGUMENT, "parameter %d: the model has %d", i, sl_model_parameter_count(model));
    return NULL;
  }
  if (shape) *shape = state.part->shape;
  return state.part->name;
}

int sl__find_parameter(const struct sl_model *model, const char *name) {
  struct state state;
  for (int i = 0; state_at(model, i, &state); i++)
    if (!strcmp(state.part->name, name)) return i;
  return -1;
}

int sl__find_shared(const struct sl_model *model, const char *name) {
  char weight[96];
  for (int i = 0; i < model->count; i++) {
    const struct sl__layer *layer = &model->layers[i];
    snprintf(weight, sizeof weight, "%s.weight", layer->name);
    if (layer->tied_to >= 0 && !strcmp(weight, name))
      return sl__find_parameter(model, model->layers[layer->tied_to].params.part[0].name);
  }
  return -1;
}

/* ---- one tensor ---- */

static enum sl_status find_built(struct sl_model *model, const char *name, struct state *state) {
  enum sl_status status = sl_model_build(model);
  if (status != SL_OK || find_state(model, name, state)) return status;
  return sl__fail(
      SL_BAD_ARGUMENT,
      "the model has no parameter '%s'; names are LAYER.weight, LAYER.bias and the like", name);
}

/* A copy of a block's values; the caller frees it. */
static enum sl_status read_block(const struct sl__block *block, float **values) {
  *values = sl__alloc((size_t)block->total, sizeof **values, "a copy of weights");
  if (!*values) return SL_NO_MEMORY;
  return sl__tensor_read(block->tensor, *values);
}

static size_t part_bytes(const struct sl__param *part) {
  return (size_t)sl_shape_count(&part->shape) * sizeof(float);
}

enum sl_status sl_model_get(struct sl_model *model, const char *parameter, float *values) {
  SL__NEEDS(model, parameter, values);
  enum sl_status status;
  struct state state = {0};
  float *block = NULL;
  SL__TRY(find_built(model, parameter, &state));
  SL__TRY(read_block(state.block, &block));
  memcpy(values, block + state.part->offset, part_bytes(state.part));
out:
  free(block);
  return status;
}

enum sl_status sl_model_set(struct sl_model *model, const char *parameter, const float *values) {
  SL__NEEDS(model, parameter, values);
  enum sl_status status;
  struct state state = {0};
  float *block = NULL;
  SL__TRY(find_built(model, parameter, &state));
  SL__TRY(read_block(state.block, &block));
  memcpy(block + state.part->offset, values, part_bytes(state.part));
  SL__TRY(sl__tensor_write(state.block->tensor, block));
out:
  free(block);
  return status;
}

/* ---- whole models: all blocks are copied, so that all is checked before anything changes ---- */

static struct sl__block *block_at(const struct sl_model *model, int i) {
  struct sl__layer *layer = &model->layers[i / 2];
  return i % 2 ? &layer->buffers : &layer->params;
}

enum sl_status sl__copy_new(const struct sl_model *model, struct sl__copy *copy) {
  copy->blocks = sl__alloc((size_t)model->count * 2, sizeof *copy->blocks, "copies of weights");
  if (!copy->blocks) return SL_NO_MEMORY;
  copy->count = model->count * 2;
  for (int i = 0; i < copy->count; i++) {
    int64_t total = block_at(model, i)->total;
    if (!total) continue;
    copy->blocks[i] = sl__alloc_large((size_t)total, sizeof(float), "a copy of weights");
    if (!copy->blocks[i]) return SL_NO_MEMORY;
  }
  return SL_OK;
}

enum sl_status sl__copy_read(const struct sl_model *model, struct sl__copy *copy) {
  enum sl_status status = SL_OK;
  for (int i = 0; i < copy->count; i++)
    if (copy->blocks[i]) SL__TRY(sl__tensor_read(block_at(model, i)->tensor, copy->blocks[i]));
out:
  return status;
}

enum sl_status sl__copy_write(const struct sl_model *model, const struct sl__copy *copy) {
  enum sl_status status = SL_OK;
  for (int i = 0; i < copy->count; i++)
    if (copy->blocks[i]) SL__TRY(sl__tensor_write(block_at(model, i)->tensor, copy->blocks[i]));
out:
  return status;
}

void sl__copy_free(struct sl__copy *copy) {
  for (int i = 0; i < copy->count; i++) free(copy->blocks[i]);
  free(copy->blocks);
}

/* The tensor's values in the copy. */
static float *values_of(const struct sl__copy *copy, const struct sl_model *model,
                        const struct state *state) {
  long layer = state->layer - model->layers;
  bool is_buffer = state->block == &state->layer->buffers;
  return copy->blocks[2 * layer + is_buffer] + state->part->offset;
}

static enum sl_status check_finite(const char *path, const struct state *state,
                                   const float *values) {
  int64_t count = sl_shape_count(&state->part->shape);
  for (int64_t i = 0; i < count; i++)
    if (!isfinite(values[i]))
      return sl__fail(
          SL_NOT_FINITE,
          "%s: value %lld of %s is %g; did the training diverge (lower the learning rate)?", path,
          (long long)i, state->part->name, (double)values[i]);
  return SL_OK;
}

float *sl__copy_values(const struct sl__copy *copy, const struct sl_model *model, int i) {
  struct state state;
  return state_at(model, i, &state) ? values_of(copy, model, &state) : NULL;
}

enum sl_status sl__copy_check(const struct sl__copy *copy, const struct sl_model *model,
                              const char *path) {
  enum sl_status status = SL_OK;
  struct state state;
  for (int i = 0; state_at(model, i, &state); i++)
    SL__TRY(check_finite(path, &state, values_of(copy, model, &state)));
out:
  return status;
}

/* ---- saving ---- */

static enum sl_status write_copy(const struct sl_model *model, const char *path,
                                 const struct sl__copy *copy) {
  static const char *const metadata[] = {"format", "pt", "producer", "starling", NULL};
  enum sl_status status = SL_NO_MEMORY;
  struct state state;
  size_t count = (size_t)sl_model_parameter_count(model);
  struct sl__safetensors_entry *entries = sl__alloc(count, sizeof *entries, "a file's entries");
  if (!entries) goto out;
  for (int i = 0; state_at(model, i, &state); i++)
    entries[i] = (struct sl__safetensors_entry){.name = state.part->name,
                                                .dtype = "F32",
                                                .shape = state.part->shape,
                                                .data = values_of(copy, model, &state),
                                                .bytes = part_bytes(state.part)};
  status = sl__safetensors_write(path, entries, count, metadata, NULL);
out:
  free(entries);
  return status;
}

enum sl_status sl__weights_save(struct sl_model *model, const char *path) {
  enum sl_status status;
  struct sl__copy copy = {0};
  SL__TRY(sl_model_build(model));
  SL__TRY(sl__copy_new(model, &copy));
  SL__TRY(sl__copy_read(model, &copy));
  SL__TRY(sl__copy_check(&copy, model, path));
  SL__TRY(write_copy(model, path, &copy));
out:
  sl__copy_free(&copy);
  return status;
}

/* ---- loading ---- */

/* PyTorch stores a count of batches with the running statistics, for a momentum that Starling does
 * not have. */
bool sl__is_batch_count(const char *name) {
  const char *suffix = strrchr(name, '.');
  return suffix && !strcmp(suffix, ".num_batches_tracked");
}

enum sl_status sl__check_shared(struct sl_model *model, const struct sl__safetensors *file,
                                const struct sl__copy *copy, const char *entry, const char *name,
                                bool *found) {
  struct state own;
  *found = state_at(model, sl__find_shared(model, name), &own);
  if (!*found) return SL_OK;
  const struct sl__param *part = own.part;
  float *values = sl__alloc((size_t)sl_shape_count(&part->shape), sizeof *values, name);
  if (!values) return SL_NO_MEMORY;
  enum sl_status status = sl__safetensors_floats(file, entry, &part->shape, values);
  if (status == SL_OK && memcmp(values, values_of(copy, model, &own), part_bytes(part)))
    status = sl__fail(SL_BAD_FILE,
                      "%s: \"%.60s\" and \"%.60s\" differ, but the model has one weight for both "
                      "layers; it was trained without sharing",
                      sl__safetensors_path(file), entry, part->name);
  free(values);
  return status;
}

static enum sl_status check_surplus(struct sl_model *model, const struct sl__safetensors *file,
                                    const struct sl__copy *copy) {
  struct state state;
  for (size_t i = 0; i < sl__safetensors_count(file); i++) {
    const char *name = sl__safetensors_at(file, i)->name;
    bool shared;
    enum sl_status status = sl__check_shared(model, file, copy, name, name, &shared);
    if (status != SL_OK) return status;
    if (!shared && !find_state(model, name, &state) && !sl__is_batch_count(name))
      return sl__fail(SL_BAD_FILE,
                      "%s: tensor \"%.60s\" belongs to no layer; is it of another model?",
                      sl__safetensors_path(file), name);
  }
  return SL_OK;
}

/* The parameter's name in the file: its own, or another layer's that shares it. PyTorch's tools may
 * keep any one of these names. */
static const char *name_in(const struct sl_model *model, const struct sl__safetensors *file, int i,
                           const char *own) {
  if (sl__safetensors_find(file, own)) return own;
  for (size_t k = 0; k < sl__safetensors_count(file); k++) {
    const char *name = sl__safetensors_at(file, k)->name;
    if (sl__find_shared(model, name) == i) return name;
  }
  return own;
}

static enum sl_status copy_file(const struct sl_model *model, const struct sl__safetensors *file,
                                struct sl__copy *copy) {
  enum sl_status status = SL_OK;
  struct state state;
  for (int i = 0; state_at(model, i, &state); i++) {
    const char *name = name_in(model, file, i, state.part->name);
    SL__TRY(sl__safetensors_floats(file, name, &state.part->shape, values_of(copy, model, &state)));
  }
  SL__TRY(sl__copy_check(copy, model, sl__safetensors_path(file)));
out:
  return status;
}

enum sl_status sl__weights_load(struct sl_model *model, const char *path) {
  enum sl_status status;
  struct sl__safetensors *file = NULL;
  struct sl__copy copy = {0};
  SL__TRY(sl_model_build(model));
  SL__TRY(sl__safetensors_open(path, &file));
  SL__TRY(sl__copy_new(model, &copy));
  SL__TRY(copy_file(model, file, &copy));
  SL__TRY(check_surplus(model, file, &copy));
  status = sl__copy_write(model, &copy);
out:
  sl__copy_free(&copy);
  sl__safetensors_close(file);
  return status;
}
