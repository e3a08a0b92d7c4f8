/* One way to fail: a message is kept, and printed once at the end. All return the exit code. */
#ifndef SL_TOOLS_TRAIN_FAILURE_H
#define SL_TOOLS_TRAIN_FAILURE_H

#include "tools/train/session.h"

/* Keeps the message that session_close prints. */
int session_fail(struct session *session, int code, const char *format, ...) SL_PRINTF(3, 4);

/* The library's message; arguments that it refuses are bad usage. */
int session_fail_library(struct session *session, enum sl_status status);

/* errno's value for a file that cannot be written. */
int session_fail_file(struct session *session, const char *path, int error);

/* A failure of one rank is a failure of all. Collective. */
int session_share(struct session *session, int code);

/* Prints one line; a message that all ranks have, rank 0 prints alone. */
void session_print_failure(struct session *session);

#endif
