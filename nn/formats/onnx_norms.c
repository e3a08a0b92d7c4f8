/* ONNX's normalisations of each sample: LayerNormalization, RMSNormalization,
 * InstanceNormalization, GroupNormalization, and group and RMS normalisation from their parts. */
#include <string.h>

#include "nn/formats/onnx_operators.h"

static bool are_all(const struct sl__onnx_tensor *t, float value) {
  for (int64_t i = 0; i < t->count; i++)
    if (t->reals[i] != value) return false;
  return true;
}

/* Has it one value for each place of a sample's last axes? Only axes of size 1 may come before
 * them: a scale along another axis can have the same number of values. */
static bool fits_places(const struct sl__onnx_tensor *t, const struct sl_shape *shape, int axes) {
  bool fits = t->reals && t->ndim >= axes && t->ndim <= shape->ndim + 1;
  int64_t places = 1;
  for (int d = 1; fits && d <= axes; d++) {
    fits = t->dim[t->ndim - d] == shape->dim[shape->ndim - d];
    places *= shape->dim[shape->ndim - d];
  }
  return fits && t->count == places;
}

/* As the layers' option, of which 0 is the default. */
static enum sl_status settle_epsilon(const reader *r, const node_of *node, float *epsilon) {
  if (!(*epsilon > 0))
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "epsilon is %g; it must be above 0",
                           (double)*epsilon);
  if (*epsilon == 1e-5f) *epsilon = 0;
  return SL_OK;
}

enum sl_status sl__onnx_get_epsilon(const reader *r, const node_of *node, float *epsilon) {
  enum sl_status status = sl__onnx_get_real(r, node, "epsilon", 1e-5f, epsilon);
  return status == SL_OK ? settle_epsilon(r, node, epsilon) : status;
}

enum sl_status sl__onnx_read_layernorm(reader *r, const node_of *node) {
  const struct sl__onnx_tensor *weight, *bias = NULL;
  struct sl_layernorm_options o = {.rms = !strcmp(node->op, "RMSNormalization")};
  enum sl_status status;
  int64_t number;
  value_of x;
  int axis;
  SL__TRY(sl__onnx_take_whole(r, node, 0, &x));
  SL__TRY(sl__onnx_take_weight(r, node, 1, -1, &weight));
  if (!o.rms && sl__onnx_has(node, 2)) SL__TRY(sl__onnx_take_weight(r, node, 2, -1, &bias));
  SL__TRY(sl__onnx_get_whole(r, node, "axis", -1, &number));
  SL__TRY(sl__onnx_axis(r, node, number, x.view.ndim + 1, &axis));
  SL__TRY(sl__onnx_get_epsilon(r, node, &o.epsilon));
  if (axis == 0)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "attribute axis: the batch's axis");
  int axes = x.view.ndim + 1 - axis;
  if (!fits_places(weight, &x.view, axes) || (bias && !fits_places(bias, &x.view, axes)))
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "its scale and bias must have the shape of the normalised axes");
  o.axes = axes == 1 ? 0 : axes;
  o.plain = !bias && are_all(weight, 1);
  SL__TRY(sl__onnx_append(r, node, weight->name, &sl__layernorm_kind, &o, &x, 1));
  if (!o.plain) SL__TRY(sl__onnx_set(r, node, "weight", weight->reals, weight->count, NULL));
  if (!o.plain && !o.rms)
    SL__TRY(sl__onnx_set(r, node, "bias", bias ? bias->reals : NULL,
                         bias ? bias->count : weight->count, NULL));
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

/* Exporters compute a shape after the nodes that need it: reads the Shape node of input i early. */
static enum sl_status read_shape_ahead(reader *r, const node_of *node, int i) {
  if (!sl__onnx_has(node, i) || sl__onnx_constant(r, node, i)) return SL_OK;
  for (int n = 0; n < r->graph.nodes; n++) {
    const node_of *maker = &r->graph.node[n];
    if (r->done[n] || strcmp(maker->op, "Shape") != 0 || !maker->outputs || *maker->domain ||
        strcmp(maker->output[0], node->input[i]) != 0)
      continue;
    const value_of *of = sl__onnx_has(maker, 0) ? sl__onnx_find(r, maker->input[0]) : NULL;
    if (!of || of->is != SL__ONNX_OUTPUT) return SL_OK;
    r->done[n] = true;
    return sl__onnx_operator(r, maker);
  }
  return SL_OK;
}

/* A constant factor or summand of the next node: channels values, one for each channel of samples
 * with ndim axes, or the one number that changes nothing. NULL if there is none. */
static const struct sl__onnx_tensor *channel_constant(reader *r, const node_of **last,
                                                      const char *op, const struct sl_shape *shape,
                                                      float nothing) {
  const node_of *user = follows(r, *last, op);
  for (int i = 0; user && user->inputs == 2 && i < 2; i++) {
    const struct sl__onnx_tensor *t = sl__onnx_constant(r, user, i);
    if (!t || !t->reals) continue;
    int axis = t->ndim - shape->ndim;
    bool fits = axis >= 0 && axis < 2 && t->dim[axis] == shape->dim[0] && t->count == shape->dim[0];
    if (!fits && (t->count != 1 || t->reals[0] != nothing)) continue;
    *last = user;
    return t;
  }
  return NULL;
}

struct group {
  const struct sl__onnx_tensor *weight, *bias;
  const node_of *last;
};

/* Takes the scale and the shift of each channel behind a group normalisation, if both are there. */
static void take_affine(reader *r, const struct sl_shape *shape, struct group *g) {
  const node_of *last = g->last;
  g->weight = channel_constant(r, &last, "Mul", shape, 1);
  const node_of *scale = last;
  g->bias = g->weight ? channel_constant(r, &last, "Add", shape, 0) : NULL;
  bool are_numbers = g->bias && g->weight->count != shape->dim[0] && g->bias->count == 1;
  bool are_channels =
      g->bias && g->weight->count == shape->dim[0] && g->bias->count == shape->dim[0];
  if (are_numbers || are_channels) {
    done(r, scale);
    done(r, last);
    g->last = last;
  }
  if (!are_channels) g->weight = g->bias = NULL; /* one without the other is not this layer's */
}

/* Group normalisation from its parts: each group is a channel of the reshaped input. *found: it was
 * one. */
static enum sl_status find_group(reader *r, const node_of *node, value_of *x, struct group *g,
                                 bool *found) {
  const node_of *back = follows(r, node, "Reshape");
  bool is_seen = sl_shape_equal(&x->view, sl__onnx_shape_of(r, x));
  enum sl_status status = SL_OK;
  struct sl_shape shape;
  *found = false;
  if (!back || !are_all(g->weight, 1) || !are_all(g->bias, 0)) return SL_OK;
  SL__TRY(read_shape_ahead(r, back, 1));
  if (!sl__onnx_find_view(r, back, x, &shape) || shape.dim[0] % x->view.dim[0] ||
      (is_seen && !r->own && !sl_shape_equal(&shape, &x->view)))
    return SL_OK;
  *found = true;
  done(r, back);
  g->last = back;
  x->view = shape;
  take_affine(r, &shape, g);
out:
  return status;
}

enum sl_status sl__onnx_read_instancenorm(reader *r, const node_of *node) {
  struct sl_groupnorm_options o = {0};
  struct group g = {.last = node};
  enum sl_status status;
  bool found;
  value_of x;
  SL__TRY(sl__onnx_take_plain(r, node, 0, &x));
  SL__TRY(sl__onnx_take_weight(r, node, 1, 1, &g.weight));
  SL__TRY(sl__onnx_take_weight(r, node, 2, 1, &g.bias));
  SL__TRY(sl__onnx_get_epsilon(r, node, &o.epsilon));
  int64_t groups = x.view.dim[0];
  if (x.order != SL__ONNX_BATCH_FIRST || groups > INT32_MAX || g.weight->count != groups ||
      g.bias->count != groups)
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "its scale and bias do not fit its input");
  SL__TRY(find_group(r, node, &x, &g, &found));
  o.groups = groups == x.view.dim[0] ? 0 : (int)groups;
  o.plain = !g.weight || (!found && are_all(g.weight, 1) && are_all(g.bias, 0));
  SL__TRY(sl__onnx_make_view(r, node, &x));
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

/* The scale or the shift of each channel at input i; before operator set 21 it is each group's. */
static enum sl_status take_channels(reader *r, const node_of *node, int i, int64_t groups,
                                    int64_t channels, struct sl__onnx_tensor *each) {
  const struct sl__onnx_tensor *t;
  int64_t times = r->graph.opset < 21 ? channels / groups : 1;
  enum sl_status status = sl__onnx_take_weight(r, node, i, 1, &t);
  if (status != SL_OK) return status;
  if (t->count != channels / times)
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "its input %d has %lld values, not %lld", i,
                           (long long)t->count, (long long)(channels / times));
  *each = *t;
  each->count = channels;
  if (times == 1) return SL_OK;
  float *values = sl__onnx_alloc(&r->graph, (size_t)channels, sizeof *values);
  if (!values) return sl__onnx_no_memory(&r->graph);
  for (int64_t c = 0; c < channels; c++) values[c] = t->reals[c / times];
  each->reals = values;
  return SL_OK;
}

enum sl_status sl__onnx_read_groupnorm(reader *r, const node_of *node) {
  struct sl_groupnorm_options o = {0};
  struct sl__onnx_tensor weight, bias;
  enum sl_status status;
  int64_t groups;
  value_of x;
  SL__TRY(sl__onnx_take_whole(r, node, 0, &x));
  SL__TRY(sl__onnx_get_whole(r, node, "num_groups", 0, &groups));
  SL__TRY(sl__onnx_get_epsilon(r, node, &o.epsilon));
  int64_t channels = x.view.dim[0];
  if (groups < 1 || groups > INT32_MAX || channels % groups)
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "%lld channels are not %lld equal groups",
                           (long long)channels, (long long)groups);
  SL__TRY(take_channels(r, node, 1, groups, channels, &weight));
  SL__TRY(take_channels(r, node, 2, groups, channels, &bias));
  o.groups = groups == channels ? 0 : (int)groups;
  o.plain = are_all(&weight, 1) && are_all(&bias, 0);
  SL__TRY(sl__onnx_append(r, node, weight.name, &sl__groupnorm_kind, &o, &x, 1));
  if (!o.plain) {
    SL__TRY(sl__onnx_set(r, node, "weight", weight.reals, channels, NULL));
    SL__TRY(sl__onnx_set(r, node, "bias", bias.reals, channels, NULL));
  }
  status = sl__onnx_give_first(r, node, NULL);
out:
  return status;
}

/* A constant factor or summand of the next node, one value for each place of the last axes. */
static const struct sl__onnx_tensor *place_constant(reader *r, const node_of **last, const char *op,
                                                    const struct sl_shape *shape, int axes) {
  const node_of *user = follows(r, *last, op);
  for (int i = 0; user && user->inputs == 2 && i < 2; i++) {
    const struct sl__onnx_tensor *t = sl__onnx_constant(r, user, i);
    if (!t || !fits_places(t, shape, axes)) continue;
    *last = user;
    return t;
  }
  return NULL;
}

static bool keeps_axes(const reader *r, const node_of *mean) {
  int64_t keeps;
  return sl__onnx_get_whole(r, mean, "keepdims", 1, &keeps) == SL_OK && keeps == 1;
}

/* x / sqrt(mean(x^2) + epsilon) from its parts behind the square. */
struct rms {
  const node_of *part[5], *add;
  int parts;
  float epsilon;
  int64_t axes[2]; /* the first one, and how many */
};

static const node_of *next_part(reader *r, struct rms *m, const node_of *before, const char *op) {
  const node_of *node = follows(r, before, op);
  if (node) m->part[m->parts++] = node;
  return node;
}

/* The only constant input of the node, one number that adds no axes to samples; NULL: others. */
static const float *number_of(const reader *r, const node_of *node, const value_of *x) {
  const struct sl__onnx_tensor *t = NULL;
  for (int i = 0; i < node->inputs && !t; i++) t = sl__onnx_constant(r, node, i);
  return t && t->reals && t->count == 1 && t->ndim <= x->view.ndim + 1 ? t->reals : NULL;
}

/* Takes what makes x / root: one Div, or a Mul by 1 / root, which is a Div or a Reciprocal. */
static bool find_quotient(reader *r, struct rms *m, const node_of *root, const char *name,
                          const value_of *x) {
  const node_of *last = next_part(r, m, root, "Div");
  if (last && last->inputs == 2 && !strcmp(last->input[0], name)) return true;
  const float *one = last ? number_of(r, last, x) : NULL;
  if (last &&
      (last->inputs != 2 || strcmp(last->input[1], root->output[0]) != 0 || !one || *one != 1))
    return false;
  if (!last) last = next_part(r, m, root, "Reciprocal");
  if (last) last = next_part(r, m, last, "Mul");
  return last && last->inputs == 2 &&
         (!strcmp(last->input[0], name) || !strcmp(last->input[1], name));
}

/* The nodes of an RMS normalisation of x behind the square; false if these are others. */
static bool find_rms(reader *r, const node_of *square, const value_of *x, struct rms *m) {
  const int64_t *list;
  int count;
  m->parts = 0;
  const node_of *mean = next_part(r, m, square, "ReduceMean");
  m->add = mean ? next_part(r, m, mean, "Add") : NULL;
  const node_of *root = m->add ? next_part(r, m, m->add, "Sqrt") : NULL;
  const float *epsilon = root ? number_of(r, m->add, x) : NULL;
  if (!epsilon || !find_quotient(r, m, root, square->input[0], x) || !keeps_axes(r, mean) ||
      sl__onnx_get_either(r, mean, "axes", 1, &list, &count) != SL_OK || count < 1)
    return false;
  for (int i = 0; i < count; i++)
    if (list[i] != list[0] + i) return false;
  m->epsilon = *epsilon;
  m->axes[0] = list[0];
  m->axes[1] = count;
  return true;
}

/* Sets the number of axes; false if they are not the last ones of a sample. */
static bool take_axes(const value_of *x, const int64_t axes[2], struct sl_layernorm_options *o) {
  int64_t first = axes[0] < 0 ? axes[0] + x->view.ndim + 1 : axes[0];
  if (first < 1 || first + axes[1] != x->view.ndim + 1) return false;
  o->axes = axes[1] == 1 ? 0 : (int)axes[1];
  return true;
}

/* Takes the scale of each place behind an RMS normalisation; *weight NULL: there is none, or one
 * number, which is no part of the layer. */
static enum sl_status take_scale(reader *r, const node_of **last, const struct sl_shape *shape,
                                 int axes, const struct sl__onnx_tensor **weight) {
  const node_of *user = follows(r, *last, "Mul");
  *weight = place_constant(r, last, "Mul", shape, axes);
  if (*weight) done(r, *last);
  for (int i = 0; user && !*weight && i < user->inputs; i++) {
    const struct sl__onnx_tensor *t = sl__onnx_constant(r, user, i);
    if (t && t->count > 1)
      return sl__onnx_refuse(r, user, SL_UNSUPPORTED,
                             "its scale must have the shape of the normalised axes");
  }
  return SL_OK;
}

enum sl_status sl__onnx_read_rms(reader *r, const node_of *node, const value_of *x, bool *found) {
  struct sl_layernorm_options o = {.rms = true};
  const struct sl__onnx_tensor *weight = NULL;
  enum sl_status status = SL_OK;
  value_of input = *x;
  struct rms m;
  *found = false;
  if (x->order != SL__ONNX_BATCH_FIRST || !find_rms(r, node, x, &m) || !take_axes(x, m.axes, &o))
    return SL_OK;
  o.epsilon = m.epsilon;
  SL__TRY(settle_epsilon(r, m.add, &o.epsilon));
  for (int i = 0; i < m.parts; i++) done(r, m.part[i]);
  const node_of *last = m.part[m.parts - 1];
  SL__TRY(take_scale(r, &last, &x->view, (int)m.axes[1], &weight));
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

/* ---- layer normalisation from its parts, before operator set 17 ---- */

/* The square of x - mean(x), which the Div takes, too; NULL if these are other nodes. */
static const node_of *find_square(reader *r, const node_of *mean, const node_of **centred) {
  const node_of *sub = follows(r, mean, "Sub");
  float exponent;
  if (!sub || sub->inputs != 2 || strcmp(sub->input[0], mean->input[0]) != 0) return NULL;
  *centred = sub;
  const value_of *v = sl__onnx_find(r, sub->output[0]);
  const node_of *square = v && v->user >= 0 ? &r->graph.node[v->user] : NULL;
  if (!square || *square->domain || !square->outputs || square->inputs != 2 ||
      strcmp(square->input[0], sub->output[0]) != 0)
    return NULL;
  if (!strcmp(square->op, "Pow") && v->uses == 2)
    return sl__onnx_number(r, square, 1, mean->input[0], &exponent) && exponent == 2 ? square
                                                                                     : NULL;
  bool is_product = !strcmp(square->op, "Mul") && !strcmp(square->input[1], sub->output[0]);
  return is_product && v->uses == 3 ? square : NULL;
}

/* Has the first mean the axes of the second one, and does it keep them, too? */
static bool is_alike(const reader *r, const node_of *mean, const int64_t axes[2]) {
  const int64_t *list;
  int count;
  bool alike = keeps_axes(r, mean) &&
               sl__onnx_get_either(r, mean, "axes", 1, &list, &count) == SL_OK && count == axes[1];
  for (int i = 0; alike && i < count; i++) alike = list[i] == axes[0] + i;
  return alike;
}

static enum sl_status append_layernorm(reader *r, const node_of *before, const value_of *x,
                                       struct sl_layernorm_options *o) {
  const node_of *scale = before, *last = before;
  enum sl_status status;
  value_of input = *x;
  int axes = o->axes ? o->axes : 1;
  const struct sl__onnx_tensor *weight = place_constant(r, &scale, "Mul", &x->view, axes);
  last = scale;
  const struct sl__onnx_tensor *bias =
      weight ? place_constant(r, &last, "Add", &x->view, axes) : NULL;
  o->plain = !bias; /* a scale alone is not this layer's */
  if (o->plain) last = before;
  SL__TRY(sl__onnx_make_view(r, before, &input));
  SL__TRY(sl__onnx_append(r, last, bias ? weight->name : NULL, &sl__layernorm_kind, o, &input, 1));
  if (bias) {
    done(r, scale);
    done(r, last);
    SL__TRY(sl__onnx_set(r, before, "weight", weight->reals, weight->count, NULL));
    SL__TRY(sl__onnx_set(r, before, "bias", bias->reals, bias->count, NULL));
  }
  status = sl__onnx_give_first(r, last, NULL);
out:
  return status;
}

enum sl_status sl__onnx_read_centred(reader *r, const node_of *mean, const value_of *x,
                                     bool *found) {
  struct sl_layernorm_options o = {0};
  const node_of *centred;
  const node_of *square = find_square(r, mean, &centred);
  struct rms m;
  *found =
      square && find_rms(r, square, x, &m) && is_alike(r, mean, m.axes) && take_axes(x, m.axes, &o);
  if (!*found) return SL_OK;
  o.epsilon = m.epsilon;
  enum sl_status status = settle_epsilon(r, m.add, &o.epsilon);
  if (status != SL_OK) return status;
  done(r, centred);
  done(r, square);
  for (int i = 0; i < m.parts; i++) done(r, m.part[i]);
  return append_layernorm(r, m.part[m.parts - 1], x, &o);
}
