/* Counts the tasks that a context submits, without helpers, which belong to no step. */
#ifndef TESTS_TASK_COUNT_H
#define TESTS_TASK_COUNT_H

#include "codelets/codelets.h"
#include "core/runtime/hooks.h"

static inline enum sl_status count_task(void *data, const struct sl__call *call,
                                        struct starpu_task *task) {
  (void)task;
  if (call->op != &sl__op_helper) ++*(int *)data;
  return SL_OK;
}

/* *tasks grows with each task until task_count_end. */
static inline enum sl_status task_count_begin(struct sl_context *context, int *tasks) {
  const struct sl__submit_hook hook = {.before = count_task, .data = tasks};
  return sl__submit_hook_add(context, &hook);
}

static inline void task_count_end(struct sl_context *context, int *tasks) {
  sl__submit_hook_remove(context, tasks);
}

#endif
