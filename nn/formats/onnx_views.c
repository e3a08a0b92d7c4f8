/* ONNX's operators that change only the shape or the order of axes in which later nodes see a
 * layer's output. */
#include <string.h>

#include "nn/formats/onnx_operators.h"

enum { BATCH_AXIS = -1, DIRECTION_AXIS = -2 };

/* Lists the axes of a value: axes of a sample by number, and the two above. */
static int axes_of(enum sl__onnx_order order, int sample, int axes[SL__ONNX_DIMS]) {
  static const int before[SL__ONNX_ORDERS][4] = {{BATCH_AXIS},
                                                 {0, BATCH_AXIS},
                                                 {0, DIRECTION_AXIS, BATCH_AXIS},
                                                 {0, BATCH_AXIS, DIRECTION_AXIS},
                                                 {0, 1, BATCH_AXIS}};
  static const int count[SL__ONNX_ORDERS] = {1, 2, 3, 3, 3};
  int ndim = count[order];
  memcpy(axes, before[order], sizeof before[order]);
  int first = order == SL__ONNX_BATCH_FIRST ? 0 : order == SL__ONNX_TIME_DIRECTIONS ? 2 : 1;
  for (int d = first; d < sample; d++) axes[ndim++] = d;
  return ndim;
}

/* Starling writes a layer's last node with the layer's name, and views with a part's, "LAYER/part".
 */
static bool is_own_layer(const reader *r, const node_of *node) {
  return r->own && !strchr(node->name, '/');
}

static int full_shape(const value_of *v, int64_t dim[SL__ONNX_DIMS]) {
  int axes[SL__ONNX_DIMS], ndim = axes_of(v->order, v->view.ndim, axes);
  for (int d = 0; d < ndim; d++)
    dim[d] = axes[d] == BATCH_AXIS       ? SL__ONNX_BATCH
             : axes[d] == DIRECTION_AXIS ? 1
                                         : v->view.dim[axes[d]];
  return ndim;
}

enum sl_status sl__onnx_read_shape(reader *r, const node_of *node) {
  int64_t dim[SL__ONNX_DIMS];
  enum sl_status status;
  value_of x;
  SL__TRY(sl__onnx_take(r, node, 0, &x));
  int ndim = full_shape(&x, dim);
  struct sl__onnx_tensor *y = sl__onnx_alloc(&r->graph, 1, sizeof *y);
  if (!y) return sl__onnx_no_memory(&r->graph);
  SL__TRY(sl__onnx_list_shape(r, node, dim, ndim, y));
  value_of v = {.is = SL__ONNX_CONSTANT, .constant = y};
  status = sl__onnx_rename_to(r, node, &v);
out:
  return status;
}

enum sl_status sl__onnx_read_identity(reader *r, const node_of *node) {
  int64_t to;
  enum sl_status status;
  value_of x;
  SL__TRY(sl__onnx_take(r, node, 0, &x));
  SL__TRY(sl__onnx_get_whole(r, node, "to", 0, &to));
  bool tokens = sl__onnx_is_tokens(r, &x);
  if (!strcmp(node->op, "Cast") &&
      !(tokens ? to == SL__ONNX_INT32 || to == SL__ONNX_INT64 : to == SL__ONNX_FLOAT))
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "attribute to is %lld: outputs are f32, tokens "
                           "whole",
                           (long long)to);
  status = sl__onnx_rename_to(r, node, &x);
out:
  return status;
}

enum sl_status sl__onnx_read_cast_like(reader *r, const node_of *node) {
  enum sl_status status;
  value_of x;
  SL__TRY(sl__onnx_take(r, node, 0, &x));
  const value_of *like = sl__onnx_has(node, 1) ? sl__onnx_find(r, node->input[1]) : NULL;
  bool fits = like && (like->is == SL__ONNX_OUTPUT
                           ? sl__onnx_is_tokens(r, like) == sl__onnx_is_tokens(r, &x)
                           : !like->constant->reals == sl__onnx_is_tokens(r, &x));
  if (!fits)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "makes another type: outputs are f32, tokens whole");
  status = sl__onnx_rename_to(r, node, &x);
out:
  return status;
}

enum sl_status sl__onnx_read_transpose(reader *r, const node_of *node) {
  int from[SL__ONNX_DIMS], to[SL__ONNX_DIMS], own[SL__ONNX_DIMS];
  const int64_t *perm;
  int count, axis, seen = 0;
  enum sl_status status;
  value_of x;
  SL__TRY(sl__onnx_take_plain(r, node, 0, &x));
  int ndim = axes_of(x.order, x.view.ndim, from);
  SL__TRY(sl__onnx_get_list(r, node, "perm", &perm, &count));
  if (perm && count != ndim)
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "perm has %d axes of %d", count, ndim);
  for (int d = 0; d < ndim; d++) {
    SL__TRY(sl__onnx_axis(r, node, perm ? perm[d] : ndim - 1 - d, ndim, &axis));
    to[d] = from[axis];
    seen |= 1 << axis;
  }
  if (seen != (1 << ndim) - 1)
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "perm names an axis twice");
  /* time must be the layer's own first axis, with features behind it, except for tokens; or the
   * axes were turned before */
  bool may_turn =
      x.order != SL__ONNX_BATCH_FIRST || (sl_shape_equal(&x.view, sl__onnx_shape_of(r, &x)) &&
                                          (x.view.ndim > 1 || sl__onnx_is_tokens(r, &x)));
  for (int order = 0; order < SL__ONNX_ORDERS; order++) {
    if (order != SL__ONNX_BATCH_FIRST && !may_turn) continue;
    if (axes_of((enum sl__onnx_order)order, x.view.ndim, own) != ndim ||
        memcmp(own, to, (size_t)ndim * sizeof *own) != 0)
      continue;
    if (is_own_layer(r, node)) break;
    x.order = (enum sl__onnx_order)order;
    return sl__onnx_rename_to(r, node, &x);
  }
  /* the sample's axes turn, too: exporters make one Transpose of two */
  bool is_second = x.view.ndim > 1 && to[1] == BATCH_AXIS;
  if (x.order <= SL__ONNX_TIME_FIRST && (to[0] == BATCH_AXIS || is_second)) {
    if (is_second) to[1] = to[0];
    return sl__onnx_append_permute(r, node, &x, to + 1,
                                   is_second ? SL__ONNX_TIME_FIRST : SL__ONNX_BATCH_FIRST);
  }
  status = sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "attribute perm: the batch's axis must become the first, or the second "
                           "as around recurrent layers");
out:
  return status;
}

static bool says(const reader *r, int64_t said, int64_t dim) {
  return said == dim || said == -1 || (dim == SL__ONNX_BATCH && r->batch && said == r->batch);
}

/* Is the shape this value's, or that of another order of axes with the same layout in memory? */
static bool find_order(const reader *r, const struct sl__onnx_tensor *shape, value_of *x) {
  int64_t dim[SL__ONNX_DIMS];
  value_of other = *x;
  bool has_direction =
      x->order == SL__ONNX_TIME_DIRECTION || x->order == SL__ONNX_TIME_BATCH_DIRECTION;
  for (int tries = 0; tries < 2; tries++) {
    int ndim = full_shape(&other, dim);
    bool same = ndim == shape->count;
    for (int d = 0; same && d < ndim; d++) same = says(r, shape->wholes[d], dim[d]);
    if (same) {
      *x = other;
      return true;
    }
    if (has_direction)
      other.order = SL__ONNX_TIME_FIRST; /* an axis of one direction does not change the layout */
  }
  return false;
}

/* A sample's new dimensions; the first entry of shape is the batch's. */
static bool find_view(const reader *r, const struct sl__onnx_tensor *shape, bool zero_copies,
                      const value_of *x, struct sl_shape *view) {
  int64_t values = sl_shape_count(&x->view), known = 1;
  int open = -1;
  *view = (struct sl_shape){.ndim = (int)shape->count - 1};
  if (view->ndim < 1 || view->ndim >= SL_MAX_DIMS || x->order != SL__ONNX_BATCH_FIRST) return false;
  for (int d = 0; d < view->ndim; d++) {
    int64_t said = shape->wholes[d + 1];
    if (said == 0 && zero_copies && d < x->view.ndim) said = x->view.dim[d];
    view->dim[d] = said;
    if (said == -1 && open < 0)
      open = d;
    else if (said < 1 || __builtin_mul_overflow(known, said, &known))
      return false;
  }
  if (open >= 0 && values % known) return false;
  if (open >= 0) view->dim[open] = values / known;
  int64_t batch = shape->wholes[0];
  return sl_shape_count(view) == values &&
         (batch == SL__ONNX_BATCH || (batch == -1 && open < 0) || (batch == 0 && zero_copies) ||
          (r->batch && batch == r->batch));
}

bool sl__onnx_find_view(const reader *r, const node_of *node, const value_of *x,
                        struct sl_shape *view) {
  const struct sl__onnx_tensor *shape = sl__onnx_constant(r, node, 1);
  int64_t zero_is_zero;
  return shape && shape->wholes && shape->ndim == 1 && shape->count <= SL__ONNX_DIMS &&
         sl__onnx_get_whole(r, node, "allowzero", 0, &zero_is_zero) == SL_OK &&
         find_view(r, shape, !zero_is_zero, x, view);
}

/* The same for [T, N, ...], whose first axis stays: [T, N, 2, H] -> [T, N, 2 H]. */
static bool find_time_view(const reader *r, const struct sl__onnx_tensor *shape, bool zero_copies,
                           const value_of *x, struct sl_shape *view) {
  int64_t wholes[SL__ONNX_DIMS];
  struct sl__onnx_tensor turned = *shape;
  value_of first = *x;
  if (x->order != SL__ONNX_TIME_FIRST || shape->count < 2) return false;
  memcpy(wholes, shape->wholes, (size_t)shape->count * sizeof *wholes);
  wholes[1] = shape->wholes[0] == 0 && zero_copies ? x->view.dim[0] : shape->wholes[0];
  wholes[0] = shape->wholes[1];
  turned.wholes = wholes;
  first.order = SL__ONNX_BATCH_FIRST;
  return find_view(r, &turned, zero_copies, &first, view) && view->dim[0] == x->view.dim[0];
}

/* A layer of the model that Starling wrote. */
static enum sl_status append_reshape(reader *r, const node_of *node, const value_of *x) {
  struct sl_reshape_options o = {.shape = x->view};
  if (o.shape.ndim == 1) o.shape = (struct sl_shape){0}; /* the layer's default */
  enum sl_status status = sl__onnx_append(r, node, NULL, &sl__reshape_kind, &o, x, 1);
  return status == SL_OK ? sl__onnx_give_first(r, node, NULL) : status;
}

enum sl_status sl__onnx_read_reshape(reader *r, const node_of *node) {
  const struct sl__onnx_tensor *shape = sl__onnx_constant(r, node, 1);
  int64_t zero_is_zero;
  struct sl_shape view;
  enum sl_status status;
  char text[96];
  value_of x;
  SL__TRY(sl__onnx_take_plain(r, node, 0, &x));
  SL__TRY(sl__onnx_get_whole(r, node, "allowzero", 0, &zero_is_zero));
  if (!shape || !shape->wholes || shape->ndim != 1 || shape->count > SL__ONNX_DIMS)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "its shape must be a constant, but for the "
                           "batch's size");
  if (!is_own_layer(r, node) && find_order(r, shape, &x)) return sl__onnx_rename_to(r, node, &x);
  if (!find_view(r, shape, !zero_is_zero, &x, &view) &&
      !find_time_view(r, shape, !zero_is_zero, &x, &view))
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "its shape is none of a batch of samples %s; the batch's axis stays "
                           "apart and first",
                           sl_shape_text(&x.view, text, sizeof text));
  x.view = view;
  status = is_own_layer(r, node) ? append_reshape(r, node, &x) : sl__onnx_rename_to(r, node, &x);
out:
  return status;
}

enum sl_status sl__onnx_read_flatten(reader *r, const node_of *node) {
  int64_t number;
  int axis;
  enum sl_status status;
  value_of x;
  SL__TRY(sl__onnx_take_plain(r, node, 0, &x));
  SL__TRY(sl__onnx_get_whole(r, node, "axis", 1, &number));
  SL__TRY(sl__onnx_axis(r, node, number, x.view.ndim + 2, &axis));
  if (number < 0) axis--; /* a negative number counts from the end of the longer shape */
  if (axis != 1 || x.order != SL__ONNX_BATCH_FIRST)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "attribute axis: only the batch's axis stays "
                           "apart");
  x.view = SL_SHAPE(sl_shape_count(&x.view));
  status = sl__onnx_rename_to(r, node, &x);
out:
  return status;
}

enum sl_status sl__onnx_read_squeeze(reader *r, const node_of *node) {
  int axes[SL__ONNX_DIMS], count, axis, out = 0;
  struct sl_shape view = {0};
  const int64_t *list;
  enum sl_status status;
  value_of x;
  SL__TRY(sl__onnx_take_plain(r, node, 0, &x));
  int ndim = axes_of(x.order, x.view.ndim, axes);
  SL__TRY(sl__onnx_get_either(r, node, "axes", 1, &list, &count));
  for (int i = 0; i < count; i++) {
    SL__TRY(sl__onnx_axis(r, node, list[i], ndim, &axis));
    out |= 1 << axis;
  }
  bool has_direction = false, fits = count > 0;
  for (int d = 0; d < ndim; d++) {
    bool goes = out >> d & 1;
    has_direction |= axes[d] == DIRECTION_AXIS && goes;
    fits &= !goes || axes[d] == DIRECTION_AXIS ||
            (axes[d] >= 0 && x.view.dim[axes[d]] == 1 &&
             (x.order == SL__ONNX_BATCH_FIRST || (x.order == SL__ONNX_TIME_FIRST && d == 0)));
    if (axes[d] >= 0 && !goes) view.dim[view.ndim++] = x.view.dim[axes[d]];
  }
  if (!fits || view.ndim < 1)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "axes: only axes of size 1 of a sample can be removed");
  if (has_direction) {
    x.order = SL__ONNX_TIME_FIRST;
  } else {
    if (out & 1) x.order = SL__ONNX_BATCH_FIRST;
    x.view = view;
  }
  status = sl__onnx_rename_to(r, node, &x);
out:
  return status;
}

enum sl_status sl__onnx_read_unsqueeze(reader *r, const node_of *node) {
  int count, axis, in = 0, from = 0;
  struct sl_shape view = {0};
  const int64_t *list;
  enum sl_status status;
  value_of x;
  SL__TRY(sl__onnx_take_plain(r, node, 0, &x));
  SL__TRY(sl__onnx_get_either(r, node, "axes", 1, &list, &count));
  int ndim = x.view.ndim + 1 + count;
  if (!count || ndim > SL_MAX_DIMS || x.order != SL__ONNX_BATCH_FIRST)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "axes: at most %d dimensions are supported",
                           SL_MAX_DIMS);
  for (int i = 0; i < count; i++) {
    SL__TRY(sl__onnx_axis(r, node, list[i], ndim, &axis));
    if (axis == 0 || in >> axis & 1)
      return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "axes: the batch's axis must stay the first");
    in |= 1 << axis;
  }
  for (int d = 1; d < ndim; d++) view.dim[view.ndim++] = in >> d & 1 ? 1 : x.view.dim[from++];
  x.view = view;
  status = sl__onnx_rename_to(r, node, &x);
out:
  return status;
}
