/* The dataset of a table: a number is one input, a text one input for each of the column's texts, 1
 * for the one that it is, 0 for all others. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/file.h"
#include "data/csv.h"
#include "data/floats.h"
#include "data/folder.h"
#include "data/reader.h"

#define MAX_FILE ((size_t)1 << 36) /* unpacked, and the table takes as much again */

struct csv_set {
  struct sl_dataset set;
  struct sl__csv csv;
  struct sl_column *inputs; /* info has these two */
  const char **targets;
};

static enum sl_status fill(const struct sl_dataset *dataset, int64_t count, const int64_t *samples,
                           const struct sl__rows *rows) {
  const struct sl__csv *csv = &((const struct csv_set *)dataset)->csv;
  float *x = rows->x, *target = rows->targets;
  for (int64_t row = 0; row < count; row++) {
    const float *values = csv->values + (size_t)samples[row] * (size_t)csv->columns;
    for (int i = 0; i < csv->ordered; i++) {
      const int c = csv->order[i];
      const struct sl__csv_column *column = &csv->column[c];
      if (column->role == SL__CSV_TARGET) {
        if (rows->labels)
          rows->labels[row] = (int32_t)values[c];
        else
          *target++ = values[c];
      } else if (column->role == SL__CSV_INPUT && column->kind == SL__CSV_NUMBER) {
        *x++ = values[c];
      } else if (column->role == SL__CSV_INPUT) {
        for (int level = 0; level < column->level_count; level++)
          *x++ = values[c] == (float)level ? 1.0f : 0.0f;
      }
    }
    if (dataset->info.missing) *target++ = NAN; /* the samples are for answers */
  }
  return SL_OK;
}

static void free_csv(struct sl_dataset *dataset) {
  struct csv_set *set = (struct csv_set *)dataset;
  sl__csv_free(&set->csv);
  free(set->inputs);
  free(set->targets);
}

static const struct sl__dataset_kind csv_kind = {.fill = fill, .free = free_csv};

/* The columns of the inputs and targets, for the set's info. */
static enum sl_status list_columns(struct csv_set *set, enum sl_missing missing) {
  const struct sl__csv *csv = &set->csv;
  struct sl_dataset_info *info = &set->set.info;
  set->inputs = sl__alloc((size_t)csv->columns, sizeof *set->inputs, "a table's columns");
  set->targets = sl__alloc((size_t)csv->columns, sizeof *set->targets, "a table's columns");
  if (!set->inputs || !set->targets) return SL_NO_MEMORY;
  for (int i = 0; i < csv->ordered; i++) {
    const struct sl__csv_column *column = &csv->column[csv->order[i]];
    if (column->role == SL__CSV_TARGET) set->targets[info->target_name_count++] = column->name;
    if (column->role != SL__CSV_INPUT) continue;
    struct sl_column *input = &set->inputs[info->column_count++];
    *input = (struct sl_column){.name = column->name, .missing = missing == SL_MISSING_MEAN};
    if (column->kind != SL__CSV_TEXT) continue;
    input->text_count = column->level_count;
    input->texts = (const char *const *)column->levels;
  }
  info->columns = set->inputs;
  info->target_names = set->targets;
  return SL_OK;
}

/* Takes the table over. */
static enum sl_status make_set(struct sl__csv *csv, const struct sl_reader_options *options,
                               struct sl_dataset **dataset) {
  int64_t inputs = 0, targets = 0;
  char line[32];
  snprintf(line, sizeof line, "line %lld", (long long)csv->first_dropped);
  char *name = sl__name_without(csv->path, csv->dropped, "row that misses a value",
                                "rows that miss a value", line);
  struct sl_dataset_options about = {.name = name, .count = csv->rows};
  if (!name) return SL_NO_MEMORY;
  for (int c = 0; c < csv->columns; c++) {
    const struct sl__csv_column *column = &csv->column[c];
    bool text = column->kind == SL__CSV_TEXT;
    if (column->role == SL__CSV_INPUT) inputs += text ? column->level_count : 1;
    if (column->role != SL__CSV_TARGET) continue;
    targets++;
    if (!text) continue;
    about.classes = column->level_count;
    about.class_names = (const char *const *)column->levels;
  }
  about.sample = SL_SHAPE(inputs);
  about.missing = options->inputs_only;
  if (!about.classes) about.target = SL_SHAPE(options->inputs_only ? 1 : targets);
  enum sl_status status = sl__float_set_begin(&csv_kind, sizeof(struct csv_set), &about, dataset);
  free(name);
  if (status != SL_OK) return status;
  struct csv_set *set = (struct csv_set *)*dataset;
  set->csv = *csv;
  *csv = (struct sl__csv){0};
  status = list_columns(set, options->missing);
  if (status == SL_OK) return SL_OK;
  sl_dataset_free(*dataset);
  *dataset = NULL;
  return status;
}

static enum sl_status read_csv(const char *path, const struct sl_reader_options *options,
                               enum sl__reader_part part, const struct sl_dataset *like,
                               struct sl_dataset **dataset) {
  enum sl_status status;
  struct sl__csv csv = {0};
  uint8_t *bytes = NULL;
  size_t size = 0;
  (void)part;
  if (like && like->kind != &csv_kind)
    return sl__fail(SL_BAD_ARGUMENT, "%s: is a table, but %s is none", path, like->info.name);
  SL__TRY(sl__file_read(path, MAX_FILE, &bytes, &size));
  SL__TRY(sl__csv_parse(path, bytes, size, options,
                        like ? &((const struct csv_set *)like)->csv : NULL, &csv));
  SL__TRY(make_set(&csv, options, dataset));
out:
  sl__csv_free(&csv);
  free(bytes);
  return status;
}

static bool is_in(const char *path) {
  static const char *const endings[] = {".csv", ".tsv", ".csv.gz", ".tsv.gz"};
  for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
    if (sl__ends_in(path, endings[i])) return true;
  return false;
}

const struct sl__reader sl__csv_reader = {
    .format = {.name = "a table",
               .about = "numbers and texts in columns, one of them the target",
               .files = ".csv or .tsv, plain or .gz",
               .own = true},
    .uses = SL__USES_TARGET | SL__USES_IGNORE | SL__USES_MISSING | SL__USES_VALIDATION |
            SL__USES_INPUTS_ONLY,
    .is_in = is_in,
    .read = read_csv};
