/* Common arguments of the CPU and CUDA kernels of accuracy. */
#ifndef SL_CODELETS_ACCURACY_H
#define SL_CODELETS_ACCURACY_H

#include <stdint.h>

struct sl__accuracy_args {
  int64_t rows, classes;
  int32_t top;
};

#endif
