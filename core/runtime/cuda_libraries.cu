#include "core/runtime/cuda_libraries.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

namespace sl {

struct cublaslt_functions cublaslt;
struct cudnn_functions cudnn;

}  // namespace sl

namespace {

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
constexpr char cublaslt_file[] = "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR);
constexpr char cudnn_file[] = "libcudnn.so." TEXT(CUDNN_MAJOR);

/* A library's functions, and the bytes of the table's pointers to them in the same order. */
struct library {
  const char *file;
  const char *const *names;
  unsigned char *functions;
  size_t count;
};

#define SL__FUNCTION(library, name) #library #name,
const char *const cublaslt_names[] = {
#include "core/runtime/cublaslt.def"
};
const char *const cudnn_names[] = {
#include "core/runtime/cudnn.def"
};
#undef SL__FUNCTION

bool is_loaded(const library &l) {
  void *first;
  memcpy(&first, l.functions, sizeof first);
  return first;
}

/* Libraries stay loaded: a thread or a handler of theirs may run until the process ends. */
bool load(const library &l, char *text, size_t size) {
  void *handle = dlopen(l.file, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    snprintf(text, size,
             "%s, which a GPU needs, cannot be loaded (%s); LD_LIBRARY_PATH may name its folder",
             l.file, dlerror());
    return false;
  }
  for (size_t i = 0; i < l.count; i++) {
    void *function = dlsym(handle, l.names[i]);
    memcpy(l.functions + i * sizeof function, &function, sizeof function);
    if (function) continue;
    snprintf(text, size, "%s has no function %s: this build needs another version", l.file,
             l.names[i]);
    memset(l.functions, 0, sizeof function);
    return false;
  }
  return true;
}

}  // namespace

bool sl::load_cuda_libraries(char *text, size_t size) {
  static_assert(
      sizeof sl::cublaslt == sizeof cublaslt_names && sizeof sl::cudnn == sizeof cudnn_names,
      "a table has a pointer for each name");
  const library all[] = {
      {cublaslt_file, cublaslt_names, reinterpret_cast<unsigned char *>(&sl::cublaslt),
       sizeof cublaslt_names / sizeof *cublaslt_names},
      {cudnn_file, cudnn_names, reinterpret_cast<unsigned char *>(&sl::cudnn),
       sizeof cudnn_names / sizeof *cudnn_names}};
  for (const library &l : all)
    if (!is_loaded(l) && !load(l, text, size)) return false;
  return true;
}
