/* ONNX's LSTM and GRU. */
#include <string.h>

#include "nn/formats/onnx_operators.h"

/* Checks for the usual activations and one direction, without further features. */
static enum sl_status check_recurrent(const reader *r, const node_of *node, bool is_lstm) {
  static const char *const strange[] = {"activations", "activation_alpha", "activation_beta",
                                        "clip"};
  const char *direction;
  enum sl_status status;
  SL__TRY(sl__onnx_get_text(r, node, "direction", &direction));
  if (direction && strcmp(direction, "forward") != 0)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "attribute direction is %.32s; only forward is supported", direction);
  for (int i = 0; i < node->attributes; i++)
    for (int k = 0; k < 4; k++)
      if (!strcmp(node->attribute[i].name, strange[k]))
        return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "attribute %s is not supported",
                               strange[k]);
  SL__TRY(sl__onnx_must_be(r, node, "layout", 0, 0));
  SL__TRY(sl__onnx_must_be(r, node, "input_forget", 0, 0));
  if (!is_lstm) SL__TRY(sl__onnx_must_be(r, node, "linear_before_reset", 0, 1));
  if (sl__onnx_has(node, 4) || (is_lstm && sl__onnx_has(node, 7)))
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "has lengths of sequences, or peepholes");
  for (int i = 1; i < node->outputs; i++) {
    const value_of *state = *node->output[i] ? sl__onnx_find(r, node->output[i]) : NULL;
    if (state && state->uses)
      return sl__onnx_refuse(
          r, node, SL_UNSUPPORTED,
          "a node takes its last state, '%.64s'; a layer gives the outputs of all "
          "time steps",
          state->name);
  }
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

enum sl_status sl__onnx_read_cell(reader *r, const node_of *node) {
  bool is_lstm = !strcmp(node->op, "LSTM");
  int64_t gates = is_lstm ? 4 : 3, hidden;
  const struct sl__onnx_tensor *t[3] = {NULL};
  enum sl_status status;
  value_of x;
  SL__TRY(sl__onnx_take_plain(r, node, 0, &x));
  SL__TRY(check_recurrent(r, node, is_lstm));
  SL__TRY(check_states(r, node, is_lstm ? 6 : 5));
  SL__TRY(sl__onnx_take_weight(r, node, 1, 3, &t[0]));
  SL__TRY(sl__onnx_take_weight(r, node, 2, 3, &t[1]));
  if (sl__onnx_has(node, 3)) SL__TRY(sl__onnx_take_weight(r, node, 3, 2, &t[2]));
  SL__TRY(sl__onnx_get_whole(r, node, "hidden_size", t[1]->dim[2], &hidden));
  if (x.order != SL__ONNX_TIME_FIRST || x.view.ndim != 2)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "takes [T, N, I], made of [N, T, I] by a Transpose; export it with "
                           "batch_first");
  if (hidden < 1 || hidden > SL__ONNX_MOST || t[0]->dim[0] != 1 || t[1]->dim[0] != 1 ||
      t[0]->dim[1] != gates * hidden || t[0]->dim[2] != x.view.dim[1] ||
      t[1]->dim[1] != gates * hidden || t[1]->dim[2] != hidden ||
      (t[2] && t[2]->count != 2 * gates * hidden))
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "its weights do not fit its input or hidden_size");
  struct sl_lstm_options lstm = {.features = hidden};
  struct sl_gru_options gru = {.features = hidden};
  SL__TRY(sl__onnx_append(r, node, NULL, is_lstm ? &sl__lstm_kind : &sl__gru_kind,
                          is_lstm ? (void *)&lstm : &gru, &x, 1));
  SL__TRY(set_gates(r, node, gates, hidden, t));
  value_of seen = {.view = SL_SHAPE(x.view.dim[0], hidden), .order = SL__ONNX_TIME_DIRECTION};
  status = sl__onnx_give_first(r, node, &seen);
out:
  return status;
}
