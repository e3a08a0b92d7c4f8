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
  uint32_t order[COUNT], again[COUNT], other[COUNT], fixed = 0;
  bool seen[COUNT] = {false};
  sl__permutation(1, 2, order, COUNT);
  sl__permutation(1, 2, again, COUNT);
  sl__permutation(1, 3, other, COUNT);
  assert_memory_equal(order, again, sizeof order);
  assert_memory_not_equal(order, other, sizeof order);
  for (uint32_t i = 0; i < COUNT; i++) {
    assert_true(order[i] < COUNT && !seen[order[i]]);
    seen[order[i]] = true;
    fixed += order[i] == i;
  }
  assert_true(fixed < 10);
  sl__permutation(1, 2, order, 1);
  assert_int_equal(order[0], 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(known_answers), cmocka_unit_test(moments),
                                     cmocka_unit_test(permutations)};
  return cmocka_run_group_tests_name("random", tests, NULL, NULL);
}
