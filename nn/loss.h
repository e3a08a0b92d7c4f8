/* The type of a loss: a row of nn/losses.def; and a loss in use. */
#ifndef SL_NN_LOSS_H
#define SL_NN_LOSS_H

#include <starling/data.h>

#include "codelets/codelets.h"
#include "nn/layer.h"

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
  const struct sl__loss_row *row; /* of a loss of parts, one that no name selects */
  struct sl_loss settings;        /* checked; class_weights is the copy */
  float *weights;
  struct sl__tensor *weight_tensor; /* NULL: all classes weigh the same */
  struct sl__loss_part *parts;      /* [part_count] in the order of the outputs */
  int part_count;                   /* 0: the loss has no parts */
};

/* A part of a loss: what sl_outputs says of its output, and the targets of the data. */
struct sl__loss_part {
  struct sl__loss loss;
  float weight;
  int output; /* its number among the model's outputs */
  struct sl_row_field field;
  char target_name[sizeof((struct sl_loss_part *)0)->target];
  struct sl_shape target; /* ndim 0: sl__loss_fit was not called yet */
  int64_t target_first;
  int64_t rows; /* of a sample that count one by one: labels, values or rows of the target */
};

/* Checks the settings and copies the weights. */
enum sl_status sl__loss_begin(const struct sl_model *model, const struct sl_loss *settings,
                              struct sl__loss *loss);
void sl__loss_end(struct sl__loss *loss);

/* Finds the parts' targets in the data, whose fields must be the same in all calls. Nothing to do
 * for a loss without parts. SL_BAD_ARGUMENT or SL_BAD_SHAPE for targets that a part cannot take. */
enum sl_status sl__loss_fit(struct sl__loss *loss, const struct sl_dataset_info *info);

/* Number of sl__loss_divisors' values, and of groups of 4 statistics: the parts, or 1. */
static inline int sl__loss_terms(const struct sl__loss *loss) {
  return loss->part_count ? loss->part_count : 1;
}
/* Part i of a loss, or the loss itself. */
static inline const struct sl__loss *sl__loss_of_part(const struct sl__loss *loss, int i) {
  return loss->part_count ? &loss->parts[i].loss : loss;
}

bool sl__loss_takes_labels(const struct sl__loss *loss);

/* All settings as text; ranks compare their texts. Returns text. */
#define SL__LOSS_TEXT 4096
const char *sl__loss_text(const struct sl__loss *loss, char text[SL__LOSS_TEXT]);

/* The divisor of a batch's mean, of each part of the loss: number of its terms, or their weight.
 * all: over all parts of the data; else of this batch. */
void sl__loss_divisors(const struct sl__loss *loss, const struct sl_batch *batch,
                       const struct sl_dataset_info *info, bool all, double divisor[SL_MAX_FIELDS]);

#endif
