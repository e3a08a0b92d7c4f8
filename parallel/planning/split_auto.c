/* How many rows each device gets, by measurement: a split in proportion to the devices' speed, or
 * more slices than devices, which StarPU's scheduler hands out; whichever makes the quicker steps.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/median.h"
#include "core/base/text.h"
#include "nn/layer_names.h"
#include "parallel/planning/cost.h"
#include "parallel/step/split.h"
#include "parallel/train/trainer.h"

enum { MOST_CLASSES = 8, MOST_SLICES = 64 };

struct study {
  struct sl__cost_case c;
  struct sl__grid grid; /* even, as the options have it */
  int64_t batch;
  struct sl__device *device; /* [replicas] the worker that stands for each one's */
  int *of, *sharing;         /* [replicas] see sl__split_choose */
  struct sl__device class_device[MOST_CLASSES];
  int classes;
  int64_t *rows;                        /* [replicas] of the uneven split */
  double *ms;                           /* [replicas] as expected */
  double even_ms, uneven_ms, slices_ms; /* measured; INFINITY: not possible, or no room for it */
  bool guessed;                         /* rows: some times are estimates, not measurements */
  int slices;                           /* of the scheduler's way */
  uint32_t anywhere;                    /* kinds of devices that it would have */
};

/* ---- the devices ---- */

/* A kind's name ("cpu") stands for all its workers: one of them is measured. */
static enum sl_status find_device(const struct sl__device *named, struct sl__device *device) {
  *device = *named;
  for (int w = 0; !device->place.worker && w < (int)starpu_worker_get_count(); w++)
    if (named->place.where && sl__place_has(&named->place, w)) sl__device_of_worker(w, device);
  if (device->place.worker) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT,
                  "split auto: '%s' is no device with a speed of its own; name the devices "
                  "(cuda:0,cpu)",
                  named->name);
}

/* Which class it is of; a new one where there is none yet. */
static enum sl_status classify(struct study *s, int r) {
  char kind[64], other[64];
  sl__device_kind(&s->device[r], kind, sizeof kind);
  for (int k = 0; k < s->classes; k++) {
    sl__device_kind(&s->class_device[k], other, sizeof other);
    s->of[r] = k;
    if (!strcmp(kind, other)) return SL_OK;
  }
  if (s->classes == MOST_CLASSES)
    return sl__fail(SL_BAD_ARGUMENT, "split auto: more than %d kinds of devices", MOST_CLASSES);
  s->of[r] = s->classes;
  s->class_device[s->classes++] = s->device[r];
  return SL_OK;
}

/* Replicas with the same name take turns on its workers. */
static int sharing_of(const struct study *s, int r) {
  const struct sl__device *own = &s->grid.devices[r];
  int replicas = 0, workers = 0;
  for (int k = 0; k < s->grid.replicas; k++)
    replicas += !strcmp(s->grid.devices[k].name, own->name);
  for (int w = 0; w < (int)starpu_worker_get_count(); w++) workers += sl__place_has(&own->place, w);
  return workers ? (replicas + workers - 1) / workers : 1;
}

static enum sl_status study_devices(struct study *s) {
  enum sl_status status = SL_NO_MEMORY;
  size_t replicas = (size_t)s->grid.replicas;
  s->device = sl__alloc(replicas, sizeof *s->device, "a split");
  s->of = sl__alloc(replicas, sizeof *s->of, "a split");
  s->sharing = sl__alloc(replicas, sizeof *s->sharing, "a split");
  s->rows = sl__alloc(replicas, sizeof *s->rows, "a split");
  s->ms = sl__alloc(replicas, sizeof *s->ms, "a split");
  if (!s->device || !s->of || !s->sharing || !s->rows || !s->ms) goto out;
  for (int r = 0; r < s->grid.replicas; r++) {
    SL__TRY(find_device(&s->grid.devices[r], &s->device[r]));
    SL__TRY(classify(s, r));
    s->sharing[r] = sharing_of(s, r);
  }
  status = SL_OK;
out:
  return status;
}

/* Where the limit of main memory has no room for such steps, *ms stays INFINITY. */
static enum sl_status time_step(const struct sl__cost_case *c, const struct sl__grid *grid,
                                int64_t batch, double *ms) {
  double tries[SL__COST_TRIES];
  enum sl_status status = sl__cost_steps(c, grid, batch, tries);
  if (sl__cost_ran_out(c->model->context, status)) return SL_OK;
  if (status == SL_OK) *ms = sl__median(SL__COST_TRIES, tries);
  return status;
}

/* ---- the uneven split ---- */

/* A step of one replica but its updates; all replicas of the class at once, as in training. */
static enum sl_status measure(void *user, int k, int64_t rows, double *ms) {
  struct study *s = user;
  struct sl__device devices[8];
  struct sl__costs costs;
  int count = 0;
  for (int r = 0; r < s->grid.replicas && count < 8; r++) {
    bool again = false;
    for (int d = 0; d < count; d++) again |= devices[d].place.worker == s->device[r].place.worker;
    if (s->of[r] == k && !again) devices[count++] = s->device[r];
  }
  int microbatches = s->grid.microbatches;
  s->c.rows = (rows + microbatches - 1) / microbatches;
  enum sl_status status = sl__cost_measure(&s->c, devices, count, &costs);
  if (status != SL_OK) return status;
  bool impossible = costs.impossible;
  s->guessed |= costs.estimated > 0;
  *ms = 0;
  for (int i = 0; i < s->c.model->count && !impossible; i++)
    *ms += microbatches * (costs.forward[i] + costs.backward_data[i] + costs.backward_weight[i]);
  sl__costs_clear(&costs);
  if (!impossible) return SL_OK;
  return sl__fail(SL_NO_DEVICE, "split auto: %s has not all operations of the model; leave it out",
                  devices[0].name);
}

static enum sl_status measure_uneven(struct study *s) {
  enum sl_status status = SL_NO_MEMORY;
  struct sl__grid grid = s->grid;
  int replicas = grid.replicas;
  SL__TRY(sl__split_choose(replicas, s->of, s->sharing, s->classes, s->batch, grid.microbatches,
                           measure, s, s->rows, s->ms));
  grid.proportion = sl__alloc((size_t)replicas, sizeof *grid.proportion, "a split");
  if (!grid.proportion) return SL_NO_MEMORY;
  for (int r = 0; r < replicas; r++) grid.proportion[r] = (double)s->rows[r];
  status = time_step(&s->c, &grid, s->batch, &s->uneven_ms);
  free(grid.proportion);
out:
  return status;
}

/* ---- more slices than devices ---- */

/* Where StarPU's scheduler may put such slices: of GPUs alone, too, the CPU is not left out. */
static struct sl__place anywhere(const struct study *s) {
  return (struct sl__place){.where = s->anywhere == STARPU_CPU ? STARPU_CPU : 0};
}

/* Only where the list has all workers that they may go to. */
static bool may_go_anywhere(struct study *s) {
  s->anywhere = 0;
  for (int r = 0; r < s->grid.replicas; r++) s->anywhere |= s->device[r].place.where;
  const struct sl__place place = anywhere(s);
  for (int w = 0; w < (int)starpu_worker_get_count(); w++) {
    bool listed = false;
    for (int r = 0; r < s->grid.replicas; r++)
      listed |= sl__place_has(&s->grid.devices[r].place, w);
    if (sl__place_has(&place, w) && !listed) return false;
  }
  return true;
}

/* The name of what has all workers of the device list: as a placement would say it. */
static const char *anywhere_name(const struct study *s) {
  return s->anywhere == STARPU_CPU ? "cpu" : "any";
}

/* One for the slowest device, and as many more as the others are faster. */
static int slices_of(const struct study *s) {
  double slowest = 0, all = 0;
  for (int r = 0; r < s->grid.replicas; r++) {
    double each = s->ms[r] / (double)s->rows[r];
    slowest = fmax(slowest, each);
    all += 1 / each;
  }
  double most = fmin(MOST_SLICES, (double)(s->batch / s->grid.microbatches));
  return (int)fmin(most, fmax(s->grid.replicas + 1, round(all * slowest)));
}

static enum sl_status measure_slices(struct study *s) {
  enum sl_status status = SL_NO_MEMORY;
  struct sl__grid grid = s->grid;
  if (!may_go_anywhere(s)) return SL_OK;
  s->slices = slices_of(s);
  if (s->slices <= s->grid.replicas) return SL_OK;
  grid.replicas = s->slices;
  grid.devices = sl__alloc((size_t)grid.replicas, sizeof *grid.devices, "a split");
  if (!grid.devices) return status;
  for (int r = 0; r < grid.replicas; r++) {
    grid.devices[r] = (struct sl__device){.node = STARPU_MAIN_RAM};
    grid.devices[r].place = anywhere(s);
  }
  struct sl__cost_case c = s->c;
  c.replicas = grid.replicas;
  status = time_step(&c, &grid, s->batch, &s->slices_ms);
  free(grid.devices);
  return status;
}

/* ---- the choice ---- */

enum way { EVEN, UNEVEN, SLICES };

static enum way quickest(const struct study *s) {
  if (s->slices_ms < s->uneven_ms && s->slices_ms < s->even_ms) return SLICES;
  return s->uneven_ms < s->even_ms ? UNEVEN : EVEN;
}

static void print_rows(FILE *out, const struct study *s) {
  for (int r = 0; r < s->grid.replicas; r++)
    fprintf(out, "%s%lld", r ? "," : "", (long long)s->rows[r]);
}

static void print_slices(FILE *out, const struct study *s) {
  sl__print_layers(out, s->c.model, 0, s->c.model->count);
  fprintf(out, "=%s", anywhere_name(s));
}

static void print_step(FILE *out, double ms, const char *how) {
  if (isfinite(ms))
    fprintf(out, "%.2f ms %s", ms, how);
  else
    fprintf(out, "no room for a measurement %s", how);
}

static void print_table(FILE *out, const struct study *s) {
  if (s->classes == 1) {
    fprintf(out, "split auto: the devices are alike, all get the same (split even)\n");
    return;
  }
  for (int r = 0; r < s->grid.replicas; r++)
    fprintf(out, "%s%s %lld rows in %.2f ms", r ? ", " : "split auto: ", s->grid.devices[r].name,
            (long long)s->rows[r], s->ms[r]);
  if (s->guessed) fprintf(out, " (guessed from flops and bandwidth, not measured)");
  fprintf(out, "\na step of %lld: ", (long long)s->batch);
  print_step(out, s->uneven_ms, "with these rows");
  fprintf(out, ", ");
  print_step(out, s->even_ms, "with even ones");
  if (s->slices) {
    char how[64];
    snprintf(how, sizeof how, "as %d slices that go anywhere", s->slices);
    fprintf(out, ", ");
    print_step(out, s->slices_ms, how);
  }
  fprintf(out, "\ntaken, and the same by hand: ");
  switch (quickest(s)) {
    case EVEN: fprintf(out, "split even"); break;
    case UNEVEN:
      fprintf(out, "split ");
      print_rows(out, s);
      break;
    case SLICES:
      fprintf(out, "replicas %d, placement '", s->slices);
      print_slices(out, s);
      fputc('\'', out);
  }
  fputc('\n', out);
}

static enum sl_status text_of(const struct study *s, void (*print)(FILE *, const struct study *),
                              char **text) {
  struct sl__text lines;
  FILE *out = sl__text_begin(&lines);
  if (out) print(out, s);
  return sl__text_end(&lines, "a split's text", text);
}

/* Into what the trainer will get. */
static enum sl_status apply(const struct study *s, struct sl_trainer_options *options,
                            char **split) {
  enum sl_status status = SL_OK;
  char *rules = NULL;
  enum way way = s->classes > 1 ? quickest(s) : EVEN;
  options->split = NULL;
  options->replicas = way == SLICES ? s->slices : s->grid.replicas;
  if (way == UNEVEN) {
    status = text_of(s, print_rows, split);
    options->split = *split;
  } else if (way == SLICES) {
    status = text_of(s, print_slices, &rules);
    if (status == SL_OK) status = sl_place(s->c.model, rules);
    free(rules);
  }
  return status;
}

static enum sl_status open_study(struct study *s, struct sl_model *model,
                                 const struct sl_trainer_options *o) {
  struct sl_trainer_options even = *o;
  enum sl_status status;
  even.split = NULL;
  if (model->placement || o->stages)
    return sl__fail(SL_BAD_ARGUMENT,
                    "split auto: a placement or stages say where layers run; give weights "
                    "(4,1), or leave the placement out");
  SL__TRY(sl__trainer_check(o));
  SL__TRY(sl__grid_new(model, &even, &s->grid));
  int64_t most = s->batch / s->grid.microbatches;
  if (!o->replicas && most > 0 && most < s->grid.replicas) { /* fewer than devices */
    sl__grid_clear(&s->grid);
    even.replicas = (int)most;
    SL__TRY(sl__grid_new(model, &even, &s->grid));
  }
  SL__TRY(sl__grid_check_batch(&s->grid, s->batch));
  s->c.replicas = s->grid.replicas;
  s->c.microbatches = s->grid.microbatches;
  status = study_devices(s);
out:
  return status;
}

static void close_study(struct study *s) {
  sl__grid_clear(&s->grid);
  free(s->device);
  free(s->of);
  free(s->sharing);
  free(s->rows);
  free(s->ms);
}

enum sl_status sl_split_auto(struct sl_model *model, const struct sl_optimizer *optimizer,
                             struct sl_trainer_options *options, int64_t batch, char **split,
                             char **table) {
  SL__NEEDS(model, optimizer, options, split);
  struct sl_optimizer checked = *optimizer;
  struct study s = {.c = {.model = model,
                          .optimizer = &checked,
                          .loss = options->loss,
                          .kvstore = sl_kvstore_choose(model->context, options->kvstore),
                          .big_shard = options->big_shard ? options->big_shard : 250000,
                          .math = options->math,
                          .chunk = options->chunk,
                          .eager = options->eager},
                    .batch = batch,
                    .even_ms = INFINITY,
                    .uneven_ms = INFINITY,
                    .slices_ms = INFINITY};
  enum sl_status status;
  char *text = NULL;
  *split = NULL;
  SL__TRY(sl_model_build(model));
  SL__TRY(sl_optimizer_check(&checked));
  SL__TRY(open_study(&s, model, options));
  if (s.classes > 1) {
    SL__TRY(measure_uneven(&s));
    SL__TRY(time_step(&s.c, &s.grid, batch, &s.even_ms));
    SL__TRY(measure_slices(&s));
  }
  SL__TRY(text_of(&s, print_table, &text));
  SL__TRY(apply(&s, options, split));
  if (table) {
    *table = text;
    text = NULL;
  }
out:
  if (status != SL_OK) {
    free(*split);
    *split = NULL;
  }
  free(text);
  close_study(&s);
  return status;
}
