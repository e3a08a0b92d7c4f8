/* The trainer's inside, shared by its steps (trainer.c), its summary (summary.c) and
 * checkpoints (checkpoint.c). */
#ifndef SL_PARALLEL_TRAIN_TRAINER_H
#define SL_PARALLEL_TRAIN_TRAINER_H

#include <starling/parallel.h>

#include "parallel/step/batch_tensors.h"
#include "parallel/params/model_shards.h"
#include "parallel/step/plan.h"
#include "parallel/train/step_stats.h"

#define SL__MAX_IN_FLIGHT 16

/* A step under way: what its report needs when it is over. */
struct sl__flight {
  struct sl__batch_tensors *feed;
  int slot;
  struct sl__tensor *stats, *flags; /* see sl__step_stats_submit */
  struct sl_report report;
};

/* How far the training data has been read: the batch to come. */
struct sl__reached {
  struct sl_loader *loader; /* NULL: nothing read yet */
  int64_t epoch, index;
};

struct sl_trainer {
  struct sl_model *model;
  struct sl_optimizer optimizer;
  struct sl_schedule schedule;
  struct sl__grid grid;
  struct sl__ranks ranks; /* size 0: not distributed */
  struct sl__model_shards *kvstore;
  struct sl__step_stats *tally;
  struct sl__plan **plans; /* one a batch size and purpose */
  int plan_count;
  int next_tag;                     /* of the messages of the plan to come */
  struct sl__batch_tensors **feeds; /* one a loader */
  int feed_count;
  int in_flight; /* steps that may be under way */
  struct sl__flight flights[SL__MAX_IN_FLIGHT];
  int64_t submitted, finished; /* of all flights, training or not */
  int64_t step;                /* training steps submitted */
  struct sl__reached at;       /* after these */
  bool carry_state;            /* as the options say */
  bool stateful;               /* a layer is recurrent */
  bool failed;
  bool stop;                 /* sl_trainer_stop was called here */
  bool save_asked;           /* sl_trainer_ask_save was, and nothing was saved since */
  struct sl__saving *saving; /* being written, or nobody was told of its end; NULL: none */
  char *loaded_options;      /* of the checkpoint loaded last; NULL: it had none */
  bool is_async;             /* each rank by itself, but for the KVStore */
};

/* The plan for such a batch, made where there is none yet. */
enum sl_status sl__trainer_plan(struct sl_trainer *trainer, const struct sl_batch *batch,
                                bool training, struct sl__plan **plan);

/* SL_BAD_ARGUMENT where steps are under way, or one has failed. */
enum sl_status sl__trainer_drained(const struct sl_trainer *trainer);

/* SL_BAD_ARGUMENT for what no trainer could have, whatever the model. */
enum sl_status sl__trainer_check(const struct sl_trainer_options *options);

/* Wait for the checkpoint being written, and forget it (parallel/train/checkpoint.c). */
void sl__saving_end(struct sl_trainer *trainer);

/* Distributed (parallel/train/ranks.c): who takes part. */
enum sl_status sl__trainer_ranks(const struct sl_context *context,
                                 const struct sl_trainer_options *options,
                                 const struct sl__grid *grid, struct sl__ranks *ranks);
/* All ranks have the same model, optimizer and options, and from here on rank 0's weights. */
enum sl_status sl__trainer_meet(struct sl_trainer *trainer,
                                const struct sl_trainer_options *options);
/* --exchange auto (parallel/train/transport_probe.c): measure which way messages take, once; else
 * nothing. */
enum sl_status sl__probe_transports(struct sl_context *context);
/* The first worker's buffers (running statistics) become those of all. */
enum sl_status sl__trainer_share_buffers(struct sl_trainer *trainer);
/* All ranks: the first group's members give rank 0 the parameters and buffers of their layers.
 * Where rank 0 has all layers itself, nothing. */
enum sl_status sl__trainer_fetch_weights(struct sl_trainer *trainer);

#endif
