/* The stages that a model is cut into for a given number of replicas: each layer is measured on
 * each kind of device, the model is cut where the slowest stage is fastest, the step simulated. */
#ifndef SL_PARALLEL_PLANNING_STAGE_PLAN_H
#define SL_PARALLEL_PLANNING_STAGE_PLAN_H

#include <stdio.h>

#include "parallel/planning/cost.h"
#include "parallel/planning/stage_partitioner.h"

enum { SL__MOST_CLASSES = 8 };

/* The context's devices; those that are alike are one class. */
struct sl__device_classes {
  int count;
  struct sl__device_class {
    char kind[64];
    struct sl__device *devices; /* [count], in the list's order */
    int count;
  } of[SL__MOST_CLASSES];
};

enum sl_status sl__device_classes_new(const struct sl_context *context,
                                      struct sl__device_classes *classes);
/* How many devices the class with most of them has. */
int sl__device_classes_largest(const struct sl__device_classes *classes);
void sl__device_classes_clear(struct sl__device_classes *classes);

struct sl__stage_plan {
  struct sl__cost_case c;
  int64_t batch;
  int chunks, in_flight;
  const struct sl__device_classes *classes;
  struct sl__class_costs {
    int sets; /* of as many devices as there are replicas */
    struct sl__costs costs;
    double *ms; /* [layers] of one step */
  } of[SL__MOST_CLASSES];
  struct sl__stage_partitioner_device_class planner_classes[SL__MOST_CLASSES];
  double bytes_per_ms[SL__MOST_CLASSES * SL__MOST_CLASSES];
  double latency_ms[SL__MOST_CLASSES * SL__MOST_CLASSES];
  double *bytes, *cut_bytes;            /* [layers] */
  struct sl__stage_partition partition; /* nothing_fits: there is no plan */
  double *cut_ms;                       /* [stages] of one chunk of one microbatch, one way */
  double step_ms;                       /* predicted */
};

/* c's rows are set here, from the batch and its slices. most_stages 0: no limit. A model that no
 * cut makes fit is no error: partition.nothing_fits, and sl_error says why. The classes must
 * outlive the plan. */
enum sl_status sl__stage_plan_new(const struct sl__cost_case *c, int64_t batch, int in_flight,
                                  int most_stages, const struct sl__device_classes *classes,
                                  struct sl__stage_plan *plan);
void sl__stage_plan_clear(struct sl__stage_plan *plan);

/* The plan as sl_place takes it; to be freed. */
enum sl_status sl__stage_plan_rules(const struct sl__stage_plan *plan, char **rules);
/* A line for each stage. */
void sl__stage_plan_print(FILE *out, const struct sl__stage_plan *plan);
/* Is a part of the times guessed, not measured? */
bool sl__stage_plan_is_guessed(const struct sl__stage_plan *plan);

#endif
