/* Chains (core/runtime/chain.h): runs of a captured step on one GPU do not wait for each other, and
 * all other users of their tensors see them after the last run. If SL_TEST_DEVICE names a device
 * ("cuda:0"), the runs are there; on a CPU there are no chains, and the values are the same. */
#include <pthread.h>

#include "codelets/codelets.h"
#include "core/graph/graph_state.h"
#include "core/runtime/wait.h"
#include "tests/common/check.h"
#include "tests/common/task_count.h"

enum { RUNS = 40, VALUES = 5000 };

/* A step: sum += 1, and out = sum, another tensor in each run. */
struct step {
  struct sl__tensor *one, *sum, *out;
  struct sl__graph *graph;
};

static int tasks; /* submitted so far, without helpers */

static struct sl__tensor *filled(double value) {
  double *values = zeros(VALUES);
  for (int i = 0; i < VALUES; i++) values[i] = value;
  struct sl__tensor *t = tensor(SL_SHAPE(VALUES), values);
  free(values);
  return t;
}

static enum sl_status add_one(const struct step *s) {
  struct sl__launch more = plain;
  more.accumulate = true;
  enum sl_status status = sl__axpy(context, &more, 1, s->one, s->sum);
  return status == SL_OK ? sl__axpy(context, &plain, 1, s->sum, s->out) : status;
}

static void step_new(struct step *s, struct sl__tensor *sum) {
  *s = (struct step){.one = filled(1), .sum = sum, .out = filled(0)};
  OK(sl__graph_new(context, &sl__op_subgraph, &sl__op_helper, &s->graph));
  sl__graph_join_slices(s->graph, 50);
  OK(sl__graph_bind(s->graph, s->out));
  sl__graph_capture(s->graph);
  OK(sl__graph_compile(s->graph, add_one(s)));
}

static void *graph_free(void *graph) {
  sl__graph_free(graph);
  return NULL;
}

/* A thread of the program, which no other call has met, frees the graph. */
static void step_free(struct step *s) {
  pthread_t thread;
  starpu_task_wait_for_all();
  assert_int_equal(pthread_create(&thread, NULL, graph_free, s->graph), 0);
  pthread_join(thread, NULL);
  sl__tensor_free(s->one);
  sl__tensor_free(s->out);
}

static enum sl_status run(struct step *s, struct sl__tensor *out) {
  static const struct sl__step_record record = {.lr = 1};
  struct sl__tensor *bound[] = {out ? out : s->out};
  return sl__graph_submit(s->graph, &(struct sl__graph_run){.bound = bound, .step = &record});
}

/* All values of a tensor, which must be alike and whole numbers. */
static int value_of(struct sl__tensor *t) {
  float *values = calloc(VALUES, sizeof *values);
  OK(sl__tensor_read(t, values));
  int value = (int)values[0];
  for (int i = 0; i < VALUES; i++)
    assert_false(values[i] < (float)value || values[i] > (float)value);
  free(values);
  return value;
}

/* The number of tasks that the next call submits besides its own. */
#define SETTLES(count, call)                                                                       \
  do {                                                                                             \
    int before_ = tasks;                                                                           \
    call;                                                                                          \
    assert_int_equal(tasks - before_, on_gpu() ? (count) : 0);                                     \
  } while (0)

static void readers_see_all_runs(void **state) {
  struct sl__tensor *sum = filled(0), *outs[RUNS];
  struct step s;
  (void)state;
  step_new(&s, sum);
  assert_int_equal(s.graph->chain != NULL, on_gpu());
  for (int i = 0; i < RUNS; i++) outs[i] = filled(0);
  for (int i = 0; i < RUNS; i++) OK(run(&s, outs[i]));
  for (int i = 0; i < RUNS; i++)
    SETTLES(0, assert_int_equal(value_of(outs[i]), i + 1)); /* it is in no chain */
  SETTLES(1, assert_int_equal(value_of(sum), RUNS));
  SETTLES(0, assert_int_equal(value_of(sum), RUNS));
  for (int i = 0; i < RUNS; i++) sl__tensor_free(outs[i]);
  step_free(&s);
  sl__tensor_free(sum);
}

/* Tasks of other devices and writes of the program, between runs. */
static void others_come_in_their_turn(void **state) {
  struct sl__tensor *sum = filled(0), *copy = filled(0);
  const struct sl__launch on_cpu = {.name = "cpu", .place = {STARPU_CPU, 0}};
  float *tens = calloc(VALUES, sizeof *tens);
  struct step s;
  (void)state;
  for (int i = 0; i < VALUES; i++) tens[i] = 10;
  step_new(&s, sum);
  for (int i = 0; i < 5; i++) OK(run(&s, NULL));
  OK(sl__axpy(context, &on_cpu, 2, sum, copy)); /* copy = 10 */
  for (int i = 0; i < 7; i++) OK(run(&s, NULL));
  assert_int_equal(value_of(copy), 10);
  assert_int_equal(value_of(sum), 12);
  OK(run(&s, NULL));
  OK(run(&s, NULL));
  OK(sl__tensor_write(sum, tens));
  OK(run(&s, NULL));
  OK(run(&s, NULL));
  assert_int_equal(value_of(sum), 12);
  step_free(&s);
  sl__tensor_free(sum);
  sl__tensor_free(copy);
  free(tens);
}

/* Two graphs take turns with the same tensor. */
static void chains_settle_each_other(void **state) {
  struct sl__tensor *sum = filled(0);
  struct step a, b;
  (void)state;
  step_new(&a, sum);
  step_new(&b, sum);
  for (int i = 0; i < RUNS; i++) OK(run(i % 5 < 3 ? &a : &b, NULL));
  assert_int_equal(value_of(a.out), RUNS - 2);
  assert_int_equal(value_of(b.out), RUNS);
  assert_int_equal(value_of(sum), RUNS);
  step_free(&a);
  step_free(&b);
  sl__tensor_free(sum);
}

static void tensors_and_graphs_go_unsettled(void **state) {
  struct sl__tensor *sum = filled(0), *other = filled(0);
  struct step s;
  (void)state;
  step_new(&s, sum);
  for (int i = 0; i < 9; i++) OK(run(&s, NULL));
  step_free(&s);
  SETTLES(0, assert_int_equal(value_of(sum), 9));
  step_new(&s, other);
  for (int i = 0; i < 9; i++) OK(run(&s, NULL));
  SETTLES(1, sl__tensor_free(other)); /* before the graph */
  step_free(&s);
  sl__tensor_free(sum);
}

/* A thread that reads what another one trains sees the values between two runs. */
struct reader {
  struct sl__tensor *sum;
  bool done;
  int uneven, steps_back;
};

static void *read_on(void *argument) {
  struct reader *r = argument;
  float *values = calloc(VALUES, sizeof *values), last = 0;
  while (!__atomic_load_n(&r->done, __ATOMIC_ACQUIRE)) {
    if (sl__tensor_read(r->sum, values) != SL_OK) break;
    for (int i = 1; i < VALUES; i++) r->uneven += values[i] < values[0] || values[i] > values[0];
    r->steps_back += values[0] < last;
    last = values[0];
  }
  free(values);
  return NULL;
}

static void another_thread_reads(void **state) {
  struct reader reader = {.sum = filled(0)};
  struct step s;
  pthread_t thread;
  (void)state;
  step_new(&s, reader.sum);
  assert_int_equal(pthread_create(&thread, NULL, read_on, &reader), 0);
  for (int i = 0; i < 10 * RUNS; i++) OK(run(&s, NULL));
  __atomic_store_n(&reader.done, true, __ATOMIC_RELEASE);
  pthread_join(thread, NULL);
  assert_int_equal(reader.uneven, 0);
  assert_int_equal(reader.steps_back, 0);
  assert_int_equal(value_of(reader.sum), 10 * RUNS);
  step_free(&s);
  sl__tensor_free(reader.sum);
}

/* A view may be used as a part of its whole: such a graph has no chain. */
static void views_are_in_no_chain(void **state) {
  struct sl__tensor *sum = filled(0);
  const int64_t rows[] = {2000, VALUES - 2000};
  struct step s;
  (void)state;
  OK(sl__tensor_split(sum, 2, rows));
  step_new(&s, sum);
  assert_null(s.graph->chain);
  for (int i = 0; i < 3; i++) OK(run(&s, NULL));
  assert_int_equal(value_of(sum), 3);
  step_free(&s);
  sl__tensor_free(sum);
}

/* Split when the chain has written it: a task that uses a part sees all runs, too. */
static void a_later_view_sees_all_runs(void **state) {
  struct sl__tensor *sum = filled(0), *copy = tensor(SL_SHAPE(2000), NULL);
  const struct sl__launch on_cpu = {.name = "cpu", .place = {STARPU_CPU, 0}};
  const int64_t rows[] = {2000, VALUES - 2000};
  float values[2000];
  struct step s;
  (void)state;
  step_new(&s, sum);
  for (int i = 0; i < 9; i++) OK(run(&s, NULL));
  OK(sl__tensor_split(sum, 2, rows));
  int before = tasks;
  OK(sl__axpy(context, &on_cpu, 1, &sum->views[0], copy));
  assert_int_equal(tasks - before, on_gpu() ? 2 : 1);
  OK(sl__tensor_read(copy, values));
  for (int i = 0; i < 2000; i++) assert_int_equal((int)values[i], 9);
  step_free(&s);
  sl__tensor_free(sum);
  sl__tensor_free(copy);
}

/* A link that runs holds its tensors on the GPU. A view that is made meanwhile is not held: StarPU
 * would copy to the GPU what the CPU writes there, even when the memory is freed. */
static void new_views_are_not_held(void **state) {
  struct sl__tensor *sum;
  const struct sl__launch on_cpu = {.name = "cpu", .place = {STARPU_CPU, 0}};
  const int64_t rows[] = {2000, VALUES - 2000};
  int is_allocated = 0, is_valid = 0, is_requested = 0;
  (void)state;
  if (!on_gpu()) skip();
  unsigned node = starpu_worker_get_memory_node((unsigned)plain.place.worker - 1);
  sum = filled(0);
  starpu_data_set_wt_mask(sum->handle, 1u << node);
  OK(sl__tensor_split(sum, 2, rows));
  starpu_data_set_wt_mask(sum->handle, 0);
  OK(sl__fill(context, &on_cpu, &sum->views[0], 3));
  OK(sl__wait_for_all(context));
  starpu_data_query_status(sum->views[0].handle, (int)node, &is_allocated, &is_valid,
                           &is_requested);
  assert_false(is_allocated || is_valid || is_requested);
  sl__tensor_free(sum);
}

/* StarPU has one order of a worker's tasks, which two contexts cannot share. */
static void a_second_context_has_no_chains(void **state) {
  const char *device = getenv("SL_TEST_DEVICE");
  struct sl_context *second;
  (void)state;
  OK(sl_open(&(struct sl_context_options){.devices = device ? device : "cpu:0"}, &second));
  assert_false(second->may_chain);
  if (on_gpu()) assert_true(context->may_chain);
  sl_close(second);
}

/* A rate that stays the same is recorded with the update; one that changes is followed. */
static enum sl_status descend(struct sl__tensor *param, struct sl__tensor *gradient) {
  const struct sl__update update = {.lr = 9, .step = 1};
  struct sl__tensor *gradients[] = {gradient};
  return sl__update(context, &sl__op_sgd, &plain, param, NULL, 1, gradients, NULL, &update);
}

static void rates_are_those_of_the_step(void **state) {
  struct sl__tensor *param = filled(0), *gradient = filled(-1);
  const int rates[] = {2, 2, 2, 2, 2, 3, 3, 3, 2, 2, 1, 4};
  struct sl__graph *graph;
  int sum = 0;
  (void)state;
  OK(sl__graph_new(context, &sl__op_subgraph, &sl__op_helper, &graph));
  sl__graph_join_slices(graph, 50);
  sl__graph_capture(graph);
  OK(sl__graph_compile(graph, descend(param, gradient)));
  for (int i = 0; i < (int)(sizeof rates / sizeof *rates); i++) {
    const struct sl__step_record record = {.number = i, .lr = (float)rates[i]};
    OK(sl__graph_submit(graph, &(struct sl__graph_run){.step = &record}));
    sum += rates[i];
  }
  assert_int_equal(value_of(param), sum);
  starpu_task_wait_for_all();
  sl__graph_free(graph);
  sl__tensor_free(param);
  sl__tensor_free(gradient);
}

static int open_device(void **state) {
  const char *device = getenv("SL_TEST_DEVICE");
  (void)state;
  if (open_context_with(&(struct sl_context_options){.devices = device ? device : "cpu:0"}))
    return 1;
  plain.place = context->devices[0].place;
  return task_count_begin(context, &tasks) != SL_OK;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(readers_see_all_runs),
      cmocka_unit_test(others_come_in_their_turn),
      cmocka_unit_test(chains_settle_each_other),
      cmocka_unit_test(tensors_and_graphs_go_unsettled),
      cmocka_unit_test(another_thread_reads),
      cmocka_unit_test(views_are_in_no_chain),
      cmocka_unit_test(rates_are_those_of_the_step),
      cmocka_unit_test(a_later_view_sees_all_runs),
      cmocka_unit_test(new_views_are_not_held),
      cmocka_unit_test(a_second_context_has_no_chains),
  };
  return cmocka_run_group_tests(tests, open_device, close_context);
}
