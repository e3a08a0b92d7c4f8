#include <cublasLt.h>
extern "C" cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) { return *handle = (cublasLtHandle_t)new int, CUBLAS_STATUS_SUCCESS; }
extern "C" cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return delete (int *)handle, CUBLAS_STATUS_SUCCESS; }
