/* A trainer's whole state in host memory, as a list of the tensors that its checkpoint has. */
#ifndef SL_PARALLEL_TRAIN_SNAPSHOT_H
#define SL_PARALLEL_TRAIN_SNAPSHOT_H

#include "parallel/train/trainer.h"

/* One tensor of the file. */
struct sl__item {
  char name[128];
  struct sl_shape shape;
  float *values; /* in the image's blocks */
};

struct sl__snapshot {
  struct sl__copy weights;
  float **states; /* the optimizer's k-th of layer l's block at 2 l + k; NULL where there is none */
  float **carried;   /* [layers], [rows, ...] */
  float **residuals; /* of what worker w kept back of layer l's gradient, at l * workers + w */
  int layers, workers;
  int64_t rows; /* of the carried state; 0: none is carried over the place in the data */
  struct sl__item *items;
  int count;
};

/* With room for everything, still empty. index: of the batch to come; of so many rows, by so many
 * workers. What is half-made is to be cleared, too. */
enum sl_status sl__snapshot_new(const struct sl_trainer *t, int64_t index, int64_t rows,
                                int workers, struct sl__snapshot *image);
void sl__snapshot_clear(struct sl__snapshot *image);

/* Collective: rank 0's becomes the state of all together. path is for messages. */
enum sl_status sl__snapshot_from_trainer(struct sl_trainer *t, const char *path,
                                         struct sl__snapshot *image);
/* Of a plan that the state is carried on in (sl__carried_state_plan). */
enum sl_status sl__snapshot_to_trainer(struct sl_trainer *t, struct sl__plan *plan,
                                       const struct sl__snapshot *image);
/* *plan is NULL where no state is carried on, or not by this rank. */
enum sl_status sl__carried_state_plan(struct sl_trainer *t, const struct sl__snapshot *image,
                                      struct sl__plan **plan);

/* How many workers the data are dealt out to; 1 where there are no ranks. */
int sl__workers(const struct sl_trainer *t);

#endif
