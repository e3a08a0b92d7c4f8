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
  free((float *)metadata->target_mean);
  *metadata = (struct sl_model_notes){0};
}

void sl__metadata_free(struct sl_model *model) { clear(&model->metadata); }

/* The last dimension other than 1: 10 for [10], for [10, 1, 1] and for seven positions [7, 10]. */
static int64_t count_classes(const struct sl_shape *output) {
  int last = output->ndim - 1;
  while (last > 0 && output->dim[last] == 1) last--;
  return output->dim[last];
}

/* what: "input" or "output", whose first axis has `axis` entries. */
static enum sl_status check_normal(const char *what, int count, int64_t axis, const float *mean,
                                   const float *deviation) {
  if (count && count != 1 && count != axis)
    return sl__fail(SL_BAD_ARGUMENT,
                    "normalisation for %d channels: the model's %s has %lld; give one for all, or "
                    "one each",
                    count, what, (long long)axis);
  for (int c = 0; c < count; c++)
    if (!isfinite(mean[c]) || !isfinite(deviation[c]) || deviation[c] == 0)
      return sl__fail(SL_BAD_ARGUMENT, "normalisation: channel %d has mean %g and deviation %g", c,
                      (double)mean[c], (double)deviation[c]);
  return SL_OK;
}

static enum sl_status check(const struct sl_model *model, const struct sl_model_notes *metadata) {
  const struct sl_shape *output = sl_model_output(model);
  int64_t classes = count_classes(output);
  enum sl_status status;
  SL__TRY(check_normal("input", metadata->channels, model->sample.dim[0], metadata->mean,
                       metadata->deviation));
  SL__TRY(check_normal("output", metadata->target_channels, output->dim[0], metadata->target_mean,
                       metadata->target_deviation));
  if (metadata->class_count && metadata->class_count != classes)
    return sl__fail(SL_BAD_ARGUMENT, "%d names of classes, but the model has %lld classes",
                    metadata->class_count, (long long)classes);
  for (int i = 0; i < metadata->class_count; i++) {
    json_t *text = json_string(metadata->class_names[i]);
    if (!text) return sl__fail(SL_BAD_ARGUMENT, "the name of class %d is no UTF-8", i);
    json_decref(text);
  }
out:
  return status;
}

/* A copy of the means, which the deviations follow; NULL without memory. */
static float *copy_normal(size_t count, const float *mean, const float *deviation) {
  float *normal = sl__alloc(2 * count, sizeof *normal, "a model's metadata");
  if (!normal) return NULL;
  memcpy(normal, mean, count * sizeof *mean);
  memcpy(normal + count, deviation, count * sizeof *deviation);
  return normal;
}

static enum sl_status copy(const struct sl_model_notes *metadata, struct sl_model_notes *mine) {
  mine->channels = metadata->channels;
  mine->values = metadata->values;
  mine->target_channels = metadata->target_channels;
  if (mine->channels) {
    mine->mean = copy_normal((size_t)mine->channels, metadata->mean, metadata->deviation);
    if (!mine->mean) return SL_NO_MEMORY;
    mine->deviation = mine->mean + mine->channels;
  }
  if (mine->target_channels) {
    mine->target_mean = copy_normal((size_t)mine->target_channels, metadata->target_mean,
                                    metadata->target_deviation);
    if (!mine->target_mean) return SL_NO_MEMORY;
    mine->target_deviation = mine->target_mean + mine->target_channels;
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

static json_t *normal_of(int count, const float *mean, const float *deviation) {
  return json_pack("{s:o, s:o}", "mean", list_of(mean, count), "deviation",
                   list_of(deviation, count));
}

void sl__metadata_write(const struct sl_model *model, json_t **object) {
  const struct sl_model_notes *m = &model->metadata, *metadata = m;
  if (m->channels) {
    json_t *normalize = normal_of(m->channels, m->mean, m->deviation);
    if (m->values) sl__json_set(&normalize, "of", json_string("values"));
    sl__json_set(object, "normalize", normalize);
  }
  if (m->target_channels)
    sl__json_set(object, "targets",
                 normal_of(m->target_channels, m->target_mean, m->target_deviation));
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

/* in: the key of the object that has the list. */
static enum sl_status read_list(const char *path, const char *in, const char *key,
                                const json_t *object, size_t count, float *values) {
  const json_t *list = json_object_get(object, key);
  if (json_array_size(list) != count)
    return bad(path, in, "must have lists \"mean\" and \"deviation\" of one length");
  for (size_t i = 0; i < count; i++) {
    const json_t *value = json_array_get(list, i);
    values[i] = (float)json_number_value(value);
    if (!json_is_number(value)) return bad(path, key, "must be a list of numbers");
  }
  return SL_OK;
}

/* The means, then the deviations, under that key; *entries stays 0 if there are none. */
static enum sl_status read_normal(const char *path, const json_t *object, const char *key,
                                  int *entries, float **room) {
  const json_t *normalize = json_object_get(object, key);
  size_t count = json_array_size(json_object_get(normalize, "mean"));
  if (!normalize) return SL_OK;
  if (count < 1 || count > INT32_MAX)
    return bad(path, key, "must have a \"mean\" and a \"deviation\" for each channel");
  *room = sl__alloc(2 * count, sizeof **room, "a model's metadata");
  if (!*room) return SL_NO_MEMORY;
  enum sl_status status = read_list(path, key, "mean", normalize, count, *room);
  if (status == SL_OK) status = read_list(path, key, "deviation", normalize, count, *room + count);
  *entries = (int)count;
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
  struct sl_model_notes metadata = {0};
  const char **names = NULL, *of;
  float *normal = NULL, *targets = NULL;
  char why[512];
  enum sl_status status;
  SL__TRY(read_normal(path, object, "normalize", &metadata.channels, &normal));
  SL__TRY(read_normal(path, object, "targets", &metadata.target_channels, &targets));
  metadata.mean = normal;
  metadata.deviation = normal ? normal + metadata.channels : NULL;
  metadata.target_mean = targets;
  metadata.target_deviation = targets ? targets + metadata.target_channels : NULL;
  of = json_string_value(json_object_get(json_object_get(object, "normalize"), "of"));
  metadata.values = of && !strcmp(of, "values");
  SL__TRY(read_names(path, object, &metadata, &names));
  status = sl_model_note(model, &metadata);
  if (status == SL_BAD_ARGUMENT) {
    snprintf(why, sizeof why, "%s", sl_error());
    status = sl__fail(SL_BAD_FILE, "%s: %s", path, why);
  }
out:
  free(names);
  free(normal);
  free(targets);
  return status;
}
