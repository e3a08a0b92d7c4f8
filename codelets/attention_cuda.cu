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

/* x's heads, turned: a block a time step of a row. */
template <class T>
__global__ void turn(job w, int heads, const T *x, T *to) {
  int64_t n = blockIdx.x / w.a.steps, t = blockIdx.x % w.a.steps;
  int width = heads * w.a.dims;
  x += place_in_x(w, n, t, 0);
  to += blockIdx.x * static_cast<int64_t>(width);
  for (int i = static_cast<int>(threadIdx.x); i < width; i += static_cast<int>(blockDim.x)) {
    int head = i / w.a.dims, d = i % w.a.dims;
    to[i] = sl::narrow<T>(turned(w, t, x + head * w.a.dims, d, 1));
  }
}

/* ---- the softmax's gradient ----------------------------------------------------------------- */

/* delta = <y, dy> of each query: DELTA_LANES lanes each, eight values of each at a time. */
constexpr int DELTA_LANES = 8;

template <class T>
__global__ void find_delta(job w, bool aligned, const T *y, const T *dy) {
  int64_t at = sl::thread_index() / DELTA_LANES, count = w.a.rows * w.a.steps * w.a.heads;
  const int64_t from = (at < count ? at : 0) * w.a.dims;
  float sum = 0, a[8], b[8];
  for (int d = static_cast<int>(threadIdx.x) % DELTA_LANES * 8; d < w.a.dims;
       d += DELTA_LANES * 8) {
    read_eight(y + from + d, w.a.dims - d, aligned, a);
    read_eight(dy + from + d, w.a.dims - d, aligned, b);
#pragma unroll
    for (int i = 0; i < 8; i++) sum += a[i] * b[i];
  }
#pragma unroll
  for (int i = DELTA_LANES / 2; i; i /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, i);
  if (at < count && threadIdx.x % DELTA_LANES == 0) w.delta[at] = sum;
}

template <class T>
void find_deltas(struct sl__cuda *cuda, const job &w, const T *y, const T *dy) {
  unsigned blocks = sl::blocks(DELTA_LANES * w.a.rows * w.a.steps * w.a.heads);
  bool aligned = w.a.dims % 8 == 0 && sl::is_aligned(y) && sl::is_aligned(dy);
  SL__LAUNCH((find_delta<T>), blocks, sl::THREADS, 0, cuda->stream, w, aligned, y, dy);
}

/* ---- a task's memory ------------------------------------------------------------------------ */

/* The scratch memory: the turns; turned queries and keys, or keys and values where there is no
 * state; delta. See scratch_bytes in attention.c. */
job job_of(void *cl_arg, float *scratch, float *state) {
  job w = {};
  auto whole = [](int64_t floats) { return (floats + 15) / 16 * 16; };
  w.a = *sl::args<sl__attention_args>(cl_arg);
  w.add = sl__accumulate(cl_arg);
  w.context = state ? w.a.context : w.a.steps;
  w.turns = scratch;
  w.turned = scratch + whole(w.a.steps * w.a.o.rope_dims);
  w.cache = state ? state : w.turned;
  w.delta = w.turned + whole(sl__attention_copies(&w.a));
  return w;
}

void prepare_turns(struct sl__cuda *cuda, const job &w) {
  int64_t pairs = w.a.steps * (w.a.o.rope_dims / 2);
  if (pairs) SL__LAUNCH(find_turns, sl::blocks(pairs), sl::THREADS, 0, cuda->stream, w);
}

template <class T>
void prepare_cache(struct sl__cuda *cuda, const job &w, const T *x) {
  SL__LAUNCH((append<T>), static_cast<unsigned>(w.a.rows * w.a.steps), sl::THREADS, 0, cuda->stream,
             w, x, w.a.o.position);
}

/* ---- heads of up to 128 values, on tensor cores: ROWS and COLUMNS as shared memory allows ---- */

template <class V>
rows<V> rows_of(const job &w, const V *at, int64_t steps, int64_t step) {
  return {at, steps * step, step, w.a.dims % 8 == 0 && sl::is_aligned(at)};
}

/* Turned values are copied once; what is not turned, kernels read where it is. */
template <class T>
rows<T> queries_of(struct sl__cuda *cuda, const job &w, const T *x, int heads) {
  T *to = reinterpret_cast<T *>(w.turned);
  if (!w.a.o.rope_dims) return rows_of(w, x, w.a.steps, sl__attention_in(&w.a));
  SL__LAUNCH((turn<T>), static_cast<unsigned>(w.a.rows * w.a.steps), sl::THREADS, 0, cuda->stream,
             w, heads, x, to);
  return rows_of(w, static_cast<const T *>(to), w.a.steps, int64_t{heads} * w.a.dims);
}

template <class T>
factors<T, T> factors_of(struct sl__cuda *cuda, const job &w, const T *x) {
  factors<T, T> f{};
  f.q = queries_of(cuda, w, x, w.a.heads + w.a.kv_heads);
  f.kv[0] = f.q;
  f.kv[0].at += int64_t{w.a.heads} * w.a.dims;
  f.kv[1] = rows_of(w, x + int64_t{w.a.heads + w.a.kv_heads} * w.a.dims, w.a.steps,
                    sl__attention_in(&w.a));
  return f;
}

template <class T>
factors<T, float> factors_with_state(struct sl__cuda *cuda, const job &w, const T *x) {
  factors<T, float> f{};
  f.q = queries_of(cuda, w, x, w.a.heads);
  for (int i = 0; i < 2; i++)
    f.kv[i] = rows_of(w, static_cast<const float *>(w.cache) + i * int64_t{w.a.kv_heads} * w.a.dims,
                      w.context, sl__attention_state(&w.a));
  return f;
}

/* A block gets more than 48 KB of shared memory if the kernel asks for it. */
template <class K>
void allow_shared(K *kernel, size_t bytes) {
  if (bytes > 48 << 10)
    sl::succeeded(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(bytes)));
}

template <class S, class T, class Key>
void run_forward(void *buffers[], struct sl__cuda *cuda, const job &w, const factors<T, Key> &f) {
  int tiles = static_cast<int>((w.a.steps + S::ROWS - 1) / S::ROWS);
  allow_shared(forward_tiles<S, T, Key>, S::BYTES);
  SL__LAUNCH((forward_tiles<S, T, Key>), static_cast<unsigned>(w.a.rows * w.a.heads * tiles),
             S::THREADS, S::BYTES, cuda->stream, w, f, tiles, sl::out<T>(buffers, 1),
             sl::out<float>(buffers, 2));
}

/* Two stages where the copies need no thread's work. */
template <class Core, class Key>
constexpr int stages = Core::template KEEPS<Key> ? 2 : 1;

template <class Core, class T, class Key>
void forward_by_size(void *buffers[], struct sl__cuda *cuda, const job &w,
                     const factors<T, Key> &f) {
  constexpr bool halves = sizeof(typename Core::stored) == 2;
  constexpr int both = stages<Core, Key>;
  if (w.a.dims <= 64)
    run_forward<tiling<Core, 64, 64, halves || both == 1 ? 64 : 32, 1, both>>(buffers, cuda, w, f);
  else
    run_forward<tiling<Core, 128, 64, halves ? 64 : 16, 1, both>>(buffers, cuda, w, f);
}

template <class Core, class T>
void forward_on(void *buffers[], struct sl__cuda *cuda, const job &w, bool has_state) {
  const T *x = sl::in<T>(buffers, 0);
  if (has_state) {
    prepare_cache(cuda, w, x);
    forward_by_size<Core>(buffers, cuda, w, factors_with_state(cuda, w, x));
  } else
    forward_by_size<Core>(buffers, cuda, w, factors_of(cuda, w, x));
}

template <class S, class T, class Key>
void run_backward(void *buffers[], struct sl__cuda *cuda, const job &w, const factors<T, Key> &f,
                  float *dstate) {
  const float *lse = sl::in<float>(buffers, 2);
  int tiles = static_cast<int>((w.a.steps + S::ROWS - 1) / S::ROWS);
  int key_tiles = static_cast<int>((w.a.o.position + w.a.steps + S::ROWS - 1) / S::ROWS);
  size_t with_rows = S::BYTES + S::STAGES * S::COLUMNS * sizeof(query_row);
  allow_shared(backward_queries_tiles<S, T, Key>, S::BYTES);
  allow_shared(backward_keys_tiles<S, T, Key>, with_rows);
  SL__LAUNCH((backward_queries_tiles<S, T, Key>),
             static_cast<unsigned>(w.a.rows * w.a.heads * tiles), S::THREADS, S::BYTES,
             cuda->stream, w, f, tiles, lse, sl::out<T>(buffers, 4));
  SL__LAUNCH((backward_keys_tiles<S, T, Key>),
             static_cast<unsigned>(w.a.rows * w.a.kv_heads * key_tiles), S::THREADS, with_rows,
             cuda->stream, w, f, key_tiles, lse, sl::out<T>(buffers, 4), dstate);
}

template <class Core, class T, class Key>
void backward_by_size(void *buffers[], struct sl__cuda *cuda, const job &w, factors<T, Key> f,
                      float *dstate) {
  constexpr bool halves = sizeof(typename Core::stored) == 2;
  constexpr int both = stages<Core, Key>;
  f.dy = rows_of(w, sl::in<T>(buffers, 3), w.a.steps, sl__attention_out(&w.a));
  if (w.a.dims <= 64)
    run_backward<tiling<Core, 64, 64, 32, 2, both>>(buffers, cuda, w, f, dstate);
  else
    run_backward<tiling<Core, 128, halves ? 64 : 32, 16, 2, both>>(buffers, cuda, w, f, dstate);
}

template <class Core, class T>
void backward_on(void *buffers[], struct sl__cuda *cuda, const job &w, float *dstate) {
  const T *x = sl::in<T>(buffers, 0);
  if (dstate)
    backward_by_size<Core>(buffers, cuda, w, factors_with_state(cuda, w, x), dstate);
  else
    backward_by_size<Core>(buffers, cuda, w, factors_of(cuda, w, x), dstate);
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
  prepare_turns(cuda, w);
  if (!takes_tiles(cuda, w)) {
    prepare_cache(cuda, w, sl::in<T>(buffers, 0));
    forward_by_pairs<T>(buffers, cuda, w);
  } else if constexpr (sizeof(T) == 2)
    forward_on<sl::bf16_core, T>(buffers, cuda, w, has_state);
  else if (sl__tf32(cl_arg))
    forward_on<sl::tf32_core, T>(buffers, cuda, w, has_state);
  else
    forward_on<sl::float_core, T>(buffers, cuda, w, has_state);
}

template <class T>
void backward_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  bool has_state = sl::args<sl__attention_args>(cl_arg)->context != 0;
  float *dstate = has_state ? sl::out<float>(buffers, 7) : nullptr;
  job w =
      job_of(cl_arg, sl::out<float>(buffers, 5), has_state ? sl::out<float>(buffers, 6) : nullptr);
  prepare_turns(cuda, w);
  find_deltas(cuda, w, sl::in<T>(buffers, 1), sl::in<T>(buffers, 3));
  if (!takes_tiles(cuda, w)) {
    if (!has_state) prepare_cache(cuda, w, sl::in<T>(buffers, 0));
    backward_by_pairs<T>(buffers, cuda, w, dstate);
  } else if constexpr (sizeof(T) == 2)
    backward_on<sl::bf16_core, T>(buffers, cuda, w, dstate);
  else if (sl__tf32(cl_arg))
    backward_on<sl::tf32_core, T>(buffers, cuda, w, dstate);
  else
    backward_on<sl::float_core, T>(buffers, cuda, w, dstate);
}

}  // namespace

SL__CUDA(attention_forward) { SL__BY_TYPE(cl_arg, 0, T, forward_task<T>(buffers, cl_arg, cuda)); }

SL__CUDA(attention_backward) { SL__BY_TYPE(cl_arg, 0, T, backward_task<T>(buffers, cl_arg, cuda)); }
