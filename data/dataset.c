/* Datasets: bytes and labels in memory. A table normalises the bytes when they are read. */
#include "data/dataset.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

/* Bytes of a sample; 0 if the sample or the whole set would be too large. */
static size_t sample_bytes(const struct sl_shape *sample, int64_t count) {
  size_t bytes = 1, whole;
  if (sample->ndim < 1 || sample->ndim > SL_MAX_DIMS - 1)
    return 0; /* the batch is a dimension, too */
  for (int i = 0; i < sample->ndim; i++)
    if (sample->dim[i] < 1 || __builtin_mul_overflow(bytes, (size_t)sample->dim[i], &bytes))
      return 0;
  /* floats of the whole set must be countable too */
  if (__builtin_mul_overflow(bytes, (size_t)count * sizeof(float), &whole)) return 0;
  return bytes;
}

static enum sl_status check_new(const char *name, const struct sl_shape *sample, int64_t count,
                                int classes) {
  if (count < 1 || count > UINT32_MAX)
    return sl__fail(SL_BAD_ARGUMENT, "%s: %lld samples; a dataset has 1 to %lld", name,
                    (long long)count, (long long)UINT32_MAX);
  if (classes < 1 || classes > 256)
    return sl__fail(SL_BAD_ARGUMENT, "%s: %d classes; 8-bit labels allow 1 to 256", name, classes);
  if (sample_bytes(sample, count) == 0)
    return sl__fail(SL_BAD_ARGUMENT, "%s: the samples' shape is impossible", name);
  return SL_OK;
}

static enum sl_status fill_tables(struct sl_dataset *set, const float *mean,
                                  const float *deviation) {
  for (size_t c = 0; c < set->tables; c++) {
    float m = mean ? mean[c] : 0.0f, d = deviation ? deviation[c] : 1.0f;
    if (!isfinite(m) || !isfinite(d) || d == 0.0f)
      return sl__fail(SL_BAD_ARGUMENT, "%s: channel %zu has mean %g and deviation %g",
                      set->info.name, c, m, d);
    set->normal[c] = m;
    set->normal[set->tables + c] = d;
    for (int v = 0; v < 256; v++) set->table[c][v] = ((float)v / 255.0f - m) / d;
  }
  set->info.channels = (int)set->tables;
  set->info.mean = set->normal;
  set->info.deviation = set->normal + set->tables;
  return SL_OK;
}

enum sl_status sl__dataset_alloc(const char *name, const struct sl_shape *sample, int64_t count,
                                 int classes, const float *mean, const float *deviation,
                                 struct sl_dataset **result) {
  enum sl_status status = check_new(name, sample, count, classes);
  if (status != SL_OK) return status;
  struct sl_dataset *set = sl__alloc(1, sizeof *set, "a dataset");
  if (!set) return SL_NO_MEMORY;
  set->sample_size = sample_bytes(sample, count);
  set->plane = set->sample_size / (size_t)sample->dim[0];
  set->tables = mean || deviation ? (size_t)sample->dim[0] : 1;
  set->info = (struct sl_dataset_info){
      .name = sl__strdup(name), .sample = *sample, .count = count, .classes = classes};
  set->samples = sl__alloc((size_t)count, set->sample_size, name);
  set->labels = sl__alloc((size_t)count, 1, name);
  set->table = sl__alloc(set->tables, sizeof *set->table, name);
  set->normal = sl__alloc(2 * set->tables, sizeof *set->normal, name);
  if (!set->info.name || !set->samples || !set->labels || !set->table || !set->normal)
    SL__TRY(SL_NO_MEMORY);
  SL__TRY(fill_tables(set, mean, deviation));
  *result = set;
  return SL_OK;
out:
  sl_dataset_free(set);
  return status;
}

void sl_dataset_free(struct sl_dataset *dataset) {
  if (!dataset) return;
  free((char *)dataset->info.name);
  free(dataset->samples);
  free(dataset->tokens);
  free(dataset->labels);
  free(dataset->sentences);
  free(dataset->buckets);
  free(dataset->normal);
  free(dataset->table);
  free(dataset);
}

/* The first label that is not below classes; count if there is none. */
static int64_t first_bad_label(const uint8_t *labels, int64_t count, int classes) {
  int64_t i = 0;
  while (i < count && labels[i] < classes) i++;
  return i;
}

enum sl_status sl__dataset_check_labels(const char *path, const uint8_t *labels, int64_t count,
                                        int classes) {
  int64_t i = first_bad_label(labels, count, classes);
  if (i == count) return SL_OK;
  return sl__fail(SL_BAD_FILE,
                  "%s: label %lld is %d, but classes are 0 to %d; is it a file of this data set?",
                  path, (long long)i, labels[i], classes - 1);
}

enum sl_status sl_dataset_new(const char *name, const struct sl_shape *sample, int64_t count,
                              int classes, const uint8_t *samples, const uint8_t *labels,
                              const float *mean, const float *deviation,
                              struct sl_dataset **dataset) {
  SL__NEEDS(name, sample, samples, labels, dataset);
  enum sl_status status = check_new(name, sample, count, classes);
  if (status != SL_OK) return status;
  int64_t bad = first_bad_label(labels, count, classes);
  if (bad < count)
    return sl__fail(SL_BAD_ARGUMENT, "%s: label %lld is %d, but classes are 0 to %d", name,
                    (long long)bad, labels[bad], classes - 1);
  struct sl_dataset *set;
  status = sl__dataset_alloc(name, sample, count, classes, mean, deviation, &set);
  if (status != SL_OK) return status;
  memcpy(set->samples, samples, (size_t)count * set->sample_size);
  memcpy(set->labels, labels, (size_t)count);
  *dataset = set;
  return SL_OK;
}

enum sl_status sl__dataset_check_tokens(const char *name, const int32_t *tokens, int64_t count,
                                        int classes) {
  for (int64_t i = 0; i < count; i++)
    if (tokens[i] < 0 || tokens[i] >= classes)
      return sl__fail(SL_BAD_ARGUMENT, "%s: token %lld is %d, but the vocabulary has 0 to %d", name,
                      (long long)i, tokens[i], classes - 1);
  return SL_OK;
}

static enum sl_status check_tokens(const char *name, const int32_t *tokens, int64_t count,
                                   int64_t steps, int classes) {
  if (steps < 1 || steps > INT32_MAX || count <= steps)
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s: %lld tokens are too few for a sample of %lld and the one after it; take "
                    "fewer steps or more text",
                    name, (long long)count, (long long)steps);
  return sl__dataset_check_tokens(name, tokens, count, classes);
}

enum sl_status sl_tokens_new(const char *name, const int32_t *tokens, int64_t count, int64_t steps,
                             int classes, struct sl_dataset **dataset) {
  SL__NEEDS(name, tokens, dataset);
  enum sl_status status = check_tokens(name, tokens, count, steps, classes);
  if (status != SL_OK) return status;
  struct sl_dataset *set = sl__alloc(1, sizeof *set, "a dataset");
  if (!set) return SL_NO_MEMORY;
  set->info = (struct sl_dataset_info){.name = sl__strdup(name),
                                       .sample = SL_SHAPE(steps),
                                       .count = (count - 1) / steps,
                                       .classes = classes,
                                       .tokens = true};
  set->sample_size = (size_t)steps;
  set->tokens = sl__alloc((size_t)count, sizeof *set->tokens, name);
  if (!set->info.name || !set->tokens) {
    sl_dataset_free(set);
    return SL_NO_MEMORY;
  }
  memcpy(set->tokens, tokens, (size_t)count * sizeof *tokens);
  *dataset = set;
  return SL_OK;
}

const struct sl_dataset_info *sl_dataset_info(const struct sl_dataset *dataset) {
  SL__NEEDS_OR(NULL, dataset);
  return &dataset->info;
}

/* ---- samples as floats ---- */

static void normalise(const uint8_t *bytes, size_t count, const float table[256], float *values) {
  for (size_t i = 0; i < count; i++) values[i] = table[bytes[i]];
}

/* One row of width values. source NULL: the whole row lies outside the image. */
static void view_row(const uint8_t *source, int64_t width, const struct sl__view *view,
                     const float table[256], float *values) {
  for (int64_t x = 0; x < width; x++) {
    int64_t from = x - view->dx;
    bool inside = source && from >= 0 && from < width;
    if (view->mirror) from = width - 1 - from;
    values[x] = table[inside ? source[from] : 0];
  }
}

void sl__dataset_view(const struct sl_dataset *set, int64_t i, const struct sl__view *view,
                      float *values) {
  const uint8_t *sample = set->samples + (size_t)i * set->sample_size;
  const int64_t *dim = set->info.sample.dim;
  bool plain = !view->dy && !view->dx && !view->mirror;
  for (int64_t c = 0; c < dim[0]; c++) {
    const float *table = set->table[set->tables > 1 ? c : 0];
    const uint8_t *plane = sample + (size_t)c * set->plane;
    if (plain) {
      normalise(plane, set->plane, table, values);
      values += set->plane;
      continue;
    }
    for (int64_t y = 0; y < dim[1]; y++, values += dim[2]) {
      int64_t from = y - view->dy;
      view_row(from >= 0 && from < dim[1] ? plane + from * dim[2] : NULL, dim[2], view, table,
               values);
    }
  }
}

enum sl_status sl_dataset_get(const struct sl_dataset *dataset, int64_t i, float *values,
                              int32_t *label) {
  SL__NEEDS(dataset, values, label);
  if (i < 0 || i >= dataset->info.count)
    return sl__fail(SL_BAD_ARGUMENT, "%s: no sample %lld; there are %lld", dataset->info.name,
                    (long long)i, (long long)dataset->info.count);
  if (dataset->tokens)
    return sl__fail(SL_UNSUPPORTED, "%s: its samples are tokens; a loader hands them out",
                    dataset->info.name);
  sl__dataset_view(dataset, i, &(struct sl__view){0}, values);
  *label = dataset->labels[i];
  return SL_OK;
}
