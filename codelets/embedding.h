/* Embedding: arguments, and the index of the n-th token, below 0 if it is none. */
#ifndef SL_CODELETS_EMBEDDING_H
#define SL_CODELETS_EMBEDDING_H

#include <stdint.h>

#include "codelets/rows.h"
#include "core/base/random.h" /* SL__HOST_DEVICE */
#include "core/base/simd.h"

struct sl__embedding_args {
  int64_t rows, columns, from, steps; /* tokens [rows, columns], of which `steps` columns count */
  int64_t vocabulary, features;
  int64_t floats; /* the tokens are whole f32 numbers: a field of a row of numbers */
};

struct sl__embedding_rows_args {
  struct sl__embedding_args tokens;
  struct sl__rows_args rows;
};

SL__HOST_DEVICE SL__INLINE int32_t sl__embedding_token_at(const struct sl__embedding_args *a,
                                                          const void *tokens, int64_t at) {
  if (!a->floats) return ((const int32_t *)tokens)[at];
  float value = ((const float *)tokens)[at];
  return value >= 0 && value < (float)a->vocabulary ? (int32_t)value : -1;
}

SL__HOST_DEVICE SL__INLINE int32_t sl__embedding_token(const struct sl__embedding_args *a,
                                                       const void *tokens, int64_t n) {
  int64_t at = n / a->steps * a->columns + a->from + n % a->steps;
  return sl__embedding_token_at(a, tokens, at);
}

SL__HOST_DEVICE SL__INLINE bool sl__embedding_has(const struct sl__embedding_args *a,
                                                  int32_t token) {
  return token >= 0 && token < a->vocabulary;
}

#endif
