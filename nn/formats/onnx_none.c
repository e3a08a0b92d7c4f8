/* ONNX files in a build without protobuf-c: all functions fail. */
#include "nn/formats/onnx.h"

static enum sl_status none(const char *path) {
  return sl__fail(SL_UNSUPPORTED,
                  "%s: this build has no ONNX files; install libprotobuf-c-dev and "
                  "protobuf-c-compiler, run configure and make again",
                  path);
}

enum sl_status sl__onnx_file_write(struct sl__onnx_graph *graph, const char *path) {
  (void)graph;
  return none(path);
}

enum sl_status sl__onnx_file_parse(struct sl__onnx_graph *graph, const uint8_t *bytes,
                                   size_t size) {
  (void)bytes, (void)size;
  return none(graph->path);
}
