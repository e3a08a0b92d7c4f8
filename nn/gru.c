/* GRU over a sample's time steps, as torch.nn.GRU with one layer, batch first. */
#include "nn/layer.h"

static struct sl__param *add_part(struct sl__layer *layer, const char *suffix,
                                  const struct sl_shape *shape, int64_t fan_in) {
  struct sl__param *part = sl__block_add(&layer->params, suffix, shape);
  part->fan_in = fan_in;
  part->fan_out = shape->dim[0] / 3; /* of each gate's own matrix */
  part->is_bias = shape->ndim == 1;
  return part;
}

static enum sl_status infer(struct sl__layer *layer) {
  const struct sl_gru_options *o = layer->options;
  int64_t hidden = o->features, in = layer->in[0].dim[1];
  char text[96];
  if (layer->input_count != 1)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT, "takes one input, not %d", layer->input_count);
  if (layer->in[0].ndim != 2)
    return sl__layer_fail(layer, SL_BAD_SHAPE, "takes time steps [T, I], not %s",
                          sl_shape_text(&layer->in[0], text, sizeof text));
  if (hidden < 1 || hidden > 1 << 20)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT, "features is %lld; it must be from 1 to %d",
                          (long long)hidden, 1 << 20);
  /* PyTorch draws all four from U(-1/sqrt(H), 1/sqrt(H)); the named ones mean each gate's matrix */
  int64_t fan_in = layer->init == SL_INIT_DEFAULT ? hidden : in;
  add_part(layer, "weight_ih_l0", &SL_SHAPE(3 * hidden, in), fan_in);
  add_part(layer, "weight_hh_l0", &SL_SHAPE(3 * hidden, hidden), hidden);
  add_part(layer, "bias_ih_l0", &SL_SHAPE(3 * hidden), hidden);
  add_part(layer, "bias_hh_l0", &SL_SHAPE(3 * hidden), hidden);
  layer->over_time = true;
  layer->out = SL_SHAPE(layer->in[0].dim[0], hidden);
  layer->saved = SL_SHAPE(layer->in[0].dim[0], 5 * hidden);
  layer->saved_per_row = true;
  layer->state = SL_SHAPE(hidden);
  layer->flops = 6.0 * (double)layer->in[0].dim[0] * (double)hidden * (double)(in + hidden);
  return SL_OK;
}

static enum sl_status forward(const struct sl__layer *layer, struct sl__pass *p) {
  return sl__gru_forward(p->context, &p->launch, p->x[0], layer->params.tensor, p->state, p->y,
                         p->saved);
}

static enum sl_status backward_begin(const struct sl__layer *layer, struct sl__pass *p) {
  return sl__gru_backward_gates(p->context, &p->launch, layer->params.tensor, p->saved, p->dy,
                                p->dstate, layer->in[0].dim[1]);
}

static enum sl_status backward_data(const struct sl__layer *layer, struct sl__pass *p) {
  p->launch.accumulate = p->add_dx[0];
  return sl__gru_backward_data(p->context, &p->launch, p->saved, layer->params.tensor, p->dx[0]);
}

static enum sl_status backward_weight(const struct sl__layer *layer, struct sl__pass *p) {
  (void)layer;
  p->launch.accumulate = p->add_grad;
  return sl__gru_backward_weight(p->context, &p->launch, p->x[0], p->saved, p->grad);
}

static const struct sl__layer_kind gru = {.name = "gru",
                                          .options_size = sizeof(struct sl_gru_options),
                                          .infer = infer,
                                          .forward = forward,
                                          .backward_begin = backward_begin,
                                          .backward_data = backward_data,
                                          .backward_weight = backward_weight};

enum sl_status sl_gru(struct sl_model *model, const char *name,
                      const struct sl_gru_options *options) {
  return sl__layer_append(model, name, &gru, options);
}
