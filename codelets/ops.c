/* The table of operations becomes codelets: static storage, a performance model each. */
#include "codelets/codelets.h"
#include "codelets/kernels/bf16_adapter.h"

static uint32_t task_footprint(struct starpu_task *task) {
  return ((const struct sl__args_header *)task->cl_arg)->footprint;
}

/* What StarPU calls: the kernel, with bf16 tensors widened; PLAIN's and ADDRESS's take bytes as
 * they are. */
#define SL_WIDENED(name, modes)                                                                    \
  SL_KERNEL void sl__##name##_wide_cpu(void *buffers[], void *cl_arg);                             \
  SL_KERNEL void sl__##name##_wide_cpu(void *buffers[], void *cl_arg) {                            \
    sl__run_widened(sl__##name##_cpu, modes, buffers, cl_arg);                                     \
  }
#define SL_WRAP_CPU SL_WIDENED
#define SL_WRAP_BOTH SL_WIDENED
#define SL_WRAP_PLAIN(name, modes)
#define SL_WRAP_ADDRESS(name, modes)
#define SL_CALLED_CPU(name) sl__##name##_wide_cpu
#define SL_CALLED_BOTH(name) sl__##name##_wide_cpu
#define SL_CALLED_PLAIN(name) sl__##name##_cpu
#define SL_CALLED_ADDRESS(name) sl__##name##_cpu
#define SL_TEXT(x) #x
#define SL_NAMED(x) SL_TEXT(x)

#define SL_OP(name, modes, where)                                                                  \
  SL_KERNEL void sl__##name##_cpu(void *buffers[], void *cl_arg);                                  \
  SL_WRAP_##where(name, modes)
#include "codelets/ops.def"
#undef SL_OP

/* The CUDA half of a row: nothing for CPU and PLAIN; where this build has CUDA, the kernel for BOTH
 * and the CPU's function for ADDRESS. */
#define SL_CUDA_CPU(name)
#define SL_CUDA_PLAIN(name)
#ifdef SL_HAVE_CUDA
#define SL_CUDA_BOTH(name) .cuda_funcs = {sl__##name##_cuda}, .cuda_flags = {STARPU_CUDA_ASYNC},
#define SL_CUDA_ADDRESS(name) .cuda_funcs = {sl__##name##_cpu}, .cuda_flags = {STARPU_CUDA_ASYNC},
#define SL_PROTO_CPU(name)
#define SL_PROTO_PLAIN(name)
#define SL_PROTO_ADDRESS(name)
#define SL_PROTO_BOTH(name) void sl__##name##_cuda(void *buffers[], void *cl_arg);
#define SL_OP(name, modes, where) SL_PROTO_##where(name)
#include "codelets/ops.def"
#undef SL_OP
#else
#define SL_CUDA_BOTH(name)
#define SL_CUDA_ADDRESS(name)
#endif

#define SL_OP(op_name, op_modes, op_where)                                                         \
  struct sl__op sl__op_##op_name = {                                                               \
      .codelet = {.cpu_funcs = {SL_CALLED_##op_where(op_name)},                                    \
                  .cpu_funcs_name = {SL_NAMED(SL_CALLED_##op_where(op_name))},                     \
                  SL_CUDA_##op_where(op_name).nbuffers = STARPU_VARIABLE_NBUFFERS,                 \
                  .name = #op_name,                                                                \
                  .model = &sl__op_##op_name.model},                                               \
      .model = {.type = STARPU_HISTORY_BASED,                                                      \
                .symbol = "sl_" #op_name,                                                          \
                .footprint = task_footprint},                                                      \
      .modes = op_modes};
#include "codelets/ops.def"
