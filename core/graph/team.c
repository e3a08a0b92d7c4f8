#include "core/graph/team.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/error.h"

/* The progress of a superstep. All members read it, so each has a cache line of its own. */
struct progress {
  uint64_t taken; /* bit i: a member does part i, or has done it */
  int done;       /* number of parts */
  char padding[64 - sizeof(uint64_t) - sizeof(int)];
};

struct sl__team {
  sl__team_work *work;
  void *job;
  uint32_t present; /* bit i: member i takes part; OPEN: a job runs */
  int leader;
  bool expected;
  int count;
  struct sl__superstep *supersteps;
  struct progress *progress;
};

static const uint32_t OPEN = UINT32_C(1) << 31;

enum sl_status sl__team_new(int count, const struct sl__superstep *supersteps, sl__team_work *work,
                            struct sl__team **team) {
  struct sl__team *t = *team = sl__alloc(1, sizeof *t, "a team");
  if (!t) return SL_NO_MEMORY;
  t->work = work;
  t->count = count;
  t->supersteps = sl__alloc((size_t)count, sizeof *t->supersteps, "a team");
  t->progress = sl__alloc((size_t)count, sizeof *t->progress, "a team");
  if (!t->supersteps || !t->progress) return SL_NO_MEMORY;
  memcpy(t->supersteps, supersteps, (size_t)count * sizeof *supersteps);
  return SL_OK;
}

void sl__team_free(struct sl__team *team) {
  if (!team) return;
  free(team->supersteps);
  free(team->progress);
  free(team);
}

/* The awaited thread may have lost its core to another one, so this thread offers its own core now
 * and then. */
static inline void spin(unsigned spins) {
  if (spins % 4096 == 0) sched_yield();
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static void wait_until_done(const struct progress *s, int parts) {
  for (unsigned spins = 1; __atomic_load_n(&s->done, __ATOMIC_ACQUIRE) < parts; spins++)
    spin(spins);
}

/* Parts [first, end) as bits. */
static uint64_t bits(int first, int end) {
  return end <= first ? 0 : ~UINT64_C(0) >> (64 - (end - first)) << first;
}

static uint64_t own_parts(const struct sl__superstep *r, int member) {
  uint64_t own = 0;
  if (member >= r->members) return 0;
  for (int p = 0; p < r->parts && r->is_interleaved; p++) {
    int turn = p / r->members % 2, at = p % r->members;
    if ((turn ? r->members - 1 - at : at) == member) own |= bits(p, p + 1);
  }
  if (r->is_interleaved) return own;
  return bits(member * r->parts / r->members, (member + 1) * r->parts / r->members);
}

/* Takes a part: the first of the member's own that is left; else the last one left, which is the
 * last that its owner would take; the first where none are a member's own. -1: none is left. */
static int take(struct progress *s, const struct sl__superstep *superstep, int member) {
  uint64_t taken = __atomic_load_n(&s->taken, __ATOMIC_RELAXED), own = own_parts(superstep, member);
  for (;;) {
    uint64_t left = bits(0, superstep->parts) & ~taken;
    if (!left) return -1;
    int part = left & own           ? __builtin_ctzll(left & own)
               : superstep->members ? 63 - __builtin_clzll(left)
                                    : __builtin_ctzll(left);
    taken = __atomic_fetch_or(&s->taken, UINT64_C(1) << part, __ATOMIC_ACQ_REL);
    if (!(taken >> part & 1)) return part;
  }
}

static bool take_merged(struct sl__team *t, struct progress *s,
                        const struct sl__superstep *superstep) {
  uint64_t none = 0;
  uint32_t alone = OPEN | UINT32_C(1) << t->leader;
  return superstep->may_merge && __atomic_load_n(&t->present, __ATOMIC_RELAXED) == alone &&
         __atomic_compare_exchange_n(&s->taken, &none, bits(0, superstep->parts), false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static void do_superstep(struct sl__team *t, int index, int member) {
  const struct sl__superstep *superstep = &t->supersteps[index];
  struct progress *s = &t->progress[index];
  if (member == t->leader && take_merged(t, s, superstep)) {
    t->work(t->job, index, 0, 1, member);
    __atomic_store_n(&s->done, superstep->parts, __ATOMIC_RELEASE);
    return;
  }
  bool may = superstep->parts > 1 || member == t->leader;
  for (int part; may && (part = take(s, superstep, member)) >= 0;) {
    t->work(t->job, index, part, superstep->parts, member);
    __atomic_fetch_add(&s->done, 1, __ATOMIC_ACQ_REL);
  }
  wait_until_done(s, superstep->parts);
}

void sl__team_lead(struct sl__team *t, int member, void *job) {
  uint32_t own = UINT32_C(1) << member;
  t->job = job;
  t->leader = member;
  memset(t->progress, 0, (size_t)t->count * sizeof *t->progress);
  __atomic_store_n(&t->present, OPEN | own, __ATOMIC_SEQ_CST);
  for (int i = 0; i < t->count; i++) do_superstep(t, i, member);
  /* no member can join from here on; wait for the others to see that the job has ended */
  uint32_t present = __atomic_and_fetch(&t->present, ~(OPEN | own), __ATOMIC_SEQ_CST);
  for (unsigned spins = 1; present; spins++) {
    spin(spins);
    present = __atomic_load_n(&t->present, __ATOMIC_ACQUIRE);
  }
  __atomic_store_n(&t->expected, false, __ATOMIC_RELAXED);
}

void sl__team_expect(struct sl__team *t) { __atomic_store_n(&t->expected, true, __ATOMIC_RELAXED); }

bool sl__team_is_expected(const struct sl__team *t) {
  return __atomic_load_n(&t->expected, __ATOMIC_RELAXED);
}

/* Succeeds only while a job runs, and if no thread takes part with the same member number. */
static bool enter(struct sl__team *t, int member) {
  uint32_t own = UINT32_C(1) << member, present = __atomic_load_n(&t->present, __ATOMIC_RELAXED);
  do {
    if (!(present & OPEN) || present & own) return false;
  } while (!__atomic_compare_exchange_n(&t->present, &present, present | own, false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
  return true;
}

void sl__team_join(struct sl__team *t, int member, double timeout_us) {
  double until = sl__microseconds() + timeout_us;
  for (unsigned spins = 1; !enter(t, member); spins++) {
    spin(spins);
    if (!__atomic_load_n(&t->expected, __ATOMIC_RELAXED) ||
        (spins % 64 == 0 && sl__microseconds() > until))
      return;
  }
  for (int i = 0; i < t->count; i++) do_superstep(t, i, member);
  __atomic_and_fetch(&t->present, ~(UINT32_C(1) << member), __ATOMIC_SEQ_CST);
}
