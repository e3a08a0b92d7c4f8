/* A build without CUDA. */
#include "core/runtime/cuda.h"

#include <stdio.h>

#include "core/runtime/cuda_graph.h"

enum sl_status sl__cuda_open(struct sl_context *context) {
  (void)context;
  return SL_OK;
}

void sl__cuda_close(struct sl_context *context) { (void)context; }

int sl__cuda_count(void) { return 0; }

const char *sl__cuda_absence(char *text, size_t size) {
  snprintf(text, size, "this build has no CUDA; see the summary that configure prints");
  return text;
}

const char *sl__cuda_error(int *worker) {
  *worker = -1;
  return NULL;
}

size_t sl__cuda_unusable(unsigned node) {
  (void)node;
  return 0;
}

int sl__cuda_current(void) { return -1; }

void sl__cuda_settle(int device) { (void)device; }

int sl__cuda_make_current(void) { return -1; }

void sl__cuda_restore(int device) { (void)device; }

bool sl__cuda_is_host(void) { return false; }

size_t sl__cuda_task_limit(int worker) {
  (void)worker;
  return 0;
}

bool sl__cuda_graph_begin(char *why, size_t size) {
  snprintf(why, size, "this build has no CUDA");
  return false;
}

struct sl__cuda_graph *sl__cuda_graph_end(char *why, size_t size) {
  snprintf(why, size, "this build has no CUDA");
  return NULL;
}

bool sl__cuda_graph_launch(const struct sl__cuda_graph *graph, char *why, size_t size) {
  (void)graph;
  snprintf(why, size, "this build has no CUDA");
  return false;
}

void sl__cuda_graph_free(struct sl__cuda_graph *graph) { (void)graph; }
