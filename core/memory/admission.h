/* Admission of tasks: keeps a list of the tasks that are submitted and have not ended.
 * If main memory is limited, sl__submit waits until all tensors of the listed tasks and of the
 * new one fit the limit together. Otherwise StarPU could stall: its workers hold some of a
 * task's tensors while they wait for memory for the others. The watchdog
 * (core/memory/watchdog.h) reads the list, too. There is a list only with a limit or a watchdog. */
#ifndef SL_CORE_MEMORY_ADMISSION_H
#define SL_CORE_MEMORY_ADMISSION_H

#include <pthread.h>

#include "core/runtime/submit.h"

struct sl__admitted_task {
  struct sl__admitted_task *next, *previous; /* in order of submission */
  struct sl__admission *list;
  struct starpu_task *task;
  const char *operation, *layer;
  bool is_message;       /* ends when another rank has done its part */
  bool is_of_parameters; /* an update or a sum of gradients: its size is a shard's, not a batch's */
  bool is_reported;      /* the log has a warning that it takes long */
  double since;          /* seconds: the time of submission */
  size_t scratch;        /* bytes */
  size_t fresh;          /* without a swap folder: bytes that StarPU had yet to allocate for it */
  int count;
  struct sl__hold *hold[]; /* of its tensors */
};

struct sl__admission {
  struct sl_context *context;
  pthread_mutex_t mutex;
  pthread_cond_t ended;
  struct sl__admitted_task *first, *last;
  int count, computing;  /* tasks; without messages */
  uint64_t ends;         /* tasks ended so far */
  size_t limit, held;    /* bytes of main memory: in all; of the listed tasks' tensors */
  size_t promised;       /* without a swap folder: bytes that StarPU has yet to allocate */
  size_t fixed;          /* bytes of tensors whose home is main memory */
  size_t peak;           /* bytes that StarPU had in main memory at most */
  double fetching_since; /* the main thread waits for a tensor; 0: it does not */
};

/* With a limit or a watchdog; without both context->admission stays NULL. */
enum sl_status sl__admission_open(struct sl_context *context, bool watched);
void sl__admission_close(struct sl_context *context);

/* Does a worker execute the task? Such a task has all its tensors. */
bool sl__admitted_task_is_running(const struct sl__admitted_task *task);
/* Can the limit of main memory keep a task from running? The mutex is held. */
bool sl__admission_is_tight(const struct sl__admission *admission);

#endif
