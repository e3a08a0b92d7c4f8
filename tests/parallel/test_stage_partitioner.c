/* The planner. References: brute force over every contiguous placement of small random cases, and
 * the guidelines of MXNet's "Training with Multiple GPUs Using Model Parallelism" (neighbouring
 * layers together, balanced work, encoder and decoder counted in, slow links avoided). */
#include <math.h>

#include "core/base/random.h"
#include "tests/common/files.h"
#include "parallel/planning/stage_partitioner.h"
#include "tests/common/harness.h"

#define LAYERS 100
#define CLASSES 10
#define CASES 1200

struct problem {
  double ms[CLASSES][LAYERS], bytes[LAYERS], cut_bytes[LAYERS];
  double bytes_per_ms[CLASSES * CLASSES], latency_ms[CLASSES * CLASSES];
  struct sl__stage_partitioner_device_class classes[CLASSES];
  struct sl__stage_partitioner planner;
};

static struct problem problem;
static struct sl__stage_partition planned;

/* Layers of 1 ms, no byte, on devices without limits that share memory. */
static void begin(int layers, int classes, int count) {
  static const double never_read = NAN;
  problem.planner = (struct sl__stage_partitioner){.layers = layers,
                                                   .class_count = classes,
                                                   .classes = problem.classes,
                                                   .bytes = problem.bytes,
                                                   .cut_bytes = problem.cut_bytes,
                                                   .bytes_per_ms = problem.bytes_per_ms,
                                                   .latency_ms = problem.latency_ms};
  for (int c = 0; c < classes; c++) {
    problem.classes[c] =
        (struct sl__stage_partitioner_device_class){problem.ms[c], INFINITY, count};
    for (int i = 0; i < layers; i++) problem.ms[c][i] = 1;
  }
  for (int i = 0; i < layers; i++) {
    problem.bytes[i] = 0;
    problem.cut_bytes[i] = i ? 0 : never_read;
  }
  for (int i = 0; i < classes * classes; i++) {
    problem.bytes_per_ms[i] = INFINITY;
    problem.latency_ms[i] = 0;
  }
}

static enum sl_status plan(void) {
  sl__stage_partition_clear(&planned);
  return sl__stage_partitioner_plan(&problem.planner, &planned);
}

static int end_of(int stage) {
  return stage + 1 < planned.stages ? planned.first[stage + 1] : problem.planner.layers;
}

static int layers_of(int stage) { return end_of(stage) - planned.first[stage]; }

/* ---- brute force ------------------------------------------------------------------------------
 */

/* Every placement, stage by stage; wanted is what the last pass over them left. */
struct brute {
  int stages, end[6], class[6], left[CLASSES];
  int pass; /* 0: the slowest stage, 1: the total, 2: the count of stages */
  double slowest, total;
  int fewest;
};

static double crossing(int layer, int from, int to) {
  int pair = from * problem.planner.class_count + to;
  return problem.cut_bytes[layer] / problem.bytes_per_ms[pair] + problem.latency_ms[pair];
}

/* Of one stage, from its definition. */
static double time_of(int first, int last, int before, int class, int after) {
  double ms = 0;
  for (int i = first; i < last; i++) ms += problem.ms[class][i];
  if (first > 0) ms += crossing(first, before, class);
  if (last < problem.planner.layers) ms += crossing(last, class, after);
  return ms;
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-9 * (fabs(a) + fabs(b)); }

static void judge(struct brute *brute) {
  double slowest = 0, total = 0;
  for (int s = 0; s < brute->stages; s++) {
    bool last = s == brute->stages - 1;
    double ms = time_of(s ? brute->end[s - 1] : 0, brute->end[s], s ? brute->class[s - 1] : -1,
                        brute->class[s], last ? -1 : brute->class[s + 1]);
    slowest = fmax(slowest, ms);
    total += ms;
  }
  if (brute->pass == 0) brute->slowest = fmin(brute->slowest, slowest);
  if (brute->pass == 0 || (slowest > brute->slowest && !near(slowest, brute->slowest))) return;
  if (brute->pass == 1) brute->total = fmin(brute->total, total);
  if (brute->pass == 1 || (total > brute->total && !near(total, brute->total))) return;
  if (brute->stages < brute->fewest) brute->fewest = brute->stages;
}

static void place_rest(struct brute *brute, int first) {
  int limit = problem.planner.most_stages;
  if (first == problem.planner.layers) judge(brute);
  if (limit && brute->stages == limit) return;
  for (int c = 0; c < problem.planner.class_count; c++) {
    double bytes = 0;
    if (brute->left[c] == 0) continue;
    brute->left[c]--;
    for (int end = first + 1; end <= problem.planner.layers; end++) {
      bytes += problem.bytes[end - 1];
      if (bytes > problem.classes[c].memory) break;
      brute->end[brute->stages] = end;
      brute->class[brute->stages++] = c;
      place_rest(brute, end);
      brute->stages--;
    }
    brute->left[c]++;
  }
}

static struct brute by_brute_force(void) {
  struct brute brute = {.slowest = INFINITY, .total = INFINITY, .fewest = 1000};
  for (int c = 0; c < problem.planner.class_count; c++) brute.left[c] = problem.classes[c].count;
  for (brute.pass = 0; brute.pass < 3; brute.pass++) place_rest(&brute, 0);
  return brute;
}

/* The numbers that came out belong to the placement that came out, and it keeps the rules. */
static void assert_consistent(void) {
  int left[CLASSES];
  double slowest = 0, total = 0;
  for (int c = 0; c < problem.planner.class_count; c++) left[c] = problem.classes[c].count;
  assert_int_equal(planned.first[0], 0);
  assert_int_equal(planned.too_large, -1);
  for (int s = 0; s < planned.stages; s++) {
    int class = planned.device_class[s];
    double bytes = 0, ms = time_of(planned.first[s], end_of(s), s ? planned.device_class[s - 1] : 0,
                                   class, s + 1 < planned.stages ? planned.device_class[s + 1] : 0);
    assert_true(planned.first[s] < end_of(s));
    assert_true(left[class]-- > 0);
    for (int i = planned.first[s]; i < end_of(s); i++) bytes += problem.bytes[i];
    assert_true(bytes == planned.stage_bytes[s] && bytes <= problem.classes[class].memory);
    assert_true(near(ms, planned.stage_ms[s]));
    slowest = fmax(slowest, ms);
    total += ms;
  }
  assert_true(near(slowest, planned.slowest_ms) && near(total, planned.total_ms));
}

/* ---- random cases -----------------------------------------------------------------------------
 */

static uint64_t drawn;

/* Every second case has few whole numbers, of which many placements are equally good. */
static double draw(double most, bool whole) {
  double value = (double)sl__uniform(5, 1, drawn++) * most;
  return whole ? floor(value) : value;
}

static int draw_int(int least, int most) { return least + (int)draw(most - least + 1, true); }

static void draw_problem(bool whole) {
  int classes = draw_int(1, 3), layers = draw_int(1, 6);
  begin(layers, classes, 0);
  for (int devices = draw_int(1, 4); devices > 0; devices--)
    problem.classes[draw_int(0, classes - 1)].count++;
  for (int c = 0; c < classes; c++) {
    double speed = draw_int(1, 4);
    for (int i = 0; i < layers; i++) problem.ms[c][i] = speed * draw(4, whole);
    if (draw_int(0, 2)) problem.classes[c].memory = draw(20, true);
  }
  for (int i = 0; i < layers; i++) problem.bytes[i] = draw(8, true);
  for (int i = 1; i < layers; i++) problem.cut_bytes[i] = draw(8, whole);
  for (int i = 0; i < classes * classes; i++) {
    if (draw_int(0, 3)) problem.bytes_per_ms[i] = ldexp(1, draw_int(-1, 4));
    if (draw_int(0, 1)) problem.latency_ms[i] = draw(3, whole);
  }
  if (draw_int(0, 3) == 0) problem.planner.most_stages = draw_int(1, 4);
}

static void brute_force_agrees(void **state) {
  (void)state;
  int unfit = 0, single = 0, several = 0;
  for (int i = 0; i < CASES; i++) {
    draw_problem(i % 2);
    struct brute wanted = by_brute_force();
    enum sl_status status = plan();
    if (wanted.slowest == INFINITY) {
      FAILS(status, SL_NO_MEMORY, "smaller batch");
      unfit++;
      continue;
    }
    if (status != SL_OK) fail_msg("case %d: %s", i, sl_error());
    assert_consistent();
    if (!near(planned.slowest_ms, wanted.slowest) || !near(planned.total_ms, wanted.total) ||
        planned.stages != wanted.fewest)
      fail_msg("case %d: slowest %.17g ms of %.17g in %d stages; brute force: %.17g of %.17g in %d",
               i, planned.slowest_ms, planned.total_ms, planned.stages, wanted.slowest,
               wanted.total, wanted.fewest);
    *(planned.stages > 1 ? &several : &single) += 1;
  }
  /* the draws are none too easy */
  assert_true(unfit > CASES / 10 && single > CASES / 10 && several > CASES / 4);
}

/* ---- guidelines -------------------------------------------------------------------------------
 */

static void assert_stages(int stages, const int *layers) {
  assert_int_equal(planned.stages, stages);
  for (int s = 0; s < stages; s++) assert_int_equal(layers_of(s), layers[s]);
}

/* 2, 1 and 2 ms: a cut before the 1 balances as well as one behind it. */
static void cuts_go_where_they_are_cheap(void **state) {
  (void)state;
  for (int dear = 1; dear <= 2; dear++) {
    begin(3, 1, 2);
    problem.ms[0][0] = problem.ms[0][2] = 2;
    problem.bytes_per_ms[0] = 10;
    problem.cut_bytes[dear] = 5;
    problem.cut_bytes[3 - dear] = 4;
    OK(plan());
    assert_int_equal(planned.stages, 2);
    assert_int_equal(planned.first[1], 3 - dear);
    assert_true(near(planned.slowest_ms, 3.4) && near(planned.total_ms, 5.8));
  }
  /* 3 + 3 ms and a dear cut, or 4 + 2 beside it: the balance is worth 1 ms at most */
  for (int dear = 0; dear < 2; dear++) {
    begin(6, 1, 2);
    problem.bytes_per_ms[0] = 10;
    problem.cut_bytes[3] = dear ? 11 : 9;
    OK(plan());
    assert_int_equal(planned.stages, 2);
    assert_true(dear == (planned.first[1] != 3));
  }
}

static void equal_layers_are_shared_evenly(void **state) {
  (void)state;
  begin(8, 1, 4);
  for (int i = 0; i < 8; i++) problem.ms[0][i] = 0.1; /* sums of which are rounded */
  OK(plan());
  assert_stages(4, (int[]){2, 2, 2, 2});
  assert_true(near(planned.slowest_ms, 0.2) && near(planned.total_ms, 0.8));
}

/* Runs of three layers of 0.1 ms beside one of 0.3: rounding makes them unequal, but no further
 * device is worth taking for that. */
static void no_device_is_taken_for_nothing(void **state) {
  (void)state;
  for (int runs = 1; runs < 30; runs++) {
    begin(3 * runs + 1, 1, 40);
    for (int i = 0; i < 3 * runs; i++) problem.ms[0][i] = 0.1;
    problem.ms[0][3 * runs] = 0.3;
    OK(plan());
    assert_int_equal(planned.stages, runs + 1);
    for (int s = 0; s < runs; s++) assert_int_equal(layers_of(s), 3);
  }
}

/* Where stages must be fewer than devices. */
static void no_more_stages_than_allowed(void **state) {
  (void)state;
  begin(10, 2, 4);
  problem.planner.most_stages = 2;
  OK(plan());
  assert_stages(2, (int[]){5, 5});
}

/* An embedding that costs next to nothing, LSTM layers of 1 ms, a decoder: on three devices of
 * about 3 ms each there is one balanced placement. The dearer the decoder, the fewer LSTM layers
 * beside it; the embedding rides with the first ones. */
static void encoder_and_decoder_count(void **state) {
  (void)state;
  for (int decoder = 1; decoder <= 3; decoder++) {
    int lstm = 9 - decoder;
    begin(lstm + 2, 1, 3);
    problem.ms[0][0] = 0.01;
    problem.ms[0][lstm + 1] = decoder;
    OK(plan());
    assert_stages(3, (int[]){1 + 3, 3, 3 - decoder + 1});
  }
}

static void a_slow_link_is_not_used(void **state) {
  (void)state;
  for (int slow = 0; slow < 2; slow++)
    for (int waiting = 0; waiting < 2; waiting++) {
      begin(4, 1, 2);
      for (int i = 1; i < 4; i++) problem.cut_bytes[i] = 1000;
      problem.bytes_per_ms[0] = slow && !waiting ? 400 : 1e6;
      problem.latency_ms[0] = slow && waiting ? 2.5 : 0;
      OK(plan());
      assert_int_equal(planned.stages, slow ? 1 : 2);
    }
}

/* From the second class to the first is fast, the other way slow. */
static void each_direction_has_its_link(void **state) {
  (void)state;
  begin(4, 2, 1);
  for (int i = 1; i < 4; i++) problem.cut_bytes[i] = 100;
  problem.bytes_per_ms[0 * 2 + 1] = 1;
  problem.bytes_per_ms[1 * 2 + 0] = 1000;
  OK(plan());
  assert_stages(2, (int[]){2, 2});
  assert_int_equal(planned.device_class[0], 1);
  assert_int_equal(planned.device_class[1], 0);
}

/* Class 0 is the CPU, class 1 the GPU. */
static void a_fast_device_takes_nearly_all(void **state) {
  (void)state;
  begin(22, 2, 1);
  for (int i = 0; i < 22; i++) problem.ms[0][i] = 10;
  OK(plan());
  assert_int_equal(planned.stages, 2);
  for (int s = 0; s < 2; s++) assert_int_equal(layers_of(s), planned.device_class[s] ? 20 : 2);
  assert_true(planned.slowest_ms == 20);
  /* eight layers take the CPU longer apiece than the GPU all of them together */
  problem.planner.layers = 8;
  OK(plan());
  assert_int_equal(planned.stages, 1);
  assert_int_equal(planned.device_class[0], 1);
}

/* ---- memory -----------------------------------------------------------------------------------
 */

static void layers_spread_where_memory_is_short(void **state) {
  (void)state;
  begin(6, 1, 3);
  for (int i = 0; i < 6; i++) problem.bytes[i] = 100;
  for (int i = 1; i < 6; i++) problem.cut_bytes[i] = 1000; /* one device is faster */
  problem.bytes_per_ms[0] = 10;
  OK(plan());
  assert_int_equal(planned.stages, 1);
  problem.classes[0].memory = 200;
  OK(plan());
  assert_stages(3, (int[]){2, 2, 2});
  problem.classes[0].memory = 199;
  FAILS(plan(), SL_NO_MEMORY, "the model needs 600 bytes, the 3 devices have 597 in all");
  assert_null(planned.first);
  assert_int_equal(planned.stages, 0);
  assert_int_equal(planned.too_large, -1);
  problem.classes[0].memory = 200;
  problem.planner.most_stages = 2;
  FAILS(plan(), SL_NO_MEMORY, "at most 2 stages");
  problem.bytes[4] = 201;
  FAILS(plan(), SL_NO_MEMORY, "layer 4 (from 0) alone needs 201 bytes");
  assert_int_equal(planned.too_large, 4);
}

/* A class without devices neither serves a stage nor has memory. */
static void absent_devices_have_no_memory(void **state) {
  (void)state;
  begin(2, 2, 1);
  problem.bytes[1] = 11;
  problem.classes[0].memory = 10;
  problem.planner.most_stages = 1;
  OK(plan());
  assert_int_equal(planned.device_class[0], 1);
  problem.classes[1].count = 0; /* its memory is still INFINITY */
  FAILS(plan(), SL_NO_MEMORY, "layer 1 (from 0) alone needs 11 bytes");
}

/* ---- refusals ---------------------------------------------------------------------------------
 */

static void refused(const char *text) {
  FAILS(plan(), SL_BAD_ARGUMENT, text);
  assert_null(planned.first);
  begin(3, 2, 2);
}

static void wrong_numbers_are_refused(void **state) {
  (void)state;
  begin(0, 2, 2);
  refused("0 layers");
  problem.planner.class_count = 0;
  refused("0 device classes");
  problem.classes[0].count = problem.classes[1].count = 0;
  refused("no devices");
  problem.classes[1].count = -1;
  refused("-1 devices");
  problem.planner.most_stages = -1;
  refused("-1 stages");
  problem.ms[1][2] = -1;
  refused("ms [2] is -1");
  problem.ms[1][2] = NAN;
  refused("ms [2] is");
  problem.ms[0][1] = INFINITY;
  refused("ms [1] is inf");
  problem.ms[0][1] = problem.ms[0][2] = 1e308;
  refused("sum of ms");
  problem.classes[1].memory = NAN;
  refused("memory");
  problem.bytes[2] = -8;
  refused("bytes [2] is -8");
  problem.bytes[0] = problem.bytes[1] = 1e308;
  refused("sum of bytes");
  problem.cut_bytes[1] = NAN;
  refused("cut bytes [1]");
  problem.bytes_per_ms[3] = 0;
  refused("bytes per ms [3] is 0; it must be more than 0");
  problem.latency_ms[2] = -0.5;
  refused("latency in ms [2] is -0.5");
  OK(plan()); /* each of them alone was at fault */
}

static enum sl_status plan_once(void) {
  struct sl__stage_partition once;
  enum sl_status status = sl__stage_partitioner_plan(&problem.planner, &once);
  sl__stage_partition_clear(&once);
  return status;
}

static void failed_allocations_leave_nothing(void **state) {
  (void)state;
  begin(5, 2, 2);
  check_allocations(plan_once);
}

/* ---- size -------------------------------------------------------------------------------------
 */

static void a_hundred_layers_on_two_times_eight_devices(void **state) {
  (void)state;
  begin(100, 2, 8);
  for (int i = 0; i < 100; i++) {
    problem.ms[0][i] = 1 + draw(1, false);
    problem.ms[1][i] = 3 + draw(3, false);
    problem.bytes[i] = draw(10, true);
    if (i) problem.cut_bytes[i] = draw(100, true);
  }
  for (int i = 0; i < 4; i++) problem.bytes_per_ms[i] = 500;
  problem.classes[0].memory = 70;
  problem.classes[1].memory = 60;
  OK(plan());
  assert_consistent();
  assert_true(planned.stages > 8);
}

static void too_many_kinds_of_devices_are_refused(void **state) {
  (void)state;
  begin(100, CLASSES, 8);
  FAILS(plan(), SL_BAD_ARGUMENT, "put devices that are alike in one class");
}

static int clear_planned(void **state) {
  (void)state;
  sl__stage_partition_clear(&planned);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(brute_force_agrees),
      cmocka_unit_test(cuts_go_where_they_are_cheap),
      cmocka_unit_test(equal_layers_are_shared_evenly),
      cmocka_unit_test(no_device_is_taken_for_nothing),
      cmocka_unit_test(no_more_stages_than_allowed),
      cmocka_unit_test(encoder_and_decoder_count),
      cmocka_unit_test(a_slow_link_is_not_used),
      cmocka_unit_test(each_direction_has_its_link),
      cmocka_unit_test(a_fast_device_takes_nearly_all),
      cmocka_unit_test(layers_spread_where_memory_is_short),
      cmocka_unit_test(absent_devices_have_no_memory),
      cmocka_unit_test(wrong_numbers_are_refused),
      cmocka_unit_test(failed_allocations_leave_nothing),
      cmocka_unit_test(a_hundred_layers_on_two_times_eight_devices),
      cmocka_unit_test(too_many_kinds_of_devices_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, clear_planned);
}
