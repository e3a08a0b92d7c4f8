/* Plans a subgraph: which calls are done in parts by how many workers, and where the tensors lie
 * that only this subgraph uses. */
#include <stdlib.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/graph/graph_state.h"

enum { ALIGNMENT = 256 }; /* as CUDA's own allocations */

static size_t aligned(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* ---- the calls that use a tensor ---- */

static void record_use(struct tensor_use *u, int subgraph, int call, bool is_first) {
  if (is_first) {
    u->first_subgraph = subgraph;
    u->first_call = call;
  }
  u->last_subgraph = subgraph;
  u->last_call = call;
}

bool sl__graph_memory_is_limited(void) { return getenv("STARPU_LIMIT_CPU_MEM"); }

/* To give a passing tensor's memory back costs StarPU two tasks in each run: more than a small
 * tensor gains by memory that is still in a cache. Where memory is neither limited nor a GPU's, and
 * small tensors are little all together, they keep it from step to step. */
static bool may_keep_small(const struct sl__graph *g) {
  const size_t most = 64 << 20;
  size_t bytes = 0;
  if (!(g->slice_us > 0) || sl__graph_memory_is_limited() || starpu_cuda_worker_get_count())
    return false;
  for (int i = 0; i < g->use_count; i++)
    if (sl__use_passes(&g->uses[i]) && g->uses[i].tensor->bytes <= SL__SMALL_TENSOR)
      bytes += g->uses[i].tensor->bytes;
  return bytes <= most;
}

void sl__graph_find_uses(struct sl__graph *g) {
  for (int i = 0; i < g->use_count; i++) g->uses[i].first_subgraph = -1;
  for (int s = 0; s < g->subgraph_count; s++)
    for (int c = g->subgraphs[s].first; c < g->subgraphs[s].end; c++)
      for (int k = 0; k < g->calls[c].count; k++) {
        struct tensor_use *u = &g->uses[g->calls[c].tensor[k]];
        record_use(u, s, c, u->first_subgraph < 0);
        u->is_in_message |= sl__call_is_message(&g->calls[c]);
      }
  for (int i = 0; i < g->use_count; i++) {
    struct tensor_use *u = &g->uses[i];
    bool passes = u->first_subgraph != u->last_subgraph;
    u->is_internal = u->is_scratch || (sl__use_is_temporary(u) && !passes && !u->is_in_message);
  }
  g->keeps_small = may_keep_small(g);
}

/* ---- fusion groups ---- */

/* The number of team members. 0 on a GPU, where calls are not cut. 1 if the subgraph has a certain
 * worker, or there are others beside it; else all of this process's CPU workers. */
static int members_of(const struct sl__graph *g, const struct sl__subgraph *s) {
  bool on_gpu = s->place.where & STARPU_CUDA && starpu_cuda_worker_get_count();
  if (on_gpu) return 0;
  if (g->forced_parts) return g->forced_parts;
  if (s->place.worker || g->subgraph_count > 1 || g->slice_us > 0) return 1;
  int workers = (int)starpu_cpu_worker_get_count(), most = SL__TEAM_MOST;
  if (g->cores && g->cores < most) most = g->cores;
  return workers > most ? most : workers > 0 ? workers : 1;
}

/* One member does calls with less work. */
static bool is_worth_it(const struct sl__graph *g, const struct call *call) {
  return g->forced_parts || sl__call_work(call) >= SL__LEAST_WORK;
}

static bool follows(const struct call *head, const struct call *call) {
  return head->cut.flat && call->cut.pointwise && call->outputs == head->outputs &&
         call->cut.units % head->cut.units == 0;
}

/* Bytes of one row of the tensors that the call reads and writes. */
static size_t row_bytes(const struct sl__graph *g, const struct call *call) {
  size_t bytes = 0;
  for (int k = 0; k < call->count; k++) {
    const struct sl__tensor *t = g->uses[call->tensor[k]].tensor;
    if (!g->uses[call->tensor[k]].is_scratch && t->shape.dim[0] == call->rows)
      bytes += t->bytes / (size_t)call->rows;
  }
  return bytes;
}

/* The number of slices: one slice of each call's tensors fits a part of a core's own cache, and
 * each member has at least one slice. */
static int slices_of(const struct sl__graph *g, const struct fusion_group *group, int members) {
  long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
  size_t most = 1, room = cache > 0 ? (size_t)cache / 4 : (size_t)256 << 10;
  int64_t rows = g->calls[group->first].rows;
  for (int c = group->first; c < group->end; c++)
    if (row_bytes(g, &g->calls[c]) > most) most = row_bytes(g, &g->calls[c]);
  int64_t each = room > most ? (int64_t)(room / most) : 1, slices = (rows + each - 1) / each;
  if (slices < members) slices = members;
  if (slices > rows) slices = rows;
  return slices > SL__TEAM_PARTS ? SL__TEAM_PARTS : (int)slices;
}

/* Does the group that ends with call c go on with the next one? A training's step runs whole calls,
 * because its kernels were slower in slices of a few rows. It has slices where the output of c goes
 * nowhere but to the next call: then only a slice of it is in memory. */
static bool goes_on(const struct sl__graph *g, const struct sl__subgraph *s, int c, int64_t rows) {
  if (c + 1 == s->end || !sl__call_goes_by_rows(&g->calls[c + 1], rows)) return false;
  return g->slice_us > 0 ? g->calls[c].passes_rows : true;
}

static struct fusion_group group_from(const struct sl__graph *g, const struct sl__subgraph *s,
                                      int at) {
  struct fusion_group group = {.first = at, .end = at + 1};
  const struct call *head = &g->calls[at];
  if (s->members && head->channel_run) {
    while (group.end < s->end && g->calls[group.end].channel_run == head->channel_run) group.end++;
    if (group.end > at + 1) group.units = group.channel_parts = head->channel_parts;
    return group;
  }
  if (!s->members || !head->cut.units) return group;
  if (g->slice_us > 0 && !goes_on(g, s, at, head->rows)) return group;
  if (head->rows > 1 && sl__call_goes_by_rows(head, head->rows)) {
    while (goes_on(g, s, group.end - 1, head->rows)) group.end++;
    group.units = head->rows;
    group.slices = slices_of(g, &group, s->members);
    return group;
  }
  if (s->members == 1 || !is_worth_it(g, head)) return group;
  group.units = head->cut.units;
  group.phases = head->cut.phases;
  while (group.end < s->end && follows(head, &g->calls[group.end])) group.end++;
  return group;
}

static enum sl_status find_groups(struct sl__graph *g, struct sl__subgraph *s) {
  s->groups = sl__alloc((size_t)(s->end - s->first), sizeof *s->groups, "a captured graph");
  if (!s->groups) return SL_NO_MEMORY;
  for (int c = s->first; c < s->end;) {
    struct fusion_group group = group_from(g, s, c);
    struct fusion_group *last = s->group_count ? &s->groups[s->group_count - 1] : NULL;
    if (last && !last->units && !group.units && !s->has_branches)
      last->end = group.end;
    else
      s->groups[s->group_count++] = group;
    c = group.end;
  }
  return SL_OK;
}

/* A long call has several parts a member, since a cut costs it little: a member that is faster, or
 * comes sooner, does more of them. */
static int parts_of(const struct sl__graph *g, const struct sl__subgraph *s,
                    const struct fusion_group *group) {
  const double is_long = 2e7; /* flops: some hundred microseconds */
  if (group->slices || !group->units) return group->slices ? group->slices : 1;
  if (group->channel_parts) return 1;
  int parts = 4 * s->members;
  bool is_fine = !group->phases && g->calls[group->first].flops >= is_long &&
                 group->units >= 4 * parts && parts <= SL__TEAM_PARTS;
  return is_fine && !g->forced_parts ? parts : s->members;
}

/* A superstep for each phase of each group. */
static void list_phases(const struct sl__graph *g, const struct sl__subgraph *s,
                        struct sl__superstep *supersteps) {
  for (int i = 0, n = 0; i < s->group_count; i++) {
    const struct fusion_group *group = &s->groups[i];
    int parts = parts_of(g, s, group), members = parts > 1 && !group->slices ? s->members : 0;
    for (int phase = 0; phase < group->phases || !phase; phase++, n++) {
      supersteps[n] = (struct sl__superstep){
          .parts = parts, .may_merge = !group->slices && !g->forced_parts, .members = members};
      s->group_phases[n] = (struct group_phase){.group = i, .phase = phase};
    }
  }
}

/* A part for each branch, which a member that comes late may take. Branches lie in the order of
 * their work: so the members have about as much to do, each the same in every step. */
static void list_branches(const struct sl__subgraph *s, struct sl__superstep *supersteps) {
  for (int i = 0; i < s->group_count; i++) {
    const struct fusion_group *group = &s->groups[i];
    struct group_phase *at = &s->group_phases[group->superstep];
    supersteps[group->superstep] = (struct sl__superstep){
        .parts = group->branches, .members = s->members, .is_interleaved = true};
    if (!at->end) at->group = i;
    at->end = i + 1;
  }
}

static enum sl_status make_team(const struct sl__graph *g, struct sl__subgraph *s) {
  int count = s->has_branches ? s->groups[s->group_count - 1].superstep + 1 : 0;
  for (int i = 0; i < s->group_count && !s->has_branches; i++)
    count += s->groups[i].phases ? s->groups[i].phases : 1;
  struct sl__superstep *supersteps =
      sl__alloc((size_t)count, sizeof *supersteps, "a captured graph");
  s->group_phases = sl__alloc((size_t)count, sizeof *s->group_phases, "a captured graph");
  enum sl_status status = supersteps && s->group_phases ? SL_OK : SL_NO_MEMORY;
  if (status == SL_OK && s->has_branches)
    list_branches(s, supersteps);
  else if (status == SL_OK)
    list_phases(g, s, supersteps);
  if (status == SL_OK) status = sl__team_new(count, supersteps, sl__subgraph_work, &s->team);
  free(supersteps);
  return status;
}

/* No more members than parts. */
static void limit_members(const struct sl__graph *g, struct sl__subgraph *s) {
  int most = s->members ? 1 : 0;
  for (int i = 0; i < s->group_count; i++) {
    const struct fusion_group *group = &s->groups[i];
    if (parts_of(g, s, group) > most) most = parts_of(g, s, group);
  }
  if (most < s->members && !g->forced_parts) s->members = most;
}

/* ---- memory ---- */

static const struct fusion_group *group_of(const struct sl__subgraph *s, int call) {
  int low = 0, high = s->group_count - 1;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (call >= s->groups[middle].end)
      low = middle + 1;
    else
      high = middle;
  }
  return &s->groups[low];
}

/* An internal tensor's memory, and the calls during which it is needed. Different members may be at
 * different calls of a fusion group, so a tensor is needed during the whole group. So it is with
 * calls that run as one. */
struct allocation {
  const struct tensor_use *use;
  int first, last; /* calls */
  int superstep, branch;
  size_t bytes;
};

static bool are_together(const struct allocation *a, const struct allocation *b) {
  if (a->first <= b->last && b->first <= a->last) return true;
  return a->superstep == b->superstep && a->branch != b->branch;
}

/* The lowest offset beside those of [0, count) of `others` that are needed at the same time; these
 * are few among all, and `beside` [count] gets them first. */
static size_t lowest_offset(const struct allocation *others, int count, const struct allocation *it,
                            const struct allocation **beside) {
  size_t at = 0;
  int near = 0;
  for (int i = 0; i < count; i++)
    if (are_together(&others[i], it)) beside[near++] = &others[i];
  for (bool moved = true; moved;) {
    moved = false;
    for (int i = 0; i < near; i++) {
      const struct allocation *o = beside[i];
      if (o->use->offset >= at + it->bytes || at >= o->use->offset + o->bytes) continue;
      at = aligned(o->use->offset + o->bytes);
      moved = true;
    }
  }
  return at;
}

static void find_local(struct sl__graph *g, const struct sl__subgraph *s, struct tensor_use *u) {
  const struct fusion_group *group = group_of(s, u->first_call);
  int64_t rows = g->calls[group->first].rows;
  u->is_local = group->slices && u->last_call < group->end && u->tensor->shape.dim[0] == rows;
}

static struct allocation allocation_of(const struct sl__graph *g, const struct sl__subgraph *s,
                                       const struct tensor_use *u) {
  const struct fusion_group *from = group_of(s, u->first_call), *to = group_of(s, u->last_call);
  struct allocation it = {.use = u,
                          .first = u->first_call,
                          .last = u->last_call,
                          .superstep = from->superstep,
                          .branch = from->branch,
                          .bytes = u->tensor->bytes};
  if (u->is_local) {
    int64_t rows = g->calls[from->first].rows, most = (rows + from->slices - 1) / from->slices;
    it.bytes = u->tensor->bytes / (size_t)rows * (size_t)most;
    return it;
  }
  if (from->units) it.first = from->first;
  if (to->units) it.last = to->end - 1;
  if (from->superstep != to->superstep) {
    const struct fusion_group *end = s->groups + s->group_count;
    for (const struct fusion_group *i = to; i < end && i->superstep == to->superstep; i++)
      it.last = i->end - 1;
  }
  if (!s->members) {
    it.first = g->calls[u->first_call].first_together;
    it.last = g->calls[u->last_call].end_together - 1;
  }
  return it;
}

static int compare_numbers(const void *left, const void *right) {
  int a = *(const int *)left, b = *(const int *)right;
  return a < b ? -1 : a > b;
}

/* The uses of the subgraph's internal tensors, each once, in the graph's order; to be freed. NULL
 * without memory. */
static int *internal_uses(const struct sl__graph *g, const struct sl__subgraph *s, int *count) {
  int all = 0, kept = 0;
  for (int c = s->first; c < s->end; c++) all += g->calls[c].count;
  int *list = sl__alloc((size_t)all + 1, sizeof *list, "a captured graph");
  for (int c = s->first; c < s->end && list; c++)
    for (int k = 0; k < g->calls[c].count; k++) {
      const struct tensor_use *u = &g->uses[g->calls[c].tensor[k]];
      if (u->is_internal && !u->is_scratch) list[kept++] = g->calls[c].tensor[k];
    }
  if (list) qsort(list, (size_t)kept, sizeof *list, compare_numbers);
  *count = 0;
  for (int i = 0; i < kept; i++)
    if (!*count || list[*count - 1] != list[i]) list[(*count)++] = list[i];
  return list;
}

/* Gives offsets to all local tensors among these uses, or to all others; returns their bytes. */
static size_t allocate_tensors(struct sl__graph *g, struct sl__subgraph *s, const int *uses,
                               int use_count, bool local, struct allocation *list,
                               const struct allocation **beside) {
  size_t end = 0;
  int count = 0;
  for (int i = 0; i < use_count; i++) {
    struct tensor_use *u = &g->uses[uses[i]];
    find_local(g, s, u);
    if (u->is_local != local) continue;
    list[count] = allocation_of(g, s, u);
    u->offset = lowest_offset(list, count, &list[count], beside);
    if (u->offset + list[count].bytes > end) end = u->offset + list[count].bytes;
    count++;
  }
  return aligned(end);
}

static size_t scratch_of(const struct call *call, const struct sl__tensor *tensor) {
  size_t bytes = call->cut.scratch;
  if (call->args->is_prepacked && call->prepack.scratch) bytes = call->prepack.scratch;
  return bytes ? bytes : tensor->bytes;
}

/* Scratch memory. If several members do a call without phases at a time, each needs its own; other
 * calls have one for all members. No call needs another call's, so the largest is enough. */
static size_t scratch_bytes(const struct sl__graph *g, const struct sl__subgraph *s, bool own) {
  size_t most = 0;
  for (int c = s->first; c < s->end; c++)
    for (int k = 0; k < g->calls[c].count; k++) {
      const struct tensor_use *u = &g->uses[g->calls[c].tensor[k]];
      bool is_own = sl__has_own_scratch(group_of(s, c), &g->calls[c]);
      if (!u->is_scratch || is_own != own) continue;
      size_t bytes = scratch_of(&g->calls[c], u->tensor);
      if (bytes > most) most = bytes;
    }
  return aligned(most);
}

enum sl_status sl__subgraph_plan(struct sl__graph *g, int subgraph) {
  struct sl__subgraph *s = &g->subgraphs[subgraph];
  s->members = members_of(g, s);
  s->has_branches = sl__subgraph_may_branch(g, s);
  if (!s->members) sl__graph_find_together(g, s);
  enum sl_status status = find_groups(g, s);
  limit_members(g, s);
  if (status == SL_OK && s->has_branches) status = sl__subgraph_find_branches(g, s);
  if (status == SL_OK && s->members > 1) status = make_team(g, s);
  if (status != SL_OK) return status;
  int count, *uses = internal_uses(g, s, &count);
  struct allocation *list = sl__alloc((size_t)count + 1, sizeof *list, "a captured graph");
  const struct allocation **beside =
      sl__alloc((size_t)count + 1, sizeof(void *), "a captured graph");
  if (!list || !uses || !beside) SL__TRY(SL_NO_MEMORY);
  s->common_at = allocate_tensors(g, s, uses, count, false, list, beside);
  s->members_at = s->common_at + scratch_bytes(g, s, false);
  s->local_at = scratch_bytes(g, s, true);
  s->member_bytes = s->local_at + allocate_tensors(g, s, uses, count, true, list, beside);
  s->workspace_bytes = s->members_at + (size_t)(s->members ? s->members : 1) * s->member_bytes;
out:
  free(list);
  free(uses);
  free(beside);
  return status;
}
