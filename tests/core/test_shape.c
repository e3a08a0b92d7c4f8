/* Shapes: their text and number of elements, also where a shape is impossible. */
#include <limits.h>

#include "tests/common/harness.h"

static void shapes_are_told_and_counted(void **state) {
  (void)state;
  char text[64];
  assert_string_equal(sl_shape_text(&SL_SHAPE(20, 24, 1), text, sizeof text), "[20, 24, 1]");
  assert_string_equal(sl_shape_text(&(struct sl_shape){0}, text, sizeof text), "[]");
  assert_string_equal(sl_shape_text(&SL_SHAPE(1000, 1000), text, 6), "[1000");
  assert_int_equal(sl_shape_count(&SL_SHAPE(20, 24, 1)), 480);
  assert_int_equal(sl_shape_count(&(struct sl_shape){0}), 1);
  assert_int_equal(sl_shape_count(&SL_SHAPE(1ll << 40, 1ll << 40)), INT64_MAX);
  assert_true(sl_shape_equal(&SL_SHAPE(2, 3), &SL_SHAPE(2, 3)));
  assert_false(sl_shape_equal(&SL_SHAPE(2, 3), &SL_SHAPE(2, 4)));
  assert_false(sl_shape_equal(&SL_SHAPE(2, 3), &SL_SHAPE(2, 3, 1)));
}

/* The dimensions that such a shape claims to have are not read. */
static void impossible_shapes_are_not_read(void **state) {
  (void)state;
  static const int numbers[] = {-1, INT_MIN, SL_MAX_DIMS + 1, 100, INT_MAX};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    const struct sl_shape shape = {.ndim = numbers[i]}, same = shape;
    char text[64];
    assert_string_equal(sl_shape_text(&shape, text, sizeof text), "[?]");
    assert_int_equal(sl_shape_count(&shape), INT64_MAX);
    assert_false(sl_shape_equal(&shape, &same));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(shapes_are_told_and_counted),
                                     cmocka_unit_test(impossible_shapes_are_not_read)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
