/* For tests of models: short functions that build models and read parameters. */
#ifndef TESTS_SMALL_MODEL_H
#define TESTS_SMALL_MODEL_H

#include "tests/common/harness.h"

static inline struct sl_model *new_model(struct sl_shape sample) {
  struct sl_model *model;
  OK(sl_model_new(context, &sample, &model));
  return model;
}

static inline void add_dense(struct sl_model *model, const char *name, int64_t features,
                             enum sl_init init) {
  OK(sl_dense(model, name, &(struct sl_dense_options){.features = features, .layer.init = init}));
}

/* Number of values of a parameter; the test fails if there is none of that name. */
static inline int64_t value_count(const struct sl_model *model, const char *parameter) {
  struct sl_shape shape;
  for (int i = 0; i < sl_model_parameter_count(model); i++)
    if (!strcmp(sl_model_parameter(model, i, &shape), parameter)) return sl_shape_count(&shape);
  fail_msg("no parameter %s", parameter);
  return 0;
}

/* A copy of a parameter; to be freed. */
static inline float *get_values(struct sl_model *model, const char *parameter) {
  float *values = calloc((size_t)value_count(model, parameter), sizeof *values);
  assert_non_null(values);
  OK(sl_model_get(model, parameter, values));
  return values;
}

#endif
