/* A model's metadata: the normalisation of its inputs and the names of its classes. Older readers
 * skip these keys and still read the whole model. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "nn/layer.h"

double sl__short_real(float value) {
  char text[32];
  for (int digits = 6; digits <= 9; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, (double)value);
    if (strtof(text, NULL) == value) break;
  }
  return strtod(text, NULL);
}

/* ---- in memory ---- */

const struct sl_model_notes *sl_model_notes(const struct sl_model *model) {
  SL__NEEDS_OR(NULL, model);
  return &model->metadata;
}

static void clear(struct sl_model_notes *metadata) {
  for (int i = 0; metadata->class_names && i < metadata->class_count; i++)
    free((char *)metadata->class_names[i]);
  free((char **)metadata->class_names);
  free((float *)metadata->mean); /* the deviations follow */
  *metadata = (struct sl_model_notes){0};
}

void sl__metadata_free(struct sl_model *model) { clear(&model->metadata); }

/* The last dimension other than 1: 10 for [10], for [10, 1, 1] and for seven positions [7, 10]. */
static int64_t count_classes(const struct sl_shape *output) {
  int last = output->ndim - 1;
  while (last > 0 && output->dim[last] == 1) last--;
  return output->dim[last];
}

static enum sl_status check(const struct sl_model *model, const struct sl_model_notes *metadata) {
  const struct sl_shape *output = sl_model_output(model);
  int64_t channels = model->sample.dim[0], classes = count_classes(output);
  if (metadata->channels && metadata->channels != 1 && metadata->channels != channels)
    return sl__fail(
        SL_BAD_ARGUMENT,
        "normalisation for %d channels: the model's input has %lld; give one for all, or "
        "one each",
        metadata->channels, (long long)channels);
  for (int c = 0; c < metadata->channels; c++)
    if (!isfinite(metadata->mean[c]) || !isfinite(metadata->deviation[c]) ||
        metadata->deviation[c] == 0)
      return sl__fail(SL_BAD_ARGUMENT, "normalisation: channel %d has mean %g and deviation %g", c,
                      metadata->mean[c], metadata->deviation[c]);
  if (metadata->class_count && metadata->class_count != classes)
    return sl__fail(SL_BAD_ARGUMENT, "%d names of classes, but the model has %lld classes",
                    metadata->class_count, (long long)classes);
  for (int i = 0; i < metadata->class_count; i++) {
    json_t *text = json_string(metadata->class_names[i]);
    if (!text) return sl__fail(SL_BAD_ARGUMENT, "the name of class %d is no UTF-8", i);
    json_decref(text);
  }
  return SL_OK;
}

static enum sl_status copy(const struct sl_model_notes *metadata, struct sl_model_notes *mine) {
  size_t channels = (size_t)metadata->channels, bytes = channels * sizeof(float);
  if (channels) {
    float *normal = sl__alloc(2 * channels, sizeof *normal, "a model's metadata");
    if (!normal) return SL_NO_MEMORY;
    memcpy(normal, metadata->mean, bytes);
    memcpy(normal + channels, metadata->deviation, bytes);
    *mine = (struct sl_model_notes){
        .channels = metadata->channels, .mean = normal, .deviation = normal + channels};
  }
  if (!metadata->class_count) return SL_OK;
  char **names = sl__alloc((size_t)metadata->class_count, sizeof *names, "names of classes");
  if (!names) return SL_NO_MEMORY;
  mine->class_names = (const char *const *)names;
  for (; mine->class_count < metadata->class_count; mine->class_count++) {
    names[mine->class_count] = sl__strdup(metadata->class_names[mine->class_count]);
    if (!names[mine->class_count]) return SL_NO_MEMORY;
  }
  return SL_OK;
}

enum sl_status sl_model_note(struct sl_model *model, const struct sl_model_notes *notes) {
  SL__NEEDS(model, notes);
  struct sl_model_notes mine = {0};
  enum sl_status status = check(model, notes);
  if (status == SL_OK) status = copy(notes, &mine);
  if (status != SL_OK) {
    clear(&mine);
    return status;
  }
  clear(&model->metadata);
  model->metadata = mine;
  return SL_OK;
}

/* ---- in JSON ---- */

static json_t *list_of(const float *values, int count) {
  json_t *list = json_array();
  for (int i = 0; i < count; i++) sl__json_append(&list, json_real(sl__short_real(values[i])));
  return list;
}

void sl__metadata_write(const struct sl_model *model, json_t **object) {
  const struct sl_model_notes *metadata = &model->metadata;
  if (metadata->channels) {
    json_t *normalize = json_pack("{s:o, s:o}", "mean", list_of(metadata->mean, metadata->channels),
                                  "deviation", list_of(metadata->deviation, metadata->channels));
    sl__json_set(object, "normalize", normalize);
  }
  if (metadata->class_count) {
    json_t *names = json_array();
    for (int i = 0; i < metadata->class_count; i++)
      sl__json_append(&names, json_string(metadata->class_names[i]));
    sl__json_set(object, "classes", names);
  }
}

static enum sl_status bad(const char *path, const char *key, const char *what) {
  return sl__fail(SL_BAD_FILE, "%s: \"%s\" %s", path, key, what);
}

static enum sl_status read_list(const char *path, const char *key, const json_t *object,
                                size_t count, float *values) {
  const json_t *list = json_object_get(object, key);
  if (json_array_size(list) != count)
    return bad(path, "normalize", "must have lists \"mean\" and \"deviation\" of one length");
  for (size_t i = 0; i < count; i++) {
    const json_t *value = json_array_get(list, i);
    values[i] = (float)json_number_value(value);
    if (!json_is_number(value)) return bad(path, key, "must be a list of numbers");
  }
  return SL_OK;
}

static enum sl_status read_normal(const char *path, const json_t *object, size_t most,
                                  struct sl_model_notes *metadata, float **room) {
  const json_t *normalize = json_object_get(object, "normalize");
  size_t count = json_array_size(json_object_get(normalize, "mean"));
  if (!normalize) return SL_OK;
  if (count < 1 || count > most)
    return bad(path, "normalize", "must have a \"mean\" and a \"deviation\" for each channel");
  *room = sl__alloc(2 * count, sizeof **room, "a model's metadata");
  if (!*room) return SL_NO_MEMORY;
  enum sl_status status = read_list(path, "mean", normalize, count, *room);
  if (status == SL_OK) status = read_list(path, "deviation", normalize, count, *room + count);
  metadata->channels = (int)count;
  metadata->mean = *room;
  metadata->deviation = *room + count;
  return status;
}

static enum sl_status read_names(const char *path, const json_t *object,
                                 struct sl_model_notes *metadata, const char ***room) {
  const json_t *classes = json_object_get(object, "classes");
  size_t count = json_array_size(classes);
  if (!classes) return SL_OK;
  if (count < 1 || count > INT32_MAX) return bad(path, "classes", "must be a list of names");
  *room = sl__alloc(count, sizeof **room, "names of classes");
  if (!*room) return SL_NO_MEMORY;
  for (size_t i = 0; i < count; i++) {
    (*room)[i] = json_string_value(json_array_get(classes, i));
    if (!(*room)[i]) return bad(path, "classes", "must be a list of names");
  }
  metadata->class_count = (int)count;
  metadata->class_names = *room;
  return SL_OK;
}

enum sl_status sl__metadata_read(struct sl_model *model, const char *path, const void *object) {
  const size_t most = INT32_MAX;
  struct sl_model_notes metadata = {0};
  const char **names = NULL;
  float *normal = NULL;
  char why[512];
  enum sl_status status;
  SL__TRY(read_normal(path, object, most, &metadata, &normal));
  SL__TRY(read_names(path, object, &metadata, &names));
  status = sl_model_note(model, &metadata);
  if (status == SL_BAD_ARGUMENT) {
    snprintf(why, sizeof why, "%s", sl_error());
    status = sl__fail(SL_BAD_FILE, "%s: %s", path, why);
  }
out:
  free(names);
  free(normal);
  return status;
}
