/* Inputs and outputs of ONNX's nodes: arguments and results of the readers of operators. */
#include <math.h>

#include "nn/formats/onnx_operators.h"

static bool is_plain(const value_of *v) {
  return v->factor == 1 && v->has_x && v->erf == SL__ONNX_PLAIN;
}

const struct sl_shape *sl__onnx_shape_of(const reader *r, const value_of *v) {
  return v->layer == SL__INPUT ? &r->model->sample : &r->model->layers[v->layer].out;
}

enum sl_status sl__onnx_take(const reader *r, const node_of *node, int i, value_of *v) {
  const value_of *found = sl__onnx_has(node, i) ? sl__onnx_find(r, node->input[i]) : NULL;
  if (!found) return sl__onnx_refuse(r, node, SL_BAD_FILE, "has no input %d", i);
  if (found->is != SL__ONNX_OUTPUT)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "its input '%.64s' is a constant", found->name);
  *v = *found;
  return SL_OK;
}

enum sl_status sl__onnx_take_plain(const reader *r, const node_of *node, int i, value_of *v) {
  enum sl_status status = sl__onnx_take(r, node, i, v);
  if (status != SL_OK || is_plain(v)) return status;
  return sl__onnx_refuse(
      r, node, SL_UNSUPPORTED,
      "takes '%.64s', a layer's output times or plus a constant; this is supported only "
      "as a part of gelu, x (1 + erf(x / sqrt 2)) / 2",
      v->name);
}

enum sl_status sl__onnx_take_whole(reader *r, const node_of *node, int i, value_of *v) {
  enum sl_status status = sl__onnx_take_plain(r, node, i, v);
  if (status != SL_OK) return status;
  if (v->order == SL__ONNX_BATCH_FIRST) return sl__onnx_make_view(r, node, v);
  return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                         "takes '%.64s' transposed; the batch's axis must be the first", v->name);
}

enum sl_status sl__onnx_take_weight(const reader *r, const node_of *node, int i, int ndim,
                                    const struct sl__onnx_tensor **weight) {
  *weight = sl__onnx_constant(r, node, i);
  if (!*weight)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "its input %d must be a constant of the file",
                           i);
  if (!(*weight)->reals)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "its input %d has no values of a type that is read (here %d; floats are "
                           "1, 10, 11, 16)",
                           i, (*weight)->type);
  if (ndim >= 0 && (*weight)->ndim != ndim)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "its input %d has %d dimensions; %d are supported", i, (*weight)->ndim,
                           ndim);
  return SL_OK;
}

/* Defines the last layer's output. If its shape is the input's, it gets the input's view and order.
 */
static enum sl_status give(reader *r, const node_of *node, const char *name, const value_of *as) {
  value_of v = {.is = SL__ONNX_OUTPUT, .layer = r->model->count - 1, .factor = 1, .has_x = true};
  v.view = *sl__onnx_shape_of(r, &v);
  if (as) {
    v.view = as->view;
    v.order = as->order;
  }
  return sl__onnx_define(r, node, name, &v);
}

enum sl_status sl__onnx_give_first(reader *r, const node_of *node, const value_of *as) {
  if (!node->outputs) return sl__onnx_refuse(r, node, SL_BAD_FILE, "has no output");
  return give(r, node, node->output[0], as);
}

enum sl_status sl__onnx_rename_to(reader *r, const node_of *node, const value_of *v) {
  if (!node->outputs) return sl__onnx_refuse(r, node, SL_BAD_FILE, "has no output");
  return sl__onnx_define(r, node, node->output[0], v);
}
