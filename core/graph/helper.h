/* CPU workers that have taken part in a program's job (core/graph/graph.h) stay for a moment.
 * Meanwhile their core is for other threads first, since who waits for the job's result may be one
 * of them; and they may be asked for something else, which is sooner there than a task. */
#ifndef SL_CORE_GRAPH_HELPER_H
#define SL_CORE_GRAPH_HELPER_H

#include <stdbool.h>
#include <stdint.h>

struct sl_context;

/* What a worker does that stays. */
struct sl__inbox_message {
  void (*run)(struct sl__inbox_message *errand, int member);
};

/* To the CPU worker of that number; false: it does not stay. The errand must not go away before it
 * has run. NULL: the worker is to stay no longer. */
bool sl__inbox_put(struct sl_context *context, int member, struct sl__inbox_message *errand);

/* To the one of that core (as sched_getcpu counts), unless another thread has the core. */
bool sl__inbox_put_on_core(struct sl_context *context, int core, struct sl__inbox_message *errand);

/* A batch of a predictor begins or ends, and the number of batches in progress: a worker that polls
 * its inbox makes way for batches that do not ask it for help. */
void sl__batch_begins(struct sl_context *context);
void sl__batch_ends(struct sl_context *context);
int sl__batches(const struct sl_context *context);

/* The core of a CPU worker; -1: it has none. */
int sl__member_core(int member);

#endif
