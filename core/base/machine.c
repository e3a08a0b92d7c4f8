#include "core/base/machine.h"

#include <limits.h>
#include <link.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/base/error.h"

/* ---- control groups ---- */

/* One controller's files. */
struct controller {
  const char *mount;          /* below /sys/fs/cgroup */
  const char *limit, *period; /* period NULL: the limit stands alone, or before its period */
  double *result;
};

/* Reads "LIMIT" or "LIMIT PERIOD"; "max" and -1 mean that there is none. */
static int read_numbers(const char *folder, const char *file, double numbers[2]) {
  char path[PATH_MAX], text[80] = "", *end = text;
  int count = 0;
  if (!file || snprintf(path, sizeof path, "%s/%s", folder, file) >= (int)sizeof path) return 0;
  FILE *stream = fopen(path, "re");
  if (!stream) return 0;
  if (!fgets(text, sizeof text, stream)) text[0] = '\0';
  fclose(stream);
  while (count < 2) {
    char *word = end + strspn(end, " \n");
    long long number = strtoll(word, &end, 10);
    if (end == word) break;
    numbers[count++] = (double)number;
  }
  return count;
}

static void apply_limit(const struct controller *c, const char *folder) {
  double limit[2] = {0, 1}, period[2] = {1, 1};
  int count = read_numbers(folder, c->limit, limit);
  if (count == 0 || limit[0] <= 0) return;
  if (count == 1 && c->period && read_numbers(folder, c->period, period) == 1) limit[1] = period[0];
  if (limit[1] > 0) *c->result = fmin(*c->result, limit[0] / limit[1]);
}

/* The group and all above it. In a container the path may be the host's, of which nothing is there
 * but the mount itself. */
static void apply_all(const struct controller *c, const char *root, const char *path) {
  char folder[PATH_MAX];
  int mount = snprintf(folder, sizeof folder, "%s/sys/fs/cgroup%s", root, c->mount);
  if (snprintf(folder + mount, sizeof folder - (size_t)mount, "%s", path) + mount >= PATH_MAX)
    return;
  for (char *slash;; *slash = '\0') {
    apply_limit(c, folder);
    slash = strrchr(folder + mount, '/');
    if (!slash) break;
  }
}

/* Is name in the list "cpu,cpuacct"? */
static bool has_word(const char *list, const char *name) {
  size_t length = strlen(name);
  for (const char *at = list; (at = strstr(at, name)); at += length)
    if ((at == list || at[-1] == ',') && (at[length] == ',' || !at[length])) return true;
  return false;
}

/* A line "4:memory:/user.slice" of version 1, or "0::/user.slice" of version 2. */
static void apply_line(char *line, const char *root, struct sl__cgroup *limits) {
  char mount[80];
  char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
  if (!path) return;
  *path++ = '\0';
  names++;
  path[strcspn(path, "\n")] = '\0';
  if (!strcmp(path, "/")) path[0] = '\0';
  snprintf(mount, sizeof mount, "%s%.70s", *names ? "/" : "", names);
  if (!*names) {
    apply_all(&(struct controller){"", "memory.max", NULL, &limits->memory}, root, path);
    apply_all(&(struct controller){"", "cpu.max", NULL, &limits->cpus}, root, path);
  }
  if (has_word(names, "memory"))
    apply_all(&(struct controller){mount, "memory.limit_in_bytes", NULL, &limits->memory}, root,
              path);
  if (has_word(names, "cpu"))
    apply_all(&(struct controller){mount, "cpu.cfs_quota_us", "cpu.cfs_period_us", &limits->cpus},
              root, path);
}

void sl__cgroup_read(const char *root, struct sl__cgroup *limits) {
  char path[PATH_MAX], line[PATH_MAX];
  *limits = (struct sl__cgroup){HUGE_VAL, HUGE_VAL};
  if (snprintf(path, sizeof path, "%s/proc/self/cgroup", root) >= (int)sizeof path) return;
  FILE *file = fopen(path, "re");
  while (file && fgets(line, sizeof line, file)) apply_line(line, root, limits);
  if (file) fclose(file);
}

const char *sl__machine_processor(char *text, size_t size) {
  char line[256];
  snprintf(text, size, "unknown");
  FILE *file = fopen("/proc/cpuinfo", "re");
  while (file && fgets(line, sizeof line, file)) {
    const char *name = strncmp(line, "model name", 10) ? NULL : strchr(line, ':');
    if (!name) continue;
    line[strcspn(line, "\n")] = '\0';
    snprintf(text, size, "%s", name + 1 + strspn(name + 1, " \t"));
    break;
  }
  if (file) fclose(file);
  return text;
}

struct build {
  char *text;
  size_t size;
};

/* A note has three words, its owner's name and its content, each in multiples of four bytes. */
static void find_build(const ElfW(Phdr) * header, const char *note, struct build *build) {
  const char *end = note + header->p_memsz;
  ElfW(Nhdr) n;
  for (; note + sizeof n <= end;
       note += sizeof n + (n.n_namesz + 3u) / 4 * 4 + (n.n_descsz + 3u) / 4 * 4) {
    memcpy(&n, note, sizeof n);
    const unsigned char *hash = (const unsigned char *)note + sizeof n + (n.n_namesz + 3u) / 4 * 4;
    if (n.n_type != NT_GNU_BUILD_ID || n.n_namesz != 4 || n.n_descsz > end - (const char *)hash)
      continue;
    for (size_t i = 0; i < n.n_descsz && 2 * i + 2 < build->size; i++)
      snprintf(build->text + 2 * i, 3, "%02x", hash[i]);
    return;
  }
}

/* Of the loaded objects the one in whose memory this function is. */
static int visit_object(struct dl_phdr_info *object, size_t size, void *data) {
  uintptr_t own = (uintptr_t)visit_object;
  bool is_own = false;
  (void)size;
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *h = &object->dlpi_phdr[i];
    uintptr_t begin = (uintptr_t)(object->dlpi_addr + h->p_vaddr);
    is_own |= h->p_type == PT_LOAD && own >= begin && own - begin < h->p_memsz;
  }
  for (int i = 0; i < object->dlpi_phnum && is_own; i++) {
    const ElfW(Phdr) *h = &object->dlpi_phdr[i];
    if (h->p_type == PT_NOTE)
      find_build(h, (const char *)(uintptr_t)(object->dlpi_addr + h->p_vaddr), data);
  }
  return is_own;
}

const char *sl__machine_build(char *text, size_t size) {
  struct build build = {text, size};
  text[0] = '\0';
  dl_iterate_phdr(visit_object, &build);
  return text;
}

double sl__machine_memory(void) {
  struct sl__cgroup limits;
  sl__cgroup_read("", &limits);
  return fmin(limits.memory, (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE));
}

int sl__machine_affinity(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

int sl__machine_cpus(void) {
  struct sl__cgroup limits;
  sl__cgroup_read("", &limits);
  return (int)fmin(sl__machine_affinity(), ceil(limits.cpus));
}

/* ---- limits of the process ---- */

/* The stack that a new thread gets: the program may have set another default since it began. */
static size_t thread_stack(void) {
  struct rlimit limit;
  size_t size = SIZE_MAX;
  if (getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < size) size = limit.rlim_cur;
#ifdef __GLIBC__
  pthread_attr_t attributes;
  size_t by_default;
  if (pthread_getattr_default_np(&attributes)) return size;
  if (!pthread_attr_getstacksize(&attributes, &by_default) && by_default < size) size = by_default;
  pthread_attr_destroy(&attributes);
#endif
  return size;
}

enum sl_status sl__machine_check_limits(int workers) {
  /* A gradient's tiles take 652 KiB (codelets/kernels/weight_gradient.c). */
  const size_t least_stack = 1 << 20, stack = thread_stack();
  const size_t buffer = (size_t)128 << 20; /* of OpenBLAS, one a thread */
  struct rlimit limit;
  if (stack < least_stack)
    return sl__fail(SL_NO_MEMORY,
                    "the stack is limited to %zu KiB, but threads need %zu: raise it (ulimit -s, "
                    "or pthread_setattr_default_np where the program calls that)",
                    stack >> 10, least_stack >> 10);
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SL_OK;
  size_t bytes = buffer * (size_t)workers + buffer / 2;
  void *room = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED)
    return sl__fail(
        SL_NO_MEMORY,
        "the address space is limited to %zu MiB, and %d workers need %zu MiB more than "
        "is left: raise it (ulimit -v), or set STARPU_NCPU to fewer workers",
        (size_t)limit.rlim_cur >> 20, workers, bytes >> 20);
  munmap(room, bytes);
  return SL_OK;
}
