/* What every program of cmocka cases shares: assertions about one call of the library, and one
 * context for the whole program. */
#ifndef SL_TESTS_COMMON_HARNESS_H
#define SL_TESTS_COMMON_HARNESS_H

/* cmocka.h needs the first three before it */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
/* clang-format on */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <starling.h>

/* Asserts that the call succeeds; if not, the test fails with the library's message. */
#define OK(call)                                                                                   \
  do {                                                                                             \
    enum sl_status status_ = (call);                                                               \
    if (status_ != SL_OK) fail_msg("%s: %s: %s", #call, sl_status_name(status_), sl_error());      \
  } while (0)

/* Asserts that the call fails with this status and that its message contains this text. */
#define FAILS(call, expected, text)                                                                \
  do {                                                                                             \
    enum sl_status status_ = (call);                                                               \
    const char *text_ = (text);                                                                    \
    if (status_ != (expected) || !strstr(sl_error(), text_))                                       \
      fail_msg("%s: %s: \"%s\"; expected %s: \"...%s...\"", #call, sl_status_name(status_),        \
               sl_error(), sl_status_name(expected), text_);                                       \
  } while (0)

/* The program's context. */
static struct sl_context *context;

/* Does SL_TEST_DEVICE name a GPU? */
static inline bool on_gpu(void) {
  const char *device = getenv("SL_TEST_DEVICE");
  return device && strncmp(device, "cpu", 3) != 0;
}

/* For group fixtures of programs whose context has options of its own; 0 on success. */
static inline int open_context_with(const struct sl_context_options *options) {
  if (sl_open(options, &context) == SL_OK) return 0;
  fprintf(stderr, "%s\n", sl_error());
  return 1;
}

/* Group fixtures for cmocka_run_group_tests. The context is on the device that SL_TEST_DEVICE names
 * ("cuda:0"), or on all devices without it. */
static inline int open_context(void **state) {
  (void)state;
  return open_context_with(
      &(struct sl_context_options){.seed = 1, .devices = getenv("SL_TEST_DEVICE")});
}

static inline int close_context(void **state) {
  (void)state;
  sl_close(context);
  return 0;
}

#endif
