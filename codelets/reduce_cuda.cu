/* sum (+)= terms[0] + terms[1] + ..., element by element, in that order: the CPU's bits. */
#include "codelets/update_cuda.h"

SL_CUDA(reduce) {
  int64_t n = *sl::args<int64_t>(cl_arg);
  float *sum = sl::out<float>(buffers, 0);
  sl::step<1>(cuda, sl::take_sum(), 0, n, sl__accumulate(cl_arg) ? sum : nullptr, buffers, 1,
              sl__buffer_count(cl_arg), sl::owned<1>{{sum}}, sum);
}
