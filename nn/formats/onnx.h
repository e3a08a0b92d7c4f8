/* ONNX files, in both directions, by way of a graph (nn/onnx_graph.h): onnx_write.c makes one of a
 * model, by the kinds' own onnx_write(); onnx_read.c makes a model of one; onnx_file.c, which alone
 * knows protobuf, converts between graphs and bytes. */
#ifndef SL_NN_FORMATS_ONNX_H
#define SL_NN_FORMATS_ONNX_H

#include "nn/onnx_graph.h"

/* ---- files (onnx_file.c) ---- */

enum sl_status sl__onnx_file_write(struct sl__onnx_graph *graph, const char *path);
/* graph->path and ->most are set before. Whatever the bytes are, it ends in a graph, of which only
 * the form is checked, or a message. */
enum sl_status sl__onnx_file_parse(struct sl__onnx_graph *graph, const uint8_t *bytes, size_t size);

/* ---- whole models ---- */

bool sl__is_onnx(const char *path);
enum sl_status sl__onnx_save(struct sl_model *model, const char *path);
/* The model that the bytes describe, not built, and its values: neither needs StarPU to run. */
enum sl_status sl__onnx_parse(struct sl_context *context, const char *path, const uint8_t *bytes,
                              size_t size, struct sl_model **model, struct sl__copy *copy);
enum sl_status sl__onnx_open(struct sl_context *context, const char *path, struct sl_model **model);
/* Weights alone: every parameter of the model, with its shape, and nothing else. */
enum sl_status sl__onnx_load(struct sl_model *model, const char *path);

#endif
