/* Products of small matrices on tensor cores; included by *_cuda.cu only. A warp multiplies A
 * [16, DEPTH] by B [DEPTH, 8] and adds the result to C [16, 8]: PTX's mma.sync, whose instruction
 * sheet ("Matrix fragments for mma.m16n8k16 and .m16n8k8", PTX ISA) says which lane has which
 * elements. Here a = lane / 4 and b = lane % 4:
 *
 *     C: rows a (of v[0], v[1]) and a + 8 (of v[2], v[3]), columns 2 b and 2 b + 1
 *
 * A and B come from tiles in shared memory, their rows `pitch` elements apart (a multiple of 32
 * bytes, plus 16: then no two lanes meet in a bank). How a tile's numbers are kept, and how exact
 * the products are, is a Core's matter:
 *
 *     bf16_core     bf16, so the products are exact
 *     tf32_core     floats rounded to TensorFloat-32 (11 bits)
 *     float_core    floats, each as the sum of two of TensorFloat-32; the product of the two small
 *                   parts is left out, at most 2^-22 of each product
 *
 * Tensor cores of these types come with architecture 8.0; code for older ones computes nothing.
 * Where the stand-in is in place of a GPU, a warp's lanes exchange their registers through memory
 * instead. */
#ifndef SL_CODELETS_KERNELS_MMA_CUDA_H
#define SL_CODELETS_KERNELS_MMA_CUDA_H

#include "codelets/kernels/cuda.h"

namespace sl {

struct fragment_a {
  uint32_t r[4];
};
struct fragment_b {
  uint32_t r[2];
};
struct fragment_c {
  float v[4];
};

__device__ inline int lane_row() { return static_cast<int>(threadIdx.x) % 32 / 4; }
__device__ inline int lane_column() { return static_cast<int>(threadIdx.x) % 4; }

/* ---- instructions -------------------------------------------------------------------------- */

#ifdef SL_CUDA_STANDIN
/* What the lanes of a warp bring. The warps of a block take turns in an OS thread. */
struct warp_factors {
  float a[16][16], b[16][8];
};

/* Half i of a register with HALVES elements. */
template <int HALVES>
float element(uint32_t bits, int i) {
  return HALVES == 2 ? sl__bf16_value(static_cast<uint16_t>(bits >> 16 * i)) : sl__bits_float(bits);
}

/* Two sets of factors by turns: when a lane writes one anew, all have read it, or they would not
 * have reached the product between. */
template <int HALVES>
SL_UNSEEN void multiply(fragment_c &c, const fragment_a &a, const fragment_b &b) {
  static thread_local warp_factors all[32][2];
  static thread_local unsigned char turns[1024];
  warp_factors &w = all[threadIdx.x / 32][turns[threadIdx.x]];
  int row = lane_row(), column = lane_column();
  turns[threadIdx.x] ^= 1;
  for (int i = 0; i < HALVES; i++)
    for (int half = 0; half < 2; half++) {
      int k = (half * 4 + column) * HALVES + i;
      w.a[row][k] = element<HALVES>(a.r[2 * half], i);
      w.a[row + 8][k] = element<HALVES>(a.r[2 * half + 1], i);
      w.b[k][row] = element<HALVES>(b.r[half], i);
    }
  __syncwarp();
  for (int i = 0; i < 4; i++)
    for (int k = 0; k < 8 * HALVES; k++)
      c.v[i] += w.a[row + i / 2 * 8][k] * w.b[k][2 * column + i % 2];
}

inline uint32_t rounded_to_tf32(float x) {
  uint32_t bits = sl__float_bits(x);
  return isfinite(x) ? (bits + 0x1000u) & ~0x1fffu : bits;
}
inline uint32_t pair_of(float first, float second) {
  return sl__bf16_code(first) | static_cast<uint32_t>(sl__bf16_code(second)) << 16;
}
/* The offsets of all lanes of the warp. As in multiply, two sets by turns. */
SL_UNSEEN inline const int *of_lanes(int offset) {
  static thread_local int all[32][2][32];
  static thread_local unsigned char turns[1024];
  int *set = all[threadIdx.x / 32][turns[threadIdx.x]];
  turns[threadIdx.x] ^= 1;
  set[threadIdx.x % 32] = offset;
  __syncwarp();
  return set;
}
inline void load_matrices(const void *base, int offset, uint32_t (&r)[4]) {
  const int *rows = of_lanes(offset) + lane_row();
  for (int i = 0; i < 4; i++)
    memcpy(&r[i], static_cast<const char *>(base) + rows[8 * i] + 4 * lane_column(), sizeof r[i]);
}
inline void load_turned_matrices(const void *base, int offset, uint32_t (&r)[4]) {
  const int *rows = of_lanes(offset) + 2 * lane_column();
  const char *column = static_cast<const char *>(base) + 2 * lane_row();
  for (int i = 0; i < 4; i++) {
    uint16_t two[2];
    for (int k = 0; k < 2; k++) memcpy(&two[k], column + rows[8 * i + k], sizeof two[k]);
    r[i] = two[0] | static_cast<uint32_t>(two[1]) << 16;
  }
}
inline void copy_16(void *to, const void *from, bool valid) {
  if (valid)
    memcpy(to, from, 16);
  else
    memset(to, 0, 16);
}
inline void copy_4(void *to, const void *from) { memcpy(to, from, 4); }
inline void await_copies() {}
inline float power_of_two(float x) { return exp2f(x); }
#else
template <int HALVES>
__device__ inline void multiply(fragment_c &c, const fragment_a &a, const fragment_b &b) {
#if __CUDA_ARCH__ >= 800
  if constexpr (HALVES == 2)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c.v[0]), "+f"(c.v[1]), "+f"(c.v[2]), "+f"(c.v[3])
        : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b.r[0]), "r"(b.r[1]));
  else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c.v[0]), "+f"(c.v[1]), "+f"(c.v[2]), "+f"(c.v[3])
        : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b.r[0]), "r"(b.r[1]));
#endif
}

__device__ inline uint32_t rounded_to_tf32(float x) {
  uint32_t bits = 0;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
#endif
  return bits;
}
__device__ inline uint32_t pair_of(float first, float second) {
  uint32_t bits = 0;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
#endif
  return bits;
}

__device__ inline uint32_t shared_address(const void *p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
/* Four matrices of 8 rows of 16 bytes in shared memory: lane i says where row i % 8 of matrix i / 8
 * is, and gets the word lane_column() of row lane_row() of each; turned (halves only): the elements
 * lane_row() of rows 2 lane_column() and the next. */
__device__ inline void load_matrices(const void *base, int offset, uint32_t (&r)[4]) {
  uint32_t row = shared_address(base) + offset;
#if __CUDA_ARCH__ >= 800
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
#endif
}
__device__ inline void load_turned_matrices(const void *base, int offset, uint32_t (&r)[4]) {
  uint32_t row = shared_address(base) + offset;
#if __CUDA_ARCH__ >= 800
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
#endif
}

/* Copies from global to shared memory go on beside the thread's work until await_copies. Not valid:
 * zeros, and nothing is read. */
__device__ inline void copy_16(void *to, const void *from, bool valid) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(valid ? 16 : 0)
               : "memory");
#endif
}
__device__ inline void copy_4(void *to, const void *from) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from)
               : "memory");
#endif
}
__device__ inline void await_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

/* 2^x within 2^-22 of it; below 2^-126 it is 0. */
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#endif

/* Of a tile with rows `pitch` apart: an A; two B of neighbouring columns, which are rows of the
 * tile, or whose terms are (halves only). */
template <class W>
__device__ inline fragment_a load_rows(const W *tile, int pitch) {
  int lane = static_cast<int>(threadIdx.x) % 32, size = static_cast<int>(sizeof *tile);
  fragment_a a = {};
  load_matrices(tile, lane % 16 * pitch * size + lane / 16 * 16, a.r);
  return a;
}
template <class W>
__device__ inline void load_two_rows(fragment_b (&b)[2], const W *tile, int pitch) {
  int lane = static_cast<int>(threadIdx.x) % 32, size = static_cast<int>(sizeof *tile);
  uint32_t r[4] = {};
  load_matrices(tile, (lane / 16 * 8 + lane % 8) * pitch * size + lane / 8 % 2 * 16, r);
  b[0] = {{r[0], r[1]}};
  b[1] = {{r[2], r[3]}};
}
__device__ inline void load_two_turned(fragment_b (&b)[2], const uint16_t *tile, int pitch) {
  int lane = static_cast<int>(threadIdx.x) % 32;
  uint32_t r[4] = {};
  load_turned_matrices(tile, lane % 16 * pitch * 2 + lane / 16 * 16, r);
  b[0] = {{r[0], r[1]}};
  b[1] = {{r[2], r[3]}};
}

/* ---- kinds of numbers ---------------------------------------------------------------------- */

/* stored: an element of a tile; store: eight neighbours, at a multiple of 16 bytes; KEEPS<V>: a
 * tile keeps the bits of a V as they are. DEPTH: the terms of an instruction, as elements of a
 * row. load_a: the rows and terms of A from tile on; load_two: two B of neighbouring columns, which
 * are the tile's rows; load_two_turned: whose terms are the tile's rows (in the sequence of a_of).
 * a_of: DEPTH columns of a result, C's `DEPTH / 8`, as an A. */
struct bf16_core {
  using stored = uint16_t;
  static constexpr int DEPTH = 16, PAD = 8;
  template <class V>
  static constexpr bool KEEPS = sizeof(V) == 2;

  __device__ static void store(const float (&v)[8], stored *to) {
    *reinterpret_cast<uint4 *>(to) = {pair_of(v[0], v[1]), pair_of(v[2], v[3]), pair_of(v[4], v[5]),
                                      pair_of(v[6], v[7])};
  }
  __device__ static fragment_a load_a(const stored *tile, int pitch) {
    return load_rows(tile, pitch);
  }
  __device__ static void load_two(fragment_b (&b)[2], const stored *tile, int pitch) {
    load_two_rows(b, tile, pitch);
  }
  __device__ static void load_two_turned(fragment_b (&b)[2], const stored *tile, int pitch) {
    sl::load_two_turned(b, tile, pitch);
  }
  __device__ static fragment_a a_of(const fragment_c *c) {
    return {{pair_of(c[0].v[0], c[0].v[1]), pair_of(c[0].v[2], c[0].v[3]),
             pair_of(c[1].v[0], c[1].v[1]), pair_of(c[1].v[2], c[1].v[3])}};
  }
  __device__ static void add_product(fragment_c &c, const fragment_a &a, const fragment_b &b) {
    multiply<2>(c, a, b);
  }
};

/* As A, the columns 2 b and 2 b + 1 of a result are the terms b and b + 4: load_turned takes the
 * tile's rows in that sequence. */
struct tf32_core {
  using stored = uint32_t;
  static constexpr int DEPTH = 8, PAD = 4;
  template <class V>
  static constexpr bool KEEPS = false;

  __device__ static void store(const float (&v)[8], stored *to) {
    uint32_t r[8];
#pragma unroll
    for (int i = 0; i < 8; i++) r[i] = rounded_to_tf32(v[i]);
    store_words(r, to);
  }
  __device__ static void store_words(const uint32_t (&r)[8], stored *to) {
    reinterpret_cast<uint4 *>(to)[0] = {r[0], r[1], r[2], r[3]};
    reinterpret_cast<uint4 *>(to)[1] = {r[4], r[5], r[6], r[7]};
  }
  __device__ static fragment_a load_a(const stored *tile, int pitch) {
    return load_rows(tile, pitch);
  }
  __device__ static fragment_b load_turned(const stored *tile, int pitch) {
    const stored *from = tile + 2 * lane_column() * pitch + lane_row();
    return {{from[0], from[pitch]}};
  }
  __device__ static void load_two(fragment_b (&b)[2], const stored *tile, int pitch) {
    load_two_rows(b, tile, pitch);
  }
  __device__ static void load_two_turned(fragment_b (&b)[2], const stored *tile, int pitch) {
    b[0] = load_turned(tile, pitch);
    b[1] = load_turned(tile + 8, pitch);
  }
  __device__ static fragment_a a_of(const fragment_c *c) {
    return {{rounded_to_tf32(c->v[0]), rounded_to_tf32(c->v[2]), rounded_to_tf32(c->v[1]),
             rounded_to_tf32(c->v[3])}};
  }
  __device__ static void add_product(fragment_c &c, const fragment_a &a, const fragment_b &b) {
    multiply<1>(c, a, b);
  }
};

struct float_core : tf32_core {
  template <class V>
  static constexpr bool KEEPS = sizeof(V) == 4;

  __device__ static void store(const float (&v)[8], stored *to) {
    uint32_t r[8];
#pragma unroll
    for (int i = 0; i < 8; i++) r[i] = sl__float_bits(v[i]);
    store_words(r, to);
  }
  __device__ static fragment_a a_of(const fragment_c *c) {
    return {{sl__float_bits(c->v[0]), sl__float_bits(c->v[2]), sl__float_bits(c->v[1]),
             sl__float_bits(c->v[3])}};
  }
  /* Takes the large parts out of n floats; what remains is exact before its own rounding. */
  __device__ static void split(int n, uint32_t *large, uint32_t *small) {
#pragma unroll
    for (int i = 0; i < n; i++) {
      float x = sl__bits_float(large[i]);
      large[i] = rounded_to_tf32(x);
      small[i] = rounded_to_tf32(x - sl__bits_float(large[i]));
    }
  }
  __device__ static void add_product(fragment_c &c, fragment_a a, fragment_b b) {
    fragment_a small_a;
    fragment_b small_b;
    split(4, a.r, small_a.r);
    split(2, b.r, small_b.r);
    multiply<1>(c, small_a, b);
    multiply<1>(c, a, small_b);
    multiply<1>(c, a, b);
  }
};

}  // namespace sl

#endif
