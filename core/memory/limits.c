#include "core/memory/limits.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/numbers.h"
#include "core/base/error.h"
#include "core/memory/swap.h"

enum { MOST_SETTINGS = 72, MIB_BITS = 20 };

struct sl__memory {
  size_t limit; /* of main memory, as StarPU rounds it; 0: none */
  char gpu[16]; /* the last one with a limit, "cuda" or "cuda:1"; "": none */
  char *swap;   /* NULL: none */
  char set[MOST_SETTINGS][32];
  int settings; /* of the environment, to be removed at the end */
};

size_t sl__memory_limit(const struct sl__memory *memory) { return memory ? memory->limit : 0; }

/* ---- StarPU's environment ---- */

/* A value that the user has set stays. */
static void set_unless_set(struct sl__memory *m, const char *name, const char *value) {
  if (getenv(name) || m->settings == MOST_SETTINGS) return;
  setenv(name, value, 0);
  snprintf(m->set[m->settings++], sizeof *m->set, "%s", name);
}

static enum sl_status set_limit(struct sl__memory *m, const char *name, const char *item,
                                size_t bytes) {
  char value[32];
  const char *before = getenv(name);
  snprintf(value, sizeof value, "%zu", bytes >> MIB_BITS);
  if (bytes >> MIB_BITS == 0)
    return sl__fail(SL_BAD_ARGUMENT, "memory limit '%s': StarPU counts in MiB; take 1M or more",
                    item);
  if (before && strcmp(before, value) != 0)
    return sl__fail(SL_BAD_ARGUMENT,
                    "memory limit '%s': %s=%s in the environment says something else; give one of "
                    "the two",
                    item, name, before);
  set_unless_set(m, name, value);
  return SL_OK;
}

/* ---- "cpu=1G,cuda:0=8G" ---- */

/* A whole number and K, M, G or T (powers of 1024), or plain bytes. */
static bool read_size(const char *text, size_t *bytes) {
  static const char units[] = "KMGT";
  int64_t n;
  const char *end = sl__scan_whole(text, &n);
  const char *unit = end && *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
  if (!end || (*end && (!unit || end[1]))) return false;
  unsigned bits = unit ? 10 * (unsigned)(unit - units + 1) : 0;
  if (n > INT64_MAX >> bits) return false;
  *bytes = (size_t)n << bits;
  return true;
}

/* "cuda" or "cuda:3" */
static bool read_gpu(const char *name, char *setting, size_t size) {
  const int64_t most = 99;
  int64_t number;
  if (!strcmp(name, "cuda")) {
    snprintf(setting, size, "STARPU_LIMIT_CUDA_MEM");
    return true;
  }
  if (strncmp(name, "cuda:", 5) != 0 || !sl__parse_whole(name + 5, 0, most, &number)) return false;
  snprintf(setting, size, "STARPU_LIMIT_CUDA_%d_MEM", (int)number);
  return true;
}

static enum sl_status read_item(struct sl__memory *m, char *item) {
  char setting[32], name[16], *value = strchr(item, '=');
  size_t bytes = 0, length = value ? (size_t)(value - item) : 0;
  if (!value || length >= sizeof name)
    return sl__fail(SL_BAD_ARGUMENT,
                    "memory limit '%s': write cpu=1G, cuda=8G or cuda:0=8G, with commas between",
                    item);
  memcpy(name, item, length);
  name[length] = '\0';
  bool cpu = !strcmp(name, "cpu");
  if (!cpu && !read_gpu(name, setting, sizeof setting))
    return sl__fail(SL_BAD_ARGUMENT, "memory limit '%s': there is cpu, cuda, cuda:0, cuda:1, ...",
                    item);
  if (!read_size(value + 1, &bytes))
    return sl__fail(SL_BAD_ARGUMENT, "memory limit '%s': a size is a whole number and K, M, G or T",
                    item);
  if (cpu && m->limit)
    return sl__fail(SL_BAD_ARGUMENT, "memory limit '%s': cpu is there twice", item);
  if (cpu) m->limit = bytes >> MIB_BITS << MIB_BITS;
  if (!cpu) memcpy(m->gpu, name, sizeof name);
  return set_limit(m, cpu ? "STARPU_LIMIT_CPU_MEM" : setting, item, bytes);
}

static enum sl_status read_list(struct sl__memory *m, const char *list) {
  char *copy = sl__strdup(list), *rest = copy;
  enum sl_status status = copy ? SL_OK : SL_NO_MEMORY;
  for (char *item = strsep(&rest, ","); item && status == SL_OK; item = strsep(&rest, ","))
    status = read_item(m, item);
  free(copy);
  return status;
}

/* ---- begin and end ---- */

/* StarPU 1.4 may stall for good if it fetches ahead into a memory that is full. And its
 * suballocator takes chunks of 32 MB, each of which stays for any small tensor in it, so little
 * of a small memory would remain. */
static void adapt_to_limits(struct sl__memory *m) {
  set_unless_set(m, "STARPU_PREFETCH", "0");
  set_unless_set(m, "STARPU_SUBALLOCATOR", "0");
  if (m->limit) set_unless_set(m, "STARPU_SILENT", "1"); /* it would warn that it moves tensors */
}

bool sl__gpu_memory_is_limited(void) {
  const int most = 64; /* GPUs of a machine */
  char name[40];
  bool limited = getenv("STARPU_LIMIT_CUDA_MEM");
  for (int i = 0; i < most && !limited; i++) {
    snprintf(name, sizeof name, "STARPU_LIMIT_CUDA_%d_MEM", i);
    limited = getenv(name);
  }
  return limited;
}

static enum sl_status check_swap(struct sl__memory *m, const char *folder) {
  if (!m->limit)
    return sl__fail(SL_BAD_ARGUMENT,
                    "swap folder %s: without a limit of main memory (cpu=...) it serves nothing",
                    folder);
  if (getenv("STARPU_DISK_SWAP"))
    return sl__fail(SL_BAD_ARGUMENT,
                    "swap folder %s: there is STARPU_DISK_SWAP in the environment; give one of the "
                    "two",
                    folder);
  m->swap = sl__strdup(folder);
  return m->swap ? sl__swap_check(folder) : SL_NO_MEMORY;
}

enum sl_status sl__memory_begin(const struct sl_context_options *options,
                                struct sl__memory **memory) {
  struct sl__memory *m = sl__alloc(1, sizeof *m, "the memory limits");
  enum sl_status status = SL_OK;
  *memory = NULL;
  if (!m) return SL_NO_MEMORY;
  if ((options->memory_limit || options->swap) && starpu_is_initialized())
    status = sl__fail(SL_BAD_ARGUMENT,
                      "memory limits: StarPU runs already, and learns them when it starts");
  if (status == SL_OK && options->memory_limit) status = read_list(m, options->memory_limit);
  if (status == SL_OK && options->swap) status = check_swap(m, options->swap);
  if (status == SL_OK && (m->limit || sl__gpu_memory_is_limited())) adapt_to_limits(m);
  if (status != SL_OK) {
    sl__memory_close(m);
    m = NULL;
  }
  *memory = m;
  return status;
}

/* Only StarPU's start tells. Ranks have the same options on machines with GPUs and without. */
static enum sl_status check_gpu(const struct sl__memory *m, bool distributed) {
  if (!*m->gpu || distributed || starpu_cuda_worker_get_count()) return SL_OK;
  return sl__fail(SL_NO_DEVICE, "memory limit %s: StarPU has no GPU here; leave that limit out",
                  m->gpu);
}

enum sl_status sl__memory_open(struct sl_context *context, bool distributed) {
  enum sl_status status = check_gpu(context->memory, distributed);
  if (status != SL_OK) return status;
  context->swaps = context->memory->swap;
  return context->swaps ? sl__swap_open(context->memory->swap) : SL_OK;
}

void sl__memory_close(struct sl__memory *m) {
  if (!m) return;
  for (int i = 0; i < m->settings; i++) unsetenv(m->set[i]);
  if (m->swap) sl__swap_close();
  free(m->swap);
  free(m);
}
