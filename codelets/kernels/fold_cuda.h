/* y[i] = f(f(x0[i], x1[i]), x2[i]), ... of several tensors of one type, in that order, with one
 * rounding at the end. Included by *_cuda.cu only. */
#ifndef SL_CODELETS_KERNELS_FOLD_CUDA_H
#define SL_CODELETS_KERNELS_FOLD_CUDA_H

#include "codelets/kernels/cuda.h"

namespace sl {

/* ---- lists of any length ------------------------------------------------------------------ */

constexpr int SHORT_LIST = 16; /* a launch's arguments have room for one, but not for any list */

/* A kernel's argument: V is a pointer or a number. */
template <class V>
struct list {
  V first[SHORT_LIST];
  const V *rest = nullptr; /* the others, in the GPU's memory */

  __device__ V operator[](int i) const { return i < SHORT_LIST ? first[i] : rest[i - SHORT_LIST]; }
};

template <class V>
struct list_piece {
  V value[128];
};

template <class V>
__global__ void write_piece(list_piece<V> piece, int count, V *to) {
  if (static_cast<int>(threadIdx.x) < count) to[threadIdx.x] = piece.value[threadIdx.x];
}

/* The list of values(0), values(1), ...; those that the argument has no room for go to `memory`, by
 * launches, which have their arguments with them also where a CUDA graph records them. Moves
 * memory on. */
template <class V, class F>
list<V> list_of(struct sl__cuda *cuda, int count, char **memory, F values) {
  constexpr int PIECE = 128;
  list<V> all;
  V *rest = reinterpret_cast<V *>(*memory);
  for (int i = 0; i < count && i < SHORT_LIST; i++) all.first[i] = values(i);
  if (count <= SHORT_LIST) return all;
  all.rest = rest;
  for (int first = SHORT_LIST; first < count; first += PIECE) {
    list_piece<V> piece;
    int n = count - first < PIECE ? count - first : PIECE;
    for (int i = 0; i < n; i++) piece.value[i] = values(first + i);
    SL__LAUNCH((write_piece<V>), 1, PIECE, 0, cuda->stream, piece, n, rest + (first - SHORT_LIST));
  }
  *memory += static_cast<size_t>(count) * sizeof(V);
  return all;
}

/* The task's buffers, but for number `except`. */
template <class T>
struct operands {
  list<const T *> at;
  int count;

  operands(struct sl__cuda *cuda, void *buffers[], int buffer_count, int except, char **memory)
      : count(buffer_count - 1) {
    at = list_of<const T *>(cuda, count, memory,
                            [&](int i) { return in<T>(buffers, i < except ? i : i + 1); });
  }
};

/* ---- folds -------------------------------------------------------------------------------- */

/* end: a functor with a __device__ operator()(float folded) -> float. old: added to the result; or
 * NULL. */
template <class F, class End, class T>
__global__ void fold_kernel(F f, End end, operands<T> x, int64_t n, const T *old, T *y) {
  int64_t i = thread_index();
  if (i >= n) return;
  float v = value(x.at[0][i]);
  for (int k = 1; k < x.count; k++) v = f(v, value(x.at[k][i]));
  v = end(v);
  y[i] = narrow<T>(old ? value(old[i]) + v : v);
}

/* buffers: y's is number `to`. */
template <class T, class F, class End>
void fold(struct sl__cuda *cuda, F f, End end, void *buffers[], int buffer_count, int to, int64_t n,
          bool adds) {
  char *memory = static_cast<char *>(cuda->workspace);
  T *y = out<T>(buffers, to);
  operands<T> x(cuda, buffers, buffer_count, to, &memory);
  SL__LAUNCH((fold_kernel<F, End, T>), blocks(n), THREADS, 0, cuda->stream, f, end, x, n,
             adds ? static_cast<const T *>(y) : nullptr, y);
}

}  // namespace sl

#endif
