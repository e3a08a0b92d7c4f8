#include "tools/predict/failure.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "tools/common/abort_message.h"

int fail(int code, const char *format, ...) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static bool said;
  va_list list;
  va_start(list, format);
  pthread_mutex_lock(&lock);
  if (!said) {
    fprintf(stderr, "starling-predict: ");
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
  }
  said = true;
  aborted_told();
  pthread_mutex_unlock(&lock);
  va_end(list);
  return code;
}

void remark(const char *format, ...) {
  va_list list;
  va_start(list, format);
  flockfile(stderr);
  fprintf(stderr, "starling-predict: ");
  vfprintf(stderr, format, list);
  fputc('\n', stderr);
  funlockfile(stderr);
  va_end(list);
}

int fail_library(enum sl_status status) {
  return fail(status == SL_BAD_ARGUMENT ? EXIT_USAGE : EXIT_FAILED, "%s", sl_error());
}

int fail_memory(void) { return fail(EXIT_FAILED, "no memory is left"); }
