/* Attributes of ONNX's nodes, and the message that refuses a node. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "nn/formats/onnx_read.h"

enum sl_status sl__onnx_refuse(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                               enum sl_status status, const char *format, ...) {
  char text[400];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  const char *name = *node->name ? node->name : node->outputs ? node->output[0] : "";
  return sl__fail(status, "%s: node %.64s (%.32s): %s", r->graph.path, name, node->op, text);
}

static enum sl_status get(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                          const char *name, int type, const struct sl__onnx_attribute **found) {
  *found = NULL;
  for (int i = 0; i < node->attributes; i++)
    if (!strcmp(node->attribute[i].name, name)) *found = &node->attribute[i];
  if (!*found || (*found)->type == type) return SL_OK;
  return sl__onnx_refuse(r, node, SL_BAD_FILE, "attribute %s is of type %d, not %d", name,
                         (*found)->type, type);
}

enum sl_status sl__onnx_get_whole(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                  const char *name, int64_t usual, int64_t *whole) {
  const struct sl__onnx_attribute *found;
  enum sl_status status = get(r, node, name, SL__ONNX_I, &found);
  *whole = status == SL_OK && found ? found->i : usual;
  return status;
}

enum sl_status sl__onnx_get_real(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                 const char *name, float usual, float *real) {
  const struct sl__onnx_attribute *found;
  enum sl_status status = get(r, node, name, SL__ONNX_F, &found);
  *real = status == SL_OK && found ? found->f : usual;
  return status;
}

enum sl_status sl__onnx_get_text(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                 const char *name, const char **text) {
  const struct sl__onnx_attribute *found;
  enum sl_status status = get(r, node, name, SL__ONNX_S, &found);
  *text = status == SL_OK && found ? found->s : NULL;
  return status;
}

enum sl_status sl__onnx_get_list(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                 const char *name, const int64_t **list, int *count) {
  const struct sl__onnx_attribute *found;
  enum sl_status status = get(r, node, name, SL__ONNX_INTS, &found);
  bool there = status == SL_OK && found && found->count > 0;
  *list = there ? found->ints : NULL;
  *count = there ? found->count : 0;
  return status;
}

enum sl_status sl__onnx_get_either(const struct sl__onnx_reader *r,
                                   const struct sl__onnx_node *node, const char *name, int i,
                                   const int64_t **list, int *count) {
  const struct sl__onnx_tensor *t = sl__onnx_constant(r, node, i);
  enum sl_status status = sl__onnx_get_list(r, node, name, list, count);
  if (status != SL_OK || !sl__onnx_has(node, i)) return status;
  if (!t || !t->wholes || t->ndim > 1 || t->count > SL__ONNX_DIMS)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "its %s is no short constant list", name);
  *list = t->wholes;
  *count = (int)t->count;
  return SL_OK;
}

enum sl_status sl__onnx_must_be(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                const char *name, int64_t usual, int64_t needed) {
  int64_t whole;
  enum sl_status status = sl__onnx_get_whole(r, node, name, usual, &whole);
  if (status != SL_OK || whole == needed) return status;
  return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "attribute %s is %lld; only %lld is supported",
                         name, (long long)whole, (long long)needed);
}

enum sl_status sl__onnx_axis(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                             int64_t axis, int ndim, int *found) {
  if (axis < -ndim || axis >= ndim)
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "axis %lld of %d", (long long)axis, ndim);
  *found = (int)(axis < 0 ? axis + ndim : axis);
  return SL_OK;
}

enum sl_status sl__onnx_check_range(const struct sl__onnx_reader *r,
                                    const struct sl__onnx_node *node, int64_t start, int64_t end) {
  if (start != SL__ONNX_BATCH && end != SL__ONNX_BATCH) return SL_OK;
  return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                         "its range depends on the batch's size, which a model does not know");
}
