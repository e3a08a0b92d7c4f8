/* Embedding: y[n] = weight[tokens[n]]. */
#include "nn/onnx_graph.h"

static enum sl_status check_options(const struct sl__layer *layer) {
  const struct sl_embedding_options *o = layer->options;
  enum sl_status status = sl__input_alone(layer);
  if (status != SL_OK) return status;
  if (o->vocabulary < 1 || o->vocabulary > INT32_MAX)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                          "vocabulary is %lld; tokens are 32-bit numbers: 1 to 2147483647",
                          (long long)o->vocabulary);
  if (o->features < 1)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT, "features is %lld; it must be at least 1",
                          (long long)o->features);
  if (layer->in[0].ndim > SL_MAX_DIMS - 2)
    return sl__layer_fail(layer, SL_BAD_SHAPE, "takes tokens of at most %d dimensions, not %d",
                          SL_MAX_DIMS - 2, layer->in[0].ndim);
  return SL_OK;
}

static enum sl_status infer(struct sl__layer *layer) {
  const struct sl_embedding_options *o = layer->options;
  enum sl_status status = check_options(layer);
  if (status != SL_OK) return status;
  layer->out = layer->in[0];
  layer->over_time = true;
  layer->touches_rows = true;
  layer->out.dim[layer->out.ndim++] = o->features;
  struct sl__param *weight =
      sl__block_add(&layer->params, "weight", &SL_SHAPE(o->vocabulary, o->features));
  weight->fan_in = o->features; /* fans of a [V, D] matrix as PyTorch counts them */
  weight->fan_out = o->vocabulary;
  return SL_OK;
}

static enum sl_status forward(const struct sl__layer *layer, struct sl__pass *p) {
  const struct sl_embedding_options *o = layer->options;
  return sl__embedding_forward(p->context, &p->launch, p->x[0], p->param, p->y, o->vocabulary,
                               p->first_step);
}

/* Tokens have no gradient. */
static enum sl_status backward_data(const struct sl__layer *layer, struct sl__pass *p) {
  (void)layer, (void)p;
  return SL_OK;
}

static enum sl_status backward_weight(const struct sl__layer *layer, struct sl__pass *p) {
  const struct sl_embedding_options *o = layer->options;
  p->launch.accumulate = p->add_grad;
  if (p->grad_rows)
    return sl__embedding_backward_rows(p->context, &p->launch, p->x[0], p->dy, p->grad_rows,
                                       p->grad, o->vocabulary, p->first_step);
  return sl__embedding_backward_weight(p->context, &p->launch, p->x[0], p->dy, p->grad,
                                       o->vocabulary, p->first_step);
}

static const char *onnx_write(const struct sl__layer *layer, struct sl__onnx_writer *w) {
  (void)layer;
  const char *weight = sl__onnx_param(w, "weight"), *tokens = sl__onnx_input(w, 0);
  return sl__onnx_node(w, NULL, "Gather", SL__ONNX_NAMES(weight, tokens), NULL);
}

static const struct sl_field fields[] = {SL_FIELD(sl_embedding_options, INT64, vocabulary),
                                         SL_FIELD(sl_embedding_options, INT64, features),
                                         {0}};

const struct sl__layer_kind sl__embedding_kind = {
    .name = "embedding",
    .about = "A row of a table for each token: [T] -> [T, D]; takes the input, or a field of it",
    .keys =
        "vocabulary: number of tokens; required\n"
        "features: D; required\n",
    .options_size = sizeof(struct sl_embedding_options),
    .fields = fields,
    .infer = infer,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
    .onnx_write = onnx_write};

enum sl_status sl_embedding(struct sl_model *model, const char *name,
                            const struct sl_embedding_options *options) {
  return sl__layer_append(model, name, &sl__embedding_kind, options);
}
