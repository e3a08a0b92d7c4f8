/* Runs of layers whose outputs a training step does not keep: the backward pass computes them again
 * from what lies before the run (Chen et al., arXiv 1604.06174). */
#ifndef SL_PARALLEL_STEP_RECOMPUTE_H
#define SL_PARALLEL_STEP_RECOMPUTE_H

#include "parallel/step/grid.h"

/* Finds the runs of the listed layers (names, ranges, patterns, groups), which end where a group or
 * a stage does: grid->run. NULL or "": none. \return SL_BAD_ARGUMENT for a layer that is unknown,
 * or cannot be computed twice. */
enum sl_status sl__recompute_find(const struct sl_model *model, const char *layers,
                                  struct sl__grid *grid);

/* Is layer i's output computed again? It is not if something outside of its run reads it. */
bool sl__is_recomputed(const struct sl_model *model, const struct sl__grid *grid, int i);

#endif
