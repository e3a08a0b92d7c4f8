/* Finds branches: calls of a step's only subgraph that workers can run at the same time, such as
 * those of different replicas, and then the updates of different parameters. */
#include "core/graph/graph_state.h"

bool sl__subgraph_is_lone(const struct sl__graph *g, const struct sl__subgraph *s) {
  return g->slice_us >= 1 && !g->forced_parts && g->subgraph_count == 1 && !s->place.worker &&
         s->place.where == STARPU_CPU;
}

static bool passes_on(const struct sl__graph *g) {
  for (int i = 0; i < g->use_count; i++)
    if (g->uses[i].is_passed_on) return true;
  return false;
}

/* Not where tasks behind the graph wait for workers, which helpers would keep; nor under a limit of
 * memory, since branches share none. */
bool sl__subgraph_may_branch(const struct sl__graph *g, const struct sl__subgraph *s) {
  bool has_workers = starpu_cpu_worker_get_count() > 1 && g->cores != 1;
  return has_workers && sl__subgraph_is_lone(g, s) && !sl__graph_memory_is_limited() &&
         !passes_on(g);
}

/* ---- does a group wait for another? ---- */

static bool writes(const struct call *call, const char *mode) {
  return sl__call_access(*mode, call->args->accumulate) != 'r';
}

/* Do both use a tensor, or parts of one, that either of them writes? */
static bool calls_conflict(const struct sl__graph *g, const struct call *a, const struct call *b) {
  const char *mode = a->op->modes;
  for (int i = 0; i < a->count; i++, mode = sl__next_mode(mode)) {
    const struct tensor_use *use = &g->uses[a->tensor[i]];
    const char *other = b->op->modes;
    for (int k = 0; k < b->count && !use->is_scratch; k++, other = sl__next_mode(other)) {
      if (sl__whole_of(g->uses[b->tensor[k]].tensor) != sl__whole_of(use->tensor)) continue;
      if (writes(a, mode) || writes(b, other)) return true;
    }
  }
  return false;
}

static bool groups_conflict(const struct sl__graph *g, const struct fusion_group *a,
                            const struct fusion_group *b) {
  for (int i = a->first; i < a->end; i++)
    for (int k = b->first; k < b->end; k++)
      if (calls_conflict(g, &g->calls[i], &g->calls[k])) return true;
  return false;
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
 * new one. -1: it must follow groups of several branches. */
static int find_branch(const struct sl__graph *g, const struct sl__subgraph *s, int first, int at,
                       int count) {
  const struct fusion_group *groups = s->groups;
  int found = -1;
  for (int i = first; i < at; i++) {
    if (groups[i].branch == found || !groups_conflict(g, &groups[i], &groups[at])) continue;
    if (found >= 0) return -1;
    found = groups[i].branch;
  }
  for (int i = first; i < at && found < 0; i++)
    if (same_branch(g, &groups[i], &groups[at])) found = groups[i].branch;
  if (found < 0) found = count < SL__TEAM_PARTS ? count : SL__TEAM_PARTS - 1;
  return found;
}

/* Is there enough work beside that of the superstep's first branch? */
static bool has_work(const struct sl__graph *g, const struct sl__subgraph *s, int first, int end) {
  double work = 0;
  for (int i = first; i < end; i++)
    for (int c = s->groups[i].first; c < s->groups[i].end && s->groups[i].branch; c++)
      work += sl__call_work(&g->calls[c]);
  return work >= SL__LEAST_WORK;
}

static int end_superstep(const struct sl__graph *g, struct sl__subgraph *s, int first, int end,
                         int count) {
  if (!has_work(g, s, first, end)) count = 1;
  for (int i = first; i < end; i++) {
    s->groups[i].branches = count;
    if (count == 1) s->groups[i].branch = 0;
  }
  return count;
}

void sl__subgraph_find_branches(const struct sl__graph *g, struct sl__subgraph *s) {
  int first = 0, count = 0, superstep = 0, most = 1;
  int workers = (int)starpu_cpu_worker_get_count();
  for (int i = 0; i < s->group_count; i++) {
    int branch = find_branch(g, s, first, i, count);
    if (branch < 0) {
      int branches = end_superstep(g, s, first, i, count);
      if (branches > most) most = branches;
      first = i;
      branch = count = 0;
      superstep++;
    }
    s->groups[i].superstep = superstep;
    s->groups[i].branch = branch;
    if (branch >= count) count = branch + 1;
  }
  int branches = end_superstep(g, s, first, s->group_count, count);
  if (branches > most) most = branches;
  if (g->cores && g->cores < most) most = g->cores;
  if (most > SL__TEAM_MOST) most = SL__TEAM_MOST;
  s->members = most < workers ? most : workers;
  s->has_branches = s->members > 1;
}
