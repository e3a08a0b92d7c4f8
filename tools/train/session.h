/* A training from its first check to its last line: what is opened, and what is known of it. */
#ifndef SL_TOOLS_TRAIN_SESSION_H
#define SL_TOOLS_TRAIN_SESSION_H

#include "parallel/fit/checkpoints.h"
#include "tools/train/describe.h"
#include "tools/train/failure_report.h"
#include "parallel/fit/log.h"
#include "parallel/fit/progress.h"
#include "tools/train/run.h"
#include "tools/train/tracing.h"

struct session {
  const struct program *program;
  const char *name;
  char message[1200]; /* why it failed; "": it did not */
  struct cli cli;
  int rank;
  bool works;    /* this rank is a worker, not only a server */
  bool stopped;  /* all ranks end here, since one got a signal */
  bool common;   /* all ranks fail with the same message */
  bool apart;    /* failed before ranks could talk to each other */
  char *own_log; /* this rank's */
  struct sl_dataset *train_set, *test_set;
  struct sl_loader *train_loader, *test_loader;
  struct sl_context *context;
  struct sl_model *model;
  struct sl_trainer *trainer;
  struct log *log;
  double log_opened; /* when */
  struct progress progress;
  struct meter meter;
  double bytes_sent;                  /* a rank */
  int64_t epoch_steps, steps, epochs; /* steps an epoch; steps and epochs in all */
  int64_t begun_at;                   /* position in the data, in steps of this run's size */
  struct sl_position begun;           /* where this process resumed; zero: at the beginning */
  struct {
    struct checkpoints folder;
    char *options, *changes; /* the run's, as JSON; what has changed since the one resumed from */
    double stopped_s, begun; /* of the current or last checkpoint: pause of the training, begin */
    bool due;                /* by the clock, on all ranks */
    bool failed;             /* the last attempt */
  } checkpoint;
  struct failure_report failure_report;
  char *command; /* as typed, to be pasted */
  struct sl_loss loss;
  double epoch_loss, epoch_terms; /* sums over the epoch: of the loss, and of its divisor */
  int64_t samples;                /* of this process in all */
  struct test_result test;        /* of the last evaluation */
  /* of --placement auto: its table, and the predicted time of a step */
  char *automatic;
  double predicted_ms;
  char *split, *split_table; /* of --split auto */
  char *loaded;              /* the table of --load-part */
  struct trace trace;
  struct step_clock {
    double last, seconds; /* of the last report; between reports, without an epoch's first ones */
    int64_t in_epoch, steps;
  } clock;
};

/* What the samples of a report are: "images", "words". */
const char *session_unit(const struct session *session);

/* Opens everything that can fail: data, devices, model, trainer, checkpoints, and the log last: a
 * bad start leaves an older log alone. Returns the exit code. */
int session_open(struct session *session);

/* Ends the log, prints the failure if code is one, closes all in the opposite order and draws the
 * trace. Returns the exit code. */
int session_close(struct session *session, int code);

#endif
