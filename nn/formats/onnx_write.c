/* A model as an ONNX graph: each layer's kind writes its own nodes. */
#include "nn/formats/onnx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUFFIX ".onnx"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

bool sl__is_onnx(const char *path) {
  size_t length = strlen(path);
  return length > strlen(SUFFIX) && !strcmp(path + length - strlen(SUFFIX), SUFFIX);
}

static void set_end(struct sl__onnx_end *e, const char *name, int type,
                    const struct sl_shape *sample) {
  *e = (struct sl__onnx_end){.name = name, .type = type, .ndim = sample->ndim + 1};
  e->dim[0] = -1;
  memcpy(e->dim + 1, sample->dim, (size_t)sample->ndim * sizeof *sample->dim);
}

static void write_inputs(struct sl__onnx_writer *w) {
  const struct sl_model *model = w->model;
  struct sl_row_field field;
  w->graph.inputs = model->input_count ? model->input_count : 1;
  w->graph.input = sl__onnx_piece(w, (size_t)w->graph.inputs, sizeof *w->graph.input);
  if (!w->graph.input) return;
  if (!model->input_count)
    set_end(w->graph.input, "input", model->takes_tokens ? SL__ONNX_INT64 : SL__ONNX_FLOAT,
            &model->sample);
  for (int i = 0; sl_model_input_field(model, i, &field); i++)
    set_end(&w->graph.input[i], field.name, field.classes ? SL__ONNX_INT64 : SL__ONNX_FLOAT,
            &field.shape);
}

/* Outputs with names are values that other nodes may take, too: so each gets a node that names it.
 */
static void write_outputs(struct sl__onnx_writer *w) {
  const struct sl_model *model = w->model;
  const struct sl__layer *last = &model->layers[model->count - 1];
  struct sl_row_field field;
  char part[16];
  w->graph.outputs = model->output_count ? model->output_count : 1;
  w->graph.output = sl__onnx_piece(w, (size_t)w->graph.outputs, sizeof *w->graph.output);
  if (!w->graph.output) return;
  if (!model->output_count) {
    w->graph.node[w->graph.nodes - 1].output[0] = "output"; /* no other node takes this output */
    set_end(w->graph.output, "output", SL__ONNX_FLOAT, sl_model_output(model));
  }
  w->layer = last;
  for (int i = 0; sl_model_output_field(model, i, &field); i++) {
    snprintf(part, sizeof part, "%d", i);
    sl__onnx_node(w, part, "Identity", SL__ONNX_NAMES(w->value[last->input[i]]), NULL);
    if (w->status != SL_OK) return;
    w->graph.node[w->graph.nodes - 1].output[0] = field.name;
    set_end(&w->graph.output[i], field.name, SL__ONNX_FLOAT, &field.shape);
  }
}

static enum sl_status write_layers(struct sl__onnx_writer *w) {
  const struct sl_model *model = w->model;
  int end = model->count - (model->output_count > 0);
  w->value = sl__onnx_piece(w, (size_t)model->count, sizeof *w->value);
  for (int l = 0; l < end && w->status == SL_OK; l++) {
    w->layer = &model->layers[l];
    if (!w->layer->kind->onnx_write)
      return sl__layer_fail(w->layer, SL_UNSUPPORTED,
                            "ONNX has no operator for this kind of layer; save the model as .json");
    w->value[l] = w->layer->kind->onnx_write(w->layer, w);
  }
  if (w->status != SL_OK) return w->status;
  if (!w->graph.nodes)
    return sl__fail(SL_UNSUPPORTED, "%s: the model has no layers behind its inputs", w->graph.path);
  write_inputs(w);
  write_outputs(w);
  return w->status;
}

enum sl_status sl__onnx_save(struct sl_model *model, const char *path) {
  struct sl__copy copy = {0};
  struct sl__onnx_writer w = {.graph = {.most = SIZE_MAX,
                                        .path = path,
                                        .producer = SL__ONNX_PRODUCER,
                                        .opset = SL__ONNX_OPSET},
                              .model = model,
                              .copy = &copy};
  enum sl_status status;
  SL__TRY(sl_model_build(model));
  SL__TRY(sl__copy_new(model, &copy));
  SL__TRY(sl__copy_read(model, &copy));
  SL__TRY(sl__copy_check(&copy, model, path));
  SL__TRY(write_layers(&w));
  status = sl__onnx_file_write(&w.graph, path);
out:
  free(w.graph.node);
  free(w.graph.tensor);
  sl__onnx_graph_free(&w.graph);
  sl__copy_free(&copy);
  return status;
}
