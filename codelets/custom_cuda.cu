/* Layers that the program registered: its own CUDA kernels, by their launchers. */
#include <alloca.h>

#include "codelets/kernels/cuda.h"
extern "C" {
#include "codelets/custom.h"
}

/* Room for the addresses of a task's inputs. */
#define SL__INPUTS(name, args)                                                                     \
  const float **name = static_cast<const float **>(                                                \
      alloca(static_cast<size_t>((args)->layer->inputs) * sizeof(const float *)))

static void run_forward(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const struct sl__custom_args *a = sl::args<sl__custom_args>(cl_arg);
  SL__INPUTS(x, a);
  struct sl_layer_task task = sl__custom_forward_task(a, buffers, x);
  sl__custom_ended(a, a->layer->kind->forward_cuda(&task, cuda->stream), &task);
}

SL__CUDA(custom_forward) { run_forward(buffers, cl_arg, cuda); }

SL__CUDA(custom_forward_saving) { run_forward(buffers, cl_arg, cuda); }

SL__CUDA(custom_backward_data) {
  const struct sl__custom_args *a = sl::args<sl__custom_args>(cl_arg);
  SL__INPUTS(x, a);
  struct sl_layer_task task = sl__custom_backward_task(a, buffers, x);
  task.dx = sl::out<float>(buffers, 1);
  if (!sl__accumulate(cl_arg) &&
      !sl::succeeded(cudaMemsetAsync(task.dx, 0, sl__custom_dx_bytes(a), cuda->stream)))
    return;
  sl__custom_ended(a, a->layer->kind->backward_data_cuda(&task, cuda->stream), &task);
}

SL__CUDA(custom_backward_weight) {
  const struct sl__custom_args *a = sl::args<sl__custom_args>(cl_arg);
  SL__INPUTS(x, a);
  struct sl_layer_task task = sl__custom_backward_task(a, buffers, x);
  float *grad = sl::out<float>(buffers, 1);
  for (int i = 0; i < a->layer->params; i++) task.grad[i] = grad + a->layer->offset[i];
  if (!sl__accumulate(cl_arg) &&
      !sl::succeeded(cudaMemsetAsync(grad, 0, sl__custom_grad_bytes(a), cuda->stream)))
    return;
  sl__custom_ended(a, a->layer->kind->backward_weight_cuda(&task, cuda->stream), &task);
}
