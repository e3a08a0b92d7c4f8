/* Max pooling. The gradient is gathered: each input visits the windows that contain it, in their
 * order, and adds the gradients of those whose maximum it was; scattering would need atomics. */
#include "codelets/kernels/cuda.h"
#include "codelets/kernels/index_cuda.h"
#include "codelets/kernels/pool2d.h"

namespace {

/* ---- any windows: one thread an output, or an input ---- */

template <class T>
__global__ void forward(sl__pool_args a, sl::planes outputs, int64_t count, const T *x, T *y,
                        int32_t *index) {
  int64_t i = sl::thread_index();
  if (i >= count) return;
  sl::place o = outputs(i);
  struct sl__pool_window v = sl__pool_window(&a, o.h, o.w);
  x += o.plane * a.height * a.width;
  int32_t at = v.h0 * a.width + v.w0;
  float best = sl::value(x[at]);
  for (int32_t h = v.h0; h < v.h1; h++)
    for (int32_t w = v.w0; w < v.w1; w++) {
      float value = sl::value(x[h * a.width + w]);
      if (sl__pool_wins(value, best)) best = value, at = h * a.width + w;
    }
  y[i] = sl::narrow<T>(best);
  index[i] = at;
}

template <class T>
__global__ void backward(sl__pool_args a, sl::planes inputs, int64_t count, const T *dy,
                         const int32_t *index, T *dx, bool add) {
  int64_t i = sl::thread_index();
  if (i >= count) return;
  sl::place p = inputs(i);
  struct sl__pool_reach rows =
      sl__pool_reach(p.h, a.out_height, a.pool.kernel_h, a.pool.stride_h, a.pool.pad_h);
  struct sl__pool_reach columns =
      sl__pool_reach(p.w, a.out_width, a.pool.kernel_w, a.pool.stride_w, a.pool.pad_w);
  int64_t plane = p.plane * a.out_height * a.out_width;
  int32_t at = p.h * a.width + p.w;
  float sum = add ? sl::value(dx[i]) : 0;
  for (int32_t oh = rows.first; oh <= rows.last; oh++)
    for (int32_t ow = columns.first; ow <= columns.last; ow++) {
      int64_t o = plane + oh * a.out_width + ow;
      if (index[o] == at) sum += sl::value(dy[o]);
    }
  dx[i] = sl::narrow<T>(sum);
}

/* ---- adjacent 2x2 windows, rows of whole packs: one thread a pack of outputs ---- */

constexpr int PACK = 4;

/* A pack's first output and first input. */
struct corner {
  int64_t output, input;
  int32_t in_plane; /* the input's place */
};

__device__ corner corner_of(const sl__pool_args &a, const sl::planes &packs, int64_t i) {
  sl::place p = packs(i);
  int32_t in_plane = 2 * p.h * a.width + 2 * PACK * p.w;
  return {PACK * i, p.plane * a.height * a.width + in_plane, in_plane};
}

template <class T>
__global__ void forward_2x2(sl__pool_args a, sl::planes packs, int64_t count, const T *x, T *y,
                            int32_t *index) {
  int64_t i = sl::thread_index();
  if (i >= count) return;
  corner c = corner_of(a, packs, i);
  using row = sl::pack<T, 2 * PACK>;
  row in[2] = {*reinterpret_cast<const row *>(x + c.input),
               *reinterpret_cast<const row *>(x + c.input + a.width)};
  sl::pack<T, PACK> maxima;
  sl::pack<int32_t, PACK> places;
#pragma unroll
  for (int k = 0; k < PACK; k++) {
    float best = sl::value(in[0].v[2 * k]);
    places.v[k] = c.in_plane + 2 * k;
#pragma unroll
    for (int j = 1; j < 4; j++) {
      float value = sl::value(in[j / 2].v[2 * k + j % 2]);
      if (sl__pool_wins(value, best))
        best = value, places.v[k] = c.in_plane + 2 * k + j / 2 * a.width + j % 2;
    }
    maxima.v[k] = sl::narrow<T>(best);
  }
  *reinterpret_cast<sl::pack<T, PACK> *>(y + c.output) = maxima;
  *reinterpret_cast<sl::pack<int32_t, PACK> *>(index + c.output) = places;
}

template <class T, bool ADD>
__global__ void backward_2x2(sl__pool_args a, sl::planes packs, int64_t count, const T *dy,
                             const int32_t *index, T *dx) {
  int64_t i = sl::thread_index();
  if (i >= count) return;
  corner c = corner_of(a, packs, i);
  using row = sl::pack<T, 2 * PACK>;
  sl::pack<T, PACK> slope = *reinterpret_cast<const sl::pack<T, PACK> *>(dy + c.output);
  sl::pack<int32_t, PACK> place =
      *reinterpret_cast<const sl::pack<int32_t, PACK> *>(index + c.output);
#pragma unroll
  for (int r = 0; r < 2; r++) {
    row *out = reinterpret_cast<row *>(dx + c.input + r * a.width), values;
    if constexpr (ADD) values = *out;
#pragma unroll
    for (int k = 0; k < 2 * PACK; k++) {
      bool chosen = place.v[k / 2] == c.in_plane + r * a.width + k;
      float value = chosen ? sl::value(slope.v[k / 2]) : 0;
      if constexpr (ADD) value += sl::value(values.v[k]);
      values.v[k] = sl::narrow<T>(value);
    }
    *out = values;
  }
}

/* If every input is in a window, the backward half can go by windows, too. */
bool in_packs(const sl__pool_args *a, bool filled, const void *x, const void *y,
              const void *index) {
  return sl__pool_is_2x2(&a->pool) && a->width % (2 * PACK) == 0 &&
         (!filled || a->height % 2 == 0) && sl::is_aligned(x) && sl::is_aligned(y) &&
         sl::is_aligned(index);
}

template <class T>
void forward_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__pool_args *a = sl::args<sl__pool_args>(cl_arg);
  const T *x = sl::in<T>(buffers, 0);
  T *y = sl::out<T>(buffers, 1);
  int32_t *index = sl::out<int32_t>(buffers, 2);
  int64_t count = int64_t{a->planes} * a->out_height * a->out_width;
  if (in_packs(a, false, x, y, index))
    SL__LAUNCH((forward_2x2<T>), sl::blocks(count / PACK), sl::THREADS, 0, cuda->stream, *a,
               sl::planes(a->out_height, a->out_width / PACK), count / PACK, x, y, index);
  else
    SL__LAUNCH((forward<T>), sl::blocks(count), sl::THREADS, 0, cuda->stream, *a,
               sl::planes(a->out_height, a->out_width), count, x, y, index);
}

template <class T>
void backward_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__pool_args *a = sl::args<sl__pool_args>(cl_arg);
  const T *dy = sl::in<T>(buffers, 0);
  const int32_t *index = sl::in<int32_t>(buffers, 1);
  T *dx = sl::out<T>(buffers, 2);
  int64_t inputs = int64_t{a->planes} * a->height * a->width;
  if (in_packs(a, true, dx, dy, index)) {
    int64_t packs = inputs / (4 * PACK);
    SL__LAUNCH((sl__accumulate(cl_arg) ? backward_2x2<T, true> : backward_2x2<T, false>),
               sl::blocks(packs), sl::THREADS, 0, cuda->stream, *a,
               sl::planes(a->out_height, a->out_width / PACK), packs, dy, index, dx);
  } else {
    SL__LAUNCH((backward<T>), sl::blocks(inputs), sl::THREADS, 0, cuda->stream, *a,
               sl::planes(a->height, a->width), inputs, dy, index, dx, sl__accumulate(cl_arg));
  }
}

}  // namespace

SL__CUDA(maxpool2d_forward) { SL__BY_TYPE(cl_arg, 0, T, forward_task<T>(buffers, cl_arg, cuda)); }

SL__CUDA(maxpool2d_backward) { SL__BY_TYPE(cl_arg, 0, T, backward_task<T>(buffers, cl_arg, cuda)); }
