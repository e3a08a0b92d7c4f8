/* Calls of a captured step that alternate by channels (core/graph/graph_channels.c): the bits of
 * single tasks, for a residual block's normalisation and its backward pass. Where a result is
 * needed elsewhere, or a call does not go by channels, it keeps its memory, or the calls stay
 * apart. */
#include "tests/common/check.h"
#include "core/base/error.h"
#include "core/graph/graph_state.h"
#include "core/runtime/wait.h"

enum obstacle {
  NO_OBSTACLE,
  KEPT,           /* the caller wants the normalised values */
  READ,           /* a later call reads them */
  THIRD,          /* the sum overwrites its result's memory before it reads them */
  BOTH,           /* they are both terms of the sum */
  ACCUMULATED,    /* dx is added to */
  OF_A_REPLICA,   /* the backward pass is of another part of the step */
  NOT_BY_CHANNEL, /* the values in between go through a call that is not cut */
  REPEATED        /* there are more calls than a run may have */
};

struct block {
  int64_t rows, channels, height, width;
  enum obstacle obstacle;
  int tasks;     /* of its six calls, if no task is small */
  int64_t parts; /* of the channels; 0: no calls alternate */
  int own;       /* of t and da, those that have memory of their own */
  /* ---- its tensors ---- */
  struct sl__tensor *x, *param, *saved, *running, *t, *r, *y, *dy, *da, *db, *dx, *again;
};

static struct sl_shape shape_of(const struct block *b) {
  return SL_SHAPE(b->rows, b->channels, b->height, b->width);
}

static struct sl__tensor *temporary(const struct block *b) {
  const struct sl_shape shape = shape_of(b);
  struct sl__tensor *t;
  OK(sl__tensor_temporary(context, &shape, SL_F32, &t));
  return t;
}

static void make(struct block *b) {
  b->x = random_tensor(shape_of(b), 1);
  b->r = random_tensor(shape_of(b), 2);
  b->dy = random_tensor(shape_of(b), 3);
  b->dx = random_tensor(shape_of(b), 4);
  b->param = random_tensor(SL_SHAPE(2 * b->channels), 5);
  b->running = random_tensor(SL_SHAPE(2 * b->channels), 6);
  b->saved = tensor(SL_SHAPE(4 * b->channels), NULL);
  b->y = tensor(shape_of(b), NULL);
  b->db = tensor(shape_of(b), NULL);
  b->again = tensor(shape_of(b), NULL);
  b->t = temporary(b);
  b->da = temporary(b);
}

static struct sl__tensor **results_of(struct block *b, struct sl__tensor *list[]) {
  list[0] = b->y;
  list[1] = b->saved;
  list[2] = b->running;
  list[3] = b->db;
  list[4] = b->dx;
  list[5] = b->obstacle == READ ? b->again : b->db;
  list[6] = b->obstacle == KEPT ? b->t : b->db;
  return list;
}
enum { RESULTS = 7 };

static void drop(struct block *b) {
  struct sl__tensor *all[] = {b->x, b->param, b->saved, b->running, b->t,  b->r,
                              b->y, b->dy,    b->da,    b->db,      b->dx, b->again};
  OK(sl__wait_for_all(context));
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) sl__tensor_free(all[i]);
}

/* y = relu(norm(x) + r) */
static enum sl_status forward(const struct block *b, const struct sl__launch *launch) {
  struct sl__tensor *terms[] = {b->t, b->r, b->t};
  int count = 2;
  enum sl_status status;
  SL__TRY(sl__batchnorm_forward(context, launch, b->x, b->param, b->t, b->saved, 1e-5f, false));
  SL__TRY(sl__batchnorm_running(context, launch, b->saved, b->running, 0.1f, 1e-5f,
                                b->rows * b->height * b->width));
  if (b->obstacle == NOT_BY_CHANNEL)
    SL__TRY(sl__fill(context, launch, b->again, 0)); /* between the two, without a use */
  if (b->obstacle == THIRD) terms[0] = b->r, count = 3;
  if (b->obstacle == BOTH) terms[1] = b->t;
  SL__TRY(sl__add_terms(context, launch, count, terms, b->y, true));
  if (b->obstacle == READ) SL__TRY(sl__axpy(context, launch, 2, b->t, b->again));
out:
  return status;
}

static enum sl_status backward(const struct block *b, struct sl__launch launch) {
  enum sl_status status;
  SL__TRY(sl__add_relu_backward(context, &launch, b->y, b->dy, b->da, b->db));
  SL__TRY(sl__batchnorm_backward_sums(context, &launch, b->x, b->param, b->saved, b->da, false));
  launch.accumulate = b->obstacle == ACCUMULATED;
  SL__TRY(
      sl__batchnorm_backward_data(context, &launch, b->x, b->param, b->saved, b->da, b->dx, false));
out:
  return status;
}

static enum sl_status calls(const struct block *b) {
  struct sl__launch launch = {.name = "test", .place = {.where = STARPU_CPU}};
  enum sl_status status = forward(b, &launch);
  launch.mark.replica = b->obstacle == OF_A_REPLICA;
  if (status == SL_OK) status = backward(b, launch);
  for (int i = 0; i < 2 && b->obstacle == REPEATED && status == SL_OK; i++) {
    status = forward(b, &launch);
    if (status == SL_OK) status = backward(b, launch);
  }
  return status;
}

static struct sl__graph *captured(const struct block *b, double slice_us) {
  struct sl__graph *graph;
  OK(sl__graph_new(context, &sl__op_subgraph, &sl__op_helper, &graph));
  sl__graph_join_slices(graph, slice_us);
  if (b->obstacle == KEPT) OK(sl__graph_keep(graph, b->t));
  sl__graph_capture(graph);
  return graph;
}

static bool uses(const struct call *call, const struct sl__graph *graph,
                 const struct sl__tensor *tensor) {
  for (int k = 0; k < call->count; k++)
    if (graph->uses[call->tensor[k]].tensor == tensor) return true;
  return false;
}

static void check_runs(const struct sl__graph *graph, const struct block *b) {
  int64_t most = 0, planned = 0;
  bool has_t = false, has_da = false;
  for (int c = 0; c < graph->call_count; c++) {
    const struct call *call = &graph->calls[c];
    if (call->channel_parts > most) most = call->channel_parts;
    has_t |= uses(call, graph, b->t);
    has_da |= uses(call, graph, b->da);
  }
  for (int s = 0; s < graph->subgraph_count; s++)
    for (int i = 0; i < graph->subgraphs[s].group_count; i++)
      planned += graph->subgraphs[s].groups[i].channel_parts;
  assert_int_equal(most, b->parts);
  assert_int_equal(planned > 0, b->parts > 0);
  assert_int_equal(has_t + has_da, b->own);
}

/* Two runs, as single tasks or as a graph; the values are to be freed. */
static float **values_after(struct block b, double slice_us) {
  float **values = malloc(RESULTS * sizeof *values);
  struct sl__tensor *results[RESULTS];
  struct sl__graph *graph = NULL;
  make(&b);
  if (slice_us > 0) {
    graph = captured(&b, slice_us);
    OK(sl__graph_compile(graph, calls(&b)));
    assert_int_equal(sl__graph_tasks(graph), slice_us < 1 ? b.tasks : 1);
    check_runs(graph, &b);
  }
  for (int run = 0; run < 2; run++)
    if (graph)
      OK(sl__graph_submit(graph, &(struct sl__graph_run){0}));
    else
      OK(calls(&b));
  results_of(&b, results);
  for (int i = 0; i < RESULTS; i++) {
    values[i] = malloc(results[i]->bytes);
    OK(sl__tensor_read(results[i], values[i]));
  }
  OK(sl__wait_for_all(context));
  sl__graph_free(graph);
  drop(&b);
  return values;
}

static void check(const struct block *b, double slice_us) {
  int64_t large = b->rows * b->channels * b->height * b->width;
  int64_t counts[RESULTS] = {large, 4 * b->channels, 2 * b->channels, large, large, large, large};
  float **want = values_after(*b, 0), **got = values_after(*b, slice_us);
  for (int i = 0; i < RESULTS; i++) {
    assert_memory_equal(got[i], want[i], (size_t)counts[i] * sizeof **got);
    free(want[i]);
    free(got[i]);
  }
  free(want);
  free(got);
}

/* Slices of no time join no calls but those that alternate; in one task all are joined. */
static void check_all(const struct block *blocks, size_t count) {
  for (size_t i = 0; i < count; i++) {
    print_message("block %zu\n", i);
    check(&blocks[i], 1e-3);
    check(&blocks[i], 1e6);
  }
}

static void blocks_alternate(void **state) {
  static const struct block all[] = {{6, 16, 12, 12, NO_OBSTACLE, 1, 2, 0},
                                     {5, 12, 40, 40, NO_OBSTACLE, 1, 12, 0},
                                     {64, 64, 8, 8, NO_OBSTACLE, 1, 4, 0},
                                     {2, 30, 11, 13, NO_OBSTACLE, 1, 3, 0},
                                     {1, 4, 64, 64, NO_OBSTACLE, 1, 4, 0}};
  (void)state;
  check_all(all, sizeof all / sizeof *all);
}

/* Only all channels together are a page of memory in each row. */
static void others_do_not(void **state) {
  static const struct block all[] = {{40, 7, 10, 10, NO_OBSTACLE, 6, 0, 2},
                                     {200, 5, 5, 5, NO_OBSTACLE, 6, 0, 2}};
  (void)state;
  check_all(all, sizeof all / sizeof *all);
}

static void needed_values_keep_their_memory(void **state) {
  static const struct block all[] = {
      {6, 16, 12, 12, KEPT, 1, 2, 1},           {6, 16, 12, 12, READ, 3, 2, 1},
      {6, 16, 12, 12, THIRD, 1, 2, 1},          {6, 16, 12, 12, BOTH, 1, 2, 1},
      {6, 16, 12, 12, ACCUMULATED, 1, 2, 1},    {6, 16, 12, 12, OF_A_REPLICA, 2, 2, 0},
      {6, 16, 12, 12, NOT_BY_CHANNEL, 4, 2, 1}, {6, 16, 12, 12, REPEATED, 2, 2, 2}};
  (void)state;
  check_all(all, sizeof all / sizeof *all);
}

/* A capture that fails anywhere frees its memory. */
static void no_memory(void **state) {
  struct block b = {2, 4, 32, 32};
  enum sl_status status = SL_NO_MEMORY;
  (void)state;
  make(&b);
  for (int n = 1; status != SL_OK && n < 2000; n++) {
    struct sl__graph *graph = captured(&b, 50);
    sl__alloc_fail_after(n);
    status = sl__graph_compile(graph, calls(&b));
    sl__alloc_fail_after(0);
    if (status != SL_OK) assert_int_equal(status, SL_NO_MEMORY);
    sl__graph_free(graph);
  }
  assert_int_equal(status, SL_OK);
  drop(&b);
}

int main(void) {
  setenv("STARPU_NCPU", "2", 0);
  setenv("STARPU_SILENT", "1", 0);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(blocks_alternate), cmocka_unit_test(others_do_not),
      cmocka_unit_test(needed_values_keep_their_memory), cmocka_unit_test(no_memory)};
  return cmocka_run_group_tests_name("graph_channels", tests, open_context, close_context);
}
