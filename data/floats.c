/* Datasets of floats in memory, copied or borrowed, and their normalisation. */
#include "data/floats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/half.h"
#include "core/base/simd.h"

/* ---- normalisation ---- */

/* value = (value - mean[c]) / deviation[c] for the rows of samples of that shape. Returns false if
 * that changes nothing. */
static bool normalise(float *values, int64_t rows, const struct sl_shape *shape, int channels,
                      const float *mean, const float *deviation) {
  int64_t plane = sl_shape_count(shape) / shape->dim[0];
  if (channels == 1 && mean[0] == 0.0f && deviation[0] == 1.0f) return false;
  for (int64_t row = 0; row < rows; row++)
    for (int64_t c = 0; c < shape->dim[0]; c++, values += plane) {
      const float m = mean[channels > 1 ? c : 0], d = deviation[channels > 1 ? c : 0];
      for (int64_t i = 0; i < plane; i++) values[i] = (values[i] - m) / d;
    }
  return true;
}

static bool normalise_inputs(const struct sl_dataset_info *info, int64_t count,
                             const struct sl__rows *rows) {
  return normalise(rows->x, count, &info->sample, info->channels, info->mean, info->deviation);
}

static bool normalise_targets(const struct sl_dataset_info *info, int64_t count,
                              const struct sl__rows *rows) {
  return rows->targets && normalise(rows->targets, count, &info->target, info->target_channels,
                                    info->target_mean, info->target_deviation);
}

void sl__normalise_rows(const struct sl_dataset_info *info, int64_t count,
                        const struct sl__rows *rows) {
  normalise_inputs(info, count, rows);
  normalise_targets(info, count, rows);
}

/* Mean and deviation of channel c; false if they are not finite, or there are no values. */
static bool measure(const float *values, int64_t count, int64_t channels, int64_t plane, int64_t c,
                    double *mean, double *deviation) {
  double sum = 0, squares = 0;
  int64_t terms = 0;
  for (int pass = 0; pass < 2; pass++)
    for (int64_t n = 0; n < count; n++)
      for (int64_t i = 0; i < plane; i++) {
        double value = (double)values[(n * channels + c) * plane + i];
        if (isnan(value)) continue;
        if (pass == 0) sum += value, terms++;
        if (pass == 1) squares += (value - sum / (double)terms) * (value - sum / (double)terms);
      }
  *mean = terms ? sum / (double)terms : 0;
  *deviation = squares > 0 ? sqrt(squares / (double)terms) : 1;
  return terms > 0 && isfinite((float)*mean) && isfinite((float)*deviation);
}

enum sl_status sl_measure(const float *values, int64_t count, const struct sl_shape *sample,
                          int channels, float *mean, float *deviation) {
  SL__NEEDS(values, sample, mean, deviation);
  char text[96];
  bool fits = sample->ndim >= 1 && sample->ndim < SL_MAX_DIMS;
  for (int d = 0; fits && d < sample->ndim; d++) fits = sample->dim[d] >= 1;
  if (!fits)
    return sl__fail(SL_BAD_ARGUMENT, "means of samples whose shape %s is impossible",
                    sl_shape_text(sample, text, sizeof text));
  if (count < 1 || (channels != 1 && channels != sample->dim[0]))
    return sl__fail(SL_BAD_ARGUMENT,
                    "means of %d channels of %lld samples; give 1 or %lld channels", channels,
                    (long long)count, (long long)sample->dim[0]);
  for (int c = 0; c < channels; c++) {
    double m, d;
    if (!measure(values, count, channels, sl_shape_count(sample) / channels, c, &m, &d))
      return sl__fail(SL_BAD_ARGUMENT,
                      "channel %d has no finite mean: its values are missing or not finite", c);
    mean[c] = (float)m;
    deviation[c] = (float)d > 0 ? (float)d : 1.0f;
  }
  return SL_OK;
}

/* ---- checks ---- */

static const char *text_of(float value) {
  return isnan(value) ? "not a number" : value > 0 ? "infinite as f32" : "minus infinite as f32";
}

/* Has a value all bits of the exponent: infinite, or not a number? missing: infinite alone. */
static SL__SIMD bool any_bad(const float *restrict values, size_t count, bool missing) {
  const uint32_t infinite = 0x7f800000, kept = missing ? 0x7fffffff : infinite;
  uint32_t bad = 0;
  for (size_t i = 0; i < count; i++) bad |= (sl__float_bits(values[i]) & kept) == infinite;
  return bad;
}

/* The first of count rows of `size` values with one that is not finite (or, missing, infinite);
 * count if there is none. *at: the value's place in its row. */
static int64_t first_bad_value(const float *values, int64_t count, size_t size, bool missing,
                               size_t *at) {
  for (int64_t row = 0; row < count; row++, values += size) {
    if (!any_bad(values, size, missing)) continue;
    for (size_t i = 0; i < size; i++)
      if (!isfinite(values[i]) && !(missing && isnan(values[i]))) {
        *at = i;
        return row;
      }
  }
  return count;
}

/* A value of a row that is no class of its field. */
static bool is_bad_label(float value, const struct sl_row_field *field, bool missing) {
  if (isnan(value)) return !missing;
  return !(value >= 0 && value < (float)field->classes && value == floorf(value));
}

/* Class labels among the targets, or tokens among the inputs: rows of `size` values. */
static enum sl_status check_label_fields(const struct sl_dataset *set, bool inputs, int64_t count,
                                         const int64_t *samples, const float *rows, size_t size) {
  const struct sl_dataset_info *info = &set->info;
  const struct sl_row_field *fields = inputs ? info->inputs : info->targets;
  for (int f = 0; f < (inputs ? info->input_count : info->target_count); f++) {
    const struct sl_row_field *field = &fields[f];
    int64_t values = field->classes ? sl_shape_count(&field->shape) : 0;
    for (int64_t row = 0; row < count; row++)
      for (int64_t i = 0; i < values; i++) {
        float value = rows[row * (int64_t)size + field->first + i];
        if (is_bad_label(value, field, !inputs && info->missing))
          return sl__fail(SL_BAD_ARGUMENT,
                          "%s: sample %lld: %s %g of '%s' is no %s; %s are 0 to %d", info->name,
                          (long long)(samples ? samples[row] : row), inputs ? "token" : "label",
                          (double)value, field->name, inputs ? "token" : "class",
                          inputs ? "tokens" : "classes", field->classes - 1);
      }
  }
  return SL_OK;
}

enum sl_status sl__check_rows(const struct sl_dataset *set, int64_t count, const int64_t *samples,
                              const struct sl__rows *rows) {
  const struct sl_dataset_info *info = &set->info;
  size_t at = 0;
  int64_t row = first_bad_value(rows->x, count, set->sample_size, false, &at);
  if (row < count)
    return sl__fail(SL_BAD_ARGUMENT, "%s: sample %lld: value %zu is %s; leave the sample out",
                    info->name, (long long)(samples ? samples[row] : row), at,
                    text_of(rows->x[(size_t)row * set->sample_size + at]));
  enum sl_status status = check_label_fields(set, true, count, samples, rows->x, set->sample_size);
  if (status != SL_OK) return status;
  if (rows->targets) {
    row = first_bad_value(rows->targets, count, set->target_size, info->missing, &at);
    if (row == count)
      return check_label_fields(set, false, count, samples, rows->targets, set->target_size);
    return sl__fail(SL_BAD_ARGUMENT, "%s: sample %lld: target %zu is %s; leave the sample out%s",
                    info->name, (long long)(samples ? samples[row] : row), at,
                    text_of(rows->targets[(size_t)row * set->target_size + at]),
                    info->missing ? "" : ", or allow missing targets");
  }
  row = sl__first_bad_label(rows->labels, count, info->classes, info->missing);
  if (row == count) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT, "%s: sample %lld: label is %d, but classes are 0 to %d",
                  info->name, (long long)(samples ? samples[row] : row), rows->labels[row],
                  info->classes - 1);
}

/* "value 7", or the name of its field or column. */
static const char *name_value(const struct sl_dataset_info *info, bool target, size_t at,
                              char *text, size_t size) {
  const struct sl_row_field *fields = target ? info->targets : info->inputs;
  const char *name =
      target && (int64_t)at < info->target_name_count ? info->target_names[at] : NULL;
  for (int f = 0; f < (target ? info->target_count : info->input_count); f++)
    if ((int64_t)at >= fields[f].first) name = fields[f].name;
  for (int64_t c = 0, first = 0; !target && c < info->column_count && (int64_t)at >= first; c++) {
    name = info->columns[c].name;
    first += info->columns[c].text_count ? info->columns[c].text_count : 1;
  }
  if (name)
    snprintf(text, size, "the value of '%.60s'", name);
  else
    snprintf(text, size, "%s %zu", target ? "target" : "value", at);
  return text;
}

/* Infinite values among rows that were finite, or missing, before they were normalised. */
static enum sl_status check_normal(const struct sl_dataset *set, bool target, int64_t count,
                                   const int64_t *samples, const float *values) {
  const struct sl_dataset_info *info = &set->info;
  size_t size = target ? set->target_size : set->sample_size, at = 0;
  size_t channels = (size_t)(target ? info->target_channels : info->channels);
  char what[96];
  int64_t row = first_bad_value(values, count, size, true, &at);
  if (row == count) return SL_OK;
  size_t c = at / (size / channels);
  return sl__fail(SL_BAD_ARGUMENT,
                  "%s: sample %lld: %s is too large for f32 when it is normalised: mean %g, "
                  "deviation %g; leave the sample out",
                  info->name, (long long)(samples ? samples[row] : row),
                  name_value(info, target, at, what, sizeof what),
                  (double)(target ? info->target_mean : info->mean)[c],
                  (double)(target ? info->target_deviation : info->deviation)[c]);
}

enum sl_status sl__normalise_checked(const struct sl_dataset *set, int64_t count,
                                     const int64_t *samples, const struct sl__rows *rows) {
  enum sl_status status = SL_OK;
  if (normalise_inputs(&set->info, count, rows))
    status = check_normal(set, false, count, samples, rows->x);
  if (normalise_targets(&set->info, count, rows) && status == SL_OK)
    status = check_normal(set, true, count, samples, rows->targets);
  return status;
}

enum sl_status sl__float_set_begin(const struct sl__dataset_kind *kind, size_t size,
                                   const struct sl_dataset_options *o, struct sl_dataset **result) {
  struct sl_dataset *set = NULL;
  enum sl_status status;
  if (!o->name) return sl__fail(SL_BAD_ARGUMENT, "a dataset needs a name; it is NULL");
  SL__TRY(sl__dataset_begin(kind, size,
                            &(struct sl_dataset_info){.name = o->name,
                                                      .sample = o->sample,
                                                      .target = o->target,
                                                      .count = o->count,
                                                      .classes = o->classes,
                                                      .missing = o->missing,
                                                      .inputs = o->inputs,
                                                      .targets = o->targets,
                                                      .input_count = o->input_count,
                                                      .target_count = o->target_count,
                                                      .class_names = o->class_names},
                            &set));
  SL__TRY(sl__dataset_normalise(
      set, &(struct sl__normal){o->channels, o->mean, o->deviation},
      &(struct sl__normal){o->target_channels, o->target_mean, o->target_deviation}));
  *result = set;
  return SL_OK;
out:
  sl_dataset_free(set);
  return status;
}

/* ---- the kind ---- */

struct float_set {
  struct sl_dataset set;
  const float *x, *targets;
  const int32_t *labels;
  void *copies[3];
  void (*release)(void *user);
  void *user;
};

static enum sl_status fill(const struct sl_dataset *dataset, int64_t count, const int64_t *samples,
                           const struct sl__rows *rows) {
  const struct float_set *set = (const struct float_set *)dataset;
  size_t size = dataset->sample_size, targets = dataset->target_size;
  for (int64_t row = 0; row < count; row++) {
    size_t to = (size_t)row, from = (size_t)samples[row];
    memcpy(rows->x + to * size, set->x + from * size, size * sizeof *set->x);
    if (set->labels)
      rows->labels[to] = set->labels[from];
    else
      memcpy(rows->targets + to * targets, set->targets + from * targets,
             targets * sizeof *set->targets);
  }
  return sl__normalise_checked(dataset, count, samples, rows);
}

static void free_floats(struct sl_dataset *dataset) {
  struct float_set *set = (struct float_set *)dataset;
  for (int i = 0; i < 3; i++) free(set->copies[i]);
  if (set->release) set->release(set->user);
}

static const struct sl__dataset_kind float_kind = {.fill = fill, .free = free_floats};

/* A copy of count values of 4 bytes; NULL without memory. */
static void *copy(const void *values, size_t count, const char *name) {
  void *to = sl__alloc(count, 4, name);
  if (to) memcpy(to, values, count * 4);
  return to;
}

static enum sl_status copy_values(struct float_set *set) {
  size_t count = (size_t)set->set.info.count;
  const char *name = set->set.info.name;
  set->x = set->copies[0] = copy(set->x, count * set->set.sample_size, name);
  if (!set->x) return SL_NO_MEMORY;
  if (set->labels) set->labels = set->copies[1] = copy(set->labels, count, name);
  if (set->targets)
    set->targets = set->copies[2] = copy(set->targets, count * set->set.target_size, name);
  return set->copies[1] || set->copies[2] ? SL_OK : SL_NO_MEMORY;
}

enum sl_status sl_dataset_floats(const struct sl_dataset_options *options, const float *x,
                                 const float *targets, const int32_t *labels, bool borrow,
                                 struct sl_dataset **dataset) {
  SL__NEEDS(options, x, dataset);
  struct sl_dataset *set = NULL;
  enum sl_status status;
  SL__TRY(sl__float_set_begin(&float_kind, sizeof(struct float_set), options, &set));
  if (!targets != !set->target_size || !labels == !set->target_size)
    SL__TRY(sl__fail(SL_BAD_ARGUMENT, "%s: give %s, as the shape of the targets says",
                     options->name,
                     set->target_size ? "targets and no labels" : "labels and no targets"));
  struct float_set *floats = (struct float_set *)set;
  floats->x = x;
  floats->targets = targets;
  floats->labels = labels;
  const struct sl__rows all = {(float *)x, (int32_t *)labels, (float *)targets};
  SL__TRY(sl__check_rows(set, options->count, NULL, &all));
  if (!borrow) SL__TRY(copy_values(floats));
  floats->release = options->release;
  floats->user = options->user;
  *dataset = set;
  return SL_OK;
out:
  sl_dataset_free(set);
  return status;
}
