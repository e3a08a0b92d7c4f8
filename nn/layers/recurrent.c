/* LSTM and GRU over a sample's time steps, as torch.nn's with one layer, batch first. */
#include <string.h>

#include "nn/onnx_graph.h"

/* The differences between LSTM and GRU; sizes are in units of H. */
struct cell {
  int64_t gates, saved, state;
  const char *op;      /* ONNX's operator */
  const char *to_onnx; /* for each of ONNX's gates the number of ours: i, o, f, c are 0, 3, 1, 2 of
                          i, f, g, o */
  enum sl_status (*forward)(struct sl_context *, const struct sl__launch *, struct sl__tensor *x,
                            struct sl__tensor *param, struct sl__tensor *state,
                            struct sl__tensor *y, struct sl__tensor *saved);
  enum sl_status (*backward_gates)(struct sl_context *, const struct sl__launch *,
                                   struct sl__tensor *param, struct sl__tensor *saved,
                                   struct sl__tensor *dy, struct sl__tensor *dstate,
                                   int64_t features);
  enum sl_status (*backward_data)(struct sl_context *, const struct sl__launch *,
                                  struct sl__tensor *dgates, struct sl__tensor *param,
                                  struct sl__tensor *dx);
  enum sl_status (*backward_weight)(struct sl_context *, const struct sl__launch *,
                                    struct sl__tensor *x, struct sl__tensor *dgates,
                                    struct sl__tensor *grad);
};

static const struct cell *cell_of(const struct sl__layer *layer) {
  static const struct cell lstm_cell = {.gates = 4,
                                        .op = "LSTM",
                                        .to_onnx = "0312",
                                        .saved = 6,
                                        .state = 2,
                                        .forward = sl__lstm_forward,
                                        .backward_gates = sl__lstm_backward_gates,
                                        .backward_data = sl__lstm_backward_data,
                                        .backward_weight = sl__lstm_backward_weight};
  static const struct cell gru_cell = {.gates = 3,
                                       .op = "GRU",
                                       .to_onnx = "102",
                                       .saved = 5,
                                       .state = 1,
                                       .forward = sl__gru_forward,
                                       .backward_gates = sl__gru_backward_gates,
                                       .backward_data = sl__gru_backward_data,
                                       .backward_weight = sl__gru_backward_weight};
  return layer->kind == &sl__lstm_kind ? &lstm_cell : &gru_cell;
}

static void add_part(struct sl__layer *layer, const char *suffix, const struct sl_shape *shape,
                     int64_t fan_in, int64_t hidden) {
  struct sl__param *part = sl__block_add(&layer->params, suffix, shape);
  part->fan_in = fan_in;
  part->fan_out = hidden; /* fans of each gate's matrix */
  part->is_bias = shape->ndim == 1;
}

static enum sl_status infer_cell(struct sl__layer *layer, int64_t hidden) {
  const struct cell *cell = cell_of(layer);
  int64_t steps = layer->in[0].dim[0], in = layer->in[0].dim[1], gates = cell->gates * hidden;
  char text[96];
  if (layer->input_count != 1)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT, "takes one input, not %d", layer->input_count);
  if (layer->in[0].ndim != 2)
    return sl__layer_fail(layer, SL_BAD_SHAPE, "takes time steps [T, I], not %s",
                          sl_shape_text(&layer->in[0], text, sizeof text));
  if (hidden < 1 || hidden > 1 << 20)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT, "features is %lld; it must be from 1 to %d",
                          (long long)hidden, 1 << 20);
  /* PyTorch draws all four from U(-1/sqrt(H), 1/sqrt(H)); for other initial values the fans are
   * those of each gate's matrix */
  int64_t fan_in = layer->init == SL_INIT_DEFAULT ? hidden : in;
  add_part(layer, "weight_ih_l0", &SL_SHAPE(gates, in), fan_in, hidden);
  add_part(layer, "weight_hh_l0", &SL_SHAPE(gates, hidden), hidden, hidden);
  add_part(layer, "bias_ih_l0", &SL_SHAPE(gates), hidden, hidden);
  add_part(layer, "bias_hh_l0", &SL_SHAPE(gates), hidden, hidden);
  layer->over_time = true;
  layer->out = SL_SHAPE(steps, hidden);
  layer->saved = SL_SHAPE(steps, cell->saved * hidden);
  layer->saved_per_row = true;
  layer->state = SL_SHAPE(cell->state * hidden);
  layer->flops = 2.0 * (double)steps * (double)gates * (double)(in + hidden);
  return SL_OK;
}

static enum sl_status infer_lstm(struct sl__layer *layer) {
  return infer_cell(layer, ((const struct sl_lstm_options *)layer->options)->features);
}

static enum sl_status infer_gru(struct sl__layer *layer) {
  return infer_cell(layer, ((const struct sl_gru_options *)layer->options)->features);
}

static enum sl_status forward(const struct sl__layer *layer, struct sl__pass *p) {
  return cell_of(layer)->forward(p->context, &p->launch, p->x[0], p->param, p->state, p->y,
                                 p->saved);
}

static enum sl_status backward_begin(const struct sl__layer *layer, struct sl__pass *p) {
  return cell_of(layer)->backward_gates(p->context, &p->launch, p->param, p->saved, p->dy,
                                        p->dstate, layer->in[0].dim[1]);
}

static enum sl_status backward_data(const struct sl__layer *layer, struct sl__pass *p) {
  p->launch.accumulate = p->add_dx[0];
  return cell_of(layer)->backward_data(p->context, &p->launch, p->saved, p->param, p->dx[0]);
}

static enum sl_status backward_weight(const struct sl__layer *layer, struct sl__pass *p) {
  p->launch.accumulate = p->add_grad;
  return cell_of(layer)->backward_weight(p->context, &p->launch, p->x[0], p->saved, p->grad);
}

/* One of our matrices or biases with its gates in ONNX's order. */
static void turn_gates(const struct sl__layer *layer, struct sl__onnx_writer *w, const char *suffix,
                       float *to) {
  const struct cell *cell = cell_of(layer);
  const float *from = sl__onnx_values(w, suffix);
  int64_t width = !strcmp(suffix, "weight_ih_l0")   ? layer->in[0].dim[1]
                  : !strcmp(suffix, "weight_hh_l0") ? layer->out.dim[1]
                                                    : 1;
  size_t gate = (size_t)(layer->out.dim[1] * width);
  for (int64_t g = 0; to && g < cell->gates; g++)
    memcpy(to + (size_t)g * gate, from + (size_t)(cell->to_onnx[g] - '0') * gate,
           gate * sizeof *to);
}

/* ONNX wants time as the first axis, and an axis of directions (here one) before the batch's. */
static const char *onnx_write(const struct sl__layer *layer, struct sl__onnx_writer *w) {
  const struct cell *cell = cell_of(layer);
  int64_t hidden = layer->out.dim[1], rows = cell->gates * hidden;
  const struct sl__onnx_attribute turn[] = {SL__ONNX_LIST("perm", 1, 0, 2), {0}};
  float *x_values, *h_values, *biases;
  const char *weight = sl__onnx_reals(w, "W", &SL_SHAPE(1, rows, layer->in[0].dim[1]), &x_values),
             *recurrence = sl__onnx_reals(w, "R", &SL_SHAPE(1, rows, hidden), &h_values),
             *bias = sl__onnx_reals(w, "B", &SL_SHAPE(1, 2 * rows), &biases),
             *axis = sl__onnx_wholes(w, "axis", (const int64_t[]){1}, 1);
  turn_gates(layer, w, "weight_ih_l0", x_values);
  turn_gates(layer, w, "weight_hh_l0", h_values);
  turn_gates(layer, w, "bias_ih_l0", biases);
  turn_gates(layer, w, "bias_hh_l0", biases ? biases + rows : NULL);
  const char *x =
      sl__onnx_node(w, "time_first", "Transpose", SL__ONNX_NAMES(sl__onnx_input(w, 0)), turn);
  const char *y = sl__onnx_node(
      w, NULL, cell->op, SL__ONNX_NAMES(x, weight, recurrence, bias),
      SL__ONNX_ATTRIBUTES(
          SL__ONNX_WHOLE("hidden_size", hidden),
          {.name = cell->gates == 3 ? "linear_before_reset" : NULL, .type = SL__ONNX_I, .i = 1}));
  const char *states = sl__onnx_node(w, "squeeze", "Squeeze", SL__ONNX_NAMES(y, axis), NULL);
  return sl__onnx_node(w, "batch_first", "Transpose", SL__ONNX_NAMES(states), turn);
}

static const struct sl_field lstm_fields[] = {SL_FIELD(sl_lstm_options, INT64, features), {0}};

const struct sl__layer_kind sl__lstm_kind = {.name = "lstm",
                                             .options_size = sizeof(struct sl_lstm_options),
                                             .fields = lstm_fields,
                                             .infer = infer_lstm,
                                             .forward = forward,
                                             .backward_begin = backward_begin,
                                             .backward_data = backward_data,
                                             .backward_weight = backward_weight,
                                             .onnx_write = onnx_write};

static const struct sl_field gru_fields[] = {SL_FIELD(sl_gru_options, INT64, features), {0}};

const struct sl__layer_kind sl__gru_kind = {.name = "gru",
                                            .options_size = sizeof(struct sl_gru_options),
                                            .fields = gru_fields,
                                            .infer = infer_gru,
                                            .forward = forward,
                                            .backward_begin = backward_begin,
                                            .backward_data = backward_data,
                                            .backward_weight = backward_weight,
                                            .onnx_write = onnx_write};

enum sl_status sl_lstm(struct sl_model *model, const char *name,
                       const struct sl_lstm_options *options) {
  return sl__layer_append(model, name, &sl__lstm_kind, options);
}

enum sl_status sl_gru(struct sl_model *model, const char *name,
                      const struct sl_gru_options *options) {
  return sl__layer_append(model, name, &sl__gru_kind, options);
}
