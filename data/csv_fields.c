/* The fields of a table (RFC 4180), one after the other. */
#include <math.h>
#include <string.h>
#include <strings.h>

#include "core/base/error.h"
#include "core/base/numbers.h"
#include "data/csv.h"

/* The bytes without blanks around them. */
static struct sl__csv_field trimmed(char *from, char *to) {
  while (from < to && (*from == ' ' || *from == '\t')) from++;
  while (to > from && strchr(" \t\r", to[-1])) to--;
  return (struct sl__csv_field){.text = from, .size = (size_t)(to - from)};
}

/* Is the field around this comma a number, if the delimiter separates? */
static bool is_decimal(char *begin, char *comma, char *end, char delimiter) {
  char *from = comma, *to = comma;
  while (from > begin && from[-1] != delimiter) from--;
  while (to < end && *to != delimiter && *to != '\n') to++;
  const struct sl__csv_field field = trimmed(from, to);
  return sl__csv_has_decimal_comma(&field);
}

/* Are all commas of the first row decimal ones, if the delimiter separates? */
static bool are_decimal(char *begin, char *end, char delimiter) {
  bool quoted = false;
  for (char *at = begin; at < end && (quoted || *at != '\n'); at++) {
    quoted ^= *at == '"';
    if (!quoted && *at == ',' && !is_decimal(begin, at, end, delimiter)) return false;
  }
  return true;
}

/* The one of , ; and tab that the first row has most often outside of quotes; but no comma that can
 * be a decimal one. */
static char find_delimiter(char *begin, char *end) {
  int commas = 0, semicolons = 0, tabs = 0;
  bool quoted = false;
  for (const char *at = begin; at < end && (quoted || *at != '\n'); at++) {
    quoted ^= *at == '"';
    commas += !quoted && *at == ',';
    semicolons += !quoted && *at == ';';
    tabs += !quoted && *at == '\t';
  }
  if (tabs > commas && tabs > semicolons) return '\t';
  if (semicolons > commas || (semicolons && are_decimal(begin, end, ';'))) return ';';
  return tabs && are_decimal(begin, end, '\t') ? '\t' : ',';
}

void sl__csv_begin(struct sl__csv_cursor *c, const char *path, char *bytes, size_t size) {
  bool marked = size >= 3 && !memcmp(bytes, "\xef\xbb\xbf", 3);
  *c = (struct sl__csv_cursor){path, bytes + (marked ? 3 : 0), bytes + size, ',', 1, 1};
  sl__csv_more(c);
  c->delimiter = find_delimiter(c->at, c->end);
}

static bool is_blank(const struct sl__csv_cursor *c, char byte) {
  return (byte == ' ' || byte == '\t') && byte != c->delimiter;
}

/* Takes a line's end, if it is there. */
static bool take_end(struct sl__csv_cursor *c) {
  if (c->end - c->at >= 2 && c->at[0] == '\r' && c->at[1] == '\n') c->at++;
  if (c->at == c->end || *c->at != '\n') return false;
  c->at++;
  c->line++;
  return true;
}

bool sl__csv_more(struct sl__csv_cursor *c) {
  c->column = 1;
  while (take_end(c)) continue;
  return c->at < c->end;
}

/* The text within quotes; the cursor is behind the first one. */
static enum sl_status take_quoted(struct sl__csv_cursor *c, struct sl__csv_field *field) {
  char *to = c->at;
  field->text = c->at;
  field->quoted = true;
  for (; c->at < c->end; c->at++) {
    if (*c->at == '"' && (++c->at == c->end || *c->at != '"')) {
      field->size = (size_t)(to - field->text);
      return SL_OK;
    }
    c->line += *c->at == '\n';
    *to++ = *c->at;
  }
  return sl__fail(SL_BAD_FILE, "%s: line %lld, column %d: a quote is not closed", c->path,
                  (long long)field->line, field->column);
}

static bool ends_field(const struct sl__csv_cursor *c) {
  return c->at == c->end || *c->at == c->delimiter || *c->at == '\n';
}

static void take_plain(struct sl__csv_cursor *c, struct sl__csv_field *field) {
  field->text = c->at;
  while (!ends_field(c)) c->at++;
  const char *end = c->at;
  if (end > field->text && (c->at == c->end || *c->at == '\n') && end[-1] == '\r') end--;
  while (end > field->text && is_blank(c, end[-1])) end--;
  field->size = (size_t)(end - field->text);
}

enum sl_status sl__csv_next(struct sl__csv_cursor *c, struct sl__csv_field *field) {
  enum sl_status status = SL_OK;
  while (c->at < c->end && is_blank(c, *c->at)) c->at++;
  *field = (struct sl__csv_field){.line = c->line, .column = c->column};
  if (c->at < c->end && *c->at == '"') {
    c->at++;
    status = take_quoted(c, field);
    while (c->at < c->end && (is_blank(c, *c->at) || *c->at == '\r')) c->at++;
  } else {
    take_plain(c, field);
  }
  if (status != SL_OK) return status;
  if (!ends_field(c))
    return sl__fail(SL_BAD_FILE,
                    "%s: line %lld, column %d: text behind a quote; double the quotes "
                    "within the field",
                    c->path, (long long)field->line, field->column);
  if (memchr(field->text, '\0', field->size))
    return sl__fail(SL_BAD_FILE, "%s: line %lld, column %d: a zero byte; save it as UTF-8 text",
                    c->path, (long long)field->line, field->column);
  field->last = c->at == c->end || *c->at != c->delimiter;
  if (field->last)
    take_end(c);
  else
    c->at++;
  c->column++;
  return SL_OK;
}

bool sl__csv_wide_number(const struct sl__csv_field *field, double *value) {
  char text[1100]; /* the longest one that has no digit too many: -0. and the least double's 1074 */
  if (field->size >= sizeof text) return false;
  memcpy(text, field->text, field->size);
  text[field->size] = '\0';
  return sl__parse_real(text, -INFINITY, INFINITY, value);
}

bool sl__csv_number(const struct sl__csv_field *field, float *value) {
  double wide;
  if (!sl__csv_wide_number(field, &wide)) return false;
  *value = (float)wide;
  return true;
}

bool sl__csv_has_decimal_comma(const struct sl__csv_field *field) {
  char *comma = field->quoted ? NULL : memchr(field->text, ',', field->size);
  float value;
  if (!comma) return false;
  *comma = '.';
  bool is_number = sl__csv_number(field, &value);
  *comma = ',';
  return is_number;
}

bool sl__csv_joins_numbers(const struct sl__csv_field *field) {
  char *end = field->text + field->size, *first = field->text, *last = end;
  float value;
  if (field->quoted) return false;
  while (first < end && *first != ';' && *first != '\t') first++;
  while (last > first && last[-1] != ';' && last[-1] != '\t') last--;
  if (first == last) return false;
  const struct sl__csv_field left = trimmed(field->text, first), right = trimmed(last, end);
  return sl__csv_number(&left, &value) && sl__csv_number(&right, &value);
}

bool sl__csv_is_missing(const struct sl__csv_field *field) {
  static const char *const marks[] = {"NA",  "na",  "N/A",  "n/a",  "NaN",
                                      "NAN", "nan", "null", "NULL", "Null"};
  if (field->quoted || !field->size) return !field->size;
  for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
    if (field->size == strlen(marks[i]) && !memcmp(field->text, marks[i], field->size)) return true;
  return false;
}
