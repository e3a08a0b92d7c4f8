/* --report-failure FILE: what the developers need to know about a run that failed, as text that can
 * be mailed. It has versions, devices, options, StarPU's variables, the last messages and steps,
 * and the tasks that wait. Names of hosts, users and files are left out. */
#ifndef SL_TOOLS_TRAIN_FAILURE_REPORT_H
#define SL_TOOLS_TRAIN_FAILURE_REPORT_H

#include <starling.h>

#include "tools/train/private_text.h"

enum { REPORT_LINES = 32, REPORT_STEPS = 8 };

struct failure_report {
  const char *program;
  const struct cli *cli;
  char *path; /* this rank's file; NULL: no report is wanted, or it is written */
  struct sl_context *context;
  struct private_texts private; /* what the report leaves out */
  char *crash_text;             /* prepared: a handler of signals must not allocate */
  /* the last ones, in rings; count of all. Lines are without what is private. */
  char line[REPORT_LINES][240];
  long long line_count;
  struct sl_report step[REPORT_STEPS];
  long long step_count;
};

/* Before the context is opened. */
void failure_report_begin(struct failure_report *report, const char *program,
                          const struct cli *cli);

/* An sl_log_function whose user is the report: prints the line as the library would, and keeps
 * it. */
void failure_report_log(void *report, enum sl_level level, const char *line);

/* Once the context is open: fatal signals (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) write the
 * report, too. */
void failure_report_watch(struct failure_report *report, struct sl_context *context);

/* Keeps the result of a step. */
void failure_report_step(struct failure_report *report, const struct sl_report *step);

/* Writes the file and names it on the error stream. message: why the run failed. */
void failure_report_write(struct failure_report *report, const char *message);

/* Frees it; fatal signals write no report any more. */
void failure_report_end(struct failure_report *report);

#endif
