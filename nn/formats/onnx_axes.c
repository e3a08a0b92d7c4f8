/* ONNX's operators on the axes of a sample that become layers: Concat, Slice, Transpose,
 * ReduceMean, and a Reshape whose result a layer takes. */
#include <stdlib.h>
#include <string.h>

#include "nn/formats/onnx_operators.h"

enum sl_status sl__onnx_make_view(reader *r, const node_of *node, value_of *v) {
  struct sl_reshape_options o = {.shape = v->view};
  if (sl_shape_equal(&v->view, sl__onnx_shape_of(r, v))) return SL_OK;
  enum sl_status status = sl__onnx_append(r, node, NULL, &sl__reshape_kind, &o, v, 1);
  v->layer = r->model->count - 1;
  return status;
}

/* Do nodes take the shape of its output alone, as those that make first states? */
static bool is_for_shapes(const reader *r, const node_of *node) {
  const value_of *v = node->outputs ? sl__onnx_find(r, node->output[0]) : NULL;
  int uses = 0;
  for (int n = 0; v && n < r->graph.nodes; n++) {
    const node_of *user = &r->graph.node[n];
    uses += r->needed[n] && !strcmp(user->op, "Shape") && sl__onnx_has(user, 0) &&
            !strcmp(user->input[0], v->name);
  }
  return v && uses && uses == v->uses;
}

enum sl_status sl__onnx_append_permute(reader *r, const node_of *node, value_of *x, const int *axes,
                                       enum sl__onnx_order order) {
  struct sl_permute_options o = {.axes.ndim = x->view.ndim};
  value_of y = *x;
  enum sl_status status;
  bool turns = true, stays = true;
  y.order = order;
  for (int d = 0; d < x->view.ndim; d++) y.view.dim[d] = x->view.dim[axes[d]];
  if (is_for_shapes(r, node)) return sl__onnx_rename_to(r, node, &y);
  SL__TRY(sl__onnx_make_view(r, node, x));
  for (int d = 0; d < x->view.ndim; d++) {
    o.axes.dim[d] = axes[d];
    turns &= axes[d] == x->view.ndim - 1 - d;
    stays &= axes[d] == d;
  }
  y.layer = x->layer;
  if (stays && !r->own) return sl__onnx_rename_to(r, node, &y);
  if (turns) o.axes = (struct sl_shape){0}; /* the layer's default */
  SL__TRY(sl__onnx_append(r, node, NULL, &sl__permute_kind, &o, x, 1));
  status = sl__onnx_give_first(r, node, &y);
out:
  return status;
}

/* The axis of a sample, from an axis of a batch. */
static enum sl_status sample_axis(const reader *r, const node_of *node, int64_t number, int ndim,
                                  int *axis) {
  enum sl_status status = sl__onnx_axis(r, node, number, ndim + 1, axis);
  if (status == SL_OK && --*axis < 0)
    status = sl__onnx_refuse(r, node, SL_UNSUPPORTED, "attribute axis: the batch's axis");
  return status;
}

/* The last node of a layer that Starling writes as two, "LAYER/PART" and one of the operator; else
 * the node. */
static const node_of *last_of_own(reader *r, const node_of *node, const char *op) {
  if (!r->own || !strchr(node->name, '/') || !node->outputs) return node;
  const node_of *user = sl__onnx_only_user(r, node->output[0]);
  if (!user || strcmp(user->op, op) != 0) return node;
  r->done[user - r->graph.node] = true;
  return user;
}

/* Takes the inputs of a Concat along axis 1. Rows that were made flat for it are taken as they are:
 * *flat. Else all get the shapes that they are seen with. */
static enum sl_status take_joined(reader *r, const node_of *node, int64_t axis, value_of *x,
                                  bool *flat) {
  bool are_rows = axis == 1, are_views = false;
  enum sl_status status = SL_OK;
  for (int i = 0; i < node->inputs; i++) {
    SL__TRY(sl__onnx_take_plain(r, node, i, &x[i]));
    if (x[i].order == SL__ONNX_TIME_FIRST && axis == 0)
      return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                             "joins last states of recurrent layers, or time steps; nodes can only "
                             "take one of several layers' states by its number, as h_n[-1]");
    are_rows &= x[i].view.ndim == 1 && x[i].order == SL__ONNX_BATCH_FIRST;
    are_views |= !sl_shape_equal(&x[i].view, sl__onnx_shape_of(r, &x[i]));
  }
  *flat = are_rows && are_views;
  for (int i = 0; i < node->inputs && !*flat; i++) SL__TRY(sl__onnx_take_whole(r, node, i, &x[i]));
out:
  return status;
}

enum sl_status sl__onnx_read_concat(reader *r, const node_of *node) {
  struct sl_concatenate_options o = {0};
  enum sl_status status;
  int64_t number;
  if (node->inputs < 1 || node->inputs > SL__MOST_INPUTS)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "takes %d inputs; 1 to %d are supported",
                           node->inputs, SL__MOST_INPUTS);
  value_of *x = sl__alloc((size_t)node->inputs, sizeof *x, "a node's inputs");
  if (!x) return SL_NO_MEMORY;
  SL__TRY(sl__onnx_get_whole(r, node, "axis", 1, &number));
  SL__TRY(take_joined(r, node, number, x, &o.flat));
  SL__TRY(sample_axis(r, node, number, x->view.ndim, &o.axis));
  SL__TRY(sl__onnx_append(r, node, NULL, &sl__concatenate_kind, &o, x, node->inputs));
  status = sl__onnx_give_first(r, node, NULL);
out:
  free(x);
  return status;
}

/* A list of one number: attribute or input i. */
static enum sl_status one_number(const reader *r, const node_of *node, const char *name, int i,
                                 int64_t *number) {
  const int64_t *list;
  int count;
  enum sl_status status = sl__onnx_get_either(r, node, name, i, &list, &count);
  if (status != SL_OK) return status;
  if (count != 1)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "its %s must be one constant number", name);
  *number = *list;
  return SL_OK;
}

/* ONNX counts negative numbers from the end, and cuts larger ones. */
static int64_t place_of(int64_t number, int64_t size) {
  if (number < 0) number = number < -size ? 0 : number + size;
  return number > size ? size : number;
}

/* All of the batch, as exporters write the first ":" of y[:, -1]? */
static bool is_whole_batch(const value_of *x, int64_t axis, int64_t start, int64_t end,
                           int64_t step) {
  return (axis == 0 || axis == -1 - x->view.ndim) && start == 0 && end == INT64_MAX && step == 1;
}

/* A range of both states [2, N, H] of a recurrent operator, which the next nodes see as such. */
static enum sl_status cut_states(reader *r, const node_of *node, value_of *x, int64_t start,
                                 int64_t end) {
  struct sl_slice_options o = {0};
  enum sl_status status;
  SL__TRY(sl__onnx_make_view(r, node, x));
  o.first = place_of(start, x->view.dim[0]);
  o.count = place_of(end, x->view.dim[0]) - o.first;
  if (o.count < 1) return sl__onnx_refuse(r, node, SL_BAD_FILE, "its range is empty");
  if (o.first + o.count == x->view.dim[0]) o.count = 0; /* the layer's default */
  SL__TRY(sl__onnx_append(r, node, NULL, &sl__slice_kind, &o, x, 1));
  x->layer = r->model->count - 1;
  x->view = *sl__onnx_shape_of(r, x);
  status = sl__onnx_rename_to(r, node, x);
out:
  return status;
}

enum sl_status sl__onnx_read_slice(reader *r, const node_of *node) {
  struct sl_slice_options o = {0};
  int64_t start = 0, end = 0, axis = 0, step = 1;
  enum sl_status status;
  value_of x;
  SL__TRY(sl__onnx_take_plain(r, node, 0, &x));
  SL__TRY(one_number(r, node, "starts", 1, &start));
  SL__TRY(one_number(r, node, "ends", 2, &end));
  SL__TRY(one_number(r, node, "axes", 3, &axis));
  if (sl__onnx_has(node, 4)) SL__TRY(one_number(r, node, "steps", 4, &step));
  if (x.order == SL__ONNX_TIME_FIRST && axis == 0 && step == 1 && start != SL__ONNX_BATCH &&
      end != SL__ONNX_BATCH)
    return cut_states(r, node, &x, start, end);
  SL__TRY(sl__onnx_take_whole(r, node, 0, &x));
  if (is_whole_batch(&x, axis, start, end, step)) return sl__onnx_rename_to(r, node, &x);
  SL__TRY(sample_axis(r, node, axis, x.view.ndim, &o.axis));
  SL__TRY(sl__onnx_check_range(r, node, start, end));
  int64_t size = x.view.dim[o.axis];
  if (step == -1 && (start == -1 || start >= size - 1) && end < -size) {
    struct sl_flip_options flip = {.axis = o.axis};
    SL__TRY(sl__onnx_append(r, node, NULL, &sl__flip_kind, &flip, &x, 1));
    return sl__onnx_give_first(r, node, NULL);
  }
  if (step != 1)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "its step is %lld; 1 is supported, and -1 over the whole axis",
                           (long long)step);
  o.first = place_of(start, x.view.dim[o.axis]);
  end = place_of(end, x.view.dim[o.axis]);
  if (end <= o.first) return sl__onnx_refuse(r, node, SL_BAD_FILE, "its range is empty");
  o.count = end == x.view.dim[o.axis] ? 0 : end - o.first;
  const node_of *last = last_of_own(r, node, "Reshape");
  const struct sl__onnx_tensor *shape = last == node ? NULL : sl__onnx_constant(r, last, 1);
  if (shape && shape->wholes && shape->count > 1 && shape->count <= SL_MAX_DIMS) {
    o.shape.ndim = (int)shape->count - 1;
    memcpy(o.shape.dim, shape->wholes + 1, (size_t)o.shape.ndim * sizeof *o.shape.dim);
  } else if (last != node) {
    return sl__onnx_refuse(r, last, SL_BAD_FILE, "its shape is no list of 2 to 5 constants");
  }
  SL__TRY(sl__onnx_append(r, last, NULL, &sl__slice_kind, &o, &x, 1));
  status = sl__onnx_give_first(r, last, NULL);
out:
  return status;
}

/* Appends a slice for output i of a Split, which the next nodes see in x's order. */
static enum sl_status append_part(reader *r, const node_of *node, const value_of *x, int i,
                                  const struct sl_slice_options *part) {
  struct sl_slice_options o = *part;
  value_of y = *x;
  const value_of *known = *node->output[i] ? sl__onnx_find(r, node->output[i]) : NULL;
  enum sl_status status;
  if (!known || !known->uses) return SL_OK;
  if (o.first + o.count == x->view.dim[o.axis]) o.count = 0; /* the layer's default */
  SL__TRY(sl__onnx_append(r, node, NULL, &sl__slice_kind, &o, x, 1));
  y.layer = r->model->count - 1;
  y.view = *sl__onnx_shape_of(r, &y);
  status = sl__onnx_define(r, node, node->output[i], &y);
out:
  return status;
}

/* The axis of a sample that a node names, whose batch is the first or the second axis. */
static enum sl_status split_axis(const reader *r, const node_of *node, const value_of *x,
                                 int *axis) {
  int batch = x->order == SL__ONNX_TIME_FIRST;
  int64_t number;
  enum sl_status status;
  SL__TRY(sl__onnx_get_whole(r, node, "axis", 0, &number));
  SL__TRY(sl__onnx_axis(r, node, number, x->view.ndim + 1, axis));
  if (x->order > SL__ONNX_TIME_FIRST || *axis == batch)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "attribute axis: the batch's axis, or the input is transposed");
  if (*axis > batch) --*axis;
out:
  return status;
}

enum sl_status sl__onnx_append_parts(reader *r, const node_of *node) {
  struct sl_slice_options o = {0};
  const int64_t *sizes;
  enum sl_status status;
  value_of x;
  int count;
  SL__TRY(sl__onnx_take_plain(r, node, 0, &x));
  SL__TRY(split_axis(r, node, &x, &o.axis));
  SL__TRY(sl__onnx_get_either(r, node, "split", 1, &sizes, &count));
  SL__TRY(sl__onnx_make_view(r, node, &x));
  if (!node->outputs) return sl__onnx_refuse(r, node, SL_BAD_FILE, "has no output");
  int64_t size = x.view.dim[o.axis], equal = (size + node->outputs - 1) / node->outputs;
  for (int i = 0; i < node->outputs; i++, o.first += o.count) {
    o.count = size - o.first < equal ? size - o.first : equal;
    if (sizes) o.count = i < count ? sizes[i] : 0;
    int64_t rest = size - o.first;
    if (o.count < 1 || o.count > rest || (o.count == rest) != (i == node->outputs - 1))
      return sl__onnx_refuse(r, node, SL_BAD_FILE, "its parts do not make an axis of size %lld",
                             (long long)size);
    SL__TRY(append_part(r, node, &x, i, &o));
  }
out:
  return status;
}

/* Both states [2, N, H] of a recurrent operator are a batch of [2, H] as they lie in memory. */
enum sl_status sl__onnx_read_pick(reader *r, const node_of *node) {
  const struct sl__onnx_tensor *index = sl__onnx_constant(r, node, 1);
  struct sl_slice_options o = {.count = 1};
  struct sl_shape view = {0};
  int64_t number;
  enum sl_status status;
  value_of x;
  SL__TRY(sl__onnx_take_plain(r, node, 0, &x));
  SL__TRY(sl__onnx_get_whole(r, node, "axis", 0, &number));
  if (!index->wholes || index->count != 1 || index->ndim)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "its indices must be one constant number");
  bool is_first = x.order == SL__ONNX_TIME_FIRST && (number == 0 || number == -1 - x.view.ndim);
  if (!is_first && x.order != SL__ONNX_BATCH_FIRST)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "takes its input transposed");
  if (!is_first) SL__TRY(sample_axis(r, node, number, x.view.ndim, &o.axis));
  int64_t size = x.view.dim[o.axis], first = index->wholes[0];
  o.first = first < 0 ? first + size : first;
  if (o.first < 0 || o.first >= size || x.view.ndim < 2)
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "there is no index %lld in an axis of size %lld",
                           (long long)first, (long long)size);
  x.order = SL__ONNX_BATCH_FIRST;
  if (size > 1) {
    SL__TRY(sl__onnx_make_view(r, node, &x));
    SL__TRY(sl__onnx_append(r, node, NULL, &sl__slice_kind, &o, &x, 1));
    x.layer = r->model->count - 1;
  }
  for (int d = 0; d < x.view.ndim; d++)
    if (d != o.axis) view.dim[view.ndim++] = x.view.dim[d];
  x.view = view;
  status = sl__onnx_rename_to(r, node, &x);
out:
  return status;
}

/* An Unsqueeze after the mean of a whole sample: Starling writes it, since ONNX leaves no axis. */
static const node_of *last_of_mean(reader *r, const node_of *node) {
  if (!r->own || !strchr(node->name, '/') || !node->outputs) return node;
  const node_of *user = sl__onnx_only_user(r, node->output[0]);
  if (!user || strcmp(user->op, "Unsqueeze") != 0) return node;
  r->done[user - r->graph.node] = true;
  return user;
}

static enum sl_status append_mean(reader *r, const node_of *node, const value_of *x, int mask,
                                  bool keeps) {
  struct sl_mean_options o = {.keep = keeps};
  enum sl_status status;
  /* an Unsqueeze after the mean of a whole sample: ONNX leaves no axis */
  const node_of *last = last_of_own(r, node, "Unsqueeze");
  for (int d = 0; d < x->view.ndim; d++)
    if (mask >> d & 1) o.axes.dim[o.axes.ndim++] = d;
  if (x->view.ndim > 1 && mask == (1 << x->view.ndim) - 2) o.axes = (struct sl_shape){0};
  if (mask == (1 << x->view.ndim) - 1 && !keeps && last == node)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "attribute axes: the mean over all axes must keep one (keepdims)");
  SL__TRY(sl__onnx_append(r, last, NULL, &sl__mean_kind, &o, x, 1));
  status = sl__onnx_give_first(r, last, NULL);
out:
  return status;
}

enum sl_status sl__onnx_read_mean(reader *r, const node_of *node) {
  struct sl_pool2d_options plane = {.global = true};
  int64_t keeps;
  const int64_t *axes;
  int count, axis, mask = 0;
  bool found = false;
  enum sl_status status;
  value_of x;
  SL__TRY(sl__onnx_take_whole(r, node, 0, &x));
  if (!r->own) SL__TRY(sl__onnx_read_centred(r, node, &x, &found));
  if (found) return SL_OK;
  SL__TRY(sl__onnx_get_either(r, node, "axes", 1, &axes, &count));
  SL__TRY(sl__onnx_get_whole(r, node, "keepdims", 1, &keeps));
  for (int i = 0; i < count; i++) {
    SL__TRY(sample_axis(r, node, axes[i], x.view.ndim, &axis));
    mask |= 1 << axis;
  }
  if (!mask) return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "attribute axes must be there");
  if (r->own || x.view.ndim != 3 || mask != (1 << 1 | 1 << 2))
    return append_mean(r, node, &x, mask, keeps);
  SL__TRY(sl__onnx_append(r, node, NULL, &sl__avgpool2d_kind, &plane, &x, 1));
  x.view = keeps ? SL_SHAPE(x.view.dim[0], 1, 1) : SL_SHAPE(x.view.dim[0]);
  status = sl__onnx_give_first(r, node, &x);
out:
  return status;
}
