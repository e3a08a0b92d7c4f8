/* sum (+)= terms[0] + terms[1] + ..., element by element, in that order: the CPU's bits. */
#include "codelets/reduce.h"
#include "codelets/kernels/update_cuda.h"

SL__CUDA(reduce) {
  const sl__reduce_args *a = sl::args<sl__reduce_args>(cl_arg);
  float *sum = sl::out<float>(buffers, 0);
  sl::step_launch<1, sl::take_sum> steps(cuda, sl::take_sum());
  sl::step<1>(&steps, 0, a->first, a->count, sl__accumulate(cl_arg) ? sum : nullptr, buffers, 1,
              sl__buffer_count(cl_arg), sl::owned<1>{{sum}}, sum);
  steps.launch();
}
