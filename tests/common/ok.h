/* Asserts that a call succeeds; if not, the test fails with the library's message. */
#ifndef SL_TESTS_COMMON_OK_H
#define SL_TESTS_COMMON_OK_H

#define OK(call)                                                                                   \
  do {                                                                                             \
    enum sl_status status_ = (call);                                                               \
    if (status_ != SL_OK) fail_msg("%s: %s: %s", #call, sl_status_name(status_), sl_error());      \
  } while (0)

#endif
