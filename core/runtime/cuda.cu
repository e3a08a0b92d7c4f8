#define SL__CUDA_SOURCE
#include "core/runtime/cuda.h"

#include <pthread.h>
#include <starpu_cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include "core/base/error.h"
}

/* Kernels get no pointer of the library's, so this cannot be in the context; StarPU, too, exists
 * once in a process. Only its worker uses an entry. */
static struct sl__cuda workers[STARPU_NMAXWORKERS];
/* Open contexts that use them, under the lock, which openings and closings hold. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int users;
/* The first failure while opening; written by workers in turn. */
static enum sl_status opening_status;
static char opening[640];

struct sl__cuda *sl__cuda_here(void) {
  return &workers[starpu_worker_get_id()];
}

/* The answer is the architecture that this code was compiled for, which may be older than the GPU.
 */
static __global__ void probe([[maybe_unused]] int *answer) {
#if defined SL_CUDA_STANDIN
  *answer = sl_standin::architecture();
#elif defined __CUDA_ARCH__
  *answer = __CUDA_ARCH__;
#endif
}

static void fail_opening(enum sl_status status, const char *what, const char *why) {
  if (*opening) return;
  opening_status = status;
  snprintf(opening, sizeof opening, "%s: %s", what, why);
}

/* A launch finds out whether this build has kernels for the architecture. */
static void try_kernel(struct sl__cuda *w) {
  struct cudaDeviceProp p;
  char what[448];
  if (cudaGetDeviceProperties(&p, w->device) != cudaSuccess) memset(&p, 0, sizeof p);
  cudaGetLastError(); /* what StarPU met with while it started */
  SL__LAUNCH(probe, 1, 1, 0, w->stream, (int *)w->workspace);
  cudaError_t result = cudaGetLastError();
  if (result == cudaSuccess)
    result = cudaMemcpyAsync(&w->architecture, w->workspace, sizeof w->architecture,
                             cudaMemcpyDeviceToHost, w->stream);
  if (result == cudaSuccess) result = cudaStreamSynchronize(w->stream);
  if (result == cudaSuccess) return;
  snprintf(what, sizeof what,
           "GPU %d (%s, architecture %d%d) runs none of this build's kernels (%s); configure with "
           "--with-cuda-arch=%d%d",
           w->device, p.name, p.major, p.minor, SL_CUDA_ARCHITECTURES, p.major, p.minor);
  fail_opening(SL_NO_DEVICE, what, cudaGetErrorString(result));
}

/* StarPU counts nine tenths of a GPU's memory as its own, even if other programs use it, and
 * waits for ever for memory that it believes to have. A lower limit of StarPU's stays. */
static void account(struct sl__cuda *w) {
  size_t left = 0, all = 0;
  unsigned node = starpu_worker_get_memory_node(starpu_worker_get_id());
  starpu_ssize_t limit = starpu_memory_get_total(node);
  if (limit <= 0 || cudaMemGetInfo(&left, &all) != cudaSuccess) return;
  size_t room = left / 10 * 9 + sl__cuda_unusable(node); /* by other workers of this GPU */
  w->unusable = (size_t)limit > room ? (size_t)limit - room : 0;
  if (w->unusable) starpu_memory_allocate(node, w->unusable, STARPU_MEMORY_OVERFLOW);
}

static void open_worker(void *unused) {
  struct sl__cuda *w = sl__cuda_here();
  (void)unused;
  w->device = starpu_worker_get_devid(starpu_worker_get_id());
  w->stream = starpu_cuda_get_local_stream();
  cudaError_t memory = cudaMalloc(&w->workspace, SL__CUDA_WORKSPACE);
  if (memory != cudaSuccess) {
    char what[96];
    cudaGetLastError();
    w->workspace = NULL;
    snprintf(what, sizeof what, "GPU %d has no room for a workspace of %zu MiB", w->device,
             SL__CUDA_WORKSPACE >> 20);
    fail_opening(SL_NO_MEMORY, what, cudaGetErrorString(memory));
    return;
  }
  account(w);
  try_kernel(w);
  if (*opening) return;
  cudaError_t stream = cudaStreamCreateWithFlags(&w->recording, cudaStreamNonBlocking);
  if (stream != cudaSuccess)
    fail_opening(SL_STARPU, "a GPU has no stream to record on", cudaGetErrorString(stream));
  cublasStatus_t blas = sl::cublaslt.Create(&w->lt);
  if (blas != CUBLAS_STATUS_SUCCESS)
    fail_opening(SL_STARPU, "cuBLASLt does not start", sl::cublaslt.GetStatusString(blas));
  cudnnStatus_t dnn = sl::cudnn.Create(&w->dnn);
  if (dnn == CUDNN_STATUS_SUCCESS) dnn = sl::cudnn.SetStream(w->dnn, w->stream);
  if (dnn != CUDNN_STATUS_SUCCESS)
    fail_opening(SL_STARPU, "cuDNN does not start", sl::cudnn.GetErrorString(dnn));
  cudaStreamSynchronize(w->stream); /* StarPU aborts if this function left work behind */
}

static void close_worker(void *unused) {
  struct sl__cuda *w = sl__cuda_here();
  (void)unused;
  for (int i = 0; i < SL__PLAN_CACHES; i++)
    if (w->plan_caches[i].plans) w->plan_caches[i].release(w->plan_caches[i].plans);
  if (w->dnn) sl::cudnn.Destroy(w->dnn);
  if (w->lt) sl::cublaslt.Destroy(w->lt);
  if (w->recording) cudaStreamDestroy(w->recording);
  if (w->workspace) cudaFree(w->workspace);
  if (w->unusable)
    starpu_memory_deallocate(starpu_worker_get_memory_node(starpu_worker_get_id()), w->unusable);
  *w = (struct sl__cuda){};
}

/* Bytes of a worker's memory node for one task, when all workers have their workspaces. */
static size_t measure_task_limit(int worker) {
  /* StarPU's chunks of small blocks: one that is not full for each end of the list */
  const size_t chunks = (size_t)64 << 20;
  unsigned node = starpu_worker_get_memory_node(worker);
  starpu_ssize_t total = starpu_memory_get_total(node);
  size_t lost = sl__cuda_unusable(node);
  if (total <= 0) return 0;
  if (starpu_getenv_number("STARPU_SUBALLOCATOR") != 0) lost += chunks;
  return (size_t)total > lost ? (size_t)total - lost : 1;
}

/* One after the other: a failure's text is written without a lock. */
static void open_workers(void) {
  *opening = 0;
  for (int i = 0; i < starpu_worker_get_count_by_type(STARPU_CUDA_WORKER); i++) {
    unsigned worker = (unsigned)starpu_worker_get_by_type(STARPU_CUDA_WORKER, i);
    starpu_execute_on_specific_workers(open_worker, NULL, 1, &worker, "open");
  }
  for (int i = 0; i < starpu_worker_get_count_by_type(STARPU_CUDA_WORKER); i++) {
    int worker = starpu_worker_get_by_type(STARPU_CUDA_WORKER, i);
    workers[worker].task_limit = measure_task_limit(worker);
  }
}

/* A context whose opening fails is a user, too, until it is closed. */
static enum sl_status add_user(struct sl_context *context) {
  char why[512];
  if (!sl::load_cuda_libraries(why, sizeof why))
    return sl__fail(SL_NO_DEVICE, "%s; STARPU_NCUDA=0 leaves GPUs out", why);
  if (!users++) open_workers();
  context->uses_gpus = true;
  if (!*opening) return SL_OK;
  return sl__fail(opening_status, "%s; STARPU_NCUDA=0 leaves GPUs out", opening);
}

enum sl_status sl__cuda_open(struct sl_context *context) {
  if (!starpu_cuda_worker_get_count()) return SL_OK;
  pthread_mutex_lock(&lock);
  enum sl_status status = add_user(context);
  pthread_mutex_unlock(&lock);
  return status;
}

void sl__cuda_close(struct sl_context *context) {
  if (!context->uses_gpus) return;
  pthread_mutex_lock(&lock);
  if (!--users) starpu_execute_on_each_worker(close_worker, NULL, STARPU_CUDA);
  context->uses_gpus = false;
  pthread_mutex_unlock(&lock);
}

int sl__cuda_count(void) {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

const char *sl__cuda_absence(char *text, size_t size) {
  int count = 0;
  cudaError_t result = cudaGetDeviceCount(&count);
  cudaGetLastError();
  if (result == cudaSuccess && count)
    snprintf(text, size, "StarPU uses none of the %d GPUs; STARPU_NCUDA may be why", count);
  else
    snprintf(text, size, "CUDA says: %s",
             result == cudaSuccess ? "there is no GPU" : cudaGetErrorString(result));
  return text;
}

size_t sl__cuda_unusable(unsigned node) {
  size_t bytes = 0;
  for (int i = 0; i < starpu_worker_get_count_by_type(STARPU_CUDA_WORKER); i++) {
    int worker = starpu_worker_get_by_type(STARPU_CUDA_WORKER, i);
    if (starpu_worker_get_memory_node(worker) == node) bytes += workers[worker].unusable;
  }
  return bytes;
}

size_t sl__cuda_task_limit(int worker) { return workers[worker].task_limit; }

const char *sl__cuda_error(int *worker) {
  int device;
  cudaError_t result = cudaPeekAtLastError();
  *worker = -1;
  if (result == cudaSuccess || result == cudaErrorNotReady) return NULL;
  if (cudaGetDevice(&device) == cudaSuccess)
    *worker = starpu_worker_get_by_devid(STARPU_CUDA_WORKER, device);
  return *worker < 0 ? NULL : cudaGetErrorString(result);
}

/* A thread that never chose a device has device 0. To make it current creates a context there as of
 * CUDA 12, in each rank of a machine, and takes its memory: only where this process uses it. */
static bool may_return_to(int device) {
  return device > 0 || starpu_worker_get_by_devid(STARPU_CUDA_WORKER, device) >= 0;
}

int sl__cuda_current(void) {
  int device;
  if (cudaGetDevice(&device) == cudaSuccess) return device;
  cudaGetLastError();
  return -1;
}

static bool is_gpu_worker(int worker) {
  return worker >= 0 && starpu_worker_get_type(worker) == STARPU_CUDA_WORKER;
}

void sl__cuda_settle(int device) {
  static thread_local bool settled;
  if (settled || !starpu_cuda_worker_get_count()) return;
  settled = true;
  if (is_gpu_worker(starpu_worker_get_id())) return;
  int now = sl__cuda_current();
  if (device < 0) device = now;
  if (!may_return_to(device))
    device = starpu_worker_get_devid(starpu_worker_get_by_type(STARPU_CUDA_WORKER, 0));
  if (device != now) cudaSetDevice(device);
}

int sl__cuda_make_current(void) {
  int worker = starpu_worker_get_id(), first = starpu_worker_get_by_type(STARPU_CUDA_WORKER, 0);
  if (first < 0 || is_gpu_worker(worker)) return -1;
  int before = worker < 0 ? sl__cuda_current() : -1;
  cudaSetDevice(starpu_worker_get_devid(first));
  return before >= 0 && may_return_to(before) ? before : -1;
}

void sl__cuda_restore(int device) {
  if (device >= 0) cudaSetDevice(device);
}

bool sl__cuda_is_host(void) {
#ifdef SL_CUDA_STANDIN
  const char *wish = getenv("SL_STANDIN_MPI_AWARE");
  return wish && *wish == '1';
#else
  return false;
#endif
}
