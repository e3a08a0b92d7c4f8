/* A call that must succeed; the test ends with the library's message where it does not. */
#ifndef SL_TESTS_COMMON_OK_H
#define SL_TESTS_COMMON_OK_H

#define OK(call)                                                                                   \
  do {                                                                                             \
    enum sl_status status_ = (call);                                                               \
    if (status_ != SL_OK) fail_msg("%s: %s: %s", #call, sl_status_name(status_), sl_error());      \
  } while (0)

#endif
