/* The inside of a trainer, for the files of this folder and its tests. */
#ifndef SL_PARALLEL_TRAIN_TRAINER_H
#define SL_PARALLEL_TRAIN_TRAINER_H

#include <starling/parallel.h>

#include "parallel/params/model_shards.h"
#include "parallel/step/batch_tensors.h"
#include "parallel/step/plan.h"
#include "parallel/train/metrics.h"
#include "parallel/train/step_stats.h"

#define SL__MAX_IN_FLIGHT 16

/* A step that was submitted and is not finished. */
struct sl__pending_step {
  struct sl__batch_tensors *inputs; /* NULL on a rank that is no worker, and without the batch */
  int slot;                         /* the loader's, of this batch */
  struct sl_loader *loader;         /* held until the step's end */
  int64_t index; /* of the batch in its epoch (report.epoch); -1: not known here */
  struct sl__tensor *stats, *flags; /* see sl__step_stats_submit */
  struct sl__tensor *squares[2];    /* [1]: of the gradient, and the sum of its replicas'; NULL: not
                                       logged */
  double batch, share; /* samples of all ranks; sum of the replicas' squared parts of them, or 0:
                          the batch is not full */
  bool training;
  double divisor[SL_MAX_FIELDS]; /* of the mean of each part of the loss that has class weights */
  struct sl_report report;       /* the part that is known at submission */
};

/* The batch that comes next in the training data. */
struct sl__data_position {
  struct sl_loader *loader; /* held; NULL: no batch was read yet */
  int64_t epoch, index;
};

/* Learning rates of a search, instead of the schedule's: low at step `from`, and each step's a
 * `factor` above the one before (rate_search.c). */
struct sl__rate_ramp {
  double low, factor;
  int64_t from;
};

struct sl__saving;
struct sl__captured_step; /* parallel/train/captured_step.h */

struct sl_trainer {
  struct sl_model *model;
  struct sl_optimizer optimizer;
  struct sl_schedule schedule;
  struct sl__loss loss;
  struct sl__grid grid;
  struct sl__ranks ranks; /* size 0: not distributed */
  struct sl__model_shards *shards;
  struct sl__step_stats *step_stats;
  struct sl__step_stats *gradient_stats; /* NULL: gradients are not logged */
  struct sl__plan **plans;               /* one for each batch size and purpose */
  int plan_count;
  int next_tag;  /* of the next plan's messages */
  bool captures; /* steps are captured */
  struct sl__captured_step *captured;
  int captured_count;
  struct sl__batch_tensors **inputs; /* one for each loader that is not freed */
  int input_count;
  int in_flight; /* most pending steps */
  bool adapts;   /* with few slots of a loader there are fewer */
  struct sl__pending_step pending[SL__MAX_IN_FLIGHT];
  /* Sums of each part's losses in the step that was reported last. A mean over several steps needs
   * them: a step's own mean is 0 where no label has weight, and smoothing has a loss there. */
  double loss_sums[SL_MAX_FIELDS];
  int64_t submitted, finished; /* of the pending steps, whether they train or evaluate */
  int64_t awaited;             /* one wait was for all steps before this one */
  int64_t timed; /* finished steps at timed_s: what tells short steps from long ones */
  double timed_s;
  int64_t step; /* number of training steps submitted */
  struct sl__data_position next_batch;
  struct sl__predictions *predictions; /* that an evaluation collects; NULL: none */
  bool carry_state;                    /* see struct sl_trainer_options */
  bool stateful;                       /* a layer is recurrent */
  bool failed;
  bool stop;                        /* sl_trainer_stop was called on this rank */
  bool in_callback;                 /* of sl_fit, whose steps are its own */
  bool averaged;                    /* the model has the averages (sl_trainer_swap_average) */
  const struct sl__rate_ramp *ramp; /* NULL: the schedule's rates */
  int64_t schedule_shift; /* from `step` to the place in the data, in steps of this number of ranks:
                             the schedule goes by it */
  /* The loader that sl_trainer_load moved, held, and its shift from `step` to the place in the data
   * in steps of its size; NULL: it is none, the batch is the same. */
  struct sl_loader *shifted;
  int64_t place_shift;
  bool save_asked; /* sl_trainer_ask_save was called and no checkpoint was saved since */
  /* A checkpoint that is being written, or whose end was not reported yet; NULL: none. Checkpoints
   * set both, so that the trainer can free them without knowing them. */
  struct sl__saving *saving;
  void (*saving_free)(struct sl__saving *saving); /* waits for the end of the write */
  char *loaded_options; /* of the checkpoint that was loaded last; NULL: it had none */
  bool is_async;        /* the ranks meet only in the KVStore, not in each step */
};

/* SL_BAD_ARGUMENT for options that no trainer can have, whatever the model. */
enum sl_status sl__trainer_check(const struct sl_trainer_options *options);

/* SL_BAD_ARGUMENT if a step has failed. */
enum sl_status sl__trainer_check_alive(const struct sl_trainer *trainer);

/* Behind a failure: waits for the pending steps, since the program may end by exit next, which
 * takes memory and code of libraries away from workers that run. The thread's message stays. Steps
 * over ranks may wait for other ranks: they go on. */
void sl__trainer_rest(struct sl_trainer *trainer);

/* SL_BAD_ARGUMENT if a step has failed, or steps are pending. */
enum sl_status sl__trainer_drained(const struct sl_trainer *trainer);

/* SL_BAD_ARGUMENT while the model has the averages of its parameters. */
enum sl_status sl__trainer_check_raw(const struct sl_trainer *trainer);

/* SL_BAD_ARGUMENT for steps of a callback of sl_fit: the run would count them as its own. Those of
 * a search for a rate leave nothing behind. */
enum sl_status sl__trainer_check_outside(const struct sl_trainer *trainer);

/* Number of workers that share the data; 1 if the training is not distributed. */
int sl__trainer_workers(const struct sl_trainer *trainer);

/* In a distributed training: a failure of one rank becomes that of all. Collective. */
enum sl_status sl__trainer_share(const struct sl_trainer *trainer, enum sl_status status);

/* Submits the calls of a step: the plan's, and those that end the step. */
enum sl_status sl__trainer_submit_step(struct sl_trainer *trainer, struct sl__plan *plan,
                                       const struct sl__step *step, struct sl__pending_step *p);

/* What this rank asks all ranks to do. */
void sl__trainer_asks(const struct sl_trainer *trainer, float asks[SL__ASKS]);

/* Submits the calls behind the plan's: in a training the updates, and the sum of the statistics;
 * over ranks with their messages. */
enum sl_status sl__trainer_end_step(struct sl_trainer *trainer, struct sl__plan *plan,
                                    const struct sl__step *step, struct sl__pending_step *p);

/* Would sl_trainer_measure have a metric of that name? (parallel/train/metrics.c) */
bool sl__metric_applies(const struct sl_trainer *trainer, const struct sl_dataset_info *info,
                        const char *name);

/* sl_trainer_evaluate with the means of the loss's parts. */
enum sl_status sl__trainer_evaluate(struct sl_trainer *trainer, struct sl_loader *loader,
                                    double *loss, double parts[SL_MAX_FIELDS], double *accuracy);

/* The plan for such a batch, made if there is none yet (parallel/train/trainer_batches.c). */
enum sl_status sl__trainer_plan(struct sl_trainer *trainer, const struct sl_batch *batch,
                                bool training, struct sl__plan **plan);

/* Holds the loader of the next batch, and no longer the one before. */
void sl__trainer_move_to(struct sl_trainer *trainer, const struct sl__data_position *next);

/* SL_BAD_SHAPE, SL_BAD_ARGUMENT: this rank's trainer cannot take the loader's batches, and is as it
 * was. A rank that is no worker takes every loader. */
enum sl_status sl__trainer_check_loader(struct sl_trainer *trainer, const struct sl_loader *loader);

/* The tensors of the batches of a checked loader, made for its first batch. Those of freed loaders
 * go. */
enum sl_status sl__trainer_inputs(struct sl_trainer *trainer, struct sl_loader *loader,
                                  struct sl__batch_tensors **inputs);

#endif
