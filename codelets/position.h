/* Arguments of learned positions. */
#ifndef SL_CODELETS_POSITION_H
#define SL_CODELETS_POSITION_H

#include <stdint.h>

/* x [rows, steps, features]; step t has row first + t of the table [length, features]. */
struct sl__position_args {
  int64_t rows, steps, features, length, first;
};

#endif
