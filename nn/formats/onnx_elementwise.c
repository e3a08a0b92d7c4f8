/* ONNX's activations, fused into the layer before if possible, and gelu from its parts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/formats/onnx_operators.h"

static const struct {
  const char *op;
  enum sl_activation activation;
} activations[] = {{"Relu", SL_ACTIVATION_RELU},
                   {"Tanh", SL_ACTIVATION_TANH},
                   {"Sigmoid", SL_ACTIVATION_SIGMOID},
                   {"Gelu", SL_ACTIVATION_GELU}};

static enum sl_activation activation_of(const char *op) {
  for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
    if (!strcmp(activations[i].op, op)) return activations[i].activation;
  return SL_ACTIVATION_NONE;
}

const node_of *sl__onnx_only_user(const reader *r, const char *name) {
  const value_of *v = sl__onnx_find(r, name);
  if (!v || v->uses != 1 || v->user < 0) return NULL;
  const node_of *user = &r->graph.node[v->user];
  return *user->domain && strcmp(user->domain, "ai.onnx") != 0 ? NULL : user;
}

bool sl__onnx_belongs(const reader *r, const node_of *part, const node_of *layer) {
  size_t length = strlen(layer->name);
  return !r->own || (!strncmp(part->name, layer->name, length) && part->name[length] == '/');
}

enum sl_activation sl__onnx_fuse(reader *r, const node_of *layer, const node_of **last) {
  const node_of *user = (*last)->outputs ? sl__onnx_only_user(r, (*last)->output[0]) : NULL;
  enum sl_activation activation = user ? activation_of(user->op) : SL_ACTIVATION_NONE;
  if (activation == SL_ACTIVATION_NONE || activation == SL_ACTIVATION_GELU || user->inputs != 1 ||
      user->outputs != 1 || !sl__onnx_belongs(r, user, layer))
    return sl__onnx_fuse_parts(r, layer, last);
  r->done[user - r->graph.node] = true;
  *last = user;
  return activation;
}

enum sl_status sl__onnx_append_activation(reader *r, const node_of *node,
                                          enum sl_activation activation, const value_of *x) {
  struct sl_activation_options o = {.activation = activation};
  enum sl_status status = sl__onnx_append(r, node, NULL, &sl__activation_kind, &o, x, 1);
  return status == SL_OK ? sl__onnx_give_first(r, node, x) : status;
}

enum sl_status sl__onnx_read_activation(reader *r, const node_of *node) {
  enum sl_activation activation = activation_of(node->op);
  const char *approximate;
  bool found = false;
  enum sl_status status;
  value_of x;
  SL__TRY(sl__onnx_take_plain(r, node, 0, &x));
  if (activation == SL_ACTIVATION_SIGMOID) SL__TRY(sl__onnx_read_parts(r, node, &found));
  if (found) return SL_OK;
  SL__TRY(sl__onnx_get_text(r, node, "approximate", &approximate));
  if (approximate && !strcmp(approximate, "tanh"))
    activation = SL_ACTIVATION_GELU_TANH;
  else if (approximate && strcmp(approximate, "none") != 0)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "attribute approximate is %.32s; none and tanh are supported",
                           approximate);
  status = sl__onnx_append_activation(r, node, activation, &x);
out:
  return status;
}

/* ---- gelu from its parts: a value's factor, x and erf are combined ---- */

static bool is_near(float a, double b) { return fabs((double)a - b) < 1e-6; }

static enum sl_status give_part(reader *r, const node_of *node, value_of *v) {
  if (v->has_x && v->erf == SL__ONNX_ONE_AND_ERF && is_near(v->factor, 0.5)) {
    v->factor = 1;
    v->erf = SL__ONNX_PLAIN;
    return sl__onnx_append_activation(r, node, SL_ACTIVATION_GELU, v);
  }
  return sl__onnx_rename_to(r, node, v);
}

bool sl__onnx_number(const reader *r, const node_of *node, int i, const char *name, float *value) {
  const struct sl__onnx_tensor *t = sl__onnx_constant(r, node, i);
  const value_of *x = sl__onnx_find(r, name);
  if (!t || !t->reals || t->count != 1) return false;
  /* the result would have the number's axes, too, all of size 1 */
  if (x && x->is == SL__ONNX_OUTPUT && t->ndim > x->view.ndim + 1) return false;
  *value = t->reals[0];
  return true;
}

/* NumPy's rule on whole batches: the same number of axes, some of size 1. */
static bool broadcasts_to(const value_of *from, const value_of *to) {
  bool fits = from->view.ndim == to->view.ndim && from->order == SL__ONNX_BATCH_FIRST &&
              to->order == SL__ONNX_BATCH_FIRST;
  for (int d = 0; fits && d < to->view.ndim; d++)
    fits = from->view.dim[d] == 1 || from->view.dim[d] == to->view.dim[d];
  return fits;
}

/* A layer's output is what its readers see, but for first axes of size 1, which may be left out. */
static enum sl_status settle_view(reader *r, const node_of *node, value_of *x) {
  struct sl_shape own = *sl__onnx_shape_of(r, x), seen = {.ndim = x->view.ndim};
  int missing = seen.ndim - own.ndim;
  for (int d = 0; d < seen.ndim; d++) seen.dim[d] = d < missing ? 1 : own.dim[d - missing];
  if (missing >= 0 && sl_shape_equal(&seen, &x->view)) return SL_OK;
  return sl__onnx_make_view(r, node, x);
}

/* The inputs of a layer to be. */
struct inputs {
  value_of *x;
  int count, room;
};

static enum sl_status make_room(reader *r, const node_of *node, struct inputs *in) {
  if (in->count < in->room) return SL_OK;
  if (in->count == SL__MOST_INPUTS)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "takes more than %d inputs", SL__MOST_INPUTS);
  int room = in->room ? 2 * in->room : 8;
  value_of *x = sl__realloc(in->x, (size_t)room, sizeof *x, "a node's inputs");
  if (!x) return SL_NO_MEMORY;
  in->x = x;
  in->room = room;
  return SL_OK;
}

/* Nodes see the inputs with one shape, the layers that make them have several: reshapes make it. */
static enum sl_status make_views(reader *r, const node_of *node, struct inputs *in) {
  enum sl_status status = SL_OK;
  for (int i = 0; i < in->count && status == SL_OK; i++)
    status = sl__onnx_make_view(r, node, &in->x[i]);
  return status;
}

/* Takes one more input of a layer whose inputs are alike or broadcast to the first one. */
static enum sl_status take_alike(reader *r, const node_of *node, int i, struct inputs *in) {
  enum sl_status status;
  SL__TRY(make_room(r, node, in));
  value_of *x = &in->x[in->count], *first = in->x;
  SL__TRY(sl__onnx_take_plain(r, node, i, x));
  in->count++;
  bool is_alike = sl_shape_equal(sl__onnx_shape_of(r, x), sl__onnx_shape_of(r, first));
  if (!sl_shape_equal(&x->view, &first->view) && broadcasts_to(x, first)) {
    SL__TRY(settle_view(r, node, first));
    SL__TRY(settle_view(r, node, x));
    /* the first input of a layer has the most axes */
    if (sl__onnx_shape_of(r, first)->ndim < sl__onnx_shape_of(r, x)->ndim)
      status = sl__onnx_make_view(r, node, first);
  } else if (x->order != first->order || !sl_shape_equal(&x->view, &first->view) ||
             (!is_alike && x->order != SL__ONNX_BATCH_FIRST)) {
    status = sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                             "takes outputs of different shapes, for which there is no layer");
  } else if (!is_alike) {
    status = make_views(r, node, in);
  }
out:
  return status;
}

/* The library writes a product of more than two as nodes "LAYER/1", "LAYER/2", ..., "LAYER". */
static const node_of *next_factor(reader *r, const node_of *node) {
  if (!r->own || !strchr(node->name, '/') || !node->outputs) return NULL;
  const node_of *user = sl__onnx_only_user(r, node->output[0]);
  if (!user || strcmp(node->op, "Mul") != 0 || strcmp(user->op, "Mul") != 0 || user->inputs != 2 ||
      strcmp(user->input[0], node->output[0]) != 0)
    return NULL;
  r->done[user - r->graph.node] = true;
  return user;
}

/* The first of the inputs with the most values, to which others may broadcast. */
static int largest_input(const reader *r, const node_of *node) {
  int64_t most = 0;
  int largest = 0;
  for (int i = 0; i < node->inputs; i++) {
    const value_of *x = sl__onnx_find(r, node->input[i]);
    int64_t values = x && x->is == SL__ONNX_OUTPUT ? sl_shape_count(&x->view) : 0;
    if (values > most) most = values, largest = i;
  }
  return largest;
}

/* Appends a layer for a node whose inputs are alike, or broadcast to the largest one. */
static enum sl_status append_several(reader *r, const node_of *node,
                                     const struct sl__layer_kind *kind, void *options) {
  struct inputs in = {0};
  enum sl_status status = SL_OK;
  const node_of *last = node;
  int first = largest_input(r, node);
  SL__TRY(take_alike(r, node, first, &in));
  for (int i = 0; i < node->inputs; i++)
    if (i != first) SL__TRY(take_alike(r, node, i, &in));
  for (const node_of *next = next_factor(r, node); next; next = next_factor(r, next)) {
    SL__TRY(take_alike(r, next, 1, &in));
    last = next;
  }
  SL__TRY(sl__onnx_append(r, last, NULL, kind, options, in.x, in.count));
  status = sl__onnx_give_first(r, last, in.x);
out:
  free(in.x);
  return status;
}

static enum sl_status multiply_values(reader *r, const node_of *node) {
  enum sl_status status;
  value_of a, b;
  SL__TRY(sl__onnx_take(r, node, 0, &a));
  SL__TRY(sl__onnx_take(r, node, 1, &b));
  if (a.erf == SL__ONNX_ONE_AND_ERF) {
    value_of other = a;
    a = b;
    b = other;
  }
  if (!strcmp(node->input[0], node->input[1]) && a.has_x && a.factor == 1 &&
      a.erf == SL__ONNX_PLAIN) {
    bool found = false;
    SL__TRY(sl__onnx_read_parts(r, node, &found));
    if (!found) SL__TRY(sl__onnx_read_rms(r, node, &a, &found));
    if (found) return SL_OK;
  }
  if (b.erf != SL__ONNX_ONE_AND_ERF)
    return append_several(r, node, &sl__multiply_kind, &(struct sl_multiply_options){0});
  if (a.layer != b.layer || a.order != b.order || !sl_shape_equal(&a.view, &b.view) || !a.has_x ||
      b.has_x || a.erf != SL__ONNX_PLAIN)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "is no part of a gelu");
  a.erf = SL__ONNX_ONE_AND_ERF;
  a.factor *= b.factor;
  status = give_part(r, node, &a);
out:
  return status;
}

/* Is input i, of two, a number for the other one? */
static bool is_number(const reader *r, const node_of *node, int i, float *value) {
  return node->inputs == 2 && sl__onnx_number(r, node, i, node->input[!i], value);
}

enum sl_status sl__onnx_read_mul(reader *r, const node_of *node) {
  enum sl_status status;
  value_of v;
  float factor = 1;
  bool first = is_number(r, node, 0, &factor);
  bool divides = !strcmp(node->op, "Div");
  if (!first && !is_number(r, node, 1, &factor)) {
    if (!divides) return multiply_values(r, node);
    first = true;
  }
  if (first && divides)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "divides by other than one constant number");
  SL__TRY(sl__onnx_take(r, node, first, &v));
  v.factor = divides ? v.factor / factor : v.factor * factor;
  status = give_part(r, node, &v);
out:
  return status;
}

enum sl_status sl__onnx_read_erf(reader *r, const node_of *node) {
  value_of v;
  enum sl_status status = sl__onnx_take(r, node, 0, &v);
  if (status != SL_OK) return status;
  if (!v.has_x || v.erf != SL__ONNX_PLAIN || !is_near(v.factor, 0.70710678118))
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "is no part of a gelu");
  v.has_x = false;
  v.factor = 1;
  v.erf = SL__ONNX_ERF;
  return sl__onnx_rename_to(r, node, &v);
}

static bool begins_with(const struct sl__onnx_tensor *whole, const struct sl__onnx_tensor *part) {
  return whole->reals && part->reals && part->count <= whole->count &&
         !memcmp(whole->reals, part->reals, (size_t)part->count * sizeof *part->reals);
}

/* The table of positions that is added to a sample [T, C], or NULL. In the library's own files the
 * constant may be the first rows of the layer's weight. */
static const struct sl__onnx_tensor *table_of(const reader *r, const node_of *node, int constant,
                                              const value_of *x) {
  const struct sl__onnx_tensor *t = sl__onnx_constant(r, node, constant);
  char name[128];
  snprintf(name, sizeof name, "%.100s.weight", node->name);
  const value_of *weight = r->own ? sl__onnx_find(r, name) : NULL;
  if (weight && weight->is == SL__ONNX_CONSTANT && begins_with(weight->constant, t))
    t = weight->constant;
  bool has_batch = t->ndim == 3 && t->dim[0] == 1;
  if (!t->reals || x->view.ndim != 2 || x->order != SL__ONNX_BATCH_FIRST ||
      t->ndim != 2 + has_batch || t->dim[has_batch + 1] != x->view.dim[1])
    return NULL;
  return t->count >= sl_shape_count(&x->view) && (r->own || t->count == sl_shape_count(&x->view))
             ? t
             : NULL;
}

static enum sl_status append_position(reader *r, const node_of *node, const value_of *x,
                                      const struct sl__onnx_tensor *table) {
  int64_t length = table->count / x->view.dim[1];
  struct sl_position_options o = {.length = length == x->view.dim[0] ? 0 : length};
  const char *name = table->name && strstr(table->name, ".weight") ? table->name : NULL;
  value_of input = *x;
  enum sl_status status;
  SL__TRY(sl__onnx_make_view(r, node, &input));
  SL__TRY(sl__onnx_append(r, node, name, &sl__position_kind, &o, &input, 1));
  SL__TRY(sl__onnx_set(r, node, "weight", table->reals, table->count, NULL));
  status = sl__onnx_give_first(r, node, NULL);
out:
  return status;
}

static enum sl_status add_constant(reader *r, const node_of *node, int constant) {
  float one;
  value_of v;
  enum sl_status status = sl__onnx_take(r, node, !constant, &v);
  if (status != SL_OK) return status;
  bool plain = v.has_x && v.erf == SL__ONNX_PLAIN && v.factor == 1;
  const struct sl__onnx_tensor *table = plain ? table_of(r, node, constant, &v) : NULL;
  if (table) return append_position(r, node, &v, table);
  if (!is_number(r, node, constant, &one) || one != 1 || v.has_x || v.erf != SL__ONNX_ERF ||
      v.factor != 1)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "adds a constant to a layer's output, for which there is no layer (a "
                           "bias belongs behind a MatMul without one)");
  v.erf = SL__ONNX_ONE_AND_ERF;
  return sl__onnx_rename_to(r, node, &v);
}

enum sl_status sl__onnx_read_add(reader *r, const node_of *node) {
  for (int i = 0; i < node->inputs; i++) {
    if (!sl__onnx_constant(r, node, i)) continue;
    if (node->inputs == 2) return add_constant(r, node, i);
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "adds a constant to %d outputs, for which there is no layer; add it to "
                           "one of them",
                           node->inputs - 1);
  }
  return append_several(r, node, &sl__add_kind, &(struct sl_add_options){0});
}
