/* Matrix products on a GPU, all through cuBLASLt, and the sums over rows that go with them. */
#ifndef SL_CODELETS_KERNELS_GEMM_CUDA_H
#define SL_CODELETS_KERNELS_GEMM_CUDA_H

#include <starling/nn.h>

#include "codelets/kernels/cuda.h"

namespace sl {

/* Products and sums use the first part of the worker's workspace; a task may keep its own values in
 * the rest meanwhile. */
constexpr size_t GEMM_WORKSPACE = SL__CUDA_WORKSPACE / 2;

enum epilogue { EPILOGUE_NONE, EPILOGUE_BIAS };

/* op(A) is [m, k], op(B) [k, n], row-major as in codelets/kernels/gemm.h; ld: elements between
 * rows. */
struct product {
  bool ta, tb; /* transposed */
  int64_t m, n, k;
  float alpha;
  int64_t lda, ldb;
  float beta;
  int64_t ldc;
  bool tf32; /* factors may be rounded to TensorFloat-32 */
  enum epilogue epilogue;
  const void *bias; /* [n], of type T */
  enum sl_activation activation;
};

/* C [m, n] = act(alpha op(A) op(B) + beta C + bias), the bias added to each row. A and B have type
 * T, C has type T or float; sums are in float. Every run gives the same bits. Returns false if the
 * task has failed. */
template <class T, class C>
bool gemm(struct sl__cuda *cuda, const product &p, const T *a, const T *b, C *c);

/* y[i, j] = act(y[i, j] + bias), i < rows, j < columns: adds bias[j], or if cycle is not 0 (one
 * bias for a whole row) bias[i % cycle]. bias may be NULL. */
template <class Y, class B>
void add_bias(struct sl__cuda *cuda, Y *y, int64_t rows, int64_t ld, int64_t columns, const B *bias,
              int64_t cycle, enum sl_activation activation);

/* out[j] (+)= the sum over i < rows of x[i * ld + j], j < columns: in float, in an order that
 * depends on the sizes only. */
template <class T>
void column_sums(struct sl__cuda *cuda, const T *x, int64_t rows, int64_t ld, int64_t columns,
                 float *out, bool add);

}  // namespace sl

#endif
