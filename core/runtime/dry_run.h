/* A dry run: calls of operations are recorded instead of submitted. */
#ifndef SL_CORE_RUNTIME_DRY_RUN_H
#define SL_CORE_RUNTIME_DRY_RUN_H

#include "core/runtime/submit.h"

/* Enough to ask the performance models for the time of the task. */
struct sl__dry_run_task {
  struct sl__op *op;
  uint32_t footprint;
  const char *name; /* of the layer, as in the launch */
  int priority;
  double flops, bytes;
};

struct sl__dry_run {
  struct sl__dry_run_task *tasks; /* the caller frees them */
  int count, capacity;
};

/* Until the end no task of the context is submitted, whichever thread calls. */
enum sl_status sl__dry_run_begin(struct sl_context *context, struct sl__dry_run *run);
void sl__dry_run_end(struct sl_context *context, struct sl__dry_run *run);

bool sl__is_dry_run(const struct sl_context *context);

#endif
