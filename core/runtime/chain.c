#include "core/runtime/chain.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

/* Links after which a chain is settled: StarPU gives a worker its ordered tasks before all others,
 * which would wait for as long as there are links. */
enum { MOST_LINKS = 16 };

struct sl__chain {
  struct sl_context *context;
  struct sl__chain_options options;
  bool *is_own;
  struct sl__tensor **unsettled; /* [count] own tensors that links have written */
  int count, before;             /* before: their number without the last link */
  int links;                     /* since it was settled */
  int64_t begun;                 /* links in all; the first one writes their memory */
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

static enum sl_status settle(struct sl__chain *c) {
  const struct sl__launch launch = {.name = "settle",
                                    .place = {STARPU_CUDA, c->options.worker + 1},
                                    .accumulate = true,
                                    .modes = "y*"};
  enum sl_status status = sl__submit_as_it_is(c->context, c->options.op, &launch, c->count,
                                              c->unsettled, c->options.args, c->options.args_size);
  if (status != SL_OK) return status;
  for (int i = 0; i < c->count; i++) c->unsettled[i]->chain = NULL;
  c->count = c->links = 0;
  return SL_OK;
}

/* That has written the tensor, or before it was split the whole of which it is a part. */
static struct sl__chain *chain_of(const struct sl__tensor *t) {
  return t->whole ? t->whole->chain : t->chain;
}

enum sl_status sl__chains_settle(const struct sl__chain *own, int count,
                                 struct sl__tensor *const *tensors) {
  enum sl_status status = SL_OK;
  for (int i = 0; i < count && status == SL_OK; i++) {
    struct sl__chain *chain = chain_of(tensors[i]);
    if (chain && chain != own) status = settle(chain);
  }
  return status;
}

enum sl_status sl__chain_settle(struct sl__tensor *tensor) {
  sl__chains_lock(tensor->context);
  enum sl_status status = sl__chains_settle(NULL, 1, &tensor);
  sl__chains_unlock(tensor->context);
  return status;
}

/* No list has the tensor any more. */
static void forget(struct sl__chain *c, struct sl__tensor *tensor) {
  for (int i = 0; i < c->count; i++)
    if (c->unsettled[i] == tensor) c->unsettled[i] = c->unsettled[--c->count];
  tensor->chain = NULL;
}

void sl__chain_leave(struct sl__tensor *tensor) {
  sl__chains_lock(tensor->context);
  if (sl__chains_settle(NULL, 1, &tensor) != SL_OK && tensor->chain) forget(tensor->chain, tensor);
  sl__chains_unlock(tensor->context);
}

void sl__chain_free(struct sl__chain *c) {
  if (!c) return;
  sl__chains_lock(c->context);
  if (c->count && !c->context->abandoned) settle(c);
  while (c->count) forget(c, c->unsettled[0]);
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

enum sl_status sl__chain_begin(struct sl__chain *c) {
  return c->links >= MOST_LINKS ? settle(c) : SL_OK;
}

void sl__chain_add(struct sl__chain *c, struct starpu_task *task,
                   struct sl__tensor *const *tensors) {
  enum starpu_data_access_mode *modes = task->dyn_modes ? task->dyn_modes : task->modes;
  c->before = c->count;
  if (c->begun++) modes[0] = STARPU_R;
  for (int i = 1; i < c->options.count; i++)
    if (c->is_own[i]) order(c, tensors[i], &modes[i]);
  c->links++;
  task->workerorder = ++c->context->links[c->options.worker];
}

void sl__chain_withdraw(struct sl__chain *c) {
  while (c->count > c->before) c->unsettled[--c->count]->chain = NULL;
  c->links--;
  c->begun--;
  c->context->links[c->options.worker]--;
}

/* ---- in a task ---- */

/* For StarPU a link only reads its tensors: it might copy them to main memory and later take the
 * GPU's copies away. It keeps data that is to be written through to a node on that node. */
void sl__chain_hold(const struct sl__chain *c) {
  struct starpu_task *task = starpu_task_get_current();
  uint32_t node = 1u << starpu_worker_get_memory_node((unsigned)c->options.worker);
  for (int i = 0; i < c->options.count; i++)
    if (c->is_own[i]) starpu_data_set_wt_mask(STARPU_TASK_GET_HANDLE(task, i), node);
}

void sl__chain_release(void) {
  struct starpu_task *task = starpu_task_get_current();
  for (unsigned i = 0; i < STARPU_TASK_GET_NBUFFERS(task); i++)
    starpu_data_set_wt_mask(STARPU_TASK_GET_HANDLE(task, i), 0);
}
