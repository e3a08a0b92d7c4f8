#include "data/split.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/numbers.h"
#include "data/floats.h"
#include "data/source.h"

#define USUAL_SHARE 0.1

/* Samples of another set, which this one owns. */
struct part_set {
  struct sl_dataset set;
  struct sl_dataset *base;
  int64_t *samples; /* [count], ascending; NULL: all */
  float *mean;      /* [sample_size] that missing inputs become; NULL: none may be missing */
};

/* ---- filling ---- */

static void fill_missing(const struct part_set *part, int64_t count, float *x) {
  size_t size = part->set.sample_size;
  for (int64_t row = 0; row < count; row++, x += size)
    for (size_t i = 0; i < size; i++)
      if (isnan(x[i])) x[i] = part->mean[i];
}

/* The base's numbers of samples; *mapped is to be freed. NULL without memory. */
static const int64_t *map_samples(const struct part_set *part, int64_t count,
                                  const int64_t *samples, int64_t **mapped) {
  *mapped = NULL;
  if (!part->samples) return samples;
  *mapped = sl__alloc((size_t)count, sizeof **mapped, "a batch's samples");
  for (int64_t row = 0; *mapped && row < count; row++) (*mapped)[row] = part->samples[samples[row]];
  return *mapped;
}

static enum sl_status fill(const struct sl_dataset *set, int64_t count, const int64_t *samples,
                           const struct sl__rows *rows) {
  const struct part_set *part = (const struct part_set *)set;
  int64_t *mapped;
  const int64_t *numbers = map_samples(part, count, samples, &mapped);
  enum sl_status status;
  if (!numbers) return SL_NO_MEMORY;
  if (part->base->kind->fill_normal && !part->mean) {
    status = part->base->kind->fill_normal(part->base, &set->info, count, numbers, rows);
    goto out;
  }
  SL__TRY(part->base->kind->fill(part->base, count, numbers, rows));
  if (part->mean) fill_missing(part, count, rows->x);
  SL__TRY(sl__check_rows(set, count, numbers, rows));
  SL__TRY(sl__normalise_checked(set, count, numbers, rows));
out:
  free(mapped);
  return status;
}

static void expect(const struct sl_dataset *set, int64_t count, const int64_t *samples) {
  const struct part_set *part = (const struct part_set *)set;
  int64_t *mapped;
  if (!part->base->kind->expect) return;
  const int64_t *numbers = map_samples(part, count, samples, &mapped);
  if (numbers) part->base->kind->expect(part->base, count, numbers);
  free(mapped);
}

static enum sl_status fill_labels(const struct sl_dataset *set, int64_t count,
                                  const int64_t *samples, int32_t *labels) {
  const struct part_set *part = (const struct part_set *)set;
  int64_t *mapped;
  const int64_t *numbers = map_samples(part, count, samples, &mapped);
  if (!numbers) return SL_NO_MEMORY;
  enum sl_status status = part->base->kind->fill_labels(part->base, count, numbers, labels);
  free(mapped);
  return status;
}

static int64_t number(const struct sl_dataset *set, int64_t i) {
  const struct part_set *part = (const struct part_set *)set;
  if (part->samples) i = part->samples[i];
  return part->base->kind->number ? part->base->kind->number(part->base, i) : i;
}

static void free_part(struct sl_dataset *set) {
  struct part_set *part = (struct part_set *)set;
  sl_dataset_free(part->base);
  free(part->samples);
  free(part->mean);
}

static const struct sl__dataset_kind part_kind = {
    .fill = fill, .expect = expect, .number = number, .free = free_part};
/* of a base that has the labels apart */
static const struct sl__dataset_kind labelled_kind = {.fill = fill,
                                                      .expect = expect,
                                                      .fill_labels = fill_labels,
                                                      .number = number,
                                                      .free = free_part};

/* ---- the samples of a part ---- */

static const char fold_prefix[] = "fold:";

static const char *fold_text(const char *validation) {
  size_t length = strlen(fold_prefix);
  bool is_fold = validation && !strncmp(validation, fold_prefix, length);
  return is_fold ? validation + length : NULL;
}

bool sl__is_share(const char *validation) {
  double share;
  return fold_text(validation) ||
         (validation && sl__parse_real(validation, -INFINITY, INFINITY, &share));
}

/* The samples that are held back: positions first, ... of the drawn order. */
struct held_back {
  int64_t first, count;
};

/* Fold K of N equal ones: "2/5". */
static enum sl_status choose_fold(const struct sl_dataset *whole, const char *text,
                                  struct held_back *held) {
  int64_t fold = 0, folds = 0, all = whole->info.count;
  const char *slash = sl__scan_whole(text, &fold);
  if (!slash || *slash != '/' || !sl__parse_whole(slash + 1, 2, INT32_MAX, &folds) || fold < 1 ||
      fold > folds)
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s: fold %s for the validation; give K/N, fold K of N, such as 1/5 to 5/5",
                    whole->info.name, text);
  if (folds > all)
    return sl__fail(SL_BAD_ARGUMENT, "%s: %lld samples are too few for %lld folds",
                    whole->info.name, (long long)all, (long long)folds);
  held->first = (fold - 1) * all / folds;
  held->count = fold * all / folds - held->first;
  return SL_OK;
}

static enum sl_status choose_held_back(const struct sl_dataset *whole, const char *validation,
                                       struct held_back *held) {
  double share = USUAL_SHARE;
  if (fold_text(validation)) return choose_fold(whole, fold_text(validation), held);
  if (validation) sl__parse_real(validation, 0, 1, &share);
  if (!(share > 0 && share < 1))
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s: a share of %s for the validation; give one between 0 and "
                    "1, or a file",
                    whole->info.name, validation);
  *held = (struct held_back){.count = llround(share * (double)whole->info.count)};
  if (held->count < 1) held->count = 1;
  if (held->count < whole->info.count) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT,
                  "%s: %lld samples are too few to train on some and to hold back others",
                  whole->info.name, (long long)whole->info.count);
}

/* Draws what is held back, and lists the samples of one of the parts in the set's order. */
static enum sl_status draw_part(const struct sl_dataset *whole,
                                const struct sl_reader_options *options, bool train,
                                int64_t **samples, int64_t *count) {
  int64_t all = whole->info.count, listed = 0;
  struct held_back out = {0};
  enum sl_status status = choose_held_back(whole, options->validation, &out);
  if (status != SL_OK) return status;
  *count = train ? all - out.count : out.count;
  uint32_t *order = sl__alloc((size_t)all, sizeof *order, "a split");
  bool *held = sl__alloc((size_t)all, sizeof *held, "a split");
  *samples = sl__alloc((size_t)*count, sizeof **samples, "a split");
  if (order && held && *samples) {
    struct sl__source source = sl__source(SL__SOURCE_SPLIT, options->seed, false, 0);
    sl__permutation(source.seed, source.stream, order, (uint32_t)all);
    for (int64_t i = 0; i < out.count; i++) held[order[out.first + i]] = true;
    for (int64_t i = 0; i < all; i++)
      if (held[i] != train) (*samples)[listed++] = i;
  } else {
    status = SL_NO_MEMORY;
  }
  free(order);
  free(held);
  return status;
}

/* ---- means and deviations ---- */

/* Sums of the differences to the first value, which keeps digits where the mean is large. */
struct sums {
  double first, sum, squares;
  int64_t count;
};

static void add_values(struct sums *s, const float *values, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (isnan(values[i])) continue;
    if (s->count++ == 0) s->first = (double)values[i];
    double difference = (double)values[i] - s->first;
    s->sum += difference;
    s->squares += difference * difference;
  }
}

/* Equal values have deviation 1, so that they can be normalised. */
static void take_sums(const struct sums *s, float *mean, float *deviation) {
  double count = s->count ? (double)s->count : 1, shift = s->sum / count;
  double variance = s->squares / count - shift * shift;
  *mean = (float)(s->first + shift);
  *deviation = variance > 0 && (float)sqrt(variance) > 0 ? (float)sqrt(variance) : 1.0f;
}

/* A channel is each value of a vector, each first index of an image; of matrices there is one. */
static int channels_of(const struct sl_shape *shape) {
  return shape->ndim == 0 ? 0 : shape->ndim == 2 ? 1 : (int)shape->dim[0];
}

/* The same sums for all values of a group: those of the group together. */
static void join_sums(struct sums *s, int64_t count) {
  struct sums all = {.first = s[0].first};
  for (int64_t i = 0; i < count; i++) {
    double shift = s[i].first - all.first, terms = (double)s[i].count;
    all.count += s[i].count;
    all.sum += s[i].sum + terms * shift;
    all.squares += s[i].squares + 2 * shift * s[i].sum + terms * shift * shift;
  }
  for (int64_t i = 0; i < count; i++) s[i] = all;
}

/* The channels of a row's fields; each value of the row has sums of its own. */
static void join_channels(const struct sl_row_field *fields, int count, struct sums *s) {
  for (int f = 0; f < count; f++) {
    const struct sl_shape *shape = &fields[f].shape;
    int64_t channels = channels_of(shape), each = sl_shape_count(shape) / channels;
    for (int64_t c = 0; c < channels; c++) join_sums(s + fields[f].first + c * each, each);
  }
}

struct measurement {
  const struct sl_dataset *base;
  const int64_t *samples; /* of the training part; NULL: all */
  int64_t count;
  bool missing; /* inputs may be missing */
  int channels, target_channels;
  struct sums *sums;       /* of inputs, then of targets */
  float *mean, *deviation; /* the same */
};

static void add_rows(struct measurement *m, int64_t rows, const struct sl__rows *from) {
  const struct sl_dataset *set = m->base;
  size_t each = set->sample_size / (size_t)m->channels, values;
  for (int64_t row = 0; row < rows; row++)
    for (int c = 0; c < m->channels; c++)
      add_values(&m->sums[c], from->x + (size_t)row * set->sample_size + (size_t)c * each, each);
  for (int c = 0; c < m->target_channels; c++) {
    values = set->target_size / (size_t)m->target_channels;
    for (int64_t row = 0; row < rows; row++)
      add_values(&m->sums[m->channels + c],
                 from->targets + (size_t)row * set->target_size + (size_t)c * values, values);
  }
}

/* All samples; of large sets about 67 million values, and at least 1,024 samples, evenly spread. */
static int64_t count_measured(const struct measurement *m) {
  const int64_t values = 1 << 26, least = 1024;
  int64_t most = values / (int64_t)m->base->sample_size;
  if (most < least) most = least;
  return m->count < most ? m->count : most;
}

/* Reads the samples, some at a time. */
static enum sl_status add_samples(struct measurement *m, int64_t chunk, int64_t *numbers,
                                  const struct sl__rows *rows) {
  int64_t measured = count_measured(m);
  for (int64_t first = 0; first < measured; first += chunk) {
    int64_t count = measured - first < chunk ? measured - first : chunk;
    for (int64_t row = 0; row < count; row++) {
      int64_t i = (int64_t)((double)(first + row) * ((double)m->count / (double)measured));
      numbers[row] = m->samples ? m->samples[i] : i;
    }
    enum sl_status status = m->base->kind->fill(m->base, count, numbers, rows);
    if (status == SL_OK && !m->missing) status = sl__check_rows(m->base, count, numbers, rows);
    if (status != SL_OK) return status;
    add_rows(m, count, rows);
  }
  return SL_OK;
}

/* Rows of labels or of targets, as the set has them. */
static bool alloc_rows(const struct sl_dataset *set, size_t count, struct sl__rows *rows) {
  rows->x = sl__alloc(count * set->sample_size, sizeof *rows->x, "a measurement");
  if (set->label_count)
    rows->labels = sl__alloc(count * set->label_count, sizeof *rows->labels, "a measurement");
  if (set->target_size)
    rows->targets = sl__alloc(count * set->target_size, sizeof *rows->targets, "a measurement");
  return rows->x && (rows->labels || rows->targets);
}

static enum sl_status measure(struct measurement *m) {
  int64_t chunk = (1 << 20) / (int64_t)m->base->sample_size + 1;
  size_t sums = (size_t)(m->channels + m->target_channels);
  struct sl__rows rows = {0};
  enum sl_status status = SL_NO_MEMORY;
  int64_t *numbers = sl__alloc((size_t)chunk, sizeof *numbers, "a measurement");
  m->sums = sl__alloc(sums, sizeof *m->sums, "means");
  m->mean = sl__alloc(sums, sizeof *m->mean, "means");
  m->deviation = sl__alloc(sums, sizeof *m->deviation, "deviations");
  if (numbers && m->sums && m->mean && m->deviation && alloc_rows(m->base, (size_t)chunk, &rows))
    status = add_samples(m, chunk, numbers, &rows);
  if (status == SL_OK) {
    const struct sl_dataset_info *info = &m->base->info;
    join_channels(info->inputs, info->input_count, m->sums);
    join_channels(info->targets, info->target_count, m->sums + m->channels);
  }
  for (size_t c = 0; c < sums && status == SL_OK; c++)
    take_sums(&m->sums[c], &m->mean[c], &m->deviation[c]);
  free(numbers);
  free(rows.x);
  free(rows.labels);
  free(rows.targets);
  return status;
}

/* ---- all of it ---- */

static enum sl_status check_alike(const struct sl_dataset *whole, const struct sl_dataset *test) {
  char here[96], there[96];
  const struct sl_dataset_info *a = &whole->info, *b = &test->info;
  sl_shape_text(&a->sample, here, sizeof here);
  sl_shape_text(&b->sample, there, sizeof there);
  if (!sl_shape_equal(&a->sample, &b->sample))
    return sl__fail(SL_BAD_SHAPE, "%s: samples are %s, but %s in %s", b->name, there, here,
                    a->name);
  if (!sl_shape_equal(&a->target, &b->target))
    return sl__fail(SL_BAD_SHAPE, "%s: its targets differ in shape or kind from those of %s",
                    b->name, a->name);
  if (b->classes > a->classes)
    return sl__fail(SL_BAD_FILE, "%s: has class %d, but the classes of %s are 0 to %d", b->name,
                    b->classes - 1, a->name, a->classes - 1);
  return sl__fields_alike(a, b);
}

/* Tokens that only the test set has are tokens of the training, too. */
static void join_tokens(struct sl_dataset *whole, const struct sl_dataset *test) {
  struct sl_row_field *fields = (struct sl_row_field *)whole->info.inputs;
  const struct sl_dataset_info *other = &test->info;
  for (int f = 0; f < whole->info.input_count && f < other->input_count; f++)
    if (fields[f].classes && other->inputs[f].classes > fields[f].classes)
      fields[f].classes = other->inputs[f].classes;
}

/* "data.csv, training set"; NULL without memory. */
static char *name_part(const char *name, bool train) {
  size_t size = strlen(name) + sizeof ", validation set";
  char *text = sl__alloc(size, 1, "a name");
  if (text) snprintf(text, size, "%s, %s set", name, train ? "training" : "validation");
  return text;
}

/* Leaves the values of some fields of the targets as they are. */
static enum sl_status spare_fields(const struct sl_dataset_info *info, const char *names,
                                   float *mean, float *deviation) {
  for (const char *name = names; name && *name; name += strspn(name, ",")) {
    size_t length = strcspn(name, ",");
    const struct sl_row_field *field = NULL;
    for (int f = 0; f < info->target_count && !field; f++)
      if (strlen(info->targets[f].name) == length && !strncmp(info->targets[f].name, name, length))
        field = &info->targets[f];
    if (!field)
      return sl__fail(SL_BAD_ARGUMENT, "%s: has no target '%.*s', which is to stay as it is",
                      info->name, (int)length, name);
    for (int64_t i = field->first; i < field->first + sl_shape_count(&field->shape); i++) {
      mean[i] = 0.0f;
      deviation[i] = 1.0f;
    }
    name += length;
  }
  return SL_OK;
}

/* A set of base's samples, with the means and deviations; classes and fields are those of the whole
 * set. */
static enum sl_status make_part(const struct sl_reader_options *options, bool train,
                                const struct sl_dataset *base, int64_t count,
                                const struct sl_dataset_info *whole, const struct measurement *m,
                                struct part_set **part) {
  const struct sl_dataset_info *info = &base->info;
  struct sl_dataset *set = NULL;
  char *name = name_part(info->name, train);
  if (!name) return SL_NO_MEMORY;
  struct sl_dataset_options about = {.name = name,
                                     .sample = info->sample,
                                     .target = info->target,
                                     .count = count,
                                     .classes = whole->classes,
                                     .class_names = info->class_names,
                                     .inputs = whole->inputs,
                                     .targets = whole->targets,
                                     .input_count = whole->input_count,
                                     .target_count = whole->target_count};
  if (!options->raw) {
    about.channels = m->channels;
    about.mean = m->mean;
    about.deviation = m->deviation;
  }
  if (m->target_channels && !options->raw_targets) {
    about.target_channels = m->target_channels;
    about.target_mean = m->mean + m->channels;
    about.target_deviation = m->deviation + m->channels;
  }
  const struct sl__dataset_kind *kind = base->kind->fill_labels ? &labelled_kind : &part_kind;
  enum sl_status status = sl__float_set_begin(kind, sizeof **part, &about, &set);
  free(name);
  *part = (struct part_set *)set;
  if (status != SL_OK) return status;
  set->info.column_count = info->column_count;
  set->info.columns = info->columns;
  set->info.target_name_count = info->target_name_count;
  set->info.target_names = info->target_names;
  set->info.left_out = info->left_out;
  return SL_OK;
}

/* The value that each missing input becomes. */
static enum sl_status keep_means(struct part_set *part, const struct measurement *m) {
  size_t size = part->set.sample_size, each = size / (size_t)m->channels;
  part->mean = sl__alloc(size, sizeof *part->mean, "means");
  if (!part->mean) return SL_NO_MEMORY;
  for (size_t i = 0; i < size; i++) part->mean[i] = m->mean[i / each];
  return SL_OK;
}

enum sl_status sl__split(struct sl_dataset *whole, struct sl_dataset *test,
                         const struct sl_reader_options *options, bool train,
                         struct sl_dataset **result) {
  enum sl_status status = SL_OK;
  struct part_set *part = NULL;
  int64_t *training = NULL, *chosen = NULL, count = whole->info.count, held_back = 0;
  struct measurement m = {.base = whole, .count = count};
  m.missing = options->missing == SL_MISSING_MEAN;
  m.channels = channels_of(&whole->info.sample);
  m.target_channels = channels_of(&whole->info.target);
  if (test) join_tokens(whole, test);
  if (test) SL__TRY(check_alike(whole, test));
  if (!test) {
    SL__TRY(draw_part(whole, options, true, &training, &m.count));
    m.samples = training;
    count = m.count;
    if (!train) SL__TRY(draw_part(whole, options, false, &chosen, &held_back));
  }
  if (!options->raw || (m.target_channels && !options->raw_targets) || m.missing)
    SL__TRY(measure(&m));
  if (m.mean)
    SL__TRY(spare_fields(&whole->info, options->raw_fields, m.mean + m.channels,
                         m.deviation + m.channels));
  const struct sl_dataset *base = test && !train ? test : whole;
  if (!train) count = test ? test->info.count : held_back;
  SL__TRY(make_part(options, train, base, count, &whole->info, &m, &part));
  if (m.missing) SL__TRY(keep_means(part, &m));
  part->samples = test ? NULL : train ? training : chosen;
  *(train ? &training : &chosen) = NULL;
  part->base = (struct sl_dataset *)base;
  *(base == test ? &test : &whole) = NULL;
  *result = &part->set;
  part = NULL;
out:
  if (part) sl_dataset_free(&part->set);
  sl_dataset_free(whole);
  sl_dataset_free(test);
  free(training);
  free(chosen);
  free(m.sums);
  free(m.mean);
  free(m.deviation);
  return status;
}
