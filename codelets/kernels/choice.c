/* Preferences, and measurement where the user asked for it. */
#include "codelets/kernels/choice.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "codelets/kernels/gemm.h"
#include "codelets/kernels/onednn.h"
#include "core/base/error.h"
#include "core/runtime/log.h"
#include "codelets/kernels/tuning.h"

#define REPEATS 7

uint32_t sl__choice_products(void) {
  return 1u << SL__OWN_OPENBLAS | (uint32_t)sl__gemm_available(SL__GEMM_ONEDNN) << SL__OWN_ONEDNN;
}

void sl__choice_force(struct sl_context *context, int implementation) {
  context->forced_implementation = implementation + 1;
}

/* The shortest of several runs: disturbances only make a run longer. */
static double measure(const struct sl__candidates *c, enum sl__implementation i, const void *args,
                      float *const *memory) {
  double least = 1e9;
  c->run(i, args, memory);
  for (int k = 0; k < REPEATS; k++) {
    double start = sl__seconds();
    c->run(i, args, memory);
    double taken = sl__seconds() - start;
    if (taken < least) least = taken;
  }
  return least;
}

static bool make_memory(const struct sl__candidates *c, float **memory) {
  bool fine = true;
  for (int m = 0; m < 4; m++) {
    memory[m] =
        c->elements[m] ? sl__alloc((size_t)c->elements[m], sizeof **memory, "tuning") : NULL;
    fine = fine && (memory[m] || !c->elements[m]);
    for (int64_t i = 0; memory[m] && i < c->elements[m]; i++)
      memory[m][i] = (float)(i % 17) * 0.01f;
  }
  return fine;
}

/* Another implementation than the preferred one must be this much faster: less is noise. */
static const double gain = 0.95;

enum sl__implementation sl__choice_quickest(const struct sl__candidates *c,
                                            const double seconds[SL__IMPLEMENTATIONS]) {
  int best = (int)c->preferred;
  for (int i = 0; i < SL__IMPLEMENTATIONS; i++) {
    bool other = best == (int)c->preferred && c->mask >> best & 1;
    if (c->mask >> i & 1 && seconds[i] < seconds[best] * (other ? gain : 1)) best = i;
  }
  return (enum sl__implementation)best;
}

static enum sl__implementation fastest(struct sl_context *context, const struct sl__candidates *c,
                                       const void *args, const char *key) {
  double seconds[SL__IMPLEMENTATIONS];
  float *memory[4] = {NULL};
  enum sl__implementation best = c->preferred;
  if (make_memory(c, memory)) {
    for (int i = 0; i < SL__IMPLEMENTATIONS; i++) {
      seconds[i] = 1e9;
      if (!(c->mask >> i & 1)) continue;
      seconds[i] = measure(c, (enum sl__implementation)i, args, memory);
      sl__log(context, SL_LOG_INFO, "tuning: %s by %d: %.1f us", key, i, 1e6 * seconds[i]);
    }
    best = sl__choice_quickest(c, seconds);
    sl__tuning_set(context->tuning, key, (int)best);
  }
  for (int m = 0; m < 4; m++) free(memory[m]);
  return best;
}

enum sl__implementation sl__product_choice(const struct sl_context *context) {
  int forced = context->forced_implementation - 1;
  if (forced >= 0 && sl__choice_products() >> forced & 1) return (enum sl__implementation)forced;
  return sl__gemm_preferred() == SL__GEMM_ONEDNN ? SL__OWN_ONEDNN : SL__OWN_OPENBLAS;
}

bool sl__reads_bf16(const struct sl_context *context, const struct sl__tensor *tensor) {
  int forced = context->forced_implementation - 1;
  return tensor->type == SL_BF16 && sl__onednn_has_bf16() && (forced < 0 || forced == SL__BF16);
}

enum sl__implementation sl__choose(struct sl_context *context, const struct sl__candidates *c,
                                   const void *args) {
  char key[256];
  int forced = context->forced_implementation - 1;
  if (forced >= 0) return c->mask >> forced & 1 ? (enum sl__implementation)forced : c->preferred;
  if (!context->tuning || !(c->mask & (c->mask - 1))) return c->preferred;
  /* a measurement without this candidate does not count */
  size_t at = (size_t)snprintf(key, sizeof key, "%s of %x", c->operation, (unsigned)c->mask);
  for (int i = 0; i < c->size_count && at < sizeof key; i++)
    at += (size_t)snprintf(key + at, sizeof key - at, " %d", (int)c->sizes[i]);
  int known = sl__tuning_find(context->tuning, key);
  if (known >= 0 && known < SL__IMPLEMENTATIONS && c->mask >> known & 1)
    return (enum sl__implementation)known;
  return fastest(context, c, args, key);
}
