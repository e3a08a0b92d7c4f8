/* ONNX files, in both directions, through a graph (nn/onnx_graph.h). onnx_write.c turns a model
 * into a graph with the kinds' onnx_write(), onnx_read.c a graph into a model. Only onnx_file.c
 * knows protobuf: it converts between graphs and bytes. */
#ifndef SL_NN_FORMATS_ONNX_H
#define SL_NN_FORMATS_ONNX_H

#include "nn/onnx_graph.h"

/* ---- files (onnx_file.c) ---- */

enum sl_status sl__onnx_file_write(struct sl__onnx_graph *graph, const char *path);
/* The caller sets graph->path and graph->most. Any bytes, valid or not, become a graph or an error
 * message. Only the form of the graph is checked. */
enum sl_status sl__onnx_file_parse(struct sl__onnx_graph *graph, const uint8_t *bytes, size_t size);

/* ---- whole models (onnx_write.c, onnx_read.c, onnx_load.c) ---- */

bool sl__is_onnx(const char *path);
enum sl_status sl__onnx_save(struct sl_model *model, const char *path);
/* The model in the bytes, not built yet, and its values. Neither needs StarPU to run. */
enum sl_status sl__onnx_parse(struct sl_context *context, const char *path, const uint8_t *bytes,
                              size_t size, struct sl_model **model, struct sl__copy *copy);
enum sl_status sl__onnx_open(struct sl_context *context, const char *path, struct sl_model **model);
/* Loads the weights alone: the file must have every parameter of the model, with its shape, and no
 * other. */
enum sl_status sl__onnx_load(struct sl_model *model, const char *path);

#endif
