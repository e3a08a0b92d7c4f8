#include "tools/train/failure.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tools/common/abort_message.h"
#include "tools/train/ranks.h"

int session_fail(struct session *session, int code, const char *format, ...) SL_PRINTF(3, 4);
int session_fail(struct session *session, int code, const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(session->message, sizeof session->message, format, list);
  va_end(list);
  return code;
}

void session_print_failure(struct session *session) {
  if (session->rank && session->common) return;
  if (session->apart && !cli_let_first_speak()) return;
  aborted_told();
  if (session->rank)
    fprintf(stderr, "%s: rank %d: %s\n", session->name, session->rank, session->message);
  else
    fprintf(stderr, "%s: %s\n", session->name, session->message);
  failure_report_write(&session->failure_report, session->message);
}

/* The library has no message of an allocation that the trainer made itself. */
static const char *reason(enum sl_status status) {
  if (*sl_error()) return sl_error();
  return status == SL_NO_MEMORY ? "no memory; other options may need less" : sl_status_name(status);
}

int session_fail_library(struct session *session, enum sl_status status) {
  session->common |= status == SL_NOT_FINITE && !ranks_are_async(&session->cli);
  return session_fail(session, status == SL_BAD_ARGUMENT ? EXIT_USAGE : EXIT_FAILED, "%s%s%s%s",
                      session->option ? "--" : "", session->option ? session->option : "",
                      session->option ? ": " : "", reason(status));
}

int session_fail_file(struct session *session, const char *path, int error) {
  return session_fail(session, EXIT_FAILED, "%s: cannot be written: %s%s", path, strerror(error),
                      error == ENOENT ? "; does its folder exist?" : "");
}

int session_share(struct session *session, int code) {
  enum sl_status mine = code == EXIT_DONE ? SL_OK : code == EXIT_USAGE ? SL_BAD_ARGUMENT : SL_IO;
  enum sl_status status = sl_share(session->context, mine, session->message);
  if (status == SL_OK) return EXIT_DONE;
  session->common = status != SL_LOST;
  return status == mine ? code : session_fail_library(session, status);
}
