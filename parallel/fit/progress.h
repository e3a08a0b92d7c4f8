/* How far the training is: a live bar on a terminal, a plain line now and then in a pipe. */
#ifndef SL_PARALLEL_FIT_PROGRESS_H
#define SL_PARALLEL_FIT_PROGRESS_H

#include <starling/parallel.h>

/* Samples a second over the last steps (about a second's worth). */
enum { SL__METER_WINDOW = 256 };

struct sl__meter {
  double time[SL__METER_WINDOW];
  int64_t samples[SL__METER_WINDOW]; /* in all, at that time */
  int64_t count;                     /* entries ever written */
};

void sl__meter_restart(
    struct sl__meter *meter); /* at the start, and after a pause for something else */
double sl__meter_add(struct sl__meter *meter, int64_t samples);

struct sl__progress {
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
void sl__progress_start(struct sl__progress *progress, const char *unit, bool quiet, int64_t begun,
                        int64_t steps, int64_t epochs);
/* Between pause and resume the clock of "time left" stands still (evaluation, saving). */
void sl__progress_pause(struct sl__progress *progress);
void sl__progress_resume(struct sl__progress *progress);
void sl__progress_step(struct sl__progress *progress, const struct sl_report *report,
                       double samples_per_s);
/* A line that stays; the bar makes room. Nothing when quiet. */
void sl__progress_print(struct sl__progress *progress, const char *format, ...) SL_PRINTF(2, 3);
/* A loss for a line: 0.2508, but 4.069e-05 where four digits behind the point say nothing or too
 * much. */
const char *sl__progress_loss(double loss, char *text, size_t size);
/* Take the bar away. */
void sl__progress_clear(struct sl__progress *progress);

#endif
