/* ONNX's operators as layers: a table, and a reader each. What ONNX has and no layer does is
 * refused with the node's name. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/formats/onnx_read.h"

enum { MOST_WINDOW = 1 << 20 };

typedef struct sl__onnx_reader reader;
typedef struct sl__onnx_node node_of;
typedef struct sl__onnx_value value_of;

/* ---- inputs and outputs ---- */

static bool is_plain(const value_of *v) {
  return v->factor == 1 && v->has_x && v->erf == SL__ONNX_PLAIN;
}

/* The layer's output as it is, before reshapes. */
static const struct sl_shape *shape_of(const reader *r, const value_of *v) {
  return v->layer == SL__INPUT ? &r->model->sample : &r->model->layers[v->layer].out;
}

/* Input i, which must be a layer's output. */
static enum sl_status take(const reader *r, const node_of *node, int i, value_of *v) {
  const value_of *found = sl__onnx_has(node, i) ? sl__onnx_find(r, node->input[i]) : NULL;
  if (!found) return sl__onnx_refuse(r, node, SL_BAD_FILE, "has no input %d", i);
  if (found->is != SL__ONNX_OUTPUT)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "its input '%.64s' is a constant", found->name);
  *v = *found;
  return SL_OK;
}

/* The same, and it is no gelu in its parts. */
static enum sl_status take_plain(const reader *r, const node_of *node, int i, value_of *v) {
  enum sl_status status = take(r, node, i, v);
  if (status != SL_OK || is_plain(v)) return status;
  return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                         "takes '%.64s', which is a layer's output times or plus a constant; only "
                         "gelu, x (1 + erf(x / sqrt 2)) / 2, is had in such parts",
                         v->name);
}

/* The same, of the layer's own shape, the batch's axis first. */
static enum sl_status take_whole(const reader *r, const node_of *node, int i, value_of *v) {
  char text[96];
  enum sl_status status = take_plain(r, node, i, v);
  if (status != SL_OK) return status;
  if (v->order == SL__ONNX_BATCH_FIRST && sl_shape_equal(&v->view, shape_of(r, v))) return SL_OK;
  return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                         "takes '%.64s' reshaped or with its axes turned; a sample is %s there",
                         v->name, sl_shape_text(shape_of(r, v), text, sizeof text));
}

/* Of f32; ndim below 0: any. */
static enum sl_status take_weight(const reader *r, const node_of *node, int i, int ndim,
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
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "its input %d has %d dimensions, %d are had", i,
                           (*weight)->ndim, ndim);
  return SL_OK;
}

/* The last layer's output, seen as the input was where its shape is the input's. */
static enum sl_status give(reader *r, const node_of *node, const char *name, const value_of *as) {
  value_of v = {.is = SL__ONNX_OUTPUT, .layer = r->model->count - 1, .factor = 1, .has_x = true};
  v.view = *shape_of(r, &v);
  if (as) {
    v.view = as->view;
    v.order = as->order;
  }
  return sl__onnx_define(r, node, name, &v);
}

static enum sl_status give_first(reader *r, const node_of *node, const value_of *as) {
  if (!node->outputs) return sl__onnx_refuse(r, node, SL_BAD_FILE, "has no output");
  return give(r, node, node->output[0], as);
}

/* Another name for a layer's output, changed in view, order or factor. */
static enum sl_status rename_to(reader *r, const node_of *node, const value_of *v) {
  if (!node->outputs) return sl__onnx_refuse(r, node, SL_BAD_FILE, "has no output");
  return sl__onnx_define(r, node, node->output[0], v);
}

/* ---- activations, and how they are fused ---- */

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

/* The node that alone takes the named value; NULL: none, or several. */
static const node_of *only_user(const reader *r, const char *name) {
  const value_of *v = sl__onnx_find(r, name);
  if (!v || v->uses != 1 || v->user < 0) return NULL;
  const node_of *user = &r->graph.node[v->user];
  return *user->domain && strcmp(user->domain, "ai.onnx") != 0 ? NULL : user;
}

/* In a file of ours "fc/relu" is fused with fc, and a layer of its own has a name of its own. */
static bool belongs(const reader *r, const node_of *part, const node_of *layer) {
  size_t length = strlen(layer->name);
  return !r->own || (!strncmp(part->name, layer->name, length) && part->name[length] == '/');
}

/* What comes after a layer's last node and can be a part of it: *last becomes that node. */
static enum sl_activation fuse(reader *r, const node_of *layer, const node_of **last) {
  const node_of *user = (*last)->outputs ? only_user(r, (*last)->output[0]) : NULL;
  enum sl_activation activation = user ? activation_of(user->op) : SL_ACTIVATION_NONE;
  if (activation == SL_ACTIVATION_NONE || activation == SL_ACTIVATION_GELU || user->inputs != 1 ||
      user->outputs != 1 || !belongs(r, user, layer))
    return SL_ACTIVATION_NONE;
  r->done[user - r->graph.node] = true;
  *last = user;
  return activation;
}

static enum sl_status append_activation(reader *r, const node_of *node,
                                        enum sl_activation activation, const value_of *x) {
  struct sl_activation_options o = {.activation = activation};
  enum sl_status status = sl__onnx_append(r, node, NULL, &sl__activation_kind, &o, x, NULL);
  return status == SL_OK ? give_first(r, node, x) : status;
}

static enum sl_status read_activation(reader *r, const node_of *node) {
  const char *approximate;
  enum sl_status status;
  value_of x;
  SL__TRY(take_plain(r, node, 0, &x));
  SL__TRY(sl__onnx_get_text(r, node, "approximate", &approximate));
  if (approximate && strcmp(approximate, "none") != 0)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "attribute approximate is %.32s; only the exact gelu is had",
                           approximate);
  status = append_activation(r, node, activation_of(node->op), &x);
out:
  return status;
}

/* ---- gelu in its parts: factor, x and erf of a value are put together ---- */

static bool is_near(float a, double b) { return fabs((double)a - b) < 1e-6; }

static enum sl_status give_part(reader *r, const node_of *node, value_of *v) {
  if (v->has_x && v->erf == SL__ONNX_ONE_AND_ERF && is_near(v->factor, 0.5)) {
    v->factor = 1;
    v->erf = SL__ONNX_PLAIN;
    return append_activation(r, node, SL_ACTIVATION_GELU, v);
  }
  return rename_to(r, node, v);
}

/* The one value of a constant input. */
static bool is_scalar(const reader *r, const node_of *node, int i, float *value) {
  const struct sl__onnx_tensor *t = sl__onnx_constant(r, node, i);
  if (!t || !t->reals || t->count != 1) return false;
  *value = t->reals[0];
  return true;
}

static enum sl_status multiply_values(reader *r, const node_of *node) {
  enum sl_status status;
  value_of a, b;
  SL__TRY(take(r, node, 0, &a));
  SL__TRY(take(r, node, 1, &b));
  if (a.erf == SL__ONNX_ONE_AND_ERF) {
    value_of other = a;
    a = b;
    b = other;
  }
  if (a.layer != b.layer || a.order != b.order || !sl_shape_equal(&a.view, &b.view) || !a.has_x ||
      b.has_x || a.erf != SL__ONNX_PLAIN || b.erf != SL__ONNX_ONE_AND_ERF)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "multiplies layers' outputs, for which there is no layer");
  a.erf = SL__ONNX_ONE_AND_ERF;
  a.factor *= b.factor;
  status = give_part(r, node, &a);
out:
  return status;
}

static enum sl_status read_mul(reader *r, const node_of *node) {
  enum sl_status status;
  value_of v;
  float factor = 1;
  bool first = is_scalar(r, node, 0, &factor);
  bool divides = !strcmp(node->op, "Div");
  if (!first && !is_scalar(r, node, 1, &factor)) {
    if (!divides) return multiply_values(r, node);
    first = true;
  }
  if (first && divides)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "divides by other than one constant number");
  SL__TRY(take(r, node, first, &v));
  v.factor = divides ? v.factor / factor : v.factor * factor;
  status = give_part(r, node, &v);
out:
  return status;
}

static enum sl_status read_erf(reader *r, const node_of *node) {
  value_of v;
  enum sl_status status = take(r, node, 0, &v);
  if (status != SL_OK) return status;
  if (!v.has_x || v.erf != SL__ONNX_PLAIN || !is_near(v.factor, 0.70710678118))
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "is no part of a gelu");
  v.has_x = false;
  v.factor = 1;
  v.erf = SL__ONNX_ERF;
  return rename_to(r, node, &v);
}

static enum sl_status add_constant(reader *r, const node_of *node, int constant) {
  float one;
  value_of v;
  enum sl_status status = take(r, node, !constant, &v);
  if (status != SL_OK) return status;
  if (!is_scalar(r, node, constant, &one) || one != 1 || v.has_x || v.erf != SL__ONNX_ERF ||
      v.factor != 1)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "adds a constant to a layer's output, for which there is no layer (a "
                           "bias belongs behind a MatMul without one)");
  v.erf = SL__ONNX_ONE_AND_ERF;
  return rename_to(r, node, &v);
}

static enum sl_status read_add(reader *r, const node_of *node) {
  struct sl_add_options o = {0};
  enum sl_status status;
  value_of a, b;
  for (int i = 0; i < 2; i++)
    if (sl__onnx_constant(r, node, i)) return add_constant(r, node, i);
  SL__TRY(take_plain(r, node, 0, &a));
  SL__TRY(take_plain(r, node, 1, &b));
  if (a.order != b.order || !sl_shape_equal(&a.view, &b.view) ||
      !sl_shape_equal(shape_of(r, &a), shape_of(r, &b)))
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "adds outputs of different shapes, for which there is no layer");
  SL__TRY(sl__onnx_append(r, node, NULL, &sl__add_kind, &o, &a, &b));
  status = give_first(r, node, &a);
out:
  return status;
}

/* ---- windows: convolution and pooling ---- */

struct window {
  int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
};

/* Two numbers of a list attribute, at_least or more. */
static enum sl_status read_pair(const reader *r, const node_of *node, const char *name,
                                int at_least, int *first, int *second) {
  const int64_t *list;
  int count;
  enum sl_status status = sl__onnx_get_list(r, node, name, &list, &count);
  if (status != SL_OK || !list) return status;
  if (count != 2)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "attribute %s has %d numbers; windows of 2 dimensions are had", name,
                           count);
  if (list[0] < at_least || list[1] < at_least || list[0] > MOST_WINDOW || list[1] > MOST_WINDOW)
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "attribute %s is %lld, %lld", name,
                           (long long)list[0], (long long)list[1]);
  *first = (int)list[0];
  *second = (int)list[1];
  return SL_OK;
}

static enum sl_status read_pads(const reader *r, const node_of *node, struct window *w) {
  const int64_t *pads;
  const char *way;
  enum sl_status status;
  int count;
  SL__TRY(sl__onnx_get_list(r, node, "pads", &pads, &count));
  SL__TRY(sl__onnx_get_text(r, node, "auto_pad", &way));
  if (way && strcmp(way, "NOTSET") != 0 && strcmp(way, "VALID") != 0)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "attribute auto_pad is %.32s; export it with pads in numbers", way);
  if (!pads || (way && !strcmp(way, "VALID"))) return SL_OK;
  if (count != 4 || pads[0] != pads[2] || pads[1] != pads[3])
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "attribute pads: only the same on both sides is had");
  if (pads[0] < 0 || pads[1] < 0 || pads[0] >= w->kernel_h || pads[1] >= w->kernel_w ||
      (pads[0] > 0 && pads[1] == 0))
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "attribute pads is %lld, %lld; from 0 to below the kernel's %d, %d are "
                           "had, and none in width only where there is none in height",
                           (long long)pads[0], (long long)pads[1], w->kernel_h, w->kernel_w);
  w->pad_h = (int)pads[0];
  w->pad_w = (int)pads[1];
out:
  return status;
}

static enum sl_status read_window(const reader *r, const node_of *node, struct window *w) {
  int dilation_h = 1, dilation_w = 1;
  enum sl_status status;
  w->stride_h = w->stride_w = 1;
  SL__TRY(read_pair(r, node, "kernel_shape", 1, &w->kernel_h, &w->kernel_w));
  SL__TRY(read_pair(r, node, "strides", 1, &w->stride_h, &w->stride_w));
  SL__TRY(read_pair(r, node, "dilations", 1, &dilation_h, &dilation_w));
  if (dilation_h != 1 || dilation_w != 1)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "attribute dilations is %d, %d; only 1 is had",
                           dilation_h, dilation_w);
  if (w->kernel_h < 1)
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "attribute kernel_shape must be there");
  status = read_pads(r, node, w);
out:
  return status;
}

/* A bias, or none: *values NULL. */
static enum sl_status read_bias(const reader *r, const node_of *node, int i, int64_t count,
                                const float **values) {
  const struct sl__onnx_tensor *bias;
  enum sl_status status;
  *values = NULL;
  if (!sl__onnx_has(node, i)) return SL_OK;
  SL__TRY(take_weight(r, node, i, -1, &bias));
  if (bias->count != count || bias->dim[bias->ndim ? bias->ndim - 1 : 0] != count)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "its bias has %lld values, not %lld",
                           (long long)bias->count, (long long)count);
  *values = bias->reals;
out:
  return status;
}

static enum sl_status check_conv(const reader *r, const node_of *node, const value_of *x,
                                 const struct sl__onnx_tensor *weight, struct window *w) {
  enum sl_status status;
  SL__TRY(sl__onnx_must_be(r, node, "group", 1, 1));
  if (weight->dim[0] < 1 || weight->dim[0] > INT_MAX || weight->dim[2] < 1 || weight->dim[3] < 1 ||
      weight->dim[2] > MOST_WINDOW || weight->dim[3] > MOST_WINDOW)
    return sl__onnx_refuse(r, node, SL_BAD_FILE,
                           "the shape of its weight is none of a convolution");
  w->kernel_h = (int)weight->dim[2];
  w->kernel_w = (int)weight->dim[3];
  SL__TRY(read_window(r, node, w));
  if (x->view.ndim != 3 || x->view.dim[0] != weight->dim[1] || w->kernel_h != weight->dim[2] ||
      w->kernel_w != weight->dim[3])
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "its weight does not fit its input or its window");
out:
  return status;
}

static enum sl_status read_conv(reader *r, const node_of *node) {
  const struct sl__onnx_tensor *weight;
  const node_of *last = node;
  struct window w = {0};
  enum sl_status status;
  const float *bias;
  value_of x;
  SL__TRY(take_whole(r, node, 0, &x));
  SL__TRY(take_weight(r, node, 1, 4, &weight));
  SL__TRY(check_conv(r, node, &x, weight, &w));
  SL__TRY(read_bias(r, node, 2, weight->dim[0], &bias));
  struct sl_conv2d_options o = {.channels = (int)weight->dim[0],
                                .kernel_h = w.kernel_h,
                                .kernel_w = w.kernel_w == w.kernel_h ? 0 : w.kernel_w,
                                .stride_h = w.stride_h == 1 ? 0 : w.stride_h,
                                .stride_w = w.stride_w == w.stride_h ? 0 : w.stride_w,
                                .pad_h = w.pad_h,
                                .pad_w = w.pad_w == w.pad_h ? 0 : w.pad_w,
                                .no_bias = !bias,
                                .activation = fuse(r, node, &last)};
  SL__TRY(sl__onnx_append(r, node, weight->name, &sl__conv2d_kind, &o, &x, NULL));
  SL__TRY(sl__onnx_set(r, node, "weight", weight->reals, weight->count, NULL));
  if (bias) SL__TRY(sl__onnx_set(r, node, "bias", bias, weight->dim[0], NULL));
  status = give_first(r, last, NULL);
out:
  return status;
}

static enum sl_status append_pool(reader *r, const node_of *node, const value_of *x, bool average,
                                  struct sl_pool2d_options *o) {
  if (x->view.ndim != 3)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "pools over %d dimensions of a sample; [C, H, "
                           "W] is had",
                           x->view.ndim);
  return sl__onnx_append(r, node, NULL, average ? &sl__avgpool2d_kind : &sl__maxpool2d_kind, o, x,
                         NULL);
}

static enum sl_status read_pool(reader *r, const node_of *node) {
  bool average = !strcmp(node->op, "AveragePool");
  struct window w = {0};
  enum sl_status status;
  value_of x;
  SL__TRY(take_whole(r, node, 0, &x));
  SL__TRY(read_window(r, node, &w));
  SL__TRY(sl__onnx_must_be(r, node, "ceil_mode", 0, 0));
  if (average && (w.pad_h || w.pad_w))
    SL__TRY(sl__onnx_must_be(r, node, "count_include_pad", 0, 1));
  bool usual = w.stride_h == w.kernel_h && w.stride_w == w.kernel_w;
  struct sl_pool2d_options o = {.kernel_h = w.kernel_h,
                                .kernel_w = w.kernel_w == w.kernel_h ? 0 : w.kernel_w,
                                .stride_h = usual ? 0 : w.stride_h,
                                .stride_w = usual || w.stride_w == w.stride_h ? 0 : w.stride_w,
                                .pad_h = w.pad_h,
                                .pad_w = w.pad_w == w.pad_h ? 0 : w.pad_w};
  SL__TRY(append_pool(r, node, &x, average, &o));
  status = give_first(r, node, NULL);
out:
  return status;
}

static enum sl_status read_global(reader *r, const node_of *node) {
  struct sl_pool2d_options o = {.global = true};
  enum sl_status status;
  value_of x;
  SL__TRY(take_whole(r, node, 0, &x));
  SL__TRY(append_pool(r, node, &x, !strcmp(node->op, "GlobalAveragePool"), &o));
  status = give_first(r, node, NULL);
out:
  return status;
}

/* Over the whole plane of [C, H, W]: as a newer exporter writes a global average. */
static enum sl_status read_mean(reader *r, const node_of *node) {
  struct sl_pool2d_options o = {.global = true};
  int64_t keeps;
  const int64_t *axes;
  int count, axis, seen = 0;
  enum sl_status status;
  value_of x;
  SL__TRY(take_whole(r, node, 0, &x));
  SL__TRY(sl__onnx_get_either(r, node, "axes", 1, &axes, &count));
  SL__TRY(sl__onnx_get_whole(r, node, "keepdims", 1, &keeps));
  for (int i = 0; i < count; i++) {
    SL__TRY(sl__onnx_axis(r, node, axes[i], x.view.ndim + 1, &axis));
    seen |= 1 << axis;
  }
  if (x.view.ndim != 3 || seen != (1 << 2 | 1 << 3))
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "attribute axes: only the mean over H and W of [N, C, H, W] is had");
  SL__TRY(append_pool(r, node, &x, true, &o));
  x.view = keeps ? SL_SHAPE(x.view.dim[0], 1, 1) : SL_SHAPE(x.view.dim[0]);
  status = give_first(r, node, &x);
out:
  return status;
}

/* ---- the others with weights ---- */

/* ONNX keeps so much of the past, our momentum is what is new; 0.9f is 0.1f, not a bit beside. */
static float momentum_of(float kept) {
  float momentum = (float)(1.0 - sl__short_real(kept));
  return momentum > 0 && momentum <= 1 && momentum != 0.1f ? momentum : 0;
}

static enum sl_status read_batchnorm(reader *r, const node_of *node) {
  static const char *const parts[] = {NULL, "weight", "bias", "running_mean", "running_var"};
  const struct sl__onnx_tensor *t[5];
  enum sl_status status;
  float epsilon, kept;
  value_of x;
  SL__TRY(take_whole(r, node, 0, &x));
  SL__TRY(sl__onnx_must_be(r, node, "training_mode", 0, 0));
  SL__TRY(sl__onnx_must_be(r, node, "spatial", 1, 1));
  if (node->outputs > 1 && *node->output[1])
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "is exported for training; export it in "
                           "evaluation mode");
  SL__TRY(sl__onnx_get_real(r, node, "epsilon", 1e-5f, &epsilon));
  SL__TRY(sl__onnx_get_real(r, node, "momentum", 0.9f, &kept));
  for (int i = 1; i < 5; i++) SL__TRY(take_weight(r, node, i, 1, &t[i]));
  struct sl_batchnorm_options o = {.epsilon = epsilon == 1e-5f ? 0 : epsilon,
                                   .momentum = momentum_of(kept)};
  if (!(epsilon > 0))
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "attribute epsilon is %g; it must be above 0",
                           (double)epsilon);
  SL__TRY(sl__onnx_append(r, node, t[1]->name, &sl__batchnorm_kind, &o, &x, NULL));
  for (int i = 1; i < 5; i++)
    SL__TRY(sl__onnx_set(r, node, parts[i], t[i]->reals, t[i]->count, NULL));
  status = give_first(r, node, &x);
out:
  return status;
}

/* A layer's weight may be shared once, and where it has nothing else. */
static bool may_give(const reader *r, int layer) {
  const struct sl__layer *from = &r->model->layers[layer];
  return from->params.count == 1 && !from->is_shared;
}

/* The weight is the first embedding's table, turned: an exporter that has turned it itself leaves
 * but equal values. */
static bool is_table(const reader *r, const struct sl__onnx_tensor *weight, bool turned) {
  const struct sl__onnx_tensor *table = r->embedding;
  if (!table || !may_give(r, r->embedding_layer)) return false;
  if (r->own || !turned || weight->dim[0] != table->dim[1] || weight->dim[1] != table->dim[0])
    return false;
  for (int64_t i = 0; i < table->dim[0]; i++)
    for (int64_t k = 0; k < table->dim[1]; k++)
      if (table->reals[i * table->dim[1] + k] != weight->reals[k * table->dim[0] + i]) return false;
  return true;
}

/* The layer before that has taken the same tensor for its weight, or the one that this is the
 * transpose of; -1: none. how: says for later ones what was taken. */
static int find_tied(const reader *r, const struct sl__onnx_tensor *weight, bool turned,
                     struct sl__onnx_setting *how) {
  bool back = turned && weight->transposed;
  how->matrix = back ? weight->transposed : weight;
  how->turned = turned && !back;
  for (int i = 0; i < r->setting_count; i++) {
    const struct sl__onnx_setting *s = &r->settings[i];
    if (s->matrix == how->matrix && s->turned == how->turned && may_give(r, s->layer))
      return s->layer;
  }
  return is_table(r, weight, turned) ? r->embedding_layer : -1;
}

struct dense {
  const struct sl__onnx_tensor *weight; /* [O, I], or turned: [I, O] */
  const float *bias;
  const char *bias_name;
  const node_of *last;
  bool turned, positions;
};

static enum sl_status append_dense(reader *r, const node_of *node, const value_of *x,
                                   const struct dense *d) {
  const struct sl__onnx_tensor *w = d->weight;
  int64_t features = w->dim[d->turned], inputs = w->dim[!d->turned];
  const node_of *last = d->last;
  enum sl_status status;
  struct sl_dense_options o = {.features = features,
                               .no_bias = !d->bias,
                               .positions = d->positions,
                               .activation = fuse(r, node, &last)};
  if (x->view.dim[x->view.ndim - 1] != inputs)
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "its weight takes %lld values, its input has %lld",
                           (long long)inputs, (long long)x->view.dim[x->view.ndim - 1]);
  struct sl__onnx_setting how = {.columns = d->turned ? inputs : 0};
  int from = find_tied(r, w, d->turned, &how);
  if (from >= 0) o.layer.shares = r->model->layers[from].name;
  const char *name = w->name && strstr(w->name, ".weight") ? w->name : d->bias_name;
  SL__TRY(sl__onnx_append(r, node, name, &sl__dense_kind, &o, x, NULL));
  if (from < 0) SL__TRY(sl__onnx_set(r, node, "weight", w->reals, w->count, &how));
  if (d->bias) SL__TRY(sl__onnx_set(r, node, "bias", d->bias, features, NULL));
  value_of seen = {.view = r->model->layers[r->model->count - 1].out, .order = x->order};
  status = give_first(r, last, &seen);
out:
  return status;
}

static enum sl_status read_gemm(reader *r, const node_of *node) {
  struct dense d = {.last = node};
  int64_t turned;
  float alpha, beta;
  enum sl_status status;
  value_of x;
  SL__TRY(take_plain(r, node, 0, &x));
  SL__TRY(take_weight(r, node, 1, 2, &d.weight));
  SL__TRY(sl__onnx_must_be(r, node, "transA", 0, 0));
  SL__TRY(sl__onnx_get_whole(r, node, "transB", 0, &turned));
  SL__TRY(sl__onnx_get_real(r, node, "alpha", 1, &alpha));
  SL__TRY(sl__onnx_get_real(r, node, "beta", 1, &beta));
  if (alpha != 1 || beta != 1)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "attributes alpha and beta are %g and %g; only 1 is had", (double)alpha,
                           (double)beta);
  if (x.view.ndim != 1 || x.order != SL__ONNX_BATCH_FIRST)
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "takes a matrix, not %d dimensions",
                           x.view.ndim + 1);
  d.turned = !turned;
  SL__TRY(read_bias(r, node, 2, d.weight->dim[d.turned], &d.bias));
  d.bias_name = d.bias ? node->input[2] : NULL;
  status = append_dense(r, node, &x, &d);
out:
  return status;
}

/* The Add behind a MatMul, of a constant for each feature. */
static void find_bias(reader *r, const node_of *node, int64_t features, struct dense *d) {
  const node_of *add = node->outputs ? only_user(r, node->output[0]) : NULL;
  if (!add || strcmp(add->op, "Add") != 0 || add->inputs != 2 || !belongs(r, add, node)) return;
  for (int i = 0; i < 2; i++) {
    const struct sl__onnx_tensor *t = sl__onnx_constant(r, add, i);
    if (!t || !t->reals || t->count != features || !t->ndim || t->dim[t->ndim - 1] != features)
      continue;
    if (t->ndim > 2) continue; /* it would make the output larger */
    d->bias = t->reals;
    d->bias_name = add->input[i];
    d->last = add;
    r->done[add - r->graph.node] = true;
    return;
  }
}

static enum sl_status read_matmul(reader *r, const node_of *node) {
  struct dense d = {.last = node, .turned = true};
  enum sl_status status;
  value_of x;
  SL__TRY(take_plain(r, node, 0, &x));
  SL__TRY(take_weight(r, node, 1, 2, &d.weight));
  d.positions = sl_shape_equal(&x.view, shape_of(r, &x)) && (r->own || x.view.ndim > 1);
  if (!d.positions && (x.view.ndim != 1 || x.order != SL__ONNX_BATCH_FIRST))
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "takes a reshaped input of %d dimensions",
                           x.view.ndim + 1);
  if (x.order > SL__ONNX_TIME_FIRST)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "takes a recurrent operator's output with its "
                           "axis of directions");
  find_bias(r, node, d.weight->dim[1], &d);
  status = append_dense(r, node, &x, &d);
out:
  return status;
}

static enum sl_status read_gather(reader *r, const node_of *node) {
  const struct sl__onnx_tensor *table;
  enum sl_status status;
  value_of tokens;
  SL__TRY(take_plain(r, node, 1, &tokens));
  SL__TRY(take_weight(r, node, 0, 2, &table));
  SL__TRY(sl__onnx_must_be(r, node, "axis", 0, 0));
  if (tokens.layer != SL__INPUT || !r->tokens || !sl_shape_equal(&tokens.view, &r->model->sample))
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "takes rows by other than the model's input, whole numbers");
  struct sl_embedding_options o = {.vocabulary = table->dim[0], .features = table->dim[1]};
  struct sl__onnx_setting how = {.matrix = table};
  SL__TRY(sl__onnx_append(r, node, table->name, &sl__embedding_kind, &o, &tokens, NULL));
  SL__TRY(sl__onnx_set(r, node, "weight", table->reals, table->count, &how));
  if (!r->embedding) {
    r->embedding = table;
    r->embedding_layer = r->model->count - 1;
  }
  value_of seen = {.view = r->model->layers[r->model->count - 1].out, .order = tokens.order};
  status = give_first(r, node, &seen);
out:
  return status;
}

static enum sl_status read_dropout(reader *r, const node_of *node) {
  const struct sl__onnx_tensor *ratio = sl__onnx_constant(r, node, 1);
  const struct sl__onnx_tensor *training = sl__onnx_constant(r, node, 2);
  struct sl_dropout_options o;
  enum sl_status status;
  value_of x;
  SL__TRY(take_plain(r, node, 0, &x));
  SL__TRY(sl__onnx_get_real(r, node, "ratio", 0.5f, &o.rate));
  o.layer = (struct sl_layer_options){0};
  if (ratio && ratio->reals && ratio->count == 1) o.rate = ratio->reals[0];
  if ((sl__onnx_has(node, 1) && !(ratio && ratio->reals && ratio->count == 1)) ||
      (sl__onnx_has(node, 2) &&
       !(training && training->wholes && training->count == 1 && !training->wholes[0])))
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "its ratio must be a constant, training_mode "
                           "false or left out");
  SL__TRY(sl__onnx_append(r, node, NULL, &sl__dropout_kind, &o, &x, NULL));
  status = give_first(r, node, &x);
out:
  return status;
}

/* ---- recurrent layers ---- */

/* Usual activations, one direction, nothing else. */
static enum sl_status check_recurrent(const reader *r, const node_of *node, bool is_lstm) {
  static const char *const strange[] = {"activations", "activation_alpha", "activation_beta",
                                        "clip"};
  const char *direction;
  enum sl_status status;
  SL__TRY(sl__onnx_get_text(r, node, "direction", &direction));
  if (direction && strcmp(direction, "forward") != 0)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "attribute direction is %.32s; only forward is had", direction);
  for (int i = 0; i < node->attributes; i++)
    for (int k = 0; k < 4; k++)
      if (!strcmp(node->attribute[i].name, strange[k]))
        return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "attribute %s is not had", strange[k]);
  SL__TRY(sl__onnx_must_be(r, node, "layout", 0, 0));
  SL__TRY(sl__onnx_must_be(r, node, "input_forget", 0, 0));
  if (!is_lstm) SL__TRY(sl__onnx_must_be(r, node, "linear_before_reset", 0, 1));
  if (sl__onnx_has(node, 4) || (is_lstm && sl__onnx_has(node, 7)))
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "has lengths of sequences, or peepholes");
  for (int i = 1; i < node->outputs; i++) {
    const value_of *state = *node->output[i] ? sl__onnx_find(r, node->output[i]) : NULL;
    if (state && state->uses)
      return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                             "its last state, '%.64s', is taken; a layer gives all time steps' "
                             "outputs",
                             state->name);
  }
out:
  return status;
}

/* The state before the first step: none, or zeros. */
static enum sl_status check_states(const reader *r, const node_of *node, int last) {
  for (int i = 5; i <= last; i++) {
    const struct sl__onnx_tensor *t = sl__onnx_constant(r, node, i);
    bool zero = !sl__onnx_has(node, i) || (t && (t->zeros || t->reals));
    for (int64_t k = 0; zero && t && t->reals && k < t->count; k++) zero = t->reals[k] == 0;
    if (!zero)
      return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                             "its first state, input %d, must be zeros or left out", i);
  }
  return SL_OK;
}

/* ONNX's gates are i, o, f, c and z, r, h; ours i, f, c, o and r, z, h: which of its each of ours
 * is. */
static enum sl_status set_gates(reader *r, const node_of *node, int64_t gates, int64_t hidden,
                                const struct sl__onnx_tensor *const t[3]) {
  struct sl__onnx_setting how = {.gates = gates == 4 ? "0231" : "102"};
  int64_t rows = gates * hidden;
  const float *bias = t[2] ? t[2]->reals : NULL;
  enum sl_status status;
  SL__TRY(sl__onnx_set(r, node, "weight_ih_l0", t[0]->reals, t[0]->count, &how));
  SL__TRY(sl__onnx_set(r, node, "weight_hh_l0", t[1]->reals, t[1]->count, &how));
  SL__TRY(sl__onnx_set(r, node, "bias_ih_l0", bias, rows, &how));
  status = sl__onnx_set(r, node, "bias_hh_l0", bias ? bias + rows : NULL, rows, &how);
out:
  return status;
}

static enum sl_status read_cell(reader *r, const node_of *node) {
  bool is_lstm = !strcmp(node->op, "LSTM");
  int64_t gates = is_lstm ? 4 : 3, hidden;
  const struct sl__onnx_tensor *t[3] = {NULL};
  enum sl_status status;
  value_of x;
  SL__TRY(take_plain(r, node, 0, &x));
  SL__TRY(check_recurrent(r, node, is_lstm));
  SL__TRY(check_states(r, node, is_lstm ? 6 : 5));
  SL__TRY(take_weight(r, node, 1, 3, &t[0]));
  SL__TRY(take_weight(r, node, 2, 3, &t[1]));
  if (sl__onnx_has(node, 3)) SL__TRY(take_weight(r, node, 3, 2, &t[2]));
  SL__TRY(sl__onnx_get_whole(r, node, "hidden_size", t[1]->dim[2], &hidden));
  if (x.order != SL__ONNX_TIME_FIRST || x.view.ndim != 2)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "takes [T, N, I], made of [N, T, I] by a Transpose; export it with "
                           "batch_first");
  if (hidden < 1 || hidden > MOST_WINDOW || t[0]->dim[0] != 1 || t[1]->dim[0] != 1 ||
      t[0]->dim[1] != gates * hidden || t[0]->dim[2] != x.view.dim[1] ||
      t[1]->dim[1] != gates * hidden || t[1]->dim[2] != hidden ||
      (t[2] && t[2]->count != 2 * gates * hidden))
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "its weights do not fit its input or hidden_size");
  struct sl_lstm_options lstm = {.features = hidden};
  struct sl_gru_options gru = {.features = hidden};
  SL__TRY(sl__onnx_append(r, node, NULL, is_lstm ? &sl__lstm_kind : &sl__gru_kind,
                          is_lstm ? (void *)&lstm : &gru, &x, NULL));
  SL__TRY(set_gates(r, node, gates, hidden, t));
  value_of seen = {.view = SL_SHAPE(x.view.dim[0], hidden), .order = SL__ONNX_TIME_DIRECTION};
  status = give_first(r, node, &seen);
out:
  return status;
}

/* ---- what only changes how an output is seen ---- */

enum { BATCH_AXIS = -1, DIRECTION_AXIS = -2 };

/* The axes of a value: a sample's by number, and those two. */
static int axes_of(enum sl__onnx_order order, int sample, int axes[SL__ONNX_DIMS]) {
  static const int before[SL__ONNX_ORDERS][4] = {{BATCH_AXIS},
                                                 {0, BATCH_AXIS},
                                                 {0, DIRECTION_AXIS, BATCH_AXIS},
                                                 {0, BATCH_AXIS, DIRECTION_AXIS}};
  static const int count[SL__ONNX_ORDERS] = {1, 2, 3, 3};
  int ndim = count[order];
  memcpy(axes, before[order], sizeof before[order]);
  for (int d = order != SL__ONNX_BATCH_FIRST; d < sample; d++) axes[ndim++] = d;
  return ndim;
}

static int full_shape(const value_of *v, int64_t dim[SL__ONNX_DIMS]) {
  int axes[SL__ONNX_DIMS], ndim = axes_of(v->order, v->view.ndim, axes);
  for (int d = 0; d < ndim; d++)
    dim[d] = axes[d] == BATCH_AXIS       ? SL__ONNX_BATCH
             : axes[d] == DIRECTION_AXIS ? 1
                                         : v->view.dim[axes[d]];
  return ndim;
}

static enum sl_status read_shape(reader *r, const node_of *node) {
  int64_t dim[SL__ONNX_DIMS], start, end;
  enum sl_status status;
  value_of x;
  SL__TRY(take(r, node, 0, &x));
  int ndim = full_shape(&x, dim);
  SL__TRY(sl__onnx_get_whole(r, node, "start", 0, &start));
  SL__TRY(sl__onnx_get_whole(r, node, "end", ndim, &end));
  start = start < -ndim ? 0 : start < 0 ? start + ndim : start > ndim ? ndim : start;
  end = end < -ndim ? 0 : end < 0 ? end + ndim : end > ndim ? ndim : end;
  if (end < start) end = start;
  struct sl__onnx_tensor *y = sl__onnx_alloc(&r->graph, 1, sizeof *y);
  int64_t *wholes = sl__onnx_alloc(&r->graph, SL__ONNX_DIMS, sizeof *wholes);
  if (!y || !wholes) return sl__onnx_no_memory(&r->graph);
  memcpy(wholes, dim + start, (size_t)(end - start) * sizeof *wholes);
  *y = (struct sl__onnx_tensor){.name = "", .type = SL__ONNX_INT64, .ndim = 1, .wholes = wholes};
  y->count = y->dim[0] = end - start;
  value_of v = {.is = SL__ONNX_CONSTANT, .constant = y};
  status = rename_to(r, node, &v);
out:
  return status;
}

static enum sl_status read_identity(reader *r, const node_of *node) {
  int64_t to;
  enum sl_status status;
  value_of x;
  SL__TRY(take(r, node, 0, &x));
  SL__TRY(sl__onnx_get_whole(r, node, "to", 0, &to));
  bool tokens = r->tokens && x.layer == SL__INPUT;
  if (!strcmp(node->op, "Cast") &&
      !(tokens ? to == SL__ONNX_INT32 || to == SL__ONNX_INT64 : to == SL__ONNX_FLOAT))
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "attribute to is %lld: outputs are f32, tokens "
                           "whole",
                           (long long)to);
  status = rename_to(r, node, &x);
out:
  return status;
}

static enum sl_status read_transpose(reader *r, const node_of *node) {
  int from[SL__ONNX_DIMS], to[SL__ONNX_DIMS], own[SL__ONNX_DIMS];
  const int64_t *perm;
  int count, axis;
  enum sl_status status;
  value_of x;
  SL__TRY(take_plain(r, node, 0, &x));
  int ndim = axes_of(x.order, x.view.ndim, from);
  SL__TRY(sl__onnx_get_list(r, node, "perm", &perm, &count));
  if (perm && count != ndim)
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "perm has %d axes of %d", count, ndim);
  for (int d = 0; d < ndim; d++) {
    SL__TRY(sl__onnx_axis(r, node, perm ? perm[d] : ndim - 1 - d, ndim, &axis));
    to[d] = from[axis];
  }
  /* time is an axis of the layer's own; features behind it, but for tokens */
  bool may_turn = sl_shape_equal(&x.view, shape_of(r, &x)) &&
                  (x.view.ndim > 1 || (r->tokens && x.layer == SL__INPUT));
  for (int order = 0; order < SL__ONNX_ORDERS; order++) {
    if (order != SL__ONNX_BATCH_FIRST && !may_turn) continue;
    if (axes_of((enum sl__onnx_order)order, x.view.ndim, own) != ndim ||
        memcmp(own, to, (size_t)ndim * sizeof *own) != 0)
      continue;
    x.order = (enum sl__onnx_order)order;
    return rename_to(r, node, &x);
  }
  status = sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "attribute perm: only the batch's and the first axis of a sample change "
                           "places, around recurrent layers");
out:
  return status;
}

/* Does the file's dimension i say this one? -1 says any. */
static bool says(const reader *r, int64_t said, int64_t dim) {
  return said == dim || said == -1 || (dim == SL__ONNX_BATCH && r->batch && said == r->batch);
}

/* The shape asked for is this value's in another order of axes that lie alike, or as it is. */
static bool find_order(const reader *r, const struct sl__onnx_tensor *shape, value_of *x) {
  int64_t dim[SL__ONNX_DIMS];
  value_of other = *x;
  bool has_direction = x->order > SL__ONNX_TIME_FIRST;
  for (int tries = 0; tries < 2; tries++) {
    int ndim = full_shape(&other, dim);
    bool same = ndim == shape->count;
    for (int d = 0; same && d < ndim; d++) same = says(r, shape->wholes[d], dim[d]);
    if (same) {
      *x = other;
      return true;
    }
    if (has_direction) other.order = SL__ONNX_TIME_FIRST; /* one direction more or less is alike */
  }
  return false;
}

/* A sample's new dimensions; the first one said is the batch's. */
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

static enum sl_status read_reshape(reader *r, const node_of *node) {
  const struct sl__onnx_tensor *shape = sl__onnx_constant(r, node, 1);
  int64_t zero_is_zero;
  struct sl_shape view;
  enum sl_status status;
  char text[96];
  value_of x;
  SL__TRY(take_plain(r, node, 0, &x));
  SL__TRY(sl__onnx_get_whole(r, node, "allowzero", 0, &zero_is_zero));
  if (!shape || !shape->wholes || shape->ndim != 1 || shape->count > SL__ONNX_DIMS)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "its shape must be a constant, but for the "
                           "batch's size");
  if (find_order(r, shape, &x)) return rename_to(r, node, &x);
  if (!find_view(r, shape, !zero_is_zero, &x, &view))
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "its shape is none of a batch of samples %s; the batch's axis stays "
                           "apart and first",
                           sl_shape_text(&x.view, text, sizeof text));
  x.view = view;
  status = rename_to(r, node, &x);
out:
  return status;
}

static enum sl_status read_flatten(reader *r, const node_of *node) {
  int64_t number;
  int axis;
  enum sl_status status;
  value_of x;
  SL__TRY(take_plain(r, node, 0, &x));
  SL__TRY(sl__onnx_get_whole(r, node, "axis", 1, &number));
  SL__TRY(sl__onnx_axis(r, node, number, x.view.ndim + 2, &axis));
  if (number < 0) axis--; /* it counts from behind the last axis */
  if (axis != 1 || x.order != SL__ONNX_BATCH_FIRST)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "attribute axis: only the batch's axis stays "
                           "apart");
  x.view = SL_SHAPE(sl_shape_count(&x.view));
  status = rename_to(r, node, &x);
out:
  return status;
}

/* Out go axes of 1, of a sample or that of directions. */
static enum sl_status read_squeeze(reader *r, const node_of *node) {
  int axes[SL__ONNX_DIMS], count, axis, out = 0;
  struct sl_shape view = {0};
  const int64_t *list;
  enum sl_status status;
  value_of x;
  SL__TRY(take_plain(r, node, 0, &x));
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
            (x.order == SL__ONNX_BATCH_FIRST && axes[d] >= 0 && x.view.dim[axes[d]] == 1);
    if (axes[d] >= 0 && !goes) view.dim[view.ndim++] = x.view.dim[axes[d]];
  }
  if (!fits || view.ndim < 1)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "axes: only some of a sample that are 1 go");
  if (has_direction) x.order = SL__ONNX_TIME_FIRST;
  if (x.order == SL__ONNX_BATCH_FIRST) x.view = view;
  status = rename_to(r, node, &x);
out:
  return status;
}

static enum sl_status read_unsqueeze(reader *r, const node_of *node) {
  int count, axis, in = 0, from = 0;
  struct sl_shape view = {0};
  const int64_t *list;
  enum sl_status status;
  value_of x;
  SL__TRY(take_plain(r, node, 0, &x));
  SL__TRY(sl__onnx_get_either(r, node, "axes", 1, &list, &count));
  int ndim = x.view.ndim + 1 + count;
  if (!count || ndim > SL_MAX_DIMS || x.order != SL__ONNX_BATCH_FIRST)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "axes: at most %d dimensions are had",
                           SL_MAX_DIMS);
  for (int i = 0; i < count; i++) {
    SL__TRY(sl__onnx_axis(r, node, list[i], ndim, &axis));
    if (axis == 0 || in >> axis & 1)
      return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "axes: the batch's stays first");
    in |= 1 << axis;
  }
  for (int d = 1; d < ndim; d++) view.dim[view.ndim++] = in >> d & 1 ? 1 : x.view.dim[from++];
  x.view = view;
  status = rename_to(r, node, &x);
out:
  return status;
}

/* ---- the table ---- */

/* attributes: those that the reader knows, " a b "; any other is refused. */
static const struct {
  const char *op;
  enum sl_status (*read)(reader *r, const node_of *node);
  const char *attributes;
} operators[] = {
    {"Add", read_add, ""},
    {"AveragePool", read_pool,
     " auto_pad ceil_mode count_include_pad dilations kernel_shape pads strides "},
    {"BatchNormalization", read_batchnorm, " epsilon momentum spatial training_mode "},
    {"Cast", read_identity, " to "},
    {"Conv", read_conv, " auto_pad dilations group kernel_shape pads strides "},
    {"Div", read_mul, ""},
    {"Dropout", read_dropout, " ratio seed "},
    {"Erf", read_erf, ""},
    {"Flatten", read_flatten, " axis "},
    {"GRU", read_cell,
     " activations activation_alpha activation_beta clip direction hidden_size layout "
     "linear_before_reset "},
    {"Gather", read_gather, " axis "},
    {"Gelu", read_activation, " approximate "},
    {"Gemm", read_gemm, " alpha beta transA transB "},
    {"GlobalAveragePool", read_global, ""},
    {"GlobalMaxPool", read_global, ""},
    {"Identity", read_identity, ""},
    {"LSTM", read_cell,
     " activations activation_alpha activation_beta clip direction hidden_size input_forget "
     "layout "},
    {"MatMul", read_matmul, ""},
    {"MaxPool", read_pool,
     " auto_pad ceil_mode dilations kernel_shape pads storage_order strides "},
    {"Mul", read_mul, ""},
    {"ReduceMean", read_mean, " axes keepdims noop_with_empty_axes "},
    {"Relu", read_activation, ""},
    {"Reshape", read_reshape, " allowzero "},
    {"Shape", read_shape, " end start "},
    {"Sigmoid", read_activation, ""},
    {"Squeeze", read_squeeze, " axes "},
    {"Tanh", read_activation, ""},
    {"Transpose", read_transpose, " perm "},
    {"Unsqueeze", read_unsqueeze, " axes "}};

static enum sl_status check_attributes(const reader *r, const node_of *node, const char *known) {
  for (int i = 0; i < node->attributes; i++) {
    char word[64];
    snprintf(word, sizeof word, " %.60s ", node->attribute[i].name);
    if (!strstr(known, word))
      return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "attribute %.60s is not known",
                             node->attribute[i].name);
  }
  return SL_OK;
}

/* Outputs beside the first: recurrent layers' states have their own check. */
static enum sl_status check_outputs(const reader *r, const node_of *node) {
  for (int i = 1; i < node->outputs; i++) {
    const value_of *v = *node->output[i] ? sl__onnx_find(r, node->output[i]) : NULL;
    if (v && v->uses && strcmp(node->op, "LSTM") != 0 && strcmp(node->op, "GRU") != 0)
      return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "its output '%.64s' is not had", v->name);
  }
  return SL_OK;
}

enum sl_status sl__onnx_operator(reader *r, const node_of *node) {
  enum sl_status status;
  for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
    if (strcmp(operators[i].op, node->op) != 0) continue;
    SL__TRY(check_attributes(r, node, operators[i].attributes));
    SL__TRY(check_outputs(r, node));
    return operators[i].read(r, node);
  }
  status = sl__onnx_refuse(r, node, SL_UNSUPPORTED, "%s",
                           strcmp(node->op, "Softmax") && strcmp(node->op, "LogSoftmax")
                               ? "there is no layer for this operator"
                               : "models end in logits, before the softmax: export it without");
out:
  return status;
}
