/* Causal attention in tiles of queries by keys: a thread a pair of a tile. A block has a tile of
 * queries and goes over the keys, forward and for the queries' gradient; for the gradient of keys
 * and values it has a tile of keys and goes over the queries. So each sum has one owner: no
 * atomics. Keys are in tiles from the sequence's begin on: the bits do not depend on chunks. */
#include "codelets/attention.h"

#include "codelets/activation.h"
#include "codelets/dropout.h"
#include "codelets/kernels/cuda.h"

namespace {

constexpr int SMALL = 8, LARGE = 16, LARGE_DIMS = 128; /* tiles, by a head's values */

/* The arguments of all kernels of a task. cache [rows, context, 2, kv_heads, dims]: the state, or
 * scratch memory of the same layout. */
struct job {
  sl__attention_args a;
  int64_t context;
  float *turns, *cache, *delta;
  bool add;
};

__device__ int64_t group_of(const job &w) { return w.a.heads / w.a.kv_heads; }
__device__ int64_t keys_of(const job &w) { return w.a.o.position + w.a.steps; }

/* Row n's keys (which: 0) or values (1) of a step, from its head on. */
__device__ int64_t place_in_cache(const job &w, int64_t n, int64_t position, int which,
                                  int64_t kv) {
  return (n * w.context + position) * sl__attention_state(&w.a) +
         (which * w.a.kv_heads + kv) * w.a.dims;
}
__device__ int64_t place_in_x(const job &w, int64_t n, int64_t t, int64_t head) {
  return (n * w.a.steps + t) * sl__attention_in(&w.a) + head * w.a.dims;
}
__device__ int64_t place_in_y(const job &w, int64_t n, int64_t t, int64_t head) {
  return (n * w.a.steps + t) * sl__attention_out(&w.a) + head * w.a.dims;
}
__device__ int64_t place_in_lse(const job &w, int64_t n, int64_t t, int64_t head) {
  return (n * w.a.steps + t) * w.a.heads + head;
}

/* ---- rotary position embedding ------------------------------------------------------------- */

__global__ void find_turns(job w) {
  int64_t at = sl::thread_index(), half = w.a.o.rope_dims / 2;
  if (at >= w.a.steps * half) return;
  int64_t t = at / half, i = at % half;
  sl__turn turn = sl__turn_of(static_cast<double>(w.a.o.position + t) * sl__rope_turns(&w.a.o, i));
  w.turns[t * 2 * half + i] = turn.cos;
  w.turns[t * 2 * half + half + i] = turn.sin;
}

/* Value d of a head of time step t, turned; direction -1: back. */
template <class T>
__device__ float turned(const job &w, int64_t t, const T *x, int64_t d, float direction) {
  int64_t half = w.a.o.rope_dims / 2;
  if (d >= 2 * half) return sl::value(x[d]);
  const float *turns = w.turns + t * 2 * half;
  int64_t i = d < half ? d : d - half;
  float c = turns[i], s = direction * turns[half + i];
  float first = sl::value(x[i]), second = sl::value(x[half + i]);
  return d < half ? first * c - second * s : second * c + first * s;
}

/* x's keys, turned, and values go to the cache. */
template <class T>
__global__ void append(job w, const T *x, int64_t position) {
  int64_t width = sl__attention_state(&w.a), at = sl::thread_index();
  if (at >= w.a.rows * w.a.steps * width) return;
  int64_t t = at / width % w.a.steps, n = at / width / w.a.steps, i = at % width;
  int64_t head = i / w.a.dims, d = i % w.a.dims;
  const T *from = x + place_in_x(w, n, t, w.a.heads + head);
  w.cache[(n * w.context + position + t) * width + i] =
      head < w.a.kv_heads ? turned(w, t, from, d, 1) : sl::value(from[d]);
}

/* ---- tiles --------------------------------------------------------------------------------- */

/* The block's part of the work, and the thread's row and column in a tile. */
template <int TILE>
struct place {
  int64_t n, head, first; /* head of queries, or of keys; first row of the tile */
  int r, lane;

  __device__ place(int64_t heads, int64_t tiles) {
    int64_t block = blockIdx.x;
    first = block % tiles * TILE;
    head = block / tiles % heads;
    n = block / tiles / heads;
    r = static_cast<int>(threadIdx.x) / TILE;
    lane = static_cast<int>(threadIdx.x) % TILE;
  }
};

/* A tile of keys or values of shared memory, rows dims + 1 apart; zeros beyond the last key. */
template <int TILE>
__device__ void load_keys(const job &w, const place<TILE> &b, int64_t kv, int64_t first, int which,
                          float *to) {
  int64_t key = first + b.r;
  const float *from = w.cache + place_in_cache(w, b.n, key, which, kv);
  for (int d = b.lane; d < w.a.dims; d += TILE)
    to[b.r * (w.a.dims + 1) + d] = key < keys_of(w) ? from[d] : 0;
}

/* Row r of a tile: the query of a head at time step t, turned and scaled; zeros beyond the steps.
 */
template <int TILE, class T>
__device__ void load_query(const job &w, const place<TILE> &b, int64_t t, int64_t head, const T *x,
                           float *to) {
  for (int d = b.lane; d < w.a.dims; d += TILE)
    to[b.r * (w.a.dims + 1) + d] =
        t >= 0 && t < w.a.steps ? turned(w, t, x + place_in_x(w, b.n, t, head), d, 1) * w.a.scale
                                : 0;
}
template <int TILE, class T>
__device__ void load_slope(const job &w, const place<TILE> &b, int64_t t, int64_t head, const T *dy,
                           float *to) {
  for (int d = b.lane; d < w.a.dims; d += TILE)
    to[b.r * (w.a.dims + 1) + d] =
        t >= 0 && t < w.a.steps ? sl::value(dy[place_in_y(w, b.n, t, head) + d]) : 0;
}

__device__ float dot(const job &w, const float *a, const float *b) {
  float sum = 0;
  for (int d = 0; d < w.a.dims; d++) sum += a[d] * b[d];
  return sum;
}

__device__ float factor(const job &w, int64_t n, int64_t head, int64_t query, int64_t key) {
  const sl__dropout &d = w.a.o.dropout;
  if (!(d.rate > 0)) return 1;
  return sl__dropout_factor(d.rate, d.seed, d.stream,
                            sl__attention_draw(&w.a, n, head, query) + static_cast<uint64_t>(key));
}

/* ---- forward ------------------------------------------------------------------------------- */

template <class T, int TILE>
__global__ void __launch_bounds__(TILE *TILE, 1024 / (TILE * TILE))
    forward(job w, int64_t tiles, const T *x, T *y, float *lse) {
  SL__SHARED(float, memory);
  const place<TILE> b(w.a.heads, tiles);
  int dims = w.a.dims, pitch = dims + 1;
  float *q = memory, *kv = q + TILE * pitch, *p = kv + TILE * pitch + b.r * (TILE + 1);
  int64_t t = b.first + b.r, query = w.a.o.position + t, group = b.head / group_of(w);
  int64_t last = w.a.o.position + (b.first + TILE < w.a.steps ? b.first + TILE : w.a.steps) - 1;
  float o[SL__ATTENTION_MOST_DIMS / SMALL] = {0}, most = -INFINITY, sum = 0;
  load_query(w, b, t, b.head, x, q);
  for (int64_t first = 0; first <= last; first += TILE) {
    int64_t key = first + b.lane;
    bool reads = key <= query && key < keys_of(w);
    __syncthreads();
    load_keys(w, b, group, first, 0, kv);
    __syncthreads();
    float s = reads ? dot(w, q + b.r * pitch, kv + b.lane * pitch) : -INFINITY;
    p[b.lane] = s;
    __syncthreads();
    float top = most, total = 0;
    for (int k = 0; k < TILE; k++) top = p[k] > top ? p[k] : top;
    float e = reads ? sl__exp(s - top) : 0, rest = sl__exp(most - top);
    __syncthreads();
    p[b.lane] = e;
    load_keys(w, b, group, first, 1, kv);
    __syncthreads();
    for (int k = 0; k < TILE; k++) total += p[k];
    if (w.a.o.dropout.rate > 0) {
      __syncthreads();
      p[b.lane] = e * factor(w, b.n, b.head, query, key);
      __syncthreads();
    }
    for (int d = b.lane, i = 0; d < dims; d += TILE, i++) {
      o[i] *= rest;
      for (int k = 0; k < TILE; k++) o[i] += p[k] * kv[k * pitch + d];
    }
    sum = sum * rest + total;
    most = top;
  }
  if (t >= w.a.steps) return;
  for (int d = b.lane, i = 0; d < dims; d += TILE, i++)
    y[place_in_y(w, b.n, t, b.head) + d] = sl::narrow<T>(o[i] / sum);
  if (!b.lane) lse[place_in_lse(w, b.n, t, b.head)] = most + logf(sum);
}

/* ---- backward ------------------------------------------------------------------------------ */

/* delta = <y, dy> of each query */
template <class T>
__global__ void find_delta(job w, const T *y, const T *dy) {
  int64_t at = sl::thread_index();
  float sum = 0;
  if (at >= w.a.rows * w.a.steps * w.a.heads) return;
  for (int64_t d = at * w.a.dims; d < (at + 1) * w.a.dims; d++)
    sum += sl::value(y[d]) * sl::value(dy[d]);
  w.delta[at] = sum;
}

template <class T>
__device__ void write(const job &w, T *dx, float value) {
  *dx = sl::narrow<T>(w.add ? sl::value(*dx) + value : value);
}

template <class T, int TILE>
__global__ void __launch_bounds__(TILE *TILE, 1024 / (TILE * TILE))
    backward_queries(job w, int64_t tiles, const T *x, const float *lse, const T *dy, T *dx) {
  SL__SHARED(float, memory);
  const place<TILE> b(w.a.heads, tiles);
  int dims = w.a.dims, pitch = dims + 1;
  float *q = memory, *o = q + TILE * pitch, *kv = o + TILE * pitch,
        *ds = kv + TILE * pitch + b.r * (TILE + 1);
  int64_t t = b.first + b.r, query = w.a.o.position + t, group = b.head / group_of(w);
  int64_t last = w.a.o.position + (b.first + TILE < w.a.steps ? b.first + TILE : w.a.steps) - 1;
  bool is_query = t < w.a.steps;
  int64_t at = place_in_lse(w, b.n, is_query ? t : 0, b.head);
  float dq[SL__ATTENTION_MOST_DIMS / SMALL] = {0};
  load_query(w, b, t, b.head, x, q);
  load_slope(w, b, t, b.head, dy, o);
  for (int64_t first = 0; first <= last; first += TILE) {
    int64_t key = first + b.lane;
    bool reads = is_query && key <= query;
    __syncthreads();
    load_keys(w, b, group, first, 1, kv);
    __syncthreads();
    float dp = dot(w, o + b.r * pitch, kv + b.lane * pitch);
    __syncthreads();
    load_keys(w, b, group, first, 0, kv);
    __syncthreads();
    float p = reads ? sl__exp(dot(w, q + b.r * pitch, kv + b.lane * pitch) - lse[at]) : 0;
    ds[b.lane] = reads ? p * (factor(w, b.n, b.head, query, key) * dp - w.delta[at]) : 0;
    __syncthreads();
    for (int d = b.lane, i = 0; d < dims; d += TILE, i++)
      for (int k = 0; k < TILE; k++) dq[i] += ds[k] * kv[k * pitch + d];
  }
  for (int d = b.lane, i = 0; d < dims; d += TILE, i++) q[b.r * pitch + d] = dq[i] * w.a.scale;
  __syncthreads();
  for (int d = b.lane; is_query && d < dims; d += TILE)
    write(w, dx + place_in_x(w, b.n, t, b.head) + d, turned(w, t, q + b.r * pitch, d, -1));
}

/* A query's row m is of time step m / group and head m % group of the group; the last one comes
 * first, as with chunks. */
template <class T, int TILE>
__global__ void __launch_bounds__(TILE *TILE, 1024 / (TILE * TILE))
    backward_keys(job w, int64_t tiles, const T *x, const float *lse, const T *dy, T *dx,
                  float *dstate) {
  SL__SHARED(float, memory);
  const place<TILE> b(w.a.kv_heads, tiles);
  int dims = w.a.dims, pitch = dims + 1;
  float *k = memory, *v = k + TILE * pitch, *q = v + TILE * pitch, *o = q + TILE * pitch,
        *p = o + TILE * pitch, *ds = p + TILE * (TILE + 1);
  int64_t group = group_of(w), mine = b.first + b.r, t = mine - w.a.o.position;
  int64_t from = b.first > w.a.o.position ? (b.first - w.a.o.position) * group : 0;
  float dk[SL__ATTENTION_MOST_DIMS / SMALL] = {0}, dv[SL__ATTENTION_MOST_DIMS / SMALL] = {0};
  load_keys(w, b, b.head, b.first, 0, k);
  load_keys(w, b, b.head, b.first, 1, v);
  for (int d = b.lane, i = 0; dstate && mine < keys_of(w) && d < dims; d += TILE, i++) {
    dk[i] = dstate[place_in_cache(w, b.n, mine, 0, b.head) + d];
    dv[i] = dstate[place_in_cache(w, b.n, mine, 1, b.head) + d];
  }
  for (int64_t end = w.a.steps * group; end > from; end -= TILE) {
    int64_t m = end - TILE + b.r, step = m < from ? -1 : m / group;
    int64_t head = b.head * group + (m < from ? 0 : m % group), query = w.a.o.position + step;
    int64_t key = b.first + b.lane, at = place_in_lse(w, b.n, step < 0 ? 0 : step, head);
    bool reads = step >= 0 && key <= query;
    __syncthreads();
    load_query(w, b, step, head, x, q);
    load_slope(w, b, step, head, dy, o);
    __syncthreads();
    float e = reads ? sl__exp(dot(w, q + b.r * pitch, k + b.lane * pitch) - lse[at]) : 0;
    float f = reads ? factor(w, b.n, head, query, key) : 0;
    float dp = dot(w, o + b.r * pitch, v + b.lane * pitch);
    p[b.r * (TILE + 1) + b.lane] = e * f;
    ds[b.r * (TILE + 1) + b.lane] = reads ? e * (f * dp - w.delta[at]) : 0;
    __syncthreads();
    for (int d = b.lane, i = 0; d < dims; d += TILE, i++)
#pragma unroll 4
      for (int r = TILE - 1; r >= 0; r--) {
        dk[i] += ds[r * (TILE + 1) + b.r] * q[r * pitch + d];
        dv[i] += p[r * (TILE + 1) + b.r] * o[r * pitch + d];
      }
  }
  __syncthreads();
  for (int d = b.lane, i = 0; d < dims; d += TILE, i++) q[b.r * pitch + d] = dk[i];
  __syncthreads();
  if (mine >= keys_of(w)) return;
  for (int d = b.lane, i = 0; d < dims; d += TILE, i++) {
    if (t < 0) {
      dstate[place_in_cache(w, b.n, mine, 0, b.head) + d] = dk[i];
      dstate[place_in_cache(w, b.n, mine, 1, b.head) + d] = dv[i];
      continue;
    }
    T *key = dx + place_in_x(w, b.n, t, w.a.heads + b.head);
    write(w, key + d, turned(w, t, q + b.r * pitch, d, -1));
    write(w, key + w.a.kv_heads * dims + d, dv[i]);
  }
}

/* ---- tasks --------------------------------------------------------------------------------- */

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
    SL__LAUNCH((append<T>), sl::blocks(w.a.rows * w.a.steps * sl__attention_state(&w.a)),
               sl::THREADS, 0, cuda->stream, w, x, w.a.o.position);
}

/* Bytes of `arrays` tiles of values and two of pairs. */
template <int TILE>
size_t shared_bytes(const job &w, int arrays) {
  return sizeof(float) * TILE * static_cast<size_t>(arrays * (w.a.dims + 1) + 2 * (TILE + 1));
}

template <class T, int TILE>
void forward_tiles(void *buffers[], struct sl__cuda *cuda, const job &w) {
  int64_t tiles = (w.a.steps + TILE - 1) / TILE;
  SL__LAUNCH((forward<T, TILE>), static_cast<unsigned>(w.a.rows * w.a.heads * tiles), TILE * TILE,
             shared_bytes<TILE>(w, 2), cuda->stream, w, tiles, sl::in<T>(buffers, 0),
             sl::out<T>(buffers, 1), sl::out<float>(buffers, 2));
}

template <class T>
void forward_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  bool has_state = sl::args<sl__attention_args>(cl_arg)->context != 0;
  job w =
      job_of(cl_arg, sl::out<float>(buffers, 3), has_state ? sl::out<float>(buffers, 4) : nullptr);
  prepare(cuda, w, sl::in<T>(buffers, 0), true);
  if (w.a.dims <= LARGE_DIMS)
    forward_tiles<T, LARGE>(buffers, cuda, w);
  else
    forward_tiles<T, SMALL>(buffers, cuda, w);
}

template <class T, int TILE>
void backward_tiles(void *buffers[], struct sl__cuda *cuda, const job &w, float *dstate) {
  const T *x = sl::in<T>(buffers, 0), *dy = sl::in<T>(buffers, 3);
  const float *lse = sl::in<float>(buffers, 2);
  int64_t tiles = (w.a.steps + TILE - 1) / TILE,
          key_tiles = (w.a.o.position + w.a.steps + TILE - 1) / TILE;
  SL__LAUNCH((backward_queries<T, TILE>), static_cast<unsigned>(w.a.rows * w.a.heads * tiles),
             TILE * TILE, shared_bytes<TILE>(w, 3), cuda->stream, w, tiles, x, lse, dy,
             sl::out<T>(buffers, 4));
  SL__LAUNCH((backward_keys<T, TILE>), static_cast<unsigned>(w.a.rows * w.a.kv_heads * key_tiles),
             TILE * TILE, shared_bytes<TILE>(w, 4), cuda->stream, w, key_tiles, x, lse, dy,
             sl::out<T>(buffers, 4), dstate);
}

template <class T>
void backward_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  bool has_state = sl::args<sl__attention_args>(cl_arg)->context != 0;
  float *dstate = has_state ? sl::out<float>(buffers, 7) : nullptr;
  job w =
      job_of(cl_arg, sl::out<float>(buffers, 5), has_state ? sl::out<float>(buffers, 6) : nullptr);
  prepare(cuda, w, sl::in<T>(buffers, 0), !has_state);
  SL__LAUNCH((find_delta<T>), sl::blocks(w.a.rows * w.a.steps * w.a.heads), sl::THREADS, 0,
             cuda->stream, w, sl::in<T>(buffers, 1), sl::in<T>(buffers, 3));
  if (w.a.dims <= LARGE_DIMS)
    backward_tiles<T, LARGE>(buffers, cuda, w, dstate);
  else
    backward_tiles<T, SMALL>(buffers, cuda, w, dstate);
}

}  // namespace

SL__CUDA(attention_forward) { SL__BY_TYPE(cl_arg, 0, T, forward_task<T>(buffers, cl_arg, cuda)); }

SL__CUDA(attention_backward) { SL__BY_TYPE(cl_arg, 0, T, backward_task<T>(buffers, cl_arg, cuda)); }
