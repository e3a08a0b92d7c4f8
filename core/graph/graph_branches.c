/* Finds branches: calls of a step's only subgraph that workers can run at the same time, such as
 * those of different replicas, and then the updates of different parameters. */
#include <stdlib.h>

#include "core/base/error.h"
#include "core/graph/graph_state.h"

bool sl__subgraph_is_lone(const struct sl__graph *g, const struct sl__subgraph *s) {
  return g->slice_us >= 1 && !g->forced_parts && g->subgraph_count == 1 && !s->place.worker &&
         s->place.where == STARPU_CPU && !sl__subgraph_is_message(s);
}

/* Do tasks behind the graph, or messages, wait for workers? */
static bool has_others_waiting(const struct sl__graph *g) {
  for (int i = 0; i < g->use_count; i++)
    if (g->uses[i].is_passed_on) return true;
  for (int c = 0; c < g->call_count; c++)
    if (sl__call_is_message(&g->calls[c])) return true;
  return false;
}

/* Not where others wait for workers, which helpers would keep; nor under a limit of memory, since
 * branches share none. */
bool sl__graph_may_branch(const struct sl__graph *g) {
  bool has_workers = starpu_cpu_worker_get_count() > 1 && g->cores != 1;
  return has_workers && g->slice_us >= 1 && !g->forced_parts && !sl__graph_memory_is_limited() &&
         !has_others_waiting(g);
}

bool sl__subgraph_may_branch(const struct sl__graph *g, const struct sl__subgraph *s) {
  return sl__subgraph_is_lone(g, s) && sl__graph_may_branch(g);
}

/* ---- which branches must a group follow? ---- */

static bool writes(const struct call *call, const char *mode) {
  return sl__call_access(*mode, call->args->accumulate) != 'r';
}

enum { NO_BRANCH = -1, BRANCHES = -2 };

/* Of the superstep's groups that write a tensor, and of those that use it: their branch, none or
 * several. */
struct tensor_branches {
  int superstep; /* that they are of */
  int writer, user;
};

struct branches {
  const struct sl__graph *graph;
  struct sl__subgraph *subgraph;
  int *whole;                      /* see sl__graph_wholes */
  struct tensor_branches *tensors; /* [uses] by `whole`: of the tensor and all its views */
  struct tensor_branches *exact;   /* [uses] of just the tensor, or just the view */
};

static int join(int a, int b) {
  if (a == NO_BRANCH || b == NO_BRANCH) return a == NO_BRANCH ? b : a;
  return a == b ? a : BRANCHES;
}

static int branch_of(const struct tensor_branches *t, int superstep, bool is_written) {
  if (t->superstep != superstep) return NO_BRANCH;
  return is_written ? t->user : t->writer;
}

/* The same of all that shares memory with a use: of a view, that is itself and the whole tensor. */
static int branch_sharing(const struct branches *b, int use, int superstep, bool is_written) {
  const struct tensor_use *u = &b->graph->uses[use];
  if (!u->tensor->whole) return branch_of(&b->tensors[b->whole[use]], superstep, is_written);
  int branch = branch_of(&b->exact[use], superstep, is_written);
  if (!u->whole) return branch;
  return join(branch, branch_of(&b->exact[u->whole - 1], superstep, is_written));
}

/* The branch of the groups that this group must follow: those that write a tensor of its calls, and
 * those that use a tensor that it writes. */
static int branch_before(const struct branches *b, const struct fusion_group *group,
                         int superstep) {
  int found = NO_BRANCH;
  for (int c = group->first; c < group->end; c++) {
    const struct call *call = &b->graph->calls[c];
    const char *mode = call->op->modes;
    for (int k = 0; k < call->count; k++, mode = sl__next_mode(mode)) {
      if (b->graph->uses[call->tensor[k]].is_scratch) continue;
      found = join(found, branch_sharing(b, call->tensor[k], superstep, writes(call, mode)));
    }
  }
  return found;
}

static void note(struct tensor_branches *t, const struct fusion_group *group, bool is_written) {
  if (t->superstep != group->superstep)
    *t = (struct tensor_branches){group->superstep, NO_BRANCH, NO_BRANCH};
  t->user = join(t->user, group->branch);
  if (is_written) t->writer = join(t->writer, group->branch);
}

static void note_group(const struct branches *b, const struct fusion_group *group) {
  for (int c = group->first; c < group->end; c++) {
    const struct call *call = &b->graph->calls[c];
    const char *mode = call->op->modes;
    for (int k = 0; k < call->count; k++, mode = sl__next_mode(mode)) {
      note(&b->tensors[b->whole[call->tensor[k]]], group, writes(call, mode));
      note(&b->exact[call->tensor[k]], group, writes(call, mode));
    }
  }
}

/* ---- the branch of a group ---- */

/* Updates are of no part: each may be done by another worker. */
static bool same_branch(const struct sl__graph *g, const struct fusion_group *a,
                        const struct fusion_group *b) {
  const struct call *x = &g->calls[a->first], *y = &g->calls[b->first];
  return !x->op->updates && !y->op->updates && sl__same_part(x, y);
}

/* Of the superstep that begins with group `first` and has `count` branches so far: the branch of
 * the groups that group `at` must follow; without such a group, that of its part of the step, or a
 * new one. BRANCHES: it must follow groups of several. */
static int find_branch(const struct branches *b, int superstep, int first, int at, int count) {
  const struct fusion_group *groups = b->subgraph->groups;
  int found = branch_before(b, &groups[at], superstep);
  for (int i = first; i < at && found == NO_BRANCH; i++)
    if (same_branch(b->graph, &groups[i], &groups[at])) found = groups[i].branch;
  if (found == NO_BRANCH) found = count < SL__TEAM_PARTS ? count : at % SL__TEAM_PARTS;
  return found;
}

/* The branch with the most work becomes the first one, and so on. */
static void sort_branches(struct fusion_group *groups, int first, int end, int count,
                          const double *work) {
  int rank[SL__TEAM_PARTS] = {0};
  for (int b = 0; b < count; b++)
    for (int o = 0; o < count; o++) rank[b] += work[o] > work[b] || (o < b && !(work[o] < work[b]));
  for (int i = first; i < end; i++) groups[i].branch = rank[groups[i].branch];
}

/* One branch where there is little work beside that of the first one. */
static int end_superstep(const struct sl__graph *g, struct sl__subgraph *s, int first, int end,
                         int count) {
  double work[SL__TEAM_PARTS] = {0}, beside = 0;
  for (int i = first; i < end; i++)
    for (int c = s->groups[i].first; c < s->groups[i].end; c++)
      work[s->groups[i].branch] += sl__call_work(&g->calls[c]);
  for (int b = 1; b < count; b++) beside += work[b];
  if (beside < SL__LEAST_WORK) count = 1;
  for (int i = first; i < end; i++) {
    s->groups[i].branches = count;
    if (count == 1) s->groups[i].branch = 0;
  }
  if (count > 1) sort_branches(s->groups, first, end, count, work);
  return count;
}

/* Returns the largest number of branches of a superstep. */
static int find_supersteps(const struct branches *b) {
  struct sl__subgraph *s = b->subgraph;
  int first = 0, count = 0, superstep = 0, most = 1;
  for (int i = 0; i < s->group_count; i++) {
    int branch = find_branch(b, superstep, first, i, count);
    if (branch == BRANCHES) {
      int branches = end_superstep(b->graph, s, first, i, count);
      if (branches > most) most = branches;
      first = i;
      branch = count = 0;
      superstep++;
    }
    s->groups[i].superstep = superstep;
    s->groups[i].branch = branch;
    note_group(b, &s->groups[i]);
    if (branch >= count) count = branch + 1;
  }
  int branches = end_superstep(b->graph, s, first, s->group_count, count);
  return branches > most ? branches : most;
}

enum sl_status sl__subgraph_find_branches(const struct sl__graph *g, struct sl__subgraph *s) {
  struct branches b = {.graph = g, .subgraph = s, .whole = sl__graph_wholes(g)};
  int workers = (int)starpu_cpu_worker_get_count();
  b.tensors = sl__alloc((size_t)g->use_count, sizeof *b.tensors, "a captured graph");
  b.exact = sl__alloc((size_t)g->use_count, sizeof *b.exact, "a captured graph");
  bool fine = b.whole && b.tensors && b.exact;
  for (int i = 0; i < g->use_count && fine; i++) b.tensors[i].superstep = b.exact[i].superstep = -1;
  int most = fine ? find_supersteps(&b) : 1;
  free(b.whole);
  free(b.tensors);
  free(b.exact);
  if (!fine) return SL_NO_MEMORY;
  if (g->cores && g->cores < most) most = g->cores;
  if (most > SL__TEAM_MOST) most = SL__TEAM_MOST;
  s->members = most < workers ? most : workers;
  s->has_branches = s->members > 1;
  return SL_OK;
}
