#include "core/graph/graph_state.h"

#include <stdlib.h>
#include <unistd.h>

#include "core/base/error.h"

enum { ALIGNMENT = 256 }; /* what CUDA's own allocations have */

static size_t aligned(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* ---- who uses what ---- */

static void note_use(struct used *u, int segment, int call, bool is_first) {
  if (is_first) {
    u->first_segment = segment;
    u->first_call = call;
  }
  u->last_segment = segment;
  u->last_call = call;
}

void sl__graph_find_uses(struct sl__graph *p, const struct sl__tensor *result) {
  for (int i = 0; i < p->used_count; i++) p->used[i].first_segment = -1;
  for (int s = 0; s < p->segment_count; s++)
    for (int c = p->segments[s].first; c < p->segments[s].end; c++)
      for (int k = 0; k < p->calls[c].count; k++) {
        struct used *u = &p->used[p->calls[c].tensor[k]];
        note_use(u, s, c, u->first_segment < 0);
      }
  for (int i = 0; i < p->used_count; i++) {
    struct used *u = &p->used[i];
    bool passes = u->first_segment != u->last_segment;
    u->is_inner = u->is_scratch ||
                  (u->is_written_first && u->tensor != result && !u->tensor->host && !passes);
  }
}

/* ---- stretches ---- */

/* A GPU's kernels take calls whole. A worker of its own is one core; else the team are all of this
 * process's CPU workers. */
static int members_of(const struct sl__graph *p, const struct sl__subgraph *s) {
  bool on_gpu = s->place.where & STARPU_CUDA && starpu_cuda_worker_get_count();
  if (on_gpu) return 0;
  if (p->forced_parts) return p->forced_parts;
  if (s->place.worker || p->segment_count > 1) return 1;
  int workers = (int)starpu_cpu_worker_get_count(), most = SL__TEAM_MOST;
  if (p->cores && p->cores < most) most = p->cores;
  return workers > most ? most : workers > 0 ? workers : 1;
}

/* Rounds cost about a microsecond: less work than this is done by one member. */
static bool is_worth_it(const struct sl__graph *p, const struct call *call) {
  const double least = 40000;
  return p->forced_parts || call->flops + 10 * (double)call->outputs >= least;
}

static bool goes_by_rows(const struct call *call, int64_t rows) {
  return call->cut.units && call->cut.flat && !call->cut.phases && call->rows == rows &&
         call->cut.units % rows == 0;
}

static bool follows(const struct call *head, const struct call *call) {
  return head->cut.flat && call->cut.pointwise && call->outputs == head->outputs &&
         call->cut.units % head->cut.units == 0;
}

/* Bytes of a row of what the call reads and writes. */
static size_t row_bytes(const struct sl__graph *p, const struct call *call) {
  size_t bytes = 0;
  for (int k = 0; k < call->count; k++) {
    const struct sl__tensor *t = p->used[call->tensor[k]].tensor;
    if (!p->used[call->tensor[k]].is_scratch && t->shape.dim[0] == call->rows)
      bytes += t->bytes / (size_t)call->rows;
  }
  return bytes;
}

/* So many rows that what a call has of them takes a part of a core's own cache; and enough slices
 * for all members. */
static int slices_of(const struct sl__graph *p, const struct stretch *st, int members) {
  long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
  size_t most = 1, room = cache > 0 ? (size_t)cache / 4 : (size_t)256 << 10;
  int64_t rows = p->calls[st->first].rows;
  for (int c = st->first; c < st->end; c++)
    if (row_bytes(p, &p->calls[c]) > most) most = row_bytes(p, &p->calls[c]);
  int64_t each = room > most ? (int64_t)(room / most) : 1, slices = (rows + each - 1) / each;
  if (slices < members) slices = members;
  if (slices > rows) slices = rows;
  return slices > SL__TEAM_PARTS ? SL__TEAM_PARTS : (int)slices;
}

static struct stretch stretch_from(const struct sl__graph *p, const struct sl__subgraph *s,
                                   int at) {
  struct stretch st = {.first = at, .end = at + 1};
  const struct call *head = &p->calls[at];
  if (!s->members || !head->cut.units) return st;
  if (head->rows > 1 && goes_by_rows(head, head->rows)) {
    while (st.end < s->end && goes_by_rows(&p->calls[st.end], head->rows)) st.end++;
    st.units = head->rows;
    st.slices = slices_of(p, &st, s->members);
    return st;
  }
  if (s->members == 1 || !is_worth_it(p, head)) return st;
  st.units = head->cut.units;
  st.phases = head->cut.phases;
  while (st.end < s->end && follows(head, &p->calls[st.end])) st.end++;
  return st;
}

static enum sl_status find_stretches(struct sl__graph *p, struct sl__subgraph *s) {
  s->stretches = sl__alloc((size_t)(s->end - s->first), sizeof *s->stretches, "a program");
  if (!s->stretches) return SL_NO_MEMORY;
  for (int c = s->first; c < s->end;) {
    struct stretch st = stretch_from(p, s, c);
    struct stretch *last = s->stretch_count ? &s->stretches[s->stretch_count - 1] : NULL;
    if (last && !last->units && !st.units)
      last->end = st.end;
    else
      s->stretches[s->stretch_count++] = st;
    c = st.end;
  }
  return SL_OK;
}

/* Of a long call, of which little is lost between two parts, several a member: who is faster, or
 * there sooner, does more of them. */
static int parts_of(const struct sl__graph *p, const struct sl__subgraph *s,
                    const struct stretch *st) {
  const double is_long = 2e7; /* flops: some hundred microseconds */
  if (st->slices || !st->units) return st->slices ? st->slices : 1;
  int parts = 4 * s->members;
  bool fine = !st->phases && p->calls[st->first].flops >= is_long && st->units >= 4 * parts &&
              parts <= SL__TEAM_PARTS;
  return fine && !p->forced_parts ? parts : s->members;
}

static enum sl_status make_team(const struct sl__graph *p, struct sl__subgraph *s) {
  int count = 0;
  for (int i = 0; i < s->stretch_count; i++)
    count += s->stretches[i].phases ? s->stretches[i].phases : 1;
  struct sl__round *rounds = sl__alloc((size_t)count, sizeof *rounds, "a program");
  s->steps = sl__alloc((size_t)count, sizeof *s->steps, "a program");
  enum sl_status status = rounds && s->steps ? SL_OK : SL_NO_MEMORY;
  for (int i = 0, r = 0; i < s->stretch_count && status == SL_OK; i++) {
    const struct stretch *st = &s->stretches[i];
    int parts = parts_of(p, s, st), members = st->slices || !st->units ? 0 : s->members;
    for (int phase = 0; phase < st->phases || !phase; phase++, r++) {
      rounds[r] = (struct sl__round){parts, !st->slices && !p->forced_parts, members};
      s->steps[r] = (struct step){i, phase};
    }
  }
  if (status == SL_OK) status = sl__team_new(count, rounds, sl__subgraph_work, &s->team);
  free(rounds);
  return status;
}

/* Who would find nothing to do is not asked. */
static void limit_members(const struct sl__graph *p, struct sl__subgraph *s) {
  int most = s->members ? 1 : 0;
  for (int i = 0; i < s->stretch_count; i++) {
    const struct stretch *st = &s->stretches[i];
    if (parts_of(p, s, st) > most) most = parts_of(p, s, st);
  }
  if (most < s->members && !p->forced_parts) s->members = most;
}

/* ---- places ---- */

static const struct stretch *stretch_of(const struct sl__subgraph *s, int call) {
  const struct stretch *st = s->stretches;
  while (call >= st->end) st++;
  return st;
}

/* What is there at the same time: parts of a stretch are at different calls of it. */
struct placed {
  const struct used *used;
  int first, last; /* calls */
  size_t bytes;
};

/* The lowest place beside what lies in [0, count) of `others` while it is needed. */
static size_t lowest_place(const struct placed *others, int count, const struct placed *it) {
  size_t at = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (int i = 0; i < count; i++) {
      const struct placed *o = &others[i];
      bool together = o->first <= it->last && it->first <= o->last;
      if (!together || o->used->offset >= at + it->bytes || at >= o->used->offset + o->bytes)
        continue;
      at = aligned(o->used->offset + o->bytes);
      moved = true;
    }
  }
  return at;
}

static void find_local(struct sl__graph *p, const struct sl__subgraph *s, struct used *u) {
  const struct stretch *st = stretch_of(s, u->first_call);
  int64_t rows = p->calls[st->first].rows;
  u->is_local = st->slices && u->last_call < st->end && u->tensor->shape.dim[0] == rows;
}

static struct placed placed_of(const struct sl__graph *p, const struct sl__subgraph *s,
                               const struct used *u) {
  const struct stretch *from = stretch_of(s, u->first_call), *to = stretch_of(s, u->last_call);
  struct placed it = {u, u->first_call, u->last_call, u->tensor->bytes};
  if (u->is_local) {
    int64_t rows = p->calls[from->first].rows, most = (rows + from->slices - 1) / from->slices;
    it.bytes = u->tensor->bytes / (size_t)rows * (size_t)most;
    return it;
  }
  if (from->units) it.first = from->first;
  if (to->units) it.last = to->end - 1;
  return it;
}

/* All of the segment's that are local, or all that are not; returns the bytes that they take. */
static size_t place_tensors(struct sl__graph *p, struct sl__subgraph *s, int segment, bool local,
                            struct placed *placed) {
  size_t end = 0;
  int count = 0;
  for (int i = 0; i < p->used_count; i++) {
    struct used *u = &p->used[i];
    if (u->is_scratch || !u->is_inner || u->first_segment != segment) continue;
    find_local(p, s, u);
    if (u->is_local != local) continue;
    placed[count] = placed_of(p, s, u);
    u->offset = lowest_place(placed, count, &placed[count]);
    if (u->offset + placed[count].bytes > end) end = u->offset + placed[count].bytes;
    count++;
  }
  return aligned(end);
}

static size_t scratch_of(const struct call *call, const struct sl__tensor *tensor) {
  size_t bytes = call->cut.scratch;
  if (call->args->is_prepacked && call->form.scratch) bytes = call->form.scratch;
  return bytes ? bytes : tensor->bytes;
}

/* Of calls that several members do at a time without phases each needs its own; others have one for
 * all. It is a call's own, so all of a kind have the same place. */
static size_t scratch_bytes(const struct sl__graph *p, const struct sl__subgraph *s, bool own) {
  size_t most = 0;
  for (int c = s->first; c < s->end; c++)
    for (int k = 0; k < p->calls[c].count; k++) {
      const struct used *u = &p->used[p->calls[c].tensor[k]];
      bool is_own = stretch_of(s, c)->units && !p->calls[c].cut.phases;
      if (!u->is_scratch || is_own != own) continue;
      size_t bytes = scratch_of(&p->calls[c], u->tensor);
      if (bytes > most) most = bytes;
    }
  return aligned(most);
}

enum sl_status sl__subgraph_place(struct sl__graph *p, int segment) {
  struct sl__subgraph *s = &p->segments[segment];
  s->members = members_of(p, s);
  enum sl_status status = find_stretches(p, s);
  limit_members(p, s);
  if (status == SL_OK && s->members) status = make_team(p, s);
  if (status != SL_OK) return status;
  struct placed *placed = sl__alloc((size_t)p->used_count + 1, sizeof *placed, "a program");
  if (!placed) return SL_NO_MEMORY;
  s->common_at = place_tensors(p, s, segment, false, placed);
  s->members_at = s->common_at + scratch_bytes(p, s, false);
  s->local_at = scratch_bytes(p, s, true);
  s->member_bytes = s->local_at + place_tensors(p, s, segment, true, placed);
  s->inner = s->members_at + (size_t)(s->members ? s->members : 1) * s->member_bytes;
  free(placed);
  return SL_OK;
}
