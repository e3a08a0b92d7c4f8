/* The predictions of an evaluation, from which its metrics are computed. */
#ifndef SL_PARALLEL_TRAIN_METRICS_H
#define SL_PARALLEL_TRAIN_METRICS_H

#include "parallel/step/plan.h"

struct sl__scored {
  float score;
  bool positive;
};

enum { SL__TOP_MOST = 10 }; /* the most largest outputs of which a metric counts the labels */

/* What metrics need of the rows that count: samples with a label or with a target that counts,
 * tokens of a text. Of targets all outputs are held, in the order of the data; of labels, whose
 * classes may be many, the counts alone. */
struct sl__predictions {
  const struct sl_dataset_info *info;
  double loss;                    /* of the evaluation */
  int64_t rows, most_rows, width; /* width: outputs of a row */
  int64_t target_width;           /* targets of a row: of a loss of parts it may differ */
  int64_t first_target;           /* of a part: its place in the row of the set's targets */
  bool has_labels;
  float *outputs;               /* [rows, width]; NULL: there are labels */
  float *targets;               /* [rows, target_width], the same */
  int64_t within[SL__TOP_MOST]; /* rows whose label is the first, among the first two, ... */
  int64_t *pairs;               /* [width, width] by label and answer; NULL: too many */
  struct sl__scored *scored;    /* [rows] of two classes; of targets scratch; or NULL */
  float *slice;                 /* scratch: outputs of a batch's slice */
};

/* Of a sample, or of a token of a text. */
int64_t sl__outputs_of_row(const struct sl_dataset_info *info, const struct sl_shape *output);

/* Memory for all rows of the set. */
enum sl_status sl__predictions_begin(const struct sl_dataset_info *info, int64_t batch,
                                     const struct sl_shape *output, struct sl__predictions *p);
void sl__predictions_end(struct sl__predictions *p);

/* Reads the outputs of a step that kept them, waits for them, and appends those that count. A rank
 * without the last layer has none. */
enum sl_status sl__predictions_append(struct sl__predictions *p, const struct sl__plan *plan,
                                      const struct sl_batch *batch);

/* Values of a part's output that belong to a label, or of a sample. */
int64_t sl__part_width(const struct sl__loss_part *part);
/* The rows of a part of a loss; a row is a label or a sample's targets. */
enum sl_status sl__predictions_select(const struct sl__predictions *all,
                                      const struct sl__loss_part *part, struct sl__predictions *p);

/* Collective: rank 0 gets the rows of all ranks, in the ranks' order. */
enum sl_status sl__predictions_gather(struct sl_context *context, struct sl__predictions *p);

#endif
