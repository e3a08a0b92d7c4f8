#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "bench/kernel_times.h"

#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "codelets/codelets.h"

#define SL__OP(name, modes, where) void sl__##name##_cpu(void *buffers[], void *cl_arg);
#include "codelets/ops.def"
#undef SL__OP

static const struct operation {
  const char *name;
  struct sl__op *op;
  starpu_cpu_func_t kernel;
} operations[OPERATIONS] = {
#define SL__OP(name, modes, where) {#name, &sl__op_##name, sl__##name##_cpu},
#include "codelets/ops.def"
#undef SL__OP
};

/* Kernels take no argument of ours. */
static run_operation *wrapper;

#define SL__OP(name, modes, where)                                                                 \
  static void name##_wrapped(void *buffers[], void *cl_arg) { wrapper(OP_##name, buffers, cl_arg); }
#include "codelets/ops.def"
#undef SL__OP

void kernel_wrap(run_operation *run) {
  wrapper = run;
#define SL__OP(name, modes, where) sl__op_##name.codelet.cpu_funcs[0] = name##_wrapped;
#include "codelets/ops.def"
#undef SL__OP
}

void kernel_run(int op, void *buffers[], void *cl_arg) { operations[op].kernel(buffers, cl_arg); }

struct sl__op *kernel_op(int op) {
  return operations[op].op;
}

const char *kernel_name(int op) { return operations[op].name; }

static uint32_t footprint_of(const void *cl_arg) {
  return ((const struct sl__args_header *)cl_arg)->footprint;
}

struct kernel_time *kernel_find(const struct kernel_times *times, int op, const void *cl_arg) {
  for (int i = 0; i < times->count; i++)
    if (times->kernel[i]->op == op && times->kernel[i]->footprint == footprint_of(cl_arg))
      return times->kernel[i];
  return NULL;
}

/* Scratch memory stays in caches, and does not count. */
static double bytes_of(struct starpu_task *task) {
  double bytes = 0;
  for (unsigned i = 0; i < STARPU_TASK_GET_NBUFFERS(task); i++) {
    enum starpu_data_access_mode mode = STARPU_TASK_GET_MODE(task, i);
    double size = (double)starpu_data_get_size(STARPU_TASK_GET_HANDLE(task, i));
    if (mode & STARPU_SCRATCH) continue;
    bytes += size * (!!(mode & STARPU_R) + !!(mode & STARPU_W));
  }
  return bytes;
}

static struct kernel_time *kernel_new(struct kernel_times *times, int op, const void *cl_arg) {
  struct starpu_task *task = starpu_task_get_current();
  struct kernel_time *kernel = times->count < MOST_KERNELS ? calloc(1, sizeof *kernel) : NULL;
  if (!kernel) {
    times->overflow = true;
    return NULL;
  }
  kernel->op = op;
  kernel->footprint = footprint_of(cl_arg);
  kernel->flops = task->flops;
  kernel->bytes = bytes_of(task);
  snprintf(kernel->layer, sizeof kernel->layer, "%s", task->name ? task->name : "");
  times->kernel[times->count++] = kernel;
  return kernel;
}

void kernel_measure(struct kernel_times *times, int op, void *buffers[], void *cl_arg) {
  double begin = bench_now();
  kernel_run(op, buffers, cl_arg);
  double seconds = bench_now() - begin;
  struct kernel_time *kernel = kernel_find(times, op, cl_arg);
  if (!kernel) kernel = kernel_new(times, op, cl_arg);
  if (!kernel) return;
  kernel->calls++;
  if (kernel->samples < MOST_SAMPLES) kernel->sample[kernel->samples++] = seconds;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static int largest_first(const void *a, const void *b) {
  const struct kernel_time *x = *(struct kernel_time *const *)a;
  const struct kernel_time *y = *(struct kernel_time *const *)b;
  double left = x->median * (double)x->calls, right = y->median * (double)y->calls;
  return (left < right) - (left > right);
}

void kernel_study(struct kernel_times *times) {
  for (int i = 0; i < times->count; i++) {
    struct kernel_time *kernel = times->kernel[i];
    qsort(kernel->sample, (size_t)kernel->samples, sizeof *kernel->sample, compare);
    kernel->median = kernel->sample[kernel->samples / 2];
  }
  qsort(times->kernel, (size_t)times->count, sizeof(struct kernel_time *), largest_first);
}

void kernel_times_free(struct kernel_times *times) {
  for (int i = 0; i < times->count; i++) free(times->kernel[i]);
  *times = (struct kernel_times){.count = 0};
}
