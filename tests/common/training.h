/* For tests of trainings: steps with their losses, and the weights behind them. */
#ifndef TESTS_TRAINING_H
#define TESTS_TRAINING_H

#include "tests/common/harness.h"

/* Makes steps and waits for all of them; loss[step] receives their losses, where it is not NULL.
 * Returns the last report. */
static inline struct sl_report take_steps(struct sl_trainer *trainer, struct sl_loader *loader,
                                          int steps, double *loss) {
  struct sl_report report, last = {0};
  bool reported = false;
  for (int s = 0; s < steps || reported; s++) {
    if (s < steps)
      OK(sl_trainer_step(trainer, loader, &report, &reported));
    else
      OK(sl_trainer_drain(trainer, &report, &reported));
    if (reported) last = report;
    if (reported && loss) loss[report.step] = report.loss;
    reported |= s < steps; /* pending steps are drained */
  }
  return last;
}

/* All parameters of a model, one after the other; returns the number of their values. There is room
 * for `most`. */
static inline int64_t read_weights(struct sl_model *m, float *weights, int64_t most) {
  int64_t count = 0;
  for (int i = 0; i < sl_model_parameter_count(m); i++) {
    struct sl_shape shape;
    const char *name = sl_model_parameter(m, i, &shape);
    assert_true(count + sl_shape_count(&shape) <= most);
    OK(sl_model_get(m, name, weights + count));
    count += sl_shape_count(&shape);
  }
  return count;
}

#endif
