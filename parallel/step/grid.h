/* The placement grid: which stage each layer belongs to, and the device of each (stage, replica).
 * Data, model and hybrid parallelism are all such grids. */
#ifndef SL_PARALLEL_STEP_GRID_H
#define SL_PARALLEL_STEP_GRID_H

#include <starling/parallel.h>
#include <stdio.h>

#include "nn/layer.h"

struct sl__grid {
  int replicas, microbatches, stages;
  enum sl_math math;
  int64_t chunk;          /* time steps a task at most; 0: all of a sample's */
  int64_t training_chunk; /* in a training's steps: chunk or, where it is 0, sl__chunk_by_default */
  int layers;
  double *proportion; /* [replicas] of the batch's rows; NULL: all alike */
  int *stage;         /* [layers] */
  int *run; /* [layers]: the last one of the run that the backward pass computes again, or -1; NULL:
               no layer is (recompute.h) */
  struct sl__device *devices; /* [stages * replicas], stage by stage; known of this member's stages
                                 only */
  /* Ranks that have one copy of the model together, its group: one in all but placements over
   * several, for which member_of is NULL, too. */
  int members, member; /* how many, and which one this rank is */
  int *member_of;      /* [stages] */
};

/* The grid that the options and the model's placement (sl_place) ask for. */
enum sl_status sl__grid_new(const struct sl_model *model, const struct sl_trainer_options *options,
                            struct sl__grid *grid);
void sl__grid_clear(struct sl__grid *grid);

static inline const struct sl__device *sl__grid_device(const struct sl__grid *grid, int layer,
                                                       int replica) {
  return &grid->devices[grid->stage[layer] * grid->replicas + replica];
}

/* Which rank of the group has a layer? */
static inline int sl__grid_member(const struct sl__grid *grid, int layer) {
  return grid->member_of ? grid->member_of[grid->stage[layer]] : 0;
}
static inline bool sl__grid_is_here(const struct sl__grid *grid, int layer) {
  return sl__grid_member(grid, layer) == grid->member;
}

/* Has a layer a recurrent state, other than a cache of the sequence? Then the sums over time of a
 * sequence that is cut into chunks begin anew with each of them; in other models the bits do not
 * depend on where chunks end. */
bool sl__is_recurrent(const struct sl_model *model);

/* Time steps of a task in training, on CPUs, where the options have no number: half a sequence for
 * a batch of one slice, whose recurrent layers would else wait for each other; 0: all. slices: of
 * one copy of the model; each group of ranks has another one. The number of workers does not count,
 * so that bits do not depend on it. */
int64_t sl__chunk_by_default(const struct sl_model *model, const struct sl_trainer_options *options,
                             int64_t slices);

/* Has the device CPU workers only? */
bool sl__is_on_cpus(const struct sl__device *device);

/* SL_BAD_ARGUMENT where a batch has fewer rows than it is to have slices. */
enum sl_status sl__grid_check_batch(const struct sl__grid *grid, int64_t batch);

/* The workers that the context's device list stands for, one by one, in its order; to be freed. */
enum sl_status sl__grid_workers(const struct sl_context *context, struct sl__device **workers,
                                int *count);

/* "a,b0-3=cuda:0;c=cpu" (parallel/step/placement.c) into stages, one a rule in the order of their
 * first layers: stage[layers], and each one's devices, one a replica. "a=rank0/cpu:0;b=rank1/cpu:0"
 * is over two ranks: only this rank's devices must be there. */
struct sl__placement {
  int stages, ranks;
  int *rank; /* [stages] */
  int *stage;
  struct sl__device **devices; /* [stages] */
  int *device_count;           /* [stages] */
};
enum sl_status sl__placement_parse(const struct sl_model *model, const char *text,
                                   struct sl__placement *placement);
void sl__placement_clear(struct sl__placement *placement);

/* What tells devices that are alike from others: "cpu", "cuda Tesla V100". Of one worker. */
void sl__device_kind(const struct sl__device *device, char *kind, size_t size);

/* Cut n costs into `parts` runs, none empty, so that the dearest run is as cheap as can be; ties go
 * to the earliest cuts. first[parts] receives where each begins. O(n^2 parts) dynamic programming
 * (the linear partition problem). n >= parts >= 1. */
enum sl_status sl__partition(int n, const double *cost, int parts, int *first);

#endif
