/* Many calls as one task (core/graph/graph.h). */
#include "codelets/codelets.h"
#include "core/graph/graph.h"

SL_KERNEL void sl__program_cpu(void *buffers[], void *cl_arg) {
  const struct sl__segment *segment = *(const struct sl__segment *const *)sl__args(cl_arg);
  bool on_gpu = starpu_worker_get_type(starpu_worker_get_id()) == STARPU_CUDA_WORKER;
  sl__segment_run(segment, buffers, on_gpu);
}

SL_KERNEL void sl__assist_cpu(void *buffers[], void *cl_arg) {
  const struct sl__assist_args *a = sl__args(cl_arg);
  (void)buffers;
  sl__program_assist(a->program, a->member);
}
