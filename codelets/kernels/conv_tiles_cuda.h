/* Convolutions of few channels on tensor cores. Such convolutions are bound by memory: a block
 * reads a strip of an image's rows once, planes as they are, and keeps it in shared memory as the
 * channels of each pixel, one pixel after the other, zeros around the image. A tap of the filter is
 * then an offset in there, with any stride.
 *
 *     forward            y [K, pixels] = the sum over the taps of filter [K, C] times x [C, pixels]
 *     gradient of x      the same from dy, with the filter's taps in reverse. With a stride s, the
 *                        pixels of x whose places are equal modulo s meet the same taps: s x s
 *                        convolutions of stride 1
 *     gradient of        [K, C] = the sum over the pixels of dy [K, pixels] times x [pixels, C],
 * for the filter         each tap; a block adds up its strips in registers, then the blocks' sums
 *                        are added in their order
 *
 * T is the tensors' type, bf16 or floats that are rounded to TensorFloat-32 (mma_cuda.h); sums are
 * floats. Included by conv2d_cuda.cu only. */
#ifndef SL_CODELETS_KERNELS_CONV_TILES_CUDA_H
#define SL_CODELETS_KERNELS_CONV_TILES_CUDA_H

#include <algorithm>
#include <type_traits>

#include "codelets/activation.h"
#include "codelets/groupconv2d.h"
#include "codelets/kernels/mma_cuda.h"

namespace sl::convolution::tiles {

/* ---- a job ----------------------------------------------------------------------------------- */

constexpr int MOST_CHANNELS = 64, MOST_TAPS = 36;
constexpr int SHARED = 48 << 10; /* bytes of a block's shared memory */

/* A convolution from `in` to `out`, strip by strip. In the weights' gradient, out is read, too. */
struct job {
  int32_t images, channels, height, width;     /* of in */
  int32_t out_channels, out_height, out_width; /* of out, as far as the job goes */
  int32_t stride_h, stride_w, pad_h, pad_w;    /* pads may be negative: rows left out */
  int32_t taps, steps;                      /* steps: groups of a pixel's channels, see set_steps */
  int32_t rows, strips, group;              /* out's rows a strip, strips, images at a time */
  int32_t staged_rows, staged_width, pitch; /* in shared memory; bytes from pixel to pixel */
  int32_t in_alignment, out_alignment;      /* of rows of in, of strips of out: bytes */
  int32_t place, step_h, step_w, row_size;  /* of out's pixels in their plane */
  int64_t plane;                            /* elements of out's planes */
  bool add, relu;
  int32_t filter_at;          /* words before this job's arranged filter */
  int32_t offsets[MOST_TAPS]; /* of each tap in shared memory: bytes */
  int32_t sources[MOST_TAPS]; /* the filter's tap */

  __host__ __device__ int staged_bytes() const { return staged_rows * staged_width * pitch; }
  __host__ __device__ int channel_tiles() const { return (out_channels + 15) / 16; }
  __host__ __device__ int filter_words() const { return taps * steps * channel_tiles() * 128; }
  __host__ __device__ bool is_dense() const { return step_h == 1 && step_w == 1; }
  /* Where a strip's pixel is in shared memory, and in its plane of out. */
  __device__ int staged(int pixel) const {
    int row = pixel / out_width;
    return (row * stride_h * staged_width + (pixel - row * out_width) * stride_w) * pitch;
  }
  __device__ int placed(int row, int column) const {
    return place + row * step_h * row_size + column * step_w;
  }
};

/* Convolutions of the same tensors: blockIdx.y says which. */
template <int COUNT>
struct jobs {
  job each[COUNT];

  __device__ const job &mine() const { return each[COUNT == 1 ? 0 : blockIdx.y]; }
};

template <class T>
using core_of = typename std::conditional<sizeof(T) == 2, bf16_core, tf32_core>::type;

__device__ inline int warp_of() { return static_cast<int>(threadIdx.x) / 32; }
__device__ inline int lane_of() { return static_cast<int>(threadIdx.x) % 32; }

/* ---- strips in shared memory ------------------------------------------------------------------
 */

/* 16 bytes of a plane. */
struct run {
  uint32_t w[4];
};
template <class T>
constexpr int VALUES = 16 / static_cast<int>(sizeof(T)); /* of a run */

__device__ inline uint32_t bits_of(float x) { return sl__float_bits(x); }
__device__ inline uint32_t bits_of(bf16 x) { return x.code; }

/* The first `valid` of a run's values, a multiple of those in `alignment` bytes; zeros behind. */
template <class T>
__device__ run load_run(const T *from, int valid, int alignment) {
  constexpr int V = VALUES<T>, IN_WORD = V / 4;
  run r = {};
  if (alignment == 16) {
    if (valid <= 0) return r;
    const uint4 all = *reinterpret_cast<const uint4 *>(from);
    return {{all.x, all.y, all.z, all.w}};
  }
  if (alignment == 8) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      if (i * V / 2 >= valid) continue;
      const uint2 half = *reinterpret_cast<const uint2 *>(from + i * V / 2);
      r.w[2 * i] = half.x;
      r.w[2 * i + 1] = half.y;
    }
    return r;
  }
#pragma unroll
  for (int i = 0; i < V; i++)
    if (i < valid) r.w[i / IN_WORD] |= bits_of(from[i]) << i % IN_WORD * 16;
  return r;
}

/* A thread's part of a row: a run of one channel, of bf16 of two. */
template <class T>
struct piece {
  static constexpr int CHANNELS = sizeof(T) == 2 ? 2 : 1;
  run r[CHANNELS];
  int column, place,
      turn; /* of the first value, among the staged ones; place: of column 0, bytes */
};

/* Piece i of a strip's, whose first row of the image is `row`; channels run fastest. */
template <class T>
__device__ piece<T> fetch(const job &w, const T *image, int channels, int row, int i) {
  constexpr int V = VALUES<T>, C = piece<T>::CHANNELS;
  int lanes = (channels + C - 1) / C, runs = (w.width + V - 1) / V;
  int line = i / lanes, channel = (i - line * lanes) * C, staged_row = line / runs;
  int column = (line - staged_row * runs) * V, h = row + staged_row;
  piece<T> p = {};
  p.column = column + w.pad_w;
  p.place = staged_row * w.staged_width * w.pitch + channel * static_cast<int>(sizeof(T));
  p.turn = line * lanes / 4;
  if (h < 0 || h >= w.height) return p;
  const T *from = image + (int64_t{channel} * w.height + h) * w.width + column;
#pragma unroll
  for (int c = 0; c < C; c++, from += int64_t{w.height} * w.width)
    if (channel + c < channels) p.r[c] = load_run(from, w.width - column, w.in_alignment);
  return p;
}

/* Puts w[i] first if i is `by` modulo 8. */
__device__ inline void rotate(uint32_t (&w)[8], int by) {
#pragma unroll
  for (int bit = 1; bit < 8; bit *= 2) {
    uint32_t old[8];
#pragma unroll
    for (int i = 0; i < 8; i++) old[i] = w[i];
#pragma unroll
    for (int i = 0; i < 8; i++) w[i] = by & bit ? old[(i + bit) % 8] : old[i];
  }
}

/* The lanes of a warp begin with different pixels, lest they meet in a bank. */
__device__ inline void put(const job &w, const piece<bf16> &p, char *to) {
  int end = min(w.width + w.pad_w, w.staged_width);
  uint32_t pairs[8];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    pairs[2 * i] = (p.r[0].w[i] & 0xffff) | p.r[1].w[i] << 16;
    pairs[2 * i + 1] = p.r[0].w[i] >> 16 | (p.r[1].w[i] & 0xffff0000);
  }
  rotate(pairs, p.turn);
#pragma unroll
  for (int i = 0; i < 8; i++) {
    int x = p.column + (i + p.turn) % 8;
    if (x >= 0 && x < end) *reinterpret_cast<uint32_t *>(to + p.place + x * w.pitch) = pairs[i];
  }
}
__device__ inline void put(const job &w, const piece<float> &p, char *to) {
  int end = min(w.width + w.pad_w, w.staged_width);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    int x = p.column + i;
    if (x >= 0 && x < end)
      *reinterpret_cast<uint32_t *>(to + p.place + x * w.pitch) =
          rounded_to_tf32(sl__bits_float(p.r[0].w[i]));
  }
}

/* `channels` channels of a strip go to shared memory; what is around the image is there already. */
template <class T>
__device__ void stage(const job &w, const T *image, int channels, int strip, char *to) {
  constexpr int V = VALUES<T>, C = piece<T>::CHANNELS, AT_ONCE = C == 2 ? 3 : 4;
  int row = strip * w.rows * w.stride_h - w.pad_h, threads = static_cast<int>(blockDim.x);
  int pieces = (channels + C - 1) / C * ((w.width + V - 1) / V) * w.staged_rows;
  for (int i = static_cast<int>(threadIdx.x); i < pieces; i += AT_ONCE * threads) {
    piece<T> p[AT_ONCE];
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++)
      if (i + k * threads < pieces) p[k] = fetch(w, image, channels, row, i + k * threads);
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++)
      if (i + k * threads < pieces) put(w, p[k], to);
  }
}

__device__ inline void clear(uint4 *memory, int bytes) {
  for (int i = static_cast<int>(threadIdx.x); i < (bytes + 15) / 16;
       i += static_cast<int>(blockDim.x))
    memory[i] = {0, 0, 0, 0};
}

/* Of the 4 x 4 words that four neighbouring lanes have, each gets a column for its row. */
__device__ inline void turn_quad(uint32_t (&w)[4]) {
#pragma unroll
  for (int bit = 1; bit < 4; bit *= 2) {
    bool upper = threadIdx.x & bit;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (i & bit) continue;
      uint32_t got = __shfl_xor_sync(0xffffffffu, upper ? w[i] : w[i + bit], bit);
      if (upper)
        w[i] = got;
      else
        w[i + bit] = got;
    }
  }
}

/* ---- forward, and the gradient of x ------------------------------------------------------------
 */

constexpr int PIXELS = 64; /* a warp's at a time: pairs of fragments of 8 */
constexpr int PARTS = PIXELS / 8;

/* The filter in the sequence in which lanes need it: fragment A of each tap, step and tile of 16
 * channels of out. It is [out][in][taps], for the gradient of x [in][out][taps]. */
template <class T, int JOBS>
__global__ void arrange_filter(jobs<JOBS> all, int filter_taps, bool back, const T *filter,
                               uint32_t *to) {
  constexpr int DEPTH = core_of<T>::DEPTH, HALVES = DEPTH / 8;
  const job &w = all.mine();
  int i = static_cast<int>(thread_index()), tiles = w.channel_tiles();
  if (i >= w.filter_words()) return;
  int part = i % 4, lane = i / 4 % 32, tile = i / 128 % tiles, step = i / 128 / tiles;
  int tap = step / w.steps, out = tile * 16 + lane / 4 + part % 2 * 8;
  step -= tap * w.steps;
  uint32_t word = 0;
  for (int half = 0; half < HALVES; half++) {
    int in = step * DEPTH + (lane % 4 + part / 2 * 4) * HALVES + half;
    if (out >= w.out_channels || in >= w.channels) continue;
    int row = back ? in * w.out_channels + out : out * w.channels + in;
    T v = filter[row * filter_taps + w.sources[tap]];
    word |= (HALVES == 2 ? bits_of(v) : rounded_to_tf32(value(v))) << 16 * half;
  }
  to[w.filter_at + i] = word;
}

/* c: 16 channels of PIXELS pixels, the pixels of lane i of each pair of fragments at at[]. */
template <class T>
__device__ void add_taps(const job &w, const uint4 *memory, const int (&at)[PARTS / 2],
                         const uint4 *filter, fragment_c (&c)[PARTS]) {
  constexpr int HALVES = core_of<T>::DEPTH / 8;
  int tiles = w.channel_tiles() * 32;
  uint4 next = filter[0], later = filter[tiles]; /* behind the last ones there is memory, too */
#pragma unroll 1
  for (int tap = 0; tap < w.taps; tap++) {
    int offset = w.offsets[tap];
#pragma unroll 1 /* more would need registers that other blocks have a better use for */
    for (int step = 0; step < w.steps; step++, offset += 32, filter += tiles) {
      const fragment_a a = {{next.x, next.y, next.z, next.w}};
      next = later;
      later = filter[2 * tiles];
#pragma unroll
      for (int i = 0; i < PARTS / 2; i++) {
        uint32_t r[4] = {};
        load_matrices(memory, at[i] + offset, r);
        multiply<HALVES>(c[2 * i], a, {{r[0], r[1]}});
        multiply<HALVES>(c[2 * i + 1], a, {{r[2], r[3]}});
      }
    }
  }
}

/* A warp's results. */
template <class T>
struct results {
  const job &w;
  T *out;             /* of the strip's image */
  int channel, first; /* the lane's channels are channel and channel + 8; first: the first pixel */
  int end, base;      /* the strip's pixels end; pixels of the image before the strip */
  float bias[2];

  __device__ bool has(int half, int pixel) const {
    return channel + 8 * half < w.out_channels && pixel < end;
  }
  __device__ T *at(int half, int place) const {
    return out + (channel + 8 * half) * w.plane + place;
  }
  __device__ float finished(float sum, bool has, const T *before, int half) const {
    sum += bias[half];
    if (w.add && has) sum += value(*before);
    return w.relu ? sl__activation_value(SL_ACTIVATION_RELU, sum) : sum;
  }
  __device__ float finished(float sum, int half, int pixel) const {
    return finished(sum, has(half, pixel), at(half, base + pixel), half);
  }
  /* The values of WORDS words, from a pixel on. */
  template <int WORDS>
  __device__ void write(int half, int pixel, const uint32_t (&v)[WORDS]) const {
    constexpr int PAIR = 8 / static_cast<int>(sizeof(T));
    if (!has(half, pixel)) return;
    T *to = at(half, base + pixel);
    if constexpr (WORDS == 4)
      if (w.out_alignment == 16) { /* pixel and end are multiples of 8 */
        *reinterpret_cast<uint4 *>(to) = {v[0], v[1], v[2], v[3]};
        return;
      }
#pragma unroll
    for (int i = 0; i < WORDS; i += 2, pixel += PAIR, to += PAIR)
      if (w.out_alignment >= 8 && pixel + PAIR <= end)
        *reinterpret_cast<uint2 *>(to) = {v[i], v[i + 1]};
      else
        for (int k = 0; k < PAIR && pixel + k < end; k++) {
          if constexpr (sizeof(T) == 2)
            to[k] = {static_cast<uint16_t>(v[i + k / 2] >> k % 2 * 16)};
          else
            to[k] = sl__bits_float(v[i + k]);
        }
  }
};

/* bf16: a lane gets 8 neighbouring pixels of one fragment of four. */
__device__ inline void leave(const results<bf16> &to, const fragment_c (&c)[PARTS]) {
#pragma unroll
  for (int i = 0; i < PARTS; i += 4)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      uint32_t v[4];
#pragma unroll
      for (int k = 0; k < 4; k++) {
        int pixel = to.first + (i + k) * 8 + 2 * lane_column();
        v[k] = pair_of(to.finished(c[i + k].v[2 * half], half, pixel),
                       to.finished(c[i + k].v[2 * half + 1], half, pixel + 1));
      }
      turn_quad(v);
      __syncwarp(); /* another lane has read the values there */
      to.write(half, to.first + (i + lane_column()) * 8, v);
    }
}
__device__ inline void leave(const results<float> &to, const fragment_c (&c)[PARTS]) {
#pragma unroll
  for (int i = 0; i < PARTS; i++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int pixel = to.first + i * 8 + 2 * lane_column();
      const uint32_t v[2] = {bits_of(to.finished(c[i].v[2 * half], half, pixel)),
                             bits_of(to.finished(c[i].v[2 * half + 1], half, pixel + 1))};
      to.write(half, pixel, v);
    }
}

/* Pixels that are apart in their plane, one by one. */
template <class T>
__device__ void leave_apart(const results<T> &to, const fragment_c (&c)[PARTS]) {
#pragma unroll
  for (int i = 0; i < PARTS; i++) {
    int pixel = to.first + i * 8 + 2 * lane_column(), row = (to.base + pixel) / to.w.out_width;
    int column = to.base + pixel - row * to.w.out_width;
#pragma unroll
    for (int e = 0; e < 2; e++, pixel++) {
      int place = to.w.placed(row, column);
#pragma unroll
      for (int half = 0; half < 2; half++)
        if (to.has(half, pixel)) {
          T *at = to.at(half, place);
          *at = narrow<T>(to.finished(c[i].v[2 * half + e], true, at, half));
        }
      if (++column == to.w.out_width) {
        column = 0;
        row++;
      }
    }
  }
}

/* A block a strip; its warps share the tiles of 16 channels, then the strip's pixels. */
template <class T, int JOBS>
__global__ void __launch_bounds__(128, 5)
    convolve_tiles(jobs<JOBS> all, const T *in, const uint4 *filter, const T *bias, T *out) {
  SL__SHARED(uint4, memory);
  const job &w = all.mine();
  int64_t image = blockIdx.x / w.strips;
  if (image >= w.images) return;
  int strip = static_cast<int>(blockIdx.x) % w.strips, lane = lane_of();
  int tiles = w.channel_tiles(), tile = warp_of() % tiles, part = warp_of() / tiles;
  int parts = static_cast<int>(blockDim.x) / 32 / tiles;
  results<T> to = {w, out + image * w.out_channels * w.plane, tile * 16 + lane_row(), 0, 0, 0, {}};
  to.end = min(w.rows, w.out_height - strip * w.rows) * w.out_width;
  to.base = strip * w.rows * w.out_width;
  clear(memory, w.staged_bytes());
  __syncthreads();
  stage(w, in + image * w.channels * w.height * w.width, w.channels, strip,
        reinterpret_cast<char *>(memory));
  __syncthreads();
  for (to.first = part * PIXELS; to.first < to.end; to.first += parts * PIXELS) {
    fragment_c c[PARTS] = {};
    int at[PARTS / 2];
#pragma unroll
    for (int i = 0; i < PARTS / 2; i++) {
      int pixel = to.first + i * 16 + lane / 16 * 8 + lane % 8;
      at[i] = (pixel < to.end ? w.staged(pixel) : 0) + lane / 8 % 2 * 16;
    }
    add_taps<T>(w, memory, at, filter + w.filter_at / 4 + tile * 32 + lane, c);
#pragma unroll
    for (int half = 0; half < 2; half++)
      if (bias && to.channel + 8 * half < w.out_channels)
        to.bias[half] = value(bias[to.channel + 8 * half]);
    if constexpr (JOBS == 1)
      leave(to, c);
    else
      leave_apart(to, c);
  }
}

/* ---- gradient of the filter --------------------------------------------------------------------
 */

constexpr int GROUP_TAPS = 9; /* a warp's */

/* Pixels of dy that a warp takes at a time: lanes load runs. */
template <class T>
constexpr int SPAN = 4 * VALUES<T>;

/* A lane's runs of dy from `pixel` on, of channels channel and channel + 8. */
template <class T>
__device__ void load_slopes(const job &w, const T *dy, int channel, int pixel, int end,
                            run (&r)[2]) {
  pixel += lane_column() * VALUES<T>;
#pragma unroll
  for (int half = 0; half < 2; half++)
    r[half] =
        channel + 8 * half < w.out_channels
            ? load_run(dy + (channel + 8 * half) * w.plane + pixel, end - pixel, w.out_alignment)
            : run{};
}

/* They become fragments A of two instructions. Their terms are bf16's pixels in their sequence. Of
 * floats, the first four terms are the pixels 0, 4, 8, 12, the others those behind them; the second
 * instruction's begin with pixel 2. */
template <class T>
__device__ void fragments_of(run (&r)[2], fragment_a (&a)[2]) {
#pragma unroll
  for (int half = 0; half < 2; half++)
    if constexpr (sizeof(T) == 2) {
      turn_quad(r[half].w);
    } else {
#pragma unroll
      for (int i = 0; i < 4; i++) r[half].w[i] = rounded_to_tf32(sl__bits_float(r[half].w[i]));
    }
#pragma unroll
  for (int i = 0; i < 2; i++)
    a[i] = {{r[0].w[2 * i], r[1].w[2 * i], r[0].w[2 * i + 1], r[1].w[2 * i + 1]}};
}

/* c[tap] += dy [16, pixels] times x [pixels, 8 FRAGMENTS] of the pixels from `pixel` on; staged
 * pixels of the strip's end and further are those of pixel 0, which meet zeros. */
template <int FRAGMENTS>
__device__ void add_pixels(const job &w, const char *x, const fragment_a (&a)[2], int pixel,
                           int end, int first_tap, fragment_c (&c)[GROUP_TAPS][FRAGMENTS], bf16) {
  constexpr int TIMES = FRAGMENTS; /* one load has 16 pixels of 16 channels, or 32 of 8 */
#pragma unroll
  for (int i = 0; i < TIMES; i++) {
    int mine = pixel + i * 16 + lane_of() % (FRAGMENTS == 2 ? 16 : 32);
    int at = (mine < end ? w.staged(mine) : 0) + (FRAGMENTS == 2 ? lane_of() / 16 * 16 : 0);
#pragma unroll
    for (int t = 0; t < GROUP_TAPS; t++) {
      if (first_tap + t >= w.taps) break;
      uint32_t r[4] = {};
      load_turned_matrices(x, at + w.offsets[first_tap + t], r);
      multiply<2>(c[t][0], a[i], {{r[0], r[1]}});
      if constexpr (FRAGMENTS == 2)
        multiply<2>(c[t][1], a[i], {{r[2], r[3]}});
      else
        multiply<2>(c[t][0], a[1], {{r[2], r[3]}});
    }
  }
}
template <int FRAGMENTS>
__device__ void add_pixels(const job &w, const char *x, const fragment_a (&a)[2], int pixel,
                           int end, int first_tap, fragment_c (&c)[GROUP_TAPS][FRAGMENTS], float) {
  int at[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    int mine = pixel + 4 * lane_column() + i;
    at[i] = (mine < end ? w.staged(mine) : 0) + 4 * lane_row();
  }
#pragma unroll
  for (int t = 0; t < GROUP_TAPS; t++) {
    if (first_tap + t >= w.taps) break;
    const char *tap = x + w.offsets[first_tap + t];
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
      for (int f = 0; f < FRAGMENTS; f++)
        multiply<1>(c[t][f], a[i],
                    {{*reinterpret_cast<const uint32_t *>(tap + at[2 * i] + 32 * f),
                      *reinterpret_cast<const uint32_t *>(tap + at[2 * i + 1] + 32 * f)}});
  }
}

/* The sums of the warps of a tile go to the first of them, one after the other. */
template <int FRAGMENTS>
__device__ void unite(fragment_c (&c)[GROUP_TAPS][FRAGMENTS], int tile, int part, int parts,
                      float *memory) {
  memory += tile * GROUP_TAPS * FRAGMENTS * 128 + lane_of();
  for (int from = 1; from < parts; from++) {
    __syncthreads();
    if (part == from)
#pragma unroll
      for (int i = 0; i < GROUP_TAPS * FRAGMENTS * 4; i++)
        memory[i * 32] = c[i / 4 / FRAGMENTS][i / 4 % FRAGMENTS].v[i % 4];
    __syncthreads();
    if (part == 0)
#pragma unroll
      for (int i = 0; i < GROUP_TAPS * FRAGMENTS * 4; i++)
        c[i / 4 / FRAGMENTS][i / 4 % FRAGMENTS].v[i % 4] += memory[i * 32];
  }
}

/* Block (part, job): the part's share of the strips, for some taps and 8 FRAGMENTS of the steps'
 * channels; `sums` has [parts][taps][out channels][channels], channels as whole fragments. */
template <class T, int FRAGMENTS>
__global__ void __launch_bounds__(128, 3)
    filter_gradient_tiles(job w, int units, const T *x, const T *dy, float *sums) {
  SL__SHARED(uint4, memory);
  auto *staged = reinterpret_cast<char *>(memory);
  int tiles = w.channel_tiles(), tile = warp_of() % tiles, part = warp_of() / tiles;
  int parts = static_cast<int>(blockDim.x) / 32 / tiles, bytes = w.staged_bytes();
  int channel = static_cast<int>(blockIdx.y) % w.steps * FRAGMENTS * 8;
  int first_tap = static_cast<int>(blockIdx.y) / w.steps * GROUP_TAPS;
  int channels = min(w.channels - channel, FRAGMENTS * 8);
  int share = (units + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
  int unit = static_cast<int>(blockIdx.x) * share, last = min(unit + share, units);
  fragment_c c[GROUP_TAPS][FRAGMENTS] = {};
  clear(memory, w.group * bytes);
  for (; unit < last; unit++) {
    int image = unit / w.strips * w.group, strip = unit % w.strips;
    int images = min(w.group, w.images - image);
    int end = min(w.rows, w.out_height - strip * w.rows) * w.out_width;
    int spans = (end + SPAN<T> - 1) / SPAN<T>;
    const T *slopes = dy + int64_t{image} * w.out_channels * w.plane + strip * w.rows * w.out_width;
    /* ahead of their use */
    auto load = [&](int i, run(&r)[2]) {
      int n = i / spans, pixel = (i - n * spans) * SPAN<T>;
      if (i >= images * spans) return;
      const T *image_slopes = slopes + n * w.out_channels * w.plane;
      load_slopes(w, image_slopes, tile * 16 + lane_row(), pixel, end, r);
    };
    run next[2];
    load(part, next);
    __syncthreads();
    for (int i = 0; i < images; i++)
      stage(w, x + (int64_t{image + i} * w.channels + channel) * w.height * w.width, channels,
            strip, staged + i * bytes);
    __syncthreads();
    for (int i = part; i < images * spans; i += parts) {
      int n = i / spans;
      fragment_a a[2];
      fragments_of<T>(next, a);
      load(i + parts, next);
      add_pixels<FRAGMENTS>(w, staged + n * bytes, a, (i - n * spans) * SPAN<T>, end, first_tap, c,
                            T{});
    }
  }
  unite<FRAGMENTS>(c, tile, part, parts, reinterpret_cast<float *>(memory));
  if (part) return;
  int width = w.steps * FRAGMENTS * 8;
  sums += (int64_t{blockIdx.x} * w.taps + first_tap) * tiles * 16 * width +
          (tile * 16 + lane_row()) * width + channel + 2 * lane_column();
#pragma unroll
  for (int t = 0; t < GROUP_TAPS; t++) {
    if (first_tap + t >= w.taps) break;
#pragma unroll
    for (int i = 0; i < FRAGMENTS * 2; i++)
      *reinterpret_cast<float2 *>(sums + (t * tiles * 16 + i % 2 * 8) * width + i / 2 * 8) = {
          c[t][i / 2].v[i % 2 * 2], c[t][i / 2].v[i % 2 * 2 + 1]};
  }
}

constexpr int ACROSS = 8, DOWN = 32; /* threads of a block: four sums each, and down the parts */

/* grad [out channels][channels][taps] (+)= the sums over the parts */
__global__ void add_filter_sums(job w, int parts, int width, const float *sums, float *grad) {
  __shared__ float4 all[DOWN][ACROSS];
  int64_t height = w.channel_tiles() * 16, count = w.taps * height * width;
  int64_t at = (static_cast<int64_t>(blockIdx.x) * ACROSS + threadIdx.x) * 4;
  float4 sum = {0, 0, 0, 0};
  if (at < count)
#pragma unroll 8
    for (int i = static_cast<int>(threadIdx.y); i < parts; i += DOWN) {
      const float4 v = *reinterpret_cast<const float4 *>(sums + i * count + at);
      sum = {sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w};
    }
  all[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y || at >= count) return;
  for (int i = 1; i < DOWN; i++) {
    const float4 v = all[i][threadIdx.x];
    sum = {sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w};
  }
  const float four[4] = {sum.x, sum.y, sum.z, sum.w};
  int64_t channel = at % width, out = at / width % height, tap = at / width / height;
  if (out >= w.out_channels) return;
  for (int i = 0; i < 4 && channel + i < w.channels; i++) {
    float *to = grad + (out * w.channels + channel + i) * w.taps + tap;
    *to = w.add ? *to + four[i] : four[i];
  }
}

/* ---- jobs of a convolution ---------------------------------------------------------------------
 */

/* Threads of a block: four warps, or one for each tile of channels. */
inline int threads_of(const job &w) { return w.channel_tiles() == 3 ? 96 : 128; }

/* Chooses the strips for about `pixels` of out each. Returns false if they would have so few rows
 * that most of what is read would be read several times. */
inline bool cut(job *w, int kernel_h, int kernel_w, int pixels) {
  int least = std::min(w->out_height, 4);
  auto rows_read = [&](int rows) { return (rows - 1) * w->stride_h + kernel_h; };
  w->staged_width = (w->out_width - 1) * w->stride_w + kernel_w;
  int most_read = SHARED / w->pitch / w->staged_width;
  if (rows_read(least) > most_read) return false;
  int rows = std::min(std::max(pixels / w->out_width, least), w->out_height);
  while (rows_read(rows) > most_read) rows--;
  w->strips = (w->out_height + rows - 1) / rows;
  w->rows = (w->out_height + w->strips - 1) / w->strips;
  w->staged_rows = rows_read(w->rows);
  return true;
}

/* The largest power of two, from the size of an element to 16, that divides all of these bytes. */
inline int alignment_of(uintptr_t bytes, int element) {
  int alignment = 16;
  while (alignment > element && bytes % static_cast<unsigned>(alignment)) alignment /= 2;
  return alignment == 4 && element == 2 ? 2 : alignment;
}

/* Pixels follow each other in out: strips are runs of a plane. */
template <class T>
void set_alignments(job *w, const T *in, const T *out) {
  constexpr int SIZE = sizeof(T);
  auto bytes = [](int64_t elements) { return static_cast<uintptr_t>(elements) * sizeof(T); };
  w->in_alignment = alignment_of(reinterpret_cast<uintptr_t>(in) | bytes(w->width), SIZE);
  w->out_alignment =
      !w->is_dense() ? SIZE
                     : alignment_of(reinterpret_cast<uintptr_t>(out) | bytes(w->plane) |
                                        bytes(w->strips > 1 ? int64_t{w->rows} * w->out_width : 0),
                                    SIZE);
}

/* From x to y, as they are. */
inline job whole_job(const sl__groupconv_args &a) {
  job w = {};
  w.images = a.images;
  w.channels = a.channels;
  w.height = a.height;
  w.width = a.width;
  w.out_channels = a.out_channels;
  w.out_height = a.out_height;
  w.out_width = w.row_size = a.out_width;
  w.stride_h = a.stride_h;
  w.stride_w = a.stride_w;
  w.pad_h = a.pad_h;
  w.pad_w = a.pad_w;
  w.step_h = w.step_w = w.group = 1;
  w.plane = int64_t{a.out_height} * a.out_width;
  return w;
}

/* A pixel's channels in shared memory: whole steps of 32 bytes. */
template <class T>
void set_steps(job *w) {
  int bytes = w->channels * static_cast<int>(sizeof(T));
  w->steps = (bytes + 31) / 32;
  w->pitch = w->steps * 32 + 16;
}

inline void set_taps(job *w, int kernel_h, int kernel_w) {
  w->taps = kernel_h * kernel_w;
  for (int i = 0; i < w->taps; i++) {
    w->offsets[i] = (i / kernel_w * w->staged_width + i % kernel_w) * w->pitch;
    w->sources[i] = i;
  }
}

template <class T>
bool forward_job(const sl__groupconv_args &a, job *w) {
  *w = whole_job(a);
  set_steps<T>(w);
  if (!cut(w, a.kernel_h, a.kernel_w, threads_of(*w) / 32 / w->channel_tiles() * PIXELS))
    return false;
  set_taps(w, a.kernel_h, a.kernel_w);
  return true;
}

/* Along an axis, the inputs first, first + stride, ... and the taps that they meet: the taps tap,
 * tap + stride, ..., the last one first; input i meets output i - pad + j by the j-th of them. */
struct phase {
  int count, taps, tap, pad;

  phase(int first, int size, int kernel, int stride, int pad_before) {
    tap = (first + pad_before) % stride;
    count = (size - first + stride - 1) / stride;
    taps = tap < kernel ? (kernel - tap + stride - 1) / stride : 0;
    pad = taps - 1 - (first + pad_before - tap) / stride;
  }
};

/* The gradient of the pixels (h, w) modulo the strides; false: there is no such job. */
template <class T>
bool data_job(const sl__groupconv_args &a, int first_h, int first_w, job *w) {
  const phase h(first_h, a.height, a.kernel_h, a.stride_h, a.pad_h);
  const phase v(first_w, a.width, a.kernel_w, a.stride_w, a.pad_w);
  *w = {};
  w->images = a.images;
  w->channels = a.out_channels;
  w->height = a.out_height;
  w->width = a.out_width;
  w->out_channels = a.channels;
  w->out_height = h.count;
  w->out_width = v.count;
  w->stride_h = w->stride_w = w->group = 1;
  w->pad_h = h.pad;
  w->pad_w = v.pad;
  w->step_h = a.stride_h;
  w->step_w = a.stride_w;
  w->row_size = a.width;
  w->place = first_h * a.width + first_w;
  w->plane = int64_t{a.height} * a.width;
  set_steps<T>(w);
  if (!cut(w, std::max(h.taps, 1), std::max(v.taps, 1),
           threads_of(*w) / 32 / w->channel_tiles() * PIXELS))
    return false;
  w->taps = h.taps * v.taps;
  for (int i = 0; i < w->taps; i++) {
    int r = i / v.taps, s = i % v.taps;
    w->offsets[i] = (r * w->staged_width + s) * w->pitch;
    w->sources[i] = (h.tap + (h.taps - 1 - r) * a.stride_h) * a.kernel_w + v.tap +
                    (v.taps - 1 - s) * a.stride_w;
  }
  return true;
}

/* Blocks of a gradient of the filter that share the pixels, and how many blocks any GPU needs. */
inline int64_t filter_jobs(const job &w) {
  return int64_t{w.steps} * ((w.taps + GROUP_TAPS - 1) / GROUP_TAPS);
}
constexpr int WANTED_BLOCKS = 256;

/* Steps are of 8 or 16 channels. Floats lie 8 bytes further apart than a multiple of 16 of them,
 * lest the lanes that read eight channels of four pixels meet in a bank. */
template <class T>
bool filter_job(const sl__groupconv_args &a, job *w) {
  int fragments = a.channels <= 8 ? 1 : 2;
  *w = whole_job(a);
  w->steps = (a.channels + 8 * fragments - 1) / (8 * fragments);
  w->pitch = sizeof(T) == 2 ? 48 : 72;
  if (!cut(w, a.kernel_h, a.kernel_w, 256)) return false;
  set_taps(w, a.kernel_h, a.kernel_w);
  int images = std::min(256 / (w->rows * w->out_width), SHARED / 2 / w->staged_bytes());
  int blocks_of_one = static_cast<int>(int64_t{w->images} * filter_jobs(*w) / WANTED_BLOCKS);
  if (w->strips == 1) w->group = std::max(1, std::min({images, w->images, blocks_of_one}));
  return true;
}

/* ---- launches ----------------------------------------------------------------------------------
 */

/* Few channels: with many, arithmetic and not memory is the bound, and cuDNN has better kernels. */
inline bool suits(const sl__groupconv_args &a) {
  return a.groups == 1 && a.dilation_h == 1 && a.dilation_w == 1 && a.channels <= MOST_CHANNELS &&
         a.out_channels <= MOST_CHANNELS && a.kernel_h * a.kernel_w <= MOST_TAPS &&
         a.stride_h * a.stride_w <= 9 && a.stride_h <= a.height && a.stride_w <= a.width;
}

template <class T>
bool takes_forward(const sl__groupconv_args &a) {
  job w;
  return suits(a) && forward_job<T>(a, &w);
}
template <class T>
bool takes_data(const sl__groupconv_args &a) {
  job w;
  bool in_phases = a.stride_h == 2 && a.stride_w == 2;
  if (!suits(a) || (!in_phases && a.stride_h * a.stride_w != 1)) return false;
  for (int h = 0; h < a.stride_h; h++)
    for (int v = 0; v < a.stride_w; v++)
      if (!data_job<T>(a, h, v, &w)) return false;
  return true;
}
template <class T>
bool takes_filter(const sl__groupconv_args &a) {
  job w;
  return suits(a) && filter_job<T>(a, &w);
}

/* Needs less than 1 MiB of the workspace. */
template <int JOBS, class T>
void run(struct sl__cuda *cuda, jobs<JOBS> *all, int filter_taps, bool back, const T *in,
         const T *filter, const T *bias, T *out) {
  auto *arranged = static_cast<uint32_t *>(cuda->workspace);
  int words = 0, most_words = 1, strips = 0, bytes = 0;
  for (job &w : all->each) {
    set_alignments(&w, in, (const T *)out);
    w.filter_at = words;
    words += w.filter_words();
    most_words = std::max(most_words, w.filter_words());
    strips = std::max(strips, w.strips);
    bytes = std::max(bytes, w.staged_bytes());
  }
  const job &first = all->each[0];
  int64_t strips_of_all = int64_t{first.images} * strips;
  SL__LAUNCH((arrange_filter<T, JOBS>), dim3(blocks(most_words), JOBS), THREADS, 0, cuda->stream,
             *all, filter_taps, back, filter, arranged);
  SL__LAUNCH((convolve_tiles<T, JOBS>), dim3(static_cast<unsigned>(strips_of_all), JOBS),
             static_cast<unsigned>(threads_of(first)), static_cast<size_t>(bytes), cuda->stream,
             *all, in, reinterpret_cast<const uint4 *>(arranged), bias, out);
}

/* y = act(x * weight + bias), act being none or relu; bias may be NULL. */
template <class T>
void convolve(struct sl__cuda *cuda, const sl__groupconv_args &a, const T *x, const T *weight,
              const T *bias, T *y) {
  jobs<1> all;
  if (!forward_job<T>(a, &all.each[0])) return;
  all.each[0].relu = a.activation == SL_ACTIVATION_RELU;
  run(cuda, &all, all.each[0].taps, false, x, weight, bias, y);
}

template <int PHASES, class T>
void run_back(struct sl__cuda *cuda, const sl__groupconv_args &a, const T *dy, const T *weight,
              T *dx, bool add) {
  jobs<PHASES> all;
  const T *none = nullptr;
  for (int i = 0; i < PHASES; i++) {
    if (!data_job<T>(a, i / a.stride_w, i % a.stride_w, &all.each[i])) return;
    all.each[i].add = add;
  }
  run(cuda, &all, a.kernel_h * a.kernel_w, true, dy, weight, none, dx);
}

/* dx (+)= */
template <class T>
void convolve_back(struct sl__cuda *cuda, const sl__groupconv_args &a, const T *dy, const T *weight,
                   T *dx, bool add) {
  if (a.stride_h * a.stride_w == 1)
    run_back<1>(cuda, a, dy, weight, dx, add);
  else
    run_back<4>(cuda, a, dy, weight, dx, add);
}

/* Enough blocks for any GPU; but their sums are no more than the values that they read, or than
 * CACHED_SUMS, a part of the second-level cache. The number depends on the sizes only, so that all
 * GPUs add in the same order. */
constexpr int64_t CACHED_SUMS = 3 << 20;

inline int64_t parts_of(const job &w, int64_t units, int64_t jobs, int64_t sums, size_t element) {
  int64_t in = int64_t{w.channels} * w.height * w.width, out = w.out_channels * w.plane;
  int64_t read = w.images * (in + out) * static_cast<int64_t>(element) / 4;
  int64_t room = static_cast<int64_t>(SL__CUDA_WORKSPACE / sizeof(float));
  int64_t parts = std::min({units, 384 / jobs, std::max(read, CACHED_SUMS) / sums, room / sums});
  parts = std::max<int64_t>(parts, 1);
  int64_t share = (units + parts - 1) / parts;
  return (units + share - 1) / share;
}

template <int FRAGMENTS, class T>
void filter_gradient(struct sl__cuda *cuda, const job &w, const T *x, const T *dy, float *grad) {
  int64_t jobs = filter_jobs(w);
  int64_t units = (w.images + w.group - 1) / w.group * int64_t{w.strips};
  int width = w.steps * FRAGMENTS * 8, tiles = w.channel_tiles(), threads = threads_of(w);
  int64_t sums = int64_t{w.taps} * tiles * 16 * width;
  int64_t parts = parts_of(w, units, jobs, sums, sizeof(T));
  int united = threads / 32 > tiles ? tiles * GROUP_TAPS * FRAGMENTS * 512 : 0;
  auto *all = static_cast<float *>(cuda->workspace);
  SL__LAUNCH((filter_gradient_tiles<T, FRAGMENTS>),
             dim3(static_cast<unsigned>(parts), static_cast<unsigned>(jobs)),
             static_cast<unsigned>(threads),
             static_cast<size_t>(std::max((w.group * w.staged_bytes() + 15) / 16 * 16, united)),
             cuda->stream, w, static_cast<int>(units), x, dy, all);
  SL__LAUNCH(add_filter_sums, blocks(sums, ACROSS * 4), dim3(ACROSS, DOWN), 0, cuda->stream, w,
             static_cast<int>(parts), width, (const float *)all, grad);
}

/* grad [weights] (+)= */
template <class T>
void weight_gradient(struct sl__cuda *cuda, const sl__groupconv_args &a, const T *x, const T *dy,
                     float *grad, bool add) {
  job w;
  if (!filter_job<T>(a, &w)) return;
  set_alignments(&w, x, dy);
  w.add = add;
  if (a.channels <= 8)
    filter_gradient<1>(cuda, w, x, dy, grad);
  else
    filter_gradient<2>(cuda, w, x, dy, grad);
}

}  // namespace sl::convolution::tiles

#endif
