/* Common parts of the tests of nn/: a context for the whole program, short functions that build
 * models. */
#ifndef TESTS_SMALL_MODEL_H
#define TESTS_SMALL_MODEL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <starling.h>

#define assert_ok(call)                                                                            \
  do {                                                                                             \
    if ((call) != SL_OK) fail_msg("%s: %s", #call, sl_error());                                    \
  } while (0)

/* Asserts that the call fails with this status and that the message names the mistake. */
#define assert_refused(call, expected, words)                                                      \
  do {                                                                                             \
    assert_string_equal(sl_status_name(call), sl_status_name(expected));                           \
    if (!strstr(sl_error(), words)) fail_msg("\"%s\" does not say \"%s\"", sl_error(), words);     \
  } while (0)

static struct sl_context *context;

static inline void open_context(uint64_t seed) {
  setenv("STARPU_SILENT", "1", 0);
  assert_ok(sl_open(&(struct sl_context_options){.seed = seed, .devices = getenv("SL_TEST_DEVICE")},
                    &context));
}

static inline int group_setup(void **state) {
  (void)state;
  open_context(1);
  return 0;
}

static inline int group_teardown(void **state) {
  (void)state;
  sl_close(context);
  return 0;
}

static inline struct sl_model *new_model(struct sl_shape sample) {
  struct sl_model *model;
  assert_ok(sl_model_new(context, &sample, &model));
  return model;
}

static inline void add_dense(struct sl_model *model, const char *name, int64_t features,
                             enum sl_init init) {
  assert_ok(
      sl_dense(model, name, &(struct sl_dense_options){.features = features, .layer.init = init}));
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
  assert_ok(sl_model_get(model, parameter, values));
  return values;
}

#endif
