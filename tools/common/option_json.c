/* Options as JSON, for logs and checkpoints, and as lines, for ranks to compare. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "tools/common/option_table.h"

/* JSON's whole numbers end at 2^63 - 1. */
static json_t *unsigned_value(uint64_t number) {
  char text[32];
  if (number <= INT64_MAX) return json_integer((json_int_t)number);
  snprintf(text, sizeof text, "%llu", (unsigned long long)number);
  return json_string(text);
}

static json_t *row_value(const struct option_row *row, const void *values) {
  const void *field = (const char *)values + row->field;
  if (row->json) return row->json(values);
  switch (row->kind) {
    case OPTION_FLAG: return json_boolean(*(const bool *)field);
    case OPTION_INT: return json_integer(*(const int *)field);
    case OPTION_INT64: return json_integer(*(const int64_t *)field);
    case OPTION_UINT64: return unsigned_value(*(const uint64_t *)field);
    case OPTION_REAL: return json_real(sl__json_number(*(const double *)field));
    case OPTION_TEXT: return sl__json_string(*(const char *const *)field);
    case OPTION_CHOICE: return sl__json_string(option_name(row, *(const int *)field));
    case OPTION_CUSTOM: break;
  }
  return json_null();
}

static json_t *value_of(const struct option_set *set, size_t i) {
  return set->given ? sl__json_string(set->given[i]) : row_value(&set->rows[i], set->values);
}

static bool is_wanted(const struct option_set *set, size_t i, unsigned flags) {
  const struct option_row *row = &set->rows[i];
  return row->name && (row->flags & flags) == flags && (!row->applies || row->applies(set->values));
}

/* "no-shuffle" is noted as shuffle: false. */
static const char *key_of(const struct option_row *row) {
  bool clears = row->flags & OPTION_CLEARS && !strncmp(row->name, "no-", 3);
  return clears ? row->name + 3 : row->name;
}

json_t *option_json(const struct option_set *set, unsigned flags) {
  json_t *object = json_object();
  for (size_t i = 0; object && i < set->count; i++)
    if (is_wanted(set, i, flags)) sl__json_set(&object, key_of(&set->rows[i]), value_of(set, i));
  return object;
}

/* "--no-shuffle given" for a flag that was given. */
static bool print_flag(FILE *out, const struct option_set *set, const struct option_row *row) {
  if (set->given || row->kind != OPTION_FLAG) return false;
  bool is_set = *(const bool *)((const char *)set->values + row->field);
  bool given = is_set == !(row->flags & OPTION_CLEARS);
  fprintf(out, "--%s %s\n", row->name, given ? "given" : "(not given)");
  return true;
}

void option_print(FILE *out, const struct option_set *set, unsigned flags) {
  for (size_t i = 0; i < set->count; i++) {
    if (!is_wanted(set, i, flags) || print_flag(out, set, &set->rows[i])) continue;
    json_t *value = value_of(set, i);
    if (json_is_boolean(value)) { /* of a custom row */
      fprintf(out, "--%s %s\n", set->rows[i].name, json_is_true(value) ? "given" : "(not given)");
      json_decref(value);
      continue;
    }
    char *text = json_is_string(value) || json_is_null(value)
                     ? NULL
                     : sl__json_text(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(7));
    const char *line = text ? text : json_is_string(value) ? json_string_value(value) : NULL;
    fprintf(out, "--%s %s\n", set->rows[i].name, line ? line : "(not given)");
    free(text);
    json_decref(value);
  }
}
