/* Activations as separate layers; dense and convolution layers can fuse theirs. */
#include <string.h>

#include "nn/layers/activation.h"

static const char *const names[] = {
    [SL_ACTIVATION_NONE] = "none", [SL_ACTIVATION_RELU] = "relu",
    [SL_ACTIVATION_TANH] = "tanh", [SL_ACTIVATION_SIGMOID] = "sigmoid",
    [SL_ACTIVATION_GELU] = "gelu", [SL_ACTIVATION_GELU_TANH] = "gelu_tanh",
    [SL_ACTIVATION_SILU] = "silu"};

const char *sl_activation_name(enum sl_activation activation) {
  return (size_t)activation < sizeof names / sizeof *names ? names[activation] : "?";
}

enum sl_status sl_activation_parse(const char *name, enum sl_activation *activation) {
  SL__NEEDS(name, activation);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(name, names[i])) {
      *activation = (enum sl_activation)i;
      return SL_OK;
    }
  return sl__fail(SL_BAD_ARGUMENT,
                  "activation '%s' is unknown; use none, relu, tanh, sigmoid, gelu, gelu_tanh or "
                  "silu",
                  name);
}

static enum sl_status infer(struct sl__layer *layer) {
  const struct sl_activation_options *o = layer->options;
  enum sl_status status = sl__input_alone(layer);
  if (status != SL_OK) return status;
  if (o->activation == SL_ACTIVATION_NONE || (unsigned)o->activation > SL_ACTIVATION_SILU)
    return sl__layer_fail(
        layer, SL_BAD_ARGUMENT,
        "activation is %d; it must be relu, tanh, sigmoid, gelu, gelu_tanh or silu",
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
  struct sl__tensor *saved = sl__activation_saves_input(o->activation) ? p->x[0] : p->y;
  p->launch.accumulate = p->add_dx[0];
  return sl__activation_backward(p->context, &p->launch, saved, p->dy, p->dx[0], o->activation);
}

/* The operator set that Starling writes has no Gelu and no Swish yet: parts whose last node has the
 * name `last`, or the layer's (NULL). Here x Phi(x) as x (1 + erf(x / sqrt 2)) / 2. */
static const char *write_gelu(struct sl__onnx_writer *w, const char *last, const char *x) {
  const char *root = sl__onnx_scalar(w, "sqrt2", 1.41421356f);
  const char *scaled = sl__onnx_node(w, "div", "Div", SL__ONNX_NAMES(x, root), NULL);
  const char *erf = sl__onnx_node(w, "erf", "Erf", SL__ONNX_NAMES(scaled), NULL);
  const char *one = sl__onnx_scalar(w, "one", 1.0f);
  const char *sum = sl__onnx_node(w, "add", "Add", SL__ONNX_NAMES(erf, one), NULL);
  const char *product = sl__onnx_node(w, "mul", "Mul", SL__ONNX_NAMES(x, sum), NULL);
  const char *half = sl__onnx_scalar(w, "half", 0.5f);
  return sl__onnx_node(w, last, "Mul", SL__ONNX_NAMES(product, half), NULL);
}

/* x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 */
static const char *write_gelu_tanh(struct sl__onnx_writer *w, const char *last, const char *x) {
  const char *square = sl__onnx_node(w, "square", "Mul", SL__ONNX_NAMES(x, x), NULL);
  const char *cube = sl__onnx_node(w, "cube", "Mul", SL__ONNX_NAMES(square, x), NULL);
  const char *factor = sl__onnx_scalar(w, "factor", 0.044715f);
  const char *term = sl__onnx_node(w, "term", "Mul", SL__ONNX_NAMES(cube, factor), NULL);
  const char *sum = sl__onnx_node(w, "sum", "Add", SL__ONNX_NAMES(x, term), NULL);
  const char *root = sl__onnx_scalar(w, "root", 0.79788456f);
  const char *inner = sl__onnx_node(w, "inner", "Mul", SL__ONNX_NAMES(sum, root), NULL);
  const char *bend = sl__onnx_node(w, "tanh", "Tanh", SL__ONNX_NAMES(inner), NULL);
  const char *one = sl__onnx_scalar(w, "one", 1.0f);
  const char *add = sl__onnx_node(w, "add", "Add", SL__ONNX_NAMES(bend, one), NULL);
  const char *product = sl__onnx_node(w, "mul", "Mul", SL__ONNX_NAMES(x, add), NULL);
  const char *half = sl__onnx_scalar(w, "half", 0.5f);
  return sl__onnx_node(w, last, "Mul", SL__ONNX_NAMES(product, half), NULL);
}

static const char *write_silu(struct sl__onnx_writer *w, const char *last, const char *x) {
  const char *sigmoid = sl__onnx_node(w, "sigmoid", "Sigmoid", SL__ONNX_NAMES(x), NULL);
  return sl__onnx_node(w, last, "Mul", SL__ONNX_NAMES(x, sigmoid), NULL);
}

static const char *const operators[] = {[SL_ACTIVATION_RELU] = "Relu",
                                        [SL_ACTIVATION_TANH] = "Tanh",
                                        [SL_ACTIVATION_SIGMOID] = "Sigmoid"};

static const char *write_nodes(struct sl__onnx_writer *w, enum sl_activation activation,
                               const char *last, const char *x) {
  switch (activation) {
    case SL_ACTIVATION_GELU: return write_gelu(w, last, x);
    case SL_ACTIVATION_GELU_TANH: return write_gelu_tanh(w, last, x);
    case SL_ACTIVATION_SILU: return write_silu(w, last, x);
    default: return sl__onnx_node(w, last, operators[activation], SL__ONNX_NAMES(x), NULL);
  }
}

const char *sl__onnx_activated(struct sl__onnx_writer *w, enum sl_activation activation,
                               const char *x) {
  if (activation == SL_ACTIVATION_NONE) return x;
  return write_nodes(w, activation, names[activation], x);
}

static const char *onnx_write(const struct sl__layer *layer, struct sl__onnx_writer *w) {
  const struct sl_activation_options *o = layer->options;
  return write_nodes(w, o->activation, NULL, sl__onnx_input(w, 0));
}

static const struct sl_field fields[] = {SL_FIELD(sl_activation_options, ACTIVATION, activation),
                                         {0}};

const struct sl__layer_kind sl__activation_kind = {
    .name = "activation",
    .about = "A function of each value: [...] -> the same shape",
    .keys = "activation: relu, tanh, sigmoid, gelu, gelu_tanh, silu; required\n",
    .options_size = sizeof(struct sl_activation_options),
    .fields = fields,
    .infer = infer,
    .forward = forward,
    .backward_data = backward_data,
    .onnx_write = onnx_write};

bool sl__is_relu(const struct sl__layer *layer) {
  const struct sl_activation_options *o = layer->options;
  return layer->kind == &sl__activation_kind && o->activation == SL_ACTIVATION_RELU;
}

enum sl_status sl_activate(struct sl_model *model, const char *name,
                           const struct sl_activation_options *options) {
  return sl__layer_append(model, name, &sl__activation_kind, options);
}
