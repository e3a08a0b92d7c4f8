/* Placement by a cost model: measure each layer on each kind of device, cut the model where the
 * slowest stage is fastest, say what to expect. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parallel/planning/cost.h"
#include "core/base/text.h"
#include "parallel/step/precision.h"
#include "parallel/planning/step_simulator.h"
#include "parallel/planning/stage_partitioner.h"
#include "parallel/train/trainer.h"

enum { MOST_CLASSES = 8 };

/* Devices that are alike. */
struct class {
  char kind[64];
  struct sl__device *devices; /* [count], in the list's order */
  int count, sets;            /* sets: of as many devices as there are replicas */
  struct sl__costs costs;
  double *ms; /* [layers] of one step */
};

struct automatic {
  struct sl__cost_case c;
  int64_t batch;
  int chunks, in_flight;
  struct class classes[MOST_CLASSES];
  int class_count;
  struct sl__stage_partitioner_device_class planner_classes[MOST_CLASSES];
  double bytes_per_ms[MOST_CLASSES * MOST_CLASSES], latency_ms[MOST_CLASSES * MOST_CLASSES];
  double *bytes, *cut_bytes; /* [layers] */
  struct sl__stage_partition plan;
  double *stage_cut_ms; /* [stages] of one chunk of one microbatch, one way */
  double step_ms;
};

/* ---- devices into classes ---- */

/* Each stage takes as many devices of a kind as there are replicas. */
static enum sl_status count_sets(struct automatic *a) {
  int most = 0;
  for (int k = 0; k < a->class_count; k++) {
    a->classes[k].sets = a->classes[k].count / a->c.replicas;
    if (a->classes[k].count > most) most = a->classes[k].count;
  }
  if (most >= a->c.replicas) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT,
                  "%d replicas need as many devices of one kind for each stage, but there are %d; "
                  "take fewer replicas",
                  a->c.replicas, most);
}

static enum sl_status sort_devices(struct automatic *a) {
  enum sl_status status;
  struct sl__device *devices = NULL;
  int count;
  SL__TRY(sl__grid_workers(a->c.model->context, &devices, &count));
  for (int d = 0; d < count; d++) {
    char kind[64];
    int k = 0;
    bool again = false; /* a device may be in the list twice */
    for (int e = 0; e < d; e++) again |= devices[e].place.worker == devices[d].place.worker;
    if (again) continue;
    sl__device_kind(&devices[d], kind, sizeof kind);
    while (k < a->class_count && strcmp(a->classes[k].kind, kind)) k++;
    if (k == MOST_CLASSES) {
      status = sl__fail(SL_BAD_ARGUMENT, "more than %d kinds of devices; name fewer devices",
                        MOST_CLASSES);
      goto out;
    }
    struct class *class = &a->classes[k];
    if (k == a->class_count) {
      a->class_count++;
      snprintf(class->kind, sizeof class->kind, "%s", kind);
      class->devices = sl__alloc((size_t)count, sizeof *class->devices, "devices");
      if (!class->devices) SL__TRY(SL_NO_MEMORY);
    }
    class->devices[class->count++] = devices[d];
  }
  status = count_sets(a);
out:
  free(devices);
  return status;
}

/* ---- what the planner wants to know ---- */

static double output_bytes(const struct automatic *a, int layer) {
  double value = (double)sl__type_size(sl__value_type(a->c.math));
  return value * (double)(a->c.rows * sl_shape_count(&a->c.model->layers[layer].out));
}

/* What crosses before layer i, one way, of one microbatch: each output that is read behind the cut,
 * and for a shared weight its share. */
static double crossing(const struct automatic *a, int i) {
  const struct sl_model *model = a->c.model;
  double bytes = 0;
  for (int from = 0; from < i; from++) {
    bool read = false;
    for (int to = i; to < model->count; to++) {
      const struct sl__layer *layer = &model->layers[to];
      for (int k = 0; k < layer->input_count; k++) read |= layer->input[k] == from;
      if (layer->tied_to == from) /* there the weight, back its gradient, which is f32 */
        bytes += (a->c.math == SL_MATH_BF16 ? 3.0 : 4.0) *
                 (double)model->layers[from].params.total / a->c.microbatches;
    }
    if (read) bytes += output_bytes(a, from);
  }
  return bytes;
}

static enum sl_status measure_class(struct automatic *a, struct class *class) {
  const struct sl__costs *costs = &class->costs;
  enum sl_status status =
      sl__cost_measure(&a->c, class->devices, class->count < 8 ? class->count : 8, &class->costs);
  if (status != SL_OK) return status;
  class->ms = sl__alloc((size_t)a->c.model->count, sizeof *class->ms, "costs");
  if (!class->ms) return SL_NO_MEMORY;
  for (int i = 0; i < a->c.model->count; i++)
    class->ms[i] = costs->update[i] +
                   a->c.microbatches *
                       (costs->forward[i] + costs->backward_data[i] + costs->backward_weight[i]);
  return SL_OK;
}

/* CPU workers share one memory. */
static double memory_of(const struct class *class) {
  double bytes = sl__device_memory(&class->devices[0]);
  return class->devices[0].node == STARPU_MAIN_RAM ? bytes / class->count : bytes;
}

static void measure_links(struct automatic *a) {
  for (int from = 0; from < a->class_count; from++)
    for (int to = 0; to < a->class_count; to++) {
      const struct class *f = &a->classes[from], *t = &a->classes[to];
      unsigned source = f->devices[0].node;
      unsigned target = t->devices[from == to && t->count > 1 ? 1 : 0].node;
      bool apart = source != target;
      double rate = apart ? starpu_transfer_bandwidth(source, target) : 0; /* MB/s, NaN: unknown */
      double us = apart ? starpu_transfer_latency(source, target) : 0;
      a->bytes_per_ms[from * a->class_count + to] = rate > 0 ? 1e3 * rate : INFINITY;
      a->latency_ms[from * a->class_count + to] =
          us > 0 ? 2e-3 * us * a->c.microbatches * a->chunks : 0;
    }
}

static enum sl_status gather(struct automatic *a) {
  int layers = a->c.model->count;
  bool some = false;
  enum sl_status status = SL_NO_MEMORY;
  a->bytes = sl__alloc((size_t)layers, sizeof *a->bytes, "costs");
  a->cut_bytes = sl__alloc((size_t)layers, sizeof *a->cut_bytes, "costs");
  if (!a->bytes || !a->cut_bytes) goto out;
  for (int i = 0; i < layers; i++) {
    a->bytes[i] = sl__cost_bytes(&a->c, i, a->c.microbatches);
    a->cut_bytes[i] = 2 * a->c.microbatches * crossing(a, i);
  }
  for (int k = 0; k < a->class_count; k++) {
    struct class *class = &a->classes[k];
    SL__TRY(measure_class(a, class));
    bool possible = !class->costs.impossible;
    some |= possible && class->sets;
    a->planner_classes[k] = (struct sl__stage_partitioner_device_class){
        .ms = class->ms, .memory = memory_of(class), .count = possible ? class->sets : 0};
  }
  measure_links(a);
  status = some ? SL_OK
                : sl__fail(SL_NO_DEVICE,
                           "none of the devices has all operations of the model; name "
                           "other devices");
out:
  return status;
}

static enum sl_status plan_stages(struct automatic *a, int most_stages) {
  const struct sl__stage_partitioner planner = {.layers = a->c.model->count,
                                                .class_count = a->class_count,
                                                .classes = a->planner_classes,
                                                .bytes = a->bytes,
                                                .cut_bytes = a->cut_bytes,
                                                .bytes_per_ms = a->bytes_per_ms,
                                                .latency_ms = a->latency_ms,
                                                .most_stages = most_stages};
  enum sl_status status = sl__stage_partitioner_plan(&planner, &a->plan);
  if (status == SL_NO_MEMORY && a->plan.too_large >= 0) {
    char why[400];
    snprintf(why, sizeof why, "%s", sl_error());
    return sl__fail(SL_NO_MEMORY, "layer %s: %s", a->c.model->layers[a->plan.too_large].name, why);
  }
  return status;
}

/* ---- what to expect ---- */

static int last_of(const struct automatic *a, int stage) {
  return stage + 1 < a->plan.stages ? a->plan.first[stage + 1] : a->c.model->count;
}

static double cut_ms(const struct automatic *a, int stage) {
  int link = a->plan.device_class[stage - 1] * a->class_count + a->plan.device_class[stage];
  double ways = 2.0 * a->c.microbatches * a->chunks;
  return (a->cut_bytes[a->plan.first[stage]] / a->bytes_per_ms[link] + a->latency_ms[link]) / ways;
}

/* The layers' times on the devices that they got, of one chunk. */
static enum sl_status predict(struct automatic *a) {
  size_t layers = (size_t)a->c.model->count;
  double *times = sl__alloc(4 * layers, sizeof *times, "a prediction");
  int *stage = sl__alloc(layers, sizeof *stage, "a prediction");
  a->stage_cut_ms = sl__alloc((size_t)a->plan.stages, sizeof *a->stage_cut_ms, "a prediction");
  enum sl_status status = times && stage && a->stage_cut_ms ? SL_OK : SL_NO_MEMORY;
  for (int s = 0; s < a->plan.stages && status == SL_OK; s++) {
    const struct sl__costs *costs = &a->classes[a->plan.device_class[s]].costs;
    if (s) a->stage_cut_ms[s] = cut_ms(a, s);
    for (int i = a->plan.first[s]; i < last_of(a, s); i++) {
      stage[i] = s;
      times[i] = costs->forward[i] / a->chunks;
      times[layers + (size_t)i] = costs->backward_data[i] / a->chunks;
      times[2 * layers + (size_t)i] = costs->backward_weight[i] / a->chunks;
      times[3 * layers + (size_t)i] = costs->update[i];
    }
  }
  const struct sl__step_model pipeline = {.layers = a->c.model->count,
                                          .stages = a->plan.stages,
                                          .microbatches = a->c.microbatches,
                                          .chunks = a->chunks,
                                          .in_flight = a->in_flight,
                                          .stage = stage,
                                          .forward = times,
                                          .backward_data = times + layers,
                                          .backward_weight = times + 2 * layers,
                                          .update = times + 3 * layers,
                                          .cut_ms = a->stage_cut_ms,
                                          .barrier = a->c.optimizer->clip > 0};
  if (status == SL_OK) status = sl__simulate_step_period(&pipeline, &a->step_ms);
  free(times);
  free(stage);
  return status;
}

/* ---- the plan as text ---- */

/* Stage s has the next ones of its class, one a replica. */
static void print_devices(FILE *out, const struct automatic *a, int stage) {
  const struct class *class = &a->classes[a->plan.device_class[stage]];
  int set = 0;
  for (int s = 0; s < stage; s++) set += a->plan.device_class[s] == a->plan.device_class[stage];
  for (int r = 0; r < a->c.replicas; r++)
    fprintf(out, "%s%s", r ? "," : "", class->devices[set * a->c.replicas + r].name);
}

static void print_rules(FILE *out, const struct automatic *a) {
  for (int s = 0; s < a->plan.stages; s++) {
    if (s) fputc(';', out);
    sl__print_layers(out, a->c.model, a->plan.first[s], last_of(a, s));
    fputc('=', out);
    print_devices(out, a, s);
  }
}

static void print_table(FILE *out, const struct automatic *a) {
  int estimated = 0;
  fprintf(out, "stage     ms/step        MB  devices: layers\n");
  for (int s = 0; s < a->plan.stages; s++) {
    fprintf(out, "%5d  %10.2f  %8.1f  ", s, a->plan.stage_ms[s], 1e-6 * a->plan.stage_bytes[s]);
    print_devices(out, a, s);
    fprintf(out, ": ");
    sl__print_layers(out, a->c.model, a->plan.first[s], last_of(a, s));
    fputc('\n', out);
    estimated += a->classes[a->plan.device_class[s]].costs.estimated;
  }
  fprintf(out, "a step of %lld: %.2f ms predicted, %.2f ms of it the slowest stage's work",
          (long long)a->batch, a->step_ms, a->plan.slowest_ms);
  if (estimated) fprintf(out, "; guessed from flops and bandwidth, not measured");
  fputc('\n', out);
}

static enum sl_status text_of(const struct automatic *a,
                              void (*print)(FILE *, const struct automatic *), char **text) {
  struct sl__text lines;
  FILE *out = sl__text_begin(&lines);
  if (out) print(out, a);
  return sl__text_end(&lines, "a placement's text", text);
}

/* ---- all of it ---- */

/* What the trainer would refuse, with its own words. */
static enum sl_status check(const struct sl_model *model, const struct sl_trainer_options *o,
                            int64_t batch) {
  struct sl__grid grid = {0};
  const struct sl_trainer_options plain = {.replicas = o->replicas ? o->replicas : 1,
                                           .microbatches = o->microbatches,
                                           .chunk = o->chunk,
                                           .math = o->math};
  if (o->split && strcmp(o->split, "even") != 0)
    return sl__fail(SL_BAD_ARGUMENT,
                    "split '%s': an automatic placement takes devices that are alike for the "
                    "replicas; leave the split out",
                    o->split);
  enum sl_status status = sl__trainer_check(o);
  if (status == SL_OK) status = sl__grid_new(model, &plain, &grid);
  if (status == SL_OK) status = sl__grid_check_batch(&grid, batch);
  sl__grid_clear(&grid);
  return status;
}

static enum sl_status fill_case(struct automatic *a, struct sl_model *model,
                                const struct sl_optimizer *optimizer,
                                const struct sl_trainer_options *o) {
  a->c = (struct sl__cost_case){.model = model,
                                .optimizer = optimizer,
                                .kvstore = o->kvstore,
                                .big_shard = o->big_shard ? o->big_shard : 250000,
                                .chunk = o->chunk,
                                .math = o->math,
                                .replicas = o->replicas ? o->replicas : 1,
                                .microbatches = o->microbatches ? o->microbatches : 1};
  int64_t slices = (int64_t)a->c.replicas * a->c.microbatches, steps = model->sample.dim[0];
  a->c.rows = (a->batch + slices - 1) / slices; /* the larger ones decide */
  a->chunks = o->chunk ? (int)((steps + o->chunk - 1) / o->chunk) : 1;
  a->in_flight = o->in_flight ? o->in_flight : 2;
  return sort_devices(a);
}

static void clear(struct automatic *a) {
  for (int k = 0; k < a->class_count; k++) {
    free(a->classes[k].devices);
    free(a->classes[k].ms);
    sl__costs_clear(&a->classes[k].costs);
  }
  free(a->bytes);
  free(a->cut_bytes);
  free(a->stage_cut_ms);
  sl__stage_partition_clear(&a->plan);
}

enum sl_status sl_place_auto(struct sl_model *model, const struct sl_optimizer *optimizer,
                             const struct sl_trainer_options *options, int64_t batch,
                             double *step_ms, char **table) {
  SL__NEEDS(model, optimizer);
  static const struct sl_trainer_options defaults;
  struct automatic a = {.batch = batch};
  struct sl_optimizer checked = *optimizer;
  char *rules = NULL, *text = NULL;
  enum sl_status status;
  if (!options) options = &defaults;
  SL__TRY(sl_model_build(model));
  SL__TRY(sl_optimizer_check(&checked));
  SL__TRY(check(model, options, batch));
  SL__TRY(fill_case(&a, model, &checked, options));
  SL__TRY(gather(&a));
  SL__TRY(plan_stages(&a, options->stages));
  SL__TRY(predict(&a));
  SL__TRY(text_of(&a, print_rules, &rules));
  SL__TRY(text_of(&a, print_table, &text));
  SL__TRY(sl_place(model, rules));
  if (step_ms) *step_ms = a.step_ms;
  if (table) {
    *table = text;
    text = NULL;
  }
out:
  free(rules);
  free(text);
  clear(&a);
  return status;
}
