/* LSTM and GRU over a sample's time steps, as torch.nn's with one layer, batch first, in one
 * direction or in both (Schuster, Paliwal 1997). */
#include <stdio.h>
#include <string.h>

#include "codelets/kernels/recurrent.h"
#include "nn/onnx_graph.h"

/* The differences between LSTM and GRU; sizes are in units of H. */
struct cell {
  int64_t gates, saved, state;
  const char *op;      /* ONNX's operator */
  const char *to_onnx; /* for each of ONNX's gates the number of ours: i, o, f, c are 0, 3, 1, 2 of
                          i, f, g, o */
  enum sl_status (*forward)(struct sl_context *, const struct sl__launch *, struct sl__tensor *x,
                            struct sl__tensor *param, struct sl__tensor *state,
                            struct sl__tensor *y, struct sl__tensor *saved, int time);
  enum sl_status (*backward_gates)(struct sl_context *, const struct sl__launch *,
                                   struct sl__tensor *param, struct sl__tensor *saved,
                                   struct sl__tensor *dy, struct sl__tensor *dstate,
                                   int64_t features, int time);
  enum sl_status (*backward_data)(struct sl_context *, const struct sl__launch *,
                                  struct sl__tensor *dgates, struct sl__tensor *param,
                                  struct sl__tensor *dx, int time);
  enum sl_status (*backward_weight)(struct sl_context *, const struct sl__launch *,
                                    struct sl__tensor *x, struct sl__tensor *dgates,
                                    struct sl__tensor *grad, int time);
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

/* The options of both kinds. */
struct way {
  int64_t hidden;
  int time; /* set of enum sl__time */
  bool is_contradiction;
};

static int time_of(bool bidirectional, bool reverse, bool last) {
  return (bidirectional ? SL__TIME_BOTH : 0) | (reverse ? SL__TIME_REVERSE : 0) |
         (last ? SL__TIME_LAST : 0);
}

static struct way way_of(const struct sl__layer *layer) {
  if (layer->kind == &sl__lstm_kind) {
    const struct sl_lstm_options *o = layer->options;
    return (struct way){o->features, time_of(o->bidirectional, o->reverse, o->last),
                        o->bidirectional && o->reverse};
  }
  const struct sl_gru_options *o = layer->options;
  return (struct way){o->features, time_of(o->bidirectional, o->reverse, o->last),
                      o->bidirectional && o->reverse};
}

static int directions_of(const struct way *way) { return way->time & SL__TIME_BOTH ? 2 : 1; }

/* PyTorch's names: the second direction's end in "_reverse". */
static void add_part(struct sl__layer *layer, const char *name, int direction,
                     const struct sl_shape *shape, int64_t fan_in, int64_t hidden) {
  char suffix[32];
  snprintf(suffix, sizeof suffix, "%s%s", name, direction ? "_reverse" : "");
  struct sl__param *part = sl__block_add(&layer->params, suffix, shape);
  part->fan_in = fan_in;
  part->fan_out = hidden; /* fans of each gate's matrix */
  part->is_bias = shape->ndim == 1;
}

static enum sl_status infer(struct sl__layer *layer) {
  const struct cell *cell = cell_of(layer);
  const struct way way = way_of(layer);
  int64_t hidden = way.hidden, steps = layer->in[0].dim[0], in = layer->in[0].dim[1],
          gates = cell->gates * hidden, ways = directions_of(&way);
  char text[96];
  enum sl_status status = sl__input_alone(layer);
  if (status != SL_OK) return status;
  if (layer->in[0].ndim != 2)
    return sl__layer_fail(layer, SL_BAD_SHAPE, "takes time steps [T, I], not %s",
                          sl_shape_text(&layer->in[0], text, sizeof text));
  if (hidden < 1 || hidden > 1 << 20)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT, "features is %lld; it must be from 1 to %d",
                          (long long)hidden, 1 << 20);
  if (way.is_contradiction)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                          "bidirectional and reverse: the second direction goes backward already; "
                          "leave reverse out");
  /* PyTorch draws all four from U(-1/sqrt(H), 1/sqrt(H)); for other initial values the fans are
   * those of each gate's matrix */
  int64_t fan_in = layer->init == SL_INIT_DEFAULT ? hidden : in;
  for (int d = 0; d < ways; d++) {
    add_part(layer, "weight_ih_l0", d, &SL_SHAPE(gates, in), fan_in, hidden);
    add_part(layer, "weight_hh_l0", d, &SL_SHAPE(gates, hidden), hidden, hidden);
    add_part(layer, "bias_ih_l0", d, &SL_SHAPE(gates), hidden, hidden);
    add_part(layer, "bias_hh_l0", d, &SL_SHAPE(gates), hidden, hidden);
  }
  /* what goes backward, or has an output at the end only, needs the whole sample */
  layer->over_time = way.time == SL__TIME_FORWARD;
  layer->out = way.time & SL__TIME_LAST ? SL_SHAPE(ways * hidden) : SL_SHAPE(steps, ways * hidden);
  layer->saved = SL_SHAPE(steps, ways * cell->saved * hidden);
  layer->saved_per_row = true;
  layer->state = SL_SHAPE(ways * cell->state * hidden);
  layer->flops = 2.0 * (double)ways * (double)steps * (double)gates * (double)(in + hidden);
  return SL_OK;
}

static enum sl_status forward(const struct sl__layer *layer, struct sl__pass *p) {
  return cell_of(layer)->forward(p->context, &p->launch, p->x[0], p->param, p->state, p->y,
                                 p->saved, way_of(layer).time);
}

static enum sl_status backward_begin(const struct sl__layer *layer, struct sl__pass *p) {
  return cell_of(layer)->backward_gates(p->context, &p->launch, p->param, p->saved, p->dy,
                                        p->dstate, layer->in[0].dim[1], way_of(layer).time);
}

static enum sl_status backward_data(const struct sl__layer *layer, struct sl__pass *p) {
  p->launch.accumulate = p->add_dx[0];
  return cell_of(layer)->backward_data(p->context, &p->launch, p->saved, p->param, p->dx[0],
                                       way_of(layer).time);
}

static enum sl_status backward_weight(const struct sl__layer *layer, struct sl__pass *p) {
  p->launch.accumulate = p->add_grad;
  return cell_of(layer)->backward_weight(p->context, &p->launch, p->x[0], p->saved, p->grad,
                                         way_of(layer).time);
}

/* One of our matrices or biases with its gates in ONNX's order. */
static void turn_gates(const struct sl__layer *layer, struct sl__onnx_writer *w, const char *name,
                       int direction, float *to) {
  const struct cell *cell = cell_of(layer);
  char suffix[32];
  snprintf(suffix, sizeof suffix, "%s%s", name, direction ? "_reverse" : "");
  const float *from = sl__onnx_values(w, suffix);
  int64_t hidden = way_of(layer).hidden, width = !strcmp(name, "weight_ih_l0") ? layer->in[0].dim[1]
                                                 : !strcmp(name, "weight_hh_l0") ? hidden
                                                                                 : 1;
  size_t gate = (size_t)(hidden * width);
  for (int64_t g = 0; to && g < cell->gates; g++)
    memcpy(to + (size_t)g * gate, from + (size_t)(cell->to_onnx[g] - '0') * gate,
           gate * sizeof *to);
}

/* ONNX's W, R and B, each [directions, ...]. */
static void write_weights(const struct sl__layer *layer, struct sl__onnx_writer *w,
                          const char *names[3]) {
  const struct way way = way_of(layer);
  int64_t ways = directions_of(&way), rows = cell_of(layer)->gates * way.hidden,
          in = layer->in[0].dim[1];
  float *x_values, *h_values, *biases;
  names[0] = sl__onnx_reals(w, "W", &SL_SHAPE(ways, rows, in), &x_values);
  names[1] = sl__onnx_reals(w, "R", &SL_SHAPE(ways, rows, way.hidden), &h_values);
  names[2] = sl__onnx_reals(w, "B", &SL_SHAPE(ways, 2 * rows), &biases);
  for (int d = 0; x_values && h_values && biases && d < ways; d++) {
    turn_gates(layer, w, "weight_ih_l0", d, x_values + d * rows * in);
    turn_gates(layer, w, "weight_hh_l0", d, h_values + d * rows * way.hidden);
    turn_gates(layer, w, "bias_ih_l0", d, biases + d * 2 * rows);
    turn_gates(layer, w, "bias_hh_l0", d, biases + (d * 2 + 1) * rows);
  }
}

/* Y [T, D, N, H] as [N, T, D H], or Y_h [D, N, H] as [N, D H]. */
static const char *write_batch_first(const struct sl__layer *layer, struct sl__onnx_writer *w,
                                     const char *y) {
  const struct way way = way_of(layer);
  const bool last = way.time & SL__TIME_LAST;
  const struct sl__onnx_attribute turn[] = {SL__ONNX_LIST("perm", 1, 0, 2), {0}};
  const struct sl__onnx_attribute turn_both[] = {SL__ONNX_LIST("perm", 2, 0, 1, 3), {0}};
  if (way.time & SL__TIME_BOTH) {
    const int64_t to_steps[] = {0, 0, 2 * way.hidden}, to_last[] = {0, 2 * way.hidden};
    const char *shape = sl__onnx_wholes(w, "shape", last ? to_last : to_steps, last ? 2 : 3);
    y = sl__onnx_node(w, "batch_first", "Transpose", SL__ONNX_NAMES(y), last ? turn : turn_both);
    return sl__onnx_node(w, "join", "Reshape", SL__ONNX_NAMES(y, shape), NULL);
  }
  const char *axis = sl__onnx_wholes(w, "axis", (const int64_t[]){last ? 0 : 1}, 1);
  y = sl__onnx_node(w, "squeeze", "Squeeze", SL__ONNX_NAMES(y, axis), NULL);
  return last ? y : sl__onnx_node(w, "batch_first", "Transpose", SL__ONNX_NAMES(y), turn);
}

/* ONNX wants time as the first axis, and has an axis of directions before the batch's. */
static const char *onnx_write(const struct sl__layer *layer, struct sl__onnx_writer *w) {
  const struct cell *cell = cell_of(layer);
  const struct way way = way_of(layer);
  const struct sl__onnx_attribute turn[] = {SL__ONNX_LIST("perm", 1, 0, 2), {0}};
  const char *direction = way.time & SL__TIME_BOTH ? "bidirectional" : "reverse";
  struct sl__onnx_attribute attributes[4] = {SL__ONNX_WHOLE("hidden_size", way.hidden)};
  int count = 1;
  if (cell->gates == 3)
    attributes[count++] = (struct sl__onnx_attribute)SL__ONNX_WHOLE("linear_before_reset", 1);
  if (way.time & (SL__TIME_BOTH | SL__TIME_REVERSE))
    attributes[count++] =
        (struct sl__onnx_attribute){.name = "direction", .type = SL__ONNX_S, .s = direction};
  const char *weights[3];
  write_weights(layer, w, weights);
  const char *x =
      sl__onnx_node(w, "time_first", "Transpose", SL__ONNX_NAMES(sl__onnx_input(w, 0)), turn);
  int output = way.time & SL__TIME_LAST ? 1 : 0;
  const char *y = sl__onnx_node_output(
      w, NULL, cell->op, SL__ONNX_NAMES(x, weights[0], weights[1], weights[2]), attributes, output);
  return write_batch_first(layer, w, y);
}

static const struct sl_field lstm_fields[] = {SL_FIELD(sl_lstm_options, INT64, features),
                                              SL_FIELD(sl_lstm_options, BOOL, bidirectional),
                                              SL_FIELD(sl_lstm_options, BOOL, reverse),
                                              SL_FIELD(sl_lstm_options, BOOL, last),
                                              {0}};

static const char keys[] =
    "features: H; required\n"
    "bidirectional: a second direction, from the last step; the output is [T, 2H]; false\n"
    "reverse: the one direction goes from the last step to the first; false\n"
    "last: the output is the last state alone, [H] or [2H]; false\n";

const struct sl__layer_kind sl__lstm_kind = {.name = "lstm",
                                             .about = "LSTM over time: [T, I] -> [T, H]",
                                             .keys = keys,
                                             .options_size = sizeof(struct sl_lstm_options),
                                             .fields = lstm_fields,
                                             .infer = infer,
                                             .forward = forward,
                                             .backward_begin = backward_begin,
                                             .backward_data = backward_data,
                                             .backward_weight = backward_weight,
                                             .onnx_write = onnx_write};

static const struct sl_field gru_fields[] = {SL_FIELD(sl_gru_options, INT64, features),
                                             SL_FIELD(sl_gru_options, BOOL, bidirectional),
                                             SL_FIELD(sl_gru_options, BOOL, reverse),
                                             SL_FIELD(sl_gru_options, BOOL, last),
                                             {0}};

const struct sl__layer_kind sl__gru_kind = {.name = "gru",
                                            .about = "GRU over time: [T, I] -> [T, H]",
                                            .keys = keys,
                                            .options_size = sizeof(struct sl_gru_options),
                                            .fields = gru_fields,
                                            .infer = infer,
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
