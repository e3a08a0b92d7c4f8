/* How far the training is: a live bar on a terminal, a plain line now and then in a pipe. */
#ifndef SL_PARALLEL_FIT_PROGRESS_H
#define SL_PARALLEL_FIT_PROGRESS_H

#include <starling.h>

/* Samples a second over the last steps (about a second's worth). */
enum { METER_WINDOW = 256 };

struct meter {
  double time[METER_WINDOW];
  int64_t samples[METER_WINDOW]; /* in all, at that time */
  int64_t count;                 /* entries ever written */
};

void meter_restart(struct meter *meter); /* at the start, and after a pause for something else */
double meter_add(struct meter *meter, int64_t samples);

struct progress {
  bool quiet, live, fancy; /* fancy: the terminal shows UTF-8 */
  const char *unit;        /* of a second's samples: "images" */
  int64_t steps, epochs;   /* in all; epochs for display */
  int64_t done, begun;     /* begun: done before this process took over */
  double loss;             /* smoothed over some twenty steps */
  double busy;             /* seconds in steps, without evaluations */
  double resumed;          /* when the steps since the last pause began */
  double drawn;            /* when the bar was last drawn or a line last printed */
};

/* unit: what the samples of a report are. */
void progress_start(struct progress *progress, const char *unit, bool quiet, int64_t begun,
                    int64_t steps, int64_t epochs);
/* Between pause and resume the clock of "time left" stands still (evaluation, saving). */
void progress_pause(struct progress *progress);
void progress_resume(struct progress *progress);
void progress_step(struct progress *progress, const struct sl_report *report, double samples_per_s);
/* A line that stays; the bar makes room. Nothing when quiet. */
void progress_print(struct progress *progress, const char *format, ...) SL_PRINTF(2, 3);
/* Take the bar away. */
void progress_clear(struct progress *progress);

double seconds_now(void);

#endif
