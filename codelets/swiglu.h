/* Arguments of the gated linear unit; the arithmetic is activation.h's. */
#ifndef SL_CODELETS_SWIGLU_H
#define SL_CODELETS_SWIGLU_H

#include "codelets/activation.h"

/* x has 2 features values a row, y has features. */
struct sl__swiglu_args {
  int64_t rows, features;
};

#endif
