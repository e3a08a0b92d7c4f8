/* Sums of two tensors: arguments of the operations in add.c. */
#ifndef SL_CODELETS_ADD_H
#define SL_CODELETS_ADD_H

#include "codelets/activation.h"

struct sl__add_args {
  int64_t count;
  int32_t has_relu;
  int32_t terms; /* of the sum */
};

#endif
