/* Counts the labels that are among the largest logits of their rows. */
#include "codelets/accuracy.h"

#include "codelets/kernels/team_cuda.h"

namespace {
/* The label's rank: number of logits that are larger, or equal and before it. */
template <class T, class TEAM>
__device__ int rank_of(const T *row, int32_t classes, int32_t label) {
  float own = sl::value(row[label]);
  int rank = 0;
#pragma unroll 8
  for (int32_t c = TEAM::rank(); c < classes; c += TEAM::size()) {
    float x = sl::value(row[c]);
    rank += x > own || (x == own && c < label);
  }
  return TEAM::sum(rank);
}

/* The sums: right, counted. */
template <class T, class TEAM>
__global__ void count_right(sl__accuracy_args a, const T *logits, const int32_t *labels,
                            sl::sums<2> sums) {
  double v[2] = {0, 0};
  for (int64_t n = TEAM::first(); n < a.rows; n += TEAM::count()) {
    int32_t label = labels[n];
    if (label < 0 || label >= a.classes) continue;
    int rank = rank_of<T, TEAM>(logits + n * a.classes, static_cast<int32_t>(a.classes), label);
    if (TEAM::rank()) continue;
    v[0] += rank < a.top;
    v[1] += 1;
  }
  sums.leave(v);
}

template <class T, class TEAM>
void launch(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__accuracy_args *a = sl::args<sl__accuracy_args>(cl_arg);
  sl::sums<2> sums = sl::sums_into<2>(cuda, sl::out<float>(buffers, 2));
  unsigned grid = sl::team_grid<TEAM>(a->rows, sl::THREADS);
  SL__LAUNCH((count_right<T, TEAM>), grid, sl::THREADS, 0, cuda->stream, *a, sl::in<T>(buffers, 0),
             sl::in<int32_t>(buffers, 1), sums);
  sl::finish(cuda, sums, grid);
}
}  // namespace

SL__CUDA(accuracy) {
  if (sl::args<sl__accuracy_args>(cl_arg)->classes <= sl::SHORT_ROW)
    SL__BY_TYPE(cl_arg, 0, T, launch<T, sl::warp_team>(buffers, cl_arg, cuda));
  else
    SL__BY_TYPE(cl_arg, 0, T, launch<T, sl::block_team>(buffers, cl_arg, cuda));
}
