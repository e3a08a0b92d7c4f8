#include "core/graph/team.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/error.h"

/* A round's state; all members look at it, so no two are in the same cache line. */
struct state {
  uint64_t taken; /* bit i: part i is being done, or is done */
  int done;       /* parts */
  char apart[64 - sizeof(uint64_t) - sizeof(int)];
};

struct sl__team {
  sl__team_work *work;
  void *job;
  uint32_t present; /* bit i: member i; OPEN from the begin of a job to its end */
  int leader;
  bool expected;
  int count;
  struct sl__round *rounds;
  struct state *states;
};

static const uint32_t OPEN = UINT32_C(1) << 31;

enum sl_status sl__team_new(int count, const struct sl__round *rounds, sl__team_work *work,
                            struct sl__team **team) {
  struct sl__team *t = *team = sl__alloc(1, sizeof *t, "a team");
  if (!t) return SL_NO_MEMORY;
  t->work = work;
  t->count = count;
  t->rounds = sl__alloc((size_t)count, sizeof *t->rounds, "a team");
  t->states = sl__alloc((size_t)count, sizeof *t->states, "a team");
  if (!t->rounds || !t->states) return SL_NO_MEMORY;
  memcpy(t->rounds, rounds, (size_t)count * sizeof *rounds);
  return SL_OK;
}

void sl__team_free(struct sl__team *team) {
  if (!team) return;
  free(team->rounds);
  free(team->states);
  free(team);
}

/* Who is waited for may have lost its core to another thread: now and then it gets this one. */
static inline void rest(unsigned turn) {
  if (turn % 4096 == 0) sched_yield();
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static void wait_until_done(const struct state *s, int parts) {
  for (unsigned turn = 1; __atomic_load_n(&s->done, __ATOMIC_ACQUIRE) < parts; turn++) rest(turn);
}

/* Parts [first, end) as bits. */
static uint64_t bits(int first, int end) {
  return end <= first ? 0 : ~UINT64_C(0) >> (64 - (end - first)) << first;
}

static uint64_t own_parts(const struct sl__round *r, int member) {
  if (member >= r->members) return 0;
  return bits(member * r->parts / r->members, (member + 1) * r->parts / r->members);
}

/* A part that nobody has taken: the first of the member's own, or the last of all, which its owner
 * would come to last; without owners the first. -1: there is none. */
static int take(struct state *s, const struct sl__round *round, int member) {
  uint64_t taken = __atomic_load_n(&s->taken, __ATOMIC_RELAXED), own = own_parts(round, member);
  for (;;) {
    uint64_t left = bits(0, round->parts) & ~taken;
    if (!left) return -1;
    int part = left & own       ? __builtin_ctzll(left & own)
               : round->members ? 63 - __builtin_clzll(left)
                                : __builtin_ctzll(left);
    taken = __atomic_fetch_or(&s->taken, UINT64_C(1) << part, __ATOMIC_ACQ_REL);
    if (!(taken >> part & 1)) return part;
  }
}

static bool take_all(struct sl__team *t, struct state *s, const struct sl__round *round) {
  uint64_t none = 0;
  uint32_t alone = OPEN | UINT32_C(1) << t->leader;
  return round->may_join && __atomic_load_n(&t->present, __ATOMIC_RELAXED) == alone &&
         __atomic_compare_exchange_n(&s->taken, &none, bits(0, round->parts), false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static void do_round(struct sl__team *t, int number, int member) {
  const struct sl__round *round = &t->rounds[number];
  struct state *s = &t->states[number];
  if (member == t->leader && take_all(t, s, round)) {
    t->work(t->job, number, 0, 1, member);
    __atomic_store_n(&s->done, round->parts, __ATOMIC_RELEASE);
    return;
  }
  bool may = round->parts > 1 || member == t->leader;
  for (int part; may && (part = take(s, round, member)) >= 0;) {
    t->work(t->job, number, part, round->parts, member);
    __atomic_fetch_add(&s->done, 1, __ATOMIC_ACQ_REL);
  }
  wait_until_done(s, round->parts);
}

void sl__team_lead(struct sl__team *t, int member, void *job) {
  uint32_t own = UINT32_C(1) << member;
  t->job = job;
  t->leader = member;
  memset(t->states, 0, (size_t)t->count * sizeof *t->states);
  __atomic_store_n(&t->present, OPEN | own, __ATOMIC_SEQ_CST);
  for (int i = 0; i < t->count; i++) do_round(t, i, member);
  /* from here on nobody joins; who is there has nothing left to do but to find that out */
  uint32_t present = __atomic_and_fetch(&t->present, ~(OPEN | own), __ATOMIC_SEQ_CST);
  for (unsigned turn = 1; present; turn++) {
    rest(turn);
    present = __atomic_load_n(&t->present, __ATOMIC_ACQUIRE);
  }
  __atomic_store_n(&t->expected, false, __ATOMIC_RELAXED);
}

void sl__team_expect(struct sl__team *t) { __atomic_store_n(&t->expected, true, __ATOMIC_RELAXED); }

/* Only while there is a job, and beside nobody of the same number. */
static bool enter(struct sl__team *t, int member) {
  uint32_t own = UINT32_C(1) << member, present = __atomic_load_n(&t->present, __ATOMIC_RELAXED);
  do {
    if (!(present & OPEN) || present & own) return false;
  } while (!__atomic_compare_exchange_n(&t->present, &present, present | own, false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
  return true;
}

void sl__team_join(struct sl__team *t, int member, double patience_us) {
  double until = sl__microseconds() + patience_us;
  for (unsigned turn = 1; !enter(t, member); turn++) {
    rest(turn);
    if (!__atomic_load_n(&t->expected, __ATOMIC_RELAXED) ||
        (turn % 64 == 0 && sl__microseconds() > until))
      return;
  }
  for (int i = 0; i < t->count; i++) do_round(t, i, member);
  __atomic_and_fetch(&t->present, ~(UINT32_C(1) << member), __ATOMIC_SEQ_CST);
}
