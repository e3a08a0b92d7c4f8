/* Activations as layers of their own; dense and convolution layers can fuse theirs. */
#include <string.h>

#include "nn/layer.h"

static const char *const names[] = {[SL_ACTIVATION_NONE] = "none",
                                    [SL_ACTIVATION_RELU] = "relu",
                                    [SL_ACTIVATION_TANH] = "tanh",
                                    [SL_ACTIVATION_SIGMOID] = "sigmoid",
                                    [SL_ACTIVATION_GELU] = "gelu"};

const char *sl__activation_name(enum sl_activation activation) { return names[activation]; }

enum sl_status sl_activation_parse(const char *name, enum sl_activation *activation) {
  for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
    if (!strcmp(name, names[i])) {
      *activation = (enum sl_activation)i;
      return SL_OK;
    }
  return sl_fail(SL_BAD_ARGUMENT,
                 "activation '%s' is unknown; use none, relu, tanh, sigmoid or gelu",
                 name ? name : "");
}

static enum sl_status infer(struct sl__layer *layer) {
  const struct sl_activation_options *o = layer->options;
  if (layer->input_count != 1)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT, "takes one input, not %d", layer->input_count);
  if (o->activation == SL_ACTIVATION_NONE || (unsigned)o->activation > SL_ACTIVATION_GELU)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                          "activation is %d; it must be relu, tanh, sigmoid or gelu",
                          (int)o->activation);
  layer->out = layer->in[0];
  layer->over_time = true;
  layer->flops = (double)sl_shape_count(&layer->out);
  return SL_OK;
}

static enum sl_status forward(const struct sl__layer *layer, struct sl__pass *p) {
  const struct sl_activation_options *o = layer->options;
  return sl__activation_forward(p->context, &p->launch, p->x[0], p->y, o->activation);
}

static enum sl_status backward_data(const struct sl__layer *layer, struct sl__pass *p) {
  const struct sl_activation_options *o = layer->options;
  struct sl_tensor *saved = sl__activation_saves_input(o->activation) ? p->x[0] : p->y;
  p->launch.accumulate = p->add_dx[0];
  return sl__activation_backward(p->context, &p->launch, saved, p->dy, p->dx[0], o->activation);
}

static const struct sl_field fields[] = {SL_FIELD(sl_activation_options, ACTIVATION, activation),
                                         {0}};

const struct sl__layer_kind sl__activation_kind = {
    .name = "activation",
    .options_size = sizeof(struct sl_activation_options),
    .fields = fields,
    .infer = infer,
    .forward = forward,
    .backward_data = backward_data};

enum sl_status sl_activate(struct sl_model *model, const char *name,
                           const struct sl_activation_options *options) {
  return sl__layer_append(model, name, &sl__activation_kind, options);
}
