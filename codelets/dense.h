/* Arguments that the dense operations share. */
#ifndef SL_CODELETS_DENSE_H
#define SL_CODELETS_DENSE_H

#include <stdint.h>

struct sl__dense_args {
  int32_t rows, in, out, has_bias, activation;
  int32_t implementation; /* on a CPU */
  int32_t batch_invariant;
};

#endif
