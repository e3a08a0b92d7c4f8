/* Tests of products by type: floats, floats whose products may use TensorFloat-32, and bf16. */
#ifndef SL_TESTS_COMMON_PRODUCTS_H
#define SL_TESTS_COMMON_PRODUCTS_H

#include "tests/common/check.h"

struct kind {
  const char *name;
  bool half, tf32;
};
static const struct kind kinds[] = {
    {"f32", false, false}, {"tf32", false, true}, {"bf16", true, false}};
#define KINDS (sizeof kinds / sizeof *kinds)

static inline struct sl__launch launch_of(const struct kind *k, bool add) {
  struct sl__launch l = add ? adding : plain;
  l.tf32 = k->tf32;
  return l;
}

/* random_values, rounded so that tensors of this kind hold them exactly. */
static inline double *values_of(const struct kind *k, int64_t n, uint64_t stream) {
  double *v = random_values(n, stream);
  return k->half ? round_bf16(v, n) : v;
}

static inline struct sl__tensor *tensor_of(const struct kind *k, struct sl_shape shape,
                                           const double *values) {
  return k->half ? bf16_tensor(shape, values) : tensor(shape, values);
}

/* The tensor's values (it is freed) against sums of `terms` products of random values below 1. Such
 * a sum is a random walk as far as sqrt(terms), and so are its roundings' errors, sqrt(terms) of
 * that: about `terms` roundings of 1, and four times as much is allowed. Factors in TensorFloat-32
 * are off by up to 2^-10 each, so products by up to 2^-9, a third of that on average: likewise. */
static inline void assert_sums(const struct kind *k, const char *what, struct sl__tensor *t,
                               const double *want, double terms) {
  char text[64];
  int64_t n = sl_shape_count(&t->shape);
  double roundings = terms + (k->tf32 ? sqrt(terms) * 0x1p-9 / 3 / 6e-8 : 0);
  bool half = t->type == SL_BF16;
  snprintf(text, sizeof text, "%s, %s", what, k->name);
  (half ? assert_near_bf16 : assert_near)(text, take(t), want, n, roundings, 4);
}

/* A GPU may round a product to bf16 before it adds a bias below 1 and before the activation: an
 * error of up to 2^-8 of it, in units of the tolerance of assert_sums for a term. */
static inline double stored_twice(const struct kind *k, const double *want, int64_t n) {
  double largest = 0;
  for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(want[i]));
  return k->half ? (largest + 1) * 0x1p-8 / 4 / 6e-8 : 0;
}

#endif
