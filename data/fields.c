/* Fields of rows: several inputs, several targets, by name. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "data/dataset.h"

static bool is_name(const char *name) {
  bool fits = name && *name && strlen(name) < 64 && strcmp(name, "input") != 0;
  for (const char *c = name; fits && *c; c++)
    fits = isalnum((unsigned char)*c) || strchr("_.-", *c);
  return fits;
}

static bool is_shape(const struct sl_shape *shape) {
  bool fits = shape->ndim >= 1 && shape->ndim < SL_MAX_DIMS;
  for (int d = 0; fits && d < shape->ndim; d++)
    fits = shape->dim[d] >= 1 && shape->dim[d] <= 1ll << 40;
  return fits && sl_shape_count(shape) <= 1ll << 40;
}

static enum sl_status check_field(const char *set, const char *what,
                                  const struct sl_row_field *fields, int i) {
  const struct sl_row_field *field = &fields[i];
  if (!is_name(field->name))
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s: '%.64s' cannot name one of the %ss: 1 to 63 letters, digits, _ . - (and "
                    "not \"input\")",
                    set, field->name ? field->name : "", what);
  for (int k = 0; k < i; k++)
    if (!strcmp(fields[k].name, field->name))
      return sl__fail(SL_BAD_ARGUMENT, "%s: %s field '%s' is there twice; give different names",
                      set, what, field->name);
  if (!is_shape(&field->shape))
    return sl__fail(SL_BAD_ARGUMENT, "%s: the shape of %s field '%s' is impossible", set, what,
                    field->name);
  if (field->classes < 0 || field->classes > SL_MAX_CLASSES)
    return sl__fail(SL_BAD_ARGUMENT, "%s: %s field '%s' has %d classes; there can be 1 to %d", set,
                    what, field->name, field->classes, SL_MAX_CLASSES);
  return SL_OK;
}

enum sl_status sl__fields_copy(const char *set, const char *what, const struct sl_row_field *fields,
                               int count, struct sl_shape *row, struct sl_row_field **copy) {
  struct sl_row_field *own = NULL;
  enum sl_status status = SL_OK;
  int64_t values = 0;
  if (count < 1 || count > SL_MAX_FIELDS || !fields)
    return sl__fail(SL_BAD_ARGUMENT, "%s: %d %s fields; there can be 1 to %d", set, count, what,
                    SL_MAX_FIELDS);
  for (int i = 0; i < count; i++) SL__TRY(check_field(set, what, fields, i));
  own = sl__alloc((size_t)count, sizeof *own, set);
  if (!own) return SL_NO_MEMORY;
  for (int i = 0; i < count; i++) {
    own[i] = fields[i];
    own[i].first = values;
    own[i].name = sl__strdup(fields[i].name);
    if (!own[i].name) SL__TRY(SL_NO_MEMORY);
    values += sl_shape_count(&fields[i].shape);
  }
  if (row->ndim && !sl_shape_equal(row, &SL_SHAPE(values)))
    SL__TRY(sl__fail(SL_BAD_ARGUMENT,
                     "%s: the %s fields make a row of %lld values; leave the shape out, or give "
                     "[%lld]",
                     set, what, (long long)values, (long long)values));
  *row = SL_SHAPE(values);
  *copy = own;
  return SL_OK;
out:
  sl__fields_free(own, count);
  return status;
}

void sl__fields_free(const struct sl_row_field *fields, int count) {
  for (int i = 0; fields && i < count; i++) free((char *)fields[i].name);
  free((struct sl_row_field *)fields);
}

static enum sl_status alike(const char *a_name, const struct sl_row_field *a, int a_count,
                            const char *b_name, const struct sl_row_field *b, int b_count) {
  char here[96], there[96];
  if (a_count != b_count)
    return sl__fail(SL_BAD_SHAPE, "%s: has %d fields, but %s has %d", b_name, b_count, a_name,
                    a_count);
  for (int i = 0; i < a_count; i++) {
    if (strcmp(a[i].name, b[i].name) != 0 || !sl_shape_equal(&a[i].shape, &b[i].shape))
      return sl__fail(SL_BAD_SHAPE, "%s: field %d is %s %s, but %s %s in %s", b_name, i, b[i].name,
                      sl_shape_text(&b[i].shape, there, sizeof there), a[i].name,
                      sl_shape_text(&a[i].shape, here, sizeof here), a_name);
    if (b[i].classes > a[i].classes || !b[i].classes != !a[i].classes)
      return sl__fail(SL_BAD_FILE, "%s: %s has %d classes, but %d in %s", b_name, b[i].name,
                      b[i].classes, a[i].classes, a_name);
  }
  return SL_OK;
}

enum sl_status sl__fields_alike(const struct sl_dataset_info *a, const struct sl_dataset_info *b) {
  enum sl_status status =
      alike(a->name, a->inputs, a->input_count, b->name, b->inputs, b->input_count);
  return status == SL_OK
             ? alike(a->name, a->targets, a->target_count, b->name, b->targets, b->target_count)
             : status;
}
