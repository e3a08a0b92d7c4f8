/* Optimizers' settings: names, defaults and ranges, by the table optimizers.def. The arithmetic is
 * in codelets/update.h. */
#include "nn/optimizer.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/numbers.h"

static const struct sl__optimizer optimizers[] = {
#define SL__OPTIMIZER(...) {__VA_ARGS__},
#include "nn/optimizers.def"
#undef SL__OPTIMIZER
};

enum { OPTIMIZERS = sizeof optimizers / sizeof *optimizers };

/* The settings that are numbers. The range of a value is [0, below), or (0, below). */
static const struct setting {
  const char *name;
  size_t offset;
  unsigned takes; /* 0: all optimizers take it */
  bool above_zero;
  float below;
} settings[] = {
    {"lr", offsetof(struct sl_optimizer, lr), 0, true, HUGE_VALF},
    {"momentum", offsetof(struct sl_optimizer, momentum), SL__TAKES_MOMENTUM, false, 1},
    {"weight_decay", offsetof(struct sl_optimizer, weight_decay), 0, false, HUGE_VALF},
    {"beta1", offsetof(struct sl_optimizer, beta1), SL__TAKES_BETA1, true, 1},
    {"beta2", offsetof(struct sl_optimizer, beta2), SL__TAKES_BETA2, true, 1},
    {"epsilon", offsetof(struct sl_optimizer, epsilon), SL__TAKES_EPSILON, true, HUGE_VALF},
    {"clip", offsetof(struct sl_optimizer, clip), 0, false, HUGE_VALF},
    {"average", offsetof(struct sl_optimizer, average), 0, false, 1},
};

enum { SETTINGS = sizeof settings / sizeof *settings };

static float value_of(const struct sl_optimizer *o, const struct setting *s) {
  return *(const float *)((const char *)o + s->offset);
}

/* ---- names ---- */

/* Adds an item to a list: the first as it is, a later one after ", " or the last word. */
static void add_name(char *list, size_t size, const char *name, bool is_last, const char *word) {
  size_t used = strlen(list);
  const char *between = !used ? "" : is_last ? word : ", ";
  snprintf(list + used, size - used, "%s%s", between, name);
}

/* "adam and adamw": the optimizers that take a setting; for 0 all optimizers. */
static const char *names_of(unsigned takes, const char *word, char *list, size_t size) {
  int last = OPTIMIZERS - 1;
  while ((optimizers[last].takes & takes) != takes) last--;
  *list = '\0';
  for (int i = 0; i <= last; i++)
    if ((optimizers[i].takes & takes) == takes)
      add_name(list, size, optimizers[i].name, i == last, word);
  return list;
}

const char *sl_optimizer_name(int i) {
  return i >= 0 && i < OPTIMIZERS ? optimizers[i].name : NULL;
}

enum sl_status sl_optimizer_parse(const char *name, struct sl_optimizer *optimizer) {
  SL__NEEDS(name, optimizer);
  char list[256];
  for (int i = 0; i < OPTIMIZERS; i++)
    if (!strcmp(name, optimizers[i].name)) {
      *optimizer = optimizers[i].start;
      optimizer->kind = optimizers[i].kind;
      return SL_OK;
    }
  return sl__fail(SL_BAD_ARGUMENT, "optimizer '%s' is unknown; use %s", name,
                  names_of(0, " or ", list, sizeof list));
}

/* ---- rows ---- */

/* The row of a kind, of two rows the one with or without momentum; NULL for an unknown kind. */
static const struct sl__optimizer *find(const struct sl_optimizer *o) {
  const struct sl__optimizer *found = NULL;
  for (int i = 0; i < OPTIMIZERS; i++) {
    const struct sl__optimizer *row = &optimizers[i];
    if (row->kind != o->kind) continue;
    if ((row->start.momentum > 0) == (o->momentum > 0)) return row;
    if (!found) found = row;
  }
  return found;
}

const struct sl__optimizer *sl__optimizer_of(const struct sl_optimizer *o) { return find(o); }

int sl__optimizer_states(const struct sl_optimizer *o) {
  int count = 0;
  for (int k = 0; k < SL__STATES; k++) count += sl__optimizer_state(o, k) != NULL;
  return count;
}

const char *sl__optimizer_state(const struct sl_optimizer *o, int k) {
  if (k == SL__AVERAGE) return o->average > 0 ? "average" : NULL;
  return find(o)->state[k];
}

bool sl__optimizer_skips_rows(const struct sl_optimizer *o) {
  return find(o)->update_rows && o->weight_decay <= 0;
}

const char *sl__optimizer_text(const struct sl_optimizer *o, char text[SL__OPTIMIZER_TEXT]) {
  char number[SL__FLOAT_TEXT];
  size_t used = (size_t)snprintf(text, SL__OPTIMIZER_TEXT, "%s", find(o)->name);
  for (int i = 0; i < SETTINGS && used < SL__OPTIMIZER_TEXT; i++)
    if (value_of(o, &settings[i]) != 0)
      used += (size_t)snprintf(text + used, SL__OPTIMIZER_TEXT - used, ", %s %s", settings[i].name,
                               sl__float_text(value_of(o, &settings[i]), number));
  if (o->nesterov && used < SL__OPTIMIZER_TEXT)
    snprintf(text + used, SL__OPTIMIZER_TEXT - used, ", nesterov");
  return text;
}

struct sl__update sl__update_of(const struct sl_optimizer *o, int64_t step, float lr) {
  return (struct sl__update){.lr = lr,
                             .weight_decay = o->weight_decay,
                             .momentum = o->momentum,
                             .nesterov = o->nesterov,
                             .beta1 = o->beta1,
                             .beta2 = o->beta2,
                             .epsilon = o->epsilon,
                             .decoupled = find(o)->decoupled,
                             .step = step + 1,
                             .max_norm = o->clip,
                             .average = o->average};
}

/* ---- checks ---- */

static enum sl_status check_taken(const struct sl__optimizer *row, const char *name,
                                  unsigned takes) {
  char list[256];
  if ((row->takes & takes) == takes) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT, "%s is for %s, not for %s", name,
                  names_of(takes, " and ", list, sizeof list), row->name);
}

/* Written so that NaN fails too. */
static enum sl_status check_range(const struct setting *s, float value) {
  if ((s->above_zero ? value > 0 : value >= 0) && value < s->below) return SL_OK;
  char limit[32] = "finite";
  if (s->below < HUGE_VALF) snprintf(limit, sizeof limit, "below %.0f", (double)s->below);
  return sl__fail(SL_BAD_ARGUMENT, "the optimizer's %s is %g; it must be %s 0 and %s", s->name,
                  (double)value, s->above_zero ? "above" : "at least", limit);
}

/* Fills in the default of a setting and checks the value. */
static enum sl_status complete(const struct sl__optimizer *row, const struct setting *s,
                               struct sl_optimizer *o) {
  enum sl_status status = SL_OK;
  float *value = (float *)((char *)o + s->offset);
  if (*value == 0) *value = value_of(&row->defaults, s);
  if ((row->takes & s->takes) == s->takes) return check_range(s, *value);
  if (*value != 0) status = check_taken(row, s->name, s->takes);
  return status;
}

enum sl_status sl_optimizer_check(struct sl_optimizer *optimizer) {
  SL__NEEDS(optimizer);
  enum sl_status status = SL_OK;
  char list[256];
  struct sl_optimizer o = *optimizer; /* settings that are refused stay unchanged */
  const struct sl__optimizer *row = find(&o);
  if (!row)
    return sl__fail(SL_BAD_ARGUMENT, "%d is not a kind of optimizer; use %s", (int)o.kind,
                    names_of(0, " or ", list, sizeof list));
  if (o.nesterov) SL__TRY(check_taken(row, "nesterov", SL__TAKES_MOMENTUM));
  if (o.nesterov && o.momentum == 0)
    return sl__fail(SL_BAD_ARGUMENT, "nesterov needs a momentum above 0 (0.9 is usual)");
  for (int i = 0; i < SETTINGS; i++) SL__TRY(complete(row, &settings[i], &o));
  *optimizer = o;
out:
  return status;
}
