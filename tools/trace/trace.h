/* A trace for drawing and counting, read from two files that starpu_fxt_tool makes of StarPU's FxT
 * trace. tasks.rec has the tasks (GNU recutils: "Field: value" lines, an empty line between
 * records); paje.trace has workers' states, transfers, begin and end of recording. */
#ifndef SL_TOOLS_TRACE_TRACE_H
#define SL_TOOLS_TRACE_TRACE_H

#include <stdbool.h>
#include <stddef.h>

enum trace_pass {
  PASS_FORWARD,
  PASS_BACKWARD_DATA,
  PASS_BACKWARD_WEIGHT,
  PASS_UPDATE,  /* a task of the optimizer; its place is the owner's, not the layer's */
  PASS_MESSAGE, /* a tensor to or from another rank */
  PASSES
};

struct trace_task {
  long long job;
  int worker, layer; /* indices into trace.workers and trace.layers */
  enum trace_pass pass;
  int stage, replica, microbatch, chunk; /* -1: not in the task's name */
  long step;                             /* step of the training, from 1; 0: unknown */
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
  int rank, number; /* rank -1: the trace is of one process */
  int node;         /* memory node */
  char name[40];    /* "CPU 0" */
  bool is_cpu;
  struct trace_interval *states; /* in order; NULL: unknown */
  size_t state_count, state_room;
};

/* A transfer between memory nodes, or a message to or from another rank. It starts when it was
 * begun, or when a worker began to wait for it. */
struct trace_transfer {
  int rank, from, to; /* memory nodes */
  int peer;           /* the other rank of a message; -1: it is no message */
  double start, end, bytes;
};

/* A record of tasks.rec. StarPU's own jobs are included, because tasks wait for each other through
 * them, too. */
struct trace_job {
  long long id;
  size_t first, count; /* its part of trace.depends */
  long task;           /* index of its task; -1: it is not Starling's */
};

struct trace_span {
  double start, end;
};

struct trace {
  struct trace_task *tasks; /* tasks of Starling's operations, by start */
  size_t count, task_room;
  struct trace_worker *workers;
  int worker_count;
  char **layers; /* names in the order of their first tasks */
  int layer_count;
  struct trace_job *jobs; /* by id */
  size_t job_count, job_room;
  long long *depends;
  size_t depend_count, depend_room;
  struct trace_transfer *transfers;
  size_t transfer_count, transfer_room;
  struct trace_span *spans; /* times of recording; none: all the time */
  size_t span_count, span_room;
  bool has_states;
  bool flushed; /* FxT wrote out its buffer during recording, which takes time */
  double window;
};

/* False after a failure; message says what, where (with the line) and what to do. */
bool trace_read_tasks(const char *path, struct trace *trace, char *message, size_t size);
bool trace_read_paje(const char *path, struct trace *trace, char *message, size_t size);

/* Keeps only the part from `from` to `to` ms after the first task; times then count from its
 * beginning. (0, INFINITY) keeps the whole recording without the pauses. Tasks that lie only partly
 * in it are removed. Returns 0, ERANGE if no task remains, or ENOMEM: only trace_free is legal. */
int trace_cut(struct trace *trace, double from, double to);

void trace_free(struct trace *trace);

/* Index of a worker, which is added if it is new; -1 without memory. */
int trace_worker(struct trace *trace, int rank, int number);

/* The whole number at the beginning of the text, 0 to 1,048,576; -1: there is none, or it is
 * larger. *end, unless end is NULL, is the place after the digits. */
int trace_number(const char *text, char **end);

/* Makes room for one more element after `count`; each has size bytes. Returns the array, which may
 * have moved; NULL without memory. */
void *trace_grow(void *array, size_t count, size_t *room, size_t size);

#endif
