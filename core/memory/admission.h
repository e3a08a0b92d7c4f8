/* The tasks under way: submitted, not ended. Where main memory is limited, a task is let in only
 * when all that the tasks under way touch fits at once; so StarPU, whose workers hold some of a
 * task's tensors while they wait for the memory of the others, cannot stall. And who watches over
 * stalls (core/memory/watchdog.h) sees here what runs and what waits. Kept only where one of both
 * is asked for. */
#ifndef SL_CORE_MEMORY_ADMISSION_H
#define SL_CORE_MEMORY_ADMISSION_H

#include <pthread.h>

#include "core/runtime/submit.h"

struct sl__admitted_task {
  struct sl__admitted_task *next, *previous; /* older ones come first */
  struct sl__admission *list;
  struct starpu_task *task;
  const char *operation, *layer;
  bool is_message; /* ends when another rank has done its part */
  bool told;       /* that it takes long */
  double since;    /* seconds: when it was submitted, or first seen running */
  size_t scratch;  /* bytes */
  size_t fresh;    /* without a swap folder: what StarPU had still to allocate for it */
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
  size_t limit, held;    /* bytes of main memory: all; of what the tasks under way touch */
  size_t promised;       /* without a swap folder: what they have still to allocate */
  size_t fixed;          /* bytes of tensors at home in main memory */
  size_t peak;           /* of what StarPU has in main memory */
  double fetching_since; /* the main thread waits for a tensor; 0: it does not */
};

/* With a limit or a watchdog; without both context->admission stays NULL. */
enum sl_status sl__admission_open(struct sl_context *context, bool watched);
void sl__admission_close(struct sl_context *context);

/* Does a worker execute the task, or, messages aside, any of them? It has its tensors then. */
bool sl__admitted_task_is_running(const struct sl__admitted_task *task);
bool sl__admission_is_running(struct sl__admission *active);

#endif
