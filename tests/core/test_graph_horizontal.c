/* Horizontal fusion (core/graph/graph_horizontal.c): on a GPU, independent calls of one operation
 * in a captured graph are one launch, and give the bits of the same calls that are submitted one by
 * one. If SL_TEST_DEVICE names a device ("cuda:0"), the calls run there. The stand-in for a GPU
 * counts launches. */
#include <dlfcn.h>

#include "codelets/codelets.h"
#include "core/base/error.h"
#include "core/graph/graph.h"
#include "tests/common/check.h"

enum { MOST = 160, MOST_GRADIENTS = 70, MOST_STATES = 2 };

/* An optimizer's state, and a gradient or several of each tensor. */
struct shards {
  struct sl__op *op;
  int count, gradients[MOST];
  struct sl__tensor *param[MOST], *state[MOST][MOST_STATES], *gradient[MOST][MOST_GRADIENTS];
  struct sl__tensor *norm; /* squared; NULL: the gradients are not clipped */
  struct sl__update update[MOST];
};

/* Sizes below, at and above a pack, a block of threads and a block of packs. */
static int64_t size_of(int shard) {
  static const int64_t sizes[] = {5, 1, 3000, 1024, 256, 257, 4, 1023, 8};
  return sizes[shard % 9];
}

static struct sl__tensor *drawn(int64_t count, uint64_t stream, bool squared) {
  double *values = random_values(count, stream);
  for (int64_t i = 0; i < count && squared; i++) values[i] *= values[i];
  struct sl__tensor *t = tensor(SL_SHAPE(count), values);
  free(values);
  return t;
}

static void shards_new(struct shards *s, struct sl__op *op, int count, bool clips) {
  *s = (struct shards){.op = op, .count = count};
  for (int i = 0; i < count; i++) {
    uint64_t stream = 1000 * (uint64_t)i;
    s->gradients[i] = 1 + i % 3;
    s->update[i] = (struct sl__update){.lr = 0.1f,
                                       .weight_decay = 0.01f,
                                       .momentum = 0.9f,
                                       .beta1 = 0.9f,
                                       .beta2 = 0.99f,
                                       .epsilon = 1e-3f,
                                       .step = 1,
                                       .max_norm = 0.5f};
    s->param[i] = drawn(size_of(i), stream, false);
    for (int k = 0; k < sl__update_states(op); k++)
      s->state[i][k] = drawn(size_of(i), stream + 1 + (uint64_t)k, k > 0);
    for (int k = 0; k < MOST_GRADIENTS; k++)
      s->gradient[i][k] =
          k < s->gradients[i] ? drawn(size_of(i), stream + 3 + (uint64_t)k, false) : NULL;
  }
  if (clips) s->norm = tensor(SL_SHAPE(1), (const double[]){2});
}

static void shards_free(struct shards *s) {
  for (int i = 0; i < s->count; i++) {
    sl__tensor_free(s->param[i]);
    for (int k = 0; k < MOST_STATES; k++) sl__tensor_free(s->state[i][k]);
    for (int k = 0; k < MOST_GRADIENTS; k++) sl__tensor_free(s->gradient[i][k]);
  }
  sl__tensor_free(s->norm);
}

static enum sl_status update(const struct shards *s, int i) {
  return sl__update(context, s->op, &plain, s->param[i], s->state[i], s->gradients[i],
                    s->gradient[i], s->norm, &s->update[i]);
}

static enum sl_status update_all(const struct shards *s) {
  enum sl_status status = SL_OK;
  for (int i = 0; i < s->count && status == SL_OK; i++) status = update(s, i);
  return status;
}

/* Kernels so far; 0 without the stand-in, or if the calls do not run on it. */
static long kernels(void) {
  long (*standin)(void) = (long (*)(void))dlsym(RTLD_DEFAULT, "sl_standin_kernels");
  return standin && plain.place.where & STARPU_CUDA ? standin() : 0;
}

/* Runs `calls` as a captured graph, with the record. Expects this number of launches. */
static void run_captured(const struct shards *s, enum sl_status (*calls)(const struct shards *s),
                         const struct sl__step_record *step, long launches) {
  struct sl__graph *graph;
  OK(sl__graph_new(context, &sl__op_subgraph, &sl__op_helper, &graph));
  sl__graph_capture(graph);
  OK(sl__graph_compile(graph, calls(s)));
  assert_int_equal(sl__graph_tasks(graph), 1);
  starpu_task_wait_for_all();
  long before = kernels();
  OK(sl__graph_submit(graph, &(struct sl__graph_run){.step = step}));
  starpu_task_wait_for_all();
  if (before) assert_int_equal(kernels() - before, launches);
  sl__graph_free(graph);
}

static void expect_same(struct sl__tensor *got, struct sl__tensor *want) {
  int64_t count = sl_shape_count(&got->shape);
  float *a = calloc((size_t)count, sizeof *a), *b = calloc((size_t)count, sizeof *b);
  OK(sl__tensor_read(got, a));
  OK(sl__tensor_read(want, b));
  assert_memory_equal(a, b, sizeof *a * (size_t)count);
  free(a);
  free(b);
}

/* The calls captured and one by one, from the same start: the same bits. */
static void compare(struct sl__op *op, int count, bool clips, void (*change)(struct shards *s),
                    enum sl_status (*calls)(const struct shards *s), long launches) {
  const struct sl__step_record step = {.number = 6, .lr = 0.03f};
  struct shards *eager = calloc(1, sizeof *eager), *captured = calloc(1, sizeof *captured);
  shards_new(eager, op, count, clips);
  shards_new(captured, op, count, clips);
  if (change) change(eager);
  if (change) change(captured);
  run_captured(captured, calls, &step, launches);
  for (int i = 0; i < count; i++) {
    eager->update[i].lr = step.lr;
    eager->update[i].step = step.number + 1;
  }
  OK(calls(eager));
  for (int i = 0; i < count; i++) {
    expect_same(captured->param[i], eager->param[i]);
    for (int k = 0; k < sl__update_states(op); k++)
      expect_same(captured->state[i][k], eager->state[i][k]);
  }
  shards_free(eager);
  shards_free(captured);
  free(eager);
  free(captured);
}

static void updates_are_one_launch(void **state) {
  (void)state;
#define SL__OP(name, modes, where)
#define SL__UPDATE(name, states, modes)                                                            \
  for (int clips = 0; clips < 2; clips++) compare(&sl__op_##name, 40, clips, NULL, update_all, 1);
#include "codelets/ops.def"
#undef SL__OP
}

/* A launch takes 96 tensors and 288 addresses. */
static void many_updates_are_some_launches(void **state) {
  (void)state;
  compare(&sl__op_sgd, 96, false, NULL, update_all, 1);
  compare(&sl__op_sgd, 97, false, NULL, update_all, 2);
  compare(&sl__op_adam, 57, true, NULL, update_all, 1);
  compare(&sl__op_adam, 58, true, NULL, update_all, 2);
  compare(&sl__op_adam, MOST, true, NULL, update_all, 3);
}

/* 64 gradients are one launch, and more begin with a launch for the first 64. The sum of these is
 * in the workspace, where the next such sum overwrites it. */
static void take_many_gradients(struct shards *s) {
  int counts[] = {64, MOST_GRADIENTS, MOST_GRADIENTS};
  for (int i = 2; i < 5; i++)
    for (s->gradients[i] = 0; s->gradients[i] < counts[i - 2]; s->gradients[i]++)
      if (!s->gradient[i][s->gradients[i]])
        s->gradient[i][s->gradients[i]] = drawn(size_of(i), 500 + (uint64_t)s->gradients[i], false);
}

static void many_gradients(void **state) {
  (void)state;
  compare(&sl__op_sgd_momentum, 6, true, take_many_gradients, update_all, 5);
}

/* Tensors with rates of their own are launches of their own. */
static void take_another_decay(struct shards *s) { s->update[3].weight_decay = 0; }

static void rates_differ(void **state) {
  (void)state;
  compare(&sl__op_sgd, 8, false, take_another_decay, update_all, 3);
  compare(&sl__op_adam, 8, true, take_another_decay, update_all, 3);
}

/* A tensor that is updated twice, and one whose gradient an earlier call writes. */
static enum sl_status update_again(const struct shards *s) {
  enum sl_status status;
  SL__TRY(update(s, 0));
  SL__TRY(update(s, 1));
  SL__TRY(update(s, 0));
  SL__TRY(update(s, 2));
out:
  return status;
}

static enum sl_status update_by_param(const struct shards *s) {
  struct sl__tensor *gradient = s->param[0];
  enum sl_status status;
  SL__TRY(update(s, 0));
  SL__TRY(sl__update(context, s->op, &plain, s->param[9], s->state[9], 1, &gradient, s->norm,
                     &s->update[9]));
out:
  return status;
}

static void dependent_updates_keep_their_order(void **state) {
  (void)state;
  compare(&sl__op_adam, 3, false, NULL, update_again, 2);
  compare(&sl__op_sgd, 10, true, NULL, update_by_param, 2);
}

/* 64 copies are a launch; those of other types are launches of their own, and those that add. */
enum { COPIES = 110, ADDING = 5, FIRST_BF16 = 30, END_BF16 = 40 };

static void take_bf16(struct shards *s) {
  for (int i = FIRST_BF16; i < END_BF16; i++) {
    sl__tensor_free(s->param[i]);
    s->param[i] = bf16_tensor(SL_SHAPE(size_of(i)), NULL);
  }
}

static enum sl_status copy_all(const struct shards *s) {
  enum sl_status status = SL_OK;
  for (int i = 0; i < s->count && status == SL_OK; i++) {
    struct sl__launch launch = plain;
    launch.accumulate = i >= COPIES;
    status = sl__axpy(context, &launch, 0.5f + (float)i, s->gradient[i][0], s->param[i]);
  }
  return status;
}

static void copies_are_some_launches(void **state) {
  (void)state;
  compare(&sl__op_sgd, COPIES + ADDING, false, take_bf16, copy_all, 5);
}

/* All calls on one device: another may give other bits. */
static int open_device(void **state) {
  const char *device = getenv("SL_TEST_DEVICE");
  (void)state;
  if (open_context_with(&(struct sl_context_options){.devices = device ? device : "gpu-or-cpu"}))
    return 1;
  plain.place = context->devices[0].place;
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(updates_are_one_launch),
      cmocka_unit_test(many_updates_are_some_launches),
      cmocka_unit_test(many_gradients),
      cmocka_unit_test(rates_differ),
      cmocka_unit_test(dependent_updates_keep_their_order),
      cmocka_unit_test(copies_are_some_launches),
  };
  return cmocka_run_group_tests(tests, open_device, close_context);
}
