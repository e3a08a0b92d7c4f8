/* Statistics of a trace: shares of devices, times of layers, the critical path, overlaps. */
#ifndef SL_TOOLS_TRACE_TRACE_STATS_H
#define SL_TOOLS_TRACE_TRACE_STATS_H

#include "tools/trace/trace.h"

/* Limits of the hardware, from the user; 0: unknown. */
struct roof {
  double gflops;    /* peak of one CPU core */
  double gigabytes; /* bandwidth of one CPU core, for each second */
};

struct device_numbers {
  double ms[STATES]; /* in a trace without states: busy, and idle for the rest */
  size_t tasks;
};

struct layer_numbers {
  double ms[PASSES];
  double gflops; /* rate of its tasks on CPUs whose operations are counted; NAN: no such task */
  double share;  /* that rate as a share of the roof; NAN: unknown */
};

struct numbers {
  struct device_numbers *devices; /* one for each worker */
  struct layer_numbers *layers;
  double bubble;        /* share of the used workers' time in which no task ran */
  double together;      /* share of the window in which two or more workers ran tasks */
  double communication; /* share of the transfers' time in which some worker ran a task; NAN: no
                           transfers */
  double transfer_ms;   /* time with at least one transfer, ms */
  long *path;           /* tasks of the critical path, first to last */
  size_t path_count;
  double path_ms;
};

/* Returns false without memory. */
bool numbers_take(const struct trace *trace, const struct roof *roof, struct numbers *numbers);
void numbers_free(struct numbers *numbers);

/* tools/trace/critical_path.c: the longest path through the graph of dependences, by the tasks'
 * times. */
bool path_find(const struct trace *trace, long **path, size_t *count, double *ms);

#endif
