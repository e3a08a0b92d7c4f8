/* Normalisation of each sample alone: layer (arXiv 1607.06450), RMS (arXiv 1910.07467), and group
 * and instance normalisation (arXiv 1803.08494, 1607.08022). One operation computes all of them. */
#include <math.h>
#include <string.h>

#include "nn/onnx_graph.h"

/* The last axes, at least one: their number of values. */
static int64_t last_axes(const struct sl_shape *shape, int axes) {
  int64_t values = 1;
  for (int d = shape->ndim - (axes ? axes : 1); d < shape->ndim; d++) values *= shape->dim[d];
  return values;
}

static struct sl__layernorm layernorm_of(const struct sl__layer *layer) {
  const struct sl_layernorm_options *o = layer->options;
  int64_t size = last_axes(&layer->in[0], o->axes);
  return (struct sl__layernorm){.size = size,
                                .groups = 1,
                                .params = size,
                                .epsilon = o->epsilon != 0 ? o->epsilon : 1e-5f,
                                .rms = o->rms};
}

/* No groups: each channel is one. */
static struct sl__layernorm groupnorm_of(const struct sl__layer *layer) {
  const struct sl_groupnorm_options *o = layer->options;
  int64_t channels = layer->in[0].dim[0], groups = o->groups ? o->groups : channels;
  return (struct sl__layernorm){.size = sl_shape_count(&layer->in[0]) / groups,
                                .groups = groups,
                                .params = channels,
                                .epsilon = o->epsilon != 0 ? o->epsilon : 1e-5f};
}

static bool is_layernorm(const struct sl__layer *layer) {
  return layer->kind == &sl__layernorm_kind;
}

static struct sl__layernorm norm_of(const struct sl__layer *layer) {
  return is_layernorm(layer) ? layernorm_of(layer) : groupnorm_of(layer);
}

static void add_part(struct sl__layer *layer, const char *suffix, const struct sl_shape *shape,
                     float fill) {
  struct sl__param *part = sl__block_add(&layer->params, suffix, shape);
  part->is_filled = true;
  part->fill = fill;
  part->is_bias = !strcmp(suffix, "bias");
}

static enum sl_status declare(struct sl__layer *layer, const struct sl_shape *params, bool plain) {
  struct sl__layernorm n = norm_of(layer);
  if (!(n.epsilon > 0 && n.epsilon < HUGE_VALF))
    return sl__layer_fail(layer, SL_BAD_ARGUMENT, "epsilon is %g; it must be above 0 and finite",
                          (double)n.epsilon);
  layer->out = layer->in[0];
  layer->flops = 6.0 * (double)sl_shape_count(&layer->out);
  if (!plain) add_part(layer, "weight", params, 1);
  if (!plain && !n.rms) add_part(layer, "bias", params, 0);
  return SL_OK;
}

static enum sl_status infer_layernorm(struct sl__layer *layer) {
  const struct sl_layernorm_options *o = layer->options;
  struct sl_shape params = {0};
  enum sl_status status = sl__input_alone(layer);
  if (status != SL_OK) return status;
  int ndim = layer->in[0].ndim, axes = o->axes ? o->axes : 1;
  if (axes < 0 || axes > ndim)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT, "axes is %d; its input has %d", o->axes, ndim);
  for (int d = ndim - axes; d < ndim; d++) params.dim[params.ndim++] = layer->in[0].dim[d];
  layer->over_time = axes < ndim;
  return declare(layer, &params, o->plain);
}

static enum sl_status infer_groupnorm(struct sl__layer *layer) {
  const struct sl_groupnorm_options *o = layer->options;
  enum sl_status status = sl__input_alone(layer);
  if (status != SL_OK) return status;
  int64_t channels = layer->in[0].dim[0];
  if (o->groups < 0 || (o->groups && channels % o->groups))
    return sl__layer_fail(layer, SL_BAD_ARGUMENT, "groups is %d; it must divide the %lld channels",
                          o->groups, (long long)channels);
  return declare(layer, &SL_SHAPE(channels), o->plain);
}

static enum sl_status forward(const struct sl__layer *layer, struct sl__pass *p) {
  struct sl__layernorm n = norm_of(layer);
  return sl__layernorm_forward(p->context, &p->launch, p->x[0],
                               layer->params.total ? p->param : NULL, p->y, &n);
}

static enum sl_status backward_data(const struct sl__layer *layer, struct sl__pass *p) {
  struct sl__layernorm n = norm_of(layer);
  p->launch.accumulate = p->add_dx[0];
  return sl__layernorm_backward_data(p->context, &p->launch, p->x[0],
                                     layer->params.total ? p->param : NULL, p->dy, p->dx[0], &n);
}

static enum sl_status backward_weight(const struct sl__layer *layer, struct sl__pass *p) {
  struct sl__layernorm n = norm_of(layer);
  p->launch.accumulate = p->add_grad;
  return sl__layernorm_backward_weight(p->context, &p->launch, p->x[0], p->dy, p->grad, &n);
}

/* ---- ONNX -------------------------------------------------------------------------------- */

static const char *ones(struct sl__onnx_writer *w, const char *suffix, const struct sl_shape *shape,
                        float value) {
  float *values;
  const char *name = sl__onnx_reals(w, suffix, shape, &values);
  for (int64_t i = 0; values && i < sl_shape_count(shape); i++) values[i] = value;
  return name;
}

/* x / sqrt(mean(x^2) + epsilon), from parts: the operator set that Starling writes has no
 * RMSNormalization. */
static const char *write_rms(const struct sl__layer *layer, struct sl__onnx_writer *w,
                             const struct sl__layernorm *n) {
  const struct sl_layernorm_options *o = layer->options;
  int64_t axes[SL_MAX_DIMS];
  int count = o->axes ? o->axes : 1;
  for (int i = 0; i < count; i++) axes[i] = i - count;
  const char *x = sl__onnx_input(w, 0), *weight = sl__onnx_param(w, "weight");
  const char *square = sl__onnx_node(w, "square", "Mul", SL__ONNX_NAMES(x, x), NULL);
  const char *mean = sl__onnx_node(
      w, "mean", "ReduceMean", SL__ONNX_NAMES(square),
      SL__ONNX_ATTRIBUTES({.name = "axes", .type = SL__ONNX_INTS, .ints = axes, .count = count}));
  const char *epsilon = sl__onnx_scalar(w, "epsilon", n->epsilon);
  const char *sum = sl__onnx_node(w, "sum", "Add", SL__ONNX_NAMES(mean, epsilon), NULL);
  const char *root = sl__onnx_node(w, "root", "Sqrt", SL__ONNX_NAMES(sum), NULL);
  const char *y = sl__onnx_node(w, weight ? "div" : NULL, "Div", SL__ONNX_NAMES(x, root), NULL);
  return weight ? sl__onnx_node(w, NULL, "Mul", SL__ONNX_NAMES(y, weight), NULL) : y;
}

static const char *write_layernorm(const struct sl__layer *layer, struct sl__onnx_writer *w) {
  const struct sl_layernorm_options *o = layer->options;
  struct sl__layernorm n = norm_of(layer);
  if (n.rms) return write_rms(layer, w, &n);
  int axes = o->axes ? o->axes : 1;
  struct sl_shape shape = {.ndim = axes};
  memcpy(shape.dim, layer->in[0].dim + layer->in[0].ndim - axes, (size_t)axes * sizeof *shape.dim);
  const char *x = sl__onnx_input(w, 0);
  const char *weight = o->plain ? ones(w, "ones", &shape, 1) : sl__onnx_param(w, "weight"),
             *bias = o->plain ? NULL : sl__onnx_param(w, "bias");
  return sl__onnx_node(
      w, NULL, "LayerNormalization", SL__ONNX_NAMES(x, weight, bias),
      SL__ONNX_ATTRIBUTES(SL__ONNX_WHOLE("axis", -axes), SL__ONNX_REAL("epsilon", n.epsilon)));
}

/* A parameter as [C, 1, ...], which ONNX spreads over the plane. */
static const char *spread(const struct sl__layer *layer, struct sl__onnx_writer *w,
                          const char *suffix) {
  struct sl_shape shape = {.ndim = layer->in[0].ndim, .dim = {layer->in[0].dim[0]}};
  float *values;
  for (int d = 1; d < shape.ndim; d++) shape.dim[d] = 1;
  const char *name = sl__onnx_reals(w, suffix, &shape, &values);
  if (values) memcpy(values, sl__onnx_values(w, suffix), (size_t)shape.dim[0] * sizeof *values);
  return name;
}

/* A group becomes a channel of InstanceNormalization. */
static const char *write_groupnorm(const struct sl__layer *layer, struct sl__onnx_writer *w) {
  const struct sl_groupnorm_options *o = layer->options;
  struct sl__layernorm n = norm_of(layer);
  int64_t groups[3] = {0, n.groups, -1}, back[1 + SL_MAX_DIMS] = {0};
  memcpy(back + 1, layer->out.dim, sizeof layer->out.dim);
  const char *x = sl__onnx_input(w, 0), *one = ones(w, "ones", &SL_SHAPE(n.groups), 1),
             *zero = ones(w, "zeros", &SL_SHAPE(n.groups), 0),
             *to = sl__onnx_wholes(w, "groups", groups, 3),
             *from = sl__onnx_wholes(w, "shape", back, layer->out.ndim + 1);
  const char *rows = sl__onnx_node(w, "rows", "Reshape", SL__ONNX_NAMES(x, to), NULL);
  const char *y = sl__onnx_node(w, "norm", "InstanceNormalization", SL__ONNX_NAMES(rows, one, zero),
                                SL__ONNX_ATTRIBUTES(SL__ONNX_REAL("epsilon", n.epsilon)));
  y = sl__onnx_node(w, o->plain ? NULL : "view", "Reshape", SL__ONNX_NAMES(y, from), NULL);
  if (o->plain) return y;
  y = sl__onnx_node(w, "scale", "Mul", SL__ONNX_NAMES(y, spread(layer, w, "weight")), NULL);
  return sl__onnx_node(w, NULL, "Add", SL__ONNX_NAMES(y, spread(layer, w, "bias")), NULL);
}

/* ---- the kinds --------------------------------------------------------------------------- */

static const struct sl_field layernorm_fields[] = {SL_FIELD(sl_layernorm_options, INT, axes),
                                                   SL_FIELD(sl_layernorm_options, FLOAT, epsilon),
                                                   SL_FIELD(sl_layernorm_options, BOOL, plain),
                                                   SL_FIELD(sl_layernorm_options, BOOL, rms),
                                                   {0}};

const struct sl__layer_kind sl__layernorm_kind = {
    .name = "layernorm",
    .about = "Layer normalisation over the last axes: [...] -> the same shape",
    .keys =
        "axes: how many; 1\n"
        "epsilon: added to the variance; 1e-5\n"
        "plain: without weight and bias; false\n"
        "rms: without mean and bias; false\n",
    .options_size = sizeof(struct sl_layernorm_options),
    .fields = layernorm_fields,
    .wide_params = true,
    .infer = infer_layernorm,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
    .onnx_write = write_layernorm};

static const struct sl_field groupnorm_fields[] = {SL_FIELD(sl_groupnorm_options, INT, groups),
                                                   SL_FIELD(sl_groupnorm_options, FLOAT, epsilon),
                                                   SL_FIELD(sl_groupnorm_options, BOOL, plain),
                                                   {0}};

const struct sl__layer_kind sl__groupnorm_kind = {
    .name = "groupnorm",
    .about = "Group normalisation: [C, ...] -> the same shape",
    .keys =
        "groups: of channels; one a channel\n"
        "epsilon: added to the variance; 1e-5\n"
        "plain: without weight and bias; false\n",
    .options_size = sizeof(struct sl_groupnorm_options),
    .fields = groupnorm_fields,
    .wide_params = true,
    .infer = infer_groupnorm,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
    .onnx_write = write_groupnorm};

enum sl_status sl_layernorm(struct sl_model *model, const char *name,
                            const struct sl_layernorm_options *options) {
  return sl__layer_append(model, name, &sl__layernorm_kind, options);
}

enum sl_status sl_groupnorm(struct sl_model *model, const char *name,
                            const struct sl_groupnorm_options *options) {
  return sl__layer_append(model, name, &sl__groupnorm_kind, options);
}
