/* ONNX's LSTM and GRU. */
#include <string.h>

#include "nn/formats/onnx_operators.h"

/* How a node goes over time, and which of its outputs nodes take: Y, all steps; Y_h, the last
 * state. */
struct way {
  bool both, reverse, all, last;
};

static enum sl_status read_direction(const reader *r, const node_of *node, struct way *way) {
  const char *direction;
  enum sl_status status = sl__onnx_get_text(r, node, "direction", &direction);
  if (status != SL_OK || !direction) return status;
  way->both = !strcmp(direction, "bidirectional");
  way->reverse = !strcmp(direction, "reverse");
  if (way->both || way->reverse || !strcmp(direction, "forward")) return SL_OK;
  return sl__onnx_refuse(r, node, SL_BAD_FILE,
                         "attribute direction is %.32s; it must be forward, reverse or "
                         "bidirectional",
                         direction);
}

static bool is_used(const reader *r, const node_of *node, int output) {
  if (output >= node->outputs || !*node->output[output]) return false;
  const value_of *value = sl__onnx_find(r, node->output[output]);
  return value && value->uses;
}

static enum sl_status read_outputs(const reader *r, const node_of *node, struct way *way) {
  way->last = is_used(r, node, 1);
  way->all = !way->last || is_used(r, node, 0);
  if (!is_used(r, node, 2)) return SL_OK;
  return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                         "a node takes its cell's last state, '%.64s'; a layer gives h alone",
                         node->output[2]);
}

/* The activations must be those that ONNX has by default, which some exporters write out. */
static enum sl_status check_activations(const reader *r, const node_of *node, bool is_lstm,
                                        const struct way *way) {
  static const char *const usual[2][2] = {
      {"Sigmoid Tanh", "Sigmoid Tanh Sigmoid Tanh"},
      {"Sigmoid Tanh Tanh", "Sigmoid Tanh Tanh Sigmoid Tanh Tanh"}};
  const char *wanted = usual[is_lstm][way->both];
  for (int i = 0; i < node->attributes; i++) {
    const struct sl__onnx_attribute *a = &node->attribute[i];
    if (strcmp(a->name, "activations") != 0) continue;
    if (a->type != SL__ONNX_STRINGS || !a->s || strcmp(a->s, wanted) != 0)
      return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                             "attribute activations is '%.64s'; only '%s' is supported",
                             a->type == SL__ONNX_STRINGS && a->s ? a->s : "", wanted);
  }
  return SL_OK;
}

/* Checks for the usual activations, without further features. */
static enum sl_status check_recurrent(const reader *r, const node_of *node, bool is_lstm,
                                      const struct way *way) {
  static const char *const strange[] = {"activation_alpha", "activation_beta", "clip"};
  enum sl_status status;
  for (int i = 0; i < node->attributes; i++)
    for (int k = 0; k < 3; k++)
      if (!strcmp(node->attribute[i].name, strange[k]))
        return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "attribute %s is not supported",
                               strange[k]);
  SL__TRY(check_activations(r, node, is_lstm, way));
  SL__TRY(sl__onnx_must_be(r, node, "layout", 0, 0));
  SL__TRY(sl__onnx_must_be(r, node, "input_forget", 0, 0));
  if (!is_lstm) SL__TRY(sl__onnx_must_be(r, node, "linear_before_reset", 0, 1));
  if (sl__onnx_has(node, 4) || (is_lstm && sl__onnx_has(node, 7)))
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "has lengths of sequences, or peepholes");
out:
  return status;
}

/* Checks the state before the first step: it must be zeros, or left out. */
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

/* ONNX's gates are i, o, f, c and z, r, h; ours are i, f, c, o and r, z, h. how.gates has for each
 * of our gates the number of ONNX's. */
static enum sl_status set_gates(reader *r, const node_of *node, int64_t gates, int64_t hidden,
                                const struct sl__onnx_tensor *const t[3], int direction) {
  struct sl__onnx_setting how = {.gates = gates == 4 ? "0231" : "102"};
  static const char *const names[2][4] = {
      {"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"},
      {"weight_ih_l0_reverse", "weight_hh_l0_reverse", "bias_ih_l0_reverse", "bias_hh_l0_reverse"}};
  const char *const *name = names[direction];
  int64_t rows = gates * hidden, by_x = rows * t[0]->dim[2], by_h = rows * hidden;
  const float *bias = t[2] ? t[2]->reals + direction * 2 * rows : NULL;
  enum sl_status status;
  SL__TRY(sl__onnx_set(r, node, name[0], t[0]->reals + direction * by_x, by_x, &how));
  SL__TRY(sl__onnx_set(r, node, name[1], t[1]->reals + direction * by_h, by_h, &how));
  SL__TRY(sl__onnx_set(r, node, name[2], bias, rows, &how));
  status = sl__onnx_set(r, node, name[3], bias ? bias + rows : NULL, rows, &how);
out:
  return status;
}

/* The last layer as the next nodes see it. */
static value_of last_layer(const reader *r) {
  return (value_of){
      .is = SL__ONNX_OUTPUT, .layer = r->model->count - 1, .factor = 1, .has_x = true};
}

/* Y [T, D, N, H] */
static enum sl_status give_steps(reader *r, const node_of *node, struct way way, int64_t steps,
                                 int64_t hidden) {
  value_of y = last_layer(r);
  y.order = way.both ? SL__ONNX_TIME_DIRECTIONS : SL__ONNX_TIME_DIRECTION;
  y.view = way.both ? SL_SHAPE(steps, 2, hidden) : SL_SHAPE(steps, hidden);
  if (!node->outputs) return sl__onnx_refuse(r, node, SL_BAD_FILE, "has no output");
  return sl__onnx_define(r, node, node->output[0], &y);
}

/* Y_h [D, N, H] */
static enum sl_status give_state(reader *r, const node_of *node, struct way way, int64_t hidden) {
  value_of y = last_layer(r);
  y.order = SL__ONNX_TIME_FIRST;
  y.view = SL_SHAPE(way.both ? 2 : 1, hidden);
  return sl__onnx_define(r, node, node->output[1], &y);
}

/* A direction's last state: its part of a row of the steps. */
static enum sl_status cut_state(reader *r, const node_of *node, const value_of *steps, int64_t step,
                                int64_t row, int64_t first, int64_t hidden, value_of *state) {
  struct sl_slice_options of_steps = {.first = step, .count = 1, .shape = SL_SHAPE(row)};
  struct sl_slice_options of_row = {.first = first, .count = hidden};
  enum sl_status status = sl__onnx_append(r, node, NULL, &sl__slice_kind, &of_steps, steps, 1);
  *state = last_layer(r);
  if (status != SL_OK || row == hidden) return status;
  status = sl__onnx_append(r, node, NULL, &sl__slice_kind, &of_row, state, 1);
  *state = last_layer(r);
  return status;
}

/* Y_h beside Y: forward it is the last step, backward the first one. The last layer has the
 * steps. */
static enum sl_status append_state(reader *r, const node_of *node, struct way way, int64_t steps,
                                   int64_t hidden) {
  const value_of all = last_layer(r);
  value_of state[2];
  struct sl_concatenate_options join = {0};
  int64_t row = way.both ? 2 * hidden : hidden;
  enum sl_status status;
  SL__TRY(cut_state(r, node, &all, way.reverse ? 0 : steps - 1, row, 0, hidden, &state[0]));
  if (!way.both) return SL_OK;
  SL__TRY(cut_state(r, node, &all, 0, row, hidden, hidden, &state[1]));
  status = sl__onnx_append(r, node, NULL, &sl__concatenate_kind, &join, state, 2);
out:
  return status;
}

/* The layer is the model's last one. */
static enum sl_status give_outputs(reader *r, const node_of *node, struct way way, int64_t steps,
                                   int64_t hidden) {
  enum sl_status status;
  if (way.all) SL__TRY(give_steps(r, node, way, steps, hidden));
  if (!way.last) return SL_OK;
  if (way.all) SL__TRY(append_state(r, node, way, steps, hidden));
  status = give_state(r, node, way, hidden);
out:
  return status;
}

enum sl_status sl__onnx_read_cell(reader *r, const node_of *node) {
  bool is_lstm = !strcmp(node->op, "LSTM");
  int64_t gates = is_lstm ? 4 : 3, hidden;
  struct way way = {0};
  const struct sl__onnx_tensor *t[3] = {NULL};
  enum sl_status status;
  value_of x;
  SL__TRY(sl__onnx_take_plain(r, node, 0, &x));
  SL__TRY(read_direction(r, node, &way));
  SL__TRY(read_outputs(r, node, &way));
  SL__TRY(check_recurrent(r, node, is_lstm, &way));
  int64_t ways = way.both ? 2 : 1;
  SL__TRY(check_states(r, node, is_lstm ? 6 : 5));
  SL__TRY(sl__onnx_take_weight(r, node, 1, 3, &t[0]));
  SL__TRY(sl__onnx_take_weight(r, node, 2, 3, &t[1]));
  if (sl__onnx_has(node, 3)) SL__TRY(sl__onnx_take_weight(r, node, 3, 2, &t[2]));
  SL__TRY(sl__onnx_get_whole(r, node, "hidden_size", t[1]->dim[2], &hidden));
  if (x.order != SL__ONNX_TIME_FIRST || x.view.ndim != 2)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "takes [T, N, I], made of [N, T, I] by a Transpose; export it with "
                           "batch_first");
  if (hidden < 1 || hidden > SL__ONNX_MOST || t[0]->dim[0] != ways || t[1]->dim[0] != ways ||
      t[0]->dim[1] != gates * hidden || t[0]->dim[2] != x.view.dim[1] ||
      t[1]->dim[1] != gates * hidden || t[1]->dim[2] != hidden ||
      (t[2] && t[2]->count != ways * 2 * gates * hidden))
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "its weights do not fit its input or hidden_size");
  struct sl_lstm_options lstm = {
      .features = hidden, .bidirectional = way.both, .reverse = way.reverse, .last = !way.all};
  struct sl_gru_options gru = {
      .features = hidden, .bidirectional = way.both, .reverse = way.reverse, .last = !way.all};
  SL__TRY(sl__onnx_append(r, node, NULL, is_lstm ? &sl__lstm_kind : &sl__gru_kind,
                          is_lstm ? (void *)&lstm : &gru, &x, 1));
  for (int d = 0; d < ways; d++) SL__TRY(set_gates(r, node, gates, hidden, t, d));
  status = give_outputs(r, node, way, x.view.dim[0], hidden);
out:
  return status;
}

/* ---- the last states of several layers ---- */

static bool is_cell(const node_of *node) {
  return !strcmp(node->op, "LSTM") || !strcmp(node->op, "GRU");
}

/* The node that makes the named value, before node n; NULL: there is none. */
static const node_of *maker_of(const reader *r, const char *name, int n) {
  for (int k = 0; k < n; k++)
    for (int i = 0; i < r->graph.node[k].outputs; i++)
      if (!strcmp(r->graph.node[k].output[i], name)) return &r->graph.node[k];
  return NULL;
}

/* The input of a Concat of states, [D, N, H] each, that has number *at of all; *at becomes the
 * number in it. NULL: there is no such one. */
static const char *find_state(const reader *r, const node_of *joined, int n, int64_t *at) {
  int64_t ways[16], all = 0, axis;
  const int count = joined->inputs;
  if (count < 1 || count > 16 || sl__onnx_get_whole(r, joined, "axis", 1, &axis) != SL_OK || axis)
    return NULL;
  for (int i = 0; i < count; i++) {
    const node_of *cell = maker_of(r, joined->input[i], n);
    struct way way = {0};
    bool is_state =
        cell && is_cell(cell) && cell->outputs > 1 && !strcmp(cell->output[1], joined->input[i]);
    if (!is_state || read_direction(r, cell, &way) != SL_OK) return NULL;
    ways[i] = way.both ? 2 : 1;
    all += ways[i];
  }
  if (*at < 0) *at += all;
  for (int i = 0; *at >= 0 && i < count; *at -= ways[i++])
    if (*at < ways[i]) return joined->input[i];
  return NULL;
}

/* Gather `at` of the joined states becomes Gather of the layer's own: there is no layer for all of
 * them, and the states that no node takes need none. */
static enum sl_status pick_state(reader *r, int n, int64_t at) {
  struct sl__onnx_node *node = &r->graph.node[n];
  const node_of *joined = maker_of(r, node->input[0], n);
  const char *state = joined && !strcmp(joined->op, "Concat") && !r->done[joined - r->graph.node]
                          ? find_state(r, joined, n, &at)
                          : NULL;
  if (!state) return SL_OK;
  struct sl__onnx_tensor *index = sl__onnx_alloc(&r->graph, 1, sizeof *index);
  int64_t *number = sl__onnx_alloc(&r->graph, 1, sizeof *number);
  const char *name = sl__onnx_text(&r->graph, "index of %.100s", node->output[0]);
  if (!index || !number || !name) return sl__onnx_no_memory(&r->graph);
  *number = at;
  *index =
      (struct sl__onnx_tensor){.name = name, .type = SL__ONNX_INT64, .count = 1, .wholes = number};
  node->input[0] = state;
  node->input[1] = name;
  return sl__onnx_define(r, node, name, &(value_of){.is = SL__ONNX_CONSTANT, .constant = index});
}

enum sl_status sl__onnx_pick_states(reader *r) {
  enum sl_status status = SL_OK;
  bool any = false;
  for (int n = 0; n < r->graph.nodes; n++) any |= is_cell(&r->graph.node[n]);
  for (int n = 0; any && status == SL_OK && n < r->graph.nodes; n++) {
    const node_of *node = &r->graph.node[n];
    const struct sl__onnx_tensor *index = sl__onnx_constant(r, node, 1);
    int64_t axis;
    if (r->done[n] || strcmp(node->op, "Gather") != 0 || !sl__onnx_has(node, 0) || !index ||
        !index->wholes || index->count != 1 || index->ndim || node->outputs != 1)
      continue;
    SL__TRY(sl__onnx_get_whole(r, node, "axis", 0, &axis));
    if (!axis) status = pick_state(r, n, index->wholes[0]);
  }
out:
  return status;
}
