#include "core/runtime/log.h"

#include <stdarg.h>
#include <stdio.h>

#include "core/base/numbers.h"

static const char *level_name(enum sl_level level) {
  switch (level) {
    case SL_LOG_WARNING: return "warning: ";
    case SL_LOG_INFO: return "";
    default: return "debug: ";
  }
}

void sl__log(struct sl_context *context, enum sl_level level, const char *format, ...) {
  char line[1024];
  va_list list;
  if (!context || level > context->log_level) return;
  locale_t before = sl__locale_begin();
  va_start(list, format);
  vsnprintf(line, sizeof line, format, list);
  va_end(list);
  sl__locale_end(before);
  starpu_pthread_mutex_lock(&context->log_mutex);
  if (context->log)
    context->log(context->log_user, level, line);
  else
    fprintf(stderr, "starling: %s%s\n", level_name(level), line);
  starpu_pthread_mutex_unlock(&context->log_mutex);
}
