/* What a model's layers do not say: how its inputs were normalised, and what its classes are
 * called. Older readers pass these keys over, and lose nothing of the model itself. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

const struct sl_model_notes *sl_model_notes(const struct sl_model *model) { return &model->notes; }

static void clear(struct sl_model_notes *notes) {
  for (int i = 0; notes->class_names && i < notes->class_count; i++)
    free((char *)notes->class_names[i]);
  free((char **)notes->class_names);
  free((float *)notes->mean); /* the deviations are behind them */
  *notes = (struct sl_model_notes){0};
}

void sl__metadata_free(struct sl_model *model) { clear(&model->notes); }

/* The last dimension that is not 1: of [10], [10, 1, 1] and, for each of 7 positions, [7, 10]. */
static int64_t count_classes(const struct sl_shape *output) {
  int last = output->ndim - 1;
  while (last > 0 && output->dim[last] == 1) last--;
  return output->dim[last];
}

static enum sl_status check(const struct sl_model *model, const struct sl_model_notes *notes) {
  const struct sl_shape *output = sl_model_output(model);
  int64_t channels = model->sample.dim[0], classes = count_classes(output);
  if (notes->channels && notes->channels != 1 && notes->channels != channels)
    return sl__fail(
        SL_BAD_ARGUMENT,
        "normalisation for %d channels: the model's input has %lld; give one for all, or "
        "one each",
        notes->channels, (long long)channels);
  for (int c = 0; c < notes->channels; c++)
    if (!isfinite(notes->mean[c]) || !isfinite(notes->deviation[c]) || notes->deviation[c] == 0)
      return sl__fail(SL_BAD_ARGUMENT, "normalisation: channel %d has mean %g and deviation %g", c,
                      notes->mean[c], notes->deviation[c]);
  if (notes->class_count && notes->class_count != classes)
    return sl__fail(SL_BAD_ARGUMENT, "%d names of classes: the model has %lld", notes->class_count,
                    (long long)classes);
  for (int i = 0; i < notes->class_count; i++) {
    json_t *text = json_string(notes->class_names[i]);
    if (!text) return sl__fail(SL_BAD_ARGUMENT, "the name of class %d is no UTF-8", i);
    json_decref(text);
  }
  return SL_OK;
}

static enum sl_status copy(const struct sl_model_notes *notes, struct sl_model_notes *mine) {
  size_t channels = (size_t)notes->channels, bytes = channels * sizeof(float);
  if (channels) {
    float *normal = sl__alloc(2 * channels, sizeof *normal, "a model's notes");
    if (!normal) return SL_NO_MEMORY;
    memcpy(normal, notes->mean, bytes);
    memcpy(normal + channels, notes->deviation, bytes);
    *mine = (struct sl_model_notes){
        .channels = notes->channels, .mean = normal, .deviation = normal + channels};
  }
  if (!notes->class_count) return SL_OK;
  char **names = sl__alloc((size_t)notes->class_count, sizeof *names, "names of classes");
  if (!names) return SL_NO_MEMORY;
  mine->class_names = (const char *const *)names;
  for (; mine->class_count < notes->class_count; mine->class_count++) {
    names[mine->class_count] = sl__strdup(notes->class_names[mine->class_count]);
    if (!names[mine->class_count]) return SL_NO_MEMORY;
  }
  return SL_OK;
}

enum sl_status sl_model_note(struct sl_model *model, const struct sl_model_notes *notes) {
  struct sl_model_notes mine = {0};
  enum sl_status status = check(model, notes);
  if (status == SL_OK) status = copy(notes, &mine);
  if (status != SL_OK) {
    clear(&mine);
    return status;
  }
  clear(&model->notes);
  model->notes = mine;
  return SL_OK;
}

/* ---- in the text ---- */

static json_t *list_of(const float *values, int count) {
  json_t *list = json_array();
  for (int i = 0; i < count; i++) json_array_append_new(list, json_real(sl__short_real(values[i])));
  return list;
}

bool sl__metadata_write(const struct sl_model *model, void *object) {
  const struct sl_model_notes *notes = &model->notes;
  bool whole = true;
  if (notes->channels) {
    json_t *normalize = json_pack("{s:o, s:o}", "mean", list_of(notes->mean, notes->channels),
                                  "deviation", list_of(notes->deviation, notes->channels));
    whole = json_object_set_new(object, "normalize", normalize) == 0;
  }
  if (notes->class_count) {
    json_t *names = json_array();
    for (int i = 0; i < notes->class_count; i++)
      json_array_append_new(names, json_string(notes->class_names[i]));
    whole &= json_object_set_new(object, "classes", names) == 0;
  }
  return whole;
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
                                  struct sl_model_notes *notes, float **room) {
  const json_t *normalize = json_object_get(object, "normalize");
  size_t count = json_array_size(json_object_get(normalize, "mean"));
  if (!normalize) return SL_OK;
  if (count < 1 || count > most)
    return bad(path, "normalize", "must have a \"mean\" and a \"deviation\" for each channel");
  *room = sl__alloc(2 * count, sizeof **room, "a model's notes");
  if (!*room) return SL_NO_MEMORY;
  enum sl_status status = read_list(path, "mean", normalize, count, *room);
  if (status == SL_OK) status = read_list(path, "deviation", normalize, count, *room + count);
  notes->channels = (int)count;
  notes->mean = *room;
  notes->deviation = *room + count;
  return status;
}

static enum sl_status read_names(const char *path, const json_t *object,
                                 struct sl_model_notes *notes, const char ***room) {
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
  notes->class_count = (int)count;
  notes->class_names = *room;
  return SL_OK;
}

enum sl_status sl__metadata_read(struct sl_model *model, const char *path, const void *object) {
  const size_t most = INT32_MAX;
  struct sl_model_notes notes = {0};
  const char **names = NULL;
  float *normal = NULL;
  char why[512];
  enum sl_status status;
  SL__TRY(read_normal(path, object, most, &notes, &normal));
  SL__TRY(read_names(path, object, &notes, &names));
  status = sl_model_note(model, &notes);
  if (status == SL_BAD_ARGUMENT) {
    snprintf(why, sizeof why, "%s", sl_error());
    status = sl__fail(SL_BAD_FILE, "%s: %s", path, why);
  }
out:
  free(names);
  free(normal);
  return status;
}
