#include "codelets/kernels/numerics.h"

#include <stdio.h>
#include <string.h>

#include "codelets/kernels/gemm.h"
#include "core/base/error.h"
#include "core/base/simd.h"
#include "core/net/net.h"
#include "core/runtime/log.h"

static const char *instruction_set(void) {
#if defined(__x86_64__)
  if (SL__MOST_LANES >= 16 && __builtin_cpu_supports("x86-64-v4")) return "x86-64-v4";
  if (SL__MOST_LANES >= 8 && __builtin_cpu_supports("x86-64-v3")) return "x86-64-v3";
  return "x86-64";
#elif defined(__aarch64__)
  return "aarch64";
#else
  return "portable";
#endif
}

void sl__numerics_text(const struct sl_context *c, char text[SL__NUMERICS_TEXT]) {
  const char *onednn = sl__gemm_text(SL__GEMM_ONEDNN);
  snprintf(text, SL__NUMERICS_TEXT, "%s; StarPU %s; %s%s%s", instruction_set(), c->version,
           sl__gemm_text(SL__GEMM_OPENBLAS), *onednn ? "; " : "", onednn);
}

enum sl_status sl__numerics_compare(struct sl_context *c) {
  char mine[SL__NUMERICS_TEXT] = "", first[SL__NUMERICS_TEXT];
  sl__numerics_text(c, mine);
  memcpy(first, mine, sizeof first);
  enum sl_status status = sl_broadcast(c, first, sizeof first);
  first[sizeof first - 1] = '\0';
  if (status == SL_OK && strcmp(mine, first) != 0)
    sl__log(c, SL_LOG_WARNING,
            "rank %d computes with %s, rank 0 with %s: results may differ in their last bits from "
            "those of equal nodes",
            sl_rank(c), mine, first);
  return status;
}
