/* What this process may use of the machine: limits of its control groups (Linux's cgroups, version
 * 1 and 2), as containers and batch systems set them, and of its resources (setrlimit). */
#ifndef SL_CORE_BASE_MACHINE_H
#define SL_CORE_BASE_MACHINE_H

#include <starling/base.h>

struct sl__cgroup {
  double memory; /* bytes; HUGE_VAL: no limit */
  double cpus; /* processor time per time, 1.5 for one and a half processors; HUGE_VAL: no limit */
};

/* Reads the limits of the process's group and of all groups above it. root: "" for this system, or
 * a folder with proc/self/cgroup and sys/fs/cgroup for a test. */
void sl__cgroup_read(const char *root, struct sl__cgroup *limits);

/* The processor's name into text, "unknown" where the system does not tell it; returns text. */
const char *sl__machine_processor(char *text, size_t size);

/* The build of the library or program that has this function, as the linker's hash of it (ELF's
 * build ID) in hexadecimal; empty where the linker made none. Returns text. */
const char *sl__machine_build(char *text, size_t size);

/* Bytes of main memory that this process may use: the machine's, or its group's limit. */
double sl__machine_memory(void);

/* Processors of this thread's affinity, at least 1. */
int sl__machine_affinity(void);

/* Processors that this thread, and those that it starts, may run on: of its affinity, and of its
 * group's processor time. At least 1. */
int sl__machine_cpus(void);

/* Are address space and stack (ulimit -v, ulimit -s) large enough for this number of workers?
 * StarPU and OpenBLAS crash or hang where they are not. \return SL_NO_MEMORY. */
enum sl_status sl__machine_check_limits(int workers);

#endif
