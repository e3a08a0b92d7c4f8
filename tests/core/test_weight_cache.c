/* Prepacked weights in the weight cache (struct sl__prepack): a graph whose kernels read them gives
 * the bits of the same calls without them, also after a parameter was written, and after another
 * graph has closed a member of the cache that does not have them. */
#include "tests/common/check.h"
#include "core/graph/weight_cache.h"
#include "core/graph/graph.h"
#include "codelets/kernels/recurrent.h"

enum { STEPS = 18, IN = 21, HIDDEN = 37, OUT = 77 };

/* lstm, and its outputs' product by `weight`, of `rows` sequences. */
struct network {
  int64_t rows;
  struct sl__tensor *x, *lstm, *dense, *state, *y, *saved, *result;
};

static struct sl__tensor *filled(struct sl_shape shape, uint64_t stream) {
  double *values = random_values(sl_shape_count(&shape), stream);
  struct sl__tensor *t = tensor(shape, values);
  free(values);
  return t;
}

static struct sl__tensor *lstm_parameters(void) {
  return filled(SL_SHAPE(4 * HIDDEN * (IN + HIDDEN + 2)), 1);
}

static struct sl__tensor *dense_parameters(void) { return filled(SL_SHAPE(OUT * (HIDDEN + 1)), 2); }

static struct network network_new(int64_t rows, struct sl__tensor *lstm, struct sl__tensor *dense) {
  struct network n = {.rows = rows, .lstm = lstm, .dense = dense};
  n.x = filled(SL_SHAPE(rows, STEPS, IN), 3);
  n.state = filled(SL_SHAPE(rows, 2 * HIDDEN), 4);
  OK(sl__tensor_temporary(context, &SL_SHAPE(rows, STEPS, HIDDEN), SL_F32, &n.y));
  OK(sl__tensor_temporary(context, &SL_SHAPE(rows, STEPS, 6 * HIDDEN), SL_F32, &n.saved));
  n.result = filled(SL_SHAPE(rows, STEPS, OUT), 5);
  return n;
}

static void network_free(struct network *n) {
  sl__tensor_free(n->x);
  sl__tensor_free(n->state);
  sl__tensor_free(n->y);
  sl__tensor_free(n->saved);
  sl__tensor_free(n->result);
}

static enum sl_status calls(const struct network *n) {
  const struct sl__launch l = {.name = "test", .place = {.where = STARPU_CPU}};
  enum sl_status status = sl__fill(context, &l, n->state, 0.25f);
  if (status == SL_OK)
    status =
        sl__lstm_forward(context, &l, n->x, n->lstm, n->state, n->y, n->saved, SL__TIME_FORWARD);
  if (status != SL_OK) return status;
  return sl__dense_forward(context, &l, n->y, n->dense, n->result, true, SL_ACTIVATION_TANH);
}

static struct sl__graph *graph_of(const struct network *n, struct sl__weight_cache *cache) {
  struct sl__graph *graph;
  OK(sl__graph_new(context, &sl__op_subgraph, &sl__op_helper, &graph));
  sl__graph_use_weight_cache(graph, cache, n->x);
  OK(sl__graph_bind(graph, n->result));
  sl__graph_capture(graph);
  OK(sl__graph_compile(graph, calls(n)));
  return graph;
}

static void expect_equal(const struct network *n, struct sl__graph *graph,
                         struct sl__weight_cache *cache) {
  size_t size = (size_t)sl_shape_count(&n->result->shape) * sizeof(float);
  float *want = malloc(size), *got = malloc(size);
  OK(calls(n));
  OK(sl__tensor_read(n->result, want));
  OK(sl__weight_cache_refresh(cache));
  OK(sl__graph_submit(graph, &(struct sl__graph_run){0}));
  OK(sl__tensor_read(n->result, got));
  assert_memory_equal(got, want, size);
  free(want), free(got);
}

/* The graph reads the cache: a weight that is erased there is missed. */
static void expect_reader(const struct network *n, struct sl__graph *graph,
                          struct sl__weight_cache *cache) {
  struct sl__tensor *packed = sl__weight_cache_tensor(cache);
  size_t size = (size_t)sl_shape_count(&n->result->shape) * sizeof(float);
  float *want = malloc(size), *got = malloc(size), *nothing = calloc(1, packed->bytes);
  OK(sl__tensor_read(n->result, want));
  OK(sl__tensor_write(packed, nothing));
  OK(sl__graph_submit(graph, &(struct sl__graph_run){0}));
  OK(sl__tensor_read(n->result, got));
  assert_memory_not_equal(got, want, size);
  free(want), free(got), free(nothing);
}

static bool has_plain(const struct sl__weight_cache *cache, struct sl__tensor *t) {
  const struct sl__weight_cache_item item = {.tensor = t, .bytes = t->bytes};
  return sl__weight_cache_offset(cache, &item) >= 0;
}

/* A graph of few rows reads both weights prepacked, one of many rows reads neither so. In any
 * order, each finds its own. */
static void check_order(bool few_first) {
  struct sl__tensor *lstm = lstm_parameters(), *dense = dense_parameters();
  struct network few = network_new(2, lstm, dense), many = network_new(30, lstm, dense);
  struct network *first = few_first ? &few : &many, *second = few_first ? &many : &few;
  float *other = malloc(dense->bytes);
  struct sl__weight_cache *cache;
  OK(sl__weight_cache_new(context, &sl__op_prepack, &cache));
  struct sl__graph *one = graph_of(first, cache);
  assert_false(
      has_plain(cache, dense)); /* one is read prepacked; the cache leaves out two tensors alone */
  assert_int_equal(sl__weight_cache_tensor(cache) != NULL, few_first);
  struct sl__graph *two = graph_of(second, cache);
  assert_non_null(sl__weight_cache_tensor(cache));
  for (int again = 0; again < 2; again++) {
    expect_equal(first, one, cache);
    expect_equal(second, two, cache);
    for (size_t i = 0; i < dense->bytes / sizeof *other; i++) other[i] = (float)(i % 11) / 8 - 0.5f;
    OK(sl__tensor_write(dense, other));
  }
  expect_reader(&few, few_first ? one : two, cache);
  sl__graph_free(one);
  sl__graph_free(two);
  sl__weight_cache_free(cache);
  network_free(&few);
  network_free(&many);
  sl__tensor_free(lstm);
  sl__tensor_free(dense);
  free(other);
}

static void forms_give_the_same_bits(void **state) {
  (void)state;
  check_order(true);
  check_order(false);
}

static void twice(const void *args, const void *from, void *to) {
  int64_t count = *(const int64_t *)args;
  for (int64_t i = 0; i < count; i++) ((float *)to)[i] = 2 * ((const float *)from)[i];
}

/* The member's item of t: `factor` times t. */
static void expect_times(const struct sl__weight_cache *cache,
                         const struct sl__weight_cache_item *item, float factor) {
  const struct sl__weight_cache *member = sl__weight_cache_member(cache, item);
  float was[5], is[512];
  OK(sl__tensor_read(item->tensor, was));
  OK(sl__tensor_read(sl__weight_cache_tensor(member), is));
  const float *at = is + sl__weight_cache_offset(cache, item) / (int64_t)sizeof(float);
  for (int i = 0; i < 5; i++) assert_true(at[i] == factor * was[i]);
}

/* Two members: a prepacked weight, and plain copies. Both follow later writes. */
static void items_are_found_again(void **state) {
  (void)state;
  struct sl__tensor *t[7];
  struct sl__weight_cache *cache;
  const int64_t count = 5;
  for (int i = 0; i < 7; i++) t[i] = filled(SL_SHAPE(5), (uint64_t)i);
  const struct sl__weight_cache_item formed = {t[0], twice, t[0]->bytes, 1, &count, sizeof count};
  OK(sl__weight_cache_new(context, &sl__op_prepack, &cache));
  OK(sl__weight_cache_add(cache, &formed));
  assert_true(sl__weight_cache_offset(cache, &formed) < 0); /* not closed */
  OK(sl__weight_cache_close(cache));
  assert_int_equal(sl__weight_cache_offset(cache, &formed), 0);
  struct sl__weight_cache_item other = formed;
  other.key = 2;
  assert_true(sl__weight_cache_offset(cache, &other) < 0);
  assert_false(has_plain(cache, t[0]));
  for (int i = 0; i < 7; i++) {
    const struct sl__weight_cache_item plain = {.tensor = t[i], .bytes = t[i]->bytes};
    OK(sl__weight_cache_add(cache, &plain));
  }
  OK(sl__weight_cache_add(cache, &formed));
  OK(sl__weight_cache_close(cache));
  for (int i = 0; i < 7; i++) {
    const struct sl__weight_cache_item plain = {.tensor = t[i], .bytes = t[i]->bytes};
    assert_int_equal(sl__weight_cache_offset(cache, &plain), 256 * i);
    assert_true(sl__weight_cache_member(cache, &plain) != cache);
  }
  assert_ptr_equal(sl__weight_cache_member(cache, &formed), cache);
  for (int again = 0; again < 3; again++) {
    const float values[5] = {1, 2, 3, (float)again, 5};
    OK(sl__weight_cache_refresh(cache));
    expect_times(cache, &formed, 2);
    for (int i = 0; i < 7; i++) {
      const struct sl__weight_cache_item plain = {.tensor = t[i], .bytes = t[i]->bytes};
      expect_times(cache, &plain, 1);
    }
    OK(sl__tensor_write(t[3 * again % 4], values));
  }
  sl__weight_cache_free(cache);
  for (int i = 0; i < 7; i++) sl__tensor_free(t[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(forms_give_the_same_bits),
                                     cmocka_unit_test(items_are_found_again)};
  return cmocka_run_group_tests_name("forms", tests, open_operations, close_context);
}
