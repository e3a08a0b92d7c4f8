/* A generated regression whose noise is known: Friedman's first function. */
#include <math.h>
#include <stdlib.h>

#include "core/base/error.h"
#include "data/reader.h"
#include "data/source.h"

enum { FEATURES = 10, TRAINING_COUNT = 10000, TEST_COUNT = 2000 };

/* Nearly normal, of deviation 1: the sum of 12 numbers from -0.5 to 0.5. */
static float draw_noise(struct sl__source *random) {
  float sum = 0;
  for (int k = 0; k < 12; k++) sum += sl__between(random, -0.5f, 0.5f);
  return sum;
}

static float draw_sample(uint64_t seed, bool train, int64_t i, float *x) {
  struct sl__source random = sl__source(SL__SOURCE_FRIEDMAN, seed, train, i);
  for (int k = 0; k < FEATURES; k++) x[k] = sl__between(&random, 0, 1);
  double y = 10 * sin(3.14159265358979323846 * (double)x[0] * (double)x[1]);
  y += 20 * ((double)x[2] - 0.5) * ((double)x[2] - 0.5) + 10 * (double)x[3] + 5 * (double)x[4];
  return (float)y + draw_noise(&random);
}

enum sl_status sl_friedman_new(int64_t count, uint64_t seed, bool train,
                               struct sl_dataset **dataset) {
  SL__NEEDS(dataset);
  /* of uniform numbers; and of the function, measured */
  const float mean = 0.5f, deviation = 0.288675f, target_mean = 14.41f, target_deviation = 4.98f;
  if (count == 0) count = train ? TRAINING_COUNT : TEST_COUNT;
  struct sl_dataset_options options = {
      .name = train ? "Friedman's function, training set" : "Friedman's function, test set",
      .sample = SL_SHAPE(FEATURES),
      .target = SL_SHAPE(1),
      .count = count,
      .channels = 1,
      .mean = &mean,
      .deviation = &deviation,
      .target_channels = 1,
      .target_mean = &target_mean,
      .target_deviation = &target_deviation,
      .release = free};
  if (count < 1 || count > UINT32_MAX)
    return sl__fail(SL_BAD_ARGUMENT, "%s: %lld samples; a dataset has 1 to %lld", options.name,
                    (long long)count, (long long)UINT32_MAX);
  float *values = sl__alloc((size_t)count * (FEATURES + 1), sizeof *values, options.name);
  if (!values) return SL_NO_MEMORY;
  options.user = values;
  float *targets = values + count * FEATURES;
  for (int64_t i = 0; i < count; i++)
    targets[i] = draw_sample(seed, train, i, values + i * FEATURES);
  enum sl_status status = sl_dataset_floats(&options, values, targets, NULL, true, dataset);
  if (status != SL_OK) free(values);
  return status;
}

const struct sl__reader sl__friedman_reader = {
    .format = {.name = "friedman",
               .about = "10 numbers and Friedman's function of them, with noise of deviation 1",
               .generated = true},
    .generate = sl_friedman_new};
