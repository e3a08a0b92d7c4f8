/* For tests of readers of arrays: slices. */
#ifndef TESTS_SLICES_H
#define TESTS_SLICES_H

#include "data/dataset.h"
#include "tests/common/harness.h"

/* The inputs' array has `count` samples with the values unit i + place; `inputs` names a slice of
 * it, with the samples from `first` on, each `step`, and of each sample these places. */
static inline void check_slice_of(const char *path, const char *inputs, int64_t count, int unit,
                                  int64_t first, int64_t step, const struct sl_shape *shape,
                                  const int *places) {
  const struct sl_reader_options options = {.inputs = inputs, .inputs_only = true};
  struct sl_dataset *set;
  float x[16], none;
  OK(sl_dataset_read(path, &options, true, &set));
  const struct sl_dataset_info *info = sl_dataset_info(set);
  assert_true(sl_shape_count(shape) <= (int64_t)(sizeof x / sizeof *x));
  assert_true(sl_shape_equal(&info->sample, shape));
  assert_int_equal(info->count, (count - first + step - 1) / step);
  for (int64_t i = 0; i < info->count; i++) {
    OK(sl_dataset_get_targets(set, i, x, &none));
    for (int64_t k = 0; k < sl_shape_count(shape); k++)
      assert_true(x[k] == (float)(unit * (first + i * step) + places[k]));
  }
  sl_dataset_free(set);
}

#endif
