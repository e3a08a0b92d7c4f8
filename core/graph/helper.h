/* Helpers: CPU workers that take part in another worker's subgraph (core/graph/graph.h). A worker
 * that has helped keeps polling its inbox for a short time. Meanwhile it yields its core to other
 * threads all the time, since a thread that waits for the subgraph's result may be one of them.
 * Such a worker gets a message sooner than a task. */
#ifndef SL_CORE_GRAPH_HELPER_H
#define SL_CORE_GRAPH_HELPER_H

#include <stdbool.h>
#include <stdint.h>

struct sl_context;

/* A message to a worker that polls its inbox. */
struct sl__inbox_message {
  void (*run)(struct sl__inbox_message *message, int member);
};

/* Puts a message into the inbox of the CPU worker of that number; returns false if that worker does
 * not poll. The message must live until it has run. NULL: the worker is to stop polling. */
bool sl__inbox_put(struct sl_context *context, int member, struct sl__inbox_message *message);

/* The same to the worker of that core (as sched_getcpu counts), unless another thread runs there.
 */
bool sl__inbox_put_on_core(struct sl_context *context, int core, struct sl__inbox_message *message);

/* A batch of a predictor begins or ends, and the number of batches in progress: a worker that polls
 * its inbox makes way for batches that do not ask it for help. */
void sl__batch_begins(struct sl_context *context);
void sl__batch_ends(struct sl_context *context);
int sl__batches(const struct sl_context *context);

/* The core of a CPU worker; -1 if it is not bound to one. */
int sl__member_core(int member);

#endif
