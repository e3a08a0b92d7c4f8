/* CPU workers that have taken part in a program's job (core/program.h) stay for a moment. Meanwhile
 * their core is for other threads first, since who waits for the job's result may be one of them;
 * and they may be asked for something else, which is sooner there than a task. */
#ifndef SL_CORE_ASSIST_H
#define SL_CORE_ASSIST_H

#include <stdbool.h>

struct sl_context;

/* What a worker does that stays. */
struct sl__errand {
  void (*run)(struct sl__errand *errand, int member);
};

/* To the CPU worker of that number, or of that core; false: it does not stay. The errand must not
 * go away before it has run. */
bool sl__errand_give(struct sl_context *context, int member, struct sl__errand *errand);
bool sl__errand_give_core(struct sl_context *context, int core, struct sl__errand *errand);

#endif
