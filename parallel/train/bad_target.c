#include "parallel/train/bad_target.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "codelets/loss.h"
#include "core/base/error.h"
#include "data/batches.h"

/* ---- the values of a batch ---- */

/* The values that are searched, and the bad one that was found. */
struct search {
  const struct sl__loss *loss;
  const struct sl_dataset *set;
  int64_t classes;            /* that a label may have */
  int64_t first, size, width; /* of the values of a row: [first, first + size) of width */
  int64_t sample, at;         /* sample -1: nothing was found; at: from 0 to width - 1 */
  double value;
};

static int64_t last_axis(const struct sl_shape *shape) { return shape->dim[shape->ndim - 1]; }

static struct search begin_search(const struct sl_trainer *t, const struct sl_dataset *set, int i) {
  const struct sl__loss_part *part = t->loss.part_count ? &t->loss.parts[i] : NULL;
  int64_t width = (int64_t)(set->target_size ? set->target_size : set->label_count);
  return (struct search){
      .loss = sl__loss_of_part(&t->loss, i),
      .set = set,
      .classes = last_axis(part ? &part->field.shape : sl_model_output(t->model)),
      .first = part ? part->target_first : 0,
      .size = part ? sl_shape_count(&part->target) : width,
      .width = width,
      .sample = -1};
}

/* NaN: it does not count. */
static double value_at(const struct sl__rows *rows, int64_t i) {
  if (rows->targets) return (double)rows->targets[i];
  return rows->labels[i] == SL_IGNORE ? NAN : rows->labels[i];
}

static bool is_outside(const struct search *s, double value) {
  if (isnan(value)) return false;
  if (!sl__loss_takes_labels(s->loss)) return sl__loss_outside(s->loss->row->kind, (float)value);
  return !(value >= 0 && value < (double)s->classes && value == floor(value));
}

static void search_row(struct search *s, const struct sl__rows *rows, int64_t row, int64_t sample) {
  for (int64_t k = s->first; k < s->first + s->size; k++) {
    double value = value_at(rows, row * s->width + k);
    if (!is_outside(s, value)) continue;
    s->sample = sample;
    s->at = k;
    s->value = value;
    return;
  }
}

/* The batch as part `part` of the loader has it. Finds the sample with the least number. */
static enum sl_status search_part(struct search *s, const struct sl__pending_step *step,
                                  int64_t part, const struct sl__rows *rows, int64_t *samples) {
  enum sl_status status =
      sl__loader_refill(step->loader, part, step->report.epoch, step->index, samples, rows);
  for (int64_t row = 0; row < sl_loader_batch(step->loader) && status == SL_OK; row++)
    if (s->sample < 0 || samples[row] < s->sample) search_row(s, rows, row, samples[row]);
  return status;
}

/* Ranks with common steps all see the sum of all parts, and shall say the same. */
static void search_batch(struct search *s, const struct sl_trainer *t,
                         const struct sl__pending_step *step) {
  const struct sl_loader_options *options = sl_loader_settings(step->loader);
  size_t batch = (size_t)options->batch;
  size_t row = (size_t)sl_shape_count(sl_loader_sample(step->loader));
  bool in_step = t->ranks.size && !t->is_async;
  int64_t part = in_step ? 0 : options->part_index;
  int64_t parts = in_step ? options->num_parts : part + 1;
  int64_t *samples = sl__alloc(batch, sizeof *samples, "a batch");
  float *values = sl__alloc(batch * (size_t)s->width, sizeof *values, "a batch");
  struct sl__rows rows = {.x = sl__alloc(batch * row, sizeof *rows.x, "a batch")};
  if (s->set->target_size)
    rows.targets = values;
  else
    rows.labels = (int32_t *)(void *)values;
  for (; samples && values && rows.x && part < parts && s->sample < 0; part++)
    if (search_part(s, step, part, &rows, samples) != SL_OK) break;
  free(samples);
  free(values);
  free(rows.x);
}

/* ---- the message ---- */

/* The names of value i, if there are several: " 'y2'", " 'mask' [0, 4, 7]", " [2]". */
static const char *place_text(const struct search *s, char *text, size_t size) {
  const struct sl_dataset_info *info = &s->set->info;
  const struct sl_shape *shape = s->set->target_size ? &info->target : &info->sample;
  const char *name = NULL;
  int64_t at = s->at;
  for (int f = 0; f < info->target_count; f++)
    if (s->at >= info->targets[f].first) {
      shape = &info->targets[f].shape;
      name = info->targets[f].name;
      at = s->at - info->targets[f].first;
    }
  if (!info->target_count && info->target_name_count == s->width) name = info->target_names[at];
  bool column = name && !info->target_count;
  size_t used = name ? (size_t)snprintf(text, size, " '%s'", name) : 0;
  text[name ? used : 0] = '\0';
  if (column || s->width == 1 || sl_shape_count(shape) == 1) return text;
  for (int d = 0; d < shape->ndim && used < size; d++) {
    int64_t inner = 1;
    for (int k = d + 1; k < shape->ndim; k++) inner *= shape->dim[k];
    used += (size_t)snprintf(text + used, size - used, "%s%lld", d ? ", " : " [",
                             (long long)(at / inner % shape->dim[d]));
  }
  if (used < size) snprintf(text + used, size - used, "]");
  return text;
}

/* In the data's unit, too, if they are normalised. */
static const char *value_text(const struct search *s, char *text, size_t size) {
  const struct sl_dataset_info *info = &s->set->info;
  int64_t channels = s->set->target_size ? info->target_channels : 0;
  int64_t c = channels > 1 ? s->at / (s->width / channels) : 0;
  double mean = channels ? (double)info->target_mean[c] : 0;
  double deviation = channels ? (double)info->target_deviation[c] : 1;
  if (mean == 0 && deviation == 1)
    snprintf(text, size, "%g", s->value);
  else
    snprintf(text, size, "%g, normalised %g", s->value * deviation + mean, s->value);
  return text;
}

/* Tokens have a label each. */
static const char *what_text(const struct search *s) {
  return s->set->target_size ? "target" : s->set->label_count > 1 ? "the label of token" : "label";
}

static enum sl_status fail_labels(const struct search *s, int64_t sample, const char *where,
                                  double count) {
  char place[160], value[80];
  return sl__fail(SL_BAD_ARGUMENT,
                  "%s: sample %lld (from 0): %s%s is %s, but the model's classes are 0 to %lld; "
                  "correct it, or give the last layer more outputs (%s, %.0f such in its batch)",
                  s->set->info.name, (long long)sample, what_text(s),
                  place_text(s, place, sizeof place), value_text(s, value, sizeof value),
                  (long long)s->classes - 1, where, count);
}

static enum sl_status fail_targets(const struct search *s, int64_t sample, const char *where,
                                   double count) {
  char place[160], value[80];
  return sl__fail(SL_BAD_ARGUMENT,
                  "%s: sample %lld (from 0): target%s is %s, but the loss %s takes 0 to 1; correct "
                  "it%s, or take another loss (%s, %.0f such in its batch)",
                  s->set->info.name, (long long)sample, place_text(s, place, sizeof place),
                  value_text(s, value, sizeof value), s->loss->row->name,
                  s->set->info.missing ? ", make it NaN where it is missing" : "", where, count);
}

/* The dataset may be gone. */
static enum sl_status fail_freed(const struct sl_trainer *t, int i, const char *where,
                                 double count) {
  return sl__fail(SL_BAD_ARGUMENT,
                  "the loss %s does not take %.0f labels or targets of a batch (%s); call "
                  "sl_trainer_drain before sl_loader_free, and the message names a sample",
                  sl__loss_of_part(&t->loss, i)->row->name, count, where);
}

enum sl_status sl__fail_bad_target(const struct sl_trainer *t, const struct sl__pending_step *step,
                                   int i, double count) {
  char where[48];
  if (step->training)
    snprintf(where, sizeof where, "step %lld", (long long)step->report.step);
  else
    snprintf(where, sizeof where, "in an evaluation");
  if (sl__loader_is_freed(step->loader)) return fail_freed(t, i, where, count);
  const struct sl_dataset *set = sl_loader_dataset(step->loader);
  struct search s = begin_search(t, set, i);
  if (step->index >= 0) search_batch(&s, t, step);
  if (s.sample < 0)
    return sl__fail(
        SL_BAD_ARGUMENT, "%s: has %s that the loss %s does not take (%s, %.0f in a batch)",
        set->info.name, set->target_size ? "targets" : "labels", s.loss->row->name, where, count);
  int64_t sample = sl_dataset_number(set, s.sample);
  return (sl__loss_takes_labels(s.loss) ? fail_labels : fail_targets)(&s, sample, where, count);
}
