/* --trace DIR: which steps are recorded, what is written beside StarPU's trace, who draws it. */
#ifndef SL_TOOLS_TRAIN_TRACING_H
#define SL_TOOLS_TRAIN_TRACING_H

#include <limits.h>

#include "tools/train/cli.h"

struct trace {
  const char *program;   /* argv[0], beside which the tool is looked for */
  char folder[PATH_MAX]; /* this rank's; "": no trace */
  int64_t first, last;   /* steps to be recorded, from 1 */
  int64_t begun, ended;  /* steps that were; 0: none */
  double since, seconds; /* begin of the current recording (0: none); total of all */
  double peak;           /* GFLOP/s of one core; 0: not measured */
};

/* The folder; of several ranks each has its own. false: the path is too long, or cannot be made. */
bool trace_prepare(struct trace *trace, const char *program, const struct cli *cli);

/* The run has steps begun_at + 1 to steps: which are recorded? false: none could be. */
bool trace_plan(struct trace *trace, const struct cli *cli, int64_t begun_at, int64_t steps);

/* Is this step recorded? Whole steps: the caller waits for all tasks before start and stop. */
bool trace_takes(const struct trace *trace, int64_t step);
enum sl_status trace_start(struct trace *trace, struct sl_context *context, int64_t step);
void trace_stop(struct trace *trace, struct sl_context *context, int64_t step);

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
