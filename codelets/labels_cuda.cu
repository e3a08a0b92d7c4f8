/* Class labels from targets that are floats, a thread a label. */
#include "codelets/labels.h"

#include "codelets/kernels/cuda.h"
#include "codelets/kernels/index_cuda.h"

namespace {
__global__ void labels_of(sl__labels_args a, sl::divider by, const float *targets,
                          int32_t *labels) {
  int64_t i = sl::thread_index();
  if (i >= a.rows * a.size) return;
  int64_t n = by(i);
  labels[i] = sl__label_of(targets[n * a.stride + a.first + (i - n * a.size)]);
}
}  // namespace

SL__CUDA(labels) {
  const sl__labels_args *a = sl::args<sl__labels_args>(cl_arg);
  SL__LAUNCH(labels_of, sl::blocks(a->rows * a->size), sl::THREADS, 0, cuda->stream, *a,
             sl::divider(a->size), sl::in<float>(buffers, 0), sl::out<int32_t>(buffers, 1));
}
