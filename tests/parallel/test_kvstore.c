/* The public KVStore on one rank, without a launcher. References are naive loops in float: sums in
 * order must be equal to the bit, optimizers' steps in double precision to a few roundings. Hard
 * cases: one element, keys that are cut, many pushes without a pull, arrays that change right after
 * the call, allocations that fail. Several ranks: test_kvstore_ranks.sh. */
#include "tests/common/check.h"
#include "core/base/error.h"

static const enum sl_kvstore_kind all_kinds[] = {SL_KVSTORE_AUTO,
                                                 SL_KVSTORE_LOCAL,
                                                 SL_KVSTORE_DEVICE,
                                                 SL_KVSTORE_DIST_SYNC,
                                                 SL_KVSTORE_DIST_ASYNC,
                                                 SL_KVSTORE_DIST_SYNC_DEVICE,
                                                 SL_KVSTORE_DIST_ASYNC_DEVICE};
enum { KINDS = sizeof all_kinds / sizeof *all_kinds };

static bool is_async(enum sl_kvstore_kind kind) {
  return kind == SL_KVSTORE_DIST_ASYNC || kind == SL_KVSTORE_DIST_ASYNC_DEVICE;
}

static int open_distributed(void **state) {
  (void)state;
  return open_context_with(&(struct sl_context_options){.distributed = true});
}

static struct sl_kvstore *new_store(enum sl_kvstore_kind kind, int64_t bound) {
  struct sl_kvstore *kv;
  OK(sl_kvstore_open(context, kind, &(struct sl_kvstore_options){.bigarray_bound = bound}, &kv));
  return kv;
}

static void close_store(struct sl_kvstore *kv) { OK(sl_kvstore_close(kv)); }

static float *floats(int64_t n, uint64_t stream) {
  float *values = calloc((size_t)n, sizeof *values);
  for (int64_t i = 0; i < n; i++) {
    float x = 2 * sl__uniform(1, stream, (uint64_t)i) - 1;
    values[i] = i % 3 ? x : x * 1e4f; /* of several magnitudes: the order of a sum shows */
  }
  return values;
}

static void assert_bits(const char *what, const float *got, const float *want, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (memcmp(&got[i], &want[i], sizeof *got) != 0)
      fail_msg("%s: element %lld of %lld is %.9g, not %.9g", what, (long long)i, (long long)n,
               (double)got[i], (double)want[i]);
}

/* The call must fail with this status, and the message must name what is wrong. */
/* ---- sums ---- */

static void check_sum(struct sl_kvstore *kv, int key, int64_t n) {
  float *terms[5], *sum = calloc((size_t)n, sizeof *sum), *got = floats(n, 77);
  for (uint64_t t = 0; t < 5; t++) terms[t] = floats(n, 10 * (uint64_t)n + t);
  OK(sl_kvstore_init(kv, key, n, got));
  memset(sum, 0, (size_t)n * sizeof *sum);
  OK(sl_kvstore_pull(kv, key, sum));
  assert_bits("the initial value", sum, got, n);
  for (int count = 1; count <= 5; count++) {
    for (int64_t i = 0; i < n; i++) {
      sum[i] = terms[0][i];
      for (int t = 1; t < count; t++) sum[i] += terms[t][i];
    }
    OK(sl_kvstore_push(kv, key, count, (const float *const *)terms));
    OK(sl_kvstore_pull(kv, key, got));
    assert_bits("pull", got, sum, n);
    memset(got, 0, (size_t)n * sizeof *got);
    OK(sl_kvstore_pushpull(kv, key, count, (const float *const *)terms, got));
    assert_bits("pushpull", got, sum, n);
  }
  for (int t = 0; t < 5; t++) free(terms[t]);
  free(sum), free(got);
}

static void without_an_optimizer_the_sum_replaces_the_value(void **state) {
  (void)state;
  static const int64_t counts[] = {1, 17, 2048, 5001}, bounds[] = {0, 1000, 1};
  for (int k = 0; k < KINDS; k++)
    for (int b = 0; b < 3 && !is_async(all_kinds[k]); b++) {
      struct sl_kvstore *kv = new_store(all_kinds[k], bounds[b]);
      for (int c = 0; c < (bounds[b] == 1 ? 2 : 4); c++) check_sum(kv, 3 - 2 * c, counts[c]);
      close_store(kv);
    }
}

/* 100 pushes on their way at once; the array is written over right after each. value -= sum. */
static void pushes_are_applied_in_order_and_copied(void **state) {
  (void)state;
  for (int k = 0; k < KINDS; k++) {
    struct sl_kvstore *kv = new_store(all_kinds[k], 700);
    int64_t n = 3000;
    float *value = floats(n, 1), *got = floats(n, 2);
    OK(sl_kvstore_init(kv, 8, n, value));
    OK(sl_kvstore_set_optimizer(kv, &(struct sl_optimizer){.lr = 1}));
    float *array = calloc((size_t)n, sizeof *array);
    for (uint64_t p = 0; p < 100; p++) {
      float *fresh = floats(n, 50 + p);
      memcpy(array, fresh, (size_t)n * sizeof *array);
      OK(sl_kvstore_push(kv, 8, 1, (const float *[]){array}));
      memset(array, 0xff, (size_t)n * sizeof *array);
      for (int64_t i = 0; i < n; i++) value[i] -= fresh[i];
      free(fresh);
    }
    OK(sl_kvstore_barrier(kv));
    OK(sl_kvstore_pull(kv, 8, got));
    assert_bits(sl_kvstore_name(all_kinds[k]), got, value, n);
    free(array), free(value), free(got);
    close_store(kv);
  }
}

static void values_that_are_not_finite_pass(void **state) {
  (void)state;
  struct sl_kvstore *kv = new_store(SL_KVSTORE_LOCAL, 0);
  float value[3] = {1, NAN, INFINITY}, got[3];
  OK(sl_kvstore_init(kv, 0, 3, value));
  OK(sl_kvstore_pull(kv, 0, got));
  assert_true(isnan(got[1]) && isinf(got[2]));
  OK(sl_kvstore_pushpull(kv, 0, 1, (const float *[]){(float[]){NAN, 2, -INFINITY}}, got));
  assert_true(isnan(got[0]) && got[1] == 2 && isinf(got[2]));
  close_store(kv);
}

/* ---- optimizers, against torch.optim's formulas ---- */

struct reference {
  double value, velocity, mean, variance;
  int step;
};

static void step_sgd(const struct sl_optimizer *o, struct reference *r, double g) {
  g += (double)o->weight_decay * r->value;
  r->velocity = (double)o->momentum * r->velocity + g;
  double move = o->nesterov ? g + (double)o->momentum * r->velocity : r->velocity;
  r->value -= (double)o->lr * move;
}

static void step_adam(const struct sl_optimizer *o, struct reference *r, double g) {
  double b1 = (double)o->beta1, b2 = (double)o->beta2, lr = (double)o->lr;
  r->step++;
  if (o->kind == SL_ADAMW) r->value *= 1 - lr * (double)o->weight_decay;
  if (o->kind == SL_ADAM) g += (double)o->weight_decay * r->value;
  r->mean = b1 * r->mean + (1 - b1) * g;
  r->variance = b2 * r->variance + (1 - b2) * g * g;
  double m = r->mean / (1 - pow(b1, r->step)), v = r->variance / (1 - pow(b2, r->step));
  r->value -= lr * m / (sqrt(v) + (double)o->epsilon);
}

static const struct sl_optimizer optimizers[] = {
    {.kind = SL_SGD, .lr = 0.1f},
    {.kind = SL_SGD, .lr = 0.1f, .weight_decay = 0.01f},
    {.kind = SL_SGD, .lr = 0.1f, .momentum = 0.9f},
    {.kind = SL_SGD, .lr = 0.1f, .momentum = 0.9f, .nesterov = true, .weight_decay = 0.01f},
    {.kind = SL_ADAM},
    {.kind = SL_ADAM, .lr = 0.01f, .weight_decay = 0.1f},
    {.kind = SL_ADAMW, .lr = 0.01f, .weight_decay = 0.1f}};

/* Key 1 is pushed twice as often as key 2: each counts its own steps. Midway the rate is halved. */
static void check_optimizer(enum sl_kvstore_kind kind, struct sl_optimizer o) {
  enum { N = 150 };
  struct sl_kvstore *kv = new_store(kind, 100);
  struct reference reference[2][N] = {0};
  float value[N], gradient[2][N];
  for (int k = 0; k < 2; k++) {
    for (int i = 0; i < N; i++) {
      value[i] = 2 * sl__uniform(1, 5, (uint64_t)(N * k + i)) - 1;
      reference[k][i].value = (double)value[i];
    }
    OK(sl_kvstore_init(kv, k, N, value));
  }
  OK(sl_kvstore_set_optimizer(kv, &o));
  OK(sl_optimizer_check(&o));
  for (uint64_t p = 0; p < 30; p++) {
    if (p == 15) o.lr *= 0.5f;
    if (p == 15) OK(sl_kvstore_set_optimizer(kv, &o));
    int k = p % 3 == 2;
    for (int i = 0; i < N; i++) {
      for (uint64_t t = 0; t < 2; t++)
        gradient[t][i] = sl__uniform(1, 100 + 2 * p + t, (uint64_t)i) - 0.4f;
      double g = (double)(gradient[0][i] + gradient[1][i]);
      (o.kind == SL_SGD ? step_sgd : step_adam)(&o, &reference[k][i], g);
    }
    OK(sl_kvstore_push(kv, k, 2, (const float *[]){gradient[0], gradient[1]}));
  }
  for (int k = 0; k < 2; k++) {
    OK(sl_kvstore_pull(kv, k, value));
    for (int i = 0; i < N; i++)
      if (fabs((double)value[i] - reference[k][i].value) > 2e-5)
        fail_msg("%s, optimizer %d: key %d, element %d is %.9g, not %.9g", sl_kvstore_name(kind),
                 (int)o.kind, k, i, (double)value[i], reference[k][i].value);
  }
  close_store(kv);
}

static void a_push_is_a_step_of_the_optimizer(void **state) {
  (void)state;
  for (int k = 0; k < KINDS; k++)
    for (size_t o = 0; o < sizeof optimizers / sizeof *optimizers; o++)
      check_optimizer(all_kinds[k], optimizers[o]);
}

/* Pushes before the first optimizer were sums: Adam's first step is the one after them. */
static void adam_counts_from_the_first_push_with_it(void **state) {
  (void)state;
  struct sl_optimizer adam = {.kind = SL_ADAM, .lr = 0.01f};
  OK(sl_optimizer_check(&adam));
  for (int k = 0; k < KINDS; k++) {
    if (is_async(all_kinds[k])) continue;
    struct sl_kvstore *kv = new_store(all_kinds[k], 0);
    float value = 1;
    struct reference reference = {.value = 1};
    OK(sl_kvstore_init(kv, 3, 1, &value));
    for (int p = 0; p < 50; p++) OK(sl_kvstore_push(kv, 3, 1, (const float *[]){&value}));
    OK(sl_kvstore_set_optimizer(kv, &adam));
    for (int p = 0; p < 6; p++) {
      if (p == 3) adam.lr *= 0.5f;
      if (p == 3) OK(sl_kvstore_set_optimizer(kv, &adam)); /* the count stays */
      float gradient = sl__uniform(1, 7, (uint64_t)p) - 0.4f;
      step_adam(&adam, &reference, (double)gradient);
      OK(sl_kvstore_pushpull(kv, 3, 1, (const float *[]){&gradient}, &value));
      assert_float_equal(value, (float)reference.value, 1e-5f);
    }
    close_store(kv);
  }
}

/* ---- compression ---- */

/* What is not sent is kept: to the bit for many pushes. */
static void two_bits_feed_the_rest_back(void **state) {
  (void)state;
  enum { N = 1001 };
  static float gradient[N], rest[N], sent[N], got[N];
  for (int k = 0; k < KINDS; k++) {
    if (all_kinds[k] < SL_KVSTORE_DIST_SYNC || is_async(all_kinds[k])) continue;
    struct sl_kvstore *kv = new_store(all_kinds[k], 300);
    OK(sl_kvstore_set_compression(kv, "2bit:0.5"));
    OK(sl_kvstore_init(kv, 3, N, gradient));
    memset(rest, 0, sizeof rest);
    for (uint64_t p = 0; p < 50; p++) {
      for (int i = 0; i < N; i++) {
        gradient[i] = sl__uniform(1, 300 + p, (uint64_t)i) - 0.4f;
        rest[i] += gradient[i];
        sent[i] = rest[i] >= 0.5f ? 0.5f : rest[i] <= -0.5f ? -0.5f : 0;
        rest[i] -= sent[i];
      }
      OK(sl_kvstore_pushpull(kv, 3, 1, (const float *[]){gradient}, got));
      assert_bits("the sent value", got, sent, N);
    }
    close_store(kv);
  }
}

/* Over many pushes the sum of the sent values and the sum of the pushed values differ by the
 * residual, which is bounded for any number of pushes. fp16 and bf16 have no such bound, but each
 * push is near. */
static void every_compression_keeps_near(void **state) {
  (void)state;
  enum { N = 500 };
  static const struct {
    const char *text;
    double each, all;
  } forms[] = {{"2bit:1", 1, 1},
               {"1bit", 4, 4},
               {"fp16", 3e-4, 0.02},
               {"bf16", 2e-3, 0.1},
               {"none", 0, 1e-5}};
  static float value[N], gradient[N];
  for (int f = 0; f < 5; f++) {
    struct sl_kvstore *kv = new_store(SL_KVSTORE_DIST_ASYNC, 0); /* one rank: in step */
    double total[N] = {0};
    memset(value, 0, sizeof value);
    OK(sl_kvstore_set_compression(kv, forms[f].text));
    OK(sl_kvstore_set_optimizer(kv, &(struct sl_optimizer){.lr = 1}));
    OK(sl_kvstore_init(kv, 3, N, value));
    for (uint64_t p = 0; p < 60; p++) {
      for (int i = 0; i < N; i++) {
        gradient[i] = sl__uniform(1, 500 + p, (uint64_t)i) - 0.5f;
        total[i] -= (double)gradient[i];
      }
      OK(sl_kvstore_push(kv, 3, 1, (const float *[]){gradient}));
    }
    OK(sl_kvstore_pull(kv, 3, value));
    for (int i = 0; i < N; i++)
      if (fabs((double)value[i] - total[i]) > forms[f].all)
        fail_msg("%s: %g after 60 pushes, not %g", forms[f].text, (double)value[i], total[i]);
    close_store(kv);
  }
}

/* ---- errors ---- */

static void bad_input_is_refused_and_harmless(void **state) {
  (void)state;
  float value[2] = {1, 2}, got[2] = {0};
  const float *const arrays[2] = {value, NULL};
  struct sl_kvstore *kv = new_store(SL_KVSTORE_LOCAL, 0);
  FAILS(sl_kvstore_push(kv, 3, 1, arrays), SL_BAD_ARGUMENT, "key 3, which is unknown");
  FAILS(sl_kvstore_pull(kv, 3, got), SL_BAD_ARGUMENT, "key 3, which is unknown");
  FAILS(sl_kvstore_pushpull(kv, 3, 1, arrays, got), SL_BAD_ARGUMENT, "key 3");
  FAILS(sl_kvstore_init(kv, 3, 0, value), SL_BAD_ARGUMENT, "key 3: 0 values");
  FAILS(sl_kvstore_init(kv, 3, -1, value), SL_BAD_ARGUMENT, "-1 values");
  FAILS(sl_kvstore_init(kv, 3, 2, NULL), SL_BAD_ARGUMENT, "NULL");
  OK(sl_kvstore_init(kv, 3, 2, value));
  FAILS(sl_kvstore_init(kv, 3, 2, value), SL_BAD_ARGUMENT, "key 3 exists already");
  FAILS(sl_kvstore_push(kv, 3, 0, arrays), SL_BAD_ARGUMENT, "0 arrays");
  FAILS(sl_kvstore_push(kv, 3, 1, NULL), SL_BAD_ARGUMENT, "key 3");
  FAILS(sl_kvstore_push(kv, 3, 2, arrays), SL_BAD_ARGUMENT, "array 1 of 2 is NULL");
  FAILS(sl_kvstore_pushpull(kv, 3, 1, arrays, NULL), SL_BAD_ARGUMENT, "NULL");
  FAILS(sl_kvstore_pull(kv, 3, NULL), SL_BAD_ARGUMENT, "NULL");
  FAILS(sl_kvstore_set_compression(kv, "2bit"), SL_BAD_ARGUMENT, "local compresses nothing");
  FAILS(sl_kvstore_serve(kv), SL_BAD_ARGUMENT, "worker");
  FAILS(sl_kvstore_set_optimizer(kv, NULL), SL_BAD_ARGUMENT, "NULL");
  FAILS(sl_kvstore_set_optimizer(kv, &(struct sl_optimizer){.lr = -1}), SL_BAD_ARGUMENT, "lr");
  FAILS(sl_kvstore_set_optimizer(kv, &(struct sl_optimizer){.clip = 1}), SL_BAD_ARGUMENT, "clip");
  FAILS(sl_kvstore_set_optimizer(kv, &(struct sl_optimizer){.average = 0.5f}), SL_BAD_ARGUMENT,
        "averages");
  FAILS(sl_kvstore_set_optimizer(kv, &(struct sl_optimizer){.kind = SL_LAMB}), SL_BAD_ARGUMENT,
        "lamb");
  OK(sl_kvstore_pull(kv, 3, got));
  assert_bits("after all that", got, value, 2);
  close_store(kv);
  OK(sl_kvstore_close(NULL));
}

static void the_order_of_calls_is_checked(void **state) {
  (void)state;
  float value[2] = {1, 2};
  const float *const arrays[1] = {value};
  struct sl_kvstore *kv = new_store(SL_KVSTORE_DIST_ASYNC, 0);
  FAILS(sl_kvstore_set_compression(kv, "3bit"), SL_BAD_ARGUMENT, "3bit");
  FAILS(sl_kvstore_set_compression(kv, NULL), SL_BAD_ARGUMENT, "NULL");
  OK(sl_kvstore_set_compression(kv, "none"));
  OK(sl_kvstore_init(kv, 3, 2, value));
  FAILS(sl_kvstore_set_compression(kv, "2bit"), SL_BAD_ARGUMENT, "key 3 exists already");
  FAILS(sl_kvstore_push(kv, 3, 1, arrays), SL_BAD_ARGUMENT, "needs an optimizer");
  OK(sl_kvstore_set_optimizer(kv, &(struct sl_optimizer){.kind = SL_ADAM}));
  OK(sl_kvstore_set_optimizer(kv, &(struct sl_optimizer){.kind = SL_SGD})); /* nothing was pushed */
  OK(sl_kvstore_push(kv, 3, 1, arrays));
  FAILS(sl_kvstore_set_optimizer(kv, &(struct sl_optimizer){.momentum = 0.9f}), SL_BAD_ARGUMENT,
        "another state");
  FAILS(sl_kvstore_set_optimizer(kv, &(struct sl_optimizer){.kind = SL_ADAMW}), SL_BAD_ARGUMENT,
        "another state");
  OK(sl_kvstore_set_optimizer(kv, &(struct sl_optimizer){.lr = 3}));
  close_store(kv);
}

static void options_are_checked(void **state) {
  (void)state;
  struct sl_kvstore *kv;
  struct sl_kvstore_options o = {.servers = 1};
  FAILS(sl_kvstore_open(context, SL_KVSTORE_LOCAL, &o, &kv), SL_BAD_ARGUMENT, "servers");
  assert_null(kv);
  FAILS(sl_kvstore_open(context, SL_KVSTORE_DIST_SYNC, &o, &kv), SL_BAD_ARGUMENT,
        "1 servers of 1 ranks");
  o = (struct sl_kvstore_options){.bigarray_bound = -1};
  FAILS(sl_kvstore_open(context, SL_KVSTORE_DEVICE, &o, &kv), SL_BAD_ARGUMENT, "bigarray_bound");
  o = (struct sl_kvstore_options){.max_staleness = 1};
  FAILS(sl_kvstore_open(context, SL_KVSTORE_DIST_SYNC, &o, &kv), SL_BAD_ARGUMENT, "max_staleness");
  FAILS(sl_kvstore_open(context, (enum sl_kvstore_kind)99, NULL, &kv), SL_BAD_ARGUMENT, "99");
  OK(sl_kvstore_open(context, SL_KVSTORE_DIST_SYNC, NULL, &kv));
  assert_int_equal(sl_kvstore_rank(kv), 0);
  assert_int_equal(sl_kvstore_num_workers(kv), 1);
  assert_true(sl_kvstore_is_worker(kv));
  close_store(kv);
}

/* On GPUs alone AUTO is DEVICE: tests/gpu/gpu_two.c. */
static void every_kind_but_auto_is_itself(void **state) {
  (void)state;
  assert_string_equal(sl_kvstore_name(sl_kvstore_choose(context, SL_KVSTORE_AUTO)), "local");
  for (int i = 0; i < KINDS; i++) {
    enum sl_kvstore_kind kind = all_kinds[i], named;
    if (kind != SL_KVSTORE_AUTO) assert_int_equal(sl_kvstore_choose(context, kind), kind);
    OK(sl_kvstore_parse(sl_kvstore_name(kind), &named));
    assert_int_equal(named, kind);
  }
}

static void stores_do_not_mix(void **state) {
  (void)state;
  struct sl_kvstore *a = new_store(SL_KVSTORE_DIST_SYNC, 0), *b = new_store(SL_KVSTORE_LOCAL, 0);
  float one = 1, two = 2, got;
  OK(sl_kvstore_init(a, 1, 1, &one));
  OK(sl_kvstore_init(b, 1, 1, &two));
  OK(sl_kvstore_push(a, 1, 2, (const float *[]){&one, &two}));
  OK(sl_kvstore_pull(b, 1, &got));
  assert_true(got == 2);
  close_store(b);
  OK(sl_kvstore_pull(a, 1, &got));
  assert_true(got == 3);
  close_store(a);
}

/* ---- allocations ---- */

static enum sl_status live(enum sl_kvstore_kind kind) {
  float value[30] = {1}, got[30];
  const float *const arrays[2] = {value, value};
  struct sl_kvstore *kv = NULL;
  enum sl_status status;
  SL__TRY(sl_kvstore_open(context, kind, &(struct sl_kvstore_options){.bigarray_bound = 7}, &kv));
  if (kind >= SL_KVSTORE_DIST_SYNC) SL__TRY(sl_kvstore_set_compression(kv, "1bit"));
  SL__TRY(sl_kvstore_init(kv, 2, 30, value));
  SL__TRY(sl_kvstore_set_optimizer(kv, &(struct sl_optimizer){.kind = SL_ADAM}));
  SL__TRY(sl_kvstore_init(kv, 1, 30, value));
  SL__TRY(sl_kvstore_push(kv, 1, 2, arrays));
  SL__TRY(sl_kvstore_pushpull(kv, 2, 1, arrays, got));
  SL__TRY(sl_kvstore_barrier(kv));
out:
  sl_kvstore_close(kv);
  return status;
}

static void every_failing_allocation_is_reported(void **state) {
  (void)state;
  static const enum sl_kvstore_kind kinds[] = {SL_KVSTORE_DEVICE, SL_KVSTORE_DIST_SYNC};
  for (int k = 0; k < 2; k++) {
    enum sl_status status = SL_NO_MEMORY;
    long n = 0;
    while (status != SL_OK && n < 1000) {
      sl__alloc_fail_after(++n);
      status = live(kinds[k]);
      sl__alloc_fail_after(0);
      if (status != SL_OK) assert_string_equal(sl_status_name(status), "NO_MEMORY");
    }
    assert_true(n > 20 && n < 1000);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(without_an_optimizer_the_sum_replaces_the_value),
      cmocka_unit_test(pushes_are_applied_in_order_and_copied),
      cmocka_unit_test(values_that_are_not_finite_pass),
      cmocka_unit_test(a_push_is_a_step_of_the_optimizer),
      cmocka_unit_test(adam_counts_from_the_first_push_with_it),
      cmocka_unit_test(two_bits_feed_the_rest_back),
      cmocka_unit_test(every_compression_keeps_near),
      cmocka_unit_test(bad_input_is_refused_and_harmless),
      cmocka_unit_test(the_order_of_calls_is_checked),
      cmocka_unit_test(options_are_checked),
      cmocka_unit_test(every_kind_but_auto_is_itself),
      cmocka_unit_test(stores_do_not_mix),
      cmocka_unit_test(every_failing_allocation_is_reported)};
  return cmocka_run_group_tests_name("kvstore", tests, open_distributed, close_context);
}
