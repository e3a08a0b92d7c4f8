/* Schedules: the factors against values worked out by hand, and the texts that are refused. */
#include <math.h>

#include "nn/optimizer.h"
#include "tests/common/small_model.h"

static struct sl_schedule parsed(const char *text, int64_t total) {
  struct sl_schedule s;
  OK(sl_schedule_parse(text, total, &s));
  return s;
}

static void assert_factor(const struct sl_schedule *s, int64_t step, double expected) {
  assert_float_equal(sl_schedule_factor(s, step), expected, 1e-6);
}

static void constant_is_one(void **state) {
  (void)state;
  struct sl_schedule zero = {0}, constant = parsed("constant", 0);
  assert_factor(&zero, 0, 1);
  assert_factor(&constant, 0, 1);
  assert_factor(&constant, INT64_MAX, 1);
}

static void warmup_rises_to_one(void **state) {
  (void)state;
  struct sl_schedule s = parsed("constant,warmup:4", 0);
  const double expected[] = {0.25, 0.5, 0.75, 1, 1, 1};
  for (int step = 0; step < 6; step++) assert_factor(&s, step, expected[step]);
  struct sl_schedule none = parsed("constant,warmup:0", 0);
  assert_factor(&none, 0, 1);
}

static void step_multiplies_by_gamma(void **state) {
  (void)state;
  struct sl_schedule tenth = parsed("step:10", 0), half = parsed("step:3:0.5,warmup:2", 0);
  assert_factor(&tenth, 0, 1);
  assert_factor(&tenth, 9, 1);
  assert_factor(&tenth, 10, 0.1);
  assert_factor(&tenth, 19, 0.1);
  assert_factor(&tenth, 20, 0.01);
  assert_factor(&tenth, 1000000, 0);
  /* periods count from the end of the warm-up: 2, 3, 4 at 1; 5, 6, 7 at 1/2 */
  const double expected[] = {0.5, 1, 1, 1, 1, 0.5, 0.5, 0.5, 0.25};
  for (int step = 0; step < 9; step++) assert_factor(&half, step, expected[step]);
}

static void cosine_falls_to_its_floor(void **state) {
  (void)state;
  struct sl_schedule s = parsed("cosine", 100), floor = parsed("cosine:0.1,warmup:20", 100);
  assert_factor(&s, 0, 1);
  assert_factor(&s, 25, 0.5 + 0.25 * sqrt(2.0)); /* (1 + cos 45 degrees) / 2 */
  assert_factor(&s, 50, 0.5);
  assert_factor(&s, 75, 0.5 - 0.25 * sqrt(2.0));
  assert_factor(&s, 100, 0);
  assert_factor(&s, 1000, 0);
  /* from the warm-up's end, step 20, to the training's, step 100 */
  assert_factor(&floor, 0, 0.05);
  assert_factor(&floor, 19, 1);
  assert_factor(&floor, 20, 1);
  assert_factor(&floor, 60, 0.55);
  assert_factor(&floor, 100, 0.1);
  for (int step = 21; step < 100; step++)
    assert_true(sl_schedule_factor(&floor, step) < sl_schedule_factor(&floor, step - 1));
}

/* As in arXiv 1512.03385: a tenth after half of the steps, again after three quarters; counted from
 * the first step, warm-up or not. */
static void drops_come_at_their_steps(void **state) {
  (void)state;
  struct sl_schedule s = parsed("drops:50%:75%,warmup:2%", 200), at = parsed("drops:3:5", 0);
  const double expected[] = {1, 1, 1, 0.1, 0.1, 0.01, 0.01};
  for (int step = 0; step < 7; step++) assert_factor(&at, step, expected[step]);
  assert_int_equal(s.warmup, 4);
  assert_factor(&s, 0, 0.25);
  assert_factor(&s, 4, 1);
  assert_factor(&s, 99, 1);
  assert_factor(&s, 100, 0.1);
  assert_factor(&s, 149, 0.1);
  assert_factor(&s, 150, 0.01);
  assert_factor(&s, INT64_MAX, 0.01);
}

static void shares_of_all_steps(void **state) {
  (void)state;
  struct sl_schedule few = parsed("step:25%,warmup:2%", 3), many = parsed("step:12.5%", 1000);
  assert_int_equal(few.period, 1); /* not 0 */
  assert_int_equal(few.warmup, 0);
  assert_int_equal(many.period, 125);
  for (int percent = 1; percent <= 100; percent++) { /* no less by rounding */
    char text[32];
    snprintf(text, sizeof text, "step:%d%%", percent);
    assert_int_equal(parsed(text, 100).period, percent);
    assert_int_equal(parsed(text, 700).period, 7 * percent);
  }
}

/* A struct filled in by hand need not have passed the parser. */
static void odd_structs_give_a_factor(void **state) {
  (void)state;
  struct sl_schedule no_period = {.kind = SL_STEP}, no_total = {.kind = SL_COSINE, .floor = 0.2f};
  struct sl_schedule no_drops = {.kind = SL_DROPS};
  assert_factor(&no_period, 5, 1);
  assert_factor(&no_drops, 5, 1);
  assert_factor(&no_total, 5, 0.2);
}

static void bad_texts_are_refused(void **state) {
  (void)state;
  const struct {
    const char *text, *words;
  } bad[] = {{"", "constant"},
             {"", "kind is unknown"},
             {"linear", "kind is unknown"},
             {"constant:1", "takes no value"},
             {"step", "PERIOD"},
             {"step:", "PERIOD"},
             {"step:0", "PERIOD"},
             {"step:-5", "PERIOD"},
             {"step:1.5", "PERIOD"},
             {"step:10x", "PERIOD"},
             {"step:99999999999999999999", "PERIOD"},
             {"step:10:", "GAMMA"},
             {"step:10:0", "GAMMA"},
             {"step:10:2", "GAMMA"},
             {"step:10:nan", "GAMMA"},
             {"step:10:0.1:3", "too many"},
             {"step:101%", "PERIOD"},
             {"step:-1%", "PERIOD"},
             {"step:5%%", "PERIOD"},
             {"step:%", "PERIOD"},
             {"step:nan%", "PERIOD"},
             {"drops", "needs a STEP"},
             {"drops:", "STEP must be"},
             {"drops:50%:x", "STEP must be"},
             {"drops:50%:25%", "ascend"},
             {"drops:1:2:3:4:5:6:7:8:9", "too many"},
             {"cosine:-1", "FLOOR"},
             {"cosine:2", "FLOOR"},
             {"cosine:0:0", "too many"},
             {"constant,", "warmup"},
             {"constant,warmup", "STEPS"},
             {"constant,warmup:-1", "STEPS"},
             {"constant,warmup:1,warmup:2", "STEPS"},
             {"constant,cooldown:3", "warmup"},
             {"cosine,warmup:100", "shorter"},
             {"cosine,warmup:101", "shorter"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct sl_schedule s = {.warmup = 7};
    FAILS(sl_schedule_parse(bad[i].text, 100, &s), SL_BAD_ARGUMENT, bad[i].words);
    assert_int_equal(s.warmup, 7);
  }
  struct sl_schedule s;
  FAILS(sl_schedule_parse("cosine", 0, &s), SL_BAD_ARGUMENT, "number of steps");
  FAILS(sl_schedule_parse("drops:50%", 0, &s), SL_BAD_ARGUMENT, "STEP");
}

static void assert_bad(const struct sl_schedule *s, const char *words) {
  assert_int_equal(sl__schedule_check(s), SL_BAD_ARGUMENT);
  if (!strstr(sl_error(), words)) fail_msg("'%s' is not in: %s", words, sl_error());
}

static void odd_structs_are_refused(void **state) {
  (void)state;
  static const struct {
    struct sl_schedule schedule;
    const char *words;
  } bad[] = {
      {{.kind = SL_COSINE}, "total is 0"},
      {{.kind = SL_COSINE, .total = 9, .warmup = 9}, "a warm-up of 9 steps leaves nothing of 9"},
      {{.kind = SL_COSINE, .total = 9, .floor = -0.1f}, "floor is -0.1"},
      {{.kind = SL_COSINE, .total = 9, .floor = NAN}, "floor is "},
      {{.kind = SL_STEP}, "period is 0"},
      {{.kind = SL_STEP, .period = INT64_MAX}, "period is 9223372036854775807"},
      {{.kind = SL_STEP, .period = 3, .gamma = NAN}, "gamma is "},
      {{.kind = SL_STEP, .period = 3, .gamma = 1.5f}, "gamma is 1.5"},
      {{.kind = SL_DROPS}, "0 drops; give 1 to 8"},
      {{.kind = SL_DROPS, .drop_count = 9}, "9 drops"},
      {{.kind = SL_DROPS, .drop = {5, 4}, .drop_count = 2}, "at step 4 follows one at 5"},
      {{.kind = SL_DROPS, .drop = {-1}, .drop_count = 1}, "a drop is -1"},
      {{.kind = SL_DROPS, .drop = {1}, .drop_count = 1, .gamma = -1}, "gamma is -1"},
      {{.kind = (enum sl_schedule_kind)9}, "no kind 9"},
      {{.warmup = -1}, "warmup is -1"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_bad(&bad[i].schedule, bad[i].words);
}

static void parsed_schedules_are_taken(void **state) {
  (void)state;
  static const char *const good[] = {
      "constant",    "constant,warmup:4",     "step:3:0.5",           "step:1",
      "drops:0:0:5", "drops:1:2:3:4:5:6:7:8", "cosine:0.25,warmup:9", "cosine:1"};
  const struct sl_schedule zero = {0};
  OK(sl__schedule_check(&zero));
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    struct sl_schedule s = parsed(good[i], 10);
    OK(sl__schedule_check(&s));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(constant_is_one),           cmocka_unit_test(warmup_rises_to_one),
      cmocka_unit_test(step_multiplies_by_gamma),  cmocka_unit_test(cosine_falls_to_its_floor),
      cmocka_unit_test(drops_come_at_their_steps), cmocka_unit_test(shares_of_all_steps),
      cmocka_unit_test(odd_structs_give_a_factor), cmocka_unit_test(bad_texts_are_refused),
      cmocka_unit_test(odd_structs_are_refused),   cmocka_unit_test(parsed_schedules_are_taken)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
