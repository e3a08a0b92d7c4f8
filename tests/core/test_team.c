/* Teams (core/graph/team.h): one member does each part of each superstep once, after all parts of
 * the superstep before, whichever members join, early, late or never. */
#include <pthread.h>

#include "core/base/error.h"
#include "core/graph/team.h"
#include "tests/common/harness.h"

enum { SUPERSTEPS = 40, MEMBERS = 4, JOBS = 300 };

struct job {
  int done[SUPERSTEPS][SL__TEAM_PARTS]; /* how often */
  int ended[SUPERSTEPS];                /* parts */
  int busy[SL__TEAM_MOST];              /* is the member at a part? */
  int leader;
  int merged; /* supersteps whose parts were merged */
  bool is_wrong;
};

static struct sl__superstep supersteps[SUPERSTEPS];

static void work(void *argument, int superstep, int part, int parts, int member) {
  struct job *job = argument;
  bool wrong = __atomic_fetch_add(&job->busy[member], 1, __ATOMIC_RELAXED) != 0;
  wrong |= superstep && __atomic_load_n(&job->ended[superstep - 1], __ATOMIC_RELAXED) <
                            supersteps[superstep - 1].parts;
  wrong |= parts != supersteps[superstep].parts && (parts != 1 || !supersteps[superstep].may_merge);
  wrong |= parts == 1 && member != job->leader;
  int count = parts == supersteps[superstep].parts ? 1 : supersteps[superstep].parts;
  for (int i = 0; i < count; i++)
    job->done[superstep][part + i]++; /* no other thread writes there */
  if (count > 1) job->merged++;
  for (volatile int i = 0; i < 50; i++) continue;
  if (wrong) __atomic_store_n(&job->is_wrong, true, __ATOMIC_RELAXED);
  __atomic_fetch_add(&job->ended[superstep], count, __ATOMIC_RELAXED);
  __atomic_fetch_sub(&job->busy[member], 1, __ATOMIC_RELAXED);
}

static void expect_all_done(const struct job *job) {
  assert_false(job->is_wrong);
  for (int r = 0; r < SUPERSTEPS; r++)
    for (int p = 0; p < supersteps[r].parts; p++) assert_int_equal(job->done[r][p], 1);
}

static struct sl__team *team_new(void) {
  struct sl__team *team;
  for (int r = 0; r < SUPERSTEPS; r++) {
    static const int parts[] = {1, MEMBERS, 7, SL__TEAM_PARTS, 2};
    supersteps[r] = (struct sl__superstep){parts[r % 5], r % 3 == 0, r % 4, r % 7 < 3};
  }
  OK(sl__team_new(SUPERSTEPS, supersteps, work, &team));
  return team;
}

static void alone(void **state) {
  (void)state;
  struct sl__team *team = team_new();
  for (int i = 0; i < 5; i++) {
    struct job job = {.leader = i};
    sl__team_expect(team);
    sl__team_lead(team, i, &job);
    expect_all_done(&job);
    assert_int_equal(job.merged, 11); /* of 14 that may be, the others are one part */
  }
  sl__team_free(team);
  sl__team_free(NULL);
}

struct helper {
  struct sl__team *team;
  int member;
  pthread_t thread;
  int over;
};

static void *help(void *argument) {
  struct helper *h = argument;
  while (!__atomic_load_n(&h->over, __ATOMIC_ACQUIRE)) sl__team_join(h->team, h->member, 20);
  return NULL;
}

/* Two of them say that they are the same one, and one that it is the leader. */
static void together(void **state) {
  (void)state;
  struct sl__team *team = team_new();
  struct helper helpers[MEMBERS] = {0};
  for (int m = 0; m < MEMBERS; m++) {
    helpers[m] = (struct helper){.team = team, .member = m ? m : 1};
    assert_int_equal(pthread_create(&helpers[m].thread, NULL, help, &helpers[m]), 0);
  }
  for (int i = 0; i < JOBS; i++) {
    struct job job = {.leader = i % 3};
    sl__team_expect(team);
    sl__team_lead(team, i % 3, &job);
    expect_all_done(&job);
  }
  for (int m = 0; m < MEMBERS; m++) __atomic_store_n(&helpers[m].over, 1, __ATOMIC_RELEASE);
  for (int m = 0; m < MEMBERS; m++) pthread_join(helpers[m].thread, NULL);
  sl__team_free(team);
}

static void nobody_leads(void **state) {
  (void)state;
  struct sl__team *team = team_new();
  sl__team_join(team, 1, 1e9); /* returns at once: no job is expected */
  sl__team_expect(team);
  sl__team_join(team, 1, 100);
  sl__team_free(team);
}

static void no_memory(void **state) {
  (void)state;
  for (long n = 1; n <= 3; n++) {
    struct sl__team *team;
    sl__alloc_fail_after(n);
    assert_int_equal(sl__team_new(SUPERSTEPS, supersteps, work, &team), SL_NO_MEMORY);
    sl__alloc_fail_after(0);
    sl__team_free(team);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(alone),
      cmocka_unit_test(together),
      cmocka_unit_test(nobody_leads),
      cmocka_unit_test(no_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
