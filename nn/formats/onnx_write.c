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

static struct sl__onnx_end *end(struct sl__onnx_writer *w, const char *name, int type,
                                const struct sl_shape *sample) {
  struct sl__onnx_end *e = sl__onnx_piece(w, 1, sizeof *e);
  if (!e) return NULL;
  *e = (struct sl__onnx_end){.name = name, .type = type, .ndim = sample->ndim + 1};
  e->dim[0] = -1;
  memcpy(e->dim + 1, sample->dim, (size_t)sample->ndim * sizeof *sample->dim);
  return e;
}

static enum sl_status write_layers(struct sl__onnx_writer *w) {
  const struct sl_model *model = w->model;
  w->value = sl__onnx_piece(w, (size_t)model->count, sizeof *w->value);
  for (int l = 0; l < model->count && w->status == SL_OK; l++) {
    w->layer = &model->layers[l];
    if (!w->layer->kind->onnx_write)
      return sl__layer_fail(w->layer, SL_UNSUPPORTED,
                            "ONNX has no operator for this kind of layer; save the model as .json");
    w->value[l] = w->layer->kind->onnx_write(w->layer, w);
  }
  if (w->status != SL_OK) return w->status;
  w->graph.node[w->graph.nodes - 1].output[0] = "output"; /* no other node takes this output */
  w->graph.input =
      end(w, "input", model->takes_tokens ? SL__ONNX_INT64 : SL__ONNX_FLOAT, &model->sample);
  w->graph.output = end(w, "output", SL__ONNX_FLOAT, sl_model_output(model));
  w->graph.inputs = w->graph.outputs = 1;
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
