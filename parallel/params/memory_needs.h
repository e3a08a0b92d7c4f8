/* Memory that a training needs on each device, and memory that the devices have. */
#ifndef SL_PARALLEL_PARAMS_MEMORY_NEEDS_H
#define SL_PARALLEL_PARAMS_MEMORY_NEEDS_H

#include <starling/nn.h>

#include "parallel/step/grid.h"

struct sl__memory_case {
  const struct sl__grid *grid; /* NULL, or tells what is computed again */
  const struct sl_model *model;
  const struct sl_optimizer *optimizer;
  const struct sl_loss *loss;
  int64_t rows;  /* of one slice */
  int64_t chunk; /* time steps of a chunk; 0: sequences are not cut */
  int microbatches;
  enum sl_math math;
};

/* Bytes of a layer: its parameters (and their bf16 copy), gradient and optimizer state, and the
 * values of `slices` slices that stay until their backward pass. (The memory of an output's
 * gradient comes when that of its output goes.) */
double sl__layer_memory(const struct sl__memory_case *c, int layer, int slices);

/* The part of it that replicas in one memory share: parameters, their bf16 copy, the optimizer's
 * state. */
double sl__layer_param_memory(const struct sl__memory_case *c, int layer);

/* Size in bytes of the memory near a device; INFINITY if nothing limits it. */
double sl__device_memory(const struct sl__device *device);

/* Is it known in which memory such a device computes? */
bool sl__memory_is_definite(const struct sl__device *device);

/* SL_NO_MEMORY if a memory is smaller than the tensors that must be in it at the same time: the
 * parameters and gradients of the layers placed there, and one slice's values of each layer. */
enum sl_status sl__placement_check_memory(const struct sl_model *model,
                                          const struct sl_optimizer *optimizer,
                                          const struct sl_loss *loss, const struct sl__grid *grid,
                                          int64_t batch);

#endif
