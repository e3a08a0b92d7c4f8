/* How rooms above core/runtime take part in its work: in the submission of tasks, in waits, and in
 * the memory of tensors. They register; core/runtime knows none of them. */
#ifndef SL_CORE_RUNTIME_HOOKS_H
#define SL_CORE_RUNTIME_HOOKS_H

#include <starpu.h>
#include <starling/base.h>

struct sl__call; /* core/runtime/submit.h */
struct sl__tensor;

/* Functions that sl__submit calls, in the order of registration; each may be NULL, and gets
 * `data`. */
struct sl__submit_hook {
  /* Instead of a submission. true: the hook has taken the call, *status is what sl__submit returns,
   * and there is no task. */
  bool (*instead)(void *data, const struct sl__call *call, enum sl_status *status);
  /* Before a submission: the task is complete. The hook may change it, or refuse it by a status. */
  enum sl_status (*before)(void *data, const struct sl__call *call, struct starpu_task *task);
  /* The task that `before` has accepted is not submitted: a later hook or StarPU refused it. */
  void (*withdraw)(void *data, struct starpu_task *task);
  /* A worker has ended the task starpu_task_get_current(), and tasks that depend on it may run. */
  void (*after)(void *data);
  void *data;
};

/* What makes a wait end early: functions that core/runtime/wait.c calls; each may be NULL. */
struct sl__health_check {
  /* Can `check` ever find something? NULL: yes. Without any such check waits do not poll. */
  bool (*is_needed)(void *data);
  /* SL_OK, or why submitted tasks may never end. Any thread. */
  enum sl_status (*check)(void *data);
  /* Number of messages in progress, which sl__wait_for_all waits for besides tasks. */
  int (*messages)(void *data);
  /* The calling thread begins to wait for a tensor, or has ended that wait. */
  void (*waits)(void *data, bool begins);
  /* Does a worker execute a task, as opposed to waiting for memory? */
  bool (*is_running)(void *data);
  void *data;
};

/* Accounting of tensors' memory; one, or none. */
struct sl__tensor_hook {
  void (*pinned)(void *data, int64_t bytes); /* main memory that cannot move comes, or goes (< 0) */
  void (*freed)(void *data, struct sl__tensor *tensor);
  /* Before a tensor is brought to main memory for the program: can it ever be there? */
  enum sl_status (*check)(void *data, const struct sl__tensor *tensor);
  void *data;
};

enum { SL__MOST_SUBMIT_HOOKS = 8, SL__MOST_HEALTH_CHECKS = 4 };

struct sl__hooks {
  struct sl__submit_hook submit[SL__MOST_SUBMIT_HOOKS];
  int submit_count; /* slots that were ever used; a removed hook leaves an empty one */
  struct sl__health_check health[SL__MOST_HEALTH_CHECKS];
  int health_count;
  struct sl__tensor_hook tensor;
};

/* Tasks that end meanwhile see all of the hook or nothing of it; but no other thread may add or
 * remove one, and none may submit while one is removed. SL_UNSUPPORTED: all slots are taken. */
enum sl_status sl__submit_hook_add(struct sl_context *context, const struct sl__submit_hook *hook);
/* The hook with this data; nothing where there is none, or data is NULL. */
void sl__submit_hook_remove(struct sl_context *context, const void *data);

/* While the context is opened. SL_UNSUPPORTED: all slots are taken. */
enum sl_status sl__health_check_add(struct sl_context *context,
                                    const struct sl__health_check *check);

#endif
