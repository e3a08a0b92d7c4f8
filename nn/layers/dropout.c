/* Dropout (Srivastava et al., JMLR 15, 2014), scaled in training so that inference is the identity.
 */
#include "core/base/random.h"
#include "core/base/hash.h"
#include "nn/onnx_graph.h"

static enum sl_status infer(struct sl__layer *layer) {
  const struct sl_dropout_options *o = layer->options;
  enum sl_status status = sl__input_alone(layer);
  if (status != SL_OK) return status;
  if (!(o->rate >= 0 && o->rate < 1))
    return sl__layer_fail(layer, SL_BAD_ARGUMENT, "rate is %g; it must be at least 0 and below 1",
                          (double)o->rate);
  layer->out = layer->in[0];
  layer->over_time = true;
  layer->flops = (double)sl_shape_count(&layer->out);
  return SL_OK;
}

/* Random numbers are counted through the whole batch, wherever the slice begins: replicas drop the
 * same values as one device. */
static struct sl__dropout drawn(const struct sl__layer *layer, const struct sl__pass *p) {
  const struct sl_dropout_options *o = layer->options;
  int64_t sample = sl_shape_count(&layer->out), step = sample / layer->out.dim[0];
  return (struct sl__dropout){.rate = o->rate,
                              .seed = p->context->seed,
                              .stream = sl__stream(SL__STREAM_DROPOUT, sl__hash_name(layer->name)),
                              .step = p->step,
                              .first = (uint64_t)(p->first_row * sample + p->first_step * step),
                              .run = p->steps * step,
                              .stride = sample};
}

static enum sl_status forward(const struct sl__layer *layer, struct sl__pass *p) {
  struct sl__dropout dropout = drawn(layer, p);
  p->launch.accumulate = false;
  if (!p->training || layer->is_frozen)
    return sl__axpy(p->context, &p->launch, 1.0f, p->x[0], p->y);
  return sl__dropout_forward(p->context, &p->launch, p->x[0], p->y, &dropout);
}

static enum sl_status backward_data(const struct sl__layer *layer, struct sl__pass *p) {
  struct sl__dropout dropout = drawn(layer, p);
  p->launch.accumulate = p->add_dx[0];
  if (layer->is_frozen) return sl__axpy(p->context, &p->launch, 1.0f, p->dy, p->dx[0]);
  return sl__dropout_backward(p->context, &p->launch, p->dy, p->dx[0], &dropout);
}

/* In inference it passes its input on; the node is there for programs that train the model further.
 */
static const char *onnx_write(const struct sl__layer *layer, struct sl__onnx_writer *w) {
  const struct sl_dropout_options *o = layer->options;
  const char *x = sl__onnx_input(w, 0), *ratio = sl__onnx_scalar(w, "ratio", o->rate);
  return sl__onnx_node(w, NULL, "Dropout", SL__ONNX_NAMES(x, ratio), NULL);
}

static const struct sl_field fields[] = {SL_FIELD(sl_dropout_options, FLOAT, rate), {0}};

const struct sl__layer_kind sl__dropout_kind = {
    .name = "dropout",
    .about = "Zeros at random in training: [...] -> the same shape",
    .keys = "rate: the share of zeros, from 0 to below 1; 0\n",
    .options_size = sizeof(struct sl_dropout_options),
    .fields = fields,
    .infer = infer,
    .forward = forward,
    .backward_data = backward_data,
    .onnx_write = onnx_write};

enum sl_status sl_dropout(struct sl_model *model, const char *name,
                          const struct sl_dropout_options *options) {
  return sl__layer_append(model, name, &sl__dropout_kind, options);
}
