/* CPU workers that have taken part in a program's job (core/graph/graph.h) stay for a moment. Meanwhile
 * their core is for other threads first, since who waits for the job's result may be one of them;
 * and they may be asked for something else, which is sooner there than a task. */
#ifndef SL_CORE_GRAPH_HELPER_H
#define SL_CORE_GRAPH_HELPER_H

#include <stdbool.h>
#include <stdint.h>

struct sl_context;

/* What a worker does that stays. */
struct sl__errand {
  void (*run)(struct sl__errand *errand, int member);
};

enum { SL_MAILBOXES = 16 };

/* A worker's, in the context. */
struct sl__mailbox {
  struct sl__errand *errand;
  int64_t seen_us; /* when the worker looked last */
};

/* To the CPU worker of that number; false: it does not stay. The errand must not go away before it
 * has run. NULL: the worker is to stay no longer. */
bool sl__errand_give(struct sl_context *context, int member, struct sl__errand *errand);

/* To the one of that core (as sched_getcpu counts), unless another thread has the core. */
bool sl__errand_give_core(struct sl_context *context, int core, struct sl__errand *errand);

/* The core of a CPU worker; -1: it has none. */
int sl__member_core(int member);

#endif
