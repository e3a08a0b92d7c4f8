/* A whole training run in one call: epochs, log, evaluations, checkpoints, signals, early stopping.
 */
#ifndef STARLING_FIT_H
#define STARLING_FIT_H

#include <starling/base.h>
#include <starling/data.h>
#include <starling/parallel.h>

#ifdef __cplusplus
extern "C" {
#endif

/** \defgroup fit A run
 * sl_fit makes the steps of a training and all that makes a run of them: it evaluates after each
 * epoch, logs, saves weights, writes checkpoints and goes on from them to the bit, ends orderly
 * when a signal comes, and stops when the validation gets no better. The installed trainers call
 * it; so can any program (doc/fit.md). */

/** A metric of one of several outputs. */
struct sl_fit_output {
  char name[96]; /**< "mask.loss", "mask.accuracy", "edge.rmse" */
  double value;
};

/** The result of the evaluation after an epoch. A metric that was not measured is NaN. */
struct sl_fit_evaluation {
  int64_t epoch;      /**< how many were trained, from 1; 0: there was no evaluation */
  double loss;        /**< mean over the validation set */
  double accuracy;    /**< of labels, 0 to 1 */
  double top2, top3;  /**< share of labels among the 2, 3, 5 or 10 likeliest; these and auc are */
  double top5, top10; /**< measured if sl_fit_options.metric needs the outputs; auc: of bce, too */
  double auc;
  double mae, rmse, r2; /**< of targets, in their unit */
  double deciding;      /**< the metric that sl_fit_options.metric names */
  int output_count; /**< of a loss of parts: loss, accuracy, auc, rmse and r2 of its outputs, and
                       what decides */
  struct sl_fit_output outputs[3 * SL_MAX_FIELDS + 1];
};

/** Where a run begins. */
struct sl_fit_begin {
  int64_t step;          /**< steps that were made before: 0 at the beginning */
  int64_t index;         /**< place in the data, in batches of this loader; step, unless the run is
                            resumed with another number of ranks */
  int64_t steps, epochs; /**< in all */
  const char *resumed;   /**< the checkpoint that was loaded; NULL: none */
  const char *changes;   /**< which of the options have changed since that checkpoint, as
                            "replicas 2 -> 4, lr 0.1 -> 0.05"; "" */
};

/** Why a run ended. */
enum sl_fit_end {
  SL_FIT_FAILED,      /**< sl_fit's status and sl_error() say why */
  SL_FIT_DONE,        /**< after the last step */
  SL_FIT_INTERRUPTED, /**< by a signal or by sl_trainer_stop, on any rank */
  SL_FIT_EARLY        /**< after `patience` evaluations without an improvement */
};

struct sl_fit_result {
  /** Why the steps ended. If all of them were made, and then the last checkpoint could not be
   * written, the status is that of the failure, and this member is not SL_FIT_FAILED. */
  enum sl_fit_end end;
  /** SL_FIT_INTERRUPTED: "SIGTERM", "Ctrl-C (SIGINT)", "the program", "another rank"; else NULL. */
  const char *cause;
  bool common;           /**< a failure that all ranks have alike: one of them may tell it */
  int64_t step, epoch;   /**< steps made in all, earlier runs included, and complete epochs */
  int64_t steps, epochs; /**< that were to be made in all */
  struct sl_fit_evaluation last, best; /**< best: by sl_fit_options.metric; of one from before
                                          resume the outputs are not known */
  double seconds;                      /**< in steps of this call, without evaluations and pauses */
  double step_seconds; /**< mean time of a step, without the first ones of each epoch; 0: too few */
  int64_t samples;     /**< of this process, in this call */
  char checkpoint[4096]; /**< path of the newest whole checkpoint; "": none */
  /** trace: the first step to be recorded, the last one that was (from 1; 0: none), and seconds in
   * them. */
  int64_t trace_first, trace_last;
  double trace_seconds;
};

/** All zero: 10 epochs without evaluation, files, output and signals. Paths are of rank 0's files;
 * other ranks write their own logs only. Over ranks all must have the same options, except for
 * paths, keep and those of the log, the trace, the output and the callbacks. */
struct sl_fit_options {
  /** How long, counted from the trainer's first step (a trainer that has made steps goes on, with
   * another loader, too). After sl_trainer_load with another batch or number of ranks, counted in
   * steps of the new size from the place in the data; with another loader from the trainer's first
   * step again. Both 0: 10 epochs; both given: the shorter one. */
  int64_t epochs, steps;

  /** What is evaluated after each epoch, and at the end; NULL: nothing. With `checkpoint`, not the
   * loader that trains: evaluations move it. dist_async: rank 0 alone evaluates, and needs all
   * samples. */
  struct sl_loader *validation;
  /** The measure that decides what is best: "loss" (NULL), "accuracy", "top2", "top3", "top5",
   * "top10", "auc", "mae", "rmse", "r2", as sl_trainer_measure has them; of one of several outputs
   * OUTPUT.loss, OUTPUT.accuracy and so on. Smaller is better of loss, mae and rmse, larger of the
   * others. */
  const char *metric;
  /** After the run, the validation set's confusion matrix goes into the log, a line of its own
   * (doc/log.md). Of class labels, up to 1,024 classes; needs `validation` and `log`. */
  bool confusion;
  /** Ends the run after this number of evaluations in sequence whose metric was not better than the
   * best one by more than min_delta; 0: never. A resumed run counts on. (Prechelt, Early stopping -
   * but when? 1998.) */
  int64_t patience;
  double min_delta;

  /** Weights (.safetensors) or whole model (.json, .onnx), as sl_model_save: after each epoch and
   * at the end; and after each evaluation that is the best so far. NULL: none. */
  const char *save, *best;
  /** Writes them instead of sl_model_save, on rank 0: path is `save` or `best`, which may be
   * folders then. A path that ends in '/' need not be there before. NULL: sl_model_save. */
  enum sl_status (*write)(void *user, struct sl_model *model, const char *path);

  /** Folder of checkpoints, for this run alone: checkpoint-STEP.safetensors and manifest.json,
   * which doc/checkpoints.md describes. It is made if it is missing. A checkpoint that cannot be
   * written now is told by on_warning, and the run goes on; the last one must succeed. After N
   * steps a run that resumes nothing begins only with a loader that is at batch N % length of its
   * epoch N / length (sl_loader_seek_batch), where steps with another loader or of another trainer,
   * evaluations and seeks do not leave it; callbacks leave it alone, too. Resuming moves it. NULL:
   * none. */
  const char *checkpoint;
  int64_t checkpoint_every;  /**< steps; 0: an epoch's */
  double checkpoint_minutes; /**< above 0: by the clock instead; not for dist_async */
  int64_t keep;              /**< how many of the newest stay; 0: 3 */
  /** Go on from the newest whole checkpoint of the folder, or begin if there is none. Without it a
   * folder that has checkpoints is refused. */
  bool resume;

  /** JSON lines, doc/log.md. A resumed run goes on behind the lines of its steps. Rank 2's log of
   * "run.jsonl" is "run.rank2.jsonl". NULL: none. */
  const char *log;

  /** SIGINT, SIGTERM, SIGHUP (unless ignored) and SIGUSR1 end the run orderly: a checkpoint is
   * written if there is a folder for it. See sl_signals_catch. */
  bool signals;
  /** On rank 0, standard output: a bar on a terminal, else a line now and then, and a line for each
   * epoch. */
  bool progress;

  /** Record steps with sl_trace_start (the context must have a folder for it): trace_first to
   * trace_last, from 1; both 0: ten steps, from the 11th of this run on. */
  bool trace;
  int64_t trace_first, trace_last;

  /** For the log: the program's name (NULL: the process's), what a sample is ("images"; NULL: as
   * the data say), and its options as the text of one JSON object (NULL: those of this call). */
  const char *program, *unit, *options;
  /** The options that checkpoints note, such an object. A resumed run tells which have changed.
   * NULL: options. */
  const char *noted;

  /** Called by the thread that called sl_fit; NULL: not called. A status other than SL_OK ends the
   * run as a failure with this status; its message is that of the library's call that failed, if it
   * was one. sl_trainer_stop ends the run orderly, from any of them; in on_begin, before the
   * first step, with nothing evaluated or saved. None may make steps of this trainer: there
   * sl_trainer_step, sl_fit, and sl_trainer_drain while steps are pending, are SL_BAD_ARGUMENT. */
  void *user;
  /** Before the first step, once all files are open. NULL: with progress, a line says where a
   * resumed run goes on. */
  enum sl_status (*on_begin)(void *user, const struct sl_fit_begin *begin);
  /** After each step of this rank, as sl_trainer_step reports it; samples_per_s: over about the
   * last second. Not on servers of dist_async. */
  enum sl_status (*on_step)(void *user, const struct sl_report *report, double samples_per_s);
  /** On the ranks that evaluate. is_best: it is better than all before, by however little. */
  enum sl_status (*on_evaluation)(void *user, const struct sl_fit_evaluation *evaluation,
                                  bool is_best);
  /** On rank 0, after weights were written to `save` or `best`: further files belong beside them.
   */
  enum sl_status (*on_save)(void *user, const char *path);
  /** On rank 0, when a checkpoint is whole and listed. */
  enum sl_status (*on_checkpoint)(void *user, const char *path, const struct sl_saved *saved);
  /** Something went wrong that does not end the run: one line. NULL: it is logged as the context's
   * warnings are. */
  void (*on_warning)(void *user, const char *line);
};

/** Train: a run of steps until the options, a signal, sl_trainer_stop or the metric end it. A
 * second call goes on where the first one ended. Steps that the program has made before count in
 * steps and in sl_fit_result.step; those that are pending end first and are not reported. After a
 * step that failed only sl_trainer_free is legal. Collective over the ranks of a dist_* trainer; a
 * rank that fails alone tells the others (sl_leave). A model that has no notes gets those of the
 * training data and the loss (sl_model_note_data), so that its files say how inputs are normalised
 * and what outputs are. options may be NULL, and so may result.
 * \return SL_BAD_ARGUMENT for options out of range, in contradiction or not alike on all ranks, a
 * metric that the data do not have, a folder of checkpoints that another run uses, or that has
 * checkpoints and resume is not set; the message begins with the member's name. SL_IO for a file
 * that cannot be written; a run that was interrupted or ended early is SL_OK, see result; all that
 * sl_trainer_step, sl_trainer_load, sl_trainer_save and sl_model_save return. */
SL_API enum sl_status sl_fit(struct sl_trainer *trainer, struct sl_loader *train,
                             const struct sl_fit_options *options, struct sl_fit_result *result);

/** The checks of sl_fit that need no trainer: ranges, and whether the files can be written. For
 * programs that take minutes to open their data. It changes the folder of checkpoints alone:
 * it makes it, and removes half-written files of a killed run. context NULL: rank 0. */
SL_API enum sl_status sl_fit_check(const struct sl_context *context,
                                   const struct sl_fit_options *options);

/** Note signals (SIGINT, SIGTERM, SIGUSR1, and SIGHUP unless it is ignored) from now on instead of
 * ending the process; one that comes more than a second after the first ends it. Writing into a
 * closed pipe or a file at its size limit becomes an error instead of a signal. sl_fit calls it for
 * the time of its run; a program calls it before (after sl_open, since StarPU sets handlers, too)
 * if signals shall not end it outside sl_fit. Calls nest. */
SL_API void sl_signals_catch(void);

/** Undoes one sl_signals_catch; the last one sets the handlers that were there before. */
SL_API void sl_signals_release(void);

/** The first signal that came since the outermost sl_signals_catch; 0: none. */
SL_API int sl_signals_caught(void);

#ifdef __cplusplus
}
#endif
#endif
