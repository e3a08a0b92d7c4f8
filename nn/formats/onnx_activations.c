/* Activations of several ONNX nodes: gelu, gelu_tanh and silu, as the library and PyTorch's
 * exporters write them. */
#include <math.h>
#include <string.h>

#include "nn/formats/onnx_operators.h"

/* A node of a pattern takes the value of the node before (the first one: x) and its partner. */
struct step {
  const char *op;
  enum { ALONE, WITH_X, WITH_HALF_X, WITH_NUMBER } partner;
  double number;
};

enum { MOST_STEPS = 9 };

/* x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), from x^3 on, and its half in two orders. */
#define CUBE                                                                                       \
  {"Mul", WITH_X, 0}, { "Mul", WITH_X, 0 }
#define POWER                                                                                      \
  { "Pow", WITH_NUMBER, 3 }
#define TANH                                                                                       \
  {"Mul", WITH_NUMBER, 0.044715}, {"Add", WITH_X, 0}, {"Mul", WITH_NUMBER, 0.79788456},            \
      {"Tanh", ALONE, 0}, {                                                                        \
    "Add", WITH_NUMBER, 1                                                                          \
  }
#define HALF_LAST                                                                                  \
  {"Mul", WITH_X, 0}, { "Mul", WITH_NUMBER, 0.5 }
#define HALF_FIRST                                                                                 \
  { "Mul", WITH_HALF_X, 0 }

static const struct pattern {
  enum sl_activation activation;
  struct step step[MOST_STEPS + 1];
} patterns[] = {
    {SL_ACTIVATION_SILU, {{"Sigmoid", ALONE, 0}, {"Mul", WITH_X, 0}}},
    {SL_ACTIVATION_GELU_TANH, {CUBE, TANH, HALF_LAST}},
    {SL_ACTIVATION_GELU_TANH, {CUBE, TANH, HALF_FIRST}},
    {SL_ACTIVATION_GELU_TANH, {POWER, TANH, HALF_LAST}},
    {SL_ACTIVATION_GELU_TANH, {POWER, TANH, HALF_FIRST}},
    {SL_ACTIVATION_GELU,
     {{"Div", WITH_NUMBER, 1.41421356}, {"Erf", ALONE, 0}, {"Add", WITH_NUMBER, 1}, HALF_LAST}}};

static bool is_half(const reader *r, const char *name, const char *x) {
  const value_of *half = sl__onnx_find(r, name), *whole = sl__onnx_find(r, x);
  return half && whole && half->is == SL__ONNX_OUTPUT && half->layer == whole->layer &&
         half->factor == 0.5f && half->has_x && half->erf == SL__ONNX_PLAIN &&
         half->order == whole->order && sl_shape_equal(&half->view, &whole->view);
}

/* Is the node this step, on `value`? */
static bool is_step(const reader *r, const node_of *node, const struct step *step,
                    const char *value, const char *x) {
  float number;
  if (!node || strcmp(node->op, step->op) != 0 || node->outputs != 1) return false;
  if (step->partner == ALONE) return node->inputs == 1 && !strcmp(node->input[0], value);
  if (node->inputs != 2) return false;
  int other = !strcmp(node->input[0], value);
  bool has_order = !strcmp(step->op, "Div") || !strcmp(step->op, "Pow");
  if (strcmp(node->input[!other], value) != 0 || (has_order && !other)) return false;
  if (step->partner == WITH_X) return !strcmp(node->input[other], x);
  if (step->partner == WITH_HALF_X) return is_half(r, node->input[other], x);
  return sl__onnx_number(r, node, other, x, &number) &&
         fabs((double)number - step->number) < 1e-5 * step->number;
}

/* The number of the pattern's nodes, which part[] gets; 0: the nodes from `node` on are others. */
static int match(const reader *r, const node_of *node, const char *x, const struct pattern *p,
                 const node_of *part[MOST_STEPS]) {
  int count = 0;
  for (const char *value = x; p->step[count].op; value = part[count++]->output[0]) {
    part[count] = count ? sl__onnx_only_user(r, value) : node;
    if (!is_step(r, part[count], &p->step[count], value, x)) return 0;
  }
  return count;
}

/* The activation of x that begins with the node; its nodes are done, *last is the last of them.
 * layer: all of them must belong to it; NULL: to any one layer. */
static enum sl_activation find(reader *r, const node_of *node, const char *x, const node_of *layer,
                               const node_of **last) {
  const node_of *part[MOST_STEPS];
  /* in the library's own files a part has the name LAYER/PART */
  if (r->own && !strchr(node->name, '/')) return SL_ACTIVATION_NONE;
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
    int count = match(r, node, x, &patterns[i], part);
    if (!count || (layer && !sl__onnx_belongs(r, part[count - 1], layer))) continue;
    for (int k = 0; k < count; k++) r->done[part[k] - r->graph.node] = true;
    *last = part[count - 1];
    return patterns[i].activation;
  }
  return SL_ACTIVATION_NONE;
}

enum sl_activation sl__onnx_fuse_parts(reader *r, const node_of *layer, const node_of **last) {
  const value_of *v = (*last)->outputs ? sl__onnx_find(r, (*last)->output[0]) : NULL;
  if (!r->own || !v || v->user < 0) return SL_ACTIVATION_NONE;
  return find(r, &r->graph.node[v->user], (*last)->output[0], layer, last);
}

enum sl_status sl__onnx_read_parts(reader *r, const node_of *node, bool *found) {
  const node_of *last;
  enum sl_status status;
  value_of x;
  *found = false;
  SL__TRY(sl__onnx_take_plain(r, node, 0, &x));
  enum sl_activation activation = find(r, node, node->input[0], NULL, &last);
  *found = activation != SL_ACTIVATION_NONE;
  if (*found) status = sl__onnx_append_activation(r, last, activation, &x);
out:
  return status;
}

enum sl_status sl__onnx_read_pow(reader *r, const node_of *node) {
  bool found;
  enum sl_status status;
  float exponent;
  value_of x;
  SL__TRY(sl__onnx_read_parts(r, node, &found));
  if (!found && sl__onnx_number(r, node, 1, node->input[0], &exponent) && exponent == 2) {
    SL__TRY(sl__onnx_take_plain(r, node, 0, &x));
    SL__TRY(sl__onnx_read_rms(r, node, &x, &found));
  }
  if (!found)
    status = sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                             "is no part of gelu's tanh form or of an RMS normalisation");
out:
  return status;
}

/* The nodes of silu(gate) up behind a Split. */
static bool find_gate(const reader *r, const node_of *split, const node_of *part[3]) {
  static const struct step steps[] = {
      {"Sigmoid", ALONE, 0}, {"Mul", WITH_X, 0}, {"Mul", WITH_X, 0}};
  const char *gate = split->output[0], *up = split->output[1], *value = gate;
  const value_of *v = sl__onnx_find(r, gate);
  if (!v || v->uses != 2 || v->user < 0) return false;
  for (int i = 0; i < 3; value = part[i++]->output[0]) {
    part[i] = i ? sl__onnx_only_user(r, value) : &r->graph.node[v->user];
    if (!is_step(r, part[i], &steps[i], value, i == 2 ? up : gate)) return false;
  }
  return sl__onnx_only_user(r, up) == part[2];
}

enum sl_status sl__onnx_read_split(reader *r, const node_of *node) {
  const int64_t *sizes;
  const node_of *part[3];
  enum sl_status status;
  int64_t number;
  value_of x;
  int axis, count;
  SL__TRY(sl__onnx_take_plain(r, node, 0, &x));
  SL__TRY(sl__onnx_get_whole(r, node, "axis", 0, &number));
  SL__TRY(sl__onnx_axis(r, node, number, x.view.ndim + 1, &axis));
  SL__TRY(sl__onnx_get_either(r, node, "split", 1, &sizes, &count));
  bool equal = !sizes || (count == 2 && sizes[0] == sizes[1]);
  if (node->outputs != 2 || x.order != SL__ONNX_BATCH_FIRST || axis != x.view.ndim || !equal ||
      !find_gate(r, node, part))
    return sl__onnx_append_parts(r, node);
  SL__TRY(sl__onnx_make_view(r, node, &x));
  for (int i = 0; i < 3; i++) r->done[part[i] - r->graph.node] = true;
  SL__TRY(
      sl__onnx_append(r, part[2], NULL, &sl__swiglu_kind, &(struct sl_swiglu_options){0}, &x, 1));
  status = sl__onnx_give_first(r, part[2], NULL);
out:
  return status;
}

/* The nodes SequenceAt that take the parts of a SplitToSequence: output[i] becomes the name of part
 * i. They are done. */
static enum sl_status take_parts(reader *r, const node_of *node, int count, const char **output) {
  for (int n = 0; n < r->graph.nodes; n++) {
    const node_of *at = &r->graph.node[n];
    if (!r->needed[n] || !sl__onnx_has(at, 0) || strcmp(at->input[0], node->output[0]) != 0)
      continue;
    const struct sl__onnx_tensor *index = sl__onnx_constant(r, at, 1);
    int64_t i = index && index->wholes && index->count == 1 ? index->wholes[0] : count;
    if (i < 0) i += count;
    if (strcmp(at->op, "SequenceAt") != 0 || i < 0 || i >= count || at->outputs != 1 || *output[i])
      return sl__onnx_refuse(r, at, SL_UNSUPPORTED,
                             "takes a split's parts other than each once by its number, from 0 to "
                             "%d; export it with optimize=True",
                             count - 1);
    output[i] = at->output[0];
    r->done[n] = true;
  }
  return SL_OK;
}

enum sl_status sl__onnx_read_split_sequence(reader *r, const node_of *node) {
  const struct sl__onnx_tensor *size = sl__onnx_constant(r, node, 1);
  const char *output[64];
  node_of split = *node;
  struct sl__onnx_attribute along = SL__ONNX_WHOLE("axis", 0);
  enum sl_status status;
  value_of x;
  int axis;
  SL__TRY(sl__onnx_take_plain(r, node, 0, &x));
  SL__TRY(sl__onnx_must_be(r, node, "keepdims", 1, 1));
  SL__TRY(sl__onnx_get_whole(r, node, "axis", 0, &along.i));
  SL__TRY(sl__onnx_axis(r, node, along.i, x.view.ndim + 1, &axis));
  int64_t whole = axis > 0 ? x.view.dim[axis - 1] : 0;
  bool fits = x.order == SL__ONNX_BATCH_FIRST && axis > 0 && size && size->wholes &&
              size->count == 1 && !size->ndim && size->wholes[0] > 0 &&
              whole % size->wholes[0] == 0 && whole / size->wholes[0] <= 64;
  if (!fits)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "splits other than a sample's axis into at most 64 equal parts; export "
                           "it with optimize=True");
  split.outputs = (int)(whole / size->wholes[0]);
  for (int i = 0; i < split.outputs; i++) output[i] = "";
  SL__TRY(take_parts(r, node, split.outputs, output));
  split.op = "Split";
  split.inputs = 1;
  split.output = output;
  split.attribute = &along;
  split.attributes = 1;
  status = sl__onnx_read_split(r, &split);
out:
  return status;
}
