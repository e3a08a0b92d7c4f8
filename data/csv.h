/* Tables as text: comma-separated values (RFC 4180), and the same with semicolons or tabs. The
 * parser works on bytes, without files. */
#ifndef SL_DATA_CSV_H
#define SL_DATA_CSV_H

#include <starling/data.h>

#include "data/word_table.h"

/* ---- fields (data/csv_fields.c) ---- */

struct sl__csv_cursor {
  const char *path;
  char *at, *end;
  char delimiter;
  int64_t line; /* from 1 */
  int column;   /* of the field that comes next, from 1 */
};

struct sl__csv_field {
  char *text; /* without quotes and blanks around it, not ended by a zero; in the parsed bytes */
  size_t size;
  bool quoted;
  int64_t line;
  int column;
  bool last; /* of its row */
};

/* Skips a mark of UTF-8 at the front; finds out whether commas, semicolons or tabs separate. The
 * latter ones do where all commas of the first row can be decimal ones. */
void sl__csv_begin(struct sl__csv_cursor *cursor, const char *path, char *bytes, size_t size);

/* Skips empty lines. Is there another row? */
bool sl__csv_more(struct sl__csv_cursor *cursor);

/* Takes the next field. Quotes within a quoted field are made single in place: it can be parsed
 * only once. */
enum sl_status sl__csv_next(struct sl__csv_cursor *cursor, struct sl__csv_field *field);

/* Is it a number, from digits alone to 1.5e-3? Infinite where it is too large for a float. */
bool sl__csv_number(const struct sl__csv_field *field, float *value);
/* The same in double precision. */
bool sl__csv_wide_number(const struct sl__csv_field *field, double *value);

/* Is it, without quotes, a number but for a decimal comma? */
bool sl__csv_has_decimal_comma(const struct sl__csv_field *field);

/* Does it, without quotes, begin and end with a number, and has semicolons or tabs between? Where
 * commas separate, these are decimal ones then, and what separates is between. */
bool sl__csv_joins_numbers(const struct sl__csv_field *field);

/* Empty, or without quotes NA, N/A, NaN or null, all of it in small or large letters or as here: Na
 * may be sodium. */
bool sl__csv_is_missing(const struct sl__csv_field *field);

/* ---- tables (data/csv.c) ---- */

enum sl__csv_role { SL__CSV_INPUT, SL__CSV_TARGET, SL__CSV_IGNORED };
enum sl__csv_kind { SL__CSV_UNKNOWN, SL__CSV_NUMBER, SL__CSV_TEXT };

struct sl__csv_column {
  char *name; /* "3" where the file has no header */
  enum sl__csv_role role;
  enum sl__csv_kind kind; /* by the first field that is not missing */
  int64_t text_line;      /* line of that field where it made the column one of texts; else 0 */
  bool may_miss;          /* with options->inputs_only: its fields may be missing */
  /* of a text: its different texts, sorted; numbers, if all are some, by their values: 1 and 1.0
   * are one of them */
  char **levels;
  int level_count;
  struct sl__word_table words; /* the same while the table is read, in the file's order */
};

struct sl__csv {
  char *path;
  bool header;
  struct sl__csv_column *column;
  int columns;
  int *order, ordered; /* the columns that samples are made of, in the samples' order */
  int64_t rows, capacity;
  int64_t dropped, first_dropped; /* rows left out for a missing field; the first one's line */
  float *values; /* [rows, columns]; of a text the number of its level; missing: NaN */
};

/* The table of a file's bytes, which are changed. like: the table of the training, whose columns
 * and texts this one must have, or NULL. *csv is to be freed by sl__csv_free in any case.
 * \return SL_BAD_FILE, with line and column; SL_BAD_ARGUMENT for a column in the options that does
 * not exist. */
enum sl_status sl__csv_parse(const char *path, uint8_t *bytes, size_t size,
                             const struct sl_reader_options *options, const struct sl__csv *like,
                             struct sl__csv *csv);
void sl__csv_free(struct sl__csv *csv);

#endif
