/* Chains: tasks of one GPU's worker, such as the steps of a training, that begin while the one in
 * front still runs. StarPU lets a task begin when it has seen the end of the task whose results it
 * needs. That takes some 20 us, in which the GPU waits. But a GPU's worker has one stream, which
 * does the work of its tasks in the order in which they begin. So a *link* of a chain says that it
 * only reads those tensors which the links before it have written since the chain was *settled*,
 * and StarPU begins the links in their order (`workerorder` of its tasks), without such waits.
 *
 * Before another task or thread may use these tensors, the chain must be settled: by a task without
 * work that, as far as StarPU knows, writes all of them, and therefore follows all links.
 * Submitting a task, acquiring and freeing a tensor do that. */
#ifndef SL_CORE_RUNTIME_CHAIN_H
#define SL_CORE_RUNTIME_CHAIN_H

#include "core/runtime/submit.h"

struct sl__chain;

/* What the links of a chain are. */
struct sl__chain_options {
  int worker; /* StarPU's number of the GPU's worker */
  int count;  /* of a link's buffers; the first one is memory of the links alone */
  /* [count] copied: is the buffer the same tensor in each link? It is no view and has none. */
  const bool *is_own;
  struct sl__op *op; /* of the task that settles the chain */
  const void *args;  /* [args_size] with which that task does nothing; must outlive the chain */
  size_t args_size;  /* bytes */
};

/* \return SL_NO_MEMORY */
enum sl_status sl__chain_new(struct sl_context *context, const struct sl__chain_options *options,
                             struct sl__chain **chain);

/* Settles it first. NULL is legal. */
void sl__chain_free(struct sl__chain *chain);

/* Settles the chain that has written the tensor, if there is one. */
enum sl_status sl__chain_settle(struct sl__tensor *tensor);

/* The same for a tensor that is freed next: it is in no chain afterwards, whatever happens. */
void sl__chain_leave(struct sl__tensor *tensor);

/* ---- for the kernels of links, and of the task that settles ---- */

void sl__chain_hold(const struct sl__chain *chain);
void sl__chain_release(void);

/* ---- for core/runtime/submit.c and wait.c ---- */

/* Between lock and unlock no other thread submits a task or acquires a tensor, in a context that
 * may have chains. Not where memory is limited: there a submission waits for other tasks. */
void sl__chains_lock(struct sl_context *context);
void sl__chains_unlock(struct sl_context *context);

/* With the lock: settles all chains that have written one of these tensors, but `own`, which may be
 * NULL. */
enum sl_status sl__chains_settle(const struct sl__chain *own, int count,
                                 struct sl__tensor *const *tensors);

/* With the lock, before a link: settles the chain once in a while. */
enum sl_status sl__chain_begin(struct sl__chain *chain);

/* With the lock: makes a link of a task whose buffers and modes are complete; after that StarPU
 * must get it, or sl__chain_withdraw. */
void sl__chain_add(struct sl__chain *chain, struct starpu_task *task,
                   struct sl__tensor *const *tensors);
void sl__chain_withdraw(struct sl__chain *chain);

#endif
