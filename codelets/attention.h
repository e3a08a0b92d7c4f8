/* Causal attention: arguments, and what CPU and CUDA compute per value. */
#ifndef SL_CODELETS_ATTENTION_H
#define SL_CODELETS_ATTENTION_H

#include "codelets/codelets.h"
#include "core/base/random.h"
#include "core/base/simd.h"

enum { SL__ATTENTION_MOST_DIMS = 256 }; /* of a head */

/* x [rows, steps, (heads + 2 kv_heads) dims]; the state has `context` steps for each row, 0: there
 * is none. */
struct sl__attention_args {
  int64_t rows, steps, context;
  int32_t heads, kv_heads, dims;
  float scale; /* 1 / sqrt(dims) */
  struct sl__attention o;
};

/* Floats of a time step of x, of y and of the state. */
SL__HOST_DEVICE SL__INLINE int64_t sl__attention_in(const struct sl__attention_args *a) {
  return (int64_t)(a->heads + 2 * a->kv_heads) * a->dims;
}
SL__HOST_DEVICE SL__INLINE int64_t sl__attention_out(const struct sl__attention_args *a) {
  return (int64_t)a->heads * a->dims;
}
SL__HOST_DEVICE SL__INLINE int64_t sl__attention_state(const struct sl__attention_args *a) {
  return 2 * (int64_t)a->kv_heads * a->dims;
}

/* Floats of the copies that a GPU's kernels make in scratch memory: of turned queries and keys, or
 * of keys and values where there is no state. */
SL__HOST_DEVICE SL__INLINE int64_t sl__attention_copies(const struct sl__attention_args *a) {
  int64_t turned = a->o.rope_dims ? (int64_t)(a->heads + a->kv_heads) * a->dims : 0;
  int64_t cached = a->context ? 0 : sl__attention_state(a);
  return a->rows * a->steps * (turned > cached ? turned : cached);
}

/* The random number of key 0 for a query: its first one is a multiple of 4, which one call of the
 * generator begins with. */
SL__HOST_DEVICE SL__INLINE uint64_t sl__attention_draw(const struct sl__attention_args *a,
                                                       int64_t row, int64_t head, int64_t query) {
  uint64_t context = (uint64_t)a->o.context, pitch = (context + 3) / 4 * 4;
  uint64_t line = (a->o.dropout.first + (uint64_t)row) * (uint64_t)a->heads + (uint64_t)head;
  return (line * context + (uint64_t)query) * pitch;
}

/* Cosine and sine of an angle. */
struct sl__turn {
  float cos, sin;
};

/* Turns a step of the position for the pair i of a head's values (Su et al., arXiv 2104.09864). */
SL__HOST_DEVICE SL__INLINE double sl__rope_turns(const struct sl__attention *o, int64_t i) {
  return pow((double)o->rope_base, -2.0 * (double)i / (double)o->rope_dims) * 0.15915494309189535;
}

/* Of a number of whole turns, within 2e-7; no branch, so that it vectorises. */
SL__HOST_DEVICE SL__INLINE struct sl__turn sl__turn_of(double turns) {
  const double shift = 6755399441055744.0; /* 1.5 x 2^52: adding it rounds to a whole number */
  double quarters = 4 * (turns - ((turns + shift) - shift));
  double whole = (quarters + shift) - shift;
  float r = (float)((quarters - whole) * 1.5707963267948966), s = r * r;
  float sine = 2.7557319e-6f, cosine = -2.7557319e-7f;
  sine = sine * s - 1.9841270e-4f;
  sine = sine * s + 8.3333333e-3f;
  sine = sine * s - 1.6666667e-1f;
  sine = sine * s * r + r;
  cosine = cosine * s + 2.4801587e-5f;
  cosine = cosine * s - 1.3888889e-3f;
  cosine = cosine * s + 4.1666667e-2f;
  cosine = cosine * s - 0.5f;
  cosine = cosine * s + 1.0f;
  int32_t k = (int32_t)whole;
  float x = k & 1 ? sine : cosine, y = k & 1 ? cosine : sine;
  struct sl__turn t = {(k + 1) & 2 ? -x : x, k & 2 ? -y : y};
  return t;
}

#endif
