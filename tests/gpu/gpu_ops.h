/* gpu_ops: every operation on a CPU and on a GPU, from the same inputs; the cases that say of what.
 *
 * How far the two may be apart: both take the same inputs (bf16 where the case is of that type) and
 * sum in float, in different orders. Of n terms of size m and random sign the partial sums are
 * about sqrt(n) m, and each of n roundings errs by at most 2^-24 of that: n 2^-23 m is many
 * standard deviations. Where factors are rounded first (TF32: 2^-11 each; the state of a bf16
 * recurrence: 2^-9) the n products' errors add up like a random walk: 4 sqrt(n) times
 * their size. A result that is stored as bf16 may be a unit of its last place, 2^-7, away. Where a
 * library stores a product's sum as bf16 before bias and activation, or before it adds the sum to
 * what the result holds (cuBLASLt and cuDNN do on an H200), half a unit of that sum, 2^-8 of at
 * most about 2 sqrt(n) m, comes on top. */
#ifndef SL_TESTS_GPU_GPU_OPS_H
#define SL_TESTS_GPU_GPU_OPS_H

#include "codelets/codelets.h"
#include "core/base/random.h"

enum gpu_math { GPU_F32 = 1, GPU_TF32 = 2, GPU_BF16 = 4, GPU_ALL = 7 };
#define GPU_HALVES (GPU_F32 | GPU_BF16)

/* How sure a result is; zero value: to the bit. */
struct sums {
  double terms, magnitude; /* of a sum: number of terms, and the size of the largest */
  double factors;          /* of a product: its factors' size; 0: TF32 rounds nothing here */
  double steps; /* number of times that the result feeds itself, rounded as bf16 in between */
  bool between; /* bias and activation may find the products' sum stored as bf16 */
};

struct buffer {
  struct sl__tensor *tensor, *parent;
  bool result;
  struct sums sums;
  int means;       /* number of leading 32-bit words that are floats */
  int rows, width; /* only the rows (of this many values) that the buffer number rows - 1 counts */
};

#define GPU_MOST_BUFFERS 160
#define GPU_MOST_SIZES 13

/* One task: a case makes its tensors, then submits. */
struct trial {
  struct sl_context *context;
  struct sl__launch launch;
  enum sl_type type; /* the type T in the operations' documentation: SL_F32 or SL_BF16 */
  uint64_t seed;
  bool apart;            /* tensors are parts of others: on a CPU they are not aligned */
  int64_t spoilt;        /* values of the first input that are NaN */
  enum sl_status status; /* first failure in this case */
  int count;
  struct buffer buffers[GPU_MOST_BUFFERS];
  double elements;
};

/* Inputs: uniform in [-1, 1) with some zeros; in [low, high); whole numbers in [low, high), of the
 * type or as integers; `count` rows of a table (see codelets/rows.h). */
struct sl__tensor *given(struct trial *t, enum sl_type type, struct sl_shape shape);
struct sl__tensor *given_in(struct trial *t, enum sl_type type, struct sl_shape shape, double low,
                            double high);
struct sl__tensor *given_wholes(struct trial *t, enum sl_type type, struct sl_shape shape,
                                double low, double high);
struct sl__tensor *given_integers(struct trial *t, struct sl_shape shape, int64_t low,
                                  int64_t high);
struct sl__tensor *given_values(struct trial *t, struct sl_shape shape, const int32_t *values);
struct sl__tensor *given_rows(struct trial *t, int64_t capacity, int64_t count, int64_t table);

/* Results: overwritten ('w': poisoned before), accumulated ('a': the old value counts if the launch
 * accumulates), read and written ('m'). */
struct sl__tensor *written(struct trial *t, enum sl_type type, struct sl_shape shape,
                           struct sums sums);
struct sl__tensor *added(struct trial *t, enum sl_type type, struct sl_shape shape,
                         struct sums sums);
struct sl__tensor *changed(struct trial *t, enum sl_type type, struct sl_shape shape, double low,
                           double high, struct sums sums);
/* The last result is rows, and the one before are their numbers. */
void last_are_rows(struct trial *t, int64_t width);
/* The last result is integers, except for its leading `means` floats. */
void last_has_means(struct trial *t, int means, struct sums sums);

struct gpu_case {
  struct sl__op *op;
  enum sl_status (*submit)(struct trial *t, const int64_t *sizes);
  unsigned math;
  int64_t sizes[GPU_MOST_SIZES];
};

/* The i-th case, or NULL. */
const struct gpu_case *gpu_case_at(int i);

#endif
