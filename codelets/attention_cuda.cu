/* Causal attention on a GPU: on tensor cores for heads of up to 128 values and architectures from
 * 8.0 on, else a thread a pair of query and key. No matrix of all queries and keys, no atomics. */
#include "codelets/attention.h"

#include "codelets/kernels/attention_pairs_cuda.h"
#include "codelets/kernels/attention_tiles_cuda.h"

namespace {

using namespace sl::attention;

/* ---- rotary position embedding ------------------------------------------------------------- */

__global__ void find_turns(job w) {
  int64_t at = sl::thread_index(), half = w.a.o.rope_dims / 2;
  if (at >= w.a.steps * half) return;
  int64_t t = at / half, i = at % half;
  sl__turn turn = sl__turn_of(static_cast<double>(w.a.o.position + t) * sl__rope_turns(&w.a.o, i));
  w.turns[t * 2 * half + i] = turn.cos;
  w.turns[t * 2 * half + half + i] = turn.sin;
}

/* x's keys, turned, and values go to the cache: a block a time step of a row. */
template <class T>
__global__ void append(job w, const T *x, int64_t position) {
  int64_t n = blockIdx.x / w.a.steps, t = blockIdx.x % w.a.steps;
  int width = static_cast<int>(sl__attention_state(&w.a));
  float *to = w.cache + (n * w.context + position + t) * width;
  for (int i = static_cast<int>(threadIdx.x); i < width; i += static_cast<int>(blockDim.x)) {
    int head = i / w.a.dims, d = i % w.a.dims;
    const T *from = x + place_in_x(w, n, t, w.a.heads + head);
    to[i] = head < w.a.kv_heads ? turned(w, t, from, d, 1) : sl::value(from[d]);
  }
}

/* ---- the softmax's gradient ----------------------------------------------------------------- */

/* delta = <y, dy> of each query: a warp each */
template <class T>
__global__ void find_delta(job w, const T *y, const T *dy) {
  int64_t at = sl::thread_index() / 32;
  if (at >= w.a.rows * w.a.steps * w.a.heads) return;
  float sum = 0;
  for (int64_t d = at * w.a.dims + threadIdx.x % 32; d < (at + 1) * w.a.dims; d += 32)
    sum += sl::value(y[d]) * sl::value(dy[d]);
  sum = sl::warp_sum(sum);
  if (threadIdx.x % 32 == 0) w.delta[at] = sum;
}

/* ---- a task's memory ------------------------------------------------------------------------ */

/* The scratch memory: the turns, keys and values where there is no state, delta; see scratch_bytes
 * in attention.c. */
job job_of(void *cl_arg, float *scratch, float *state) {
  job w = {};
  auto whole = [](int64_t floats) { return (floats + 15) / 16 * 16; };
  w.a = *sl::args<sl__attention_args>(cl_arg);
  w.add = sl__accumulate(cl_arg);
  w.context = state ? w.a.context : w.a.steps;
  w.turns = scratch;
  w.cache = state ? state : scratch + whole(w.a.steps * w.a.o.rope_dims);
  w.delta = scratch + whole(w.a.steps * w.a.o.rope_dims) +
            whole(state ? 0 : w.a.rows * w.a.steps * sl__attention_state(&w.a));
  return w;
}

template <class T>
void prepare(struct sl__cuda *cuda, const job &w, const T *x, bool keep) {
  int64_t pairs = w.a.steps * (w.a.o.rope_dims / 2);
  if (pairs) SL__LAUNCH(find_turns, sl::blocks(pairs), sl::THREADS, 0, cuda->stream, w);
  if (keep)
    SL__LAUNCH((append<T>), static_cast<unsigned>(w.a.rows * w.a.steps), sl::THREADS, 0,
               cuda->stream, w, x, w.a.o.position);
}

/* ---- heads of up to 128 values, on tensor cores: ROWS and COLUMNS as shared memory allows ---- */

template <class S, class T>
void run_forward(void *buffers[], struct sl__cuda *cuda, const job &w) {
  int64_t tiles = (w.a.steps + S::ROWS - 1) / S::ROWS;
  SL__LAUNCH((forward_tiles<S, T>), static_cast<unsigned>(w.a.rows * w.a.heads * tiles), S::THREADS,
             S::BYTES, cuda->stream, w, tiles, sl::in<T>(buffers, 0), sl::out<T>(buffers, 1),
             sl::out<float>(buffers, 2));
}

template <class Core, class T>
void forward_on(void *buffers[], struct sl__cuda *cuda, const job &w) {
  constexpr bool halves = sizeof(typename Core::stored) == 2;
  if (w.a.dims <= 64)
    run_forward<tiling<Core, 64, 64, halves ? 64 : 32, 1>, T>(buffers, cuda, w);
  else
    run_forward<tiling<Core, 128, halves ? 64 : 32, halves ? 32 : 16, 1>, T>(buffers, cuda, w);
}

template <class S, class T>
void run_backward(void *buffers[], struct sl__cuda *cuda, const job &w, float *dstate) {
  const T *x = sl::in<T>(buffers, 0), *dy = sl::in<T>(buffers, 3);
  const float *lse = sl::in<float>(buffers, 2);
  int64_t tiles = (w.a.steps + S::ROWS - 1) / S::ROWS;
  int64_t key_tiles = (w.a.o.position + w.a.steps + S::ROWS - 1) / S::ROWS;
  SL__LAUNCH((backward_queries_tiles<S, T>), static_cast<unsigned>(w.a.rows * w.a.heads * tiles),
             S::THREADS, S::BYTES, cuda->stream, w, tiles, x, lse, dy, sl::out<T>(buffers, 4));
  SL__LAUNCH((backward_keys_tiles<S, T>),
             static_cast<unsigned>(w.a.rows * w.a.kv_heads * key_tiles), S::THREADS,
             S::BYTES + S::COLUMNS * sizeof(query_row), cuda->stream, w, key_tiles, x, lse, dy,
             sl::out<T>(buffers, 4), dstate);
}

template <class Core, class T>
void backward_on(void *buffers[], struct sl__cuda *cuda, const job &w, float *dstate) {
  constexpr bool halves = sizeof(typename Core::stored) == 2;
  if (w.a.dims <= 64)
    run_backward<tiling<Core, 64, 64, halves ? 32 : 16, 2>, T>(buffers, cuda, w, dstate);
  else
    run_backward<tiling<Core, 128, halves ? 64 : 32, halves ? 16 : 8, 2>, T>(buffers, cuda, w,
                                                                             dstate);
}

/* ---- all others: a thread a pair of query and key -------------------------------------------- */

/* Bytes of `arrays` tiles of values and two of pairs. */
size_t shared_bytes(const job &w, int arrays) {
  return sizeof(float) * pairs::TILE *
         static_cast<size_t>(arrays * (w.a.dims + 1) + 2 * (pairs::TILE + 1));
}
constexpr int PAIRS = pairs::TILE * pairs::TILE;

template <class T>
void forward_by_pairs(void *buffers[], struct sl__cuda *cuda, const job &w) {
  int64_t tiles = (w.a.steps + pairs::TILE - 1) / pairs::TILE;
  SL__LAUNCH((pairs::forward<T>), static_cast<unsigned>(w.a.rows * w.a.heads * tiles), PAIRS,
             shared_bytes(w, 2), cuda->stream, w, tiles, sl::in<T>(buffers, 0),
             sl::out<T>(buffers, 1), sl::out<float>(buffers, 2));
}

template <class T>
void backward_by_pairs(void *buffers[], struct sl__cuda *cuda, const job &w, float *dstate) {
  const T *x = sl::in<T>(buffers, 0), *dy = sl::in<T>(buffers, 3);
  const float *lse = sl::in<float>(buffers, 2);
  int64_t tiles = (w.a.steps + pairs::TILE - 1) / pairs::TILE;
  int64_t key_tiles = (w.a.o.position + w.a.steps + pairs::TILE - 1) / pairs::TILE;
  SL__LAUNCH((pairs::backward_queries<T>), static_cast<unsigned>(w.a.rows * w.a.heads * tiles),
             PAIRS, shared_bytes(w, 3), cuda->stream, w, tiles, x, lse, dy, sl::out<T>(buffers, 4));
  SL__LAUNCH((pairs::backward_keys<T>), static_cast<unsigned>(w.a.rows * w.a.kv_heads * key_tiles),
             PAIRS, shared_bytes(w, 4), cuda->stream, w, key_tiles, x, lse, dy,
             sl::out<T>(buffers, 4), dstate);
}

/* ---- tasks --------------------------------------------------------------------------------- */

constexpr int MOST_TILE_DIMS = 128;

bool takes_tiles(const struct sl__cuda *cuda, const job &w) {
  return cuda->architecture >= 800 && w.a.dims <= MOST_TILE_DIMS;
}

template <class T>
void forward_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  bool has_state = sl::args<sl__attention_args>(cl_arg)->context != 0;
  job w =
      job_of(cl_arg, sl::out<float>(buffers, 3), has_state ? sl::out<float>(buffers, 4) : nullptr);
  prepare(cuda, w, sl::in<T>(buffers, 0), true);
  if (!takes_tiles(cuda, w))
    forward_by_pairs<T>(buffers, cuda, w);
  else if constexpr (sizeof(T) == 2)
    forward_on<sl::bf16_core, T>(buffers, cuda, w);
  else if (sl__tf32(cl_arg))
    forward_on<sl::tf32_core, T>(buffers, cuda, w);
  else
    forward_on<sl::float_core, T>(buffers, cuda, w);
}

template <class T>
void backward_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  bool has_state = sl::args<sl__attention_args>(cl_arg)->context != 0;
  float *dstate = has_state ? sl::out<float>(buffers, 7) : nullptr;
  job w =
      job_of(cl_arg, sl::out<float>(buffers, 5), has_state ? sl::out<float>(buffers, 6) : nullptr);
  prepare(cuda, w, sl::in<T>(buffers, 0), !has_state);
  SL__LAUNCH((find_delta<T>), sl::blocks(32 * w.a.rows * w.a.steps * w.a.heads), sl::THREADS, 0,
             cuda->stream, w, sl::in<T>(buffers, 1), sl::in<T>(buffers, 3));
  if (!takes_tiles(cuda, w))
    backward_by_pairs<T>(buffers, cuda, w, dstate);
  else if constexpr (sizeof(T) == 2)
    backward_on<sl::bf16_core, T>(buffers, cuda, w, dstate);
  else if (sl__tf32(cl_arg))
    backward_on<sl::tf32_core, T>(buffers, cuda, w, dstate);
  else
    backward_on<sl::float_core, T>(buffers, cuda, w, dstate);
}

}  // namespace

SL__CUDA(attention_forward) { SL__BY_TYPE(cl_arg, 0, T, forward_task<T>(buffers, cl_arg, cuda)); }

SL__CUDA(attention_backward) { SL__BY_TYPE(cl_arg, 0, T, backward_task<T>(buffers, cl_arg, cuda)); }
