/* The predictions of an evaluation, from which its metrics are computed. */
#ifndef SL_PARALLEL_TRAIN_METRICS_H
#define SL_PARALLEL_TRAIN_METRICS_H

#include "parallel/step/plan.h"

struct sl__scored {
  float score;
  bool positive;
};

/* Samples with a label, or with a target that counts, in the order of the data. */
struct sl__predictions {
  const struct sl_dataset_info *info;
  int64_t rows, width;       /* width: outputs of a sample */
  float *outputs;            /* [rows, width] */
  float *targets;            /* [rows, width]; NULL: there are labels */
  int32_t *labels;           /* [rows] */
  float *batch;              /* scratch: [a batch's rows, width] */
  struct sl__scored *scored; /* scratch: [samples of the set] */
};

/* Memory for all samples of the set. */
enum sl_status sl__predictions_begin(const struct sl_dataset_info *info, int64_t batch,
                                     const struct sl_shape *output, struct sl__predictions *p);
void sl__predictions_end(struct sl__predictions *p);

/* Reads the outputs of a step that kept them, waits for them, and appends those that count. */
enum sl_status sl__predictions_append(struct sl__predictions *p, const struct sl__plan *plan,
                                      const struct sl_batch *batch);

#endif
