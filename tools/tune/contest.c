/* Compares settings in turns. The result is the ratio within a round: other programs and the
 * processor's temperature change from minute to minute, but seldom within a round. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/tune/tune.h"

struct participant {
  struct entry *entry;
  double *rates; /* one for each round; NAN: none */
  bool out, warmed_up;
};

/* ---- numbers ---- */

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

struct estimate estimate_of(const double *numbers, size_t count) {
  const size_t many = 5;
  struct estimate estimate = {NAN, NAN, count};
  if (!count) return estimate;
  double *sorted = tune_grow(NULL, count, sizeof *sorted);
  memcpy(sorted, numbers, count * sizeof *sorted);
  qsort(sorted, count, sizeof *sorted, by_size);
  size_t left_out = count >= many ? 1 : 0;
  estimate.value = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
  if (count > 1) estimate.spread = (sorted[count - 1 - left_out] - sorted[left_out]) / 2;
  free(sorted);
  return estimate;
}

bool is_gain(const struct tuner *tuner, struct estimate ratio) {
  return ratio.count > 1 && ratio.value - ratio.spread > 1 && ratio.value >= 1 + tuner->least;
}

static struct estimate ratio_of(const struct participant *a, const struct participant *b,
                                int rounds) {
  double *ratios = tune_grow(NULL, (size_t)rounds, sizeof *ratios);
  size_t count = 0;
  for (int r = 0; r < rounds; r++) {
    double ratio = a->rates[r] / b->rates[r];
    if (!isnan(ratio)) ratios[count++] = ratio;
  }
  struct estimate estimate = estimate_of(ratios, count);
  free(ratios);
  return estimate;
}

/* ---- all results so far ---- */

struct entry *tuner_entry(struct tuner *tuner, const char *setting) {
  for (size_t i = 0; i < tuner->count; i++)
    if (!strcmp(tuner->entries[i].setting, setting)) return &tuner->entries[i];
  tuner->entries = tune_grow(tuner->entries, tuner->count + 1, sizeof *tuner->entries);
  struct entry *entry = &tuner->entries[tuner->count++];
  *entry = (struct entry){.setting = tune_text("%s", setting)};
  return entry;
}

void tuner_free(struct tuner *tuner) {
  for (size_t i = 0; i < tuner->count; i++) {
    free(tuner->entries[i].setting);
    free(tuner->entries[i].rates);
    free(tuner->entries[i].ratios);
  }
  free(tuner->entries);
  words_free(&tuner->runner.program);
}

static void append(double **numbers, size_t *count, double number) {
  *numbers = tune_grow(*numbers, *count + 1, sizeof **numbers);
  (*numbers)[(*count)++] = number;
}

/* ---- a round ---- */

/* Does the setting learn in its first run, which must then not be measured? StarPU's models of
 * tasks and the choices of --tune are stored for later runs. */
static bool learns(const char *setting) {
  static const char *const signs[] = {"STARPU_SCHED=dm", "heft", "STARPU_CALIBRATE", "--tune"};
  for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
    if (strstr(setting, signs[i])) return true;
  return false;
}

static bool is_over(const struct tuner *tuner, const struct contest *contest) {
  return *tuner->runner.stop || tune_now() + tuner->cost > contest->deadline;
}

static void note_failure(struct participant *p, const struct trial *trial) {
  p->entry->failed = p->out = true;
  snprintf(p->entry->failure, sizeof p->entry->failure, "%s", trial->failure);
}

/* Returns false if no time is left. */
static bool run_one(struct tuner *tuner, const struct contest *contest, struct participant *p,
                    int round) {
  struct trial trial;
  int runs = learns(p->entry->setting) && !p->warmed_up ? 2 : 1;
  p->warmed_up = true;
  for (int i = 0; i < runs; i++) {
    if (is_over(tuner, contest)) return false;
    trial_run(&tuner->runner, p->entry->setting, contest->deadline, &trial);
    if (trial.end == TRIAL_CUT) return false;
    tuner->cost = (tuner->runs * tuner->cost + trial.cost) / (tuner->runs + 1);
    tuner->runs++;
    if (trial.end == TRIAL_FAILED) {
      note_failure(p, &trial);
      return true;
    }
  }
  p->rates[round] = trial.rate;
  append(&p->entry->rates, &p->entry->rate_count, trial.rate);
  return true;
}

/* Odd rounds go backwards: a drift within a round then acts once for and once against each setting.
 */
static bool run_round(struct tuner *tuner, const struct contest *contest, struct participant *list,
                      size_t count, int round) {
  for (size_t i = 0; i < count; i++) {
    struct participant *p = &list[round % 2 ? count - 1 - i : i];
    if (!p->out && !run_one(tuner, contest, p, round)) return false;
  }
  return true;
}

/* Clearly slower settings get no more runs; after the first round only very slow ones are dropped.
 */
static void drop_slow(const struct tuner *tuner, struct participant *list, size_t count,
                      int rounds) {
  const double far = 0.85;
  for (size_t i = 1; i < count; i++) {
    struct estimate ratio = ratio_of(&list[i], &list[0], rounds);
    double doubt = ratio.spread > tuner->least ? ratio.spread : tuner->least;
    bool slow = rounds == 1 ? ratio.value < far : ratio.value + doubt < 1;
    if (slow && *list[i].entry->setting) list[i].out = true;
  }
}

/* ---- a contest ---- */

/* First makes all entries, so that pointers into their table stay valid. */
static struct participant *invite(struct tuner *tuner, const struct contest *contest,
                                  size_t *count) {
  struct participant *list = tune_grow(NULL, contest->count + 1, sizeof *list);
  for (size_t i = 0; i < contest->count; i++) tuner_entry(tuner, contest->settings[i]);
  bool has_default = false;
  for (size_t i = 0; i <= contest->count; i++) {
    if (i == contest->count && has_default) break;
    const char *setting = i < contest->count ? contest->settings[i] : "";
    struct participant *p = &list[i];
    *p = (struct participant){.entry = tuner_entry(tuner, setting)};
    p->out = p->entry->failed && *setting;
    p->rates = tune_grow(NULL, (size_t)contest->rounds, sizeof *p->rates);
    for (int r = 0; r < contest->rounds; r++) p->rates[r] = NAN;
    has_default |= !*setting;
    *count = i + 1;
  }
  return list;
}

static size_t find_default(const struct participant *list, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (!*list[i].entry->setting) return i;
  return 0;
}

static void note_ratios(const struct contest *contest, struct participant *list, size_t count) {
  const struct participant *base = &list[find_default(list, count)];
  for (size_t i = 0; i < count; i++)
    for (int r = 0; r < contest->rounds; r++) {
      double ratio = list[i].rates[r] / base->rates[r];
      if (!isnan(ratio)) append(&list[i].entry->ratios, &list[i].entry->ratio_count, ratio);
    }
}

/* The fastest of the settings that are better; but an earlier one if it is as fast within the
 * noise. */
static size_t judge(const struct tuner *tuner, const struct contest *contest,
                    const struct estimate *gains) {
  size_t best = 0;
  for (size_t i = 1; i < contest->count; i++)
    if (is_gain(tuner, gains[i]) && (!best || gains[i].value > gains[best].value)) best = i;
  for (size_t i = 1; i < best; i++) {
    double noise = gains[i].spread > gains[best].spread ? gains[i].spread : gains[best].spread;
    if (noise < tuner->least) noise = tuner->least;
    if (is_gain(tuner, gains[i]) && gains[i].value >= gains[best].value - noise) return i;
  }
  return best;
}

size_t contest_run(struct tuner *tuner, const struct contest *contest, struct estimate *gains) {
  size_t count;
  struct participant *list = invite(tuner, contest, &count);
  if (!tuner->quiet)
    fprintf(stderr, "starling-tune: %s: %zu setting%s\n", contest->name, contest->count,
            contest->count == 1 ? "" : "s");
  for (int r = 0; r < contest->rounds; r++) {
    if (!run_round(tuner, contest, list, count, r)) break;
    if (!contest->whole) drop_slow(tuner, list, count, r + 1);
  }
  note_ratios(contest, list, count);
  for (size_t i = 0; i < contest->count; i++)
    gains[i] = list[i].entry->failed ? (struct estimate){NAN, NAN, 0}
                                     : ratio_of(&list[i], &list[0], contest->rounds);
  size_t winner = judge(tuner, contest, gains);
  for (size_t i = 0; i < count; i++) free(list[i].rates);
  free(list);
  return winner;
}
