/* Tasks' times, taken over some steps and handed to StarPU's performance models: their median,
 * once. StarPU records times of its own accord only under schedulers that use them, and as a mean
 * with the first, slow ones in it. */
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

/* From here on tasks hand over what was taken of their kind, instead of being timed. No task may be
 * under way. */
void sl__calibration_publish(struct sl__calibration *calibration);

/* Expected microseconds of a noted task on a worker's kind of device, from StarPU's performance
 * models; NaN where these know nothing of it. They are read from disk when the first task of an
 * operation is submitted. No task may be under way. */
double sl__expected_us(const struct sl__op *op, uint32_t footprint, int worker);

#endif
