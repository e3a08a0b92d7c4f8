/* Limits of the options that kinds of layers declare in their tables of fields. */
#include <limits.h>
#include <math.h>

#include "core/base/json.h"
#include "nn/layer.h"

int64_t sl__field_most(const struct sl_field *field) {
  return field->type == SL_FIELD_INT ? INT_MAX : SL__MOST_VALUES;
}

static enum sl_status check_whole(const struct sl__layer *layer, const struct sl_field *field,
                                  int64_t value) {
  int64_t most = sl__field_most(field);
  if (value >= 0 && value <= most) return SL_OK;
  return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                        "%s is %lld; it must be a whole number from 0 to %lld", field->name,
                        (long long)value, (long long)most);
}

static enum sl_status check_real(const struct sl__layer *layer, const struct sl_field *field,
                                 float value) {
  if (isfinite(value)) return SL_OK;
  return sl__layer_fail(layer, SL_BAD_ARGUMENT, "%s is %g; it must be finite", field->name,
                        (double)value);
}

static enum sl_status check_activation(const struct sl__layer *layer, const struct sl_field *field,
                                       enum sl_activation value) {
  if (*sl_activation_name(value) != '?') return SL_OK;
  return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                        "%s is %d; there is no such activation (SL_ACTIVATION_*)", field->name,
                        (int)value);
}

enum sl_status sl__layer_check_lists(const struct sl__layer *layer) {
  for (const struct sl_field *field = layer->kind->fields; field && field->name; field++) {
    const struct sl_shape *list = (const void *)((const char *)layer->options + field->offset);
    if (field->type == SL_FIELD_SHAPE && (list->ndim < 0 || list->ndim > SL_MAX_DIMS))
      return sl__layer_fail(layer, SL_BAD_ARGUMENT, "%s has %d numbers; at most %d", field->name,
                            list->ndim, SL_MAX_DIMS);
  }
  return SL_OK;
}

static enum sl_status check_list(const struct sl__layer *layer, const struct sl_field *field,
                                 const struct sl_shape *list) {
  int64_t most = sl__field_most(field);
  for (int i = 0; i < list->ndim; i++)
    if (list->dim[i] < 0 || list->dim[i] > most)
      return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                            "%s has the number %lld; each must be from 0 to %lld", field->name,
                            (long long)list->dim[i], (long long)most);
  return SL_OK;
}

static enum sl_status check_field(const struct sl__layer *layer, const struct sl_field *field) {
  const void *at = (const char *)layer->options + field->offset;
  switch (field->type) {
    case SL_FIELD_BOOL: break;
    case SL_FIELD_INT: return check_whole(layer, field, *(const int *)at);
    case SL_FIELD_INT64: return check_whole(layer, field, *(const int64_t *)at);
    case SL_FIELD_FLOAT: return check_real(layer, field, *(const float *)at);
    case SL_FIELD_ACTIVATION:
      return check_activation(layer, field, *(const enum sl_activation *)at);
    case SL_FIELD_SHAPE: return check_list(layer, field, at);
  }
  return SL_OK;
}

enum sl_status sl__layer_check_options(const struct sl__layer *layer) {
  enum sl_status status = SL_OK;
  if (layer->group && !sl__is_utf8(layer->group))
    return sl__layer_fail(layer, SL_BAD_ARGUMENT, "group '%.40s' is no UTF-8; take another name",
                          layer->group);
  for (const struct sl_field *field = layer->kind->fields; field && field->name; field++)
    SL__TRY(check_field(layer, field));
out:
  return status;
}
