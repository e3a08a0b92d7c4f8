/* Which implementation serves an operation on a shape. The choice is made before the task is
 * submitted and travels in the task's arguments. It is never made task by task: the same run would
 * give different bits each time. */
#ifndef SL_CODELETS_KERNELS_CHOICE_H
#define SL_CODELETS_KERNELS_CHOICE_H

#include "codelets/kernels/gemm.h"
#include "core/runtime/context.h"
#include "core/runtime/tensor.h"

enum sl__implementation {
  SL__OWN_OPENBLAS, /* our own loops; products by OpenBLAS */
  SL__OWN_ONEDNN,   /* our own loops; products by oneDNN */
  SL__ONEDNN,       /* oneDNN's primitive for the whole operation */
  SL__OWN,          /* our own loops and products (codelets/kernels/direct_conv.c, skinny_gemm.c) */
  SL__WINOGRAD,     /* a convolution algorithm with fewer products (codelets/kernels/winograd.c) */
  SL__BF16,         /* bf16 as it is: oneDNN's products, our own loops */
  SL__IMPLEMENTATIONS
};

struct sl__candidates {
  const char *operation;
  uint32_t mask; /* bit i: implementation i exists in this build */
  enum sl__implementation preferred;
  const int32_t
      *sizes; /* distinguishes shapes; part of the key under which a choice is remembered */
  int size_count;
  /* Runs the operation once with an implementation on scratch memory, for measurement. */
  void (*run)(enum sl__implementation implementation, const void *args, float *const *memory);
  int64_t elements[4]; /* of memory[0] to memory[3] */
};

/* Returns the preferred implementation, or with the context's tuning the one that was fastest in a
 * measurement: now, or in an earlier run. */
enum sl__implementation sl__choose(struct sl_context *context,
                                   const struct sl__candidates *candidates, const void *args);

/* Of the mask's implementations the one with the least seconds; the preferred one unless another is
 * 5 % faster. */
enum sl__implementation sl__choice_quickest(const struct sl__candidates *candidates,
                                            const double seconds[SL__IMPLEMENTATIONS]);

/* For an operation of several products that does not justify a measurement of its own: the
 * preferred library, or the one that a test forces. */
enum sl__implementation sl__product_choice(const struct sl_context *context);

/* The same of a product that our own code (SL__OWN) can serve. It does if it is preferred,
 * unless a test forces another implementation, or if a test forces it. */
static inline enum sl__implementation sl__product_choice_with_own(const struct sl_context *context,
                                                                  bool prefers_own) {
  int forced = context->forced_implementation - 1;
  bool is_own = forced < 0 ? prefers_own : forced == SL__OWN;
  return is_own ? SL__OWN : sl__product_choice(context);
}

/* The library of an implementation's products of floats. */
static inline enum sl__gemm sl__gemm_of(int32_t implementation) {
  if (implementation == SL__BF16) return sl__gemm_preferred(); /* the adapter's floats */
  return implementation == SL__OWN_ONEDNN ? SL__GEMM_ONEDNN : SL__GEMM_OPENBLAS;
}

/* Does the kernel of a task on such a tensor read bf16 as it is? If not, the bf16 adapter gives it
 * floats. */
bool sl__reads_bf16(const struct sl_context *context, const struct sl__tensor *tensor);

/* For tests: forces this implementation wherever it exists; a negative number ends that. */
void sl__choice_force(struct sl_context *context, int implementation);

/* A mask: OpenBLAS, and oneDNN where it is built in. */
uint32_t sl__choice_products(void);

#endif
