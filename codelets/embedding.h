/* Embedding: arguments, and the index of the n-th token. */
#ifndef SL_CODELETS_EMBEDDING_H
#define SL_CODELETS_EMBEDDING_H

#include <stdint.h>

#include "codelets/rows.h"
#include "core/base/random.h" /* SL__HOST_DEVICE */
#include "core/base/simd.h"

struct sl__embedding_args {
  int64_t rows, columns, from, steps; /* tokens [rows, columns], of which `steps` columns count */
  int64_t vocabulary, features;
};

struct sl__embedding_rows_args {
  struct sl__embedding_args tokens;
  struct sl__rows_args rows;
};

SL__HOST_DEVICE SL__INLINE int32_t sl__embedding_token(const struct sl__embedding_args *a,
                                                       const int32_t *tokens, int64_t n) {
  return tokens[n / a->steps * a->columns + a->from + n % a->steps];
}

SL__HOST_DEVICE SL__INLINE bool sl__embedding_has(const struct sl__embedding_args *a,
                                                  int32_t token) {
  return token >= 0 && token < a->vocabulary;
}

#endif
