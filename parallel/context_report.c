/* The state of a context as text, for reports of failures. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <gnu/libc-version.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "codelets/kernels/gemm.h"
#include "codelets/kernels/numerics.h"
#include "core/base/error.h"
#include "core/base/machine.h"
#include "core/base/text.h"
#include "core/memory/limits.h"
#include "core/memory/watchdog.h"
#include "core/net/net.h"

static void print_versions(FILE *out, const struct sl_context *c) {
  char numerics[SL__NUMERICS_TEXT];
  struct utsname system;
  sl__numerics_text(c, numerics);
  fprintf(out, "Starling %s, compiled by %s\n%s\n", PACKAGE_VERSION, __VERSION__, numerics);
  fprintf(out, "matrix products by %s\n", sl__gemm_text(sl__gemm_preferred()));
  fprintf(out, "glibc %s", gnu_get_libc_version());
  if (uname(&system) == 0) /* without its nodename, which is private */
    fprintf(out, ", %s %s %s", system.sysname, system.release, system.machine);
  fputc('\n', out);
}

static void print_machine(FILE *out, const struct sl_context *c) {
  char processor[128];
  struct sl__cgroup group;
  sl__cgroup_read("", &group);
  fprintf(out, "processor: %s\n", sl__machine_processor(processor, sizeof processor));
  fprintf(out, "main memory: %.1f GB for this process", sl__machine_memory() / 1e9);
  if (sl__memory_limit(c->memory))
    fprintf(out, ", limit of tensors %.1f MB", (double)sl__memory_limit(c->memory) / 1e6);
  fprintf(out, "%s\n", c->swaps ? ", with a swap folder" : "");
  if (group.cpus < 1e6) fprintf(out, "processor time: of %.2f processors\n", group.cpus);
}

static void print_devices(FILE *out, const struct sl_context *c) {
  fprintf(out, "%s\n", c->text);
  for (int w = 0; w < sl_worker_count(c); w++) {
    struct sl_worker_info info;
    if (sl_worker(c, w, &info) == SL_OK)
      fprintf(out, "worker %d: %s, %s%s\n", w, info.name, info.description,
              info.listed ? "" : " (not in the list of devices)");
  }
  if (sl_rank_count(c) > 1)
    fprintf(out, "rank %d of %d, messages by %s\n", sl_rank(c), sl_rank_count(c),
            sl__net_transport_text(c->net));
}

enum sl_status sl_context_report(struct sl_context *context, char **text) {
  struct sl__text report;
  SL__NEEDS(context, text);
  FILE *out = sl__text_begin(&report);
  if (out) {
    print_versions(out, context);
    print_machine(out, context);
    print_devices(out, context);
    sl__watchdog_report(context, out);
  }
  return sl__text_end(&report, "a report", text);
}
