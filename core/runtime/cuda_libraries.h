/* cuBLASLt and cuDNN, loaded where StarPU has a GPU: on a machine without one, a build with CUDA
 * pays nothing for their hundreds of megabytes. *.cu only. */
#ifndef SL_CORE_RUNTIME_CUDA_LIBRARIES_H
#define SL_CORE_RUNTIME_CUDA_LIBRARIES_H

#include <cublasLt.h>
#include <cudnn.h>
#include <stddef.h>

namespace sl {

/* The functions that we call, by their names without the library's: cublaslt.Create is
 * cublasLtCreate. NULL until load_cuda_libraries. */
#define SL__FUNCTION(library, name) decltype(&library##name) name;
struct cublaslt_functions {
#include "core/runtime/cublaslt.def"
};
struct cudnn_functions {
#include "core/runtime/cudnn.def"
};
#undef SL__FUNCTION

/* Constant once loaded, and one process has one of each library. */
extern struct cublaslt_functions cublaslt;
extern struct cudnn_functions cudnn;

/* Loads both; a second call does nothing. Returns false and writes why into text: the library, what
 * the loader says, and the remedy. Not for several threads at a time. */
bool load_cuda_libraries(char *text, size_t size);

}  // namespace sl

#endif
