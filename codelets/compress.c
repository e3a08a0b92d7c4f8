/* Gradient compression, for shards that travel between ranks. The residual keeps the part of a
 * gradient that the compressed form loses, for later steps (error feedback).
 *
 * 2bit: MXNet's 2-bit compression with its bits and bytes (doc "Gradient Compression",
 * src/kvstore/gradient_compression-inl.h): r += g; if r >= t send t and keep r - t, if r <= -t send
 * -t and keep r + t, else send 0. 1bit: Seide, Fu, Droppo, Li, Yu, "1-Bit Stochastic Gradient
 * Descent and its Application to Data-Parallel Distributed Training of Speech DNNs", Interspeech
 * 2014: r += g; send r's sign; each sign stands for the mean of the values that have it, here over
 * the shard (there: a column). MXNet 1.9's "1bit" has the same bits, but sends +-1. fp16, bf16: the
 * rounded gradient, without a residual.
 *
 * A gradient that is not finite must stop the run as it does uncompressed. So 2bit sends such an
 * element as NaN (by the code that MXNet does not use), 1bit sends NaN for the whole shard, and the
 * residuals stay not finite; fp16 and bf16 have an infinity and a NaN of their own (fp16: values
 * from 65520 on are infinite). */
#include "codelets/compress.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/numbers.h"
#include "codelets/kernels/elementwise.h"

/* ---- CPU kernels: 2bit ------------------------------------------------------------------- */

/* A table: not every vector unit can shift each value by its own distance. */
#define FOUR(place, k) place(k), place(k + 1), place(k + 2), place(k + 3)
#define SIXTEEN(place, k)                                                                          \
  FOUR(place, k), FOUR(place, k + 4), FOUR(place, k + 8), FOUR(place, k + 12)
static const uint32_t low_2bit[SL__2BIT_VALUES] = {SIXTEEN(SL__2BIT_LOW, 0)};
static const uint32_t place_1bit[SL__1BIT_VALUES] = {SIXTEEN(SL__1BIT_PLACE, 0),
                                                     SIXTEEN(SL__1BIT_PLACE, 16)};

/* One word of `values` values; a constant number gives vector code. */
SL__INLINE uint32_t pack_2bit(const float *restrict g, float *restrict r, int64_t values, float t) {
  uint32_t word = 0;
  for (int64_t k = 0; k < values; k++) {
    float sum = r[k] + g[k];
    word |= sl__2bit_code(sum, t, low_2bit[k]);
    r[k] = sl__2bit_rest(sum, t);
  }
  return word;
}

SL__SIMD static void compress_2bit(const float *restrict g, float *restrict r,
                                   uint32_t *restrict packed, int64_t n, float t) {
  int64_t i = 0;
  for (; i + SL__2BIT_VALUES <= n; i += SL__2BIT_VALUES)
    *packed++ = pack_2bit(g + i, r + i, SL__2BIT_VALUES, t);
  if (i < n) *packed = pack_2bit(g + i, r + i, n - i, t);
}

SL__INLINE void unpack_2bit(uint32_t word, float *restrict y, int64_t values, float t, bool add) {
  for (int64_t k = 0; k < values; k++) {
    float value = sl__2bit_value(word, t, low_2bit[k]);
    y[k] = add ? y[k] + value : value;
  }
}

SL__INLINE void unpack_2bit_all(const uint32_t *restrict packed, float *restrict y, int64_t n,
                                float t, bool add) {
  int64_t i = 0;
  for (; i + SL__2BIT_VALUES <= n; i += SL__2BIT_VALUES)
    unpack_2bit(*packed++, y + i, SL__2BIT_VALUES, t, add);
  if (i < n) unpack_2bit(*packed, y + i, n - i, t, add);
}

SL__SIMD static void decompress_2bit(const uint32_t *packed, float *y, int64_t n, float t,
                                     bool add) {
  if (add)
    unpack_2bit_all(packed, y, n, t, true);
  else
    unpack_2bit_all(packed, y, n, t, false);
}

/* ---- CPU kernels: 1bit ------------------------------------------------------------------- */

#define LANES                                                                                      \
  16 /* interleaved sums, independent of the vectors' width: the same bits everywhere              \
      */

struct lanes {
  double above[LANES], below[LANES];
  int32_t count[LANES]; /* of values >= 0 */
};

/* By masks: a branch on random signs would be mispredicted every other time. */
SL__INLINE void add_to_lanes(const float *restrict g, float *restrict r, int64_t values,
                             struct lanes *restrict sum) {
  for (int64_t k = 0; k < values; k++) {
    float x = r[k] + g[k];
    uint32_t bits = sl__float_bits(x), mask = sl__mask(x >= 0);
    r[k] = x;
    sum->above[k] += (double)sl__bits_float(bits & mask);
    sum->below[k] += (double)sl__bits_float(bits & ~mask);
    sum->count[k] -= (int32_t)mask;
  }
}

/* r += g, and the means of the sums. */
SL__SIMD static struct sl__1bit_means means_1bit(const float *restrict g, float *restrict r,
                                                 int64_t n) {
  struct lanes sum = {0};
  double above = 0, below = 0;
  int64_t i = 0, count = 0;
  for (; i + LANES <= n; i += LANES) add_to_lanes(g + i, r + i, LANES, &sum);
  add_to_lanes(g + i, r + i, n - i, &sum);
  for (int k = 0; k < LANES; k++) {
    above += sum.above[k];
    below += sum.below[k];
    count += sum.count[k];
  }
  return sl__1bit_means(above, below, count, n);
}

SL__INLINE uint32_t pack_1bit(float *restrict r, int64_t values, struct sl__1bit_means m) {
  uint32_t word = 0;
  for (int64_t k = 0; k < values; k++) {
    uint32_t up = sl__mask(r[k] >= 0);
    word |= up & place_1bit[k];
    r[k] -= sl__1bit_value(up, m);
  }
  return word;
}

SL__SIMD static void signs_1bit(float *restrict r, uint32_t *restrict packed, int64_t n,
                                struct sl__1bit_means m) {
  int64_t i = 0;
  for (; i + SL__1BIT_VALUES <= n; i += SL__1BIT_VALUES)
    *packed++ = pack_1bit(r + i, SL__1BIT_VALUES, m);
  if (i < n) *packed = pack_1bit(r + i, n - i, m);
}

static void compress_1bit(const float *g, float *r, uint32_t *packed, int64_t n) {
  struct sl__1bit_means m = means_1bit(g, r, n);
  packed[0] = sl__float_bits(m.upper);
  packed[1] = sl__float_bits(m.lower);
  signs_1bit(r, packed + SL__1BIT_FRONT, n, m);
}

SL__INLINE void unpack_1bit(uint32_t word, float *restrict y, int64_t values,
                            struct sl__1bit_means m, bool add) {
  for (int64_t k = 0; k < values; k++) {
    float value = sl__1bit_value(sl__mask((word & place_1bit[k]) != 0), m);
    y[k] = add ? y[k] + value : value;
  }
}

SL__INLINE void unpack_1bit_all(const uint32_t *restrict packed, float *restrict y, int64_t n,
                                bool add) {
  struct sl__1bit_means m = {sl__bits_float(packed[0]), sl__bits_float(packed[1])};
  int64_t i = 0;
  for (packed += SL__1BIT_FRONT; i + SL__1BIT_VALUES <= n; i += SL__1BIT_VALUES)
    unpack_1bit(*packed++, y + i, SL__1BIT_VALUES, m, add);
  if (i < n) unpack_1bit(*packed, y + i, n - i, m, add);
}

SL__SIMD static void decompress_1bit(const uint32_t *packed, float *y, int64_t n, bool add) {
  if (add)
    unpack_1bit_all(packed, y, n, true);
  else
    unpack_1bit_all(packed, y, n, false);
}

/* ---- CPU kernels: fp16, bf16; one after the other in memory, so the first of a pair is the word's
 * lower half ---- */

SL__SIMD static void compress_fp16(const float *restrict g, uint16_t *restrict packed, int64_t n) {
  for (int64_t i = 0; i < n; i++) packed[i] = sl__fp16_code(g[i]);
}

SL__SIMD static void compress_bf16(const float *restrict g, uint16_t *restrict packed, int64_t n) {
  for (int64_t i = 0; i < n; i++) packed[i] = sl__bf16_code(g[i]);
}

SL__SIMD static void decompress_fp16(const uint16_t *restrict packed, float *restrict y, int64_t n,
                                     bool add) {
  if (add)
    for (int64_t i = 0; i < n; i++) y[i] += sl__fp16_value(packed[i]);
  else
    for (int64_t i = 0; i < n; i++) y[i] = sl__fp16_value(packed[i]);
}

SL__SIMD static void decompress_bf16(const uint16_t *restrict packed, float *restrict y, int64_t n,
                                     bool add) {
  if (add)
    for (int64_t i = 0; i < n; i++) y[i] += sl__bf16_value(packed[i]);
  else
    for (int64_t i = 0; i < n; i++) y[i] = sl__bf16_value(packed[i]);
}

/* ---- CPU kernels: by method -------------------------------------------------------------- */

SL__KERNEL void sl__compress_residual_cpu(void *buffers[], void *cl_arg) {
  const struct sl__compress_args *a = sl__args(cl_arg);
  const float *gradient = sl__buffer(buffers, 0);
  float *residual = sl__buffer(buffers, 1);
  uint32_t *packed = sl__buffer(buffers, 2);
  if (a->method == SL__COMPRESS_2BIT)
    compress_2bit(gradient, residual, packed, a->count, a->threshold);
  else
    compress_1bit(gradient, residual, packed, a->count);
}

SL__KERNEL void sl__compress_half_cpu(void *buffers[], void *cl_arg) {
  const struct sl__compress_args *a = sl__args(cl_arg);
  uint16_t *packed = sl__buffer(buffers, 1);
  (a->method == SL__COMPRESS_FP16 ? compress_fp16 : compress_bf16)(sl__buffer(buffers, 0), packed,
                                                                   a->count);
  if (a->count % 2) packed[a->count] = 0; /* the same gradient must give the same bits */
}

SL__KERNEL void sl__decompress_cpu(void *buffers[], void *cl_arg) {
  const struct sl__compress_args *a = sl__args(cl_arg);
  const void *packed = sl__buffer(buffers, 0);
  float *y = sl__buffer(buffers, 1);
  bool add = sl__accumulate(cl_arg);
  switch (a->method) {
    case SL__COMPRESS_2BIT: decompress_2bit(packed, y, a->count, a->threshold, add); break;
    case SL__COMPRESS_1BIT: decompress_1bit(packed, y, a->count, add); break;
    case SL__COMPRESS_FP16: decompress_fp16(packed, y, a->count, add); break;
    default: decompress_bf16(packed, y, a->count, add);
  }
}

/* ---- the method -------------------------------------------------------------------------- */

static const char *const method_names[] = {
    [SL__COMPRESS_NONE] = "none", [SL__COMPRESS_2BIT] = "2bit", [SL__COMPRESS_1BIT] = "1bit",
    [SL__COMPRESS_FP16] = "fp16", [SL__COMPRESS_BF16] = "bf16",
};
#define METHODS ((int)(sizeof method_names / sizeof *method_names))

static enum sl_status fail_parse(const char *text, const char *why) {
  return sl__fail(
      SL_BAD_ARGUMENT,
      "compression '%s': %s; understood are none, 2bit[:THRESHOLD], 1bit, fp16 and bf16", text,
      why);
}

static bool threshold_fits(float threshold) { return threshold > 0 && threshold < INFINITY; }

static bool parse_threshold(const char *text, float *threshold) {
  double value;
  if (!sl__parse_real(text, 0, FLT_MAX, &value)) return false;
  *threshold = (float)value;
  return threshold_fits(*threshold);
}

enum sl_status sl__compress_parse(const char *text, struct sl__compress *c) {
  size_t length = strcspn(text, ":");
  int method = 0;
  while (method < METHODS && (strlen(method_names[method]) != length ||
                              strncmp(method_names[method], text, length) != 0))
    method++;
  if (method == METHODS) return fail_parse(text, "its method is unknown");
  struct sl__compress parsed = {.method = (enum sl__compression)method};
  if (method == SL__COMPRESS_2BIT) parsed.threshold = 0.5f;
  if (text[length] && method != SL__COMPRESS_2BIT)
    return fail_parse(text, "only 2bit takes a value");
  if (text[length] && !parse_threshold(text + length + 1, &parsed.threshold))
    return fail_parse(text, "THRESHOLD must be a finite number above 0");
  *c = parsed;
  return SL_OK;
}

const char *sl__compress_text(const struct sl__compress *c, char text[SL__COMPRESS_TEXT]) {
  char threshold[SL__FLOAT_TEXT];
  bool has_value = c->method == SL__COMPRESS_2BIT;
  snprintf(text, SL__COMPRESS_TEXT, "%s%s%s", method_names[c->method], has_value ? ":" : "",
           has_value ? sl__float_text(c->threshold, threshold) : "");
  return text;
}

static int64_t divide_up(int64_t count, int64_t by) { return count / by + (count % by != 0); }

int64_t sl__compress_words(const struct sl__compress *c, int64_t count) {
  switch (c->method) {
    case SL__COMPRESS_2BIT: return divide_up(count, SL__2BIT_VALUES);
    case SL__COMPRESS_1BIT: return SL__1BIT_FRONT + divide_up(count, SL__1BIT_VALUES);
    case SL__COMPRESS_FP16:
    case SL__COMPRESS_BF16: return divide_up(count, 2);
    default: return count;
  }
}

bool sl__compress_has_residual(const struct sl__compress *c) {
  return c->method == SL__COMPRESS_2BIT || c->method == SL__COMPRESS_1BIT;
}

/* ---- submission -------------------------------------------------------------------------- */

static enum sl_status check(const char *name, const struct sl__compress *c,
                            const struct sl__tensor *values, const struct sl__tensor *packed,
                            struct sl__compress_args *a) {
  *a = (struct sl__compress_args){.count = sl_shape_count(&values->shape),
                                  .method = (int32_t)c->method,
                                  .threshold = c->threshold};
  if (c->method <= SL__COMPRESS_NONE || c->method >= METHODS)
    return sl__fail(SL_BAD_ARGUMENT, "%s: method %d compresses nothing; copy instead", name,
                    (int)c->method);
  if (c->method == SL__COMPRESS_2BIT && !threshold_fits(c->threshold))
    return sl__fail(SL_BAD_ARGUMENT, "%s: the threshold is %g; it must be finite and above 0", name,
                    (double)c->threshold);
  int64_t words = sl__compress_words(c, a->count), given = sl_shape_count(&packed->shape);
  if (values->type == SL_F32 && packed->type == SL_I32 && given == words) return SL_OK;
  return sl__fail(
      SL_BAD_SHAPE, "%s: %lld values (f32) by %s are %lld words (i32), not %lld; or a type differs",
      name, (long long)a->count, method_names[c->method], (long long)words, (long long)given);
}

enum sl_status sl__compress(struct sl_context *context, const struct sl__launch *l,
                            const struct sl__compress *c, struct sl__tensor *gradient,
                            struct sl__tensor *residual, struct sl__tensor *packed) {
  struct sl__compress_args a;
  enum sl_status status = check("compress", c, gradient, packed, &a);
  if (status != SL_OK) return status;
  bool has_residual = sl__compress_has_residual(c);
  if (has_residual != (residual != NULL))
    return sl__fail(SL_BAD_ARGUMENT, "compress: %s %s", method_names[c->method],
                    has_residual ? "needs a residual; give one" : "has no residual; give NULL");
  if (!has_residual)
    return sl__submit(context, &sl__op_compress_half, l, 2,
                      (struct sl__tensor *[]){gradient, packed}, &a, sizeof a, (double)a.count,
                      (uint32_t)c->method);
  status = sl__same_count("compress", 2, (struct sl__tensor *[]){gradient, residual}, &a.count);
  if (status != SL_OK) return status;
  return sl__submit(context, &sl__op_compress_residual, l, 3,
                    (struct sl__tensor *[]){gradient, residual, packed}, &a, sizeof a,
                    3.0 * (double)a.count, (uint32_t)c->method);
}

enum sl_status sl__decompress(struct sl_context *context, const struct sl__launch *l,
                              const struct sl__compress *c, struct sl__tensor *packed,
                              struct sl__tensor *values) {
  struct sl__compress_args a;
  enum sl_status status = check("decompress", c, values, packed, &a);
  if (status != SL_OK) return status;
  return sl__submit(context, &sl__op_decompress, l, 2, (struct sl__tensor *[]){packed, values}, &a,
                    sizeof a, (double)a.count, (uint32_t)c->method);
}
