#include "parallel/planning/stage_plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "nn/layer_names.h"
#include "parallel/planning/step_simulator.h"
#include "parallel/step/precision.h"

/* ---- devices into classes ---- */

static enum sl_status add_device(struct sl__device_classes *classes, int most,
                                 const struct sl__device *device) {
  char kind[64];
  int k = 0;
  sl__device_kind(device, kind, sizeof kind);
  while (k < classes->count && strcmp(classes->of[k].kind, kind)) k++;
  if (k == SL__MOST_CLASSES)
    return sl__fail(SL_BAD_ARGUMENT, "more than %d kinds of devices; name fewer devices",
                    SL__MOST_CLASSES);
  struct sl__device_class *class = &classes->of[k];
  if (k == classes->count) {
    classes->count++;
    snprintf(class->kind, sizeof class->kind, "%s", kind);
    class->devices = sl__alloc((size_t)most, sizeof *class->devices, "devices");
    if (!class->devices) return SL_NO_MEMORY;
  }
  class->devices[class->count++] = *device;
  return SL_OK;
}

enum sl_status sl__device_classes_new(const struct sl_context *context,
                                      struct sl__device_classes *classes) {
  enum sl_status status;
  struct sl__device *devices = NULL;
  int count;
  *classes = (struct sl__device_classes){.count = 0};
  SL__TRY(sl__grid_workers(context, &devices, &count));
  for (int d = 0; d < count; d++) {
    bool again = false; /* a device may be in the list twice */
    for (int e = 0; e < d; e++) again |= devices[e].place.worker == devices[d].place.worker;
    if (!again) SL__TRY(add_device(classes, count, &devices[d]));
  }
out:
  free(devices);
  return status;
}

int sl__device_classes_largest(const struct sl__device_classes *classes) {
  int most = 0;
  for (int k = 0; k < classes->count; k++)
    if (classes->of[k].count > most) most = classes->of[k].count;
  return most;
}

void sl__device_classes_clear(struct sl__device_classes *classes) {
  for (int k = 0; k < classes->count; k++) free(classes->of[k].devices);
  *classes = (struct sl__device_classes){.count = 0};
}

/* ---- what the planner wants to know ---- */

static double output_bytes(const struct sl__stage_plan *p, int layer) {
  double value = (double)sl__type_size(sl__value_type(p->c.math));
  return value * (double)(p->c.rows * sl_shape_count(&p->c.model->layers[layer].out));
}

/* What crosses before layer i, one way, of one microbatch: each output that is read behind the cut,
 * and for a shared weight its share. */
static double crossing(const struct sl__stage_plan *p, int i) {
  const struct sl_model *model = p->c.model;
  double bytes = 0;
  for (int from = 0; from < i; from++) {
    bool read = false;
    for (int to = i; to < model->count; to++) {
      const struct sl__layer *layer = &model->layers[to];
      for (int k = 0; k < layer->input_count; k++) read |= layer->input[k] == from;
      if (layer->tied_to == from) /* there the weight, back its gradient, which is f32 */
        bytes += (p->c.math == SL_MATH_BF16 ? 3.0 : 4.0) *
                 (double)model->layers[from].params.total / p->c.microbatches;
    }
    if (read) bytes += output_bytes(p, from);
  }
  return bytes;
}

static enum sl_status measure_class(struct sl__stage_plan *p, int k) {
  const struct sl__device_class *class = &p->classes->of[k];
  struct sl__class_costs *own = &p->of[k];
  const struct sl__costs *costs = &own->costs;
  enum sl_status status =
      sl__cost_measure(&p->c, class->devices, class->count < 8 ? class->count : 8, &own->costs);
  if (status != SL_OK) return status;
  own->sets = class->count / p->c.replicas; /* a stage takes as many as there are replicas */
  own->ms = sl__alloc((size_t)p->c.model->count, sizeof *own->ms, "costs");
  if (!own->ms) return SL_NO_MEMORY;
  for (int i = 0; i < p->c.model->count; i++)
    own->ms[i] = costs->update[i] +
                 p->c.microbatches *
                     (costs->forward[i] + costs->backward_data[i] + costs->backward_weight[i]);
  return SL_OK;
}

static bool are_in_main_memory(const struct sl__device_classes *classes) {
  for (int k = 0; k < classes->count; k++)
    for (int d = 0; d < classes->of[k].count; d++)
      if (classes->of[k].devices[d].node != STARPU_MAIN_RAM) return false;
  return true;
}

/* CPU workers share one memory. */
static double memory_of(const struct sl__device_class *class) {
  double bytes = sl__device_memory(&class->devices[0]);
  return class->devices[0].node == STARPU_MAIN_RAM ? bytes / class->count : bytes;
}

static void measure_links(struct sl__stage_plan *p) {
  int count = p->classes->count;
  for (int from = 0; from < count; from++)
    for (int to = 0; to < count; to++) {
      const struct sl__device_class *f = &p->classes->of[from], *t = &p->classes->of[to];
      unsigned source = f->devices[0].node;
      unsigned target = t->devices[from == to && t->count > 1 ? 1 : 0].node;
      bool apart = source != target;
      double rate = apart ? starpu_transfer_bandwidth(source, target) : 0; /* MB/s, NaN: unknown */
      double us = apart ? starpu_transfer_latency(source, target) : 0;
      p->bytes_per_ms[from * count + to] = rate > 0 ? 1e3 * rate : INFINITY;
      p->latency_ms[from * count + to] = us > 0 ? 2e-3 * us * p->c.microbatches * p->chunks : 0;
    }
}

static enum sl_status gather(struct sl__stage_plan *p) {
  int layers = p->c.model->count;
  bool some = false, shared = are_in_main_memory(p->classes);
  enum sl_status status = SL_NO_MEMORY;
  p->bytes = sl__alloc((size_t)layers, sizeof *p->bytes, "costs");
  p->cut_bytes = sl__alloc((size_t)layers, sizeof *p->cut_bytes, "costs");
  if (!p->bytes || !p->cut_bytes) goto out;
  for (int i = 0; i < layers; i++) {
    p->bytes[i] = sl__cost_bytes(&p->c, i, p->c.microbatches);
    p->cut_bytes[i] = 2 * p->c.microbatches * crossing(p, i);
  }
  for (int k = 0; k < p->classes->count; k++) {
    SL__TRY(measure_class(p, k));
    bool possible = !p->of[k].costs.impossible;
    some |= possible && p->of[k].sets;
    p->planner_classes[k] = (struct sl__stage_partitioner_device_class){
        .ms = p->of[k].ms,
        .memory = shared ? INFINITY : memory_of(&p->classes->of[k]),
        .count = possible ? p->of[k].sets : 0};
  }
  measure_links(p);
  status = some ? SL_OK
                : sl__fail(SL_NO_DEVICE,
                           "none of the devices has all operations of the model; name "
                           "other devices");
out:
  return status;
}

/* Where all stages are in main memory, they fit together or not, however the model is cut. */
static bool fits_main_memory(struct sl__stage_plan *p) {
  if (!are_in_main_memory(p->classes)) return true;
  double has = sl__device_memory(&p->classes->of[0].devices[0]);
  double need = sl__cost_main_memory(&p->c, p->c.microbatches, p->c.replicas);
  if (need <= has) return true;
  int digits = sl__megabyte_digits(need, has);
  sl__fail(SL_NO_MEMORY,
           "the model needs %.*f MB of main memory for %d replica%s, but it has %.*f MB; take a "
           "smaller batch, more microbatches or fewer replicas, or name a swap folder",
           digits, need / 1e6, p->c.replicas, p->c.replicas == 1 ? "" : "s", digits, has / 1e6);
  p->partition = (struct sl__stage_partition){.nothing_fits = true, .too_large = -1};
  return false;
}

static enum sl_status cut(struct sl__stage_plan *p, int most_stages) {
  const struct sl__stage_partitioner planner = {.layers = p->c.model->count,
                                                .class_count = p->classes->count,
                                                .classes = p->planner_classes,
                                                .bytes = p->bytes,
                                                .cut_bytes = p->cut_bytes,
                                                .bytes_per_ms = p->bytes_per_ms,
                                                .latency_ms = p->latency_ms,
                                                .most_stages = most_stages};
  if (!fits_main_memory(p)) return SL_OK;
  enum sl_status status = sl__stage_partitioner_plan(&planner, &p->partition);
  if (status == SL_OK || !p->partition.nothing_fits) return status;
  if (p->partition.too_large >= 0) {
    char why[400];
    snprintf(why, sizeof why, "%s", sl_error());
    sl__fail(SL_NO_MEMORY, "layer %s: %s", p->c.model->layers[p->partition.too_large].name, why);
  }
  return SL_OK;
}

/* ---- what to expect ---- */

static int last_of(const struct sl__stage_plan *p, int stage) {
  return stage + 1 < p->partition.stages ? p->partition.first[stage + 1] : p->c.model->count;
}

static double way_ms(const struct sl__stage_plan *p, int stage) {
  int link =
      p->partition.device_class[stage - 1] * p->classes->count + p->partition.device_class[stage];
  double ways = 2.0 * p->c.microbatches * p->chunks;
  return (p->cut_bytes[p->partition.first[stage]] / p->bytes_per_ms[link] + p->latency_ms[link]) /
         ways;
}

/* The layers' times on the devices that they got, of one chunk. */
static enum sl_status predict(struct sl__stage_plan *p) {
  size_t layers = (size_t)p->c.model->count;
  double *times = sl__alloc(4 * layers, sizeof *times, "a prediction");
  int *stage = sl__alloc(layers, sizeof *stage, "a prediction");
  p->cut_ms = sl__alloc((size_t)p->partition.stages, sizeof *p->cut_ms, "a prediction");
  enum sl_status status = times && stage && p->cut_ms ? SL_OK : SL_NO_MEMORY;
  for (int s = 0; s < p->partition.stages && status == SL_OK; s++) {
    const struct sl__costs *costs = &p->of[p->partition.device_class[s]].costs;
    if (s) p->cut_ms[s] = way_ms(p, s);
    for (int i = p->partition.first[s]; i < last_of(p, s); i++) {
      stage[i] = s;
      times[i] = costs->forward[i] / p->chunks;
      times[layers + (size_t)i] = costs->backward_data[i] / p->chunks;
      times[2 * layers + (size_t)i] = costs->backward_weight[i] / p->chunks;
      times[3 * layers + (size_t)i] = costs->update[i];
    }
  }
  const struct sl__step_model pipeline = {.layers = p->c.model->count,
                                          .stages = p->partition.stages,
                                          .microbatches = p->c.microbatches,
                                          .chunks = p->chunks,
                                          .in_flight = p->in_flight,
                                          .stage = stage,
                                          .forward = times,
                                          .backward_data = times + layers,
                                          .backward_weight = times + 2 * layers,
                                          .update = times + 3 * layers,
                                          .cut_ms = p->cut_ms,
                                          .barrier = p->c.optimizer->clip > 0};
  if (status == SL_OK) status = sl__simulate_step_period(&pipeline, &p->step_ms);
  free(times);
  free(stage);
  return status;
}

/* ---- the plan as text ---- */

/* Stage s has the next ones of its class, one a replica. */
static void print_devices(FILE *out, const struct sl__stage_plan *p, int stage) {
  const struct sl__device_class *class = &p->classes->of[p->partition.device_class[stage]];
  int set = 0;
  for (int s = 0; s < stage; s++)
    set += p->partition.device_class[s] == p->partition.device_class[stage];
  for (int r = 0; r < p->c.replicas; r++)
    fprintf(out, "%s%s", r ? "," : "", class->devices[set * p->c.replicas + r].name);
}

static void print_rules(FILE *out, const struct sl__stage_plan *p) {
  for (int s = 0; s < p->partition.stages; s++) {
    if (s) fputc(';', out);
    sl__print_layers(out, p->c.model, p->partition.first[s], last_of(p, s));
    fputc('=', out);
    print_devices(out, p, s);
  }
}

void sl__stage_plan_print(FILE *out, const struct sl__stage_plan *p) {
  fprintf(out, "stage     ms/step        MB  devices: layers\n");
  for (int s = 0; s < p->partition.stages; s++) {
    fprintf(out, "%5d  %10.2f  %8.1f  ", s, p->partition.stage_ms[s],
            1e-6 * p->partition.stage_bytes[s]);
    print_devices(out, p, s);
    fprintf(out, ": ");
    sl__print_layers(out, p->c.model, p->partition.first[s], last_of(p, s));
    fputc('\n', out);
  }
}

bool sl__stage_plan_is_guessed(const struct sl__stage_plan *p) {
  int estimated = 0;
  for (int s = 0; s < p->partition.stages; s++)
    estimated += p->of[p->partition.device_class[s]].costs.estimated;
  return estimated > 0;
}

enum sl_status sl__stage_plan_rules(const struct sl__stage_plan *p, char **rules) {
  struct sl__text lines;
  FILE *out = sl__text_begin(&lines);
  if (out) print_rules(out, p);
  return sl__text_end(&lines, "a placement's text", rules);
}

/* ---- all of it ---- */

enum sl_status sl__stage_plan_new(const struct sl__cost_case *c, int64_t batch, int in_flight,
                                  int most_stages, const struct sl__device_classes *classes,
                                  struct sl__stage_plan *p) {
  int64_t slices = (int64_t)c->replicas * c->microbatches, steps = c->model->sample.dim[0];
  enum sl_status status;
  *p = (struct sl__stage_plan){.c = *c,
                               .batch = batch,
                               .classes = classes,
                               .chunks = c->chunk ? (int)((steps + c->chunk - 1) / c->chunk) : 1,
                               .in_flight = in_flight};
  p->c.rows = (batch + slices - 1) / slices; /* the larger ones decide */
  SL__TRY(gather(p));
  SL__TRY(cut(p, most_stages));
  if (!p->partition.nothing_fits) SL__TRY(predict(p));
out:
  if (status != SL_OK) sl__stage_plan_clear(p);
  return status;
}

void sl__stage_plan_clear(struct sl__stage_plan *p) {
  for (int k = 0; k < SL__MOST_CLASSES; k++) {
    free(p->of[k].ms);
    sl__costs_clear(&p->of[k].costs);
  }
  free(p->bytes);
  free(p->cut_bytes);
  free(p->cut_ms);
  sl__stage_partition_clear(&p->partition);
  *p = (struct sl__stage_plan){.batch = 0};
}
