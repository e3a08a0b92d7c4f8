/* A loader's slots as tensors: registered once, split into the plan's slices, handed back when a
 * step is over. */
#ifndef SL_PARALLEL_STEP_BATCH_TENSORS_H
#define SL_PARALLEL_STEP_BATCH_TENSORS_H

#include <starling/data.h>

#include "parallel/step/plan.h"

struct sl__batch_tensors {
  struct sl_loader *loader; /* held */
  int slots;
  bool pinned;
  struct sl__tensor **x, **labels; /* [slots]; labels: or targets, if the set has them */
};

enum sl_status sl__batch_tensors_open(struct sl_context *context, struct sl_loader *loader,
                                      const struct sl__grid *grid, struct sl__batch_tensors **feed);

/* Bring a filled slot's slices to the GPUs whose tasks will read them: layer `reader` the samples
 * (-1: none here), the last one the labels or targets. Asynchronous. */
void sl__batch_tensors_prefetch(struct sl__batch_tensors *feed, int slot,
                                const struct sl__grid *grid, int reader);

/* Wait until no task reads the slot any more, drop copies on other devices, let the loader fill it
 * again. */
enum sl_status sl__batch_tensors_recycle(struct sl__batch_tensors *feed, int slot);

void sl__batch_tensors_close(struct sl__batch_tensors *feed);

#endif
