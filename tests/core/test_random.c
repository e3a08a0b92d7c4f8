/* Philox4x32-10 against the known answers of the Random123 distribution (kat_vectors), and moments
 * of what is made of it. */
#include "tests/common/check.h"

static void known_answers(void **state) {
  (void)state;
  static const struct {
    uint64_t seed, stream, index;
    uint32_t want[4];
  } vectors[] = {{0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
                 {~0ull, ~0ull, ~0ull, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
                 {0x299f31d0a4093822ull,
                  0x0370734413198a2eull,
                  0x85a308d3243f6a88ull,
                  {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
  for (size_t i = 0; i < 3; i++) {
    struct sl__random4 r = sl__philox(vectors[i].seed, vectors[i].stream, vectors[i].index);
    assert_memory_equal(r.v, vectors[i].want, sizeof r.v);
  }
}

/* What is made of the first vector above: the 24 upper bits of its words; and of each pair of words
 * one of Box and Muller's numbers, worked out elsewhere. */
static void numbers_of_known_answers(void **state) {
  (void)state;
  static const uint32_t words[] = {0x6627e8, 0xe169c5, 0xbc57ac, 0x9b00db};
  static const double normal[] = {0.9911376790966604, -0.6176089596525953};
  for (uint64_t i = 0; i < 4; i++)
    assert_true((double)sl__uniform(0, 0, i) == words[i] / 16777216.0);
  for (uint64_t i = 0; i < 2; i++) assert_true(fabs(sl__normal(0, 0, i) - normal[i]) < 1e-14);
}

static void moments(void **state) {
  (void)state;
  int n = 200000;
  double mean = 0, square = 0, normal = 0, normal_square = 0;
  for (int i = 0; i < n; i++) {
    double u = (double)sl__uniform(3, 4, (uint64_t)i), z = sl__normal(3, 5, (uint64_t)i);
    assert_true(u >= 0 && u < 1 && isfinite(z));
    mean += u / n;
    square += u * u / n;
    normal += z / n;
    normal_square += z * z / n;
  }
  assert_true(fabs(mean - 0.5) < 0.004 && fabs(square - 1.0 / 3) < 0.004);
  assert_true(fabs(normal) < 0.012 && fabs(normal_square - 1) < 0.02);
}

static void permutations(void **state) {
  (void)state;
  enum { COUNT = 1000 };
  uint32_t order[COUNT], again[COUNT], other[COUNT];
  bool seen[COUNT] = {false};
  sl__permutation(1, 2, order, COUNT);
  sl__permutation(1, 2, again, COUNT);
  sl__permutation(1, 3, other, COUNT);
  assert_memory_equal(order, again, sizeof order);
  assert_memory_not_equal(order, other, sizeof order);
  for (uint32_t i = 0; i < COUNT; i++) {
    assert_true(order[i] < COUNT && !seen[order[i]]);
    seen[order[i]] = true;
  }
  sl__permutation(1, 2, order, 1);
  assert_int_equal(order[0], 0);
}

/* Number of a permutation of four: its digits in base 4. */
static int number_of(const uint32_t order[4]) {
  return (int)(order[0] + 4 * order[1] + 16 * order[2] + 64 * order[3]);
}

/* Each of the 24 permutations of four comes as often as any other: 1000 times, within six standard
 * deviations of a binomial. So does the one that moves nothing, and the number of values that stay
 * in their place is 1 on average. */
static void permutations_are_equally_likely(void **state) {
  (void)state;
  enum { DRAWS = 24000 };
  int times[256] = {0}, kinds = 0, fixed = 0;
  double expected = DRAWS / 24.0, most = 6 * sqrt(DRAWS * (1 / 24.0) * (23 / 24.0));
  for (uint64_t stream = 0; stream < DRAWS; stream++) {
    uint32_t order[4];
    sl__permutation(7, stream, order, 4);
    times[number_of(order)]++;
    for (uint32_t i = 0; i < 4; i++) fixed += order[i] == i;
  }
  for (int i = 0; i < 256; i++) {
    kinds += times[i] > 0;
    if (times[i] && fabs(times[i] - expected) > most)
      fail_msg("permutation %03x came %d times of %d", (unsigned)i, times[i], DRAWS);
  }
  assert_int_equal(kinds, 24);
  assert_true(abs(fixed - DRAWS) < 6 * sqrt(DRAWS)); /* the number's variance is 1, too */
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(known_answers),
                                     cmocka_unit_test(numbers_of_known_answers),
                                     cmocka_unit_test(moments), cmocka_unit_test(permutations),
                                     cmocka_unit_test(permutations_are_equally_likely)};
  return cmocka_run_group_tests_name("random", tests, NULL, NULL);
}
