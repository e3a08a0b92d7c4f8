/* CPU kernels compute in floats. Where a task has bf16 tensors, its kernel gets them widened, and
 * what it writes is rounded back: so each kernel serves both types and both kinds of worker can run
 * the same graph. Where bf16 pays, on a GPU, kernels read it themselves. */
#ifndef SL_CODELETS_KERNELS_BF16_ADAPTER_H
#define SL_CODELETS_KERNELS_BF16_ADAPTER_H

typedef void sl__kernel(void *buffers[], void *cl_arg);

/* Runs the kernel on the task's buffers; modes as in struct sl__op. */
void sl__run_with_bf16_adapter(sl__kernel *kernel, const char *modes, void *buffers[],
                               void *cl_arg);

#endif
