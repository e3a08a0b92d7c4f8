/* The numbers of starling-trace, of a trace that is made by hand: the critical path, and the share
 * of the time in which workers compute together. */
#include <math.h>

#include "tests/common/harness.h"
#include "tools/trace/trace_stats.h"

/* Two workers, 20 ms: a (0 to 10) and b (0 to 2) beside each other, then c (10 to 13), which waits
 * for both, through a job of StarPU's own for a. */
static struct trace_task tasks[] = {{.job = 1, .worker = 0, .start = 0, .end = 10, .name = "a"},
                                    {.job = 2, .worker = 1, .start = 0, .end = 2, .name = "b"},
                                    {.job = 4, .worker = 0, .start = 10, .end = 13, .name = "c"}};
static struct trace_job jobs[] = {{.id = 1, .task = 0},
                                  {.id = 2, .task = 1},
                                  {.id = 3, .first = 0, .count = 1, .task = -1},
                                  {.id = 4, .first = 1, .count = 2, .task = 2}};
static long long depends[] = {1, 3, 2};
static struct trace_worker workers[] = {{.is_cpu = true}, {.is_cpu = true}};
static char layer[] = "layer", *layers[] = {layer};
static struct trace trace = {.tasks = tasks,
                             .count = 3,
                             .workers = workers,
                             .worker_count = 2,
                             .layers = layers,
                             .layer_count = 1,
                             .jobs = jobs,
                             .job_count = 4,
                             .depends = depends,
                             .depend_count = 3,
                             .window = 20};

static struct numbers numbers_of_trace(void) {
  struct numbers numbers;
  assert_true(numbers_take(&trace, &(struct roof){0}, &numbers));
  return numbers;
}

static void the_critical_path_is_the_longest(void **state) {
  (void)state;
  for (int turn = 0; turn < 2; turn++) { /* whichever of c's dependences comes first */
    struct numbers numbers = numbers_of_trace();
    assert_true(fabs(numbers.path_ms - 13) < 1e-9);
    assert_int_equal(numbers.path_count, 2);
    assert_int_equal(numbers.path[0], 0);
    assert_int_equal(numbers.path[1], 2);
    numbers_free(&numbers);
    depends[1] = turn ? 3 : 2, depends[2] = turn ? 2 : 3;
  }
}

static void workers_together_are_two_or_more(void **state) {
  (void)state;
  struct numbers numbers = numbers_of_trace();
  assert_true(fabs(numbers.together - 0.1) < 1e-9);
  assert_true(isnan(numbers.communication)); /* no transfers */
  assert_int_equal(numbers.devices[0].tasks, 2);
  assert_true(fabs(numbers.devices[0].ms[STATE_BUSY] - 13) < 1e-9);
  assert_true(fabs(numbers.devices[0].ms[STATE_IDLE] - 7) < 1e-9);
  numbers_free(&numbers);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_critical_path_is_the_longest),
                                     cmocka_unit_test(workers_together_are_two_or_more)};
  return cmocka_run_group_tests_name("trace_stats", tests, NULL, NULL);
}
