/* What layers cost on a device: time, from StarPU's performance models, and memory. */
#ifndef SL_PARALLEL_PLANNING_COST_H
#define SL_PARALLEL_PLANNING_COST_H

#include "parallel/params/memory_needs.h"
#include "parallel/params/model_shards.h"
#include "core/runtime/dry_run.h"
#include "parallel/step/plan.h"

/* One step's shape, as the trainer will cut it. */
struct sl__cost_case {
  struct sl_model *model;
  const struct sl_optimizer *optimizer;
  struct sl_loss loss;
  enum sl_kvstore_kind kvstore;
  int64_t big_shard, chunk;
  int64_t rows; /* of one slice */
  int replicas, microbatches;
  enum sl_math math;
  bool eager; /* steps are not captured */
};

/* [layers] ms; of one slice, the update's of one step. The last layer's forward has the loss in it.
 */
struct sl__costs {
  double *forward, *backward_data, *backward_weight, *update;
  bool impossible; /* an operation has no implementation there; the times are nothing then */
  int estimated; /* tasks of which the performance models know nothing: from flops and bandwidth */
};

/* On devices of one class, which all work at once, so that they compete for the memory that they
 * share. The medians of some steps; StarPU's performance models get those that they do not know.
 * Weights and buffers stay as they are. */
enum sl_status sl__cost_measure(const struct sl__cost_case *c, const struct sl__device *devices,
                                int count, struct sl__costs *costs);
void sl__costs_clear(struct sl__costs *costs);

enum { SL__COST_TRIES = 3 };

/* ms of a training step of a batch on this grid, captured where a trainer's steps are, from some
 * steps that follow each other: one value a try. Weights and buffers stay as they are; c->rows is
 * ignored. */
enum sl_status sl__cost_steps(const struct sl__cost_case *c, const struct sl__grid *grid,
                              int64_t batch, double ms[SL__COST_TRIES]);

/* Are the steps of one way surely quicker than those of another, measured in turns: in each round,
 * and by 3 % in the median? SL__COST_TRIES values a round. Less is noise. */
bool sl__cost_is_less(int rounds, const double *ms, const double *than);

/* Do all layers fit into the memory of this device, on `count` such devices at once? */
bool sl__cost_fits(const struct sl__cost_case *c, const struct sl__device *device, int count);

/* Has a measurement failed since the limit of main memory is used up? Nothing is broken then. */
bool sl__cost_ran_out(const struct sl_context *context, enum sl_status status);

/* Bytes of all layers of that many replicas in one memory, which has the parameters and the
 * optimizer's state once. */
double sl__cost_main_memory(const struct sl__cost_case *c, int slices, int replicas);

/* Estimated ms of a dry-run task without measurements: its flops and bytes, at a rate that is
 * common for the kind of device. */
double sl__cost_estimate(const struct sl__dry_run_task *task, const struct sl__device *device);

/* sl__layer_memory (parallel/params/memory_needs.h) of this case. */
double sl__cost_bytes(const struct sl__cost_case *c, int layer, int slices);

#endif
