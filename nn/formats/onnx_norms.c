/* ONNX's normalisations of each sample: LayerNormalization, InstanceNormalization, and group and
 * RMS normalisation from their parts. */
#include <string.h>

#include "nn/formats/onnx_operators.h"

static bool are_all(const struct sl__onnx_tensor *t, float value) {
  for (int64_t i = 0; i < t->count; i++)
    if (t->reals[i] != value) return false;
  return true;
}

static enum sl_status get_epsilon(const reader *r, const node_of *node, float *epsilon) {
  enum sl_status status = sl__onnx_get_real(r, node, "epsilon", 1e-5f, epsilon);
  if (status == SL_OK && !(*epsilon > 0))
    status = sl__onnx_refuse(r, node, SL_UNSUPPORTED, "attribute epsilon is %g; it must be above 0",
                             (double)*epsilon);
  if (*epsilon == 1e-5f) *epsilon = 0; /* the layer's default */
  return status;
}

enum sl_status sl__onnx_read_layernorm(reader *r, const node_of *node) {
  const struct sl__onnx_tensor *weight, *bias = NULL;
  struct sl_layernorm_options o = {0};
  enum sl_status status;
  int64_t number;
  value_of x;
  int axis;
  SL__TRY(sl__onnx_take_whole(r, node, 0, &x));
  SL__TRY(sl__onnx_take_weight(r, node, 1, -1, &weight));
  if (sl__onnx_has(node, 2)) SL__TRY(sl__onnx_take_weight(r, node, 2, -1, &bias));
  SL__TRY(sl__onnx_get_whole(r, node, "axis", -1, &number));
  SL__TRY(sl__onnx_axis(r, node, number, x.view.ndim + 1, &axis));
  SL__TRY(get_epsilon(r, node, &o.epsilon));
  if (axis == 0)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "attribute axis: the batch's axis");
  o.axes = axis == x.view.ndim ? 0 : x.view.ndim + 1 - axis;
  o.plain = !bias && are_all(weight, 1);
  SL__TRY(sl__onnx_append(r, node, weight->name, &sl__layernorm_kind, &o, &x, 1));
  if (!o.plain) {
    SL__TRY(sl__onnx_set(r, node, "weight", weight->reals, weight->count, NULL));
    SL__TRY(sl__onnx_set(r, node, "bias", bias ? bias->reals : NULL,
                         bias ? bias->count : weight->count, NULL));
  }
  status = sl__onnx_give_first(r, node, NULL);
out:
  return status;
}

/* The only node behind `before` if it is this operator; it is done then. Else NULL. */
static const node_of *follows(reader *r, const node_of *before, const char *op) {
  const node_of *user = before->outputs ? sl__onnx_only_user(r, before->output[0]) : NULL;
  return user && !strcmp(user->op, op) && user->outputs ? user : NULL;
}

static void done(reader *r, const node_of *node) { r->done[node - r->graph.node] = true; }

/* Does the node reshape to a batch of samples of this shape? */
static bool restores(const reader *r, const node_of *node, const struct sl_shape *shape) {
  const struct sl__onnx_tensor *t = node ? sl__onnx_constant(r, node, 1) : NULL;
  bool fits = t && t->wholes && t->count == shape->ndim + 1;
  for (int d = 0; fits && d < shape->ndim; d++)
    fits = t->wholes[d + 1] == shape->dim[d] || t->wholes[d + 1] == -1 || t->wholes[d + 1] == 0;
  return fits;
}

/* The constant of C values by which the next node scales or shifts; NULL if there is none. */
static const struct sl__onnx_tensor *channel_constant(reader *r, const node_of **last,
                                                      const char *op, int64_t channels) {
  const node_of *user = follows(r, *last, op);
  for (int i = 0; user && user->inputs == 2 && i < 2; i++) {
    const struct sl__onnx_tensor *t = sl__onnx_constant(r, user, i);
    if (!t || !t->reals || t->count != channels) continue;
    *last = user;
    return t;
  }
  return NULL;
}

struct group {
  const struct sl__onnx_tensor *weight, *bias;
  const node_of *last;
};

/* Group normalisation from its parts: each group is a channel of the reshaped input. */
static enum sl_status find_group(reader *r, const node_of *node, value_of *x, struct group *g) {
  struct sl_shape shape = *sl__onnx_shape_of(r, x);
  if (x->view.ndim != 2 || !are_all(g->weight, 1) || !are_all(g->bias, 0) ||
      shape.dim[0] % x->view.dim[0] || !restores(r, follows(r, node, "Reshape"), &shape))
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "takes a reshaped input, and is no part of a group normalisation");
  g->last = follows(r, node, "Reshape");
  done(r, g->last);
  x->view = shape;
  const node_of *view = g->last;
  g->weight = channel_constant(r, &g->last, "Mul", shape.dim[0]);
  g->bias = g->weight ? channel_constant(r, &g->last, "Add", shape.dim[0]) : NULL;
  if (!g->bias) {
    g->weight = NULL; /* one without the other is not this layer's */
    g->last = view;
    return SL_OK;
  }
  done(r, follows(r, view, "Mul"));
  done(r, g->last);
  return SL_OK;
}

enum sl_status sl__onnx_read_instancenorm(reader *r, const node_of *node) {
  struct sl_groupnorm_options o = {0};
  struct group g = {.last = node};
  enum sl_status status;
  value_of x;
  SL__TRY(sl__onnx_take_plain(r, node, 0, &x));
  SL__TRY(sl__onnx_take_weight(r, node, 1, 1, &g.weight));
  SL__TRY(sl__onnx_take_weight(r, node, 2, 1, &g.bias));
  SL__TRY(get_epsilon(r, node, &o.epsilon));
  int64_t groups = x.view.dim[0];
  if (x.order != SL__ONNX_BATCH_FIRST || groups > INT32_MAX || g.weight->count != groups ||
      g.bias->count != groups)
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "its scale and bias do not fit its input");
  if (!sl_shape_equal(&x.view, sl__onnx_shape_of(r, &x)) || r->own)
    SL__TRY(find_group(r, node, &x, &g));
  o.groups = groups == x.view.dim[0] ? 0 : (int)groups;
  o.plain = !g.weight || (g.last == node && are_all(g.weight, 1) && are_all(g.bias, 0));
  SL__TRY(
      sl__onnx_append(r, g.last, g.weight ? g.weight->name : NULL, &sl__groupnorm_kind, &o, &x, 1));
  if (!o.plain) {
    SL__TRY(sl__onnx_set(r, node, "weight", g.weight->reals, g.weight->count, NULL));
    SL__TRY(sl__onnx_set(r, node, "bias", g.bias->reals, g.bias->count, NULL));
  }
  status = sl__onnx_give_first(r, g.last, NULL);
out:
  return status;
}

/* The nodes of an RMS normalisation behind the square; false if these are others. */
static bool find_rms(reader *r, const node_of *square, const node_of *part[4], float *epsilon,
                     int64_t axes[2]) {
  static const char *const ops[] = {"ReduceMean", "Add", "Sqrt", "Div"};
  const node_of *last = square;
  const struct sl__onnx_tensor *constant = NULL;
  const int64_t *list;
  int count;
  for (int i = 0; i < 4; i++) {
    part[i] = last = follows(r, last, ops[i]);
    if (!last) return false;
  }
  for (int i = 0; i < part[1]->inputs && !constant; i++)
    constant = sl__onnx_constant(r, part[1], i);
  if (!constant || !constant->reals || constant->count != 1 || part[3]->inputs != 2 ||
      strcmp(part[3]->input[0], square->input[0]) != 0 ||
      sl__onnx_get_either(r, part[0], "axes", 1, &list, &count) != SL_OK || count < 1)
    return false;
  for (int i = 0; i < count; i++)
    if (list[i] != list[0] + i) return false;
  *epsilon = constant->reals[0];
  axes[0] = list[0];
  axes[1] = count;
  return true;
}

enum sl_status sl__onnx_read_rms(reader *r, const node_of *node, const value_of *x, bool *found) {
  struct sl_layernorm_options o = {.rms = true};
  const struct sl__onnx_tensor *weight = NULL;
  const node_of *part[4] = {NULL};
  enum sl_status status = SL_OK;
  int64_t axes[2];
  value_of input = *x;
  int ndim = x->view.ndim;
  *found = false;
  if (!find_rms(r, node, part, &o.epsilon, axes)) return SL_OK;
  int64_t first = axes[0] < 0 ? axes[0] + ndim + 1 : axes[0];
  if (first < 1 || first + axes[1] != ndim + 1) return SL_OK;
  o.axes = axes[1] == 1 ? 0 : (int)axes[1];
  if (o.epsilon == 1e-5f) o.epsilon = 0;
  for (int i = 0; i < 4; i++) done(r, part[i]);
  const node_of *last = part[3], *scaled = follows(r, last, "Mul");
  for (int i = 0; scaled && i < scaled->inputs && !weight; i++)
    weight = sl__onnx_constant(r, scaled, i);
  if (weight && weight->reals && weight->count > 1) {
    done(r, scaled);
    last = scaled;
  } else {
    weight = NULL;
  }
  o.plain = !weight;
  *found = true;
  SL__TRY(sl__onnx_make_view(r, node, &input));
  SL__TRY(
      sl__onnx_append(r, last, weight ? weight->name : NULL, &sl__layernorm_kind, &o, &input, 1));
  if (weight) SL__TRY(sl__onnx_set(r, node, "weight", weight->reals, weight->count, NULL));
  status = sl__onnx_give_first(r, last, NULL);
out:
  return status;
}
