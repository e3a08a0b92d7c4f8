/* Places layers on devices as contiguous stages, from measured times, memory and links alone: it
 * knows no model and no StarPU. */
#ifndef SL_PARALLEL_PLANNING_STAGE_PARTITIONER_H
#define SL_PARALLEL_PLANNING_STAGE_PARTITIONER_H

#include <starling/base.h>

/* Devices that are alike: equally fast, equally large, equally linked. */
struct sl__stage_partitioner_device_class {
  const double *ms; /* [layers] one step of each: forward, backward, update, all microbatches */
  double memory;    /* bytes that each device has; INFINITY: no limit */
  int count;        /* 0: none */
};

/* "There and back" is the activations' way forward and the gradients' way backward. */
struct sl__stage_partitioner {
  int layers, class_count;
  const struct sl__stage_partitioner_device_class *classes; /* [class_count] */
  const double *bytes;     /* [layers] memory of each on its device */
  const double *cut_bytes; /* [layers] that cross in one step, there and back, where a stage begins
                              at this layer; the first one is not read */
  /* [from * class_count + to], from the class before a cut to the one after it; the diagonal is
   * between two devices of one class */
  const double *bytes_per_ms; /* INFINITY: they share memory */
  const double *latency_ms;   /* of one step, there and back */
  int most_stages;            /* 0: as many as there are devices */
};

struct sl__stage_partition {
  int stages;
  int *first;          /* [stages] layer */
  int *device_class;   /* [stages] */
  double *stage_ms;    /* [stages] its layers and the transfers over both its cuts */
  double *stage_bytes; /* [stages] */
  double slowest_ms;   /* of the stages */
  double total_ms;     /* all stages' sum */
  bool nothing_fits;   /* SL_NO_MEMORY means the devices' memory */
  int too_large;       /* -1, or the layer that no device can hold */
};

/* The placement whose slowest stage is fastest; among equals the least total, then the fewest
 * stages (equal: to one part in 10^9, which is what rounding may hide). Each device serves one
 * stage at most. Exact dynamic programming: O(layers^2 classes^3 sets), where a set is how many
 * devices of each class are taken. SL_NO_MEMORY where no placement fits the devices' memory. */
enum sl_status sl__stage_partitioner_plan(const struct sl__stage_partitioner *planner,
                                          struct sl__stage_partition *planned);
void sl__stage_partition_clear(struct sl__stage_partition *planned);

#endif
