/* Datasets that the library opens: generated ones, and folders. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "tools/predict/failure.h"
#include "tools/predict/sample_format.h"

const struct sl_dataset_format *dataset_kind(const char *name) {
  const struct sl_dataset_format *kind = sl_dataset_detect(name);
  return kind && (!kind->generated || access(name, F_OK) != 0) ? kind : NULL;
}

/* ---- numbers ---- */

/* Are its samples read without targets, all of them? A table has the inputs' columns then, whatever
 * others there are, and an .npy file, or a slice of it, the inputs. */
static bool is_inputs_only(const struct samples *s) {
  const char *name = s->path, *slice = strcasestr(name, ".npy[");
  size_t length = slice ? (size_t)(slice - name) + 4 : strlen(name), suffix = strlen(".npy");
  return (length > suffix && !strncasecmp(name + length - suffix, ".npy", suffix)) ||
         (s->kind->own && !strcmp(s->kind->name, "a table"));
}

static int not_a_number(const struct samples *s, int64_t at) {
  return fail(EXIT_FAILED, "%s: value %lld of sample %lld is infinite or not a number", s->path,
              (long long)at, (long long)s->index);
}

static int not_normal(const struct samples *s, int64_t at) {
  return fail(EXIT_FAILED,
              "%s: value %lld of sample %lld is too large for f32 when it is normalised as in the "
              "model's training",
              s->path, (long long)at, (long long)s->index);
}

/* Numbers as the model's training normalised them. Where it was trained on bytes, so are these. A
 * missing field of a table, which the training allowed, becomes the training's mean. */
static int normalise_inputs(const struct samples *s, float *values) {
  const struct sl_dataset_info *info = sl_dataset_info(s->set);
  const struct sl_model_notes *notes = s->options->preparation.notes;
  int64_t first = info->sample.dim[0], plane = sl_shape_count(&info->sample) / first;
  float scale = info->missing && notes->channels && !notes->values ? 1.0f / 255 : 1.0f;
  for (int64_t c = 0; c < first; c++) {
    int from = info->channels > 1 ? (int)c : 0, to = notes->channels > 1 ? (int)c : 0;
    for (int64_t i = 0; i < plane; i++) {
      float *value = &values[c * plane + i],
            raw = scale * (*value * info->deviation[from] + info->mean[from]);
      if (s->options->preparation.invert) raw = 1 - raw;
      if (isnan(raw) && info->column_count && notes->channels) raw = notes->mean[to];
      if (!isfinite(raw)) return not_a_number(s, c * plane + i);
      if (notes->channels) *value = (raw - notes->mean[to]) / notes->deviation[to];
      if (!isfinite(*value)) return not_normal(s, c * plane + i);
    }
  }
  return EXIT_DONE;
}

static int next_of_values(struct samples *s, float *values, int64_t *label, bool *none) {
  const struct sl_dataset_info *info = sl_dataset_info(s->set);
  int32_t class = -1;
  *none = s->index == s->count;
  if (*none) return EXIT_DONE;
  enum sl_status status = info->target.ndim
                              ? sl_dataset_get_targets(s->set, s->index, values, (float *)s->bytes)
                              : sl_dataset_get(s->set, s->index, values, &class);
  if (status != SL_OK) return fail_library(status);
  *label = class;
  return normalise_inputs(s, values);
}

static const struct sample_format values_format = {.is_values = true, .next = next_of_values};

/* Folders of pictures for a model that takes some: their reader can give them the model's size. */
static bool are_pictures(const struct samples *s) {
  return s->options->preparation.pictures && !strcmp(s->kind->name, "pictures");
}

static int open_values(struct samples *s, const struct sl_dataset_info *info) {
  char have[96], want[96], why[256];
  s->format = &values_format;
  s->bytes = info->target.ndim ? calloc((size_t)sl_shape_count(&info->target), sizeof(float))
                               : calloc(1, 1);
  if (!s->bytes) return fail_memory();
  if (s->options->preparation.invert && !are_pictures(s))
    return samples_bad(s, "holds numbers, no pictures: leave --invert out");
  if (sl_shape_equal(&info->sample, &s->options->preparation.shape)) return EXIT_DONE;
  snprintf(why, sizeof why, "has samples %s, but the model takes %s%s",
           sl_shape_text(&info->sample, have, sizeof have),
           sl_shape_text(&s->options->preparation.shape, want, sizeof want),
           are_pictures(s) ? "; --resize gives them this size" : "");
  return samples_bad(s, why);
}

/* ---- pictures ---- */

/* How the samples are read, for the model's inputs. Those with names are arrays of these names, or
 * of those that --inputs gives, whatever others there are. */
static void choose_reading(struct samples *s, struct sl_reader_options *options) {
  const struct sl_model_notes *notes = s->options->preparation.notes;
  const struct preparation *preparation = &s->options->preparation;
  bool own = s->kind->own && !s->kind->generated;
  options->seed = s->options->seed;
  options->skip_bad = s->options->skip_bad;
  if (own && s->options->fold) snprintf(s->fold, sizeof s->fold, "fold:%s", s->options->fold);
  if (own) options->validation = s->options->fold ? s->fold : s->options->validation;
  if (own && preparation->resize != SL__RESIZE_NONE && are_pictures(s)) {
    options->height = preparation->shape.dim[1];
    options->width = preparation->shape.dim[2];
  }
  options->inputs = s->options->arrays;
  if (is_inputs_only(s)) {
    options->inputs_only = true;
    options->column_count = notes->column_count;
    options->columns = notes->columns;
  } else if ((s->options->arrays || *s->options->inputs) && !strcmp(s->kind->name, "arrays")) {
    options->inputs_only = true;
    if (!s->options->arrays) options->inputs = s->options->inputs;
    if (*s->options->tokens) options->tokens = s->options->tokens;
  }
}

static int open_dataset(struct samples *s) {
  struct sl_reader_options options = {0};
  choose_reading(s, &options);
  if (options.inputs_only && (s->options->validation || s->options->fold))
    return samples_bad(s, "all of it is read, without targets; leave --validation and --fold out");
  enum sl_status status = sl_dataset_read(s->path, &options, s->options->train, &s->set);
  if (status == SL_BAD_FILE && !options.inputs_only && strstr(sl_error(), "has no array \"y\""))
    return fail(EXIT_FAILED, "%s; --inputs x answers all of x, without targets", sl_error());
  if (status != SL_OK) return fail_library(status);
  const struct sl_dataset_info *info = sl_dataset_info(s->set);
  const int64_t *dim = info->sample.dim;
  s->count = info->count;
  if (info->left_out) remark("%s", info->name);
  if (!info->bytes) return open_values(s, info);
  if (!s->options->preparation.pictures)
    return samples_bad(s, "the model takes no pictures, and these are some");
  const char *why = sl__picture_room(&s->picture, dim[2], dim[1], (int)dim[0]);
  if (why) return samples_bad(s, why);
  s->size = (size_t)sl_shape_count(&info->sample) * sizeof(float);
  s->bytes = malloc(s->size);
  s->picture.most = 255;
  return s->bytes ? EXIT_DONE : fail_memory();
}

/* Turns the values back into bytes, which are then normalised for the model. */
static int next_of_dataset(struct samples *s, float *values, int64_t *label, bool *none) {
  const struct sl_dataset_info *info = sl_dataset_info(s->set);
  int64_t channels = info->sample.dim[0], plane = info->sample.dim[1] * info->sample.dim[2];
  float *floats = (float *)s->bytes;
  int32_t class;
  (void)values;
  *none = s->index == s->count;
  if (*none) return EXIT_DONE;
  enum sl_status status = sl_dataset_get(s->set, s->index, floats, &class);
  if (status != SL_OK) return fail_library(status);
  for (int64_t c = 0; c < channels; c++) {
    int k = info->channels > 1 ? (int)c : 0;
    for (int64_t i = 0; i < plane; i++)
      s->picture.values[i * channels + c] =
          (uint16_t)lrintf((floats[c * plane + i] * info->deviation[k] + info->mean[k]) * 255);
  }
  *label = class;
  return EXIT_DONE;
}

const struct sample_format dataset_format = {.open = open_dataset, .next = next_of_dataset};
