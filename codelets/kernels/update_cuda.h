/* Common parts of the CUDA halves of reduce and of the optimizers: sums of tensors in their order,
 * and the element-wise work on them in the same pass over memory; one launch takes many such sums.
 * (PyTorch's "foreach" optimizers and NVIDIA's apex launch so: multi_tensor_apply.) Included by
 * *_cuda.cu only. */
#ifndef SL_CODELETS_KERNELS_UPDATE_CUDA_H
#define SL_CODELETS_KERNELS_UPDATE_CUDA_H

#include <string.h>

#include "codelets/kernels/cuda.h"
#include "codelets/kernels/update.h"

namespace sl {

constexpr int TERMS = 64; /* of one sum in a launch; more terms need another launch before */

struct terms {
  const float *at[TERMS];
  int count;
};

template <int M>
struct owned {
  float *at[M];
};

/* ---- device ---------------------------------------------------------------------------------- */

/* One sum of a launch: its addresses are M own tensors, then the terms. */
struct tensor_step {
  int64_t n;      /* values */
  uint32_t block; /* the launch's first block that works on it */
  uint16_t address;
  uint8_t terms;
  bool is_packed; /* all addresses are multiples of 16 */
};

/* All sums of a launch. It is an argument: no copy to the device, which a later step would have to
 * wait for. CUDA takes 4 KiB of arguments. */
constexpr int STEPS = 96, ADDRESSES = 288;
constexpr size_t ARGUMENT_BYTES = 4096;

struct step_table {
  float *address[ADDRESSES];
  tensor_step step[STEPS];
  int count;
};

/* at[0][p] + at[1][p] + ..., in that order; the loads are independent of the sums. */
template <int N, int M>
__device__ inline pack<float, N> sum_of(const step_table &s, const tensor_step &t, int64_t p) {
  pack<float, N> sum = reinterpret_cast<const pack<float, N> *>(s.address[t.address + M])[p];
#pragma unroll 4
  for (int k = 1; k < t.terms; k++) {
    pack<float, N> x = reinterpret_cast<const pack<float, N> *>(s.address[t.address + M + k])[p];
#pragma unroll
    for (int j = 0; j < N; j++) sum.v[j] += x.v[j];
  }
  return sum;
}

template <int N, int M, class F>
__device__ inline void step_pack(const F &f, float factor, int64_t p, const step_table &s,
                                 const tensor_step &t) {
  pack<float, N> x[M];
#pragma unroll
  for (int m = 0; m < M; m++)
    x[m] = reinterpret_cast<const pack<float, N> *>(s.address[t.address + m])[p];
  pack<float, N> g = sum_of<N, M>(s, t, p);
#pragma unroll
  for (int j = 0; j < N; j++) {
    float v[M];
#pragma unroll
    for (int m = 0; m < M; m++) v[m] = x[m].v[j];
    f(g.v[j] * factor, v);
#pragma unroll
    for (int m = 0; m < M; m++) x[m].v[j] = v[m];
  }
#pragma unroll
  for (int m = 0; m < M; m++)
    reinterpret_cast<pack<float, N> *>(s.address[t.address + m])[p] = x[m];
}

/* One thread a pack; the thread after the last pack takes the remaining values. */
template <int M, class F>
__global__ void step_tensors(F f, step_table s) {
  const tensor_step t = s.step[part_of_block(s.step, s.count)];
  int64_t p = static_cast<int64_t>(blockIdx.x - t.block) * blockDim.x + threadIdx.x;
  int64_t packs = t.is_packed ? t.n / 4 : 0;
  float factor = f.factor();
  if (p < packs)
    step_pack<4, M>(f, factor, p, s, t);
  else if (!t.is_packed && p < t.n)
    step_pack<1, M>(f, factor, p, s, t);
  else if (t.is_packed && p == packs)
    for (int64_t i = packs * 4; i < t.n; i++) step_pack<1, M>(f, factor, i, s, t);
}

/* ---- host ------------------------------------------------------------------------------------ */

/* The launch of steps f. They wait until they are launched, or until the table is full. */
template <int M, class F>
struct step_launch {
  struct sl__cuda *cuda;
  F f;
  step_table table = {};
  int addresses = 0;
  unsigned grid = 0;

  step_launch(struct sl__cuda *on, const F &of) : cuda(on), f(of) {}

  void add(int64_t n, const owned<M> &own, const terms &t) {
    if (table.count == STEPS || addresses + M + t.count > ADDRESSES) launch();
    tensor_step step = {n, grid, static_cast<uint16_t>(addresses), static_cast<uint8_t>(t.count),
                        true};
    for (int m = 0; m < M; m++) add_address(own.at[m], &step);
    for (int k = 0; k < t.count; k++) add_address(const_cast<float *>(t.at[k]), &step);
    grid += blocks(step.is_packed ? n / 4 + 1 : n);
    table.step[table.count++] = step;
  }

  void launch() {
    static_assert(sizeof(F) + sizeof(step_table) <= ARGUMENT_BYTES);
    if (table.count) SL__LAUNCH((step_tensors<M, F>), grid, THREADS, 0, cuda->stream, f, table);
    table.count = addresses = 0;
    grid = 0;
  }

 private:
  void add_address(float *at, tensor_step *step) {
    table.address[addresses++] = at;
    step->is_packed = step->is_packed && is_aligned(at);
  }
};

struct take_sum {
  __device__ float factor() const { return 1; }
  __device__ void operator()(float sum, float *own) const { own[0] = sum; }
};

/* Adds the step own = f(factor (lead + the buffers first..end-1), own) for n elements from `offset`
 * on (in the buffers from offset + skip on); lead may be NULL. Sums of more than TERMS terms begin
 * in `into`, which has space for n; then the step is launched at once. */
template <int M, class F>
void step(step_launch<M, F> *steps, int64_t offset, int64_t skip, int64_t n, const float *lead,
          void *buffers[], int first, int end, owned<M> own, float *into) {
  terms t;
  bool is_long = end - first + (lead != nullptr) > TERMS;
  for (;;) {
    t.count = 0;
    if (lead) t.at[t.count++] = lead;
    while (first < end && t.count < TERMS)
      t.at[t.count++] = in<float>(buffers, first++) + skip + offset;
    if (first == end) break;
    step_launch<1, take_sum> sum(steps->cuda, take_sum());
    sum.add(n, owned<1>{{into}}, t);
    sum.launch();
    lead = into;
  }
  for (int m = 0; m < M; m++) own.at[m] += offset;
  steps->add(n, own, t);
  if (is_long) steps->launch();
}

/* An optimizer's update: gradients are the buffers from M on, except the norm at the end. Long sums
 * begin in the workspace, one range of elements after the other. */
template <int M, class F>
void add_update(step_launch<M, F> *steps, const sl__update_args *a, void *buffers[], int end) {
  constexpr int64_t ROOM = SL__CUDA_WORKSPACE / sizeof(float);
  owned<M> own;
  for (int m = 0; m < M; m++) own.at[m] = out<float>(buffers, m);
  own.at[0] += a->param_first;
  int64_t n = a->count, part = end - M > TERMS ? ROOM : n, last = a->u.first + n;
  for (int64_t offset = a->u.first; offset < last; offset += part)
    step<M>(steps, offset, a->gradient_first, last - offset < part ? last - offset : part, nullptr,
            buffers, M, end, own, static_cast<float *>(steps->cuda->workspace));
}

/* The updates of several tensors: those with the same rates and the same norm are one launch. F: a
 * functor that is made of a struct sl__update and the norm, with operator== and __device__ members
 * factor() -> float and operator()(float sum, float *own). */
template <int M, class F>
void update(struct sl__cuda *cuda, int count, void **const buffers[], void *const cl_args[]) {
  auto end_of = [&](int i) {
    return sl__buffer_count(cl_args[i]) - args<sl__update_args>(cl_args[i])->has_norm;
  };
  auto functor = [&](int i) {
    const sl__update_args *a = args<sl__update_args>(cl_args[i]);
    return F(a->u, a->has_norm ? in<float>(buffers[i], end_of(i)) : nullptr);
  };
  step_launch<M, F> steps(cuda, functor(0));
  for (int i = 0; i < count; i++) {
    const F f = functor(i);
    if (!(f == steps.f)) steps.launch();
    steps.f = f;
    add_update(&steps, args<sl__update_args>(cl_args[i]), buffers[i], end_of(i));
  }
  steps.launch();
}

}  // namespace sl

#endif
