/* Updates of a captured graph that compute a dense layer's gradient themselves
 * (core/graph/graph_absorb.c): the bits of single tasks, for each optimizer, shards that begin in
 * the middle of a row, several replicas; the gradients are not written. Where something else needs
 * a gradient, or its inputs change before the update, the calls stay as they are. */
#include "tests/common/check.h"
#include "core/base/error.h"
#include "core/graph/graph.h"
#include "core/runtime/wait.h"

enum { REPLICAS = 5, PARTS = 4, STEPS = 3, UNWRITTEN = -77 };

enum obstacle {
  NO_OBSTACLE,
  KEPT,        /* the caller wants a gradient */
  READ,        /* a call reads it */
  ACCUMULATED, /* two calls add up to it */
  OVERWRITTEN, /* x changes before the update */
  CLIPPED,     /* the norm is needed first */
  STAGED,      /* a pipeline's stage computes it */
  UNEVEN       /* the replicas' numbers of samples differ */
};

struct training {
  const char *name;
  struct sl__op *optimizer;
  int64_t samples, in, out;
  bool has_bias;
  int replicas, parts;
  enum obstacle obstacle;
  bool is_absorbed;
  /* ---- its tensors ---- */
  struct sl__tensor *x[REPLICAS], *dy[REPLICAS], *grad[REPLICAS];
  struct sl__tensor *param, *state[PARTS][2], *square;
};

static int64_t samples_of(const struct training *t, int replica) {
  return t->obstacle == UNEVEN && replica ? t->samples - 1 : t->samples;
}

static int64_t count_of(const struct training *t) { return t->out * (t->in + t->has_bias); }

static struct sl__tensor *part_of(struct sl__tensor *tensor, int i) {
  return tensor->view_count ? &tensor->views[i] : tensor;
}

static struct sl__tensor *drawn(int64_t rows, int64_t columns, uint64_t stream) {
  double *values = random_values(rows * columns, stream);
  struct sl__tensor *t =
      columns > 1 ? tensor(SL_SHAPE(rows, columns), values) : tensor(SL_SHAPE(rows), values);
  free(values);
  return t;
}

/* Parts of different lengths, so that they begin in the middle of rows. */
static void split(const struct training *t, struct sl__tensor *tensor, int64_t *lengths) {
  int64_t left = count_of(t);
  for (int p = 0; p < t->parts; p++) {
    lengths[p] = p + 1 < t->parts ? left / (t->parts - p) + 1 : left;
    left -= lengths[p];
  }
  if (t->parts > 1) OK(sl__tensor_split(tensor, t->parts, lengths));
}

static void make(struct training *t) {
  int64_t count = count_of(t), lengths[PARTS];
  double *unwritten = zeros(count);
  for (int64_t i = 0; i < count; i++) unwritten[i] = UNWRITTEN;
  t->param = drawn(count, 1, 9);
  split(t, t->param, lengths);
  for (int r = 0; r < t->replicas; r++) {
    t->x[r] = drawn(samples_of(t, r), t->in, 1 + (uint64_t)r);
    t->dy[r] = drawn(samples_of(t, r), t->out, 5 + (uint64_t)r);
    t->grad[r] = tensor(SL_SHAPE(count), unwritten);
    split(t, t->grad[r], lengths);
  }
  for (int p = 0; p < t->parts; p++)
    for (int k = 0; k < sl__update_states(t->optimizer); k++)
      t->state[p][k] = tensor(SL_SHAPE(lengths[p]), NULL);
  t->square = drawn(1, 1, 3);
  free(unwritten);
}

static void drop(struct training *t) {
  OK(sl__wait_for_all(context));
  for (int r = 0; r < t->replicas; r++) {
    sl__tensor_free(t->x[r]);
    sl__tensor_free(t->dy[r]);
    sl__tensor_free(t->grad[r]);
  }
  for (int p = 0; p < t->parts; p++)
    for (int k = 0; k < 2; k++) {
      sl__tensor_free(t->state[p][k]);
      t->state[p][k] = NULL;
    }
  sl__tensor_free(t->param);
  sl__tensor_free(t->square);
}

/* ---- a step ---- */

static enum sl_status gradients(const struct training *t) {
  struct sl__launch launch = plain;
  enum sl_status status = SL_OK;
  launch.mark.stage = t->obstacle == STAGED;
  for (int r = 0; r < t->replicas; r++)
    SL__TRY(
        sl__dense_backward_weight(context, &launch, t->x[r], t->dy[r], t->grad[r], t->has_bias));
  if (t->obstacle == ACCUMULATED)
    SL__TRY(
        sl__dense_backward_weight(context, &adding, t->x[0], t->dy[0], t->grad[0], t->has_bias));
  if (t->obstacle == READ)
    SL__TRY(sl__square_sum(context, &plain, part_of(t->grad[0], 0), t->square));
  if (t->obstacle == OVERWRITTEN) SL__TRY(sl__fill(context, &plain, t->x[0], 0.5f));
out:
  return status;
}

/* Every other step writes by streaming stores. */
static enum sl_status step(struct training *t, int64_t number) {
  const struct sl__update update = {.lr = 0.1f / (float)(1 + number),
                                    .weight_decay = 0.01f,
                                    .momentum = 0.9f,
                                    .beta1 = 0.9f,
                                    .beta2 = 0.999f,
                                    .epsilon = 1e-8f,
                                    .step = number + 1,
                                    .max_norm = 0.1f,
                                    .streams = number % 2};
  struct sl__tensor *terms[REPLICAS];
  enum sl_status status;
  SL__TRY(gradients(t));
  for (int p = 0; p < t->parts; p++) {
    for (int r = 0; r < t->replicas; r++) terms[r] = part_of(t->grad[r], p);
    SL__TRY(sl__update(context, t->optimizer, &plain, part_of(t->param, p), t->state[p],
                       t->replicas, terms, t->obstacle == CLIPPED ? t->square : NULL, &update));
  }
out:
  return status;
}

static float *values_of(struct sl__tensor *t, int64_t count) {
  float *values = calloc((size_t)count, sizeof *values);
  OK(sl__tensor_read(t, values));
  return values;
}

static float *run_eager(struct training *t) {
  make(t);
  for (int s = 0; s < STEPS; s++) OK(step(t, s));
  float *param = values_of(t->param, count_of(t));
  drop(t);
  return param;
}

static void check_unwritten(const struct training *t) {
  float *grad = values_of(t->grad[0], count_of(t));
  for (int64_t i = 0; i < count_of(t); i++)
    if ((grad[i] == UNWRITTEN) != t->is_absorbed)
      fail_msg("%s: element %lld of the gradient is %g", t->name, (long long)i, (double)grad[i]);
  free(grad);
}

static float *run_captured(struct training *t) {
  struct sl__graph *graph;
  make(t);
  OK(sl__graph_new(context, &sl__op_subgraph, &sl__op_helper, &graph));
  sl__graph_join_slices(graph, 50);
  if (t->obstacle == KEPT) OK(sl__graph_keep(graph, part_of(t->grad[0], 0)));
  sl__graph_capture(graph);
  OK(sl__graph_compile(graph, step(t, 7)));
  for (int s = 0; s < STEPS; s++) {
    const struct sl__step_record record = {.number = s, .lr = 0.1f / (float)(1 + s)};
    OK(sl__graph_submit(graph, &(struct sl__graph_run){.step = &record}));
  }
  float *param = values_of(t->param, count_of(t));
  check_unwritten(t);
  OK(sl__wait_for_all(context));
  sl__graph_free(graph);
  drop(t);
  return param;
}

static void check(struct training t) {
  float *want = run_eager(&t), *got = run_captured(&t);
  for (int64_t i = 0; i < count_of(&t); i++)
    if (memcmp(&want[i], &got[i], sizeof *got))
      fail_msg("%s: parameter %lld is %.9g, not %.9g", t.name, (long long)i, (double)got[i],
               (double)want[i]);
  free(want), free(got);
}

static void gradients_are_not_stored(void **state) {
  static const struct training all[] = {
      {"sgd", &sl__op_sgd, 20, 70, 51, true, 1, 1, NO_OBSTACLE, true},
      {"momentum", &sl__op_sgd_momentum, 64, 130, 97, true, 2, 4, NO_OBSTACLE, true},
      {"adam", &sl__op_adam, 33, 64, 48, false, 3, 2, NO_OBSTACLE, true},
      {"hundreds of samples", &sl__op_sgd_momentum, 350, 70, 300, true, 2, 3, NO_OBSTACLE, true},
      {"one of each", &sl__op_sgd_momentum, 1, 1, 1, true, 1, 1, NO_OBSTACLE, true},
      {"biases alone in a part", &sl__op_adam, 7, 1, 40, true, 2, 3, NO_OBSTACLE, true},
      {"many biases", &sl__op_sgd, 3, 1, 2500, true, 2, 2, NO_OBSTACLE, true}};
  (void)state;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) check(all[i]);
}

static void gradients_that_are_needed_stay(void **state) {
  static const struct training all[] = {
      {"kept", &sl__op_sgd, 20, 70, 51, true, 2, 3, KEPT, false},
      {"read", &sl__op_sgd, 20, 70, 51, true, 2, 3, READ, false},
      {"accumulated", &sl__op_adam, 20, 70, 51, true, 2, 1, ACCUMULATED, false},
      {"overwritten", &sl__op_sgd, 20, 70, 51, true, 2, 1, OVERWRITTEN, false},
      {"clipped", &sl__op_sgd_momentum, 20, 70, 51, true, 1, 2, CLIPPED, false},
      {"staged", &sl__op_sgd, 20, 70, 51, true, 2, 1, STAGED, false},
      {"uneven", &sl__op_sgd, 20, 70, 51, true, 2, 1, UNEVEN, false},
      {"many samples", &sl__op_sgd, 1025, 70, 51, true, 1, 1, NO_OBSTACLE, false},
      {"too many replicas", &sl__op_sgd, 8, 70, 51, true, 5, 1, NO_OBSTACLE, false}};
  (void)state;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) check(all[i]);
}

/* A capture that fails anywhere frees its memory. */
static void no_memory(void **state) {
  struct training t = {"adam", &sl__op_adam, 9, 20, 11, true, 2, 3, NO_OBSTACLE, true};
  enum sl_status status = SL_NO_MEMORY;
  (void)state;
  make(&t);
  for (int n = 1; status != SL_OK && n < 2000; n++) {
    struct sl__graph *graph;
    OK(sl__graph_new(context, &sl__op_subgraph, &sl__op_helper, &graph));
    sl__graph_join_slices(graph, 50);
    sl__graph_capture(graph);
    sl__alloc_fail_after(n);
    status = sl__graph_compile(graph, step(&t, 1));
    sl__alloc_fail_after(0);
    if (status != SL_OK) assert_int_equal(status, SL_NO_MEMORY);
    sl__graph_free(graph);
  }
  assert_int_equal(status, SL_OK);
  drop(&t);
}

/* Only our own product can be absorbed; it is not preferred on every processor. */
static int open_own(void **state) {
  if (open_context(state)) return 1;
  sl__choice_force(context, SL__OWN);
  return 0;
}

int main(void) {
  setenv("STARPU_NCPU", "2", 0);
  setenv("STARPU_SILENT", "1", 0);
  const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_are_not_stored),
                                     cmocka_unit_test(gradients_that_are_needed_stay),
                                     cmocka_unit_test(no_memory)};
  return cmocka_run_group_tests_name("graph_absorb", tests, open_own, close_context);
}
