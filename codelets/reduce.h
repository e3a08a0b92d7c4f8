/* Arguments of reduce and square_sum. */
#ifndef SL_CODELETS_REDUCE_H
#define SL_CODELETS_REDUCE_H

#include <stdint.h>

struct sl__reduce_args {
  int64_t count, first; /* elements; those before them in the tensors that are read */
};

#endif
