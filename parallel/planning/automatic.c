/* Placement by measurement: StarPU's free choice of the devices, and the best stages for each
 * number of replicas. The cost model says which stages are worth a try; whole steps of these and of
 * the free choice are timed, and the quickest is taken. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cpu_time.h"
#include "core/base/median.h"
#include "core/base/text.h"
#include "parallel/planning/stage_plan.h"
#include "parallel/train/trainer.h"

enum {
  MOST_PLANS = 16,
  TIMED_PLANS = 2, /* those that are predicted to be the quickest */
  ROUNDS = 3,
  MOST_SAMPLES = ROUNDS * SL__COST_TRIES,
  MOST_SECONDS = 4 /* of rounds: another one is not begun after it */
};

/* Measured beside other programs: they had this share of the processors, or half of the steps took
 * longer than the quickest by this factor. */
static const double foreign_share = 0.05, noise = 1.15;

struct candidate {
  struct sl__stage_plan plan; /* not of the free choice */
  char *rules;                /* NULL: the free choice */
  int replicas;
  bool possible; /* of the free choice: a trainer would take it, as far as is known */
  bool timed;    /* it is among those that are compared */
  bool refused;  /* main memory's limit had no room for its steps */
  int samples;
  double sample[MOST_SAMPLES], ms, least_ms, most_ms;
};

struct automatic {
  struct sl__cost_case c;
  const struct sl_trainer_options *options;
  int64_t batch;
  struct sl__device_classes classes;
  double foreign;   /* share of the processors that other programs had */
  int count, taken; /* of candidates; the first one is the free choice */
  struct candidate candidate[1 + MOST_PLANS];
};

static void unplace(struct sl_model *model) {
  free(model->placement);
  model->placement = NULL;
  model->ranks = 0;
}

/* ---- candidates ---- */

static bool trainer_takes(const struct automatic *a, const struct sl__grid *grid) {
  const struct sl__cost_case *c = &a->c;
  return sl__placement_check_memory(c->model, c->optimizer, &c->loss, grid, a->batch) == SL_OK;
}

/* The trainer's check is enough for main memory, unless it passes over some of the devices. */
static bool can_be_measured(const struct automatic *a, const struct sl__grid *grid) {
  struct sl__cost_case c = a->c;
  bool checked = true, fits = true;
  c.chunk = grid->training_chunk;
  for (int d = 0; d < grid->stages * grid->replicas; d++)
    checked &= sl__memory_is_definite(&grid->devices[d]);
  for (int k = 0; k < a->classes.count; k++) {
    const struct sl__device *device = &a->classes.of[k].devices[0];
    if (device->node != STARPU_MAIN_RAM || !checked)
      fits &= sl__cost_fits(&c, device, a->classes.of[k].count);
  }
  return fits;
}

/* What the trainer makes of its options where there is no placement. */
static enum sl_status free_choice(struct automatic *a) {
  struct sl_trainer_options o = *a->options;
  struct sl__grid grid = {0};
  struct candidate *free = &a->candidate[a->count];
  o.stages = 0;
  o.split = NULL;
  enum sl_status status = sl__grid_new(a->c.model, &o, &grid);
  free->replicas = grid.replicas;
  a->c.replicas = grid.replicas;
  bool possible = status == SL_OK && sl__grid_check_batch(&grid, a->batch) == SL_OK;
  int64_t slices = (int64_t)grid.replicas * a->c.microbatches;
  a->c.rows = slices ? (a->batch + slices - 1) / slices : 0;
  free->possible = possible && trainer_takes(a, &grid);
  free->timed = free->possible && can_be_measured(a, &grid);
  a->count++;
  sl__grid_clear(&grid);
  return status;
}

static bool are_cpus(const struct sl__device_classes *classes) {
  for (int k = 0; k < classes->count; k++)
    if (!sl__is_on_cpus(&classes->of[k].devices[0])) return false;
  return true;
}

static enum sl_status add_plan(struct automatic *a, int replicas) {
  struct candidate *k = &a->candidate[a->count];
  const struct sl_trainer_options *o = a->options;
  struct sl__cost_case c = a->c;
  c.replicas = k->replicas = replicas;
  if (!c.chunk && are_cpus(&a->classes))
    c.chunk = sl__chunk_by_default(c.model, o, (int64_t)replicas * c.microbatches);
  enum sl_status status = sl__stage_plan_new(&c, a->batch, o->in_flight ? o->in_flight : 2,
                                             o->stages, &a->classes, &k->plan);
  if (sl__cost_ran_out(c.model->context, status)) return SL_OK;
  if (status != SL_OK) return status;
  a->count++; /* from here on it is freed with the others */
  if (!k->plan.partition.nothing_fits) return sl__stage_plan_rules(&k->plan, &k->rules);
  sl__stage_plan_clear(&k->plan);
  a->count--;
  return SL_OK;
}

/* The options' replicas; or all devices of the largest class, half of them, and so on. */
static enum sl_status add_plans(struct automatic *a) {
  int most = sl__device_classes_largest(&a->classes), given = a->options->replicas;
  enum sl_status status = SL_OK;
  if (given > most)
    return sl__fail(
        SL_BAD_ARGUMENT,
        "%d replicas need as many devices of one kind for each stage, but there are %d; "
        "take fewer replicas",
        given, most);
  for (int r = given ? given : most; r >= 1; r /= 2) {
    if (a->batch < (int64_t)r * a->c.microbatches || a->count > MOST_PLANS) continue;
    status = add_plan(a, r);
    if (given) break;
    /* the largest class may lack an operation: fewer replicas fit another class */
    if (status != SL_OK && (status != SL_NO_DEVICE || r == 1)) break;
  }
  return status;
}

/* Does a class of devices lack an operation? A replica there would fail. */
static bool lacks_operations(const struct automatic *a) {
  bool lacks = false;
  for (int k = 0; k < a->classes.count && a->count > 1; k++)
    lacks |= a->candidate[1].plan.of[k].costs.impossible;
  return lacks;
}

/* Is a time on CPUs guessed? The more memory a plan needs, the less of it is measured, and a guess
 * is optimistic. (Not so of GPUs: a pipeline is worth a try where the model is larger than one.) */
static bool is_doubtful(const struct candidate *k) {
  const struct sl__stage_plan *p = &k->plan;
  bool guessed = false;
  for (int s = 0; s < p->partition.stages; s++) {
    int class = p->partition.device_class[s];
    guessed |= p->of[class].costs.estimated && sl__is_on_cpus(&p->classes->of[class].devices[0]);
  }
  return guessed;
}

static bool seems_quicker(const struct candidate *k, const struct candidate *than) {
  bool doubtful = is_doubtful(k);
  if (doubtful != is_doubtful(than)) return !doubtful;
  return k->plan.step_ms < than->plan.step_ms;
}

/* Of those that were not tried; nothing where there is none. */
static void add_quickest_plan(struct automatic *a) {
  struct candidate *best = NULL;
  for (int i = 1; i < a->count; i++) {
    struct candidate *k = &a->candidate[i];
    if (!k->timed && !k->refused && (!best || seems_quicker(k, best))) best = k;
  }
  if (best) best->timed = true;
}

static enum sl_status add_candidates(struct automatic *a) {
  enum sl_status status;
  SL__TRY(free_choice(a));
  SL__TRY(add_plans(a));
  if (lacks_operations(a)) a->candidate[0].possible = a->candidate[0].timed = false;
  for (int i = 0; i < TIMED_PLANS; i++) add_quickest_plan(a);
  /* the last plan's message says what does not fit */
  if (a->count == 1 && !a->candidate[0].timed) status = SL_NO_MEMORY;
out:
  return status;
}

/* ---- whole steps ---- */

static enum sl_status time_candidate(struct automatic *a, struct candidate *k) {
  struct sl_trainer_options o = *a->options;
  struct sl__cost_case c = a->c;
  struct sl__grid grid = {0};
  enum sl_status status = SL_OK;
  o.stages = 0;
  o.split = NULL;
  c.replicas = o.replicas = k->replicas;
  unplace(c.model);
  if (k->rules) SL__TRY(sl_place(c.model, k->rules));
  SL__TRY(sl__grid_new(c.model, &o, &grid));
  SL__TRY(sl__cost_steps(&c, &grid, a->batch, k->sample + k->samples));
  k->samples += SL__COST_TRIES;
out:
  sl__grid_clear(&grid);
  return status;
}

/* A candidate for whose steps main memory's limit has no room is none: the next plan gets its
 * place. */
static enum sl_status try_candidate(struct automatic *a, struct candidate *k) {
  enum sl_status status = time_candidate(a, k);
  if (!sl__cost_ran_out(a->c.model->context, status)) return status;
  k->possible = k->timed = false;
  k->refused = true;
  k->samples = 0;
  if (k->rules) add_quickest_plan(a);
  return SL_OK;
}

/* One that has not had all its turns, a round has one for each; NULL: there is none. */
static struct candidate *next_turn(struct automatic *a, int rounds) {
  for (int i = 0; i < a->count; i++)
    if (a->candidate[i].timed && a->candidate[i].samples < rounds * SL__COST_TRIES)
      return &a->candidate[i];
  return NULL;
}

/* The free choice may be taken unmeasured if it could not be measured, not if its step was refused:
 * it is what the trainer does without this. */
static enum sl_status check_candidates(const struct automatic *a) {
  bool some = a->candidate[0].possible;
  char why[400];
  for (int i = 1; i < a->count; i++) some |= a->candidate[i].timed;
  if (some) return SL_OK;
  snprintf(why, sizeof why, "%s", sl_error());
  return sl__fail(SL_NO_MEMORY, "measuring a placement: %s", why);
}

/* In turns, so that a noisy minute meets all of them. */
static enum sl_status time_candidates(struct automatic *a) {
  struct sl__cpu_time begin = sl__cpu_time_now();
  double start = starpu_timing_now();
  enum sl_status status = SL_OK;
  for (int round = 0; round < ROUNDS; round++) {
    if (round && starpu_timing_now() - start > 1e6 * MOST_SECONDS) break;
    for (struct candidate *k; (k = next_turn(a, round + 1));) SL__TRY(try_candidate(a, k));
  }
  SL__TRY(check_candidates(a));
  a->foreign = sl__foreign_cpu(&begin);
  for (int i = 0; i < a->count; i++) {
    struct candidate *k = &a->candidate[i];
    double sorted[MOST_SAMPLES] = {INFINITY};
    memcpy(sorted, k->sample, (size_t)k->samples * sizeof *sorted);
    k->ms = k->samples ? sl__median(k->samples, sorted) : INFINITY;
    k->least_ms = sorted[0];
    k->most_ms = k->samples ? sorted[k->samples - 1] : INFINITY;
  }
out:
  return status;
}

/* The simple way is the better one unless the quickest plan surely gains. */
static void choose(struct automatic *a) {
  const struct candidate *free = &a->candidate[0];
  int best = a->count > 1 ? 1 : 0;
  for (int i = 2; i < a->count; i++)
    if (a->candidate[i].ms < a->candidate[best].ms) best = i;
  const struct candidate *k = &a->candidate[best];
  int rounds = (int)fmin(free->samples, k->samples) / SL__COST_TRIES;
  bool gains = k->timed && sl__cost_is_less(rounds, k->sample, free->sample);
  a->taken = k->timed && (gains || !free->timed) ? best : 0;
}

/* ---- as text ---- */

static void print_candidates(FILE *out, const struct automatic *a) {
  fprintf(out, "replicas  stages  predicted ms  measured ms\n");
  for (int i = 1; i <= a->count; i++) {
    const struct candidate *k = &a->candidate[i % a->count]; /* the free choice is the last one */
    fprintf(out, "%8d  ", k->replicas);
    if (k->rules)
      fprintf(out, "%6d  %12.2f", k->plan.partition.stages, k->plan.step_ms);
    else
      fprintf(out, "%6s  %12s", "-", "-");
    if (k->timed)
      fprintf(out, "  %11.2f", k->ms);
    else
      fprintf(out, "  %11s", "-");
    fprintf(out, "%s\n", k->rules ? "" : "  no placement");
  }
}

static void print_table(FILE *out, const struct automatic *a) {
  const struct candidate *k = &a->candidate[a->taken];
  print_candidates(out, a);
  if (k->rules) sl__stage_plan_print(out, &k->plan);
  if (k->timed)
    fprintf(out, "a step of %lld: %.2f ms predicted", (long long)a->batch, k->ms);
  else
    fprintf(out, "there was no room for a measurement");
  if (k->rules)
    fprintf(out, ", %.2f ms of it the slowest stage's work%s", k->plan.partition.slowest_ms,
            sl__stage_plan_is_guessed(&k->plan) ? "; guessed from flops and bandwidth, not measured"
                                                : "");
  fprintf(out, "\ntaken (and the same by hand): replicas %d, ", k->replicas);
  if (k->rules)
    fprintf(out, "placement '%s'\n", k->rules);
  else
    fprintf(out, "no placement\n");
  if (!k->timed) return;
  if (a->foreign > foreign_share || k->ms > noise * k->least_ms)
    fprintf(out,
            "the machine is not quiet: such a step took from %.2f to %.2f ms, other programs had "
            "%.0f %% of the processors; measure again when they have ended\n",
            k->least_ms, k->most_ms, 100 * a->foreign);
}

static enum sl_status text_of(const struct automatic *a, char **text) {
  struct sl__text lines;
  FILE *out = sl__text_begin(&lines);
  if (out) print_table(out, a);
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

static void fill_case(struct automatic *a, struct sl_model *model,
                      const struct sl_optimizer *optimizer) {
  const struct sl_trainer_options *o = a->options;
  a->c = (struct sl__cost_case){.model = model,
                                .optimizer = optimizer,
                                .loss = o->loss,
                                .kvstore = sl_kvstore_choose(model->context, o->kvstore),
                                .big_shard = o->big_shard ? o->big_shard : 250000,
                                .chunk = o->chunk,
                                .math = o->math,
                                .microbatches = o->microbatches ? o->microbatches : 1,
                                .eager = o->eager};
}

static void clear(struct automatic *a) {
  for (int i = 0; i < a->count; i++) {
    sl__stage_plan_clear(&a->candidate[i].plan);
    free(a->candidate[i].rules);
  }
  sl__device_classes_clear(&a->classes);
  free(a);
}

/* Leaves the model placed as it is to be; else the caller restores it. */
static enum sl_status decide(struct automatic *a, char **text) {
  struct sl_model *model = a->c.model;
  enum sl_status status;
  SL__TRY(check(model, a->options, a->batch));
  SL__TRY(sl__device_classes_new(model->context, &a->classes));
  SL__TRY(add_candidates(a));
  SL__TRY(time_candidates(a));
  choose(a);
  SL__TRY(text_of(a, text));
  unplace(model);
  if (a->candidate[a->taken].rules) SL__TRY(sl_place(model, a->candidate[a->taken].rules));
out:
  return status;
}

enum sl_status sl_place_auto(struct sl_model *model, const struct sl_optimizer *optimizer,
                             const struct sl_trainer_options *options, int64_t batch,
                             double *step_ms, char **table) {
  SL__NEEDS(model, optimizer);
  if (sl__model_check_unused(model, "placement") != SL_OK) return SL_BAD_ARGUMENT;
  static const struct sl_trainer_options defaults;
  struct sl_optimizer checked = *optimizer;
  struct automatic *a = NULL;
  char *text = NULL, *before = model->placement;
  int ranks = model->ranks;
  enum sl_status status;
  if (!options) options = &defaults;
  SL__TRY(sl_model_build(model));
  SL__TRY(sl_optimizer_check(&checked));
  a = sl__alloc(1, sizeof *a, "an automatic placement");
  if (!a) return SL_NO_MEMORY;
  a->options = options;
  a->batch = batch;
  fill_case(a, model, &checked);
  model->placement = NULL;
  status = decide(a, &text);
  if (status == SL_OK) {
    free(before);
  } else {
    unplace(model);
    model->placement = before;
    model->ranks = ranks;
    goto out;
  }
  if (step_ms) *step_ms = a->candidate[a->taken].timed ? a->candidate[a->taken].ms : NAN;
  if (table) {
    *table = text;
    text = NULL;
  }
out:
  free(text);
  if (a) clear(a);
  return status;
}
