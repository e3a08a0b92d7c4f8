/* What StarPU's library needs in order to load: handles of cuBLAS, cuSPARSE and cuSOLVER without
 * any function behind them. Each of these libraries exports only its own names of this file. Part
 * of the stand-in for a GPU, which only tests use. */
extern "C" {
#define HANDLE(create, destroy)                                                                    \
  int create(void **handle) { return *handle = new char, 0; }                                      \
  int destroy(void *handle) { return delete (char *)handle, 0; }
#define STREAM(name)                                                                               \
  int name(void *, cudaStream_t) { return 0; }
HANDLE(cublasCreate_v2, cublasDestroy_v2)
STREAM(cublasSetStream_v2)
int cublasInit() { return 0; }
int cublasShutdown() { return 0; }
int cublasSetKernelStream(cudaStream_t) { return 0; }
HANDLE(cusparseCreate, cusparseDestroy)
STREAM(cusparseSetStream)
HANDLE(cusolverDnCreate, cusolverDnDestroy)
STREAM(cusolverDnSetStream)
HANDLE(cusolverRfCreate, cusolverRfDestroy)
HANDLE(cusolverSpCreate, cusolverSpDestroy)
STREAM(cusolverSpSetStream)
}
