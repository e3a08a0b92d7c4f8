/* Learning-rate schedules: factors of the optimizer's rate. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/numbers.h"
#include "core/base/error.h"
#include "nn/optimizer.h"
#include <starling/nn.h>

#define MOST_STEPS ((int64_t)1 << 52) /* steps stay exact in double precision */

/* ---- parsing: words split at ',' are parts, at ':' a part's arguments ---- */

static enum sl_status fail_schedule(const char *text, const char *why) {
  return sl__fail(SL_BAD_ARGUMENT,
                  "schedule '%s': %s; understood are constant, step:PERIOD[:GAMMA], "
                  "drops:STEP[:STEP...] and cosine[:FLOOR], each with ,warmup:STEPS",
                  text, why);
}

/* "12.5%" of all steps, rounded down; with few steps the result may be 0. */
static bool parse_share(const char *word, int64_t total, int64_t *steps) {
  char *end = NULL;
  double percent = sl__strtod(word, &end);
  if (end == word || strspn(word, "0123456789.") + 1 != strlen(word) || strcmp(end, "%") ||
      !(percent <= 100) || total < 1 || total > MOST_STEPS)
    return false;
  *steps = (int64_t)(percent * (double)total / 100); /* 29 / 100 is not exact */
  return true;
}

/* A percentage of all steps, but at least `least`. */
static bool parse_steps(const char *word, int64_t least, int64_t total, int64_t *steps) {
  if (strchr(word, '%')) {
    if (!parse_share(word, total, steps)) return false;
    if (*steps < least) *steps = least;
    return true;
  }
  return sl__parse_whole(word, least, MOST_STEPS, steps);
}

static bool parse_factor(const char *word, float *factor) {
  double value;
  if (!sl__parse_real(word, 0, 1, &value)) return false;
  *factor = (float)value;
  return true;
}

static enum sl_status parse_step(const char *text, const char *period, const char *gamma,
                                 int64_t total, struct sl_schedule *s) {
  s->kind = SL_STEP;
  if (!period || !parse_steps(period, 1, total, &s->period))
    return fail_schedule(text, "step needs a PERIOD, a whole number of steps from 1, or 25%");
  if (gamma && (!parse_factor(gamma, &s->gamma) || s->gamma == 0))
    return fail_schedule(text, "GAMMA must be above 0 and at most 1");
  return SL_OK;
}

static enum sl_status parse_cosine(const char *text, const char *floor, int64_t total,
                                   struct sl_schedule *s) {
  s->kind = SL_COSINE;
  s->total = total;
  if (floor && !parse_factor(floor, &s->floor))
    return fail_schedule(text, "FLOOR must be from 0 to 1");
  if (total < 1 || total > MOST_STEPS)
    return sl__fail(SL_BAD_ARGUMENT, "schedule '%s' needs the number of steps, not %" PRId64, text,
                    total);
  return SL_OK;
}

static enum sl_status parse_drops(const char *text, char *part, int64_t total,
                                  struct sl_schedule *s) {
  const char *word;
  s->kind = SL_DROPS;
  while ((word = strsep(&part, ":"))) {
    int64_t *step = &s->drop[s->drop_count];
    if (s->drop_count == SL_MAX_DROPS) return fail_schedule(text, "too many STEPs");
    if (!parse_steps(word, 0, total, step))
      return fail_schedule(text, "a drop's STEP must be a whole number, or 50%");
    if (s->drop_count++ && step[0] < step[-1])
      return fail_schedule(text, "the drops' STEPs must ascend");
  }
  return s->drop_count ? SL_OK : fail_schedule(text, "drops needs a STEP");
}

static enum sl_status parse_kind(const char *text, char *part, int64_t total,
                                 struct sl_schedule *s) {
  const char *kind = strsep(&part, ":");
  if (!strcmp(kind, "drops")) return parse_drops(text, part, total, s);
  const char *first = strsep(&part, ":"), *second = strsep(&part, ":");
  bool is_step = !strcmp(kind, "step");
  if (part || (second && !is_step)) return fail_schedule(text, "too many values");
  if (is_step) return parse_step(text, first, second, total, s);
  if (!strcmp(kind, "cosine")) return parse_cosine(text, first, total, s);
  if (strcmp(kind, "constant")) return fail_schedule(text, "its kind is unknown");
  return first ? fail_schedule(text, "constant takes no value") : SL_OK;
}

static enum sl_status parse_warmup(const char *text, char *part, int64_t total,
                                   struct sl_schedule *s) {
  const char *kind = strsep(&part, ":");
  if (strcmp(kind, "warmup")) return fail_schedule(text, "after the comma comes warmup:STEPS");
  if (!part || !parse_steps(part, 0, total, &s->warmup))
    return fail_schedule(text, "warmup needs STEPS, a whole number from 0, or 2%");
  if (s->kind == SL_COSINE && s->warmup >= s->total)
    return sl__fail(SL_BAD_ARGUMENT,
                    "schedule '%s': a warm-up of %" PRId64 " steps leaves nothing of %" PRId64
                    " for the cosine; make it shorter",
                    text, s->warmup, s->total);
  return SL_OK;
}

enum sl_status sl_schedule_parse(const char *text, int64_t total_steps,
                                 struct sl_schedule *schedule) {
  SL__NEEDS(text, schedule);
  enum sl_status status;
  struct sl_schedule s = {0};
  char *copy = sl__strdup(text), *rest = copy;
  if (!copy) return SL_NO_MEMORY;
  SL__TRY(parse_kind(text, strsep(&rest, ","), total_steps, &s));
  if (rest) SL__TRY(parse_warmup(text, rest, total_steps, &s));
  *schedule = s;
out:
  free(copy);
  return status;
}

/* ---- schedules that were not parsed ---- */

static enum sl_status check_steps(const char *what, int64_t steps, int64_t least) {
  if (steps >= least && steps <= MOST_STEPS) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT,
                  "schedule: %s is %" PRId64 "; give a number of steps from %" PRId64, what, steps,
                  least);
}

static enum sl_status check_share(const char *what, float share) {
  if (share >= 0 && share <= 1) return SL_OK; /* not NaN */
  return sl__fail(SL_BAD_ARGUMENT, "schedule: %s is %g; give 0 to 1", what, (double)share);
}

static enum sl_status check_cosine(const struct sl_schedule *s) {
  enum sl_status status = check_steps("total", s->total, 1);
  if (status == SL_OK) status = check_share("floor", s->floor);
  if (status != SL_OK || s->warmup < s->total) return status;
  return sl__fail(SL_BAD_ARGUMENT,
                  "schedule: a warm-up of %" PRId64 " steps leaves nothing of %" PRId64
                  " for the cosine; make it shorter",
                  s->warmup, s->total);
}

static enum sl_status check_drops(const struct sl_schedule *s) {
  enum sl_status status = check_share("gamma", s->gamma);
  if (status == SL_OK && (s->drop_count < 1 || s->drop_count > SL_MAX_DROPS))
    status =
        sl__fail(SL_BAD_ARGUMENT, "schedule: %d drops; give 1 to %d", s->drop_count, SL_MAX_DROPS);
  for (int i = 0; status == SL_OK && i < s->drop_count; i++) {
    status = check_steps("a drop", s->drop[i], 0);
    if (status == SL_OK && i && s->drop[i] < s->drop[i - 1])
      status =
          sl__fail(SL_BAD_ARGUMENT,
                   "schedule: a drop at step %" PRId64 " follows one at %" PRId64 "; sort them",
                   s->drop[i], s->drop[i - 1]);
  }
  return status;
}

enum sl_status sl__schedule_check(const struct sl_schedule *s) {
  enum sl_status status = check_steps("warmup", s->warmup, 0);
  if (status != SL_OK) return status;
  switch (s->kind) {
    case SL_CONSTANT: return SL_OK;
    case SL_STEP:
      status = check_steps("period", s->period, 1);
      return status == SL_OK ? check_share("gamma", s->gamma) : status;
    case SL_COSINE: return check_cosine(s);
    case SL_DROPS: return check_drops(s);
  }
  return sl__fail(SL_BAD_ARGUMENT, "schedule: there is no kind %d", (int)s->kind);
}

/* ---- as text ---- */

static float gamma_of(const struct sl_schedule *s) { return s->gamma != 0 ? s->gamma : 0.1f; }

const char *sl__schedule_text(const struct sl_schedule *s, char text[SL__SCHEDULE_TEXT]) {
  char number[SL__FLOAT_TEXT];
  size_t used = 0, size = SL__SCHEDULE_TEXT; /* 8 drops of 16 digits take 142 characters */
  switch (s->kind) {
    case SL_CONSTANT: used = (size_t)snprintf(text, size, "constant"); break;
    case SL_STEP:
      used = (size_t)snprintf(text, size, "step:%" PRId64 ":%s", s->period,
                              sl__float_text(gamma_of(s), number));
      break;
    case SL_COSINE:
      used = (size_t)snprintf(text, size, "cosine:%s of %" PRId64 " steps",
                              sl__float_text(s->floor, number), s->total);
      break;
    case SL_DROPS:
      used = (size_t)snprintf(text, size, "drops");
      for (int i = 0; i < s->drop_count; i++)
        used += (size_t)snprintf(text + used, size - used, ":%" PRId64, s->drop[i]);
      used +=
          (size_t)snprintf(text + used, size - used, " by %s", sl__float_text(gamma_of(s), number));
      break;
  }
  if (s->warmup) snprintf(text + used, size - used, ",warmup:%" PRId64, s->warmup);
  return text;
}

/* ---- the factor ---- */

static double step_factor(const struct sl_schedule *s, int64_t step) {
  double gamma = s->gamma != 0 ? (double)s->gamma : 0.1;
  return s->period > 0 ? pow(gamma, (double)(step / s->period)) : 1.0;
}

static double drops_factor(const struct sl_schedule *s, int64_t step) {
  double gamma = s->gamma != 0 ? (double)s->gamma : 0.1, factor = 1;
  for (int i = 0; i < s->drop_count && i < SL_MAX_DROPS && step >= s->drop[i]; i++) factor *= gamma;
  return factor;
}

static double cosine_factor(const struct sl_schedule *s, int64_t step) {
  const double pi = 3.14159265358979323846;
  int64_t length = s->total - s->warmup;
  if (step >= length) return (double)s->floor;
  double share = (double)step / (double)length;
  return (double)s->floor + (1.0 - (double)s->floor) * 0.5 * (1.0 + cos(pi * share));
}

/* The warm-up begins at 1 / warmup, not at 0: a step at rate 0 would waste its batch. Later steps
 * count from the end of the warm-up; drops count from the first step. The cosine still reaches its
 * floor at step `total`. */
float sl_schedule_factor(const struct sl_schedule *schedule, int64_t step) {
  SL__NEEDS_OR(0, schedule);
  if (step < schedule->warmup) return (float)((double)(step + 1) / (double)schedule->warmup);
  if (schedule->kind == SL_DROPS) return (float)drops_factor(schedule, step);
  step -= schedule->warmup;
  switch (schedule->kind) {
    case SL_STEP: return (float)step_factor(schedule, step);
    case SL_COSINE: return (float)cosine_factor(schedule, step);
    default: return 1.0f;
  }
}
