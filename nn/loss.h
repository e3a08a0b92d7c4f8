/* The type of a loss: a row of nn/losses.def; and a loss in use. */
#ifndef SL_NN_LOSS_H
#define SL_NN_LOSS_H

#include <starling/data.h>

#include "codelets/codelets.h"

/* What the mean is taken over. */
enum sl__loss_terms {
  SL__TERMS_LABELS, /* labels, each with its class's weight */
  SL__TERMS_VALUES, /* single values */
  SL__TERMS_ROWS    /* rows (the last axis) without a NaN target */
};

struct sl__loss;

struct sl__loss_row {
  const char *name; /* for --loss and sl_loss_parse */
  enum sl_loss_kind kind;
  enum sl__loss_terms terms;
  enum sl_status (*submit)(struct sl_context *context, const struct sl__launch *launch,
                           const struct sl__loss *loss, const struct sl__loss_task *task);
  const char *parameter; /* the setting that may follow the name; NULL: none */
  size_t field;          /* its place in struct sl_loss, a float */
  float standard, most;  /* its value for 0, and its largest one; the least is 0 */
};

/* A loss of a trainer. */
struct sl__loss {
  const struct sl__loss_row *row;
  struct sl_loss settings; /* checked; class_weights is the copy */
  float *weights;
  struct sl__tensor *weight_tensor; /* NULL: all classes weigh the same */
};

/* Checks the settings and copies the weights. outputs: classes of the model; 0: not known yet. */
enum sl_status sl__loss_begin(struct sl_context *context, const struct sl_loss *settings,
                              int64_t outputs, struct sl__loss *loss);
void sl__loss_end(struct sl__loss *loss);

bool sl__loss_takes_labels(const struct sl__loss *loss);

/* All settings as text; ranks compare their texts. Returns text. */
#define SL__LOSS_TEXT 96
const char *sl__loss_text(const struct sl__loss *loss, char text[SL__LOSS_TEXT]);

/* The divisor of a batch's mean: number of its terms, or their weight. all: over all parts of the
 * data; else of this batch. */
double sl__loss_divisor(const struct sl__loss *loss, const struct sl_batch *batch,
                        const struct sl_dataset_info *info, bool all);

#endif
