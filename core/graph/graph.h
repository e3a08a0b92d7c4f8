/* A captured graph: calls of operations that are recorded once and then run as few tasks, each of
 * which is a subgraph. A message between ranks is a subgraph of its own, and may need no task
 * (`post` in struct sl__op). A tensor that only one subgraph uses needs no StarPU handle: it lies
 * in the worker's memory, and shares it with tensors that are not needed at the same time. Answers
 * and steps of a training are captured graphs. */
#ifndef SL_CORE_GRAPH_GRAPH_H
#define SL_CORE_GRAPH_GRAPH_H

#include "core/runtime/submit.h"

struct sl__graph;

/* The context's part for graphs: the capture in progress, and the workers' inboxes
 * (core/graph/helper.h). */
enum sl_status sl__graphs_open(struct sl_context *context);
void sl__graphs_close(struct sl_context *context);

/* op, helper_op: the operations whose kernels are sl__subgraph_run and sl__graph_help
 * (codelets/subgraph.c). */
enum sl_status sl__graph_new(struct sl_context *context, struct sl__op *op,
                             struct sl__op *helper_op, struct sl__graph **graph);
/* Its tasks must have ended; the function waits for helpers. NULL is legal. */
void sl__graph_free(struct sl__graph *graph);

/* From here to sl__graph_compile, sl__submit records the calling thread's calls instead of
 * submitting them. One capture at a time in a context. */
void sl__graph_capture(struct sl__graph *graph);

/* The graph that the calling thread captures; NULL if it captures none. */
struct sl__graph *sl__graph_capturing(const struct sl_context *context);

/* Ends the capture and makes subgraphs of its calls. Tensors that the calls write before they read
 * them lose their contents afterwards, and may have no memory at all, unless they are bound or
 * kept. status: the capture's; a failure is returned as it is. */
enum sl_status sl__graph_compile(struct sl__graph *graph, enum sl_status status);

/* After compiling, if only this graph uses the tensors of its calls: gives back StarPU's handles of
 * those that lie in a worker's memory. */
void sl__graph_drop_handles(struct sl__graph *graph);

/* Before compiling: the tensor keeps its contents after a run. */
enum sl_status sl__graph_keep(struct sl__graph *graph, struct sl__tensor *tensor);

/* The same, and a task behind the graph waits for it: on a GPU a subgraph ends where it is written.
 */
enum sl_status sl__graph_pass_on(struct sl__graph *graph, struct sl__tensor *tensor);

/* As sl__graph_keep, and in each run another tensor of its shape and type may take its place; the
 * first tensor that is bound has number 0. */
enum sl_status sl__graph_bind(struct sl__graph *graph, struct sl__tensor *tensor);

/* Before compiling: calls of the same part of a step (struct sl__slice_mark) at the same place are
 * joined, although calls of other parts lie between, as long as they take no more than this
 * number of microseconds together, by an estimate. A call that alone reads the output of the call
 * before it, row by row, joins that one in any case; both alternate in slices of some rows. A part
 * of four times that number is one task, and so is a step of eight times, on the same worker in all
 * runs; other workers help with its replicas and its updates. Neither holds with stages. Messages
 * end the joining at what they send, and the steps that they divide have no certain worker and no
 * helpers. Where each CPU worker has a replica, they share a step of 400 times so
 * (core/graph/graph_cut.c). On one GPU calls of all parts are joined, without a limit, up to one
 * whose results leave it. A time below a microsecond: no calls are joined but such neighbours. The
 * zero value: calls at the same place that follow each other are joined, without a limit. */
void sl__graph_join_slices(struct sl__graph *graph, double microseconds);

/* What differs between the runs of a graph. Zero value: nothing. */
struct sl__graph_run {
  int priority;                       /* added to that of each task */
  struct sl__tensor *const *bound;    /* in the places of the bound ones; NULL: those themselves */
  const struct sl__step_record *step; /* NULL: arguments are as they were captured */
};

/* Submits one task, or message, a subgraph. Of a graph that is not joined by slices the tasks of
 * two submissions must run one after the other, as they do if both write the same tensor. */
enum sl_status sl__graph_submit(struct sl__graph *graph, const struct sl__graph_run *run);

/* The same by all CPU workers together, if the graph may run on any of them: for when no other work
 * waits. Calls whose kernels can be cut are done in parts. The others do the part of a worker that
 * comes late; the bits are the same. */
enum sl_status sl__graph_submit_to_all(struct sl__graph *graph, const struct sl__graph_run *run);

/* Before compiling: the largest number of workers that work together; 0: SL__TEAM_MOST
 * (core/graph/team.h). */
void sl__graph_cores(struct sl__graph *graph, int most);

/* Before compiling: tensors that are only read, except `input`, are read from the cache, and so are
 * prepacked weights (struct sl__prepack). Compiling adds missing ones to the cache. The cache must
 * outlive the graph; the caller refreshes it before it submits the graph. */
struct sl__weight_cache;
void sl__graph_use_weight_cache(struct sl__graph *graph, struct sl__weight_cache *cache,
                                const struct sl__tensor *input);

/* For tests, before compiling: each call that can be cut has this number of parts, whatever the
 * number of workers. */
void sl__graph_cut(struct sl__graph *graph, int parts);

/* Number of subgraphs. */
int sl__graph_tasks(const struct sl__graph *graph);
/* How many CPU workers run a subgraph together, at most; 0: all subgraphs run on GPUs. */
int sl__graph_members(const struct sl__graph *graph);

/* Microseconds that its tasks took so far, summed; on a GPU the time to launch the kernels. */
double sl__graph_computed(const struct sl__graph *graph);

/* ---- for the kernels of the operations "subgraph" and "helper" ---- */

/* The arguments of a subgraph's task. An address may be one, since the task runs in this process.
 */
struct sl__subgraph_args {
  const struct sl__subgraph *subgraph; /* NULL: the task settles a chain (core/runtime/chain.h) */
  bool has_step;
  struct sl__step_record step;
};

/* The work of one task, with the task's buffers. */
void sl__subgraph_run(const struct sl__subgraph_args *args, void *buffers[], bool on_gpu);

struct sl__helper_args {
  struct sl__graph *graph;
  int member;
};
/* Help with the graph's task, if one begins soon; then keep polling for more. */
void sl__graph_help(struct sl__graph *graph, int member);

#endif
