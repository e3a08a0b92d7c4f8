/* The training log: one JSON object a line, whole lines only, so that it can be read while it
 * grows. */
#ifndef SL_EXAMPLES_LOG_H
#define SL_EXAMPLES_LOG_H

#include <starling.h>

struct log;

/* Would writing to path work? 0, or errno's value; changes nothing on the disk. replace: the file
 * will be written aside and renamed, as weights are. */
int output_error(const char *path, bool replace);

/* Start the file anew, or go on behind what it has of the first `steps` steps: a run that was
 * killed may have logged more than its checkpoint has. Returns errno's value, or 0. path NULL: a
 * log that goes nowhere. */
int log_open(const char *path, int64_t steps, struct log **log);

/* {"step","epoch","loss","lr","samples_per_s"}; step and epoch count from 0 and 1. Each returns
 * errno's value, or 0. */
int log_step(struct log *log, const struct sl_report *report, double samples_per_s);
/* {"epoch","test_loss","test_accuracy"}; epoch: how many were trained, from 1. */
int log_evaluation(struct log *log, int64_t epoch, double loss, double accuracy);

/* {"step","checkpoint","stopped_s","write_s","bytes"}: after so many steps; it comes when the file
 * is whole. stopped_s: how long the training stood still for it. */
int log_checkpoint(struct log *log, const char *path, double stopped_s,
                   const struct sl_saved *saved);
/* {"step","resumed","changed"}: from which file, and what options have changed. */
int log_resumed(struct log *log, const char *path, int64_t step, const char *changes);

/* NULL is legal. */
int log_close(struct log *log);

#endif
