/* Statistics of a trace: shares of devices, times of layers, the critical path, overlaps. */
#ifndef SL_TOOLS_TRACE_TRACE_STATS_H
#define SL_TOOLS_TRACE_TRACE_STATS_H

#include "tools/trace/trace.h"

/* What the hardware can do, as the user says; 0: unknown. */
struct roof {
  double gflops;    /* of one CPU core */
  double gigabytes; /* a second, of one CPU core */
};

struct device_numbers {
  double ms[STATES]; /* without states: busy, and idle for all the rest */
  size_t tasks;
};

struct layer_numbers {
  double ms[PASSES];
  double gflops; /* of its tasks on CPUs that tell how much they compute; NAN: none does */
  double share;  /* of what the roof lets them have; NAN: unknown */
};

struct numbers {
  struct device_numbers *devices; /* one a worker */
  struct layer_numbers *layers;
  double bubble;        /* share of the used workers' time in which no task ran */
  double together;      /* share of the window in which two or more workers ran tasks */
  double communication; /* share of the transfers' time in which some worker ran a task; NAN: there
                           was no transfer */
  double transfer_ms;   /* in which something was on its way, ms */
  long *path;           /* the critical path: tasks, first to last */
  size_t path_count;
  double path_ms;
};

/* false: no memory. */
bool numbers_take(const struct trace *trace, const struct roof *roof, struct numbers *numbers);
void numbers_free(struct numbers *numbers);

/* tools/trace/critical_path.c: the longest way through the graph of dependences, by the
 * tasks' times. */
bool path_find(const struct trace *trace, long **path, size_t *count, double *ms);

#endif
