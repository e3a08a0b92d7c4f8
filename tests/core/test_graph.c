/* Captured graphs (core/graph/graph.h): calls that are captured once and run as one task a device
 * give the bits of the same calls that are submitted one by one, although internal tensors share
 * the worker's memory. If SL_TEST_DEVICE names a device ("cuda:0"), it is the first of the two. */
#include "tests/common/check.h"
#include "codelets/kernels/winograd.h"
#include "core/graph/helper.h"
#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/graph/weight_cache.h"
#include "core/graph/graph.h"
#include "core/graph/team.h"
#include "core/runtime/wait.h"

enum { N = 6, WIDTH = 40 };

static const struct sl__graph_run once = {0};

static struct sl__tensor *temporary(void) {
  struct sl__tensor *t;
  OK(sl__tensor_temporary(context, &SL_SHAPE(N, WIDTH), SL_F32, &t));
  return t;
}

static struct sl__launch on(int device) {
  return (struct sl__launch){.name = "test", .place = context->devices[device].place};
}

struct chain {
  struct sl__tensor *x, *t[5], *result;
};

static void chain_new(struct chain *c) {
  double *values = random_values(N * WIDTH, 3);
  *c = (struct chain){.x = tensor(SL_SHAPE(N, WIDTH), values), .result = temporary()};
  for (int i = 0; i < 5; i++) c->t[i] = temporary();
  free(values);
}

static void chain_free(struct chain *c) {
  sl__tensor_free(c->x);
  sl__tensor_free(c->result);
  for (int i = 0; i < 5; i++) sl__tensor_free(c->t[i]);
}

/* result = sigmoid(t + relu(t)) + x, t = tanh(x): a branch, and an input that is read twice. The
 * middle is on a device of its own. */
static enum sl_status chain_calls(const struct chain *c, int middle) {
  struct sl__launch first = on(0), second = on(middle);
  struct sl__tensor *const *t = c->t;
  enum sl_status status;
  SL__TRY(sl__activation_forward(context, &first, c->x, t[0], SL_ACTIVATION_TANH));
  SL__TRY(sl__activation_forward(context, &second, t[0], t[1], SL_ACTIVATION_RELU));
  SL__TRY(sl__add(context, &second, t[0], t[1], t[2], false));
  sl__tensor_invalidate(t[0]);
  sl__tensor_invalidate(t[1]);
  SL__TRY(sl__activation_forward(context, &first, t[2], t[3], SL_ACTIVATION_SIGMOID));
  SL__TRY(sl__add(context, &first, t[3], c->x, c->result, false));
out:
  return status;
}

static void expect(struct sl__tensor *result, float *want) {
  float got[N * WIDTH];
  OK(sl__tensor_read(result, got));
  assert_memory_equal(got, want, sizeof got);
}

static struct sl__graph *compiled(const struct chain *c, int middle) {
  struct sl__graph *graph;
  OK(sl__graph_new(context, &sl__op_subgraph, &sl__op_helper, &graph));
  sl__graph_capture(graph);
  OK(sl__graph_bind(graph, c->result));
  OK(sl__graph_compile(graph, chain_calls(c, middle)));
  return graph;
}

static void a_task_a_device(void **state) {
  (void)state;
  float want[N * WIDTH];
  for (int middle = 0; middle < 2; middle++) {
    struct chain c;
    chain_new(&c);
    OK(chain_calls(&c, middle));
    OK(sl__tensor_read(c.result, want));
    sl__tensor_invalidate(c.result);
    struct sl__graph *graph = compiled(&c, middle);
    assert_int_equal(sl__graph_tasks(graph), middle ? 3 : 1);
    for (int again = 0; again < 20; again++) {
      OK(sl__graph_submit(graph, &once));
      expect(c.result, want);
      sl__tensor_invalidate(c.result);
    }
    sl__graph_free(graph);
    chain_free(&c);
  }
}

/* The result goes to another tensor than the compiled one. */
static void another_result(void **state) {
  (void)state;
  float want[N * WIDTH], got[N * WIDTH];
  struct chain c;
  struct sl__tensor *own;
  chain_new(&c);
  OK(chain_calls(&c, 0));
  OK(sl__tensor_read(c.result, want));
  struct sl__graph *graph = compiled(&c, 1);
  OK(sl__tensor_host(context, &SL_SHAPE(N, WIDTH), SL_F32, got, &own));
  for (int again = 0; again < 3; again++) {
    memset(got, 0xff, sizeof got);
    OK(sl__graph_submit(graph, &(struct sl__graph_run){.bound = &own}));
    expect(own, want);
  }
  sl__tensor_free(own);
  assert_memory_equal(got, want, sizeof got);
  sl__graph_free(graph);
  chain_free(&c);
}

/* Runs that write no common tensor may overlap, as those of an evaluation do. There are enough rows
 * for calls that alternate in slices. */
static enum sl_status tanh_of_relu(struct sl__tensor *x, struct sl__tensor *t,
                                   struct sl__tensor *y) {
  struct sl__launch launch = {.name = "test", .place = {.where = STARPU_CPU}};
  enum sl_status status = sl__activation_forward(context, &launch, x, t, SL_ACTIVATION_RELU);
  if (status != SL_OK) return status;
  return sl__activation_forward(context, &launch, t, y, SL_ACTIVATION_TANH);
}

static void runs_overlap(void **state) {
  (void)state;
  enum { RUNS = 4, TURNS = 20, ROWS = 600, COLUMNS = 400 };
  const struct sl_shape shape = SL_SHAPE(ROWS, COLUMNS);
  struct sl__tensor *x[RUNS], *y[RUNS], *t;
  struct sl__graph *graph;
  float *want[RUNS], *got = malloc(sizeof *got * ROWS * COLUMNS);
  OK(sl__tensor_temporary(context, &shape, SL_F32, &t));
  for (int i = 0; i < RUNS; i++) {
    x[i] = random_tensor(shape, 30 + (uint64_t)i);
    want[i] = malloc(sizeof *want[i] * ROWS * COLUMNS);
    OK(sl__tensor_temporary(context, &shape, SL_F32, &y[i]));
    OK(tanh_of_relu(x[i], t, y[i]));
    OK(sl__tensor_read(y[i], want[i]));
  }
  OK(sl__graph_new(context, &sl__op_subgraph, &sl__op_helper, &graph));
  sl__graph_join_slices(graph, 50);
  OK(sl__graph_bind(graph, x[0]));
  OK(sl__graph_bind(graph, y[0]));
  sl__graph_capture(graph);
  OK(sl__graph_compile(graph, tanh_of_relu(x[0], t, y[0])));
  assert_int_equal(sl__graph_tasks(graph), 1);
  for (int turn = 0; turn < TURNS; turn++) {
    for (int i = 0; i < RUNS; i++) {
      struct sl__tensor *bound[] = {x[i], y[i]};
      sl__tensor_invalidate(y[i]);
      OK(sl__graph_submit(graph, &(struct sl__graph_run){.bound = bound}));
    }
    for (int i = 0; i < RUNS; i++) {
      OK(sl__tensor_read(y[i], got));
      assert_memory_equal(got, want[i], sizeof *got * ROWS * COLUMNS);
    }
  }
  sl__graph_free(graph);
  sl__tensor_free(t);
  for (int i = 0; i < RUNS; i++) {
    sl__tensor_free(x[i]);
    sl__tensor_free(y[i]);
    free(want[i]);
  }
  free(got);
}

/* ---- calls in parts ---- */

enum { SIDE = 7 };

struct images {
  int channels; /* of all but x; from 16 on the second convolution is by sl__winograd_forward */
  struct sl__tensor *x, *filter, *second, *norm, *running, *index, *flat_param, *t[8], *result;
};

static const int channels[] = {10, 16};

static void images_new(struct images *m, int64_t rows, int c) {
  const struct sl_shape inner = SL_SHAPE(rows, c, SIDE, SIDE);
  const struct sl__conv_args second = {
      (int32_t)rows, c, SIDE, SIDE, c, SIDE, SIDE, 3, 3, 1, 1, 1, 1};
  assert_true(sl__winograd_serves(&second) == (c >= 16));
  *m = (struct images){.channels = c,
                       .x = random_tensor(SL_SHAPE(rows, 3, SIDE, SIDE), 1),
                       .filter = random_tensor(SL_SHAPE(c * (3 * 9 + 1)), 2),
                       .second = random_tensor(SL_SHAPE(c * c * 9), 4),
                       .norm = random_tensor(SL_SHAPE(2 * c), 3),
                       .flat_param = random_tensor(SL_SHAPE(5 * (c * 9 + 1)), 5)};
  double running[2 * 16];
  for (int i = 0; i < 2 * c; i++) running[i] = 0.25 + i / 16.0;
  m->running = tensor(SL_SHAPE(2 * c), running);
  for (int i = 0; i < 7; i++) OK(sl__tensor_temporary(context, &inner, SL_F32, &m->t[i]));
  const struct sl_shape small = SL_SHAPE(rows, c, 3, 3);
  OK(sl__tensor_temporary(context, &small, SL_F32, &m->t[7]));
  OK(sl__tensor_temporary(context, &small, SL_I32, &m->index));
  OK(sl__tensor_temporary(context, &SL_SHAPE(rows, 5), SL_F32, &m->result));
}

static void images_free(struct images *m) {
  struct sl__tensor *const all[] = {m->x,       m->filter, m->second,     m->norm,
                                    m->running, m->index,  m->flat_param, m->result};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) sl__tensor_free(all[i]);
  for (int i = 0; i < 8; i++) sl__tensor_free(m->t[i]);
}

/* A residual block, pooled and classified. */
static enum sl_status images_calls(const struct images *m, struct sl__place place) {
  const struct sl__conv2d conv = three_by_three(m->channels, true);
  struct sl__conv2d without_bias = conv;
  without_bias.has_bias = false;
  const struct sl__pool2d pool = {2, 2, 2, 2, 0, 0};
  struct sl__launch l = {.name = "test", .place = place};
  struct sl__tensor *const *t = m->t;
  enum sl_status status;
  SL__TRY(sl__conv2d_forward(context, &l, m->x, m->filter, t[0], &conv));
  SL__TRY(sl__batchnorm_inference(context, &l, t[0], m->norm, m->running, t[1], 1e-5f, false));
  SL__TRY(sl__activation_forward(context, &l, t[1], t[2], SL_ACTIVATION_RELU));
  SL__TRY(sl__conv2d_forward(context, &l, t[2], m->second, t[3], &without_bias));
  SL__TRY(sl__batchnorm_inference(context, &l, t[3], m->norm, m->running, t[4], 1e-3f, false));
  SL__TRY(sl__add(context, &l, t[2], t[4], t[5], false));
  SL__TRY(sl__activation_forward(context, &l, t[5], t[6], SL_ACTIVATION_TANH));
  SL__TRY(sl__maxpool2d_forward(context, &l, t[6], t[7], m->index, &pool));
  SL__TRY(sl__dense_forward(context, &l, t[7], m->flat_param, m->result, true, SL_ACTIVATION_NONE));
out:
  return status;
}

static void check_parts(int64_t rows, int c, int parts) {
  const struct sl__place cpu = {.where = STARPU_CPU};
  struct images m;
  struct sl__graph *graph;
  float want[7 * 5], got[7 * 5];
  images_new(&m, rows, c);
  OK(images_calls(&m, cpu));
  OK(sl__tensor_read(m.result, want));
  OK(sl__graph_new(context, &sl__op_subgraph, &sl__op_helper, &graph));
  sl__graph_cut(graph, parts);
  sl__graph_capture(graph);
  OK(sl__graph_bind(graph, m.result));
  OK(sl__graph_compile(graph, images_calls(&m, cpu)));
  for (int again = 0; again < (parts ? 2 : 50); again++) {
    memset(got, 0xff, sizeof got);
    OK(sl__graph_submit_to_all(graph, &once));
    OK(sl__tensor_read(m.result, got));
    assert_memory_equal(got, want, (size_t)rows * 5 * sizeof *got);
  }
  sl__graph_free(graph);
  images_free(&m);
}

/* For any number of parts and workers, the bits are those of the calls one by one. */
static void parts_give_the_same_bits(void **state) {
  (void)state;
  for (int c = 0; c < 2; c++)
    for (int64_t rows = 1; rows <= 7; rows += rows < 3 ? 1 : 4)
      for (int parts = 0; parts <= 5; parts++) check_parts(rows, channels[c], parts);
}

/* ---- tensors within a fusion group ---- */

enum { POOLED = 4 };

struct pooled {
  struct sl__tensor *x, *t[3], *result;
};

/* result = t0 + mean(mean(t0)), t0 = tanh(x): each mean reads neighbours of the place that it
 * writes, and t0 is needed to the end. So no two of the tensors may share memory. */
static enum sl_status pooled_calls(const struct pooled *p) {
  const struct sl__launch l = {.name = "test", .place = {.where = STARPU_CPU}};
  const struct sl__pool2d mean = {3, 3, 1, 1, 1, 1};
  enum sl_status status;
  SL__TRY(sl__activation_forward(context, &l, p->x, p->t[0], SL_ACTIVATION_TANH));
  SL__TRY(sl__avgpool2d_forward(context, &l, p->t[0], p->t[1], &mean));
  SL__TRY(sl__avgpool2d_forward(context, &l, p->t[1], p->t[2], &mean));
  SL__TRY(sl__add(context, &l, p->t[0], p->t[2], p->result, false));
out:
  return status;
}

static void check_pooled(int64_t rows, int parts) {
  const struct sl_shape shape = SL_SHAPE(rows, POOLED, SIDE, SIDE);
  struct pooled p = {.x = random_tensor(shape, 1)};
  struct sl__graph *graph;
  float want[7 * POOLED * SIDE * SIDE], got[7 * POOLED * SIDE * SIDE];
  for (int i = 0; i < 3; i++) OK(sl__tensor_temporary(context, &shape, SL_F32, &p.t[i]));
  OK(sl__tensor_temporary(context, &shape, SL_F32, &p.result));
  OK(pooled_calls(&p));
  OK(sl__tensor_read(p.result, want));
  OK(sl__graph_new(context, &sl__op_subgraph, &sl__op_helper, &graph));
  sl__graph_cut(graph, parts);
  sl__graph_capture(graph);
  OK(sl__graph_bind(graph, p.result));
  OK(sl__graph_compile(graph, pooled_calls(&p)));
  for (int again = 0; again < 3; again++) {
    OK(sl__graph_submit_to_all(graph, &once));
    OK(sl__tensor_read(p.result, got));
    assert_memory_equal(got, want, (size_t)sl_shape_count(&shape) * sizeof *got);
  }
  sl__graph_free(graph);
  sl__tensor_free(p.x);
  for (int i = 0; i < 3; i++) sl__tensor_free(p.t[i]);
  sl__tensor_free(p.result);
}

/* In one slice and in several, by one member and by several. */
static void local_tensors_keep_their_values(void **state) {
  (void)state;
  for (int64_t rows = 1; rows <= 7; rows += 2)
    for (int parts = 0; parts <= 3; parts++) check_pooled(rows, parts);
}

/* A convolution would take over the activation, but its own output is read once more. */
static enum sl_status read_twice_calls(const struct images *m) {
  const struct sl__launch l = {.name = "test", .place = {.where = STARPU_CPU}};
  const struct sl__conv2d conv = three_by_three(m->channels, true);
  enum sl_status status;
  SL__TRY(sl__conv2d_forward(context, &l, m->x, m->filter, m->t[0], &conv));
  SL__TRY(sl__activation_forward(context, &l, m->t[0], m->t[1], SL_ACTIVATION_RELU));
  SL__TRY(sl__add(context, &l, m->t[1], m->t[0], m->t[2], false));
out:
  return status;
}

static void outputs_that_are_read_twice_stay(void **state) {
  static float want[2 * 16 * SIDE * SIDE], got[2 * 16 * SIDE * SIDE];
  struct images m;
  struct sl__graph *graph;
  (void)state;
  images_new(&m, 2, channels[0]);
  size_t bytes = m.t[2]->bytes;
  OK(read_twice_calls(&m));
  OK(sl__tensor_read(m.t[2], want));
  OK(sl__graph_new(context, &sl__op_subgraph, &sl__op_helper, &graph));
  sl__graph_capture(graph);
  OK(sl__graph_bind(graph, m.t[2]));
  OK(sl__graph_compile(graph, read_twice_calls(&m)));
  OK(sl__graph_submit(graph, &once));
  OK(sl__tensor_read(m.t[2], got));
  assert_memory_equal(got, want, bytes);
  sl__graph_free(graph);
  images_free(&m);
}

struct counted {
  struct sl__inbox_message message; /* first */
  int member, runs;
};

static void count_run(struct sl__inbox_message *message, int member) {
  struct counted *c = (struct counted *)message;
  if (member == c->member) __atomic_fetch_add(&c->runs, 1, __ATOMIC_RELEASE);
}

/* Sends each worker a message, for as long as a worker may poll; returns how many were taken. */
static int give_messages(struct counted *messages, int members) {
  int given = 0;
  for (double until = sl__microseconds() + 300; !given && sl__microseconds() < until;)
    for (int m = 0; m < members; m++) given += sl__inbox_put(context, m, &messages[m].message);
  return given;
}

/* A worker that has helped keeps polling, and runs a message once; later it takes none. */
static void a_polling_helper_runs_messages(void **state) {
  const struct sl__place cpu = {.where = STARPU_CPU};
  struct counted messages[SL__TEAM_MOST] = {0};
  float got[5];
  struct images m;
  struct sl__graph *graph;
  int members = (int)starpu_cpu_worker_get_count(), given = 0, runs = 0;
  (void)state;
  if (members < 2) skip();
  if (members > SL__TEAM_MOST) members = SL__TEAM_MOST;
  for (int i = 0; i < members; i++)
    messages[i] = (struct counted){.message = {count_run}, .member = i};
  images_new(&m, 1, channels[1]);
  OK(sl__graph_new(context, &sl__op_subgraph, &sl__op_helper, &graph));
  sl__graph_capture(graph);
  OK(sl__graph_bind(graph, m.result));
  OK(sl__graph_compile(graph, images_calls(&m, cpu)));
  for (int again = 0; again < 5000 && given < 10; again++) {
    OK(sl__graph_submit_to_all(graph, &once));
    OK(sl__tensor_read(m.result, got));
    given += give_messages(messages, members);
  }
  sl__graph_free(graph);
  OK(sl__wait_for_all(context)); /* the helpers' tasks, too */
  for (int i = 0; i < members; i++) runs += messages[i].runs;
  assert_true(given >= 10);
  assert_int_equal(runs, given);
  assert_int_equal(give_messages(messages, members), 0);
  images_free(&m);
}

/* A plain copy of a tensor in the weight cache. */
static struct sl__weight_cache_item plain_item(struct sl__tensor *t) {
  return (struct sl__weight_cache_item){.tensor = t, .bytes = t->bytes};
}

static enum sl_status add_plain(struct sl__weight_cache *cache, struct sl__tensor *t) {
  const struct sl__weight_cache_item item = plain_item(t);
  return sl__weight_cache_add(cache, &item);
}

static int64_t plain_offset(const struct sl__weight_cache *cache, struct sl__tensor *t) {
  const struct sl__weight_cache_item item = plain_item(t);
  return sl__weight_cache_offset(cache, &item);
}

/* A graph of the calls whose parameters come from the weight cache. */
static struct sl__graph *cached_graph(struct sl__weight_cache *cache, const struct images *m) {
  const struct sl__place cpu = {.where = STARPU_CPU};
  struct sl__graph *graph;
  OK(sl__graph_new(context, &sl__op_subgraph, &sl__op_helper, &graph));
  sl__graph_use_weight_cache(graph, cache, m->x);
  sl__graph_capture(graph);
  OK(sl__graph_bind(graph, m->result));
  OK(sl__graph_compile(graph, images_calls(m, cpu)));
  assert_non_null(sl__weight_cache_tensor(cache));
  return graph;
}

/* Other values. */
static void write_again(struct sl__tensor *t, int again) {
  int64_t n = sl_shape_count(&t->shape);
  float *values = calloc((size_t)n, sizeof *values);
  for (int64_t i = 0; i < n; i++) values[i] = (float)(i * (again + 3) % 17) / 16 - 0.5f;
  OK(sl__tensor_write(t, values));
  free(values);
}

static void check_pack(int c) {
  const struct sl__place cpu = {.where = STARPU_CPU};
  struct images m;
  struct sl__graph *graph[2];
  struct sl__weight_cache *cache;
  float want[2 * 5], got[2 * 5];
  images_new(&m, 2, c);
  OK(sl__weight_cache_new(context, &sl__op_prepack, &cache));
  for (int i = 0; i < 2; i++) graph[i] = cached_graph(cache, &m);
  assert_true(plain_offset(cache, m.filter) >= 0);
  assert_true(plain_offset(cache, m.x) < 0 && plain_offset(cache, m.t[0]) < 0);
  for (int again = 0; again < 6; again++) {
    if (again) write_again(again % 3 ? m.filter : m.second, again);
    OK(images_calls(&m, cpu));
    OK(sl__tensor_read(m.result, want));
    OK(sl__weight_cache_refresh(cache));
    OK(sl__graph_submit(graph[again % 2], &once));
    OK(sl__tensor_read(m.result, got));
    assert_memory_equal(got, want, sizeof got);
  }
  for (int i = 0; i < 2; i++) sl__graph_free(graph[i]);
  sl__weight_cache_free(cache);
  images_free(&m);
}

/* Tensors that are only read come from a copy, which is made anew after one of them was written. */
static void parameters_in_the_cache(void **state) {
  (void)state;
  for (int c = 0; c < 2; c++) check_pack(channels[c]);
}

/* ---- prepacked weights in the cache ---- */

enum { FORMED = 16, HEIGHT = 16, ACROSS = 15, RESULTS = 3 * FORMED * (HEIGHT - 2) * (ACROSS - 2) };

/* A weight that two convolutions read, one of them prepacked; and a weight with biases. */
struct formed {
  struct sl__tensor *x, *param, *biased, *t[2], *result;
};

static void formed_new(struct formed *f) {
  const struct sl_shape inner = SL_SHAPE(3, FORMED, HEIGHT, ACROSS);
  const struct sl_shape outer = SL_SHAPE(3, FORMED, HEIGHT - 2, ACROSS - 2);
  *f = (struct formed){.x = random_tensor(inner, 1),
                       .param = random_tensor(SL_SHAPE(FORMED * FORMED * 9), 2),
                       .biased = random_tensor(SL_SHAPE(FORMED * (FORMED * 9 + 1)), 3)};
  for (int i = 0; i < 2; i++) OK(sl__tensor_temporary(context, &inner, SL_F32, &f->t[i]));
  OK(sl__tensor_temporary(context, &outer, SL_F32, &f->result));
}

static void formed_free(struct formed *f) {
  sl__tensor_free(f->x);
  sl__tensor_free(f->param);
  sl__tensor_free(f->biased);
  sl__tensor_free(f->t[0]);
  sl__tensor_free(f->t[1]);
  sl__tensor_free(f->result);
}

static enum sl_status formed_calls(const struct formed *f) {
  const struct sl__launch l = {.name = "test", .place = {.where = STARPU_CPU}};
  struct sl__conv2d conv = {.channels = FORMED,
                            .kernel_h = 3,
                            .kernel_w = 3,
                            .stride_h = 1,
                            .stride_w = 1,
                            .pad_h = 1,
                            .pad_w = 1};
  struct sl__conv2d biased = conv, unpadded = conv;
  biased.has_bias = true;
  biased.activation = SL_ACTIVATION_TANH;
  unpadded.pad_h = unpadded.pad_w = 0;
  enum sl_status status;
  SL__TRY(sl__conv2d_forward(context, &l, f->x, f->param, f->t[0], &conv));
  SL__TRY(sl__conv2d_forward(context, &l, f->t[0], f->biased, f->t[1], &biased));
  SL__TRY(sl__conv2d_forward(context, &l, f->t[1], f->param, f->result, &unpadded));
out:
  return status;
}

static enum sl_status formed_program(const struct formed *f, const struct sl__tensor *input,
                                     struct sl__weight_cache *cache, struct sl__graph **graph) {
  enum sl_status status = sl__graph_new(context, &sl__op_subgraph, &sl__op_helper, graph);
  if (status != SL_OK) return status;
  sl__graph_use_weight_cache(*graph, cache, input);
  sl__graph_capture(*graph);
  status = sl__graph_bind(*graph, f->result);
  return sl__graph_compile(*graph, status == SL_OK ? formed_calls(f) : status);
}

static void formed_read(const struct formed *f, float *values) {
  memset(values, 0xff, RESULTS * sizeof *values);
  OK(sl__tensor_read(f->result, values));
}

/* The result of the calls one by one. */
static void formed_want(const struct formed *f, float *values) {
  OK(formed_calls(f));
  formed_read(f, values);
}

/* Bytes of a member with the prepacked weights and, unless plain copies are apart, with the plain
 * copy of the other parameter. */
static int64_t formed_bytes(bool apart) {
  const struct sl__conv_args a = {1, FORMED, HEIGHT, ACROSS, FORMED, HEIGHT, ACROSS,
                                  3, 3,      1,      1,      1,      1};
  size_t form = (size_t)sl__winograd_weights(&a) * sizeof(float);
  return (int64_t)(sl__weight_cache_room(form) +
                   sl__weight_cache_room(form + FORMED * sizeof(float)) +
                   (apart ? 0 : sl__weight_cache_room(FORMED * FORMED * 9 * sizeof(float))));
}

/* A refresh makes prepacked weights and plain copies anew. The graph does not read the parameters
 * themselves: before a refresh it gives the old result. */
static void prepacked_weights_in_the_cache(void **state) {
  static float want[RESULTS], got[RESULTS];
  (void)state;
  struct formed f;
  struct sl__weight_cache *cache;
  struct sl__graph *graph[2];
  formed_new(&f);
  OK(sl__weight_cache_new(context, &sl__op_prepack, &cache));
  for (int i = 0; i < 2; i++) OK(formed_program(&f, f.x, cache, &graph[i]));
  bool apart = starpu_cuda_worker_get_count(); /* and then alone, which the cache leaves out */
  assert_int_equal(4 * sl_shape_count(&sl__weight_cache_tensor(cache)->shape), formed_bytes(apart));
  assert_true((plain_offset(cache, f.param) < 0) == apart && plain_offset(cache, f.biased) < 0);
  for (int again = 0; again < 6; again++) {
    if (again) {
      bool is_plain = again % 3; /* the parameter that is read as it is, too */
      write_again(is_plain ? f.param : f.biased, again);
      OK(sl__graph_submit(graph[again % 2], &once));
      formed_read(&f, got);
      if (!is_plain || !apart) assert_memory_equal(got, want, sizeof got);
    }
    formed_want(&f, want);
    OK(sl__weight_cache_refresh(cache));
    for (int i = 0; i < 2; i++) {
      OK(i ? sl__graph_submit(graph[i], &once) : sl__graph_submit_to_all(graph[i], &once));
      formed_read(&f, got);
      assert_memory_equal(got, want, sizeof got);
    }
  }
  for (int i = 0; i < 2; i++) sl__graph_free(graph[i]);
  sl__weight_cache_free(cache);
  formed_free(&f);
}

/* A tensor that changes from run to run is not prepacked, even in the place of a weight. */
static void inputs_are_not_prepacked(void **state) {
  static float want[RESULTS], got[RESULTS];
  (void)state;
  struct formed f;
  struct sl__weight_cache *cache;
  struct sl__graph *graph;
  formed_new(&f);
  OK(sl__weight_cache_new(context, &sl__op_prepack, &cache));
  OK(formed_program(&f, f.param, cache, &graph));
  OK(sl__weight_cache_refresh(cache));
  for (int again = 0; again < 3; again++) {
    write_again(f.param, again);
    formed_want(&f, want);
    OK(sl__graph_submit(graph, &once)); /* without refreshing */
    formed_read(&f, got);
    assert_memory_equal(got, want, sizeof got);
  }
  sl__graph_free(graph);
  sl__weight_cache_free(cache);
  formed_free(&f);
}

/* With other tensors or without: the prepacked weights are another member. */
static void caches_that_were_closed_before(void **state) {
  static float want[RESULTS], got[RESULTS];
  (void)state;
  for (int empty = 0; empty < 2; empty++) {
    struct formed f;
    struct sl__weight_cache *cache;
    struct sl__graph *graph;
    formed_new(&f);
    struct sl__tensor *in_it[] = {f.param, f.biased, random_tensor(SL_SHAPE(3), 5),
                                  random_tensor(SL_SHAPE(4), 6)};
    OK(sl__weight_cache_new(context, &sl__op_prepack, &cache));
    for (int i = 0; i < 4 && !empty; i++) OK(add_plain(cache, in_it[i]));
    OK(sl__weight_cache_close(cache));
    assert_int_equal(sl__weight_cache_tensor(cache) == NULL, empty);
    OK(formed_program(&f, f.x, cache, &graph));
    for (int again = 0; again < 3; again++) {
      if (again) write_again(again % 2 ? f.param : f.biased, again);
      formed_want(&f, want);
      OK(sl__weight_cache_refresh(cache));
      OK(sl__graph_submit(graph, &once));
      formed_read(&f, got);
      assert_memory_equal(got, want, sizeof got);
    }
    sl__graph_free(graph);
    sl__weight_cache_free(cache);
    for (int i = 2; i < 4; i++) sl__tensor_free(in_it[i]);
    formed_free(&f);
  }
}

/* Every allocation fails in turn; a graph that was made without a failure works. */
static void no_memory_for_prepacked_weights(void **state) {
  static float want[RESULTS], got[RESULTS];
  (void)state;
  struct formed f;
  enum sl_status status = SL_NO_MEMORY;
  formed_new(&f);
  formed_want(&f, want);
  for (long n = 1; status != SL_OK; n++) {
    struct sl__graph *graph = NULL;
    struct sl__weight_cache *cache = NULL;
    assert_true(n < 200);
    sl__alloc_fail_after(n);
    status = sl__weight_cache_new(context, &sl__op_prepack, &cache);
    if (status == SL_OK) status = formed_program(&f, f.x, cache, &graph);
    sl__alloc_fail_after(0);
    if (status == SL_OK) {
      OK(sl__weight_cache_refresh(cache));
      OK(sl__graph_submit(graph, &once));
      formed_read(&f, got);
      assert_memory_equal(got, want, sizeof got);
    } else {
      assert_int_equal(status, SL_NO_MEMORY);
    }
    sl__graph_free(graph);
    sl__weight_cache_free(cache);
  }
  formed_free(&f);
}

/* A cache that would hold too little stays empty; every allocation fails in turn. */
static void caches_of_few(void **state) {
  (void)state;
  struct sl__tensor *t[6];
  struct sl__weight_cache *cache;
  for (int i = 0; i < 6; i++) t[i] = temporary();
  OK(sl__weight_cache_new(context, &sl__op_prepack, &cache));
  OK(add_plain(cache, t[0]));
  OK(add_plain(cache, t[0]));
  OK(sl__weight_cache_close(cache));
  assert_null(sl__weight_cache_tensor(cache));
  assert_true(plain_offset(cache, t[0]) < 0);
  OK(sl__weight_cache_refresh(cache));
  sl__weight_cache_free(cache);
  sl__weight_cache_free(NULL);
  enum sl_status status = SL_NO_MEMORY;
  for (long n = 1; status != SL_OK; n++) {
    assert_true(n < 10);
    sl__alloc_fail_after(n);
    status = sl__weight_cache_new(context, &sl__op_prepack, &cache);
    for (int i = 0; i < 6 && status == SL_OK; i++) status = add_plain(cache, t[i]);
    if (status == SL_OK) status = sl__weight_cache_close(cache);
    sl__alloc_fail_after(0);
    if (status == SL_OK) assert_int_equal(plain_offset(cache, t[5]), 5 * 1024);
    sl__weight_cache_free(cache);
  }
  for (int i = 0; i < 6; i++) sl__tensor_free(t[i]);
}

struct factor {
  int count;
  float by;
};

static void multiply(const void *args, const void *from, void *to) {
  const struct factor *f = args;
  for (int i = 0; i < f->count; i++) ((float *)to)[i] = f->by * ((const float *)from)[i];
}

/* The arguments of a prepacked weight are copied; the cache also holds one alone. */
static void check_prepacked(struct sl__tensor *t, struct sl__weight_cache *cache, int with_plain) {
  static float values[N * WIDTH], got[2 * 256];
  struct factor factor = {N * WIDTH, 3};
  const struct sl__weight_cache_item item = {t, multiply, sizeof values, 0, &factor, sizeof factor};
  struct sl__weight_cache_item other = item;
  other.bytes = 4;
  if (with_plain) OK(add_plain(cache, t));
  OK(sl__weight_cache_add(cache, &item));
  OK(sl__weight_cache_add(cache, &item));
  factor.by = 5;
  OK(sl__weight_cache_close(cache));
  OK(sl__weight_cache_add(cache, &other)); /* in another member, once that is closed */
  assert_int_equal(sl__weight_cache_offset(cache, &item), with_plain * 1024);
  assert_int_equal(sl__weight_cache_offset(cache, &other), -1);
  assert_int_equal(plain_offset(cache, t), with_plain ? 0 : -1);
  assert_int_equal(sl_shape_count(&sl__weight_cache_tensor(cache)->shape), 256 * (with_plain + 1));
  for (int again = 0; again < 3; again++) {
    for (int i = 0; i < N * WIDTH; i++) values[i] = (float)(i + again);
    OK(sl__tensor_write(t, values));
    OK(sl__weight_cache_refresh(cache));
    OK(sl__tensor_read(sl__weight_cache_tensor(cache), got));
    for (int i = 0; i < N * WIDTH; i++) {
      if (with_plain) assert_true(got[i] == values[i]);
      assert_true(got[256 * with_plain + i] == 3 * values[i]);
    }
  }
}

static void packs_of_forms(void **state) {
  (void)state;
  for (int with_plain = 0; with_plain < 2; with_plain++) {
    struct sl__tensor *t = temporary();
    struct sl__weight_cache *cache;
    OK(sl__weight_cache_new(context, &sl__op_prepack, &cache));
    check_prepacked(t, cache, with_plain);
    sl__weight_cache_free(cache);
    sl__tensor_free(t);
  }
}

/* ---- steps: calls of slices, the step record ---- */

/* Two slices side by side, then a sum that belongs to none; `crosses`: the second slice begins with
 * what the first has computed. The first slice's third call depends on the second slice then. */
static enum sl_status slices_calls(const struct chain *c, bool crosses, int stage) {
  struct sl__launch slice[2] = {on(0), on(0)}, none = on(0);
  struct sl__tensor *const *t = c->t;
  enum sl_status status;
  slice[0].mark.replica = 1;
  slice[1].mark.replica = 2;
  slice[0].mark.stage = slice[1].mark.stage = stage;
  SL__TRY(sl__activation_forward(context, &slice[0], c->x, t[0], SL_ACTIVATION_TANH));
  SL__TRY(sl__activation_forward(context, &slice[1], crosses ? t[0] : c->x, t[1],
                                 SL_ACTIVATION_SIGMOID));
  SL__TRY(
      sl__activation_forward(context, &slice[0], crosses ? t[1] : t[0], t[2], SL_ACTIVATION_RELU));
  SL__TRY(sl__activation_forward(context, &slice[1], t[1], t[3], SL_ACTIVATION_TANH));
  SL__TRY(sl__add(context, &none, t[2], t[3], c->result, false));
out:
  return status;
}

/* A message of this test's own: it only counts, and its tensors keep their values. */
static struct {
  int count, priority;
  struct sl__tensor *tensor;
  char argument;
} posted;

static bool post(struct sl_context *in, const struct sl__call *call, enum sl_status *status) {
  assert_ptr_equal(in, context);
  posted.count++;
  posted.priority = call->launch->priority;
  posted.tensor = call->tensors[0];
  posted.argument = *(const char *)call->args;
  assert_string_equal(call->launch->name, "test");
  *status = SL_OK;
  return true;
}

static void never(void *buffers[], void *args) {
  (void)buffers;
  (void)args;
  fail_msg("a message is no part of a subgraph's task");
}

static struct sl__op message = {
    .codelet = {.name = "message", .cpu_funcs = {never}, .cuda_funcs = {never}},
    .modes = "x*",
    .post = post};

/* Between calls that would be one task. It sends the bound tensor of the run. */
static enum sl_status message_calls(const struct chain *c) {
  struct sl__launch launch = on(0), sends = {.name = "test", .place = on(0).place, .priority = 1};
  struct sl__tensor *const *t = c->t;
  enum sl_status status;
  SL__TRY(sl__activation_forward(context, &launch, c->x, t[0], SL_ACTIVATION_TANH));
  SL__TRY(sl__activation_forward(context, &launch, t[0], c->result, SL_ACTIVATION_SIGMOID));
  SL__TRY(sl__submit(context, &message, &sends, 1, &c->result, "a", 1, 0, 0));
  SL__TRY(sl__activation_forward(context, &launch, t[0], t[1], SL_ACTIVATION_RELU));
  SL__TRY(sl__add(context, &launch, t[1], c->result, t[2], false));
out:
  return status;
}

static void messages_are_submitted_anew(void **state) {
  (void)state;
  float want[N * WIDTH];
  struct sl__graph *graph;
  struct sl__tensor *other = temporary();
  struct chain c;
  chain_new(&c);
  OK(message_calls(&c));
  OK(sl__tensor_read(c.t[2], want));
  assert_int_equal(posted.count, 1); /* an eager one is no task, either */
  OK(sl__graph_new(context, &sl__op_subgraph, &sl__op_helper, &graph));
  OK(sl__graph_bind(graph, c.result));
  OK(sl__graph_keep(graph, c.t[2]));
  sl__graph_join_slices(graph, 1e9);
  sl__graph_capture(graph);
  OK(sl__graph_compile(graph, message_calls(&c)));
  assert_int_equal(posted.count, 1); /* it was captured */
  assert_int_equal(sl__graph_tasks(graph), 3);
  for (int run = 0; run < 3; run++) {
    struct sl__tensor *bound[] = {run ? other : c.result};
    OK(sl__graph_submit(graph, &(struct sl__graph_run){.bound = bound, .priority = 2 * run}));
    assert_int_equal(posted.count, 2 + run);
    assert_int_equal(posted.priority, 1 + 2 * run);
    assert_ptr_equal(posted.tensor, bound[0]);
    assert_int_equal(posted.argument, 'a');
    expect(c.t[2], want);
  }
  OK(sl__wait_for_all(context));
  sl__graph_free(graph);
  sl__tensor_free(other);
  chain_free(&c);
}

static void slices_are_joined(void **state) {
  (void)state;
  static const struct {
    bool crosses;
    int stage; /* without stages, a short step is one task */
    double microseconds;
    int tasks, gpu_tasks; /* one GPU does all slices one after the other */
  } cases[] = {{false, 1, 1e9, 3, 1}, {false, 1, 1e-9, 5, 5}, {true, 1, 1e9, 4, 1},
               {false, 0, 1e9, 1, 1}, {true, 0, 1e9, 1, 1},   {false, 0, 1e-9, 5, 5}};
  bool on_gpu = on(0).place.where == STARPU_CUDA;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    float want[N * WIDTH];
    struct sl__graph *graph;
    struct chain c;
    chain_new(&c);
    OK(slices_calls(&c, cases[i].crosses, cases[i].stage));
    OK(sl__tensor_read(c.result, want));
    OK(sl__graph_new(context, &sl__op_subgraph, &sl__op_helper, &graph));
    OK(sl__graph_bind(graph, c.result));
    sl__graph_join_slices(graph, cases[i].microseconds);
    sl__graph_capture(graph);
    OK(sl__graph_compile(graph, slices_calls(&c, cases[i].crosses, cases[i].stage)));
    assert_int_equal(sl__graph_tasks(graph), on_gpu ? cases[i].gpu_tasks : cases[i].tasks);
    for (int run = 0; run < 3; run++) {
      sl__tensor_invalidate(c.result);
      OK(sl__graph_submit(graph, &once));
      expect(c.result, want);
    }
    OK(sl__wait_for_all(context));
    sl__graph_free(graph);
    chain_free(&c);
  }
}

/* A slice's two calls that take `values` numbers, and a sum of two slices'. */
static enum sl_status parts_calls(struct sl__tensor *const *t) {
  enum sl_status status = SL_OK;
  for (int s = 0; s < 2 && status == SL_OK; s++) {
    struct sl__launch launch = on(0);
    launch.mark.replica = 1 + s;
    SL__TRY(sl__activation_forward(context, &launch, t[0], t[1], SL_ACTIVATION_TANH));
    launch.mark.aside = true;
    SL__TRY(sl__activation_forward(context, &launch, t[1], t[2 + s], SL_ACTIVATION_RELU));
  }
  const struct sl__launch sum = on(0);
  status = sl__add(context, &sum, t[2], t[3], t[4], false);
out:
  return status;
}

/* By the estimate, a call on `values` floats takes values / 2500 microseconds. A step of up to 8
 * times the limit of a task is one task, a part of up to 4 times is one, and in a longer part calls
 * that none waits for are tasks of their own. */
static void short_parts_are_one_task(void **state) {
  (void)state;
  static const struct {
    int64_t values;
    int tasks;
  } cases[] = {{2500, 1}, {4000, 3}, {6250, 5}};
  if (on(0).place.where == STARPU_CUDA) skip();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct sl__tensor *t[5];
    struct sl__graph *graph;
    for (int k = 0; k < 5; k++)
      OK(sl__tensor_temporary(context, &SL_SHAPE(cases[i].values), SL_F32, &t[k]));
    float *zeros = calloc((size_t)cases[i].values, sizeof *zeros);
    OK(sl__tensor_write(t[0], zeros));
    OK(sl__graph_new(context, &sl__op_subgraph, &sl__op_helper, &graph));
    OK(sl__graph_bind(graph, t[4]));
    sl__graph_join_slices(graph, 1);
    sl__graph_capture(graph);
    OK(sl__graph_compile(graph, parts_calls(t)));
    assert_int_equal(sl__graph_tasks(graph), cases[i].tasks);
    OK(sl__graph_submit(graph, &once));
    OK(sl__wait_for_all(context));
    sl__graph_free(graph);
    for (int k = 0; k < 5; k++) sl__tensor_free(t[k]);
    free(zeros);
  }
}

/* Two convolutions, a pooling and a dense layer; `again`: the second convolution's output has one
 * more reader. */
static enum sl_status passing_calls(const struct images *m, bool again) {
  const struct sl__launch l = {.name = "test", .place = {.where = STARPU_CPU}};
  const struct sl__conv2d conv = three_by_three(m->channels, true);
  const struct sl__pool2d pool = {2, 2, 2, 2, 0, 0};
  struct sl__tensor *const *t = m->t;
  enum sl_status status;
  struct sl__conv2d second = conv;
  second.has_bias = false;
  SL__TRY(sl__conv2d_forward(context, &l, m->x, m->filter, t[0], &conv));
  SL__TRY(sl__conv2d_forward(context, &l, t[0], m->second, t[1], &second));
  SL__TRY(sl__maxpool2d_forward(context, &l, t[1], t[7], m->index, &pool));
  SL__TRY(sl__dense_forward(context, &l, t[7], m->flat_param, m->result, true, SL_ACTIVATION_NONE));
  if (again) SL__TRY(sl__activation_forward(context, &l, t[1], t[2], SL_ACTIVATION_TANH));
out:
  return status;
}

static void check_passing(int64_t rows, int c, bool again, int parts) {
  struct images m;
  struct sl__graph *graph;
  float want[7 * 5], got[7 * 5];
  images_new(&m, rows, c);
  OK(passing_calls(&m, again));
  OK(sl__tensor_read(m.result, want));
  OK(sl__graph_new(context, &sl__op_subgraph, &sl__op_helper, &graph));
  sl__graph_cut(graph, parts);
  sl__graph_join_slices(graph, 1e-9);
  sl__graph_capture(graph);
  OK(sl__graph_bind(graph, m.result));
  OK(sl__graph_compile(graph, passing_calls(&m, again)));
  int calls = 4 + again, joined = rows == 1 || c >= 16 ? 0 : again ? 1 : 2;
  assert_int_equal(sl__graph_tasks(graph), calls - joined);
  for (int run = 0; run < 3; run++) {
    memset(got, 0xff, sizeof got);
    OK(sl__graph_submit(graph, &once));
    OK(sl__tensor_read(m.result, got));
    assert_memory_equal(got, want, (size_t)rows * 5 * sizeof *got);
  }
  OK(sl__wait_for_all(context));
  sl__graph_free(graph);
  images_free(&m);
}

/* The pooling of some images follows the convolutions of the same images, in one task however short
 * tasks shall be, if no other call reads the convolution's output. Winograd's convolution stays
 * whole: it would transform its weights for each slice. */
static void outputs_pass_in_slices(void **state) {
  (void)state;
  for (int c = 0; c < 2; c++)
    for (int64_t rows = 1; rows <= 7; rows += 3)
      for (int parts = 0; parts <= 3; parts++)
        for (int again = 0; again < 2; again++) check_passing(rows, channels[c], again, parts);
}

/* Dropout's numbers are those of the step, whichever step was captured; the input is bound. */
static void runs_follow_the_step_record(void **state) {
  (void)state;
  struct sl__dropout dropout = {.rate = 0.5f, .seed = 5, .stream = 6, .step = 2};
  struct sl__launch launch = on(0);
  struct sl__graph *graph;
  struct chain c, other;
  chain_new(&c);
  chain_new(&other);
  double *values = random_values(N * WIDTH, 8);
  struct sl__tensor *x = tensor(SL_SHAPE(N, WIDTH), values), *bound[] = {x, c.result};
  OK(sl__graph_new(context, &sl__op_subgraph, &sl__op_helper, &graph));
  OK(sl__graph_bind(graph, c.x));
  OK(sl__graph_bind(graph, c.result));
  sl__graph_join_slices(graph, 1e9);
  sl__graph_capture(graph);
  OK(sl__graph_compile(graph, sl__dropout_forward(context, &launch, c.x, c.result, &dropout)));
  for (int64_t step = 0; step < 4; step++) {
    float want[N * WIDTH];
    const struct sl__step_record record = {.number = step};
    dropout.step = (uint64_t)step;
    OK(sl__dropout_forward(context, &launch, x, other.result, &dropout));
    OK(sl__tensor_read(other.result, want));
    OK(sl__graph_submit(graph, &(struct sl__graph_run){.bound = bound, .step = &record}));
    expect(c.result, want);
  }
  OK(sl__wait_for_all(context));
  sl__graph_free(graph);
  sl__tensor_free(x);
  chain_free(&c);
  chain_free(&other);
  free(values);
}

static void what_cannot_be_recorded_is_told(void **state) {
  (void)state;
  struct sl__graph *graph;
  struct chain c;
  chain_new(&c);
  OK(sl__graph_new(context, &sl__op_subgraph, &sl__op_helper, &graph));
  sl__graph_capture(graph);
  assert_int_equal(sl__graph_compile(graph, SL_OK), SL_BAD_ARGUMENT);
  sl__graph_free(graph);
  OK(sl__graph_new(context, &sl__op_subgraph, &sl__op_helper, &graph));
  sl__graph_capture(graph);
  enum sl_status status = sl__add(context, &plain, c.x, c.t[0], context->scratch[12], false);
  assert_int_equal(sl__graph_compile(graph, status), status);
  assert_int_not_equal(status, SL_OK);
  sl__graph_free(graph);
  sl__graph_free(NULL);
  OK(chain_calls(&c, 0)); /* recording has ended */
  chain_free(&c);
}

/* Every allocation of recording and compiling fails in turn. */
static void no_memory(void **state) {
  (void)state;
  struct chain c;
  enum sl_status status = SL_NO_MEMORY;
  chain_new(&c);
  for (long n = 1; status != SL_OK; n++) {
    struct sl__graph *graph = NULL;
    assert_true(n < 200);
    sl__alloc_fail_after(n);
    status = sl__graph_new(context, &sl__op_subgraph, &sl__op_helper, &graph);
    if (status == SL_OK) {
      sl__graph_capture(graph);
      status = sl__graph_bind(graph, c.result);
      if (status == SL_OK) status = chain_calls(&c, 1);
      status = sl__graph_compile(graph, status);
    }
    sl__alloc_fail_after(0);
    if (status != SL_OK) assert_int_equal(status, SL_NO_MEMORY);
    sl__graph_free(graph);
  }
  chain_free(&c);
}

static int open_two(void **state) {
  (void)state;
  const char *device = getenv("SL_TEST_DEVICE");
  char devices[64];
  snprintf(devices, sizeof devices, "%s,%s", device ? device : "cpu:0", device ? "cpu:0" : "cpu:1");
  return open_context_with(&(struct sl_context_options){.devices = devices});
}

int main(void) {
  setenv("STARPU_NCPU", "2", 0);
  setenv("STARPU_SILENT", "1", 0);
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_task_a_device),
                                     cmocka_unit_test(another_result),
                                     cmocka_unit_test(runs_overlap),
                                     cmocka_unit_test(parts_give_the_same_bits),
                                     cmocka_unit_test(local_tensors_keep_their_values),
                                     cmocka_unit_test(outputs_that_are_read_twice_stay),
                                     cmocka_unit_test(a_polling_helper_runs_messages),
                                     cmocka_unit_test(parameters_in_the_cache),
                                     cmocka_unit_test(caches_of_few),
                                     cmocka_unit_test(packs_of_forms),
                                     cmocka_unit_test(prepacked_weights_in_the_cache),
                                     cmocka_unit_test(inputs_are_not_prepacked),
                                     cmocka_unit_test(caches_that_were_closed_before),
                                     cmocka_unit_test(no_memory_for_prepacked_weights),
                                     cmocka_unit_test(messages_are_submitted_anew),
                                     cmocka_unit_test(slices_are_joined),
                                     cmocka_unit_test(short_parts_are_one_task),
                                     cmocka_unit_test(outputs_pass_in_slices),
                                     cmocka_unit_test(runs_follow_the_step_record),
                                     cmocka_unit_test(what_cannot_be_recorded_is_told),
                                     cmocka_unit_test(no_memory)};
  (void)adding;
  return cmocka_run_group_tests_name("program", tests, open_two, close_context);
}
