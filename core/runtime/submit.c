#include "core/runtime/submit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/numbers.h"
#include "core/base/text.h"
#include "core/runtime/chain.h"
#include "core/runtime/cuda.h"
#include "core/runtime/forked.h"
#include "core/runtime/model_file.h"

static uint32_t hash_tensors(int count, struct sl__tensor *const *tensors, uint32_t hash) {
  for (int i = 0; i < count; i++) {
    const struct sl_shape *s = &tensors[i]->shape;
    for (int d = 0; d < s->ndim; d++) hash = starpu_hash_crc32c_be((uint32_t)s->dim[d], hash);
  }
  return hash;
}

/* Does the letter allow a tensor of this type? half: whether the task's capitals are bf16, -1 at
 * first. */
static bool type_fits(char letter, enum sl_type type, int *half) {
  bool capital = letter >= 'A' && letter <= 'Z';
  if (strchr("xyz", letter)) return true;
  if (!capital) return type != SL_BF16;
  if (*half < 0) *half = type == SL_BF16;
  return type != SL_I32 && *half == (type == SL_BF16);
}

/* Which buffers are bf16, a bit for each: a kernel that takes bf16 values for floats would read
 * past the end. */
static enum sl_status find_bf16_mask(const struct sl__op *op, const char *modes, int count,
                                     struct sl__tensor *const *tensors, uint32_t *bf16_mask) {
  static const char *const names[] = {[SL_F32] = "f32", [SL_I32] = "i32", [SL_BF16] = "bf16"};
  int half = -1;
  for (int i = 0; i < count; i++) {
    if (!type_fits(*modes, tensors[i]->type, &half))
      return sl__fail(SL_BAD_ARGUMENT, "%s: buffer %d is %s, which does not fit the other buffers",
                      op->codelet.name, i, names[tensors[i]->type]);
    if (tensors[i]->type == SL_BF16) *bf16_mask |= 1u << sl__mask_bit(i);
    modes = sl__next_mode(modes);
  }
  return SL_OK;
}

static enum starpu_data_access_mode access_mode(char letter, bool accumulate) {
  switch (sl__access(letter)) {
    case 'r': return STARPU_R;
    case 'w': return STARPU_W;
    case 'm': return STARPU_RW;
    case 's': return STARPU_SCRATCH;
    default: return accumulate ? STARPU_RW : STARPU_W;
  }
}

/* Few buffers go into the task itself; more go into arrays that StarPU frees with it. */
static enum sl_status attach_buffers(struct starpu_task *task, const char *modes, bool accumulate,
                                     int count, struct sl__tensor *const *tensors) {
  starpu_data_handle_t *handles = task->handles;
  enum starpu_data_access_mode *access = task->modes;
  if (count > SL__MOST_BUFFERS)
    return sl__fail(SL_UNSUPPORTED, "%s: %d tensors in one task; at most %d are possible",
                    task->cl->name, count, SL__MOST_BUFFERS);
  if (count > STARPU_NMAXBUFS) {
    task->dyn_handles = handles = malloc((size_t)count * sizeof *handles);
    task->dyn_modes = access = malloc((size_t)count * sizeof *access);
    if (!handles || !access)
      return sl__fail(SL_NO_MEMORY, "no memory for a task with %d buffers", count);
  }
  for (int i = 0; i < count; i++) {
    handles[i] = tensors[i]->handle;
    access[i] = access_mode(*modes, accumulate);
    modes = sl__next_mode(modes);
  }
  task->nbuffers = count;
  return SL_OK;
}

static enum sl_status attach_args(struct starpu_task *task, const struct sl__args_header *header,
                                  const void *args, size_t size) {
  char *copy = malloc(sizeof *header + size);
  if (!copy) return sl__fail(SL_NO_MEMORY, "no memory for a task's arguments (%zu bytes)", size);
  memcpy(copy, header, sizeof *header);
  if (size) memcpy(copy + sizeof *header, args, size);
  task->cl_arg = copy;
  task->cl_arg_size = sizeof *header + size;
  task->cl_arg_free = 1;
  return SL_OK;
}

static void set_place(struct starpu_task *task, const struct sl__launch *launch) {
  unsigned context = 0;
  int least = starpu_sched_ctx_get_min_priority(context);
  int most = starpu_sched_ctx_get_max_priority(context);
  int priority = launch->priority;
  task->priority = priority < least ? least : priority > most ? most : priority;
  if (launch->place.where) task->where = (int32_t)launch->place.where;
  if (launch->place.worker) {
    task->execute_on_a_specific_worker = 1;
    task->workerid = (unsigned)launch->place.worker - 1;
  }
}

enum sl_status sl__fail_no_kernel(const struct sl__call *call) {
  return sl__fail(
      SL_NO_DEVICE,
      "%s (layer %s) cannot run where it is placed: this build has no implementation of it "
      "for that device; place it on cpu",
      call->op->codelet.name, call->launch->name ? call->launch->name : "-");
}

static enum sl_status refused(int result, const struct sl__call *call) {
  if (result == -ENODEV) return sl__fail_no_kernel(call);
  return sl__fail(SL_STARPU, "%s (layer %s) was refused by StarPU: %s", call->op->codelet.name,
                  call->launch->name ? call->launch->name : "-", strerror(-result));
}

/* Least memory, in bytes, of the GPUs that may run the task, and that GPU's worker; 0:
 * unlimited, or no GPU may. */
static size_t least_gpu_memory(const struct sl__place *place, int *worker) {
  size_t least = 0;
  for (int i = 0; i < starpu_worker_get_count_by_type(STARPU_CUDA_WORKER); i++) {
    int w = starpu_worker_get_by_type(STARPU_CUDA_WORKER, i);
    if (!sl__place_has(place, w)) continue;
    size_t memory = sl__cuda_task_limit(w);
    if (!memory || (least && least <= memory)) continue;
    least = memory;
    *worker = w;
  }
  return least;
}

/* StarPU would wait for ever with a task whose tensors cannot all be in a GPU's memory at once.
 * Such a task goes to a CPU if it may. */
static enum sl_status check_memory(struct starpu_task *task, const struct sl__launch *launch,
                                   int count, struct sl__tensor *const *tensors) {
  size_t bytes = 0, memory = 0;
  int worker = -1;
  if (!task->cl->cuda_funcs[0] || !starpu_cuda_worker_get_count()) return SL_OK;
  for (int i = 0; i < count; i++) bytes += tensors[i]->capacity;
  memory = least_gpu_memory(&launch->place, &worker);
  if (!memory || bytes <= memory) return SL_OK;
  if (!launch->place.worker && (!launch->place.where || launch->place.where & STARPU_CPU) &&
      starpu_cpu_worker_get_count()) {
    task->where = STARPU_CPU;
    return SL_OK;
  }
  struct sl__device device;
  sl__device_of_worker(worker, &device);
  int digits = sl__megabyte_digits((double)bytes, (double)memory);
  return sl__fail(
      SL_NO_MEMORY,
      "%s (layer %s) needs %.*f MB at once, but %s has room for %.*f MB; take a smaller "
      "batch or more microbatches, or place the layer elsewhere",
      task->cl->name, launch->name ? launch->name : "-", digits, (double)bytes / 1e6, device.name,
      digits, (double)memory / 1e6);
}

/* A kernel that takes the whole tensor for its piece would compute wrong values unnoticed. */
static enum sl_status check_pieces(const struct sl__op *op, const struct sl__launch *launch,
                                   int count, struct sl__tensor *const *tensors) {
  for (int i = 0; i < count && !launch->pieces; i++)
    if (tensors[i]->is_piece)
      return sl__fail(SL_UNSUPPORTED, "%s (layer %s) cannot work on a piece of a tensor",
                      op->codelet.name, launch->name ? launch->name : "-");
  return SL_OK;
}

/* ---- hooks (core/runtime/hooks.h) ---- */

static int hook_count(const struct sl_context *context) {
  return __atomic_load_n(&context->hooks.submit_count, __ATOMIC_ACQUIRE);
}

static bool hooks_take(struct sl_context *context, const struct sl__call *call,
                       enum sl_status *status) {
  int count = hook_count(context);
  for (int i = 0; i < count; i++) {
    const struct sl__submit_hook *hook = &context->hooks.submit[i];
    if (hook->instead && hook->instead(hook->data, call, status)) return true;
  }
  return false;
}

/* Tells the hooks before number `end`. */
static void hooks_withdraw(struct sl_context *context, int end, struct starpu_task *task) {
  while (end-- > 0) {
    const struct sl__submit_hook *hook = &context->hooks.submit[end];
    if (hook->withdraw) hook->withdraw(hook->data, task);
  }
}

static void run_hooks_after(const struct sl_context *context) {
  int count = hook_count(context);
  for (int i = 0; i < count; i++) {
    const struct sl__submit_hook *hook = &context->hooks.submit[i];
    void (*after)(void *data) = __atomic_load_n(&hook->after, __ATOMIC_ACQUIRE);
    if (after) after(__atomic_load_n(&hook->data, __ATOMIC_RELAXED));
  }
}

/* StarPU frees the task after this. */
static void ended(void *context) {
  run_hooks_after(context);
  __atomic_sub_fetch(&((struct sl_context *)context)->ending, 1, __ATOMIC_ACQ_REL);
}

static void endless_ended(void *context) { run_hooks_after(context); }

static enum sl_status run_hooks_before(struct sl_context *context, const struct sl__call *call,
                                       struct starpu_task *task) {
  int count = hook_count(context);
  for (int i = 0; i < count; i++) {
    const struct sl__submit_hook *hook = &context->hooks.submit[i];
    if (hook->after) {
      task->callback_func = call->launch->endless ? endless_ended : ended;
      task->callback_arg = context;
    }
    enum sl_status status = hook->before ? hook->before(hook->data, call, task) : SL_OK;
    if (status == SL_OK) continue;
    hooks_withdraw(context, i, task);
    return status;
  }
  return SL_OK;
}

/* ---- the submission ---- */

static enum sl_status fill_task(struct starpu_task *task, const struct sl__call *call,
                                const char *modes) {
  const struct sl__launch *launch = call->launch;
  task->cl = &call->op->codelet;
  task->name = launch->name ? launch->name : call->op->codelet.name;
  task->flops = call->flops;
  set_place(task, launch);
  enum sl_status status = check_memory(task, launch, call->count, call->tensors);
  if (status == SL_OK)
    status = attach_buffers(task, modes, launch->accumulate, call->count, call->tensors);
  return status == SL_OK ? attach_args(task, call->header, call->args, call->args_size) : status;
}

/* The first submission of an operation makes StarPU read its performance model, in the locale of
 * this thread. */
static int submit_first(struct starpu_task *task) {
  locale_t before = sl__locale_begin();
  int result = starpu_task_submit(task);
  sl__locale_end(before);
  return result;
}

static enum sl_status submit_task(struct sl_context *context, const struct sl__call *call,
                                  const char *modes) {
  const struct starpu_perfmodel *model = call->op->codelet.model;
  bool is_first = model && !model->is_loaded;
  enum sl_status status = sl__fork_check(context);
  struct starpu_task *task = status == SL_OK ? starpu_task_create() : NULL;
  if (!task) return status == SL_OK ? sl__fail(SL_NO_MEMORY, "no memory for a task") : status;
  status = fill_task(task, call, modes);
  if (status == SL_OK && is_first) status = sl__model_file_check(context, model->symbol);
  if (status == SL_OK) status = run_hooks_before(context, call, task);
  if (status == SL_OK) {
    struct sl__chain *chain = call->launch->chain;
    if (chain) sl__chain_add(chain, task, call->tensors);
    bool counts = task->callback_func == ended;
    if (counts) __atomic_add_fetch(&context->ending, 1, __ATOMIC_ACQ_REL);
    int result = is_first ? submit_first(task) : starpu_task_submit(task);
    if (!result) return SL_OK;
    if (counts) __atomic_sub_fetch(&context->ending, 1, __ATOMIC_ACQ_REL);
    if (chain) sl__chain_withdraw(chain);
    hooks_withdraw(context, hook_count(context), task);
    status = refused(result, call);
  }
  task->destroy = 0;
  starpu_task_destroy(task);
  return status;
}

static struct sl__args_header header_of(const struct sl__launch *launch, int count,
                                        size_t args_size) {
  return (struct sl__args_header){.accumulate = launch->accumulate,
                                  .count = (uint32_t)count,
                                  .tf32 = launch->tf32,
                                  .args_size = (uint32_t)args_size};
}

enum sl_status sl__submit_as_it_is(struct sl_context *context, struct sl__op *op,
                                   const struct sl__launch *launch, int count,
                                   struct sl__tensor *const *tensors, const void *args,
                                   size_t args_size) {
  const struct sl__args_header header = header_of(launch, count, args_size);
  const struct sl__call call = {op, launch, count, tensors, &header, args, args_size, 0};
  return submit_task(context, &call, sl__modes(op, launch));
}

static void note_writes(const struct sl__call *call, const char *modes) {
  for (int i = 0; i < call->count; i++, modes = sl__next_mode(modes))
    if (access_mode(*modes, call->launch->accumulate) & STARPU_W)
      sl__tensor_written(call->tensors[i]);
}

static enum sl_status submit_call(struct sl_context *context, const struct sl__call *call,
                                  const char *modes) {
  struct sl__chain *chain = call->launch->chain;
  sl__chains_lock(context);
  enum sl_status status = sl__chains_settle(chain, call->count, call->tensors);
  if (status == SL_OK && chain) status = sl__chain_begin(chain);
  if (status == SL_OK) note_writes(call, modes);
  if (status == SL_OK) status = submit_task(context, call, modes);
  sl__chains_unlock(context);
  return status;
}

enum sl_status sl__submit(struct sl_context *context, struct sl__op *op,
                          const struct sl__launch *launch, int count,
                          struct sl__tensor *const *tensors, const void *args, size_t args_size,
                          double flops, uint32_t footprint) {
  struct sl__args_header header = header_of(launch, count, args_size);
  const char *modes = sl__modes(op, launch);
  enum sl_status status = find_bf16_mask(op, modes, count, tensors, &header.bf16_mask);
  if (status == SL_OK) status = check_pieces(op, launch, count, tensors);
  if (status != SL_OK) return status;
  uint32_t math = header.bf16_mask << 1 | header.tf32;
  header.footprint =
      hash_tensors(count, tensors, math ? footprint ^ math * 2654435761u : footprint);
  const struct sl__call call = {op, launch, count, tensors, &header, args, args_size, flops};
  bool is_done =
      hooks_take(context, &call, &status) || (op->post && op->post(context, &call, &status));
  return is_done ? status : submit_call(context, &call, modes);
}
