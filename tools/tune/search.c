/* The search: one dimension after another, each compared with the best setting so far. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/tune/tune.h"

enum { MOST_CHOICES = 16, MOST_DIMENSIONS = 12 };

struct dimension {
  const char *name;
  char *choices[MOST_CHOICES]; /* the first one is "": the command line as given */
  bool hopeless[MOST_CHOICES]; /* failed, or far behind */
  int count, current;
  int seen; /* number of changes at its last comparison; -1: never compared */
};

struct space {
  struct dimension dimensions[MOST_DIMENSIONS];
  int count;
  int changes;
};

const char *const search_variables[] = {"STARPU_NCPU",
                                        "STARPU_NCPUS",
                                        "STARPU_RESERVE_NCPU",
                                        "STARPU_NCUDA",
                                        "STARPU_WORKERS_CPUID",
                                        "STARPU_WORKERS_COREID",
                                        "STARPU_WORKERS_NOBIND",
                                        "STARPU_MAIN_THREAD_BIND",
                                        "STARPU_SCHED",
                                        "STARPU_CUDA_PIPELINE",
                                        "OMP_NUM_THREADS",
                                        "OPENBLAS_NUM_THREADS",
                                        NULL};

/* ---- dimensions ---- */

static void add_choice(struct dimension *d, const char *choice) {
  for (int i = 0; i < d->count; i++)
    if (!strcmp(d->choices[i], choice)) return;
  if (d->count < MOST_CHOICES) d->choices[d->count++] = tune_text("%s", choice);
}

static void add_number(struct dimension *d, const char *format, int number) {
  char choice[64];
  snprintf(choice, sizeof choice, format, number); /* formats are this file's, with one %d */
  add_choice(d, choice);
}

/* Adds the items of the user's list "1,2,4" instead of our own choices, each after the prefix. */
static void add_list(struct dimension *d, const char *prefix, const char *list) {
  for (const char *at = list; *at; at += strspn(at, ",")) {
    size_t length = strcspn(at, ",");
    char *choice = tune_text("%s%.*s", prefix, (int)length, at);
    if (length) add_choice(d, choice);
    free(choice);
    at += length;
  }
}

/* Returns NULL if the user has fixed the dimension by one of the names in fixed_by (separated by
 * blanks). */
static struct dimension *add_dimension(struct space *space, const struct search *search,
                                       const char *name, const char *fixed_by) {
  struct words names = words_of_setting(fixed_by);
  bool fixed = false;
  for (size_t i = 0; i < names.count; i++) fixed |= is_fixed(search->program, names.word[i]);
  words_free(&names);
  if (fixed) return NULL;
  struct dimension *d = &space->dimensions[space->count++];
  *d = (struct dimension){.name = name, .seen = -1};
  add_choice(d, "");
  return d;
}

static void add_devices(struct space *space, const struct search *search, int gpus) {
  struct dimension *d =
      add_dimension(space, search, "devices",
                    "--devices --placement --placement-file --split STARPU_NCUDA STARPU_NCPU");
  if (!d) return;
  char *all = tune_text("--devices cuda:0");
  add_choice(d, all);
  for (int i = 1; i < gpus; i++) {
    char *more = tune_text("%s,cuda:%d", all, i);
    free(all);
    all = more;
  }
  add_choice(d, all);
  add_choice(d, "--devices cpu");
  free(all);
}

/* Without --replicas the number of replicas follows the number of workers. */
static bool workers_are_free(const struct search *search) {
  return !search->wishes.same_bits || is_fixed(search->program, "--replicas");
}

/* Adds numbers of workers below the default: all of them if they are few, else the default less one
 * and some smaller numbers. */
static void add_workers(struct space *space, const struct search *search, int cpus) {
  const int few = 8;
  const char *list = search->wishes.workers;
  struct dimension *d = add_dimension(
      space, search, "workers",
      "STARPU_NCPU STARPU_NCPUS STARPU_RESERVE_NCPU STARPU_WORKERS_CPUID STARPU_WORKERS_COREID "
      "--placement --placement-file --devices");
  if (!d) return;
  if (list) {
    add_list(d, "STARPU_NCPU=", list);
    return;
  }
  if (cpus > few) add_number(d, "STARPU_NCPU=%d", cpus - 1);
  for (int n = cpus <= few ? cpus - 1 : 3 * cpus / 4; n >= 1; n = cpus <= few ? n - 1 : n / 2)
    add_number(d, "STARPU_NCPU=%d", n);
}

/* usual: number of replicas of the command line as given. */
static void add_replicas(struct space *space, const struct search *search, int cpus, int usual) {
  const char *list = search->wishes.replicas;
  struct dimension *d =
      add_dimension(space, search, "replicas", "--replicas --split --placement --placement-file");
  if (!d) return;
  int numbers[] = {1, 2, cpus / 2, cpus, 2 * cpus, 4 * cpus};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers && !list; i++)
    if (numbers[i] > 0 && numbers[i] != usual) add_number(d, "--replicas %d", numbers[i]);
  if (list) add_list(d, "--replicas ", list);
}

static void add_schedulers(struct space *space, const struct search *search,
                           const struct trial *first) {
  static const char usual[] = "lws,prio,eager,ws,dmda,dmdas";
  const char *list = search->wishes.schedulers;
  struct dimension *d = add_dimension(space, search, "scheduler", "STARPU_SCHED");
  if (!d) return;
  add_list(d, "STARPU_SCHED=", list ? list : usual);
  for (int i = 1; i < d->count && !list; i++) {
    if (strcmp(d->choices[i] + strlen("STARPU_SCHED="), first->scheduler) != 0) continue;
    free(d->choices[i]); /* the default is there already, as "" */
    memmove(&d->choices[i], &d->choices[i + 1], (size_t)(d->count - i - 1) * sizeof d->choices[0]);
    d->count--;
  }
}

static void add_microbatches(struct space *space, const struct search *search) {
  const char *list = search->wishes.microbatches;
  struct dimension *d = add_dimension(space, search, "microbatches", "--microbatches");
  if (d) add_list(d, "--microbatches ", list ? list : "2,4");
}

static void add_pipeline(struct space *space, const struct search *search) {
  struct dimension *d =
      add_dimension(space, search, "tasks ahead on a GPU", "STARPU_CUDA_PIPELINE");
  if (d) add_list(d, "STARPU_CUDA_PIPELINE=", "4,1,0");
}

static void add_binding(struct space *space, const struct search *search) {
  struct dimension *d =
      add_dimension(space, search, "binding",
                    "STARPU_WORKERS_NOBIND STARPU_MAIN_THREAD_BIND STARPU_WORKERS_CPUID "
                    "STARPU_WORKERS_COREID STARPU_MAIN_THREAD_CPUID");
  if (!d) return;
  add_choice(d, "STARPU_WORKERS_NOBIND=1");
  if (workers_are_free(search))
    add_choice(d, "STARPU_MAIN_THREAD_BIND=1"); /* takes a core from the workers */
}

static void add_flag(struct space *space, const struct search *search, const char *name,
                     const char *choice, const char *fixed_by) {
  struct dimension *d = add_dimension(space, search, name, fixed_by);
  if (d) add_choice(d, choice);
}

/* Puts dimensions with usually large gains first. With same_bits, dimensions that change the order
 * of sums are left out. */
static void make_space(struct space *space, const struct search *search,
                       const struct trial *first) {
  bool same = search->wishes.same_bits;
  int cpus = first->cpus >= 0 ? first->cpus : (int)sysconf(_SC_NPROCESSORS_ONLN);
  *space = (struct space){0};
  if (first->gpus > 0 && !same) add_devices(space, search, first->gpus);
  if (workers_are_free(search)) add_workers(space, search, cpus);
  if (!same) add_replicas(space, search, cpus, first->replicas);
  add_schedulers(space, search, first);
  if (!same) add_microbatches(space, search);
  if (first->gpus > 0) add_pipeline(space, search);
  add_binding(space, search);
  if (!same && cpus != 1)
    add_flag(space, search, "stages", "--stages 2",
             "--stages --placement --placement-file --split");
  if (!same) add_flag(space, search, "kernels", "--tune", "--tune");
}

static void free_space(struct space *space) {
  for (int d = 0; d < space->count; d++)
    for (int i = 0; i < space->dimensions[d].count; i++) free(space->dimensions[d].choices[i]);
}

/* ---- from dimension to dimension ---- */

/* Joins the words of all present choices, but with dimension `other` at `choice`; other -1: none.
 */
static char *combine(const struct space *space, int other, int choice) {
  char *text = tune_text("%s", "");
  for (int d = 0; d < space->count; d++) {
    const struct dimension *dimension = &space->dimensions[d];
    const char *words = dimension->choices[d == other ? choice : dimension->current];
    char *more = tune_text("%s%s%s", text, *text && *words ? " " : "", words);
    free(text);
    text = more;
  }
  return text;
}

/* The new choice: the winner, or the default if that is as good within the noise. */
static int settle(const struct tuner *tuner, const int *choices, const struct estimate *gains,
                  size_t count, size_t winner) {
  for (size_t i = 1; i < count && !winner; i++) {
    double noise = gains[i].spread > tuner->least ? gains[i].spread : tuner->least;
    if (choices[i] == 0 && gains[i].count > 1 && gains[i].value >= 1 - noise) return 0;
  }
  return choices[winner];
}

static void compare(struct tuner *tuner, const struct search *search, struct space *space, int at,
                    double deadline) {
  struct dimension *d = &space->dimensions[at];
  const double far = 0.8;
  char *settings[MOST_CHOICES];
  int choices[MOST_CHOICES];
  struct estimate gains[MOST_CHOICES];
  size_t count = 0;
  settings[count] = combine(space, -1, 0);
  choices[count++] = d->current;
  for (int i = 0; i < d->count; i++) {
    if (i == d->current || d->hopeless[i]) continue;
    settings[count] = combine(space, at, i);
    choices[count++] = i;
  }
  struct contest contest = {d->name, (const char **)settings, count, search->rounds, false,
                            deadline};
  size_t winner = count > 1 ? contest_run(tuner, &contest, gains) : 0;
  int choice = count > 1 ? settle(tuner, choices, gains, count, winner) : d->current;
  for (size_t i = 1; i < count; i++)
    if (choices[i] && !(gains[i].value >= far)) d->hopeless[choices[i]] = true;
  if (choice != d->current) space->changes++;
  d->current = choice;
  d->seen = space->changes;
  for (size_t i = 0; i < count; i++) free(settings[i]);
}

/* Compares the best setting with the default again, in more rounds: the best of many measurements
 * is usually a lucky one. */
static void confirm(struct tuner *tuner, const struct search *search, struct verdict *verdict) {
  struct estimate gains[2];
  const char *settings[] = {"", verdict->setting};
  struct contest contest = {
      "the best one beside the default", settings, 2, search->rounds + 2, true, search->end};
  contest_run(tuner, &contest, gains);
  verdict->gain = gains[1];
  verdict->confirmed = gains[1].count > 1;
  bool failed = tuner_entry(tuner, verdict->setting)->failed;
  if (!failed && (!verdict->confirmed || is_gain(tuner, gains[1]))) return;
  free(verdict->setting);
  verdict->setting = tune_text("%s", "");
}

/* Time to keep for the confirmation: at least one run in each round, but at most a third of all
 * time. */
static double reserve(const struct tuner *tuner, const struct search *search, double began) {
  double runs = 2 * search->rounds * tuner->cost, most = (search->end - began) / 3;
  return runs < most ? runs : most;
}

/* Beside the default, which is compared with itself, too. */
static bool has_tried(const struct tuner *tuner) {
  for (size_t i = 1; i < tuner->count; i++)
    if (tuner->entries[i].ratio_count || tuner->entries[i].failed) return true;
  return false;
}

struct verdict search_run(struct tuner *tuner, const struct search *search,
                          const struct trial *first) {
  const int most_passes = 3;
  struct verdict verdict = {0};
  struct space space;
  double began = tune_now();
  make_space(&space, search, first);
  for (int pass = 0; pass < most_passes; pass++)
    for (int d = 0; d < space.count; d++) {
      double deadline = search->end - reserve(tuner, search, began);
      if (space.dimensions[d].seen == space.changes && pass) continue;
      if (*tuner->runner.stop || tune_now() + tuner->cost > deadline) break;
      compare(tuner, search, &space, d, deadline);
    }
  verdict.setting = combine(&space, -1, 0);
  verdict.tried = has_tried(tuner);
  if (*verdict.setting && !*tuner->runner.stop) confirm(tuner, search, &verdict);
  free_space(&space);
  return verdict;
}
