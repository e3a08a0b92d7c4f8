/* A program: calls of operations, noted once instead of submitted, that then run as few tasks: what
 * follows each other on the same device is one. What is only used within a task is memory of that
 * task's worker, where what is no longer read makes room for what is written next. For passes that
 * are short and come again and again, which as a task a layer would be mostly bookkeeping. */
#ifndef SL_CORE_GRAPH_GRAPH_H
#define SL_CORE_GRAPH_GRAPH_H

#include "core/runtime/submit.h"

struct sl__graph;

/* The context's part for graphs: the capture in progress, and the workers' inboxes
 * (core/graph/helper.h). */
enum sl_status sl__graphs_open(struct sl_context *context);
void sl__graphs_close(struct sl_context *context);

/* op, assist: the operations whose kernels are sl__subgraph_run and sl__graph_help
 * (codelets/subgraph.c). */
enum sl_status sl__graph_new(struct sl_context *context, struct sl__op *op, struct sl__op *assist,
                             struct sl__graph **program);
/* Its tasks must have ended; what waits to assist is waited for. NULL is legal. */
void sl__graph_free(struct sl__graph *program);

/* From here to sl__graph_compile, what the calling thread calls the context's sl__submit for is
 * noted. One at a time. */
void sl__graph_capture(struct sl__graph *program);

/* The graph that the calling thread captures; NULL if it captures none. */
struct sl__graph *sl__graph_capturing(const struct sl_context *context);

/* Note no more, and make tasks of what was noted. result: the tensor that is asked for afterwards;
 * other tensors that the calls write before they read them are not: their contents are lost, and
 * they may have no memory at all. status: how the recording went; what it failed with is returned.
 */
enum sl_status sl__graph_compile(struct sl__graph *program, struct sl__tensor *result,
                                 enum sl_status status);

/* Submit the tasks, at that priority. result: instead of the one that it was compiled with, one of
 * the same shape and type; or NULL. One submission's tasks must follow those of the one before, as
 * they do where both write the same tensor. */
enum sl_status sl__graph_submit(struct sl__graph *program, int priority, struct sl__tensor *result);

/* The same by all CPU workers together, where its place is any of them: for when there is nothing
 * else to do. Calls whose kernels can be cut are done in parts; who of the others does not come in
 * time is done without, and the bits are the same. */
enum sl_status sl__graph_submit_to_all(struct sl__graph *program, int priority,
                                       struct sl__tensor *result);

/* Before compiling: no more workers than this together; 0: up to SL__TEAM_MOST (core/graph/team.h).
 */
void sl__graph_cores(struct sl__graph *program, int most);

/* Before compiling: what is only read, but for `input`, is read from the pack, and calls whose
 * kernels take another form of a parameter (struct sl__prepack) find it there. Compiling adds what
 * the pack does not have yet. It must outlive the program; who submits refreshes it. */
struct sl__weight_cache;
void sl__graph_use_weight_cache(struct sl__graph *program, struct sl__weight_cache *pack,
                                const struct sl__tensor *input);

/* For tests, before compiling: whoever does them, what can be cut is done in so many parts. */
void sl__graph_cut(struct sl__graph *program, int parts);

int sl__graph_tasks(const struct sl__graph *program);

/* Microseconds that its tasks took so far, summed; of a GPU's, to launch kernels. */
double sl__graph_computed(const struct sl__graph *program);

/* ---- for the kernels of the operations "program" and "assist" ---- */

struct sl__subgraph;
/* What one task does; its buffers are a segment's. */
void sl__subgraph_run(const struct sl__subgraph *segment, void *buffers[], bool on_gpu);

struct sl__helper_args {
  struct sl__graph *program;
  int member;
};
/* Take part in the program's task, if there is one soon. */
void sl__graph_help(struct sl__graph *program, int member);

#endif
