/* Measured times of tasks for StarPU's performance models: times of some steps, of which each
 * model gets the median, once. StarPU itself records times only under schedulers that use them,
 * and as a mean that includes the first, slow tasks. */
#ifndef SL_CORE_RUNTIME_CALIBRATION_H
#define SL_CORE_RUNTIME_CALIBRATION_H

#include "core/runtime/submit.h"

struct sl__calibration;

enum sl_status sl__calibration_new(struct sl__calibration **calibration);
void sl__calibration_free(struct sl__calibration *calibration);

/* Measures all tasks that are submitted from begin to end. No task may be in progress at either. */
enum sl_status sl__calibration_begin(struct sl_context *context,
                                     struct sl__calibration *calibration);
void sl__calibration_end(struct sl_context *context, struct sl__calibration *calibration);

/* From now on tasks add the measured times of their kind to the performance models instead of
 * being measured. No task may be in progress. */
void sl__calibration_publish(struct sl__calibration *calibration);

/* Median of a task's measured times on a worker's kind of device, microseconds; NaN where there are
 * too few. No task may be in progress. */
double sl__calibration_us(struct sl__calibration *calibration, const struct sl__op *op,
                          uint32_t footprint, int worker);

/* Expected microseconds of a task on a worker's kind of device, from StarPU's performance
 * models; NaN if they do not know it. StarPU reads a model from disk when the first task of its
 * operation is submitted. No task may be in progress. */
double sl__expected_us(const struct sl__op *op, uint32_t footprint, int worker);

#endif
