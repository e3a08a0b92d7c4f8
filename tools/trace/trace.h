/* A trace as it is drawn and counted: what starpu_fxt_tool makes of StarPU's (FxT) trace, read from
 * its tasks.rec (GNU recutils: "Field: value" lines, records with an empty line between) and
 * paje.trace (workers' states, transfers, when recording began and ended). */
#ifndef SL_TOOLS_TRACE_TRACE_H
#define SL_TOOLS_TRACE_TRACE_H

#include <stdbool.h>
#include <stddef.h>

enum trace_pass {
  PASS_FORWARD,
  PASS_BACKWARD_DATA,
  PASS_BACKWARD_WEIGHT,
  PASS_UPDATE,  /* the optimizer's, whose place is its owner's, not the layer's */
  PASS_MESSAGE, /* a tensor to or from another rank */
  PASSES
};

struct trace_task {
  long long job;
  int worker, layer; /* indices into trace.workers and trace.layers */
  enum trace_pass pass;
  int stage, replica, microbatch, chunk; /* -1: not told apart */
  long step;                             /* the training's, from 1; 0: unknown */
  double start, end;                     /* ms */
  double gflop, bytes;
  char *name;
};

enum trace_state { STATE_BUSY, STATE_TRANSFER, STATE_OVERHEAD, STATE_IDLE, STATES };

struct trace_interval {
  double start, end;
  enum trace_state state;
};

struct trace_worker {
  int rank, number; /* rank -1: there is one */
  int node;         /* memory node */
  char name[40];    /* "CPU 0" */
  bool is_cpu;
  struct trace_interval *states; /* in order; NULL: unknown */
  size_t state_count, state_room;
};

/* Between memory nodes, or a message to or from another rank, from when it was begun or waited for.
 */
struct trace_transfer {
  int rank, from, to; /* memory nodes */
  int peer;           /* a message's other rank; -1: it is none */
  double start, end, bytes;
};

/* A record of tasks.rec, StarPU's own included: through those, too, tasks wait for each other. */
struct trace_job {
  long long id;
  size_t first, count; /* its part of trace.depends */
  long task;           /* index; -1: it is none of ours */
};

struct trace_span {
  double start, end;
};

struct trace {
  struct trace_task *tasks; /* of Starling's operations, by start */
  size_t count, task_room;
  struct trace_worker *workers;
  int worker_count;
  char **layers; /* names in the order of their first task */
  int layer_count;
  struct trace_job *jobs; /* by id */
  size_t job_count, job_room;
  long long *depends;
  size_t depend_count, depend_room;
  struct trace_transfer *transfers;
  size_t transfer_count, transfer_room;
  struct trace_span *spans; /* when it was recorded; none: all the time */
  size_t span_count, span_room;
  bool has_states;
  bool flushed; /* FxT wrote its buffer out meanwhile, which takes time */
  double window;
};

/* false: message says what, where (with the line) and what to do. */
bool trace_read_tasks(const char *path, struct trace *trace, char *message, size_t size);
bool trace_read_paje(const char *path, struct trace *trace, char *message, size_t size);

/* Keeps only the part from `from` to `to` ms after the first task, with times from its beginning
 * on; where both are open (0, INFINITY), the whole recording without the pauses. Tasks that are not
 * whole there are left out. false: nothing is left. */
bool trace_cut(struct trace *trace, double from, double to);

void trace_free(struct trace *trace);

/* Index of a worker, which is added where it is new; -1: no memory. */
int trace_worker(struct trace *trace, int rank, int number);

/* One more of size bytes behind count: the array, grown where it has to be; NULL: no memory. */
void *trace_grow(void *array, size_t count, size_t *room, size_t size);

#endif
