#include "core/runtime/chain.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

struct sl__chain {
  struct sl_context *context;
  struct sl__chain_options options;
  bool *is_own;
  struct sl__tensor **unsettled; /* [count] own tensors that links have written */
  int count, before;             /* before: their number without the last link */
};

enum sl_status sl__chain_new(struct sl_context *context, const struct sl__chain_options *options,
                             struct sl__chain **chain) {
  size_t buffers = (size_t)options->count;
  struct sl__chain *c = sl__alloc(1, sizeof *c, "a chain of tasks");
  *chain = NULL;
  if (!c) return SL_NO_MEMORY;
  c->context = context;
  c->options = *options;
  c->is_own = sl__alloc(buffers, sizeof *c->is_own, "a chain of tasks");
  c->unsettled = sl__alloc(buffers, sizeof *c->unsettled, "a chain of tasks");
  if (!c->is_own || !c->unsettled) {
    free(c->is_own);
    free(c->unsettled);
    free(c);
    return SL_NO_MEMORY;
  }
  memcpy(c->is_own, options->is_own, buffers * sizeof *c->is_own);
  c->options.is_own = c->is_own;
  *chain = c;
  return SL_OK;
}

void sl__chains_lock(struct sl_context *context) {
  if (context->may_chain) starpu_pthread_mutex_lock(&context->chain_mutex);
}

void sl__chains_unlock(struct sl_context *context) {
  if (context->may_chain) starpu_pthread_mutex_unlock(&context->chain_mutex);
}

/* ---- settling ---- */

/* Its tensors are everybody's from here on, also if the task cannot be submitted: the failure is
 * the caller's, and there is no second try. */
static enum sl_status settle(struct sl__chain *c) {
  const struct sl__launch launch = {.name = "settle",
                                    .place = {STARPU_CUDA, c->options.worker + 1},
                                    .accumulate = true,
                                    .modes = "y*"};
  int count = c->count;
  for (int i = 0; i < count; i++) c->unsettled[i]->chain = NULL;
  c->count = 0;
  return sl__submit_as_it_is(c->context, c->options.op, &launch, count, c->unsettled,
                             c->options.args, c->options.args_size);
}

enum sl_status sl__chains_settle(const struct sl__chain *own, int count,
                                 struct sl__tensor *const *tensors) {
  enum sl_status status = SL_OK;
  for (int i = 0; i < count && status == SL_OK; i++)
    if (tensors[i]->chain && tensors[i]->chain != own) status = settle(tensors[i]->chain);
  return status;
}

enum sl_status sl__chain_settle(struct sl__tensor *tensor) {
  sl__chains_lock(tensor->context);
  enum sl_status status = sl__chains_settle(NULL, 1, &tensor);
  sl__chains_unlock(tensor->context);
  return status;
}

void sl__chain_free(struct sl__chain *c) {
  if (!c) return;
  sl__chains_lock(c->context);
  if (c->count && !c->context->abandoned) settle(c);
  for (int i = 0; i < c->count; i++) c->unsettled[i]->chain = NULL;
  sl__chains_unlock(c->context);
  free(c->is_own);
  free(c->unsettled);
  free(c);
}

/* ---- links ---- */

/* Where an earlier link has written the tensor, StarPU sees a read. The first one to write it
 * waits for all others that use it, as any task. */
static void order(struct sl__chain *c, struct sl__tensor *tensor,
                  enum starpu_data_access_mode *mode) {
  if (tensor->chain == c) {
    *mode = STARPU_R;
  } else if (*mode & STARPU_W) {
    tensor->chain = c;
    c->unsettled[c->count++] = tensor;
  }
}

void sl__chain_add(struct sl__chain *c, struct starpu_task *task,
                   struct sl__tensor *const *tensors) {
  enum starpu_data_access_mode *modes = task->dyn_modes ? task->dyn_modes : task->modes;
  c->before = c->count;
  for (int i = 0; i < c->options.count; i++)
    if (c->is_own[i]) order(c, tensors[i], &modes[i]);
  task->workerorder = ++c->context->links[c->options.worker];
}

void sl__chain_withdraw(struct sl__chain *c) {
  while (c->count > c->before) c->unsettled[--c->count]->chain = NULL;
  c->context->links[c->options.worker]--;
}
