/* A table of numbers and texts from comma-separated values. A column's kind is that of its first
 * field: a slip of the pen in the last line is an error there, not a column of texts. */
#include "data/csv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"

enum { MOST_LEVELS = 1 << 20, MOST_INPUT_LEVELS = 256 };

struct parser {
  struct sl__csv *csv;
  const struct sl_reader_options *options;
  const struct sl__csv *like;
  struct sl__csv_cursor cursor;
  struct sl__csv_field *fields; /* of the row that is read */
};

/* "PATH: line 7, column 3 ("y"): " is what the message begins with. */
static enum sl_status bad_field(const struct parser *p, const struct sl__csv_field *field,
                                const char *what) {
  const struct sl__csv_column *column = &p->csv->column[field->column - 1];
  int most = 40, length = field->size < 40 ? (int)field->size : most;
  return sl__fail(SL_BAD_FILE, "%s: line %lld, column %d (\"%s\"): \"%.*s\" %s", p->csv->path,
                  (long long)field->line, field->column, column->name, length, field->text, what);
}

/* ---- the columns ---- */

static enum sl_status read_first_row(struct parser *p) {
  struct sl__csv *csv = p->csv;
  bool last = false;
  int room = 0;
  if (!sl__csv_more(&p->cursor)) return sl__fail(SL_BAD_FILE, "%s: is empty", csv->path);
  csv->header = true;
  for (csv->columns = 0; !last; csv->columns++) {
    if (csv->columns == room) {
      room = room ? 2 * room : 16;
      struct sl__csv_field *grown =
          sl__realloc(p->fields, (size_t)room, sizeof *grown, "a table's first row");
      if (!grown) return SL_NO_MEMORY;
      p->fields = grown;
    }
    struct sl__csv_field *field = &p->fields[csv->columns];
    float number;
    enum sl_status status = sl__csv_next(&p->cursor, field);
    if (status != SL_OK) return status;
    csv->header &= !sl__csv_number(field, &number) && !sl__csv_has_decimal_comma(field);
    last = field->last;
  }
  return SL_OK;
}

/* The name in the header; its number, where there is none. */
static enum sl_status name_columns(struct parser *p) {
  struct sl__csv *csv = p->csv;
  csv->column = sl__alloc((size_t)csv->columns, sizeof *csv->column, "a table's columns");
  if (!csv->column) return SL_NO_MEMORY;
  for (int c = 0; c < csv->columns; c++) {
    const struct sl__csv_field *field = &p->fields[c];
    size_t size = csv->header && field->size ? field->size : 0;
    csv->column[c].name = sl__alloc(size ? size + 1 : 12, 1, "a column's name");
    if (!csv->column[c].name) return SL_NO_MEMORY;
    if (size)
      memcpy(csv->column[c].name, field->text, size);
    else
      snprintf(csv->column[c].name, 12, "%d", c + 1);
  }
  return SL_OK;
}

/* Fails with the message and the names of the columns, of which "%s" stands for. */
static enum sl_status fail_columns(const struct sl__csv *csv, const char *what, int length,
                                   const char *name) {
  struct sl__text t;
  char *names;
  FILE *out = sl__text_begin(&t);
  for (int c = 0; out && c < csv->columns && c < 24; c++)
    fprintf(out, "%s%s", c ? ", " : "", csv->column[c].name);
  if (out && csv->columns > 24) fprintf(out, ", ...");
  enum sl_status status = sl__text_end(&t, "a list of columns", &names);
  if (status != SL_OK) return status;
  status = sl__fail(SL_BAD_ARGUMENT, "%s: %s%.*s; its columns are %s", csv->path, what, length,
                    name, names);
  free(names);
  return status;
}

static bool has_column(const struct sl__csv *csv, const char *name) {
  for (int c = 0; c < csv->columns; c++)
    if (!strcmp(csv->column[c].name, name)) return true;
  return false;
}

/* Gives the columns of a list "NAME,NAME" their role; all those that have the name. The last name
 * may have commas. */
static enum sl_status set_roles(struct sl__csv *csv, const char *list, enum sl__csv_role role) {
  for (const char *at = list; at && *at;) {
    size_t length = has_column(csv, at) ? strlen(at) : strcspn(at, ",");
    bool found = false;
    for (int c = 0; c < csv->columns; c++) {
      struct sl__csv_column *column = &csv->column[c];
      if (strlen(column->name) != length || memcmp(column->name, at, length) != 0) continue;
      if (column->role != SL__CSV_INPUT)
        return sl__fail(SL_BAD_ARGUMENT,
                        "%s: column \"%s\" is named twice among targets and ignored", csv->path,
                        column->name);
      column->role = role;
      found = true;
    }
    if (!found) return fail_columns(csv, "has no column ", (int)length, at);
    at += length + (at[length] == ',');
  }
  return SL_OK;
}

static int count_role(const struct sl__csv *csv, enum sl__csv_role role) {
  int count = 0;
  for (int c = 0; c < csv->columns; c++) count += csv->column[c].role == role;
  return count;
}

static enum sl_status choose_roles(struct parser *p) {
  struct sl__csv *csv = p->csv;
  enum sl_status status = set_roles(csv, p->options->target, SL__CSV_TARGET);
  if (status == SL_OK) status = set_roles(csv, p->options->ignore, SL__CSV_IGNORED);
  if (status != SL_OK) return status;
  int targets = count_role(csv, SL__CSV_TARGET);
  if (targets == 0) return fail_columns(csv, "name the target, the column to be predicted", 0, "");
  if (count_role(csv, SL__CSV_INPUT) == 0)
    return fail_columns(csv, "no column is left for the inputs", 0, "");
  if (p->options->targets == SL_TARGET_CLASSES && targets > 1)
    return sl__fail(SL_BAD_ARGUMENT, "%s: %d targets; classes take one", csv->path, targets);
  for (int c = 0; c < csv->columns; c++)
    if (csv->column[c].role == SL__CSV_TARGET && p->options->targets != SL_TARGET_AUTO)
      csv->column[c].kind =
          p->options->targets == SL_TARGET_CLASSES ? SL__CSV_TEXT : SL__CSV_NUMBER;
  return SL_OK;
}

/* Takes the texts of a column of the training's table. */
static enum sl_status take_levels(struct sl__csv_column *column,
                                  const struct sl__csv_column *from) {
  struct sl__word *entry;
  column->role = from->role;
  column->kind = from->kind;
  for (int i = 0; i < from->level_count; i++) {
    enum sl_status status =
        sl__words_add(&column->words, from->levels[i], strlen(from->levels[i]), &entry);
    if (status != SL_OK) return status;
  }
  return SL_OK;
}

/* The columns must be those of the training's table. */
static enum sl_status take_columns(struct sl__csv *csv, const struct sl__csv *like) {
  if (csv->columns != like->columns)
    return sl__fail(SL_BAD_FILE, "%s: %d columns, but %s has %d", csv->path, csv->columns,
                    like->path, like->columns);
  for (int c = 0; c < csv->columns; c++) {
    if (strcmp(csv->column[c].name, like->column[c].name) != 0)
      return sl__fail(SL_BAD_FILE, "%s: column %d is \"%s\", but \"%s\" in %s", csv->path, c + 1,
                      csv->column[c].name, like->column[c].name, like->path);
    enum sl_status status = take_levels(&csv->column[c], &like->column[c]);
    if (status != SL_OK) return status;
  }
  return SL_OK;
}

/* The columns of the training, by their names, wherever they are in this table. */
static enum sl_status find_column(struct sl__csv *csv, const struct sl_column *wanted) {
  struct sl__word *entry;
  int c = 0;
  while (c < csv->columns &&
         (csv->column[c].role == SL__CSV_INPUT || strcmp(csv->column[c].name, wanted->name) != 0))
    c++;
  if (c == csv->columns)
    return fail_columns(csv, "has no column ", (int)strlen(wanted->name), wanted->name);
  struct sl__csv_column *column = &csv->column[c];
  column->role = SL__CSV_INPUT;
  column->kind = wanted->text_count ? SL__CSV_TEXT : SL__CSV_NUMBER;
  column->may_miss = wanted->missing;
  for (int i = 0; i < wanted->text_count; i++) {
    enum sl_status status =
        sl__words_add(&column->words, wanted->texts[i], strlen(wanted->texts[i]), &entry);
    if (status != SL_OK) return status;
  }
  csv->order[csv->ordered++] = c;
  return SL_OK;
}

/* For answers: the columns that the options name, else all. */
static enum sl_status find_inputs(struct parser *p) {
  struct sl__csv *csv = p->csv;
  enum sl_status status = SL_OK;
  for (int c = 0; c < csv->columns; c++) {
    csv->column[c].role = p->options->columns ? SL__CSV_IGNORED : SL__CSV_INPUT;
    csv->column[c].kind = SL__CSV_NUMBER;
  }
  for (int i = 0; p->options->columns && i < p->options->column_count && status == SL_OK; i++)
    status = find_column(csv, &p->options->columns[i]);
  return status;
}

/* A name says which column is meant: two may share one only if neither is used. */
static enum sl_status check_names(const struct parser *p) {
  const struct sl__csv *csv = p->csv;
  enum sl_status status = SL_OK;
  struct sl__word_table names = {0};
  struct sl__word *entry; /* its count: the first column of that name, from 1 */
  for (int c = 0; c < csv->columns; c++) {
    const struct sl__csv_column *column = &csv->column[c];
    SL__TRY(sl__words_add(&names, column->name, strlen(column->name), &entry));
    if (!entry->count) entry->count = c + 1;
    const struct sl__csv_column *first = &csv->column[entry->count - 1];
    if (first == column || (first->role == SL__CSV_IGNORED && column->role == SL__CSV_IGNORED))
      continue;
    SL__TRY(sl__fail(SL_BAD_FILE, "%s: columns %lld and %d are both named \"%s\"; rename one%s",
                     csv->path, (long long)entry->count, c + 1, column->name,
                     p->options->inputs_only ? "" : ", or ignore that name: both are left out"));
  }
out:
  sl__words_free(&names);
  return status;
}

static enum sl_status choose_columns(struct parser *p) {
  struct sl__csv *csv = p->csv;
  enum sl_status status;
  int given = p->options->columns ? p->options->column_count : 0;
  csv->order = sl__alloc((size_t)(given > csv->columns ? given : csv->columns), sizeof *csv->order,
                         "a table's columns");
  if (!csv->order) return SL_NO_MEMORY;
  status = p->like                   ? take_columns(csv, p->like)
           : p->options->inputs_only ? find_inputs(p)
                                     : choose_roles(p);
  if (status == SL_OK) status = check_names(p);
  for (int c = 0; status == SL_OK && !given && c < csv->columns; c++)
    csv->order[csv->ordered++] = c;
  return status;
}

/* ---- the rows ---- */

/* A text that may be a number. */
struct numeral {
  bool is_number, is_exact; /* is_exact: a double tells it from all others that are */
  double value;
};

static struct numeral read_numeral(const char *bytes, size_t length) {
  const size_t digits = 15; /* that a double has, at least */
  const struct sl__csv_field field = {.text = (char *)bytes, .size = length};
  struct numeral n = {0};
  n.is_number = sl__csv_wide_number(&field, &n.value);
  n.is_exact = n.is_number && length <= digits && isfinite(n.value);
  return n;
}

static bool are_one_number(const struct numeral *a, const struct numeral *b) {
  return a->is_exact && b->is_exact && a->value == b->value;
}

/* Another way to write the number of one of the training's texts, if all of these are numbers; else
 * -1. */
static int64_t find_number(const struct sl__word_table *words, const struct sl__csv_field *field) {
  const struct numeral wanted = read_numeral(field->text, field->size);
  int64_t found = -1;
  if (!wanted.is_exact) return -1;
  for (size_t i = 0; i < words->count; i++) {
    const struct sl__word *word = &words->entries[i];
    const struct numeral number = read_numeral((const char *)word->bytes, word->length);
    if (!number.is_number) return -1;
    if (are_one_number(&number, &wanted)) found = (int64_t)i;
  }
  return found;
}

/* The training's table has all texts. */
static enum sl_status find_text(struct parser *p, const struct sl__csv_field *field, float *value) {
  const struct sl__word_table *words = &p->csv->column[field->column - 1].words;
  int64_t id = words->count ? sl__words_find(words, field->text, field->size) : -1;
  if (id < 0) id = find_number(words, field);
  if (id < 0) return bad_field(p, field, "does not occur in the training's table");
  *value = (float)id;
  return SL_OK;
}

/* The number of a text among those of its column. */
static enum sl_status read_text(struct parser *p, const struct sl__csv_field *field, float *value) {
  struct sl__csv_column *column = &p->csv->column[field->column - 1];
  struct sl__word *entry;
  if (p->like || p->options->columns) return find_text(p, field, value);
  enum sl_status status = sl__words_add(&column->words, field->text, field->size, &entry);
  if (status != SL_OK) return status;
  size_t most = column->role == SL__CSV_INPUT ? MOST_INPUT_LEVELS : MOST_LEVELS;
  if (column->words.count > most)
    return bad_field(p, field,
                     column->role == SL__CSV_INPUT
                         ? "is text number 257 of this column, each an input of its own; "
                           "ignore the column, or write numbers"
                         : "is one text too many: more than a million classes");
  *value = (float)(entry - column->words.entries);
  return SL_OK;
}

/* What would make each number a text of its own, or parts of two a field. */
static enum sl_status check_commas(struct parser *p, const struct sl__csv_field *field) {
  if (sl__csv_has_decimal_comma(field))
    return bad_field(p, field,
                     "has a decimal comma; write numbers with a point, or quotes around texts");
  if (p->cursor.delimiter == ',' && sl__csv_joins_numbers(field))
    return bad_field(p, field,
                     "has numbers on both sides of a semicolon or a tab, though commas separate; "
                     "write numbers with a point, or quotes around texts");
  return SL_OK;
}

/* A number in a column whose first field made it one of texts: that field may stand for a missing
 * value, and each number would be a text of its own. */
static enum sl_status number_among_texts(struct parser *p, const struct sl__csv_field *field) {
  const struct sl__csv_column *column = &p->csv->column[field->column - 1];
  const struct sl__word *first = &column->words.entries[0];
  char why[256];
  snprintf(why, sizeof why,
           "is a number, but line %lld has the text \"%.*s\"; write numbers with a point, NA for a "
           "missing value, and quotes around numbers that are texts",
           (long long)column->text_line, first->length < 40 ? (int)first->length : 40,
           (const char *)first->bytes);
  return bad_field(p, field, why);
}

static enum sl_status read_value(struct parser *p, const struct sl__csv_field *field,
                                 float *value) {
  struct sl__csv_column *column = &p->csv->column[field->column - 1];
  bool number = sl__csv_number(field, value);
  bool are_texts = column->kind == SL__CSV_TEXT && !column->text_line; /* whatever the fields */
  enum sl_status status = number || are_texts ? SL_OK : check_commas(p, field);
  if (status != SL_OK) return status;
  if (column->kind == SL__CSV_UNKNOWN) {
    column->kind = number ? SL__CSV_NUMBER : SL__CSV_TEXT;
    if (!number) column->text_line = field->line;
  }
  if (column->kind == SL__CSV_TEXT && !are_texts && number && !field->quoted)
    return number_among_texts(p, field);
  if (column->kind == SL__CSV_TEXT) return read_text(p, field, value);
  if (!number) return bad_field(p, field, "is no number, but a number is due");
  return isfinite(*value) ? SL_OK : bad_field(p, field, "is too large for 32 bits");
}

/* The columns of a row are those of the first one. */
static enum sl_status check_columns(const struct parser *p, const struct sl__csv_field *field) {
  const struct sl__csv *csv = p->csv;
  if (field->column == csv->columns && !field->last)
    return sl__fail(SL_BAD_FILE, "%s: line %lld has more than the %d columns of the first line",
                    csv->path, (long long)p->cursor.line, csv->columns);
  if (field->last && field->column < csv->columns)
    return sl__fail(SL_BAD_FILE,
                    "%s: line %lld ends behind column %d: column %d (\"%s\") is missing", csv->path,
                    (long long)field->line, field->column, field->column + 1,
                    csv->column[field->column].name);
  return SL_OK;
}

/* NaN for a missing value, else 0; *drop: the row is to be left out for it. */
static enum sl_status check_missing(struct parser *p, const struct sl__csv_field *field,
                                    float *value, bool *drop) {
  const struct sl__csv_column *column = &p->csv->column[field->column - 1];
  *value = 0;
  if (column->role == SL__CSV_IGNORED || !sl__csv_is_missing(field)) return SL_OK;
  *value = NAN;
  if (p->options->missing == SL_MISSING_REFUSE && !column->may_miss)
    return bad_field(
        p, field,
        p->options->inputs_only
            ? "is a missing value, and the training allowed none; fill it in, or train "
              "with means in place of missing values (missing = mean)"
            : "is a missing value; drop such rows, or take the column's mean (missing = "
              "drop or mean)");
  *drop |= p->options->missing == SL_MISSING_DROP || column->role == SL__CSV_TARGET;
  return SL_OK;
}

/* Room for one more row; NULL without memory. */
static float *next_row(struct sl__csv *csv) {
  size_t columns = (size_t)csv->columns;
  if (csv->rows == csv->capacity) {
    int64_t capacity = csv->capacity ? 2 * csv->capacity : 256;
    float *grown = sl__realloc(csv->values, (size_t)capacity * columns, sizeof *grown, csv->path);
    if (!grown) return NULL;
    csv->values = grown;
    csv->capacity = capacity;
  }
  return csv->values + (size_t)csv->rows * columns;
}

/* Takes the fields of a row, or those of the first row where it is no header. */
static enum sl_status take_row(struct parser *p, bool taken, float *row, bool *drop) {
  struct sl__csv_field *field = p->fields;
  enum sl_status status;
  do {
    status = taken ? SL_OK : sl__csv_next(&p->cursor, field);
    if (status == SL_OK) status = check_columns(p, field);
    if (status == SL_OK) status = check_missing(p, field, row++, drop);
  } while (status == SL_OK && !field++->last);
  return status;
}

/* A row that is left out gives its columns no value: no text, no class, no kind. */
static enum sl_status read_row(struct parser *p, bool taken) {
  struct sl__csv *csv = p->csv;
  float *row = next_row(csv);
  bool drop = false;
  enum sl_status status = row ? take_row(p, taken, row, &drop) : SL_NO_MEMORY;
  if (status == SL_OK && drop && !csv->dropped++)
    csv->first_dropped = p->fields[csv->columns - 1].line;
  if (status != SL_OK || drop) return status;
  for (int c = 0; status == SL_OK && c < csv->columns; c++)
    if (csv->column[c].role != SL__CSV_IGNORED && !isnan(row[c]))
      status = read_value(p, &p->fields[c], &row[c]);
  csv->rows++;
  return status;
}

/* ---- the texts of a column ---- */

struct level {
  const struct sl__word *word;
  bool by_number;
  struct numeral number;
  size_t id; /* in the file's order */
};

static int compare(const void *left, const void *right) {
  const struct level *a = left, *b = right;
  if (a->by_number && a->number.value != b->number.value)
    return a->number.value < b->number.value ? -1 : 1;
  size_t both = a->word->length < b->word->length ? a->word->length : b->word->length;
  int order = memcmp(a->word->bytes, b->word->bytes, both);
  return order                                ? order
         : a->word->length == b->word->length ? 0
         : a->word->length < b->word->length  ? -1
                                              : 1;
}

/* Sorts the texts by their values if all are numbers, else by their bytes. */
static void sort_levels(const struct sl__word_table *words, struct level *levels) {
  bool numbers = true;
  for (size_t i = 0; i < words->count; i++) {
    const struct sl__word *word = &words->entries[i];
    levels[i] = (struct level){
        .word = word, .id = i, .number = read_numeral((const char *)word->bytes, word->length)};
    numbers &= levels[i].number.is_number;
  }
  for (size_t i = 0; i < words->count; i++) levels[i].by_number = numbers;
  qsort(levels, words->count, sizeof *levels, compare);
}

/* Is level i, among sorted ones, the same number as the one before? */
static bool is_same(const struct level *levels, size_t i) {
  return i > 0 && levels[i].by_number && are_one_number(&levels[i].number, &levels[i - 1].number);
}

static enum sl_status keep_levels(struct sl__csv_column *column, const struct level *levels) {
  column->levels = sl__alloc(column->words.count, sizeof *column->levels, "a column's texts");
  if (!column->levels) return SL_NO_MEMORY;
  for (size_t i = 0; i < column->words.count; i++) {
    if (is_same(levels, i)) continue;
    const struct sl__word *word = levels[i].word;
    char *text = sl__alloc(word->length + 1, 1, "a text");
    if (!text) return SL_NO_MEMORY;
    memcpy(text, word->bytes, word->length);
    column->levels[column->level_count++] = text;
  }
  return SL_OK;
}

/* Numbers the texts of column c in their order, in the values, too. */
static enum sl_status order_levels(struct sl__csv *csv, int c, bool sorted) {
  struct sl__csv_column *column = &csv->column[c];
  size_t count = column->words.count;
  struct level *levels = sl__alloc(count, sizeof *levels, "a column's texts");
  float *rank = sl__alloc(count, sizeof *rank, "a column's texts");
  enum sl_status status = levels && rank ? SL_OK : SL_NO_MEMORY;
  if (status == SL_OK) {
    if (sorted)
      for (size_t i = 0; i < count; i++)
        levels[i] = (struct level){.word = &column->words.entries[i], .id = i};
    else
      sort_levels(&column->words, levels);
    int next = -1;
    for (size_t i = 0; i < count; i++) {
      next += !is_same(levels, i);
      rank[levels[i].id] = (float)next;
    }
    for (int64_t r = 0; r < csv->rows; r++) {
      float *value = &csv->values[(size_t)r * (size_t)csv->columns + (size_t)c];
      if (!isnan(*value)) *value = rank[(size_t)*value];
    }
    status = keep_levels(column, levels);
  }
  free(levels);
  free(rank);
  return status;
}

static enum sl_status check_kinds(const struct sl__csv *csv) {
  int targets = count_role(csv, SL__CSV_TARGET);
  for (int c = 0; c < csv->columns; c++) {
    const struct sl__csv_column *column = &csv->column[c];
    if (column->role == SL__CSV_IGNORED) continue;
    if (column->kind == SL__CSV_UNKNOWN)
      return sl__fail(SL_BAD_FILE, "%s: column %d (\"%s\") has no values; ignore it", csv->path,
                      c + 1, column->name);
    if (column->kind == SL__CSV_TEXT && column->role == SL__CSV_TARGET && targets > 1)
      return sl__fail(SL_BAD_FILE,
                      "%s: column %d (\"%s\") has texts; classes must be the only target",
                      csv->path, c + 1, column->name);
  }
  return SL_OK;
}

/* ---- all of it ---- */

static enum sl_status read_rows(struct parser *p) {
  struct sl__csv *csv = p->csv;
  enum sl_status status = csv->header ? SL_OK : read_row(p, true);
  while (status == SL_OK && sl__csv_more(&p->cursor)) status = read_row(p, false);
  if (status != SL_OK) return status;
  if (csv->rows == 0)
    return sl__fail(SL_BAD_FILE, "%s: has no rows%s", csv->path,
                    csv->dropped ? " without missing values" : " behind its header");
  status = check_kinds(csv);
  for (int c = 0; c < csv->columns && status == SL_OK; c++)
    if (csv->column[c].kind == SL__CSV_TEXT) status = order_levels(csv, c, p->like != NULL);
  return status;
}

enum sl_status sl__csv_parse(const char *path, uint8_t *bytes, size_t size,
                             const struct sl_reader_options *options, const struct sl__csv *like,
                             struct sl__csv *csv) {
  enum sl_status status;
  struct parser p = {.csv = csv, .options = options, .like = like};
  *csv = (struct sl__csv){.path = sl__strdup(path)};
  if (!csv->path) SL__TRY(SL_NO_MEMORY);
  sl__csv_begin(&p.cursor, csv->path, (char *)bytes, size);
  SL__TRY(read_first_row(&p));
  SL__TRY(name_columns(&p));
  SL__TRY(choose_columns(&p));
  SL__TRY(read_rows(&p));
out:
  for (int c = 0; csv->column && c < csv->columns; c++) {
    sl__words_free(&csv->column[c].words); /* it points into the bytes */
    csv->column[c].words = (struct sl__word_table){0};
  }
  free(p.fields);
  return status;
}

void sl__csv_free(struct sl__csv *csv) {
  for (int c = 0; csv->column && c < csv->columns; c++) {
    for (int i = 0; i < csv->column[c].level_count; i++) free(csv->column[c].levels[i]);
    free(csv->column[c].levels);
    free(csv->column[c].name);
  }
  free(csv->column);
  free(csv->order);
  free(csv->values);
  free(csv->path);
  *csv = (struct sl__csv){0};
}
