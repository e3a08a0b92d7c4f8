/* Memory of a graph: many small pieces, freed together and counted against the limit for a file. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "nn/onnx_graph.h"

/* Pieces come from chunks; a large piece has a chunk of its own. */
struct sl__onnx_chunk {
  struct sl__onnx_chunk *next;
  size_t used, size;
  max_align_t bytes[];
};

enum { CHUNK = 16384, ALIGN = sizeof(max_align_t) };

static struct sl__onnx_chunk *new_chunk(struct sl__onnx_graph *graph, size_t size) {
  struct sl__onnx_chunk *chunk = sl__alloc(1, sizeof *chunk + size, "an ONNX graph");
  if (!chunk) return NULL;
  chunk->size = size;
  chunk->next = graph->memory;
  graph->memory = chunk;
  return chunk;
}

void *sl__onnx_alloc(struct sl__onnx_graph *graph, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes) || bytes > graph->most - graph->used) {
    graph->used = graph->most;
    graph->failed = true;
    return NULL;
  }
  bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
  graph->used += bytes < graph->most - graph->used ? bytes : graph->most - graph->used;
  struct sl__onnx_chunk *chunk = graph->memory;
  if (!chunk || chunk->size - chunk->used < bytes)
    chunk = new_chunk(graph, bytes > CHUNK ? bytes : CHUNK);
  graph->failed |= !chunk;
  if (!chunk) return NULL;
  void *piece = (char *)chunk->bytes + chunk->used;
  chunk->used += bytes;
  return piece;
}

enum sl_status sl__onnx_no_memory(const struct sl__onnx_graph *graph) {
  if (graph->used < graph->most) return SL_NO_MEMORY;
  return sl__fail(SL_BAD_FILE, "%s: takes more memory than a model in a file of its size should",
                  graph->path);
}

char *sl__onnx_text(struct sl__onnx_graph *graph, const char *format, ...) {
  va_list list;
  va_start(list, format);
  int length = vsnprintf(NULL, 0, format, list);
  va_end(list);
  char *text = sl__onnx_alloc(graph, (size_t)length + 1, 1);
  if (!text) return NULL;
  va_start(list, format);
  vsnprintf(text, (size_t)length + 1, format, list);
  va_end(list);
  return text;
}

void sl__onnx_graph_free(struct sl__onnx_graph *graph) {
  while (graph->memory) {
    struct sl__onnx_chunk *chunk = graph->memory;
    graph->memory = chunk->next;
    free(chunk);
  }
}
