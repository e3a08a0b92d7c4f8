/* The inside of sl_fit: a run from its first check to its last line. */
#ifndef SL_PARALLEL_FIT_FIT_H
#define SL_PARALLEL_FIT_FIT_H

#include <starling/fit.h>

#include "parallel/fit/checkpoints.h"
#include "parallel/fit/log.h"
#include "parallel/fit/progress.h"
#include "parallel/train/trainer.h"

/* What is best so far, and how long ago. Checkpoints keep it. */
struct sl__best {
  struct sl_fit_evaluation evaluation; /* epoch 0: none */
  double reference; /* that the next one must be better than by min_delta; NaN: none */
  int64_t since;    /* evaluations since then */
};

struct sl__fit {
  struct sl_trainer *trainer;
  struct sl_loader *train;
  struct sl_context *context;
  struct sl_fit_options options; /* defaults filled in */
  struct sl_fit_result result;
  int rank;
  bool distributed, in_step; /* several ranks; which make each step together */
  bool works;                /* this rank is a worker, not only a server */
  bool stopped;              /* all ranks end here, since one was asked to */
  bool early;                /* all ranks end here, since nothing gets better */
  bool gave_up;              /* that is why they end; out of step a while before `stopped` */
  bool common;               /* all ranks fail with the same message */
  /* position */
  int64_t epoch_steps, steps, epochs; /* steps an epoch; steps and epochs in all */
  struct sl_position begun;           /* where this call began */
  int64_t begun_at;                   /* its step, in steps of this run's size */
  /* files */
  char *own_log; /* this rank's path */
  struct sl__run_log *log;
  double log_opened; /* when */
  struct {
    struct sl__checkpoints folder;
    char *changes;           /* of the options since the checkpoint resumed from */
    double stopped_s, begun; /* of the current or last checkpoint: pause of the training, begin */
    bool due;                /* by the clock, on all ranks */
    enum sl_status failed;   /* the last attempt's failure, and why */
    char why[1200];
  } saving;
  /* evaluation */
  double epoch_loss, epoch_terms; /* sums over the epoch: of the loss, and of its divisor */
  struct sl__best best;
  bool warned; /* that the metric is no number */
  /* output */
  struct sl__progress progress;
  struct sl__meter meter;
  int64_t samples; /* of this process in all */
  struct sl__step_clock {
    double last, seconds; /* of the last report; between reports, without an epoch's first ones */
    int64_t in_epoch, steps;
  } clock;
  struct {
    int64_t first, last;   /* steps to be recorded, from 1; 0: none */
    double since, seconds; /* begin of the current recording (0: none); total of all */
  } trace;
};

/* ---- the parts of a run ---- */

/* Ranges and contradictions of options. */
enum sl_status sl__fit_check_options(const struct sl_fit_options *options);

/* The log of a rank: "run.jsonl" of rank 0, "run.rank2.jsonl" of rank 2. To be freed. */
char *sl__fit_own_path(const char *path, int rank);

/* Would writing this rank's log and the weights work, each to a file of its own? */
enum sl_status sl__fit_check_outputs(const struct sl_fit_options *options, int rank);

/* Opens and locks the folder; one with checkpoints is for a run that resumes. */
enum sl_status sl__fit_take_folder(struct sl__checkpoints *folder, bool resume);

/* All steps. */
enum sl_status sl__fit_loop(struct sl__fit *fit);

/* ---- evaluation.c ---- */

/* SL_BAD_ARGUMENT unless name is NULL or a metric's. */
enum sl_status sl__fit_check_metric_name(const char *name);

/* The value of a metric of all outputs by its name. */
double sl__fit_metric(const struct sl_fit_evaluation *evaluation, const char *name);

/* Does the trainer measure what decides? */
enum sl_status sl__fit_check_metric(const struct sl__fit *fit);

/* After that many steps, an epoch's last one or the run's: evaluates, prints and logs it, and notes
 * whether it is the best; *is_best: the weights are to be saved as such. An evaluation within an
 * epoch may be the best, but does not count for the run's patience: a resumed run ends as one
 * without the limit. */
enum sl_status sl__fit_evaluate(struct sl__fit *fit, int64_t done, bool *is_best);

/* The line of options.confusion, from an evaluation of its own. */
enum sl_status sl__fit_log_confusion(struct sl__fit *fit);

/* For a checkpoint of a finished run: evaluates and saves the weights, without a step. */
enum sl_status sl__fit_evaluate_again(struct sl__fit *fit);

/* Were there `patience` evaluations without an improvement? */
bool sl__fit_is_patient(const struct sl__fit *fit);

/* ---- saving.c ---- */

/* Notes in the model what the data and the loss say (sl_model_note_data), for the files that are
 * written of it. What is noted already stays. */
enum sl_status sl__fit_note_data(struct sl__fit *fit);

/* Writes the weights to path, by rank 0; NULL: nothing. */
enum sl_status sl__fit_save_weights(struct sl__fit *fit, const char *path);

/* Is a checkpoint due after this step? */
bool sl__fit_saving_is_due(const struct sl__fit *fit, int64_t done);

/* checkpoint_minutes: rank 0's clock holds for all ranks; they learn it with a step's loss. */
void sl__fit_watch_clock(struct sl__fit *fit);

/* Begins a checkpoint, after the one before has ended. last: no step follows. */
enum sl_status sl__fit_save_begin(struct sl__fit *fit, bool last);

/* Has the checkpoint being written ended? */
enum sl_status sl__fit_save_poll(struct sl__fit *fit);

/* Waits for it, on all ranks together. */
enum sl_status sl__fit_save_end(struct sl__fit *fit, bool last);

/* ---- failures ---- */

/* errno's value for a file that cannot be written. */
enum sl_status sl__fit_fail_file(const char *path, int error);

/* A failure of one rank is a failure of all. Collective. */
enum sl_status sl__fit_share(struct sl__fit *fit, enum sl_status status);

/* The status of a callback: its message is that of a library's call in it, or names the callback.
 * begin comes before the call; until end the trainer refuses steps. */
void sl__fit_callback_begin(const struct sl__fit *fit);
enum sl_status sl__fit_callback_end(const struct sl__fit *fit, const char *name,
                                    enum sl_status status);

/* A line for the user that ends nothing. */
void sl__fit_warn(void *fit, const char *line);

#endif
