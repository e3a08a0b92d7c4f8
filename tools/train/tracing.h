/* --trace DIR: which steps are recorded, what is written beside StarPU's trace, who draws it. */
#ifndef SL_TOOLS_TRAIN_TRACING_H
#define SL_TOOLS_TRAIN_TRACING_H

#include <limits.h>

#include "tools/train/cli.h"

struct trace {
  const char *program;   /* argv[0], beside which the tool is looked for */
  char folder[PATH_MAX]; /* this rank's; "": no trace */
  int64_t first;         /* that was to be recorded */
  int64_t begun, ended;  /* steps that were recorded, from 1; 0: none */
  double seconds;        /* in them */
  double peak;           /* GFLOP/s of one core; 0: not measured */
};

/* The folder; of several ranks each has its own. false: the path is too long, or cannot be made. */
bool trace_prepare(struct trace *trace, const char *program, const struct cli *cli);

/* Which steps were recorded. */
void trace_note(struct trace *trace, const struct sl_fit_result *result);

/* While nothing else runs. */
void trace_measure_peak(struct trace *trace);

/* What the trace does not say by itself; after sl_close, which writes the trace. errno's value or
 * 0.
 */
int trace_write_window(const struct trace *trace, const struct cli *cli);

/* Has starling-trace draw; quiet: it says nothing of what came out. false: it is not there, or
 * failed and said why; the trace is there all the same. */
bool trace_draw(const struct trace *trace, bool quiet);

#endif
