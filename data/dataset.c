/* Datasets: the functions that all kinds share. */
#include "data/dataset.h"

#include <math.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"

/* Values of a sample; 0 if the sample or the floats of the whole set would be too many. */
static size_t count_values(const struct sl_shape *sample, int64_t count) {
  size_t values = 1, whole;
  if (sample->ndim < 1 || sample->ndim > SL_MAX_DIMS - 1)
    return 0; /* the batch is a dimension, too */
  for (int i = 0; i < sample->ndim; i++)
    if (sample->dim[i] < 1 || __builtin_mul_overflow(values, (size_t)sample->dim[i], &values))
      return 0;
  if (__builtin_mul_overflow(values, (size_t)count * sizeof(float), &whole)) return 0;
  return values;
}

static enum sl_status check_info(const struct sl_dataset_info *info) {
  bool has_targets = info->target.ndim > 0;
  if (info->count < 1 || info->count > UINT32_MAX)
    return sl__fail(SL_BAD_ARGUMENT, "%s: %lld samples; a dataset has 1 to %lld", info->name,
                    (long long)info->count, (long long)UINT32_MAX);
  if (has_targets && info->classes)
    return sl__fail(SL_BAD_ARGUMENT, "%s: %d classes beside targets; give one of them", info->name,
                    info->classes);
  if (!has_targets && (info->classes < 1 || info->classes > SL_MAX_CLASSES))
    return sl__fail(SL_BAD_ARGUMENT, "%s: %d classes; labels allow 1 to %d", info->name,
                    info->classes, SL_MAX_CLASSES);
  if (count_values(&info->sample, info->count) == 0)
    return sl__fail(SL_BAD_ARGUMENT, "%s: the samples' shape is impossible", info->name);
  if (info->target.ndim < 0 || (has_targets && count_values(&info->target, info->count) == 0))
    return sl__fail(SL_BAD_ARGUMENT, "%s: the targets' shape is impossible", info->name);
  return SL_OK;
}

enum sl_status sl__dataset_begin(const struct sl__dataset_kind *kind, size_t size,
                                 const struct sl_dataset_info *info, struct sl_dataset **result) {
  struct sl_row_field *inputs = NULL, *targets = NULL;
  struct sl_dataset_info all = *info;
  struct sl_dataset *set = NULL;
  enum sl_status status = SL_OK;
  if (info->input_count)
    SL__TRY(sl__fields_copy(info->name, "input", info->inputs, info->input_count, &all.sample,
                            &inputs));
  if (info->target_count)
    SL__TRY(sl__fields_copy(info->name, "target", info->targets, info->target_count, &all.target,
                            &targets));
  all.inputs = inputs;
  all.targets = targets;
  info = &all;
  SL__TRY(check_info(info));
  set = sl__alloc(1, size, "a dataset");
  if (!set) SL__TRY(SL_NO_MEMORY);
  set->kind = kind;
  set->info = *info;
  set->sample_size = count_values(&info->sample, info->count);
  set->label_count = info->tokens ? set->sample_size : info->target.ndim ? 0 : 1;
  set->target_size = info->target.ndim ? count_values(&info->target, info->count) : 0;
  set->info.name = sl__strdup(info->name);
  if (!set->info.name) SL__TRY(SL_NO_MEMORY);
  *result = set;
  return SL_OK;
out:
  sl__fields_free(inputs, info->input_count);
  sl__fields_free(targets, info->target_count);
  free(set);
  return status;
}

void sl_dataset_free(struct sl_dataset *dataset) {
  if (!dataset) return;
  if (dataset->kind->free) dataset->kind->free(dataset);
  free((char *)dataset->info.name);
  sl__fields_free(dataset->info.inputs, dataset->info.input_count);
  sl__fields_free(dataset->info.targets, dataset->info.target_count);
  free(dataset->normal);
  free(dataset->target_normal);
  free(dataset);
}

/* Copies means and deviations into one block; *channels becomes their number. */
static enum sl_status copy_normal(const char *name, const char *what, const struct sl_shape *shape,
                                  const struct sl__normal *from, float **block, int *channels) {
  int count = from->mean || from->deviation ? from->channels : 1;
  if (count != 1 && count != shape->dim[0])
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s: %d means and deviations of %s whose first axis has %lld entries; give 1 "
                    "or %lld",
                    name, count, what, (long long)shape->dim[0], (long long)shape->dim[0]);
  float *copy = sl__alloc(2 * (size_t)count, sizeof *copy, name);
  if (!copy) return SL_NO_MEMORY;
  *block = copy;
  *channels = count;
  for (int c = 0; c < count; c++) {
    copy[c] = from->mean ? from->mean[c] : 0.0f;
    copy[count + c] = from->deviation ? from->deviation[c] : 1.0f;
    if (!isfinite(copy[c]) || !isfinite(copy[count + c]) || copy[count + c] == 0.0f)
      return sl__fail(SL_BAD_ARGUMENT, "%s: channel %d has mean %g and deviation %g", name, c,
                      (double)copy[c], (double)copy[count + c]);
  }
  return SL_OK;
}

/* Class labels among the targets, and tokens among the inputs, stay as they are: each value of the
 * row gets a mean and a deviation of its own. */
static enum sl_status spare_labels(const char *name, const struct sl_row_field *fields, int count,
                                   size_t values, float **normal, int *channels) {
  size_t each = values / (size_t)*channels;
  bool spared = false;
  for (int f = 0; f < count; f++) spared |= fields[f].classes > 0;
  if (!spared) return SL_OK;
  float *all = sl__alloc(2 * values, sizeof *all, name);
  if (!all) return SL_NO_MEMORY;
  for (size_t i = 0; i < values; i++) {
    all[i] = (*normal)[i / each];
    all[values + i] = (*normal)[(size_t)*channels + i / each];
  }
  for (int f = 0; f < count; f++) {
    const struct sl_row_field *field = &fields[f];
    for (int64_t i = 0; field->classes && i < sl_shape_count(&field->shape); i++) {
      all[field->first + i] = 0.0f;
      all[values + (size_t)(field->first + i)] = 1.0f;
    }
  }
  free(*normal);
  *normal = all;
  *channels = (int)values;
  return SL_OK;
}

enum sl_status sl__dataset_normalise(struct sl_dataset *set, const struct sl__normal *inputs,
                                     const struct sl__normal *targets) {
  struct sl_dataset_info *info = &set->info;
  enum sl_status status;
  SL__TRY(copy_normal(info->name, "inputs", &info->sample, inputs, &set->normal, &info->channels));
  SL__TRY(spare_labels(info->name, info->inputs, info->input_count, set->sample_size, &set->normal,
                       &info->channels));
  info->mean = set->normal;
  info->deviation = set->normal + info->channels;
  if (!set->target_size) return SL_OK;
  SL__TRY(copy_normal(info->name, "targets", &info->target, targets, &set->target_normal,
                      &info->target_channels));
  SL__TRY(spare_labels(info->name, info->targets, info->target_count, set->target_size,
                       &set->target_normal, &info->target_channels));
  info->target_mean = set->target_normal;
  info->target_deviation = set->target_normal + info->target_channels;
out:
  return status;
}

int64_t sl__first_bad_label(const int32_t *labels, int64_t count, int classes, bool missing) {
  int64_t i = 0;
  while (i < count &&
         ((labels[i] >= 0 && labels[i] < classes) || (missing && labels[i] == SL_IGNORE)))
    i++;
  return i;
}

enum sl_status sl__dataset_check_labels(const char *path, const int32_t *labels, int64_t count,
                                        int classes) {
  int64_t i = sl__first_bad_label(labels, count, classes, false);
  if (i == count) return SL_OK;
  return sl__fail(SL_BAD_FILE,
                  "%s: label %lld is %d, but classes are 0 to %d; is it a file of this dataset?",
                  path, (long long)i, labels[i], classes - 1);
}

const struct sl_dataset_info *sl_dataset_info(const struct sl_dataset *dataset) {
  SL__NEEDS_OR(NULL, dataset);
  return &dataset->info;
}

char *sl__name_without(const char *name, int64_t count, const char *one, const char *many,
                       const char *first) {
  size_t size = strlen(name) + strlen(many) + (count ? strlen(first) : 0) + 48;
  char *text = sl__alloc(size, 1, "a name");
  if (text && !count) snprintf(text, size, "%s", name);
  if (text && count)
    snprintf(text, size, "%s without %lld %s (%s%s)", name, (long long)count,
             count > 1 ? many : one, first, count > 1 ? " first" : "");
  return text;
}

/* ---- single samples ---- */

int64_t sl_dataset_number(const struct sl_dataset *dataset, int64_t i) {
  SL__NEEDS_OR(-1, dataset);
  if (i < 0 || i >= dataset->info.count) return -1;
  return dataset->kind->number ? dataset->kind->number(dataset, i) : i;
}

static enum sl_status read_sample(const struct sl_dataset *set, int64_t i,
                                  const struct sl__rows *row) {
  if (i < 0 || i >= set->info.count)
    return sl__fail(SL_BAD_ARGUMENT, "%s: no sample %lld; there are %lld", set->info.name,
                    (long long)i, (long long)set->info.count);
  if (set->info.tokens)
    return sl__fail(SL_UNSUPPORTED, "%s: its samples are tokens; a loader hands them out",
                    set->info.name);
  return set->kind->fill(set, 1, &i, row);
}

enum sl_status sl_dataset_get(const struct sl_dataset *dataset, int64_t i, float *values,
                              int32_t *label) {
  SL__NEEDS(dataset, values, label);
  if (dataset->target_size)
    return sl__fail(SL_UNSUPPORTED, "%s: its samples have targets; call sl_dataset_get_targets",
                    dataset->info.name);
  return read_sample(dataset, i, &(struct sl__rows){.x = values, .labels = label});
}

enum sl_status sl_dataset_get_targets(const struct sl_dataset *dataset, int64_t i, float *values,
                                      float *targets) {
  SL__NEEDS(dataset, values, targets);
  if (!dataset->target_size)
    return sl__fail(SL_UNSUPPORTED, "%s: its samples have labels; call sl_dataset_get",
                    dataset->info.name);
  return read_sample(dataset, i, &(struct sl__rows){.x = values, .targets = targets});
}
