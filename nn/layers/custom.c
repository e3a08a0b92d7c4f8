/* A layer of a registered kind: the library's part of the work around the program's functions. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/layer.h"

/* ---- infer: whatever the program's function returns, the layer is valid or refused ---- */

static bool is_shape(const struct sl_shape *shape, int least, int most) {
  bool fits = shape->ndim >= least && shape->ndim <= most;
  for (int i = 0; fits && i < shape->ndim; i++) fits = shape->dim[i] >= 1;
  return fits;
}

static bool is_suffix(const char *suffix) {
  const char *letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  return suffix && *suffix && strlen(suffix) < sizeof((struct sl__param *)0)->suffix &&
         strspn(suffix, letters) == strlen(suffix);
}

/* Blames infer() itself, not its arguments. */
static enum sl_status check_parameter(const struct sl__layer *layer,
                                      const struct sl_layer_plan *plan, int i) {
  const struct sl_layer_parameter *p = &plan->parameter[i];
  if (!is_suffix(p->suffix))
    return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                          "its kind names parameter %d '%.40s'; letters, digits and _, at most 31",
                          i, p->suffix ? p->suffix : "");
  for (int k = 0; k < i; k++)
    if (!strcmp(p->suffix, plan->parameter[k].suffix))
      return sl__layer_fail(layer, SL_BAD_ARGUMENT, "its kind has the parameter %s twice",
                            p->suffix);
  if (!is_shape(&p->shape, 1, SL_MAX_DIMS))
    return sl__layer_fail(layer, SL_BAD_SHAPE,
                          "its kind gives %s no shape: 1 to %d dimensions, each at least 1",
                          p->suffix, SL_MAX_DIMS);
  if (!p->filled && (p->fan_in < 1 || p->fan_out < 1))
    return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                          "its kind says of %s neither fan_in and fan_out, each at least 1, nor "
                          "that it is filled: how does it begin?",
                          p->suffix);
  if (p->filled && !isfinite(p->fill))
    return sl__layer_fail(layer, SL_BAD_ARGUMENT, "its kind fills %s with %g; it must be finite",
                          p->suffix, (double)p->fill);
  return SL_OK;
}

static enum sl_status check_plan(const struct sl__layer *layer, const struct sl_layer_plan *plan) {
  enum sl_status status = SL_OK;
  const struct sl_shape *out = &plan->out, *saved = &plan->saved;
  char text[96];
  if (!is_shape(out, 1, SL_MAX_DIMS - 1))
    return sl__layer_fail(layer, SL_BAD_SHAPE,
                          "its kind gives an output of %s: 1 to %d dimensions, each at least 1",
                          sl_shape_text(out, text, sizeof text), SL_MAX_DIMS - 1);
  if (!is_shape(saved, 0, SL_MAX_DIMS - 1) || sl_shape_count(saved) > SL__MOST_VALUES)
    return sl__layer_fail(layer, SL_BAD_SHAPE,
                          "its kind saves %s: at most %d dimensions, each at least 1, and 2^40 "
                          "values",
                          sl_shape_text(saved, text, sizeof text), SL_MAX_DIMS - 1);
  for (int i = 0; i < plan->input_count && plan->over_time; i++)
    if (plan->in[i].dim[0] != out->dim[0] || (saved->ndim && saved->dim[0] != out->dim[0]))
      return sl__layer_fail(layer, SL_BAD_SHAPE,
                            "its kind works over time, but its inputs, output and saved values "
                            "do not all have %lld steps",
                            (long long)out->dim[0]);
  if (plan->parameter_count < 0 || plan->parameter_count > SL_LAYER_PARAMETERS)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT, "its kind has %d parameters; at most %d",
                          plan->parameter_count, SL_LAYER_PARAMETERS);
  for (int i = 0; i < plan->parameter_count; i++) SL__TRY(check_parameter(layer, plan, i));
  if (!(plan->flops >= 0) || !isfinite(plan->flops))
    return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                          "its kind counts %g flops; they must be finite, and not negative",
                          plan->flops);
out:
  return status;
}

static void declare(struct sl__layer *layer, const struct sl_layer_plan *plan) {
  layer->out = plan->out;
  layer->saved = plan->saved;
  layer->saved_per_row = true;
  layer->over_time = plan->over_time;
  layer->flops = plan->flops;
  for (int i = 0; i < plan->parameter_count; i++) {
    const struct sl_layer_parameter *p = &plan->parameter[i];
    struct sl__param *part = sl__block_add(&layer->params, p->suffix, &p->shape);
    part->fan_in = p->fan_in;
    part->fan_out = p->fan_out;
    part->is_bias = p->is_bias;
    part->is_filled = p->filled;
    part->fill = p->fill;
  }
}

/* Performance models tell kinds and options apart by this hash. It covers the fields only: the
 * padding between them is undefined. */
static uint32_t footprint(const struct sl_layer_kind *kind, const void *options) {
  uint32_t hash = starpu_hash_crc32c_be_n(kind->name, strlen(kind->name), 0);
  for (const struct sl_field *field = kind->fields; field && field->name; field++) {
    const char *at = (const char *)options + field->offset;
    if (field->type == SL_FIELD_SHAPE) {
      const struct sl_shape *shape = (const void *)at;
      hash = starpu_hash_crc32c_be_n(shape->dim, (size_t)shape->ndim * sizeof *shape->dim, hash);
      continue;
    }
    size_t bytes = field->type == SL_FIELD_BOOL    ? sizeof(bool)
                   : field->type == SL_FIELD_INT64 ? sizeof(int64_t)
                                                   : sizeof(int);
    hash = starpu_hash_crc32c_be_n(at, bytes, hash);
  }
  return hash;
}

static enum sl_status infer(struct sl__layer *layer) {
  const struct sl_layer_kind *kind = layer->kind->custom;
  struct sl_layer_plan plan = {
      .options = layer->options, .input_count = layer->input_count, .in = layer->in};
  enum sl_status status = kind->infer(&plan);
  plan.message[sizeof plan.message - 1] = '\0';
  if (status != SL_OK)
    return sl__layer_fail(
        layer, sl__known_status(status), "%s",
        *plan.message ? plan.message : "its kind refuses these options or inputs");
  plan.input_count = layer->input_count;
  plan.in = layer->in;
  SL__TRY(check_plan(layer, &plan));
  declare(layer, &plan);
  layer->custom = sl__alloc(1, sizeof *layer->custom, "a layer");
  if (!layer->custom) return SL_NO_MEMORY;
  *layer->custom = (struct sl__custom){.kind = kind,
                                       .options = layer->options,
                                       .inputs = layer->input_count,
                                       .params = layer->params.count,
                                       .total = layer->params.total,
                                       .flops = layer->flops,
                                       .footprint = footprint(kind, layer->options)};
  for (int i = 0; i < layer->params.count; i++)
    layer->custom->offset[i] = layer->params.part[i].offset;
out:
  return status;
}

/* ---- passes ---- */

static enum sl_status forward(const struct sl__layer *layer, struct sl__pass *p) {
  return sl__custom_forward(p->context, &p->launch, layer->custom, p->x, p->param, p->y, p->saved,
                            p->training);
}

static struct sl__custom_buffers buffers_of(const struct sl__pass *p) {
  return (struct sl__custom_buffers){
      .x = p->x, .param = p->param, .y = p->y, .saved = p->saved, .dy = p->dy};
}

/* One input at a time: if both are the same layer, the second gradient is added to the first. */
static enum sl_status backward_data(const struct sl__layer *layer, struct sl__pass *p) {
  const struct sl__custom_buffers buffers = buffers_of(p);
  enum sl_status status = SL_OK;
  for (int i = 0; i < layer->input_count && status == SL_OK; i++) {
    if (!p->dx[i]) continue;
    p->launch.accumulate = p->add_dx[i] || sl__is_repeated(layer, i);
    status = sl__custom_backward_data(p->context, &p->launch, layer->custom, &buffers, i, p->dx[i]);
  }
  return status;
}

static enum sl_status backward_weight(const struct sl__layer *layer, struct sl__pass *p) {
  const struct sl__custom_buffers buffers = buffers_of(p);
  p->launch.accumulate = p->add_grad;
  return sl__custom_backward_weight(p->context, &p->launch, layer->custom, &buffers, p->grad);
}

struct sl__layer_kind sl__custom_kind(const struct sl_layer_kind *kind) {
  return (struct sl__layer_kind){.name = kind->name,
                                 .options_size = kind->options_size,
                                 .fields = kind->fields,
                                 .custom = kind,
                                 .wide_params = true,
                                 .weight_reads_output = true,
                                 .infer = infer,
                                 .forward = forward,
                                 .backward_data = backward_data,
                                 .backward_weight = backward_weight};
}
