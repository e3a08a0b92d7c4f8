/* CPU kernels compute in floats. For a task with bf16 tensors the adapter gives the kernel float
 * copies, and rounds its outputs back to bf16. So each kernel serves both types, and CPU and GPU
 * workers can run the same graph. On a GPU, where bf16 is fast, kernels read it directly. */
#ifndef SL_CODELETS_KERNELS_BF16_ADAPTER_H
#define SL_CODELETS_KERNELS_BF16_ADAPTER_H

typedef void sl__kernel(void *buffers[], void *cl_arg);

/* Runs the kernel on the task's buffers; modes as in struct sl__op. */
void sl__run_with_bf16_adapter(sl__kernel *kernel, const char *modes, void *buffers[],
                               void *cl_arg);

#endif
