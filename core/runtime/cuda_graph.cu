#define SL__CUDA_SOURCE
#include "core/runtime/cuda_graph.h"

#include <stdio.h>
#include <stdlib.h>

#include <utility>

#include "core/runtime/cuda.h"
#include "core/runtime/failure.h"

struct sl__cuda_graph {
  cudaGraphExec_t executable;
  int device;
};

namespace {

/* true if the call succeeded; else the reason is in why, and CUDA's last error is cleared. The
 * failure of an earlier work, which CUDA reports now, is reported here: why is empty. */
bool fine(cudaError_t result, char *why, size_t size) {
  if (result == cudaSuccess) return true;
  cudaGetLastError();
  snprintf(why, size, "CUDA: %s", cudaGetErrorString(result));
  if (!sl::is_late(result)) return false;
  *why = '\0';
  sl__device_failed(SL_STARPU, cudaGetErrorString(result));
  return false;
}

/* Kernels get the other stream from here on. It is not StarPU's: while a stream records, other
 * threads must not use the device's default stream unless the recording one is independent of it.
 * Not while a stream records, because cuDNN may wait between its streams. */
bool swap_streams(struct sl__cuda *w, char *why, size_t size) {
  std::swap(w->stream, w->recording);
  cudnnStatus_t result = sl::cudnn.SetStream(w->dnn, w->stream);
  if (result == CUDNN_STATUS_SUCCESS) return true;
  snprintf(why, size, "cuDNN: %s", sl::cudnn.GetErrorString(result));
  return false;
}

/* The graph of the recorded work, or NULL. */
struct sl__cuda_graph *instantiate(cudaGraph_t recorded, int device, char *why, size_t size) {
  struct sl__cuda_graph *graph =
      static_cast<struct sl__cuda_graph *>(calloc(1, sizeof(struct sl__cuda_graph)));
  if (!graph) {
    snprintf(why, size, "no memory");
    return NULL;
  }
  graph->device = device;
  if (fine(cudaGraphInstantiateWithFlags(&graph->executable, recorded, 0), why, size)) return graph;
  free(graph);
  return NULL;
}

}  // namespace

bool sl__cuda_graph_begin(char *why, size_t size) {
  struct sl__cuda *w = sl__cuda_here();
  bool swapped = swap_streams(w, why, size);
  /* a recording of this thread forbids nothing to other threads, such as StarPU's transfers */
  if (swapped &&
      fine(cudaStreamBeginCapture(w->stream, cudaStreamCaptureModeThreadLocal), why, size)) {
    sl__failures_divert(true);
    return true;
  }
  char again[80];
  swap_streams(w, again, sizeof again);
  return false;
}

struct sl__cuda_graph *sl__cuda_graph_end(char *why, size_t size) {
  struct sl__cuda *w = sl__cuda_here();
  cudaGraph_t recorded = NULL;
  /* the call that failed knows more than the end */
  const char *failure = sl__failures_divert(false);
  bool recorded_all = fine(cudaStreamEndCapture(w->stream, &recorded), why, size);
  if (failure && (recorded_all || *why)) snprintf(why, size, "%s", failure);
  bool good = swap_streams(w, why, size) && recorded_all && !failure;
  struct sl__cuda_graph *graph = good ? instantiate(recorded, w->device, why, size) : NULL;
  if (recorded) cudaGraphDestroy(recorded);
  return graph;
}

bool sl__cuda_graph_launch(const struct sl__cuda_graph *graph, char *why, size_t size) {
  return fine(cudaGraphLaunch(graph->executable, sl__cuda_here()->stream), why, size);
}

void sl__cuda_graph_free(struct sl__cuda_graph *graph) {
  if (!graph) return;
  sl__cuda_settle(-1); /* else the way back could lead to GPU 0, and take memory there */
  int before = sl__cuda_current();
  cudaSetDevice(graph->device);
  cudaGraphExecDestroy(graph->executable);
  sl__cuda_restore(before);
  cudaGetLastError();
  free(graph);
}
