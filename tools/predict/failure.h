/* How starling-predict fails: with one line on the error stream, and an exit code. */
#ifndef SL_TOOLS_PREDICT_FAILURE_H
#define SL_TOOLS_PREDICT_FAILURE_H

#include <starling.h>

#include "tools/common/command_line.h"

/* Prints "starling-predict: ..." on the error stream, but only for the first failure: later ones
 * follow from it. Returns code. From any thread. */
int fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* With sl_error(). EXIT_USAGE for SL_BAD_ARGUMENT, which the user's options caused. */
int fail_library(enum sl_status status);
int fail_memory(void);
/* Prints "starling-predict: ..." on the error stream, and is no failure. */
void remark(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The reader of the output has ended: the program ends, too, without a message. */
enum { EXIT_FAILED_QUIETLY = -1 };

#endif
