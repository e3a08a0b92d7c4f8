/* Branches of a step's only task (core/graph/graph_branches.c): workers run the calls of different
 * replicas, and then updates, at the same time, with the bits of single tasks; also where a call
 * follows two branches, where updates are of views of a tensor that the replicas read, where one
 * worker has to do all, and where runs queue up. A worker that helps stays for the next run, unless
 * there are other tasks. */
#include "tests/common/check.h"
#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/graph/graph.h"
#include "core/runtime/wait.h"

enum { REPLICAS = 3, PARTS = 3, ROWS = 8, CHANNELS = 10, SIDE = 7, CLASSES = 5, RUNS = 60 };

/* A convolution, relu and a dense layer; its output is its gradient. After the updates comes a
 * large tensor, whose memory others had before. */
struct training {
  int replicas;
  int parts;    /* of the dense layer's parameters: views that are updated one by one */
  bool crosses; /* each replica reads the relu of the one before it */
  struct sl__tensor *x[REPLICAS], *z[REPLICAS], *t[REPLICAS], *y[REPLICAS], *dt[REPLICAS];
  struct sl__tensor *filter_grad[REPLICAS], *grad[REPLICAS];
  struct sl__tensor *filter, *param, *filter_state[2], *state[PARTS][2];
  struct sl__tensor *large, *kept;
};

static struct sl__tensor *temporary(struct sl_shape shape) {
  struct sl__tensor *t;
  OK(sl__tensor_temporary(context, &shape, SL_F32, &t));
  return t;
}

static struct sl_shape filter_shape(void) { return SL_SHAPE(CHANNELS * (3 * 9 + 1)); }

static struct sl_shape param_shape(void) {
  return SL_SHAPE(CLASSES * (CHANNELS * SIDE * SIDE + 1));
}

static int64_t part_length(const struct training *t, int part) {
  const struct sl_shape shape = param_shape();
  int64_t all = sl_shape_count(&shape), each = all / t->parts + 1;
  return part + 1 < t->parts ? each : all - part * each;
}

static struct sl__tensor *part_of(struct sl__tensor *whole, int part) {
  return whole->view_count ? &whole->views[part] : whole;
}

static void split(const struct training *t, struct sl__tensor *whole) {
  int64_t lengths[PARTS];
  for (int p = 0; p < t->parts; p++) lengths[p] = part_length(t, p);
  if (t->parts > 1) OK(sl__tensor_split(whole, t->parts, lengths));
}

static void make(struct training *t) {
  const struct sl_shape inner = SL_SHAPE(ROWS, CHANNELS, SIDE, SIDE);
  for (int r = 0; r < t->replicas; r++) {
    t->x[r] = random_tensor(SL_SHAPE(ROWS, 3, SIDE, SIDE), 1 + (uint64_t)r);
    t->z[r] = temporary(inner);
    t->t[r] = temporary(inner);
    t->dt[r] = temporary(inner);
    t->y[r] = temporary(SL_SHAPE(ROWS, CLASSES));
    t->filter_grad[r] = temporary(filter_shape());
    t->grad[r] = t->parts > 1 ? tensor(param_shape(), NULL) : temporary(param_shape());
    split(t, t->grad[r]);
  }
  t->large = temporary(SL_SHAPE(5 * ROWS, CHANNELS, SIDE, SIDE));
  t->kept = temporary(SL_SHAPE(5 * ROWS, CHANNELS, SIDE, SIDE));
  t->filter = random_tensor(filter_shape(), 10);
  t->param = random_tensor(param_shape(), 11);
  split(t, t->param);
  for (int k = 0; k < sl__update_states(&sl__op_sgd_momentum); k++) {
    t->filter_state[k] = tensor(filter_shape(), NULL);
    for (int p = 0; p < t->parts; p++) t->state[p][k] = tensor(SL_SHAPE(part_length(t, p)), NULL);
  }
}

static void drop(struct training *t) {
  OK(sl__wait_for_all(context));
  for (int r = 0; r < t->replicas; r++) {
    struct sl__tensor *const all[] = {t->x[r],  t->z[r],           t->t[r],   t->y[r],
                                      t->dt[r], t->filter_grad[r], t->grad[r]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) sl__tensor_free(all[i]);
  }
  sl__tensor_free(t->large);
  sl__tensor_free(t->kept);
  sl__tensor_free(t->filter);
  sl__tensor_free(t->param);
  for (int k = 0; k < sl__update_states(&sl__op_sgd_momentum); k++) {
    sl__tensor_free(t->filter_state[k]);
    for (int p = 0; p < t->parts; p++) sl__tensor_free(t->state[p][k]);
  }
}

/* ---- a step ---- */

static enum sl_status passes(struct training *t, int r) {
  const struct sl__launch l = {
      .name = "test", .place = {.where = STARPU_CPU}, .mark = {.replica = 1 + r}};
  const struct sl__conv2d conv = three_by_three(CHANNELS, true);
  struct sl__tensor *from = t->t[t->crosses && r ? r - 1 : r];
  enum sl_status status;
  SL__TRY(sl__conv2d_forward(context, &l, t->x[r], t->filter, t->z[r], &conv));
  SL__TRY(sl__activation_forward(context, &l, t->z[r], t->t[r], SL_ACTIVATION_RELU));
  SL__TRY(sl__dense_forward(context, &l, from, t->param, t->y[r], true, SL_ACTIVATION_NONE));
  SL__TRY(sl__dense_backward_data(context, &l, t->y[r], t->param, t->dt[r]));
  SL__TRY(sl__dense_backward_weight(context, &l, from, t->y[r], t->grad[r], true));
  SL__TRY(sl__conv2d_backward_weight(context, &l, t->x[r], t->dt[r], t->filter_grad[r], &conv));
out:
  return status;
}

static enum sl_status step(struct training *t) {
  const struct sl__launch l = {.name = "test", .place = {.where = STARPU_CPU}};
  const struct sl__update update = {.lr = 1e-6f, .momentum = 0.9f, .step = 1};
  struct sl__op *op = &sl__op_sgd_momentum;
  enum sl_status status = SL_OK;
  for (int r = 0; r < t->replicas; r++) SL__TRY(passes(t, r));
  SL__TRY(sl__update(context, op, &l, t->filter, t->filter_state, t->replicas, t->filter_grad, NULL,
                     &update));
  for (int p = 0; p < t->parts; p++) {
    struct sl__tensor *terms[REPLICAS];
    for (int r = 0; r < t->replicas; r++) terms[r] = part_of(t->grad[r], p);
    SL__TRY(sl__update(context, op, &l, part_of(t->param, p), t->state[p], t->replicas, terms, NULL,
                       &update));
  }
  SL__TRY(sl__fill(context, &l, t->large, 0.5f));
  SL__TRY(sl__activation_forward(context, &l, t->large, t->kept, SL_ACTIVATION_TANH));
out:
  return status;
}

struct weights {
  float filter[CHANNELS * (3 * 9 + 1)], param[CLASSES * (CHANNELS * SIDE * SIDE + 1)];
};

static void run_eager(struct training *t, struct weights *w) {
  make(t);
  for (int i = 0; i < RUNS; i++) OK(step(t));
  OK(sl__tensor_read(t->filter, w->filter));
  OK(sl__tensor_read(t->param, w->param));
  drop(t);
}

static void run_captured(struct training *t, int cores, struct weights *w) {
  const struct sl__step_record record = {.lr = 1e-6f};
  struct sl__graph *graph;
  make(t);
  OK(sl__graph_new(context, &sl__op_subgraph, &sl__op_helper, &graph));
  sl__graph_join_slices(graph, 1e6);
  sl__graph_cores(graph, cores);
  OK(sl__graph_keep(graph, t->kept));
  sl__graph_capture(graph);
  OK(sl__graph_compile(graph, step(t)));
  if (t->parts == 1 || (cores > 1 && t->replicas > 1 && !t->crosses)) {
    assert_int_equal(sl__graph_tasks(graph), 1);
    assert_int_equal(sl__graph_members(graph), cores);
  } else {
    assert_true(sl__graph_tasks(graph) > 1); /* StarPU's tasks do not mix views and wholes */
  }
  for (int i = 0; i < RUNS; i++) {
    OK(sl__graph_submit(graph, &(struct sl__graph_run){.step = &record}));
    if (i % 16 == 0) OK(sl__wait_for_all(context)); /* helpers stop, and are asked again */
  }
  OK(sl__tensor_read(t->filter, w->filter));
  OK(sl__tensor_read(t->param, w->param));
  OK(sl__wait_for_all(context));
  sl__graph_free(graph);
  drop(t);
}

static void branches_give_the_same_bits(void **state) {
  (void)state;
  for (int i = 0; i < 2 * REPLICAS * 2 * 2; i++) {
    int cores = 1 + i / (2 * REPLICAS * 2);
    struct training t = {
        .replicas = 1 + i % REPLICAS, .crosses = i / REPLICAS % 2, .parts = i / 6 % 2 ? PARTS : 1};
    struct weights want, got;
    run_eager(&t, &want);
    assert_true(isfinite(want.param[0]) && want.param[0] != 0);
    run_captured(&t, cores, &got);
    assert_memory_equal(want.filter, got.filter, sizeof got.filter);
    assert_memory_equal(want.param, got.param, sizeof got.param);
  }
}

/* ---- views and whole tensors ---- */

/* Replicas read all of a tensor, then one of its views moves, which is more work. */
struct reading {
  struct sl__tensor *all, *gradient, *square[2];
};

static enum sl_status read_and_move(struct reading *t) {
  const struct sl__launch l = {.name = "test", .place = {.where = STARPU_CPU}};
  const struct sl__update update = {.lr = 1, .step = 1};
  enum sl_status status = SL_OK;
  for (int r = 0; r < 2 && status == SL_OK; r++) {
    struct sl__launch own = l;
    own.mark.replica = 1 + r;
    status = sl__square_sum(context, &own, t->all, t->square[r]);
  }
  if (status == SL_OK)
    status = sl__update(context, &sl__op_sgd, &l, &t->all->views[0], NULL, 1, &t->gradient, NULL,
                        &update);
  return status;
}

static void run_reading(bool captured, float *squares) {
  const struct sl__step_record record = {.lr = 1};
  const int64_t lengths[] = {60000, 4};
  struct reading t = {.all = random_tensor(SL_SHAPE(60004), 1),
                      .gradient = random_tensor(SL_SHAPE(60000), 2),
                      .square = {tensor(SL_SHAPE(1), NULL), tensor(SL_SHAPE(1), NULL)}};
  struct sl__graph *graph = NULL;
  OK(sl__tensor_split(t.all, 2, lengths));
  if (captured) {
    OK(sl__graph_new(context, &sl__op_subgraph, &sl__op_helper, &graph));
    sl__graph_join_slices(graph, 1e6);
    sl__graph_capture(graph);
    OK(sl__graph_compile(graph, read_and_move(&t)));
    assert_int_equal(sl__graph_tasks(graph), 1);
    assert_int_equal(sl__graph_members(graph), 2);
  }
  for (int i = 0; i < RUNS; i++)
    OK(captured ? sl__graph_submit(graph, &(struct sl__graph_run){.step = &record})
                : read_and_move(&t));
  for (int r = 0; r < 2; r++) OK(sl__tensor_read(t.square[r], &squares[r]));
  OK(sl__wait_for_all(context));
  if (captured) sl__graph_free(graph);
  for (int r = 0; r < 2; r++) sl__tensor_free(t.square[r]);
  sl__tensor_free(t.gradient);
  sl__tensor_free(t.all);
}

static void a_view_moves_after_the_whole_was_read(void **state) {
  (void)state;
  float want[2], got[2];
  run_reading(false, want);
  assert_true(want[0] > 0 && isfinite(want[0]));
  run_reading(true, got);
  assert_memory_equal(want, got, sizeof got);
}

/* ---- which steps are one task ---- */

/* 2,000 us by the estimate. */
static void write_nothing(void *buffers[], void *cl_arg) { (void)buffers, (void)cl_arg; }

static struct sl__op long_call = {
    .codelet = {.name = "long_call", .cpu_funcs = {write_nothing}, .nbuffers = 1}, .modes = "w"};

static struct sl__op adding_call = {
    .codelet = {.name = "adding_call", .cpu_funcs = {write_nothing}, .nbuffers = 1}, .modes = "m"};

static struct sl__op reading_update = {
    .codelet = {.name = "reading_update", .cpu_funcs = {write_nothing}, .nbuffers = 2},
    .modes = "mr",
    .updates = true};

/* The calls behind the replicas: none; one of each replica on the same tensor; one beside them, and
 * an update that reads its output. */
enum link { NO_LINK, SHARED_SUM, NORM };

static enum sl_status submit_link(enum link link, struct sl__place place, struct sl__tensor *sum,
                                  struct sl__tensor *param) {
  struct sl__launch l = {.name = "test", .place = place};
  enum sl_status status = SL_OK;
  for (int r = 0; r < 2 && status == SL_OK && link == SHARED_SUM; r++) {
    l.mark.replica = 1 + r;
    status = sl__submit(context, &adding_call, &l, 1, &sum, NULL, 0, 1, 0);
  }
  if (link == NORM) status = sl__submit(context, &long_call, &l, 1, &sum, NULL, 0, 1, 0);
  if (status == SL_OK && link == NORM)
    status = sl__submit(context, &reading_update, &l, 2, (struct sl__tensor *[]){param, sum}, NULL,
                        0, 1, 0);
  return status;
}

static int tasks_with(int replicas, int calls, struct sl__place place, enum link link) {
  struct sl__tensor *y[REPLICAS], *sum = tensor(SL_SHAPE(8), NULL),
                                  *param = tensor(SL_SHAPE(8), NULL);
  struct sl__graph *graph;
  enum sl_status status = SL_OK;
  for (int r = 0; r < replicas; r++) y[r] = temporary(SL_SHAPE(8));
  OK(sl__graph_new(context, &sl__op_subgraph, &sl__op_helper, &graph));
  sl__graph_join_slices(graph, 50);
  for (int r = 0; r < replicas; r++) OK(sl__graph_keep(graph, y[r]));
  sl__graph_capture(graph);
  for (int i = 0; i < replicas * calls && status == SL_OK; i++) {
    const struct sl__launch l = {
        .name = "test", .place = place, .mark = {.replica = 1 + i % replicas}};
    status = sl__submit(context, &long_call, &l, 1, &y[i % replicas], NULL, 0, 1e8, 0);
  }
  if (status == SL_OK) status = submit_link(link, place, sum, param);
  OK(sl__graph_compile(graph, status));
  int tasks = sl__graph_tasks(graph);
  sl__graph_free(graph);
  for (int r = 0; r < replicas; r++) sl__tensor_free(y[r]);
  sl__tensor_free(sum), sl__tensor_free(param);
  return tasks;
}

static int tasks_of(int replicas, int calls, struct sl__place place) {
  return tasks_with(replicas, calls, place, NO_LINK);
}

/* Of some milliseconds, with a replica for each worker, at no certain place. */
static void a_team_does_steps_of_milliseconds(void **state) {
  (void)state;
  const struct sl__place cpus = {.where = STARPU_CPU}, first = {.where = STARPU_CPU, .worker = 1};
  assert_int_equal(tasks_of(2, 4, cpus), 1);
  assert_int_equal(tasks_of(3, 3, cpus), 1);
  assert_int_equal(tasks_of(1, 4, cpus), 4);
  assert_int_equal(tasks_of(2, 4, first), 8);
  assert_int_equal(tasks_of(2, 6, cpus), 12); /* 24 ms */
  assert_true(tasks_with(2, 4, cpus, SHARED_SUM) > 8);
  assert_true(tasks_with(2, 4, cpus, NORM) > 8);
  setenv("STARPU_LIMIT_CPU_MEM", "1000", 1);
  assert_int_equal(tasks_of(2, 4, cpus), 8);
  unsetenv("STARPU_LIMIT_CPU_MEM");
  setenv("STARPU_SCHED", "lws", 1);
  assert_int_equal(tasks_of(2, 4, cpus), 8);
  unsetenv("STARPU_SCHED");
}

/* ---- who runs them ---- */

enum { MOST_KERNELS = 4000 };
static int kernels, worker_of[MOST_KERNELS]; /* the kernels that have begun, and their workers */

static void note_worker(void) {
  int kernel = __atomic_fetch_add(&kernels, 1, __ATOMIC_RELAXED);
  assert_true(kernel < MOST_KERNELS);
  __atomic_store_n(&worker_of[kernel], 1 + starpu_worker_get_id(), __ATOMIC_RELEASE);
}

/* Long enough for the other worker to come. */
static void take_1_ms(void *buffers[], void *cl_arg) {
  (void)buffers, (void)cl_arg;
  note_worker();
  usleep(1000);
}

static void take_25_ms(void *buffers[], void *cl_arg) {
  (void)buffers, (void)cl_arg;
  note_worker();
  for (double end = sl__microseconds() + 25000; sl__microseconds() < end;) continue;
}

static struct sl__op short_note = {.codelet = {.name = "short_note", .cpu_funcs = {take_1_ms}},
                                   .modes = "W"};
static struct sl__op long_note = {.codelet = {.name = "long_note", .cpu_funcs = {take_25_ms}},
                                  .modes = "W"};

/* A step of two branches, each of which is one call. */
struct two_notes {
  struct sl__tensor *y[2];
  struct sl__graph *graph;
};

static enum sl_status note_twice(struct sl__op *op, struct sl__tensor *const *y) {
  enum sl_status status = SL_OK;
  for (int r = 0; r < 2 && status == SL_OK; r++) {
    const struct sl__launch l = {
        .name = "test", .place = {.where = STARPU_CPU}, .mark = {.replica = 1 + r}};
    status = sl__submit(context, op, &l, 1, &y[r], NULL, 0, 1e6, 0);
  }
  return status;
}

static struct two_notes two_notes_of(struct sl__op *op) {
  struct two_notes t = {.y = {temporary(SL_SHAPE(8)), temporary(SL_SHAPE(8))}};
  OK(sl__graph_new(context, &sl__op_subgraph, &sl__op_helper, &t.graph));
  sl__graph_join_slices(t.graph, 1e6);
  for (int r = 0; r < 2; r++) OK(sl__graph_keep(t.graph, t.y[r]));
  sl__graph_capture(t.graph);
  OK(sl__graph_compile(t.graph, note_twice(op, t.y)));
  kernels = 0;
  memset(worker_of, 0, sizeof worker_of);
  return t;
}

static void two_notes_free(struct two_notes *t) {
  OK(sl__wait_for_all(context));
  sl__graph_free(t->graph);
  for (int r = 0; r < 2; r++) sl__tensor_free(t->y[r]);
}

static void run(const struct two_notes *t) {
  const struct sl__step_record record = {0};
  OK(sl__graph_submit(t->graph, &(struct sl__graph_run){.step = &record}));
}

static void await_kernels(int count) {
  while (__atomic_load_n(&kernels, __ATOMIC_RELAXED) < count ||
         !__atomic_load_n(&worker_of[count - 1], __ATOMIC_ACQUIRE))
    usleep(100);
}

/* Had the two kernels of that run two workers? */
static bool was_shared(int run) { return worker_of[2 * run] != worker_of[2 * run + 1]; }

static void a_second_worker_comes(void **state) {
  (void)state;
  struct two_notes t = two_notes_of(&short_note);
  int runs = 0;
  do {
    run(&t);
    OK(sl__wait_for_all(context));
  } while (!was_shared(runs++) && runs < MOST_KERNELS / 2);
  assert_true(was_shared(runs - 1));
  assert_int_equal(kernels, 2 * runs);
  two_notes_free(&t);
}

/* The second of two runs is submitted while both workers do the first, so no worker is asked by a
 * task. */
static void a_helper_stays_for_the_next_run(void **state) {
  (void)state;
  struct two_notes t = two_notes_of(&long_note);
  bool stayed = false;
  for (int i = 0; i < 100 && !stayed; i += 2) {
    run(&t);
    await_kernels(2 * i + 2);
    run(&t);
    OK(sl__wait_for_all(context));
    stayed = was_shared(i) && was_shared(i + 1);
  }
  assert_true(stayed);
  two_notes_free(&t);
}

static int tasks_done;

static void count_task(void *buffers[], void *cl_arg) {
  (void)buffers, (void)cl_arg;
  __atomic_fetch_add(&tasks_done, 1, __ATOMIC_RELAXED);
}

static struct sl__op counted_task = {.codelet = {.name = "counted", .cpu_funcs = {count_task}},
                                     .modes = "W"};

/* A task for each worker, while runs are always waiting; returns the runs until both have ended. A
 * helper makes way after 20 ms, which are at most 20 runs. */
static int runs_until_tasks_end(void) {
  const int ahead = 4;
  struct two_notes t = two_notes_of(&short_note);
  struct sl__tensor *y[] = {temporary(SL_SHAPE(8)), temporary(SL_SHAPE(8))};
  int runs = 0;
  tasks_done = 0;
  for (; runs < ahead; runs++) run(&t);
  await_kernels(ahead);
  for (int w = 0; w < 2; w++) {
    int worker = starpu_worker_get_by_type(STARPU_CPU_WORKER, w);
    const struct sl__launch l = {.name = "test",
                                 .place = {.where = STARPU_CPU, .worker = 1 + worker}};
    OK(sl__submit(context, &counted_task, &l, 1, &y[w], NULL, 0, 0, 0));
  }
  for (; runs < MOST_KERNELS / 2 && __atomic_load_n(&tasks_done, __ATOMIC_RELAXED) < 2; runs++) {
    await_kernels(2 * (runs - ahead) + 2);
    run(&t);
  }
  two_notes_free(&t);
  for (int w = 0; w < 2; w++) sl__tensor_free(y[w]);
  return runs;
}

static void a_helper_makes_way_for_tasks(void **state) {
  (void)state;
  for (int i = 0; i < 5; i++) assert_in_range(runs_until_tasks_end(), 1, 100);
}

int main(void) {
  setenv("STARPU_NCPU", "2", 1);
  setenv("STARPU_SILENT", "1", 0);
  unsetenv("STARPU_SCHED");
  const struct CMUnitTest tests[] = {cmocka_unit_test(branches_give_the_same_bits),
                                     cmocka_unit_test(a_view_moves_after_the_whole_was_read),
                                     cmocka_unit_test(a_team_does_steps_of_milliseconds),
                                     cmocka_unit_test(a_second_worker_comes),
                                     cmocka_unit_test(a_helper_stays_for_the_next_run),
                                     cmocka_unit_test(a_helper_makes_way_for_tasks)};
  return cmocka_run_group_tests_name("graph_branches", tests, open_context, close_context);
}
