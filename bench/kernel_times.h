/* The times of each operation's kernel for each shape: the CPU kernels are wrapped. One worker
 * measures at a time, so nothing is locked. */
#ifndef SL_BENCH_KERNEL_TIMES_H
#define SL_BENCH_KERNEL_TIMES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/runtime/submit.h"

enum { MOST_KERNELS = 1024, MOST_SAMPLES = 4096 };

/* The operations of codelets/ops.def. */
enum {
#define SL__OP(name, modes, where) OP_##name,
#include "codelets/ops.def"
#undef SL__OP
  OPERATIONS
};

struct kernel_time {
  int op;
  uint32_t footprint;  /* of the shape */
  char layer[64];      /* the first task's name */
  double flops, bytes; /* of a call; bytes: tensors that are read, and those that are written */
  int64_t calls;
  int samples;
  double sample[MOST_SAMPLES], median; /* seconds */
};

struct kernel_times {
  struct kernel_time *kernel[MOST_KERNELS];
  int count;
  bool overflow; /* there was no memory, or there were more kernels */
};

/* From now on each kernel of a CPU worker is a call of run, which may call kernel_run. */
typedef void run_operation(int op, void *buffers[], void *cl_arg);
void kernel_wrap(run_operation *run);
void kernel_run(int op, void *buffers[], void *cl_arg);
struct sl__op *kernel_op(int op);
const char *kernel_name(int op);

/* NULL if there is none. */
struct kernel_time *kernel_find(const struct kernel_times *times, int op, const void *cl_arg);
/* Runs the kernel and adds its time. */
void kernel_measure(struct kernel_times *times, int op, void *buffers[], void *cl_arg);
/* Finds the medians, and sorts by their sums, largest first. */
void kernel_study(struct kernel_times *times);
void kernel_times_free(struct kernel_times *times);

#endif
