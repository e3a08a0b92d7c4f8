/* Expands the table of operations into codelets: static storage, a performance model each. */
#include "codelets/codelets.h"
#include "codelets/kernels/bf16_adapter.h"

static uint32_t task_footprint(struct starpu_task *task) {
  return ((const struct sl__args_header *)task->cl_arg)->footprint;
}

/* The function that StarPU calls: the kernel within the bf16 adapter. PLAIN's and ADDRESS's kernels
 * take the buffers as they are. */
#define SL__BF16_ADAPTED(name, modes)                                                              \
  SL__KERNEL void sl__##name##_bf16_cpu(void *buffers[], void *cl_arg);                            \
  SL__KERNEL void sl__##name##_bf16_cpu(void *buffers[], void *cl_arg) {                           \
    sl__run_with_bf16_adapter(sl__##name##_cpu, modes, NULL, buffers, cl_arg);                     \
  }
/* NAME_rows tells which rows do not need each other. */
#define SL__WRAP_ROWS(name, modes)                                                                 \
  sl__rows_of sl__##name##_rows;                                                                   \
  SL__KERNEL void sl__##name##_bf16_cpu(void *buffers[], void *cl_arg);                            \
  SL__KERNEL void sl__##name##_bf16_cpu(void *buffers[], void *cl_arg) {                           \
    sl__run_with_bf16_adapter(sl__##name##_cpu, modes, sl__##name##_rows, buffers, cl_arg);        \
  }
/* A kernel NAME_bf16 that reads bf16 as it is comes first; false: it did nothing. */
#define SL__WRAP_NATIVE(name, modes)                                                               \
  bool sl__##name##_bf16(void *buffers[], void *cl_arg);                                           \
  SL__KERNEL void sl__##name##_bf16_cpu(void *buffers[], void *cl_arg);                            \
  SL__KERNEL void sl__##name##_bf16_cpu(void *buffers[], void *cl_arg) {                           \
    if (!sl__bf16_mask(cl_arg) || !sl__##name##_bf16(buffers, cl_arg))                             \
      sl__run_with_bf16_adapter(sl__##name##_cpu, modes, NULL, buffers, cl_arg);                   \
  }
#define SL__WRAP_ROWS_MANY SL__WRAP_ROWS
#define SL__WRAP_CPU SL__BF16_ADAPTED
#define SL__WRAP_BOTH SL__BF16_ADAPTED
#define SL__WRAP_MANY SL__BF16_ADAPTED
#define SL__WRAP_PLAIN(name, modes)
#define SL__WRAP_ADDRESS(name, modes)
#define SL__WRAP_MESSAGE(name, modes)
#define SL__CALLED_NATIVE(name) sl__##name##_bf16_cpu
#define SL__CALLED_ROWS(name) sl__##name##_bf16_cpu
#define SL__CALLED_ROWS_MANY(name) sl__##name##_bf16_cpu
#define SL__CALLED_CPU(name) sl__##name##_bf16_cpu
#define SL__CALLED_BOTH(name) sl__##name##_bf16_cpu
#define SL__CALLED_MANY(name) sl__##name##_bf16_cpu
#define SL__CALLED_PLAIN(name) sl__##name##_cpu
#define SL__CALLED_ADDRESS(name) sl__##name##_cpu
#define SL__CALLED_MESSAGE(name) sl__##name##_cpu
#define SL__TEXT(x) #x
#define SL__NAMED(x) SL__TEXT(x)

#define SL__OP(name, modes, where)                                                                 \
  SL__KERNEL void sl__##name##_cpu(void *buffers[], void *cl_arg);                                 \
  SL__WRAP_##where(name, modes)
#include "codelets/ops.def"
#undef SL__OP

/* The CUDA half of a row: none for CPU and PLAIN; in a build with CUDA the kernel for BOTH, ROWS,
 * NATIVE, MANY and ROWS_MANY and the CPU's function for ADDRESS and MESSAGE. MANY's takes several
 * calls, too. */
#define SL__CUDA_CPU(name)
#define SL__CUDA_PLAIN(name)
#ifdef SL_HAVE_CUDA
#define SL__CUDA_BOTH(name) .cuda_funcs = {sl__##name##_cuda}, .cuda_flags = {STARPU_CUDA_ASYNC},
#define SL__CUDA_MANY(name) SL__CUDA_BOTH(name)
#define SL__CUDA_NATIVE(name) SL__CUDA_BOTH(name)
#define SL__CUDA_ROWS(name) SL__CUDA_BOTH(name)
#define SL__CUDA_ROWS_MANY(name) SL__CUDA_BOTH(name)
#define SL__CUDA_ADDRESS(name) .cuda_funcs = {sl__##name##_cpu}, .cuda_flags = {STARPU_CUDA_ASYNC},
#define SL__CUDA_MESSAGE(name) SL__CUDA_ADDRESS(name)
#define SL__TOGETHER_MANY(name) sl__##name##_cuda_many
#define SL__TOGETHER_ROWS_MANY(name) sl__##name##_cuda_many
#define SL__PROTO_CPU(name)
#define SL__PROTO_PLAIN(name)
#define SL__PROTO_ADDRESS(name)
#define SL__PROTO_MESSAGE(name)
#define SL__PROTO_BOTH(name) void sl__##name##_cuda(void *buffers[], void *cl_arg);
#define SL__PROTO_NATIVE(name) SL__PROTO_BOTH(name)
#define SL__PROTO_ROWS(name) SL__PROTO_BOTH(name)
#define SL__PROTO_MANY(name)                                                                       \
  SL__PROTO_BOTH(name)                                                                             \
  void sl__##name##_cuda_many(int count, void **const buffers[], void *const cl_args[]);
#define SL__PROTO_ROWS_MANY(name) SL__PROTO_MANY(name)
#define SL__OP(name, modes, where) SL__PROTO_##where(name)
#include "codelets/ops.def"
#undef SL__OP
#else
#define SL__CUDA_BOTH(name)
#define SL__CUDA_MANY(name)
#define SL__CUDA_NATIVE(name)
#define SL__CUDA_ROWS(name)
#define SL__CUDA_ROWS_MANY(name)
#define SL__CUDA_ADDRESS(name)
#define SL__CUDA_MESSAGE(name)
#define SL__TOGETHER_MANY(name) NULL
#define SL__TOGETHER_ROWS_MANY(name) NULL
#endif
#define SL__TOGETHER_CPU(name) NULL
#define SL__TOGETHER_BOTH(name) NULL
#define SL__TOGETHER_NATIVE(name) NULL
#define SL__TOGETHER_ROWS(name) NULL
#define SL__TOGETHER_PLAIN(name) NULL
#define SL__TOGETHER_ADDRESS(name) NULL
#define SL__TOGETHER_MESSAGE(name) NULL

#define SL__POST_CPU(name) NULL
#define SL__POST_BOTH(name) NULL
#define SL__POST_MANY(name) NULL
#define SL__POST_NATIVE(name) NULL
#define SL__POST_ROWS(name) NULL
#define SL__POST_ROWS_MANY(name) NULL
#define SL__POST_PLAIN(name) NULL
#define SL__POST_ADDRESS(name) NULL
#define SL__POST_MESSAGE(name) sl__message_post
sl__post_message sl__message_post;

/* StarPU reads from a codelet on which memory node each buffer must be, and compares these, also
 * where a codelet wants none. Its own array is for few buffers: beyond it, a tensor that a task has
 * twice would look like two, and the task would wait for itself. */
static int any_nodes[SL__MOST_BUFFERS];

/* An operation without tensors helps or waits for others: no model tells its time. */
#define SL__CODELET(op_name, op_modes, op_where, is_update)                                        \
  struct sl__op sl__op_##op_name = {                                                               \
      .codelet = {.cpu_funcs = {SL__CALLED_##op_where(op_name)},                                   \
                  .cpu_funcs_name = {SL__NAMED(SL__CALLED_##op_where(op_name))},                   \
                  SL__CUDA_##op_where(op_name).nbuffers = STARPU_VARIABLE_NBUFFERS,                \
                  .dyn_nodes = any_nodes,                                                          \
                  .name = #op_name,                                                                \
                  .model = sizeof op_modes > 1 ? &sl__op_##op_name.model : NULL},                  \
      .model = {.type = STARPU_HISTORY_BASED,                                                      \
                .symbol = "sl_" #op_name,                                                          \
                .footprint = task_footprint},                                                      \
      .modes = op_modes,                                                                           \
      .updates = is_update,                                                                        \
      .cuda_many = SL__TOGETHER_##op_where(op_name),                                               \
      .post = SL__POST_##op_where(op_name)};
#define SL__OP(name, modes, where) SL__CODELET(name, modes, where, false)
#define SL__UPDATE(name, states, modes) SL__CODELET(name, modes, MANY, true)
#define SL__UPDATE_OP(name, modes, where) SL__CODELET(name, modes, where, true)
#include "codelets/ops.def"
