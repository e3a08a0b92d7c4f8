#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "codelets/kernels/numerics.h"

#include <cblas.h>
#ifdef SL_HAVE_ONEDNN
#include <dnnl.h>
#endif
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/net/net.h"
#include "core/runtime/log.h"

static const char *instruction_set(void) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("x86-64-v4")) return "x86-64-v4";
  if (__builtin_cpu_supports("x86-64-v3")) return "x86-64-v3";
  return "x86-64";
#elif defined(__aarch64__)
  return "aarch64";
#else
  return "portable";
#endif
}

void sl__numerics_text(const struct sl_context *c, char text[SL__NUMERICS_TEXT]) {
  char blas[32] = "?", onednn[40] = "";
  sscanf(openblas_get_config(), "OpenBLAS %31s", blas);
#ifdef SL_HAVE_ONEDNN
  const dnnl_version_t *v = dnnl_version();
  snprintf(onednn, sizeof onednn, "; oneDNN %d.%d.%d", v->major, v->minor, v->patch);
#endif
  snprintf(text, SL__NUMERICS_TEXT, "%s; StarPU %s; OpenBLAS %s %.32s%s", instruction_set(),
           c->version, blas, openblas_get_corename(), onednn);
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
