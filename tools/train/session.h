/* A training from its first check to its last line: what is opened, and what is known of it. */
#ifndef SL_TOOLS_TRAIN_SESSION_H
#define SL_TOOLS_TRAIN_SESSION_H

#include "tools/train/failure_report.h"
#include "tools/train/run.h"
#include "tools/train/tracing.h"

struct session {
  const struct program *program;
  const char *name;
  char message[1200]; /* why it failed; "": it did not */
  const char *option; /* whose value failed, if the library's message does not name it; NULL */
  struct cli cli;
  int rank;
  bool common; /* all ranks fail with the same message */
  bool apart;  /* failed before ranks could talk to each other */
  struct sl_dataset *train_set, *test_set;
  struct sl_loader *train_loader, *test_loader;
  struct sl_context *context;
  struct sl_model *model;
  struct sl_trainer *trainer;
  double bytes_sent;                  /* a rank */
  int64_t epoch_steps, steps, epochs; /* steps an epoch; steps and epochs in all */
  int64_t begun_at;                   /* steps done before this process took over */
  struct sl_fit_result result;
  struct failure_report failure_report;
  char *command; /* as typed, to be pasted */
  struct sl_loss loss;
  struct sl_loss_part parts[SL_MAX_FIELDS]; /* the loss's, if it has some */
  float *class_weights;                     /* of the loss; NULL: none */
  /* of --placement auto: its table, and the predicted time of a step */
  char *automatic;
  double predicted_ms;
  char *split, *split_table; /* of --split auto */
  char *loaded;              /* the table of --load-part */
  struct trace trace;
};

/* What the samples of a report are: "images", "rows" of a table, "words"; else "samples". */
const char *session_unit(const struct session *session);

/* Opens data, devices, model and trainer. Returns the exit code. */
int session_open(struct session *session);

/* sl_fit_options.write: by the program's own function. */
enum sl_status session_write_model(void *user, struct sl_model *model, const char *path);

/* Makes the run: steps, log, checkpoints (sl_fit). Returns the exit code. */
int session_fit(struct session *session);

/* Prints the failure if code is one, closes all in the opposite order and draws the trace. Returns
 * the exit code. */
int session_close(struct session *session, int code);

#endif
