/* Arguments of reduce. */
#ifndef SL_CODELETS_REDUCE_H
#define SL_CODELETS_REDUCE_H

#include <stdint.h>

struct sl__reduce_args {
  int64_t count, first; /* elements; those of the terms' tensors before them */
};

#endif
