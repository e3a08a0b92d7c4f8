/* Idle workers sleep (core/runtime/idle.h): they use no processor, and a task wakes them, whichever
 * scheduler or worker gets it. */
#include <starpu.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/cpu_time.h"
#include "core/runtime/idle.h"
#include "tests/common/check.h"

/* A sleep that no task ends lasts that long in the tests of waking. */
#define LONG_S 10

static void needs_spinning_starpu(void) {
#ifndef STARPU_NON_BLOCKING_DRIVERS
  skip(); /* this StarPU's own workers sleep */
#endif
}

static int open_cpus(void **state) {
  (void)state;
  setenv("STARPU_NCPU", "2", 1);
  setenv("STARPU_NCUDA", "0", 1);
  return open_context_with(&(struct sl_context_options){.seed = 1, .devices = "cpu"});
}

static int close_cpus(void **state) {
  close_context(state);
  unsetenv("STARPU_SCHED");
  sl__idle_set_sleep(0, 10000);
  return 0;
}

/* Workers that spin would use a second of processor time each, or what other programs leave them.
 */
static void idle_workers_use_no_processor(void **state) {
  (void)state;
  needs_spinning_starpu();
  sl__idle_set_sleep(0, 10000);
  usleep(200000);
  unsigned sleeps = sl__idle_sleeps();
  double before = sl__cpu_time_now().own;
  usleep(1000000);
  double used = sl__cpu_time_now().own - before;
  print_message("%.3f s of processor time in 1 s, %u sleeps\n", used, sl__idle_sleeps() - sleeps);
  assert_true(sl__idle_sleeps() - sleeps > 2);
  assert_true(used < 0.4);
}

/* All workers have begun a sleep of LONG_S since the count was `sleeps`. */
static void wait_until_all_sleep(unsigned sleeps) {
  for (int i = 0; sl__idle_sleeps() - sleeps < starpu_worker_get_count(); i++) {
    assert_true(i < 1000 * LONG_S);
    usleep(1000);
  }
  usleep(1000);
}

/* Runs a task there when all workers sleep. \return whether it has waited for the sleep's end. */
static bool waits_for_sleeps_end(const struct sl__place *place, struct sl__tensor *one,
                                 struct sl__tensor *sum) {
  struct sl__launch launch = {.name = "test", .accumulate = true, .place = *place};
  static unsigned sleeps;
  wait_until_all_sleep(sleeps);
  sleeps = sl__idle_sleeps();
  double begin = sl__seconds();
  OK(sl__axpy(context, &launch, 1, one, sum));
  starpu_task_wait_for_all();
  return sl__seconds() - begin > LONG_S / 2;
}

static void tasks_wake_workers(void **state) {
  (void)state;
  needs_spinning_starpu();
  enum { ROUNDS = 4 };
  struct sl__tensor *one = random_tensor(SL_SHAPE(3), 1), *sum = tensor(SL_SHAPE(3), NULL);
  const struct sl__place places[] = {{0}, {STARPU_CPU, 0}, {STARPU_CPU, 1}, {STARPU_CPU, 2}};
  sl__idle_set_sleep(LONG_S * 1000000, LONG_S * 1000000);
  for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
    for (int i = 0; i < ROUNDS; i++) assert_false(waits_for_sleeps_end(&places[p], one, sum));
  }
  double end = sl__seconds();
  sl__tensor_free(one);
  sl__tensor_free(sum);
  assert_true(sl__seconds() - end < LONG_S / 2);
}

static void all_schedulers_wake(void **state) {
  const char *const schedulers[] = {"eager", "lws", "dmda", "dmdas", "prio", "modular-eager"};
  for (size_t i = 0; i < sizeof schedulers / sizeof *schedulers; i++) {
    setenv("STARPU_SCHED", schedulers[i], 1);
    assert_int_equal(open_cpus(state), 0);
    assert_string_equal(sl_scheduler(context), schedulers[i]);
    tasks_wake_workers(state);
    close_cpus(state);
  }
}

/* A task of one worker whose callback pushes another one when the other worker sleeps. */
struct push {
  bool is_quiet;
  unsigned sleeps; /* before the first task: both workers sleep */
  int runs;        /* of the second one */
};

static void wait_for_sleep(void *buffers[], void *arg) {
  const struct push *p = arg;
  (void)buffers;
  for (int i = 0; sl__idle_sleeps() == p->sleeps && i < 1000 * LONG_S; i++) usleep(1000);
}

static void count_run(void *buffers[], void *arg) {
  (void)buffers;
  __atomic_add_fetch(&((struct push *)arg)->runs, 1, __ATOMIC_RELAXED);
}

static void submit(struct starpu_codelet *codelet, struct push *p, void (*callback)(void *)) {
  struct starpu_task *task = starpu_task_create();
  task->cl = codelet;
  task->cl_arg = p;
  task->callback_func = callback;
  task->callback_arg = p;
  assert_int_equal(starpu_task_submit(task), 0);
}

static void push_another(void *arg) {
  static struct starpu_codelet counting = {.cpu_funcs = {count_run}};
  struct push *p = arg;
  sl__idle_quiet(p->is_quiet);
  submit(&counting, p, NULL);
  sl__idle_quiet(false);
}

/* \return how often the workers have slept since then, when both sleep again. */
static unsigned sleeps_after(struct push p, unsigned expected) {
  static struct starpu_codelet waiting = {.cpu_funcs = {wait_for_sleep}};
  p.sleeps = sl__idle_sleeps();
  submit(&waiting, &p, push_another);
  starpu_task_wait_for_all();
  assert_int_equal(__atomic_load_n(&p.runs, __ATOMIC_RELAXED), 1);
  for (int i = 0; sl__idle_sleeps() - p.sleeps < expected && i < 1000 * LONG_S; i++) usleep(1000);
  usleep(100000);
  return sl__idle_sleeps() - p.sleeps;
}

static void quiet_pushes_wake_no_other_worker(void **state) {
  needs_spinning_starpu();
  setenv("STARPU_SCHED", "lws", 1);
  const int endless_us = 1000 * 1000000; /* a sleep that ends by itself would be counted, too */
  unsigned sleeps = sl__idle_sleeps();
  sl__idle_set_sleep(endless_us, endless_us);
  assert_int_equal(open_cpus(state), 0);
  wait_until_all_sleep(sleeps);
  assert_int_equal(sleeps_after((struct push){.is_quiet = true}, 2), 2);
  assert_int_equal(sleeps_after((struct push){.is_quiet = false}, 3), 3);
  assert_int_equal(sleeps_after((struct push){.is_quiet = true}, 2), 2);
  close_cpus(state);
}

/* The end of StarPU wakes them, too. */
static void workers_that_sleep_end(void **state) {
  for (int i = 0; i < 3; i++) {
    unsigned sleeps = sl__idle_sleeps();
    sl__idle_set_sleep(LONG_S * 1000000, LONG_S * 1000000);
    assert_int_equal(open_cpus(state), 0);
    needs_spinning_starpu();
    wait_until_all_sleep(sleeps);
    double begin = sl__seconds();
    close_cpus(state);
    assert_true(sl__seconds() - begin < LONG_S / 2);
  }
}

/* A program that runs StarPU itself decides on its workers itself. */
static void other_programs_workers_stay(void **state) {
  setenv("STARPU_NCPU", "2", 1);
  setenv("STARPU_NCUDA", "0", 1);
  assert_int_equal(starpu_init(NULL), 0);
  assert_int_equal(open_cpus(state), 0);
  unsigned sleeps = sl__idle_sleeps();
  usleep(50000);
  assert_int_equal(sl__idle_sleeps(), sleeps);
  close_cpus(state);
  starpu_shutdown();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(idle_workers_use_no_processor, open_cpus, close_cpus),
      cmocka_unit_test_setup_teardown(tasks_wake_workers, open_cpus, close_cpus),
      cmocka_unit_test(all_schedulers_wake),
      cmocka_unit_test(quiet_pushes_wake_no_other_worker),
      cmocka_unit_test(workers_that_sleep_end),
      cmocka_unit_test(other_programs_workers_stay),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
