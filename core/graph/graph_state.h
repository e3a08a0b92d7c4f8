/* What the files of programs share (core/graph/graph.h): program.c notes calls, cuts them into
 * tasks and submits these; program_place.c finds what of a task can be done in parts, and a place
 * for what only it uses; program_run.c does it. */
#ifndef SL_CORE_GRAPH_GRAPH_STATE_H
#define SL_CORE_GRAPH_GRAPH_STATE_H

#include <pthread.h>

#include "core/graph/weight_cache.h"
#include "core/graph/graph.h"
#include "core/graph/helper.h"
#include "core/graph/team.h"

/* A worker's inbox. */
struct worker_inbox {
  struct sl__inbox_message *message;
  int64_t seen_us; /* when the worker looked last */
};

struct sl__graphs {
  struct sl__graph *capturing; /* calls of the thread `capturer` are captured there; or NULL */
  pthread_t capturer;
  int batches; /* see sl__batch_begins */
  struct worker_inbox inboxes[SL__TEAM_MOST];
};

/* A call, copied. */
struct call {
  struct sl__op *op;
  const char *name;
  struct sl__place place;
  double flops;
  struct sl__cut cut;
  struct sl__prepack form;
  int64_t rows, outputs; /* of its first output; outputs: values */
  int count;
  int *tensor; /* [count], numbers in the program's list */
  struct sl__args_header *args;
  size_t args_size; /* with the header */
};

/* A tensor that calls use. */
struct used {
  struct sl__tensor *tensor;
  int first_segment, last_segment;
  int first_call, last_call; /* within its only segment, where it is inner */
  bool is_written_first, is_scratch;
  bool is_inner; /* only one segment knows it: it lies in the worker's memory */
  const struct sl__weight_cache
      *pack;     /* it lies there, in this member of the program's pack; or NULL */
  bool is_local; /* only one stretch that goes by rows does: it lies in its member's part of that */
  size_t offset; /* there */
  bool is_written;
};

/* Calls of a segment that each part does one after the other. */
struct stretch {
  int first, end;
  int64_t units; /* that parts are cut between; 0: there is one part */
  int phases;    /* of the first call; the others follow its last one */
  int slices;    /* parts of some rows each, which all fit a cache; 0: as many parts as members */
};

/* A round of the team: a phase of a stretch. */
struct step {
  int stretch, phase;
};

/* A segment's memory: inner tensors; scratch memory of calls that are whole or have phases; and
 * then what each member has for itself: scratch memory of other calls, and local tensors. */
struct sl__subgraph {
  struct sl__graph *program;
  int first, end; /* calls */
  struct stretch *stretches;
  int stretch_count;
  struct step *steps;
  int members; /* at most */
  struct sl__team *team;
  size_t common_at, members_at, local_at; /* the last: in a member's memory */
  size_t member_bytes, inner;             /* inner: all together */
  int count;                              /* buffers: that memory, then tensors */
  struct sl__tensor **tensors;
  char *modes;
  int *buffer; /* [used], of each in the program's list, or the pack's that it lies in; -1: none, it
                  is inner or not its */
  char *name;
  struct sl__place place;
  double flops;
  uint32_t footprint;
};

struct sl__graph {
  struct sl_context *context;
  struct sl__op *op, *assist;
  struct call *calls;
  int call_count, call_room;
  struct used *used;
  int used_count, used_room;
  struct sl__subgraph *segments;
  int segment_count;
  const struct sl__tensor *result;
  struct sl__weight_cache *pack; /* or NULL */
  const struct sl__tensor *input;
  int cores;                          /* see sl__graph_cores */
  int forced_parts;                   /* see sl__graph_cut */
  int leader;                         /* of the team: which member's worker the task was given to */
  int assistants;                     /* tasks and errands that will still look at the program */
  uint32_t asked;                     /* bit i: member i's has not begun yet */
  struct sl__inbox_message take_part; /* what an assistant does */
  int64_t computed_ns;
};

/* ---- core/graph/helper.c ---- */

struct sl__place sl__member_place(int member);

/* What the errand of a program is. */
void sl__graph_take_part(struct sl__inbox_message *errand, int member);

/* That member, unless it is on its way already. Without it the others do its part. */
void sl__graph_ask_helper(struct sl__graph *program, int member, int priority);

/* ---- core/graph/graph_plan.c ---- */

void sl__graph_find_uses(struct sl__graph *program, const struct sl__tensor *result);

/* Stretches, and where inner tensors lie. */
enum sl_status sl__subgraph_place(struct sl__graph *program, int segment);

/* ---- core/graph/graph_run.c ---- */

/* One part of a segment's round. */
sl__team_work sl__subgraph_work;

#endif
