#include <inttypes.h>
#include <stdio.h>

#include "core/base/error.h"

static bool is_possible(const struct sl_shape *shape) {
  return shape->ndim >= 0 && shape->ndim <= SL_MAX_DIMS;
}

int64_t sl_shape_count(const struct sl_shape *shape) {
  SL__NEEDS_OR(0, shape);
  int64_t count = 1;
  if (!is_possible(shape)) return INT64_MAX;
  for (int i = 0; i < shape->ndim; i++)
    if (__builtin_mul_overflow(count, shape->dim[i], &count)) return INT64_MAX;
  return count;
}

const char *sl_shape_text(const struct sl_shape *shape, char *text, size_t size) {
  if (!text || !size) return text;
  *text = '\0';
  SL__NEEDS_OR(text, shape);
  if (!is_possible(shape)) {
    snprintf(text, size, "[?]");
    return text;
  }
  size_t at = (size_t)snprintf(text, size, "[");
  for (int i = 0; i < shape->ndim && at < size; i++)
    at += (size_t)snprintf(text + at, size - at, "%s%" PRId64, i ? ", " : "", shape->dim[i]);
  if (at < size) snprintf(text + at, size - at, "]");
  return text;
}

bool sl_shape_equal(const struct sl_shape *a, const struct sl_shape *b) {
  SL__NEEDS_OR(false, a, b);
  if (a->ndim != b->ndim || !is_possible(a)) return false;
  for (int i = 0; i < a->ndim; i++)
    if (a->dim[i] != b->dim[i]) return false;
  return true;
}
