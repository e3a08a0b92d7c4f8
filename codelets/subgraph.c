/* A subgraph, many calls, as one task (core/graph/graph.h); and the task of a helper. */
#include "codelets/codelets.h"
#include "core/graph/graph.h"

SL__KERNEL void sl__subgraph_cpu(void *buffers[], void *cl_arg) {
  bool on_gpu = starpu_worker_get_type(starpu_worker_get_id()) == STARPU_CUDA_WORKER;
  sl__subgraph_run(sl__args(cl_arg), buffers, on_gpu);
}

SL__KERNEL void sl__helper_cpu(void *buffers[], void *cl_arg) {
  const struct sl__helper_args *a = sl__args(cl_arg);
  (void)buffers;
  sl__graph_help(a->graph, a->member);
}
