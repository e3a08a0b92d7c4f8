/* Models with several inputs and outputs by name: the fields of their input's and output's rows. An
 * input field is a slice of the row; the outputs are a concatenation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/layer.h"

bool sl__is_input_field(const struct sl_model *model, const struct sl__layer *layer) {
  return layer - model->layers < model->input_count;
}

/* ---- inputs ---- */

/* Values of the fields together; 0 if a shape is impossible. */
static int64_t count_values(const struct sl_row_field *fields, int count) {
  int64_t values = 0;
  for (int i = 0; i < count; i++) {
    const struct sl_shape *shape = &fields[i].shape;
    bool fits = shape->ndim >= 1 && shape->ndim < SL_MAX_DIMS;
    for (int d = 0; fits && d < shape->ndim; d++) fits = shape->dim[d] >= 1;
    if (!fits || sl_shape_count(shape) > SL__MOST_VALUES) return 0;
    values += sl_shape_count(shape);
  }
  return values;
}

enum sl_status sl_model_new_fields(struct sl_context *context, const struct sl_row_field *inputs,
                                   int count, struct sl_model **model) {
  SL__NEEDS(context, inputs, model);
  struct sl_model *made = NULL;
  enum sl_status status;
  char text[96];
  *model = NULL;
  if (count < 1 || count > SL_MAX_FIELDS)
    return sl__fail(SL_BAD_ARGUMENT, "a model of %d inputs; it can have 1 to %d", count,
                    SL_MAX_FIELDS);
  for (int i = 0; i < count; i++)
    if (!count_values(&inputs[i], 1))
      return sl__fail(SL_BAD_SHAPE,
                      "input '%.64s' cannot have shape %s: 1 to %d dimensions, each at least 1, "
                      "and 2^40 values",
                      inputs[i].name ? inputs[i].name : "",
                      sl_shape_text(&inputs[i].shape, text, sizeof text), SL_MAX_DIMS - 1);
  SL__TRY(sl_model_new(context, &SL_SHAPE(count_values(inputs, count)), &made));
  int64_t first = 0;
  for (int i = 0; i < count; i++) {
    const struct sl_slice_options field = {.layer = {.inputs = "input"},
                                           .first = first,
                                           .count = sl_shape_count(&inputs[i].shape),
                                           .shape = inputs[i].shape};
    if (!inputs[i].name) SL__TRY(sl__fail(SL_BAD_ARGUMENT, "input %d has no name; give it one", i));
    SL__TRY(sl__layer_append(made, inputs[i].name, &sl__slice_kind, &field));
    first += field.count;
  }
  made->input_count = count;
  *model = made;
  made = NULL;
out:
  sl_model_free(made);
  return status;
}

bool sl_model_input_field(const struct sl_model *model, int i, struct sl_row_field *field) {
  SL__NEEDS_OR(false, model, field);
  if (i < 0 || i >= model->input_count) return false;
  const struct sl__layer *layer = &model->layers[i];
  *field = (struct sl_row_field){.name = layer->name,
                                 .shape = layer->out,
                                 .classes = (int)sl__field_words(model, i),
                                 .first = ((const struct sl_slice_options *)layer->options)->first};
  return true;
}

/* ---- outputs ---- */

enum sl_status sl_outputs(struct sl_model *model, const char *layers) {
  SL__NEEDS(model, layers);
  const struct sl_concatenate_options options = {.layer = {.inputs = layers}, .flat = true};
  enum sl_status status = sl__layer_append(model, "outputs", &sl__concatenate_kind, &options);
  if (status != SL_OK) return status;
  const struct sl__layer *last = &model->layers[model->count - 1];
  if (last->input_count > SL_MAX_FIELDS)
    status = sl__fail(SL_BAD_ARGUMENT, "a model has 1 to %d outputs, not %d", SL_MAX_FIELDS,
                      last->input_count);
  for (int i = 0; i < last->input_count && status == SL_OK; i++)
    if (sl__is_repeated(last, i))
      status = sl__fail(SL_BAD_ARGUMENT, "output '%s' is there twice; outputs need different names",
                        model->layers[last->input[i]].name);
  if (status == SL_OK)
    model->output_count = last->input_count;
  else
    sl__layer_drop(model);
  return status;
}

bool sl_model_output_field(const struct sl_model *model, int i, struct sl_row_field *field) {
  SL__NEEDS_OR(false, model, field);
  if (i < 0 || i >= model->output_count) return false;
  const struct sl__layer *last = &model->layers[model->count - 1];
  *field = (struct sl_row_field){.name = model->layers[last->input[i]].name, .shape = last->in[i]};
  for (int k = 0; k < i; k++) field->first += sl_shape_count(&last->in[k]);
  return true;
}
