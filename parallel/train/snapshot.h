/* A snapshot: a trainer's whole state in main memory, as the list of tensors of its checkpoint. */
#ifndef SL_PARALLEL_TRAIN_SNAPSHOT_H
#define SL_PARALLEL_TRAIN_SNAPSHOT_H

#include "parallel/train/trainer.h"

/* One tensor of the file. */
struct sl__item {
  char name[128];
  struct sl_shape shape;
  float *values; /* in the snapshot's blocks */
};

struct sl__snapshot {
  struct sl__copy weights;
  float **states;    /* state k of layer l's block at SL__STATES l + k; NULL: none */
  float **carried;   /* [layers], the recurrent state [rows, ...] */
  float **residuals; /* see sl__model_shards_read_residual; of worker w at layer * workers + w */
  int layers, workers;
  int64_t rows; /* of the carried state; 0: no state is carried into the next batch */
  struct sl__item *items;
  int count;
};

/* Allocates memory for everything. index: of the next batch. rows: samples of a batch of all
 * workers. After a failure, too, the snapshot must be cleared. */
enum sl_status sl__snapshot_new(const struct sl_trainer *t, int64_t index, int64_t rows,
                                int workers, struct sl__snapshot *snapshot);
void sl__snapshot_clear(struct sl__snapshot *snapshot);

/* Collective: rank 0's snapshot gets the state of all ranks. path is for messages. */
enum sl_status sl__snapshot_from_trainer(struct sl_trainer *t, const char *path,
                                         struct sl__snapshot *snapshot);
/* Collective: all ranks get the values of rank 0's snapshot. */
enum sl_status sl__snapshot_share(const struct sl_trainer *t, struct sl__snapshot *snapshot);
/* plan: that of sl__carried_state_plan. */
enum sl_status sl__snapshot_to_trainer(struct sl_trainer *t, struct sl__plan *plan,
                                       const struct sl__snapshot *snapshot);
/* The plan whose tensors hold the carried state. *plan is NULL if this rank carries none. */
enum sl_status sl__carried_state_plan(struct sl_trainer *t, const struct sl__snapshot *snapshot,
                                      struct sl__plan **plan);

#endif
