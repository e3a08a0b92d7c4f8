/* The training log: one JSON object a line, whole lines only, so that it can be read while it
 * grows. */
#ifndef SL_PARALLEL_FIT_LOG_H
#define SL_PARALLEL_FIT_LOG_H

#include <jansson.h>
#include <starling/fit.h>

#define SL__RUN_LOG_FORMAT "starling log"
enum { SL__RUN_LOG_VERSION = 1 };

struct sl__run_log;

/* Would writing to path work? 0, or errno's value; changes nothing on the disk. replace: the file
 * will be written aside and renamed, as weights are. */
int sl__output_error(const char *path, bool replace);

/* Starts a new file, or continues behind its lines of the first `steps` steps: a run that was
 * killed may have logged more than its checkpoint has. Returns errno's value, 0, or EBUSY if
 * another run writes the file; then `owner` says which: "host node7, process 4711, since 12:00:05".
 * path NULL: a log that goes nowhere. */
int sl__run_log_open(const char *path, int64_t steps, struct sl__run_log **log, char *owner,
                     size_t size);

/* A line of any kind; the format is in doc/log.md. Takes the object; NULL: one that could not be
 * made. Returns errno's value, or 0; a line that does not fit on the disk is taken back. */
int sl__run_log_line(struct sl__run_log *log, json_t *object);

/* {"step","epoch","loss","lr","samples_per_s","seconds"}; step and epoch count from 0 and 1. Of a
 * loss of parts also {"losses": {OUTPUT: its mean, ...}}. Each returns errno's value, or 0. */
int sl__run_log_step(struct sl__run_log *log, const struct sl_report *report,
                     const struct sl_trainer *trainer, double samples_per_s);
/* {"epoch","test_loss","test_accuracy"}, of a regression
 * {"epoch","test_loss","test_mae","test_rmse", "test_r2"}, of several labels also "test_auc", of
 * several outputs "test_mask.loss" and so on; epoch: how many were trained, from 1. */
int sl__run_log_evaluation(struct sl__run_log *log, const struct sl_fit_evaluation *result);

/* {"confusion": [label][answer], "classes": names, if they have some}: numbers of samples. */
int sl__run_log_confusion(struct sl__run_log *log, const struct sl_dataset_info *info,
                          const struct sl_metric *confusion);

/* The last line of a process: {"end","seconds","samples_per_s","message"}. end: "done",
 * "interrupted", "failed"; message: why, NULL: nothing more to say; samples_per_s: below 0: no step
 * was made. */
int sl__run_log_end(struct sl__run_log *log, const char *end, double seconds, double samples_per_s,
                    const char *message);

/* {"step","checkpoint","stopped_s","write_s","bytes"}: after `step` steps; it is written when the
 * file is whole. stopped_s: how long the training stood still for it. */
int sl__run_log_checkpoint(struct sl__run_log *log, const char *path, double stopped_s,
                           const struct sl_saved *saved);
/* {"step","resumed","changed"}: from which file, and what options have changed. */
int sl__run_log_resumed(struct sl__run_log *log, const char *path, int64_t step,
                        const char *changes);

/* NULL is legal. */
int sl__run_log_close(struct sl__run_log *log);

#endif
