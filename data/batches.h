/* The batches of a dataset: the samples of each, and filling one. Values depend on (seed, epoch,
 * sample) only. There are no threads and no locks here. */
#ifndef SL_DATA_BATCHES_H
#define SL_DATA_BATCHES_H

#include "data/augment.h"
#include "data/colour.h"
#include "data/dataset.h"

struct sl__batches {
  const struct sl_dataset *dataset;
  struct sl_loader_options options; /* checked, with the defaults filled in */
  int64_t length;                   /* batches in an epoch */
  /* Orders of one epoch; NULL if the set's own order serves. */
  uint32_t *order;       /* samples, bucket by bucket */
  uint32_t *drawn;       /* shuffled samples, before they are grouped by bucket */
  uint32_t *batch_order; /* batches of all buckets */
  int64_t order_epoch;   /* -1: none yet */
  int64_t *samples;      /* [batch] of the batch that is being filled */
  int64_t expected;      /* number of the last batch that this one has announced; -1: none yet */
  struct sl_shape shape; /* of a row: a sample, or the window of it */
  size_t row_size;       /* values of a row */
  float *plane;          /* scratch of sl__augment; NULL if nothing is shifted or mirrored */
  float *whole;          /* [whole_rows, sample...] before they are cropped; NULL: they are not */
  int64_t whole_rows;
};

/* The shape of a row. */
struct sl_shape sl__batches_shape(const struct sl_dataset_info *info,
                                  const struct sl_loader_options *options);

/* Batches in an epoch; dataset and options must be set. */
int64_t sl__batches_length(const struct sl__batches *batches);

/* Sets the length and allocates the arrays; the caller has set dataset and options. */
enum sl_status sl__batches_begin(struct sl__batches *batches);

/* Frees the arrays; legal if sl__batches_begin has failed or was not called. */
void sl__batches_end(struct sl__batches *batches);

/* Fills a batch; `number` counts the batches of all epochs. *batch becomes its description, with
 * slot 0. */
enum sl_status sl__batches_fill(struct sl__batches *batches, int64_t number,
                                const struct sl__rows *to, struct sl_batch *batch);

/* Fills a batch once more, as part `part` of all has it, for a message about it; the loader's
 * threads rest meanwhile, so that a set's functions are not called at once where they were not
 * before. samples: [batch], of the rows that have one. */
enum sl_status sl__loader_refill(struct sl_loader *loader, int64_t part, int64_t epoch,
                                 int64_t index, int64_t *samples, const struct sl__rows *rows);

/* A holder of a loader may read its settings and slots and recycle them, although the program frees
 * the loader: its memory goes with the last holder. So no other loader gets its address before. The
 * dataset of a freed loader may be gone. */
void sl__loader_hold(struct sl_loader *loader);

/* NULL is legal. */
void sl__loader_release(struct sl_loader *loader);

/* Has the program freed the loader? */
bool sl__loader_is_freed(const struct sl_loader *loader);

#endif
