/* Resources of a CUDA worker for its kernels: a stream (StarPU's), library handles, a workspace.
 * They exist before the first task, so that no task allocates or waits. */
#ifndef SL_CORE_RUNTIME_CUDA_H
#define SL_CORE_RUNTIME_CUDA_H

#include "core/runtime/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* For every CUDA worker, shared by all contexts of the process: the first one creates them, and
 * they last until the last one closes. No worker is fine. \return SL_NO_MEMORY, or SL_NO_DEVICE
 * where a GPU is of an architecture that this build has no kernels for, or cuBLASLt or cuDNN cannot
 * be loaded. */
enum sl_status sl__cuda_open(struct sl_context *context);
void sl__cuda_close(struct sl_context *context);

/* Number of GPUs that CUDA shows to this process. May be called before StarPU starts. */
int sl__cuda_count(void);

/* Why there is no CUDA worker, into text: "CUDA says: no CUDA-capable device is detected". */
const char *sl__cuda_absence(char *text, size_t size);

/* Bytes of a memory node that StarPU counts as its own but that are in use: by other programs on
 * that GPU, by the workspace, by CUDA itself. 0 if the node is no GPU's. */
size_t sl__cuda_unusable(unsigned node);

/* Bytes of a CUDA worker's memory that one task's tensors may take together, measured at the
 * start; 0: no limit. StarPU waits for ever for memory that no eviction can free. */
size_t sl__cuda_task_limit(int worker);

/* The last error of the GPU that the calling thread works with: "CUDA: an illegal memory access
 * was encountered", and the GPU's worker. NULL: there is none. For a handler of SIGABRT: it only
 * reads an error that CUDA has stored. */
const char *sl__cuda_error(int *worker);

/* The calling thread's device, of which nothing is created; -1: CUDA does not say. */
int sl__cuda_current(void);

/* Before a thread allocates, pins or frees host memory, for which CUDA creates a context on the
 * thread's device. device: which the thread had before StarPU started, or -1 for its present one.
 * It stays current, but for GPU 0, which a thread has without a choice: where this process has no
 * worker there, its first worker's GPU becomes current. Once a thread, cheap afterwards. */
void sl__cuda_settle(int device);

/* Makes a GPU current for a call of MPI with device memory: a GPU worker's own, for other
 * threads the first worker's. \return what sl__cuda_restore gets after the call. */
int sl__cuda_make_current(void);

/* Makes the device current that a thread of the program had before; StarPU's threads need none. */
void sl__cuda_restore(int device);

/* Is device memory host memory, so that any MPI can use it? True for the stand-in if a test says
 * so. */
bool sl__cuda_is_host(void);

#ifdef __cplusplus
}
#endif

#ifdef SL__CUDA_SOURCE /* *.cu only */
#include <cuda_runtime_api.h>

#include "core/runtime/cuda_libraries.h"

/* Bytes of scratch memory that the tasks of one worker share: they follow each other on its stream.
 * cuBLAS asks for 32 MiB on Hopper; convolutions choose among algorithms that need no more. */
#define SL__CUDA_WORKSPACE ((size_t)64 << 20)

/* kernel<<<grid, block, shared, stream>>>(arguments); the stand-in has its own. */
#ifndef SL__LAUNCH
#define SL__LAUNCH(kernel, grid, block, shared, stream, ...)                                       \
  kernel<<<grid, block, shared, stream>>>(__VA_ARGS__)
#endif

/* Caches that an operation keeps between tasks (descriptors and algorithms by shape). */
enum sl__plan_cache_slot { SL__CUDA_MATMULS, SL__CUDA_CONVOLUTIONS, SL__PLAN_CACHES };

struct sl__cuda {
  int device, architecture; /* of the code that runs there: 900 for sm_90 */
  cudaStream_t stream;      /* StarPU's, but for a recording */
  cudaStream_t recording;   /* in its place while a CUDA graph is recorded: cuda_graph.h */
  cublasLtHandle_t lt;
  cudnnHandle_t dnn;
  void *workspace;
  struct {
    void *plans;
    void (*release)(void *plans);
  } plan_caches[SL__PLAN_CACHES];
  size_t unusable;   /* see sl__cuda_unusable */
  size_t task_limit; /* see sl__cuda_task_limit */
};

/* The calling worker's. */
struct sl__cuda *sl__cuda_here(void);

namespace sl {

/* Errors of earlier, asynchronous kernels: CUDA reports them at the next call, and the device is
 * unusable afterwards. */
inline bool is_late(cudaError_t result) {
  switch (result) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
#if CUDART_VERSION >= 12080
    case cudaErrorContained:
    case cudaErrorTensorMemoryLeak:
#endif
    case cudaErrorLaunchFailure: return true;
    default: return false;
  }
}

}  // namespace sl
#endif

#endif
