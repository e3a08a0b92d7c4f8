/* State that the files of captured graphs (core/graph/graph.h) share.
 *   graph.c          captures calls
 *   graph_fuse.c     merges a call into the one before it, if that one's kernel can do both; in a
 *                    training's step finds pairs that can alternate instead
 *   graph_channels.c finds calls of such a step that can alternate by channels
 *   graph_absorb.c   removes calls whose outputs other calls can compute themselves
 *   graph_weights.c  finds tensors that the weight cache can hold
 *   graph_cut.c      cuts the calls into subgraphs
 *   graph_compile.c  compiles: all of these, and the buffers of each subgraph's task
 *   graph_horizontal.c
 *                    finds independent calls of one operation that a GPU runs as one
 *   graph_plan.c     plans a subgraph: parts for several workers, and the internal tensors' memory
 *   graph_branches.c finds calls of a step's only subgraph that workers can run at the same time
 *   graph_chain.c    finds steps that may begin while the one in front still runs
 *   graph_submit.c   submits the subgraphs' tasks, and messages
 *   graph_run.c      runs one
 *   graph_gpu.c      runs one on a GPU, as CUDA graphs
 *   helper.c         helpers: other workers that take part */
#ifndef SL_CORE_GRAPH_GRAPH_STATE_H
#define SL_CORE_GRAPH_GRAPH_STATE_H

#include <pthread.h>

#include "core/graph/graph.h"
#include "core/graph/helper.h"
#include "core/graph/team.h"
#include "core/graph/weight_cache.h"

/* A worker's inbox. */
struct worker_inbox {
  struct sl__inbox_message *message;
  bool is_helping; /* the worker runs sl__graph_help */
  int64_t seen_us; /* when the worker looked last */
};

struct sl__graphs {
  struct sl__graph *capturing; /* calls of the thread `capturer` are captured there; or NULL */
  pthread_t capturer;
  int batches; /* see sl__batch_begins */
  int helping; /* workers that run sl__graph_help */
  int home;    /* 1 + the member that has all lone tasks; 0: none yet */
  bool told;   /* the log has that a subgraph is no CUDA graph */
  struct worker_inbox inboxes[SL__TEAM_MOST];
};

/* A copy of a call. */
struct call {
  struct sl__op *op;
  const char *name;
  struct sl__place place;
  struct sl__slice_mark mark;
  int priority;
  double flops;
  struct sl__cut cut;
  struct sl__prepack prepack;
  void (*renew)(void *args, const struct sl__step_record *step);
  bool (*absorb_input)(void *args, const struct sl__op *writer, const void *writer_args,
                       int64_t first);
  int64_t rows, outputs; /* of its first output; outputs: number of values */
  bool varies;           /* see struct sl__launch */
  bool passes_rows;      /* in a training's step: only the next call reads its output, row by row */
  int channel_run;       /* 1 + number of its run of calls that alternate by channels; 0: none */
  int64_t channel_parts; /* of that run: the parts that the channels are cut into */
  int count;
  int *tensor; /* [count] index in the graph's uses */
  int *buffer; /* [count] the task's buffer that has it; -1: it lies in the worker's memory */
  struct sl__args_header *args;
  size_t args_size; /* with the header */
  /* In a subgraph of a GPU: the calls, itself among them, that run as one; see cuda_many. */
  int first_together, end_together;
};

/* A tensor that the calls use. */
struct tensor_use {
  struct sl__tensor *tensor;
  int first_subgraph, last_subgraph;
  int first_call, last_call; /* of an internal tensor */
  bool is_written_first, is_written, is_scratch;
  bool is_kept;      /* see sl__graph_keep */
  bool is_passed_on; /* see sl__graph_pass_on */
  bool is_in_message;
  int bound;        /* 1 + number of the bound tensor; 0: it is none */
  bool is_internal; /* only one subgraph uses it: it lies in the worker's memory */
  bool is_local;    /* only one fusion group by rows uses it: each member has its own rows */
  const struct sl__weight_cache *weight_cache; /* the member of the cache that holds it, or NULL */
  int whole;     /* 1 + the use of the whole tensor that the task has instead of it; 0: none */
  size_t offset; /* in that memory */
};

/* Calls of a subgraph that each part does one after the other. */
struct fusion_group {
  int first, end;        /* calls */
  int64_t units;         /* parts are cut between these; 0: there is one part. Calls that
                            alternate have as many as parts, though one member does all */
  int phases;            /* of the first call's kernel; the other calls follow its last phase */
  int64_t channel_parts; /* of the channels, by which its calls alternate; 0: they do not */
  int slices; /* parts of a few rows each, which fit a cache; 0: as many parts as members */
  int superstep, branch; /* set where graph_branches.c has found branches */
  int branches;          /* of its superstep: each is done by one member; 0: there are none */
};

/* A tensor that the caller names before compiling. */
struct kept_tensor {
  const struct sl__tensor *tensor;
  int bound; /* 1 + its number; 0: it is kept only */
  bool is_passed_on;
};

/* The work of a superstep of the team: one phase of one fusion group; or all of the groups
 * [group, end), of which a part has those of a branch. */
struct group_phase {
  int group, end, phase; /* end: 0 where it is a phase of one group */
};

/* Calls of a subgraph, one after the other, on a GPU. */
struct gpu_part {
  int first, end;
  bool is_recorded; /* they become a CUDA graph; else their functions are called in each run */
};

/* The CUDA graphs of a subgraph for buffers at these addresses, on which a GPU's worker has run it
 * before. */
struct recording {
  void **address;                /* [buffers] */
  struct sl__cuda_graph **graph; /* [calls] of each part; NULL: of one that is not recorded */
  char *args;                    /* [args_bytes] that renewed calls had */
  int64_t last_run;              /* the number of the worker's last run with them; 0: none */
  bool is_made;
};

/* Of a GPU's worker. A loader's slots (up to 16), the pending steps and the two places of recurrent
 * states have a recording for each way to meet; the one that has not run for longest makes room. */
enum { MOST_RECORDINGS = 64 };
struct recordings {
  int worker;
  bool is_refused; /* CUDA did not record it once: it runs without CUDA graphs */
  int64_t runs;
  struct gpu_part *parts; /* [calls] */
  int part_count;
  bool *changes;     /* [calls] has the call once had other arguments than in a recording? */
  size_t args_bytes; /* of the arguments that follow the step record */
  void **addresses;  /* of all recordings, as graphs and args are */
  struct sl__cuda_graph **graphs;
  char *args;
  struct recording list[MOST_RECORDINGS];
};

/* A subgraph's memory: internal tensors; scratch memory of calls that are not cut, or have phases;
 * and then for each member: scratch memory of other calls, and local tensors. */
struct sl__subgraph {
  struct sl__graph *graph;
  int first, end; /* calls */
  struct fusion_group *groups;
  int group_count;
  struct group_phase *group_phases;       /* [number of supersteps] */
  bool has_branches;                      /* that workers run at the same time */
  int members;                            /* the largest number of workers; 0: on a GPU */
  struct sl__team *team;                  /* NULL: it has no more than one member */
  size_t common_at, members_at, local_at; /* offsets; local_at in a member's memory */
  size_t member_bytes, workspace_bytes;   /* workspace_bytes: of all that memory */
  struct recordings *recordings;          /* [gpu_count] */
  int gpu_count;                          /* GPU workers that may run it */
  int count;                              /* of buffers: the memory, then tensors */
  struct sl__tensor **tensors;
  int *use; /* [count] its first use; -1: of the memory */
  char *modes;
  char *name;
  struct sl__place place;
  int priority; /* the highest of its calls; 0 where the graph is not joined by slices */
  double flops;
  uint32_t footprint;
};

struct sl__graph {
  struct sl_context *context;
  struct sl__op *op, *helper_op;
  struct call *calls;
  int call_count, call_room;
  struct tensor_use *uses;
  int use_count, use_room;
  struct sl__subgraph *subgraphs;
  int subgraph_count;
  struct kept_tensor *kept;
  int kept_count, kept_room, bound_count;
  double slice_us; /* see sl__graph_join_slices; 0: the graph is not joined by slices */
  struct sl__weight_cache *weight_cache; /* or NULL */
  const struct sl__tensor *input;
  int cores;                 /* see sl__graph_cores */
  int forced_parts;          /* see sl__graph_cut */
  int leader;                /* of the team: the member whose worker has the task */
  int helpers;               /* tasks and messages that will still use the graph */
  struct sl__chain *chain;   /* its tasks are links of it; or NULL */
  struct sl__tensor *memory; /* of its links, in place of the worker's scratch memory; or NULL */
  bool keeps_small; /* small passing tensors keep their memory between runs; see graph_plan.c */
  uint32_t asked;   /* bit i: member i is asked and has not begun yet */
  struct sl__inbox_message join_message; /* asks a worker to join the team */
  int64_t computed_ns;
};

/* ---- core/graph/graph.c ---- */

/* 'r', 'w', 'm' or 's': a call's access to a buffer with that letter. */
char sl__call_access(char letter, bool accumulate);
/* Bytes for a copy of its arguments beside others', which are aligned. */
static inline size_t sl__call_args_room(const struct call *call) {
  return (call->args_size + 7) / 8 * 8;
}
/* Its kernel runs on CPUs only, so its arguments may depend on that. */
bool sl__call_is_for_cpus(const struct call *call);
/* Its work can be cut into runs of these rows. */
bool sl__call_goes_by_rows(const struct call *call, int64_t rows);
bool sl__same_place(const struct sl__place *a, const struct sl__place *b);
/* An estimate of a call's work, and one that takes about as long as a superstep costs: a
 * microsecond. */
static inline double sl__call_work(const struct call *call) {
  return call->flops + 10 * (double)call->outputs;
}
enum { SL__LEAST_WORK = 40000 };
/* A message is a subgraph of its own, whose task is the message's: it ends later than a kernel. */
static inline bool sl__call_is_message(const struct call *call) { return call->op->post; }
static inline bool sl__subgraph_is_message(const struct sl__subgraph *subgraph) {
  return sl__call_is_message(&subgraph->graph->calls[subgraph->first]);
}
/* Of the same part of a step? */
static inline bool sl__same_part(const struct call *a, const struct call *b) {
  return a->mark.stage == b->mark.stage && a->mark.replica == b->mark.replica &&
         a->mark.microbatch == b->mark.microbatch && a->mark.chunk == b->mark.chunk;
}
/* [uses] the first use of the tensor that a use is of, or is a part of; to be freed. NULL without
 * memory. */
int *sl__graph_wholes(const struct sl__graph *graph);
/* Appends an element; returns its index, or -1 without memory. */
int sl__graph_add_use(struct sl__graph *graph, const struct tensor_use *use);

/* Are the contents of no use after a run? Of a view or a tensor that is cut, other parts may be
 * used elsewhere. */
static inline bool sl__use_is_temporary(const struct tensor_use *u) {
  return u->is_written_first && !u->is_kept && !u->tensor->host && !u->tensor->whole &&
         !u->tensor->view_count;
}

enum { SL__SMALL_TENSOR = 256 << 10 }; /* bytes, at most */

/* Does it pass values from one task to another, and nothing else? */
static inline bool sl__use_passes(const struct tensor_use *u) {
  bool is_used = u->first_subgraph >= 0; /* not if its calls absorb it or find it elsewhere */
  return is_used && sl__use_is_temporary(u) && u->first_subgraph != u->last_subgraph;
}

/* The use whose tensor is the task's buffer. */
static inline int sl__use_in_task(const struct sl__graph *graph, int use) {
  return graph->uses[use].whole ? graph->uses[use].whole - 1 : use;
}

/* The tensor that has the memory: of a view the whole. */
static inline const struct sl__tensor *sl__whole_of(const struct sl__tensor *tensor) {
  return tensor->whole ? tensor->whole : tensor;
}

/* ---- compiling, in this order ---- */

void sl__graph_mark_kept(struct sl__graph *graph);
void sl__graph_find_channel_runs(struct sl__graph *graph); /* a part of the next one */
enum sl_status sl__graph_fuse(struct sl__graph *graph);
enum sl_status sl__graph_absorb(struct sl__graph *graph);
enum sl_status sl__graph_cut_calls(struct sl__graph *graph);
enum sl_status sl__graph_cache_weights(struct sl__graph *graph);
void sl__graph_find_uses(struct sl__graph *graph);
/* Of a subgraph on a GPU: calls that run as one. */
void sl__graph_find_together(struct sl__graph *graph, const struct sl__subgraph *subgraph);
/* Is main memory limited, by sl__memory_begin or the user? */
bool sl__graph_memory_is_limited(void);
/* Fusion groups, the team, and the offsets of internal tensors. */
enum sl_status sl__subgraph_plan(struct sl__graph *graph, int subgraph);

/* Its parts on a GPU, and space for recordings. After its buffers are known. */
enum sl_status sl__subgraph_plan_gpu(struct sl__subgraph *subgraph);

/* The graph's chain, if its tasks can be links of one. After its buffers are known. */
enum sl_status sl__graph_find_chain(struct sl__graph *graph);

/* ---- core/graph/graph_branches.c ---- */

/* Is it the only task of a training's step, on CPUs? Such tasks run on the same worker in all
 * steps. */
bool sl__subgraph_is_lone(const struct sl__graph *graph, const struct sl__subgraph *subgraph);
/* Could several workers run branches of such a task of the graph; and of this subgraph? */
bool sl__graph_may_branch(const struct sl__graph *graph);
bool sl__subgraph_may_branch(const struct sl__graph *graph, const struct sl__subgraph *subgraph);
/* Puts its groups into branches and supersteps; sets its members and has_branches. */
enum sl_status sl__subgraph_find_branches(const struct sl__graph *graph,
                                          struct sl__subgraph *subgraph);
/* Does a group have scratch memory for each member, for this call? */
static inline bool sl__has_own_scratch(const struct fusion_group *group, const struct call *call) {
  return group->branches > 1 || (group->units && !call->cut.phases);
}

/* ---- core/graph/helper.c ---- */

struct sl__place sl__member_place(int member);

/* The run function of join_message. */
void sl__graph_join_team(struct sl__inbox_message *message, int member);

/* Asks that member to join, unless it is asked already. If it does not come, the others do its
 * part.
 */
void sl__graph_ask_helper(struct sl__graph *graph, int member, int priority);

/* Of a lone subgraph's team: with each run, the thread that submits it sees to it that all workers
 * but the leader become helpers, and the leader asks those that are. */
void sl__graph_want_helpers(struct sl__graph *graph, int members, int priority);
void sl__graph_ask_helpers(struct sl__graph *graph, int members);

/* ---- core/graph/graph_run.c ---- */

/* A run of a subgraph. */
struct job {
  const struct sl__subgraph *subgraph;
  const struct sl__step_record *step; /* NULL: arguments are as they were captured */
  void **buffers;
  char *memory;
  bool on_gpu;
};

/* One part of a superstep of a subgraph. */
sl__team_work sl__subgraph_work;

/* The calls [first, end), whole and one after the other. */
void sl__subgraph_run_calls(const struct job *job, int first, int end);

/* Copies the call's arguments, with the header, and renews them if the job has a step record. */
void sl__call_args(const struct job *job, const struct call *call, void *copy);

/* ---- core/graph/graph_gpu.c ---- */

/* All calls, on the calling GPU worker. */
void sl__subgraph_run_on_gpu(const struct job *job);

/* After all its tasks have ended. */
void sl__subgraph_forget_recordings(struct sl__subgraph *subgraph);

#endif
